"""What the rounds of a call were given, kept for whoever makes the call again."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from fastapi_mcp_mrtr import AESGCMCodec, KeyRing, Ledger, MCPError
from fastapi_mcp_mrtr.server.dialogue import Dialogue
from fastapi_mcp_mrtr.server.single_use import CLOCK_TOLERANCE, SingleUse
from tests.state.ledger.backends import Backend, in_memory, in_redis
from tests.state.ledger.services import RedisServer

from .once import SECRET, Store, until

pytestmark = pytest.mark.anyio

FLOW = "f" * 32
LEASE = 30.0
TTL = 3600.0


@pytest.fixture(params=["memory", "redis"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    if request.param == "memory":
        async with in_memory() as backend:
            yield backend
        return
    with RedisServer() as server:
        async with in_redis(server.url) as backend:
            yield backend


def dialogue(ledger: Ledger, **settings: Any) -> Dialogue:
    ring = KeyRing.of(SECRET)
    options = {"audience": "desk", "lease": LEASE, "max_response_bytes": 100_000, **settings}
    return Dialogue(SingleUse(ledger, AESGCMCodec(ring), ring, **options), FLOW, ttl=TTL)


def entry(number: int) -> dict[str, Any]:
    return {"requestState": f"state {number}", "inputResponses": {"a": {"n": number}}}


async def test_the_last_entry_is_found(backend: Backend) -> None:
    """decision: two records are enough, however long the dialogue, and any worker reads them."""
    mine = dialogue(backend.ledger)
    for number in range(1, 8):
        assert await mine.add(entry(number)) == entry(number)
        theirs = dialogue(backend.other)
        assert await theirs.last() == entry(number)
        assert await theirs.last() is None
    assert await backend.leftovers() == 2
    await backend.advance(TTL + LEASE + CLOCK_TOLERANCE)
    assert await backend.leftovers() == 0


async def test_a_look_takes_nothing_away(backend: Backend) -> None:
    """decision: who looks for the next entry leaves the last one, as long as it is wanted."""
    mine = dialogue(backend.ledger)
    for number in range(1, 5):
        assert await mine.last() is None
        await mine.add(entry(number))
    assert await mine.last() is None
    await backend.advance(TTL - 1)
    assert await dialogue(backend.other).last() == entry(4)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_the_last_entry_is_found(seed: int) -> None:
    """decision: whoever looks, writes or dies in between, in any order."""
    chance = random.Random(seed)
    store = Store()
    talks = [dialogue(store) for _ in range(3)]
    last: Any = None
    for number in range(60):
        which = chance.randrange(3)
        match chance.randrange(5):
            case 0:
                talks[which] = dialogue(store)
            case 1:
                await talks[which].last()
            case 2:
                store.away = {chance.choice(["answer", "release"])}
                with suppress(MCPError):
                    await talks[which].last()
                    store.clock.now += LEASE
                    if await talks[which].add(entry(number)) == entry(number):
                        last = entry(number)
                store.away.clear()
                store.clock.now += LEASE
            case _:
                if await talks[which].add(entry(number)) == entry(number):
                    last = entry(number)
        fresh = dialogue(store)
        assert await fresh.last() == last
    assert last is not None


async def test_the_first_entry_counts(backend: Backend) -> None:
    """decision: nothing runs with two different answers."""
    mine, theirs = dialogue(backend.ledger), dialogue(backend.other)
    assert await mine.add(entry(1)) == entry(1)
    assert await theirs.add(entry(9)) == entry(1)
    # From there on it is one dialogue.
    assert await theirs.add(entry(2)) == entry(2)
    assert await mine.last() == entry(2)


async def test_who_is_behind_reads_on(backend: Backend) -> None:
    """decision: an entry that would be an earlier one is not made."""
    mine, theirs = dialogue(backend.ledger), dialogue(backend.other)
    for number in range(1, 4):
        await theirs.add(entry(number))
    assert await mine.add(entry(1)) is None
    assert await mine.last() == entry(3)


async def test_a_worker_that_dies_while_it_writes(backend: Backend) -> None:
    """decision: what was there before is there still."""
    mine, theirs = dialogue(backend.ledger), dialogue(backend.other)
    for number in (1, 2):
        await mine.add(entry(number))
    at = mine._place(3)
    await backend.ledger.claim(at.flow, at.round, at.fingerprint, lease=LEASE, ttl=TTL)
    await backend.advance(LEASE)
    assert await theirs.last() == entry(2)
    assert await theirs.add(entry(3)) == entry(3)
    assert await dialogue(backend.ledger).last() == entry(3)


async def test_a_worker_that_writes_late() -> None:
    """decision: whoever took over while it wrote was first."""
    store = Store()
    store.held_up["claim"] = asyncio.Event()
    late = asyncio.ensure_future(dialogue(store).add(entry(1)))
    await until(lambda: "claim" in store.calls)
    store.clock.now += LEASE
    go_on = store.held_up.pop("claim")
    assert await dialogue(store).add(entry(2)) == entry(2)
    go_on.set()
    assert await late == entry(2)


async def test_what_is_too_large_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    """decision: the call goes on all the same; only the client cannot make it again."""
    store = Store()
    mine = dialogue(store, max_response_bytes=500)
    large = {"requestState": "x" * 500}
    with caplog.at_level(logging.WARNING):
        assert await mine.add(large) == large
    assert "too large to be kept" in caplog.text
    assert "xxx" not in caplog.text
    assert store.records == {}
    assert await mine.add(entry(2)) == entry(2)
    assert await dialogue(store).last() is None


async def test_what_could_not_be_read_again_is_not_kept() -> None:
    """hostile: an answer as deeply nested as a body may be is a level too deep for an entry."""
    deep: Any = []
    for _ in range(203):
        deep = [deep]
    store = Store()
    assert await dialogue(store).add({"inputResponses": deep}) == {"inputResponses": deep}
    assert store.records == {}


@pytest.mark.parametrize("method", ["claim", "answer"])
async def test_a_ledger_that_is_away(method: str) -> None:
    """decision: fail closed, as for a round; the client may try again."""
    store = Store()
    store.away = {method}
    with pytest.raises(MCPError) as raised:
        await dialogue(store).add(entry(1))
    assert (raised.value.code, raised.value.data) == (-31003, {"retryable": True})


async def test_an_entry_that_the_store_made_up(backend: Backend) -> None:
    """hostile: who can write to the store cannot put words into a dialogue."""
    mine = dialogue(backend.ledger)
    at = mine._place(1)
    claim: Any = await backend.ledger.claim(at.flow, at.round, at.fingerprint, lease=LEASE, ttl=TTL)
    await backend.ledger.answer(at.flow, at.round, claim.owner, b"made up", ttl=TTL)
    assert await mine.last() is None
