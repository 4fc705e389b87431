"""The ledgers under test, each with a hand on the clock of its store.

Where that clock is not ours, time is made to pass by moving what was stored into the past. So a
test waits for nothing, and its spans can be so long that the time it takes itself does not count.
"""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from redis.asyncio import Redis, RedisCluster
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from fastapi_mcp_mrtr.state.ledger import Ledger, MemoryLedger
from fastapi_mcp_mrtr.state.ledger.redis import RedisLedger
from fastapi_mcp_mrtr.state.ledger.sql import SQLLedger

START = 1_785_000_000.0

# Seconds. No test is about how fast a store is on a machine that does other things as well.
PATIENCE = 60.0


@dataclass
class FakeClock:
    now: float = START

    def __call__(self) -> float:
        return self.now


class Backend(Protocol):
    """A store, two ledgers on it as two workers have them, and its clock."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def other(self) -> Ledger: ...

    async def advance(self, seconds: float) -> None:
        """Let time pass in the store."""

    async def leftovers(self) -> int:
        """How many records are there, once everything is removed that removes itself."""
        ...


OpenBackend = Callable[[], AbstractAsyncContextManager[Backend]]


def unique(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex}"


# ---------------------------------------------------------------------------------- memory


@dataclass
class InMemory:
    """There is no second worker."""

    clock: FakeClock
    ledger: MemoryLedger

    @property
    def other(self) -> MemoryLedger:
        return self.ledger

    async def advance(self, seconds: float) -> None:
        self.clock.now += seconds

    async def leftovers(self) -> int:
        await self.ledger.renew("anything", 0, "nobody", lease=1)
        return len(self.ledger)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Backend]:
    clock = FakeClock()
    yield InMemory(clock, MemoryLedger(clock=clock))


# ----------------------------------------------------------------------------------- redis

SHIFT = """
local lease_ends = redis.call('HGET', KEYS[1], 'lease_ends')
redis.call('HSET', KEYS[1], 'lease_ends', string.format('%.0f', lease_ends - ARGV[1]))
redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]) - ARGV[1])
"""


@dataclass
class InRedis:
    client: "Redis | RedisCluster"
    prefix: str
    ledger: RedisLedger
    other: RedisLedger

    async def keys(self) -> list[bytes]:
        found: list[bytes] = [key async for key in self.client.scan_iter(f"{self.prefix}*")]
        return found

    async def advance(self, seconds: float) -> None:
        for key in await self.keys():
            await self.client.execute_command("EVAL", SHIFT, 1, key, int(seconds * 1000))

    async def leftovers(self) -> int:
        return len(await self.keys())


@asynccontextmanager
async def in_redis(url: str) -> AsyncIterator[Backend]:
    prefix = unique("test:")
    client, ledger, other = (
        Redis.from_url(url),
        *(RedisLedger(url, prefix=prefix, timeout=PATIENCE) for _ in "ab"),
    )
    try:
        yield InRedis(client, prefix, ledger, other)
    finally:
        for each in (client, ledger, other):
            await each.aclose()


@asynccontextmanager
async def in_redis_cluster(url: str) -> AsyncIterator[Backend]:
    prefix = unique("test:")
    clients = [RedisCluster.from_url(url) for _ in range(3)]
    ledger, other = (RedisLedger(client, prefix=prefix, timeout=PATIENCE) for client in clients[1:])
    try:
        yield InRedis(clients[0], prefix, ledger, other)
    finally:
        for client in clients:
            await client.aclose()


# ------------------------------------------------------------------------------------- SQL


@dataclass
class InSQL:
    engine: AsyncEngine
    ledger: SQLLedger
    other: SQLLedger
    clock: FakeClock | None = None
    """The clock of SQLite; PostgreSQL has its own."""

    async def advance(self, seconds: float) -> None:
        if self.clock is not None:
            self.clock.now += seconds
            return
        table = self.ledger.table
        span = int(seconds * 1000)
        async with self.engine.begin() as connection:
            await connection.execute(
                update(table).values(
                    lease_ends=table.c.lease_ends - span, expires=table.c.expires - span
                )
            )

    async def leftovers(self) -> int:
        await self.ledger.sweep()
        async with self.engine.begin() as connection:
            rows = await connection.execute(select(func.count()).select_from(self.ledger.table))
            return int(rows.scalar_one())


@asynccontextmanager
async def in_sqlite(folder: Path) -> AsyncIterator[Backend]:
    clock = FakeClock()
    url = f"sqlite+aiosqlite:///{folder / unique('flows')}.db"
    ledger, other = (SQLLedger(url, timeout=PATIENCE, clock=clock) for _ in "ab")
    async with _in_sql(InSQL(create_async_engine(url), ledger, other, clock)) as backend:
        yield backend


@asynccontextmanager
async def in_postgres(url: str) -> AsyncIterator[Backend]:
    table = unique("flows_")
    ledger, other = (SQLLedger(url, table=table, timeout=PATIENCE) for _ in "ab")
    async with _in_sql(InSQL(create_async_engine(url), ledger, other)) as backend:
        yield backend


@asynccontextmanager
async def _in_sql(backend: InSQL) -> AsyncIterator[Backend]:
    # Time can only be moved in a table that is there.
    await backend.ledger.sweep()
    try:
        yield backend
    finally:
        await backend.ledger.aclose()
        await backend.other.aclose()
        async with backend.engine.begin() as connection:
            await connection.run_sync(backend.ledger.metadata.drop_all)
        await backend.engine.dispose()
