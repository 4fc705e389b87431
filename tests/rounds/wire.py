"""The part of the official schema of 2026-07-28 that says what a form may be.

Copied by fact, not by file: which members each definition has, of which type, and which must be
there. The official definitions are open; these are closed, so that nothing unknown slips through.
"""

from typing import Any

_TEXT = {"type": "string"}
_INT = {"type": "integer"}
_NUMBER = {"type": "number"}
_TEXTS = {"type": "array", "items": _TEXT}
_COMMON: dict[str, Any] = {"title": _TEXT, "description": _TEXT}


def _definition(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": _COMMON | properties,
        "required": required,
        "additionalProperties": False,
    }


_TITLED = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {"const": _TEXT, "title": _TEXT},
        "required": ["const", "title"],
        "additionalProperties": False,
    },
}

PRIMITIVE_SCHEMA_DEFINITION: dict[str, Any] = {
    "anyOf": [
        _definition(  # StringSchema
            ["type"],
            type={"const": "string"},
            minLength=_INT,
            maxLength=_INT,
            format={"enum": ["date", "date-time", "email", "uri"]},
            default=_TEXT,
        ),
        _definition(  # NumberSchema
            ["type"],
            type={"enum": ["integer", "number"]},
            minimum=_NUMBER,
            maximum=_NUMBER,
            default=_NUMBER,
        ),
        _definition(["type"], type={"const": "boolean"}, default={"type": "boolean"}),
        _definition(  # UntitledSingleSelectEnumSchema
            ["type", "enum"], type={"const": "string"}, enum=_TEXTS, default=_TEXT
        ),
        _definition(  # TitledSingleSelectEnumSchema
            ["type", "oneOf"], type={"const": "string"}, oneOf=_TITLED, default=_TEXT
        ),
        _definition(  # UntitledMultiSelectEnumSchema
            ["type", "items"],
            type={"const": "array"},
            items={
                "type": "object",
                "properties": {"type": {"const": "string"}, "enum": _TEXTS},
                "required": ["type", "enum"],
                "additionalProperties": False,
            },
            minItems=_INT,
            maxItems=_INT,
            default=_TEXTS,
        ),
        _definition(  # TitledMultiSelectEnumSchema
            ["type", "items"],
            type={"const": "array"},
            items={
                "type": "object",
                "properties": {"anyOf": _TITLED},
                "required": ["anyOf"],
                "additionalProperties": False,
            },
            minItems=_INT,
            maxItems=_INT,
            default=_TEXTS,
        ),
        _definition(  # LegacyTitledEnumSchema
            ["type", "enum"],
            type={"const": "string"},
            enum=_TEXTS,
            enumNames=_TEXTS,
            default=_TEXT,
        ),
    ]
}

REQUESTED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"const": "object"},
        "properties": {"type": "object", "additionalProperties": PRIMITIVE_SCHEMA_DEFINITION},
        "required": _TEXTS,
    },
    "required": ["type", "properties"],
    "additionalProperties": False,
}
