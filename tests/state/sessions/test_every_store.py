"""What every session store does, on every store."""

import asyncio

import pytest

from fastapi_mcp_mrtr.state.sessions import SessionData
from fastapi_mcp_mrtr.state.sessions.protocol import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_STREAMS,
    MAX_URIS,
    read_event_id,
)
from tests.state.play import play

from .backends import Backend, OpenBackend
from .model import StoreMachine

# Long against what a test takes.
TTL = 5000.0
PATIENCE = 60.0


def test_model(open_backend: OpenBackend) -> None:
    """decision: two workers see the same sessions, streams and messages, whatever they do."""
    play(StoreMachine, open_backend, examples=25)


@pytest.mark.anyio
class TestSessions:
    async def test_subscriptions_are_bounded(self, backend: Backend) -> None:
        """decision: a client that subscribes to everything is refused, and keeps what it has."""
        uris = [f"db://{n}" for n in range(MAX_URIS)]
        done = await asyncio.gather(*(backend.store.subscribe("s", u, ttl=TTL) for u in uris))
        assert all(done)
        assert not await backend.other.subscribe("s", "db://more", ttl=TTL)
        assert await backend.other.subscribe("s", "db://7", ttl=TTL)
        assert (await backend.other.load("s")).uris == frozenset(uris)
        await backend.other.unsubscribe("s", "db://7")
        assert await backend.store.subscribe("s", "db://more", ttl=TTL)

    async def test_the_log_level_is_no_subscription(self, backend: Backend) -> None:
        """decision: nothing else counts against the limit."""
        await backend.store.set_log_level("s", "debug", ttl=TTL)
        uris = [f"db://{n}" for n in range(MAX_URIS)]
        assert all([await backend.store.subscribe("s", uri, ttl=TTL) for uri in uris])

    async def test_a_revoked_session_stays_revoked(self, backend: Backend) -> None:
        """spec: MUST NOT be used any more (transports §Session Management 3 to 5)."""
        await backend.store.subscribe("s", "db://1", ttl=TTL)
        await backend.store.set_log_level("s", "debug", ttl=TTL)
        await backend.store.revoke("s", ttl=TTL)
        await backend.other.set_log_level("s", "debug", ttl=TTL)
        assert not await backend.other.subscribe("s", "db://1", ttl=TTL)
        await backend.store.revoke("s", ttl=1)
        await backend.advance(TTL - 1000)
        assert await backend.store.load("s") == SessionData(revoked=True)
        await backend.advance(1000)
        assert await backend.store.load("s") == SessionData()


@pytest.mark.anyio
class TestMessages:
    async def test_each_listener_hears_its_topic(self, backend: Backend) -> None:
        """decision: an answer reaches who waits for it, in whatever worker, and nobody else."""
        async with (
            backend.store.listen("a") as one,
            backend.other.listen("a") as two,
            backend.other.listen("b") as three,
        ):
            await backend.store.publish("a", b"first")
            await backend.other.publish("b", b"second")
            async with asyncio.timeout(PATIENCE):
                assert await one.receive() == b"first"
                assert await two.receive() == b"first"
                assert await three.receive() == b"second"

    async def test_a_listener_that_waits(self, backend: Backend) -> None:
        """decision: a message wakes the one who waits."""
        async with backend.store.listen("a") as listener:
            waiting = asyncio.create_task(listener.receive())
            await asyncio.sleep(0)
            await backend.other.publish("a", b"now")
            async with asyncio.timeout(PATIENCE):
                assert await waiting == b"now"

    async def test_a_reader_that_gave_up(self, backend: Backend) -> None:
        """decision: a wait that was cancelled took no message with it."""
        async with backend.store.listen("a") as listener:
            waiting = asyncio.create_task(listener.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            await backend.other.publish("a", b"now")
            async with asyncio.timeout(PATIENCE):
                assert await listener.receive() == b"now"

    async def test_the_oldest_make_room(self, backend: Backend) -> None:
        """decision: a reader that does not keep up costs no more memory than it was given."""
        async with backend.store.listen("a", limit=3) as slow, backend.store.listen("a") as quick:
            for n in range(10):
                await backend.other.publish("a", b"%d" % n)
            async with asyncio.timeout(PATIENCE):
                while await quick.receive() != b"9":
                    pass
                assert [await slow.receive() for _ in range(3)] == [b"7", b"8", b"9"]

    async def test_any_bytes_and_any_topic(self, backend: Backend) -> None:
        """decision: a message is bytes, whatever they are, and long ones arrive whole."""
        long = bytes(range(256)) * 4096
        async with backend.other.listen("a:b|\u00e9 \n") as listener:
            for message in (b"", b"\x00", long):
                await backend.store.publish("a:b|\u00e9 \n", message)
            async with asyncio.timeout(PATIENCE):
                assert [await listener.receive() for _ in range(3)] == [b"", b"\x00", long]

    async def test_many_at_once(self, backend: Backend) -> None:
        """decision: five hundred who wait, each for one answer, and each gets its own."""

        async def ask(n: int) -> bytes:
            async with backend.store.listen(f"answer:{n}") as listener:
                everybody.append(n)
                if len(everybody) == MANY:
                    all_wait.set()
                return await listener.receive()

        MANY = 500
        everybody: list[int] = []
        all_wait = asyncio.Event()
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            asks = [group.create_task(ask(n)) for n in range(MANY)]
            await all_wait.wait()
            for n in range(MANY):
                group.create_task(backend.other.publish(f"answer:{n}", b"%d" % n))
        assert [await asked for asked in asks] == [b"%d" % n for n in range(MANY)]


@pytest.mark.anyio
class TestEvents:
    async def test_what_was_missed(self, backend: Backend) -> None:
        """spec: MAY replay messages after the last event id (transports §Resumability)."""
        ids = [await backend.store.append("s", b"%d" % n, ttl=TTL) for n in range(4)]
        await backend.store.append("t", b"other", ttl=TTL)
        missed = [(ids[n], b"%d" % n) for n in range(2, 4)]
        assert await backend.other.events_after(ids[1]) == missed
        assert await backend.other.events_after(ids[3]) == []

    async def test_ids_are_visible_ascii_and_name_the_stream(self, backend: Backend) -> None:
        """spec: ids MUST be unique across all streams of the session (§Resumability 1)."""
        one = await backend.store.append("a-1-2", b"", ttl=TTL)
        two = await backend.store.append("a-1", b"", ttl=TTL)
        named = [read_event_id(event_id) for event_id in (one, two)]
        assert [name[0] for name in named if name] == ["a-1-2", "a-1"]
        assert one != two
        assert all("!" <= character <= "~" for character in one + two)

    async def test_an_expired_stream_begins_anew(self, backend: Backend) -> None:
        """decision: an id of before is unknown, and no event of after is taken for it."""
        before = await backend.store.append("s", b"before", ttl=TTL)
        await backend.advance(TTL)
        assert await backend.store.events_after(before) is None
        after = await backend.store.append("s", b"after", ttl=TTL)
        assert after != before
        assert await backend.store.events_after(before) is None
        assert await backend.store.events_after(after) == []

    async def test_the_number_of_events_is_bounded(self, backend: Backend) -> None:
        """decision: the last ones stay; who missed more starts over."""
        ids = [await backend.store.append("s", b"%d" % n, ttl=TTL) for n in range(MAX_EVENTS + 2)]
        assert await backend.store.events_after(ids[1]) is None
        events = await backend.store.events_after(ids[2])
        assert events is not None
        assert [event_id for event_id, _ in events] == ids[3:]

    async def test_the_bytes_are_bounded(self, backend: Backend) -> None:
        """decision: so are long ones."""
        half = b"x" * (MAX_EVENT_BYTES // 2)
        ids = [await backend.store.append("s", half, ttl=TTL) for _ in range(3)]
        assert await backend.store.events_after(ids[0]) is None
        assert await backend.store.events_after(ids[1]) == [(ids[2], half)]

    async def test_an_event_that_is_too_long(self, backend: Backend) -> None:
        """decision: it is sent and not kept, and nothing before it can be resumed from."""
        before = await backend.store.append("s", b"before", ttl=TTL)
        long = await backend.store.append("s", b"x" * (MAX_EVENT_BYTES + 1), ttl=TTL)
        assert await backend.store.events_after(before) is None
        assert await backend.store.events_after(long) is None
        after = await backend.store.append("s", b"after", ttl=TTL)
        assert await backend.store.events_after(after) == []

    async def test_the_number_of_streams_is_bounded(self, backend: Backend) -> None:
        """decision: the one that was begun first goes first."""
        first = await backend.store.append("first", b"", ttl=TTL)
        for n in range(MAX_STREAMS - 1):
            await backend.store.append(f"s{n}", b"", ttl=TTL)
        assert await backend.store.events_after(first) == []
        last = await backend.store.append("last", b"", ttl=TTL)
        assert await backend.store.events_after(first) is None
        assert await backend.store.events_after(last) == []

    @pytest.mark.parametrize(
        "event_id",
        [
            *("", "s", "s-", "-1", "s-2", "s-x", "s- 1", "\u00e9-1", "s-9999999999999999999"),
            *("s-18446744073709551616", "s-99999999999999999999999999.1"),
            *("s-.", "s-1.", "s-1.2.3", "x" * 300),
        ],
    )
    async def test_ids_that_are_none(self, backend: Backend, event_id: str) -> None:
        """decision: whatever a client sends as Last-Event-ID, it is unknown."""
        await backend.store.append("s", b"", ttl=TTL)
        assert await backend.store.events_after(event_id) is None
