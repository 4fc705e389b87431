"""events: what is kept of a stream, and who may read it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fastapi_mcp_mrtr.server.older import events
from fastapi_mcp_mrtr.server.older.events import Recorder, Replay, UnknownEvent
from fastapi_mcp_mrtr.server.older.sessions import Sessions
from fastapi_mcp_mrtr.state.codec import AESGCMCodec
from fastapi_mcp_mrtr.state.keys import KeyRing
from fastapi_mcp_mrtr.state.sessions import (
    MemorySessionStore,
    Session,
    SessionSecurity,
    SessionStoreUnavailable,
)

pytestmark = pytest.mark.anyio


class World:
    """One worker's part of the server."""

    def __init__(self) -> None:
        ring = KeyRing.process_local()
        ring.warned = True
        self.codec = AESGCMCodec(ring)
        self.store = MemorySessionStore()
        self.sessions = Sessions(
            SessionSecurity(self.codec, ring, audience="s"),
            self.store,
            versions=["2025-11-25"],
            lifetime=60,
            clock=lambda: 0.0,
        )
        self.session = Session("u", "2025-11-25", {}, None, 60.0)

    def recorder(self) -> Recorder:
        return Recorder(self.store, self.codec, self.session, kept=60)

    def replay(self, event_id: str) -> AsyncIterator[tuple[str, bytes] | None]:
        replay = Replay(self.store, self.codec, self.sessions, self.session)
        return replay.events_after(event_id)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(events, "_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(events, "_HEARTBEAT", 0.01)
    return World()


async def recorded(world: World, *messages: bytes, last: bool = True) -> list[str]:
    recorder = world.recorder()
    ids = []
    for number, message in enumerate(messages, 1):
        event_id = await recorder.record(message, last=last and number == len(messages))
        assert event_id is not None
        ids.append(event_id)
    return ids


async def test_the_rest_of_a_stream(world: World) -> None:
    """spec: the messages after the last event id (transports §Resumability)."""
    ids = await recorded(world, b"1", b"2", b"3")
    found = [event async for event in world.replay(ids[0])]
    assert found == [None, (ids[1], b"2"), (ids[2], b"3")]


@pytest.mark.parametrize("known", [0, 1])
async def test_a_stream_that_nobody_goes_on_with(world: World, known: int) -> None:
    """Decision: what there is is sent; if there is nothing, the event is as good as unknown."""
    ids = await recorded(world, b"1", b"2", last=False)
    if known:
        found = [event async for event in world.replay(ids[0])]
        assert found == [None, (ids[1], b"2")]
    else:
        with pytest.raises(UnknownEvent):
            await anext(world.replay(ids[1]))


async def test_a_stream_that_is_forgotten_meanwhile(world: World) -> None:
    """Decision: it ends; the client may try again, and is told."""
    ids = await recorded(world, b"1", b"2", last=False)
    replay = world.replay(ids[0])
    assert await anext(replay) is None
    assert await anext(replay) == (ids[1], b"2")
    world.store._streams.clear()
    await world.store.publish(f"stream:{ids[0].rpartition('-')[0]}", b"")
    assert [event async for event in replay] == []


async def test_silence_is_asked_about(world: World) -> None:
    """Decision: a call that says nothing for long shows that it lives."""
    recorder = world.recorder()
    first = await recorder.record(b"1")
    second = await recorder.record(b"2")
    asked = 0

    async def live() -> None:
        nonlocal asked
        async with world.store.listen("session:u") as control:
            while b"left" not in (news := await control.receive()):
                asked += b"resumed" in news
                if asked == 3:
                    recorder.is_followed = True
                    await recorder.record(b"3", last=True)
                await recorder.nudge()

    alive = asyncio.ensure_future(live())
    await asyncio.sleep(0)
    assert first is not None
    found = [event async for event in world.replay(first)]
    assert [event[1] for event in found if event] == [b"2", b"3"]
    assert asked == 3
    assert second is not None
    await alive


async def test_a_store_that_cannot_be_reached(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Decision: an event without an id; a reader that leaves cannot say so, and need not."""

    async def away(*_: object, **__: object) -> None:
        raise SessionStoreUnavailable("away")

    recorder = world.recorder()
    ids = await recorded(world, b"1", b"2")
    replay = world.replay(ids[0])
    await anext(replay)
    world.store.append = away  # type: ignore[assignment, method-assign]
    world.store.publish = away  # type: ignore[method-assign]
    assert await recorder.record(b"1") is None
    await recorder.nudge()
    assert [event async for event in replay] == [(ids[1], b"2")]
    assert "cannot be asked for again: away" in caplog.text
