"""routes: where requests find the endpoint, and that FastAPI's way there loses nothing."""

import inspect
from typing import Annotated, Any, ClassVar

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request
from fastapi.routing import APIRoute
from starlette.routing import Host, Match

from fastapi_mcp_mrtr import MCPRouter
from fastapi_mcp_mrtr.http.routes import (
    MCPRoute,
    effective_parts,
    iter_endpoints,
    keep_handler,
    kept_handler,
)
from tests import wire

pytestmark = pytest.mark.anyio


def nothing() -> None: ...


async def nowhere(*message: Any) -> Any:
    raise AssertionError(message)


async def operation() -> None: ...


class Recording(APIRoute):
    """Keeps what `effective_parts` says wherever the route is included."""

    seen: ClassVar[list[tuple[int, Any]]] = []

    def get_route_handler(self) -> Any:
        dependant, provider = effective_parts(self)
        self.seen.append((len(dependant.dependencies), provider))
        return super().get_route_handler()


async def test_what_an_inclusion_adds_is_found() -> None:
    """decision: `include_router(dependencies=)` applies; a lost one would be a hole."""
    router = APIRouter(route_class=Recording)
    router.add_api_route("/x", operation)
    alone = Recording.seen.copy()
    app = FastAPI()
    app.include_router(router, prefix="/api", dependencies=[Depends(nothing)])
    response = wire.client_of(app).get("/api/x")
    assert response.status_code == 200
    assert alone[0][0] == 0
    assert (1, app) in Recording.seen


LIMITS = pytest.mark.skipif(
    "max_body_size" not in inspect.signature(FastAPI).parameters,
    reason="this FastAPI puts no limit on bodies",
)


class Direct(APIRoute):
    """Keeps its handler wherever the route is included, and says which one it finds again."""

    found: ClassVar[list[bool]] = []

    def get_route_handler(self) -> Any:
        handler = super().get_route_handler()
        keep_handler(self, handler)
        self.kept = handler
        return handler

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        self.found.append(kept_handler(self, scope) is self.kept)
        await super().handle(scope, receive, send)


@pytest.mark.parametrize(
    ("included", "options", "is_found"),
    [
        (True, {}, True),
        (False, {}, True),
        pytest.param(True, {"max_body_size": 5}, False, marks=LIMITS),
        pytest.param(False, {"max_body_size": 5}, False, marks=LIMITS),
    ],
)
async def test_the_handler_is_found_unless_fastapi_puts_more_around_it(
    included: bool, options: dict[str, Any], is_found: bool
) -> None:
    """decision: a limit that the app sets for bodies is not lost on the short way."""
    router = APIRouter(route_class=Direct)
    app = FastAPI()
    if included:
        router.add_api_route("/x", operation)
        app.include_router(router, **options)
    else:
        app.router.add_api_route("/x", operation, route_class_override=Direct, **options)
    Direct.found.clear()
    assert wire.client_of(app).get("/x").status_code == 200
    assert Direct.found == [is_found]


async def test_every_endpoint_of_an_app_is_found() -> None:
    """decision: behind prefixes, in nested routers and in mounted apps."""
    inner, outer, app, sub = APIRouter(), APIRouter(), FastAPI(openapi_url=None), FastAPI()
    inner.add_api_route("/x", operation)
    outer.include_router(inner, prefix="/inner")
    app.include_router(outer, prefix="/outer")
    sub.add_api_route("/y", operation)
    app.mount("/sub", sub)
    app.router.routes.append(Host("other.example", sub))  # has no path of its own
    found = {path for path, endpoint in iter_endpoints(app) if endpoint == operation}
    assert found == {"/outer/inner/x", "/sub/y"}
    assert list(iter_endpoints(object())) == []


def key(x_key: Annotated[str, Header()] = "") -> None:
    """A dependency of an inclusion: nobody passes without the key."""
    if x_key != "right":
        raise HTTPException(401)


def echo_router() -> MCPRouter:
    mcp = MCPRouter("test", version="1.0.0", versions=["2026-07-28"])

    @mcp.tool()
    async def echo(text: str) -> str:
        return text

    return mcp


def post(app: FastAPI, path: str, **more: str) -> int:
    body = wire.call("echo", {"text": "x"})
    headers = {**wire.headers(body), **more}
    return wire.client_of(app).post(path, json=body, headers=headers).status_code


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths for which a route was asked whether it matches."""
    found: list[str] = []
    matches = MCPRoute.matches

    def spy(self: MCPRoute, scope: Any) -> Any:
        found.append(scope["path"])
        return matches(self, scope)

    monkeypatch.setattr(MCPRoute, "matches", spy)
    return found


async def test_an_included_route_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: FastAPI would look twice a request; an echo can do without, and the next too."""
    app = FastAPI()
    app.include_router(echo_router())
    looks = asked(monkeypatch)
    for path in ("/mcp", "/mcp", "/mcp/", "/mcp/", "/mcp"):
        assert post(app, path) == 200
    assert looks == ["/mcp", "/mcp/", "/mcp"]


async def test_it_is_looked_for_again_when_routes_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: what was found holds as long as the routes are those among which it was found."""
    mcp, app = echo_router(), FastAPI()
    app.include_router(mcp)
    looks = asked(monkeypatch)
    assert post(app, "/mcp") == 200
    mcp.add_api_route("/late", operation)
    assert wire.client_of(app).get("/late").status_code == 200
    looks.clear()
    assert post(app, "/mcp") == 200
    assert post(app, "/mcp") == 200
    assert looks == ["/mcp"]


async def test_other_methods_are_not_taken_for_it() -> None:
    """decision: what was found is known by its method too."""
    app = FastAPI()
    app.include_router(echo_router())
    assert post(app, "/mcp") == 200
    client = wire.client_of(app)
    assert client.get("/mcp").status_code == 405
    assert client.head("/mcp").status_code == 405
    assert client.options("/mcp").status_code == 204
    assert post(app, "/mcp") == 200


@pytest.mark.parametrize("mounted", [False, True])
async def test_parameters_of_the_path_are_each_requests_own(mounted: bool) -> None:
    """decision: a path with parameters is looked for each time, below a mount as well."""
    seen: list[str] = []

    async def tenant_of(request: Request) -> None:
        seen.append(request.path_params["tenant"])

    mcp, app, sub = echo_router(), FastAPI(), FastAPI()
    if mounted:
        sub.include_router(mcp, dependencies=[Depends(tenant_of)])
        app.mount("/tenants/{tenant}", sub)
    else:
        app.include_router(mcp, prefix="/tenants/{tenant}", dependencies=[Depends(tenant_of)])
    for tenant in ("acme", "acme", "other"):
        assert post(app, f"/tenants/{tenant}/mcp") == 200
    assert seen == ["acme", "acme", "other"]


async def test_a_root_path_is_no_part_of_the_path() -> None:
    """decision: below a root path FastAPI looks each time."""
    app = FastAPI()
    app.include_router(echo_router())
    below = wire.client_of(app, root_path="/proxied")
    body = wire.call("echo", {"text": "x"})
    for path in ("/mcp", "/proxied/mcp", "/mcp"):
        assert below.post(path, json=body, headers=wire.headers(body)).status_code == 200
        assert post(app, "/proxied/mcp") == 404


async def test_the_dependencies_are_those_of_the_inclusion_that_matched() -> None:
    """decision: a route found for one inclusion is never served with what another one adds."""
    mcp, app = echo_router(), FastAPI()
    api = APIRouter()
    api.include_router(mcp, prefix="/nested", dependencies=[Depends(key)])
    app.include_router(mcp, prefix="/open")
    app.include_router(mcp, prefix="/closed", dependencies=[Depends(key)])
    app.include_router(api, prefix="/api")
    for _ in range(2):
        assert post(app, "/open/mcp") == 200
        for path in ("/closed/mcp", "/api/nested/mcp/", "/closed/mcp/"):
            assert post(app, path) == 401
            assert post(app, path, **{"x-key": "right"}) == 200


async def test_what_was_found_for_another_inclusion_is_not_used() -> None:
    """decision: were FastAPI ever to take another way than the one that matched, it looks again."""
    mcp, app = echo_router(), FastAPI()
    app.include_router(mcp, prefix="/open")
    app.include_router(mcp, prefix="/closed", dependencies=[Depends(key)])
    opened, closed = [route for route in app.routes if hasattr(route, "original_router")]
    found: dict[str, Any] = {"type": "http", "method": "POST", "path": "/open/mcp"}
    assert opened.matches(found)[0] is Match.FULL
    scope = {**found, "path": "/closed/mcp", "headers": [], "query_string": b"", "app": app}
    with pytest.raises(HTTPException) as refused:
        await closed.handle(scope, nowhere, nowhere)
    assert refused.value.status_code == 401


async def test_what_was_found_before_the_path_changed_is_not_used() -> None:
    """decision: middleware may ask the routes, and others may rewrite the path afterwards."""
    mcp, inner = echo_router(), FastAPI()

    @mcp.post("/mcp/closed", dependencies=[Depends(key)])
    async def closed() -> None: ...

    inner.include_router(mcp)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for route in inner.routes:
            route.matches(scope)
        scope["path"] = "/mcp/closed"
        await inner(scope, receive, send)

    body = wire.call("echo", {"text": "x"})
    client = wire.client_of(app)
    for sent, expected in (({}, 401), ({"x-key": "right"}, 200)):
        headers = {**wire.headers(body), **sent}
        response = client.post("/mcp", json=body, headers=headers)
        assert response.status_code == expected
        assert "jsonrpc" not in response.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_INCLUDED_IN", None),
        ("_INCLUDED_IN", "of another FastAPI"),
        ("_EFFECTIVE_ROUTE", None),
        ("_EFFECTIVE_ROUTE", "of another FastAPI"),
        ("_route_selected", None),
    ],
)
async def test_what_an_inclusion_adds_holds_whatever_fastapi_calls_it(
    name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: where the short way does not lead to the inclusion, FastAPI's own is taken."""
    monkeypatch.setattr(f"fastapi_mcp_mrtr.http.routes.{name}", value)
    app = FastAPI()
    app.include_router(echo_router(), dependencies=[Depends(key)])
    for _ in range(2):
        assert post(app, "/mcp") == 401
        assert post(app, "/mcp", **{"x-key": "right"}) == 200


async def test_a_fastapi_with_other_internals_looks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: what the short way needs may go; the long one is FastAPI's own."""
    monkeypatch.setattr("fastapi_mcp_mrtr.http.routes._route_selected", None)
    app = FastAPI()
    app.include_router(echo_router())
    looks = asked(monkeypatch)
    assert post(app, "/mcp") == 200
    assert post(app, "/mcp") == 200
    assert looks == ["/mcp"] * 4
