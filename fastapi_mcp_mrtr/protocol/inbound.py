"""Classify one inbound POST. Pure: no I/O, no clock, no framework, and no list of methods.

The order of the checks decides which error a client sees first (streamable-http §Server
Validation, basic/index §`_meta`):

```text
JSON                              -32700
shape of the message              -32600; params that are no object -32602
Mcp-Method, Mcp-Name against body -32020
_meta                             -32602
MCP-Protocol-Version against body -32020
protocol version                  -32022
numbers out of range              -32602
```

Whether the method exists, its `Mcp-Param-*` headers and its parameters are for the dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, TypeGuard

from pydantic_core import from_json

from fastapi_mcp_mrtr.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
)
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders, header_mismatch
from fastapi_mcp_mrtr.protocol.jsonrpc import http_status

MODERN_VERSIONS: Final = ("2026-07-28",)
"""The revisions that say everything on every request, newest first."""

PROTOCOL_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"

NAME_SOURCE: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}
"""Methods that need `Mcp-Name`, and the parameter it mirrors (§Standard Request Headers)."""

LOG_LEVELS: Final = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""Log levels, least severe first (RFC 5424)."""

_OBJECT_CAPABILITIES: Final[Mapping[str, tuple[str, ...] | None]] = {
    "elicitation": ("form", "url"),
    "sampling": ("context", "tools"),
    "roots": (),
    "extensions": None,
    "experimental": None,
}
"""Capabilities that must be objects, and which of their members must be too (None: every one)."""

_NUMBERS_OF_THE_CALLER: Final = ("arguments", "inputResponses")
"""The params in which a client's own numbers travel."""


@dataclass(slots=True)
class RequestMeta:
    """The `_meta` of a request, checked. `raw` is all of it."""

    protocol_version: str
    client_capabilities: dict[str, Any]
    client_info: dict[str, Any] | None
    log_level: str | None
    progress_token: str | int | None
    traceparent: str | None
    tracestate: str | None
    raw: dict[str, Any]


@dataclass(slots=True)
class InboundRequest:
    """A request whose headers, metadata and version are in order. `params` still has `_meta`."""

    id: str | int
    method: str
    params: dict[str, Any]
    meta: RequestMeta


@dataclass(frozen=True, slots=True)
class InboundNotification:
    """A notification: answered with 202 and no body, whatever became of it."""

    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A message that cannot be served: the error to send, and with which HTTP status.

    `id` is the request's, exactly as sent, or None where there is no legal one.
    """

    status: int
    code: int
    message: str
    id: str | int | None
    data: Any = None


def classify(
    headers: RequestHeaders, body: bytes, *, supported: Sequence[str]
) -> InboundRequest | InboundNotification | Rejection:
    """Say what a POST is. `supported` lists the protocol versions served. Never raises.

    Those of an older era are named to clients, but no request can be of one here.
    """
    message: Any = None
    try:
        message = parse(body)
        return _classify(headers, message, supported)
    except MCPError as error:
        return _rejection(error, message, supported)


def naming_versions(error: MCPError, supported: Sequence[str]) -> MCPError:
    """The same error, naming the versions served: for every answer to an `initialize`.

    Older clients open with it, and this may be all they can show to their user (versioning
    §Backward Compatibility).
    """
    return MCPError(
        error.code,
        f"{error.message}. Nothing was initialized; this server speaks MCP {', '.join(supported)}",
        {**(error.data or {}), "supported": list(supported)},
    )


def parse(body: bytes) -> Any:
    """The JSON of a body. Raises: MCPError, -32700."""
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        # Says what and where ("expected value at line 1 column 6"), and quotes nothing.
        raise MCPError(PARSE_ERROR, f"Parse error: {error}") from None


def _classify(
    headers: RequestHeaders, message: Any, supported: Sequence[str]
) -> InboundRequest | InboundNotification:
    if type(message) is not dict:
        what = "batches are not supported" if type(message) is list else "not an object"
        raise invalid_request(f"{what}; send one JSON-RPC message per POST")
    if message.get("jsonrpc") != "2.0":
        raise invalid_request('jsonrpc must be "2.0"')
    method = message.get("method")
    if type(method) is not str or not method:
        raise invalid_request("method must be a non-empty string; responses are not accepted")
    params = message.get("params", {})
    if type(params) is not dict:
        raise invalid_params("params must be an object")
    if "id" not in message:
        if method.startswith("notifications/"):
            return InboundNotification(method, params)
        raise invalid_request("a request needs an id")
    request_id = message["id"]
    if not is_id(request_id):
        raise invalid_request("id must be a string or an integer")

    _check_mirrors(headers, method, params)
    meta = _read_meta(params.get("_meta"))
    _check_version(headers, meta.protocol_version, supported)
    check_numbers(params)
    return InboundRequest(request_id, method, params, meta)


def _check_mirrors(headers: RequestHeaders, method: str, params: dict[str, Any]) -> None:
    if not headers.says(b"mcp-method", method):
        header = headers.require("Mcp-Method")
        if header != method:
            raise _differs("Mcp-Method", header, method)
    source = NAME_SOURCE.get(method)
    if source is None:
        return
    name = params.get(source)
    if type(name) is str and headers.says(b"mcp-name", name):
        return
    header = headers.require_decoded("Mcp-Name")
    if type(name) is not str:
        raise invalid_params(f"params.{source} must be a string")
    if header != name:
        raise _differs("Mcp-Name", header, name)


def _read_meta(meta: Any) -> RequestMeta:
    """Check `_meta`. A null member counts as absent."""
    if type(meta) is not dict:
        raise invalid_params("params._meta is required and must be an object")
    version = meta.get(PROTOCOL_VERSION_KEY)
    if type(version) is not str:
        raise _invalid_meta(PROTOCOL_VERSION_KEY, "is required and must be a string")
    capabilities = meta.get(CLIENT_CAPABILITIES_KEY)
    if type(capabilities) is not dict:
        raise _invalid_meta(CLIENT_CAPABILITIES_KEY, "is required and must be an object")
    _check_capabilities(capabilities)
    info = meta.get(CLIENT_INFO_KEY)
    if info is not None and not is_implementation(info):
        raise _invalid_meta(CLIENT_INFO_KEY, "must be an object with the strings name and version")
    level = meta.get(LOG_LEVEL_KEY)
    if level is not None and level not in LOG_LEVELS:
        raise _invalid_meta(LOG_LEVEL_KEY, f"must be one of {', '.join(LOG_LEVELS)}")
    token = meta.get("progressToken")
    if token is not None and not is_id(token):
        raise _invalid_meta("progressToken", "must be a string or an integer")
    # Trace context that makes no sense is no reason to fail a request.
    parent = meta.get("traceparent")
    state = meta.get("tracestate")
    return RequestMeta(
        version,
        capabilities,
        info,
        level,
        token,
        parent if type(parent) is str else None,
        state if type(state) is str else None,
        meta,
    )


def _check_capabilities(capabilities: dict[str, Any]) -> None:
    """Make sure that a capability that is there is an object: `false` must not declare one."""
    if _are_objects_of_objects(capabilities):
        return  # as nearly always
    for name, capability in capabilities.items():
        if name not in _OBJECT_CAPABILITIES:
            continue
        if type(capability) is not dict:
            raise _invalid_meta(CLIENT_CAPABILITIES_KEY, f"{name} must be an object")
        members = _OBJECT_CAPABILITIES[name]
        for member in capability if members is None else members:
            if member in capability and type(capability[member]) is not dict:
                raise _invalid_meta(CLIENT_CAPABILITIES_KEY, f"{name}.{member} must be an object")


def _are_objects_of_objects(capabilities: dict[str, Any]) -> bool:
    for capability in capabilities.values():
        if type(capability) is not dict:
            return False
        for member in capability.values():
            if type(member) is not dict:
                return False
    return True


def _check_version(headers: RequestHeaders, version: str, supported: Sequence[str]) -> None:
    if not headers.says(b"mcp-protocol-version", version):
        header = headers.require("MCP-Protocol-Version")
        if header != version:
            raise _differs("MCP-Protocol-Version", header, version)
    if version not in MODERN_VERSIONS or version not in supported:
        raise MCPError(
            UNSUPPORTED_PROTOCOL_VERSION,
            "Unsupported protocol version",
            {"supported": list(supported), "requested": version},
        )


def check_numbers(params: dict[str, Any]) -> None:
    """Refuse 1e999, which reads as infinity: JSON has no word for what the handler would see."""
    for name in _NUMBERS_OF_THE_CALLER:
        value = params.get(name)
        if (type(value) is dict or type(value) is list) and not _is_finite(value):
            raise invalid_params(f"a number in params.{name} is out of range")


def _is_finite(value: Any) -> bool:
    # Recursion is bounded: the parser refuses what is nested deeper than about 200 levels.
    members: Iterable[Any] = value.values() if isinstance(value, dict) else value
    for member in members:
        kind = type(member)
        if kind is float:
            if not isfinite(member):
                return False
        elif (kind is dict or kind is list) and not _is_finite(member):
            return False
    return True


def is_id(value: Any) -> TypeGuard[str | int]:
    """Whether a JSON-RPC id can be this."""
    return type(value) is str or type(value) is int


def id_of(message: Any) -> str | int | None:
    """The id to answer a message with that cannot be served; none if it is no request.

    The id of a posted response is one of ours, not that of a request to answer.
    """
    if type(message) is dict and "method" in message:
        request_id = message.get("id")
        return request_id if is_id(request_id) else None
    return None


def is_implementation(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether this is what a party says of itself: an `Implementation`."""
    return (
        type(value) is dict and type(value.get("name")) is str and type(value.get("version")) is str
    )


def invalid_request(what: str) -> MCPError:
    """The error for what is no message: -32600."""
    return MCPError(INVALID_REQUEST, f"Invalid request: {what}")


def invalid_params(what: str) -> MCPError:
    """The error for params of another shape: -32602."""
    return MCPError(INVALID_PARAMS, f"Invalid params: {what}")


def _invalid_meta(key: str, what: str) -> MCPError:
    return invalid_params(f'_meta["{key}"] {what}')


def _differs(name: str, header: str, value: str) -> MCPError:
    return header_mismatch(
        f"the {name} header {_excerpt(header)} does not match the body's {_excerpt(value)}"
    )


def _excerpt(value: str) -> str:
    return ascii(value if len(value) <= 64 else f"{value[:64]}...")


def _rejection(error: MCPError, message: Any, supported: Sequence[str]) -> Rejection:
    if type(message) is dict and message.get("method") == "initialize":
        error = naming_versions(error, supported)
    return Rejection(http_status(error.code), error.code, error.message, id_of(message), error.data)
