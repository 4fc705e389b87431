"""Sessions of older revisions: their ids, and where what changes is kept. Knows no handler."""

from .memory import MemorySessionStore
from .protocol import Listener, SessionData, SessionStore, SessionStoreUnavailable
from .session_id import Session, SessionSecurity

__all__ = [
    "Listener",
    "MemorySessionStore",
    "Session",
    "SessionData",
    "SessionSecurity",
    "SessionStore",
    "SessionStoreUnavailable",
]
