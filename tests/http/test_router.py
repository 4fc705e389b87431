"""router: what MCPRouter takes, where an app can put it, and what applies to it there."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import JSONResponse
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from fastapi_mcp_mrtr import MCPHeader, MCPRouter, MemoryLedger, Rounds, need_input
from fastapi_mcp_mrtr.http.router import find_router
from fastapi_mcp_mrtr.testing import MCPTestClient
from tests import wire


def router(name: str = "desk", **options: Any) -> MCPRouter:
    mcp = MCPRouter(name, version="1.2.3", **options)

    @mcp.tool()
    async def greet(name: str = "you") -> Rounds[str]:
        """Greet somebody, after asking how."""
        word: str = yield need_input("word", "How?", str)
        yield f"{word}, {name}, from {mcp.name}"

    return mcp


def app_of(mcp: APIRouter, **options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(mcp, **options)
    return app


def greeting(app: Any, path: str = "/mcp") -> str:
    """The text of a flow of two rounds."""
    with MCPTestClient(app, path) as client:
        done = client.call_tool("greet", {"name": "Ada"}, answers={"word": "Hello"})
    return done.content[0].text  # type: ignore[union-attr]


# -------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("value", [0, -1, float("nan")])
@pytest.mark.parametrize(
    "setting",
    [
        "ttl",
        "flow_lifetime",
        "max_rounds",
        "max_state_bytes",
        "lease",
        "max_response_bytes",
        "max_body_size",
        "page_size",
        "keep_alive",
        "shutdown_grace",
    ],
)
def test_settings_that_make_no_sense_fail_at_once(setting: str, value: float) -> None:
    """Decision: a bad setting stops the import, not the first call."""
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError, match=f"{setting} must be positive"):
        MCPRouter("desk", version="1", **settings)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"ttl": "10"}, TypeError, "ttl takes a number, not str"),
        ({"max_rounds": True}, TypeError, "max_rounds takes a number, not bool"),
        ({"name": ""}, ValueError, "name must not be empty"),
        ({"version": 1}, TypeError, "version takes a string, not int"),
        ({"path": "mcp"}, ValueError, "path must begin with /, not 'mcp'"),
        ({"clock": 5}, TypeError, "clock takes a function, not int"),
        ({"principal_key": "id"}, TypeError, "principal_key takes a function, not str"),
        ({"scopes_of": "x"}, TypeError, "scopes_of takes a function, not str"),
        ({"ledger": "sqlite:///x.db"}, TypeError, r"ledger takes an object such as .*, not str"),
        ({"ledger": MemoryLedger}, TypeError, "ledger takes an object .*, not MemoryLedger"),
        ({"sessions": "redis://x"}, TypeError, "sessions takes an object .*, not str"),
        ({"codec": "x"}, TypeError, "codec takes an object .*, not str"),
    ],
)
def test_settings_of_another_kind_fail_at_once(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    """user report: a URL as the ledger came to light at the first call."""
    with pytest.raises(error, match=message):
        MCPRouter(**{"name": "desk", "version": "1", **settings})


def test_lists_may_be_stale_at_once_but_not_earlier() -> None:
    """spec: ttlMs MUST NOT be negative (server/utilities/caching)."""
    MCPRouter("desk", version="1", list_ttl_ms=0)
    with pytest.raises(ValueError, match="list_ttl_ms must be 0 or more, not -1"):
        MCPRouter("desk", version="1", list_ttl_ms=-1)


def test_a_principal_is_a_dependency() -> None:
    """Decision: a bad setting stops the import."""
    with pytest.raises(TypeError, match="principal= takes a dependency, not str"):
        MCPRouter("desk", version="1", principal="alice")  # type: ignore[arg-type]


def test_a_server_that_is_open_to_everybody_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """user report: nobody noticed that a server asked for no login (fa#324)."""

    def warnings_of(mcp: MCPRouter) -> list[str]:
        app = FastAPI()
        app.include_router(mcp, prefix="/api")
        caplog.clear()
        with wire.client_of(app):
            pass
        return [message for message in caplog.messages if "No principal= configured" in message]

    assert len(warnings_of(router())) == 1
    assert warnings_of(router(principal=lambda: None)) == []


@pytest.mark.parametrize("wrap", [lambda fn: fn, Depends])
def test_the_principal_dependency_is_known(wrap: Callable[[Any], Any]) -> None:
    """Decision: it is the key for dependency_overrides in tests, given bare or with Depends."""

    def who() -> str:
        return "alice"

    assert router(principal=wrap(who)).principal_dependency is who
    assert router().principal_dependency is None


def test_single_use_by_default_needs_a_ledger() -> None:
    """Decision: a promise that nobody can keep stops the import."""
    with pytest.raises(ValueError, match="single_use=True needs a ledger"):
        MCPRouter("desk", version="1", single_use=True)
    MCPRouter("desk", version="1", single_use=True, ledger=MemoryLedger())


def test_a_single_use_tool_needs_a_ledger() -> None:
    """Decision: the same for one tool, which the message names."""
    mcp = MCPRouter("desk", version="1")
    with pytest.raises(ValueError, match="Tool 'pay' is single_use, which needs a ledger"):

        @mcp.tool(single_use=True)
        async def pay() -> None: ...


def test_a_single_use_tool_with_a_ledger_runs_once() -> None:
    """User report: the final response was lost, the client sent it again, and paid twice."""
    mcp = MCPRouter("desk", version="1", ledger=MemoryLedger())
    paid: list[str] = []

    @mcp.tool(single_use=True)
    async def pay() -> Rounds[str]:
        ok: bool = yield need_input("ok", "Pay?", bool)
        paid.append("once")
        yield f"paid: {ok}"

    with MCPTestClient(app_of(mcp)) as client:
        asked = client.begin_tool("pay")
        first, second = asked.answer({"ok": True}), asked.answer({"ok": True})
    assert first.result == second.result
    assert paid == ["once"]


def test_the_server_says_who_it_is() -> None:
    """spec: server/discover names the implementation and its instructions."""
    mcp = router(title="The desk", instructions="Ask first.")
    with MCPTestClient(app_of(mcp)) as client:
        found = client.discover()
    assert found.instructions == "Ask first."
    info = wire.result_of(wire.post(app_of(mcp), wire.message("server/discover")))["_meta"]
    expected = {"name": "desk", "version": "1.2.3", "title": "The desk"}
    assert info["io.modelcontextprotocol/serverInfo"] == expected


def test_the_clock_can_be_set() -> None:
    """Decision: time is an argument; a state expires when the router's clock says so."""
    mcp = router(ttl=10)
    now = mcp.clock()
    with MCPTestClient(app_of(mcp)) as client:
        asked = client.begin_tool("greet")
        mcp.clock = lambda: now + 11
        assert mcp.clock() == now + 11
        assert asked.answer({"word": "Hi"}).error.code == -32602


# ------------------------------------------------------------------------------------------ where


def nested() -> FastAPI:
    middle = APIRouter(prefix="/v1")
    middle.include_router(router(), prefix="/desk")
    return app_of(middle, prefix="/api")


def in_a_mounted_app() -> FastAPI:
    app = FastAPI()
    app.mount("/sub", app_of(router()))
    return app


def at_the_root_of_a_mounted_app() -> FastAPI:
    app = FastAPI()
    app.mount("/sub/mcp", app_of(router(path="/")))
    return app


PLACES: dict[str, tuple[Callable[[], FastAPI], str]] = {
    "bare": (lambda: app_of(router()), "/mcp"),
    "its path": (lambda: app_of(router(path="/ask/me")), "/ask/me"),
    "its prefix": (lambda: app_of(router(prefix="/api")), "/api/mcp"),
    "the app's prefix": (lambda: app_of(router(), prefix="/api"), "/api/mcp"),
    "both prefixes": (lambda: app_of(router(prefix="/v1"), prefix="/api"), "/api/v1/mcp"),
    "no path": (lambda: app_of(router(path=""), prefix="/mcp"), "/mcp"),
    "a slash below a prefix": (lambda: app_of(router(path="/"), prefix="/mcp"), "/mcp"),
    "a path with a slash": (lambda: app_of(router(path="/mcp/")), "/mcp"),
    "a nested router": (nested, "/api/v1/desk/mcp"),
    "a mounted app": (in_a_mounted_app, "/sub/mcp"),
    "a path parameter": (lambda: app_of(router(), prefix="/{tenant}"), "/acme/mcp"),
}


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("place", PLACES)
def test_a_flow_works_wherever_the_router_is(place: str, slash: str) -> None:
    """User report: POST /mcp was redirected to /mcp/ (or 404), and clients dropped the body."""
    make, path = PLACES[place]
    assert greeting(make(), path + slash) == "Hello, Ada, from desk"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("slash", ["", "/"])
def test_nothing_is_redirected(place: str, slash: str) -> None:
    """User report: a 307 makes clients lose the body or Authorization."""
    make, path = PLACES[place]
    response = wire.post(make(), wire.message("tools/list"), path=path + slash)
    assert response.status_code == 200


def test_at_the_root_of_an_app() -> None:
    """Decision: an app may be nothing but the endpoint."""
    assert greeting(app_of(router(path="/")), "/") == "Hello, Ada, from desk"


def test_at_the_root_of_a_mounted_app() -> None:
    """Decision: what app.mount leaves of the path is "/", with the slash that it insists on."""
    assert greeting(at_the_root_of_a_mounted_app(), "/sub/mcp/") == "Hello, Ada, from desk"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("prefix", ["", "/api"])
def test_below_a_root_path(prefix: str, path: str) -> None:
    """User report: behind a proxy that strips a prefix, paths were doubled or lost."""
    client = wire.client_of(app_of(router(), prefix=prefix), root_path="/proxy")
    stripped = wire.post(client, wire.message("tools/list"), path=prefix + path)
    unstripped = wire.post(client, wire.message("tools/list"), path="/proxy" + prefix + path)
    assert (stripped.status_code, unstripped.status_code) == (200, 200)


def test_as_the_app_itself() -> None:
    """Decision: a router is an ASGI app, so it may be mounted without FastAPI around it."""
    mcp = router()
    assert greeting(mcp) == "Hello, Ada, from desk"


def test_other_paths_are_none_of_its_business() -> None:
    """Decision: only the endpoint and its twin with the slash."""
    app = app_of(router(), prefix="/api")
    for path in ("/mcp", "/api/mcp/x", "/api/mcpx", "/api"):
        assert wire.post(app, wire.message("tools/list"), path=path).status_code == 404


def test_other_routes_keep_their_redirects() -> None:
    """Decision: only the endpoint differs from what FastAPI does."""
    app = app_of(router())

    @app.post("/rest")
    def rest() -> str:
        return "rest"

    assert wire.client_of(app).post("/rest/").status_code == 307
    assert wire.client_of(app).post("/rest").json() == "rest"


def test_several_routers_in_one_app() -> None:
    """User report: a second server in the same app answered for the first."""
    app = FastAPI()
    app.include_router(router("one"), prefix="/one")
    app.include_router(router("two", path="/two"))
    assert greeting(app, "/one/mcp") == "Hello, Ada, from one"
    assert greeting(app, "/two") == "Hello, Ada, from two"


def test_one_router_in_several_places() -> None:
    """Decision: the same handlers, and each place with its own dependencies."""

    def closed() -> None:
        raise HTTPException(423, "closed")

    mcp = router()
    app = FastAPI()
    app.include_router(mcp, prefix="/open")
    app.include_router(mcp, prefix="/closed", dependencies=[Depends(closed)])
    assert greeting(app, "/open/mcp") == "Hello, Ada, from desk"
    assert wire.post(app, wire.message("tools/list"), path="/closed/mcp").status_code == 423


def test_any_number_of_clients() -> None:
    """User report: the second `with TestClient(app)` raised."""
    app = app_of(router())
    assert [greeting(app) for _ in range(3)] == ["Hello, Ada, from desk"] * 3


def test_no_lifespan_is_needed() -> None:
    """User report: "Task group is not initialized", because nobody ran a mounted app's lifespan."""
    client = MCPTestClient(app_of(router()))
    done = client.call_tool("greet", answers={"word": "Hi"})
    assert done.content[0].text == "Hi, you, from desk"  # type: ignore[union-attr]
    client.close()


def test_the_apps_own_lifespan_runs() -> None:
    """User report: the user's lifespan= no longer ran, or after the first call."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        app.state.db = "open"
        yield {"pool": "warm"}
        app.state.db = "closed"

    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def state(request: Request) -> list[str]:
        return [request.app.state.db, request.state.pool]

    app = FastAPI(lifespan=lifespan)
    app.include_router(mcp)
    with MCPTestClient(app) as client:
        assert client.call_tool("state").structured_content == ["open", "warm"]
    assert app.state.db == "closed"


def test_late_registration() -> None:
    """User report: tools that were added after mounting were missing."""
    mcp = router()
    app = app_of(mcp)
    with MCPTestClient(app) as client:
        assert [tool.name for tool in client.list_tools()] == ["greet"]

        @mcp.tool()
        async def late() -> str:
            return "here"

        assert [tool.name for tool in client.list_tools()] == ["greet", "late"]
        assert client.call_tool("late").content[0].text == "here"  # type: ignore[union-attr]


# --------------------------------------------------------------------------------- what applies


def key(x_key: Annotated[str, Header()] = "") -> str:
    if x_key != "right":
        raise HTTPException(401, "Wrong key", {"WWW-Authenticate": "Key"})
    return x_key


def on_the_app() -> FastAPI:
    app = FastAPI(dependencies=[Depends(key)])
    app.include_router(router())
    return app


def on_a_router_around_it() -> FastAPI:
    around = APIRouter(dependencies=[Depends(key)])
    around.include_router(router())
    return app_of(around)


GUARDED: dict[str, Callable[[], FastAPI]] = {
    "on the router": lambda: app_of(router(dependencies=[Depends(key)])),
    "on the inclusion": lambda: app_of(router(), dependencies=[Depends(key)]),
    "on a router around it": on_a_router_around_it,
    "on the app": on_the_app,
}


@pytest.mark.parametrize("where", GUARDED)
def test_dependencies_around_the_router_apply(where: str) -> None:
    """User report: it took another app around the server to add authentication."""
    app = GUARDED[where]()
    refused = wire.post(app, wire.message("tools/list"))
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Key")
    assert wire.post(app, wire.message("tools/list"), x_key="right").status_code == 200


def test_overrides_of_the_app_apply() -> None:
    """User report: a dependency could not be overridden in tests."""
    app = app_of(router(), dependencies=[Depends(key)])
    app.dependency_overrides[key] = lambda: "overridden"
    assert wire.post(app, wire.message("tools/list")).status_code == 200


class Marks(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["x-marked"] = "yes"
        return response


@pytest.mark.parametrize("middleware", [Marks, GZipMiddleware], ids=["base", "gzip"])
def test_middleware_of_the_app_applies(middleware: Any) -> None:
    """User report: middleware of the app did not reach the server, or broke its streams."""
    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def long(word: str) -> Rounds[str]:
        text: str = yield need_input("text", "Which?", str)
        yield f"{word} {text}" * 500

    app = app_of(mcp)
    app.add_middleware(middleware)
    with MCPTestClient(app) as client:
        done = client.call_tool("long", {"word": "a"}, answers={"text": "b"})
        [*_, last] = client.replies
    assert done.content[0].text == "a b" * 500  # type: ignore[union-attr]
    expected = ("x-marked", "yes") if middleware is Marks else ("content-encoding", "gzip")
    assert expected in last.headers.items()


def browser_app() -> FastAPI:
    mcp = MCPRouter("desk", version="1", allowed_origins=["https://page.example"])

    @mcp.tool()
    async def near(region: Annotated[str, MCPHeader("Region")]) -> str:
        return region

    app = app_of(mcp)
    app.add_middleware(CORSMiddleware, allow_origins=["https://page.example"], **mcp.cors_headers())
    return app


def preflight(app: FastAPI, *headers: str) -> Any:
    return wire.client_of(app).options(
        "/mcp",
        headers={
            "origin": "https://page.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": ",".join(headers),
        },
    )


def test_browsers_may_send_what_the_protocol_needs() -> None:
    """User report: a preflight was answered 401 or 405, or the headers were missing."""
    headers = ("authorization", "content-type", "mcp-method", "mcp-name", "mcp-protocol-version")
    session = ("mcp-session-id", "last-event-id")
    allowed = preflight(browser_app(), *headers, *session, "mcp-param-region")
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://page.example"
    refused = preflight(browser_app(), "mcp-param-other")
    assert refused.status_code == 400


def test_a_page_may_read_the_challenge() -> None:
    """Decision: a browser client has to see WWW-Authenticate to log in."""
    app = browser_app()
    body = wire.call("near", {"region": "eu"})
    response = wire.post(app, body, origin="https://page.example", mcp_param_region="eu")
    assert wire.text_of(response) == "eu"
    exposed = response.headers["access-control-expose-headers"]
    assert exposed == "WWW-Authenticate, Mcp-Session-Id"


class Closed(Exception):
    pass


def test_exception_handlers_of_the_app_apply_to_dependencies() -> None:
    """Decision: what a dependency raises is the app's business, as on any route of it."""

    def open_hours() -> None:
        raise Closed

    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def ask(hours: Annotated[None, Depends(open_hours)]) -> str:
        return "never"

    app = app_of(mcp)
    guarded = app_of(router(), dependencies=[Depends(open_hours)])
    for each in (app, guarded):

        @each.exception_handler(Closed)
        def closed(request: Request, error: Closed) -> Response:
            return JSONResponse({"opens": "at nine"}, 503)

    for response in (wire.post(app, wire.call("ask")), wire.post(guarded, wire.call("greet"))):
        assert response.status_code == 503
        assert response.text == '{"opens":"at nine"}'


def test_an_exception_handler_for_a_base_class_applies_too() -> None:
    """Decision: as Starlette looks them up."""

    def broken() -> None:
        raise Closed

    app = app_of(router(), dependencies=[Depends(broken)])

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"sorry": True}, 500)

    assert wire.post(app, wire.message("tools/list")).text == '{"sorry":true}'


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_only_post(method: str, path: str) -> None:
    """spec: GET and DELETE are 405 where there are no sessions (streamable-http)."""
    app = app_of(router(versions=["2026-07-28"]))
    response = wire.client_of(app).request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD"])
def test_no_other_methods(method: str) -> None:
    """spec: 405 names the methods that there are, those for sessions too (RFC 9110 §15.5.6)."""
    response = wire.client_of(app_of(router())).request(method, "/mcp")
    assert response.status_code == 405
    assert response.headers["allow"] == "DELETE, GET, POST"


def test_a_router_is_an_app_of_its_own() -> None:
    """Decision: as every APIRouter, without FastAPI's exception handlers."""
    response = wire.client_of(router()).put("/mcp")
    assert (response.status_code, response.text) == (405, "Method Not Allowed")
    assert response.headers["allow"] == "DELETE, GET, POST"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_options_are_answered_before_authentication(path: str) -> None:
    """User report: a preflight cannot carry credentials and was answered 401."""
    response = wire.client_of(app_of(router(principal=key))).options(path)
    assert response.status_code == 204
    assert response.headers["allow"] == "OPTIONS, DELETE, GET, POST"
    assert response.content == b""


# -------------------------------------------------------------------------------------- the rest


def test_a_router_is_found_by_its_path() -> None:
    """Decision: the test client finds the router behind a URL, wherever it is."""
    one, two, three = router("one"), router("two"), router("three")
    inner = app_of(two, prefix="/in")
    app = app_of(one, prefix="/api")
    app.mount("/sub", inner)
    app.include_router(three, prefix="/{tenant}")
    assert find_router(app, "/api/mcp") is one
    assert find_router(app, "/api/mcp/") is one
    assert find_router(app, "/sub/in/mcp") is two
    assert find_router(app, "/{tenant}/mcp") is three
    assert find_router(app_of(one)) is one


def test_a_router_that_is_not_there() -> None:
    """Decision: the message lists what is."""
    app = app_of(router(), prefix="/api")
    with pytest.raises(LookupError, match=r"No MCPRouter at '/mcp'; there are: /api/mcp$"):
        find_router(app)
    with pytest.raises(LookupError, match="there are: none"):
        find_router(FastAPI())


def test_other_kinds_of_routes_do_not_confuse_the_search() -> None:
    """Decision: an app may have whatever Starlette has."""

    async def page(request: Request) -> Response:
        return Response("page")

    mcp = router()
    app = FastAPI(routes=[Route("/page", page), Mount("/static", app=Response("static"))])
    app.include_router(mcp)
    assert find_router(app) is mcp


def test_tags_and_other_options_of_a_router() -> None:
    """Decision: an MCPRouter is an APIRouter, options included."""
    plain = app_of(router()).openapi()["paths"]["/mcp"]["post"]
    tagged = app_of(router(tags=["agents"], deprecated=True)).openapi()["paths"]["/mcp"]["post"]
    assert plain["tags"] == ["mcp"]
    assert (tagged["tags"], tagged["deprecated"]) == (["agents"], True)


def test_a_testclient_over_plain_http() -> None:
    """Decision: nothing but HTTP is needed; the first request may be anything."""
    with TestClient(app_of(router())) as client:
        assert client.get("/mcp", headers={"accept": "text/event-stream"}).status_code == 400
