"""How many instructions a call takes: what a machine with other work to do cannot blur.

`python -m tests.bench.instructions` counts with `valgrind --tool=callgrind` and compares with
`instructions.json`; `--record` writes that file, one entry per minor version of Python.

A process is started under valgrind, which counts nothing until this process says so: after the
imports, and after a few calls of each kind to fill the caches. Then the same calls are made again
and again, in one process, without a server. So nothing of the start-up is in the count.

The counts move by a percent or two with versions of Python and of dependencies, and more between
builds of the interpreter; within one environment they repeat to a few in a thousand. The bound is
15%. Whoever raises a count says why, and records it.
"""

import asyncio
import ctypes
import gc
import json
import logging
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Scope

from tests import wire

RECORD: Final = Path(__file__).with_name("instructions.json")
BOUND: Final = 1.15

_CALLS: Final = 40
_VERSION: Final = "{}.{}".format(*sys.version_info)
_ROOT: Final = Path(__file__).parents[2]

# Valgrind's client requests (valgrind.h, callgrind.h): a sequence of rotations that does nothing
# on a processor, and that valgrind takes for a call. rax has its arguments.
_X86_64: Final = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
_ZERO: Final = 0x43540001
_DUMP: Final = 0x43540003
_START: Final = 0x43540004
_STOP: Final = 0x43540005


def can_count() -> bool:
    """Whether this machine can: an x86-64 with valgrind."""
    return platform.machine() == "x86_64" and shutil.which("valgrind") is not None


def count() -> dict[str, int]:
    """Instructions a call, by what is called."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"]
        command += [f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-W", "ignore", "-m", "tests.bench.instructions", "--child"]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("COVERAGE_PROCESS_START", None)
        subprocess.run(command, check=True, cwd=_ROOT, env=environment, capture_output=True)
        found = {}
        for dump in sorted(Path(folder).iterdir()):
            text = dump.read_text(errors="replace")
            trigger = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
            if trigger and total:
                found[trigger[1]] = int(total[1]) // _CALLS
    return found


def recorded() -> Mapping[str, int] | None:
    """The counts to compare with, for this minor version of Python."""
    by_version: dict[str, dict[str, int]] = json.loads(RECORD.read_text())
    return by_version.get(_VERSION)


def _request(code: int, argument: int = 0) -> None:
    """Tell valgrind something; outside of it, nothing happens."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as m:
        m.write(_X86_64)
        start = ctypes.c_char.from_buffer(m)
        arguments = (ctypes.c_uint64 * 6)(code, argument)
        call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(ctypes.addressof(start))
        call(ctypes.addressof(arguments))
        del start, call


class _Call:
    """One request to an app, made again and again."""

    def __init__(self, app: ASGIApp, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self._app = app
        self._scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        sent = {"host": "127.0.0.1:80", "content-length": str(len(body)), **headers}
        self._headers = [(name.encode(), value.encode()) for name, value in sent.items()]
        self._body = body
        self.parts: list[bytes] = []

    async def __call__(self) -> None:
        scope = {**self._scope, "headers": [*self._headers], "state": {}}
        self.parts = []
        waiting: list[Message] = [
            {"type": "http.request", "body": self._body, "more_body": False},
        ]

        async def receive() -> Message:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200, message
            else:
                self.parts.append(message.get("body", b""))

        await self._app(scope, receive, send)

    async def result(self) -> dict[str, Any]:
        await self()
        result: dict[str, Any] = json.loads(b"".join(self.parts))["result"]
        return result


def _mcp(app: FastAPI, body: Mapping[str, Any]) -> _Call:
    headers = {**wire.headers(body), "x-api-key": "alice"}
    return _Call(app, "/mcp", headers, json.dumps(body).encode())


async def _calls() -> dict[str, _Call]:
    """What is counted. The bare route is there to compare with, and not held to a bound."""
    from .contestants import bare_fastapi, library

    app = library.app
    plain = {"content-type": "application/json", "x-api-key": "alice"}
    flight = {"flight": "LH454"}
    first = _mcp(app, wire.call("two_rounds", flight))
    state = (await first.result())["requestState"]
    seat = {"seat": {"action": "accept", "content": {"row": 7, "letter": "B"}}}
    return {
        "FastAPI route": _Call(bare_fastapi.app, "/echo", plain, b'{"text": "hello world"}'),
        "echo": _mcp(app, wire.call("echo", {"text": "hello world"})),
        "an error result": _mcp(app, wire.call("fail", {"text": "hello world"})),
        "a round that asks": first,
        "a round that answers": _mcp(
            app, wire.call("two_rounds", flight, requestState=state, inputResponses=seat)
        ),
        "tools/list": _mcp(app, wire.message("tools/list")),
    }


async def _child() -> None:
    logging.disable()
    calls = await _calls()
    for call in calls.values():
        for _ in range(5):
            await call()
    gc.collect()
    gc.disable()  # when it runs depends on what was imported
    _request(_START)
    for name, call in calls.items():
        await call()
        await call()
        _request(_ZERO)
        for _ in range(_CALLS):
            await call()
        label = ctypes.create_string_buffer(name.encode())
        _request(_DUMP, ctypes.addressof(label))
    _request(_STOP)


def main() -> None:
    if "--child" in sys.argv:
        asyncio.run(_child())
        return
    if not can_count():
        raise SystemExit("Counting needs an x86-64 with valgrind: apt-get install valgrind")
    found, before = count(), recorded() or {}
    for name, instructions in found.items():
        change = f"{instructions / before[name] - 1:+7.1%}" if name in before else "    new"
        print(f"{name:24}{instructions:12,}{change}")
    if "--record" in sys.argv:
        by_version = json.loads(RECORD.read_text())
        by_version[_VERSION] = found
        RECORD.write_text(json.dumps(by_version, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
