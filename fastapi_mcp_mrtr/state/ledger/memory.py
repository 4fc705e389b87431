"""The ledger of one process. Knows threads and a clock; no event loop, no store."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fastapi_mcp_mrtr.state.workers import warn_if_not_alone

from .protocol import (
    CLAIMS,
    OWNS,
    RUNNING,
    Claim,
    Claimed,
    LedgerUnavailable,
    Presented,
    Status,
    Use,
    milliseconds,
    new_owner,
    presented,
    unclaimed,
)

# Each call removes at most so many, so that none waits for the end of a busy hour; and since a call
# adds at most one, the expired ones are soon gone.
_SWEPT_AT_ONCE: Final = 64

_REMEDY: Final = "What processes share is a RedisLedger or an SQLLedger."


@dataclass(slots=True)
class _Record:
    round: int
    fingerprint: str
    status: Status
    owner: str
    lease_ends: float
    expires: float
    queued: float = 0.0
    """When the queue will look at the record; never later than it expires."""
    response: bytes = b""

    def seen(self, now: float) -> Status:
        is_over = self.status in RUNNING and not now < self.lease_ends
        return Status.LAPSED if is_over else self.status


class MemoryLedger:
    """Single use within one process: nothing is shared, and a restart forgets everything.

    ```python
    MCPRouter("travel-desk", version="1.0.0", ledger=MemoryLedger())
    ```

    With several workers a state could be used once in each of them; the log says so as an error
    where they are evident. `max_flows` bounds the memory: when so many flows are under way, a new
    one is refused with `LedgerUnavailable`. Thread-safe; steps of the wall clock do not matter.
    """

    def __init__(
        self, *, max_flows: int = 100_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_flows = max_flows
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, _Record] = {}
        self._queue: list[tuple[float, str]] = []
        warn_if_not_alone("MemoryLedger", "a state can be used ONCE IN EACH of them", _REMEDY)

    def __len__(self) -> int:
        """How many flows it holds, those included that have expired and are not yet removed."""
        return len(self._records)

    async def claim(
        self, flow: str, round: int, fingerprint: str, *, lease: float, ttl: float
    ) -> Claim:
        """See `Ledger`."""
        with self._lock:
            now = self._clock()
            self._sweep(now)
            record = self._live(flow, now)
            if record is None:
                status, relation = Status.ABSENT, Presented.LATER
                self._make_room(now)
            else:
                status = record.seen(now)
                relation = presented(record.round, record.fingerprint, round, fingerprint)
                refusal = unclaimed(
                    status,
                    relation,
                    lease_left=record.lease_ends - now,
                    response=record.response,
                )
                if refusal is not None:
                    return refusal
            becomes = CLAIMS[status][relation].becomes
            owner = new_owner()
            lease_ends = now + _seconds(lease)
            expires = max(lease_ends, now + _seconds(ttl))
            self._put(flow, _Record(round, fingerprint, becomes, owner, lease_ends, expires))
            return Claimed(owner, becomes is Status.TAKEN_OVER)

    async def renew(self, flow: str, round: int, owner: str, *, lease: float) -> bool:
        """See `Ledger`."""
        with self._lock:
            now = self._clock()
            record = self._owned(flow, round, owner, now)
            if record is None or record.status not in RUNNING:
                return False
            record.lease_ends = now + _seconds(lease)
            record.expires = max(record.expires, record.lease_ends)
            return True

    async def answer(
        self, flow: str, round: int, owner: str, response: bytes, *, ttl: float
    ) -> bool:
        """See `Ledger`."""
        with self._lock:
            now = self._clock()
            record = self._owned(flow, round, owner, now)
            if record is None:
                return False
            if record.status not in RUNNING:
                return record.status is Status.ANSWERED and record.response == response
            record.status, record.response = OWNS[record.status][Use.ANSWER], response
            record.expires = now + _seconds(ttl)
            self._put(flow, record)
            return True

    async def release(self, flow: str, round: int, owner: str, *, ran: bool) -> None:
        """See `Ledger`."""
        with self._lock:
            record = self._owned(flow, round, owner, self._clock())
            if record is not None and record.status in RUNNING:
                use = Use.RELEASE_RAN if ran else Use.RELEASE
                record.status, record.owner = OWNS[record.status][use], ""

    async def aclose(self) -> None:
        """See `Ledger`. There is nothing to close."""

    def _live(self, flow: str, now: float) -> _Record | None:
        record = self._records.get(flow)
        if record is not None and not now < record.expires:
            del self._records[flow]
            return None
        return record

    def _owned(self, flow: str, round: int, owner: str, now: float) -> _Record | None:
        self._sweep(now)
        record = self._live(flow, now)
        is_owned = record is not None and (record.round, record.owner) == (round, owner)
        return record if is_owned else None

    def _put(self, flow: str, record: _Record) -> None:
        """Keep a record, and have the queue look at it no later than it expires."""
        before = self._records.get(flow)
        if before is not None and before.queued <= record.expires:
            record.queued = before.queued
        else:
            record.queued = record.expires
            heapq.heappush(self._queue, (record.expires, flow))
        self._records[flow] = record

    def _make_room(self, now: float) -> None:
        if len(self._records) >= self._max_flows:
            self._sweep(now, at_most=len(self._queue))
        if len(self._records) >= self._max_flows:
            raise LedgerUnavailable(f"MemoryLedger holds max_flows={self._max_flows} flows already")

    def _sweep(self, now: float, *, at_most: int = _SWEPT_AT_ONCE) -> None:
        for _ in range(at_most):
            if not self._queue or now < self._queue[0][0]:
                return
            queued, flow = heapq.heappop(self._queue)
            record = self._records.get(flow)
            # An entry that the record no longer counts on was followed by an earlier one.
            if record is None or record.queued != queued:
                continue
            if now < record.expires:
                record.queued = record.expires
                heapq.heappush(self._queue, (record.expires, flow))
            else:
                del self._records[flow]


def _seconds(span: float) -> float:
    return milliseconds(span) / 1000
