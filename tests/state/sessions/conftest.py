"""Each store in turn."""

from collections.abc import AsyncIterator

import pytest

from tests.state.ledger.services import RedisServer

from . import backends
from .backends import Backend, OpenBackend

STORES = ["memory", "redis", "redis_cluster"]


@pytest.fixture(params=STORES)
def open_backend(request: pytest.FixtureRequest) -> OpenBackend:
    """Each store in turn."""
    match request.param:
        case "memory":
            return backends.in_memory
        case "redis":
            server: RedisServer = request.getfixturevalue("redis_server")
            return lambda: backends.in_redis(server.url)
        case _:
            cluster: RedisServer = request.getfixturevalue("redis_cluster_server")
            return lambda: backends.in_redis_cluster(cluster.url)


@pytest.fixture
async def backend(open_backend: OpenBackend) -> AsyncIterator[Backend]:
    """Each store in turn, opened in the event loop of the test."""
    async with open_backend() as backend:
        yield backend
