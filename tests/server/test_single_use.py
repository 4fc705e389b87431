"""single_use: what was presented once gets the stored response, and nothing else happens."""

import asyncio
import gc
import logging
import re
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from pydantic import Field

from fastapi_mcp_mrtr import (
    AESGCMCodec,
    Context,
    HandlerGroup,
    KeyRing,
    MCPError,
    MCPRouter,
    Rounds,
    Secret,
    ToolError,
    need_input,
    progress,
    step,
)
from fastapi_mcp_mrtr.server.single_use import CLOCK_TOLERANCE
from fastapi_mcp_mrtr.testing import MCPTestClient, Raw
from tests import wire

from .once import (
    KEY,
    REFUSED,
    SECRET,
    TRY_AGAIN,
    Clock,
    Desk,
    Store,
    answered,
    asked,
    current_user,
    error_of,
    keyed,
    result_bytes,
    send,
    text_of,
    worker,
)

pytestmark = pytest.mark.anyio

LEASE = 30.0
TTL = 600.0


def client_of(app: FastAPI, **headers: str) -> MCPTestClient:
    return MCPTestClient(app, headers=headers)


def router(store: Store | None = None, **options: Any) -> tuple[MCPRouter, MCPTestClient]:
    """A router for handlers of the test's own, and a client."""
    settings: dict[str, Any] = {"keys": SECRET, "single_use": True, "ledger": store or Store()}
    mcp = MCPRouter("own", version="1", principal=current_user, **{**settings, **options})
    app = FastAPI()
    app.include_router(mcp)
    return mcp, MCPTestClient(app)


# ---------------------------------------------------------------------- the same thing again


def test_the_same_last_round_gets_the_stored_response() -> None:
    """spec: MUST enforce single use server-side (mrtr §Server Requirements 5); user report."""
    desk = Desk()
    first = client_of(worker(Store(), desk)).begin_tool("pay", {"amount": 5})
    ends = [first.answer({"ok": True}) for _ in range(3)]
    assert len(desk.paid) == 1
    assert {result_bytes(end) for end in ends} == {result_bytes(ends[0])}
    assert len({end.reply.request["id"] for end in ends}) == 3
    assert ends[0].result.content[0].text == "Payment 1: True"  # type: ignore[union-attr]


def test_a_round_that_asks_is_stored_too() -> None:
    """decision: the next state must be the same one, or its flow would fork."""
    mcp, client = router()

    @mcp.tool()
    async def twice() -> Rounds[str]:
        a: str = yield need_input("a", "A?", str)
        b: str = yield need_input("b", "B?", str)
        yield a + b

    first = client.begin_tool("twice")
    second, again = first.answer({"a": "x"}), first.answer({"a": "x"})
    assert result_bytes(second) == result_bytes(again)
    assert second.request_state == again.request_state


def test_it_is_the_same_on_another_worker() -> None:
    """user report: a marker in process memory protects nothing with two replicas."""
    store, desk = Store(), Desk()
    one, other = (client_of(worker(store, desk)) for _ in range(2))
    first = one.begin_tool("pay", {"amount": 5})
    end = first.answer({"ok": True})
    params = end.reply.request["params"]
    elsewhere = other.request("tools/call", {k: v for k, v in params.items() if k != "_meta"})
    assert elsewhere.result == end.reply.result
    assert len(desk.paid) == 1


def test_other_answers_to_a_used_state_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """decision: the frozen error; the log says which check it was, and no answer."""
    desk = Desk()
    first = client_of(worker(Store(), desk)).begin_tool("pay", {"amount": 5})
    first.answer({"ok": True})
    error = first.answer({"ok": False}).error
    assert (error.code, error.message) == REFUSED
    assert len(desk.paid) == 1
    assert "requestState refused: used already: other answers" in caplog.text


def test_the_state_of_an_earlier_round_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """decision: the flow has moved on, even if the request is one that was answered then."""
    mcp, client = router()

    @mcp.tool()
    async def twice() -> Rounds[str]:
        a: str = yield need_input("a", "A?", str)
        b: str = yield need_input("b", "B?", str)
        yield a + b

    first = client.begin_tool("twice")
    first.answer({"a": "x"}).answer({"b": "y"})
    error = first.answer({"a": "x"}).error
    assert (error.code, error.message) == REFUSED
    assert "used already: earlier round" in caplog.text


def test_an_answer_that_does_not_fit_is_asked_again_with_a_new_state() -> None:
    """decision: the round has run, so its state is used; the flow goes on with the next one."""
    mcp, client = router()

    @mcp.tool()
    async def row() -> Rounds[int]:
        yield (yield need_input("row", "Row?", Annotated[int, Field(le=40)]))

    first = client.begin_tool("row")
    second = first.answer({"row": 41})
    assert "(" in second.asks["row"].message
    assert second.answer({"row": 40}).result.structured_content == 40
    assert first.answer({"row": 40}).error.code == REFUSED[0]


def fails_with(error: Exception) -> Callable[[MCPRouter, list[str]], None]:
    def register(mcp: MCPRouter, runs: list[str]) -> None:
        @mcp.tool("end")
        async def end() -> Rounds[str]:
            yield need_input("ok", "Ok?", bool)
            runs.append("ran")
            raise error

    return register


@pytest.mark.parametrize(
    "error",
    [
        ToolError("No."),
        HTTPException(409, "Gone."),
        RuntimeError("secret"),
        MCPError(-31900, "Own", {"a": 1}),
        MCPError(-31900, "Own", object()),
    ],
    ids=repr,
)
def test_a_failure_is_a_response_too(error: Exception) -> None:
    """decision: what failed half-way must not run again; its correlation id stays the same."""
    mcp, client = router()
    runs: list[str] = []
    fails_with(error)(mcp, runs)
    first = client.begin_tool("end")
    ends = [first.answer({"ok": True}).reply.message for _ in range(2)]
    assert runs == ["ran"]
    outcomes = [{k: v for k, v in (end or {}).items() if k != "id"} for end in ends]
    assert outcomes[0] == outcomes[1]


def test_prompts_and_resources_are_single_use_too() -> None:
    """decision: all three methods that may ask."""
    mcp, client = router()
    runs: list[str] = []

    @mcp.prompt()
    async def plan() -> Rounds[str]:
        days: int = yield need_input("days", "Days?", int)
        runs.append("prompt")
        yield f"{days} days, {len(runs)}"

    @mcp.resource("fare://{code}")
    async def fare(code: str) -> Rounds[str]:
        cabin: str = yield need_input("cabin", "Cabin?", str)
        runs.append("resource")
        yield f"{code} {cabin} {len(runs)}"

    prompt, resource = client.begin_prompt("plan"), client.begin_resource("fare://x")
    prompts = {result_bytes(prompt.answer({"days": 3})) for _ in range(2)}
    resources = {result_bytes(resource.answer({"cabin": "first"})) for _ in range(2)}
    assert (len(prompts), len(resources)) == (1, 1)
    assert runs == ["prompt", "resource"]


def test_a_stream_is_replayed_as_its_final_result() -> None:
    """decision: what the handler told meanwhile was told; the result comes as JSON."""
    mcp, client = router()

    @mcp.tool()
    async def export() -> Rounds[str]:
        yield need_input("ok", "Ok?", bool)
        yield progress(1, total=2)
        yield "done"

    first = client.begin_tool("export")
    streamed, again = first.answer({"ok": True}), first.answer({"ok": True})
    assert len(streamed.notifications) == 1
    assert again.notifications == ()
    assert again.reply.headers["content-type"] == "application/json"
    assert again.reply.result == streamed.reply.result


def test_bob_cannot_fetch_what_alice_was_told() -> None:
    """spec: SHOULD bind the state to its principal (mrtr §Server Requirements 5)."""
    app = worker(Store(), Desk())
    alice, bob = client_of(app), client_of(app, **{"x-user": "bob"})
    end = alice.begin_tool("pay", {"amount": 5}).answer({"ok": True})
    params = {k: v for k, v in end.reply.request["params"].items() if k != "_meta"}
    error = bob.request("tools/call", params).error
    assert (error.code, error.message) == REFUSED


@pytest.mark.parametrize(("router_wide", "own", "runs"), [(True, False, 2), (False, True, 1)])
def test_a_handler_overrides_the_router(router_wide: bool, own: bool, runs: int) -> None:
    """decision: the setting of the decorator counts."""
    mcp, client = router(single_use=router_wide)
    ran: list[str] = []

    @mcp.tool(single_use=own)
    async def end() -> Rounds[str]:
        yield need_input("ok", "Ok?", bool)
        ran.append("ran")
        yield "done"

    first = client.begin_tool("end")
    for _ in range(2):
        first.answer({"ok": True})
    assert len(ran) == runs


# ------------------------------------------------------------------- what uses nothing up


def test_answers_that_are_none_can_be_corrected() -> None:
    """decision: the handler came no further than before, so nothing was used."""
    desk = Desk()
    first = client_of(worker(Store(), desk)).begin_tool("pay", {"amount": 5})
    assert first.answer({"ok": Raw({"action": "what?"})}).error.code == -32602
    assert first.answer({"ok": True}).result.is_error is False
    assert desk.runs[-1] == (2, False)


def test_a_dependency_that_failed_can_be_tried_again() -> None:
    """decision: the handler did not run; a 503 of the database must not end the flow."""
    mcp, client = router()
    failing = [503]

    def database() -> None:
        if failing:
            raise HTTPException(failing.pop(), "Busy")

    @mcp.tool()
    async def end(ctx: Context, _: None = Depends(database)) -> Rounds[str]:
        yield need_input("ok", "Ok?", bool)
        yield f"takeover: {ctx.is_takeover}"

    failing.clear()
    first = client.begin_tool("end")
    failing.append(503)
    assert first.answer({"ok": True}).status_code == 503
    later = first.answer({"ok": True})
    assert later.result.content[0].text == "takeover: False"  # type: ignore[union-attr]


def test_a_capability_can_be_declared_later() -> None:
    """decision: the same state may be presented by a client that can ask; what ran is told."""
    mcp, client = router()

    @mcp.tool()
    async def end(ctx: Context) -> Rounds[str]:
        yield need_input("a", "A?", bool)
        yield need_input("b", f"B? {ctx.is_takeover}", bool)

    first = client.begin_tool("end")
    none: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {}}
    assert first.answer({"a": True}, meta=none).error.code == -32021
    assert first.answer({"a": True}).asks["b"].message == "B? True"


# ------------------------------------------------------------------------ the first request


def test_a_key_makes_the_first_request_single_use() -> None:
    """decision: without it, a call that is repeated and a second call look the same."""
    mcp, client = router()
    held: list[str] = []

    @mcp.tool()
    async def hold(flight: str) -> str:
        held.append(flight)
        return f"hold {len(held)}"

    rounds = [client.begin_tool("hold", {"flight": "LX1"}, meta={KEY: "a"}) for _ in range(3)]
    assert held == ["LX1"]
    assert len({result_bytes(round_) for round_ in rounds}) == 1
    client.call_tool("hold", {"flight": "LX1"}, meta={KEY: "b"})
    client.call_tool("hold", {"flight": "LX1"})
    assert len(held) == 3


def test_a_key_belongs_to_its_arguments(caplog: pytest.LogCaptureFixture) -> None:
    """decision: other arguments under a used key are a mistake, as with payment APIs."""
    mcp, client = router()

    @mcp.tool()
    async def hold(flight: str) -> str:
        return flight

    client.call_tool("hold", {"flight": "LX1"}, meta={KEY: "a"})
    error = client.begin_tool("hold", {"flight": "LX2"}, meta={KEY: "a"}).error
    assert (error.code, error.message) == REFUSED
    assert "used already: other answers" in caplog.text


def test_arguments_that_do_not_fit_use_no_key_up() -> None:
    """decision: nothing ran, so the client may correct them under the same key."""
    mcp, client = router()

    @mcp.tool()
    async def hold(row: Annotated[int, Field(le=40)]) -> str:
        return f"row {row}"

    @mcp.prompt()
    async def plan(days: int) -> str:
        return f"{days} days"

    assert client.call_tool("hold", {"row": 41}, meta={KEY: "a"}).is_error
    assert not client.call_tool("hold", {"row": 40}, meta={KEY: "a"}).is_error
    assert client.begin_prompt("plan", {"days": "x"}, meta={KEY: "a"}).error.code == -32602
    assert client.get_prompt("plan", {"days": "3"}, meta={KEY: "a"}).messages


def test_the_same_key_is_another_one_to_others() -> None:
    """decision: per principal, per handler, per audience; a client chooses among its own only."""
    store, ran = Store(), list[str]()

    def server(audience: str) -> FastAPI:
        mcp = MCPRouter(
            audience,
            version="1",
            principal=current_user,
            keys=SECRET,
            ledger=store,
            single_use=True,
        )

        @mcp.tool()
        async def one() -> str:
            ran.append("one")
            return "one"

        @mcp.tool()
        async def two() -> str:
            ran.append("two")
            return "two"

        app = FastAPI()
        app.include_router(mcp)
        return app

    first = server("first")
    for _ in range(2):
        client_of(first).call_tool("one", meta={KEY: "a"})
        client_of(first).call_tool("two", meta={KEY: "a"})
        client_of(first, **{"x-user": "bob"}).call_tool("one", meta={KEY: "a"})
        client_of(server("second")).call_tool("one", meta={KEY: "a"})
    assert len(ran) == 4


def test_a_flow_that_began_with_a_key_goes_on_as_one() -> None:
    """decision: the key names the flow, and once it went on the first request is used."""
    desk = Desk()
    client = client_of(worker(Store(), desk))
    first, again = (client.begin_tool("pay", {"amount": 5}, meta={KEY: "a"}) for _ in range(2))
    assert first.request_state == again.request_state
    assert desk.runs == [(1, False)]
    assert first.answer({"ok": True}).reply.result == again.answer({"ok": True}).reply.result
    assert len(desk.paid) == 1
    late = client.begin_tool("pay", {"amount": 5}, meta={KEY: "a"}).error
    assert (late.code, late.message) == REFUSED


@pytest.mark.parametrize("key", ["", "x" * 256, 5, ["a"], True])
def test_a_key_that_is_none_is_refused(key: Any) -> None:
    """decision: a client that believes itself safe must hear that it is not."""
    desk = Desk()
    error = client_of(worker(Store(), desk)).begin_tool("pay", {"amount": 5}, meta={KEY: key}).error
    assert error.code == -32602
    assert KEY in error.message
    assert desk.runs == []


@pytest.mark.parametrize("key", [None, "x" * 255, "\u20ac"])
def test_any_text_is_a_key_and_null_is_none(key: str | None) -> None:
    """decision: 255 characters, as most payment APIs allow; explicit null counts as absent."""
    desk = Desk()
    client = client_of(worker(Store(), desk))
    for _ in range(2):
        client.begin_tool("pay", {"amount": 5}, meta={KEY: key})
    assert len(desk.runs) == (2 if key is None else 1)


def test_a_key_means_nothing_to_a_handler_that_is_not_single_use() -> None:
    """decision: nor does a wrong one."""
    desk = Desk()
    client = client_of(worker(Store(), desk, single_use=False))
    for key in ("a", "a", 5):
        client.begin_tool("pay", {"amount": 5}, meta={KEY: key})
    assert len(desk.runs) == 3


# -------------------------------------------------------------------------- unasked answers


def accepting() -> tuple[MCPTestClient, list[Any]]:
    mcp, client = router()
    runs: list[Any] = []

    async def charge() -> None:
        runs.append("charge")

    @mcp.tool(unasked_answers="accept")
    async def pay(ctx: Context) -> Rounds[str]:
        ok: bool = yield need_input("ok", "Ok?", bool)
        yield step("charge", charge)
        sure: bool = yield need_input("sure", "Sure?", bool)
        runs.append((ok, sure, ctx.is_takeover))
        yield f"paid {len(runs)}"

    return client, runs


def unasked(client: MCPTestClient, **answers: Any) -> Any:
    params = {
        "name": "pay",
        "arguments": {},
        "inputResponses": {
            key: value
            if isinstance(value, dict)
            else {"action": "accept", "content": {"value": value}}
            for key, value in answers.items()
        },
    }
    return client.request("tools/call", params, meta={KEY: "a"})


def test_unasked_answers_are_part_of_what_was_said() -> None:
    """decision: where they count, the same key with other ones is another request."""
    client, runs = accepting()
    assert unasked(client, ok=True, sure=True).result == unasked(client, ok=True, sure=True).result
    assert runs == ["charge", (True, True, False)]
    error = unasked(client, ok=True, sure=False).error
    assert (error.code, error.message) == REFUSED


def test_an_unreadable_answer_after_a_step_uses_the_key_up() -> None:
    """decision: the step has run, so whoever comes next takes over, with the same answers."""
    client, runs = accepting()
    assert unasked(client, ok=True, sure={"action": "what?"}).error.code == -32602
    assert unasked(client, ok=True, sure=True).error.code == REFUSED[0]
    assert runs == ["charge"]


def test_an_unreadable_answer_before_every_step_can_be_corrected() -> None:
    """decision: nothing ran."""
    client, runs = accepting()
    assert unasked(client, ok={"action": "what?"}, sure=True).error.code == -32602
    assert unasked(client, ok=True, sure=True).result
    assert runs == ["charge", (True, True, False)]


# ----------------------------------------------------------------------------- registration


CHOICES = re.escape("MemoryLedger()") + ".*RedisLedger.*SQLLedger"


def test_single_use_needs_a_ledger() -> None:
    """decision: registration fails, and names the choices."""
    with pytest.raises(ValueError, match=CHOICES):
        MCPRouter("own", version="1", single_use=True)


REGISTRATIONS: list[Callable[[HandlerGroup], Any]] = [
    lambda group: group.tool("x", single_use=True)(lambda: "x"),
    lambda group: group.prompt("x", single_use=True)(lambda: "x"),
    lambda group: group.resource("x://x", name="x", single_use=True)(lambda: "x"),
]


@pytest.mark.parametrize("register", REGISTRATIONS, ids=["tool", "prompt", "resource"])
def test_a_single_use_handler_needs_a_ledger(register: Callable[[HandlerGroup], Any]) -> None:
    """decision: at the decorator, and at `include` for what a group has; nothing is registered."""
    mcp = MCPRouter("own", version="1")
    with pytest.raises(ValueError, match=f"is single_use, which needs a ledger: .*{CHOICES}"):
        register(mcp)
    group = HandlerGroup()
    register(group)
    with pytest.raises(ValueError, match=CHOICES):
        mcp.include(group)
    app = FastAPI()
    app.include_router(mcp)
    assert MCPTestClient(app).discover().capabilities.tools is None


def test_a_group_that_was_included_cannot_slip_one_in() -> None:
    """decision: groups are live, so the condition is too."""
    mcp, group = MCPRouter("own", version="1"), HandlerGroup()
    mcp.include(group)
    with pytest.raises(ValueError, match=CHOICES):
        group.tool("x", single_use=True)(lambda: "x")


@pytest.mark.parametrize("setting", ["lease", "max_response_bytes"])
def test_limits_are_positive(setting: str) -> None:
    """decision: a setting that makes no sense stops the import."""
    with pytest.raises(ValueError, match=f"{setting} must be positive"):
        MCPRouter("own", version="1", **{setting: 0})  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- what is stored


def test_whoever_reads_the_store_reads_no_answer() -> None:
    """decision: responses are sealed with the key ring, digests of answers are keyed."""
    store, desk = Store(), Desk()
    mcp, client = router(store)

    @mcp.tool()
    async def tell() -> Rounds[str]:
        word: str = yield need_input("word", "Word?", str)
        yield f"You said {word}"

    first = client.begin_tool("tell", meta={KEY: "my-key"})
    first.answer({"word": "swordfish"})
    (record,) = store.records.values()
    assert record.response
    for secret in (b"swordfish", b"said", b"alice", b"my-key"):
        assert secret not in repr(record).encode()
    assert desk.paid == []


def test_the_same_answer_looks_different_under_other_secrets() -> None:
    """decision: so the store's operator cannot guess answers and compare digests."""
    prints = []
    for secret in (SECRET, Secret("2026-08", bytes(range(50, 82)))):
        store = Store()
        client = client_of(worker(store, Desk(), keys=secret))
        client.begin_tool("pay", {"amount": 5}).answer({"ok": True})
        (record,) = store.records.values()
        prints.append(record.fingerprint)
    assert prints[0] != prints[1]


def two_answered(store: Store) -> tuple[Any, Any]:
    client = client_of(worker(store, Desk()))
    rounds = client.begin_tool("pay", {"amount": 5}), client.begin_tool("pay", {"amount": 6})
    for round_ in rounds:
        round_.answer({"ok": True})
    return rounds


def test_a_response_cannot_be_moved_to_another_flow(caplog: pytest.LogCaptureFixture) -> None:
    """decision: whoever can write to the store must not hand one caller another's response."""
    store = Store()
    first, _ = two_answered(store)
    one, other = store.inner._records.values()
    one.response = other.response
    error = first.answer({"ok": True}).error
    assert (error.code, error.message) == REFUSED
    assert "stored response of another flow" in caplog.text


@pytest.mark.parametrize("forged", [b"", b"x" * 100, b"\xff"])
def test_a_response_that_was_tampered_with_is_refused(
    forged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: fail closed; nothing runs again because its record is broken."""
    store = Store()
    first, _ = two_answered(store)
    next(iter(store.inner._records.values())).response = forged
    error = first.answer({"ok": True}).error
    assert (error.code, error.message) == REFUSED
    assert "stored response: " in caplog.text


def large(store: Store, **options: Any) -> tuple[MCPTestClient, list[str]]:
    mcp, client = router(store, max_response_bytes=1000, **options)
    runs: list[str] = []

    @mcp.tool()
    async def dump(ctx: Context, size: int) -> str:
        runs.append("ran")
        ctx.on_commit(runs.append, "committed")
        return "x" * size

    @mcp.tool()
    async def fail() -> str:
        runs.append("failed")
        raise MCPError(-31900, "x" * 1000)

    return client, runs


def test_a_response_is_limited_in_size(caplog: pytest.LogCaptureFixture) -> None:
    """decision: the store is no file server; the log says what to do, and the flow has ended."""
    client, runs = large(Store())
    ends = [client.begin_tool("dump", {"size": 2000}, meta={KEY: "a"}).error for _ in range(2)]
    assert [end.code for end in ends] == [-32603] * 2
    assert ends[0].data == ends[1].data
    assert runs == ["ran"]
    assert "over the 1000 that a ledger keeps. Return a link" in caplog.text
    client.call_tool("dump", {"size": 100}, meta={KEY: "b"})
    assert runs == ["ran", "ran", "committed"]


def test_an_error_is_limited_in_size_too() -> None:
    """decision: a handler chooses its message."""
    client, runs = large(Store())
    ends = [client.begin_tool("fail", meta={KEY: "a"}).error for _ in range(2)]
    assert [end.code for end in ends] == [-32603] * 2
    assert runs == ["failed"]


def test_a_random_secret_is_warned_of_before_anything_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """decision: after a restart nobody can open what is stored, states or not."""
    mcp, client = router(keys=None)

    @mcp.tool()
    async def hold() -> str:
        return "held"

    client.call_tool("hold", meta={KEY: "a"})
    assert "No keys= configured" in caplog.text


# ------------------------------------------------------------------------------ the secrets


OLD, NEW = SECRET, Secret("2026-11", bytes(range(100, 132)))
PHASES = [
    KeyRing(primary=OLD),
    KeyRing(primary=OLD, accepted=[NEW]),
    KeyRing(primary=NEW, accepted=[OLD]),
    KeyRing(primary=NEW),
]


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (2, 1), (1, 0)])
async def test_replacing_the_secret_uses_no_state_twice(before: int, after: int) -> None:
    """decision: workers of two deployments serve the same flow while the secret is replaced."""
    store, desk = Store(), Desk()
    one, other = (worker(store, desk, keys=PHASES[phase]) for phase in (before, after))
    state = await asked(one)
    ends = [await send(app, answered(state)) for app in (one, other, one)]
    assert len({result_bytes(end) for end in ends}) == 1
    assert len(desk.paid) == 1
    assert error_of(await send(other, answered(state, ok=False)))["code"] == REFUSED[0]


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (2, 1), (2, 3), (3, 2)])
async def test_replacing_the_secret_uses_no_key_twice(before: int, after: int) -> None:
    """decision: a first request has no state that would name its secret."""
    store, desk = Store(), Desk()
    body = keyed(wire.call("pay", {"amount": 5}))
    for phase in (before, after, before):
        await send(worker(store, desk, keys=PHASES[phase]), body)
    assert len(desk.runs) == 1


async def test_a_retired_secret_opens_no_stored_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """decision: a secret that leaked is retired at once; what it sealed is lost, not run again."""
    store, desk = Store(), Desk()
    body = keyed(wire.call("pay", {"amount": 5}))
    await send(worker(store, desk, keys=PHASES[0]), body)
    error = error_of(await send(worker(store, desk, keys=PHASES[3]), body))
    assert (error["code"], error["message"]) == REFUSED
    assert len(desk.runs) == 1
    assert "stored response: sealed under an unknown kid" in caplog.text


async def test_a_codec_of_ones_own_seals_responses(caplog: pytest.LogCaptureFixture) -> None:
    """decision: a KMS may take the place of the built-in codec, and may fail as it likes."""

    class Codec:
        def __init__(self) -> None:
            self.inner = AESGCMCodec(KeyRing(primary=SECRET))
            self.purposes: list[bytes] = []

        def seal(self, payload: bytes, *, purpose: bytes) -> str:
            self.purposes.append(purpose)
            return self.inner.seal(payload, purpose=purpose)

        def unseal(self, token: str, *, purpose: bytes) -> bytes:
            if purpose == b"stored-response":
                raise OSError("no KMS")
            return self.inner.unseal(token, purpose=purpose)

    codec = Codec()
    app = worker(Store(), Desk(), codec=codec)
    state = await asked(app)
    await send(app, answered(state))
    assert codec.purposes == [b"request-state", b"stored-response"]
    assert error_of(await send(app, answered(state)))["message"] == REFUSED[1]
    assert "stored response: OSError" in caplog.text


# ----------------------------------------------------------------------------------- time


async def test_a_record_is_gone_when_its_states_are() -> None:
    """decision: nothing is left behind; `CLOCK_TOLERANCE` is all it stays longer."""
    store = Store()
    await send(worker(store, Desk(), ttl=60), keyed(wire.call("pay", {"amount": 5})))
    assert len(store.inner) == 1
    store.clock.now += 60 + LEASE + CLOCK_TOLERANCE
    await store.inner.renew("any", 0, "nobody", lease=1)
    assert len(store.inner) == 0


async def test_a_state_of_a_longer_ttl_stays_used() -> None:
    """decision: a deployment with a shorter ttl meets states of the one before."""
    store, desk, clock = Store(), Desk(), Clock()
    day = 86400.0
    before, after = (
        worker(store, desk, ttl=ttl, flow_lifetime=day, clock=clock) for ttl in (day, 1.0)
    )
    state = await asked(before)
    await send(after, answered(state))
    for passing in (clock, store.clock):
        passing.now += day - 60
    assert text_of(await send(after, answered(state))) == "Payment 1: True"
    assert len(desk.paid) == 1


async def test_a_clock_set_back_revives_no_used_state() -> None:
    """decision: an hour back, a state that had expired is good again; it is still used."""
    store, desk, clock = Store(), Desk(), Clock()
    app = worker(store, desk, clock=clock)
    state = await asked(app)
    await send(app, answered(state))
    passed = TTL + CLOCK_TOLERANCE - 1
    store.clock.now += passed
    clock.now += passed
    assert error_of(await send(app, answered(state)))["code"] == REFUSED[0]
    clock.now -= CLOCK_TOLERANCE
    assert text_of(await send(app, answered(state))) == "Payment 1: True"
    assert error_of(await send(app, answered(state, ok=False)))["code"] == REFUSED[0]
    assert len(desk.paid) == 1


async def test_a_clock_set_forward_ends_states_and_no_claim() -> None:
    """decision: leases go by the store's clock; the wall clock of a worker is not theirs."""
    store, desk, clock = Store(), Desk(), Clock()
    app = worker(store, desk, clock=clock)
    state = await asked(app)
    desk.go_on.clear()
    running = asyncio.ensure_future(send(app, answered(state)))
    await desk.arrived.wait()
    clock.now += 3600
    assert error_of(await send(app, answered(state)))["code"] == REFUSED[0]
    desk.go_on.set()
    assert text_of(await running) == "Payment 1: True"
    clock.now -= 3600
    assert text_of(await send(app, answered(state))) == "Payment 1: True"
    assert desk.runs == [(1, False), (2, False)]


# --------------------------------------------------------------------------------- no ledger


def test_a_ledger_that_nobody_uses_is_left_alone() -> None:
    """decision: handlers that are not single-use, and first requests without a key cost nothing."""
    store = Store()
    client = client_of(worker(store, Desk()))
    client.begin_tool("pay", {"amount": 5})
    client.list_tools()
    assert store.calls == []


def test_a_store_that_breaks_its_word_runs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """decision: a ledger of one's own may raise anything; the call fails closed."""

    class Broken(Store):
        async def claim(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("no route")

    desk = Desk()
    error = (
        client_of(worker(Broken(), desk)).begin_tool("pay", {"amount": 5}, meta={KEY: "a"}).error
    )
    assert error.code == -32603
    assert desk.runs == []
    assert "no route" in caplog.text


def test_an_unreachable_ledger_fails_closed(caplog: pytest.LogCaptureFixture) -> None:
    """decision: a retryable error, the reason in the log, and no restart when it is back."""
    store, desk = Store(), Desk()
    first = client_of(worker(store, desk)).begin_tool("pay", {"amount": 5})
    store.away = {"claim"}
    error = first.answer({"ok": True}).error
    assert {"code": error.code, "message": error.message, "data": error.data} == TRY_AGAIN
    assert desk.paid == []
    assert "the ledger is unavailable: no way to claim" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    store.away.clear()
    assert first.answer({"ok": True}).result.is_error is False
    assert desk.runs[-1] == (2, False)


async def test_single_use_leaves_nothing_to_the_cycle_collector() -> None:
    """decision: zero objects a call, replayed or not, is what keeps p99 low."""
    store, desk = Store(), Desk()
    app = worker(store, desk, max_rounds=2)
    bodies = [answered(await asked(app)) for _ in range(20)]
    for body in bodies[:10]:
        await send(app, body)
    gc.collect()
    gc.disable()
    try:
        for body in bodies:
            await send(app, body)
        assert gc.collect() == 0
    finally:
        gc.enable()
