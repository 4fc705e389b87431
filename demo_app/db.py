"""The database: connections, transactions and the first rows. Knows no booking rules."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, event, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from .models import Airport, Base, Customer, Flight

CUSTOMERS: Final = (
    ("amelie", "Amélie Moreau", "key-amelie", 250_000),
    ("bruno", "Bruno Keller", "key-bruno", 250_000),
    ("chen", "Chen Wei", "key-chen", 5_000),
)
"""Id, name, API key and cents on account. These keys are public: they are the demo's."""

AIRPORTS: Final = (
    ("AMS", "Amsterdam", "Netherlands"),
    ("ATH", "Athens", "Greece"),
    ("BCN", "Barcelona", "Spain"),
    ("CPH", "Copenhagen", "Denmark"),
    ("EDI", "Edinburgh", "United Kingdom"),
    ("LIS", "Lisbon", "Portugal"),
    ("OSL", "Oslo", "Norway"),
    ("VIE", "Vienna", "Austria"),
)

FLIGHTS: Final = (
    ("TD101", "AMS", "LIS", 7, time(7, 25), 185, 12_900),
    ("TD103", "AMS", "LIS", 7, time(17, 40), 185, 9_900),
    ("TD104", "LIS", "AMS", 10, time(11, 30), 175, 11_900),
    ("TD210", "AMS", "OSL", 8, time(9, 5), 110, 8_400),
    ("TD211", "OSL", "AMS", 12, time(12, 0), 110, 8_900),
    ("TD305", "VIE", "ATH", 9, time(6, 50), 135, 14_500),
    ("TD306", "ATH", "VIE", 16, time(10, 15), 140, 13_900),
    ("TD412", "EDI", "BCN", 9, time(8, 30), 170, 10_700),
    ("TD413", "BCN", "EDI", 13, time(14, 5), 175, 11_200),
    ("TD520", "CPH", "VIE", 11, time(15, 20), 100, 7_600),
    ("TD521", "VIE", "CPH", 14, time(18, 10), 100, 7_900),
    ("TD630", "LIS", "BCN", 10, time(13, 45), 110, 6_800),
)
"""Number, from, to, days from the day of seeding, departure (UTC), minutes, cents."""

TRANSACTION: Final = "desk_transaction"
"""The execution option that says how a transaction begins."""


def sha256(secret: str) -> str:
    """How keys and tokens are stored: they are long and random, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Database:
    """One SQLite file, safe for several processes at once.

    `reading()` sees one consistent snapshot. `writing()` takes SQLite's write lock when it begins,
    so what it reads cannot change before it commits, and commits at the end of the block.
    """

    def __init__(self, path: Path) -> None:
        # 30 s: how long a writer queues behind others before it gives up.
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": 30})
        event.listen(engine.sync_engine, "connect", _leave_transactions_to_us)
        event.listen(engine.sync_engine, "begin", _begin)
        self._engine = engine
        self._writing_engine = engine.execution_options(**{TRANSACTION: "BEGIN IMMEDIATE"})
        self._read = async_sessionmaker(engine, expire_on_commit=False)
        self._write = async_sessionmaker(self._writing_engine, expire_on_commit=False)

    def reading(self) -> AsyncSession:
        return self._read()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncSession]:
        async with self._write.begin() as session:
            yield session

    async def prepare(self, now: datetime) -> None:
        """Create and fill the tables once; of several workers the first one does it."""
        async with self._writing_engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            if (await connection.execute(select(Airport.code).limit(1))).first() is None:
                await connection.run_sync(_seed, now)

    async def close(self) -> None:
        await self._engine.dispose()


def _leave_transactions_to_us(connection: Any, _record: Any) -> None:
    # The sqlite3 module begins transactions late; this is SQLAlchemy's documented way around it.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(TRANSACTION, "BEGIN"))


def _seed(connection: Connection, now: datetime) -> None:
    connection.execute(
        insert(Customer),
        [
            {"id": id, "name": name, "api_key_sha256": sha256(key), "balance_cents": cents}
            for id, name, key, cents in CUSTOMERS
        ],
    )
    connection.execute(
        insert(Airport),
        [{"code": code, "city": city, "country": country} for code, city, country in AIRPORTS],
    )
    connection.execute(insert(Flight), [_flight(now, *row) for row in FLIGHTS])


def _flight(
    now: datetime,
    number: str,
    origin: str,
    destination: str,
    days: int,
    at: time,
    minutes: int,
    cents: int,
) -> dict[str, Any]:
    departs_at = datetime.combine(now.date() + timedelta(days=days), at, tzinfo=UTC)
    return {
        "number": number,
        "origin": origin,
        "destination": destination,
        "departs_at": departs_at,
        "arrives_at": departs_at + timedelta(minutes=minutes),
        "fare_cents": cents,
    }
