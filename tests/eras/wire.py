"""A client of an older revision over real HTTP, whose calls stay open while it does other things.

It speaks HTTP/1.1 over streams of asyncio, a connection for each request: hundreds of them at once
are to burden the server and not the test.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.demo_app.helpers import Process, free_port

VERSION = "2025-11-25"
PATIENCE = 60.0


@contextmanager
def serving(folder: Path, *, name: str = "server", **env: str) -> Iterator[tuple[str, Process]]:
    """`serving.py` behind uvicorn. Yields its address and the process."""
    port = free_port()
    arguments = ["uvicorn", "tests.eras.serving:app", "--host", "127.0.0.1", "--port", str(port)]
    process = Process([*arguments, "--backlog", "2048"], folder / f"{name}.log", **env)
    try:
        # The application is started first, and only then is its port open.
        process.wait_for("Uvicorn running on")
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.end()


class Response:
    """A response whose body is read as it comes."""

    def __init__(self, status: int, headers: Mapping[str, str], body: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def next(self) -> dict[str, Any]:
        """The next message of a stream. Each event comes in a chunk of its own."""
        while line := await self._body.readline():
            if line.startswith(b"data: {"):
                message: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
                return message
        raise EOFError

    async def text(self) -> str:
        """The text of a tool's result, which comes next."""
        message = await self.next()
        text: str = message["result"]["content"][0]["text"]
        return text

    async def json(self) -> Any:
        """All of a body that is no stream."""
        return json.loads(await self._body.readexactly(int(self.headers["content-length"])))


@asynccontextmanager
async def requested(
    url: str, body: Any = None, headers: Mapping[str, str] | None = None, *, method: str = "POST"
) -> AsyncIterator[Response]:
    """Send a request, and leave the connection open for as long as the block lasts."""
    content = b"" if body is None else json.dumps(body).encode()
    parts = urlsplit(url)
    named = {
        "host": parts.netloc,
        "content-type": "application/json",
        "content-length": str(len(content)),
        "accept": "application/json, text/event-stream",
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024 * 1024)
    try:
        writer.write(f"{method} {parts.path} HTTP/1.1\r\n{head}\r\n".encode() + content)
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        found = dict(line.lower().split(": ", 1) for line in lines)
        if "mcp-session-id" in found:  # whose case counts
            found["mcp-session-id"] = next(
                line.partition(": ")[2] for line in lines if line.lower().startswith("mcp-session")
            )
        yield Response(int(status.split()[1]), found, reader)
    finally:
        writer.close()


async def fetched(url: str, *, method: str = "GET") -> Any:
    """The JSON at an address."""
    async with requested(url, method=method) as response:
        assert response.status == 200
        return await response.json()


class OlderClient:
    """One session. Requests may go to any address that serves it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.headers: dict[str, str] = {}
        self._ids = itertools.count(1)

    async def initialize(self) -> Self:
        params = {
            "protocolVersion": VERSION,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "tests", "version": "1"},
        }
        async with self.sent({"id": 0, "method": "initialize", "params": params}) as response:
            self.headers["mcp-session-id"] = response.headers["mcp-session-id"]
        self.headers["mcp-protocol-version"] = VERSION
        await self.tell({"method": "notifications/initialized"})
        return self

    @asynccontextmanager
    async def sent(
        self, message: Mapping[str, Any], url: str | None = None
    ) -> AsyncIterator[Response]:
        body = {"jsonrpc": "2.0", **message}
        async with requested(f"{url or self.url}/mcp", body, self.headers) as response:
            yield response

    async def tell(self, message: Mapping[str, Any], url: str | None = None) -> int:
        async with self.sent(message, url) as response:
            return response.status

    async def answer(self, ask: Mapping[str, Any], value: Any, url: str | None = None) -> int:
        result = {"action": "accept", "content": {"value": value}}
        return await self.tell({"id": ask["id"], "result": result}, url)

    @asynccontextmanager
    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        url: str | None = None,
    ) -> AsyncIterator[Response]:
        """Call a tool and leave its stream open for as long as the block lasts."""
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments or {})}
        if meta is not None:
            params["_meta"] = dict(meta)
        message = {"id": next(self._ids), "method": "tools/call", "params": params}
        async with self.sent(message, url) as response:
            yield response
