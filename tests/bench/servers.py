"""Contestants as processes: uvicorn with uvloop and httptools, one worker, pinned to a core."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]

CORES: Final = sorted(os.sched_getaffinity(0))
SERVER_CORE: Final = CORES[-1]
LOAD_CORE: Final = CORES[0]

_READY_WITHIN: Final = 30.0


class Server:
    """One contestant. `app` is `module:name` below `tests.bench.contestants`."""

    def __init__(self, app: str, environment: Mapping[str, str] | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        module, _, name = app.partition(":")
        command = [sys.executable, "-W", "ignore", "-m", "uvicorn"]
        command += [f"tests.bench.contestants.{module}:{name or 'app'}"]
        command += ["--loop", "uvloop", "--http", "httptools", "--workers", "1"]
        command += ["--port", str(self.port), "--log-level", "warning", "--no-access-log"]
        command += ["--timeout-keep-alive", "3600"]
        if name.endswith("_mode"):
            command.append("--factory")
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            # taskset's job, done here so that no other program is needed.
            preexec_fn=lambda: os.sched_setaffinity(0, [SERVER_CORE]),
        )
        self._app = app

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait(self) -> None:
        """Wait until it answers connections."""
        deadline = time.monotonic() + _READY_WITHIN
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._app} ended with {self._process.returncode}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"{self._app} did not start")

    def cpu_seconds(self) -> float:
        """What the process has had of its core: what it would take alone on the machine."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def resident_kb(self) -> int:
        """The memory that the process holds."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])
