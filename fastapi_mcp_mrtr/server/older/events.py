"""What was sent on a stream, for clients that lost it and ask for the rest (`Last-Event-ID`).

Resumption reads the store; the messages that workers exchange meanwhile only say "look again", so
none of them can be lost or come twice. Knows no HTTP.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from fastapi_mcp_mrtr.state.codec import RequestStateCodec
from fastapi_mcp_mrtr.state.sessions.protocol import (
    Listener,
    SessionStore,
    SessionStoreUnavailable,
    read_event_id,
)
from fastapi_mcp_mrtr.state.sessions.session_id import Session

from .sessions import Sessions

logger = logging.getLogger("fastapi_mcp_mrtr")

_ALIVE_SECONDS: Final = 5.0
"""How long whoever resumes a stream waits for a sign of the call behind it."""

_HEARTBEAT: Final = 30.0
"""Seconds of silence after which to ask for one."""

_PURPOSE: Final = b"event"
_MORE: Final = b"+"
_LAST: Final = b"."


class UnknownEvent(Exception):
    """There is no such event for this session, or what came after it is no longer known."""


class Recorder:
    """Keeps the events of one stream, for `kept` seconds after the last one."""

    __slots__ = ("_codec", "_kept", "_store", "is_followed", "stream")

    def __init__(
        self, store: SessionStore, codec: RequestStateCodec, session: Session, *, kept: float
    ) -> None:
        self._store = store
        self._codec = codec
        self._kept = kept
        self.stream: Final = _prefix(session) + secrets.token_urlsafe(16)
        self.is_followed = False
        """Whether somebody reads from the store what is recorded."""

    async def record(self, message: bytes, *, last: bool = False) -> str | None:
        """Keep an event; its id, or None if it could not be kept and so cannot be asked for."""
        payload = b"%b\n%b%b" % (self.stream.encode(), _LAST if last else _MORE, message)
        sealed = self._codec.seal(payload, purpose=_PURPOSE).encode("ascii")
        try:
            event_id = await self._store.append(self.stream, sealed, ttl=self._kept)
        except SessionStoreUnavailable as error:
            logger.warning("An event is sent but cannot be asked for again: %s", error)
            return None
        if self.is_followed:
            await self.nudge()
        return event_id

    async def nudge(self) -> None:
        """Tell whoever follows the stream to look again."""
        await self._say(_MORE)

    async def give_up(self) -> None:
        """Tell whoever follows the stream that nothing more will come."""
        if self.is_followed:
            await self._say(_LAST)

    async def _say(self, word: bytes) -> None:
        with suppress(SessionStoreUnavailable):
            await self._store.publish(_topic(self.stream), word)


class Replay:
    """The events of a stream after a given one, and those that are still to come."""

    def __init__(
        self, store: SessionStore, codec: RequestStateCodec, sessions: Sessions, session: Session
    ) -> None:
        self._store = store
        self._codec = codec
        self._sessions = sessions
        self._session = session

    async def events_after(self, event_id: str) -> AsyncGenerator[tuple[str, bytes] | None, None]:
        """The ids and messages, until the response; first None, when the stream is found.

        Raises:
            UnknownEvent: instead of that None.
            SessionStoreUnavailable: the store cannot be reached.
        """
        named = read_event_id(event_id)
        # Another session's stream is none, however its id was learnt.
        if named is None or not hmac.compare_digest(
            named[0][:_PREFIX].encode(), _prefix(self._session).encode()
        ):
            raise UnknownEvent
        stream = named[0]
        async with self._store.listen(_topic(stream), limit=1) as nudges:
            events = await self._store.events_after(event_id)
            if events is None:  # whoever reads the stream now is to read on
                raise UnknownEvent
            await self._sessions.tell(self._session, resumed=stream)
            try:
                if not (events or await _heard(nudges, _ALIVE_SECONDS)):
                    raise UnknownEvent
                yield None
                if not events:
                    events = await self._store.events_after(event_id)
                while events is not None:
                    for event_id, sealed in events:
                        last, message = self._open(stream, sealed)
                        yield event_id, message
                        if last:
                            return
                    if not await self._is_alive(stream, nudges):
                        return
                    events = await self._store.events_after(event_id)
            finally:
                with suppress(SessionStoreUnavailable):
                    await self._sessions.tell(self._session, left=stream)

    async def _is_alive(self, stream: str, nudges: Listener) -> bool:
        """Wait until there may be more. False if there is nobody any more to send it."""
        word = await _heard(nudges, _HEARTBEAT)
        if word is None:
            await self._sessions.tell(self._session, resumed=stream)
            word = await _heard(nudges, _ALIVE_SECONDS)
        return word == _MORE

    def _open(self, stream: str, sealed: bytes) -> tuple[bool, bytes]:
        """Whether it is the last one, and the message."""
        try:
            payload = self._codec.unseal(sealed.decode("ascii"), purpose=_PURPOSE)
        except Exception as error:
            why = f"an event is sealed otherwise ({type(error).__name__})"
            raise SessionStoreUnavailable(why) from None
        place, _, event = payload.partition(b"\n")
        if place.decode() != stream:
            raise SessionStoreUnavailable("an event is of another stream")
        return event[:1] == _LAST, event[1:]


_PREFIX: Final = 16


def _prefix(session: Session) -> str:
    """What the streams of a session begin with; it does not tell the session's uid."""
    return hashlib.sha256(session.uid.encode()).hexdigest()[:_PREFIX]


async def _heard(nudges: Listener, patience: float) -> bytes | None:
    """What is said within `patience` seconds; None if nothing is."""
    receiving = asyncio.ensure_future(nudges.receive())
    try:
        await asyncio.wait([receiving], timeout=patience)
        return receiving.result() if receiving.done() else None
    finally:
        receiving.cancel()


def _topic(stream: str) -> str:
    return f"stream:{stream}"
