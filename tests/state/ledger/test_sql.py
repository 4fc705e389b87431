"""SQLite and PostgreSQL: outages, lost replies, the table, the sweep, what users configure."""

import asyncio
import gc
import logging
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, event, func, make_url, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from fastapi_mcp_mrtr.state.ledger import Answered, Claimed, Held, LedgerUnavailable
from fastapi_mcp_mrtr.state.ledger.schema import Statements
from fastapi_mcp_mrtr.state.ledger.sql import SQLLedger, flows_table

from .backends import START, FakeClock, unique
from .proxy import Proxy
from .services import PostgresServer

pytestmark = pytest.mark.anyio

LEASE = 1000.0
TTL = 5000.0


async def owner_of(ledger: SQLLedger, flow: str = "f", round: int = 0) -> str:
    claimed = await ledger.claim(flow, round, "x", lease=LEASE, ttl=TTL)
    assert isinstance(claimed, Claimed)
    return claimed.owner


def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'flows.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url


@pytest.fixture
async def ledger(url: str) -> AsyncIterator[SQLLedger]:
    """A ledger with a table of its own, which is there."""
    ledger = SQLLedger(url, table=unique("flows_"))
    await ledger.sweep()
    yield ledger
    async with connected(ledger) as connection:
        await connection.run_sync(ledger.metadata.drop_all)
    await ledger.aclose()


class connected:  # noqa: N801 - used like a function
    """A connection of the ledger's own engine, for a look behind its back."""

    def __init__(self, ledger: SQLLedger) -> None:
        self._ledger = ledger

    async def __aenter__(self) -> AsyncConnection:
        engine = (await self._ledger._databases.get()).engine
        self._begun = engine.begin()
        return await self._begun.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._begun.__aexit__(*error)


async def count(ledger: SQLLedger) -> int:
    async with connected(ledger) as connection:
        rows = await connection.execute(select(func.count()).select_from(ledger.table))
        return int(rows.scalar_one())


async def expire(ledger: SQLLedger, flows: str = "%") -> None:
    async with connected(ledger) as connection:
        await connection.execute(
            update(ledger.table).where(ledger.table.c.flow.like(flows)).values(expires=1)
        )


# ------------------------------------------------------------------------------------ outages


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that may be stopped without stopping the others' tests."""
    with PostgresServer() as server:
        yield server


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_a_restart(own_server: PostgresServer, ending: str) -> None:
    """decision: fails closed while the database is away, then goes on with what it knew."""
    table = unique("flows_")
    ledger = SQLLedger(own_server.url, table=table, timeout=60)
    impatient = SQLLedger(own_server.url, table=table, timeout=1)
    owner = await owner_of(ledger)
    # Several connections, each of which is to be found dead.
    await asyncio.gather(*(ledger.renew("f", 0, owner, lease=LEASE) for _ in range(5)))
    getattr(own_server, ending)()
    try:
        with pytest.raises(LedgerUnavailable, match="SQL: ConnectionRefusedError"):
            await impatient.claim("g", 0, "x", lease=LEASE, ttl=TTL)
        with pytest.raises(LedgerUnavailable):
            await impatient.answer("f", 0, owner, b"no", ttl=TTL)
        with pytest.raises(LedgerUnavailable):
            await impatient.renew("f", 0, owner, lease=LEASE)
        with pytest.raises(LedgerUnavailable):
            await impatient.release("f", 0, owner, ran=True)
    finally:
        own_server.start()
    assert await ledger.answer("f", 0, owner, b"yes", ttl=TTL)
    assert await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL) == Answered(b"yes")
    await impatient.aclose()
    await ledger.aclose()


async def test_a_call_waits_for_the_database_to_come_back(own_server: PostgresServer) -> None:
    """decision: work that was done is not lost to a restart that is shorter than the timeout."""
    ledger = SQLLedger(own_server.url, table=unique("flows_"), timeout=60)
    owner = await owner_of(ledger)
    own_server.stop()
    answering = asyncio.create_task(ledger.answer("f", 0, owner, b"yes", ttl=TTL))
    await asyncio.sleep(0)
    await asyncio.to_thread(own_server.start)
    assert await answering
    await ledger.aclose()


async def test_a_database_that_comes_back_empty(ledger: SQLLedger) -> None:
    """decision: the table is made again, with no restart of the server."""
    await owner_of(ledger)
    async with connected(ledger) as connection:
        await connection.run_sync(ledger.metadata.drop_all)
    assert await owner_of(ledger)


async def test_a_locked_file(tmp_path: Path) -> None:
    """decision: another program that holds the file is an outage, and its end the end of it."""
    ledger = SQLLedger(sqlite_url(tmp_path), timeout=2)
    owner = await owner_of(ledger)
    other = sqlite3.connect(tmp_path / "flows.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="SQL: OperationalError SQLITE_BUSY"):
        await ledger.renew("f", 0, owner, lease=LEASE)
    other.execute("ROLLBACK")
    other.close()
    assert await ledger.renew("f", 0, owner, lease=LEASE)
    await ledger.aclose()


async def test_no_free_connection(url: str) -> None:
    """decision: an engine that its app keeps busy is an outage like others."""
    address = make_url(url).set(
        drivername="sqlite+aiosqlite" if url.startswith("sqlite") else "postgresql+asyncpg"
    )
    engine = create_async_engine(address, pool_size=1, max_overflow=0, pool_timeout=0.01)
    ledger = SQLLedger(engine, table=unique("flows_"), timeout=60)
    owner = await owner_of(ledger)
    impatient = SQLLedger(engine, table=ledger.table.name, timeout=0.5)
    async with engine.connect():
        with pytest.raises(LedgerUnavailable, match="SQL: TimeoutError"):
            await impatient.renew("f", 0, owner, lease=LEASE)
    assert await owner_of(ledger, "g")
    async with engine.begin() as connection:
        await connection.run_sync(ledger.metadata.drop_all)
    await ledger.aclose()
    await engine.dispose()


# ------------------------------------------------------------------------------- lost replies


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy.before(postgres_server.port) as proxy:
        yield proxy


def behind(proxy: Proxy) -> SQLLedger:
    """A ledger that reaches its database through the proxy."""
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?ssl=disable"
    return SQLLedger(url, table=unique("flows_"), timeout=60)


async def warm_up(ledger: SQLLedger) -> None:
    """One connection is there and free, and claims have been prepared on it."""
    await owner_of(ledger, "first")
    await ledger._remote.settle()


async def test_replies_that_were_lost(proxy: Proxy) -> None:
    """decision: asked again, the database recognises the owner, and says what it said."""
    ledger = behind(proxy)
    # Each statement once, so that it is prepared and has one reply.
    await warm_up(ledger)
    owner = await owner_of(ledger, "second")
    await ledger.renew("second", 0, owner, lease=LEASE)
    await ledger.answer("second", 0, owner, b"", ttl=TTL)
    await ledger.release("second", 0, owner, ran=False)

    proxy.lose_next_reply()
    claimed = await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL)
    assert isinstance(claimed, Claimed)
    assert not claimed.is_takeover
    assert proxy.lost == 1
    assert isinstance(await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL), Held)

    for ran in (False, True):
        await ledger.release("second", 0, owner, ran=ran)
        proxy.lose_next_reply()
        await ledger.release("f", 0, claimed.owner, ran=ran)
        claimed = await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL)
        assert isinstance(claimed, Claimed)
        assert claimed.is_takeover == ran

    await ledger.renew("second", 0, owner, lease=LEASE)
    proxy.lose_next_reply()
    assert await ledger.renew("f", 0, claimed.owner, lease=LEASE)

    await ledger.answer("second", 0, owner, b"", ttl=TTL)
    proxy.lose_next_reply()
    assert await ledger.answer("f", 0, claimed.owner, b"yes", ttl=TTL)
    assert await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL) == Answered(b"yes")
    assert proxy.lost == 5
    await ledger.aclose()


async def test_a_claim_that_nobody_waits_for(proxy: Proxy, postgres_server: PostgresServer) -> None:
    """decision: a client that disconnects while its claim is under way can come back at once."""
    ledger = behind(proxy)
    await warm_up(ledger)
    table = ledger.table.name
    proxy.swallow()
    claiming = asyncio.create_task(ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL))
    there = f"SELECT count(*) FROM {table} WHERE flow = 'f'"
    while await asyncio.to_thread(postgres_server.sql, there) == "0":
        pass
    claiming.cancel()
    proxy.heal()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await ledger.aclose()
    assert postgres_server.sql(f"SELECT status FROM {table} WHERE flow = 'f'") == "open"


async def test_a_database_that_does_not_answer(proxy: Proxy) -> None:
    """decision: a call takes as long as it may, and the next one after the outage is served."""
    patient = behind(proxy)
    await warm_up(patient)
    engine = (await patient._databases.get()).engine
    ledger = SQLLedger(engine, table=patient.table.name, timeout=0.2, sweep_interval=1000)
    proxy.swallow()
    with pytest.raises(LedgerUnavailable, match=r"no answer within 0\.2 seconds"):
        await ledger.renew("f", 0, "nobody", lease=LEASE)
    proxy.heal()
    assert await owner_of(patient, "g")
    await patient.aclose()


async def test_a_database_that_is_silent(proxy: Proxy) -> None:
    """decision: a call takes no longer because its driver cannot let go of the connection."""
    patient = behind(proxy)
    await warm_up(patient)
    engine = (await patient._databases.get()).engine
    ledger = SQLLedger(engine, table=patient.table.name, timeout=0.2, sweep_interval=1000)
    proxy.freeze()
    with pytest.raises(LedgerUnavailable, match=r"no answer within 0\.2 seconds"):
        await ledger.renew("f", 0, "nobody", lease=LEASE)
    (driver,) = await ledger._remote._tasks.get()
    assert not driver.done()
    proxy.heal()
    assert await owner_of(patient, "g")
    await ledger.aclose()
    await patient.aclose()


async def test_a_claim_that_becomes_free_while_it_is_looked_at(tmp_path: Path) -> None:
    """decision: what changes between the two statements is asked for again."""
    clock = FakeClock()
    ledger = SQLLedger(sqlite_url(tmp_path), clock=clock)
    await owner_of(ledger)
    await ledger._remote.settle()
    times = iter([START, START + LEASE, START + LEASE])
    ledger._clock = lambda: next(times)
    claimed = await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL)
    assert isinstance(claimed, Claimed)
    assert claimed.is_takeover
    times = iter([START, START + TTL + LEASE, START + TTL + LEASE])
    ledger._clock = lambda: next(times)
    claimed = await ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL)
    assert isinstance(claimed, Claimed)
    assert not claimed.is_takeover
    await ledger.aclose()


async def test_processes_claim_once(tmp_path: Path) -> None:
    """decision: workers that share a file share its locks."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import asyncio, sys\n"
        "from fastapi_mcp_mrtr.state.ledger.sql import SQLLedger\n"
        "async def main():\n"
        "    ledger = SQLLedger(sys.argv[1], timeout=60)\n"
        "    for n in range(50):\n"
        "        claim = await ledger.claim(f'f{n}', 0, 'x', lease=1000, ttl=5000)\n"
        "        print(n, type(claim).__name__)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-W", "error", str(script), sqlite_url(tmp_path)]
    pipe = asyncio.subprocess.PIPE
    workers = [
        await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe) for _ in range(2)
    ]
    said = await asyncio.gather(*(worker.communicate() for worker in workers))
    assert [errors.decode() for _, errors in said] == [""] * 2
    lines = [line for output, _ in said for line in output.decode().splitlines()]
    assert len(lines) == 100
    claimed = [line for line in lines if line.endswith("Claimed")]
    assert len(claimed) == len(set(claimed)) == 50


# ---------------------------------------------------------------------------------- the table


async def test_many_make_the_table_at_once(postgres_server: PostgresServer) -> None:
    """decision: workers that start together find one table, whoever made it."""
    table = unique("flows_")
    ledgers = [SQLLedger(postgres_server.url, table=table, timeout=60) for _ in range(10)]
    claims = await asyncio.gather(
        *(ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL) for ledger in ledgers)
    )
    assert sorted(type(claim).__name__ for claim in claims) == ["Claimed", *["Held"] * 9]
    for ledger in ledgers:
        await ledger.aclose()


async def test_a_table_that_a_migration_made(url: str) -> None:
    """decision: with Alembic the ledger touches no schema."""
    assert list(SQLLedger.metadata.tables) == ["mcp_flows"]
    ledger = SQLLedger(url, table=unique("flows_"), create_table=False)
    with pytest.raises(LedgerUnavailable, match=r"SQL: .*(42P01|SQLITE_ERROR)"):
        await owner_of(ledger)
    async with connected(ledger) as connection:
        await connection.run_sync(ledger.metadata.create_all)
    assert await owner_of(ledger)
    async with connected(ledger) as connection:
        await connection.run_sync(ledger.metadata.drop_all)
    await ledger.aclose()


async def test_an_account_that_may_not_create(postgres_server: PostgresServer) -> None:
    """decision: a table that is there is not made again, which would need the right to."""
    account, table = unique("app_"), unique("flows_")
    owner = SQLLedger(postgres_server.url, table=table)
    await owner.sweep()
    await owner.aclose()
    postgres_server.sql(f"CREATE ROLE {account} LOGIN")
    postgres_server.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {account}")
    ledger = SQLLedger(postgres_server.url.replace("postgres@", f"{account}@"), table=table)
    assert await owner_of(ledger)
    await ledger.aclose()


async def test_the_table_has_an_index_for_the_sweep(ledger: SQLLedger) -> None:
    """decision: to find what has expired, not everything is read."""
    (index,) = ledger.table.indexes
    async with connected(ledger) as connection:
        if connection.dialect.name == "sqlite":
            names = (await connection.execute(text("SELECT name FROM sqlite_master"))).scalars()
        else:
            names = (await connection.execute(text("SELECT indexname FROM pg_indexes"))).scalars()
        assert index.name in names.all()


def test_the_table_in_metadata_of_ones_own() -> None:
    """decision: what Alembic compares with is what an app has already."""
    table = flows_table(SQLLedger("sqlite:///x.db", table="flows").metadata, "others")
    assert table.name == "others"
    assert table.c.keys() == SQLLedger.metadata.tables["mcp_flows"].c.keys()


async def test_the_response_goes_with_the_next_round(ledger: SQLLedger) -> None:
    """decision: what can no longer be asked for is not kept."""
    await ledger.answer("f", 0, await owner_of(ledger), b"yes", ttl=TTL)
    await owner_of(ledger, round=1)
    async with connected(ledger) as connection:
        assert (await connection.execute(select(ledger.table.c.response))).scalar_one() is None


# ---------------------------------------------------------------------------------- the sweep


def expired(flow: str) -> dict[str, object]:
    """A row that was abandoned long ago."""
    said = {"fingerprint": "x", "status": "claimed", "owner": "o"}
    return {"flow": flow, "round": 0, **said, "lease_ends": 1, "expires": 1}


async def test_a_sweep_takes_all_that_has_expired(ledger: SQLLedger) -> None:
    """decision: in as many small steps as it takes, and nothing else."""
    async with connected(ledger) as connection:
        rows = [expired(f"old{n}") for n in range(1201)]
        await connection.execute(ledger.table.insert().values(rows))
    await owner_of(ledger, "alive")
    # The first claim began one in the background.
    await ledger._remote.settle()
    assert await count(ledger) == 1


async def test_a_sweep_comes_in_batches(ledger: SQLLedger) -> None:
    """decision: a writer of SQLite waits for one batch at most."""
    deletions: list[int] = []
    engine = (await ledger._databases.get()).engine

    def note(_c: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "DELETE" in statement:
            deletions.append(cursor.rowcount)

    event.listen(engine.sync_engine, "after_cursor_execute", note)
    async with connected(ledger) as connection:
        rows = [expired(f"old{n}") for n in range(1001)]
        await connection.execute(ledger.table.insert().values(rows))
    assert await ledger.sweep() == 1001
    assert deletions == [500, 500, 1]


async def test_claims_sweep_in_the_background(url: str) -> None:
    """decision: as long as there are claims nobody has to think of it."""
    ledger = SQLLedger(url, table=unique("flows_"), sweep_interval=0)
    await owner_of(ledger, "old")
    await ledger._remote.settle()
    await expire(ledger)
    await owner_of(ledger, "new")
    await ledger._remote.settle()
    assert await count(ledger) == 1
    async with connected(ledger) as connection:
        await connection.run_sync(ledger.metadata.drop_all)
    await ledger.aclose()


async def test_claims_sweep_now_and_then(ledger: SQLLedger) -> None:
    """decision: once a minute, and not with every claim."""
    await owner_of(ledger, "old")
    await ledger._remote.settle()
    await expire(ledger)
    await owner_of(ledger, "new")
    await ledger._remote.settle()
    assert await count(ledger) == 2


async def test_a_sweep_that_fails(
    ledger: SQLLedger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: it is told, and no request hears of it."""
    monkeypatch.setattr(ledger._statements, "sweep", text("DELETE FROM nowhere"))
    ledger._create_table = False
    await owner_of(ledger)
    await ledger._remote.settle()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fastapi_mcp_mrtr", logging.WARNING)
    assert "could not be deleted" in record.getMessage()


async def test_a_sweep_leaves_alone_what_is_being_claimed(
    postgres_server: PostgresServer,
) -> None:
    """decision: neither waits for the other."""
    ledger = SQLLedger(postgres_server.url, table=unique("flows_"))
    await owner_of(ledger, "busy")
    await owner_of(ledger, "idle")
    await ledger._remote.settle()
    await expire(ledger)
    engine = create_async_engine(postgres_server.url)
    async with engine.begin() as connection:
        lock = select(ledger.table).where(ledger.table.c.flow == "busy").with_for_update()
        await connection.execute(lock)
        assert await ledger.sweep() == 1
    assert await ledger.sweep() == 1
    await engine.dispose()
    await ledger.aclose()


# -------------------------------------------------------------------------- what users bring


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///flows.db", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:///flows.db", "sqlite+aiosqlite"),
        ("postgresql://localhost/app", "postgresql+asyncpg"),
        ("postgres://localhost/app", "postgresql+asyncpg"),
        (URL.create("postgresql", database="app"), "postgresql+asyncpg"),
    ],
)
async def test_a_url_needs_no_driver(given: str | URL, driver: str) -> None:
    """decision: what hosting platforms put into DATABASE_URL is understood."""
    ledger = SQLLedger(given)
    engine = (await ledger._databases.get()).engine
    assert engine.url.drivername == driver
    assert engine.sync_engine.hide_parameters
    await ledger.aclose()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite+aiosqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"]
)
def test_a_database_in_memory(url: str) -> None:
    """decision: it would be one for each connection, and look as if it worked."""
    with pytest.raises(ValueError, match="MemoryLedger"):
        SQLLedger(url)


def test_another_database() -> None:
    """decision: refused where it is configured, and not at the first call."""
    with pytest.raises(ValueError, match="'mysql'"):
        Statements(SQLLedger.metadata.tables["mcp_flows"], "mysql")


@pytest.mark.parametrize("url", ["mysql://localhost/app", "mysql+aiomysql://localhost/app"])
def test_the_url_of_another_database(url: str) -> None:
    """User report: it was said that a driver is missing, which would have been of no use."""
    with pytest.raises(ValueError, match="SQLite and PostgreSQL, and not 'mysql'"):
        SQLLedger(url)


@pytest.mark.parametrize("given", ["flows.db", "host=localhost password=secret"])
def test_what_is_no_url(given: str) -> None:
    """User report: the name of a file. What may have a password in it is not repeated."""
    with pytest.raises(ValueError, match=r"sqlite:///flows[.]db") as raised:
        SQLLedger(given)
    assert "secret" not in str(raised.value)


def test_a_driver_that_blocks() -> None:
    """decision: the same."""
    with pytest.raises(ValueError, match=r"'sqlite\+pysqlite'"):
        SQLLedger("sqlite+pysqlite:///flows.db")


def test_a_driver_that_is_not_installed() -> None:
    """decision: the same."""
    with pytest.raises(ModuleNotFoundError):
        SQLLedger("postgresql+psycopg_async://localhost/app")


async def test_an_engine_stays_its_owners(tmp_path: Path) -> None:
    """decision: what was handed in is not disposed of."""
    engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
    ledger = SQLLedger(engine)
    owner = await owner_of(ledger)
    await ledger.aclose()
    assert await ledger.renew("f", 0, owner, lease=LEASE)
    await ledger.aclose()
    await engine.dispose()


async def test_readers_of_a_file_do_not_wait_for_the_writer(tmp_path: Path) -> None:
    """decision: SQLite writes ahead, which the file remembers."""
    path = tmp_path / "flows.db"
    ledger = SQLLedger(f"sqlite:///{path}")
    await owner_of(ledger)
    await ledger.aclose()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_an_engine_that_begins_by_itself(tmp_path: Path) -> None:
    """decision: with the known remedy for SQLite's transactions, too, a claim is committed."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'flows.db'}"
    engine = create_async_engine(url)

    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    event.listen(engine.sync_engine, "begin", begin)
    ledger = SQLLedger(engine)
    owner = await owner_of(ledger)
    other = SQLLedger(url)
    assert await other.answer("f", 0, owner, b"yes", ttl=TTL)
    await other.aclose()
    await ledger.aclose()
    await engine.dispose()


async def test_an_engine_that_is_careful(postgres_server: PostgresServer) -> None:
    """decision: whatever isolation an app has chosen, claims at the same time do not fail."""
    engine: AsyncEngine = create_async_engine(
        postgres_server.url,
        isolation_level="SERIALIZABLE",
        connect_args={"server_settings": {"default_transaction_isolation": "serializable"}},
    )
    ledger = SQLLedger(engine, table=unique("flows_"), timeout=60)
    claims = await asyncio.gather(
        *(ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL) for _ in range(20))
    )
    assert sorted(type(claim).__name__ for claim in claims) == ["Claimed", *["Held"] * 19]
    await ledger.aclose()
    await engine.dispose()


def test_a_loop_for_each_request(url: str) -> None:
    """decision: a test client runs each request in an event loop of its own, and closes nothing."""
    ledger = SQLLedger(url, table=unique("flows_"))
    owner = asyncio.run(owner_of(ledger))
    assert asyncio.run(ledger.answer("f", 0, owner, b"yes", ttl=TTL))
    again = asyncio.run(ledger.claim("f", 0, "x", lease=LEASE, ttl=TTL))
    assert again == Answered(b"yes")
    gc.collect()  # a connection that was left open would be told of here, as an error
    assert not ledger._databases._lives


# ------------------------------------------------------------------------------ what is wrong


async def test_what_a_database_says_is_not_repeated(postgres_server: PostgresServer) -> None:
    """decision: its message may quote the row, so the log gets the code alone."""
    ledger = SQLLedger(postgres_server.url, table=unique("flows_"))
    await ledger.sweep()
    postgres_server.sql(
        f"ALTER TABLE {ledger.table.name} ADD CHECK (response <> '\\x736563726574')"
    )
    owner = await owner_of(ledger)
    with pytest.raises(LedgerUnavailable) as refused:
        await ledger.answer("f", 0, owner, b"secret", ttl=TTL)
    assert str(refused.value) == "SQL: IntegrityError 23514"
    assert refused.value.__cause__ is None
    await ledger.aclose()


async def test_a_mistake_of_the_callers_stays_one(ledger: SQLLedger) -> None:
    """decision: what is not the database's fault is not called so."""
    with pytest.raises(TypeError):
        await ledger.claim("f", 0, "x", lease="soon", ttl=TTL)  # type: ignore[arg-type]


async def test_a_driver_that_fails_by_itself(ledger: SQLLedger) -> None:
    """decision: neither a database nor a network that failed, so it is not explained away."""

    async def fail(_: AsyncConnection) -> None:
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        await ledger._remote.call(lambda: ledger._work(fail))
