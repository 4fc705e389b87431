"""Types as forms: what goes on the wire, and what is refused because the wire cannot say it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, ForwardRef, Literal, Optional, Union
from uuid import UUID, uuid4

import jsonschema
import pytest
from pydantic import (
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    EmailStr,
    Field,
    HttpUrl,
    RootModel,
    SecretStr,
    create_model,
)
from typing_extensions import TypedDict

from fastapi_mcp_mrtr.rounds.schemas import elicitation_schema
from fastapi_mcp_mrtr.rounds.titles import Titles

from .wire import REQUESTED_SCHEMA


class Colour(str, Enum):  # noqa: UP042 - the older spelling, which many still use
    RED = "red"
    BLUE = "blue"


class Plain(Enum):
    """What it is for."""

    A = "a"
    B = "b"


class Word(StrEnum):
    ONE = "one"


class Single(Enum):
    ONLY = "only"


class Number(IntEnum):
    ONE = 1


def one(annotation: Any, **field: Any) -> dict[str, Any]:
    """The only property of a model with this field."""
    model: type[BaseModel] = create_model("Form", field=(annotation, Field(**field)))
    requested = elicitation_schema(model).requested_schema
    jsonschema.validate(requested, REQUESTED_SCHEMA)
    property_: dict[str, Any] = requested["properties"]["field"]
    return property_


COLOURS: Any = Titles({Colour.RED: "Red", Colour.BLUE: "Blue"})
RED_BLUE = [{"const": "red", "title": "Red"}, {"const": "blue", "title": "Blue"}]


@pytest.mark.parametrize(
    ("annotation", "wire"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (date, {"type": "string", "format": "date"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (EmailStr, {"type": "string", "format": "email"}),
        (AnyUrl, {"type": "string", "format": "uri", "minLength": 1}),
        (HttpUrl, {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Word, {"type": "string", "enum": ["one"]}),
        (Single, {"type": "string", "enum": ["only"]}),
        (Plain, {"type": "string", "enum": ["a", "b"], "description": "What it is for."}),
        (
            list[Literal["a", "b"]],
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        ),
        (list[Literal["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        (list[Colour], {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}}),
        (Annotated[Colour, COLOURS], {"type": "string", "oneOf": RED_BLUE}),
        (Annotated[Literal["red", "blue"], COLOURS], {"type": "string", "oneOf": RED_BLUE}),
        (Annotated[str, COLOURS], {"type": "string", "oneOf": RED_BLUE}),
        (Annotated[list[Colour], COLOURS], {"type": "array", "items": {"anyOf": RED_BLUE}}),
        (list[Annotated[Colour, COLOURS]], {"type": "array", "items": {"anyOf": RED_BLUE}}),
        (Annotated[list[str], COLOURS], {"type": "array", "items": {"anyOf": RED_BLUE}}),
        (Annotated[Colour | None, COLOURS], {"type": "string", "oneOf": RED_BLUE}),
        (Annotated[str | None, COLOURS], {"type": "string", "oneOf": RED_BLUE}),
        (Annotated[Optional[list[str]], COLOURS], {"type": "array", "items": {"anyOf": RED_BLUE}}),  # noqa: UP045
        (Optional[int], {"type": "integer"}),  # noqa: UP045
        (int | None, {"type": "integer"}),
        (Optional[Colour], {"type": "string", "enum": ["red", "blue"]}),  # noqa: UP045
        (Annotated[int, Field(ge=1, le=40)], {"type": "integer", "minimum": 1, "maximum": 40}),
        (Annotated[int, Field(gt=1, lt=40)], {"type": "integer", "minimum": 2, "maximum": 39}),
        (
            Annotated[int, Field(gt=1, ge=5, lt=9, le=7)],
            {"type": "integer", "minimum": 5, "maximum": 7},
        ),
        (Annotated[int | None, Field(ge=1)], {"type": "integer", "minimum": 1}),
        (Annotated[float, Field(ge=0, le=1)], {"type": "number", "minimum": 0, "maximum": 1}),
        (
            Annotated[str, Field(min_length=1, max_length=3)],
            {"type": "string", "minLength": 1, "maxLength": 3},
        ),
        (
            Annotated[list[Colour], Field(min_length=1, max_length=2)],
            {
                "type": "array",
                "items": {"type": "string", "enum": ["red", "blue"]},
                "minItems": 1,
                "maxItems": 2,
            },
        ),
        (RootModel[int], {"type": "integer"}),
        (Annotated[str, BeforeValidator(str.strip)], {"type": "string"}),
    ],
)
def test_a_field_becomes_a_primitive_schema(annotation: Any, wire: Any) -> None:
    """User report (python-sdk 1563, fastmcp 2772): every field kind in a legal schema.

    Spec: elicitation §Requested Schema.
    """
    assert one(annotation) == wire


@pytest.mark.parametrize(
    ("annotation", "default", "wire"),
    [
        (str, "x", "x"),
        (int, 3, 3),
        (float, 95.5, 95.5),
        (bool, True, True),
        (date, date(2026, 7, 28), "2026-07-28"),
        (Colour, Colour.RED, "red"),
        (Annotated[Colour, COLOURS], Colour.RED, "red"),
        (list[Colour], [Colour.RED], ["red"]),
        (int | None, 3, 3),
    ],
)
def test_a_default_is_said_as_the_wire_has_it(annotation: Any, default: Any, wire: Any) -> None:
    """Spec: elicitation §Requested Schema: all primitive types support defaults."""
    assert one(annotation, default=default)["default"] == wire


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (int | None, None),
        (int, None),
        (int, "x"),
        (float, float("inf")),
        (list[Colour], [1]),
        (str, object()),
    ],
)
def test_a_default_that_the_wire_cannot_say_stays_unsaid(annotation: Any, default: Any) -> None:
    """Decision: null never goes out, nor a default of another type. The field is still optional."""
    assert "default" not in one(annotation, default=default)


def test_what_may_be_left_out_is_not_required() -> None:
    """Decision: a default or `| None` makes a field optional on the wire."""

    class Form(BaseModel):
        a: int
        b: int | None
        c: int = 1
        d: int | None = None
        e: list[Colour] = Field(default_factory=list)

    assert elicitation_schema(Form).requested_schema["required"] == ["a"]


def test_required_is_left_out_when_nothing_is() -> None:
    """Decision: an empty list says nothing."""
    form = create_model("Form", a=(int, 1))
    assert "required" not in elicitation_schema(form).requested_schema


def test_titles_and_descriptions_of_the_author_are_kept_and_none_made_up() -> None:
    """Decision: pydantic derives titles from names; users should read what the author wrote."""

    class Form(BaseModel):
        """For developers."""

        first_name: str = Field(title="First name", description="As in the passport")
        last_name: str
        colour: Colour = Field(title="Shade")

    assert elicitation_schema(Form).requested_schema["properties"] == {
        "first_name": {
            "type": "string",
            "title": "First name",
            "description": "As in the passport",
        },
        "last_name": {"type": "string"},
        "colour": {"type": "string", "enum": ["red", "blue"], "title": "Shade"},
    }


def test_extras_of_the_author_pass_through() -> None:
    """Spec: LegacyTitledEnumSchema; conformance: enumNames."""
    extra = {"enumNames": ["One", "Two"]}
    assert one(Literal["1", "2"], json_schema_extra=extra)["enumNames"] == ["One", "Two"]


def test_extension_members_and_examples_pass_through() -> None:
    """Spec: the definitions are open; decision: members that begin with x- are the author's."""
    form: type[BaseModel] = create_model(
        "Form", a=(str, Field(examples=["x"], json_schema_extra={"x-widget": "area"}))
    )
    wire = elicitation_schema(form).requested_schema["properties"]["a"]
    assert wire == {"type": "string", "examples": ["x"], "x-widget": "area"}


def test_aliases_are_what_the_wire_calls_a_field() -> None:
    """Decision: as everywhere in pydantic."""
    form: type[BaseModel] = create_model("Form", a=(str, Field(alias="firstName")))
    assert list(elicitation_schema(form).requested_schema["properties"]) == ["firstName"]


@pytest.mark.parametrize(
    ("schema", "wire"),
    [
        (bool, {"type": "boolean"}),
        (
            Annotated[int, Field(ge=1, title="Row")],
            {"type": "integer", "minimum": 1, "title": "Row"},
        ),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Annotated[str, COLOURS], {"type": "string", "oneOf": RED_BLUE}),
        (list[Colour], {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}}),
    ],
)
def test_a_scalar_is_wrapped_in_one_property(schema: Any, wire: Any) -> None:
    """Decision: forms are objects on the wire; a scalar is the property "value"."""
    requested = elicitation_schema(schema).requested_schema
    jsonschema.validate(requested, REQUESTED_SCHEMA)
    assert requested == {"type": "object", "properties": {"value": wire}, "required": ["value"]}


def test_an_optional_scalar_is_not_required() -> None:
    """Decision: `int | None` may be left blank."""
    assert "required" not in elicitation_schema(int | None).requested_schema


def test_dataclasses_and_typed_dicts_are_forms_too() -> None:
    """Decision: whatever pydantic sees as flat fields."""

    @dataclass
    class Point:
        x: int
        y: int = 0

    class Row(TypedDict):
        x: int

    assert elicitation_schema(Point).requested_schema["required"] == ["x"]
    assert elicitation_schema(Row).requested_schema["required"] == ["x"]


class Nested(BaseModel):
    x: int


class Loop(BaseModel):
    x: int
    again: "Loop | None" = None


NOTHING_NESTED = "nothing nested, mixed or open"
OPTIONS = "a list must be of options"


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (Nested, NOTHING_NESTED),
        (Nested | None, NOTHING_NESTED),
        (dict[str, str], NOTHING_NESTED),
        (dict, NOTHING_NESTED),
        (int | str, NOTHING_NESTED),
        (int | str | None, NOTHING_NESTED),
        (Decimal, NOTHING_NESTED),
        (Any, NOTHING_NESTED),
        (object, NOTHING_NESTED),
        (None, NOTHING_NESTED),
        (Literal["a", 1], NOTHING_NESTED),
        (list[str], OPTIONS),
        (list[int], OPTIONS),
        (list[Number], OPTIONS),
        (list[Nested], OPTIONS),
        (list[list[Colour]], OPTIONS),
        (list, OPTIONS),
        (tuple[int, int], OPTIONS),
        (set[Colour], "no sets"),
        (Number, "options must be text"),
        (Literal[1, 2], "options must be text"),
        (Literal[True], "options must be text"),
        (Annotated[str, Field(pattern="a+")], "no patterns"),
        (Annotated[int, Field(multiple_of=2)], "no multiple_of"),
        (Annotated[float, Field(gt=0)], "no exclusive bounds"),
        (Annotated[float, Field(lt=0)], "no exclusive bounds"),
        (SecretStr, "use need_url"),
        (UUID, "no format 'uuid'"),
        (time, "no format 'time'"),
        (bytes, "no format 'binary'"),
        (Annotated[str, Field(deprecated=True)], "no 'deprecated'"),
        (Annotated[int, Titles({"a": "A"})], "Titles belongs"),
        (Annotated[Literal["a"], Titles({"b": "B"})], "'b', which is none"),
    ],
)
def test_what_the_wire_cannot_say_is_refused_by_model_and_field(annotation: Any, why: str) -> None:
    """Decision: at registration, not at the call. User report (mcp_dart 165): nothing nested."""
    form: type[BaseModel] = create_model("Form", field=(annotation, ...))
    with pytest.raises(TypeError, match=rf"^Form.*{why}") as caught:
        elicitation_schema(form)
    assert "field" in str(caught.value) or "Titles" in str(caught.value)


def function() -> None: ...


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (dict, "dict: .*nothing nested"),
        (Annotated[float, Field(gt=0)], "float: .*exclusive"),
        (create_model("Empty"), "Empty: has no fields"),
        (Loop, "Loop.again: .*nothing nested"),
        (5, "5 cannot be asked for"),
        (Annotated[int, Field(gt=1.5)], "int cannot be asked for"),
        (ForwardRef("Nowhere"), "Nowhere.* cannot be asked for"),
        (Callable, "cannot be asked for"),
        (Union[int, str], "nothing nested"),  # noqa: UP007
    ],
)
def test_a_schema_that_is_no_form_is_refused_by_name(schema: Any, why: str) -> None:
    """User report (claude_skills 473): no empty forms, which make some clients hang."""
    with pytest.raises(TypeError, match=why):
        elicitation_schema(schema)


def test_a_question_is_built_once_for_a_type() -> None:
    """Decision: schemas and validators are not built on the hot path."""
    assert elicitation_schema(Nested) is elicitation_schema(Nested)
    assert elicitation_schema(list[Colour]) is elicitation_schema(list[Colour])


def test_options_keep_their_order_though_equal_types_are_cached() -> None:
    """Decision: Literal["a", "b"] == Literal["b", "a"], but the user sees the order."""
    for order in (["a", "b"], ["b", "a"]):
        schema: Any = list[Literal[tuple(order)]]  # type: ignore[misc]
        wire = elicitation_schema(schema).requested_schema["properties"]["value"]
        assert wire["items"]["enum"] == order


def test_types_that_cannot_be_hashed_are_built_each_time() -> None:
    """Decision: metadata may be anything."""
    schema: Any = Annotated[int, {"not": "hashable"}]
    assert elicitation_schema(schema).requested_schema["properties"]["value"] == {"type": "integer"}


def test_equal_forms_have_equal_digests() -> None:
    """Decision: an answer is pinned to what was shown, not to the class that showed it."""
    first = create_model("A", x=(int, 1))
    second = create_model("B", x=(int, 1))
    third = create_model("C", x=(int, 2))
    assert elicitation_schema(first).digest == elicitation_schema(second).digest
    assert elicitation_schema(first).digest != elicitation_schema(third).digest


def test_a_changing_default_is_no_part_of_the_form() -> None:
    """Decision: a default_factory is not on the wire, so it does not reword the question."""
    form = create_model("Form", x=(str, Field(default_factory=lambda: str(uuid4()))))
    assert elicitation_schema(form).requested_schema["properties"] == {"x": {"type": "string"}}


def test_models_that_forbid_extras_are_fine() -> None:
    """Decision: what a model does with unknown members is not the wire's business."""

    class Form(BaseModel):
        model_config = ConfigDict(extra="forbid")
        x: int

    assert list(elicitation_schema(Form).requested_schema["properties"]) == ["x"]
