"""Rules 1 to 9: clients find out where to get a token, wherever the endpoint is.

The client here is the strictest there is: it wants `resource` to be the very URL that it called
(RFC 9728 §3.3). The app is behind uvicorn, and behind a reverse proxy where that is the case.
"""

import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.testclient import TestClient

from fastapi_mcp_mrtr import JWTVerifier, MCPRouter, ProtectedResource
from tests import wire
from tests.auth.issuer import ISSUER, Clock, jwk_set, rsa, serve

from .desk import LIST, LOOK, connected, post, protected_desk, router

pytestmark = pytest.mark.anyio

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def protected(url: str, **settings: Any) -> ProtectedResource:
    verifier = JWTVerifier(issuer=ISSUER, audience=url, jwks=jwk_set(rsa()), clock=Clock())
    good = {"resource": url, "authorization_servers": [ISSUER], "verifier": verifier}
    return ProtectedResource(**{**good, **settings})


def desk(url: str, **settings: Any) -> MCPRouter:
    return router(protected(url, **settings), Clock())


@asynccontextmanager
async def visitor() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=60) as http:
        yield http


async def discover(http: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    """From the 401 to the metadata, which must be that of the URL that was called."""
    refused = await post(http, LIST, url)
    assert refused.status_code == 401
    found = re.search('resource_metadata="([^"]*)"', refused.headers["WWW-Authenticate"])
    assert found is not None
    metadata = await http.get(found[1])
    assert (metadata.status_code, metadata.headers["Content-Type"]) == (200, "application/json")
    document: dict[str, Any] = metadata.json()
    assert document["resource"] == url
    assert document["authorization_servers"] == [ISSUER]
    return document


def path_form(url: str) -> str:
    """Where a client looks that was told nothing (RFC 9728 §3.1)."""
    scheme, host, path = re.fullmatch("(https?)://([^/]*)(.*)", url).groups()  # type: ignore[union-attr]
    return f"{scheme}://{host}{WELL_KNOWN}{path}"


# ----------------------------------------------------------------------------- in one app, or two


class Place:
    """An address that is known before the app that answers there, as in a deployment."""

    def __init__(self) -> None:
        self.app: Any = None
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


@asynccontextmanager
async def place(**settings: Any) -> AsyncIterator[Place]:
    here = Place()
    async with serve(here, **settings) as here.url:
        yield here


async def test_the_metadata_is_found_in_three_ways() -> None:
    """rules 1-3: MUST implement RFC 9728, with at least one authorization server (discovery
    §Authorization Server Location); by the header, at the path and at the root."""
    async with place() as here, visitor() as http:
        mcp = desk(f"{here.url}/mcp")
        here.app = FastAPI()
        here.app.include_router(mcp)
        here.app.include_router(mcp.well_known)
        document = await discover(http, f"{here.url}/mcp")
        for url in (path_form(f"{here.url}/mcp"), here.url + WELL_KNOWN):
            assert (await http.get(url)).json() == document


async def test_under_a_prefix_and_in_nested_routers() -> None:
    """rule 4: the suffix goes between host and path; `well_known` takes no prefix."""
    async with place() as here, visitor() as http:
        url = f"{here.url}/outer/api/v1/mcp"
        mcp = desk(url)
        inner = APIRouter(prefix="/api")
        inner.include_router(mcp, prefix="/v1")
        here.app = FastAPI()
        here.app.include_router(inner, prefix="/outer")
        here.app.include_router(mcp.well_known)
        document = await discover(http, url)
        assert (await http.get(path_form(url))).json() == document
        assert (await http.get(f"{here.url}/outer/api/v1{WELL_KNOWN}")).status_code == 404


async def test_in_a_mounted_app() -> None:
    """rule 4: the endpoint is the sub-app's, the metadata the outer app's."""
    async with place() as here, visitor() as http:
        url = f"{here.url}/api/v1/mcp"
        mcp = desk(url)
        sub = FastAPI()
        sub.include_router(mcp)
        here.app = FastAPI()
        here.app.mount("/api/v1", sub)
        here.app.include_router(mcp.well_known)
        document = await discover(http, url)
        assert (await http.get(path_form(url))).json() == document


async def test_two_servers_in_one_app() -> None:
    """rule 3: each at its own path; the root is an alias for the first."""
    async with place() as here, visitor() as http:
        first, second = f"{here.url}/one/mcp", f"{here.url}/two/mcp"
        here.app = FastAPI()
        for url, prefix in ((first, "/one"), (second, "/two")):
            mcp = desk(url)
            here.app.include_router(mcp, prefix=prefix)
            here.app.include_router(mcp.well_known)
        for url in (first, second):
            assert (await http.get(path_form(url))).json() == await discover(http, url)
        assert (await http.get(here.url + WELL_KNOWN)).json()["resource"] == first


async def test_at_the_root_of_a_host() -> None:
    """rule 7: `https://mcp.example.com` is a canonical URI, and no slash is added to it."""
    async with place() as here, visitor() as http:
        mcp = MCPRouter("desk", version="1", principal=protected(here.url), path="/")
        here.app = FastAPI()
        here.app.include_router(mcp)
        here.app.include_router(mcp.well_known)
        await discover(http, here.url)


# --------------------------------------------------------------------------------- behind proxies


class Proxy:
    """A reverse proxy. What is not under its prefix, it does not know."""

    def __init__(self, prefix: str, *, strips: bool) -> None:
        self.prefix = prefix
        self.strips = strips
        self.upstream = ""
        self.also: tuple[str, ...] = ()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        path = request.url.path
        if path.startswith(f"{self.prefix}/"):
            path = path.removeprefix(self.prefix) if self.strips else path
        elif not path.startswith(self.also):
            await Response("Not here", 404)(scope, receive, send)
            return
        headers = {n: v for n, v in request.headers.items() if n not in ("host", "content-length")}
        headers |= {"x-forwarded-proto": "https", "x-forwarded-host": request.headers["host"]}
        async with httpx2.AsyncClient(timeout=60) as http:
            answer = await http.request(
                request.method, self.upstream + path, headers=headers, content=await request.body()
            )
        kept = {
            n: v for n, v in answer.headers.items() if n not in ("content-length", "connection")
        }
        await Response(answer.content, answer.status_code, kept)(scope, receive, send)


@asynccontextmanager
async def behind(proxy: Proxy, **settings: Any) -> AsyncIterator[tuple[str, Place]]:
    """The proxy's address, and an app behind it."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(place(**settings))
        proxy.upstream = here.url
        yield await stack.enter_async_context(serve(proxy)), here


async def test_a_proxy_that_strips_a_prefix_and_forwards_nothing_else() -> None:
    """rules 4, 6: the root is out of the app's reach, so `resource_metadata` names the place
    below the prefix where it is; and the resource stays the URL that clients call."""
    async with behind(Proxy("/api/v1", strips=True)) as (url, here), visitor() as http:
        elsewhere = f"{url}/api/v1{WELL_KNOWN}"
        mcp = desk(f"{url}/api/v1/mcp", resource_metadata_url=elsewhere)
        here.app = FastAPI()
        here.app.include_router(mcp)
        here.app.include_router(mcp.well_known)
        await discover(http, f"{url}/api/v1/mcp")
        assert (await http.get(elsewhere)).status_code == 200
        assert (await http.get(path_form(f"{url}/api/v1/mcp"))).status_code == 404


@pytest.mark.parametrize("root_path", ["", "/api/v1"])
async def test_a_proxy_that_strips_a_prefix_and_forwards_the_well_known_path(
    root_path: str,
) -> None:
    """rule 4: one more rule in the proxy, with and without `--root-path`."""
    proxy = Proxy("/api/v1", strips=True)
    proxy.also = (WELL_KNOWN,)
    async with behind(proxy, root_path=root_path) as (url, here), visitor() as http:
        mcp = desk(f"{url}/api/v1/mcp")
        here.app = FastAPI()
        here.app.include_router(mcp)
        here.app.include_router(mcp.well_known)
        document = await discover(http, f"{url}/api/v1/mcp")
        assert (await http.get(path_form(f"{url}/api/v1/mcp"))).json() == document


async def test_a_proxy_that_keeps_the_prefix() -> None:
    """rule 4: the same as without a proxy."""
    proxy = Proxy("/api/v1", strips=False)
    proxy.also = (WELL_KNOWN,)
    async with behind(proxy) as (url, here), visitor() as http:
        mcp = desk(f"{url}/api/v1/mcp")
        here.app = FastAPI()
        here.app.include_router(mcp, prefix="/api/v1")
        here.app.include_router(mcp.well_known)
        await discover(http, f"{url}/api/v1/mcp")


# ------------------------------------------------------------------------------------- to the byte


async def test_the_metadata_is_for_everybody_to_the_byte() -> None:
    """rules 5, 6 (RFC 9728 §3.2): 200, JSON, no member without a value, no token, any origin,
    cacheable; issuer and resource as configured, not as a URL parser has them."""
    async with protected_desk(resource_name="Notes") as desk:
        response = await desk.http.get(f"{WELL_KNOWN}/mcp")
    assert response.status_code == 200
    assert response.content == (
        b'{"resource":"https://api.example.com/mcp",'
        b'"authorization_servers":["https://as.example.com"],'
        b'"scopes_supported":["notes:read"],"bearer_methods_supported":["header"],'
        b'"resource_name":"Notes"}'
    )
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.headers["Cache-Control"] == "public, max-age=3600"


async def test_browser_clients_may_ask_for_the_metadata() -> None:
    """rule 5: they send `MCP-Protocol-Version`, so their browser asks first."""
    async with protected_desk() as desk:
        asked = {
            "origin": "https://app.example.com",
            "access-control-request-method": "GET",
            "access-control-request-headers": "mcp-protocol-version",
        }
        for path in (WELL_KNOWN, f"{WELL_KNOWN}/mcp"):
            response = await desk.http.request("OPTIONS", path, headers=asked)
            assert response.status_code == 204
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            assert response.headers["Access-Control-Allow-Methods"] == "GET"
            assert response.headers["Access-Control-Allow-Headers"] == "*"


async def test_behind_cors_middleware_it_is_for_every_origin_still() -> None:
    """rule 5: the middleware is for the endpoint; it does not take the metadata's header away."""
    mcp = desk("https://api.example.com/mcp")
    app = FastAPI()
    app.include_router(mcp)
    app.include_router(mcp.well_known)
    app.add_middleware(
        CORSMiddleware, allow_origins=["https://app.example.com"], **mcp.cors_headers()
    )
    async with connected(app) as http:
        response = await http.get(WELL_KNOWN, headers={"origin": "https://other.example"})
    assert response.headers["Access-Control-Allow-Origin"] == "*"


async def test_strings_are_emitted_as_they_were_configured() -> None:
    """rule 6 (RFC 9728 §3.3): identical, so neither slash, case of the path nor escapes change."""
    async with place() as here, visitor() as http:
        url = f"{here.url}/api%20v1/Notes/mcp"
        mcp = desk(url)
        here.app = FastAPI()
        here.app.include_router(mcp, prefix="/api v1/Notes")
        here.app.include_router(mcp.well_known)
        document = await discover(http, url)
        assert json.loads((await http.get(path_form(url))).content) == document


# ------------------------------------------------------------------------------------ at start-up


def warnings_of(app: FastAPI, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is said before the first request."""
    with caplog.at_level(logging.WARNING, logger="fastapi_mcp_mrtr"), TestClient(app):
        return [r.getMessage() for r in caplog.records if "end in that path" in r.getMessage()]


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_a_resource_that_is_not_where_the_endpoint_is_is_warned_of(
    prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """rule 6: clients compare it with the URL they call; said once, when the server starts."""
    mcp = desk("https://api.example.com/notes")
    app = FastAPI()
    app.include_router(mcp, prefix=prefix)
    (warning,) = warnings_of(app, caplog)
    assert warning == (
        f"The endpoint is at {prefix}/mcp, but ProtectedResource(resource="
        "'https://api.example.com/notes') does not end in that path: clients compare the two and "
        "refuse"
    )


@pytest.mark.parametrize(
    ("url", "path", "prefix"),
    [
        ("https://api.example.com/mcp", "/mcp", ""),
        ("https://api.example.com/mcp/", "/mcp", ""),
        ("https://api.example.com/api/v1/mcp", "/mcp", ""),  # a proxy strips the rest
        ("https://api.example.com/api/v1/mcp", "/mcp", "/api/v1"),
        ("https://mcp.example.com", "/", ""),
        ("https://mcp.example.com/api%20v1/mcp", "/mcp", "/api v1"),
    ],
)
def test_a_resource_that_ends_where_the_endpoint_is_is_fine(
    url: str, path: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """rule 6: what a proxy puts before the path is not for the app to know."""
    mcp = MCPRouter("desk", version="1", principal=protected(url), path=path)
    app = FastAPI()
    app.include_router(mcp, prefix=prefix)
    assert warnings_of(app, caplog) == []


def test_a_lifespan_of_the_routers_own_still_runs(caplog: pytest.LogCaptureFixture) -> None:
    """user report: a framework that needs a lifespan must not take the user's away."""
    happened: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, str]]:
        happened.append("started")
        yield {"greeting": "hello"}
        happened.append("stopped")

    mcp = MCPRouter("desk", version="1", lifespan=lifespan)

    @mcp.tool()
    async def greet(request: Request) -> str:
        return str(request.state.greeting)

    app = FastAPI()
    app.include_router(mcp)
    with TestClient(app) as client:
        assert wire.text_of(wire.post(client, wire.call("greet"))) == "hello"
    assert happened == ["started", "stopped"]


def test_without_an_issuer_there_is_nothing_to_find() -> None:
    """rule 2: an app with API keys serves no metadata and names none."""
    mcp = router(None, Clock())
    app = FastAPI()
    app.include_router(mcp)
    with pytest.raises(LookupError, match="no ProtectedResource"):
        _ = mcp.well_known
    assert wire.client_of(app).get(WELL_KNOWN).status_code == 404
    assert "WWW-Authenticate" not in wire.post(app, LOOK).headers


# ---------------------------------------------------------------------------------- at construction


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"authorization_servers": []}, "at least one"),
        ({"resource": "http://api.example.com/mcp"}, "must be https"),
        ({"resource": "https://api.example.com/mcp?a=b"}, "must not have a query"),
        ({"resource": "https://api.example.com/mcp#a"}, "must not have a fragment"),
        ({"resource": "api.example.com"}, "no absolute URL|must be https"),
        ({"scopes": ["offline_access"]}, "clients ask the authorization server"),
        ({"scopes_supported": ["offline_access"]}, "clients ask the authorization server"),
        ({"scopes_supported": ["notes:*"]}, "one by one"),
    ],
)
def test_what_must_not_be_published_is_refused(settings: dict[str, Any], why: str) -> None:
    """rules 2, 7, 8, 9: SHOULD NOT include `offline_access` (index §Refresh Tokens), canonical
    URIs only (index §Canonical Server URI), no wildcard (best practices §Scope Minimization)."""
    with pytest.raises(ValueError, match=why):
        protected(**{"url": "https://api.example.com/mcp", **settings})
