"""Events between workers: here two buses over one store, and what can go wrong in between."""

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from fastapi_mcp_mrtr.server import shared_bus
from fastapi_mcp_mrtr.server.shared_bus import SharedBus, bus_over
from fastapi_mcp_mrtr.server.subscriptions import (
    Event,
    Filter,
    ListChanged,
    LocalBus,
    ResourceUpdated,
    Subscription,
)
from fastapi_mcp_mrtr.state.sessions import (
    Listener,
    MemorySessionStore,
    SessionStoreUnavailable,
)

pytestmark = pytest.mark.anyio

TOOLS = ListChanged("tools")
A = ResourceUpdated("file:///\u00e9")
ALL = Filter(("tools", "prompts", "resources"), (A.uri, "file:///b"))


class Wire(MemorySessionStore):
    """A store that can be away, and remembers what was said on it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.said: list[bytes] = []
        self.refused = asyncio.Event()

    async def publish(self, topic: str, message: bytes) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            self.refused.set()
            raise SessionStoreUnavailable("away")
        self.said.append(message)
        await super().publish(topic, message)

    @asynccontextmanager
    async def _listen(self, topic: str, limit: int) -> AsyncIterator[Listener]:
        if self.is_away:
            self.refused.set()
            raise SessionStoreUnavailable("away")
        async with super().listen(topic, limit=limit) as listener:
            yield listener

    def listen(self, topic: str, *, limit: int = 16) -> AbstractAsyncContextManager[Listener]:
        return self._listen(topic, limit)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr(shared_bus, "_PAUSE", 0.001)
    return Wire()


async def next_of(subscription: Subscription) -> Event:
    with anyio.fail_after(30):
        return await anext(subscription)


async def rest_of(subscription: Subscription) -> list[Event]:
    subscription.close()
    return [event async for event in subscription]


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


def test_a_store_of_one_process_needs_no_other_bus() -> None:
    """decision: what works within one process costs what it did."""
    assert type(bus_over(None)) is LocalBus
    assert type(bus_over(MemorySessionStore())) is LocalBus


def test_a_store_of_several_makes_the_bus_theirs() -> None:
    """decision: nothing more to configure."""

    class Shared:
        pass

    assert type(bus_over(Shared())) is SharedBus  # type: ignore[arg-type]


@pytest.mark.parametrize("event", [TOOLS, ListChanged("resources"), A])
async def test_an_event_reaches_other_workers(wire: Wire, event: Event) -> None:
    """user report: of several workers only one told its subscribers that a resource changed."""
    one, two = SharedBus(wire), SharedBus(wire)
    async with one.subscribe(1, ALL) as here, two.subscribe(2, ALL) as there:
        one.publish(event)
        assert await next_of(there) == event
        assert await next_of(here) == event
        assert await rest_of(here) == await rest_of(there) == []


async def test_published_again_it_is_sent_again(wire: Wire) -> None:
    """decision: what is published while its like is on the way is another event."""
    one, two = SharedBus(wire), SharedBus(wire)
    async with two.subscribe(2, ALL) as there:
        one.publish(A)
        await asyncio.sleep(0)  # now it is on the way
        await asyncio.sleep(0)
        one.publish(A)
        assert await next_of(there) == A
        await until(lambda: len(wire.said) == 2)


async def test_from_a_def_handler(wire: Wire) -> None:
    """decision: from the worker thread of a handler, even if it is the first to publish."""
    one, two = SharedBus(wire), SharedBus(wire)
    async with two.subscribe(2, ALL) as there:
        await anyio.to_thread.run_sync(one.publish, A)
        assert await next_of(there) == A


async def test_from_a_thread_of_somebody_else(wire: Wire) -> None:
    """decision: sent from the loop that was last seen, and kept to this process before that."""
    one, two = SharedBus(wire), SharedBus(wire)

    async def in_thread(event: Event) -> None:
        thread = threading.Thread(target=one.publish, args=(event,))
        thread.start()
        await asyncio.to_thread(thread.join)

    async with two.subscribe(2, ALL) as there:
        await in_thread(TOOLS)
        async with one.subscribe(1, ALL):
            await in_thread(A)
            assert await next_of(there) == A
        assert await rest_of(there) == []


def test_registration_tells_nobody(wire: Wire) -> None:
    """decision: the other workers have registered the same handlers."""
    SharedBus(wire).publish(TOOLS)

    async def look() -> None:
        await asyncio.sleep(0.01)

    asyncio.run(look())
    assert not wire.said


async def test_what_is_published_while_the_store_is_away(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: sent when it is back, each event once; subscribers here hear it at once."""
    one, two = SharedBus(wire), SharedBus(wire)
    async with two.subscribe(2, ALL) as there, one.subscribe(1, ALL) as here:
        wire.is_away = True
        for event in (A, TOOLS, A):
            one.publish(event)
        assert await next_of(here) == A
        await wire.refused.wait()
        wire.is_away = False
        assert [await next_of(there) for _ in range(2)] == [A, TOOLS]
        assert await rest_of(there) == []
    assert "Other workers are not told of an event yet: away" in caplog.messages


async def test_a_subscription_while_the_store_is_away(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: it hears its own worker, and the others as soon as they can be heard."""
    one, two = SharedBus(wire), SharedBus(wire)
    wire.is_away = True
    async with two.subscribe(2, ALL) as there:
        two.publish(TOOLS)
        assert await next_of(there) == TOOLS
        wire.is_away = False
        await until(lambda: len(wire._listeners) == 1)
        one.publish(A)
        assert await next_of(there) == A
    assert "Events of other workers are not heard yet: away" in caplog.messages


async def test_what_waits_is_bounded(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: an outage of the store costs a bounded memory; the oldest events go."""
    monkeypatch.setattr(shared_bus, "_UNSENT", 2)
    bus = SharedBus(wire)
    for uri in "abc":
        bus.publish(ResourceUpdated(uri))
    await until(lambda: len(wire.said) == 2)
    assert [json.loads(message[8:])["uri"] for message in wire.said] == ["b", "c"]


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"x", b"12345678", b"12345678[]", b'12345678{"kind":"x"}', b"\xff" * 20),
        *(b"12345678" + b"[" * 100_000, b'12345678{"kind":[]}', b'12345678{"uri":"\\ud800"}'),
    ],
)
async def test_what_is_no_event_is_ignored(wire: Wire, message: bytes) -> None:
    """decision: another version of this server may publish what this one does not know."""
    one, two = SharedBus(wire), SharedBus(wire)
    async with two.subscribe(2, ALL) as there:
        await wire.publish("events", message)
        one.publish(A)
        assert await next_of(there) == A


def test_a_loop_for_each_request(wire: Wire) -> None:
    """decision: a test client runs each request in an event loop of its own; none is missed."""
    one, two = SharedBus(wire), SharedBus(wire)

    async def subscribe(event: Event) -> None:
        async with two.subscribe(2, ALL) as there:
            one.publish(event)
            assert await next_of(there) == event

    for event in (A, TOOLS):
        asyncio.run(subscribe(event))
    gc.collect()
    assert not two._ears._lives
    # A thread of nobody finds the loop closed that was last seen.
    one.publish(A)
    assert len(wire.said) == 2


def test_a_loop_that_is_closed_this_moment(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: publishing never raises, and the next one takes along what is left."""
    bus = SharedBus(wire)
    closed = asyncio.new_event_loop()
    closed.close()
    with monkeypatch.context() as patch:
        patch.setattr(bus, "_loop", lambda: closed)
        bus.publish(A)

    async def publish() -> None:
        bus.publish(TOOLS)
        await until(lambda: len(wire.said) == 2)

    asyncio.run(publish())
    kinds: list[Any] = [json.loads(message[8:]) for message in wire.said]
    assert kinds == [{"uri": A.uri}, {"kind": "tools"}]


def test_a_loop_that_ends_while_it_sends(wire: Wire) -> None:
    """decision: another loop begins where it left off."""
    bus = SharedBus(wire)
    wire.is_away = True

    async def publish() -> None:
        bus.publish(A)
        await wire.refused.wait()

    asyncio.run(publish())
    wire.is_away = False

    async def publish_again() -> None:
        bus.publish(TOOLS)
        await until(lambda: len(wire.said) == 2)

    asyncio.run(publish_again())
