"""The stores, as in the tests of the ledgers."""

from tests.state.conftest import postgres_server, redis_cluster_server, redis_server
from tests.state.ledger.conftest import backend, open_backend

__all__ = ["backend", "open_backend", "postgres_server", "redis_cluster_server", "redis_server"]
