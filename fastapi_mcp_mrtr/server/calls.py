"""One call of a handler: the round it runs, the threads it uses, what it may send meanwhile.

Knows no HTTP status and no state.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from math import isfinite
from typing import Any, Final, Protocol, TypeVar

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.protocol.inbound import LOG_LEVELS, InboundRequest
from fastapi_mcp_mrtr.protocol.jsonrpc import encode_notification
from fastapi_mcp_mrtr.rounds.engine import (
    Completed,
    HandlerForm,
    InputRequired,
    Outcome,
    form_of,
    run_round,
)
from fastapi_mcp_mrtr.rounds.journal import Journal
from fastapi_mcp_mrtr.rounds.sentinels import Log, Progress

from .injection import RequestDependencies
from .signature import HandlerSignature

logger = logging.getLogger("fastapi_mcp_mrtr")

T = TypeVar("T")

_HANDLER_THREADS: Final = 40
"""Threads for `def` handlers of one event loop: anyio's own default for worker threads. They are
not those of FastAPI's sync dependencies, so neither can starve the other."""

_limiter: RunVar[CapacityLimiter] = RunVar("fastapi_mcp_mrtr_handler_threads")

_LEVELS: Final[Mapping[str, int]] = {level: severity for severity, level in enumerate(LOG_LEVELS)}


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end even if this task is cancelled meanwhile, which it then is."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with CancelScope(shield=True):
            while not task.done():
                with suppress(asyncio.CancelledError):  # cancelled once more
                    await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved: the cancellation is what ends the call
        raise
    finally:
        del task  # it holds the exception, whose traceback holds this frame


class ClientLeft(BaseException):
    """The client closed the connection, which cancelled the call (streamable-http §Cancellation).

    It is no `Exception`: nothing should report it.
    """


class RoundSuspended(BaseException):
    """Ends the lifetime of dependencies at an ask, as `GeneratorExit` ends a handler that asks:
    what they hold open is rolled back, and their `except Exception` stays quiet."""

    def __init__(self, outcome: InputRequired) -> None:
        super().__init__()
        self.outcome = outcome


class Exchange(Protocol):
    """The transport's side of one request."""

    async def notify(self, message: bytes) -> None:
        """Send a notification before the response. Dropped where the client takes no stream."""

    def guard(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run `work`; cancel it and raise `ClientLeft` when the client leaves."""
        ...


class Call:
    """A request on its way through the server."""

    __slots__ = (
        "_commits",
        "_last_progress",
        "dependencies",
        "exchange",
        "headers",
        "is_takeover",
        "message",
        "principal",
        "principal_key",
    )

    def __init__(
        self,
        *,
        message: InboundRequest,
        headers: RequestHeaders | None,
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
        self.is_takeover = False
        """Whether somebody else may have run this round before, in part or wholly."""
        self._commits: list[Callable[[], Any]] = []

    async def run(
        self,
        signature: HandlerSignature,
        values: dict[str, Any],
        journal: Journal,
        responses: Mapping[str, Any] | None,
        *,
        accept_unasked: bool = False,
    ) -> Outcome:
        """Run one round of a handler within the lifetime of its dependencies.

        Raises:
            ClientLeft: the client left; the handler was cancelled and its dependencies unwound.
            Exception: what the handler or a dependency raised; `dependencies.solving` says which.
        """
        guard = self.exchange.guard
        interrupted = False
        try:
            async with self.dependencies:
                try:
                    if signature.dependencies is not None:
                        solve = self.dependencies.solve(signature.dependencies)
                        values.update(await guard(solve))
                    work = run_round(
                        partial(signature.call, **values),
                        signature.form,
                        journal,
                        responses,
                        host=self,
                        capabilities=self.message.meta.client_capabilities,
                        accept_unasked=accept_unasked,
                    )
                    outcome = await guard(work)
                except ClientLeft:
                    interrupted = True
                    raise
                # From here on nothing is cancelled: the dependencies end as the handler did.
                if isinstance(outcome, Completed):
                    return outcome
                self.forget_commits()
                if self.dependencies.is_idle:  # there is nobody to tell
                    return outcome
                raise RoundSuspended(outcome)
        except RoundSuspended as suspended:
            return suspended.outcome
        except Exception as error:
            if not interrupted:
                raise
            raise ClientLeft from error  # nobody waits for what else went wrong

    def on_commit(self, fn: Callable[[], Any]) -> None:
        """Run `fn` when the final response has been recorded."""
        self._commits.append(fn)

    def forget_commits(self) -> None:
        """Run none of them: the call failed."""
        self._commits.clear()

    async def commit(self) -> None:
        """Run what was registered with `on_commit`, in order. A failure is logged, not answered.

        A cancelled call still waits for them: what was recorded must have its effects.
        """
        if self._commits:
            await uninterrupted(self._commit())

    async def _commit(self) -> None:
        for fn in self._commits:
            try:
                is_async = form_of(fn) is HandlerForm.ASYNC_FUNCTION
                result = fn() if is_async else await self.in_thread(fn)
                if isawaitable(result):
                    await result
            except Exception:
                logger.exception("An on_commit function failed; the response stands")

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
        return await uninterrupted(to_thread.run_sync(partial(fn, *args), limiter=limiter))

    def _progress(self, progress: Progress) -> bytes | None:
        token = self.message.meta.progress_token
        # basic/patterns/progress: the value MUST increase with each notification.
        if token is None or not (progress.done > self._last_progress and isfinite(progress.done)):
            return None
        self._last_progress = progress.done
        params = {"progressToken": token, "progress": progress.done}
        if progress.total is not None and isfinite(progress.total):
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
