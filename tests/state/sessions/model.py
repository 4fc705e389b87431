"""Every session store, driven at random by two workers and held against a few dictionaries."""

import asyncio
import itertools
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    rule,
)

from fastapi_mcp_mrtr.state.sessions import Listener, SessionData, SessionStore
from tests.state.ledger.backends import unique

from .backends import Backend

T = TypeVar("T")

# Thousands of seconds: what the test itself takes must not count.
TTLS = st.sampled_from([1000, 9000])
STEPS = st.sampled_from([1000, 2000, 4000, 9000])

NAMES = st.sampled_from("aab")
LEVELS = st.sampled_from(["debug", "error"])
URIS = st.sampled_from(["a://1", "a://1", "b://\u00e9", "log_level", "revoked"])
EVENTS = st.sampled_from([b"", b"\x00\xff", b"x" * 1000])


@dataclass
class Record:
    expires: float
    log_level: str | None = None
    uris: set[str] = field(default_factory=set)
    revoked: bool = False


@dataclass
class Stream:
    expires: float
    events: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass(eq=False)
class Heard:
    """One listener and the numbers of the messages it has yet to receive."""

    since: int
    topic: str
    listener: Listener
    context: AbstractAsyncContextManager[Listener]
    expected: list[int] = field(default_factory=list)


class StoreMachine(RuleBasedStateMachine):
    """Two workers, two sessions, two streams and two topics."""

    event_ids: "Bundle[str]" = Bundle("event_ids")
    listeners: "Bundle[Heard]" = Bundle("listeners")

    def __init__(self, runner: asyncio.Runner, backend: Backend) -> None:
        super().__init__()
        self.runner = runner
        self.backend = backend
        self.now = 0.0
        self.records: dict[str, Record] = {}
        self.streams: dict[str, Stream] = {}
        self.heard: list[Heard] = []
        self.numbers = itertools.count()

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(job)

    @initialize()
    def begin(self) -> None:
        self.prefix = unique("")

    def store(self, second: bool) -> SessionStore:
        return self.backend.other if second else self.backend.store

    # ------------------------------------------------------------------------------ sessions

    def seen(self, name: str) -> Record | None:
        record = self.records.get(name)
        return record if record is not None and self.now < record.expires else None

    def begun(self, name: str, ttl: float) -> Record:
        record = self.seen(name)
        if record is None:
            record = self.records[name] = Record(self.now + ttl)
        record.expires = max(record.expires, self.now + ttl)
        return record

    @rule(name=NAMES, second=st.booleans())
    def load(self, name: str, second: bool) -> None:
        record = self.seen(name)
        expected = SessionData()
        if record is not None:
            expected = SessionData(record.log_level, frozenset(record.uris), record.revoked)
        assert self.run(self.store(second).load(self.prefix + name)) == expected

    @rule(name=NAMES, level=LEVELS, ttl=TTLS, second=st.booleans())
    def set_log_level(self, name: str, level: str, ttl: float, second: bool) -> None:
        self.run(self.store(second).set_log_level(self.prefix + name, level, ttl=ttl))
        record = self.begun(name, ttl)
        if not record.revoked:
            record.log_level = level

    @rule(name=NAMES, uri=URIS, ttl=TTLS, second=st.booleans())
    def subscribe(self, name: str, uri: str, ttl: float, second: bool) -> None:
        done = self.run(self.store(second).subscribe(self.prefix + name, uri, ttl=ttl))
        record = self.begun(name, ttl)
        assert done is not record.revoked
        if done:
            record.uris.add(uri)

    @rule(name=NAMES, uri=URIS, second=st.booleans())
    def unsubscribe(self, name: str, uri: str, second: bool) -> None:
        self.run(self.store(second).unsubscribe(self.prefix + name, uri))
        record = self.seen(name)
        if record is not None:
            record.uris.discard(uri)

    @rule(name=NAMES, ttl=TTLS, second=st.booleans())
    def revoke(self, name: str, ttl: float, second: bool) -> None:
        self.run(self.store(second).revoke(self.prefix + name, ttl=ttl))
        record = self.begun(name, ttl)
        record.log_level, record.uris, record.revoked = None, set(), True

    # -------------------------------------------------------------------------------- events

    @rule(target=event_ids, name=NAMES, event=EVENTS, ttl=TTLS, second=st.booleans())
    def append(self, name: str, event: bytes, ttl: float, second: bool) -> str:
        event_id = self.run(self.store(second).append(self.prefix + name, event, ttl=ttl))
        stream = self.streams.get(name)
        if stream is None or not self.now < stream.expires:
            stream = self.streams[name] = Stream(0)
        stream.expires = self.now + ttl
        assert event_id not in dict(stream.events)
        stream.events.append((event_id, event))
        return event_id

    @rule(event_id=event_ids, second=st.booleans())
    def events_after(self, event_id: str, second: bool) -> None:
        expected = None
        for stream in self.streams.values():
            ids = [known for known, _ in stream.events]
            if event_id in ids and self.now < stream.expires:
                expected = stream.events[ids.index(event_id) + 1 :]
        assert self.run(self.store(second).events_after(event_id)) == expected

    # ------------------------------------------------------------------------------ messages

    @rule(target=listeners, name=NAMES, second=st.booleans())
    def listen(self, name: str, second: bool) -> Heard:
        context = self.store(second).listen(self.prefix + name, limit=100)
        listener = self.run(context.__aenter__())
        heard = Heard(next(self.numbers), name, listener, context)
        self.heard.append(heard)
        return heard

    @rule(name=NAMES, second=st.booleans())
    def publish(self, name: str, second: bool) -> None:
        number = next(self.numbers)
        self.run(self.store(second).publish(self.prefix + name, b"\xff%d" % number))
        for heard in self.heard:
            if heard.topic == name:
                heard.expected.append(number)

    @rule(heard=listeners)
    def receive(self, heard: Heard) -> None:
        if heard in self.heard:
            self.run(self.drain(heard))

    @rule(heard=consumes(listeners))
    def leave(self, heard: Heard) -> None:
        if heard in self.heard:
            self.heard.remove(heard)
            self.run(self.end(heard))

    async def drain(self, heard: Heard) -> None:
        received: list[int] = []
        async with asyncio.timeout(60):
            while len(received) < len(heard.expected):
                number = int((await heard.listener.receive())[1:])
                # What was published just before may come as well.
                if number > heard.since:
                    received.append(number)
        # Those of this worker may overtake those of another.
        assert sorted(received) == heard.expected
        heard.expected.clear()

    async def end(self, heard: Heard) -> None:
        await self.drain(heard)
        await heard.context.__aexit__(None, None, None)

    # ---------------------------------------------------------------------------------- time

    @rule(seconds=STEPS)
    def wait(self, seconds: float) -> None:
        for heard in self.heard:
            self.run(self.drain(heard))
        self.run(self.backend.advance(seconds))
        self.now += seconds

    def teardown(self) -> None:
        for heard in self.heard:
            self.run(self.end(heard))
        self.run(self.backend.advance(20_000))
        assert self.run(self.backend.leftovers()) == 0
