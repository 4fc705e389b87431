"""Run the official suite's authorization set against the demo's authorization server, and judge it.

    python -m tests.conformance.run_authorization

The suite prints a link for a person to follow; here a browser with a script does. As in `run`, the
verdict comes from the `checks.json` of each scenario, not from the suite's exit code.
"""

import argparse
import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import uvicorn
from fastapi import FastAPI

from demo_app.auth_server import AuthServer, AuthSettings, Client, Resource, seeded_customer
from demo_app.oauth_player import ScriptedBrowser, document_served

from .run import HERE, REVISION, Results, read

SCENARIOS: Final[Mapping[str, int]] = {
    "authorization-server-metadata-endpoint": 2,
    "authorization-code-grant": 1,
}
"""How many checks each scenario must have succeeded in."""

KEY: Final = "key-amelie"

KNOWN: Final = "conformance"

REDIRECT_URI: Final = "http://127.0.0.1/callback"
"""The suite's, but for the port."""

TIMEOUT: Final = 120


def judge(results: Results) -> list[str]:
    """Why this run does not count as conformant; empty when it does. Nothing is tolerated."""
    problems = [
        str(check)
        for checks in results.values()
        for check in checks
        if check.status not in {"SUCCESS", "INFO"}
    ]
    for scenario, expected in SCENARIOS.items():
        found = sum(check.status == "SUCCESS" for check in results.get(scenario, ()))
        if found < expected:
            problems.append(f"{scenario}: {found} checks succeeded instead of {expected}")
    return problems


# ---------------------------------------------------------------------------- running things


@asynccontextmanager
async def authorization_server() -> AsyncIterator[str]:
    """The demo's, on a free port of 127.0.0.1. Yields the address of its host."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = AuthSettings(
            issuer=f"{base}/as",
            resources=(Resource(uri=f"{base}/mcp", name="Conformance"),),
            sign_in=seeded_customer,
            loopback_documents=True,
        )
        known = Client(id=KNOWN, name="Conformance suite", redirect_uris=(REDIRECT_URI,))
        app = FastAPI()
        app.include_router(AuthServer(settings, clients=[known]).router)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield base
        finally:
            server.should_exit = True
            await serving


async def register(base: str) -> str:
    """The id of a client that has just registered."""
    async with httpx2.AsyncClient() as http:
        metadata = {"client_name": "Conformance suite", "redirect_uris": [REDIRECT_URI]}
        response = await http.post(f"{base}/as/register", json=metadata)
        client_id: str = response.raise_for_status().json()["client_id"]
        return client_id


def find_npx() -> tuple[str, str]:
    """npx, and the PATH to run it with.

    Raises:
        SystemExit: it or the suite is missing.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    npx = shutil.which("npx", path=path)
    if npx is None or not (HERE / "node_modules").is_dir():
        sys.exit("The suite is not installed. `make conformance` installs it.")
    return npx, path


async def run_suite(base: str, out: Path, client_id: str, *options: str) -> str:
    """Run the pinned suite as this client; its results go to `out`. Gives what it printed.

    Raises:
        SystemExit: it cannot be run, or not to its end.
    """
    npx, path = find_npx()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    suite = await asyncio.create_subprocess_exec(
        npx, "--no-install", "conformance", "authorization",
        "--url", f"{base}/as", "--client-id", client_id, "--port", str(port),
        "--spec-version", REVISION, "-o", str(out), *options,
        cwd=HERE,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(TIMEOUT):
            said = await _follow_links(suite, f"{base}/as/authorize?")
            await suite.wait()
            return said
    except TimeoutError:
        sys.exit(f"The suite did not end within {TIMEOUT} s.")
    finally:
        if suite.returncode is None:
            suite.kill()
            await suite.wait()


async def _follow_links(suite: asyncio.subprocess.Process, start: str) -> str:
    """Do what the suite asks a person for. Gives what it said."""
    assert suite.stdout is not None
    said: list[str] = []
    async for line in suite.stdout:
        said.append(line.decode(errors="replace"))
        if said[-1].startswith(start):
            callback = await ScriptedBrowser(KEY).log_in(said[-1].strip())
            transport = httpx2.AsyncHTTPTransport(retries=5)  # it has only begun to listen
            async with httpx2.AsyncClient(transport=transport) as http:
                await http.get(callback)
    return "".join(said)


async def run_all(out: Path) -> dict[str, str]:
    """As a client of each kind, with and without naming the resource. Gives what was printed."""
    async with authorization_server() as base, document_served() as document:
        resource = ("--resource", f"{base}/mcp")
        return {
            "known": await run_suite(base, out / "known", KNOWN),
            "registered": await run_suite(
                base, out / "registered", await register(base), *resource
            ),
            "described": await run_suite(base, out / "described", document, *resource),
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Run, judge, print. 0 when conformant."""
    parser = argparse.ArgumentParser(description="Run and judge the suite's authorization set.")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "authorization")
    out = parser.parse_args(argv).out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    kinds: dict[str, Results] = {}
    for kind, said in asyncio.run(run_all(out)).items():
        (out / kind).mkdir(exist_ok=True)  # by the suite, unless it broke down
        (out / kind / "suite.log").write_text(said, "utf-8")
        kinds[kind] = read(out / kind)
    problems = [f"{kind}: {problem}" for kind in kinds for problem in judge(kinds[kind])]
    for problem in problems:
        print(problem)
    print(f"MCP conformance, authorization set (details under {os.path.relpath(out)})")
    for kind, results in kinds.items():
        passed = sum(check.status == "SUCCESS" for checks in results.values() for check in checks)
        print(f"{kind:>10} client: {passed} checks SUCCESS")
    print(f"NOT CONFORMANT: {len(problems)} problem(s)" if problems else "CONFORMANT")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
