"""MCP servers inside FastAPI apps, with handlers that ask and wait without holding a connection."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ._version import __version__ as __version__
from .auth.introspection import IntrospectionVerifier
from .auth.jwt import JWTVerifier
from .auth.resource import ProtectedResource
from .auth.token import VerifiedToken
from .errors import (
    DuplicateKeyError,
    HandlerError,
    InputCancelled,
    InputDeclined,
    InputRefused,
    MCPError,
    MissingClientCapability,
    NondeterminismError,
    RequestStateError,
    RequestStateTooLarge,
    ToolError,
    UnstableQuestionError,
)
from .http.router import MCPRouter
from .rounds.questions import Titles
from .rounds.sentinels import (
    Rounds,
    SyncRounds,
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    prefixed,
    progress,
    step,
)
from .server.context import Context
from .server.groups import HandlerGroup
from .server.param_headers import MCPHeader
from .server.signature import Complete
from .state import ledger as _ledger
from .state import sessions as _sessions
from .state.codec import AESGCMCodec, RequestStateCodec
from .state.keys import KeyRing, Secret
from .state.ledger import Ledger, LedgerUnavailable, MemoryLedger
from .state.sessions import MemorySessionStore, SessionStore, SessionStoreUnavailable

if TYPE_CHECKING:
    from .state.ledger import RedisLedger, SQLLedger
    from .state.sessions import RedisSessionStore

__all__ = [
    "AESGCMCodec",
    "Complete",
    "Context",
    "DuplicateKeyError",
    "HandlerError",
    "HandlerGroup",
    "InputCancelled",
    "InputDeclined",
    "InputRefused",
    "IntrospectionVerifier",
    "JWTVerifier",
    "KeyRing",
    "Ledger",
    "LedgerUnavailable",
    "MCPError",
    "MCPHeader",
    "MCPRouter",
    "MemoryLedger",
    "MemorySessionStore",
    "MissingClientCapability",
    "NondeterminismError",
    "ProtectedResource",
    "RedisLedger",
    "RedisSessionStore",
    "RequestStateCodec",
    "RequestStateError",
    "RequestStateTooLarge",
    "Rounds",
    "SQLLedger",
    "Secret",
    "SessionStore",
    "SessionStoreUnavailable",
    "SyncRounds",
    "Titles",
    "ToolError",
    "UnstableQuestionError",
    "VerifiedToken",
    "log",
    "need_input",
    "need_roots",
    "need_sampling",
    "need_url",
    "not_yet",
    "prefixed",
    "progress",
    "step",
]

_LAZY: Final = {
    "RedisLedger": (_ledger, "redis"),
    "RedisSessionStore": (_sessions, "redis"),
    "SQLLedger": (_ledger, "sqlalchemy"),
}
"""Names that are imported when they are asked for, whence, and what an extra brings for it."""

if not TYPE_CHECKING:  # to a type checker every misspelt name would pass for one of them
    # `from fastapi_mcp_mrtr import *` is not to fail for want of an extra.
    __all__ = [name for name in __all__ if name not in _LAZY or find_spec(_LAZY[name][1])]

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_LAZY[name][0], name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY})
