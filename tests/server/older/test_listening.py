"""listening: the stream of a session, where a test over HTTP cannot reach."""

import asyncio

import anyio
import pytest

from fastapi_mcp_mrtr.server.older.listening import ListeningStream
from fastapi_mcp_mrtr.server.subscriptions import LocalBus, ResourceUpdated

from .test_events import World

pytestmark = pytest.mark.anyio


def stream(world: World, bus: LocalBus) -> ListeningStream:
    return ListeningStream(
        world.session, sessions=world.sessions, store=world.store, bus=bus, kinds=["tools"]
    )


async def test_closed_before_it_began() -> None:
    """Decision: the server may stop, and a token expire, at any moment."""
    listening = stream(World(), LocalBus())
    listening.close()
    assert [message async for message in listening.messages()] == []


async def test_two_changes_at_once() -> None:
    """Decision: of two subscriptions that follow each other only the second one is opened, and the
    first leaves nothing behind."""
    world, bus = World(), LocalBus()
    listening = stream(world, bus)
    messages = listening.messages()
    first = asyncio.ensure_future(anext(messages))
    with anyio.fail_after(10):
        while not bus._open:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0)
    for uri in ("a:1", "a:2"):
        await world.store.subscribe("u", uri, ttl=60)
        await listening._change()
    assert len(bus._open) == 2
    bus.publish(ResourceUpdated("a:2"))
    assert b"a:2" in await first
    await world.sessions.end(world.session)
    assert [message async for message in messages] == []
    assert bus._open == set()
