"""Handlers as their authors write them: mypy --strict and pyright accept this file as it is."""

from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr.rounds.sentinels import (
    Ask,
    Progress,
    Rounds,
    Sentinel,
    SyncRounds,
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    prefixed,
    progress,
    result_type,
    step,
)


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B", "C"]


@dataclass
class Hold:
    price: int


class Booking(BaseModel):
    flight: str


def hold_seat(flight: str, seat: Seat) -> Hold:
    return Hold(seat.row)


async def book_seat(flight: str) -> Rounds[Booking]:
    """Book a seat, asking for whatever is missing."""
    seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
    hold: Hold = yield step("hold", hold_seat, flight, seat)
    ok: bool = yield need_input("confirm", f"Pay {hold.price}?", bool)
    if not ok:
        yield Booking(flight="none")
        return
    yield Booking(flight=flight)


async def every_sentinel(done: bool) -> Rounds[str]:
    name, sure = yield need_input("name", "Name?", str), need_input("sure", "Sure?", bool)
    names: tuple[str, ...] = yield [need_input(f"name{i}", "Name?", str) for i in range(3)]
    both = [need_roots("roots"), need_url("page", "Go", "https://example.org/")]
    yield both
    yield need_sampling("poem", "A poem", max_tokens=10)
    yield progress(1, total=2)
    yield log("info", {"names": names})
    if not done:
        yield not_yet()
    booking: Booking = yield book_seat("LH1")
    other: Booking = yield prefixed("p1.", book_seat("LH2"))
    third: int = yield count(3)
    yield f"{name} {sure} {booking} {other} {third}"


def count(limit: int) -> SyncRounds[int]:
    """The result is returned."""
    more: bool = yield need_input("more", "More?", bool)
    return limit + more


def count_and_yield(limit: int) -> SyncRounds[int]:
    """The result is yielded."""
    more: bool = yield need_input("more", "More?", bool)
    yield limit + more
    return None


def leave_early(limit: int) -> SyncRounds[int]:
    """The result is one or the other."""
    if limit > 3:
        return limit
    yield 3
    return None


async def nothing() -> Rounds[None]:
    yield need_input("more", "More?", bool)


async def either() -> Rounds[int | str]:
    yield 1


async def many() -> Rounds[list[str]]:
    yield ["a"]


async def written_out() -> AsyncGenerator[Sentinel | Booking, Any]:
    yield Booking(flight="LH1")


def written_out_sync() -> Generator[Ask | Progress, Any, Booking]:
    yield progress(1)
    return Booking(flight="LH1")


def untyped() -> Generator[Any, Any, Any]:
    yield 1


def plain() -> int:
    return 1


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (book_seat, Booking),
        (every_sentinel, str),
        (count, int),
        (count_and_yield, int),
        (nothing, type(None)),
        (either, int | str),
        (many, list[str]),
        (written_out, Booking),
        (written_out_sync, Booking),
        (untyped, None),
        (plain, None),
    ],
)
def test_the_result_type_is_read_from_the_annotation(handler: Any, result: Any) -> None:
    """Decision: `T` gives a tool its output schema, in whatever way the type is written."""
    assert result_type(handler.__annotations__["return"]) == result


@pytest.mark.parametrize("alias", [Rounds, SyncRounds])
def test_a_bare_alias_says_nothing_of_the_result(alias: Any) -> None:
    """Decision: an unparametrized alias is no error, only less informative."""
    assert result_type(alias) is None
