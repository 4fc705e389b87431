"""The soaked server as a process: uvicorn with uvloop and httptools, and what it reports."""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.demo_app.helpers import Process, free_port

SETTLES_WITHIN: Final = 30.0
"""Seconds until what clients left behind must be gone: leases and idle threads take their time."""

KEEP_ALIVE: Final = 5
"""uvicorn's default. So long after a reset it holds on to the objects of a connection."""

GRACE: Final = 10
"""Seconds uvicorn gives requests after SIGTERM: more than `shutdown_grace`."""


class Server:
    """The process, and its report."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port

    def report(self, *, collect: bool = False) -> dict[str, Any]:
        """What the server says of itself, over a connection that it closes afterwards."""
        url = f"http://127.0.0.1:{self.port}/report?collect={collect}"
        with urllib.request.urlopen(url, timeout=60) as response:
            report: dict[str, Any] = json.load(response)
        return report

    def settled(self, like: dict[str, Any] | None = None) -> dict[str, Any]:
        """The report once nothing is left, compared with an earlier one, or as it is then."""
        if like is None:
            return self.report(collect=True)
        deadline = time.monotonic() + SETTLES_WITHIN
        time.sleep(KEEP_ALIVE + 1)
        while True:
            report = self.report(collect=True)
            if not leftovers(report, like) or time.monotonic() > deadline:
                return report
            time.sleep(0.2)


def leftovers(report: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """What there is that was not there before."""
    found = [
        f"{what}: {before[what]} before, {report[what]} after"
        for what in ("tasks", "descriptors")
        if report[what] != before[what]
    ]
    marks = report["marks"]
    for kind in ("sessions", "thread sessions"):
        opened, closed = marks.get(f"{kind} opened", 0), marks.get(f"{kind} closed", 0)
        if opened != closed:
            found.append(f"{kind}: {opened} opened, {closed} closed")
    if marks.get("lasting", 0):
        found.append(f"{marks['lasting']} handlers still run")
    if report["threads"]["borrowed"]:
        found.append(f"{report['threads']['borrowed']} threads are still at work")
    if report["uncollectable"]:
        found.append(f"{report['uncollectable']} objects cannot be collected")
    return found


@contextmanager
def served(directory: Path) -> Iterator[Server]:
    """The server, until the end of the block."""
    port = free_port()
    process = Process(
        [
            *("uvicorn", "--factory", "tests.soak.app:create_app", "--no-access-log"),
            *("--loop", "uvloop", "--http", "httptools", "--backlog", "2048"),
            *("--host", "127.0.0.1", "--port", str(port), "--timeout-keep-alive", str(KEEP_ALIVE)),
            *("--timeout-graceful-shutdown", str(GRACE)),
        ],
        directory / "server.log",
    )
    try:
        process.wait_for("Uvicorn running")
        yield Server(process, port)
    finally:
        process.end()
