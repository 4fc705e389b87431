"""Text that somebody typed, as the JSON value that a schema wants. Pure."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

Json = dict[str, Any]

_WORDS: Final = {
    "yes": True,
    "y": True,
    "true": True,
    "1": True,
    "no": False,
    "n": False,
    "false": False,
    "0": False,
}


def _boolean(text: str) -> bool:
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ValueError("yes or no, please") from None


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _list(text: str) -> Any:
    if text.startswith("["):
        return json.loads(text)
    return [item for part in text.split(",") if (item := part.strip())]


def _any(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_READ: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "string": (str, "text"),
    "integer": (int, "a whole number"),
    "number": (_number, "a number"),
    "boolean": (_boolean, "yes or no"),
    "array": (_list, "a list, with commas between"),
    "object": (json.loads, "a JSON object"),
}
"""How text of each JSON type is read, and what it is called."""


def kind_of(schema: Json, defs: Json | None = None) -> str | None:
    """The JSON type of what a schema wants: the first that is not null; None where it says none."""
    if "$ref" in schema:
        schema = (defs or {}).get(str(schema["$ref"]).rpartition("/")[2], {})
    options = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for option in options:
        kinds = option.get("type")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if kind in _READ:
                return str(kind)
    return None


def describe(schema: Json) -> str:
    """What to type, in words."""
    parts = [_READ[kind][1] if (kind := kind_of(schema)) else "JSON or text"]
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        parts.append(f"{'' if low is None else low} to {'' if high is None else high}".strip())
    if "format" in schema:
        parts.append(str(schema["format"]))
    return ", ".join(parts)


def options_of(schema: Json) -> list[tuple[str, str]]:
    """The values that can be chosen, and how each reads."""
    schema = schema.get("items", schema)
    titled = schema.get("oneOf") or schema.get("anyOf")
    if titled:
        return [
            (str(each["const"]), str(each.get("title", each["const"])))
            for each in titled
            if "const" in each
        ]
    values = [str(value) for value in schema.get("enum", ())]
    names = [str(name) for name in schema.get("enumNames", ())]
    return list(zip(values, names if len(names) == len(values) else values, strict=True))


def read(text: str, schema: Json, defs: Json | None = None) -> Any:
    """The value that the text stands for.

    Raises:
        ValueError: it stands for none. The message says what would.
    """
    kind = kind_of(schema, defs)
    if kind is None:
        return _any(text)
    reader, wanted = _READ[kind]
    try:
        return reader(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {wanted}") from None
