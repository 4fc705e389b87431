"""An app on a database of its own for every test, and the clients that use it."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from demo_app.app import create_app
from demo_app.settings import Settings
from fastapi_mcp_mrtr import Secret
from fastapi_mcp_mrtr.testing import MCPTestClient

from .helpers import AMELIE, SECRET, Browser, Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(tmp_path: Path, clock: Clock) -> FastAPI:
    settings = Settings(
        database=tmp_path / "desk.sqlite3",
        secret=Secret("tests", SECRET),
        patience=0,
        partner_pause=0,
    )
    return create_app(settings, clock=clock)


@pytest.fixture
def client(app: FastAPI) -> Iterator[MCPTestClient]:
    """Amélie's assistant."""
    with MCPTestClient(app, headers={"X-API-Key": AMELIE}, log_level="debug") as client:
        yield client


@pytest.fixture
def http(client: MCPTestClient) -> httpx2.Client:
    """The same app over plain HTTP."""
    return client.http


@pytest.fixture
def browser(http: httpx2.Client) -> Browser:
    return Browser(http)
