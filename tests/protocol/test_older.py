"""older: what a POST of an older client is, and what its messages say."""

import json
from typing import Any

import pytest

from fastapi_mcp_mrtr.errors import MCPError
from fastapi_mcp_mrtr.protocol import older
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.protocol.older import (
    OLDER_VERSIONS,
    OlderAnswer,
    OlderNotification,
    OlderRequest,
    older_error,
    older_message,
    read_initialize,
    read_level,
    read_message,
    read_messages,
    read_uri,
)

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
MODERN = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
SESSION = {"mcp-session-id": "s"}


def headers(**named: str) -> RequestHeaders:
    return RequestHeaders.read(
        [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    )


def era(body: Any, served: Any = OLDER_VERSIONS, **named: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return older_message(headers(**named), content, served)


def refused(function: Any, *arguments: Any) -> MCPError:
    with pytest.raises(MCPError) as caught:
        function(*arguments)
    return caught.value


# ----------------------------------------------------------------------------------------- eras


@pytest.mark.parametrize("version", OLDER_VERSIONS)
@pytest.mark.parametrize("body", [PING, INITIALIZE, [PING], "text", {"jsonrpc": "1.0"}])
def test_what_comes_with_an_older_version_is_older(version: str, body: Any) -> None:
    """spec: the version header says the revision (2025-11-25 transports §Protocol Version Header);
    malformed messages are answered in its terms too."""
    assert era(body, mcp_protocol_version=version) == body


@pytest.mark.parametrize("body", [PING, [PING], {"jsonrpc": "2.0", "id": "x", "result": {}}])
def test_a_session_id_without_a_version_is_older(body: Any) -> None:
    """spec: 2025-03-26 has no version header; a session id is a thing of older revisions."""
    assert era(body, mcp_session_id="s") == body
    assert era(body) is None


def test_initialize_needs_neither() -> None:
    """spec: an initialize request selects legacy semantics (basic/versioning)."""
    assert era(INITIALIZE) == INITIALIZE
    assert era({**INITIALIZE, "params": None}) is not None


@pytest.mark.parametrize("version", ["2026-07-28", "2024-11-05", "2027-01-01", "", "x"])
@pytest.mark.parametrize("body", [PING, INITIALIZE])
def test_what_comes_with_any_other_version_is_not(version: str, body: Any) -> None:
    """Decision: a version that is not known is today's to refuse, with the list of those served."""
    assert era(body, mcp_protocol_version=version, mcp_session_id="s") is None


def test_a_version_that_is_not_served_is_not() -> None:
    """Decision: `versions=` restricts; what is left out is unknown."""
    served = ("2025-11-25",)
    assert era(PING, served, mcp_protocol_version="2025-06-18") is None
    assert era(PING, served, mcp_protocol_version="2025-11-25") == PING


@pytest.mark.parametrize("method", ["initialize", "tools/call"])
def test_what_has_the_metadata_of_today_is_not(method: str) -> None:
    """spec: a request carrying modern per-request _meta is served statelessly (versioning)."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": MODERN}
    assert era(body, mcp_protocol_version="2025-11-25", mcp_session_id="s") is None


@pytest.mark.parametrize("meta", [None, [], {}, {"progressToken": 1}])
def test_other_metadata_says_nothing(meta: Any) -> None:
    """spec: `_meta` is older than its members of today (2025-11-25 basic/index)."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    assert era(body, mcp_session_id="s") == body


def test_what_is_no_json_is_for_today_to_refuse() -> None:
    """Decision: -32700 is the same in every revision."""
    assert era(b"{", mcp_protocol_version="2025-11-25") is None


# ------------------------------------------------------------------------------------- messages


def test_a_request() -> None:
    """spec: a method, an id and params with `_meta` (basic/index §Requests)."""
    meta = {"progressToken": "t", "other": 1}
    params = {"name": "a", "_meta": meta}
    request = read_message({"jsonrpc": "2.0", "id": "7", "method": "tools/call", "params": params})
    assert request == OlderRequest("7", "tools/call", {"name": "a"}, meta, "t")


@pytest.mark.parametrize("params", [{}, {"params": None}, {"params": {}}])
def test_params_may_be_missing(params: Any) -> None:
    """spec: `ping` has none."""
    assert read_message({**PING, **params}) == OlderRequest(1, "ping", {}, {}, None)


def test_a_client_cannot_play_a_round_of_its_own() -> None:
    """Decision: states and answers of rounds are the server's to add here."""
    params = {"name": "a", "inputResponses": {"x": 1}, "requestState": "s"}
    request = read_message({**PING, "method": "tools/call", "params": params})
    assert isinstance(request, OlderRequest)
    assert request.params == {"name": "a"}


def test_a_notification() -> None:
    """spec: no id (basic/index §Notifications)."""
    message = read_message({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert message == OlderNotification("notifications/initialized", {})


def test_answers() -> None:
    """spec: a result or an error, with the id of the request (basic/index §Responses)."""
    said = {"jsonrpc": "2.0", "id": "a"}
    assert read_message({**said, "result": {"x": 1}}) == OlderAnswer("a", {"x": 1}, None)
    error = {"code": -1, "message": "no"}
    assert read_message({**said, "error": error}) == OlderAnswer("a", None, error)
    assert read_message({**said, "error": None, "result": 1}) == OlderAnswer("a", 1, None)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("text", -32600),
        (None, -32600),
        ({"id": 1, "method": "ping"}, -32600),
        ({**PING, "jsonrpc": "1.0"}, -32600),
        ({**PING, "method": ""}, -32600),
        ({**PING, "method": 1}, -32600),
        ({"jsonrpc": "2.0", "id": 1}, -32600),
        ({**PING, "id": None}, -32600),
        ({**PING, "id": 1.5}, -32600),
        ({**PING, "params": []}, -32602),
        ({**PING, "params": {"_meta": []}}, -32602),
        ({**PING, "params": {"_meta": {"progressToken": 1.5}}}, -32602),
        ({"jsonrpc": "2.0", "result": {}}, -32600),
        ({"jsonrpc": "2.0", "id": None, "result": {}}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "error": "no"}, -32600),
    ],
)
def test_what_is_no_message(message: Any, code: int) -> None:
    """spec: the shapes of JSON-RPC (basic/index §Messages)."""
    assert refused(read_message, message).code == code


def test_numbers_out_of_range() -> None:
    """Decision: JSON has no word for infinity."""
    params = {"arguments": {"x": float("inf")}}
    assert refused(read_message, {**PING, "params": params}).code == -32602


# -------------------------------------------------------------------------------------- batches

ANSWER = {"jsonrpc": "2.0", "id": "a", "result": {}}
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def test_batches_of_2025_03_26() -> None:
    """spec: requests and notifications, or responses (2025-03-26 transports §Sending Messages)."""
    is_batch, messages = read_messages([PING, NOTIFICATION], "2025-03-26")
    assert is_batch
    assert [type(message) for message in messages] == [OlderRequest, OlderNotification]
    assert read_messages([ANSWER, ANSWER], "2025-03-26")[0]
    assert read_messages(PING, "2025-03-26") == (False, [OlderRequest(1, "ping", {}, {}, None)])


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
def test_later_revisions_have_no_batches(version: str) -> None:
    """spec: the body MUST be a single message (2025-06-18 transports §Sending Messages)."""
    assert refused(read_messages, [PING], version).code == -32600


@pytest.mark.parametrize(
    "batch",
    [[], [PING] * 33, [PING, ANSWER], [NOTIFICATION, ANSWER], [PING, INITIALIZE], [PING, "x"]],
    ids=["empty", "long", "mixed", "mixed too", "initialize", "no message"],
)
def test_batches_that_are_none(batch: Any) -> None:
    """spec: initialize MUST NOT be part of a batch (2025-03-26 lifecycle); each call costs."""
    assert refused(read_messages, batch, "2025-03-26").code == -32600


# ------------------------------------------------------------------------------------ initialize


def initialize(version: str = "2025-11-25", **changes: Any) -> dict[str, Any]:
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    return {**params, **changes}


@pytest.mark.parametrize("version", OLDER_VERSIONS)
def test_a_version_that_is_served_is_spoken(version: str) -> None:
    """spec: MUST respond with the same version (lifecycle §Version Negotiation)."""
    assert read_initialize(initialize(version), OLDER_VERSIONS).version == version


@pytest.mark.parametrize("version", ["2024-11-05", "2026-07-28", "2099-01-01", ""])
def test_for_any_other_version_there_is_the_newest(version: str) -> None:
    """spec: MUST respond with another version it supports, SHOULD be the latest (lifecycle)."""
    assert read_initialize(initialize(version), OLDER_VERSIONS).version == "2025-11-25"
    assert read_initialize(initialize(version), ("2025-03-26",)).version == "2025-03-26"


@pytest.mark.parametrize(
    "changes",
    [
        {"protocolVersion": None},
        {"protocolVersion": 1},
        {"capabilities": None},
        {"capabilities": []},
        {"clientInfo": None},
        {"clientInfo": {"name": "c"}},
        {"clientInfo": {"name": "c", "version": 1}},
    ],
)
def test_an_initialize_that_is_none(changes: Any) -> None:
    """spec: all three are required (schema, InitializeRequestParams)."""
    assert refused(read_initialize, initialize(**changes), OLDER_VERSIONS).code == -32602


def capabilities(version: str, declared: Any) -> dict[str, Any]:
    found = read_initialize(initialize(version, capabilities=declared), OLDER_VERSIONS)
    return found.capabilities


ALL = {
    "elicitation": {"form": {}, "url": {"x": 1}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {"listChanged": True},
    "tasks": {},
    "experimental": {"a": {}},
}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "2025-11-25",
            {
                "elicitation": {"form": {}, "url": {}},
                "sampling": {"context": {}, "tools": {}},
                "roots": {},
            },
        ),
        ("2025-06-18", {"elicitation": {}, "sampling": {"context": {}}, "roots": {}}),
        ("2025-03-26", {"sampling": {"context": {}}, "roots": {}}),
    ],
)
def test_capabilities_count_as_far_as_the_revision_has_them(version: str, expected: Any) -> None:
    """spec: url mode and sampling with tools came with 2025-11-25, elicitation with 2025-06-18;
    includeContext was every sampling client's until it became a capability (changelogs)."""
    assert capabilities(version, ALL) == expected


def test_what_is_no_object_declares_nothing() -> None:
    """Decision: `false` and null must not declare a capability, and break nothing."""
    declared = {"elicitation": False, "roots": None, "sampling": {"tools": True}}
    assert capabilities("2025-11-25", declared) == {"sampling": {}}


# ------------------------------------------------------------------------------- smaller things


@pytest.mark.parametrize("level", ["debug", "info", "emergency"])
def test_levels(level: str) -> None:
    """spec: those of RFC 5424 (server/utilities/logging)."""
    assert read_level({"level": level}) == level


@pytest.mark.parametrize("params", [{}, {"level": "loud"}, {"level": 1}, {"level": ["info"]}])
def test_levels_that_are_none(params: Any) -> None:
    """spec: -32602 (server/utilities/logging §Error Handling)."""
    assert refused(read_level, params).code == -32602


def test_uris() -> None:
    """spec: resources/subscribe names a URI (server/resources §Subscriptions)."""
    assert read_uri({"uri": "a:b"}) == "a:b"
    assert refused(read_uri, {"uri": 1}).code == -32602


def test_a_resource_that_is_not_there_has_a_code_of_its_own() -> None:
    """spec: -32002 (2025-11-25 server/resources §Error Handling)."""
    gone = MCPError(-32602, "Resource not found", {"uri": "a:b"})
    translated = older_error("resources/read", gone)
    assert (translated.code, translated.message, translated.data) == (
        -32002,
        "Resource not found",
        {"uri": "a:b"},
    )
    assert older_error("tools/call", gone) is gone
    for other in (MCPError(-32602, "x"), MCPError(-32603, "x", {"uri": "a:b"})):
        assert older_error("resources/read", other) is other


def test_every_forwarded_method_is_todays() -> None:
    """Decision: what is passed on is what today's revision has, without its subscriptions."""
    from fastapi_mcp_mrtr.server.dispatch import _METHODS

    assert set(_METHODS) - older.FORWARDED == {"server/discover", "subscriptions/listen"}
