"""values: text from a command line or a terminal, as the JSON that a schema wants."""

from typing import Any

import pytest

from fastapi_mcp_mrtr.cli.values import describe, kind_of, options_of, read


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("12", {"type": "string"}, "12"),
        ("12", {"type": "integer"}, 12),
        ("1.5", {"type": "number"}, 1.5),
        ("2", {"type": "number"}, 2),
        ("Yes", {"type": "boolean"}, True),
        ("0", {"type": "boolean"}, False),
        ("a, b,", {"type": "array"}, ["a", "b"]),
        ('["a,b"]', {"type": "array"}, ["a,b"]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("7", {"anyOf": [{"type": "null"}, {"type": "integer"}]}, 7),
        ("7", {"type": ["null", "integer"]}, 7),
        ("7", {"oneOf": [{"type": "string"}]}, "7"),
        ("7", {"$ref": "#/$defs/Row"}, 7),
        ("7", {"$ref": "#/$defs/Gone"}, 7),
        ("[1]", {}, [1]),
        ("plain", {}, "plain"),
    ],
)
def test_text_becomes_what_the_schema_wants(text: str, schema: Any, value: Any) -> None:
    """Decision: nobody quotes a string for JSON on a command line."""
    read_value = read(text, schema, {"Row": {"type": "integer"}})
    assert read_value == value
    assert type(read_value) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("four", "integer", "'four' is not a whole number"),
        ("x", "number", "'x' is not a number"),
        ("maybe", "boolean", "'maybe' is not yes or no"),
        ("[a", "array", "'[a' is not a list, with commas between"),
        ("{", "object", "'{' is not a JSON object"),
    ],
)
def test_other_text_is_told_what_would_do(text: str, kind: str, message: str) -> None:
    """Decision: in words of whoever typed it."""
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        read(text, {"type": kind})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 40}, "a whole number, 1 to 40"),
        ({"type": "number", "minimum": 0}, "a number, 0 to"),
        ({"type": "number", "maximum": 0}, "a number, to 0"),
        ({"type": "string", "format": "date"}, "text, date"),
        ({}, "JSON or text"),
    ],
)
def test_a_field_says_what_to_type(schema: Any, words: str) -> None:
    """Decision: limits that the server checks are told before."""
    assert describe(schema) == words


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ({"enum": ["a", "b"]}, [("a", "a"), ("b", "b")]),
        ({"enum": ["a"], "enumNames": ["Aisle"]}, [("a", "Aisle")]),
        ({"enum": ["a"], "enumNames": []}, [("a", "a")]),
        (
            {"oneOf": [{"const": "a", "title": "Aisle"}, {"const": "b"}]},
            [("a", "Aisle"), ("b", "b")],
        ),
        ({"type": "array", "items": {"anyOf": [{"const": "a"}]}}, [("a", "a")]),
        ({"type": "array", "items": {"enum": ["a"]}}, [("a", "a")]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, []),
        ({"type": "string"}, []),
    ],
)
def test_choices_of_each_shape_that_the_wire_has(schema: Any, options: Any) -> None:
    """spec: enums, titled or not, for one or several (elicitation §Requested Schema)."""
    assert options_of(schema) == options


def test_a_type_that_nobody_knows_is_none() -> None:
    """Decision: such text is tried as JSON."""
    assert kind_of({"type": "duck"}) is None
