"""What bookings do to the outside: a store of its own kind, that outlives every process.

It is what a payment service is: it takes a booking for each idempotency key once, and it may be
away for a while, in which case its client tries again. It also keeps notes of what ran, which is
what the test judges by.
"""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import Row, event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

T = TypeVar("T")

_AWAY: Final = (OSError, RedisError, SQLAlchemyError)
_RETRY_AFTER: Final = 0.05

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, name TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS notes "
    "(id TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, detail TEXT NOT NULL)",
)


@dataclass(frozen=True)
class Note:
    kind: str
    name: str
    detail: str


class World(Protocol):
    async def open(self) -> None:
        """Make what has to be there."""

    async def note(self, kind: str, name: str, detail: str = "") -> None:
        """Keep that something happened."""

    async def book(self, key: str, name: str) -> None:
        """Book, once for each key."""

    async def bookings(self) -> dict[str, str]:
        """The name behind each key."""
        ...

    async def notes(self) -> list[Note]: ...

    async def aclose(self) -> None: ...


def world_at(url: str) -> World:
    return InRedis(url) if url.startswith("redis") else InSQL(url)


async def _persistently(attempt: Callable[[], Awaitable[T]]) -> T:
    """All that is asked of the outside may be asked again: keys and ids make it the same."""
    while True:
        try:
            return await attempt()
        except _AWAY:
            await asyncio.sleep(_RETRY_AFTER)


class InRedis:
    def __init__(self, url: str) -> None:
        self._redis: Any = Redis.from_url(url, decode_responses=True)

    async def open(self) -> None: ...

    async def note(self, kind: str, name: str, detail: str = "") -> None:
        note, id_ = json.dumps([kind, name, detail]), uuid.uuid4().hex
        await _persistently(lambda: self._redis.hset("notes", id_, note))

    async def book(self, key: str, name: str) -> None:
        await _persistently(lambda: self._redis.hsetnx("bookings", key, name))

    async def bookings(self) -> dict[str, str]:
        return dict(await _persistently(lambda: self._redis.hgetall("bookings")))

    async def notes(self) -> list[Note]:
        values = await _persistently(lambda: self._redis.hvals("notes"))
        return [Note(*json.loads(value)) for value in values]

    async def aclose(self) -> None:
        await self._redis.aclose()


class InSQL:
    def __init__(self, url: str) -> None:
        self._engine = _engine(url)

    async def open(self) -> None:
        async with self._engine.begin() as connection:
            for table in _TABLES:
                await connection.execute(text(table))

    async def note(self, kind: str, name: str, detail: str = "") -> None:
        values = {"id": uuid.uuid4().hex, "kind": kind, "name": name, "detail": detail}
        await self._insert(
            "notes (id, kind, name, detail) VALUES (:id, :kind, :name, :detail)", values
        )

    async def book(self, key: str, name: str) -> None:
        await self._insert("bookings (key, name) VALUES (:key, :name)", {"key": key, "name": name})

    async def bookings(self) -> dict[str, str]:
        return {row.key: row.name for row in await self._rows("bookings")}

    async def notes(self) -> list[Note]:
        return [Note(row.kind, row.name, row.detail) for row in await self._rows("notes")]

    async def aclose(self) -> None:
        await self._engine.dispose()

    async def _rows(self, table: str) -> Sequence[Row[Any]]:
        async def select() -> Sequence[Row[Any]]:
            async with self._engine.begin() as connection:
                return (await connection.execute(text(f"SELECT * FROM {table}"))).all()

        return await _persistently(select)

    async def _insert(self, what: str, values: dict[str, str]) -> None:
        statement = text(f"INSERT INTO {what} ON CONFLICT DO NOTHING")

        async def insert() -> None:
            async with self._engine.begin() as connection:
                await connection.execute(statement, values)

        await _persistently(insert)


def _engine(url: str) -> AsyncEngine:
    if not url.startswith("sqlite"):
        return create_async_engine(url)
    engine = create_async_engine(url, connect_args={"timeout": 60})
    event.listen(
        engine.sync_engine, "connect", lambda c, _: c.execute("PRAGMA journal_mode=WAL").close()
    )
    return engine
