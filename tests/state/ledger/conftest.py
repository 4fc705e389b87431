"""The stores, started once for a test run and only if a test asks for them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from . import backends
from .backends import Backend, OpenBackend
from .services import PostgresServer, RedisServer

STORES = ["memory", "sqlite", "redis", "redis_cluster", "postgres"]


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster_server() -> Iterator[RedisServer]:
    """A cluster of one, which refuses what a cluster refuses."""
    with RedisServer(cluster=True) as server:
        server.say("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        while "cluster_state:ok" not in server.say("CLUSTER", "INFO"):
            pass
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=STORES)
def open_backend(request: pytest.FixtureRequest, tmp_path: Path) -> OpenBackend:
    """Each store in turn."""
    match request.param:
        case "memory":
            return backends.in_memory
        case "sqlite":
            return lambda: backends.in_sqlite(tmp_path)
        case "redis":
            server: RedisServer = request.getfixturevalue("redis_server")
            return lambda: backends.in_redis(server.url)
        case "redis_cluster":
            cluster: RedisServer = request.getfixturevalue("redis_cluster_server")
            return lambda: backends.in_redis_cluster(cluster.url)
        case _:
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            return lambda: backends.in_postgres(postgres.url)


@pytest.fixture
async def backend(open_backend: OpenBackend) -> AsyncIterator[Backend]:
    """Each store in turn, opened in the event loop of the test."""
    async with open_backend() as backend:
        yield backend
