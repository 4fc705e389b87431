"""A value that fits a JSON Schema, to be shown and sent from documentation. Pure."""

from collections.abc import Mapping
from typing import Any, Final

Json = Mapping[str, Any]

_DEPTH: Final = 8
"""How deep examples go: a schema may refer to itself."""

_TEXTS: Final[Mapping[str, str]] = {
    "date": "2026-07-28",
    "date-time": "2026-07-28T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "uuid": "7f8a1c52-3b0e-4c6d-9a41-5d2e8f1b6c30",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "ipvanyaddress": "192.0.2.1",
}
"""By format."""


def example(schema: Json) -> Any:
    """A value for a schema: what its author gave as an example or default, else a plain one.

    Of an object it has what is required and what has an example or default. It need not fit a
    `pattern` or a combination of keywords.
    """
    return _example(schema, schema.get("$defs", {}), 0)


def _example(schema: Any, defs: Json, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return {}
    given = _given(schema)
    if given is not None:
        return given
    if "$ref" in schema:
        return _example(defs.get(str(schema["$ref"]).rpartition("/")[2]), defs, depth + 1)
    options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if options:
        return _example(options[0], defs, depth + 1)
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        kind = kind[0]
    match kind:
        case "string":
            text = _TEXTS.get(schema.get("format", ""), "text")
            return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            return [_example(schema.get("items", {}), defs, depth + 1)] * schema.get("minItems", 1)
    required = schema.get("required", ())
    return {
        name: _example(member, defs, depth + 1)
        for name, member in schema.get("properties", {}).items()
        if name in required or _given(member) is not None
    }


def _given(schema: Json) -> Any:
    """What the author says a value may be; None if nothing."""
    for keyword in ("examples", "enum"):
        if schema.get(keyword):
            return schema[keyword][0]
    return schema.get("const", schema.get("default"))


def _number(schema: Json) -> Any:
    step = schema.get("multipleOf", 1)
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + step
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMaximum" in schema:
        return schema["exclusiveMaximum"] - step
    return min(step, schema.get("maximum", step))
