"""What older revisions put on the wire, 2025-11-25 and before. Pure: no I/O, no framework.

They open with `initialize`, send answers by POST, and say the rest once a session instead of on
every request. Which of the two eras a POST belongs to is decided here; whose session it is, is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, MCPError
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.protocol.inbound import (
    LOG_LEVELS,
    PROTOCOL_VERSION_KEY,
    check_numbers,
    invalid_params,
    invalid_request,
    is_id,
    is_implementation,
    parse,
)

OLDER_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The revisions with sessions over Streamable HTTP, newest first."""

SESSION_ID: Final = "mcp-session-id"
LAST_EVENT_ID: Final = "last-event-id"

MAX_BATCH: Final = 32
"""Messages in one batch (2025-03-26): each may be a call."""

FORWARDED: Final = frozenset(
    {
        "tools/list",
        "tools/call",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
    }
)
"""The requests of older revisions that mean what they mean today."""

_OURS: Final = ("inputResponses", "requestState")
"""Members of params that only the server itself may add here: it plays the client of the rounds."""

_CAPABILITIES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "2025-11-25": {"elicitation": ("form", "url"), "sampling": ("context", "tools"), "roots": ()},
    "2025-06-18": {"elicitation": (), "sampling": (), "roots": ()},
    "2025-03-26": {"sampling": (), "roots": ()},
}
"""What a client can declare that matters to an ask, by revision, and the members of each."""


@dataclass(frozen=True, slots=True)
class OlderRequest:
    """A request. `params` is without `_meta`, which is `meta`."""

    id: str | int
    method: str
    params: dict[str, Any]
    meta: dict[str, Any]
    progress_token: str | int | None


@dataclass(frozen=True, slots=True)
class OlderNotification:
    """A notification: answered with 202 and no body."""

    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OlderAnswer:
    """A response to a request of the server's: a result or an error."""

    id: str | int
    result: Any
    error: dict[str, Any] | None


OlderMessage = OlderRequest | OlderNotification | OlderAnswer


@dataclass(frozen=True, slots=True)
class Initialization:
    """The params of `initialize`, with the capabilities that the revision has and that matter."""

    version: str
    """The one to speak: the requested one, or the newest one served."""
    capabilities: dict[str, Any]
    client_info: dict[str, Any]


def older_message(headers: RequestHeaders, body: bytes, served: Sequence[str]) -> Any:
    """The JSON of a POST that belongs to an older revision; None where today's rules hold.

    `served` are the older revisions served. Older is an `initialize`, and what comes with their
    header or, without any, with a session id; but nothing that has the metadata of today
    (basic/versioning §Backward Compatibility).
    """
    version = headers.protocol_version
    if version is not None and version not in served:
        return None
    try:
        message = parse(body)
    except MCPError:
        return None  # says so, as for everybody
    is_initialize = False
    if type(message) is dict:
        params = message.get("params")
        meta = params.get("_meta") if type(params) is dict else None
        if type(meta) is dict and PROTOCOL_VERSION_KEY in meta:
            return None
        is_initialize = message.get("method") == "initialize"
    if version is None and not is_initialize and headers.get(SESSION_ID) is None:
        return None
    return message


def read_messages(message: Any, version: str) -> tuple[bool, list[OlderMessage]]:
    """The messages of a POST, and whether they came as a batch.

    Raises:
        MCPError: it is none, or a batch where the revision has none (only 2025-03-26 has).
    """
    if type(message) is not list:
        return False, [read_message(message)]
    if version != "2025-03-26":
        raise invalid_request("batches are not supported; send one JSON-RPC message per POST")
    if not 0 < len(message) <= MAX_BATCH:
        raise invalid_request(f"a batch has 1 to {MAX_BATCH} messages")
    messages = [read_message(member) for member in message]
    kinds = {type(member) is OlderAnswer for member in messages}
    if len(kinds) > 1:
        raise invalid_request("a batch has requests and notifications, or responses, but not both")
    if any(type(m) is OlderRequest and m.method == "initialize" for m in messages):
        raise invalid_request("initialize must not be part of a batch")
    return True, messages


def read_message(message: Any) -> OlderMessage:
    """One message.

    Raises:
        MCPError: it is none.
    """
    if type(message) is not dict:
        raise invalid_request("not an object")
    if message.get("jsonrpc") != "2.0":
        raise invalid_request('jsonrpc must be "2.0"')
    if "method" not in message and ("result" in message or "error" in message):
        return _answer(message)
    method = message.get("method")
    if type(method) is not str or not method:
        raise invalid_request("method must be a non-empty string")
    params = message.get("params")
    if params is None:
        params = {}
    if type(params) is not dict:
        raise invalid_params("params must be an object")
    if "id" not in message:
        return OlderNotification(method, params)
    request_id = message["id"]
    if not is_id(request_id):
        raise invalid_request("id must be a string or an integer")
    check_numbers(params)
    meta = params.pop("_meta", None)
    if meta is None:
        meta = {}
    if type(meta) is not dict:
        raise invalid_params("params._meta must be an object")
    token = meta.get("progressToken")
    if token is not None and not is_id(token):
        raise invalid_params('_meta["progressToken"] must be a string or an integer')
    for name in _OURS:
        params.pop(name, None)
    return OlderRequest(request_id, method, params, meta, token)


def _answer(message: dict[str, Any]) -> OlderAnswer:
    answer_id = message.get("id")
    if not is_id(answer_id):
        raise invalid_request("a response needs the id of the request it answers")
    error = message.get("error")
    if error is None:
        return OlderAnswer(answer_id, message.get("result"), None)
    if type(error) is not dict:
        raise invalid_request("error must be an object")
    return OlderAnswer(answer_id, None, error)


def read_initialize(params: Mapping[str, Any], served: Sequence[str]) -> Initialization:
    """Read the params of `initialize`, and choose the revision (lifecycle §Version Negotiation).

    `served` are the older revisions served, newest first.

    Raises:
        MCPError: -32602, something required is missing or has another shape.
    """
    requested = params.get("protocolVersion")
    if type(requested) is not str:
        raise invalid_params("protocolVersion is required and must be a string")
    capabilities = params.get("capabilities")
    if type(capabilities) is not dict:
        raise invalid_params("capabilities is required and must be an object")
    info = params.get("clientInfo")
    if not is_implementation(info):
        raise invalid_params(
            "clientInfo is required and must be an object with the strings name and version"
        )
    version = requested if requested in served else served[0]
    return Initialization(version, _remembered(version, capabilities), info)


def _remembered(version: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The capabilities that matter to asks, in today's terms. Only an object declares one."""
    remembered: dict[str, Any] = {}
    for name, members in _CAPABILITIES[version].items():
        declared = capabilities.get(name)
        if type(declared) is dict:
            remembered[name] = {m: {} for m in members if type(declared.get(m)) is dict}
    if version != "2025-11-25" and "sampling" in remembered:
        # `includeContext` was for every client that samples, before it became a capability.
        remembered["sampling"] = {"context": {}}
    return remembered


def read_level(params: Mapping[str, Any]) -> str:
    """The level of `logging/setLevel`.

    Raises:
        MCPError: -32602, there is no such level (server/utilities/logging §Error Handling).
    """
    level = params.get("level")
    if level not in LOG_LEVELS:
        raise invalid_params(f"level must be one of {', '.join(LOG_LEVELS)}")
    assert isinstance(level, str)
    return level


def read_uri(params: Mapping[str, Any]) -> str:
    """The URI of `resources/subscribe` and `resources/unsubscribe`.

    Raises:
        MCPError: -32602, it is no text.
    """
    uri = params.get("uri")
    if type(uri) is not str:
        raise invalid_params("uri must be a string")
    return uri


def older_error(method: str, error: MCPError) -> MCPError:
    """The error with the code that older revisions have for it (server/resources §Error Handling).

    A resource that is not there was -32002; it is the one -32602 of a read that names a URI.
    """
    data = error.data
    if method != "resources/read" or error.code != INVALID_PARAMS:
        return error
    if not (isinstance(data, dict) and data.keys() == {"uri"}):
        return error
    return MCPError(RESOURCE_NOT_FOUND, error.message, data)
