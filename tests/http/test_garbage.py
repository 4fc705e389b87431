"""Nothing is left to the cycle collector: a request is freed when it ends, so nothing ever stops.

A test without noise: the collector is off, calls are made, and it then finds nothing to do.
"""

import asyncio
import functools
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException

from fastapi_mcp_mrtr import (
    Complete,
    Context,
    MCPError,
    MCPRouter,
    MemoryLedger,
    Rounds,
    Secret,
    SyncRounds,
    ToolError,
    need_input,
    not_yet,
    progress,
    step,
)
from tests import wire

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CALLS = 300


async def user(x_user: Annotated[str, Header()] = "alice") -> str:
    if x_user == "mallory":
        raise HTTPException(401)
    return x_user


async def session() -> AsyncIterator[str]:
    yield "session"


def session_in_thread() -> Iterator[str]:
    yield "session"


async def refuses() -> None:
    raise HTTPException(418)


async def hold() -> int:
    return 1


def complete(value: str) -> list[str]:
    return [value]


@functools.cache
def server() -> FastAPI:
    ledger = MemoryLedger()
    mcp = MCPRouter(
        "s",
        version="1",
        keys=Secret("one", b"1" * 32),
        principal=user,
        ledger=ledger,
        max_body_size=65_536,
    )

    @mcp.tool()
    async def echo(x: int) -> int:
        return x

    @mcp.tool()
    def echo_in_thread(x: int) -> int:
        return x

    @mcp.tool()
    async def waits() -> str:
        await asyncio.sleep(0)
        return ""

    @mcp.tool()
    async def depends(
        ctx: Context, s: Annotated[str, Depends(session)], u: Annotated[str, Depends(user)]
    ) -> str:
        return u

    @mcp.tool()
    def depends_in_thread(s: Annotated[str, Depends(session_in_thread)]) -> str:
        return s

    @mcp.tool()
    async def ask(s: Annotated[str, Depends(session)]) -> Rounds[str]:
        yield step("hold", hold)
        name: str = yield need_input("name", "Name?", str)
        yield name

    @mcp.tool()
    def ask_in_thread(s: Annotated[str, Depends(session_in_thread)]) -> SyncRounds[str]:
        name: str = yield need_input("name", "Name?", str)
        return name

    @mcp.tool(single_use=True)
    async def once() -> Rounds[str]:
        name: str = yield need_input("name", "Name?", str)
        yield name

    @mcp.tool()
    async def not_ready() -> Rounds[str]:
        yield not_yet()
        yield ""

    @mcp.tool()
    async def fails(how: str, s: Annotated[str, Depends(session)]) -> str:
        raise {
            "tool": ToolError("x"),
            "http": HTTPException(404),
            "mcp": MCPError(-1, "x"),
            "bug": RuntimeError("x"),
        }[how]

    @mcp.tool()
    def fails_in_thread() -> str:
        raise RuntimeError("x")

    @mcp.tool()
    async def refused(x: Annotated[None, Depends(refuses)]) -> str:
        return ""

    @mcp.tool()
    async def streams() -> Rounds[str]:
        yield progress(1)
        yield progress(2)
        yield ""

    @mcp.tool()
    async def streams_slowly(ctx: Context) -> str:
        await ctx.report_progress(1)
        await asyncio.sleep(0)
        await ctx.report_progress(2)
        return ""

    @mcp.tool()
    def streams_in_thread(ctx: Context) -> str:
        ctx.report_progress(1)
        return ""

    @mcp.tool()
    async def streams_and_fails() -> Rounds[str]:
        yield progress(1)
        raise RuntimeError("x")

    @mcp.tool()
    async def stays(streams: bool, s: Annotated[str, Depends(session)]) -> Rounds[str]:
        if streams:
            yield progress(1)
        await asyncio.Event().wait()
        yield ""

    @mcp.prompt()
    async def plan(city: Annotated[str, Complete(complete)]) -> str:
        return city

    @mcp.resource("fare:{code}")
    async def fare(code: str) -> str:
        if code == "gone":
            raise HTTPException(404)
        return code

    app = FastAPI()
    app.include_router(mcp)
    return app


def completion() -> dict[str, Any]:
    ref = {"type": "ref/prompt", "name": "plan"}
    argument = {"name": "city", "value": "B"}
    return wire.message("completion/complete", {"ref": ref, "argument": argument})


FIRST_ROUNDS: dict[str, dict[str, Any]] = {
    "discover": wire.message("server/discover"),
    "list": wire.message("tools/list"),
    "echo": wire.call("echo", {"x": 1}),
    "echo in a thread": wire.call("echo_in_thread", {"x": 1}),
    "waiting": wire.call("waits"),
    "dependencies": wire.call("depends"),
    "dependencies in threads": wire.call("depends_in_thread"),
    "ask": wire.call("ask"),
    "ask in a thread": wire.call("ask_in_thread"),
    "ask, single use": wire.call("once"),
    "not yet": wire.call("not_ready"),
    "prompt": wire.message("prompts/get", {"name": "plan", "arguments": {"city": "B"}}),
    "resource": wire.message("resources/read", {"uri": "fare:a"}),
    "completion": completion(),
    "a stream": wire.call("streams", progressToken="t"),
    "a slow stream": wire.call("streams_slowly", progressToken="t"),
    "a stream from a thread": wire.call("streams_in_thread", progressToken="t"),
    "a stream that fails": wire.call("streams_and_fails", progressToken="t"),
    "invalid arguments": wire.call("echo", {"x": "a"}),
    "ToolError": wire.call("fails", {"how": "tool"}),
    "HTTPException": wire.call("fails", {"how": "http"}),
    "MCPError": wire.call("fails", {"how": "mcp"}),
    "a bug": wire.call("fails", {"how": "bug"}),
    "a bug in a thread": wire.call("fails_in_thread"),
    "a dependency that refuses": wire.call("refused"),
    "a missing capability": wire.call("ask", capabilities={}),
    "an unknown tool": wire.call("nope"),
    "an unknown method": wire.message("nope"),
    "a resource that is not there": wire.message("resources/read", {"uri": "fare:gone"}),
    "a refused state": wire.call("ask", requestState="x"),
    "no JSON-RPC": {**wire.message("x"), "jsonrpc": "1.0"},
}

ACCEPTED = {"name": {"action": "accept", "content": {"value": "Alice"}}}

SECOND_ROUNDS: dict[str, tuple[str, dict[str, Any]]] = {
    "an answer": ("ask", ACCEPTED),
    "an answer to a thread": ("ask_in_thread", ACCEPTED),
    "an answer, single use": ("once", ACCEPTED),
    "a refusal": ("ask", {"name": {"action": "decline"}}),
    "an answer that does not fit": ("ask", {"name": {"action": "accept"}}),
    "an answer that is none": ("ask", {"name": 3}),
}


Call = Callable[[FastAPI], Awaitable[object]]


def sends(body: dict[str, Any] | bytes, **headers: str) -> Call:
    raw = [(b"content-type", b"application/json")] if isinstance(body, bytes) else None
    return lambda app: wire.Exchange(app, body, raw_headers=raw, **headers).run()


def leaves(body: dict[str, Any], *, first_byte: bool) -> Call:
    """A client that leaves, with the first byte of a stream or without any."""

    async def call(app: FastAPI) -> None:
        exchange = wire.Exchange(app, body)
        running = asyncio.ensure_future(exchange.run())
        if first_byte:
            await exchange.until_first_byte()
        exchange.left.set()
        await running

    return call


STAYS = wire.call("stays", {"streams": False})
STREAMS = wire.call("stays", {"streams": True}, progressToken="t")
LISTEN = wire.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}

OTHER_WAYS: dict[str, Call] = {
    "broken JSON": sends(b"{"),
    "a body that is too large": sends(b" " * 70_000),
    "another origin": sends(wire.call("echo"), origin="https://evil.example"),
    "somebody unknown": sends(wire.call("echo"), x_user="mallory"),
    "a notification": sends(NOTIFICATION),
    "a client that leaves": leaves(STAYS, first_byte=False),
    "a client that leaves a stream": leaves(STREAMS, first_byte=True),
    "a client that leaves a stream that it has not seen": leaves(STREAMS, first_byte=False),
    "a subscription": leaves(LISTEN, first_byte=True),
}


async def left_by(app: FastAPI, call: Call) -> int:
    """How many objects so many of these requests leave to the collector."""
    for _ in range(5):  # caches fill
        await call(app)
    await asyncio.sleep(0)
    gc.collect()
    gc.freeze()  # what is there already is not looked at again
    gc.disable()
    try:
        for _ in range(CALLS):
            await call(app)
        await asyncio.sleep(0)
        return gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


@pytest.fixture
def app(caplog: pytest.LogCaptureFixture) -> FastAPI:
    # What is logged is kept by the test's handler, with the frames of its traceback.
    caplog.set_level(100, logger="fastapi_mcp_mrtr")
    return server()


@pytest.mark.parametrize("kind", FIRST_ROUNDS)
async def test_a_request_leaves_nothing(app: FastAPI, kind: str) -> None:
    """decision: zero objects, as a bare FastAPI route: that is what makes the p99."""
    assert await left_by(app, sends(FIRST_ROUNDS[kind])) == 0


@pytest.mark.parametrize("kind", OTHER_WAYS)
async def test_a_request_that_ends_otherwise_leaves_nothing(app: FastAPI, kind: str) -> None:
    """decision: nor does one that is refused before it is read, or whose client leaves."""
    assert await left_by(app, OTHER_WAYS[kind]) == 0


@pytest.mark.parametrize("kind", SECOND_ROUNDS)
async def test_a_later_round_leaves_nothing(app: FastAPI, kind: str) -> None:
    """decision: nor does what comes back with a state."""
    tool, answers = SECOND_ROUNDS[kind]
    first = await wire.Exchange(app, wire.call(tool)).run()
    state = first.messages[0]["result"]["requestState"]
    body = wire.call(tool, requestState=state, inputResponses=answers)
    assert await left_by(app, sends(body)) == 0


async def test_what_can_be_left_is_seen(app: FastAPI) -> None:
    """decision: the test itself is tested, by a handler that leaves a cycle."""

    @app.post("/cycle")
    async def cycle() -> None:
        itself: list[Any] = []
        itself.append(itself)

    def call(app: FastAPI) -> Awaitable[object]:
        return wire.Exchange(app, wire.message("x"), path="/cycle").run()

    assert await left_by(app, call) == CALLS
