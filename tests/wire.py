"""Raw requests for tests of the server: over Starlette's TestClient, or against the bare ASGI app.

`fastapi_mcp_mrtr.testing` plays whole flows and holds the server to the protocol; this sends what a
client must not send, and looks at bytes.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import anyio
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Scope

VERSION = "2026-07-28"
VERSIONS = (VERSION, "2025-11-25", "2025-06-18", "2025-03-26")
META = "io.modelcontextprotocol/"
CAPABILITIES: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
SSE = "application/json, text/event-stream"

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Response(Protocol):
    """What the tests read of a response, of whichever HTTP client TestClient builds on."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Any: ...
    @property
    def text(self) -> str: ...
    @property
    def content(self) -> bytes: ...


def meta(capabilities: Mapping[str, Any] = CAPABILITIES, **members: Any) -> dict[str, Any]:
    """The `_meta` of a request; `logLevel` and its kin get their prefix."""
    full = {
        f"{META}protocolVersion": VERSION,
        f"{META}clientInfo": {"name": "tests", "version": "1"},
        f"{META}clientCapabilities": dict(capabilities),
    }
    for name, value in members.items():
        full[f"{META}{name}" if name == "logLevel" else name] = value
    return full


def message(
    method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1, **members: Any
) -> dict[str, Any]:
    """A request. `members` are those of its `_meta`."""
    full = {"_meta": meta(**members), **(params or {})}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": full}


def call(name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A tools/call; `more` is for `message` or, with a capital of the protocol, for the params."""
    params = {"name": name, "arguments": dict(arguments or {})}
    for member in ("requestState", "inputResponses"):
        if member in more:
            params[member] = more.pop(member)
    return message("tools/call", params, **more)


def headers(body: Mapping[str, Any], **changes: str | None) -> dict[str, str]:
    """The headers that belong to a request. `changes` with `_` for `-`; None leaves one out."""
    full: dict[str, str | None] = {
        "content-type": "application/json",
        "accept": SSE,
        "mcp-protocol-version": VERSION,
        "mcp-method": body["method"],
    }
    name = body["params"].get(_NAMED.get(body["method"], ""))
    if isinstance(name, str):
        full["mcp-name"] = name
    full.update({name.replace("_", "-"): value for name, value in changes.items()})
    return {name: value for name, value in full.items() if value is not None}


def client_of(app: ASGIApp, **options: Any) -> TestClient:
    """A TestClient that neither follows redirects nor raises what the app raises."""
    options = {"raise_server_exceptions": False, "follow_redirects": False, **options}
    return TestClient(app, **options)


def post(
    app: ASGIApp | TestClient,
    body: Mapping[str, Any],
    *,
    path: str = "/mcp",
    cookies: dict[str, str] | None = None,
    **changes: Any,
) -> Response:
    """Send a request over TestClient."""
    client = app if isinstance(app, TestClient) else client_of(app)
    client.cookies.clear()
    client.cookies.update(cookies)
    content = json.dumps(body).encode()
    return client.post(path, content=content, headers=headers(body, **changes))


def result_of(response: Response) -> dict[str, Any]:
    """The result in a response, JSON or the end of a stream."""
    last = messages_of(response)[-1]
    assert "result" in last, last
    result: dict[str, Any] = last["result"]
    return result


def error_of(response: Response) -> dict[str, Any]:
    """The JSON-RPC error in a response."""
    last = messages_of(response)[-1]
    assert "error" in last, last
    error: dict[str, Any] = last["error"]
    return error


def text_of(response: Response) -> str:
    """The text of the first content block."""
    text: str = result_of(response)["content"][0]["text"]
    return text


def messages_of(response: Response) -> list[dict[str, Any]]:
    """All JSON-RPC messages of a response."""
    return parse(response.headers.get("content-type", ""), response.text)


def parse(content_type: str, text: str) -> list[dict[str, Any]]:
    if not content_type.startswith("text/event-stream"):
        return [json.loads(text)]
    return [json.loads(line[6:]) for line in text.split("\r\n") if line.startswith("data: ")]


class Exchange:
    """One request against the bare ASGI app, from which the client may walk away.

    `receive` and `send` are methods of an object that has the scope, as in uvicorn.
    """

    def __init__(
        self,
        app: ASGIApp,
        body: Mapping[str, Any] | bytes,
        *,
        path: str = "/mcp",
        raw_headers: Sequence[tuple[bytes, bytes]] | None = None,
        **changes: str | None,
    ) -> None:
        self.app = app
        if raw_headers is None:
            assert isinstance(body, Mapping)
            named = headers(body, **changes)
            raw_headers = [(n.encode(), v.encode("latin-1")) for n, v in named.items()]
        self.content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": list(raw_headers),
            "client": ("testclient", 50000),
            "server": ("testserver", 80),
        }
        self.sent: list[Message] = []
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()
        self._given = False

    async def receive(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self.content, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.arrived.set()

    async def run(self) -> Self:
        """Let the app answer."""
        await self.app(self.scope, self.receive, self.send)
        return self

    async def until_first_byte(self) -> None:
        with anyio.fail_after(10):
            await self.arrived.wait()

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {n.decode().lower(): v.decode("latin-1") for n, v in self.sent[0]["headers"]}

    @property
    def text(self) -> str:
        return b"".join(part.get("body", b"") for part in self.sent).decode()

    @property
    def messages(self) -> list[dict[str, Any]]:
        return parse(self.headers.get("content-type", ""), self.text)
