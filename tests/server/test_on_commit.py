"""on_commit: effects of a call that is over and recorded."""

import asyncio
import functools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import Depends, FastAPI

from fastapi_mcp_mrtr import Context, MCPRouter, Rounds, SyncRounds, ToolError, need_input
from fastapi_mcp_mrtr.testing import MCPTestClient
from tests import wire

from .once import KEY, SECRET, Store, keyed, send, until

pytestmark = pytest.mark.anyio


class Once:
    """A router with or without a ledger, and what happened in it."""

    def __init__(self, store: Store | None = None) -> None:
        self.done: list[Any] = []
        self.mcp = MCPRouter(
            "own", version="1", keys=SECRET, ledger=store, single_use=store is not None
        )
        self.app = FastAPI()
        self.app.include_router(self.mcp)
        self.client = MCPTestClient(self.app)


@pytest.fixture(params=[True, False], ids=["ledger", "no ledger"])
def once(request: pytest.FixtureRequest) -> Once:
    return Once(Store() if request.param else None)


def test_effects_come_after_the_response_is_recorded() -> None:
    """decision: the ledger has the response before anything of them begins."""
    store = Store()
    once = Once(store)

    @once.mcp.tool()
    async def pay(ctx: Context) -> Rounds[str]:
        yield need_input("ok", "Ok?", bool)
        ctx.on_commit(lambda: once.done.append(list(store.calls)))
        yield "paid"

    once.client.call_tool("pay", answers={"ok": True})
    assert once.done == [["claim", "answer"]]


def test_effects_come_in_order_in_whatever_form(once: Once) -> None:
    """decision: async and sync functions, methods, lambdas, partials; sync ones in a thread."""
    threads: list[int] = []

    async def mail(to: str, *, subject: str) -> None:
        threads.append(threading.get_ident())
        once.done.append((to, subject))

    def count() -> None:
        threads.append(threading.get_ident())
        once.done.append("counted")

    @once.mcp.tool()
    async def pay(ctx: Context) -> str:
        ctx.on_commit(mail, "ada", subject="Paid")
        ctx.on_commit(count)
        ctx.on_commit(once.done.append, "appended")
        ctx.on_commit(lambda: mail("ben", subject="Paid"))
        ctx.on_commit(functools.partial(mail, "eve"), subject="Paid")
        return "paid"

    once.client.call_tool("pay")
    people = [(name, "Paid") for name in ("ada", "ben", "eve")]
    assert once.done == [people[0], "counted", "appended", people[1], people[2]]
    loop, worker = threads[0], threads[1]
    assert threads == [loop, worker, loop, loop]
    assert loop != worker


def test_sync_handlers_have_effects_too(once: Once) -> None:
    """decision: the same for every handler form."""

    @once.mcp.tool()
    def pay(ctx: Context) -> SyncRounds[str]:
        yield need_input("ok", "Ok?", bool)
        ctx.on_commit(once.done.append, "paid")
        return "paid"

    once.client.call_tool("pay", answers={"ok": True})
    assert once.done == ["paid"]


def test_effects_happen_once_however_often_the_round_is_presented() -> None:
    """decision: at most once a flow."""
    once = Once(Store())

    @once.mcp.tool()
    async def pay(ctx: Context) -> Rounds[str]:
        ctx.on_commit(once.done.append, "mail")
        yield need_input("ok", "Ok?", bool)
        yield "paid"

    first = once.client.begin_tool("pay", meta={KEY: "a"})
    for _ in range(3):
        first.answer({"ok": True})
    assert once.done == ["mail"]


def test_a_round_that_asks_has_no_effects(once: Once) -> None:
    """decision: the call is not over."""

    @once.mcp.tool()
    async def pay(ctx: Context) -> Rounds[str]:
        ctx.on_commit(once.done.append, "mail")
        yield need_input("ok", "Ok?", bool)

    once.client.begin_tool("pay", meta={KEY: "a"})
    assert once.done == []


@pytest.mark.parametrize("error", [ToolError("No."), RuntimeError("no")], ids=repr)
def test_a_call_that_fails_has_no_effects(once: Once, error: Exception) -> None:
    """decision: what the client reads as a failure must not have been mailed as a success."""

    @once.mcp.tool()
    async def pay(ctx: Context) -> Rounds[str]:
        yield need_input("ok", "Ok?", bool)
        ctx.on_commit(once.done.append, "mail")
        raise error

    once.client.begin_tool("pay").answer({"ok": True})
    assert once.done == []


def test_a_result_that_cannot_be_sent_has_no_effects(once: Once) -> None:
    """decision: it is a failure, found out later."""

    @once.mcp.tool()
    async def pay(ctx: Context) -> int:
        ctx.on_commit(once.done.append, "mail")
        return "no number"  # type: ignore[return-value]

    assert once.client.begin_tool("pay", meta={KEY: "a"}).error.code == -32603
    assert once.done == []


def test_a_dependency_that_fails_at_its_end_takes_the_effects_back(once: Once) -> None:
    """decision: its transaction did not commit, so the call failed."""

    def transaction() -> Iterator[None]:
        yield
        raise RuntimeError("conflict")

    @once.mcp.tool()
    async def pay(ctx: Context, _: None = Depends(transaction)) -> str:
        ctx.on_commit(once.done.append, "mail")
        return "paid"

    assert once.client.begin_tool("pay", meta={KEY: "a"}).error.code == -32603
    assert once.done == []


def test_an_effect_that_fails_changes_nothing(once: Once, caplog: pytest.LogCaptureFixture) -> None:
    """decision: the response stands, the next effect happens, the log has the traceback."""

    def broken() -> None:
        raise RuntimeError("mail server away")

    @once.mcp.tool()
    async def pay(ctx: Context) -> str:
        ctx.on_commit(broken)
        ctx.on_commit(once.done.append, "counted")
        return "paid"

    assert not once.client.call_tool("pay", meta={KEY: "a"}).is_error
    assert once.done == ["counted"]
    assert "An on_commit function failed; the response stands" in caplog.text
    assert "mail server away" in caplog.text


def test_what_cannot_be_called_is_refused_at_once(once: Once) -> None:
    """decision: not after the payment."""

    @once.mcp.tool()
    async def pay(ctx: Context) -> str:
        with pytest.raises(TypeError):
            ctx.on_commit("mail")  # type: ignore[arg-type]
        return "paid"

    once.client.call_tool("pay")


async def test_a_cancelled_call_still_has_its_effects(once: Once) -> None:
    """decision: they belong to what was recorded, not to the connection."""
    go_on = asyncio.Event()

    async def slow() -> None:
        once.done.append("begun")
        await go_on.wait()
        once.done.append("ended")

    @once.mcp.tool()
    async def pay(ctx: Context) -> str:
        ctx.on_commit(slow)
        ctx.on_commit(once.done.append, "counted")
        return "paid"

    running = asyncio.ensure_future(send(once.app, keyed(wire.call("pay"))))
    await until(lambda: bool(once.done))
    running.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([running])
    assert running.cancelled()
    assert once.done == ["begun", "ended", "counted"]


async def test_who_lost_the_claim_has_no_effects(caplog: pytest.LogCaptureFixture) -> None:
    """decision: those of the round that was recorded happen, and no others."""
    caplog.set_level(logging.ERROR)
    store = Store()
    once = Once(store)
    arrived, go_on, names = asyncio.Event(), asyncio.Event(), iter(["first", "second"])

    @once.mcp.tool()
    async def pay(ctx: Context) -> str:
        name = next(names)
        ctx.on_commit(once.done.append, name)
        if name == "first":
            arrived.set()
            await go_on.wait()
        return name

    body = keyed(wire.call("pay"))
    running = asyncio.ensure_future(send(once.app, body))
    await arrived.wait()
    store.clock.now += 30
    other = await send(once.app, body)
    go_on.set()
    assert (await running).messages == other.messages
    assert once.done == ["second"]
