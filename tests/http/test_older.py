"""Sessions of older revisions over the ASGI app: opening, plain calls, errors, the end."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI

from fastapi_mcp_mrtr import MCPRouter
from tests import wire
from tests.older import VERSIONS, Client, session

from .older_desk import SECRET, Desk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk() -> Desk:
    return Desk()


@pytest.fixture(params=VERSIONS)
async def client(request: pytest.FixtureRequest, desk: Desk) -> AsyncIterator[Client]:
    async with session(desk.app, request.param) as opened:
        yield opened


def text_of(result: Any) -> str:
    text: str = result["content"][0]["text"]
    return text


# ------------------------------------------------------------------------------------- sessions


async def test_initialize(desk: Desk) -> None:
    """spec: version, capabilities, serverInfo, instructions (lifecycle §Initialization); a visible
    ASCII session id (transports §Session Management)."""
    client = Client(desk.app)
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    params |= {"clientInfo": {"name": "c", "version": "1"}}
    reply = client.request("initialize", params, id="first")
    assert await reply.result() == {
        "protocolVersion": "2025-11-25",
        "serverInfo": {"name": "desk", "version": "1", "title": "The desk"},
        "capabilities": {
            "logging": {},
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "resources": {"listChanged": True, "subscribe": True},
        },
        "instructions": "Ask.",
    }
    assert reply.messages[0]["id"] == "first"
    assert all("\x21" <= character <= "\x7e" for character in reply.headers["mcp-session-id"])


async def test_initialize_without_titles(desk: Desk) -> None:
    """spec: an Implementation has a name and a version, no more (2025-03-26 schema)."""
    async with session(desk.app, "2025-03-26") as client:
        result = client.replies[0].messages[0]["result"]
        assert result["serverInfo"] == {"name": "desk", "version": "1"}


@pytest.mark.parametrize("header", [None, "2025-11-25", "2025-06-18"])
async def test_the_version_header_of_initialize_does_not_matter(
    desk: Desk, header: str | None
) -> None:
    """spec: the header is for subsequent requests; conformance: one probe sends it (lifecycle)."""
    client = Client(desk.app)
    info = {"name": "c", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    reply = client.request("initialize", params, mcp_protocol_version=header)
    assert (await reply.result())["protocolVersion"] == "2025-06-18"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": []}, -32602),
        ({"jsonrpc": "2.0", "method": "initialize", "params": {}}, -32600),
        ({"jsonrpc": "2.0", "id": None, "method": "initialize"}, -32600),
    ],
)
async def test_an_initialize_that_is_none(desk: Desk, body: Any, code: int) -> None:
    """spec: -32602, as for any request (lifecycle §Error Handling); no session begins."""
    reply = await Client(desk.app).open("POST", body).done()
    assert (reply.status, reply.messages[0]["error"]["code"]) == (400, code)
    assert reply.messages[0].get("id") == body.get("id")
    assert "mcp-session-id" not in reply.headers


async def test_ping(client: Client) -> None:
    """spec: an empty result, exactly (basic/utilities/ping; conformance §9)."""
    assert await client.request("ping").result() == {}
    assert await client.request("ping", {"_meta": {}}).result() == {}


@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/progress", "x"])
async def test_notifications_are_accepted(client: Client, method: str) -> None:
    """spec: 202 and no body (transports §Sending Messages)."""
    reply = await client.notify(method, {})
    assert (reply.status, reply.text) == (202, "")


async def test_requests_without_a_session(client: Client) -> None:
    """spec: 400 without the header, other than initialize (transports §Session Management)."""
    client.session_id = None
    version = "2025-11-25"
    for method in ("POST", "GET", "DELETE"):
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        reply = await client.open(method, body, mcp_protocol_version=version).done()
        assert (reply.status, reply.messages[0]["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("header", ["Mcp-Session-Id", "Mcp-Protocol-Version", "Last-Event-Id"])
async def test_headers_that_contradict_themselves(client: Client, method: str, header: str) -> None:
    """User report: somebody on the way may have read the other one."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    sent = {"mcp_protocol_version": "2025-11-25", "last_event_id": "x-1", header: "2025-06-18"}
    reply = await client.open(method, body, **sent).done()
    error = reply.messages[0]["error"]
    assert (reply.status, error["code"]) == (400, -32600)
    assert error["message"] == f"{header.lower()} was sent twice with different values"
    again = {**sent, header: client.session_id if header == "Mcp-Session-Id" else None}
    if method == "POST":
        assert (await client.open(method, body, **again).done()).status == 200


NOT_FOUND = [{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Session not found"}}]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("how", ["forged", "altered", "cut", "long", "state", "other user"])
async def test_a_session_id_that_is_not_good(
    desk: Desk, client: Client, how: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """spec: 404 (transports §Session Management 3); decision: whatever is wrong reads the same, and
    another principal's session is none."""
    good = client.session_id or ""
    asked = wire.post(desk.app, wire.call("consent"))
    ids = {
        "forged": "a" * 40,
        "altered": good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
        "cut": good[:-8],
        "long": good + "A" * 8000,
        "state": wire.result_of(asked)["requestState"],
        "other user": good,
    }
    user = "bob" if how == "other user" else "alice"
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    reply = await client.open(method, body, mcp_session_id=ids[how], x_user=user).done()
    assert (reply.status, reply.messages) == (404, NOT_FOUND)
    assert good[:40] not in caplog.text


async def test_a_session_expires(desk: Desk, client: Client) -> None:
    """spec: the server MAY terminate the session at any time (transports §Session Management)."""
    desk.now += 86_399
    assert await client.request("ping").result() == {}
    desk.now += 2
    assert (await client.request("ping").done()).status == 404


async def test_a_session_of_another_server() -> None:
    """Decision: servers that share secrets do not share sessions."""
    one, two = Desk(), Desk(audience="other")
    async with session(one.app) as client:
        client.app = two.app
        assert (await client.request("ping").done()).status == 404


async def test_a_session_is_good_on_every_worker() -> None:
    """User report: a session was not found with two workers."""
    one, two = Desk(), Desk()
    async with session(one.app) as client:
        client.app = two.app
        assert text_of(await client.call("echo", {"text": "x"}).result()).startswith("x")


async def test_the_end_of_a_session(client: Client) -> None:
    """spec: DELETE ends it, after which it is 404 (transports §Session Management; conformance)."""
    reply = await client.open("DELETE").done()
    assert (reply.status, reply.text) == (204, "")
    for again in (client.request("ping"), client.open("GET"), client.open("DELETE")):
        assert (await again.done()).status == 404


async def test_a_session_of_a_version_that_is_no_longer_served() -> None:
    """Decision: the client initializes again."""
    one, two = Desk(), Desk(versions=["2025-11-25", "2026-07-28"])
    async with session(one.app, "2025-03-26") as client:
        client.app = two.app
        assert (await client.request("ping").done()).status == 404


# ----------------------------------------------------------------------------------- what is said


async def test_a_plain_call(client: Client) -> None:
    """spec: one JSON object without resultType, ttlMs, cacheScope (2025-11-25 schema)."""
    reply = client.call("echo", {"text": "x"})
    assert await reply.result() == {
        "content": [{"type": "text", "text": f"x ({client.version})"}],
        "isError": False,
    }
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [("nope", {}, -32602), ("fail", {"how": "x"}, -32603)],
)
async def test_errors_of_calls(client: Client, name: str, arguments: Any, code: int) -> None:
    """spec: JSON-RPC errors; decision: with 200, since 404 is the end of a session."""
    reply = client.call(name, arguments)
    assert (await reply.error())["code"] == code
    assert reply.status == 200


async def test_failures_that_a_model_may_read(client: Client) -> None:
    """spec: isError results (server/tools §Error Handling)."""
    result = await client.call("fail", {"how": "tool"}).result()
    assert result == {"content": [{"type": "text", "text": "no luck"}], "isError": True}
    assert (await client.call("add", {"a": "x"}).result())["isError"] is True


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "tasks/list", "x"])
async def test_methods_that_a_session_does_not_have(client: Client, method: str) -> None:
    """spec: -32601 (basic/index); decision: with 200, since 404 is the end of a session."""
    reply = client.request(method, {})
    assert (await reply.error()) == {"code": -32601, "message": "Method not found"}
    assert reply.status == 200


async def test_a_resource_that_is_not_there(client: Client) -> None:
    """spec: -32002 (server/resources §Error Handling)."""
    error = await client.request("resources/read", {"uri": "desk://no"}).error()
    assert (error["code"], error["data"]) == (-32002, {"uri": "desk://no"})


@pytest.mark.parametrize("body", [b"{", b"", b"nope"])
async def test_what_is_no_json(client: Client, body: bytes) -> None:
    """spec: -32700 (basic/index)."""
    reply = await client.open("POST", body).done()
    assert (reply.status, reply.messages[0]["error"]["code"]) == (400, -32700)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"jsonrpc": "2.0", "id": 1}, -32600),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": 1}, -32602),
        ("text", -32600),
    ],
)
async def test_what_is_no_message(client: Client, body: Any, code: int) -> None:
    """spec: an HTTP error status (transports §Sending Messages 4)."""
    reply = await client.open("POST", body).done()
    assert (reply.status, reply.messages[0]["error"]["code"]) == (400, code)


async def test_a_body_that_is_too_large(client: Client, desk: Desk) -> None:
    """Decision: the limits are those of every request."""
    reply = await client.open("POST", b"x" * (4 * 1024 * 1024 + 1)).done()
    assert reply.status == 413
    reply = await client.open("POST", {}, content_type="text/plain").done()
    assert reply.status == 415


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_other_origins_are_refused(client: Client, method: str) -> None:
    """spec: MUST validate Origin on all incoming connections, 403 (transports §Security)."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    reply = await client.open(method, body, origin="https://evil.example").done()
    assert reply.status == 403


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_authentication_comes_first(client: Client, desk: Desk, method: str) -> None:
    """User report: an unauthenticated GET got 405 and no challenge."""
    desk.refuse = 401
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert (await client.open(method, body).done()).status == 401


async def test_a_principal_that_identifies_nobody() -> None:
    """Decision: an internal error, on every method; nothing is said of why."""
    desk = Desk(principal_key=lambda user: object())
    for method in ("POST", "GET", "DELETE"):
        reply = await Client(desk.app).open(method, {"method": "initialize"}).done()
        assert reply.messages[0]["error"]["code"] == -32603


async def test_a_dependencys_refusal_keeps_its_status(client: Client) -> None:
    """Decision: as for everybody, what is decided before the first byte is the HTTP response."""
    reply = await client.call("teapot").done()
    assert (reply.status, reply.text) == (418, '{"detail":"No coffee"}')


async def test_a_dependency_that_breaks(client: Client) -> None:
    """Decision: an internal error, and the secret stays in the log."""
    error = await client.call("broken_dependency").error()
    assert error["code"] == -32603
    assert "secret" not in str(error)


async def test_headers_of_dependencies(client: Client) -> None:
    """Decision: they are the response's, streamed or not."""
    assert (await client.call("echo", {"text": "x"}).done()).headers["x-seen"] == "alice"
    reply = await client.call("report", meta={"progressToken": 1}).done()
    assert reply.is_stream
    assert reply.headers["x-seen"] == "alice"


async def test_mirrored_headers_are_todays(client: Client) -> None:
    """spec: `Mcp-Param-*` came with 2026-07-28; older clients send none."""
    assert text_of(await client.call("near", {"region": "eu"}).result()) == "eu"


async def test_completion(client: Client) -> None:
    """spec: completion/complete (server/utilities/completion)."""
    params = {
        "ref": {"type": "ref/prompt", "name": "plan"},
        "argument": {"name": "city", "value": "B"},
    }
    result = await client.request("completion/complete", params).result()
    assert result == {"completion": {"values": [], "total": 0, "hasMore": False}}


# ---------------------------------------------------------------------------------- both at once


async def test_todays_requests_are_served_beside(desk: Desk, client: Client) -> None:
    """spec: a dual-era server MAY serve both eras on the same endpoint (versioning)."""
    response = await wire.Exchange(desk.app, wire.call("echo", {"text": "x"})).run()
    assert response.messages[0]["result"]["resultType"] == "complete"
    text = text_of(response.messages[0]["result"])
    assert text == "x (2026-07-28)"


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"]
)
async def test_methods_of_sessions_are_none_of_todays(desk: Desk, method: str) -> None:
    """spec: -32601 with 404 (streamable-http); conformance §1.3."""
    response = await wire.Exchange(desk.app, wire.message(method)).run()
    assert (response.status, response.messages[0]["error"]["code"]) == (404, -32601)


async def test_a_session_id_changes_nothing_today(desk: Desk, client: Client) -> None:
    """spec: ignore it (streamable-http §Earlier Streamable HTTP Revisions)."""
    body = wire.call("echo", {"text": "x"})
    exchange = wire.Exchange(desk.app, body, mcp_session_id=client.session_id)
    response = await exchange.run()
    assert response.status == 200
    assert "mcp-session-id" not in response.headers


async def test_without_older_revisions() -> None:
    """Decision: `versions=` restricts; it is then as if there were no others."""
    desk = Desk(versions=["2026-07-28"])
    reply = Client(desk.app).request("initialize", {"protocolVersion": "2025-11-25"})
    error = await reply.error()
    assert (reply.status, error["code"]) == (400, -32020)
    assert error["data"] == {"supported": ["2026-07-28"]}
    for method in ("GET", "DELETE"):
        assert (await Client(desk.app).open(method).done()).status == 405


async def test_without_todays_revision() -> None:
    """spec: -32022 with the versions that are served (versioning)."""
    desk = Desk(versions=["2025-06-18"])
    response = await wire.Exchange(desk.app, wire.message("server/discover")).run()
    assert response.messages[0]["error"]["code"] == -32022
    assert response.messages[0]["error"]["data"]["supported"] == ["2025-06-18"]
    async with session(desk.app, "2025-06-18") as client:
        assert await client.request("ping").result() == {}


@pytest.mark.parametrize("versions", [[], ["2024-11-05"], "2025-11-25", ["2026-07-28", 1]])
def test_versions_that_cannot_be_served(versions: Any) -> None:
    """Decision: a setting that makes no sense fails where the router is made."""
    with pytest.raises(ValueError, match="versions takes some of"):
        MCPRouter("s", version="1", versions=versions)


@pytest.mark.parametrize("setting", ["ask_timeout", "max_asks_per_session", "session_lifetime"])
def test_settings_are_positive(setting: str) -> None:
    """Decision: a setting that makes no sense fails where the router is made."""
    with pytest.raises(ValueError, match=setting):
        Desk(**{setting: 0})
    if setting == "ask_timeout":
        with pytest.raises(ValueError, match=setting):
            MCPRouter("s", version="1").tool(ask_timeout=0)


async def test_under_a_prefix() -> None:
    """User report: a prefix broke the endpoint; sessions, GET and DELETE work under one too."""
    mcp = MCPRouter("s", version="1", keys=SECRET)
    app = FastAPI()
    app.include_router(mcp, prefix="/api")
    async with session(app, path="/api/mcp/") as client:
        assert await client.request("ping").result() == {}
        assert (await client.open("DELETE").done()).status == 204


async def test_the_clock_is_the_sessions_too() -> None:
    """Decision: one clock, settable for tests."""
    desk = Desk()
    async with session(desk.app) as client:
        desk.mcp.clock = lambda: desk.now + 86_401
        assert (await client.request("ping").done()).status == 404


# ----------------------------------------------------------------------------------------- lists


async def test_lists(client: Client) -> None:
    """spec: without what came later (schemas); one translation for all callers."""
    tools = (await client.request("tools/list").result())["tools"]
    echo = next(tool for tool in tools if tool["name"] == "echo")
    assert ("icons" in echo) == (client.version == "2025-11-25")
    assert ("title" in echo) == (client.version != "2025-03-26")
    for method, member in (
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ):
        result = await client.request(method).result()
        assert set(result) == {member}
        assert ("title" in str(result[member])) == (
            client.version != "2025-03-26" and member != "resourceTemplates"
        )


async def test_a_settings_clock_without_sessions() -> None:
    """Decision: settable in any case."""
    desk = Desk(versions=["2026-07-28"])
    desk.mcp.clock = lambda: 1.0
    assert desk.mcp.clock() == 1.0


async def test_content_that_came_later(client: Client) -> None:
    """spec: links to resources came with 2025-06-18."""
    _, link = (await client.call("link").result())["content"]
    assert link["type"] == ("text" if client.version == "2025-03-26" else "resource_link")
    result = await client.call("add", {"a": 1, "b": 2}).result()
    assert ("structuredContent" in result) == (client.version != "2025-03-26")
    assert "structuredContent" not in await client.call("numbers").result()
