"""Arguments that a tool wants mirrored into `Mcp-Param-*` headers. Pure: schema in, headers out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi_mcp_mrtr.testing.failures import ProtocolViolation
from fastapi_mcp_mrtr.testing.wire import header_value

ANNOTATION: Final = "x-mcp-header"

Path = tuple[str, ...]


def param_headers(schema: Mapping[str, Any], arguments: Any) -> dict[str, str]:
    """The header for each annotated argument that is present and not null, by its short name."""
    headers: dict[str, str] = {}
    for path, node in _annotated(schema, ()):
        value = _value_at(arguments, path)
        if value is not None:
            headers[node[ANNOTATION]] = header_value(_text(value))
    return headers


def check_annotations(tool: str, schema: Mapping[str, Any]) -> None:
    """Refuse the tool definitions that a client must not accept.

    Raises:
        ProtocolViolation: An annotation is misplaced, malformed or used twice.
    """
    seen: dict[str, Path | None] = {}
    for path, node in _annotated(schema, (), everywhere=True):
        header = node[ANNOTATION]
        where = ".".join(path) if path else "a place no chain of properties reaches"
        complaint = _complaint(path, node, header)
        if complaint is None and header.lower() in seen:
            complaint = f"the header {header!r} is used twice"
        if complaint:
            raise ProtocolViolation(
                "streamable-http §Schema Extension", f"Tool {tool!r}: {where}: {complaint}"
            )
        seen[header.lower()] = path


def _complaint(path: Path | None, node: Mapping[str, Any], header: Any) -> str | None:
    if not path:
        return f"{ANNOTATION} belongs on properties alone"
    if not isinstance(header, str) or not _TOKEN.fullmatch(header):
        return f"{header!r} is no header name"
    if node.get("type") not in ("string", "integer", "boolean"):
        return f"{ANNOTATION} wants a string, an integer or a boolean, not {node.get('type')!r}"
    return None


_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 §5.6.2

_DATA: Final = frozenset({"default", "const", "enum", "examples"})
"""Keywords that hold instance values, where an annotation is but data."""
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
"""Keywords that hold schemas by name."""


def _annotated(
    node: Any, path: Path | None, *, everywhere: bool = False
) -> Iterator[tuple[Path | None, Mapping[str, Any]]]:
    """Each annotated schema with its path; None where more than `properties` leads to it."""
    if isinstance(node, list):
        for item in node:
            yield from _annotated(item, None, everywhere=everywhere)
    elif isinstance(node, dict):
        if ANNOTATION in node:
            yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and path is not None and isinstance(value, dict):
                for name, child in value.items():
                    yield from _annotated(child, (*path, name), everywhere=everywhere)
            elif everywhere and keyword not in _DATA:
                named = keyword in _NAMED and isinstance(value, dict)
                children = list(value.values()) if named else value
                yield from _annotated(children, None, everywhere=True)


def _value_at(arguments: Any, path: Path | None) -> Any:
    for name in path or ():
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(name)
    return arguments


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
