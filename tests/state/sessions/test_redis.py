"""Session stores in Redis, or what REDIS_SERVER names: outages, restarts, what users configure."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import DataError

from fastapi_mcp_mrtr.state.sessions import Listener, SessionData, SessionStoreUnavailable
from fastapi_mcp_mrtr.state.sessions import redis as module
from fastapi_mcp_mrtr.state.sessions.redis import RedisSessionStore
from tests.state.ledger.backends import unique
from tests.state.ledger.proxy import Proxy
from tests.state.ledger.services import RedisServer

pytestmark = pytest.mark.anyio

TTL = 5000.0
PATIENCE = 60.0


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisSessionStore]:
    """A store on keys of its own."""
    store = RedisSessionStore(redis_server.url, prefix=unique("test:"))
    yield store
    await store.aclose()


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy.before(redis_server.port) as proxy:
        yield proxy


async def next_of(listener: Listener) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await listener.receive()


# ------------------------------------------------------------------------------------ outages


async def test_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    """decision: fails closed while the store is away, then goes on with what it knew."""
    caplog.set_level(logging.INFO, "fastapi_mcp_mrtr")
    with RedisServer() as server:
        store, other = (RedisSessionStore(server.url, timeout=1) for _ in "ab")
        await store.revoke("ended", ttl=TTL)
        async with store.listen("a") as listener:
            await other.publish("a", b"before")
            assert await next_of(listener) == b"before"
            with server.away():
                outcomes = await asyncio.gather(
                    store.load("ended"),
                    store.set_log_level("s", "debug", ttl=TTL),
                    store.subscribe("s", "x", ttl=TTL),
                    store.unsubscribe("s", "x"),
                    store.revoke("s", ttl=TTL),
                    store.publish("b", b"x"),
                    store.append("s", b"x", ttl=TTL),
                    store.events_after("s-1.1"),
                    return_exceptions=True,
                )
                assert {type(outcome) for outcome in outcomes} == {SessionStoreUnavailable}
                assert all(str(each).startswith("Redis: ConnectionError") for each in outcomes)
                while not caplog.records:  # noqa: ASYNC110 - a log has no event
                    await asyncio.sleep(0)
            assert await store.load("ended") == SessionData(revoked=True)
            await other.publish("a", b"after")
            assert await next_of(listener) == b"after"
        lost, found = (record.getMessage() for record in caplog.records)
        assert lost.startswith("Nothing is heard from other workers: Redis: ConnectionError")
        assert found == "Other workers are heard again."
        await store.aclose()
        await other.aclose()


async def test_what_was_said_while_a_worker_could_not_hear(
    redis_server: RedisServer, proxy: Proxy
) -> None:
    """decision: an answer is not lost because the one that waits for it was cut off."""
    prefix = unique("test:")
    away = RedisSessionStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, timeout=0.5)
    other = RedisSessionStore(redis_server.url, prefix=prefix)
    async with away.listen("a") as listener:
        await other.publish("a", b"first")
        assert await next_of(listener) == b"first"
        proxy.swallow()
        await other.publish("a", b"second")
        with pytest.raises(SessionStoreUnavailable, match=r"no answer within 0\.5 seconds"):
            await away.load("s")
        proxy.heal()
        assert await next_of(listener) == b"second"
    await away.aclose()
    await other.aclose()


async def test_a_read_whose_reply_was_lost(redis_server: RedisServer, proxy: Proxy) -> None:
    """decision: what was on its way when the connection broke comes again."""
    prefix = unique("test:")
    behind = RedisSessionStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix)
    other = RedisSessionStore(redis_server.url, prefix=prefix)
    async with behind.listen("a") as listener:
        await other.publish("a", b"first")
        assert await next_of(listener) == b"first"
        proxy.lose_next_reply()
        await other.publish("a", b"second")
        assert await next_of(listener) == b"second"
        assert proxy.lost == 1
    await behind.aclose()
    await other.aclose()


async def test_nobody_listens_to_a_store_that_is_away() -> None:
    """decision: who would wait for an answer is told at once that none can come."""
    store = RedisSessionStore("redis://127.0.0.1:1", timeout=0.2)
    context: AbstractAsyncContextManager[Listener] = store.listen("a")
    with pytest.raises(SessionStoreUnavailable):
        await context.__aenter__()
    await store.aclose()


async def test_a_mistake_is_told_at_once() -> None:
    """decision: no use waiting for a password; and the message quotes no command."""
    with RedisServer() as server:
        server.say("CONFIG", "SET", "requirepass", "x")
        store = RedisSessionStore(server.url, timeout=600)
        with pytest.raises(SessionStoreUnavailable, match="AuthenticationError") as refused:
            await store.load("s")
        assert refused.value.__cause__ is None
        await store.aclose()


async def test_a_mistake_of_the_callers_stays_one(store: RedisSessionStore) -> None:
    """decision: what is not the store's fault is not called so."""
    with pytest.raises(DataError):
        await store.append("s", object(), ttl=TTL)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------- what is stored


async def test_what_is_stored_has_an_end(
    store: RedisSessionStore, redis_server: RedisServer
) -> None:
    """decision: the store forgets by itself, with no worker left that could tell it to."""
    await store.set_log_level("s", "debug", ttl=TTL)
    await store.revoke("t", ttl=TTL)
    await store.append("s", b"x", ttl=TTL)
    await store.publish("a", b"x")
    async with Redis.from_url(redis_server.url) as redis:
        keys = [key async for key in redis.scan_iter(f"{store._prefix}*")]
        assert len(keys) == 7
        for key in keys:
            assert 0 < await redis.pttl(key) <= TTL * 1000


async def test_the_streams_that_are_forgotten_leave_nothing(redis_server: RedisServer) -> None:
    """decision: the oldest go, with all that they had."""
    store = RedisSessionStore(redis_server.url, prefix=unique("test:"), max_streams=3)
    for n in range(6):
        await store.append(f"s{n}", b"x", ttl=TTL)
    async with Redis.from_url(redis_server.url) as redis:
        keys = {key.decode() async for key in redis.scan_iter(f"{store._prefix}*")}
    streams = {key for n in (3, 4, 5) for key in store._events(f"s{n}")}
    assert keys == {*streams, *store._streams()}
    await store.aclose()


async def test_messages_are_bounded(
    store: RedisSessionStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: what nobody reads does not fill the store, in number or in bytes."""
    monkeypatch.setattr(module, "_BACKLOG", 3)
    monkeypatch.setattr(module, "_BACKLOG_BYTES", 10)
    key = store._messages()[0]
    async with Redis.from_url(redis_server.url) as redis:
        for n in range(5):
            await store.publish("a", b"%d" % n)
        assert await redis.xlen(key) == 3
        await store.publish("a", b"x" * 9)
        assert await redis.xlen(key) == 2
        await store.publish("a", b"y" * 10)
        assert await redis.xlen(key) == 1
        with pytest.raises(SessionStoreUnavailable, match="a message of 11 bytes is too long"):
            await store.publish("a", b"y" * 11)


async def test_a_stream_that_is_still_written_stays(redis_server: RedisServer) -> None:
    """decision: the one that was not written for longest goes, whenever it was begun."""
    store = RedisSessionStore(redis_server.url, prefix=unique("test:"), max_streams=3)
    async with Redis.from_url(redis_server.url) as redis:
        # An hour ago, one after the other.
        now = (await redis.time())[0] - 3600
        for n in range(3):
            await redis.xadd(store._events(f"s{n}")[0], {"event": "", "total": 0}, f"{now + n}000")
            await redis.zadd(store._streams()[0], {f"s{n}": (now + n) * 1000})
        kept = await store.append("s0", b"x", ttl=TTL)
        await store.append("s3", b"x", ttl=TTL)
        assert await redis.zrange(store._streams()[0], 0, -1) == [b"s2", b"s0", b"s3"]
        assert not await redis.exists(*store._events("s1"))
        assert await store.events_after(kept) == []
    await store.aclose()


# ----------------------------------------------------------------- what somebody else put there

NO_TEXT = b"\xff\xfe"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged as a warning, which says nothing of what the server holds."""
    assert not [record for record in caplog.records if record.exc_info]
    assert "hostile" not in caplog.text
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.fixture
async def raw(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """A way around the store."""
    async with Redis.from_url(redis_server.url) as redis:
        yield redis


async def test_messages_that_make_no_sense_are_skipped(
    store: RedisSessionStore,
    raw: Redis,
    redis_server: RedisServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """user report: one entry made a worker deaf, and answers were taken and lost; one warning."""
    other = RedisSessionStore(redis_server.url, prefix=store._prefix)
    whole: dict[Any, Any] = {"event": "hostile", "total": "1", "topic": "a", "origin": "hostile"}
    async with store.listen("a") as listener:
        entries: tuple[dict[Any, Any], ...] = (
            {"hostile": "hostile"},
            *({key: whole[key] for key in whole if key != left_out} for left_out in whole),
            {**whole, "topic": NO_TEXT},
            {**whole, "event": NO_TEXT, "total": NO_TEXT, "origin": NO_TEXT},
        )
        for entry in entries:
            await raw.xadd(store._messages()[0], entry)
        await other.publish("a", b"a message")
        received = [await next_of(listener) for _ in range(3)]
    # Those without a total, and of whatever origin, are messages like any other.
    assert received == [b"hostile", NO_TEXT, b"a message"]
    assert warnings(caplog) == ["Redis: a message of another worker made no sense, and is skipped"]
    await other.aclose()


async def test_whatever_a_read_meets_it_goes_on(
    store: RedisSessionStore,
    redis_server: RedisServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """decision: nobody notices a worker that is deaf, so nothing ends the reader."""
    calm = module._entries
    met = asyncio.Event()

    def fails(response: Any) -> Any:
        if not met.is_set():
            met.set()
            raise ValueError("hostile")
        return calm(response)

    caplog.set_level(logging.INFO, "fastapi_mcp_mrtr")
    monkeypatch.setattr(module, "_entries", fails)
    other = RedisSessionStore(redis_server.url, prefix=store._prefix)
    async with store.listen("a") as listener:
        await other.publish("a", b"x")
        assert await next_of(listener) == b"x"
    assert warnings(caplog) == ["Nothing is heard from other workers: Redis: ValueError"]
    assert caplog.messages[-1] == "Other workers are heard again."
    await other.aclose()


async def test_a_reader_that_was_ended_begins_again(
    store: RedisSessionStore, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: where it was, as soon as somebody listens; nothing that was said is lost."""
    other = RedisSessionStore(redis_server.url, prefix=store._prefix)
    async with store.listen("a") as listener:
        hub = await store._hubs.get()
        assert hub.reader is not None
        hub.reader.cancel()
        await asyncio.wait((hub.reader,))
        await other.publish("a", b"x")
        async with store.listen("b"), store.listen("c"):
            assert await next_of(listener) == b"x"
    ended = "Other workers were not heard for a while: the reader had been ended"
    assert warnings(caplog) == [ended]
    await other.aclose()


async def test_a_log_that_is_begun_anew_is_read(
    store: RedisSessionStore, raw: Redis, redis_server: RedisServer
) -> None:
    """decision: after a message with the last id of all, nothing can be added, and nothing comes
    later; so it begins anew, and every worker hears it."""
    other = RedisSessionStore(redis_server.url, prefix=store._prefix)
    key, last = store._messages()[0], f"{2**64 - 1}-{2**64 - 1}"
    async with store.listen("a") as listener:
        entry: dict[Any, Any] = {"event": "last", "total": "1", "topic": "a", "origin": "o"}
        await raw.xadd(key, entry, last)
        assert await next_of(listener) == b"last"
        await other.publish("a", b"x")
        assert await next_of(listener) == b"x"
    assert await raw.pttl(key) > 0
    await other.aclose()


@pytest.mark.parametrize(
    "field", [{"level": NO_TEXT}, {"level": "hostile"}, {b"u:" + NO_TEXT: "1"}]
)
async def test_a_session_that_cannot_be_read(
    store: RedisSessionStore, raw: Redis, field: dict[Any, Any]
) -> None:
    """decision: nobody can tell what was agreed, so it is refused; one that ended has ended."""
    await store.set_log_level("s", "debug", ttl=TTL)
    await raw.hset(store._session("s")[0], mapping=field)
    with pytest.raises(SessionStoreUnavailable, match="session") as refused:
        await store.load("s")
    assert "hostile" not in str(refused.value)
    await raw.hset(store._session("s")[0], "revoked", "1")
    assert await store.load("s") == SessionData(revoked=True)
    await store.revoke("s", ttl=TTL)
    assert await store.load("s") == SessionData(revoked=True)


async def test_names_of_streams_that_are_none(
    redis_server: RedisServer, raw: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """user report: a call ended in an internal error. They are removed, and told of once."""
    store = RedisSessionStore(redis_server.url, prefix=unique("test:"), max_streams=1)
    names = (NO_TEXT, b"", b"hostile{", b"hostile}", b"x" * 201)
    await raw.zadd(store._streams()[0], dict.fromkeys((*names, b"unknown"), 1))
    event_id = await store.append("s", b"x", ttl=TTL)
    assert await store.events_after(event_id) == []
    assert await raw.zrange(store._streams()[0], 0, -1) == [b"s"]
    assert warnings(caplog) == ["Redis: 5 names of streams made no sense, and were removed"]
    await store.aclose()


@pytest.mark.parametrize(
    "entry",
    [
        {"hostile": "hostile"},
        {"event": "x", "a": "b", "topic": "t", "origin": "o"},
        *({"event": "x", "total": n} for n in ("", "x", "nan", "inf", "-inf", "1e99", NO_TEXT)),
    ],
)
async def test_a_first_message_without_a_number(
    store: RedisSessionStore, raw: Redis, entry: dict[Any, Any]
) -> None:
    """user report: nothing could be published any more, and the log never expired."""
    key = store._messages()[0]
    await raw.xadd(key, entry)
    await store.publish("a", b"x")
    kept: Any = await raw.xrange(key)
    assert [fields[b"event"] for _, fields in kept] == [b"x"]
    assert all([await raw.pttl(each) > 0 for each in store._messages()])


@pytest.mark.parametrize("value", [b"hostile", NO_TEXT, b"9223372036854775800", b"%d" % 2**60, []])
async def test_a_count_that_is_none(
    store: RedisSessionStore, raw: Redis, value: bytes | list[bytes]
) -> None:
    """decision: what cannot be added to begins anew."""
    for keys, add in (
        (store._messages(), lambda: store.publish("a", b"x")),
        (store._events("s"), lambda: store.append("s", b"x", ttl=TTL)),
    ):
        await (raw.set(keys[1], value) if isinstance(value, bytes) else raw.rpush(keys[1], "x"))
        await add()
        assert await raw.get(keys[1]) == b"1"
        assert await raw.xlen(keys[0]) == 1
        assert all([await raw.pttl(key) > 0 for key in keys])


async def test_a_log_that_is_none(store: RedisSessionStore, raw: Redis) -> None:
    """decision: so does this."""
    key = store._messages()[0]
    await raw.set(key, "hostile")
    await store.publish("a", b"x")
    assert await raw.xlen(key) == 1


async def test_a_server_that_takes_nothing_loses_nothing() -> None:
    """decision: what the server says of itself is no reason to begin anew."""
    with RedisServer() as server:
        store = RedisSessionStore(server.url)
        event_id = await store.append("s", b"x", ttl=TTL)
        server.say("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(SessionStoreUnavailable, match="Redis: OutOfMemoryError"):
            await store.append("s", b"y", ttl=TTL)
        server.say("CONFIG", "SET", "maxmemory", "0")
        later = await store.append("s", b"z", ttl=TTL)
        assert await store.events_after(event_id) == [(later, b"z")]
        await store.aclose()


# -------------------------------------------------------------------------- what users bring


async def test_a_client_that_decodes(redis_server: RedisServer) -> None:
    """decision: most apps have such a client already; in either protocol."""
    for protocol in (2, 3):
        prefix = unique("test:")
        async with (
            Redis.from_url(redis_server.url, decode_responses=True, protocol=protocol) as one,
            Redis.from_url(redis_server.url, protocol=protocol) as two,
        ):
            store, other = (RedisSessionStore(client, prefix=prefix) for client in (one, two))
            await store.subscribe("s", "x://\u00e9", ttl=TTL)
            await store.set_log_level("s", "debug", ttl=TTL)
            assert await other.load("s") == SessionData("debug", frozenset(["x://\u00e9"]))
            event_id = await store.append("s", b"\xff", ttl=TTL)
            later = await store.append("s", b"\xfe", ttl=TTL)
            assert await store.events_after(event_id) == [(later, b"\xfe")]
            async with store.listen("a") as listener, other.listen("a") as too:
                await other.publish("a", b"\xff")
                assert await next_of(listener) == b"\xff"
                await store.publish("a", b"\xfe")
                assert [await next_of(too) for _ in range(2)] == [b"\xff", b"\xfe"]
            await store.aclose()
            await other.aclose()
            assert await one.ping()


async def test_a_client_of_a_cluster(redis_cluster_server: RedisServer) -> None:
    """decision: it stays open when the store is closed."""
    async with RedisCluster.from_url(redis_cluster_server.url) as client:
        store = RedisSessionStore(client, prefix=unique("test:"))
        await store.revoke("s", ttl=TTL)
        await store.aclose()
        assert (await store.load("s")).revoked


def test_a_loop_for_each_request(redis_server: RedisServer) -> None:
    """decision: a test client runs each request in an event loop of its own, and closes nothing."""
    store = RedisSessionStore(redis_server.url, prefix=unique("test:"))

    async def ask(n: int) -> None:
        async with store.listen("a") as listener:
            await store.publish("a", b"%d" % n)
            assert await next_of(listener) == b"%d" % n

    for n in range(3):
        asyncio.run(ask(n))
    gc.collect()  # a connection or a task that was left would be told of here, as an error
    assert not store._hubs._lives
    assert not store._client._made._lives


async def test_two_loops_of_one_process(redis_server: RedisServer) -> None:
    """decision: what is said in one event loop is heard in another."""
    store = RedisSessionStore(redis_server.url, prefix=unique("test:"))
    async with store.listen("a") as listener:
        await asyncio.to_thread(lambda: asyncio.run(store.publish("a", b"x")))
        assert await next_of(listener) == b"x"
    await store.aclose()


async def test_it_may_be_used_again(store: RedisSessionStore) -> None:
    """decision: closing lets go of connections and of nothing else."""
    async with store.listen("a"):
        pass
    await store.aclose()
    async with store.listen("a") as listener:
        await store.publish("a", b"x")
        assert await next_of(listener) == b"x"
