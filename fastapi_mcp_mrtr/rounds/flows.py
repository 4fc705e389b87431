"""Generators by one interface, whether they run on the event loop or in worker threads.

Pure: no I/O, no framework. It resumes and closes; it does not know what is yielded.

An exception on its way is never kept in a variable of a frame it passes through: it would hold the
frame that holds it, and leave work for the cycle collector on every refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final, Protocol, TypeVar, cast

from fastapi_mcp_mrtr.errors import HandlerError

R = TypeVar("R")

Resumed = tuple[bool, Any]
"""Whether the generator came to its end, and what it returned or yielded."""


class Threads(Protocol):
    """Where synchronous code runs."""

    async def in_thread(self, fn: Callable[..., R], *args: Any) -> R:
        """Call `fn` in a worker thread and come back no sooner than it has ended."""
        ...


class AsyncFlow:
    """An `async def` generator."""

    __slots__ = ("_generator",)

    def __init__(self, generator: AsyncGeneratorType[Any, Any]) -> None:
        self._generator = generator

    async def send(self, value: Any) -> Resumed:
        """Resume with what the `yield` gives back."""
        try:
            return False, await self._generator.asend(value)
        except StopAsyncIteration:
            return True, None

    async def throw(self, error: BaseException) -> Resumed:
        """Resume with an exception at the `yield`."""
        try:
            return False, await self._generator.athrow(error)
        except StopAsyncIteration:
            return True, None
        finally:
            del error

    async def close(self) -> None:
        """Unwind it, if it has not ended.

        Raises:
            HandlerError: It yielded instead of ending.
        """
        if self._generator.ag_frame is None:
            return
        try:
            await self._generator.athrow(GeneratorExit())
        except (GeneratorExit, StopAsyncIteration):
            return
        except BaseExceptionGroup as group:  # what a task group around the `yield` makes of it
            if group.split(GeneratorExit)[1] is None:
                return
            raise
        with suppress(RuntimeError):
            await self._generator.aclose()
        raise HandlerError(_STUBBORN)


class SyncFlow:
    """A `def` generator, each resume in a worker thread."""

    __slots__ = ("_generator", "_threads")

    def __init__(self, generator: GeneratorType[Any, Any, Any], threads: Threads) -> None:
        self._generator = generator
        self._threads = threads

    async def send(self, value: Any) -> Resumed:
        """Resume with what the `yield` gives back."""
        return await in_thread(self._threads, _send, self._generator, value)

    async def throw(self, error: BaseException) -> Resumed:
        """Resume with an exception at the `yield`."""
        box = [error]
        del error
        return await in_thread(self._threads, _throw, self._generator, box)

    async def close(self) -> None:
        """Unwind it, if it has not ended.

        Raises:
            HandlerError: It yielded instead of ending.
        """
        if self._generator.gi_frame is None:
            return
        if not await in_thread(self._threads, _close, self._generator):
            raise HandlerError(_STUBBORN)


_STUBBORN: Final = (
    "A handler caught GeneratorExit and yielded again. At an ask the handler is closed; let "
    "GeneratorExit pass, and do not yield in a `finally` or a bare `except`."
)


async def in_thread(threads: Threads, fn: Callable[..., R], *args: Any) -> R:
    """Call `fn` in a worker thread. Its exceptions cross in a box that is emptied on this side.

    A future would keep them, and cannot carry StopIteration at all.
    """
    box: list[BaseException] = []
    value = await threads.in_thread(_boxed, box, fn, *args)
    if box:
        raise box.pop()
    return cast(R, value)


def _boxed(box: list[BaseException], fn: Callable[..., R], *args: Any) -> R | None:
    try:
        return fn(*args)
    except BaseException as error:
        box.append(error)
        return None


def _send(generator: GeneratorType[Any, Any, Any], value: Any) -> Resumed:
    try:
        return False, generator.send(value)
    except StopIteration as stop:
        return True, stop.value


def _throw(generator: GeneratorType[Any, Any, Any], box: list[BaseException]) -> Resumed:
    try:
        return False, generator.throw(box.pop())
    except StopIteration as stop:
        return True, stop.value


def _close(generator: GeneratorType[Any, Any, Any]) -> bool:
    """Whether the generator ended."""
    try:
        generator.throw(GeneratorExit())
    except (GeneratorExit, StopIteration):
        return True
    with suppress(RuntimeError):
        generator.close()
    return False
