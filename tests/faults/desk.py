"""The processes of the desk: started, killed and started again, and nobody else's touched.

They are forked from one process that has imported everything, once: importing takes longer than all
that a worker does in its short life.
"""

import multiprocessing
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_FORKS: Final = multiprocessing.get_context("forkserver")
_IMPORTED_ONCE: Final = [
    "aiosqlite",
    "fastapi_mcp_mrtr.http.router",
    "fastapi_mcp_mrtr.state.ledger.redis",
    "fastapi_mcp_mrtr.state.ledger.sql",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.logging",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
]

# Below the ports that the system gives to outgoing connections: a client that connects to a worker
# that is down must not be given that worker's port, and so itself.
_PORTS: Final = range(20_000, 32_000)


class Worker:
    """One uvicorn process. Its port is free for it again after it was killed."""

    def __init__(self, environ: Mapping[str, str], log: Path) -> None:
        self._environ = environ
        self._log = log
        self._process: ForkServerProcess | None = None
        self.port = 0

    def start(self) -> None:
        self.port = self.port or _free_port()
        self._log.touch()
        self._process = _FORKS.Process(
            target=_serve, args=(self.port, dict(self._environ), str(self._log)), daemon=True
        )
        self._process.start()

    def kill(self) -> None:
        """SIGKILL, by process id. It has no chance to tell anybody."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
            process.close()

    def is_up(self) -> bool:
        """Whether it takes connections. If it could not have its port, it is given another."""
        if self._process is not None and self._process.exitcode is not None:
            if "address already in use" not in self.log:
                raise RuntimeError(f"A worker ended by itself:\n{self.log}")
            self.port = 0
            self.start()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


def _serve(port: int, environ: dict[str, str], log: str) -> None:
    import uvicorn  # not where the tests run

    os.environ.update(environ)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    threading.Thread(target=_leave_with_the_tests, daemon=True).start()
    uvicorn.run("tests.faults.app:app", port=port, log_level="warning", access_log=False)


def _leave_with_the_tests() -> None:
    tests = multiprocessing.parent_process()
    assert tests is not None
    wait([tests.sentinel])
    os._exit(1)


class Workers:
    """All of them, as a context manager."""

    def __init__(self, count: int, environ: Mapping[str, str], folder: Path) -> None:
        self.all = [
            Worker({**environ, "WORKER": str(number)}, folder / f"worker-{number}.log")
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        _FORKS.set_forkserver_preload(_IMPORTED_ONCE)
        for worker in self.all:
            worker.start()
        while not all(worker.is_up() for worker in self.all):
            time.sleep(0.05)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self.all:
            worker.kill()

    @property
    def log(self) -> str:
        return "".join(worker.log for worker in self.all)


def _free_port() -> int:
    ports = list(_PORTS)
    random.shuffle(ports)
    for port in ports:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("No port is free")
