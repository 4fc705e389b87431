"""The stores, started once for a test run and only if a test asks for them."""

from collections.abc import Iterator

import pytest

from .ledger.services import PostgresServer, RedisServer


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
