"""The client's own wire: metadata, headers, lists, and how it sits on an app."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types
import pytest
from fastapi import FastAPI
from fastapi.responses import RedirectResponse
from pydantic import BaseModel

from fastapi_mcp_mrtr.testing import OMIT, MCPTestClient, ProtocolViolation, RejectedRequest
from tests.testing.script import SERVER, Answer, Script, Seen, done, failed

META = "io.modelcontextprotocol/"
CACHED = {"ttlMs": 0, "cacheScope": "private"}


def play(*replies: Answer, **options: Any) -> tuple[MCPTestClient, list[Seen]]:
    script = Script(list(replies))
    return MCPTestClient(script.app(), **options), script.seen


def page(member: str, *items: Any, cursor: str | None = None) -> dict[str, Any]:
    result = {"resultType": "complete", member: list(items), **CACHED}
    return {"result": result if cursor is None else result | {"nextCursor": cursor}}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def test_a_request_carries_the_metadata_of_the_revision() -> None:
    """spec: MUST (basic/index §_meta)."""
    client, seen = play(done())
    client.call_tool("book")
    meta = seen[0].meta
    assert meta[f"{META}protocolVersion"] == "2026-07-28"
    assert meta[f"{META}clientInfo"]["name"] == "fastapi-mcp-mrtr-testing"
    assert meta[f"{META}clientCapabilities"] == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"context": {}, "tools": {}},
        "roots": {},
    }
    assert meta[f"{META}logLevel"] == "debug"
    assert meta["progressToken"] == "progress-1"


def test_notifications_need_not_be_asked_for() -> None:
    """A client that wants none gets plain JSON; decision."""
    client, seen = play(done(), progress=False, log_level=None)
    client.call_tool("book")
    assert not {"progressToken", f"{META}logLevel"} & seen[0].meta.keys()


def test_capabilities_and_info_may_be_the_official_models() -> None:
    """spec: basic/index §_meta."""
    client, seen = play(
        done(),
        capabilities=mcp_types.ClientCapabilities(roots=mcp_types.RootsCapability()),
        client_info=mcp_types.Implementation(name="me", version="2"),
    )
    client.call_tool("book")
    assert seen[0].meta[f"{META}clientCapabilities"] == {"roots": {}}
    assert seen[0].meta[f"{META}clientInfo"] == {"name": "me", "version": "2"}


def test_headers_of_the_client_go_with_every_request() -> None:
    """An API key is set once; one request may change or omit it; decision."""
    client, seen = play(done(), done(), done(), headers={"X-API-Key": "alice"})
    client.call_tool("book")
    client.call_tool("book", headers={"x-api-key": "bob"})
    client.call_tool("book", headers={"X-Api-Key": OMIT})
    assert [s.headers.get("x-api-key") for s in seen] == ["alice", "bob", None]


def test_what_the_client_sends_by_itself_can_be_left_out() -> None:
    """Negative tests need broken requests; decision."""
    client, seen = play(done(), done())
    client.request(
        "tools/call",
        {"name": "book"},
        headers={"Mcp-Method": OMIT},
        meta={f"{META}protocolVersion": OMIT},
    )
    client.request("tools/call", {"name": "book"}, meta=OMIT)
    assert "mcp-method" not in seen[0].headers
    assert f"{META}protocolVersion" not in seen[0].meta
    assert "_meta" not in seen[1].params


def test_a_request_without_params_still_has_its_metadata() -> None:
    """spec: MUST (basic/index §_meta)."""
    client, seen = play({"result": {"resultType": "complete"}})
    reply = client.request("ext/method")
    assert list(seen[0].params) == ["_meta"]
    assert reply.request == seen[0].body


def test_arguments_may_be_models() -> None:
    """What JSON has no words for is written as pydantic writes it; decision."""

    class Flight(BaseModel):
        number: str

    client, seen = play(done())
    client.call_tool("book", {"flight": Flight(number="LX1")})
    assert seen[0].params["arguments"] == {"flight": {"number": "LX1"}}


def test_a_name_beyond_ascii_is_encoded() -> None:
    """spec: MUST (streamable-http §Value Encoding)."""
    client, seen = play(done())
    client.call_tool("flüge")
    assert seen[0].headers["mcp-name"] == "=?base64?ZmzDvGdl?="


REGION = {"type": "string", "x-mcp-header": "Region"}


def test_a_listed_tool_gets_its_headers() -> None:
    """spec: MUST (streamable-http §Client Behavior)."""
    client, seen = play(page("tools", tool("search", region=REGION)), done())
    client.list_tools()
    client.call_tool("search", {"region": "eu"})
    assert seen[1].headers["mcp-param-region"] == "eu"


def test_an_unknown_tool_is_listed_when_it_wants_headers() -> None:
    """spec: SHOULD (streamable-http §Client Behavior): list, then retry."""
    client, seen = play(
        failed(-32020, "Mcp-Param-Region"), page("tools", tool("search", region=REGION)), done()
    )
    client.call_tool("search", {"region": "eu"})
    assert [s.body["method"] for s in seen] == ["tools/call", "tools/list", "tools/call"]
    assert seen[2].headers["mcp-param-region"] == "eu"


def test_a_mismatch_that_the_list_does_not_explain_stands() -> None:
    """No retry without a difference; decision."""
    client, seen = play(failed(-32020, "No"), page("tools", tool("search")))
    assert client.begin_tool("search").error.code == -32020
    assert len(seen) == 2


def test_a_mismatch_made_on_purpose_stands() -> None:
    """Whoever sets headers means them; decision."""
    client, seen = play(failed(-32020, "No"))
    round_ = client.begin_tool("search", {"region": "eu"}, headers={"Mcp-Param-Region": "us"})
    assert round_.error.code == -32020
    assert len(seen) == 1


def test_a_tool_with_a_bad_annotation_is_refused() -> None:
    """spec: MUST (streamable-http §Schema Extension)."""
    bad = {"type": "number", "x-mcp-header": "Region"}
    client, _ = play(page("tools", tool("search", region=bad)))
    with pytest.raises(ProtocolViolation, match="'search': region"):
        client.list_tools()


def test_lists_follow_their_cursors() -> None:
    """spec: MUST (pagination): an empty cursor is a cursor."""
    client, seen = play(
        page("tools", tool("a"), cursor=""),
        page("tools", tool("b"), cursor="c"),
        page("tools", tool("d")),
    )
    assert [t.name for t in client.list_tools()] == ["a", "b", "d"]
    assert [s.params.get("cursor") for s in seen] == [None, "", "c"]


def test_a_cursor_that_goes_in_circles_is_a_violation() -> None:
    """A list has an end; decision."""
    client, _ = play(*[page("prompts", cursor="c")] * 2)
    with pytest.raises(ProtocolViolation, match="prompts/list gave a cursor for the second time"):
        client.list_prompts()


def test_every_kind_of_list_is_typed() -> None:
    """The official types; decision."""
    client, _ = play(
        page("prompts", {"name": "plan"}),
        page("resources", {"name": "fares", "uri": "fare://all"}),
        page("resourceTemplates", {"name": "fare", "uriTemplate": "fare://{id}"}),
    )
    assert client.list_prompts()[0].name == "plan"
    assert str(client.list_resources()[0].uri) == "fare://all"
    assert client.list_resource_templates()[0].uri_template == "fare://{id}"


def test_discovery_is_typed() -> None:
    """spec: server/discover."""
    client, seen = play(
        {
            "result": {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "_meta": SERVER,
                **CACHED,
            }
        }
    )
    assert client.discover().supported_versions == ["2026-07-28"]
    assert seen[0].headers["mcp-method"] == "server/discover"


COMPLETION = {"result": {"resultType": "complete", "completion": {"values": ["Paris"]}}}


def test_completion_asks_for_a_prompt_or_a_resource() -> None:
    """spec: completion §Reference Types."""
    client, seen = play(COMPLETION, COMPLETION)
    assert client.complete("city", "Pa", prompt="plan").values == ["Paris"]
    client.complete("id", resource="fare://{id}", context={"city": "Paris"})
    assert seen[0].params["ref"] == {"type": "ref/prompt", "name": "plan"}
    assert seen[0].params["argument"] == {"name": "city", "value": "Pa"}
    assert "context" not in seen[0].params
    assert seen[1].params["ref"] == {"type": "ref/resource", "uri": "fare://{id}"}
    assert seen[1].params["context"] == {"arguments": {"city": "Paris"}}


@pytest.mark.parametrize(("prompt", "resource"), [(None, None), ("a", "b")])
def test_completion_wants_one_reference(prompt: str | None, resource: str | None) -> None:
    """Neither and both are mistakes; decision."""
    client, _ = play()
    with pytest.raises(TypeError, match="either prompt= or resource="):
        client.complete("city", prompt=prompt, resource=resource)


def test_a_redirect_is_not_followed() -> None:
    """user report: clients lose the body of a redirected POST."""
    client, _ = play(RedirectResponse("/mcp/"))
    with pytest.raises(RejectedRequest, match="pass it as url="):
        client.call_tool("book")


def test_a_wrong_url_says_so() -> None:
    """The usual reason for a 404 is a prefix; decision."""
    client = MCPTestClient(Script([]).app("/api/mcp"))
    with pytest.raises(RejectedRequest, match="under a prefix"):
        client.call_tool("book")


def test_another_url_is_where_it_posts() -> None:
    """Prefixes are part of the url; decision."""
    assert MCPTestClient(Script([done()]).app("/api/mcp"), "/api/mcp").call_tool("book").content


def lifespan_app(runs: list[str]) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        runs.append("start")
        yield
        runs.append("stop")

    app = FastAPI(lifespan=lifespan)
    app.mount("", Script([done()] * 3).app())
    return app


def test_a_context_runs_the_lifespan_as_often_as_it_is_entered() -> None:
    """user report: a second TestClient context raises."""
    runs: list[str] = []
    client = MCPTestClient(lifespan_app(runs))
    for _ in range(2):
        with client as entered:
            assert entered is client
            client.call_tool("book")
    assert runs == ["start", "stop"] * 2


def test_a_bare_client_runs_no_lifespan() -> None:
    """user report: MCP has to work with no lifespan wired."""
    runs: list[str] = []
    client = MCPTestClient(lifespan_app(runs))
    client.call_tool("book")
    client.close()
    assert runs == []


def crash(_: Seen) -> Any:
    raise RuntimeError("boom")


def test_an_exception_that_leaves_the_app_reaches_the_test() -> None:
    """As with Starlette's client; decision."""
    client, _ = play(crash)
    with pytest.raises(RuntimeError, match="boom"):
        client.call_tool("book")


def test_such_an_exception_can_be_a_500() -> None:
    """As with Starlette's client; decision."""
    client, _ = play(crash, raise_server_exceptions=False)
    assert client.begin_tool("book").status_code == 500


def test_a_missing_http_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The HTTP client is no dependency of a server; the message says what to install."""
    monkeypatch.delitem(sys.modules, "starlette.testclient")
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ImportError, match=r"needs the package httpx2: pip install .*\[testing\]"):
        MCPTestClient(FastAPI())
