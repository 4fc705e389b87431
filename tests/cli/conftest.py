"""The server that the commands talk to, and the commands run in this process."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from typer.testing import CliRunner, Result

from fastapi_mcp_mrtr.cli.commands import app

from . import served


@pytest.fixture(scope="package")
def base() -> Iterator[str]:
    """A real server on loopback, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(served.app, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="package")
def url(base: str) -> str:
    return f"{base}/mcp"


def run(*arguments: str, status: int = 0, **options: Any) -> Result:
    """Run a command; it must end with this status."""
    result = CliRunner().invoke(app, arguments, **options)
    assert result.exit_code == status, (result.exception, result.output)
    return result


def run_json(*arguments: str, status: int = 0, **options: Any) -> Any:
    """What a command prints for programs."""
    return json.loads(run(*arguments, "--json", status=status, **options).stdout)
