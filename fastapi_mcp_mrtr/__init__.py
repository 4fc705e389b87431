"""MCP servers inside FastAPI apps, with handlers that ask and wait without holding a connection."""

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
from .state.codec import AESGCMCodec, RequestStateCodec
from .state.keys import KeyRing, Secret
from .state.ledger import Ledger, LedgerUnavailable, MemoryLedger

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
    "MissingClientCapability",
    "NondeterminismError",
    "ProtectedResource",
    "RequestStateCodec",
    "RequestStateError",
    "RequestStateTooLarge",
    "Rounds",
    "Secret",
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
