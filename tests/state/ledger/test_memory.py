"""The ledger of one process: bounded, thread-safe, and loud where it is not enough."""

import asyncio
import inspect
import logging
import multiprocessing
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastapi_mcp_mrtr.state.ledger import Answered, Claimed, Held, LedgerUnavailable, MemoryLedger

from .backends import FakeClock

pytestmark = pytest.mark.anyio


async def begin(ledger: MemoryLedger, flow: str, *, ttl: float, lease: float = 1.0) -> str:
    claimed = await ledger.claim(flow, 0, "x", lease=lease, ttl=ttl)
    assert isinstance(claimed, Claimed)
    return claimed.owner


def test_threads_claim_once() -> None:
    """decision: each worker thread has an event loop of its own, as test clients do."""
    ledger = MemoryLedger()
    together = threading.Barrier(8)

    def present(_: int) -> list[type]:
        async def claims() -> list[type]:
            found = [await ledger.claim(f"f{n}", 0, "x", lease=60, ttl=60) for n in range(200)]
            return [type(claim) for claim in found]

        together.wait()
        return asyncio.run(claims())

    with ThreadPoolExecutor(8) as threads:
        counted = Counter(kind for kinds in threads.map(present, range(8)) for kind in kinds)
    assert counted == {Claimed: 200, Held: 1400}


def test_the_clock_is_monotonic() -> None:
    """decision: a step of the wall clock neither ends a lease nor brings an old state back."""
    clock = inspect.signature(MemoryLedger).parameters["clock"].default
    assert clock is time.monotonic


# ---------------------------------------------------------------------------------- its bounds


async def test_a_full_one_refuses_new_flows_only() -> None:
    """decision: memory is bounded; flows under way go on, and nothing of them is forgotten."""
    ledger = MemoryLedger(max_flows=2, clock=FakeClock())
    owner = await begin(ledger, "a", ttl=60)
    await begin(ledger, "b", ttl=60)
    with pytest.raises(LedgerUnavailable, match="max_flows=2"):
        await begin(ledger, "c", ttl=60)
    assert await ledger.answer("a", 0, owner, b"yes", ttl=60)
    assert await ledger.claim("a", 0, "x", lease=1, ttl=60) == Answered(b"yes")
    assert isinstance(await ledger.claim("a", 1, "x", lease=1, ttl=60), Claimed)


async def test_what_has_expired_makes_room() -> None:
    """decision: however many have to be looked at to find one."""
    clock = FakeClock()
    ledger = MemoryLedger(max_flows=300, clock=clock)
    owners = [await begin(ledger, f"f{n}", ttl=10) for n in range(299)]
    await begin(ledger, "last", ttl=11)
    for n, owner in enumerate(owners):
        assert await ledger.renew(f"f{n}", 0, owner, lease=100)
    clock.now += 11
    await begin(ledger, "new", ttl=10)
    assert len(ledger) == 300


async def test_20_000_unfinished_first_rounds() -> None:
    """decision: abandoned flows are gone after their time, a few with each call."""
    clock = FakeClock()
    ledger = MemoryLedger(clock=clock)
    for n in range(20_000):
        await begin(ledger, f"f{n}", ttl=600)
        clock.now += 0.1
    # 2,000 seconds have passed; what began in the last 600 of them may still come back.
    assert len(ledger) <= 6001
    clock.now += 600
    for _ in range(100):
        await ledger.renew("f", 0, "nobody", lease=1)
    assert len(ledger) == 0


async def test_one_call_removes_a_few() -> None:
    """decision: no request waits until a busy hour is cleared away."""
    clock = FakeClock()
    ledger = MemoryLedger(clock=clock)
    for n in range(1000):
        await begin(ledger, f"f{n}", ttl=10)
    clock.now += 10
    await begin(ledger, "new", ttl=10)
    assert 900 < len(ledger) < 1000
    # One that is still there is gone all the same.
    assert await begin(ledger, "f999", ttl=10)


async def test_an_expiry_that_comes_nearer() -> None:
    """decision: the last answer may be kept for less time than the flow had."""
    clock = FakeClock()
    ledger = MemoryLedger(clock=clock)
    owner = await begin(ledger, "a", ttl=100)
    assert await ledger.answer("a", 0, owner, b"yes", ttl=10)
    clock.now += 10
    await ledger.renew("b", 0, "nobody", lease=1)
    assert len(ledger) == 0
    await begin(ledger, "a", ttl=1000)
    clock.now += 90  # where the first claim would have ended
    await ledger.renew("b", 0, "nobody", lease=1)
    assert len(ledger) == 1


async def test_rounds_of_a_flow_leave_no_trace() -> None:
    """decision: a flow takes the same room however often it was claimed, answered, renewed."""
    ledger = MemoryLedger(clock=FakeClock())
    for n in range(1000):
        claimed = await ledger.claim("a", n, "x", lease=1, ttl=100)
        assert isinstance(claimed, Claimed)
        await ledger.answer("a", n, claimed.owner, b"yes", ttl=100)
    assert len(ledger._queue) == 1
    await ledger.aclose()


# -------------------------------------------------------------------------------- the warnings


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that nothing says has siblings."""
    monkeypatch.setattr(sys, "argv", ["uvicorn", "app:app"])
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: None)
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    monkeypatch.delenv("GUNICORN_CMD_ARGS", raising=False)
    return monkeypatch


def test_one_process_is_not_warned(
    alone: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: right for one process on a laptop."""
    MemoryLedger()
    assert not caplog.records


def test_several_workers_are_an_error(
    alone: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """user report: a single-use marker in process memory protects nothing with two replicas."""
    alone.setattr(sys, "argv", ["uvicorn", "app:app", "--workers", "4"])
    MemoryLedger()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fastapi_mcp_mrtr", logging.ERROR)
    assert "4 worker processes" in record.getMessage()
    assert "RedisLedger" in record.getMessage()


def test_a_child_process_is_told_about_siblings(
    alone: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: uvicorn.run(workers=...) leaves no trace but the parent."""
    alone.setattr(multiprocessing, "parent_process", object)
    MemoryLedger()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fastapi_mcp_mrtr", logging.WARNING)
    assert "siblings" in record.getMessage()
