"""Run one round: drive a handler over its journal until it completes or must ask.

Pure: no I/O, no framework, no clock, no threads of its own; `RoundHost` brings what it needs of
the world. It knows nothing of HTTP, protocol versions or sealing.

A generator handler is run from its beginning on every round. What earlier rounds established is
handed to it at once; at the first ask without an answer it is closed, and the ask goes out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final, Protocol, TypeVar

from fastapi_mcp_mrtr.errors import HandlerError, InputCancelled, InputDeclined, InputRefused

from .asks import Ask, Sentinel
from .flows import AsyncFlow, SyncFlow, in_thread
from .journal import Journal
from .replay import Recalled, Replay
from .sentinels import Log, NotYet, Prefixed, Progress, Step

R = TypeVar("R")

REFUSALS: Final[Mapping[str, type[InputRefused]]] = {
    "decline": InputDeclined,
    "cancel": InputCancelled,
}


@dataclass(slots=True)
class Completed:
    """The handler came to its end."""

    value: Any
    journal: Journal
    used_answers: bool
    """Whether anything it did could depend on a client's answer; such a result is not cacheable."""


@dataclass(slots=True)
class InputRequired:
    """The handler waits for answers, or with no `requests` for something else (`not_yet`)."""

    requests: dict[str, dict[str, Any]]
    journal: Journal


Outcome = Completed | InputRequired


class HandlerForm(Enum):
    """The four ways to write a handler."""

    ASYNC_FUNCTION = auto()
    SYNC_FUNCTION = auto()
    ASYNC_GENERATOR = auto()
    SYNC_GENERATOR = auto()


def form_of(fn: Callable[..., Any]) -> HandlerForm:
    """Which form a handler has. A decorated one is judged by what its wrapper is."""
    while isinstance(fn, partial):
        fn = fn.func
    if not (inspect.isroutine(fn) or inspect.isclass(fn)):
        fn = type(fn).__call__
    return next((form for is_form, form in _FORMS if is_form(fn)), HandlerForm.SYNC_FUNCTION)


_FORMS: Final[Sequence[tuple[Callable[[Any], bool], HandlerForm]]] = (
    (inspect.isasyncgenfunction, HandlerForm.ASYNC_GENERATOR),
    (inspect.isgeneratorfunction, HandlerForm.SYNC_GENERATOR),
    (inspect.iscoroutinefunction, HandlerForm.ASYNC_FUNCTION),
)


class RoundHost(Protocol):
    """What a round needs of the world."""

    async def emit(self, notification: Progress | Log) -> None:
        """Send a notification to the client, or drop it if the client wants none."""

    async def in_thread(self, fn: Callable[..., R], *args: Any) -> R:
        """Call `fn` in a worker thread.

        It must run `fn` even if this task is cancelled already, and must not come back before `fn`
        has ended: a generator is closed this way, and cannot be while a thread is inside it.
        """
        ...


async def run_round(
    call: Callable[[], Any],
    form: HandlerForm,
    journal: Journal,
    responses: Mapping[str, Any] | None,
    *,
    host: RoundHost,
    capabilities: Mapping[str, Any],
    accept_unasked: bool = False,
) -> Outcome:
    """Run a handler until it completes or must ask.

    Args:
        call: The handler bound to its arguments.
        form: What `form_of` says of the handler.
        journal: What earlier rounds established. It is not changed; the outcome has the next one.
        responses: The `inputResponses` of the request.
        host: Threads and notifications.
        capabilities: What the client declared, as on the wire.
        accept_unasked: Take answers to questions that this flow has not asked yet.

    Raises:
        MCPError: An answer is none at all, or the client cannot be asked.
        HandlerError: The handler contradicts itself or its earlier rounds.
        Exception: Whatever the handler raises.
    """
    if form is HandlerForm.ASYNC_FUNCTION:
        value = await call()
    else:
        in_worker = form is HandlerForm.SYNC_FUNCTION
        value = await in_thread(host, call) if in_worker else call()
        if _is_awaitable(value):
            value = await value
    # A plain wrapper around a generator handler hands out its generator.
    if not isinstance(value, _FLOWS):
        if _is_yieldable(value):
            raise _unyielded(value)
        return Completed(value, journal, used_answers=False)
    replay = Replay(journal.copy(), responses or {}, capabilities, accept_unasked)
    run = _Run(replay, host)
    value = await run.drive(value, "")
    if value is _SUSPENDED:
        return InputRequired(replay.requests, replay.journal)
    return Completed(value, replay.journal, run.used_answers)


_SUSPENDED: Final = object()
"""What an ask without an answer gives back: close the generators and end the round."""

_NO_RESULT: Final = object()


class _Run:
    """Drives the generators of one run."""

    __slots__ = ("_host", "_over", "_replay", "used_answers")

    def __init__(self, replay: Replay, host: RoundHost) -> None:
        self.used_answers = False
        self._replay = replay
        self._host = host
        self._over = False
        """The round must ask or cannot go on. From here generators are closed and nothing else: no
        handler may catch the error that says so, or one that happened while closing."""

    async def drive(self, generator: Any, prefix: str) -> Any:
        """Run a generator to its end: its result, or `_SUSPENDED`. It is closed either way.

        Sub-flows are driven from within, so the innermost is closed first, and what it raises is
        raised at its parent's `yield`.
        """
        flow = self._flow(generator)
        result: Any = _NO_RESULT
        try:
            ended, item = await flow.send(None)
            while not ended:
                if _is_yieldable(item):
                    if result is not _NO_RESULT and not isinstance(item, Progress | Log):
                        raise self._fail(f"A handler yielded {_named(item)} after its result.")
                    try:
                        reply = await self._reply(item, prefix)
                    except BaseException as error:
                        # Cancellation too: timeouts that the handler holds open must see it.
                        if self._over:
                            raise
                        ended, item = await flow.throw(error)
                        continue
                    if reply is _SUSPENDED:
                        return _SUSPENDED
                    ended, item = await flow.send(reply)
                else:
                    self._check_result(item, result)
                    result = item
                    ended, item = await flow.send(None)
            if result is _NO_RESULT:
                if _is_yieldable(item):
                    self._over = True
                    raise _unyielded(item)
                return item
            if item is not None:
                raise self._fail("A handler yielded a result and returned another.")
            return result
        finally:
            await flow.close()

    def _flow(self, generator: Any) -> AsyncFlow | SyncFlow:
        if inspect.isasyncgen(generator):
            return AsyncFlow(generator)
        return SyncFlow(generator, self._host)

    async def _reply(self, item: Any, prefix: str) -> Any:
        """What the `yield` of a sentinel, batch or sub-flow gives back, or `_SUSPENDED`."""
        match item:
            case Ask():
                values = self._settled((item,), prefix)
                return values if values is _SUSPENDED else values[0]
            case Step():
                return await self._step(item, prefix + item.key)
            case Progress() | Log():
                await self._host.emit(item)
                return None
            case NotYet():
                self._replay.wait()
                self._over = True
                return _SUSPENDED
            case Prefixed():
                return await self.drive(item.flow, prefix + item.prefix)
            case list() | tuple():
                return self._asks(item, prefix)
        return await self.drive(item, prefix)

    def _asks(self, batch: Sequence[Any], prefix: str) -> Any:
        if not all(isinstance(ask, Ask) for ask in batch):
            other = next(item for item in batch if not isinstance(item, Ask))
            raise self._fail(
                f"A handler yielded {_named(other)} in a batch, which is for asks only."
            )
        return self._settled(batch, prefix)

    def _settled(self, batch: Sequence[Ask], prefix: str) -> Any:
        settled = self._final(self._replay.settle, batch, prefix)
        if settled is None:
            self._over = True
            return _SUSPENDED
        self.used_answers = True
        if settled.refused is not None:
            key, action = settled.refused
            raise REFUSALS[action](key)
        return settled.values

    async def _step(self, step: Step, key: str) -> Any:
        recalled = self._final(self._replay.recall, step, key)
        if isinstance(recalled, Recalled):
            return recalled.value
        if form_of(step.fn) is HandlerForm.ASYNC_FUNCTION:
            result = await step.fn(*step.args, **step.kwargs)
        else:
            call = partial(step.fn, *step.args, **step.kwargs)
            result = await in_thread(self._host, call)
            if _is_awaitable(result):
                result = await result
        return self._final(self._replay.record, recalled, result)

    def _final(self, judge: Callable[..., R], *args: Any) -> R:
        """Call a method of the replay, whose every error ends the round."""
        try:
            return judge(*args)
        except BaseException:
            self._over = True
            raise

    def _check_result(self, item: Any, earlier: Any) -> None:
        if earlier is not _NO_RESULT:
            raise self._fail("A handler yielded a second result.")
        if _is_awaitable(item):
            if inspect.iscoroutine(item):
                item.close()
            raise self._fail("A handler yielded an awaitable: `await` it, or make it a `step`.")

    def _fail(self, message: str) -> HandlerError:
        self._over = True
        return HandlerError(message)


_FLOWS: Final = (AsyncGeneratorType, GeneratorType)
_BATCHES: Final = (list, tuple)
_YIELDABLE: Final = (Sentinel, *_FLOWS)


def _is_yieldable(item: Any) -> bool:
    """Whether a yielded item is an instruction to the engine; anything else is a result."""
    if isinstance(item, _BATCHES):
        return any(isinstance(member, Sentinel) for member in item)
    return isinstance(item, _YIELDABLE)


def _is_awaitable(value: Any) -> bool:
    """As `inspect.isawaitable`, which looks long at what is none."""
    return hasattr(type(value), "__await__") or (
        isinstance(value, GeneratorType) and inspect.isawaitable(value)
    )


def _unyielded(value: Any) -> HandlerError:
    return HandlerError(f"A handler returned {_named(value)}; it must be yielded.")


def _named(item: Any) -> str:
    key = getattr(item, "key", None)
    return f"{type(item).__name__} {key!r}" if key else type(item).__name__
