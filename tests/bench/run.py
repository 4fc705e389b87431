"""`make bench`: every scenario in rounds in which everybody has a turn, a table, and `bench.json`.

Rates are for each second that a server had its core for. On a machine with nothing else to do that
is what the clock says; on any other one, the clock also measures the others. A ratio is the median
of the ratios of every round, so what slows a round down slows down both. `bench.json` has all
slices, with the clock's figures too. The spread is half the distance between the quartiles.

`QUICK=1` takes fewer rounds, and fewer calls for the memory: two minutes in all.
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
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.state.ledger.services import PostgresServer, RedisServer

from .load import CONNECTIONS, Connections, Slice
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
ROUNDS: Final = 12 if QUICK else 60
SECONDS: Final = 0.12
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

Found = dict[str, list[Slice]]
"""The slices of a scenario, by entrant."""


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


def measure(scenario: Scenario, connections: Mapping[str, Connections]) -> Found:
    """The slices of each entrant, in rounds in which everybody has a turn."""
    entrants = [entrant for entrant in scenario.entrants if entrant.server in connections]
    plans = [
        (entrant, connections[entrant.server], entrant.prepare(connections[entrant.server]))
        for entrant in entrants
    ]
    found: Found = {entrant.name: [] for entrant in entrants}
    for entrant, server, requests in plans:  # caches fill
        server.drive(requests, SECONDS, then=entrant.then)
    for round in range(ROUNDS):
        # Who is measured beside whom, and who first, is different in the next round.
        for entrant, server, requests in plans if round % 2 == 0 else reversed(plans):
            found[entrant.name].append(server.drive(requests, SECONDS, then=entrant.then))
    return found


def rate(entrant: Entrant, slices: list[Slice]) -> float:
    """What the scenario counts, a second of the server's core: the median."""
    return statistics.median(part.per_cpu_second for part in slices) * entrant.per_request


def ratio(scenario: Scenario, found: Found, above: str, below: str) -> tuple[float, float]:
    """The median of the ratios of every round, and their spread."""
    weights = {entrant.name: entrant.per_request for entrant in scenario.entrants}
    weight = weights[above] / weights[below]
    of_rounds = [
        a.per_cpu_second / b.per_cpu_second * weight
        for a, b in zip(found[above], found[below], strict=True)
    ]
    low, middle, high = statistics.quantiles(of_rounds, n=4)
    return middle, (high - low) / 2


def p99_ms(slices: list[Slice]) -> float:
    latencies = sorted(latency for part in slices for latency in part.latencies)
    return latencies[len(latencies) * 99 // 100] * 1000


def report(scenario: Scenario, found: Found) -> None:
    entrants = {entrant.name: entrant for entrant in scenario.entrants}
    print(f"\n{scenario.name} ({scenario.counted} a second of one core)")
    for name, slices in found.items():
        relative = ""
        if LIBRARY in found and name != LIBRARY:
            middle, spread = ratio(scenario, found, LIBRARY, name)
            relative = f"{middle:6.2f} x ±{spread:.2f}"
        busy = sum(part.load_cpu for part in slices) / sum(part.elapsed for part in slices)
        print(
            f"  {name:36}{rate(entrants[name], slices):10,.0f}  p99 {p99_ms(slices):7.2f} ms"
            f"  load {busy:4.0%}  {relative}"
        )


def memory(server: Server, calls: Connections, bare: Server, idle: Connections) -> dict[str, int]:
    """Kilobytes of the process: fresh, after many calls, after many flows that nobody ends."""
    echo, first = tool("echo")(calls), first_round("two_rounds")
    plain(idle)
    found = {"idle": server.resident_kb(), "idle, bare FastAPI": bare.resident_kb()}
    # What grows once, such as caches and the allocator's pools, has grown then.
    _drive_at_least(calls, echo, CALLS // 10)
    _drive_at_least(calls, first(calls), ABANDONED // 10)
    found["warm"] = server.resident_kb()
    _drive_at_least(calls, echo, CALLS)
    found["after the calls"] = server.resident_kb()
    _drive_at_least(calls, first(calls), ABANDONED)
    found["after the abandoned flows"] = server.resident_kb()
    return found


def _drive_at_least(server: Connections, requests: Any, count: int) -> None:
    while count > 0:
        count -= server.drive(requests, 0.5).responses


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


def summary(part: Slice) -> dict[str, float]:
    """A slice without its latencies, for `bench.json`."""
    return {
        "responses": part.responses,
        "elapsed": round(part.elapsed, 6),
        "server_cpu": round(part.server_cpu, 6),
        "load_cpu": round(part.load_cpu, 6),
    }


def main() -> None:
    began = time.monotonic()
    if len(CORES) < 2:
        print("One core only: the load takes from the servers what it needs. Expect noise.")
    runs: dict[str, Found] = {}
    with ledger_urls() as urls, ExitStack() as stack:
        servers = start_all(stack, urls)
        os.sched_setaffinity(0, [LOAD_CORE])
        connections = {
            name: stack.enter_context(closing(Connections(server)))
            for name, server in servers.items()
        }
        kilobytes = memory(
            *(servers["library"], connections["library"]),
            *(servers["fastapi"], connections["fastapi"]),
        )
        for scenario in SCENARIOS:
            runs[scenario.name] = measure(scenario, connections)
            report(scenario, runs[scenario.name])
    imports = import_seconds(3 if QUICK else 9)
    sealing = seal_and_open_us()
    against = {
        name: ratio(scenario, runs[scenario.name], above, below)
        for name, (scenario, above, below) in RATIOS.items()
    }
    figures = {
        "machine": machine(),
        "versions": {name: version(name) for name in PACKAGES},
        "quick": QUICK,
        "rounds": ROUNDS,
        "seconds": SECONDS,
        "runs": {
            scenario.name: {
                name: {
                    "p99_ms": round(p99_ms(slices), 3),
                    "per_cpu_second": round(rate(entrant, slices), 1),
                    "counted": scenario.counted,
                    "slices": [summary(part) for part in slices],
                }
                for entrant in scenario.entrants
                for name, slices in runs[scenario.name].items()
                if name == entrant.name
            }
            for scenario in SCENARIOS
        },
        "memory_kb": kilobytes,
        "calls": CALLS,
        "abandoned_flows": ABANDONED,
        "import_cpu_seconds": imports,
        "seal_and_open_us": sealing,
        "ratios": {name: round(middle, 3) for name, (middle, _) in against.items()},
        "spreads": {name: round(spread, 3) for name, (_, spread) in against.items()},
    }
    (ROOT / "bench.json").write_text(json.dumps(figures, indent=1) + "\n")
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
    for name, (middle, spread) in against.items():
        print(f"  {name:36}{middle:10.2f} ±{spread:.2f}")
    print(f"\nbench.json has it all; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
