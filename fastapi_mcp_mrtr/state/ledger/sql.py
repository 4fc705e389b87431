"""The ledger in a database: a SQLite file or PostgreSQL. Knows SQL; no response, no handler.

One row a flow. Each method is one statement that says under which condition it changes the row, and
the database sees to it that of several at once one is first. A second statement only reads why the
first one changed nothing. `schema.py` has the statements.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    CursorResult,
    Executable,
    MetaData,
    Row,
    event,
    inspect,
    make_url,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.schema import CreateIndex, CreateTable

from fastapi_mcp_mrtr.state.remote import Failure, PerLoop, Remote

from .protocol import (
    RUNNING,
    Answered,
    Claim,
    Claimed,
    Held,
    LedgerUnavailable,
    Refused,
    Status,
    milliseconds,
    new_owner,
    presented,
    unclaimed,
)
from .schema import SWEPT_AT_ONCE, TABLE, Statements, checked_dialect, flows_table

__all__ = ["SQLLedger", "flows_table"]

logger = logging.getLogger("fastapi_mcp_mrtr")

T = TypeVar("T")

_DRIVERS: Final[Mapping[str, str]] = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
"""What a URL that names no driver means."""

_NO_SUCH_TABLE: Final = "42P01"
_MAY_PASS: Final = (
    "08",  # connection
    "40",  # rolled back for the sake of another
    "53",  # no resources
    "57",  # stopping, starting
    "23505",  # another process is creating the table at this moment,
    "42710",  # its row type,
    "42P07",  # and has created it
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
)
"""How the codes begin that another attempt may not meet again: SQLSTATE, or SQLite's names."""


@dataclass(slots=True)
class _Database:
    """What one event loop knows of the database."""

    engine: AsyncEngine
    has_table: bool = False
    sweep_at: float = -math.inf


class SQLLedger:
    """Single use across processes, in a SQLite file, and across machines, in PostgreSQL.

    ```python
    MCPRouter("travel-desk", version="1.0.0", ledger=SQLLedger("sqlite:///flows.db"))
    ```

    Takes a URL, or an `AsyncEngine` that stays yours. A call takes at most `timeout` seconds,
    reconnecting included; nothing has to be done after an outage. The table is created when it
    is first needed, unless `create_table=False`; `SQLLedger.metadata` and `flows_table()` are for
    migrations. Expired rows are deleted in the background, a few at a time, while there are claims
    and `sweep_interval` seconds apart; `await ledger.sweep()` does it at any time.

    Leases and expiry go by the clock of the database, which for SQLite is `clock`. A step of it
    that is longer than a lease ends that lease.
    """

    metadata: MetaData = MetaData()
    """The table under its default name, to be one of Alembic's `target_metadata`."""

    def __init__(
        self,
        engine_or_url: AsyncEngine | URL | str,
        *,
        table: str = TABLE,
        create_table: bool = True,
        timeout: float = 5.0,
        sweep_interval: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(engine_or_url, AsyncEngine):
            engine = engine_or_url.execution_options(isolation_level="AUTOCOMMIT")
            self._databases = PerLoop(lambda: _Database(engine), _leave)
            dialect = engine.dialect.name
        else:
            url = _url(_parsed(engine_or_url))
            self._databases = PerLoop(lambda: _Database(_engine(url, timeout)), _dispose)
            dialect = url.get_backend_name()
        self.metadata = MetaData()
        self.table = flows_table(self.metadata, table)
        self._statements = Statements(self.table, dialect)
        self._create_table = create_table
        self._sweep_interval = sweep_interval
        self._clock = clock
        # A statement of SQLite's that is cancelled goes on in its thread; its connection then keeps
        # the lock of the file until garbage is collected. It always ends by itself.
        self._remote = Remote(
            "SQL",
            timeout=timeout,
            describe=self._describe,
            unavailable=LedgerUnavailable,
            interrupts=dialect != "sqlite",
        )

    async def claim(
        self, flow: str, round: int, fingerprint: str, *, lease: float, ttl: float
    ) -> Claim:
        """See `Ledger`."""
        owner = new_owner()
        presentation = {
            "flow_": flow,
            "round_": round,
            "fingerprint_": fingerprint,
            "owner_": owner,
            "lease_": milliseconds(lease),
            "ttl_": milliseconds(ttl),
        }

        async def work(connection: AsyncConnection) -> Claim:
            while True:
                claim = await self._execute(connection, self._statements.claim, presentation)
                became = claim.scalar_one_or_none()
                if became is not None:
                    return Claimed(owner, became == Status.TAKEN_OVER.value)
                row = (
                    await self._execute(connection, self._statements.why, presentation)
                ).one_or_none()
                refusal = None if row is None else _refusal(row, round, fingerprint)
                if refusal is not None:
                    return refusal
                # It became free between the two statements.

        claim = await self._remote.claim(
            lambda: self._work(work), lambda: self.release(flow, round, owner, ran=False)
        )
        await self._sweep_if_due()
        return claim

    async def renew(self, flow: str, round: int, owner: str, *, lease: float) -> bool:
        """See `Ledger`."""
        claim = {"flow_": flow, "round_": round, "owner_": owner, "lease_": milliseconds(lease)}
        return await self._remote.call(lambda: self._changes(self._statements.renew, claim)) == 1

    async def answer(
        self, flow: str, round: int, owner: str, response: bytes, *, ttl: float
    ) -> bool:
        """See `Ledger`."""
        answer = {
            "flow_": flow,
            "round_": round,
            "owner_": owner,
            "response_": response,
            "ttl_": milliseconds(ttl),
        }

        async def work(connection: AsyncConnection) -> bool:
            if (await self._execute(connection, self._statements.answer, answer)).rowcount == 1:
                return True
            # The reply was lost, or the claim.
            stored = await self._execute(connection, self._statements.stored, answer)
            return stored.scalar_one_or_none() == response

        return await self._remote.call(lambda: self._work(work))

    async def release(self, flow: str, round: int, owner: str, *, ran: bool) -> None:
        """See `Ledger`."""
        claim = {"flow_": flow, "round_": round, "owner_": owner}
        await self._remote.call(lambda: self._changes(self._statements.release[ran], claim))

    async def sweep(self) -> int:
        """Delete the rows that have expired, a few at a time. Returns how many there were."""
        total = 0
        while True:
            swept = await self._remote.call(lambda: self._changes(self._statements.sweep, {}))
            total += swept
            if swept < SWEPT_AT_ONCE:
                return total

    async def aclose(self) -> None:
        """See `Ledger`. An engine that was handed in is not disposed of."""
        await self._remote.settle()
        await self._databases.aclose()

    # ------------------------------------------------------------------ talking to the database

    async def _work(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        database = await self._databases.get()
        try:
            async with database.engine.begin() as connection:
                if self._create_table and not database.has_table:
                    await self._create(connection)
                    database.has_table = True
                return await work(connection)
        except DBAPIError:
            # A database that was away may have come back empty.
            database.has_table = False
            raise

    async def _changes(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        async def work(connection: AsyncConnection) -> int:
            return (await self._execute(connection, statement, parameters)).rowcount

        return await self._work(work)

    async def _execute(
        self, connection: AsyncConnection, statement: Executable, parameters: Mapping[str, Any]
    ) -> CursorResult[Any]:
        now = {"now_": int(self._clock() * 1000)} if self._statements.needs_now else {}
        return await connection.execute(statement, {**parameters, **now})

    async def _create(self, connection: AsyncConnection) -> None:
        def is_there(connection: Connection) -> bool:
            return inspect(connection).has_table(self.table.name)

        # Looked for first, because "if not exists" wants the right to create even if it exists.
        if not await connection.run_sync(is_there):
            await connection.execute(CreateTable(self.table, if_not_exists=True))
            for index in self.table.indexes:
                await connection.execute(CreateIndex(index, if_not_exists=True))

    async def _sweep_if_due(self) -> None:
        database = await self._databases.get()
        if database.sweep_at <= asyncio.get_running_loop().time():
            database.sweep_at = math.inf
            await self._remote.start(self._sweep_for(database))

    async def _sweep_for(self, database: _Database) -> None:
        try:
            await self.sweep()
        except LedgerUnavailable as error:
            logger.warning("Expired flows could not be deleted. %s", error)
        finally:
            database.sweep_at = asyncio.get_running_loop().time() + self._sweep_interval

    def _describe(self, error: Exception) -> Failure | None:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, OSError):
            return Failure(f"{type(cause).__name__}: {cause}", may_pass=True)
        if type(cause).__name__ == "InternalClientError":
            # asyncpg's, for a connection that broke where SQLAlchemy 2.0 does not notice.
            return Failure("InternalClientError", may_pass=True)
        code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
        if code is None and not isinstance(error, SQLAlchemyError):
            return None
        is_missing = code == _NO_SUCH_TABLE or "no such table" in str(cause)
        may_pass = (
            (is_missing and self._create_table)
            or (code or "").startswith(_MAY_PASS)
            or isinstance(error, PoolTimeout)
            or (isinstance(error, DBAPIError) and error.connection_invalidated)
        )
        return Failure(f"{type(error).__name__} {code or ''}".rstrip(), may_pass)


flows_table(SQLLedger.metadata)


def _refusal(row: Row[Any], round: int, fingerprint: str) -> Held | Answered | Refused | None:
    if row.is_expired:
        return None
    status = Status(row.status)
    if status in RUNNING and row.lease_left <= 0:
        status = Status.LAPSED
    relation = presented(row.round, row.fingerprint, round, fingerprint)
    return unclaimed(
        status, relation, lease_left=row.lease_left / 1000, response=row.response or b""
    )


def _parsed(given: URL | str) -> URL:
    if isinstance(given, str) and "://" not in given:
        # Not quoted: a connection string in another notation has a password in it.
        raise ValueError("SQLLedger takes a URL: for the file flows.db it is sqlite:///flows.db.")
    return make_url(given)


def _url(given: URL) -> URL:
    """Complete a URL, and find out now what would fail at the first call."""
    url = given.set(drivername=_DRIVERS.get(given.drivername, given.drivername))
    if checked_dialect(url.get_backend_name()) == "sqlite" and (
        url.database in (None, "", ":memory:") or url.query.get("mode") == "memory"
    ):
        raise ValueError("A SQLite database in memory is shared with nobody; use a MemoryLedger.")
    dialect = url.get_dialect()
    dialect.import_dbapi()
    if not dialect.is_async:
        raise ValueError(f"SQLLedger needs a driver for asyncio, and {url.drivername!r} is none.")
    return url


def _engine(url: URL, timeout: float) -> AsyncEngine:
    options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "hide_parameters": True}
    if url.get_backend_name() != "sqlite":
        return create_async_engine(url, **options)
    # SQLite has one writer at a time. Those of one process wait in line for the one connection,
    # which is fairer than the retries of SQLite's own; those of several wait a little less than
    # we do, so that it is SQLite that ends it.
    options |= {"pool_size": 1, "max_overflow": 0, "pool_timeout": timeout}
    options |= {"connect_args": {"timeout": 0.8 * timeout}}
    engine = create_async_engine(url, **options)
    event.listen(engine.sync_engine, "connect", _write_ahead)
    return engine


def _write_ahead(connection: Any, _: Any) -> None:  # pragma: no cover - in a greenlet, unmeasured
    # Readers and the writer do not wait for each other.
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()


async def _dispose(database: _Database) -> None:
    await database.engine.dispose()


async def _leave(_: _Database) -> None:
    pass
