"""examples: values that fit a schema."""

from datetime import date, datetime, time, timedelta
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema
import pytest
from annotated_types import MultipleOf
from pydantic import AnyUrl, BaseModel, EmailStr, Field, IPvAnyAddress, TypeAdapter

from fastapi_mcp_mrtr.http.examples import example


class Node(BaseModel):
    label: str
    children: list["Node"] = []


class Endless(BaseModel):
    other: "Endless"


class Base(BaseModel):
    name: str
    note: str = "none"
    size: int | None = None


class Level(IntEnum):
    LOW = 2


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (str, "text"),
        (Annotated[str, Field(min_length=6)], "textxx"),
        (Annotated[str, Field(max_length=2)], "te"),
        (int, 1),
        (float, 1),
        (Annotated[int, Field(ge=7)], 7),
        (Annotated[int, Field(gt=7)], 8),
        (Annotated[int, Field(lt=0)], -1),
        (Annotated[int, Field(le=-3)], -3),
        (Annotated[int, MultipleOf(5)], 5),
        (bool, True),
        (None, None),
        (list[int], [1]),
        (Annotated[list[int], Field(min_length=2)], [1, 1]),
        (list[Any], [{}]),
        (dict[str, int], {}),
        (Literal["b", "a"], "b"),
        (Literal["only"], "only"),
        (Colour, "red"),
        (Level, 2),
        (int | str, 1),
        (Annotated[str, Field(examples=["LX318", "LX319"])], "LX318"),
        (Node, {"label": "text", "children": []}),
        (Base, {"name": "text", "note": "none"}),
        (Any, {}),
    ],
    ids=str,
)
def test_a_plain_value_fits(type_: Any, expected: Any) -> None:
    """Decision: what the author gave, else the plainest there is."""
    schema = TypeAdapter(type_).json_schema()
    assert example(schema) == expected
    jsonschema.validate(expected, schema)


@pytest.mark.parametrize(
    "type_", [date, datetime, time, timedelta, EmailStr, AnyUrl, UUID, IPvAnyAddress], ids=str
)
def test_formats_are_kept(type_: Any) -> None:
    """Decision: pydantic takes the example back."""
    adapter: TypeAdapter[Any] = TypeAdapter(type_)
    adapter.validate_python(example(adapter.json_schema()))


def test_a_schema_that_needs_itself_ends() -> None:
    """Decision: nothing fits it, and a page has to end."""
    value = example(TypeAdapter(Endless).json_schema())
    depth = 0
    while value:
        value, depth = value["other"], depth + 1
    assert 0 < depth < 20


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["null", "string"]}, None),
        ({"allOf": [{"type": "integer"}]}, 1),
        ({"properties": {"a": {"const": "x"}, "b": {"type": "string"}}}, {"a": "x"}),
        ({"properties": {"a": True}, "required": ["a"]}, {"a": {}}),
        ({"$ref": "#/$defs/Gone"}, {}),
    ],
    ids=str,
)
def test_schemas_that_people_write(schema: dict[str, Any], expected: Any) -> None:
    """Decision: `input_schema=` takes any JSON Schema; an odd one breaks no page."""
    assert example(schema) == expected
