"""Each store in turn."""

from collections.abc import AsyncIterator

import pytest

from . import backends
from .backends import Backend, OpenBackend

STORES = ["memory"]


@pytest.fixture(params=STORES)
def open_backend(request: pytest.FixtureRequest) -> OpenBackend:
    """Each store in turn."""
    return backends.in_memory


@pytest.fixture
async def backend(open_backend: OpenBackend) -> AsyncIterator[Backend]:
    """Each store in turn, opened in the event loop of the test."""
    async with open_backend() as backend:
        yield backend
