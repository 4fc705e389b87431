"""The load: `wrk`, pinned to the other core, with the requests that a scenario is made of.

wrk drives a bare ASGI app at several times the rate of the fastest contestant, so it is not what
is measured: `make bench` shows its share of its core beside every figure it matters for.
"""

import http.client
import json
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .servers import LOAD_CORE, Server

CONNECTIONS: Final = 16

_SCRIPT: Final = Path(__file__).with_name("requests.lua")


@dataclass(frozen=True, slots=True)
class Request:
    """A POST."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run of wrk found."""

    per_second: float
    """Responses, by the clock."""
    per_cpu_second: float
    """Responses for each second that the server had its core for."""
    p50_us: float
    p99_us: float
    load_cpu: float
    """How much of its core wrk needed; near 1 it would be the bottleneck."""


class BadAnswer(RuntimeError):
    """A contestant did not do what is to be measured."""


def require_wrk() -> None:
    """Say so if there is none.

    Raises: SystemExit.
    """
    if shutil.which("wrk") is None:
        raise SystemExit("make bench drives the servers with wrk: apt-get install wrk")


def send(port: int, request: Request) -> str:
    """Send one request: its answer.

    Raises: BadAnswer, unless it is a 200.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.status != 200:
        raise BadAnswer(f"{request.path} answered {response.status}: {text[:300]}")
    return text


def drive(
    server: Server, requests: Sequence[Request], seconds: int, *, then: Request | None = None
) -> Figures:
    """Send the requests in turn over 16 connections for a while.

    Each `requestState` that comes back is sent on in `then`, once, where it has `STATE`.

    Raises: BadAnswer, if one response was no success.
    """
    plan = {
        "requests": [_for_lua(request) for request in requests],
        "next": None if then is None else _for_lua(then),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f"local plan = {_lua(plan)}\n{_SCRIPT.read_text()}")
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script.name]
        before, served = resource.getrusage(resource.RUSAGE_CHILDREN), server.cpu_seconds()
        done = subprocess.run(
            [*command, f"http://127.0.0.1:{server.port}/"],
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, [LOAD_CORE]),
        )
        after, served = resource.getrusage(resource.RUSAGE_CHILDREN), server.cpu_seconds() - served
    found: dict[str, Any] = json.loads(done.stdout.rpartition("FIGURES ")[2])
    if found["failures"] or not found["requests"]:
        raise BadAnswer(f"{found['failures']} of {found['requests']} requests failed")
    elapsed = found["duration_us"] / 1e6
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Figures(
        found["requests"] / elapsed,
        found["requests"] / served,
        found["p50_us"],
        found["p99_us"],
        used / elapsed,
    )


def _for_lua(request: Request) -> dict[str, Any]:
    return {"path": request.path, "headers": request.headers, "body": request.body.decode()}


def _lua(value: Any) -> str:
    """A value as a Lua literal."""
    if value is None:
        return "nil"
    if isinstance(value, str):
        # Decimal escapes: what JSON escapes in other ways than Lua never comes up.
        return '"' + "".join(f"\\{byte:03d}" for byte in value.encode()) + '"'
    if isinstance(value, Mapping):
        return "{" + ",".join(f"[{_lua(k)}]={_lua(v)}" for k, v in value.items()) + "}"
    return "{" + ",".join(map(_lua, value)) + "}"
