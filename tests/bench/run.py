"""`make bench`: every scenario in interleaved rounds, one table, and `bench.json`.

Rates are for each second that a server had its core for. On a machine with nothing else to do that
is what the clock says; on any other one, the clock also measures the others. `bench.json` has both.
The spread is half the distance between the quartiles. `QUICK=1` takes fewer rounds, and fewer calls
for the memory: two minutes in all.
"""

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.state.ledger.services import PostgresServer, RedisServer

from .load import CONNECTIONS, Figures, drive, require_wrk
from .processes import import_seconds, seal_and_open_us
from .scenarios import (
    ECHO,
    LIST,
    SCENARIOS,
    STREAM,
    TOOLS,
    TWO_ROUNDS,
    Entrant,
    Scenario,
    first_round,
    plain,
    tool,
)
from .servers import CORES, LOAD_CORE, ROOT, SERVER_CORE, Server

QUICK: Final = os.environ.get("QUICK", "") not in ("", "0")
ROUNDS: Final = 2 if QUICK else 9
SECONDS: Final = 1
CALLS: Final = 20_000 if QUICK else 100_000
ABANDONED: Final = 4_000 if QUICK else 20_000

PACKAGES: Final = (
    *("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "pydantic", "pydantic-core"),
    *("mcp", "fastmcp", "cryptography", "sse-starlette", "fastapi-mcp-mrtr"),
)

LIBRARY: Final = "this library"
BARE: Final = "FastAPI route"
JSON_MODE: Final = "mcp, JSON mode"
DEFAULT_MODE: Final = "mcp, default mode"
BY_HAND: Final = "mcp, by hand"

RATIOS: Final[Mapping[str, tuple[Scenario, str, str]]] = {
    "echo_vs_fastapi": (ECHO, LIBRARY, BARE),
    "echo_vs_mcp_json": (ECHO, LIBRARY, JSON_MODE),
    "echo_vs_mcp_default": (ECHO, LIBRARY, DEFAULT_MODE),
    "two_rounds_vs_mcp_json": (TWO_ROUNDS, LIBRARY, BY_HAND),
    "tools_list_100_vs_mcp_json": (LIST, LIBRARY, JSON_MODE),
    "sse_vs_mcp": (STREAM, LIBRARY, DEFAULT_MODE),
    # Time per call, so the other way round: 1.0 is flat.
    "tools_1000_vs_1": (TOOLS, "1 tools", "1000 tools"),
}
"""What `bench.json` has under `ratios`: a scenario's figure for one entrant by that of another."""

Runs = dict[str, dict[str, list[Figures]]]
"""The figures of every run, by scenario and entrant."""


@contextmanager
def ledger_urls() -> Iterator[dict[str, str]]:
    """A store for every ledger whose program this machine has."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        urls = {"memory": "", "sqlite": f"sqlite+aiosqlite:///{folder}/flows.db"}
        if shutil.which(os.environ.get("REDIS_SERVER", "redis-server")):
            urls["redis"] = stack.enter_context(RedisServer()).url
        if [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]:
            urls["postgresql"] = stack.enter_context(PostgresServer()).url
        yield urls


def start_all(stack: ExitStack, urls: Mapping[str, str]) -> dict[str, Server]:
    """Every contestant, all at once: they cost nothing while they are not asked."""
    apps: dict[str, tuple[str, dict[str, str]]] = {
        "starlette": ("bare_starlette", {}),
        "fastapi": ("bare_fastapi", {}),
        "fastapi_least": ("bare_fastapi:least", {}),
        "library": ("library", {}),
        "mcp_json": ("official:json_mode", {}),
        "mcp_default": ("official:default_mode", {}),
        "mcp_json_100": ("official:json_mode", {"BENCH_TOOLS": "100"}),
        "fastmcp": ("fast_mcp", {}),
    }
    for count in (1, 100, 1000):
        apps[f"library_{count}"] = ("library", {"BENCH_TOOLS": str(count)})
    for name, url in urls.items():
        apps[f"library_{name}"] = ("library", {"BENCH_LEDGER": url})
    servers = {
        name: stack.enter_context(Server(app, environment))
        for name, (app, environment) in apps.items()
    }
    for server in servers.values():
        server.wait()
    return servers


def measure(scenario: Scenario, servers: Mapping[str, Server]) -> dict[str, list[Figures]]:
    """The figures of each entrant, in rounds in which everybody has a turn."""
    entrants = [entrant for entrant in scenario.entrants if entrant.server in servers]
    plans = [
        (entrant, servers[entrant.server], entrant.prepare(servers[entrant.server].port))
        for entrant in entrants
    ]
    found: dict[str, list[Figures]] = {entrant.name: [] for entrant in entrants}
    for round in range(ROUNDS):
        # Whoever is measured first, the machine has that much more to say about the others.
        for entrant, server, requests in plans if round % 2 == 0 else reversed(plans):
            found[entrant.name].append(drive(server, requests, SECONDS, then=entrant.then))
    return found


def rate(entrant: Entrant, runs: list[Figures]) -> float:
    """What the scenario counts, a second of the server's core: the median."""
    return statistics.median(run.per_cpu_second for run in runs) * entrant.per_request


def report(scenario: Scenario, found: Mapping[str, list[Figures]]) -> None:
    entrants = {entrant.name: entrant for entrant in scenario.entrants}
    base = rate(entrants[LIBRARY], found[LIBRARY]) if LIBRARY in found else None
    print(f"\n{scenario.name} ({scenario.counted} a second of one core)")
    for name, runs in found.items():
        rates = [run.per_cpu_second for run in runs]
        low, _, high = statistics.quantiles(rates, n=4)
        spread = (high - low) / statistics.median(rates) / 2
        p99 = statistics.median(run.p99_us for run in runs) / 1000
        relative = f"{base / rate(entrants[name], runs):6.2f} x" if base else " " * 8
        print(
            f"  {name:36}{rate(entrants[name], runs):10,.0f} ±{spread:4.0%}  p99 {p99:6.2f} ms"
            f"  {relative}  wrk {max(run.load_cpu for run in runs):4.0%}"
        )


def ratios(runs: Runs) -> dict[str, float]:
    found = {}
    for name, (scenario, above, below) in RATIOS.items():
        rates = {
            entrant.name: rate(entrant, runs[scenario.name][entrant.name])
            for entrant in scenario.entrants
            if entrant.name in runs[scenario.name]
        }
        found[name] = round(rates[above] / rates[below], 3)
    return found


def memory(server: Server, bare: Server) -> dict[str, int]:
    """Kilobytes of the process: fresh, after many calls, after many flows that nobody ends."""
    tool("echo")(server.port)
    plain(bare.port)
    found = {"idle": server.resident_kb(), "idle, bare FastAPI": bare.resident_kb()}
    # What grows once, such as caches and the allocator's pools, has grown then.
    _drive_at_least(server, tool("echo")(server.port), CALLS // 10)
    _drive_at_least(server, first_round("two_rounds")(server.port), ABANDONED // 10)
    found["warm"] = server.resident_kb()
    _drive_at_least(server, tool("echo")(server.port), CALLS)
    found["after the calls"] = server.resident_kb()
    _drive_at_least(server, first_round("two_rounds")(server.port), ABANDONED)
    found["after the abandoned flows"] = server.resident_kb()
    return found


def _drive_at_least(server: Server, requests: Any, count: int) -> None:
    while count > 0:
        count -= round(drive(server, requests, 1).per_second)


def machine() -> dict[str, Any]:
    processor = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
    return {
        "processor": processor,
        "cores": len(CORES),
        "system": platform.platform(),
        "python": sys.version,
        "server core": SERVER_CORE,
        "load core": LOAD_CORE,
        "connections": CONNECTIONS,
    }


def main() -> None:
    require_wrk()
    began = time.monotonic()
    if len(CORES) < 2:
        print("One core only: the load takes from the servers what it needs. Expect noise.")
    runs: Runs = {}
    with ledger_urls() as urls, ExitStack() as stack:
        servers = start_all(stack, urls)
        kilobytes = memory(servers["library"], servers["fastapi"])
        for scenario in SCENARIOS:
            runs[scenario.name] = measure(scenario, servers)
            report(scenario, runs[scenario.name])
    against = ratios(runs)
    imports = import_seconds(3 if QUICK else 9)
    sealing = seal_and_open_us()
    figures = {
        "machine": machine(),
        "versions": {name: version(name) for name in PACKAGES},
        "quick": QUICK,
        "rounds": ROUNDS,
        "seconds": SECONDS,
        "runs": {
            scenario: {name: [asdict(run) for run in entrant] for name, entrant in found.items()}
            for scenario, found in runs.items()
        },
        "memory_kb": kilobytes,
        "calls": CALLS,
        "abandoned_flows": ABANDONED,
        "import_cpu_seconds": imports,
        "seal_and_open_us": sealing,
        "ratios": against,
    }
    (ROOT / "bench.json").write_text(json.dumps(figures, indent=2) + "\n")
    print("\nimport, CPU seconds beyond the interpreter's")
    base = statistics.median(imports["fastapi"])
    for name, seconds in imports.items():
        middle = statistics.median(seconds)
        print(f"  {name:36}{middle:10.3f}  {middle / base:5.2f} x fastapi")
    print("\nresident memory, MB")
    for name, size in kilobytes.items():
        print(f"  {name:36}{size / 1024:10.1f}")
    print("\nsealing and opening 300 bytes, µs")
    for name, microseconds in sealing.items():
        print(f"  {name:36}{microseconds:10.1f}")
    print("\nratios")
    for name, ratio in against.items():
        print(f"  {name:36}{ratio:10.2f}")
    print(f"\nbench.json has it all; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
