"""The HTTP side of one request: plain JSON until a notification, then an SSE stream.

Also watches for the client leaving, in both modes (streamable-http §Cancellation). Knows nothing
of handlers or rounds.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import anyio
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from fastapi_mcp_mrtr.errors import HandlerError
from fastapi_mcp_mrtr.server.calls import ClientLeft

T = TypeVar("T")

EXCHANGE: Final = "fastapi_mcp_mrtr.exchange"
"""Where a request's scope has its `HTTPExchange`."""

_BUFFERED_EVENTS: Final = 16
"""Notifications a slow reader may lag behind before the handler has to wait for it."""

_HELD_BACK: Final = 0.005
"""Seconds for which a notification may wait for others to go with."""

_STREAM_SCOPE: Final[Scope] = {"type": "http", "method": "POST"}
"""All that the stream needs to know of its request. The request's own scope refers to its exchange;
a reference back would leave every call to the cycle collector."""


MakeStream = Callable[[AsyncIterator[bytes]], Response]
"""Makes the SSE response for a stream of events."""


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
        from .streams import EventStream

        return EventStream(
            events,
            ping=self.keep_alive,
            shutdown_event=cast("anyio.Event | None", shutdown),
            shutdown_grace_period=self.shutdown_grace,
        )

    def until(
        self, seconds: float, messages: AsyncIterator[bytes], close: Callable[[], None]
    ) -> Response:
        """An SSE response that `close` ends: after `seconds`, and when the server is to stop.

        It would outlive the access token otherwise; the client comes back with a fresh one.
        """
        return self.response(_until(seconds, messages, close), _Closes(close))


class _Closes:
    """Poses as the event that a stream sets when the server is told to stop."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.set = close


async def _until(
    seconds: float, messages: AsyncIterator[bytes], close: Callable[[], None]
) -> AsyncIterator[bytes]:
    timer = asyncio.get_running_loop().call_later(seconds, close)
    try:
        async for message in messages:
            yield event(message)
    finally:
        timer.cancel()


def event(message: bytes) -> bytes:
    """One message as an SSE event, on one `data:` line."""
    return b"data: " + message + b"\r\n\r\n"


class JSONBytes(Response):
    """A response from JSON that is already encoded."""

    background: BackgroundTask | None

    def __init__(self, body: bytes, status_code: int = 200) -> None:
        self.status_code = status_code
        self.body = body
        self.background = None
        self.raw_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": self.body})
        if self.background is not None:
            await self.background()


class AlreadySent(Response):
    """Stands for a response that has gone out as a stream."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.background is not None:
            await self.background()


class HTTPExchange:
    """One request's connection to its client. Implements `server.calls.Exchange`."""

    __slots__ = (
        "_cancelled",
        "_deferred",
        "_events",
        "_gave_way",
        "_gone",
        "_is_cut",
        "_is_drained",
        "_receive",
        "_respond",
        "_send",
        "_stream",
        "_worker",
        "reason",
    )

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._respond: MakeStream | None = None
        self._events: MemoryObjectSendStream[bytes] | None = None
        self._stream: asyncio.Task[None] | None = None
        self._gone: asyncio.Event | None = None
        self._worker: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._deferred = False
        self._is_cut = False
        self._is_drained = False
        self._gave_way = 0.0
        self.reason: str | None = None
        """What broke the connection, or what the handler raised when it was cancelled, if known."""

    @property
    def is_streaming(self) -> bool:
        """Whether the response has begun as an SSE stream, with status 200."""
        return self._events is not None

    def may_stream(self, respond: MakeStream) -> None:
        """Allow notifications. `respond` makes the response if there are any."""
        self._respond = respond

    def guard(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run `work`; cancel it and raise `ClientLeft` when the client leaves.

        While `work` waits for one of anyio's threads, as for a dependency that is no coroutine, it
        is not cancelled yet: what the thread uses must not be closed, and what it opens must be.
        """
        return _Guarded(self, work)

    async def notify(self, message: bytes) -> None:
        """Send a notification, opening the stream if this is the first one.

        Dropped where the client takes no stream, and after the final response.

        Raises:
            ClientLeft: the client left.
        """
        if self._respond is None:
            return
        if self._events is None:
            self._open(self._respond)
        await self._put(message)

    async def finish(self, message: bytes) -> bool:
        """Send the final response on the stream and end it, if there is one. Whether there is.

        Raises:
            ClientLeft: the client left.
        """
        self._respond = None
        if self._events is None or self._stream is None:
            return False
        try:
            with self._events:
                await self._put(message)
        except ClientLeft:
            if not self._is_cut:
                raise
        await self._stream
        if self._is_cut:  # as the work was done, or a slow client still reading
            await self._end(b"" if self._is_drained else event(message))
        elif self.reason is not None:
            raise ClientLeft
        return True

    async def abandon(self, message: bytes = b"") -> None:
        """End an open stream: the call ended without a response.

        `message` says so in its place, where it was the server that ended it.
        """
        self._respond = None
        if self._events is None or self._stream is None:
            return
        is_gone = self._has_left() and not self._is_cut
        with self._events:
            self._stream.cancel()
            await asyncio.wait([self._stream])
        self._stream = None  # It holds its cancellation, whose traceback holds this exchange.
        await self._end(event(message) if message and not is_gone else b"")

    async def _end(self, rest: bytes) -> None:
        """End a stream that ended without its end: servers log that as an error."""
        with suppress(Exception):
            await self._send({"type": "http.response.body", "body": rest, "more_body": False})

    async def _put(self, message: bytes) -> None:
        assert self._events is not None
        try:
            try:
                self._events.send_nowait(message)
            except anyio.WouldBlock:
                await self._events.send(message)
            else:
                await self._give_way()
        except anyio.BrokenResourceError:
            # The stream has ended, and its task is about to say so and to cancel the handler.
            await self._wait_until_gone()
            raise ClientLeft from None

    async def _give_way(self) -> None:
        """Let the stream send, if it had no chance to for a while.

        Then a handler that computes between two notifications does not hold the first one back,
        and many of them in a row go out together.
        """
        now = asyncio.get_running_loop().time()
        if now - self._gave_way > _HELD_BACK:
            self._gave_way = now
            await asyncio.sleep(0)

    def _open(self, respond: MakeStream) -> None:
        self._events, events = anyio.create_memory_object_stream[bytes](_BUFFERED_EVENTS)
        # The handler stays in the request's own task, so that its timeouts and scopes hold; the
        # response is what runs beside it.
        self._stream = asyncio.ensure_future(self._run_stream(respond, events))

    async def _run_stream(
        self, respond: MakeStream, events: MemoryObjectReceiveStream[bytes]
    ) -> None:
        try:
            with events:
                # `_wait_until_gone` stands in for `receive`, which has one reader already.
                response = respond(self._event_lines(events))
                await response(_STREAM_SCOPE, self._wait_until_gone, self._send_to_client)
            if not (self._has_left() or getattr(response, "is_complete", True)):
                self._is_cut = True
                self.reason = "the server is stopping"
        except Exception as error:
            self.reason = repr(error)
        finally:
            self._leave()

    async def _send_to_client(self, message: Message) -> None:
        await self._send(message)

    async def _event_lines(self, events: MemoryObjectReceiveStream[bytes]) -> AsyncIterator[bytes]:
        async for message in events:
            waiting = [event(message)]
            with suppress(anyio.WouldBlock, anyio.EndOfStream):
                while True:
                    waiting.append(event(events.receive_nowait()))
            yield b"".join(waiting)
        self._is_drained = True

    def _has_left(self) -> bool:
        return self._is_closed()

    def _is_closed(self) -> bool:
        """Whether the connection is."""
        return self._gone is not None and self._gone.is_set()

    def _closed(self) -> None:
        """The connection is closed."""
        if self._gone is None:
            self._gone = asyncio.Event()
        self._gone.set()

    async def _wait_until_gone(self) -> Message:
        if self._gone is None:
            self._gone = asyncio.Event()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        """The connection is closed: tell the stream, and cancel the handler."""
        self._closed()
        if self._worker is not None and not self._cancelled:
            self._cancelled = True
            self._interrupt(self._worker)

    def _interrupt(self, worker: asyncio.Task[Any]) -> None:
        threads = to_thread.current_default_thread_limiter().statistics()
        self._deferred = worker in threads.borrowers
        if not self._deferred:
            worker.cancel()

    def _release(self) -> bool:
        """The work has ended. Whether it had been cancelled, which is then taken back."""
        worker, self._worker = self._worker, None
        if self._cancelled and not self._deferred and worker is not None:
            worker.uncancel()
        return self._cancelled


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
        exchange._worker = task
        watcher = asyncio.ensure_future(exchange._watch())
        try:
            while True:
                try:
                    value = yield waiting_for
                except BaseException as error:
                    waiting_for = work.throw(error)
                else:
                    waiting_for = work.send(value)
                if exchange._deferred:
                    exchange._interrupt(task)
        except StopIteration as done:
            if not exchange._release():
                return done.value  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if not exchange._release():
                if not task.cancelling():
                    raise HandlerError("A handler awaited something that was cancelled") from None
                raise
        except BaseException as error:
            if not exchange._release():
                raise
            exchange.reason = repr(error)
        finally:
            watcher.cancel()
        raise ClientLeft
