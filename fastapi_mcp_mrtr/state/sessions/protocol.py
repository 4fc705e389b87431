"""What sessions of older revisions need to be kept, and how workers tell each other. No store here.

A session id says what was agreed (`session_id.py`). What changes after that cannot be in it: the
log level, the resources subscribed to, whether the session was ended. An answer may reach another
worker than the one that waits for it, so messages go from one to the others. And a client that
lost its stream may ask for the events it missed.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

MAX_URIS: Final = 1000
"""How many resources one session may be subscribed to."""

MAX_EVENTS: Final = 256
MAX_EVENT_BYTES: Final = 1024 * 1024
"""What is kept of one stream: its last events, so many and so long in all."""

MAX_STREAMS: Final = 1000
"""Of how many streams events are kept; those written longest ago are forgotten first."""

LISTENER_LIMIT: Final = 16
"""How many messages wait for a listener that is busy."""


_EVENT_ID: Final = re.compile(r"([!-~]{1,200})-([0-9.]{1,40})", re.ASCII)


def make_event_id(stream: str, mark: str) -> str:
    """The id of an event: its stream, and what the store knows it by (`[0-9.]`)."""
    return f"{stream}-{mark}"


def read_event_id(text: str) -> tuple[str, str] | None:
    """The stream and the mark that an id names; None if it is none."""
    match = _EVENT_ID.fullmatch(text)
    return (match[1], match[2]) if match else None


class SessionStoreUnavailable(Exception):
    """The store cannot be reached, is full, did not answer in time or holds what makes no sense."""


@dataclass(frozen=True, slots=True)
class SessionData:
    """What became of a session since `initialize`."""

    log_level: str | None = None
    uris: frozenset[str] = frozenset()
    revoked: bool = False


class Listener(Protocol):
    """Receives the messages of one topic, in the event loop that listens."""

    async def receive(self) -> bytes:
        """The next message. For one reader at a time."""
        ...


class SessionStore(Protocol):
    """Where older sessions keep what their ids cannot say.

    Every method may be called from any event loop. Sessions are named by their `uid`; `ttl` is in
    seconds: how long the session may still be presented. Names and topics are text of the caller's
    own making, never the client's.

    Raises: SessionStoreUnavailable, from each method. What was asked for may have happened all the
    same.
    """

    async def load(self, session: str) -> SessionData:
        """What is known of a session. Nothing is: `SessionData()`."""
        ...

    async def set_log_level(self, session: str, level: str, *, ttl: float) -> None:
        """Keep the log level. Nothing happens to a session that is revoked."""
        ...

    async def subscribe(self, session: str, uri: str, *, ttl: float) -> bool:
        """Add a resource. False: it would be one more than `MAX_URIS`, or the session is over."""
        ...

    async def unsubscribe(self, session: str, uri: str) -> None:
        """Remove a resource, if it is there."""
        ...

    async def revoke(self, session: str, *, ttl: float) -> None:
        """End a session: nothing else is known of it from now on."""
        ...

    async def publish(self, topic: str, message: bytes) -> None:
        """Send to whoever listens for the topic, in any process, at least once.

        Nothing is kept for listeners that come later.
        """
        ...

    def listen(
        self, topic: str, *, limit: int = LISTENER_LIMIT
    ) -> AbstractAsyncContextManager[Listener]:
        """Listen for a topic, from the moment the context is entered.

        Of more than `limit` messages that wait, the oldest are dropped. A message that was
        published just before may be received too.
        """
        ...

    async def append(self, stream: str, event: bytes, *, ttl: float) -> str:
        """Keep an event of a stream for `ttl` seconds from now, and return its id.

        The id comes from `make_event_id`. Streams are kept within `MAX_EVENTS`,
        `MAX_EVENT_BYTES` and `MAX_STREAMS`.
        """
        ...

    async def events_after(self, event_id: str) -> list[tuple[str, bytes]] | None:
        """The events after this one, oldest first; None if this one is not kept any more.

        An id may be anything a client sends. Whose stream it names, the caller checks with
        `read_event_id`.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections the store made itself. It may be used again."""
        ...
