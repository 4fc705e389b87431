"""What OpenAPI says of the endpoint: its headers, `_meta`, errors, and its own operation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import any_schema, definitions_schema

from fastapi_mcp_mrtr.server.dispatch import LATEST

Json = dict[str, Any]

_VERSION: Final = LATEST

META: Final = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "openapi", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {},
    },
}
"""The `_meta` of examples: a client for which a handler may ask anything."""


_BLOCKS: Final = ("text", "image", "audio", "resource_link", "resource")
"""Types of content blocks. What else a block has depends on it."""


Describe = Callable[[CoreSchema], Json]
"""Makes a JSON Schema of pydantic's core schema: a reference to a component, where it can."""


SchemaOf = Callable[[Describe], Json]


class Described:
    """A type that is nothing but a JSON Schema, made when the document is.

    FastAPI lists it among the components, under the name of the class. A tenth of a model's cost.
    """

    schema_of: ClassVar[SchemaOf]

    @classmethod
    def core_schema(cls) -> CoreSchema:
        """What others describe it by."""
        return any_schema(
            ref=f"{__name__}.{cls.__name__}:{id(cls)}",
            metadata={"pydantic_js_functions": [cls.__get_pydantic_json_schema__]},
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return cls.core_schema()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Json:
        # As it is, the handler would make nothing but the inside of another type.
        return cls.schema_of(lambda other: handler(definitions_schema(other, [])))


def described(name: str, schema_of: SchemaOf) -> type[Described]:
    """A type of this name with the schema that `schema_of` makes."""
    return type(name, (Described,), {"schema_of": staticmethod(schema_of)})


def obj(properties: Json, required: Sequence[str] | None = None) -> Json:
    """An object; all properties are required unless `required` lists those that are."""
    schema: Json = {"type": "object", "properties": properties}
    needed = list(properties if required is None else required)
    return {**schema, "required": needed} if needed else schema


def constant(value: str) -> Json:
    """Text that can be nothing else."""
    return {"type": "string", "const": value, "default": value}


ID: Final[Json] = {"anyOf": [{"type": "string"}, {"type": "integer"}], "default": 1}
"""JSON-RPC's `id`: the client's choice, given back in the response."""

MCPRequestMeta: Final = described(
    "MCPRequestMeta",
    lambda _: {
        **obj(
            {
                **{key: {"type": "object"} for key in META},
                "io.modelcontextprotocol/protocolVersion": constant(_VERSION),
            },
            [name for name in META if not name.endswith("clientInfo")],
        ),
        "default": META,
    },
)

MCPErrorResponse: Final = described(
    "MCPErrorResponse",
    lambda _: obj(
        {
            "jsonrpc": constant("2.0"),
            "id": {"anyOf": [*ID["anyOf"], {"type": "null"}]},
            "error": obj(
                {"code": {"type": "integer"}, "message": {"type": "string"}, "data": {}},
                ["code", "message"],
            ),
        },
        ["jsonrpc", "error"],
    ),
)

MCPContent: Final = described(
    "MCPContent",
    lambda _: obj(
        {"type": {"type": "string", "enum": list(_BLOCKS)}, "text": {"type": "string"}},
        ["type"],
    ),
)

MCPPromptMessage: Final = described(
    "MCPPromptMessage",
    lambda describe: obj(
        {
            "role": {"type": "string", "enum": ["user", "assistant"]},
            "content": describe(MCPContent.core_schema()),
        },
    ),
)

MCPResourceContents: Final = described(
    "MCPResourceContents",
    lambda _: obj(
        {key: {"type": "string"} for key in ("uri", "mimeType", "text", "blob")},
        ["uri"],
    ),
)

STREAM: Final[Json] = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "Notifications, then the response, as server-sent events",
        }
    }
}
"""How a response is sent to a client that accepts it, once a handler sends notifications."""

REFUSALS: Final[Mapping[int | str, Json]] = {
    400: {
        "description": "The request is malformed, an argument or the `requestState` is not valid "
        "(-32602), the headers contradict the body (-32020), the client lacks a capability "
        "(-32021), or the revision is not served (-32022)",
        "model": MCPErrorResponse,
    },
    403: {"description": "The Origin is not allowed, or a scope is missing"},
    413: {"description": "The body is too large"},
    415: {"description": "The body is not JSON"},
}
"""By HTTP status; what a request for a handler gets beside these is 200."""

UNAUTHENTICATED: Final[Mapping[int | str, Json]] = {
    401: {"description": "The principal's dependency refuses the caller"}
}


def header(name: str, description: str, value: str | None, *, required: bool = True) -> Json:
    """A header parameter that comes filled in with `value`."""
    default = {} if value is None else {"default": value}
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": description,
        "schema": {"type": "string", **default},
    }


VERSION_HEADER: Final = header("MCP-Protocol-Version", "The protocol revision", _VERSION)

OPERATION: Final[Json] = {
    "name": "mcp",
    "summary": "MCP endpoint",
    "response_description": "A JSON-RPC response, or a stream of notifications that ends with it",
    "responses": {
        200: {"content": STREAM},
        202: {"description": "A notification was accepted"},
        404: {
            "description": "There is no such method; the body is a JSON-RPC error",
            "model": MCPErrorResponse,
        },
        **REFUSALS,
    },
    "openapi_extra": {
        "parameters": [
            VERSION_HEADER,
            header("Mcp-Method", "The method of the body", "tools/list"),
            header("Mcp-Name", "The tool, prompt or URI of the body", "", required=False),
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["jsonrpc", "method"],
                        "properties": {
                            "jsonrpc": {"const": "2.0"},
                            "id": ID,
                            "method": {"type": "string"},
                            "params": {"type": "object"},
                        },
                    },
                    "example": {
                        "jsonrpc": "2.0",
                        "id": 1,
                        "method": "tools/list",
                        "params": {"_meta": META},
                    },
                }
            },
        },
    },
}
"""Arguments for `add_api_route`, for an endpoint that anybody may call."""
