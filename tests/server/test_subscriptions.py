"""subscriptions: who hears of what, from which thread, in how much memory, and in which words."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio import wait_all_tasks_blocked

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, MCPError
from fastapi_mcp_mrtr.server.subscriptions import (
    MAX_URIS,
    SUBSCRIPTION_ID_KEY,
    Bus,
    Event,
    Filter,
    ListChanged,
    LocalBus,
    ResourceUpdated,
    Subscription,
    acknowledgment,
    closing_response,
    list_changed,
    notification,
    parse_filter,
)

pytestmark = pytest.mark.anyio

TOOLS = ListChanged("tools")
PROMPTS = ListChanged("prompts")
A = ResourceUpdated("file:///a")
B = ResourceUpdated("file:///b")
ALL = Filter(("tools", "prompts", "resources"), ("file:///a", "file:///b"))


def everything(_: str) -> bool:
    return True


def parsed(notifications: Any, has_resource: Callable[[str], bool] = everything) -> Filter:
    return parse_filter({"notifications": notifications}, has_resource=has_resource)


async def next_of(subscription: Subscription) -> Event:
    """The next event; a test that waits in vain fails instead of hanging."""
    with anyio.fail_after(10):
        return await anext(subscription)


async def rest_of(subscription: Subscription) -> list[Event]:
    """Close the subscription and read it to its end."""
    subscription.close()
    with anyio.fail_after(10):
        return [event async for event in subscription]


# --------------------------------------------------------------------------------------- filters


async def test_a_filter_is_read() -> None:
    """spec: the members of the filter (basic/patterns/subscriptions §Notification Filter)."""
    assert parsed(
        {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["file:///a", "file:///b"],
        }
    ) == Filter(("tools", "prompts", "resources"), ("file:///a", "file:///b"))


@pytest.mark.parametrize("notifications", [{}, {"toolsListChanged": False}, {"later": 1}])
async def test_what_is_not_asked_for_is_not_sent(notifications: dict[str, Any]) -> None:
    """spec: MUST NOT send types the client has not explicitly requested (§Opening a Stream)."""
    assert parsed(notifications) == Filter()
    assert Filter().to_wire() == {}


@pytest.mark.parametrize(
    "notifications",
    [
        None,
        [],
        "tools",
        True,
        {"toolsListChanged": 1},
        {"toolsListChanged": None},
        {"promptsListChanged": "true"},
        {"resourcesListChanged": {}},
        {"resourceSubscriptions": None},
        {"resourceSubscriptions": "file:///a"},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": ["file:///a", None]},
        {"resourceSubscriptions": {"file:///a": True}},
    ],
)
async def test_a_filter_of_the_wrong_shape_is_refused(notifications: Any) -> None:
    """spec: the types of SubscriptionFilter; -32602 for params that are invalid."""
    with pytest.raises(MCPError, match="notifications") as caught:
        parsed(notifications)
    assert caught.value.code == INVALID_PARAMS


async def test_the_filter_is_required() -> None:
    """spec: `notifications` is a required parameter of subscriptions/listen."""
    with pytest.raises(MCPError, match="required"):
        parse_filter({}, has_resource=everything)


async def test_the_number_of_uris_is_limited() -> None:
    """decision: what a client can make the server remember is bounded."""
    uris = [f"file:///{i}" for i in range(MAX_URIS)]
    assert len(parsed({"resourceSubscriptions": uris}).uris) == MAX_URIS
    with pytest.raises(MCPError, match=str(MAX_URIS)) as caught:
        parsed({"resourceSubscriptions": [*uris, "file:///x"]})
    assert caught.value.code == INVALID_PARAMS


async def test_resources_that_are_not_served_are_left_out() -> None:
    """spec: the acknowledgment reflects the subset the server agreed to (§Acknowledgment)."""
    wanted = parsed({"resourceSubscriptions": ["file:///a", "b:/"]}, lambda uri: uri[0] == "f")
    assert wanted.to_wire() == {"resourceSubscriptions": ["file:///a"]}


async def test_lists_that_are_not_offered_are_left_out() -> None:
    """spec: types the server does not support are omitted (§Acknowledgment)."""
    wanted = parse_filter(
        {"notifications": {"toolsListChanged": True, "promptsListChanged": True}},
        has_resource=everything,
        offered={"tools"},
    )
    assert wanted.to_wire() == {"toolsListChanged": True}


async def test_a_uri_named_twice_counts_once() -> None:
    """decision: the order of the request is kept, repetitions are not."""
    assert parsed({"resourceSubscriptions": ["b:b", "a:a", "b:b"]}).uris == ("b:b", "a:a")


# -------------------------------------------------------------------------------------- delivery


async def test_events_arrive_in_order() -> None:
    """spec: the stream delivers the notification types the client opted in to."""
    bus: Bus = LocalBus()
    async with bus.subscribe(1, ALL) as subscription:
        for event in (B, TOOLS, A):
            bus.publish(event)
        assert [await next_of(subscription) for _ in range(3)] == [B, TOOLS, A]


async def test_only_what_was_asked_for_arrives() -> None:
    """spec: MUST NOT send types the client has not explicitly requested (§Opening a Stream)."""
    bus = LocalBus()
    async with bus.subscribe(1, Filter(("prompts",), ("file:///b",))) as subscription:
        for event in (TOOLS, A, PROMPTS, ListChanged("resources"), B):
            bus.publish(event)
        assert await rest_of(subscription) == [PROMPTS, B]


async def test_every_subscription_gets_its_own_events() -> None:
    """spec: a client MAY have multiple active subscriptions (§Multiple Concurrent)."""
    bus = LocalBus()
    async with bus.subscribe(1, Filter(("tools",))) as one, bus.subscribe(1, ALL) as other:
        bus.publish(TOOLS)
        bus.publish(A)
        assert await rest_of(one) == [TOOLS]
        assert await rest_of(other) == [TOOLS, A]


async def test_a_waiting_reader_is_woken() -> None:
    """decision: nothing polls; the publisher wakes the reader."""
    bus = LocalBus()
    async with bus.subscribe(1, ALL) as subscription:
        reader = asyncio.create_task(next_of(subscription))
        await wait_all_tasks_blocked()
        assert not reader.done()
        bus.publish(A)
        assert await reader == A


async def test_a_handler_in_a_worker_thread_can_publish() -> None:
    """decision: `def` handlers run in threads, readers on their event loop."""
    bus = LocalBus()
    async with bus.subscribe(1, ALL) as subscription:
        reader = asyncio.create_task(next_of(subscription))
        await wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(bus.publish, A)
        assert await reader == A


async def test_nothing_is_lost_when_many_threads_publish() -> None:
    """decision: each event published after entering is delivered at least once."""
    bus = LocalBus()
    uris = tuple(f"file:///{i}" for i in range(200))

    def publish(start: int) -> None:
        for uri in uris[start::4]:
            bus.publish(ResourceUpdated(uri))

    async with bus.subscribe(1, Filter((), uris)) as subscription, anyio.create_task_group() as tg:
        for start in range(4):
            tg.start_soon(anyio.to_thread.run_sync, publish, start)
        seen = {await next_of(subscription) for _ in uris}
        assert seen == {ResourceUpdated(uri) for uri in uris}


async def test_a_publisher_never_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: a reader that never comes costs its filter, and one call to its loop."""
    bus = LocalBus()
    calls = 0
    loop = asyncio.get_running_loop()
    original = loop.call_soon_threadsafe

    def counting(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return original(*args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    async with bus.subscribe(1, ALL) as subscription:
        for _ in range(1000):
            bus.publish(A)
            bus.publish(B)
        assert calls == 1
        assert await rest_of(subscription) == [A, B]


async def test_an_event_after_its_delivery_is_another_one() -> None:
    """decision: who has read the old content must hear of the new one."""
    bus = LocalBus()
    async with bus.subscribe(1, ALL) as subscription:
        bus.publish(A)
        assert await next_of(subscription) == A
        bus.publish(A)
        assert await next_of(subscription) == A


async def test_a_fast_publisher_does_not_starve_other_tasks() -> None:
    """decision: between two events the loop turns, even if events are always pending."""
    bus = LocalBus()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with bus.subscribe(1, ALL) as subscription, anyio.create_task_group() as tg:
        tg.start_soon(other)
        for _ in range(50):
            bus.publish(A)
            await next_of(subscription)
        assert turns > 40
        tg.cancel_scope.cancel()


async def test_an_idle_subscription_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """user report: servers that use CPU while idle."""
    bus = LocalBus()
    async with bus.subscribe(1, ALL) as subscription:
        reader = asyncio.create_task(anext(subscription))
        await wait_all_tasks_blocked()

        def timer(*_: Any) -> Any:
            raise AssertionError("a timer was set")

        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "call_at", timer)
            await wait_all_tasks_blocked()
            bus.publish(A)
            assert await reader == A


# --------------------------------------------------------------------------------------- the end


async def test_closing_delivers_what_is_pending_and_ends() -> None:
    """spec: a graceful end (basic/patterns/subscriptions §Graceful Closure)."""
    bus = LocalBus()
    async with bus.subscribe(1, ALL) as subscription:
        bus.publish(A)
        subscription.close()
        bus.publish(B)
        assert await rest_of(subscription) == [A]


async def test_closing_wakes_a_waiting_reader() -> None:
    """decision: shutdown does not wait for the next event; any thread may ask for it."""
    async with LocalBus().subscribe(1, ALL) as subscription:
        reader = asyncio.create_task(anext(subscription, None))
        await wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(subscription.close)
        with anyio.fail_after(10):
            assert await reader is None


async def test_a_subscription_closed_before_it_is_entered_ends_at_once() -> None:
    """decision: shutdown may come between the request and the stream."""
    subscription = LocalBus().subscribe(1, ALL)
    subscription.close()
    async with subscription:
        assert await rest_of(subscription) == []


async def test_closing_the_bus_closes_every_subscription() -> None:
    """decision: one call at shutdown, subscriptions to nothing included."""
    bus = LocalBus()
    async with bus.subscribe(1, ALL) as one, bus.subscribe(2, Filter()) as other:
        bus.close()
        with anyio.fail_after(10):
            assert [event async for event in one] == []
            assert [event async for event in other] == []


async def test_a_subscription_that_was_left_is_forgotten() -> None:
    """decision: the bus keeps nothing of a client that went away."""
    bus = LocalBus()
    async with bus.subscribe(1, ALL), bus.subscribe(2, Filter(("tools",))) as other:
        pass
    assert not bus._interested
    assert not bus._open
    bus.publish(TOOLS)
    assert await rest_of(other) == []


async def test_a_subscription_is_entered_before_it_is_read() -> None:
    """decision: without registration it would wait for ever; say so instead."""
    with pytest.raises(RuntimeError, match="async with"):
        await anext(LocalBus().subscribe(1, ALL))


def test_publishing_survives_a_loop_that_is_gone() -> None:
    """decision: a loop that died with its subscriptions is no concern of the publisher's."""
    bus = LocalBus()

    async def enter() -> None:
        await bus.subscribe(1, ALL).__aenter__()

    asyncio.run(enter())
    bus.publish(A)
    assert not bus._interested
    assert not bus._open


# -------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("subscription_id", [1, "listen-1"])
async def test_the_acknowledgment(subscription_id: str | int) -> None:
    """spec: MUST carry the ID and the filter agreed to (§Acknowledgment)."""
    assert json.loads(acknowledgment(subscription_id, ALL)) == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "_meta": {SUBSCRIPTION_ID_KEY: subscription_id},
            "notifications": {
                "toolsListChanged": True,
                "promptsListChanged": True,
                "resourcesListChanged": True,
                "resourceSubscriptions": ["file:///a", "file:///b"],
            },
        },
    }


@pytest.mark.parametrize(
    ("event", "method", "members"),
    [
        (list_changed("tools"), "notifications/tools/list_changed", {}),
        (list_changed("prompts"), "notifications/prompts/list_changed", {}),
        (list_changed("resources"), "notifications/resources/list_changed", {}),
        (A, "notifications/resources/updated", {"uri": "file:///a"}),
    ],
)
async def test_each_event_has_its_notification(
    event: Event, method: str, members: dict[str, Any]
) -> None:
    """spec: all notifications on the stream carry the subscription ID (§Receiving)."""
    assert json.loads(notification(7, event)) == {
        "jsonrpc": "2.0",
        "method": method,
        "params": {"_meta": {SUBSCRIPTION_ID_KEY: 7}, **members},
    }


async def test_the_closing_response() -> None:
    """spec: a completion result with the subscription ID (§Graceful Closure)."""
    assert json.loads(closing_response(7, {"x/y": 1, SUBSCRIPTION_ID_KEY: 8})) == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {"resultType": "complete", "_meta": {"x/y": 1, SUBSCRIPTION_ID_KEY: 7}},
    }


async def test_a_whole_stream() -> None:
    """spec: the acknowledgment MUST come first, the result last (basic/patterns/subscriptions)."""
    bus = LocalBus()
    subscription = bus.subscribe(7, ALL)
    sent = []
    with anyio.fail_after(10):
        async with aclosing(subscription.messages({"x/y": 1})) as messages:
            async for message in messages:
                sent.append(message)
                if len(sent) == 1:
                    bus.publish(A)
                elif len(sent) == 2:
                    bus.close()
    assert sent == [
        acknowledgment(7, ALL),
        notification(7, A),
        closing_response(7, {"x/y": 1}),
    ]


async def test_what_happens_right_after_the_acknowledgment_is_not_missed() -> None:
    """decision: the subscription is in force before the client can read that it is."""
    bus = LocalBus()
    async with aclosing(bus.subscribe(7, ALL).messages()) as messages:
        await anext(messages)
        bus.publish(A)
        bus.publish(TOOLS)
        assert await anext(messages) == notification(7, A)
        assert await anext(messages) == notification(7, TOOLS)


async def test_a_stream_that_is_dropped_is_forgotten() -> None:
    """spec: closing the stream ends the subscription (§Cancellation); no result is sent."""
    bus = LocalBus()
    async with aclosing(bus.subscribe(7, ALL).messages()) as messages:
        await anext(messages)
        assert bus._open
    assert not bus._open


async def test_a_stream_that_is_never_read_leaves_nothing() -> None:
    """decision: only reading registers; a request refused after subscribing costs nothing."""
    bus = LocalBus()
    bus.subscribe(7, ALL)
    assert not bus._open
