"""param_headers: arguments that are mirrored into headers, checked before any client sees them."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter, create_model

from fastapi_mcp_mrtr import MCPHeader
from fastapi_mcp_mrtr.protocol.headers import ParamHeader
from fastapi_mcp_mrtr.server.param_headers import param_headers


class Region(Enum):
    EU = "eu"
    US = "us"


def schema_of(**annotations: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {name: (annotation, ...) for name, annotation in annotations.items()}
    return TypeAdapter(create_model("Arguments", **fields)).json_schema()


def property_of(annotation: Any) -> dict[str, Any]:
    definition: dict[str, Any] = schema_of(p=annotation)["properties"]["p"]
    return definition


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (str, "string"),
        (int, "integer"),
        (bool, "boolean"),
        (str | None, "string"),
        (Literal["a", "b"], "string"),
        (Region, "string"),
        (Region | None, "string"),
    ],
)
def test_the_annotation_stands_on_a_plain_property(annotation: Any, kind: str) -> None:
    """spec: MUST only be applied to integer, string or boolean, and not behind $ref or anyOf
    (streamable-http §Schema Extension)."""
    definition = property_of(Annotated[annotation, MCPHeader("Region")])
    assert definition["type"] == kind
    assert definition["x-mcp-header"] == "Region"
    assert not {"anyOf", "$ref"} & definition.keys()


def test_the_headers_of_a_schema() -> None:
    """spec: the instance value at the chain of `properties` keys."""
    schema = schema_of(a=Annotated[str, MCPHeader("A")], b=int, c=Annotated[bool, MCPHeader("C")])
    assert param_headers("Tool", schema) == (
        ParamHeader("A", ("a",), "string"),
        ParamHeader("C", ("c",), "boolean"),
    )


def test_nested_properties_are_reachable() -> None:
    """spec: nested object properties are permitted; for schemas given as input_schema=."""
    inner = {"type": "object", "properties": {"b": {"type": "integer", "x-mcp-header": "B"}}}
    schema = {"type": "object", "properties": {"a": inner, "any": True}}
    assert param_headers("Tool", schema) == (ParamHeader("B", ("a", "b"), "integer"),)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\r\nb"])
def test_a_name_that_cannot_stand_in_a_header(name: str) -> None:
    """spec: MUST match the token syntax of RFC 9110."""
    with pytest.raises(ValueError, match="not a header name"):
        MCPHeader(name)
    schema = {"properties": {"a": {"type": "string", "x-mcp-header": name}}}
    with pytest.raises(TypeError, match=r"Tool 't', parameter 'a': .*not a header name"):
        param_headers("Tool 't'", schema)


def test_a_name_that_is_no_text() -> None:
    """spec: as above, for schemas given as input_schema=."""
    with pytest.raises(TypeError, match="not a header name"):
        param_headers("Tool", {"properties": {"a": {"type": "string", "x-mcp-header": 1}}})


@pytest.mark.parametrize("annotation", [float, list[str], dict[str, str], str | int, Any])
def test_a_type_that_cannot_be_mirrored(annotation: Any) -> None:
    """spec: parameters with type `number` are not permitted, nor any but the three."""
    schema = schema_of(p=Annotated[annotation, MCPHeader("P")])
    with pytest.raises(TypeError, match=r"parameter 'p': .* needs a string, integer or boolean"):
        param_headers("Tool", schema)


def test_a_name_used_twice() -> None:
    """spec: MUST be case-insensitively unique."""
    schema = schema_of(a=Annotated[str, MCPHeader("Region")], b=Annotated[str, MCPHeader("REGION")])
    with pytest.raises(TypeError, match=r"parameter 'b': .*used twice"):
        param_headers("Tool", schema)


class Place(BaseModel):
    region: Annotated[str, MCPHeader("Region")]


@pytest.mark.parametrize("annotation", [Place, list[Place], Place | None])
def test_an_annotation_that_no_chain_of_properties_reaches(annotation: Any) -> None:
    """spec: MUST only be applied to properties that are statically reachable."""
    with pytest.raises(TypeError, match="belongs on a parameter"):
        param_headers("Tool", schema_of(p=annotation))


def test_values_that_look_like_annotations_are_none() -> None:
    """decision: a default or an example is data."""
    schema = {"properties": {"a": {"type": "object", "default": {"x-mcp-header": "A"}}}}
    assert param_headers("Tool", schema) == ()
