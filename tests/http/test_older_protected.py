"""Older sessions behind OAuth, what telemetry tells of them, and both eras at the same time."""

import asyncio
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Request
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fastapi_mcp_mrtr import Context, MCPRouter, Rounds, VerifiedToken, need_input
from tests import wire
from tests.older import Client, session

from .older_desk import Desk
from .test_older_asks import text_of
from .test_protected import KEYS, METADATA, NOW, Verifier, resource

pytestmark = pytest.mark.anyio

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Counting(Verifier):
    def __init__(self) -> None:
        self.verified = 0

    async def verify(self, token: str) -> VerifiedToken:
        self.verified += 1
        return await super().verify(token)


def protected(verifier: Verifier | None = None, **settings: Any) -> FastAPI:
    guard = resource(verifier=verifier or Verifier())
    settings = {"clock": lambda: NOW, **settings}
    mcp = MCPRouter("desk", version="1", principal=guard, keys=KEYS, **settings)

    async def authorization(request: Request) -> str | None:
        return request.headers.get("authorization")

    @mcp.tool()
    async def ask(ctx: Context, seen: Annotated[str | None, Depends(authorization)]) -> Rounds[str]:
        sure: bool = yield need_input("sure", "Sure?", bool)
        yield f"{sure} {ctx.principal.subject} {seen}"

    @mcp.tool(scopes=["write"])
    async def change() -> Rounds[str]:
        sure: bool = yield need_input("sure", "Sure?", bool)
        yield f"changed {sure}"

    @mcp.tool(scopes=["write"], visibility="authorized")
    async def secret() -> str:
        return "secret"

    app = FastAPI()
    app.include_router(mcp, prefix="/api")
    return app


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_without_a_token(method: str) -> None:
    """spec: 401 with the metadata, whatever the method (basic/authorization)."""
    client = Client(protected(), path="/api/mcp")
    reply = await client.open(method, {"jsonrpc": "2.0", "id": 1, "method": "ping"}).done()
    assert reply.status == 401
    assert METADATA in reply.headers["www-authenticate"]


async def test_scopes_of_a_tool() -> None:
    """spec: 403 naming the scopes (basic/authorization §Insufficient Scope), before anything runs;
    what is hidden from a caller does not exist for it, in lists too."""
    app = protected()
    async with session(app, path="/api/mcp", headers=bearer("ann~read")) as client:
        reply = await client.call("change").done()
        assert reply.status == 403
        assert 'scope="read write"' in reply.headers["www-authenticate"]
        tools = (await client.request("tools/list").result())["tools"]
        assert [tool["name"] for tool in tools] == ["ask", "change"]
        assert (await client.call("secret").error())["code"] == -32602
    async with session(app, path="/api/mcp", headers=bearer("ann~read+write")) as client:
        tools = (await client.request("tools/list").result())["tools"]
        assert [tool["name"] for tool in tools] == ["ask", "change", "secret"]
        call = client.call("change")
        await client.accept(await call.next(), value=True)
        assert text_of(await call.result()) == "changed True"


async def test_a_session_is_its_users_and_no_tokens() -> None:
    """Decision: a refreshed token of the same user goes on; another user's finds no session."""
    app = protected()
    async with session(app, path="/api/mcp", headers=bearer("ann~read")) as client:
        call = client.call("ask")
        ask = await call.next()
        bob = await client.answer(ask, {"action": "decline"}, authorization="Bearer bob~read")
        assert bob.status == 404
        client.headers["authorization"] = "Bearer ann~read+write"
        await client.accept(ask, value=True)
        assert text_of(await call.result()) == "True ann None"


async def test_a_token_is_verified_once_a_request() -> None:
    """Decision: later rounds of a request keep what was verified, and handlers never see it."""
    verifier = Counting()
    app = protected(verifier)
    async with session(app, path="/api/mcp", headers=bearer("ann~read")) as client:
        before = verifier.verified
        call = client.call("ask")
        await client.accept(await call.next(), value=True)
        assert text_of(await call.result()) == "True ann None"
        assert verifier.verified == before + 2  # the call and the answer


async def test_a_stream_ends_with_its_token() -> None:
    """Decision: a stream does not outlive the access token, which here lasts a minute."""
    app = protected(clock=lambda: NOW + 59.95)
    async with session(app, path="/api/mcp", headers=bearer("ann~read")) as client:
        stream = await client.open("GET").started()
        assert stream.status == 200
        await stream.done()


async def test_a_span_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision: as today: rounds of one call share a flow, the parent comes from `_meta`, and
    nothing of what was said is in them."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    desk = Desk()
    async with session(desk.app) as client:
        meta = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=b"}
        call = client.call("book", {"flight": "LX1"}, meta=meta)
        await client.accept(await call.next(), row=4)
        await client.accept(await call.next(), value=True)
        await call.result()
    spans = [s for s in exporter.get_finished_spans() if s.name == "tools/call book"]
    told = [dict(span.attributes or {}) for span in spans]
    assert [attributes["mcp.flow.round"] for attributes in told] == [1, 2, 3]
    assert len({str(attributes["mcp.flow.id"]) for attributes in told}) == 1
    assert {str(attributes["mcp.protocol.version"]) for attributes in told} == {"2025-11-25"}
    assert {span.parent and format(span.parent.span_id, "016x") for span in spans} == {SPAN}
    assert "LX1" not in str(told)
    provider.shutdown()


async def test_both_eras_at_the_same_time() -> None:
    """Decision: neither waits for the other, and nobody gets another's answer."""
    desk = Desk()

    async def today(number: int) -> str:
        body = wire.call("echo", {"text": f"t{number}"}, id=number)
        response = await wire.Exchange(desk.app, body).run()
        assert response.messages[0]["id"] == number
        return text_of(response.messages[0]["result"])

    async def older(number: int) -> str:
        async with session(desk.app) as client:
            call = client.call("book", {"flight": f"LX{number}"}, id=number)
            ask = await call.next()
            assert ask["params"]["message"] == f"Which seat on LX{number}?"
            await client.accept(ask, row=number + 1)
            await client.accept(await call.next(), value=True)
            return text_of(await call.result())

    found = await asyncio.gather(*(kind(n) for n in range(20) for kind in (today, older)))
    assert found[::2] == [f"t{n} (2026-07-28)" for n in range(20)]
    assert found[1::2] == [f"{n + 1}A True in round 3 for alice" for n in range(20)]
