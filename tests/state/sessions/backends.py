"""The session stores under test, each with a hand on the clock of its store."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from redis.asyncio import Redis, RedisCluster

from fastapi_mcp_mrtr.state.sessions import MemorySessionStore, SessionStore
from fastapi_mcp_mrtr.state.sessions.redis import RedisSessionStore
from tests.state.ledger.backends import PATIENCE, FakeClock, unique


class Backend(Protocol):
    """A store, two ways to it as two workers have them, and its clock."""

    @property
    def store(self) -> SessionStore: ...
    @property
    def other(self) -> SessionStore: ...

    async def advance(self, seconds: float) -> None:
        """Let time pass in the store."""

    async def leftovers(self) -> int:
        """How much is there, once everything is removed that removes itself."""
        ...


OpenBackend = Callable[[], AbstractAsyncContextManager[Backend]]


@dataclass
class InMemory:
    """There is no second worker."""

    clock: FakeClock
    store: MemorySessionStore

    @property
    def other(self) -> MemorySessionStore:
        return self.store

    async def advance(self, seconds: float) -> None:
        self.clock.now += seconds

    async def leftovers(self) -> int:
        await self.store.revoke("last", ttl=1)
        await self.store.append("last", b"", ttl=1)
        return len(self.store) - 1 + len(self.store._streams) - 1 + len(self.store._listeners)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Backend]:
    clock = FakeClock()
    yield InMemory(clock, MemorySessionStore(clock=clock))


@dataclass
class InRedis:
    client: "Redis | RedisCluster"
    prefix: str
    store: RedisSessionStore
    other: RedisSessionStore

    async def keys(self) -> list[bytes]:
        found: list[bytes] = [key async for key in self.client.scan_iter(f"{self.prefix}*")]
        return found

    async def advance(self, seconds: float) -> None:
        for key in await self.keys():
            left = await self.client.pttl(key)
            assert left > 0
            await self.client.pexpire(key, left - int(seconds * 1000))

    async def leftovers(self) -> int:
        hubs = [await store._hubs.get() for store in (self.store, self.other)]
        return len(await self.keys()) + sum(len(hub.listeners) for hub in hubs)


@asynccontextmanager
async def in_redis(url: str) -> AsyncIterator[Backend]:
    prefix = unique("test:")
    client, store, other = (
        Redis.from_url(url),
        *(RedisSessionStore(url, prefix=prefix, timeout=PATIENCE) for _ in "ab"),
    )
    try:
        yield InRedis(client, prefix, store, other)
    finally:
        for each in (store, other, client):
            await each.aclose()


@asynccontextmanager
async def in_redis_cluster(url: str) -> AsyncIterator[Backend]:
    prefix = unique("test:")
    clients = [RedisCluster.from_url(url) for _ in range(3)]
    store, other = (
        RedisSessionStore(client, prefix=prefix, timeout=PATIENCE) for client in clients[1:]
    )
    try:
        yield InRedis(clients[0], prefix, store, other)
    finally:
        for each in (store, other):
            await each.aclose()
        for client in clients:
            await client.aclose()
