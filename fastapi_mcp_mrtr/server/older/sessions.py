"""Sessions of older clients: begun by `initialize`, named on every request, ended by either side.

Knows no HTTP and no method but `initialize`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from fastapi_mcp_mrtr.errors import SessionNotFound
from fastapi_mcp_mrtr.protocol.canonical import digest
from fastapi_mcp_mrtr.protocol.jsonrpc import encode
from fastapi_mcp_mrtr.protocol.older import Initialization
from fastapi_mcp_mrtr.state.sessions.protocol import SessionData, SessionStore
from fastapi_mcp_mrtr.state.sessions.session_id import Session, SessionSecurity

logger = logging.getLogger("fastapi_mcp_mrtr")


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that a request belongs to, and what became of it since it began."""

    session: Session
    data: SessionData


class Sessions:
    """Opens, changes and ends sessions. Their ids say what they are; the store has the rest."""

    def __init__(
        self,
        security: SessionSecurity,
        store: SessionStore,
        *,
        versions: Sequence[str],
        lifetime: float,
        clock: Callable[[], float],
    ) -> None:
        self.versions: Final = tuple(versions)
        """The older revisions served, newest first."""
        self.clock = clock
        self._security = security
        self._store = store
        self._lifetime = lifetime

    def begin(self, initialization: Initialization, principal: bytes) -> str:
        """The id of a new session."""
        session = Session.begin(
            version=initialization.version,
            capabilities=initialization.capabilities,
            client_info=initialization.client_info,
            expires=self.clock() + self._lifetime,
        )
        return self._security.seal(session, principal=principal)

    async def open(self, session_id: str, principal: bytes) -> OpenSession:
        """The session of a request.

        Raises:
            SessionNotFound: there is none for this caller; the log gets the reason.
            SessionStoreUnavailable: nobody can tell whether it was ended.
        """
        try:
            session = self._security.unseal(session_id, principal=principal, now=self.clock())
            if session.version not in self.versions:
                raise SessionNotFound("revision no longer served")
            data = await self._store.load(session.uid)
            if data.revoked:
                raise SessionNotFound("ended")
        except SessionNotFound as error:
            logger.info("No session for a request: %s", error.reason)
            raise
        return OpenSession(session, data)

    def ends_in(self, session: Session) -> float:
        """Seconds until a session expires."""
        return max(session.expires - self.clock(), 0.0)

    async def set_log_level(self, session: Session, level: str) -> None:
        """Send log messages of this level and above on calls that come after this."""
        await self._store.set_log_level(session.uid, level, ttl=self.ends_in(session))

    async def subscribe(self, session: Session, uri: str) -> bool:
        """Tell the session's listening stream when a resource changed. False: they are too many."""
        subscribed = await self._store.subscribe(session.uid, uri, ttl=self.ends_in(session))
        await self.tell(session, changed=True)
        return subscribed

    async def unsubscribe(self, session: Session, uri: str) -> None:
        """No longer tell it."""
        await self._store.unsubscribe(session.uid, uri)
        await self.tell(session, changed=True)

    async def end(self, session: Session) -> None:
        """End a session: its calls are cancelled, its streams closed, its id is good no more."""
        await self._store.revoke(session.uid, ttl=self.ends_in(session))
        await self.tell(session, ended=True)

    async def cancel(self, session: Session, request_id: str | int) -> None:
        """Cancel a call of the session, on whichever worker it runs."""
        # An id is as long as its client likes, and every worker hears of it.
        await self.tell(session, cancelled=digest(request_id))

    async def tell(self, session: Session, **news: Any) -> None:
        """Tell all workers that serve the session. Raises: SessionStoreUnavailable."""
        await self._store.publish(control_topic(session), encode(news))


def control_topic(session: Session) -> str:
    """Where the workers that serve a session hear what happens to it."""
    return f"session:{session.uid}"


def read_news(message: bytes) -> dict[str, Any]:
    """What a worker told the others. Nothing where it makes no sense: a store may be written to by
    somebody else, which is logged."""
    try:
        news = from_json(message)
    except ValueError:
        news = None
    if isinstance(news, dict):
        return news
    logger.warning("A message about a session made no sense, and is skipped")
    return {}
