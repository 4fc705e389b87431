"""context: what a handler can ask about its call, from the event loop and from a thread."""

import re
from typing import Any

import anyio.to_thread
import pytest
from fastapi import FastAPI

from fastapi_mcp_mrtr import Context, MCPRouter, Rounds, SyncRounds, need_input
from fastapi_mcp_mrtr.rounds.sentinels import Log, Progress
from fastapi_mcp_mrtr.server.context import Client
from fastapi_mcp_mrtr.testing import MCPTestClient
from tests import wire

pytestmark = pytest.mark.anyio


def context_of(sent: list[Any], flow_id: str = "f", commits: list[Any] | None = None) -> Context:
    async def emit(notification: Progress | Log) -> None:
        sent.append(notification)

    return Context(
        client=Client("2026-07-28", {}, None),
        principal="alice",
        principal_key="key",
        round=1,
        flow_id=flow_id,
        emit=emit,
        is_takeover=False,
        on_commit=[].append if commits is None else commits.append,
    )


async def test_notifications_are_awaited_on_the_loop() -> None:
    """decision: one spelling for both kinds of handler; here it is a coroutine."""
    sent: list[Any] = []
    ctx = context_of(sent)
    await ctx.report_progress(1, total=2, message="half")
    await ctx.log("info", {"a": 1}, logger="mine")
    assert sent == [Progress(1, 2, "half"), Log("info", {"a": 1}, "mine")]


async def test_notifications_are_just_called_in_a_thread() -> None:
    """user report: sync tools had no way to report progress; awaiting it does no harm."""
    sent: list[Any] = []
    ctx = context_of(sent)

    def handler() -> None:
        awaitable = ctx.report_progress(1)
        assert sent == [Progress(1)]  # sent when the call comes back, not when it is awaited
        assert list(awaitable.__await__()) == []
        ctx.log("error", "b")

    await anyio.to_thread.run_sync(handler)
    assert sent == [Progress(1), Log("error", "b")]


async def test_what_is_no_notification_is_refused_where_it_is_made() -> None:
    """decision: whether the client listens or not, so that it does not depend on the client."""
    ctx = context_of([])
    with pytest.raises(ValueError, match="log level"):
        ctx.log("warn", "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="numbers"):
        ctx.report_progress("half")  # type: ignore[arg-type]


async def test_an_idempotency_key_is_one_of_the_flow_and_the_key() -> None:
    """decision: the same on every round, different for every flow and key."""
    first, again, other = context_of([], "f"), context_of([], "f"), context_of([], "g")
    assert first.idempotency_key("pay") == again.idempotency_key("pay")
    keys = {
        first.idempotency_key("pay"),
        first.idempotency_key("hold"),
        other.idempotency_key("pay"),
    }
    assert len(keys) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", key) for key in keys)
    assert first.idempotency_key("\ud800")


async def test_what_is_to_run_at_the_end_is_handed_on() -> None:
    """decision: with its arguments, for when the final response has been recorded."""
    commits: list[Any] = []
    context_of([], commits=commits).on_commit(max, 1, 2, key=abs)
    assert commits[0]() == 2


# --------------------------------------------------------------------------- through the router


def app_of(mcp: MCPRouter) -> FastAPI:
    app = FastAPI()
    app.include_router(mcp)
    return app


async def test_a_handler_sees_its_client_and_its_caller() -> None:
    """user report: no way to tell who is calling (py#638, py#980, fm#1437)."""
    mcp = MCPRouter("s", version="1", principal=lambda: {"sub": "alice"})
    seen: list[Context] = []

    @mcp.tool()
    async def look(ctx: Context) -> None:
        seen.append(ctx)

    wire.post(app_of(mcp), wire.call("look", capabilities={"roots": {}}))
    ctx = seen[0]
    assert ctx.client == Client("2026-07-28", {"roots": {}}, {"name": "tests", "version": "1"})
    assert ctx.principal == {"sub": "alice"}
    assert "alice" in ctx.principal_key
    assert ctx.round == 1


async def test_nobody_is_nobody() -> None:
    """decision: anonymous is None, and has a key of its own."""
    mcp = MCPRouter("s", version="1")
    seen: list[Context] = []

    @mcp.prompt()
    async def look(ctx: Context) -> str:
        seen.append(ctx)
        return ""

    wire.post(app_of(mcp), wire.message("prompts/get", {"name": "look"}))
    assert seen[0].principal is None
    assert seen[0].principal_key == '["anonymous"]'


@pytest.mark.parametrize("form", ["async", "sync"])
async def test_rounds_are_counted_and_the_flow_keeps_its_id(form: str) -> None:
    """decision: `round` from 1, `flow_id` the same in all rounds of one call."""
    mcp = MCPRouter("s", version="1")
    seen: list[tuple[int, str]] = []

    if form == "async":

        @mcp.tool("ask")
        async def ask(ctx: Context) -> Rounds[str]:
            seen.append((ctx.round, ctx.flow_id))
            name: str = yield need_input("name", "Name?", str)
            yield name
    else:

        @mcp.tool("ask")
        def ask_in_thread(ctx: Context) -> SyncRounds[str]:
            seen.append((ctx.round, ctx.flow_id))
            name: str = yield need_input("name", "Name?", str)
            return name

    client = MCPTestClient(app_of(mcp))
    client.call_tool("ask", answers={"name": "a"})
    client.call_tool("ask", answers={"name": "a"})
    client.close()
    rounds, flows = zip(*seen, strict=True)
    assert rounds == (1, 2, 1, 2)
    assert flows[0] == flows[1] != flows[2] == flows[3]


@pytest.mark.parametrize("form", ["async", "sync"])
async def test_progress_and_logs_reach_the_client_from_both_kinds(form: str) -> None:
    """spec: notifications on the response stream, before the response."""
    mcp = MCPRouter("s", version="1")

    if form == "async":

        @mcp.tool("work")
        async def work(ctx: Context) -> str:
            await ctx.report_progress(1, total=2)
            await ctx.log("warning", {"left": 1}, logger="desk")
            return "done"
    else:

        @mcp.tool("work")
        def work_in_thread(ctx: Context) -> str:
            ctx.report_progress(1, total=2)
            ctx.log("warning", {"left": 1}, logger="desk")
            return "done"

    body = wire.call("work", progressToken="t", logLevel="info")
    progress, log, response = wire.messages_of(wire.post(app_of(mcp), body))
    assert progress["params"] == {"progressToken": "t", "progress": 1, "total": 2}
    assert log["params"] == {"level": "warning", "data": {"left": 1}, "logger": "desk"}
    assert response["result"]["content"] == [{"type": "text", "text": "done"}]
