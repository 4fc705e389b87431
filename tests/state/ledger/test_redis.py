"""Redis, or what REDIS_SERVER names: outages, lost replies, what users configure."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import DataError

from fastapi_mcp_mrtr.state.ledger import Answered, Claimed, Held, LedgerUnavailable
from fastapi_mcp_mrtr.state.ledger.redis import RedisLedger

from .backends import unique
from .proxy import Proxy
from .services import RedisServer

pytestmark = pytest.mark.anyio

LEASE = 1000.0
TTL = 5000.0


async def owner_of(ledger: RedisLedger, flow: str = "f", round: int = 0) -> str:
    claimed = await ledger.claim(flow, round, "x", lease=LEASE, ttl=TTL)
    assert isinstance(claimed, Claimed)
    return claimed.owner


@pytest.fixture
async def ledger(redis_server: RedisServer) -> AsyncIterator[RedisLedger]:
    """A ledger on keys of its own."""
    ledger = RedisLedger(redis_server.url, prefix=unique("test:"))
    yield ledger
    await ledger.aclose()


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy.before(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy: Proxy) -> AsyncIterator[RedisLedger]:
    """A ledger that reaches its store through the proxy, on a connection that is there."""
    url = f"redis://127.0.0.1:{proxy.port}"
    ledger = RedisLedger(url, prefix=unique("test:"), timeout=60)
    await ledger.claim("first", 0, "x", lease=LEASE, ttl=TTL)
    yield ledger
    await ledger.aclose()


# ------------------------------------------------------------------------------------ outages


async def test_a_restart() -> None:
    """decision: fails closed while the store is away, then goes on with what it knew."""
    with RedisServer() as server:
        ledger = RedisLedger(server.url, timeout=5)
        impatient = RedisLedger(server.url, timeout=1)
        owner = await owner_of(ledger)
        await impatient.renew("f", 0, owner, lease=LEASE)
        with server.away():
            with pytest.raises(LedgerUnavailable, match=r"Redis: ConnectionError: .*connecting"):
                await impatient.claim("g", 0, "x", lease=LEASE, ttl=TTL)
            with pytest.raises(LedgerUnavailable):
                await impatient.answer("f", 0, owner, b"no", ttl=TTL)
            with pytest.raises(LedgerUnavailable):
                await impatient.renew("f", 0, owner, lease=LEASE)
            with pytest.raises(LedgerUnavailable):
                await impatient.release("f", 0, owner, ran=True)
        # The scripts have to be sent again, too.
        assert await ledger.answer("f", 0, owner, b"yes", ttl=TTL)
        assert await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL) == Answered(b"yes")
        await impatient.aclose()
        await ledger.aclose()


async def test_a_call_waits_for_the_store_to_come_back() -> None:
    """decision: work that was done is not lost to a restart that is shorter than the timeout."""
    with RedisServer() as server:
        ledger = RedisLedger(server.url, timeout=60)
        owner = await owner_of(ledger)
        server.stop()
        answering = asyncio.create_task(ledger.answer("f", 0, owner, b"yes", ttl=TTL))
        await asyncio.sleep(0)
        await asyncio.to_thread(server.start)
        assert await answering
        await ledger.aclose()


async def test_a_store_that_is_killed() -> None:
    """decision: a crash of the store is an outage like another, as far as it writes to disk."""
    with RedisServer() as server:
        server.say("CONFIG", "SET", "appendfsync", "always")
        ledger = RedisLedger(server.url)
        owner = await owner_of(ledger)
        server.kill()
        server.start()
        assert await ledger.answer("f", 0, owner, b"yes", ttl=TTL)
        await ledger.aclose()


@pytest.mark.parametrize("fails", [Proxy.swallow, Proxy.freeze])
async def test_a_store_that_does_not_answer(proxy: Proxy, fails: Callable[[Proxy], None]) -> None:
    """decision: a call takes as long as it may, and the next one after the outage is served."""
    async with Redis.from_url(f"redis://127.0.0.1:{proxy.port}") as client:
        prefix = unique("test:")
        patient = RedisLedger(client, prefix=prefix, timeout=60)
        await owner_of(patient)
        ledger = RedisLedger(client, prefix=prefix, timeout=0.2)
        fails(proxy)
        with pytest.raises(LedgerUnavailable, match=r"no answer within 0\.2 seconds"):
            await ledger.renew("f", 0, "nobody", lease=LEASE)
        proxy.heal()
        assert await owner_of(patient, "g")


# ------------------------------------------------------------------------------- lost replies


async def test_a_claim_whose_reply_was_lost(behind: RedisLedger, proxy: Proxy) -> None:
    """decision: asked again, the store recognises the owner: nobody waits for a ghost's lease."""
    proxy.lose_next_reply()
    claimed = await behind.claim("f", 0, "x", lease=LEASE, ttl=TTL)
    assert isinstance(claimed, Claimed)
    assert not claimed.is_takeover
    assert isinstance(await behind.claim("f", 0, "x", lease=LEASE, ttl=TTL), Held)


async def test_a_takeover_whose_reply_was_lost(behind: RedisLedger, proxy: Proxy) -> None:
    """decision: it is one, the second time too."""
    await behind.release("f", 0, await owner_of(behind), ran=True)
    proxy.lose_next_reply()
    claimed = await behind.claim("f", 0, "x", lease=LEASE, ttl=TTL)
    assert isinstance(claimed, Claimed)
    assert claimed.is_takeover


async def test_an_answer_whose_reply_was_lost(behind: RedisLedger, proxy: Proxy) -> None:
    """decision: it was stored, so that is what is said."""
    owner = await owner_of(behind)
    assert await behind.renew("f", 0, owner, lease=LEASE)
    await behind.answer("first", 0, "nobody", b"", ttl=TTL)
    proxy.lose_next_reply()
    assert await behind.answer("f", 0, owner, b"yes", ttl=TTL)
    assert await behind.claim("f", 0, "x", lease=LEASE, ttl=TTL) == Answered(b"yes")


async def test_the_others_whose_reply_was_lost(behind: RedisLedger, proxy: Proxy) -> None:
    """decision: a heartbeat and a release say the same twice."""
    owner = await owner_of(behind)
    proxy.lose_next_reply()
    assert await behind.renew("f", 0, owner, lease=LEASE)
    proxy.lose_next_reply()
    await behind.release("f", 0, owner, ran=False)
    await owner_of(behind)


async def test_a_claim_that_nobody_waits_for(
    behind: RedisLedger, proxy: Proxy, redis_server: RedisServer
) -> None:
    """decision: a client that disconnects while its claim is under way can come back at once."""
    proxy.swallow()
    claiming = asyncio.create_task(behind.claim("f", 0, "x", lease=LEASE, ttl=TTL))
    key = f"{behind._prefix}{{f}}"
    async with Redis.from_url(redis_server.url) as redis:
        while not await redis.exists(key):
            pass
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        proxy.heal()
        await behind.aclose()
        assert await redis.hget(key, "status") == b"open"


# ----------------------------------------------------------------------------- what is stored


async def test_what_is_stored_has_an_end(redis_server: RedisServer) -> None:
    """decision: the store forgets by itself, with no ledger left that could tell it to."""
    ledger = RedisLedger(redis_server.url, prefix=unique("test:"))
    owner = await owner_of(ledger)
    async with Redis.from_url(redis_server.url) as redis:
        (key,) = [key async for key in redis.scan_iter(f"{ledger._prefix}*")]
        assert key.decode() == f"{ledger._prefix}{{f}}"
        assert 0 < await redis.pttl(key) <= TTL * 1000
        await ledger.answer("f", 0, owner, b"yes", ttl=0.002)
        await ledger.aclose()
        # Two milliseconds of the store's own clock, and nothing but asking it.
        while await redis.exists(key):
            pass
        assert not [key async for key in redis.scan_iter(f"{ledger._prefix}*")]


async def test_the_response_goes_with_the_next_round(redis_server: RedisServer) -> None:
    """decision: what can no longer be asked for is not kept."""
    ledger = RedisLedger(redis_server.url, prefix=unique("test:"))
    await ledger.answer("f", 0, await owner_of(ledger), b"yes", ttl=TTL)
    await owner_of(ledger, round=1)
    async with Redis.from_url(redis_server.url) as redis:
        assert not await redis.hexists(f"{ledger._prefix}{{f}}", "response")
    await ledger.aclose()


# -------------------------------------------------------------------------- what users bring


async def test_a_client_that_decodes(redis_server: RedisServer) -> None:
    """decision: most apps have such a client already, and a response is no text."""
    async with Redis.from_url(redis_server.url, decode_responses=True) as client:
        ledger = RedisLedger(client, prefix=unique("test:"))
        owner = await owner_of(ledger)
        assert await ledger.answer("f", 0, owner, b"\xff\x00", ttl=TTL)
        assert await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL) == Answered(b"\xff\x00")


async def test_a_client_of_the_older_protocol(redis_server: RedisServer) -> None:
    """decision: RESP2 and RESP3 alike."""
    for protocol in (2, 3):
        async with Redis.from_url(redis_server.url, protocol=protocol) as client:
            ledger = RedisLedger(client, prefix=unique("test:"))
            owner = await owner_of(ledger)
            assert await ledger.answer("f", 0, owner, b"\xff", ttl=TTL)
            assert await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL) == Answered(b"\xff")


async def test_a_client_stays_its_owners(redis_server: RedisServer) -> None:
    """decision: what was handed in is not closed."""
    async with Redis.from_url(redis_server.url) as client:
        ledger = RedisLedger(client, prefix=unique("test:"))
        await owner_of(ledger)
        connections = client.connection_pool._available_connections
        await ledger.aclose()
        assert connections
        assert all(connection.is_connected for connection in connections)


async def test_a_cluster_that_is_down(redis_cluster_server: RedisServer) -> None:
    """decision: an outage of a cluster is an outage."""
    with RedisServer(cluster=True) as server:
        async with RedisCluster.from_url(redis_cluster_server.url) as client:
            ledger = RedisLedger(client, prefix=unique("test:"))
            await owner_of(ledger)
        ledger = RedisLedger(server.url, timeout=1)
        with pytest.raises(LedgerUnavailable, match=r"ClusterDownError|CLUSTERDOWN"):
            await owner_of(ledger)
        await ledger.aclose()


def test_a_loop_for_each_request(redis_server: RedisServer) -> None:
    """decision: a test client runs each request in an event loop of its own, and closes nothing."""
    ledger = RedisLedger(redis_server.url, prefix=unique("test:"))
    owner = asyncio.run(owner_of(ledger))
    assert asyncio.run(ledger.answer("f", 0, owner, b"yes", ttl=TTL))
    again = asyncio.run(ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL))
    assert again == Answered(b"yes")
    gc.collect()  # a connection that was left open would be told of here, as an error
    assert not ledger._client._made._lives


# ------------------------------------------------------------------------------ what is wrong


async def test_a_mistake_is_told_at_once() -> None:
    """decision: no use waiting for a password; and the message quotes no command."""
    with RedisServer() as server:
        server.say("CONFIG", "SET", "requirepass", "x")
        ledger = RedisLedger(server.url, timeout=600)
        with pytest.raises(LedgerUnavailable, match="AuthenticationError") as refused:
            await owner_of(ledger)
        assert refused.value.__cause__ is None
        await ledger.aclose()


async def test_a_key_that_is_something_else(ledger: RedisLedger, redis_server: RedisServer) -> None:
    """decision: told by its code, which is all of a server's message that is fit for the log."""
    redis_server.say("SET", f"{ledger._prefix}{{f}}", "secret")
    with pytest.raises(LedgerUnavailable) as refused:
        await owner_of(ledger)
    assert str(refused.value) == "Redis: ResponseError WRONGTYPE"


async def test_a_mistake_of_the_callers_stays_one(ledger: RedisLedger) -> None:
    """decision: what is not the store's fault is not called so."""
    with pytest.raises(DataError):
        await ledger.answer("f", 0, "x", object(), ttl=TTL)  # type: ignore[arg-type]


def test_abandoned_claims_end_with_the_loop(redis_server: RedisServer) -> None:
    """decision: a loop that shuts down while claims are under way has nothing left over."""
    ledger = RedisLedger("redis://127.0.0.1:1", timeout=600)

    async def leave() -> None:
        # Cancelled by the loop when it ends, and so given up when no task is begun any more.
        claiming = asyncio.create_task(ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL))
        await asyncio.wait([claiming], timeout=0)

    asyncio.run(leave())
    gc.collect()  # a task that is still pending would be told of here, as an error
    assert not ledger._client._made._lives
