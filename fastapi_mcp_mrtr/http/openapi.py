"""How the endpoint shows itself in OpenAPI."""

from typing import Any, Final

_MESSAGE: Final = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "method": {"type": "string"},
        "params": {"type": "object"},
    },
}

_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "openapi", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}},
}


def _header(name: str, description: str, example: str, *, required: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": description,
        "schema": {"type": "string", "default": example},
    }


OPERATION: Final[dict[str, Any]] = {
    "name": "mcp",
    "summary": "MCP endpoint",
    "response_description": "A JSON-RPC response, or a stream of notifications that ends with it",
    "responses": {
        202: {"description": "A notification was accepted"},
        400: {"description": "The request is malformed; the body is a JSON-RPC error"},
        403: {"description": "The Origin is not allowed, or a scope is missing"},
        404: {"description": "There is no such method; the body is a JSON-RPC error"},
        413: {"description": "The body is too large"},
        415: {"description": "The body is not JSON"},
    },
    "openapi_extra": {
        "parameters": [
            _header("MCP-Protocol-Version", "The protocol revision", "2026-07-28"),
            _header("Mcp-Method", "The method of the body", "tools/list"),
            _header("Mcp-Name", "The tool, prompt or URI of the body", "", required=False),
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _MESSAGE,
                    "example": {
                        "jsonrpc": "2.0",
                        "id": 1,
                        "method": "tools/list",
                        "params": {"_meta": _META},
                    },
                }
            },
        },
    },
}
"""Arguments for `add_api_route`."""
