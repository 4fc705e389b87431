"""What a process costs before and after its calls: import time, memory, sealing."""

import os
import resource
import statistics
import subprocess
import sys
import timeit
from typing import Final

from fastapi_mcp_mrtr import AESGCMCodec, KeyRing, Secret
from fastapi_mcp_mrtr.rounds.journal import Journal, StepResult
from fastapi_mcp_mrtr.state.codec import REQUEST_STATE
from fastapi_mcp_mrtr.state.security import FlowState, RequestBinding, StateSecurity

from .servers import LOAD_CORE, ROOT

IMPORTS: Final = {
    "fastapi": "import fastapi",
    "fastapi_mcp_mrtr": "import fastapi_mcp_mrtr",
    "mcp": "from mcp.server.mcpserver import MCPServer",
    "fastmcp": "from fastmcp import FastMCP",
}
"""What is imported to write a server with each."""


def import_seconds(rounds: int) -> dict[str, list[float]]:
    """CPU of a process that imports a package, beyond that of one which imports nothing."""
    statements = {"": "pass", **IMPORTS}
    found: dict[str, list[float]] = {name: [] for name in statements}
    for statement in statements.values():
        _cpu_of(statement)  # the files are read, the bytecode is written
    for _ in range(rounds):
        for name, statement in statements.items():
            found[name].append(_cpu_of(statement))
    nothing = statistics.median(found.pop(""))
    return {name: [second - nothing for second in seconds] for name, seconds in found.items()}


def _cpu_of(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", statement],
        check=True,
        cwd=ROOT,
        preexec_fn=lambda: os.sched_setaffinity(0, [LOAD_CORE]),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seal_and_open_us() -> dict[str, float]:
    """Microseconds to seal and open 300 bytes, and to bind and check them besides."""
    ring = KeyRing(primary=Secret("bench", b"s" * 32))
    codec = AESGCMCodec(ring)
    payload = b"x" * 300
    security = StateSecurity(codec, ring, audience="bench", max_state_bytes=65_536)
    binding = RequestBinding("tools/call", "book", "d" * 32, b'["s","alice"]')
    journal = Journal(steps={"hold": StepResult("hold()", "d" * 32, "x" * 40)})
    flow = FlowState("f" * 32, 1, 1e9, journal, asked=1)

    def bare() -> None:
        codec.unseal(codec.seal(payload, purpose=REQUEST_STATE), purpose=REQUEST_STATE)

    def bound() -> None:
        token = security.seal(flow, binding, now=1e9, ttl=600, flow_lifetime=3600)
        security.unseal(token, binding, now=1e9)

    return {
        "codec": min(timeit.repeat(bare, number=1000, repeat=15)) * 1000,
        "with every binding": min(timeit.repeat(bound, number=1000, repeat=15)) * 1000,
    }
