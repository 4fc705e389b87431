"""A call of an older client that is made again, with the idempotency key it had before."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Header

from fastapi_mcp_mrtr import (
    Context,
    MCPRouter,
    MemorySessionStore,
    Rounds,
    Secret,
    need_input,
    not_yet,
    step,
)
from tests.older import Client, Reply, session
from tests.server.once import Store, until

pytestmark = pytest.mark.anyio

KEY = {"io.github.fastapi-mcp-mrtr/idempotencyKey": "order-1"}
SECRET = Secret("2026-08", bytes(range(32)))
LEASE = 30.0


@dataclass
class World:
    """Two workers with what they share, and what their handlers did."""

    store: Store = field(default_factory=Store)
    sessions: MemorySessionStore = field(default_factory=MemorySessionStore)
    happened: list[str] = field(default_factory=list)
    """Steps and effects, and which rounds ran; those that took over with an exclamation mark."""
    hung: bool = False
    """Whether the end of a call does not come."""
    ready: bool = False
    now: float = 1_785_000_000.0
    here: FastAPI = field(init=False)
    there: FastAPI = field(init=False)

    def __post_init__(self) -> None:
        self.here, self.there = self.worker(), self.worker()

    def worker(self) -> FastAPI:
        mcp = MCPRouter(
            "desk",
            version="1",
            keys=SECRET,
            ledger=self.store,
            sessions=self.sessions,
            single_use=True,
            lease=LEASE,
            principal=self.user,
            clock=lambda: self.now,
        )
        self.handlers(mcp)
        app = FastAPI()
        app.include_router(mcp)
        return app

    def user(self, x_user: Annotated[str, Header()] = "alice") -> str:
        return x_user

    def begun(self, ctx: Context) -> None:
        self.happened.append(f"round {ctx.round}{'!' * ctx.is_takeover}")

    def charge(self) -> str:
        self.happened.append("charge")
        return "receipt"

    def handlers(self, mcp: MCPRouter) -> None:
        @mcp.tool()
        async def order(what: str, ctx: Context) -> Rounds[str]:
            self.begun(ctx)
            where: str = yield need_input("where", f"Where to, with the {what}?", str)
            receipt: str = yield step("charge", self.charge)
            when: str = yield need_input("when", f"When? {receipt}", str)
            self.happened.append(f"deliver {ctx.idempotency_key('deliver')}")
            if self.hung:
                await asyncio.Event().wait()
            yield f"{what} to {where}, {when}"

        @mcp.tool()
        async def three(ctx: Context) -> Rounds[str]:
            self.begun(ctx)
            said: list[str] = []
            for n in "abc":
                answer: str = yield need_input(n, f"{n}?", str)
                said.append(answer)
            yield "".join(said)

        @mcp.tool()
        async def patient(ctx: Context) -> Rounds[str]:
            ok: bool = yield need_input("ok", "OK?", bool)
            while not self.ready:
                self.begun(ctx)
                yield not_yet()
            yield f"ready {ok}"

        @mcp.tool()
        async def removed() -> Rounds[str]:
            mcp.remove_tool("removed")
            yield need_input("a", "A?", str)

        @mcp.tool(single_use=False)
        async def any_time() -> Rounds[str]:
            a: str = yield need_input("a", "A?", str)
            yield a

        @mcp.prompt()
        async def plan(city: str) -> Rounds[str]:
            self.happened.append("plan")
            days: int = yield need_input("days", f"How long in {city}?", int)
            yield f"{days} days in {city}"

        @mcp.resource("desk://cabin/{name}")
        async def cabin(name: str) -> Rounds[str]:
            self.happened.append("cabin")
            which: str = yield need_input("which", "Which?", str)
            yield f"{name}: {which}"


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with session(world.here) as opened:
        yield opened


@pytest.fixture
async def other(world: World, client: Client) -> AsyncIterator[Client]:
    """The same session, on the other worker."""
    there = Client(world.there)
    there.session_id = client.session_id
    yield there
    await there.close()


def order(client: Client, what: str = "cake") -> Reply:
    return client.call("order", {"what": what}, meta=KEY)


async def answered(client: Client, call: Reply, value: Any) -> str:
    """Answer the next question of a call. Returns what it was."""
    ask = await call.next()
    await client.accept(ask, value=value)
    message: str = ask["params"]["message"]
    return message


@asynccontextmanager
async def lost_as_it_answers(
    world: World, client: Client, call: Reply, ask: Mapping[str, Any]
) -> AsyncIterator[None]:
    """Answer an ask of a call whose worker dies once the answer is kept and nothing has run."""
    held_up = world.store.held_up["answer"] = asyncio.Event()
    calls = world.store.calls.count("answer")
    await client.accept(ask, value="Rome")
    await until(lambda: world.store.calls.count("answer") > calls)
    call.task.cancel()
    del world.store.held_up["answer"]
    yield
    held_up.set()


async def text(call: Reply) -> str:
    result = await call.result()
    said: str = result["content"][0]["text"]
    return said


async def test_lost_while_a_later_question_waits(
    world: World, client: Client, other: Client
) -> None:
    """user report: the worker died while the second question waited, and the call was refused for
    ever. It goes on with that question, and nothing that a step recorded runs again."""
    lost = order(client)
    await answered(client, lost, "Rome")
    waiting = await lost.next()
    again = order(other)
    assert await answered(other, again, "today") == waiting["params"]["message"]
    assert await text(again) == "cake to Rome, today"
    assert world.happened[:-1] == ["round 1", "round 2", "charge", "round 3"]


async def test_a_finished_call(world: World, client: Client, other: Client) -> None:
    """user report: the result got lost. The same call gets it again, and nothing runs."""
    call = order(client)
    for answer in ("Rome", "today"):
        await answered(client, call, answer)
    result = await call.result()
    happened = list(world.happened)
    for worker in (other, client, other):
        assert await order(worker).result() == result
    assert world.happened == happened


async def test_a_finished_prompt_and_resource(world: World, client: Client, other: Client) -> None:
    """decision: what holds for tools holds for prompts and resources."""
    requests: list[tuple[str, dict[str, Any], Any]] = [
        ("prompts/get", {"name": "plan", "arguments": {"city": "Rome"}}, 3),
        ("resources/read", {"uri": "desk://cabin/Eva"}, "7"),
    ]
    for method, params, answer in requests:
        call = client.request(method, {**params, "_meta": KEY})
        await answered(client, call, answer)
        result = await call.result()
        again = other.request(method, {**params, "_meta": KEY})
        assert await again.result() == result
    assert world.happened == ["plan", "plan", "cabin", "cabin"]


async def test_a_worker_that_dies_in_the_last_round(
    world: World, client: Client, other: Client
) -> None:
    """decision: another one takes over with the answers that were given. It is told so, and what it
    does has the same idempotency key."""
    world.hung = True
    lost = order(client)
    for answer in ("Rome", "today"):
        await answered(client, lost, answer)
    await until(lambda: world.happened[-1].startswith("deliver"))
    world.store.away = {"release"}
    lost.task.cancel()
    await asyncio.wait([lost.task])
    world.store.away.clear()
    world.hung = False
    world.store.clock.now += LEASE
    again = order(other)
    assert await text(again) == "cake to Rome, today"
    assert len(again.messages) == 1
    *before, delivered, once_more, delivered_again = world.happened
    assert before == ["round 1", "round 2", "charge", "round 3"]
    assert once_more == "round 3!"
    assert delivered == delivered_again


async def test_a_worker_that_dies_between_answer_and_round(
    world: World, client: Client, other: Client
) -> None:
    """decision: an answer that was given counts, and nobody is asked for it again."""
    lost = order(client)
    ask = await lost.next()
    async with lost_as_it_answers(world, client, lost, ask):
        again = order(other)
        assert await answered(other, again, "today") == "When? receipt"
        assert await text(again) == "cake to Rome, today"


async def test_answered_otherwise_in_two_calls(world: World, client: Client, other: Client) -> None:
    """decision: the first answer counts. Who gave another one reads so, and may learn the end."""
    first, second = order(client), order(other)
    asks = [await call.next() for call in (first, second)]
    await client.accept(asks[0], value="Rome")
    await answered(client, first, "today")
    assert await text(first) == "cake to Rome, today"
    await other.accept(asks[1], value="Oslo")
    result = await second.result()
    assert result["isError"] is True
    assert "answered otherwise meanwhile" in result["content"][0]["text"]
    assert await text(order(other)) == "cake to Rome, today"
    assert world.happened.count("charge") == 1


async def test_answered_otherwise_before_anything_ran(
    world: World, client: Client, other: Client
) -> None:
    """decision: the answer that was first counts even if its worker died before it did anything, so
    the call can still be finished."""
    lost, second = order(client), order(other)
    asks = [await call.next() for call in (lost, second)]
    async with lost_as_it_answers(world, client, lost, asks[0]):
        await other.accept(asks[1], value="Oslo")
        assert "answered otherwise meanwhile" in await text(second)
        assert world.happened == ["round 1"]
        again = order(other)
        assert await answered(other, again, "today") == "When? receipt"
        assert await text(again) == "cake to Rome, today"


async def test_answered_alike_in_two_calls(world: World, client: Client, other: Client) -> None:
    """decision: then they are one call, and both get its end."""
    first, second = order(client), order(other)
    asks = [await call.next() for call in (first, second)]
    await client.accept(asks[0], value="Rome")
    await answered(client, first, "today")
    assert await text(first) == "cake to Rome, today"
    await other.accept(asks[1], value="Rome")
    assert await text(second) == "cake to Rome, today"
    assert world.happened.count("charge") == 1


async def test_a_call_that_has_gone_further(client: Client, other: Client) -> None:
    """decision: a call whose question was answered in another one meanwhile goes on from there."""
    first, second = (worker.call("three", meta=KEY) for worker in (client, other))
    ask = await second.next()
    for answer in "xyz":
        await answered(client, first, answer)
    assert await text(first) == "xyz"
    await other.accept(ask, value="late")
    assert await text(second) == "xyz"


async def test_waiting_for_something_else(
    world: World, client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: a round that only waits is a round like others, for who makes the call again."""
    monkeypatch.setattr("fastapi_mcp_mrtr.server.older.bridge._FIRST_PAUSE", 0.001)
    lost = client.call("patient", meta=KEY)
    await answered(client, lost, value=True)
    await until(lambda: len(world.happened) >= 3)
    lost.task.cancel()
    await asyncio.wait([lost.task])
    again = other.call("patient", meta=KEY)
    rounds = len(world.happened)
    await until(lambda: len(world.happened) > rounds)
    world.ready = True
    assert await text(again) == "ready True"
    assert len(set(world.happened)) == len(world.happened)


async def test_an_answer_that_is_none(world: World, client: Client, other: Client) -> None:
    """decision: it uses nothing up: who makes the call again is asked again."""
    call = order(client)
    await client.answer(await call.next(), {"action": "perhaps"})
    assert (await call.error())["code"] == -32602
    again = order(other)
    assert await answered(other, again, "Rome") == "Where to, with the cake?"
    assert await answered(other, again, "today") == "When? receipt"
    assert await text(again) == "cake to Rome, today"


@pytest.mark.parametrize("what", ["other arguments", "too late"])
async def test_a_key_that_is_used_up(world: World, client: Client, what: str) -> None:
    """decision: the client reads what it can do, whatever the ledger has against the call."""
    call = order(client)
    await answered(client, call, "Rome")
    await call.next()
    if what == "too late":
        world.now += 601
    again = order(client, "pie" if what == "other arguments" else "cake")
    error = await again.error()
    assert error["code"] == -32602
    assert error["message"].endswith("Begin anew with another key")
    assert world.happened == ["round 1", "round 2", "charge"]


async def test_a_key_of_somebody_else(world: World, client: Client) -> None:
    """hostile: who guesses a key learns nothing of its call."""
    await answered(client, order(client), "Rome")
    async with session(world.there, headers={"x-user": "mallory"}) as mallory:
        assert (await order(mallory).next())["params"]["message"] == "Where to, with the cake?"


@pytest.mark.parametrize("meta", [None, KEY])
async def test_a_state_that_is_refused_without_a_ledger(
    world: World, client: Client, meta: Any
) -> None:
    """decision: a call that cannot be made again ends with the frozen error."""
    call = client.call("any_time", meta=meta)
    ask = await call.next()
    world.now += 601
    await client.accept(ask, value="x")
    error = await call.error()
    assert (error["code"], error["message"]) == (-32602, "Invalid or expired requestState")


async def test_a_ledger_that_is_away_for_an_answer(world: World, client: Client) -> None:
    """decision: nothing runs, the client may try again, and is asked again."""
    call = order(client)
    ask = await call.next()
    world.store.away = {"claim"}
    await client.accept(ask, value="Rome")
    assert (await call.error())["code"] == -31003
    world.store.away.clear()
    again = order(client)
    assert await answered(client, again, "Oslo") == "Where to, with the cake?"
    await answered(client, again, "today")
    assert await text(again) == "cake to Oslo, today"


async def test_a_tool_that_is_removed_while_it_asks(client: Client) -> None:
    """decision: there is no such tool any more, for the answer as for everybody."""
    call = client.call("removed", meta=KEY)
    await answered(client, call, "x")
    assert (await call.error())["message"] == "Unknown tool: removed"


async def test_a_repeated_call_of_today(world: World, client: Client, other: Client) -> None:
    """decision: the key is the same on every revision, so nothing runs twice across them either."""
    call = order(client)
    await answered(client, call, "Rome")
    await call.next()
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        **KEY,
    }
    today = Client(world.there)
    reply = today.call(
        "order",
        {"what": "cake"},
        meta=meta,
        mcp_protocol_version="2026-07-28",
        mcp_method="tools/call",
        mcp_name="order",
    )
    assert (await reply.error())["message"] == "Invalid or expired requestState"
    assert world.happened == ["round 1", "round 2", "charge"]
