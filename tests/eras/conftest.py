"""A Redis for the tests of this folder, started only if one asks for it."""

from collections.abc import Iterator

import pytest

from tests.state.ledger.services import RedisServer


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url
