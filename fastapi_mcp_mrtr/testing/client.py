"""The test client: plays MCP flows against an app in process.

Reaches the app by HTTP alone, but for the clock and the principal that a test puts in their place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import mcp_types
from pydantic import BaseModel

from fastapi_mcp_mrtr.testing.connection import ALL_CAPABILITIES, Connection
from fastapi_mcp_mrtr.testing.flow import Answers, Call, Round, begin
from fastapi_mcp_mrtr.testing.inside import advance_clock, overridden, restore_clock
from fastapi_mcp_mrtr.testing.older import OlderSession
from fastapi_mcp_mrtr.testing.wire import PROTOCOL_VERSION, Headers, Meta, Omit, Reply

if TYPE_CHECKING:
    from types import TracebackType

    from starlette.testclient import TestClient
    from starlette.types import ASGIApp

    from fastapi_mcp_mrtr.http.router import MCPRouter

R = TypeVar("R", bound=BaseModel)

_CLIENT_INFO: Final[Mapping[str, Any]] = {"name": "fastapi-mcp-mrtr-testing", "version": "1.0.0"}


class MCPTestClient(Connection):
    """An MCP client that plays whole flows against an app, in process.

    ```python
    from fastapi_mcp_mrtr.testing import DECLINE, MCPTestClient

    client = MCPTestClient(app)
    booking = client.call_tool(
        "book_seat",
        {"flight": "LX318"},
        answers={"seat": {"row": 4, "letter": "A"}, "confirm": True},
    )
    assert booking.structured_content == {"flight": "LX318", "seat": "4A"}

    first = client.begin_tool("book_seat", {"flight": "LX318"})
    assert first.asks["seat"].message == "Which seat on LX318?"
    second = first.answer({"seat": {"row": 4, "letter": "A"}})
    assert second.answer({"confirm": DECLINE}).result.is_error
    assert second.expire().answer({"confirm": True}).error.code == -32602
    client.close()
    ```

    Use it bare, or as a context manager to run the app's lifespan too, as often as you like.
    Leaving the context (or `close()`) sets the router's clock right again.

    The client holds the server to the protocol: any reply that breaks a rule is a
    `ProtocolViolation`, wherever it happens. `replies` keeps every reply for a look afterwards.
    A test inside a running event loop blocks it while a request is under way.

    Args:
        app: The app, wrapped in middleware or not.
        url: Path of the MCP endpoint, prefixes included.
        headers: HTTP headers of every request; `client.headers` may be changed later.
        capabilities: What the client declares; by default everything.
        client_info: Name and version of the client; one of its own by default.
        progress: Whether to ask for progress notifications.
        log_level: The least level of log messages to ask for; None for no messages at all.
        max_rounds: How many rounds that ask one flow may take.
        max_waits: How many rounds one flow may only wait; counted by themselves.
        raise_server_exceptions: Whether an exception that leaves the app reaches the test.
        version: The revision to speak. On an older one the client opens a session, and answers
            asks while the stream of the call is open; there are no states to tamper with.

    Raises:
        ImportError: The HTTP client that Starlette's `TestClient` builds on is not installed.
    """

    _restore: Callable[[], Any] | None = None

    def __init__(
        self,
        app: ASGIApp,
        url: str = "/mcp",
        *,
        headers: Mapping[str, str] | None = None,
        capabilities: Mapping[str, Any] | mcp_types.ClientCapabilities = ALL_CAPABILITIES,
        client_info: Mapping[str, Any] | mcp_types.Implementation = _CLIENT_INFO,
        progress: bool = True,
        log_level: mcp_types.LoggingLevel | None = "debug",
        max_rounds: int = 16,
        max_waits: int = 16,
        raise_server_exceptions: bool = True,
        version: str = PROTOCOL_VERSION,
    ) -> None:
        super().__init__(
            url, headers, capabilities, client_info, progress, log_level, max_rounds, max_waits
        )
        self.app = app
        self.http: TestClient = _http_client(app, raise_server_exceptions)
        self.raise_server_exceptions = raise_server_exceptions
        self.version = version
        self._session = None if version == PROTOCOL_VERSION else OlderSession(self, version)

    def __enter__(self) -> Self:
        self.http.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore_clock()
        self._leave()
        self.http.__exit__(exc_type, exc, traceback)

    def close(self) -> None:
        """Set the router's clock right and let the HTTP client go; for use without `with`."""
        self._restore_clock()
        self._leave()
        self.http.close()

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Headers | None = None,
        meta: Meta | Omit | None = None,
    ) -> Reply:
        """Send one request and return what came back: the end of it, or what it asks.

        See `Connection.request`. On an older revision, answers go to the call that waits for them.
        """
        if self._session is not None:
            return self._session.request(method, params, headers, meta)
        return super().request(method, params, headers=headers, meta=meta)

    # Whole flows

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        on_wait: Callable[[Round[mcp_types.CallToolResult]], object] | None = None,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> mcp_types.CallToolResult:
        """Call a tool, answer what it asks, and return its result, `isError` ones included.

        `answers` maps each key to a value (a dict or a model for a form, the bare value where the
        form has one field; for sampling a str or a result; for roots a list; for a url True), to a
        callable that takes the `Ask` and returns such a value, to `DECLINE` or `CANCEL`, or to
        `Raw`. `on_wait` is called whenever the server only waits (`not_yet()`), before the client
        tries again: the place to complete what it waits for.

        Raises:
            UnansweredQuestion: The tool asks what `answers` does not have.
            AnswersNotAsked: `answers` has what the tool never asked.
            AnswerNotAccepted: It asks the same again after the same answer.
            TooManyRounds: It asks or waits longer than `max_rounds` and `max_waits`.
            ErrorReply: It ended with a JSON-RPC error.
            RejectedRequest: The app answered with plain HTTP.
            ProtocolViolation: The server broke a rule of the protocol.
        """
        first = self.begin_tool(name, arguments, headers=headers, meta=meta)
        return first.play(answers, on_wait=on_wait)

    def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        on_wait: Callable[[Round[mcp_types.GetPromptResult]], object] | None = None,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> mcp_types.GetPromptResult:
        """Get a prompt, answering what it asks. Arguments and failures are those of `call_tool`."""
        first = self.begin_prompt(name, arguments, headers=headers, meta=meta)
        return first.play(answers, on_wait=on_wait)

    def read_resource(
        self,
        uri: str,
        *,
        answers: Answers | None = None,
        on_wait: Callable[[Round[mcp_types.ReadResourceResult]], object] | None = None,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> mcp_types.ReadResourceResult:
        """Read a resource, answering what it asks. The failures are those of `call_tool`."""
        first = self.begin_resource(uri, headers=headers, meta=meta)
        return first.play(answers, on_wait=on_wait)

    # Single rounds

    def begin_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> Round[mcp_types.CallToolResult]:
        """Send the first request of a tool call and return its round."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return self.begin(
            "tools/call", params, mcp_types.CallToolResult, headers=headers, meta=meta
        )

    def begin_prompt(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> Round[mcp_types.GetPromptResult]:
        """Send the first request for a prompt and return its round."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return self.begin(
            "prompts/get", params, mcp_types.GetPromptResult, headers=headers, meta=meta
        )

    def begin_resource(
        self, uri: str, *, headers: Headers | None = None, meta: Meta | None = None
    ) -> Round[mcp_types.ReadResourceResult]:
        """Send the first request for a resource and return its round."""
        params = {"uri": uri}
        return self.begin(
            "resources/read", params, mcp_types.ReadResourceResult, headers=headers, meta=meta
        )

    def begin(
        self,
        method: str,
        params: Mapping[str, Any],
        result_type: type[R],
        *,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> Round[R]:
        """Send the first request of any call, with params of your own."""
        return begin(self, Call(method, params, result_type, headers or {}, meta or {}))

    # What a test does to the server

    @property
    def router(self) -> MCPRouter:
        """The router behind `url`."""
        from fastapi_mcp_mrtr.http.router import find_router

        return find_router(self.app, self.url)

    def advance(self, seconds: float) -> None:
        """Move the router's clock on, for every flow of that router, until the client closes."""
        router = self.router
        if self._restore is None:
            # A client that nobody closes lets go of the clock when it is garbage.
            self._restore = weakref.finalize(self, restore_clock, router, id(self))
        advance_clock(router, id(self), seconds)

    @contextmanager
    def as_principal(self, value: Any) -> Iterator[Self]:
        """Be somebody else for a while: the router's principal dependency gives this value.

        Raises:
            TypeError: The router has no principal, so that everybody is anonymous.
        """
        dependency = self.router.principal_dependency
        if dependency is None:
            raise TypeError("The router has no principal=, so there is nobody to be")
        with overridden(self.app, dependency, value):
            yield self

    def _leave(self) -> None:
        if self._session is not None:
            self._session.close()

    def _restore_clock(self) -> None:
        if self._restore is not None:
            self._restore()
            self._restore = None


def _http_client(app: ASGIApp, raise_server_exceptions: bool) -> TestClient:
    try:
        from starlette.testclient import TestClient
    # Starlette itself raises RuntimeError where its HTTP client is missing.
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            "MCPTestClient plays over Starlette's TestClient, which needs the package httpx2: "
            f"pip install 'fastapi-mcp-mrtr[testing]' ({error})"
        ) from error
    # A redirect would lose the body with some clients; the endpoint answers without one.
    return TestClient(app, raise_server_exceptions=raise_server_exceptions, follow_redirects=False)
