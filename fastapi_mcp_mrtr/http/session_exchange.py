"""The HTTP side of one request of an older client: its stream may be lost without the call.

To older revisions a connection that closes cancels nothing (transports §Sending Messages). The call
goes on for a while, what it sends is kept, and the client may come back for it. What cancels it is
the client's notification, the end of the session, and staying away too long.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from starlette.types import Message

from fastapi_mcp_mrtr.protocol.canonical import digest
from fastapi_mcp_mrtr.server.calls import ClientLeft
from fastapi_mcp_mrtr.server.older.events import Recorder
from fastapi_mcp_mrtr.server.older.sessions import control_topic, read_news
from fastapi_mcp_mrtr.state.sessions.protocol import SessionStore, SessionStoreUnavailable
from fastapi_mcp_mrtr.state.sessions.session_id import Session

from .exchange import HTTPExchange, event

AWAY_SECONDS: Final = 60.0
"""How long a call goes on without its client."""

_NEWS_LIMIT: Final = 256
"""Messages about a session that may wait to be heard: several batches of cancellations."""

_RETRY_MS: Final = 1000


class SessionExchange(HTTPExchange):
    """One request of a session. Implements `server.older.bridge.OlderExchange`."""

    __slots__ = (
        "_away",
        "_last",
        "_over",
        "_recorder",
        "_request_id",
        "_session",
        "_store",
        "_watchers",
        "is_cancelled",
    )

    def __init__(
        self,
        connection: HTTPExchange,
        *,
        store: SessionStore,
        session: Session,
        recorder: Recorder,
        request_id: str | int,
    ) -> None:
        super().__init__(connection._receive, connection._send)
        self._store = store
        self._session = session
        self._recorder = recorder
        self._request_id = request_id
        self._last = False
        self._over = asyncio.Event()
        self._away: asyncio.TimerHandle | None = None
        self._watchers: list[asyncio.Task[None]] = []
        self.is_cancelled = False
        """Whether the client cancelled the request, as opposed to its session ending."""

    def begin(self, request_id: str | int) -> None:
        """Serve another request of the same batch. One that was cancelled does not matter to it."""
        self._request_id = request_id
        if self.is_cancelled:
            self.is_cancelled = self._cancelled = self._deferred = False
            self._over = asyncio.Event()

    @property
    def may_ask(self) -> bool:
        """Whether requests can be sent to the client: it takes a stream."""
        return self._respond is not None

    async def notify(self, message: bytes) -> None:
        """Send a message before the response, opening the stream if this is the first one.

        Kept for a client whose connection was lost. Dropped where the client takes no stream.
        """
        if self._respond is None:
            return
        if self._events is None:
            self._begin_watching()
            self._open(self._respond)
            if self._session.version == "2025-11-25":
                # Earlier clients take an event without data for a message.
                await self._put(b"", b"retry: %d\r\n" % _RETRY_MS)
        await self._put(message)

    async def finish(self, message: bytes) -> bool:
        """Send the final response on the stream and end it, if there is one. Whether there is."""
        self._last = True
        try:
            return await super().finish(message)
        except ClientLeft:
            return True  # it comes back for it
        finally:
            self._stop()

    async def abandon(self, message: bytes = b"") -> None:
        """End an open stream: the call ended without a response, or with `message` in its place."""
        self._last = True
        self._stop()
        await super().abandon(message)
        await self._recorder.give_up()

    # ------------------------------------------------------------------------------- events

    async def _put(self, message: bytes, more: bytes = b"") -> None:
        event_id = await self._recorder.record(message, last=self._last)
        lines = more + event(message)
        if event_id is not None:
            lines = b"id: %b\r\n%b" % (event_id.encode(), lines)
        assert self._events is not None
        with suppress(anyio.BrokenResourceError):  # the connection was lost: it is kept
            await self._events.send(lines)

    async def _event_lines(self, events: MemoryObjectReceiveStream[bytes]) -> AsyncIterator[bytes]:
        async for lines in events:
            yield lines
        self._is_drained = True

    # ---------------------------------------------------------------------- what ends a call

    async def _wait_until_gone(self) -> Message:
        """A stream that was lost goes on unheard, so that it still learns when the server stops."""
        await self._over.wait()
        return {"type": "http.disconnect"}

    def _has_left(self) -> bool:
        return self._over.is_set()

    async def _send_to_client(self, message: Message) -> None:
        if not self._is_closed():
            await self._send(message)

    @property
    def is_cut(self) -> bool:
        """Whether the server ended the call, because it is to stop."""
        return self._is_cut

    def _leave(self) -> None:
        """The stream has ended, or the connection."""
        if self._is_cut:
            self._give_up()
        self._lost()

    async def _watch(self) -> None:
        """Wait for what cancels the call, while a part of it is guarded."""
        self._begin_watching()
        await self._over.wait()
        assert self._worker is not None
        self._cancelled = True
        self._interrupt(self._worker)

    def _begin_watching(self) -> None:
        if not self._watchers:
            self._watchers = [
                asyncio.ensure_future(self._watch_connection()),
                asyncio.ensure_future(self._watch_session()),
            ]

    def _stop(self) -> None:
        if self._away is not None:
            self._away.cancel()
        for watcher in self._watchers:
            watcher.cancel()
        self._watchers = []

    async def _watch_connection(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._lost()

    async def _watch_session(self) -> None:
        with suppress(SessionStoreUnavailable):
            topic = control_topic(self._session)
            async with self._store.listen(topic, limit=_NEWS_LIMIT) as listener:
                # It may have been ended before anybody listened.
                if (await self._store.load(self._session.uid)).revoked:
                    self._give_up()
                while True:
                    await self._hear(read_news(await listener.receive()))

    async def _hear(self, news: dict[str, Any]) -> None:
        match news:
            case {"cancelled": request_id} if request_id == digest(self._request_id):
                self.is_cancelled = True
                self._give_up()
            case {"ended": True}:
                self._give_up()
            case {"resumed": stream} if stream == self._recorder.stream:
                self._recorder.is_followed = True
                await self._hand_over()
                if self._away is not None:
                    self._away.cancel()
                    self._away = None
                await self._recorder.nudge()
            case {"left": stream} if stream == self._recorder.stream:
                self._recorder.is_followed = False
                self._lost()

    async def _hand_over(self) -> None:
        """Somebody else reads on: end the stream here, if it is still read."""
        is_read = self._events is not None and not self._is_closed()
        self._lost()
        if is_read:
            await self._end(b"")

    def _lost(self) -> None:
        """The connection is gone. The call goes on until the client has stayed away too long."""
        self._closed()
        if not (self._last or self._away or self._recorder.is_followed):
            loop = asyncio.get_running_loop()
            self._away = loop.call_later(AWAY_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._over.set()
