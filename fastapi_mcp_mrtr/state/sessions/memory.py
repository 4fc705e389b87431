"""What older sessions keep within one process. Knows threads and a clock; no store."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

from fastapi_mcp_mrtr.state.ledger.protocol import milliseconds
from fastapi_mcp_mrtr.state.workers import warn_if_not_alone

from .listeners import Listeners
from .protocol import (
    LISTENER_LIMIT,
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_STREAMS,
    MAX_URIS,
    Listener,
    SessionData,
    SessionStoreUnavailable,
    make_event_id,
    read_event_id,
)

_CONSEQUENCE: Final = (
    "an answer to a question, or the end of a session, is LOST if it reaches another of them than "
    "the one that asked"
)
_REMEDY: Final = "What processes share is a RedisSessionStore: MCPRouter(sessions=...)."


@dataclass(slots=True)
class _Record:
    expires: float
    log_level: str | None = None
    uris: set[str] = field(default_factory=set)
    revoked: bool = False


@dataclass(slots=True)
class _Stream:
    expires: float = 0.0
    size: int = 0
    events: deque[tuple[str, bytes]] = field(default_factory=deque)
    """What each is known by, and itself."""


class MemorySessionStore:
    """Sessions of older revisions within one process, which is what a router has by default.

    ```python
    MCPRouter("travel-desk", version="1.0.0", sessions=MemorySessionStore())
    ```

    With several workers an answer would be lost wherever it reaches another worker than the one
    that asked; the log says so as an error where they are evident, once a session is used.
    `max_sessions` and `max_uris` bound the memory: so many sessions that set a log level,
    subscribed or ended, and so many subscriptions in all of them. What is more is refused with
    `SessionStoreUnavailable`; but to end a session, another one's log level is forgotten, or else
    its subscriptions, those of the latest first. Thread-safe; steps of the wall clock do not
    matter.
    """

    def __init__(
        self,
        *,
        max_sessions: int = 100_000,
        max_uris: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_sessions = max_sessions
        self._max_uris = max_uris
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, _Record] = {}
        self._queue: list[tuple[float, str]] = []
        """When to look at which record: each is in here once."""
        self._uris = 0
        # Who fills the store up came last, so the last ones go first.
        self._spare: tuple[dict[str, None], dict[str, None]] = ({}, {})
        """Sessions to forget where another one ends: without subscriptions, and with some."""
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self._marks = itertools.count(1)
        self._listeners = Listeners()
        self._warned = False

    def __len__(self) -> int:
        """How many sessions it holds, those included that have expired and are not yet removed."""
        return len(self._records)

    async def load(self, session: str) -> SessionData:
        """See `SessionStore`."""
        if not self._warned:
            self._warned = True
            warn_if_not_alone("MemorySessionStore", _CONSEQUENCE, _REMEDY)
        with self._lock:
            record = self._live(session, self._clock())
            if record is None:
                return SessionData()
            return SessionData(record.log_level, frozenset(record.uris), record.revoked)

    async def set_log_level(self, session: str, level: str, *, ttl: float) -> None:
        """See `SessionStore`."""
        with self._lock:
            record = self._begun(session, ttl)
            if not record.revoked:
                record.log_level = level

    async def subscribe(self, session: str, uri: str, *, ttl: float) -> bool:
        """See `SessionStore`."""
        with self._lock:
            record = self._begun(session, ttl)
            if uri in record.uris:
                return True
            if record.revoked or len(record.uris) >= MAX_URIS:
                return False
            if self._uris >= self._max_uris:
                raise SessionStoreUnavailable(
                    f"MemorySessionStore holds max_uris={self._max_uris} subscriptions already"
                )
            record.uris.add(uri)
            self._uris += 1
            self._sort(session, record)
            return True

    async def unsubscribe(self, session: str, uri: str) -> None:
        """See `SessionStore`."""
        with self._lock:
            record = self._live(session, self._clock())
            if record is not None and uri in record.uris:
                record.uris.remove(uri)
                self._uris -= 1
                self._sort(session, record)

    async def revoke(self, session: str, *, ttl: float) -> None:
        """See `SessionStore`."""
        with self._lock:
            record = self._begun(session, ttl, ends=True)
            self._uris -= len(record.uris)
            record.log_level, record.uris, record.revoked = None, set(), True
            self._sort(session, record)

    async def publish(self, topic: str, message: bytes) -> None:
        """See `SessionStore`."""
        self._listeners.send(topic, message)

    def listen(
        self, topic: str, *, limit: int = LISTENER_LIMIT
    ) -> AbstractAsyncContextManager[Listener]:
        """See `SessionStore`."""
        return self._listeners.listen(topic, limit)

    async def append(self, stream: str, event: bytes, *, ttl: float) -> str:
        """See `SessionStore`."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            kept = self._streams.get(stream)
            if kept is None or not now < kept.expires:
                kept = self._streams[stream] = _Stream()
            self._streams.move_to_end(stream)
            kept.expires = now + _seconds(ttl)
            mark = str(next(self._marks))
            kept.size += len(event)
            kept.events.append((mark, event))
            while len(kept.events) > MAX_EVENTS or kept.size > MAX_EVENT_BYTES:
                kept.size -= len(kept.events.popleft()[1])
            if len(self._streams) > MAX_STREAMS:
                self._streams.popitem(last=False)
            return make_event_id(stream, mark)

    async def events_after(self, event_id: str) -> list[tuple[str, bytes]] | None:
        """See `SessionStore`."""
        named = read_event_id(event_id)
        if named is None:
            return None
        stream, mark = named
        with self._lock:
            kept = self._streams.get(stream)
            if kept is None or not self._clock() < kept.expires:
                return None
            events = iter(tuple(kept.events))
        # Up to the one that is named, which leaves those after it.
        if not any(known == mark for known, _ in events):
            return None
        return [(make_event_id(stream, later), event) for later, event in events]

    async def aclose(self) -> None:
        """See `SessionStore`. There is nothing to close."""

    def _forget(self, now: float) -> None:
        """Remove the streams that have expired, unless one that was used earlier lives longer."""
        while self._streams and not now < next(iter(self._streams.values())).expires:
            self._streams.popitem(last=False)

    def _live(self, session: str, now: float) -> _Record | None:
        record = self._records.get(session)
        return record if record is not None and now < record.expires else None

    def _begun(self, session: str, ttl: float, *, ends: bool = False) -> _Record:
        """The record of a session, which is there for `ttl` seconds more. `ends`: at the cost of
        another one that has not ended."""
        now = self._clock()
        self._sweep(now)
        expires = now + _seconds(ttl)
        record = self._records.get(session)
        if record is None:
            if len(self._records) >= self._max_sessions and not (ends and self._made_room()):
                raise SessionStoreUnavailable(
                    f"MemorySessionStore holds max_sessions={self._max_sessions} sessions already"
                )
            record = self._records[session] = _Record(expires)
            heapq.heappush(self._queue, (expires, session))
            self._sort(session, record)
        record.expires = max(record.expires, expires)
        return record

    def _sweep(self, now: float) -> None:
        """Remove what has expired. Each record is looked at when it would have, at first."""
        while self._queue and not now < self._queue[0][0]:
            _, session = heapq.heappop(self._queue)
            record = self._records.get(session)
            if record is None:
                continue  # forgotten before
            if now < record.expires:
                heapq.heappush(self._queue, (record.expires, session))
            else:
                self._remove(session)

    def _sort(self, session: str, record: _Record) -> None:
        """Say whether it may be forgotten, and after which others."""
        for has_uris, spare in enumerate(self._spare):
            if record.revoked or bool(record.uris) != has_uris:
                spare.pop(session, None)
            else:
                spare.setdefault(session)

    def _made_room(self) -> bool:
        spare = next(filter(None, self._spare), None)
        if spare is not None:
            self._remove(next(reversed(spare)))
        return spare is not None

    def _remove(self, session: str) -> None:
        self._uris -= len(self._records.pop(session).uris)
        for spare in self._spare:
            spare.pop(session, None)


def _seconds(span: float) -> float:
    return milliseconds(span) / 1000
