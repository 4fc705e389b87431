"""What every test shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn runs on asyncio, so the tests do."""
    return "asyncio"
