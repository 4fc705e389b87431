"""`subscriptions/listen`: who wants to hear of what, and the messages that tell them.

A filter is the set of events a client asked for. Handlers and registries publish events from any
thread; a subscription keeps those it was sent and has not delivered yet, each once, and wakes its
reader. What was published twice before the reader came is delivered once: every event means "read
it again". So memory is bounded by the filter, and nothing polls. Knows no HTTP.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, Literal, Protocol, Self

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, MCPError
from fastapi_mcp_mrtr.protocol.jsonrpc import encode_notification, encode_result

SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"

# A subscription holds each URI up to three times (filter, index, pending): at 1000 URIs of 100
# characters about half a megabyte, for a client that may open many. Ten pages of resources/list.
MAX_URIS: Final = 1000

Kind = Literal["tools", "prompts", "resources"]


@dataclass(frozen=True, slots=True)
class ListChanged:
    """The list of tools, prompts or resources is another one."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class ResourceUpdated:
    """The content of a resource is another one."""

    uri: str


Event = ListChanged | ResourceUpdated

_MEMBERS: Final[Mapping[str, Kind]] = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}
"""The members of a filter that are booleans, and the list each is about."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a subscription is for: the part of a request that the server agreed to."""

    kinds: tuple[Kind, ...] = ()
    uris: tuple[str, ...] = ()

    @property
    def events(self) -> list[Event]:
        """All that a subscription with this filter can receive."""
        return [*map(ListChanged, self.kinds), *map(ResourceUpdated, self.uris)]

    def to_wire(self) -> dict[str, Any]:
        """The `notifications` member of the acknowledgment; what was not agreed to is left out."""
        wire: dict[str, Any] = {
            member: True for member, kind in _MEMBERS.items() if kind in self.kinds
        }
        if self.uris:
            wire["resourceSubscriptions"] = list(self.uris)
        return wire


def list_changed(kind: Kind) -> ListChanged:
    """The event to publish when the list of tools, prompts or resources changed."""
    return ListChanged(kind)


def parse_filter(
    params: Mapping[str, Any],
    *,
    has_resource: Callable[[str], bool],
    offered: Collection[Kind] = ("tools", "prompts", "resources"),
) -> Filter:
    """Read the params of `subscriptions/listen`, down to what this server can honour.

    Left out are lists this server does not offer and URIs it does not serve
    (basic/patterns/subscriptions §Acknowledgment).

    Raises:
        MCPError: -32602, `notifications` has not the shape of a filter or has too many URIs.
    """
    wanted = params.get("notifications")
    if not isinstance(wanted, Mapping):
        raise _invalid("notifications is required and must be an object")
    for member in _MEMBERS:
        if type(wanted.get(member, False)) is not bool:
            raise _invalid(f"notifications.{member} must be a boolean")
    uris = wanted.get("resourceSubscriptions", [])
    if not (isinstance(uris, list) and all(isinstance(uri, str) for uri in uris)):
        raise _invalid("notifications.resourceSubscriptions must be an array of strings")
    if len(uris) > MAX_URIS:
        raise _invalid(f"notifications.resourceSubscriptions has more than {MAX_URIS} URIs")
    return Filter(
        tuple(kind for member, kind in _MEMBERS.items() if wanted.get(member) and kind in offered),
        tuple(uri for uri in dict.fromkeys(uris) if has_resource(uri)),
    )


def _invalid(what: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"Invalid params: {what}")


class Subscription:
    """One open stream: an async context manager, and inside it an iterator of events.

    ```python
    async with bus.subscribe(request_id, wanted) as subscription:
        async for event in subscription: ...
    ```

    Events published after entering are delivered. It belongs to the event loop that enters it;
    `close` may be called from any thread. `messages` does all of this, down to the wire.
    """

    def __init__(self, bus: "LocalBus", subscription_id: str | int, wanted: Filter) -> None:
        self.id = subscription_id
        self.wanted = wanted
        self._bus = bus
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived = asyncio.Event()
        self._lock = RLock()  # for what follows
        self._pending: dict[Event, None] = {}
        self._closed = False
        self._waking = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._bus._attach(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._bus._detach(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._loop is None:
            raise RuntimeError("Enter the subscription first: async with subscription: ...")
        # However fast events come, the other tasks of this loop get their turn.
        await asyncio.sleep(0)
        while True:
            with self._lock:
                if self._pending:
                    event = next(iter(self._pending))
                    del self._pending[event]
                    return event
                if self._closed:
                    raise StopAsyncIteration
                self._arrived.clear()
            await self._arrived.wait()

    def close(self) -> None:
        """End the subscription gracefully: what is pending is delivered, then iteration ends."""
        with self._lock:
            self._closed = True
            self._wake()

    async def messages(
        self, result_meta: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Everything to send, encoded: the acknowledgment, notifications, and after `close` the
        result that says the end was meant (basic/patterns/subscriptions §Graceful Closure).

        `result_meta` goes into that result's `_meta`, for the server's own fields.
        """
        async with self:
            yield acknowledgment(self.id, self.wanted)
            async for event in self:
                yield notification(self.id, event)
        yield closing_response(self.id, result_meta)

    def _deliver(self, event: Event) -> bool:
        """Take an event, from any thread. False if nobody can ever read it."""
        with self._lock:
            if self._closed or event in self._pending:
                return True
            self._pending[event] = None
            return self._wake()

    def _wake(self) -> bool:
        """Have the reader look again. One call to the loop at a time, however much arrives."""
        if self._waking or self._loop is None:
            return True
        try:
            self._loop.call_soon_threadsafe(self._woken)
        except RuntimeError:  # the loop is closed, and with it the reader is gone
            return False
        self._waking = True
        return True

    def _woken(self) -> None:
        with self._lock:
            self._waking = False
        self._arrived.set()


class Bus(Protocol):
    """How events reach subscriptions: within a process, or through a broker between several.

    An implementation between processes keeps a `LocalBus` for its own subscriptions and publishes
    there what it receives.
    """

    def publish(self, event: Event) -> None:
        """Tell all subscriptions that want it. From any thread; neither blocks nor raises."""

    def subscribe(self, subscription_id: str | int, wanted: Filter) -> Subscription:
        """A subscription, which receives events once it is entered."""
        ...


class LocalBus:
    """The bus of one process. Publishing costs by the subscriptions that want the event."""

    def __init__(self) -> None:
        # Re-entrant, like a subscription's: a finalizer may publish at any point of this thread.
        self._lock = RLock()
        self._open: set[Subscription] = set()
        self._interested: dict[Event, set[Subscription]] = {}

    def publish(self, event: Event) -> None:
        """Tell all subscriptions that want it. From any thread; neither blocks nor raises."""
        with self._lock:
            interested = tuple(self._interested.get(event, ()))
        for subscription in interested:
            if not subscription._deliver(event):
                self._detach(subscription)

    def subscribe(self, subscription_id: str | int, wanted: Filter) -> Subscription:
        """A subscription, which receives events once it is entered."""
        return Subscription(self, subscription_id, wanted)

    def close(self) -> None:
        """End all open subscriptions gracefully, as at shutdown. From any thread."""
        with self._lock:
            subscriptions = tuple(self._open)
        for subscription in subscriptions:
            subscription.close()

    def _attach(self, subscription: Subscription) -> None:
        with self._lock:
            self._open.add(subscription)
            for event in subscription.wanted.events:
                self._interested.setdefault(event, set()).add(subscription)

    def _detach(self, subscription: Subscription) -> None:
        with self._lock:
            self._open.discard(subscription)
            for event in subscription.wanted.events:
                interested = self._interested.get(event, set())
                interested.discard(subscription)
                if not interested:
                    self._interested.pop(event, None)


def acknowledgment(subscription_id: str | int, wanted: Filter) -> bytes:
    """The notification that opens a stream, with the filter that was agreed to."""
    return encode_notification(
        "notifications/subscriptions/acknowledged",
        {**_meta(subscription_id), "notifications": wanted.to_wire()},
    )


def notification(subscription_id: str | int, event: Event) -> bytes:
    """The notification for an event, as one subscription receives it."""
    params = _meta(subscription_id)
    if isinstance(event, ResourceUpdated):
        return encode_notification("notifications/resources/updated", {**params, "uri": event.uri})
    return encode_notification(f"notifications/{event.kind}/list_changed", params)


def closing_response(
    subscription_id: str | int, result_meta: Mapping[str, Any] | None = None
) -> bytes:
    """The response that ends a stream on the server's initiative."""
    meta = {**(result_meta or {}), SUBSCRIPTION_ID_KEY: subscription_id}
    return encode_result(subscription_id, {"resultType": "complete", "_meta": meta})


def _meta(subscription_id: str | int) -> dict[str, Any]:
    return {"_meta": {SUBSCRIPTION_ID_KEY: subscription_id}}
