"""A type turned into the flat schema that the wire has for forms.

Pure: no I/O, no framework. It knows neither asks nor answers.

The wire has a small subset of JSON Schema (elicitation §Requested Schema): flat objects of text,
numbers, yes/no and choices. What it cannot say is refused when the question is defined, because
a limit that the user cannot see is a form that cannot be filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import SchemaError, core_schema

from fastapi_mcp_mrtr.protocol.canonical import digest

from .forms import SCALAR, WIRE_TYPES, Question

Json = dict[str, Any]

_COMMON: Final = frozenset({"type", "title", "description", "default", "examples"})
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": _COMMON | {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "integer": _COMMON | {"minimum", "maximum"},
    "number": _COMMON | {"minimum", "maximum"},
    "boolean": _COMMON,
    "array": _COMMON | {"items", "minItems", "maxItems"},
}
"""What the wire can say of each type; members beginning with "x-" pass as well."""

_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})

_VALIDATE: Final = "check it in a validator, whose message the user will read"
_WHY: Final[Mapping[str, str]] = {
    "pattern": f"the protocol has no patterns; {_VALIDATE}",
    "multipleOf": f"the protocol has no multiple_of; {_VALIDATE}",
    "exclusiveMinimum": "the protocol has no exclusive bounds for numbers; use ge=",
    "exclusiveMaximum": "the protocol has no exclusive bounds for numbers; use le=",
    "uniqueItems": f"the protocol has no sets; use a list, and {_VALIDATE}",
    "prefixItems": "a list must be of options, a Literal or an Enum of text",
    "writeOnly": "secrets must not be asked for in a form; use need_url",
    "enum": "options must be text",
}
"""Why a keyword is refused and what to do instead, where more can be said than its name."""


class _FormSchema(GenerateJsonSchema):
    """Pydantic's schema without the titles it makes up from names."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """A default that is no JSON stays unsaid; it still applies."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def enum_schema(self, schema: core_schema.EnumSchema) -> Json:
        return {**super().enum_schema(schema), _CLASS: schema["cls"].__name__}

    def model_schema(self, schema: core_schema.ModelSchema) -> Json:
        return {**super().model_schema(schema), _CLASS: schema["cls"].__name__}


_CLASS: Final = "class"
"""Where `_FormSchema` leaves the name that pydantic takes for the title of an enum or model."""


def _flatten(schema: Json, defs: Json) -> tuple[Json, bool]:
    """The schema with references and `| None` resolved, and whether it may be left out."""
    if "$ref" in schema:
        target = defs[schema["$ref"].rpartition("/")[2]]
        rest = {k: v for k, v in schema.items() if k != "$ref"}
        return _flatten({**target, **rest}, defs)
    options = schema.get("anyOf", ())
    real = [option for option in options if option != {"type": "null"}]
    if len(real) == 1 and len(options) == 2:
        rest = {k: v for k, v in schema.items() if k != "anyOf"}
        inner, _ = _flatten(real[0], defs)
        return {**inner, **rest}, True
    return dict(schema), False


def _property(where: str, schema: Json, defs: Json) -> tuple[Json, bool]:
    """One property as the wire says it, and whether it may be left out.

    Raises:
        TypeError: The wire cannot say it; the message names `where` and why.
    """
    prop, nullable = _flatten(schema, defs)
    if (made_up := prop.pop(_CLASS, None)) is not None and prop.get("title") == made_up:
        del prop["title"]
    if "const" in prop:
        prop["enum"] = [prop.pop("const")]
    kind = str(prop.get("type"))
    allowed = _KEYWORDS.get(kind)
    if allowed is None:
        raise TypeError(
            f"{where}: the protocol can ask for text, numbers, yes/no and choices, "
            "optional or not; for nothing nested, mixed or open"
        )
    if kind == "integer":
        _close_bounds(prop)
    for keyword in prop:
        if keyword not in allowed and not keyword.startswith("x-"):
            why = _WHY.get(keyword, f"the protocol has no {keyword!r} for this type")
            raise TypeError(f"{where}: {why}")
    if "format" in prop and prop["format"] not in _FORMATS:
        raise TypeError(f"{where}: the protocol has no format {prop['format']!r}")
    if kind == "array":
        prop["items"] = _options(where, prop["items"], defs)
    if "default" in prop and not WIRE_TYPES[kind][0](prop["default"]):
        del prop["default"]
    return prop, nullable


def _close_bounds(prop: Json) -> None:
    """Whole numbers have a next one, so an exclusive bound can be said as an inclusive one."""
    if (low := prop.pop("exclusiveMinimum", None)) is not None:
        prop["minimum"] = max(low + 1, prop.get("minimum", low + 1))
    if (high := prop.pop("exclusiveMaximum", None)) is not None:
        prop["maximum"] = min(high - 1, prop.get("maximum", high - 1))


def _options(where: str, schema: Json, defs: Json) -> Json:
    """The items of a multi-select: an enum of text, or titled options."""
    items, _ = _flatten(schema, defs)
    if "oneOf" in items:  # the wire's titled options of a list carry no "type"
        return {"anyOf": items["oneOf"]}
    values = [items["const"]] if "const" in items else items.get("enum", ())
    if not values or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{where}: a list must be of options, a Literal or an Enum of text")
    return {"type": "string", "enum": values}


def elicitation_schema(schema: Any) -> Question:
    """The question that asks for a `schema`: a model, or a scalar type, or a list of options.

    Raises:
        TypeError: The wire cannot ask for it. The message names the model and the field.
    """
    if isinstance(schema, type):
        return _question(schema, "")
    try:
        hash(schema)
    except TypeError:
        return _question.__wrapped__(schema, "")
    # Literal["a", "b"] equals Literal["b", "a"], but a form shows its options in order.
    return _question(schema, repr(schema))


@lru_cache(maxsize=1024)
def _question(schema: Any, _order: str) -> Question:
    bare = get_args(schema)[0] if get_origin(schema) is Annotated else schema
    name = bare.__name__ if isinstance(bare, type) else repr(bare)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
        root = adapter.json_schema(schema_generator=_FormSchema)
    except (PydanticUserError, PydanticUndefinedAnnotation, SchemaError) as error:
        why = str(error).partition("\n")[0]  # first: pydantic 2.12's are TypeErrors as well
        raise TypeError(f"{name} cannot be asked for: {why}") from error
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    defs = root.pop("$defs", {})
    top, _ = _flatten(root, defs)
    scalar = top.get("type") != "object" or "properties" not in top
    fields = {SCALAR: root} if scalar else top["properties"]
    if not fields:
        raise TypeError(f"{name}: has no fields; ask for a bool instead")
    required = {SCALAR} if scalar else set(top.get("required", ()))
    properties: dict[str, Json] = {}
    nullable: set[str] = set()
    for field, described in fields.items():
        where = name if scalar else f"{name}.{field}"
        properties[field], may_be_null = _property(where, described, defs)
        if may_be_null:
            nullable.add(field)
    requested = {"type": "object", "properties": properties}
    if must := [field for field in properties if field in required - nullable]:
        requested["required"] = must
    return Question(
        name=name,
        requested_schema=requested,
        digest=digest(requested),
        _adapter=adapter,
        _kinds={field: described["type"] for field, described in properties.items()},
        _nulls=tuple(field for field in properties if field in required & nullable),
        _factories={} if scalar else _factories(schema, properties),
        _scalar=scalar,
    )


def _factories(schema: Any, properties: Mapping[str, Any]) -> dict[str, str]:
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return {}
    found = {
        (field.validation_alias if isinstance(field.validation_alias, str) else name): name
        for name, field in schema.model_fields.items()
        if field.default_factory is not None
    }
    return {alias: name for alias, name in found.items() if alias in properties}
