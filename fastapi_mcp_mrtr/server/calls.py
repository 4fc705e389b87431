"""One call of a handler: the round it runs, what it may send meanwhile, what its failures become.

Knows no HTTP status and no header.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import HTTPException
from pydantic_core import to_json

from fastapi_mcp_mrtr.errors import (
    INPUT_REFUSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    InputRefused,
    MCPError,
    RequestStateError,
    ToolError,
    UnstableQuestionError,
)
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.protocol.inbound import LOG_LEVELS, InboundRequest
from fastapi_mcp_mrtr.protocol.jsonrpc import encode_notification
from fastapi_mcp_mrtr.rounds.sentinels import Log, Progress

from .injection import RequestDependencies

logger = logging.getLogger("fastapi_mcp_mrtr")

T = TypeVar("T")

_HANDLER_THREADS: Final = 40
"""Threads for `def` handlers of one event loop: anyio's own default for worker threads. They are
not those of FastAPI's sync dependencies, so neither can starve the other."""

_limiter: RunVar[CapacityLimiter] = RunVar("fastapi_mcp_mrtr_handler_threads")

_LEVELS: Final[Mapping[str, int]] = {level: severity for severity, level in enumerate(LOG_LEVELS)}


class ClientLeft(BaseException):
    """The client closed the connection, which cancels the call (streamable-http §Cancellation).

    Yield-dependencies see it and roll back. It is no `Exception`: nothing should report it.
    """


class Exchange(Protocol):
    """The transport's side of one request."""

    async def notify(self, message: bytes) -> None:
        """Send a notification before the response. Dropped where the client takes no stream."""

    def guard(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run `work`; cancel it and raise `ClientLeft` when the client leaves."""


class Call:
    """A request on its way through the server."""

    __slots__ = (
        "_last_progress",
        "dependencies",
        "exchange",
        "headers",
        "message",
        "principal",
        "principal_key",
    )

    def __init__(
        self,
        *,
        message: InboundRequest,
        headers: RequestHeaders,
        principal: Any,
        principal_key: bytes,
        dependencies: RequestDependencies,
        exchange: Exchange,
    ) -> None:
        self.message = message
        self.headers = headers
        self.principal = principal
        self.principal_key = principal_key
        self.dependencies = dependencies
        self.exchange = exchange
        self._last_progress = float("-inf")

    async def emit(self, notification: Progress | Log) -> None:
        """Send a notification if this request asked for it. `RoundHost.emit`."""
        encoded = (
            self._progress(notification)
            if isinstance(notification, Progress)
            else self._log(notification)
        )
        if encoded is not None:
            await self.exchange.notify(encoded)

    async def in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Run `fn` in a worker thread. A cancelled call still waits for the thread to end.

        `RoundHost.in_thread`. A generator cannot be closed while a thread is inside it.
        """
        try:
            limiter = _limiter.get()
        except LookupError:
            limiter = CapacityLimiter(_HANDLER_THREADS)
            _limiter.set(limiter)
        work = asyncio.ensure_future(to_thread.run_sync(partial(fn, *args), limiter=limiter))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            with CancelScope(shield=True):
                while not work.done():
                    try:
                        await asyncio.wait([work])
                    except asyncio.CancelledError:  # pragma: no cover - cancelled once more
                        continue
            if not work.cancelled():
                work.exception()  # retrieved: the cancellation is what ends the call
            raise

    def _progress(self, progress: Progress) -> bytes | None:
        token = self.message.meta.progress_token
        # basic/patterns/progress: the value MUST increase with each notification.
        if token is None or not progress.done > self._last_progress:
            return None
        self._last_progress = progress.done
        params = {"progressToken": token, "progress": progress.done}
        if progress.total is not None:
            params["total"] = progress.total
        if progress.message is not None:
            params["message"] = progress.message
        return encode_notification("notifications/progress", params)

    def _log(self, log: Log) -> bytes | None:
        wanted = self.message.meta.log_level
        if wanted is None or _LEVELS[log.level] < _LEVELS[wanted]:
            return None
        params = {"level": log.level, "data": log.data}
        if log.logger is not None:
            params["logger"] = log.logger
        return encode_notification("notifications/message", params)


def translate(error: Exception, where: str) -> MCPError | ToolError:
    """What the client may know of a failure inside a handler; the rest goes to the log.

    A `ToolError` in return is for a result the model can read, an `MCPError` for the client.
    """
    match error:
        case RequestStateError():
            logger.warning("%s: requestState refused: %s", where, error.reason)
            return error
        case MCPError() | ToolError():
            return error
        case HTTPException():
            detail = error.detail
            return ToolError(detail if isinstance(detail, str) else _json_text(detail))
        case InputRefused():
            return ToolError(str(error))
        case UnstableQuestionError():
            logger.error("%s: %s", where, error)
            message = f"The question {error.key!r} changed on every round and cannot be answered"
            return MCPError(INTERNAL_ERROR, message)
    return internal_error(error, where)


def internal_error(error: Exception, where: str) -> MCPError:
    """All the client learns of a failure it cannot mend; the log has the traceback by its id."""
    correlation_id = secrets.token_hex(8)
    logger.error("%s failed (correlation id %s)", where, correlation_id, exc_info=error)
    return MCPError(INTERNAL_ERROR, "Internal error", {"correlationId": correlation_id})


def protocol_error(error: Exception, known: MCPError | ToolError, uri: str | None) -> MCPError:
    """The JSON-RPC error for a prompt or resource, whose results cannot carry a failure."""
    if isinstance(known, MCPError):
        return known
    if isinstance(error, InputRefused):
        return MCPError(INPUT_REFUSED, known.message, {"key": error.key})
    if isinstance(error, HTTPException) and error.status_code == 404 and uri is not None:
        return MCPError(INVALID_PARAMS, known.message, {"uri": uri})
    return MCPError(INTERNAL_ERROR, known.message)


def _json_text(value: Any) -> str:
    return to_json(value, fallback=lambda _: "?", inf_nan_mode="null").decode()
