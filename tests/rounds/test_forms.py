"""Answers to forms: strict, in plain words, the same on every replay."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from itertools import count
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AnyUrl,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    EmailStr,
    Field,
    HttpUrl,
    NaiveDatetime,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fastapi_mcp_mrtr.rounds.forms import InvalidAnswer
from fastapi_mcp_mrtr.rounds.schemas import elicitation_schema


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B"]
    window: bool = False
    note: str | None


def reason(schema: Any, content: Any) -> str:
    with pytest.raises(InvalidAnswer) as caught:
        elicitation_schema(schema).parse(content)
    assert str(caught.value) == caught.value.reason
    return caught.value.reason


@pytest.mark.parametrize(
    ("schema", "given_", "value"),
    [
        (str, "a", "a"),
        (int, 3, 3),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (float, 2.5, 2.5),
        (bool, False, False),
        (date, "2026-07-28", date(2026, 7, 28)),
        (datetime, "2026-07-28T09:30:00Z", datetime(2026, 7, 28, 9, 30, tzinfo=UTC)),
        (EmailStr, "a@example.org", "a@example.org"),
        (AnyUrl, "https://example.org/", AnyUrl("https://example.org/")),
        (Literal["a", "b"], "b", "b"),
        (Colour, "red", Colour.RED),
        (list[Colour], ["red", "blue"], [Colour.RED, Colour.BLUE]),
        (list[Literal["a"]], [], []),
        (int | None, 3, 3),
        (int | None, None, None),
    ],
)
def test_a_scalar_is_unwrapped_and_typed(schema: Any, given_: Any, value: Any) -> None:
    """Decision: JSON Schema's idea of each type: 3.0 is a whole number, 3 a number."""
    parsed = elicitation_schema(schema).parse({"value": given_})
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("schema", "given_", "why"),
    [
        (str, 1, "must be text"),
        (str, ["a"], "must be text"),
        (int, "3", "must be a whole number"),
        (int, 3.5, "must be a whole number"),
        (int, True, "must be a whole number"),
        (int, float("nan"), "must be a whole number"),
        (int, float("inf"), "must be a whole number"),
        (float, "3", "must be a number"),
        (float, True, "must be a number"),
        (float, float("nan"), "must be a number"),
        (bool, "yes", "must be yes or no"),
        (bool, 1, "must be yes or no"),
        (date, 1, "must be text"),
        (date, "x", "must be a date like 2026-07-28"),
        (date, "2026-07-28T09:30:00Z", "must be a date like 2026-07-28"),
        (datetime, "x", "must be a date and time like 2026-07-28T09:30:00Z"),
        (datetime, 1.5, "must be text"),
        (AwareDatetime, "2026-07-28T09:30:00", "must name its time zone"),
        (NaiveDatetime, "2026-07-28T09:30:00Z", "must not name a time zone"),
        (EmailStr, "secret", "must be an email address"),
        (AnyUrl, "secret", "must be a URL"),
        (HttpUrl, "ftp://secret/", "must be a URL that begins with 'http' or 'https'"),
        (Literal["a", "b"], "secret", "must be 'a' or 'b'"),
        (Colour, "secret", "must be 'red' or 'blue'"),
        (list[Colour], "red", "must be a list of options"),
        (list[Colour], [1], "must be a list of options"),
        (list[Colour], ["red", "secret"], "1: must be 'red' or 'blue'"),
        (Annotated[list[Colour], Field(min_length=1)], [], "must have at least 1 options"),
        (
            Annotated[list[Colour], Field(max_length=1)],
            ["red", "red"],
            "must have at most 1 options",
        ),
        (Annotated[int, Field(ge=1)], 0, "must be at least 1"),
        (Annotated[int, Field(le=40)], 50, "must be at most 40"),
        (Annotated[int, Field(gt=1)], 1, "must be more than 1"),
        (Annotated[int, Field(lt=40)], 40, "must be less than 40"),
        (Annotated[str, Field(min_length=2)], "a", "must have at least 2 characters"),
        (Annotated[str, Field(max_length=2)], "secret", "must have at most 2 characters"),
        (str, {"a": 1}, "must be text"),
        (str, None, "is required"),
        (str, "\ud800", "must be readable text"),
    ],
)
def test_what_does_not_fit_is_said_in_plain_words(schema: Any, given_: Any, why: str) -> None:
    """Decision: strict, no "yes" for a bool; the given value is never repeated."""
    assert reason(schema, {"value": given_}) == why


@pytest.mark.parametrize("content", [None, "x", 5, [], [["row", 1]]])
def test_content_is_an_object(content: Any) -> None:
    """Spec: ElicitResult.content is an object."""
    assert reason(Seat, content) == "must be a form"


def test_reasons_name_their_fields() -> None:
    """Decision: the user sees which field to correct, all of them at once."""
    assert reason(Seat, {"row": 50, "letter": "X"}) == (
        "row: must be at most 40; letter: must be 'A' or 'B'"
    )
    assert reason(Seat, {"row": "x", "letter": 1}) == (
        "row: must be a whole number; letter: must be text"
    )


def test_optional_fields_may_be_left_out_or_null() -> None:
    """Decision: some clients send null for what was left blank."""
    assert elicitation_schema(Seat).parse({"row": 1, "letter": "A"}) == Seat(
        row=1, letter="A", window=False, note=None
    )
    nulls = {"row": 1, "letter": "A", "window": None, "note": None}
    assert elicitation_schema(Seat).parse(nulls).window is False


def test_unknown_members_are_ignored_and_not_kept() -> None:
    """Spec: SHOULD (mrtr §Error Handling): ignore what is not recognized."""
    content = {"row": 1, "letter": "A", "note": "x", "more": {"a": ["b"]}}
    value, kept = elicitation_schema(Seat).accept(content)
    assert value == Seat(row=1, letter="A", note="x")
    assert kept == {"row": 1, "letter": "A", "note": "x"}


def test_unknown_members_do_not_offend_a_model_that_forbids_them() -> None:
    """Decision: the same for every model."""

    class Form(BaseModel):
        model_config = ConfigDict(extra="forbid")
        x: int

    assert elicitation_schema(Form).parse({"x": 1, "y": 2}).x == 1


def test_aliases_are_read() -> None:
    """Decision: by the names that were on the wire."""

    class Form(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        first: str = Field(alias="firstName")

    assert elicitation_schema(Form).parse({"firstName": "Ann"}).first == "Ann"
    assert reason(Form, {"first": "Ann"}) == "firstName: is required"


def test_the_authors_validators_speak_for_themselves() -> None:
    """Decision: their text is what the user reads."""

    class Form(BaseModel):
        day: str
        hour: int

        @field_validator("day")
        @classmethod
        def no_sunday(cls, day: str) -> str:
            if day == "Sunday":
                raise ValueError("we are closed on Sundays")
            if not day:
                raise ValueError
            return day

        @model_validator(mode="after")
        def not_late(self) -> "Form":
            if self.hour > 20:
                raise PydanticCustomError("late", "too late in the {when}", {"when": "day"})
            return self

    assert reason(Form, {"day": "Sunday", "hour": 9}) == "day: we are closed on Sundays"
    assert reason(Form, {"day": "", "hour": 9}) == "day: is not valid"
    assert reason(Form, {"day": "Monday", "hour": 21}) == "too late in the day"


def test_the_authors_validators_see_only_the_type_on_the_wire() -> None:
    """Decision: a validator that runs before pydantic's own need not fear objects or lists."""

    class Form(BaseModel):
        name: str

        @field_validator("name", mode="before")
        @classmethod
        def strip(cls, name: Any) -> str:
            return str(name.strip())

    assert elicitation_schema(Form).parse({"name": " Ann "}).name == "Ann"
    assert reason(Form, {"name": ["Ann"]}) == "name: must be text"


def test_a_default_made_anew_is_kept_as_it_was() -> None:
    """Decision: every round must read the same value."""
    numbers = count()

    class Form(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        number: int = Field(default_factory=lambda: next(numbers))
        aliased: int = Field(default_factory=lambda: next(numbers), alias="other")
        constant: int = 7

    question = elicitation_schema(Form)
    value, kept = question.accept({})
    assert kept == {"number": value.number, "other": value.aliased}
    assert question.parse(kept) == value
    assert question.accept({"number": 5, "other": 6})[1] == {"number": 5, "other": 6}


@dataclass
class Point:
    x: int
    colour: Colour = Colour.RED


@pytest.mark.parametrize(
    ("schema", "value", "content"),
    [
        (bool, True, {"value": True}),
        (Colour, Colour.RED, {"value": "red"}),
        (date, date(2026, 7, 28), {"value": "2026-07-28"}),
        (list[Colour], [Colour.RED], {"value": ["red"]}),
        (Point, Point(1), {"x": 1, "colour": "red"}),
        (
            Seat,
            Seat(row=1, letter="A", note=None),
            {"row": 1, "letter": "A", "window": False},
        ),
    ],
)
def test_a_value_can_be_written_as_content(schema: Any, value: Any, content: Any) -> None:
    """Decision: for clients that hold the value; nulls are left out."""
    question = elicitation_schema(schema)
    assert question.dump(value) == content
    assert question.parse(content) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(["row", "letter", "window", "note"], JSON)))
def test_any_content_gives_a_value_or_a_reason(content: Any) -> None:
    """Decision: a client cannot make the check itself fail."""
    question = elicitation_schema(Seat)
    try:
        value, kept = question.accept(content)
    except InvalidAnswer:
        return
    assert question.parse(kept) == value
