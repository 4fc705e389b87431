"""Streams of older revisions: events and their ids, what is lost and resumed, the listening one."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from sse_starlette.sse import AppStatus

from fastapi_mcp_mrtr import Context, MCPRouter, Rounds, log, need_input
from fastapi_mcp_mrtr.http import session_exchange
from fastapi_mcp_mrtr.server.older import events
from fastapi_mcp_mrtr.server.older.listening import MAX_STREAMS
from fastapi_mcp_mrtr.state.sessions import MemorySessionStore
from tests.older import VERSIONS, Client, Reply, session, texts

from .older_desk import SECRET, Desk
from .test_older_asks import Away, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk() -> Desk:
    return Desk()


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[Client]:
    async with session(desk.app) as opened:
        yield opened


async def happened(desk: Desk, what: str) -> None:
    with anyio.fail_after(20):
        while what not in desk.happened:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0)


# --------------------------------------------------------------------------------- notifications


async def test_progress_and_logs(client: Client) -> None:
    """spec: on the POST's stream, before the response (transports); logs from the level that the
    session set (server/utilities/logging)."""
    assert await client.request("logging/setLevel", {"level": "warning"}).result() == {}
    call = client.call("report", meta={"progressToken": "t"})
    assert text_of(await call.result()) == "reported"
    assert [m.get("params") for m in call.messages[:-1]] == [
        {"progressToken": "t", "progress": 1, "total": 3},
        {"progressToken": "t", "progress": 2, "total": 3},
        {"progressToken": "t", "progress": 3, "total": 3},
        {"level": "warning", "data": "loud"},
    ]


async def test_without_a_level_there_are_no_logs(client: Client) -> None:
    """spec: the server MAY decide then (server/utilities/logging); decision: as today, none."""
    call = client.call("report")
    assert text_of(await call.result()) == "reported"
    assert not call.is_stream


@pytest.mark.parametrize("params", [{}, {"level": "loud"}])
async def test_a_level_that_is_none(client: Client, params: Any) -> None:
    """spec: -32602 (server/utilities/logging §Error Handling)."""
    assert (await client.request("logging/setLevel", params).error())["code"] == -32602


@pytest.mark.parametrize("version", VERSIONS)
async def test_events_have_ids(desk: Desk, version: str) -> None:
    """spec: globally unique in the session (transports §Resumability); the first one has no data,
    and a time to retry after, which came with 2025-11-25 (§Sending Messages 6)."""
    async with session(desk.app, version) as client:
        calls = [client.call("report", meta={"progressToken": n}) for n in (1, 2)]
        seen = [event for call in calls for event in (await call.done()).events]
    assert len({event["id"] for event in seen}) == len(seen) > 6
    assert all(character.isprintable() for event in seen for character in event["id"])
    primes = [event for event in seen if not event["data"]]
    assert len(primes) == (2 if version == "2025-11-25" else 0)
    assert all(int(event["retry"]) > 0 for event in primes)


# ------------------------------------------------------------------------------ lost connections


async def lost(client: Client, desk: Desk) -> tuple[Reply, str]:
    """A call whose connection was lost, and the id of the last event that arrived."""
    call = client.call("wait", {"streams": True}, meta={"progressToken": 1})
    await call.next()
    with anyio.fail_after(20):
        await desk.waiting.wait()
    call.leave()
    return call, call.events[-1]["id"]


async def test_a_lost_connection_is_no_cancellation(client: Client, desk: Desk) -> None:
    """spec: disconnection SHOULD NOT be interpreted as the client cancelling (transports)."""
    call, event_id = await lost(client, desk)
    resumed = await client.open("GET", last_event_id=event_id).started()
    assert resumed.status == 200
    desk.go_on.set()
    await call.done()
    await resumed.done()
    assert texts(resumed.messages) == ["notifications/progress", "response"]
    assert text_of(resumed.messages[-1]["result"]) == "waited"
    assert [event["id"] for event in resumed.events] == sorted(e["id"] for e in resumed.events)
    assert desk.happened == ["finished"]


async def test_a_call_that_ended_while_nobody_was_there(client: Client, desk: Desk) -> None:
    """spec: replay what would have been sent after the last event id (transports §Resumability)."""
    call, event_id = await lost(client, desk)
    desk.go_on.set()
    await call.done()
    resumed = await client.open("GET", last_event_id=event_id).done()
    assert texts(resumed.messages) == ["notifications/progress", "response"]
    again = await client.open("GET", last_event_id=resumed.events[0]["id"]).done()
    assert texts(again.messages) == ["response"]


async def test_a_call_that_was_not_streaming_goes_on_too(client: Client, desk: Desk) -> None:
    """spec: as any other; there is nothing to resume (transports)."""
    call = client.call("wait")
    with anyio.fail_after(20):
        await desk.waiting.wait()
    call.leave()
    await asyncio.sleep(0)
    desk.go_on.set()
    await happened(desk, "finished")
    await call.done()


async def test_a_client_that_stays_away(
    client: Client, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision: a call does not go on for ever without anybody to answer."""
    monkeypatch.setattr(session_exchange, "AWAY_SECONDS", 0.05)
    call, _ = await lost(client, desk)
    await call.done()
    assert desk.happened == ["cancelled"]


async def test_a_question_after_the_connection_was_lost(client: Client, desk: Desk) -> None:
    """Decision: it is kept, so it is asked on the stream that is resumed; and so are its answer's
    consequences, on whichever worker each of the four requests is served."""
    store = MemorySessionStore()
    workers = [Desk(sessions=store) for _ in range(3)]
    async with session(workers[0].app) as client:
        call = client.call("book", {"flight": "LX1"})
        seat = await call.next()
        call.leave()
        await asyncio.sleep(0)
        client.app = workers[1].app
        await client.accept(seat, row=4)
        resumed = await client.open("GET", last_event_id=call.events[-1]["id"]).started()
        sure = await resumed.next()
        client.app = workers[2].app
        await client.accept(sure, value=True)
        assert text_of(await resumed.result()) == "4A True in round 3 for alice"


async def test_a_stream_is_taken_over(client: Client, desk: Desk) -> None:
    """spec: each message on only one of the connected streams (transports §Multiple Connections):
    who resumes a stream that this server believes to be open gets what follows."""
    call = client.call("wait", {"streams": True}, meta={"progressToken": 1})
    await call.next()
    with anyio.fail_after(20):
        await desk.waiting.wait()
    resumed = await client.open("GET", last_event_id=call.events[-1]["id"]).started()
    await call.ended()
    desk.go_on.set()
    await call.done()
    await resumed.done()
    assert texts(call.messages) == ["notifications/progress"]
    assert texts(resumed.messages) == ["notifications/progress", "response"]


async def test_a_stream_is_not_given_up_for_an_event_that_is_none(
    client: Client, desk: Desk
) -> None:
    """User report: who asked for an event that there never was lost the stream that was open."""
    call = client.call("wait", {"streams": True}, meta={"progressToken": 1})
    await call.next()
    with anyio.fail_after(20):
        await desk.waiting.wait()
    stream = call.events[-1]["id"].rpartition("-")[0]
    refused = await client.open("GET", last_event_id=f"{stream}-999").done()
    assert refused.status == 400
    desk.go_on.set()
    assert text_of(await call.result()) == "waited"


async def test_who_resumed_may_leave_again(
    client: Client, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision: the time that a call goes on without its client begins again."""
    call, event_id = await lost(client, desk)
    resumed = await client.open("GET", last_event_id=event_id).started()
    monkeypatch.setattr(session_exchange, "AWAY_SECONDS", 0.05)
    resumed.leave()
    await resumed.done()
    await call.done()
    assert desk.happened == ["cancelled"]


async def test_a_session_that_ends_ends_what_was_resumed(client: Client, desk: Desk) -> None:
    """User report: it stayed open for half a minute."""
    call, event_id = await lost(client, desk)
    resumed = await client.open("GET", last_event_id=event_id).started()
    assert (await client.open("DELETE").done()).status == 204
    await resumed.done()
    await call.done()
    assert desk.happened == ["cancelled"]


@pytest.mark.parametrize("event_id", ["x", "x-1", "", "a" * 38 + "-1", "-1", "a-0", "é-1"])
async def test_events_that_are_none(client: Client, event_id: str) -> None:
    """Decision: 400; a 404 would be the end of the session."""
    reply = await client.open("GET", last_event_id=event_id).done()
    assert (reply.status, reply.messages[0]["error"]["code"]) == (400, -32600)


async def test_a_stream_that_is_forgotten_while_it_is_read() -> None:
    """Decision: it ends without its response; a client that comes back learns that it is gone."""

    class Forgetful(MemorySessionStore):
        forgets = False

        async def events_after(self, event_id: str) -> Any:
            return None if self.forgets else await super().events_after(event_id)

    store = Forgetful()
    desk = Desk(sessions=store)
    async with session(desk.app) as client:
        _, event_id = await lost(client, desk)
        resumed = await client.open("GET", last_event_id=event_id).started()
        store.forgets = True
        desk.go_on.set()
        await resumed.done()
        assert (resumed.status, resumed.messages) == (200, [])


async def test_events_of_another_session(client: Client, desk: Desk) -> None:
    """spec: MUST NOT replay messages of a different stream (transports §Resumability); decision:
    nor those of another session, whoever's it is."""
    call = await client.call("report", meta={"progressToken": 1}).done()
    event_id = call.events[0]["id"]
    async with session(desk.app) as other:
        assert (await other.open("GET", last_event_id=event_id).done()).status == 400
    assert (await client.open("GET", last_event_id=event_id).done()).status == 200


async def test_a_stream_whose_worker_died(
    client: Client, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision: who resumes it is told soon that nobody will go on with it."""
    monkeypatch.setattr(events, "_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(events, "_HEARTBEAT", 0.05)
    call = client.call("wait", {"streams": True}, meta={"progressToken": 1})
    await call.next()
    call.task.cancel()
    await asyncio.wait([call.task])
    last = call.events[-1]["id"]
    assert (await client.open("GET", last_event_id=last).done()).status == 400
    first = call.events[0]["id"]
    reply = await client.open("GET", last_event_id=first).done()
    assert texts(reply.messages) == ["notifications/progress"]


async def test_a_quiet_call_shows_that_it_lives(
    client: Client, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision: silence is no end, as long as the worker answers."""
    monkeypatch.setattr(events, "_HEARTBEAT", 0.01)
    call, event_id = await lost(client, desk)
    resumed = await client.open("GET", last_event_id=event_id).started()
    await asyncio.sleep(0.1)
    desk.go_on.set()
    await call.done()
    assert text_of(await resumed.result()) == "waited"


async def test_events_are_sealed() -> None:
    """Decision: the store's operator reads none of them and makes none."""
    kept: list[bytes] = []

    class Watched(MemorySessionStore):
        async def append(self, stream: str, event: bytes, *, ttl: float) -> str:
            kept.append(event)
            return await super().append(stream, event, ttl=ttl)

    store = Watched()
    desk = Desk(sessions=store)
    async with session(desk.app) as client:
        call = await client.call("report", meta={"progressToken": 1}).done()
        assert not any(b"progress" in event for event in kept)
        event_id = call.events[-1]["id"]
        for forged in (b"forged", kept[0]):
            stream = event_id[:16] + forged[:4].decode()
            before = await store.append(stream, b"x", ttl=60)
            await store.append(stream, forged, ttl=60)
            reply = await client.open("GET", last_event_id=before).done()
            assert (reply.status, reply.messages) == (200, [])


async def test_a_store_that_goes_away_ends_what_is_resumed(desk: Desk) -> None:
    """Decision: the client resumes again, later."""
    store = Away()
    desk = Desk(sessions=store)
    async with session(desk.app) as client:
        call, event_id = await lost(client, desk)
        store.away = {"listen"}
        assert (await client.open("GET", last_event_id=event_id).done()).status == 503
        desk.go_on.set()
        await call.done()


# -------------------------------------------------------------------------- the listening stream


def rename(desk: Desk) -> None:
    desk.mcp.tool("another")(lambda: "")
    desk.mcp.remove_tool("another")


async def test_lists_that_changed(client: Client, desk: Desk) -> None:
    """spec: listChanged notifications on the GET stream (server/tools §List Changed)."""
    stream = await client.open("GET").started()
    assert (stream.status, stream.is_stream) == (200, True)
    rename(desk)
    assert await stream.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {},
    }


@pytest.mark.parametrize("first", ["subscribe", "stream"])
async def test_resources_that_changed(client: Client, desk: Desk, first: str) -> None:
    """spec: after resources/subscribe, until resources/unsubscribe (server/resources)."""
    uri = {"uri": "desk://rules"}
    if first == "subscribe":
        assert await client.request("resources/subscribe", uri).result() == {}
    stream = await client.open("GET").started()
    if first == "stream":
        assert await client.request("resources/subscribe", uri).result() == {}
    desk.mcp.notify_resource_updated("desk://cabin/x")
    desk.mcp.notify_resource_updated("desk://rules")
    told = await stream.next()
    assert (told["method"], told["params"]) == ("notifications/resources/updated", uri)
    assert await client.request("resources/unsubscribe", uri).result() == {}
    assert await client.request("resources/unsubscribe", uri).result() == {}
    desk.mcp.notify_resource_updated("desk://rules")
    rename(desk)
    assert (await stream.next())["method"] == "notifications/tools/list_changed"


async def test_subscribing_to_what_is_not_there(client: Client) -> None:
    """spec: -32002 (server/resources §Error Handling)."""
    error = await client.request("resources/subscribe", {"uri": "desk://no"}).error()
    assert (error["code"], error["data"]) == (-32002, {"uri": "desk://no"})
    error = await client.request("resources/subscribe", {"uri": 1}).error()
    assert error["code"] == -32602


async def test_too_many_subscriptions(client: Client) -> None:
    """Decision: a session is told of so many resources and no more."""
    for number in range(1000):
        await client.request("resources/subscribe", {"uri": f"desk://cabin/{number}"}).done()
    error = await client.request("resources/subscribe", {"uri": "desk://rules"}).error()
    assert error["code"] == -32602


async def test_the_newest_of_several_streams_speaks(client: Client, desk: Desk) -> None:
    """spec: MUST NOT broadcast the same message (transports §Multiple Connections)."""
    old = await client.open("GET").started()
    new = await client.open("GET").started()
    await asyncio.sleep(0)
    rename(desk)
    await new.next()
    assert old.messages == []
    new.leave()
    await new.done()
    await asyncio.sleep(0)
    rename(desk)
    await old.next()


async def test_streams_of_a_session_are_few(client: Client, desk: Desk) -> None:
    """Decision: each costs all others of its session, so the oldest make room."""
    streams = [await client.open("GET").started() for _ in range(MAX_STREAMS)]
    await asyncio.sleep(0)
    rename(desk)
    await streams[-1].next()
    await client.open("GET").started()
    await streams[0].done()
    assert not streams[1].task.done()


async def test_the_stream_of_a_session_that_ends(client: Client) -> None:
    """spec: the server MAY close the stream (transports §Listening)."""
    stream = await client.open("GET").started()
    await client.open("DELETE").done()
    await stream.done()


async def test_the_stream_of_a_session_that_expires(desk: Desk) -> None:
    """Decision: a stream ends with its session."""
    desk = Desk(session_lifetime=0.05)
    async with session(desk.app) as client:
        await (await client.open("GET").started()).done()


@pytest.mark.parametrize("accept", ["application/json", None])
async def test_a_get_that_takes_no_stream(client: Client, accept: str | None) -> None:
    """spec: the client MUST accept text/event-stream (transports §Listening)."""
    reply = await client.open("GET", accept=accept).done()
    assert reply.status == 406


async def test_a_store_that_goes_away_ends_the_stream(desk: Desk) -> None:
    """Decision: quietly; the client opens another one."""
    store = Away()
    desk = Desk(sessions=store)
    async with session(desk.app) as client:
        store.away = {"listen"}
        reply = await client.open("GET").done()
        assert reply.messages == []


class Garbled(MemorySessionStore):
    """A store that somebody else writes to as well."""

    async def publish(self, topic: str, message: bytes) -> None:
        if topic.startswith("session:"):
            for garbage in (b"", b"hostile", b"\xff", b"1", b"[" * 100_000, b'["hostile"]'):
                await super().publish(topic, garbage)
        await super().publish(topic, message)


async def test_messages_that_make_no_sense(caplog: pytest.LogCaptureFixture) -> None:
    """user report: one of them, and the session could be ended, but nothing of it did end."""
    desk = Desk(sessions=Garbled())
    async with session(desk.app) as client:
        listening = await client.open("GET").started()
        call = client.call("wait", {"streams": True}, meta={"progressToken": 1})
        await call.next()
        with anyio.fail_after(20):
            await desk.waiting.wait()
        assert (await client.open("DELETE").done()).status == 204
        await call.done()
        await listening.done()
    assert desk.happened == ["cancelled"]
    said = {record.getMessage() for record in caplog.records if record.levelno > logging.INFO}
    assert said == {"A message about a session made no sense, and is skipped"}


# --------------------------------------------------------------------------------------- batches


async def batch(client: Client, *requests: Any, **more: Any) -> Reply:
    return await client.open("POST", list(requests), **more).done()


def rpc(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@pytest.fixture
async def oldest(desk: Desk) -> AsyncIterator[Client]:
    async with session(desk.app, "2025-03-26") as opened:
        yield opened


async def test_a_batch(oldest: Client) -> None:
    """spec: one response per request (2025-03-26 transports §Sending Messages)."""
    reply = await batch(
        oldest,
        rpc(1, "ping"),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        rpc(2, "tools/call", name="echo", arguments={"text": "x"}),
        rpc(3, "nope"),
        rpc(4, "tools/call", name="teapot"),
        rpc(5, "tools/call", name="broken_dependency"),
    )
    (responses,) = reply.messages
    assert [response["id"] for response in responses] == [1, 2, 3, 4, 5]
    assert responses[0]["result"] == {}
    assert text_of(responses[1]["result"]).startswith("x")
    assert responses[2]["error"]["code"] == -32601
    assert responses[3]["result"] == {
        "content": [{"type": "text", "text": "No coffee"}],
        "isError": True,
    }
    assert responses[4]["error"]["code"] == -32603


@pytest.mark.parametrize(
    "body",
    [
        [{"jsonrpc": "2.0", "method": "notifications/initialized"}],
        [{"jsonrpc": "2.0", "id": "a", "result": {}}, {"jsonrpc": "2.0", "id": "b", "result": {}}],
    ],
)
async def test_a_batch_without_requests(oldest: Client, body: Any) -> None:
    """spec: 202 (2025-03-26 transports §Sending Messages 4)."""
    reply = await batch(oldest, *body)
    assert (reply.status, reply.text) == (202, "")


async def test_a_batch_that_asks(oldest: Client) -> None:
    """spec: requests before the responses, which may come as a batch (2025-03-26 transports)."""
    reply = oldest.open("POST", [rpc(1, "ping"), rpc(2, "tools/call", name="talk"), rpc(3, "ping")])
    ask = await reply.next()
    said = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
    answers = [{"jsonrpc": "2.0", "id": ask["id"], "result": said}]
    assert (await oldest.open("POST", answers).done()).status == 202
    responses: Any = (await reply.done()).messages[-1]
    assert [response["id"] for response in responses] == [1, 2, 3]
    assert text_of(responses[1]["result"]) == "hi"


async def test_one_of_a_batch_is_cancelled(oldest: Client, desk: Desk) -> None:
    """spec: no response for it (basic/utilities/cancellation); the others get theirs."""
    wait = {"name": "wait", "arguments": {"streams": True}, "_meta": {"progressToken": 1}}
    reply = oldest.open(
        "POST", [rpc(1, "tools/call", **wait), rpc(2, "tools/call", name="numbers")]
    )
    await reply.next()
    with anyio.fail_after(20):
        await desk.waiting.wait()
    await oldest.notify("notifications/cancelled", {"requestId": 1})
    responses: Any = (await reply.done()).messages[-1]
    assert [response["id"] for response in responses] == [2]


async def test_a_batch_of_cancellations(oldest: Client, desk: Desk) -> None:
    """Decision: as many as a batch may have, each of them counts."""
    arguments = {"streams": True}
    wait = {"name": "wait", "arguments": arguments, "_meta": {"progressToken": 1}}
    calls = [oldest.open("POST", rpc(id, "tools/call", **wait)) for id in range(20)]
    for call in calls:
        await call.next()
    cancelled = [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
        for id in range(20)
    ]
    await oldest.open("POST", cancelled).done()
    for call in calls:
        await call.done()
    assert desk.happened == ["cancelled"] * 20


async def test_a_batch_whose_session_ends(oldest: Client, desk: Desk) -> None:
    """Decision: all of it ends."""
    reply = oldest.open("POST", [rpc(1, "tools/call", name="wait"), rpc(2, "ping")])
    with anyio.fail_after(20):
        await desk.waiting.wait()
    await oldest.request("ping").result()
    await oldest.open("DELETE").done()
    assert ((await reply.done()).status, reply.text) == (202, "")


async def test_a_caller_that_is_refused_within_a_batch(oldest: Client, desk: Desk) -> None:
    """Decision: every request of a batch authenticates, and what was answered stays."""
    reply = oldest.open(
        "POST", [rpc(1, "tools/call", name="wait"), rpc(2, "prompts/list")], x_call="yes"
    )
    with anyio.fail_after(20):
        await desk.waiting.wait()
    desk.refuse_calls = 401
    desk.go_on.set()
    (responses,) = (await reply.done()).messages
    assert text_of(responses[0]["result"]) == "waited"
    assert responses[1]["error"]["message"] == "Not any more"


async def test_later_revisions_refuse_batches(client: Client) -> None:
    """spec: the body MUST be a single message (2025-06-18 changelog)."""
    reply = await batch(client, rpc(1, "ping"))
    assert (reply.status, reply.messages[0]["error"]["code"]) == (400, -32600)


# -------------------------------------------------------------------------------------- garbage


@pytest.mark.parametrize("name", ["echo", "numbers", "report", "wait"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_plain_calls_leave_nothing_to_the_collector(
    client: Client, desk: Desk, name: str
) -> None:
    """Decision: as for today's calls: a request is freed when it ends."""
    desk.go_on.set()
    arguments = {"text": "x"} if name == "echo" else {}

    async def call() -> None:
        reply = client.call(name, arguments, meta={"progressToken": 1})
        await reply.done()
        client.replies.clear()

    for _ in range(20):
        await call()
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            await call()
        assert gc.collect() == 0
    finally:
        gc.enable()


# ----------------------------------------------------------------------------- servers that stop


async def test_a_server_that_stops_cancels_what_streams(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision: after the grace, as for today's calls; the client is told to call again."""
    desk = Desk(shutdown_grace=0.01)
    async with session(desk.app) as client:
        call = client.call("wait", {"streams": True}, meta={"progressToken": 1})
        await call.next()
        with anyio.fail_after(20):
            await desk.waiting.wait()
        monkeypatch.setattr(AppStatus, "should_exit", True)
        await call.done()
    assert desk.happened == ["cancelled"]
    assert call.messages[-1]["error"]["code"] == -31004


async def test_a_server_that_stops_does_not_wait_for_clients_that_were_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """user report: it took a minute to stop after a phone had dropped off."""
    desk = Desk(shutdown_grace=0.01)
    async with session(desk.app) as client:
        call, _ = await lost(client, desk)
        monkeypatch.setattr(AppStatus, "should_exit", True)
        await call.done()
    assert desk.happened == ["cancelled"]


async def test_a_connection_that_breaks(client: Client, desk: Desk) -> None:
    """Decision: as one that the client closed: the call goes on."""
    call = client.call("wait", {"streams": True}, meta={"progressToken": 1})
    await call.next()
    with anyio.fail_after(20):
        await desk.waiting.wait()
    call.breaks = True
    desk.go_on.set()
    await call.done()
    resumed = await client.open("GET", last_event_id=call.events[-1]["id"]).done()
    assert texts(resumed.messages) == ["notifications/progress", "response"]


async def test_a_server_that_says_more_before_the_end(client: Client, desk: Desk) -> None:
    """Decision: only `http.disconnect` means that the client has left."""
    call = client.call("wait", {"streams": True}, meta={"progressToken": 1})
    call.says_more = True
    await call.next()
    desk.go_on.set()
    assert text_of(await call.result()) == "waited"


# ------------------------------------------------------------------------------------ the rounds


async def test_rounds_that_show_something_else_and_much() -> None:
    """Decision: what differs from the round before is shown, and memory is bounded."""
    mcp = MCPRouter("s", version="1", keys=SECRET)

    @mcp.tool()
    async def chatter(ctx: Context) -> Rounds[str]:
        for number in range(300):
            yield log("info", f"{number}" if number != 2 or ctx.round == 1 else "else")
        yield need_input("x", "?", bool)
        yield ""

    app = FastAPI()
    app.include_router(mcp)
    async with session(app) as client:
        await client.request("logging/setLevel", {"level": "info"}).done()
        call = client.call("chatter")
        for _ in range(300):
            await call.next()
        await client.accept(await call.next(), value=True)
        await call.result()
        again = [m["params"]["data"] for m in call.messages[301:-1]]
    assert again == ["else", *map(str, range(3, 300))]


async def test_waiting_takes_longer_and_longer(
    client: Client, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision: the server comes back to a handler that waits less and less often."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        desk.paid = len(slept) == 6

    monkeypatch.setattr("fastapi_mcp_mrtr.server.older.bridge._sleep", sleep)
    call = client.call("pay")
    await client.answer(await call.next(), {"action": "accept"})
    assert text_of(await call.result()) == "paid"
    assert slept == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
