"""Sessions of older revisions: their ids, and where what changes is kept. Knows no handler.

`RedisSessionStore` is imported when it is first asked for: it needs the extra `[redis]`.
"""

from typing import TYPE_CHECKING, Any

from fastapi_mcp_mrtr.state.extras import ask_for

from .memory import MemorySessionStore
from .protocol import Listener, SessionData, SessionStore, SessionStoreUnavailable
from .session_id import Session, SessionSecurity

if TYPE_CHECKING:
    from .redis import RedisSessionStore

__all__ = [
    "Listener",
    "MemorySessionStore",
    "RedisSessionStore",
    "Session",
    "SessionData",
    "SessionSecurity",
    "SessionStore",
    "SessionStoreUnavailable",
]


def __getattr__(name: str) -> Any:
    return ask_for(name, {"RedisSessionStore": "redis"}, __name__)
