"""HTTP requests whose responses are read while they are written. Knows ASGI; no protocol.

The app runs in an event loop of another thread, so a test that is no coroutine can read what has
come, send something else, and read on.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote

from anyio.from_thread import BlockingPortal, start_blocking_portal

from fastapi_mcp_mrtr.testing.failures import UnexpectedOutcome

if TYPE_CHECKING:
    from starlette.testclient import TestClient
    from starlette.types import ASGIApp, Message, Scope

T = TypeVar("T")

PATIENCE: Final = 60.0
"""Seconds without a word from the app after which a test fails instead of waiting on."""


class Loop:
    """The event loop that the app runs in: that of its lifespan, or one of its own."""

    def __init__(self, http: TestClient) -> None:
        self._http = http
        self._own: BlockingPortal | None = None
        self._end: Callable[[], Any] = lambda: None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function or coroutine function in the loop, and return what it returns."""
        return self._portal().call(function, *arguments)

    def close(self) -> None:
        """End the loop, if it is one of its own."""
        self._end()
        self._own = None

    def _portal(self) -> BlockingPortal:
        if self._http.portal is not None:
            return self._http.portal
        if self._own is None:
            stack = ExitStack()
            self._own = stack.enter_context(start_blocking_portal())
            # A client that nobody closes lets go of the thread when it is garbage.
            self._end = weakref.finalize(self, stack.close)
        return self._own


class LiveResponse:
    """A request and as much of its response as has come. To be made and used in the loop."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.content = b""
        self._body: bytes | None = body
        self._changed = asyncio.Event()
        self._left = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(app, scope))

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._task.done()

    async def change(self, known: int, seconds: float) -> None:
        """Wait until there is more content than that, or the response is over, or time is."""
        try:
            async with asyncio.timeout(seconds):
                while len(self.content) <= known and not self.is_over:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    async def end(self) -> None:
        """Wait for the end of the response. Raises what left the app."""
        await asyncio.wait((self._task,), timeout=PATIENCE)
        if not self.is_over:
            raise UnexpectedOutcome(f"The response did not end within {PATIENCE:g} seconds")
        self._task.result()

    async def leave(self) -> None:
        """Close the connection, as a client does that goes away."""
        self._left.set()
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._changed.set()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {n.decode().lower(): v.decode() for n, v in message["headers"]}
        else:
            self.content += message.get("body", b"")
        self._changed.set()


def post_scope(url: str, headers: Mapping[str, str]) -> Scope:
    """The scope of a POST to a path of the app."""
    path, _, query = url.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": unquote(path),
        "raw_path": quote(path, safe="/%:@").encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (b"host", b"testserver"),
            *((name.encode(), value.encode("latin-1")) for name, value in headers.items()),
        ],
        "client": ("testclient", 50000),
        "server": ("testserver", 80),
    }
