"""Asks of older revisions, sent live: the client answers while the call's stream is open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp_types import CreateMessageResult, TextContent

from fastapi_mcp_mrtr import AESGCMCodec, KeyRing, Secret
from fastapi_mcp_mrtr.server.older import asks
from fastapi_mcp_mrtr.state.sessions import MemorySessionStore, SessionStoreUnavailable
from tests.older import Client, Reply, session, texts

from .older_desk import SECRET, Desk

pytestmark = pytest.mark.anyio

POEM = {
    "role": "assistant",
    "content": {"type": "text", "text": "roses"},
    "model": "m",
    "stopReason": "endTurn",
}


@pytest.fixture
async def desk() -> Desk:
    return Desk()


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[Client]:
    async with session(desk.app) as opened:
        yield opened


def text_of(result: Any) -> str:
    text: str = result["content"][0]["text"]
    return text


async def failed(reply: Reply) -> str:
    """The text of a result that says isError."""
    result = await reply.result()
    assert result["isError"] is True
    return text_of(result)


# ------------------------------------------------------------------------------------- the rounds


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_two_questions(desk: Desk, version: str) -> None:
    """spec: requests on the POST's stream, answered by POST (transports §Sending Messages); every
    round has dependencies of its own, and none of them is alive while somebody is asked."""
    async with session(desk.app, version) as client:
        call = client.call("book", {"flight": "LX1"}, id="c")
        ask = await call.next()
        assert ask["method"] == "elicitation/create"
        assert desk.happened == ["opened", "rolled back"]
        assert (await client.accept(ask, row=4, letter="B")).status == 202
        sure = await call.next()
        assert sure["params"]["message"] == "Row 4?"
        assert sure["id"] != ask["id"]
        assert desk.happened == ["opened", "rolled back"] * 2
        await client.accept(sure, value=True)
        assert text_of(await call.result()) == "4B True in round 3 for alice"
        assert desk.happened[-2:] == ["opened", "committed"]
        assert call.messages[-1]["id"] == "c"
        assert call.is_stream


async def test_the_ask_as_it_is_sent(client: Client) -> None:
    """spec: form mode with its schema (client/elicitation §Form Mode)."""
    ask = await client.call("book", {"flight": "LX1"}).next()
    assert ask["params"] == {
        "_meta": {"io.github.fastapi-mcp-mrtr/ask": {"key": "seat", "of": 1}},
        "mode": "form",
        "message": "Which seat on LX1?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "row": {"type": "integer", "minimum": 1, "maximum": 40},
                "letter": {"type": "string", "enum": ["A", "B"], "default": "A"},
            },
            "required": ["row"],
        },
    }


async def test_the_ask_of_the_first_revision_that_had_any(desk: Desk) -> None:
    """spec: 2025-06-18 has no modes, and defaults for booleans only (its schema)."""
    async with session(desk.app, "2025-06-18") as client:
        ask = await client.call("book", {"flight": "LX1"}).next()
        assert "mode" not in ask["params"]
        assert "default" not in ask["params"]["requestedSchema"]["properties"]["letter"]


async def test_several_in_one_round(client: Client) -> None:
    """Decision: all are sent at once and answered in any order."""
    call = client.call("everything")
    asks = {ask["method"]: ask for ask in [await call.next() for _ in range(3)]}
    assert asks["roots/list"]["params"].keys() == {"_meta"}
    await client.answer(asks["roots/list"], {"roots": [{"uri": "file:///r"}]})
    await client.answer(asks["sampling/createMessage"], POEM)
    await client.accept(asks["elicitation/create"], value="Ann")
    assert text_of(await call.result()) == "Ann roses file:///r"


async def test_prompts_and_resources_ask_too(client: Client) -> None:
    """Decision: all three kinds of handlers may."""
    call = client.request("prompts/get", {"name": "plan", "arguments": {"city": "Bern"}})
    await client.accept(await call.next(), value=3)
    assert (await call.result())["messages"][0]["content"]["text"] == "3 days in Bern"
    call = client.request("resources/read", {"uri": "desk://cabin/ann"})
    await client.accept(await call.next(), value="first")
    assert (await call.result()) == {
        "contents": [{"uri": "desk://cabin/ann", "mimeType": "text/plain", "text": "ann: first"}]
    }


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_refusals(client: Client, action: str) -> None:
    """spec: decline and cancel are answers (client/elicitation §Response Actions)."""
    call = client.call("book", {"flight": "LX1"})
    await client.answer(await call.next(), {"action": action})
    assert "'seat'" in await failed(call)


async def test_what_does_not_fit_is_asked_again(client: Client) -> None:
    """Decision: with the reason, as another request."""
    call = client.call("book", {"flight": "LX1"})
    first = await call.next()
    await client.accept(first, row=99)
    again = await call.next()
    assert again["id"] != first["id"]
    assert again["params"]["message"].startswith("Which seat on LX1?")
    assert "row" in again["params"]["message"].removeprefix("Which seat on LX1?")


@pytest.mark.parametrize(
    "answer",
    [{"nope": 1}, {"action": "accept", "content": {"row": 4, "letter": "A", "more": {"deep": 1}}}],
)
async def test_an_answer_that_is_none(client: Client, answer: Any) -> None:
    """spec: -32602 (basic/index); the same as today."""
    call = client.call("book", {"flight": "LX1"})
    await client.answer(await call.next(), answer)
    assert (await call.error())["code"] == -32602


async def test_an_answer_that_is_an_error(client: Client) -> None:
    """spec: a client may refuse with an error, -1 for sampling (client/sampling §Error Handling);
    what else was asked is withdrawn."""
    call = client.call("everything")
    asks = [await call.next() for _ in range(3)]
    await client.accept(asks[0], value="Ann")
    error = {"code": -1, "message": "User rejected sampling request"}
    body = {"jsonrpc": "2.0", "id": asks[1]["id"], "error": error}
    assert (await client.open("POST", body).done()).status == 202
    said = "The client refused 'poem': User rejected sampling request (-1)"
    assert await failed(call) == said
    withdrawn = [m["params"]["requestId"] for m in call.messages if "cancelled" in str(m)]
    assert withdrawn == [asks[2]["id"]]


async def test_a_prompt_whose_ask_is_refused(client: Client) -> None:
    """Decision: an error, where no result can say it."""
    call = client.request("prompts/get", {"name": "plan", "arguments": {"city": "Bern"}})
    body = {"jsonrpc": "2.0", "id": (await call.next())["id"], "error": {}}
    await client.open("POST", body).done()
    assert (await call.error())["code"] == -31001


async def test_what_was_shown_is_not_shown_again(client: Client) -> None:
    """spec: progress MUST increase (basic/utilities/progress); decision: to the client it is one
    call, whatever is replayed behind it."""
    await client.request("logging/setLevel", {"level": "info"}).done()
    call = client.call("book", {"flight": "LX1"}, meta={"progressToken": "t"})
    for _ in range(2):
        assert "params" in await call.next()
    await client.accept(await call.next(), row=4)
    assert (await call.next())["method"] == "notifications/progress"
    await client.accept(await call.next(), value=True)
    await call.result()
    assert texts(call.messages) == [
        "notifications/message",
        "notifications/progress",
        "elicitation/create",
        "notifications/progress",
        "elicitation/create",
        "notifications/message",
        "response",
    ]


async def test_background_tasks_of_a_later_round(client: Client, desk: Desk) -> None:
    """Decision: they run after the response, as FastAPI's do."""
    call = client.call("later")
    await client.accept(await call.next(), value=True)
    await call.result()
    assert desk.happened == ["background True"]


async def test_a_call_that_happens_once(client: Client, desk: Desk) -> None:
    """Decision: the ledger knows the rounds, and a lost call that comes again with its key goes on
    where it was: nothing that a step recorded runs again."""
    key = {"io.github.fastapi-mcp-mrtr/idempotencyKey": "k"}
    lost = client.call("buy", meta=key)
    await lost.next()
    again = client.call("buy", meta=key)
    await client.accept(await again.next(), value=True)
    assert text_of(await again.result()) == "bought True"
    assert text_of(await client.call("buy", meta=key).result()) == "bought True"
    assert desk.happened == ["charged"]


# ------------------------------------------------------------------------------------------ pages


async def test_a_page_to_visit(client: Client, desk: Desk) -> None:
    """spec: url mode with an elicitationId, and a notification when it is done, to this client only
    (2025-11-25 client/elicitation §URL Mode)."""
    desk.mcp.clock = lambda: desk.now
    call = client.call("pay")
    ask = await call.next()
    page = ask["params"]
    assert (page["mode"], page["url"]) == ("url", "https://pay.example/1")
    await client.answer(ask, {"action": "accept"})
    with anyio.fail_after(20):
        await desk.waiting.wait()
    desk.paid = True
    assert text_of(await call.result()) == "paid"
    done = call.messages[-2]
    assert done == {
        "jsonrpc": "2.0",
        "method": "notifications/elicitation/complete",
        "params": {"elicitationId": page["elicitationId"]},
    }


async def test_a_page_that_nobody_waits_for(client: Client) -> None:
    """spec: accept means consent; nobody here knows whether the page was done."""
    call = client.call("consent")
    await client.answer(await call.next(), {"action": "accept"})
    assert text_of(await call.result()) == "read"
    assert len(call.messages) == 2


async def test_a_page_that_was_declined(client: Client) -> None:
    """spec: decline is an answer."""
    call = client.call("consent")
    await client.answer(await call.next(), {"action": "decline"})
    assert "declined" in await failed(call)


async def test_a_page_for_a_client_without_streams(client: Client) -> None:
    """spec: -32042 lists the pages to visit before the request is sent again (§Error Handling)."""
    reply = client.call("consent", accept="application/json")
    error = await reply.error()
    (page,) = error["data"]["elicitations"]
    assert error["code"] == -32042
    assert (page["mode"], page["url"]) == ("url", "https://pay.example/2")
    assert page["elicitationId"]
    assert reply.status == 200


# ------------------------------------------------------------------------ clients that cannot


async def test_a_client_without_streams(client: Client) -> None:
    """User report: elicitation without a stream hung for ever. It ends with a clear result, and
    notifications are dropped."""
    await client.request("logging/setLevel", {"level": "info"}).done()
    reply = client.call("book", {"flight": "LX1"}, accept="application/json")
    assert await failed(reply) == "This client cannot be asked: it accepts no text/event-stream"
    assert not reply.is_stream


@pytest.mark.parametrize(
    ("version", "capabilities", "tool", "lacks"),
    [
        ("2025-11-25", {}, "book", "elicitation (form)"),
        ("2025-11-25", {"elicitation": {"url": {}}}, "book", "elicitation (form)"),
        ("2025-11-25", {"elicitation": {}}, "pay", "elicitation (url)"),
        ("2025-06-18", {"elicitation": {"url": {}}}, "pay", "elicitation (url)"),
        ("2025-03-26", {"elicitation": {}}, "book", "elicitation (form)"),
        ("2025-11-25", {"elicitation": {}, "roots": {}}, "everything", "sampling"),
        ("2025-11-25", {"elicitation": {}, "sampling": {}}, "everything", "roots"),
    ],
)
async def test_what_was_not_declared_is_not_asked(
    desk: Desk, version: str, capabilities: Any, tool: str, lacks: str
) -> None:
    """spec: only use capabilities that were negotiated (lifecycle §Operation)."""
    async with session(desk.app, version, capabilities) as client:
        reply = client.call(tool, {"flight": "LX1"} if tool == "book" else {})
        said = f"This client cannot be asked: it has not declared {lacks}"
        assert await failed(reply) == said


async def test_a_prompt_that_may_not_ask(desk: Desk) -> None:
    """Decision: an error, where no result can say it."""
    async with session(desk.app, capabilities={}) as client:
        params = {"name": "plan", "arguments": {"city": "Bern"}}
        error = await client.request("prompts/get", params).error()
        assert error["code"] == -31001


async def test_a_choice_of_several_that_the_revision_does_not_have(desk: Desk) -> None:
    """spec: lists came to forms with 2025-11-25 (its changelog)."""
    async with session(desk.app, "2025-06-18") as client:
        assert "takes several choices" in await failed(client.call("tags"))
    async with session(desk.app) as client:
        call = client.call("tags")
        await client.accept(await call.next(), value=["b"])
        assert text_of(await call.result()) == "b"


async def test_several_blocks_are_several_messages(desk: Desk) -> None:
    """spec: a message had one block until 2025-11-25 (its changelog)."""
    for version, expected in (("2025-03-26", 2), ("2025-11-25", 1)):
        async with session(desk.app, version) as client:
            call = client.call("talk")
            ask = await call.next()
            assert len(ask["params"]["messages"]) == expected
            await client.answer(ask, POEM)
            assert text_of(await call.result()) == "roses"


# ----------------------------------------------------------------------------- limits, hostility


async def test_nobody_answers(client: Client) -> None:
    """spec: a timeout, and a cancellation for what was asked (lifecycle §Timeouts)."""
    call = client.call("hurry")
    a, b = await call.next(), await call.next()
    assert await failed(call) == "Nobody answered 'a', 'b' within 0.05 seconds"
    withdrawn = [m["params"]["requestId"] for m in call.messages[2:4]]
    assert withdrawn == [a["id"], b["id"]]
    assert (await client.accept(a, value="x")).status == 202  # too late; the race is nobody's fault


async def test_a_handler_that_is_never_ready(client: Client) -> None:
    """Decision: `not_yet()` is bounded by the same timeout."""
    assert await failed(client.call("never_ready")) == "Not finished within 0.05 seconds"


async def test_a_flood_of_questions() -> None:
    """Decision: a session has so many open questions and no more; when they end there is room."""
    desk = Desk(max_asks_per_session=2)
    async with session(desk.app) as client, session(desk.app) as other:
        calls = [client.call("consent") for _ in range(2)]
        asks = [await call.next() for call in calls]
        refused = await failed(client.call("consent"))
        assert refused == "Too many questions wait for answers in this session"
        await other.call("consent").next()
        await client.answer(asks[0], {"action": "accept"})
        await calls[0].result()
        await client.call("consent").next()


async def test_somebody_else_answers(client: Client, desk: Desk) -> None:
    """Decision: an answer counts in the session that was asked, which is one principal's."""
    call = client.call("consent")
    ask = await call.next()
    async with session(desk.app, headers={"x-user": "bob"}) as bob, session(desk.app) as other:
        for stranger in (bob, other):
            assert (await stranger.answer(ask, {"action": "decline"})).status == 202
        bobs = await bob.answer(ask, {"action": "decline"}, mcp_session_id=client.session_id)
        assert bobs.status == 404
    await client.answer(ask, {"action": "accept"})
    assert text_of(await call.result()) == "read"


async def test_an_answer_that_comes_twice(client: Client) -> None:
    """Decision: the first one counts."""
    call = client.call("both")
    a, b = await call.next(), await call.next()
    replies = [
        client.open("POST", {"jsonrpc": "2.0", "id": i, "result": answer(v)})
        for i, v in ((a["id"], "1"), (a["id"], "2"), (b["id"], "3"))
    ]
    for reply in replies:
        assert (await reply.done()).status == 202
    assert text_of(await call.result()) == "13"


def answer(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


class Watched(MemorySessionStore):
    """A store that shows what was published."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, bytes]] = []

    async def publish(self, topic: str, message: bytes) -> None:
        self.heard.append((topic, message))
        await super().publish(topic, message)


NEVER = "a" * 16 + "-" + "0" * 32


@pytest.mark.parametrize("ask_id", [1, "x", f"{NEVER}.0", f"{NEVER}.9", "a" * 5000])
async def test_answers_to_what_was_never_asked(ask_id: Any) -> None:
    """User report: accepted, and forgotten at once. All workers hear what is published, so
    megabytes of answers to nothing kept the answers of others from arriving."""
    store = Watched()
    async with session(Desk(sessions=store).app) as client:
        assert (await client.answer({"id": ask_id}, {"action": "accept"})).status == 202
        assert store.heard == []


async def test_only_the_first_answer_is_passed_on() -> None:
    """User report: it counts, so a worker does not bother others with what comes after it; nor with
    another spelling of a number, or the answer of another session."""
    store = Watched()
    desk = Desk(sessions=store)
    async with session(desk.app) as client, session(desk.app) as other:
        call = client.call("consent")
        ask = await call.next()
        await client.answer({"id": ask["id"] + "0"}, {"action": "decline"})
        await other.answer(ask, {"action": "decline"})
        assert store.heard == []
        for action in ("accept", "decline", "decline"):
            await client.answer(ask, {"action": action})
        assert text_of(await call.result()) == "read"
        assert len([topic for topic, _ in store.heard if topic.startswith("answer:")]) == 1


async def test_a_worker_remembers_so_many_answers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision: the memory is bounded; what it forgot is dropped where it arrives."""
    monkeypatch.setattr(asks, "_MAX_ANSWERED", 1)
    call = client.call("both")
    a, b = await call.next(), await call.next()
    for ask, value in ((a, "1"), (b, "3"), (a, "2")):
        assert (await client.answer(ask, answer(value))).status == 202
    assert text_of(await call.result()) == "13"


async def test_an_answer_while_secrets_are_replaced() -> None:
    """Decision: a worker that has another secret first knows the id all the same."""
    store, new = MemorySessionStore(), Secret("2026-09", bytes(range(1, 33)))
    one = Desk(sessions=store, keys=KeyRing(primary=SECRET, accepted=[new]))
    two = Desk(sessions=store, keys=KeyRing(primary=new, accepted=[SECRET]))
    async with session(one.app) as client:
        call = client.call("consent")
        ask = await call.next()
        client.app = two.app
        await client.answer(ask, {"action": "accept"})
        client.app = one.app
        assert text_of(await call.result()) == "read"


async def test_an_answer_to_a_question_that_is_not_there(client: Client) -> None:
    """Decision: numbers beyond those of the round are nobody's."""
    call = client.call("consent")
    ask = await call.next()
    await client.answer({"id": ask["id"].replace(".0", ".7")}, {"action": "decline"})
    await client.answer(ask, {"action": "accept"})
    assert text_of(await call.result()) == "read"


async def test_what_the_store_carries_is_sealed(desk: Desk) -> None:
    """Decision: its operator reads no answer and makes none, and cannot move one elsewhere."""
    store = Watched()
    desk = Desk(sessions=store)
    async with session(desk.app) as client:
        first, second = client.call("everything"), client.call("everything")
        asks = [await first.next() for _ in range(3)]
        others = [await second.next() for _ in range(3)]
        await client.accept(asks[0], value="confidential")
        topic, sealed = store.heard[-1]
        assert b"confidential" not in sealed
        elsewhere = topic.rpartition(":")[0] + ":" + others[0]["id"].partition(".")[0]
        forged = AESGCMCodec(KeyRing.of(SECRET)).seal(b"x\n[0,{},null]", purpose=b"answer")
        for message in (sealed, b"garbage", forged.encode()):
            await store.publish(elsewhere, message)
        await client.accept(others[0], value="Ann")
        for ask in others[1:]:
            told = {"roots": [{"uri": "file:///r"}]} if ask["method"] == "roots/list" else POEM
            await client.answer(ask, told)
        assert text_of(await second.result()) == "Ann roses file:///r"


async def test_an_answer_on_another_worker() -> None:
    """Decision: the store takes it to the worker that waits."""
    store = MemorySessionStore()
    one, two = Desk(sessions=store), Desk(sessions=store)
    async with session(one.app) as client:
        call = client.call("consent")
        ask = await call.next()
        client.app = two.app
        await client.answer(ask, {"action": "accept"})
        assert text_of(await call.result()) == "read"


async def test_a_principal_that_is_refused_in_a_later_round(client: Client, desk: Desk) -> None:
    """Decision: it is resolved again for every round; the status was sent long ago, so a tool's
    result says it and a prompt's error does."""
    call = client.call("consent", x_call="yes")
    params = {"name": "plan", "arguments": {"city": "Bern"}}
    prompt = client.request("prompts/get", params, x_call="yes")
    page, days = await call.next(), await prompt.next()
    desk.refuse_calls = 401
    await client.answer(page, {"action": "accept"})
    assert await failed(call) == "Not any more"
    await client.accept(days, value=3)
    error = await prompt.error()
    assert (error["code"], error["message"]) == (-32603, "Not any more")


async def test_a_principal_that_is_refused_before_anything_was_sent(desk: Desk) -> None:
    """Decision: then it is the response, whichever round it is."""
    async with session(desk.app) as client:
        desk.mcp.clock = lambda: desk.now
        call = client.call("not_yet_once", x_call="yes")
        with anyio.fail_after(20):
            await desk.waiting.wait()
        desk.refuse_calls = 401
        assert (await call.done()).status == 401


# --------------------------------------------------------------------------------- cancellation


@pytest.mark.parametrize("streams", [False, True])
async def test_a_call_is_cancelled(client: Client, desk: Desk, streams: bool) -> None:
    """spec: stop, free what it holds, send no response (basic/utilities/cancellation)."""
    meta = {"progressToken": 1}
    call = client.call("wait", {"streams": streams}, id="c", meta=meta)
    with anyio.fail_after(20):
        await desk.waiting.wait()
    await client.notify("notifications/cancelled", {"requestId": "other"})
    await client.notify("notifications/cancelled", {"requestId": "c", "reason": "bored"})
    await call.done()
    assert desk.happened == ["cancelled"]
    if streams:
        assert texts(call.messages) == ["notifications/progress"]
    else:
        assert (call.status, call.text) == (202, "")


async def test_a_question_is_cancelled(client: Client) -> None:
    """spec: the call that asked is cancelled, and its question with it."""
    call = client.call("consent", id=5)
    await call.next()
    await client.notify("notifications/cancelled", {"requestId": 5})
    await call.done()
    assert texts(call.messages) == ["elicitation/create"]


@pytest.mark.parametrize(
    "params", [{}, {"requestId": None}, {"requestId": True}, {"requestId": 99}]
)
async def test_cancellations_of_nothing(client: Client, desk: Desk, params: Any) -> None:
    """spec: invalid ones SHOULD be ignored (basic/utilities/cancellation §Error Handling)."""
    call = client.call("wait", id=1)
    with anyio.fail_after(20):
        await desk.waiting.wait()
    assert (await client.notify("notifications/cancelled", params)).status == 202
    desk.go_on.set()
    assert text_of(await call.result()) == "waited"


async def test_a_cancellation_of_a_long_id() -> None:
    """User report: ids are as long as their client likes; what all workers hear is not."""
    store = Watched()
    desk = Desk(sessions=store)
    async with session(desk.app) as client:
        call = client.call("wait", id="c" * 100_000)
        with anyio.fail_after(20):
            await desk.waiting.wait()
        for request_id in ("other", "c" * 100_000):
            await client.notify("notifications/cancelled", {"requestId": request_id})
        await call.done()
        assert desk.happened == ["cancelled"]
        assert max(len(message) for _, message in store.heard) < 100


async def test_another_sessions_cancellation(client: Client, desk: Desk) -> None:
    """Decision: a request's id is its session's."""
    call = client.call("wait", id=1)
    with anyio.fail_after(20):
        await desk.waiting.wait()
    async with session(desk.app) as other:
        await other.notify("notifications/cancelled", {"requestId": 1})
    desk.go_on.set()
    assert text_of(await call.result()) == "waited"


async def test_a_session_that_ends_cancels_its_calls(client: Client, desk: Desk) -> None:
    """Decision: nothing is kept for a session that is over."""
    call, question = client.call("wait"), client.call("consent")
    await question.next()
    with anyio.fail_after(20):
        await desk.waiting.wait()
    assert (await client.open("DELETE").done()).status == 204
    await call.done()
    await question.done()
    assert desk.happened == ["cancelled"]


async def test_a_session_that_ended_before_anybody_listened() -> None:
    """User report: ended between its check and the call, the session's call ran on."""

    class Late(MemorySessionStore):
        @asynccontextmanager
        async def listen(self, topic: str, *, limit: int = 16) -> AsyncIterator[Any]:
            if topic.startswith("session:"):
                await self.revoke(topic.partition(":")[2], ttl=60)
            async with super().listen(topic, limit=limit) as listener:
                yield listener

    desk = Desk(sessions=Late())
    async with session(desk.app) as client:
        call = await client.call("wait").done()
        assert (call.status, call.text) == (202, "")
        assert desk.happened == ["cancelled"]


# -------------------------------------------------------------------------- when the store is away


class Away(MemorySessionStore):
    """A store that can be cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.away: set[str] = set()

    def _reach(self, method: str) -> None:
        if method in self.away:
            raise SessionStoreUnavailable(f"no way to {method}")

    async def load(self, session: str) -> Any:
        self._reach("load")
        return await super().load(session)

    async def publish(self, topic: str, message: bytes) -> None:
        self._reach("publish")
        await super().publish(topic, message)

    def listen(self, topic: str, *, limit: int = 16) -> Any:
        self._reach("listen")
        return super().listen(topic, limit=limit)

    async def append(self, stream: str, event: bytes, *, ttl: float) -> str:
        self._reach("append")
        return await super().append(stream, event, ttl=ttl)

    async def set_log_level(self, session: str, level: str, *, ttl: float) -> None:
        self._reach("set_log_level")
        await super().set_log_level(session, level, ttl=ttl)

    async def revoke(self, session: str, *, ttl: float) -> None:
        self._reach("revoke")
        await super().revoke(session, ttl=ttl)


@pytest.fixture
def store() -> Away:
    return Away()


async def test_nobody_can_tell_whether_a_session_ended(store: Away) -> None:
    """Decision: fail closed, with a status that a client may try again after."""
    async with session(Desk(sessions=store).app) as client:
        store.away = {"load"}
        for reply in (client.request("ping"), client.open("GET"), client.open("DELETE")):
            await reply.done()
            assert reply.status == 503
            assert reply.messages[0]["error"]["data"] == {"retryable": True}
        store.away = {"revoke"}
        assert (await client.open("DELETE").done()).status == 503
        ask = await client.call("consent").next()
        store.away = {"publish"}
        assert (await client.answer(ask, {})).status == 503
        store.away = set()
        assert (await client.answer(ask, {"action": "accept"})).status == 202


async def test_a_setting_that_cannot_be_kept(store: Away) -> None:
    """Decision: an error that may be tried again."""
    async with session(Desk(sessions=store).app) as client:
        store.away = {"set_log_level"}
        error = await client.request("logging/setLevel", {"level": "info"}).error()
        assert error["data"] == {"retryable": True}


async def test_answers_that_could_not_arrive(store: Away) -> None:
    """Decision: nobody is asked then."""
    async with session(Desk(sessions=store).app) as client:
        store.away = {"listen"}
        error = await client.call("consent").error()
        assert error["data"] == {"retryable": True}


async def test_events_that_cannot_be_kept(store: Away) -> None:
    """Decision: they are sent all the same, without ids."""
    async with session(Desk(sessions=store).app) as client:
        store.away = {"append"}
        call = client.call("consent")
        await client.answer(await call.next(), {"action": "accept"})
        assert text_of(await call.result()) == "read"
        assert not any("id" in event for event in call.events)


# -------------------------------------------------------------------------------- what is left


async def test_nothing_is_left_of_asks(client: Client, desk: Desk) -> None:
    """Decision: nothing is kept for an abandoned question."""
    calls = [client.call("consent") for _ in range(3)]
    for call in calls:
        await call.next()
    await client.open("DELETE").done()
    for call in calls:
        await call.done()
    await asyncio.sleep(0)
    asks = desk.mcp._asks
    assert asks is not None
    assert len(asks) == 0


def test_the_answers_are_those_of_the_types() -> None:
    """Decision: what the tests answer is what a client would."""
    assert CreateMessageResult.model_validate(POEM).content == TextContent(text="roses")
