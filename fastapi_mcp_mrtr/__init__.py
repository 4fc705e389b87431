"""MCP servers inside FastAPI apps, with handlers that ask and wait without holding a connection."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ._version import __version__ as __version__
from .auth.challenges import ChallengeError, send_challenge
from .auth.introspection import IntrospectionVerifier
from .auth.jwt import JWTVerifier
from .auth.resource import ProtectedResource
from .auth.token import InvalidToken, KeysUnavailable, TokenVerifier, VerifiedToken
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
from .http.console.settings import Console
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
from .state.codec import AESGCMCodec, RequestStateCodec
from .state.keys import KeyRing, Secret
from .state.ledger import Ledger, LedgerUnavailable, MemoryLedger
from .state.sessions import MemorySessionStore, SessionStore, SessionStoreUnavailable

if TYPE_CHECKING:
    from .auth.jwks import JWKSCache
    from .state.ledger import RedisLedger, SQLLedger
    from .state.sessions import RedisSessionStore

__all__ = [
    "AESGCMCodec",
    "ChallengeError",
    "Complete",
    "Console",
    "Context",
    "DuplicateKeyError",
    "HandlerError",
    "HandlerGroup",
    "InputCancelled",
    "InputDeclined",
    "InputRefused",
    "IntrospectionVerifier",
    "InvalidToken",
    "JWKSCache",
    "JWTVerifier",
    "KeyRing",
    "KeysUnavailable",
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
    "TokenVerifier",
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
    "send_challenge",
    "step",
]

_LAZY: Final = {
    "JWKSCache": ("joserfc", ".auth.jwks"),
    "RedisLedger": ("redis", ".state.ledger"),
    "RedisSessionStore": ("redis", ".state.sessions"),
    "SQLLedger": ("sqlalchemy", ".state.ledger"),
}
"""Names that are imported when they are asked for: the package that an extra brings for it, and
where they are."""

if not TYPE_CHECKING:  # to a type checker every misspelt name would pass for one of them
    # `from fastapi_mcp_mrtr import *` is not to fail for want of an extra.
    __all__ = [name for name in __all__ if name not in _LAZY or find_spec(_LAZY[name][0])]

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LAZY[name][1], __name__), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY})
