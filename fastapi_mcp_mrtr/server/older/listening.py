"""The standalone stream of a session: lists that changed, and resources it subscribed to.

What the session subscribes to while the stream is open counts at once, on whichever worker that
happens. Knows no HTTP.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

from fastapi_mcp_mrtr.protocol.jsonrpc import encode_notification
from fastapi_mcp_mrtr.server.subscriptions import (
    Bus,
    Event,
    Filter,
    Kind,
    ResourceUpdated,
    Subscription,
)
from fastapi_mcp_mrtr.state.sessions.protocol import (
    Listener,
    SessionStore,
    SessionStoreUnavailable,
)
from fastapi_mcp_mrtr.state.sessions.session_id import Session

from .sessions import Sessions, control_topic, read_news

logger = logging.getLogger("fastapi_mcp_mrtr")

_NEWS_LIMIT: Final = 64

MAX_STREAMS: Final = 16
"""How many streams of a session stay open; one that is opened beyond closes the oldest."""


class ListeningStream:
    """One open stream. Of several that a session has open, the newest one speaks.

    A message goes out on one of them only (transports §Multiple Connections).
    """

    def __init__(
        self,
        session: Session,
        *,
        sessions: Sessions,
        store: SessionStore,
        bus: Bus,
        kinds: Collection[Kind],
    ) -> None:
        self._session = session
        self._sessions = sessions
        self._store = store
        self._bus = bus
        self._kinds = tuple(kinds)
        self._name = secrets.token_hex(8)
        self._newer: set[str] = set()
        self._current: Subscription | None = None
        self._next: Subscription | None = None
        self._uris: frozenset[str] = frozenset()
        self._is_over = False

    def close(self) -> None:
        """End the stream."""
        self._is_over = True
        if self._current is not None:
            self._current.close()

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """The notifications, encoded, until the session ends or the stream is closed."""
        try:
            topic = control_topic(self._session)
            async with (
                self._store.listen(topic, limit=_NEWS_LIMIT) as news,
                aclosing(self._messages(news)) as messages,
            ):
                async for message in messages:
                    yield message
        except SessionStoreUnavailable as error:
            logger.error("The session store is unavailable: %s", error)

    async def _messages(self, news: Listener) -> AsyncGenerator[bytes, None]:
        await self._sessions.tell(self._session, opened=self._name)
        self._uris = (await self._store.load(self._session.uid)).uris
        subscription: Subscription | None = await self._subscribe()
        listening = asyncio.ensure_future(self._listen(news))
        try:
            while subscription is not None:
                async with subscription:
                    async for event in subscription:
                        if not self._newer:
                            yield _notification(event)
                subscription, self._next = self._next, None
        finally:
            listening.cancel()
            with suppress(SessionStoreUnavailable):
                await self._sessions.tell(self._session, closed=self._name)

    async def _subscribe(self) -> Subscription:
        subscription = self._bus.subscribe(0, Filter(self._kinds, tuple(self._uris)))
        await subscription.__aenter__()
        self._current = subscription
        if self._is_over:
            subscription.close()
        return subscription

    async def _listen(self, news: Listener) -> None:
        while True:
            match read_news(await news.receive()):
                case {"ended": True}:
                    self.close()
                case {"opened": str(name)} if name != self._name:
                    self._newer.add(name)
                    if len(self._newer) >= MAX_STREAMS:
                        self.close()
                case {"closed": str(name)}:
                    self._newer.discard(name)
                case {"changed": True}:
                    with suppress(SessionStoreUnavailable):
                        await self._change()

    async def _change(self) -> None:
        uris = (await self._store.load(self._session.uid)).uris
        if uris == self._uris or self._is_over:
            return
        self._uris = uris
        before = self._current
        assert before is not None
        if self._next is not None:
            # The stream has not come to the one before yet.
            await self._next.__aexit__()
        self._next = await self._subscribe()
        before.close()


def _notification(event: Event) -> bytes:
    if isinstance(event, ResourceUpdated):
        return encode_notification("notifications/resources/updated", {"uri": event.uri})
    params: Mapping[str, Any] = {}
    return encode_notification(f"notifications/{event.kind}/list_changed", params)
