"""Tool parameters that clients mirror into headers (streamable-http §Schema Extension).

Pure: reads JSON Schema, knows no request.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from fastapi_mcp_mrtr.protocol.headers import ParamHeader

_ANNOTATION: Final = "x-mcp-header"

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""`1*tchar` of RFC 9110 §5.6.2: what may stand in a header name."""

_KINDS: Final = ("string", "integer", "boolean")
"""JSON Schema types that a mirrored parameter may have."""

_DATA: Final = frozenset({"default", "const", "enum", "examples"})
"""Keywords that hold values, not schemas."""


@dataclass(frozen=True, slots=True)
class MCPHeader:
    """Mirror a tool parameter into the `Mcp-Param-<name>` header (server/tools §x-mcp-header).

    ```python
    @mcp.tool()
    async def run_query(sql: str, region: Annotated[str, MCPHeader("Region")]) -> str: ...
    ```

    Proxies can then route on the value, and the server refuses a call whose header and body differ.
    For string, integer and boolean parameters; never for secrets, since headers are visible.

    Raises:
        ValueError: `name` cannot stand in a header name.
    """

    name: str

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.name):
            raise ValueError(f"MCPHeader({self.name!r}): not a header name (RFC 9110 §5.6.2)")

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        # `str | None` is omitted rather than null on the wire, so the property is a plain string.
        options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
        if len(options) == 1:
            outer = {k: v for k, v in schema.items() if k != "anyOf"}
            schema = {**outer, **handler.resolve_ref_schema(options[0])}
        return {**schema, _ANNOTATION: self.name}


def param_headers(where: str, schema: Mapping[str, Any]) -> tuple[ParamHeader, ...]:
    """The mirrored parameters of a tool's `inputSchema`.

    Raises:
        TypeError: an annotation with which clients would have to reject the tool.
    """
    headers: dict[str, ParamHeader] = {}
    for path, definition in _reachable(schema, ()):
        name = definition[_ANNOTATION]
        parameter = f"{where}, parameter {'.'.join(path)!r}: MCPHeader({name!r})"
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise TypeError(f"{parameter} is not a header name (RFC 9110 §5.6.2)")
        if definition.get("type") not in _KINDS:
            raise TypeError(f"{parameter} needs a string, integer or boolean parameter")
        if name.lower() in headers:
            raise TypeError(f"{parameter} is used twice; header names ignore case")
        headers[name.lower()] = ParamHeader(name, path, definition["type"])
    if _count(schema) != len(headers):
        raise TypeError(f"{where}: MCPHeader belongs on a parameter, not inside a model or a list")
    return tuple(headers.values())


def _reachable(
    schema: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The annotated properties that a chain of `properties` leads to."""
    for name, definition in schema.get("properties", {}).items():
        if isinstance(definition, Mapping):
            if _ANNOTATION in definition:
                yield (*path, name), definition
            yield from _reachable(definition, (*path, name))


def _count(node: Any) -> int:
    """How many annotations there are anywhere."""
    if isinstance(node, Mapping):
        inside = sum(_count(value) for keyword, value in node.items() if keyword not in _DATA)
        return (_ANNOTATION in node) + inside
    if isinstance(node, list | tuple):
        return sum(map(_count, node))
    return 0
