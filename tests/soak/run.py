"""`make soak`: load of every kind for a while, and a verdict.

    python -m tests.soak.run --seconds 270

A tenth of the time, or half a minute, FastAPI's own route is called by as many clients; a fifth,
or a minute, warms the server up; then comes what is judged. Always judged: answers, what is left
behind, memory, the log. Judged only in a full run, which wants a machine that does nothing else:
the loop's lag, and whether p99 is the same in the last minute as in the first. What SIGTERM does in
the middle of it is in test_shutdown.py.
"""

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import uvloop

from .load import Found, load
from .server import KEEP_ALIVE, Server, leftovers, served
from .visits import MIX, PLAIN

FULL: Final = 240.0
"""Seconds from which a run is judged by the clock too."""

MAX_LAG_MS: Final = 50.0
MAX_DRIFT: Final = 1.5
"""How many times the p99 of the first part the p99 of the last one may be."""

NOISE_MS: Final = 5.0
"""Milliseconds by which percentiles differ from run to run on any machine."""

MAX_OBJECTS: Final = 2_000
"""Objects that there may be more of after the soak than before: caches that fill."""

MAX_GROWTH: Final = 0.1
"""How much more memory, in parts of what there was, the process may hold: the allocator's."""

EXPECTED: Final = re.compile(
    r"^INFO|requestState refused: |^WARNING: +Invalid HTTP request received"
)
"""Lines of the log about requests that were meant to be wrong."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Soak the server")
    parser.add_argument("--seconds", type=float, default=270)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.clients} clients, {options.seconds:g} s")
    with tempfile.TemporaryDirectory() as directory, served(Path(directory)) as server:
        soak = Soak(server, options.clients, options.seconds, options.seed)
        soak.run()
        logged = soak.log()
    for line in soak.faults:
        print(f"FAULT {line}")
    if logged:
        print(f"FAULT the server logged:\n{logged[-4000:]}")
    failed = bool(soak.faults or logged)
    print("Failed" if failed else "Passed")
    sys.exit(failed)


class Soak:
    """One run."""

    def __init__(self, server: Server, clients: int, seconds: float, seed: int) -> None:
        self._server = server
        self._clients = clients
        self._seconds = seconds
        self._seed = seed
        self._parts = 0
        self.faults: list[str] = []

    def run(self) -> None:
        fifth = min(60.0, self._seconds / 5)
        # Once through what is imported when it is first needed, and threads that stay.
        self._load("first calls", MIX, min(5.0, fifth))
        empty = self._server.settled()
        _, plain = self._load("a plain FastAPI route", PLAIN, fifth / 2, timed="plain")
        self._load("warming up", MIX, fifth)
        before = self._settle(empty)
        rest = self._seconds - fifth * 1.5 - min(5.0, fifth) - 2 * KEEP_ALIVE
        found, report = self._load("soaking", MIX, rest)
        after = self._settle(before)
        self._compare(before, after, report)
        if self._seconds >= FULL:
            self._judge_times(found, rest, report["lag"], plain["lag"])

    def _load(
        self, name: str, mix: Any, seconds: float, timed: str = "echo"
    ) -> tuple[Found, dict[str, Any]]:
        self._parts += 1
        before = self._server.report()  # the lag is measured from here on
        began, worked = time.monotonic(), time.process_time()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(
                load(
                    self._server.port,
                    mix,
                    clients=self._clients,
                    seconds=seconds,
                    seed=self._seed + self._parts,
                    timed=timed,
                )
            )
        elapsed = time.monotonic() - began
        worked = time.process_time() - worked
        report = self._server.report()
        self.faults += found.wrong
        parts = max(2, round(seconds / 60))
        p99 = [
            found.p99_ms(seconds / parts * part, seconds / parts * (part + 1))
            for part in range(parts)
        ]
        print(
            f"{name}: {found.visits.total()} visits in {elapsed:.0f} s, "
            f"{len(found.wrong)} of them wrong; of a core, the server used "
            f"{(report['cpu'] - before['cpu']) / elapsed:.0%}, the clients {worked / elapsed:.0%}\n"
            f"  p99 of {timed}, ms, part by part: {p99}\n"
            f"  lag of the loop, ms: {report['lag']}\n"
            f"  memory {report['resident_kb'] // 1024} MB, {report['threads']['count']} threads, "
            f"{report['flows']} flows in the ledger"
        )
        return found, report

    def _settle(self, before: dict[str, Any]) -> dict[str, Any]:
        report = self._server.settled(before)
        self.faults += leftovers(report, before)
        return report

    def _compare(
        self, before: dict[str, Any], after: dict[str, Any], loaded: dict[str, Any]
    ) -> None:
        more = Counter(after["objects"])
        more.subtract(before["objects"])
        objects = more.total()
        growth = after["resident_kb"] / before["resident_kb"] - 1
        print(
            f"memory, before and after: {before['resident_kb'] // 1024} and "
            f"{after['resident_kb'] // 1024} MB; {objects:+d} objects, most of them "
            f"{dict(more.most_common(8))}; "
            f"{before['flows']} and {after['flows']} flows; the cycle collector found "
            f"{loaded['garbage'] - before['garbage']} in {loaded['collections']} runs"
        )
        if objects > MAX_OBJECTS:
            self.faults.append(f"{objects} objects more than before")
        if growth > MAX_GROWTH:
            self.faults.append(f"{growth:.0%} more memory than before")

    def _judge_times(
        self, found: Found, seconds: float, lag: dict[str, float], plain: dict[str, float]
    ) -> None:
        """On a busy machine the plain route lags too, and then it is not ours."""
        if lag["p99.9"] > max(MAX_LAG_MS, 2 * plain["p99.9"]):
            self.faults.append(f"the loop lags by {lag['p99.9']} ms; {plain['p99.9']} without us")
        first, last = found.p99_ms(0, 60), found.p99_ms(seconds - 60, seconds)
        if last > first * MAX_DRIFT + NOISE_MS:
            self.faults.append(f"p99 was {first} ms in the first minute, {last} ms in the last")

    def log(self) -> str:
        """What the server has logged that is not part of what was done to it."""
        lines = self._server.process.text.splitlines()
        return "\n".join(line for line in lines if not EXPECTED.search(line))


if __name__ == "__main__":
    main()
