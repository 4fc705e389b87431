"""The store of one process: its bounds, its threads, its warning."""

import asyncio
import gc
import sys
import threading

import pytest

from fastapi_mcp_mrtr.state.sessions import (
    MemorySessionStore,
    SessionData,
    SessionStoreUnavailable,
)
from fastapi_mcp_mrtr.state.sessions.listeners import Listeners
from fastapi_mcp_mrtr.state.sessions.protocol import MAX_STREAMS
from tests.state.ledger.backends import FakeClock

pytestmark = pytest.mark.anyio

TTL = 5000.0


async def test_sessions_are_bounded() -> None:
    """decision: refused rather than forgotten, because a forgotten end is no end."""
    clock = FakeClock()
    store = MemorySessionStore(max_sessions=2, clock=clock)
    for name in "ab":
        await store.revoke(name, ttl=TTL)
    with pytest.raises(SessionStoreUnavailable, match="max_sessions=2 sessions already"):
        await store.revoke("c", ttl=TTL)
    await store.set_log_level("a", "debug", ttl=2 * TTL)
    assert (await store.load("a")).revoked
    clock.now += TTL
    # One stays until the later end that it was given.
    await store.revoke("b", ttl=1)
    assert len(store) == 2
    clock.now += TTL
    await store.revoke("c", ttl=TTL)
    assert len(store) == 1


async def test_a_session_can_be_ended_in_a_full_store() -> None:
    """user report: one caller filled the store with log levels, and nobody could end a session any
    more. What can be done without is forgotten for it, first of those who filled it up."""
    store = MemorySessionStore(max_sessions=4, max_uris=2, clock=FakeClock())
    await store.set_log_level("first", "debug", ttl=TTL)
    for name in ("subscribed", "last"):
        assert await store.subscribe(name, "x", ttl=TTL)
    await store.set_log_level("subscribed", "debug", ttl=TTL)
    await store.unsubscribe("last", "x")
    await store.set_log_level("last", "error", ttl=TTL)
    await store.set_log_level("more", "error", ttl=TTL)
    await store.set_log_level("first", "info", ttl=TTL)
    with pytest.raises(SessionStoreUnavailable, match="max_sessions=4 sessions already"):
        await store.set_log_level("x", "debug", ttl=TTL)
    with pytest.raises(SessionStoreUnavailable, match="max_sessions=4 sessions already"):
        await store.subscribe("x", "x", ttl=TTL)
    left = ["first", "last", "more"]
    for ended, forgotten in (("a", "more"), ("b", "last"), ("c", "first")):
        await store.revoke(ended, ttl=TTL)
        left.remove(forgotten)
        for name in ("first", "last", "more"):
            assert bool((await store.load(name)).log_level) is (name in left), (ended, name)
    assert (await store.load("subscribed")).uris == {"x"}
    await store.revoke("d", ttl=TTL)
    assert await store.load("subscribed") == SessionData()
    for name in "abcd":
        assert (await store.load(name)).revoked
    with pytest.raises(SessionStoreUnavailable, match="max_sessions=4 sessions already"):
        await store.revoke("e", ttl=TTL)
    await store.revoke("a", ttl=TTL)


async def test_a_session_that_was_forgotten_comes_again() -> None:
    """decision: it is kept until its own end, and its subscriptions count once."""
    clock = FakeClock()
    store = MemorySessionStore(max_sessions=2, max_uris=1, clock=clock)
    await store.revoke("short", ttl=TTL / 2)
    assert await store.subscribe("a", "x", ttl=TTL)
    await store.revoke("b", ttl=TTL)
    clock.now += TTL / 2
    assert await store.subscribe("a", "x", ttl=TTL)
    clock.now += TTL / 2
    await store.set_log_level("c", "debug", ttl=TTL)
    assert (await store.load("a")).uris == {"x"}
    clock.now += TTL
    assert await store.subscribe("d", "x", ttl=TTL)
    assert len(store) == 1


async def test_subscriptions_of_all_sessions_are_bounded() -> None:
    """decision: many sessions with many subscriptions are as bad as one with all of them."""
    clock = FakeClock()
    store = MemorySessionStore(max_uris=3, clock=clock)
    for name in "abc":
        assert await store.subscribe(name, "x", ttl=TTL)
    with pytest.raises(SessionStoreUnavailable, match="max_uris=3 subscriptions already"):
        await store.subscribe("a", "y", ttl=TTL)
    assert await store.subscribe("a", "x", ttl=TTL)
    await store.unsubscribe("b", "x")
    await store.unsubscribe("b", "x")
    assert await store.subscribe("a", "y", ttl=TTL)
    await store.revoke("a", ttl=TTL)
    assert await store.subscribe("c", "y", ttl=TTL)
    assert await store.subscribe("c", "z", ttl=TTL)
    clock.now += TTL
    for uri in "123":
        assert await store.subscribe("d", uri, ttl=TTL)


async def test_a_stream_that_is_used_outlives_an_older_one() -> None:
    """decision: what was used last is forgotten last."""
    clock = FakeClock()
    store = MemorySessionStore(clock=clock)
    await store.append("long", b"", ttl=2 * TTL)
    short = await store.append("short", b"", ttl=TTL)
    clock.now += TTL
    # Still there behind one that lives longer, and gone for everybody who asks.
    assert await store.events_after(short) is None
    await store.append("short", b"", ttl=TTL)
    assert await store.events_after(short) is None


async def test_a_stream_that_is_still_written_stays() -> None:
    """decision: the one that was not written for longest makes room, whenever it was begun."""
    store = MemorySessionStore()
    for n in range(MAX_STREAMS):
        await store.append(f"s{n}", b"", ttl=TTL)
    kept = await store.append("s0", b"", ttl=TTL)
    lost = await store.append("s1", b"", ttl=TTL)
    for n in range(1, MAX_STREAMS - 1):
        await store.append(f"more{n}", b"", ttl=TTL)
    assert await store.events_after(kept) == []
    assert await store.events_after(lost) == []
    await store.append("s0", b"", ttl=TTL)
    await store.append("last", b"", ttl=TTL)
    assert await store.events_after(kept) is not None
    assert await store.events_after(lost) is None


async def test_a_message_from_another_thread() -> None:
    """decision: what a `def` handler says reaches the loop of who listens."""
    store = MemorySessionStore()
    async with store.listen("a") as listener:
        thread = threading.Thread(target=lambda: asyncio.run(store.publish("a", b"x")))
        thread.start()
        assert await listener.receive() == b"x"
        thread.join()


def test_a_listener_whose_loop_is_gone() -> None:
    """decision: a loop that ended without a word costs nobody else a message."""
    listeners = Listeners()
    loop = asyncio.new_event_loop()
    context = listeners.listen("a", 1)
    loop.run_until_complete(context.__aenter__())
    loop.close()
    listeners.send("a", b"x")
    assert len(listeners) == 1

    async def leave() -> None:
        await context.__aexit__(None, None, None)

    asyncio.run(leave())
    assert len(listeners) == 0


async def test_nothing_is_left_to_the_cycle_collector() -> None:
    """decision: asks that come and go leave no garbage."""
    store = MemorySessionStore()

    async def ask() -> None:
        async with store.listen("a") as listener:
            await store.publish("a", b"x")
            await listener.receive()

    await ask()
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            await ask()
        assert gc.collect() == 0
    finally:
        gc.enable()


async def test_several_workers_are_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: with siblings an answer is lost at random; said once, when there is a session."""
    monkeypatch.setattr(sys, "argv", ["uvicorn", "app:app", "--workers", "4"])
    store = MemorySessionStore()
    assert not caplog.records
    await store.load("a")
    await store.load("b")
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "4 worker processes are evident" in record.getMessage()
    assert "RedisSessionStore" in record.getMessage()


async def test_closing_does_nothing() -> None:
    """decision: a store may be used again."""
    store = MemorySessionStore()
    await store.revoke("a", ttl=TTL)
    await store.aclose()
    assert (await store.load("a")).revoked
