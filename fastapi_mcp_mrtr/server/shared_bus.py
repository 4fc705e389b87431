"""Events for subscriptions of all workers, through what they share anyway. Knows no HTTP.

An event reaches the subscriptions of its own process at once and those of others through a session
store. What is published while the store is away is sent when it is back, each event once.
"""

import asyncio
import json
import logging
import secrets
from contextlib import suppress
from typing import Any, Final, Self, get_args

import anyio.from_thread
from pydantic_core import from_json

from fastapi_mcp_mrtr.state.remote import PerLoop
from fastapi_mcp_mrtr.state.sessions import (
    MemorySessionStore,
    SessionStore,
    SessionStoreUnavailable,
)

from .subscriptions import (
    Event,
    Filter,
    Kind,
    ListChanged,
    LocalBus,
    ResourceUpdated,
    Subscription,
)

logger = logging.getLogger("fastapi_mcp_mrtr")

_TOPIC: Final = "events"

# Messages that wait for a process which is busy, and different events that wait for a store which
# is away. What is more is lost, the oldest first.
_WAITING: Final = 1000
_UNSENT: Final = 10_000

_PAUSE: Final = 1.0
"""Seconds between attempts to reach a store that is away."""

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def bus_over(store: SessionStore | None) -> LocalBus:
    """The bus for a router: within one process as long as nothing is shared with others."""
    if store is None or isinstance(store, MemorySessionStore):
        return LocalBus()
    return SharedBus(store)


class _Ears:
    """The task that hears what other workers publish, in one event loop."""

    def __init__(self, bus: "SharedBus") -> None:
        self.begun = asyncio.Event()
        self._task = asyncio.create_task(bus._hear(self.begun))

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))


class SharedBus(LocalBus):
    """A bus whose events reach subscriptions in every process that uses the same store.

    It needs an event loop: the one that publishes, or else the one that published or subscribed
    before. Until there is one, as while handlers are registered, events stay in this process; the
    others have registered the same handlers.
    """

    def __init__(self, store: SessionStore) -> None:
        super().__init__()
        self._store = store
        self._origin = secrets.token_bytes(8)
        self._ears = PerLoop(lambda: _Ears(self), _Ears.aclose)
        self._serving: asyncio.AbstractEventLoop | None = None
        self._unsent: dict[Event, None] = {}
        self._sender: asyncio.Task[None] | None = None

    def publish(self, event: Event) -> None:
        """Tell all subscriptions that want it, wherever. From any thread; does not raise."""
        super().publish(event)
        loop = self._loop()
        if loop is None:
            return
        with self._lock:
            self._unsent[event] = None
            if len(self._unsent) > _UNSENT:
                del self._unsent[next(iter(self._unsent))]
        # A loop that was closed this moment leaves the event to whoever publishes next.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._begin_to_send)

    def subscribe(self, subscription_id: str | int, wanted: Filter) -> Subscription:
        """A subscription, which receives events once it is entered."""
        return _SharedSubscription(self, subscription_id, wanted)

    async def hear_others(self) -> None:
        """Begin to hear what other workers publish, unless the store is away."""
        self._serving = asyncio.get_running_loop()
        ears = await self._ears.get()
        await ears.begun.wait()

    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop to send from."""
        try:
            self._serving = asyncio.get_running_loop()
        except RuntimeError:
            if self._serving is None or self._serving.is_closed():
                self._serving = _loop_of_worker_thread()
        return self._serving

    def _begin_to_send(self) -> None:
        with self._lock:
            if self._sender is None or self._sender.done():
                self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while event := self._next_unsent():
            try:
                await self._store.publish(_TOPIC, self._origin + _encode(event))
            except SessionStoreUnavailable as error:
                logger.warning("Other workers are not told of an event yet: %s", error)
                with self._lock:
                    self._unsent = {event: None, **self._unsent}
                await asyncio.sleep(_PAUSE)

    def _next_unsent(self) -> Event | None:
        """Take the event that waits longest. Published again from now on, it is another one."""
        with self._lock:
            if self._unsent:
                event = next(iter(self._unsent))
                del self._unsent[event]
                return event
            self._sender = None
            return None

    async def _hear(self, begun: asyncio.Event) -> None:
        while True:
            try:
                async with self._store.listen(_TOPIC, limit=_WAITING) as listener:
                    begun.set()
                    while True:
                        self._heard(await listener.receive())
            except SessionStoreUnavailable as error:
                logger.warning("Events of other workers are not heard yet: %s", error)
                begun.set()
                await asyncio.sleep(_PAUSE)

    def _heard(self, message: bytes) -> None:
        origin, encoded = message[:8], message[8:]
        if origin != self._origin and (event := _decode(encoded)):
            super().publish(event)


class _SharedSubscription(Subscription):
    """One that hears other workers by the time it is entered."""

    def __init__(self, bus: SharedBus, subscription_id: str | int, wanted: Filter) -> None:
        super().__init__(bus, subscription_id, wanted)
        self._shared = bus

    async def __aenter__(self) -> Self:
        await self._shared.hear_others()
        return await super().__aenter__()


def _loop_of_worker_thread() -> asyncio.AbstractEventLoop | None:
    """The event loop that a `def` handler runs for; None in a thread of somebody else."""
    try:
        return anyio.from_thread.run_sync(asyncio.get_running_loop)
    except RuntimeError:
        return None


def _encode(event: Event) -> bytes:
    members = {"uri": event.uri} if isinstance(event, ResourceUpdated) else {"kind": event.kind}
    return json.dumps(members).encode("ascii")


def _decode(encoded: bytes) -> Event | None:
    """The event, or None if it is one of another version of this server, or of somebody else."""
    try:
        members: Any = from_json(encoded)
    except ValueError:
        return None
    match members:
        case {"uri": str(uri)}:
            return ResourceUpdated(uri)
        case {"kind": kind} if kind in _KINDS:
            return ListChanged(kind)
    return None
