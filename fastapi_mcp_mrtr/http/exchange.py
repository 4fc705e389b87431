"""The HTTP side of one request: plain JSON until a notification, then an SSE stream.

Also watches for the client leaving, in both modes (streamable-http §Cancellation). Knows nothing
of handlers or rounds.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from fastapi_mcp_mrtr.server.calls import ClientLeft

T = TypeVar("T")

_BUFFERED_EVENTS: Final = 16
"""Notifications a slow reader may lag behind before the handler has to wait for it."""

_STREAM_SCOPE: Final[Scope] = {"type": "http", "method": "POST"}
"""All that the stream needs to know of its request. The request's own scope refers to its exchange;
a reference back would leave every call to the cycle collector."""


class Settable(Protocol):
    """All that a stream does with its shutdown event."""

    def set(self) -> object: ...


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How SSE responses behave.

    Attributes:
        keep_alive: seconds between the comments that keep a quiet stream open.
        shutdown_grace: seconds a stream may go on after the server was told to stop.
    """

    keep_alive: float
    shutdown_grace: float

    def response(
        self, events: AsyncIterator[bytes], shutdown: "Settable | None" = None
    ) -> Response:
        """An SSE response. `shutdown` is set when the server is told to stop."""
        # Not needed by most calls, so not imported by them.
        from sse_starlette import EventSourceResponse

        return EventSourceResponse(
            events,
            ping=self.keep_alive,
            shutdown_event=cast("anyio.Event | None", shutdown),
            shutdown_grace_period=self.shutdown_grace,
        )


def event(message: bytes) -> bytes:
    """One message as an SSE event, on one `data:` line."""
    return b"data: " + message + b"\r\n\r\n"


class JSONBytes(Response):
    """A response from JSON that is already encoded."""

    def __init__(self, body: bytes, status_code: int = 200) -> None:
        self.status_code = status_code
        self.body = body
        self.background = None
        self.raw_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]


class AlreadySent(Response):
    """Stands for a response that has gone out as a stream."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.background is not None:
            await self.background()


class HTTPExchange:
    """One request's connection to its client. Implements `server.calls.Exchange`."""

    __slots__ = ("_events", "_gone", "_receive", "_send", "_stream", "streams")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.streams: StreamSettings | None = None
        """How to stream; `None` while the client is not known to take a stream."""
        self._gone: asyncio.Event | None = None
        self._events: MemoryObjectSendStream[bytes] | None = None
        self._stream: asyncio.Task[None] | None = None

    @property
    def is_streaming(self) -> bool:
        """Whether the response has begun as an SSE stream, with status 200."""
        return self._events is not None

    def guard(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run `work`; cancel it and raise `ClientLeft` when the client leaves."""
        return _Guarded(self, work)

    async def notify(self, message: bytes) -> None:
        """Send a notification, opening the stream if this is the first one.

        Raises:
            ClientLeft: the client left.
        """
        if self.streams is None:
            return
        if self._events is None:
            self._open(self.streams)
        await self._put(message)

    async def finish(self, message: bytes) -> None:
        """Send the final response on the open stream and end it."""
        await self._put(message)
        assert self._events is not None
        assert self._stream is not None
        self._events.close()
        await self._stream

    def abandon(self) -> None:
        """Let go of an open stream: the call ended without a response."""
        if self._stream is not None:
            self._stream.cancel()

    async def _put(self, message: bytes) -> None:
        assert self._events is not None
        try:
            await self._events.send(message)
        except anyio.BrokenResourceError:
            raise ClientLeft from None

    def _open(self, settings: StreamSettings) -> None:
        self._events, events = anyio.create_memory_object_stream[bytes](_BUFFERED_EVENTS)
        response = settings.response(_event_lines(events))
        # The handler stays in the request's own task, so that its timeouts and scopes hold; the
        # response is what runs beside it. `_wait_until_gone` stands in for `receive`, which has
        # one reader already.
        self._stream = asyncio.ensure_future(
            response(_STREAM_SCOPE, self._wait_until_gone, self._send)
        )

    async def _wait_until_gone(self) -> Message:
        if self._gone is None:
            self._gone = asyncio.Event()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def watch(self, task: "asyncio.Task[Any]") -> None:
        """Cancel `task` when the client leaves."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._gone is None:
            self._gone = asyncio.Event()
        self._gone.set()
        task.cancel()

    @property
    def is_gone(self) -> bool:
        """Whether the client has left."""
        return self._gone is not None and self._gone.is_set()


class _Guarded(Generic[T]):
    """Awaits a coroutine in the current task, watching the connection only if it has to wait.

    Most calls finish without waiting for anything; they cost no extra task.
    """

    __slots__ = ("_exchange", "_work")

    def __init__(self, exchange: HTTPExchange, work: Coroutine[Any, Any, T]) -> None:
        self._exchange = exchange
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        work = self._work
        try:
            waiting_for = work.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        exchange = self._exchange
        task = asyncio.current_task()
        assert task is not None
        watcher = asyncio.ensure_future(exchange.watch(task))
        try:
            while True:
                try:
                    value = yield waiting_for
                except BaseException as error:
                    waiting_for = work.throw(error)
                else:
                    waiting_for = work.send(value)
        except StopIteration as done:
            if exchange.is_gone:  # the handler swallowed its cancellation
                _uncancel(task)
                raise ClientLeft from None
            return done.value  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if exchange.is_gone and _uncancel(task):
                raise ClientLeft from None
            raise
        finally:
            watcher.cancel()


def _uncancel(task: "asyncio.Task[Any]") -> bool:
    """Take back the watcher's cancellation; whether no other one is left."""
    return task.uncancel() == 0


async def _event_lines(events: MemoryObjectReceiveStream[bytes]) -> AsyncIterator[bytes]:
    async with events:
        async for message in events:
            yield event(message)
