"""What a form can ask: a type turned into the flat schema of the wire, and answers into values.

Pure: no I/O, no framework. It knows neither asks nor journals, only schemas and content.

The wire has a small subset of JSON Schema (elicitation §Requested Schema): flat objects of text,
numbers, yes/no and choices. What it cannot say is refused when the question is defined, because
a limit that the user cannot see is a form that cannot be filled in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic import ValidationError as _ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import core_schema, to_json, to_jsonable_python

from fastapi_mcp_mrtr.protocol.canonical import digest

Json = dict[str, Any]

SCALAR: Final = "value"
"""The one property that carries an answer which is no model."""


class InvalidAnswer(Exception):
    """Content that does not fit its question. `reason` is for the user who gave it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- option titles ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False)
class Titles:
    """Say how options read to the user: `Annotated[Literal["a", "b"], Titles({"a": "Aisle"})]`.

    Works on a `Literal`, on an `Enum` with text values, and on lists of either. On `str` and
    `list[str]` the titles *are* the options, for choices known only while the handler runs:

        flights = {f.number: f"{f.number} at {f.time}" for f in found}
        number: str = yield need_input("flight", "Which one?", Annotated[str, Titles(flights)])

    An option without a title shows its value.
    """

    items: tuple[tuple[str, str], ...]

    def __init__(self, titles: Mapping[Any, str]) -> None:
        pairs = tuple((k.value if isinstance(k, Enum) else k, v) for k, v in titles.items())
        if not pairs:
            raise TypeError("Titles needs at least one option")
        for pair in pairs:
            if not all(isinstance(part, str) for part in pair):
                raise TypeError(f"Titles maps option values (text) to titles (text), not {pair!r}")
        object.__setattr__(self, "items", pairs)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        options = core_schema.literal_schema([value for value, _ in self.items])
        if source is str:
            return options
        if get_origin(source) is list and get_args(source) == (str,):
            return core_schema.list_schema(options)
        return handler(source)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> Json:
        return self._titled(handler(schema), handler.resolve_ref_schema, "oneOf")

    def _titled(self, schema: Json, resolve: Callable[[Json], Json], choice: str) -> Json:
        schema = dict(resolve(schema))
        if "items" in schema:
            return {**schema, "items": self._titled(schema["items"], resolve, "anyOf")}
        if "anyOf" in schema:  # `| None`; a wider union is refused later, by name
            return {**schema, "anyOf": [self._titled(s, resolve, choice) for s in schema["anyOf"]]}
        options = [schema.pop("const")] if "const" in schema else schema.pop("enum", None)
        if options is None:
            return schema
        titles = dict(self.items)
        if unknown := titles.keys() - set(options):
            raise TypeError(f"Titles names {min(unknown)!r}, which is none of the options")
        if choice == "anyOf":  # the wire's titled items carry no "type"
            schema.pop("type", None)
        return {**schema, choice: [{"const": o, "title": titles.get(o, o)} for o in options]}


# --- type -> wire schema ---------------------------------------------------------------------

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
        described = super().enum_schema(schema)
        described.pop("title", None)
        return described


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
    if "const" in prop:
        prop["enum"] = [prop.pop("const")]
    kind = prop.get("type")
    allowed = _KEYWORDS.get(kind) if isinstance(kind, str) else None
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
    if not all(isinstance(option, str) for option in prop.get("enum", ())):
        raise TypeError(f"{where}: options must be text")
    if kind == "array":
        prop["items"] = _options(where, prop["items"], defs)
    if "default" in prop and not _fits(kind, prop["default"]):
        del prop["default"]
    return prop, nullable


def _close_bounds(prop: Json) -> None:
    """Whole numbers have a next one, so an exclusive bound can be said as an inclusive one."""
    if (low := prop.pop("exclusiveMinimum", None)) is not None:
        prop["minimum"] = max(math.floor(low) + 1, prop.get("minimum", -math.inf))
    if (high := prop.pop("exclusiveMaximum", None)) is not None:
        prop["maximum"] = min(math.ceil(high) - 1, prop.get("maximum", math.inf))


def _options(where: str, schema: Json, defs: Json) -> Json:
    """The items of a multi-select: an enum of text, or titled options."""
    items, _ = _flatten(schema, defs)
    if "anyOf" in items and all("const" in option for option in items["anyOf"]):
        return {"anyOf": items["anyOf"]}
    values = [items["const"]] if "const" in items else items.get("enum", ())
    if not values or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{where}: a list must be of options, a Literal or an Enum of text")
    return {"type": "string", "enum": values}


# --- content -> value ------------------------------------------------------------------------


def _finite(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


_TYPES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "string": (lambda v: type(v) is str, "must be text"),
    "integer": (lambda v: _finite(v) and v == int(v), "must be a whole number"),
    "number": (_finite, "must be a number"),
    "boolean": (lambda v: type(v) is bool, "must be yes or no"),
    "array": (
        lambda v: type(v) is list and all(type(item) is str for item in v),
        "must be a list of options",
    ),
}
"""What content may hold for each type, and what is wrong with anything else."""


def _fits(kind: Any, value: Any) -> bool:
    return _TYPES[kind][0](value)


_DATE: Final = "must be a date like 2026-07-28"
_DATE_TIME: Final = "must be a date and time like 2026-07-28T09:30:00Z"
_URL: Final = "must be a URL"
_REASONS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be more than {gt}",
    "less_than": "must be less than {lt}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} options",
    "too_long": "must have at most {max_length} options",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": _DATE,
    "datetime_parsing": _DATE_TIME,
    "datetime_from_date_parsing": _DATE_TIME,
    "timezone_aware": "must name its time zone",
    "timezone_naive": "must not name a time zone",
    "url_parsing": _URL,
    "url_syntax_violation": _URL,
    "url_too_long": _URL,
    "url_scheme": "must be a URL that begins with {expected_schemes}",
}
"""Pydantic's error types in plain words, without the value that was given."""


def _reason(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, Exception):  # the author's own ValueError or assert, in their words
        text = str(cause) or "is not valid"
    elif error["type"] == "value_error":  # EmailStr; its own text quotes what was given
        text = "must be an email address"
    else:
        text = str(_REASONS.get(error["type"], error["msg"])).format_map(context)
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {text}" if place else text


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A type as a form: the schema that goes out and the check on what comes back."""

    name: str
    requested_schema: Json
    digest: str
    _adapter: TypeAdapter[Any]
    _kinds: Mapping[str, str]
    _nulls: tuple[str, ...]
    """Optional properties without a default: left out on the wire, `None` to the model."""
    _factories: Mapping[str, str]
    """Properties whose default is made anew each time, and the attribute that holds it."""
    _scalar: bool

    def parse(self, content: Any) -> Any:
        """The value that `content` stands for. Unknown properties are ignored.

        Raises:
            InvalidAnswer: It does not fit. `reason` says why, without repeating what was given.
        """
        return self._value(self._known(content))

    def accept(self, content: Any) -> tuple[Any, Json]:
        """The value, and the content to journal so that every later round reads the same value.

        Raises:
            InvalidAnswer: As `parse`.
        """
        known = self._known(content)
        value = self._value(known)
        for name, attribute in self._factories.items():
            if name not in known:
                known[name] = to_jsonable_python(getattr(value, attribute))
        return value, known

    def dump(self, value: Any) -> Json:
        """The content that answers with `value`, for clients that hold the value."""
        dumped = self._adapter.dump_python(value, mode="json", by_alias=True, exclude_none=True)
        return {SCALAR: dumped} if self._scalar else dumped

    def _known(self, content: Any) -> Json:
        """The known properties, each of its wire type. A null stands for "left out"."""
        if not isinstance(content, Mapping):
            raise InvalidAnswer("must be a form")
        known: Json = {}
        wrong: list[str] = []
        for name, kind in self._kinds.items():
            if (value := content.get(name)) is None:
                continue
            fits, reason = _TYPES[kind]
            if not fits(value):
                wrong.append(f"{name}: {reason}")
            known[name] = int(value) if kind == "integer" and not wrong else value
        if wrong:
            raise InvalidAnswer("; ".join(wrong))
        return known

    def _value(self, known: Json) -> Any:
        filled = {**dict.fromkeys(self._nulls), **known} if self._nulls else known
        given: Any = filled
        if self._scalar:
            if SCALAR not in filled:
                raise InvalidAnswer(f"{SCALAR}: {_REASONS['missing']}")
            given = filled[SCALAR]
        try:
            # JSON mode, because only there does strict still read dates and enums from text.
            return self._adapter.validate_json(
                to_json(given), strict=True, by_alias=True, by_name=False
            )
        except _ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
        except ValueError:  # text that is no Unicode cannot be written as JSON
            raise InvalidAnswer("must be readable text") from None
        raise InvalidAnswer("; ".join(self._worded(found)))

    def _worded(self, errors: Iterable[Any]) -> Iterator[str]:
        for error in errors:
            yield f"{SCALAR}: {_reason(error)}" if self._scalar else _reason(error)


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
    name = schema.__name__ if isinstance(schema, type) else repr(schema)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
        root = adapter.json_schema(schema_generator=_FormSchema)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise TypeError(f"{name} cannot be asked for: {error.message}") from error
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
    fields: Mapping[str, FieldInfo] = {}
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        fields = schema.model_fields
    elif is_dataclass(schema):
        fields = getattr(schema, "__pydantic_fields__", {})
    found = ((f.validation_alias or name, name, f.default_factory) for name, f in fields.items())
    return {
        alias: name
        for alias, name, factory in found
        if factory is not None and isinstance(alias, str) and alias in properties
    }
