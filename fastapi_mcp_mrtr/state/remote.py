"""Calls to a store that may be away. Knows asyncio and time; no store, no record.

A call is bounded in time, whatever the driver does about it, and repeated within that time as long
as its failure may pass: what a ledger asks for may be asked again, because the store recognises the
owner it comes from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

# Seconds between two attempts: at once for a connection that was closed while it was idle, then
# slower, so that a store that is coming back is not kept busy by those who wait for it.
_FIRST_DELAY: Final = 0.005
_LONGEST_DELAY: Final = 0.25

# A claim that nobody waits for any more is given up in the background; more of them than this at
# the same time are left to their leases.
_MAX_ABANDONED: Final = 256


class Failure(NamedTuple):
    """What went wrong, in words fit for the log, and whether it may pass."""

    reason: str
    may_pass: bool


class PerLoop(Generic[T]):
    """One thing for each event loop that asks, closed with the loop or before.

    Connections belong to the loop they were made in. A server has one loop; a test client may
    have a new one for each request.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._lives: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[T, None]]
        ] = WeakKeyDictionary()

    async def get(self) -> T:
        """The one of this loop."""
        loop = asyncio.get_running_loop()
        life = self._lives.get(loop)
        if life is None:
            generator = self._live()
            # It comes to its `yield` without waiting, so nobody gets in between.
            life = self._lives[loop] = (await anext(generator), generator)
        return life[0]

    async def aclose(self) -> None:
        """Close the one of this loop, if there is one."""
        life = self._lives.pop(asyncio.get_running_loop(), None)
        if life is not None:
            await life[1].aclose()

    async def _live(self) -> AsyncGenerator[T, None]:
        # An event loop that shuts down closes the generators that were begun in it.
        thing = self._make()
        try:
            yield thing
        finally:
            self._lives.pop(asyncio.get_running_loop(), None)
            await self._close(thing)


@dataclass(slots=True)
class _Attempts:
    """What is known of a call while it goes on."""

    failure: str
    """Why there is no answer yet."""
    is_left: bool = False
    """Nobody waits for it any more."""


class Remote:
    """How a ledger or a session store talks to where it keeps things.

    What nobody waits for any more may still come to its end, for as long again: to cancel a driver
    costs a connection, and some drivers more. `interrupts=False` is for one that always ends and
    must never be cancelled.
    """

    def __init__(
        self,
        name: str,
        *,
        timeout: float,
        describe: Callable[[Exception], Failure | None],
        unavailable: type[Exception],
        interrupts: bool = True,
    ) -> None:
        self._name = name
        self._timeout = timeout
        self._describe = describe
        self._unavailable = unavailable
        self._interrupts = interrupts
        self._tasks: PerLoop[set[asyncio.Task[Any]]] = PerLoop(set, self._cancel)

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what the store answers.

        Raises: the exception given as `unavailable`, when it does not.
        """
        attempts = _Attempts(f"no answer within {self._timeout:g} seconds")
        # A task of its own, which can be left to itself: a driver whose connection is silent may
        # need longer to notice that it was cancelled than anybody would wait.
        task = asyncio.create_task(self._repeat(attempt, attempts))
        task.add_done_callback(_look_at)
        try:
            await asyncio.wait((task,), timeout=self._timeout)
            if task.done():
                return task.result()
        finally:
            if not task.done():
                attempts.is_left = True
                await self._keep(task)
                self._interrupt_later(task)
            del task  # the error it ended with holds this frame
        raise self._unavailable(f"{self._name}: {attempts.failure}")

    async def claim(
        self, attempt: Callable[[], Awaitable[T]], give_up: Callable[[], Awaitable[None]]
    ) -> T:
        """Call; if nobody will hear of the claim, give it up, so that none waits for its lease."""
        ended = asyncio.Event()
        ended.set()

        async def noted() -> T:
            ended.clear()
            try:
                return await attempt()
            finally:
                ended.set()

        try:
            return await self.call(noted)
        except (asyncio.CancelledError, self._unavailable):
            if len(await self._tasks.get()) < _MAX_ABANDONED:
                await self.start(self._give_up(ended, give_up))
            raise

    async def start(self, job: Coroutine[Any, Any, None]) -> None:
        """Run something that no request waits for. It ends with the event loop at the latest."""
        await self._keep(asyncio.create_task(job))

    async def settle(self) -> None:
        """Wait for what was started in this event loop, as long as for a call, and end it."""
        tasks = await self._tasks.get()
        if tasks:
            await asyncio.wait(tasks, timeout=self._timeout)
        await self._tasks.aclose()

    async def _repeat(self, attempt: Callable[[], Awaitable[T]], attempts: _Attempts) -> T:
        delays = _delays()
        while True:
            try:
                return await attempt()
            except Exception as error:
                failure = self._describe(error)
                if failure is None:
                    raise
            attempts.failure = failure.reason
            if failure.may_pass:
                await asyncio.sleep(next(delays))
            # A driver may make an error of being cancelled.
            if attempts.is_left or not failure.may_pass:
                # Without its cause: what a driver says may quote what was to be stored.
                raise self._unavailable(f"{self._name}: {failure.reason}")

    async def _give_up(self, ended: asyncio.Event, give_up: Callable[[], Awaitable[None]]) -> None:
        # Not while the attempt is still under way: it could overtake this.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await ended.wait()
        with suppress(self._unavailable):
            await give_up()

    async def _keep(self, task: asyncio.Task[Any]) -> None:
        tasks = await self._tasks.get()
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _interrupt_later(self, task: asyncio.Task[Any]) -> None:
        if self._interrupts:
            handle = asyncio.get_running_loop().call_later(self._timeout, task.cancel)
            task.add_done_callback(lambda _: handle.cancel())

    async def _cancel(self, tasks: set[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._timeout)


def _look_at(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waits for any more, or the event loop would report it."""
    if not task.cancelled():
        task.exception()


def _delays() -> Iterator[float]:
    yield 0.0
    delay = _FIRST_DELAY
    while True:
        yield delay
        delay = min(2 * delay, _LONGEST_DELAY)
