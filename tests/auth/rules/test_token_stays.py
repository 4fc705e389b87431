"""Rules 14 and 25: the raw token is nowhere but in the request that brought it.

By searching: all that a handler can reach, every log record of every library at every level, and
the state with its seal broken open.
"""

import gc
import logging
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, Request
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.responses import Response

from fastapi_mcp_mrtr import (
    AESGCMCodec,
    Context,
    IntrospectionVerifier,
    KeyRing,
    Rounds,
    VerifiedToken,
    need_input,
    progress,
    step,
)
from fastapi_mcp_mrtr.state.codec import REQUEST_STATE
from tests import wire
from tests.auth.issuer import ISSUER, RESOURCE, Answer, Clock, Issuer, access_token, serve

from .desk import CHANGE, KEYS, LIST, LISTEN, YES, again, connected, post, protected_desk, resource
from .desk import router as desk_router

pytestmark = pytest.mark.anyio

# What leads out of the call: code, and the machinery of the server that has received the request.
_OUTSIDE = (ModuleType, type, CodeType, FrameType, FunctionType)
_SERVERS = ("uvicorn", "asyncio", "_asyncio", "uvloop", "httptools", "h11", "anyio", "logging")


def reachable(*roots: Any) -> Iterator[Any]:
    """Everything that references lead to, through attributes and containers of every kind."""
    seen: set[int] = set()
    pending = list(roots)
    keep = []  # so that no id is used twice
    while pending:
        found = pending.pop()
        if id(found) in seen or isinstance(found, _OUTSIDE):
            continue
        if type(found).__module__.split(".")[0] in _SERVERS:
            continue
        if isinstance(found, MethodType):
            pending.append(found.__self__)
            continue
        seen.add(id(found))
        keep.append(found)
        yield found
        pending.extend(gc.get_referents(found))


def holding(token: str, *roots: Any) -> list[Any]:
    """The texts within reach that have the token, or its signature, in them."""
    secret = token.rpartition(".")[2]
    return [
        found
        for found in reachable(*roots)
        if (isinstance(found, str) and secret in found)
        or (isinstance(found, bytes | bytearray) and secret.encode() in found)
    ]


def test_the_search_finds_what_there_is() -> None:
    """decision: a search that finds nothing proves nothing by itself."""

    class Nested:
        def __init__(self) -> None:
            self.held = [{"headers": ({b"x": b"Bearer a.b.secret"},)}]

    assert holding("a.b.secret", Nested()) == [b"Bearer a.b.secret"]
    assert holding("a.b.other", Nested()) == []


class Passes(BaseHTTPMiddleware):
    """Keeps a request object of its own, as many apps' middleware does."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


@pytest.mark.parametrize("middleware", [[], [Passes]])
async def test_a_handler_cannot_reach_it(middleware: list[Any]) -> None:
    """rule 14: MUST NOT pass through the token it received (security-considerations §Access Token
    Privilege Restriction): what is not there cannot be passed on."""
    issuer, clock = Issuer(), Clock()
    held: dict[str, list[Any]] = {}
    token = access_token()
    async with serve(issuer) as url:
        auth = resource(f"{url}/jwks.json", clock)
        mcp = desk_router(auth, clock)

        def dependency(
            request: Request,
            verified: Annotated[VerifiedToken, Depends(auth)],
            authorization: Annotated[str | None, Header()] = None,
        ) -> list[Any]:
            return [request, verified, authorization, dict(request.headers), request.scope]

        @mcp.tool()
        async def spy(
            ctx: Context, request: Request, parts: Annotated[list[Any], Depends(dependency)]
        ) -> Rounds[str]:
            yield progress(1)
            held["first" if ctx.round == 1 else "second"] = holding(token, ctx, request, parts)
            yield need_input("sure", "Sure?", bool)
            yield "done"

        app = FastAPI()
        for each in middleware:
            app.add_middleware(each)
        app.include_router(mcp)
        async with connected(app) as http:
            body = wire.call("spy", progressToken="p")
            asked = await post(http, body, authorization=f"Bearer {token}")
            done = await post(http, again(body, asked), authorization=f"Bearer {token}")
            assert wire.text_of(done) == "done"
    assert held == {"first": [], "second": []}


async def test_an_opaque_token_that_the_issuer_sends_back_is_dropped() -> None:
    """rule 14: some introspection endpoints echo the token; handlers do not get to see it."""
    issuer, clock = Issuer(), Clock()
    token = "opaque-but-secret"
    issuer.answers["/introspect"] = Answer(
        {
            "active": True,
            "iss": ISSUER,
            "aud": RESOURCE,
            "exp": clock.now + 60,
            "sub": "alice",
            "scope": "notes:read",
            "access_token": token,
        }
    )
    async with serve(issuer) as url:
        verifier = IntrospectionVerifier(
            issuer=ISSUER,
            audience=RESOURCE,
            introspection_endpoint=f"{url}/introspect",
            client_id="desk",
            client_secret="s3cret",
            clock=clock,
        )
        mcp = desk_router(resource(f"{url}/jwks.json", clock, verifier=verifier), clock)
        held: list[Any] = []

        @mcp.tool()
        async def spy(ctx: Context, request: Request) -> str:
            held.extend(holding(token, ctx, request))
            return str(ctx.principal.subject)

        app = FastAPI()
        app.include_router(mcp)
        async with connected(app) as http:
            response = await post(http, wire.call("spy"), authorization=f"Bearer {token}")
            assert wire.text_of(response) == "alice"
        await verifier.aclose()
    assert held == []


async def test_no_library_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    """rule 25: never `Authorization`, tokens or codes (tutorial §Don't log credentials), whatever
    becomes of the request: a flow, a stream, a refusal of each kind, a failure."""
    caplog.set_level(1)
    async with protected_desk() as desk:

        @desk.mcp.tool()
        async def fail() -> str:
            raise RuntimeError("no luck")

        tokens = {
            "good": desk.token(),
            "stepped down": desk.token(""),
            "bob's": desk.token(sub="bob"),
            "expired": desk.token(exp=1),
            "forged": desk.token()[:-8] + "AAAAAAAA",
        }
        asked = await desk.send(CHANGE, tokens["good"])
        for token in tokens.values():
            for body in (again(CHANGE, asked), LIST, wire.call("fail")):
                await desk.send(body, token)
        await desk.send(LISTEN, desk.token(exp=desk.clock.now + 0.05))
        twice = [*wire.headers(LIST).items()]
        twice += [("authorization", f"Bearer {token}") for token in tokens.values()]
        await desk.http.post("/mcp", headers=twice)
    names = {record.name for record in caplog.records}
    assert {"fastapi_mcp_mrtr", "httpx2", "uvicorn.asgi"} <= names
    parts = {part for token in tokens.values() for part in token.split(".")[1:]}
    parts |= {wire.result_of(asked)["requestState"]}
    for record in caplog.records:
        shown = logging.Formatter().format(record)
        assert not [part for part in parts if part in shown], record.name


async def test_it_is_not_in_the_state() -> None:
    """rules 14, 36: nor is anything else of who the caller is: the principal is a keyed hash."""
    async with protected_desk() as desk:

        async def hold() -> str:
            return "held"

        @desk.mcp.tool(scopes=["notes:write"])
        async def book(ctx: Context) -> Rounds[str]:
            held: str = yield step("hold", hold)
            yield need_input("sure", "Sure?", bool)
            yield held

        token = desk.token(email="alice@example.com")
        asked = await desk.send(wire.call("book"), token)
        state = wire.result_of(asked)["requestState"]
        opened = AESGCMCodec(KeyRing(primary=KEYS)).unseal(state, purpose=REQUEST_STATE)
        assert b"held" in opened
        for secret in (*token.split("."), "alice", "example.com", "cli", "notes:write"):
            assert secret.encode() not in opened
        done = await desk.send(again(wire.call("book"), asked, YES), token)
        assert wire.text_of(done) == "held"
