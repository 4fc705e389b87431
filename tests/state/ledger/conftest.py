"""Each store in turn."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from . import backends
from .backends import Backend, OpenBackend
from .services import PostgresServer, RedisServer

STORES = ["memory", "sqlite", "redis", "redis_cluster", "postgres"]


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
