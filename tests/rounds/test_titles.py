"""Titles of options."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from fastapi_mcp_mrtr.rounds.schemas import elicitation_schema
from fastapi_mcp_mrtr.rounds.titles import Titles


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize("titles", [{}, {"a": 1}, {1: "a"}, {Colour: "a"}])
def test_titles_map_text_to_text(titles: Any) -> None:
    """Decision: refused at the line that makes them."""
    with pytest.raises(TypeError, match="Titles"):
        Titles(titles)


def test_an_option_without_title_shows_its_value() -> None:
    """Decision: titles where they help."""
    schema: Any = Annotated[Colour, Titles({Colour.RED: "Red"})]
    wire = elicitation_schema(schema).requested_schema["properties"]["value"]
    assert wire["oneOf"] == [
        {"const": "red", "title": "Red"},
        {"const": "blue", "title": "blue"},
    ]


def test_titles_do_not_touch_other_uses_of_the_enum() -> None:
    """Decision: the same enum may be asked for with and without titles."""
    titled: Any = Annotated[Colour, Titles({Colour.RED: "Red"})]
    schema: Any = list[Colour]
    elicitation_schema(titled)
    wire = elicitation_schema(schema).requested_schema["properties"]["value"]
    assert wire["items"] == {"type": "string", "enum": ["red", "blue"]}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (Annotated[str, Titles({"a": "A"})], "a", "b"),
        (Annotated[str | None, Titles({"a": "A"})], None, "b"),
        (Annotated[list[str], Titles({"a": "A"})], ["a"], ["b"]),
        (Annotated[Literal["a"], Titles({"a": "A"})], "a", "b"),
    ],
)
def test_titles_on_text_are_the_options(schema: Any, good: Any, bad: Any) -> None:
    """Decision: choices that are known only while the handler runs are still checked."""
    adapter: TypeAdapter[Any] = TypeAdapter(schema)
    assert adapter.validate_python(good) == good
    with pytest.raises(ValidationError):
        adapter.validate_python(bad)


def test_equal_titles_are_equal() -> None:
    """Decision: so that equal questions are built once."""
    assert Titles({"a": "A"}) == Titles({"a": "A"})
    assert hash(Titles({"a": "A"})) == hash(Titles({"a": "A"}))
    assert Titles({"a": "A"}) != Titles({"a": "B"})
