"""Questions found in the source of a handler."""

from functools import partial, wraps
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import fastapi_mcp_mrtr.rounds.sentinels as mrtr
from fastapi_mcp_mrtr.rounds.questions import Titles, declared_asks
from fastapi_mcp_mrtr.rounds.sentinels import Rounds, SyncRounds, need_input
from fastapi_mcp_mrtr.rounds.sentinels import need_input as ask_for


class Seat(BaseModel):
    row: int


class Trip(BaseModel):
    stops: list[str]


KEY = "named"
evaluated: list[str] = []


def make_schema() -> Any:
    evaluated.append("make_schema")
    return Trip


async def seen(limit: int) -> Rounds[Any]:
    yield need_input("a", "A?", Seat)
    yield need_input(key="b", message="B?", schema=Literal["x"])
    if limit:
        yield mrtr.need_input(KEY, "?", Annotated[int, Field(ge=1, le=-1 + 5)])
    yield [ask_for(f"{limit}", "?", bool | None), ask_for("e", "?", list[Literal["a", "b"]])]
    yield need_input("f", "?", Annotated[str, Titles({"a": "A"})])


def test_the_questions_of_a_handler_are_found_in_order() -> None:
    """Decision: keys and forms can be listed without running the handler."""
    found = declared_asks(seen)
    assert [ask.key for ask in found] == ["a", "b", "named", None, "e", "f"]
    assert found[0].question.requested_schema["required"] == ["row"]
    assert found[2].question.requested_schema["properties"]["value"]["maximum"] == 4


async def bad() -> Rounds[Any]:
    yield need_input("trip", "?", Trip)


async def bad_computed_key(n: int) -> Rounds[Any]:
    yield need_input(f"trip{n}", "?", Trip)


class Desk:
    async def bad(self) -> Rounds[Any]:
        yield need_input("trip", "?", Trip)

    def __call__(self) -> SyncRounds[Any]:
        yield need_input("trip", "?", Trip)
        return None


def wrapped() -> Any:
    @wraps(bad)
    def wrapper() -> Any:
        return bad()

    return wrapper


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (bad, r"bad, 'trip': Trip\.stops: "),
        (bad_computed_key, r"bad_computed_key, a question: Trip\.stops: "),
        (partial(bad_computed_key, 1), r"bad_computed_key"),
        (Desk().bad, r"Desk\.bad, 'trip'"),
        (Desk.bad, r"Desk\.bad, 'trip'"),
        (Desk(), r"Desk\.__call__, 'trip'"),
        (wrapped(), r"bad, 'trip'"),
    ],
)
def test_a_form_that_cannot_be_asked_is_an_error_at_registration(handler: Any, says: str) -> None:
    """Decision: names handler, key, model and field; before the first call."""
    with pytest.raises(TypeError, match=says):
        declared_asks(handler)


def test_names_of_an_enclosing_function_are_seen() -> None:
    """Decision: handlers are often made inside a factory."""
    form = Trip

    async def handler() -> Rounds[Any]:
        yield need_input("trip", "?", form)

    with pytest.raises(TypeError, match="'trip'"):
        declared_asks(handler)


def test_names_not_assigned_yet_are_no_hindrance() -> None:
    """Decision: what does not resolve is left to the call."""

    async def handler() -> Rounds[Any]:
        yield need_input("seat", "?", Seat)
        yield need_input("later", "?", later)

    assert [ask.key for ask in declared_asks(handler)] == ["seat"]
    later = Trip
    with pytest.raises(TypeError, match="'later'"):
        declared_asks(handler)


async def unseen(form: Any) -> Rounds[Any]:
    Seat = Trip
    chosen = Trip
    yield need_input("parameter", "?", form)
    yield need_input("local", "?", chosen)
    yield need_input("shadowed", "?", Seat)
    yield need_input("computed", "?", make_schema())
    yield need_input("computed too", "?", Trip if form else Seat)
    yield need_input("missing", "?", nowhere)  # type: ignore[name-defined]  # noqa: F821
    yield need_input("fails", "?", Annotated[int, Field(nowhere=Trip.nowhere)])  # type: ignore[attr-defined,call-overload]
    yield need_input(*form)
    yield need_input(**form)
    yield form.need_input("x", "?", Trip)
    yield (lambda: need_input("lambda", "?", Trip))()

    def nested() -> Any:
        return need_input("nested", "?", Trip)

    class Local:
        ask = need_input("class", "?", Seat)

    yield nested(), Local


def test_what_cannot_be_seen_is_left_to_the_call() -> None:
    """Decision: nothing of the handler runs at registration, and no name is guessed."""
    assert declared_asks(unseen) == []
    assert evaluated == []


WITHOUT_SOURCE: dict[str, Any] = {"need_input": need_input, "Trip": Trip}
exec("def handler():\n    yield need_input('x', '?', Trip)", WITHOUT_SOURCE)


@pytest.mark.parametrize(
    "handler",
    [
        len,
        partial(print),
        WITHOUT_SOURCE["handler"],
        lambda: need_input("x", "?", Trip),
        (lambda: need_input("x", "?", Trip), 1)[0],
        object,
    ],
)
def test_handlers_without_readable_source_have_no_visible_questions(handler: Any) -> None:
    """Decision: built-ins, lambdas and generated code are checked when they ask."""
    assert declared_asks(handler) == []


async def unpaid(amount: int) -> str:
    mrtr.step("charge", len, "5")
    return "Paid."


async def seated() -> Rounds[str]:
    ok = yield need_input("ok", "?", bool)
    if ok:
        ask_for("seat", "?", Seat)
    yield "Seated."


async def delegated() -> Rounds[str]:
    seated()
    yield "Seated."


def delegated_sync() -> SyncRounds[str]:
    Desk.__call__(Desk())
    yield mrtr.not_yet()
    return "Seated."


def first_line(handler: Any) -> int:
    line: int = handler.__code__.co_firstlineno
    return line


@pytest.mark.parametrize(
    ("handler", "line", "called"),
    [
        (unpaid, 1, "mrtr.step"),
        (seated, 3, "ask_for"),
        (delegated, 1, "seated"),
        (delegated_sync, 1, "Desk.__call__"),
    ],
)
def test_a_forgotten_yield_is_an_error_at_registration(
    handler: Any, line: int, called: str
) -> None:
    """User report: the client read "Paid." though nothing was charged."""
    with pytest.raises(TypeError) as raised:
        declared_asks(handler)
    assert str(raised.value) == (
        f"{handler.__qualname__}, line {first_line(handler) + line}: {called}(...) was not "
        f"yielded, so it does nothing: write `yield {called}(...)`"
    )


def test_the_line_is_that_of_the_file_below_decorators_too() -> None:
    """Decision: the number is the one an editor shows."""

    def unchanged(fn: Any) -> Any:
        return fn

    @unchanged
    @unchanged
    async def handler() -> str:
        mrtr.log("info", "x")
        return ""

    with pytest.raises(TypeError, match=f"line {first_line(handler) + 3}: "):
        declared_asks(handler)


async def yielded_in_the_end(log: Any) -> Rounds[str]:
    ask = need_input("seat", "?", Seat)
    print("not", "an", "ask")
    log("info", "a parameter's name")
    yield mrtr.log("info", "x")
    yield ask
    yield "Seated."


def test_what_is_kept_to_be_yielded_later_is_fine() -> None:
    """Decision: only a statement of its own can do nothing for certain."""
    assert [ask.key for ask in declared_asks(yielded_in_the_end)] == ["seat"]
