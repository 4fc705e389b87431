"""What a handler yields, as its author writes it, and the types of handlers that do.

Pure: no I/O, no framework. Constructors check at once, so that a mistake shows where it is made.
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from .asks import (
    Ask,
    NeedInput,
    NeedRoots,
    NeedSampling,
    NeedUrl,
    Sentinel,
    as_wire,
    checked_key,
    checked_message,
    checked_url,
    sampling_messages,
)
from .schemas import elicitation_schema
from .steps import result_codec

if TYPE_CHECKING:
    from mcp_types import ModelPreferences, SamplingMessage, Tool, ToolChoice

__all__ = [
    "Ask",
    "Log",
    "LogLevel",
    "NeedInput",
    "NeedRoots",
    "NeedSampling",
    "NeedUrl",
    "NotYet",
    "Prefixed",
    "Progress",
    "Rounds",
    "Sentinel",
    "Step",
    "SyncRounds",
    "log",
    "need_input",
    "need_roots",
    "need_sampling",
    "need_url",
    "not_yet",
    "prefixed",
    "progress",
    "result_type",
    "step",
]

T = TypeVar("T")

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

_LEVELS: Final = get_args(LogLevel)


@dataclass(frozen=True, slots=True)
class NotYet(Sentinel):
    """Nothing to ask, nothing to tell: the client comes back and the handler runs again."""


@dataclass(frozen=True, slots=True)
class Step(Sentinel):
    """A call that runs once in a flow. Its result is in the journal from then on."""

    _target = "result = "

    key: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Progress(Sentinel):
    """How far the call is (basic/patterns/progress)."""

    done: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Log(Sentinel):
    """A log message for the client (server/utilities/logging)."""

    level: LogLevel
    data: Any
    logger: str | None = None


@dataclass(frozen=True, slots=True)
class Prefixed(Sentinel):
    """A sub-flow whose keys all begin with `prefix`."""

    _target = "result = "

    prefix: str
    flow: AsyncGenerator[Any, Any] | Generator[Any, Any, Any]


_Yielded = Union[  # noqa: UP007 - `|` does not take a TypeVar in every position
    Sentinel,
    Sequence[Ask],
    AsyncGenerator[Any, Any],
    Generator[Any, Any, Any],
    T,
]

Rounds = AsyncGenerator[_Yielded[T], Any]
"""What an `async def` handler that yields returns: `async def book(...) -> Rounds[Booking]`.

`T` is the type of the result, which gives a tool its output schema.
"""

SyncRounds = Generator[_Yielded[T], Any, T | None]
"""What a `def` handler that yields returns: `def book(...) -> SyncRounds[Booking]`.

Its result is what it returns. It may be yielded too; `return None` then tells mypy so.
"""


def need_input(key: str, message: str, schema: Any) -> NeedInput:
    """Ask the user to fill in a form; the `yield` gives back the validated value.

    ```python
    seat: Seat = yield need_input("seat", "Which seat?", Seat)
    sure: bool = yield need_input("sure", f"Pay {price}?", bool)
    ```

    Args:
        key: Names the question; unique in the run, the same on every round.
        message: What the user reads. It must not change from round to round, or it is asked again.
        schema: A flat model, or a scalar: `bool`, `int`, `float`, `str`, a date, a `Literal` or
            `Enum` of text, a `list` of either.

    Raises:
        TypeError: The protocol cannot ask for this schema; the message names model and field.
    """
    return NeedInput(checked_key(key), checked_message(key, message), elicitation_schema(schema))


def need_url(key: str, message: str, url: str) -> NeedUrl:
    """Send the user to a page, for what must not pass through the client: sign-in, payment.

    The `yield` gives back `None` once the user agreed to go there, which may be long before they
    are done: check, and `yield not_yet()` until they are.

    ```python
    yield need_url("card", "Please enter your card details.", f"https://pay.example/{order.id}")
    if not await payments.done(order.id):
        yield not_yet()
    ```

    Raises:
        ValueError: It is no absolute http or https URL.
    """
    return NeedUrl(checked_key(key), checked_message(key, message), checked_url(key, url))


def need_sampling(
    key: str,
    messages: str | SamplingMessage | Sequence[str | SamplingMessage],
    *,
    max_tokens: int,
    system_prompt: str | None = None,
    temperature: float | None = None,
    stop_sequences: Sequence[str] | None = None,
    model_preferences: ModelPreferences | Mapping[str, Any] | None = None,
    tools: Sequence[Tool | Mapping[str, Any]] | None = None,
    tool_choice: ToolChoice | Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    include_context: Literal["none", "thisServer", "allServers"] | None = None,
) -> NeedSampling:
    """Ask the client's model; the `yield` gives back a `CreateMessageResult`.

    It is a `CreateMessageResultWithTools` if `tools` or `tool_choice` were given, or if the client
    answered with several content blocks. Text stands for one user message.

    ```python
    poem: CreateMessageResult = yield need_sampling("poem", "Write a haiku.", max_tokens=100)
    ```

    Raises:
        TypeError: There is no message, or something that is none.
        ValueError: `max_tokens` is no positive whole number.
    """
    if type(max_tokens) is not int or max_tokens < 1:
        raise ValueError(f"max_tokens of {key!r} must be a positive whole number")
    optional = {
        "systemPrompt": system_prompt,
        "temperature": temperature,
        "stopSequences": stop_sequences,
        "modelPreferences": model_preferences,
        "tools": tools,
        "toolChoice": tool_choice,
        "metadata": metadata,
        "includeContext": include_context,
    }
    params: dict[str, Any] = {"messages": sampling_messages(messages), "maxTokens": max_tokens}
    params.update((name, as_wire(value)) for name, value in optional.items() if value is not None)
    return NeedSampling(checked_key(key), params)


def need_roots(key: str) -> NeedRoots:
    """Ask which directories the client works in; the `yield` gives back a `list[Root]`."""
    return NeedRoots(checked_key(key))


def not_yet() -> NotYet:
    """End this round without a question; the client comes back and the handler runs again."""
    return NotYet()


def step(key: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Step:
    """Run `fn` once in a flow; the `yield` gives back its result, on this round and all later ones.

    ```python
    hold: Hold = yield step("hold", desk.hold, flight, seat)
    ```

    The result is journaled in the `requestState` that the client carries, so it must be plain data:
    what the return annotation of `fn` can be written to JSON as and read back from. Function and
    arguments must be the same on every round. `fn` runs *at least* once: if the response that
    carries its result is lost, it runs again; hand `ctx.idempotency_key(key)` to outside systems.
    And it must finish its own effect, because a transaction that the handler holds open is rolled
    back at the next ask.

    Raises:
        TypeError: `fn` is no callable, yields itself, or returns what cannot be journaled.
    """
    checked_key(key)
    try:
        result_codec(fn)
    except TypeError as error:
        raise TypeError(f"Step {key!r}: {error}") from None
    return Step(key, fn, args, kwargs)


def progress(done: float, total: float | None = None, message: str | None = None) -> Progress:
    """Tell the client how far the call is, if it asked for that.

    Raises:
        TypeError: `done` or `total` is no number.
    """
    for number in (done, 0 if total is None else total):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(f"Progress is counted in numbers, not {type(number).__name__}")
    return Progress(done, total, message)


def log(level: LogLevel, data: Any, logger: str | None = None) -> Log:
    """Send the client a log message, if it asked for that level.

    Raises:
        ValueError: The protocol has no such level.
    """
    if level not in _LEVELS:
        raise ValueError(f"A log level is one of {', '.join(_LEVELS)}; not {level!r}")
    return Log(level, data, logger)


def prefixed(prefix: str, flow: AsyncGenerator[Any, Any] | Generator[Any, Any, Any]) -> Prefixed:
    """Run another handler's generator as a sub-flow with keys of its own.

    ```python
    for i, passenger in enumerate(passengers):
        seat = yield prefixed(f"{i}.", choose_seat(passenger))
    ```
    """
    if not (inspect.isgenerator(flow) or inspect.isasyncgen(flow)):
        raise TypeError(f"prefixed wants a handler's generator, not {type(flow).__name__}")
    return Prefixed(checked_key(prefix), flow)


# --- annotations -----------------------------------------------------------------------------

_ITERATORS: Final = (AsyncGenerator, AsyncIterator, Generator, Iterator)


def result_type(annotation: Any) -> Any | None:
    """The `T` of `Rounds[T]`, `SyncRounds[T]` or the generator type written out.

    None if the annotation is no such type or says nothing of the result.
    """
    if get_origin(annotation) not in _ITERATORS:
        return None
    yields, *rest = get_args(annotation)
    candidates = [_without_sentinels(yields)]
    if get_origin(annotation) is Generator and len(rest) == 2:
        candidates.append(_without_sentinels(rest[1]))
    return next((c for c in candidates if c is not None and c is not Any), None)


def _without_sentinels(annotation: Any) -> Any | None:
    is_union = get_origin(annotation) in (Union, UnionType)
    members = get_args(annotation) if is_union else (annotation,)
    kept = [NoneType if m is None else m for m in members if not _is_yieldable(m)]
    if any(isinstance(member, TypeVar) for member in kept):  # the alias without its parameter
        return None
    return reduce(or_, kept) if kept else None


def _is_yieldable(member: Any) -> bool:
    """Whether this part of a yield type stands for sentinels, batches or sub-flows."""
    origin = get_origin(member)
    if origin in _ITERATORS:
        return True
    if origin in (tuple, list, Sequence):
        return any(_is_yieldable(item) for item in get_args(member))
    return isinstance(member, type) and issubclass(member, Sentinel)
