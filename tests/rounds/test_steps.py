"""Steps: which calls are the same, and which results survive."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import lru_cache, partial, wraps
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar
from unittest.mock import AsyncMock
from uuid import UUID

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field

from fastapi_mcp_mrtr.rounds.steps import call_digest, call_name, call_text, result_codec

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Number(IntEnum):
    ONE = 1


class Hold(BaseModel):
    model_config = ConfigDict(extra="allow")
    price: int = Field(validation_alias="cost", serialization_alias="amount")
    colour: Colour = Colour.RED


def hold(price: int, **more: Any) -> Hold:
    return Hold.model_validate({"cost": price, **more})


@dataclass
class Point:
    x: int
    y: date


class Service:
    """Its default text is an address."""

    def method(self) -> int:
        return 1


# --- results ---------------------------------------------------------------------------------


def round_trip(fn: Callable[..., Any], result: Any) -> Any:
    codec = result_codec(fn)
    return codec.read(codec.write(result))


def returning(annotation: Any) -> Callable[[], Any]:
    def fn() -> Any: ...

    fn.__annotations__ = {"return": annotation}
    return fn


@pytest.mark.parametrize(
    ("annotation", "result"),
    [
        (int, 1),
        (None, None),
        (str, "é\u2028"),
        (bytes, b"\xff\x00"),
        (list[bytes], [b"\xff"]),
        (Decimal, Decimal("1.10")),
        (datetime, datetime(2026, 7, 28, tzinfo=UTC)),
        (date, date(2026, 7, 28)),
        (timedelta, timedelta(seconds=1.5)),
        (UUID, UUID(int=1)),
        (Colour, Colour.BLUE),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (frozenset[str], frozenset("ab")),
        (dict[int, Point], {1: Point(1, date(2026, 7, 28))}),
        (Point, Point(1, date(2026, 7, 28))),
        (Hold, hold(3)),
        (list[Hold], [hold(3), hold(4, colour=Colour.BLUE)]),
        (Hold | None, None),
        (int | Hold, hold(3)),
        (Annotated[int, Field(ge=1)], 1),
        (Awaitable[Hold], hold(3)),
        (Coroutine[Any, Any, Hold], hold(3)),
        ("Hold", hold(3)),
        (Any, {"a": [1]}),
        (object, {"a": [1]}),
        (T, {"a": [1]}),
    ],
)
def test_a_result_is_read_back_as_its_return_annotation_says(annotation: Any, result: Any) -> None:
    """Decision: typed by the annotation, whatever aliases a model has on the way out or in."""
    read = round_trip(returning(annotation), result)
    assert read == result
    assert type(read) is type(result)


def test_without_annotation_a_result_becomes_plain_json() -> None:
    """Decision: the same on the first run and on replay, so not the object that was returned."""

    def fn():  # type: ignore[no-untyped-def]
        ...

    assert round_trip(fn, (Point(1, date(2026, 7, 28)), {1: b"a"})) == [
        {"x": 1, "y": "2026-07-28"},
        {"1": "a"},
    ]


@pytest.mark.parametrize(
    ("annotation", "result"),
    [
        (int, "x"),
        (int, object()),
        (Hold, None),
        (Hold, {"amount": 3}),
        (Any, object()),
        (list[int], [1, "x"]),
    ],
)
def test_what_does_not_survive_is_noticed(annotation: Any, result: Any) -> None:
    """Decision: at the first run, not at the replay that cannot read it."""
    with pytest.raises(ValueError, match=r"."):
        round_trip(returning(annotation), result)


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def hold_for(row: int) -> Hold:
    return hold(row)


class Holder:
    def hold(self, row: int) -> Hold:
        return hold(row)

    @classmethod
    def build(cls) -> Hold:
        return hold(1)

    def __call__(self) -> Hold:
        return hold(1)


@pytest.mark.parametrize(
    "fn",
    [
        hold_for,
        partial(hold_for, 1),
        partial(partial(hold_for), 1),
        decorated(hold_for),
        lru_cache(hold_for),
        Holder().hold,
        Holder.build,
        Holder(),
        Hold,
    ],
)
def test_the_annotation_is_found_behind_every_kind_of_callable(fn: Any) -> None:
    """Decision: methods, partials, decorated functions, callable objects, classes."""
    assert round_trip(fn, hold(3)) == hold(3)


@pytest.mark.parametrize("fn", [len, [].append, AsyncMock(), partial(print)])
def test_callables_without_annotation_give_plain_json(fn: Any) -> None:
    """Decision: what cannot be inspected is no error."""
    assert round_trip(fn, (1, 2)) == [1, 2]


def test_a_codec_is_made_once_a_function() -> None:
    """Decision: schemas are built once, not on every round."""
    assert result_codec(hold_for) is result_codec(partial(hold_for, 1))


def test_functions_made_anew_share_a_codec() -> None:
    """Decision: a function defined inside a handler costs little on every round."""
    assert result_codec(returning(list[Hold])) is result_codec(returning(list[Hold]))


def test_annotations_that_cannot_be_hashed_are_fine() -> None:
    """Decision: metadata may be anything."""
    assert round_trip(returning(Annotated[int, {"not": "hashable"}]), 1) == 1


def yields() -> Any:
    yield


async def yields_async() -> Any:
    yield


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (5, "function to call, not int"),
        (yields, "sub-flow"),
        (yields_async, "sub-flow"),
        (returning(Service), r"Service.*cannot be journaled"),
        (returning("Nowhere"), "does not resolve"),
        (returning(list["Nowhere"]), "does not resolve"),  # type: ignore[name-defined]  # noqa: F821
    ],
)
def test_what_cannot_be_a_step_is_refused(fn: Any, says: str) -> None:
    """Decision: at the line that makes the step, before anything runs."""
    with pytest.raises(TypeError, match=says):
        result_codec(fn)


def test_parameters_that_do_not_resolve_are_no_hindrance() -> None:
    """Decision: only what comes back is journaled."""

    def fn(session: "Nowhere") -> Hold:  # type: ignore[name-defined]  # noqa: F821
        return hold(1)

    assert round_trip(fn, hold(1)) == hold(1)


# --- calls -----------------------------------------------------------------------------------

SAME: list[tuple[Any, Any]] = [
    (1, 1),
    ("a", "a"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1: "a"}, {1: "a"}),
    ([1, 2], (1, 2)),
    ({"c", "b", "a"}, {"a", "b", "c"}),
    (frozenset({1, 2}), {2, 1}),
    (Colour.RED, Colour.RED),
    (Number.ONE, 1),
    (hold(1), hold(1)),
    (Point(1, date(2026, 1, 1)), Point(1, date(2026, 1, 1))),
    (b"ab", bytearray(b"ab")),
    (AnyUrl("https://a.example/"), AnyUrl("https://a.example/")),
    (Service(), Service()),
    (Service().method, Service().method),
    (hold_for, hold_for),
    (Hold, Hold),
    (float("nan"), float("nan")),
]

DIFFERENT: list[tuple[Any, Any]] = [
    (1, 2),
    (1, "1"),
    (1, True),
    (1, 1.0),
    (None, "None"),
    ({1: "a"}, {"1": "a"}),
    ({"bytes": "61"}, b"a"),
    ({"a"}, ["a"]),
    ({"a"}, {"b"}),
    (b"a", "a"),
    (Colour.RED, Colour.BLUE),
    (hold(1), hold(2)),
    (hold(1), hold(1, extra=1)),
    (hold(1), {"price": 1, "colour": "red"}),
    (Point(1, date(2026, 1, 1)), Point(1, date(2026, 1, 2))),
    (date(2026, 1, 1), "2026-01-01"),
    (Decimal("1.0"), Decimal("1.00")),
    (timedelta(1), timedelta(2)),
    (UUID(int=1), UUID(int=2)),
    (PurePosixPath("a"), PurePosixPath("b")),
    (AnyUrl("https://a.example/"), AnyUrl("https://b.example/")),
    (Service(), object()),
    (hold_for, len),
]


def _with(value: Any) -> Any:
    fn: Any = hold_for
    return partial(fn, k=value)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_arguments_make_the_same_call(one: Any, other: Any) -> None:
    """Decision: arguments count as data; services count by their type, order of sets does not."""
    assert call_digest(len, [one], {"k": one}) == call_digest(len, [other], {"k": other})


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_arguments_make_another_call(one: Any, other: Any) -> None:
    """Decision: typed, so that `1`, `"1"` and `True` differ."""
    assert call_digest(len, [one], {}) != call_digest(len, [other], {})
    assert call_digest(len, [], {"k": one}) != call_digest(len, [], {"k": other})
    assert call_digest(partial(len, one), [], {}) != call_digest(partial(len, other), [], {})
    assert call_digest(_with(one), [], {}) != call_digest(_with(other), [], {})


def test_another_function_makes_another_call() -> None:
    """Decision: told apart by name, so that moving a module does not break open flows."""
    assert call_digest(len, [1], {}) != call_digest(print, [1], {})


def test_the_digest_is_the_same_in_every_process() -> None:
    """Decision: any worker continues any flow, whatever its hash seed."""
    arguments = [{"c", "b", "a", "d"}, frozenset("xyz"), Colour.RED, hold(1), Service()]
    assert call_digest(hold_for, arguments, {"k": {1: "a"}}) == "WrvZ45QJAT5n0bJqLUaJ2IQc3D7Jrgo4"


def test_an_argument_is_only_looked_at() -> None:
    """Decision: digesting must not consume an iterator that the step is going to read."""
    iterator = iter([1, 2])
    call_digest(len, [iterator], {})
    assert list(iterator) == [1, 2]


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "text"),
    [
        (len, ["a"], {}, "len('a')"),
        (Holder().hold, [4], {"x": hold(1)}, "Holder.hold(4, x=Hold(price=1, colour="),
        (partial(hold_for, 1), [], {}, "hold_for()"),
        (hold_for, [Service()], {}, "hold_for(<Service>)"),
        (hold_for, [Service().method, len], {}, "hold_for(Service.method, len)"),
        (Holder(), [], {}, "Holder()"),
        (hold_for, ["x" * 100], {}, f"hold_for('{'x' * 78}…)"),
    ],
)
def test_a_call_is_shown_as_it_would_be_written(fn: Any, args: Any, kwargs: Any, text: str) -> None:
    """Decision: recognisable, short, and without addresses, which are new on every round."""
    assert call_text(fn, args, kwargs).startswith(text)


def test_names_of_callables() -> None:
    """Decision: by qualified name, or by type where there is none."""
    assert call_name(Holder.hold) == "Holder.hold"
    assert call_name(Holder()) == "Holder"
