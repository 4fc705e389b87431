"""A client of an older revision, against the bare ASGI app: it reads while it is being asked.

Every request is a task of its own, so a test can answer, cancel or leave while a call goes on.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
from starlette.types import ASGIApp, Message, Scope

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
CAPABILITIES: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {"listChanged": True},
}
BOTH = "application/json, text/event-stream"
PATIENCE = 20.0
"""Seconds after which a test that waits for a message fails."""


class Reply:
    """One HTTP request and what came of it."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self._scope = scope
        self._body: bytes | None = body
        self._changed = asyncio.Event()
        self._left = asyncio.Event()
        self._sent: list[Message] = []
        self._read = 0
        self.breaks = False
        """Whether sending fails from now on."""
        self.says_more = False
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))
        self.task.add_done_callback(lambda _: self._changed.set())

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self.says_more:
            self.says_more = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._left.is_set():
            return  # as uvicorn does
        if self.breaks:
            raise OSError("broken pipe")
        self._sent.append(message)
        self._changed.set()

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()

    async def _until(self, condition: Any) -> None:
        with anyio.fail_after(PATIENCE):
            while not condition():
                assert not self.task.done(), f"it ended with {self.text!r}"
                self._changed.clear()
                await self._changed.wait()

    async def done(self) -> Self:
        """Wait for the end of the response."""
        with anyio.fail_after(PATIENCE):
            await asyncio.wait([self.task])
        self.task.result()
        return self

    async def started(self) -> Self:
        """Wait for the status."""
        await self._until(lambda: self._sent)
        return self

    async def ended(self) -> Self:
        """Wait for the end of the body, after which the request may still go on."""
        await self._until(lambda: self._sent and self._sent[-1].get("more_body") is False)
        return self

    @property
    def status(self) -> int:
        status: int = self._sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {n.decode().lower(): v.decode() for n, v in self._sent[0]["headers"]}

    @property
    def text(self) -> str:
        return b"".join(part.get("body", b"") for part in self._sent).decode()

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def events(self) -> list[dict[str, str]]:
        """The events of a stream, those without data too: their fields."""
        events = []
        for block in self.text.split("\r\n\r\n"):
            lines = [line for line in block.split("\r\n") if line and not line.startswith(":")]
            if lines:
                events.append(dict(line.split(": ", 1) for line in lines))
        return events

    @property
    def messages(self) -> list[Any]:
        """The JSON-RPC messages of a response, in the order they came; a batch is one."""
        if not self.is_stream:
            return [json.loads(self.text)] if self.text else []
        return [json.loads(event["data"]) for event in self.events if event["data"]]

    async def next(self) -> dict[str, Any]:
        """The next message that was not read yet."""
        self._read += 1
        await self._until(lambda: self._sent and len(self.messages) >= self._read)
        message: dict[str, Any] = self.messages[self._read - 1]
        return message

    async def result(self) -> Any:
        """The result that ends the response."""
        last = (await self.done()).messages[-1]
        assert "result" in last, last
        return last["result"]

    async def error(self) -> dict[str, Any]:
        """The error that ends the response."""
        error: dict[str, Any] = (await self.done()).messages[-1]["error"]
        return error


class Client:
    """A session, or what is sent before there is one."""

    def __init__(
        self,
        app: ASGIApp,
        version: str = "2025-11-25",
        *,
        path: str = "/mcp",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.app = app
        self.version = version
        self.path = path
        self.headers: dict[str, str] = {"content-type": "application/json", "accept": BOTH}
        self.headers.update(headers or {})
        self.session_id: str | None = None
        self.replies: list[Reply] = []
        self._ids = iter(range(1, 10**6))

    def open(self, method: str = "POST", body: Any = None, **changes: str | None) -> Reply:
        """Send an HTTP request. `changes` are headers, with `_` for `-`; None leaves one out."""
        named: dict[str, str | None] = {**self.headers}
        if self.session_id is not None:
            named["mcp-session-id"] = self.session_id
            if self.version != "2025-03-26":
                named["mcp-protocol-version"] = self.version
        named.update({name.replace("_", "-"): value for name, value in changes.items()})
        content = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(n.encode(), v.encode()) for n, v in named.items() if v is not None],
            "client": ("testclient", 50000),
            "server": ("testserver", 80),
        }
        reply = Reply(self.app, scope, content)
        self.replies.append(reply)
        return reply

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = None, **more: Any
    ) -> Reply:
        """Send a JSON-RPC request, without waiting for what comes of it."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id}
        body["method"] = method
        if params is not None:
            body["params"] = params
        return self.open("POST", body, **more)

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Reply:
        """Call a tool. `meta` is the `_meta` of the request."""
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
        meta = more.pop("meta", None)
        if meta is not None:
            params["_meta"] = meta
        return self.request("tools/call", params, **more)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Reply:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            body["params"] = params
        return await self.open("POST", body).done()

    async def answer(self, ask: Mapping[str, Any], result: Any, **more: Any) -> Reply:
        """Answer a request of the server's."""
        body = {"jsonrpc": "2.0", "id": ask["id"], "result": result}
        return await self.open("POST", body, **more).done()

    async def accept(self, ask: Mapping[str, Any], **content: Any) -> Reply:
        return await self.answer(ask, {"action": "accept", "content": content})

    async def initialize(self, capabilities: Mapping[str, Any] = CAPABILITIES) -> Self:
        """Open the session."""
        reply = self.request(
            "initialize",
            {
                "protocolVersion": self.version,
                "capabilities": dict(capabilities),
                "clientInfo": {"name": "tests", "version": "1"},
            },
        )
        result = await reply.result()
        assert result["protocolVersion"] == self.version
        self.session_id = reply.headers["mcp-session-id"]
        assert (await self.notify("notifications/initialized")).status == 202
        return self

    async def close(self) -> None:
        """Leave whatever is still open, and wait for its end."""
        for reply in self.replies:
            reply.task.cancel()
        if self.replies:
            await asyncio.wait([reply.task for reply in self.replies])


@asynccontextmanager
async def session(
    app: ASGIApp,
    version: str = "2025-11-25",
    capabilities: Mapping[str, Any] = CAPABILITIES,
    **options: Any,
) -> AsyncIterator[Client]:
    """An initialized session."""
    client = Client(app, version, **options)
    try:
        yield await client.initialize(capabilities)
    finally:
        await client.close()


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The methods of messages, for order."""
    return [message.get("method", "response") for message in messages]
