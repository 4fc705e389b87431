"""A claim while its round runs: those who wait for it, who leave, who crash, who take over."""

import asyncio
import logging
import threading
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from fastapi_mcp_mrtr import Context, MCPRouter, Rounds, need_input, step
from fastapi_mcp_mrtr.state.ledger import Claim
from tests import wire

from .once import (
    REFUSED,
    SECRET,
    TRY_AGAIN,
    Desk,
    Store,
    answered,
    asked,
    error_of,
    keyed,
    result_bytes,
    send,
    text_of,
    until,
    worker,
)

pytestmark = pytest.mark.anyio

LEASE = 30.0


def start(app: FastAPI, body: dict[str, Any]) -> tuple[wire.Exchange, "asyncio.Task[Any]"]:
    exchange = wire.Exchange(app, body)
    return exchange, asyncio.ensure_future(exchange.run())


async def started(app: FastAPI, desk: Desk, body: dict[str, Any]) -> Any:
    """A request whose handler has come to where it waits for `desk.go_on`."""
    desk.go_on.clear()
    desk.arrived.clear()
    exchange, task = start(app, body)
    with anyio.fail_after(30):
        await desk.arrived.wait()
    return exchange, task


async def crashed(app: FastAPI, store: Store, desk: Desk, body: dict[str, Any]) -> None:
    """A worker dies in the middle of the round: it tells nobody."""
    _, task = await started(app, desk, body)
    store.away = {"release"}
    task.cancel()
    await asyncio.wait([task])
    store.away.clear()
    desk.go_on.set()


# ---------------------------------------------------------------------------- at the same time


async def test_identical_requests_at_the_same_moment_run_once() -> None:
    """user report: the final round sent twice at the same moment paid twice."""
    store, desk = Store(), Desk()
    apps = [worker(store, desk) for _ in range(2)]
    state = await asked(apps[0])
    _, running = await started(apps[0], desk, answered(state))
    waiting = [start(app, answered(state, id=n))[1] for n, app in enumerate(apps * 3)]
    await until(lambda: store.calls.count("claim") > len(waiting))
    desk.go_on.set()
    replies = await asyncio.gather(running, *waiting)
    assert len({result_bytes(reply) for reply in replies}) == 1
    assert desk.runs == [(1, False), (2, False)]
    assert len(desk.paid) == 1


async def test_other_answers_are_refused_while_it_runs() -> None:
    """decision: whoever was first has used the state, although there is no response yet."""
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    _, running = await started(app, desk, answered(state))
    error = error_of(await send(app, answered(state, ok=False)))
    assert (error["code"], error["message"]) == REFUSED
    desk.go_on.set()
    assert text_of(await running) == "Payment 1: True"


async def test_who_waits_may_leave() -> None:
    """spec: disconnecting cancels (streamable-http §Cancellation); nobody else notices."""
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    _, running = await started(app, desk, answered(state))
    waiter, waiting = start(app, answered(state))
    await until(lambda: store.calls.count("claim") > 1)
    waiter.left.set()
    await waiting
    assert waiter.status == 499
    assert "release" not in store.calls
    desk.go_on.set()
    assert text_of(await running) == "Payment 1: True"


# ------------------------------------------------------------------------------ who was first


async def test_who_leaves_while_it_runs_can_come_back(caplog: pytest.LogCaptureFixture) -> None:
    """decision: the handler is cancelled; the same request takes over, at once."""
    caplog.set_level(logging.INFO)
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    first, running = await started(app, desk, answered(state))
    first.left.set()
    await running
    assert desk.paid == []
    desk.go_on.set()
    assert text_of(await send(app, answered(state))) == "Payment 1: True"
    assert desk.runs[1:] == [(2, False), (2, True)]
    assert error_of(await send(app, answered(state, ok=False)))["code"] == REFUSED[0]
    assert max(record.levelno for record in caplog.records[:1]) == logging.INFO


async def test_who_leaves_when_it_has_run_loses_nothing() -> None:
    """decision: what was done is recorded, whoever is there to hear of it."""
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    store.held_up["answer"] = asyncio.Event()
    first, running = start(app, answered(state))
    await until(lambda: "answer" in store.calls)
    first.left.set()
    for _ in range(3):  # and whatever stands around the app cancels it, again and again
        running.cancel()
        await asyncio.sleep(0)
    assert not running.done()
    store.held_up.pop("answer").set()
    await asyncio.wait([running])
    assert running.cancelled()
    assert text_of(await send(app, answered(state))) == "Payment 1: True"
    assert desk.runs == [(1, False), (2, False)]


async def test_a_cancelled_request_gives_its_claim_up() -> None:
    """decision: middleware with a timeout cancels; the next one need not wait for the lease."""
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    _, running = await started(app, desk, answered(state))
    running.cancel()
    await asyncio.wait([running])
    desk.go_on.set()
    assert text_of(await send(app, answered(state))) == "Payment 1: True"
    assert desk.runs[-1] == (2, True)


# ---------------------------------------------------------------------------------- a crash


async def test_a_crash_is_taken_over_when_the_lease_is_over() -> None:
    """decision: by the identical request, which waits until then; the handler is told."""
    store, desk = Store(), Desk()
    one, other = (worker(store, desk) for _ in range(2))
    state = await asked(one)
    await crashed(one, store, desk, answered(state))
    claims = store.calls.count("claim")
    _, waiting = start(other, answered(state))
    await until(lambda: store.calls.count("claim") > claims)
    assert desk.runs == [(1, False), (2, False)]
    store.clock.now += LEASE
    assert text_of(await waiting) == "Payment 1: True"
    assert desk.runs == [(1, False), (2, False), (2, True)]


async def test_a_crash_does_not_free_the_state_for_other_answers() -> None:
    """decision: the first answers may have had their effects."""
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    await crashed(app, store, desk, answered(state))
    store.clock.now += LEASE
    assert error_of(await send(app, answered(state, ok=False)))["code"] == REFUSED[0]


async def test_a_crash_of_a_first_request_is_taken_over_too() -> None:
    """decision: a key makes it a round like any other."""
    store, desk = Store(), Desk()
    mcp = MCPRouter("own", version="1", keys=SECRET, ledger=store, single_use=True)

    @mcp.tool()
    async def hold(ctx: Context) -> str:
        number = await desk.pay(ctx.idempotency_key("hold"))
        return f"{number} {ctx.is_takeover}"

    app = FastAPI()
    app.include_router(mcp)
    body = keyed(wire.call("hold"))
    await crashed(app, store, desk, body)
    store.clock.now += LEASE
    assert text_of(await send(app, body)) == "1 True"


async def test_steps_of_earlier_rounds_do_not_run_again_in_a_takeover() -> None:
    """decision: the journal is in the state, which outlives every worker."""
    store, desk, steps = Store(), Desk(), list[str]()
    mcp = MCPRouter("own", version="1", keys=SECRET, ledger=store, single_use=True)

    async def hold() -> str:
        steps.append("hold")
        return "held"

    @mcp.tool()
    async def pay(amount: int, ctx: Context) -> Rounds[str]:
        held: str = yield step("hold", hold)
        yield need_input("ok", "Ok?", bool)
        await desk.pay(ctx.idempotency_key("pay"))
        yield held

    app = FastAPI()
    app.include_router(mcp)
    state = await asked(app)
    await crashed(app, store, desk, answered(state))
    store.clock.now += LEASE
    assert text_of(await send(app, answered(state))) == "held"
    assert steps == ["hold"]


async def test_an_idempotency_key_outlives_rounds_replays_and_crashes() -> None:
    """decision: it is the flow's, and what an outside system knows a payment by."""
    store, desk = Store(), Desk()
    mcp = MCPRouter("own", version="1", keys=SECRET, ledger=store, single_use=True)
    keys: list[str] = []

    @mcp.tool()
    async def pay(amount: int, ctx: Context) -> Rounds[str]:
        keys.append(ctx.idempotency_key("pay"))
        yield need_input("ok", "Ok?", bool)
        await desk.pay("")
        yield "paid"

    app = FastAPI()
    app.include_router(mcp)
    state = await asked(app)
    await crashed(app, store, desk, answered(state))
    store.clock.now += LEASE
    for _ in range(2):
        await send(app, answered(state))
    assert len(keys) == 3
    assert len(set(keys)) == 1
    await asked(app)
    assert len(set(keys)) == 2


# ---------------------------------------------------------------------------- a claim is lost


async def lost_claim(store: Store, desk: Desk) -> tuple[FastAPI, str, "asyncio.Task[Any]"]:
    """A worker runs a round for longer than it holds it."""
    app = worker(store, desk)
    state = await asked(app)
    _, running = await started(app, desk, answered(state))
    store.clock.now += LEASE
    return app, state, running


async def test_who_lost_the_claim_answers_what_the_other_did() -> None:
    """decision: one outcome, whoever of the two ends first."""
    store, desk = Store(), Desk()
    app, state, running = await lost_claim(store, desk)
    _, taking_over = start(app, answered(state))
    await until(lambda: len(desk.runs) == 3)
    store.held_up["answer"] = asyncio.Event()
    desk.go_on.set()
    await until(lambda: store.calls.count("answer") == 2)
    store.held_up.pop("answer").set()
    replies = await asyncio.gather(running, taking_over)
    assert len({result_bytes(reply) for reply in replies}) == 1
    assert desk.runs == [(1, False), (2, False), (2, True)]


async def test_a_third_run_is_not_begun_for_a_lost_claim(caplog: pytest.LogCaptureFixture) -> None:
    """decision: who took over has gone too; the client may try again, and that takes over."""
    store, desk = Store(), Desk()
    app, state, running = await lost_claim(store, desk)
    other, taking_over = start(app, answered(state))
    await until(lambda: len(desk.runs) == 3)
    other.left.set()
    await taking_over
    desk.go_on.set()
    assert error_of(await running) == TRY_AGAIN
    assert "its claim was lost, and so was the one that took over" in caplog.text
    assert len(desk.runs) == 3
    assert text_of(await send(app, answered(state))) == "Payment 2: True"
    assert desk.runs[-1] == (2, True)


async def test_who_lost_the_claim_and_was_left_behind_is_refused() -> None:
    """decision: the flow has gone on to a later round."""
    store, desk = Store(), Desk()
    mcp = MCPRouter("own", version="1", keys=SECRET, ledger=store, single_use=True)

    @mcp.tool()
    async def pay(amount: int) -> Rounds[str]:
        yield need_input("ok", "Ok?", bool)
        await desk.pay("")
        yield need_input("more", "More?", bool)

    app = FastAPI()
    app.include_router(mcp)
    state = await asked(app)
    _, running = await started(app, desk, answered(state))
    store.clock.now += LEASE
    # Somebody took over, answered, and the client presented the state that it got.
    (flow,) = store.records
    await store.inner.claim(flow, 2, "later", lease=1, ttl=60)
    desk.go_on.set()
    error = error_of(await running)
    assert (error["code"], error["message"]) == REFUSED


# ------------------------------------------------------------------------------- the keeper


SHORT = 0.03  # so that the first third is over at once


async def test_a_claim_is_renewed_while_its_round_runs() -> None:
    """decision: a slow payment service must not look like a crash."""
    store, desk = Store(), Desk()
    app = worker(store, desk, lease=SHORT)
    state = await asked(app)
    _, running = await started(app, desk, answered(state))
    await until(lambda: store.calls.count("renew") > 2)
    desk.go_on.set()
    assert text_of(await running) == "Payment 1: True"
    renewals = store.calls.count("renew")
    await asyncio.sleep(2 * SHORT)
    assert store.calls.count("renew") == renewals


async def test_a_renewal_that_does_not_get_through_is_tried_again() -> None:
    """decision: the store may be back before the lease is over."""
    store, desk = Store(), Desk()
    store.failures["renew"] = 2
    app = worker(store, desk, lease=SHORT)
    state = await asked(app)
    _, running = await started(app, desk, answered(state))
    await until(lambda: store.calls.count("renew") > 3)
    desk.go_on.set()
    assert text_of(await running) == "Payment 1: True"


async def test_a_claim_lost_while_it_runs_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """decision: the round goes on, for it may be past its effects; the operator hears of it."""
    store, desk = Store(), Desk()
    app = worker(store, desk, lease=SHORT)
    state = await asked(app)
    _, running = await started(app, desk, answered(state))
    (record,) = store.inner._records.values()
    record.owner = "somebody else"
    await until(lambda: "claim lost while it ran" in caplog.text)
    renewals = store.calls.count("renew")
    await asyncio.sleep(2 * SHORT)
    assert store.calls.count("renew") == renewals
    running.cancel()
    await asyncio.wait([running])


# ----------------------------------------------------------------------- the store goes away


async def test_a_store_that_is_back_soon_gets_the_response() -> None:
    """decision: the round has run; all is lost that is not recorded."""
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    store.failures["answer"] = 2
    for _ in range(2):
        assert text_of(await send(app, answered(state))) == "Payment 1: True"
    assert len(desk.paid) == 1


async def test_a_store_that_stays_away_makes_the_next_one_take_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """decision: nobody knows the response, so the client gets none; the error is retryable."""
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    store.away = {"answer"}
    assert error_of(await send(app, answered(state))) == TRY_AGAIN
    assert "it ran, but the ledger is unavailable: no way to answer" in caplog.text
    store.away.clear()
    store.clock.now += LEASE
    assert text_of(await send(app, answered(state))) == "Payment 2: True"
    assert desk.runs[-1] == (2, True)
    assert len(set(desk.paid)) == 1


async def test_a_claim_that_cannot_be_given_up_ends_with_its_lease() -> None:
    """decision: what ended the round is what its client hears, not that the store is away."""
    store, desk = Store(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    store.away = {"release"}
    unreadable = answered(state)
    unreadable["params"]["inputResponses"] = {"ok": {}}
    assert error_of(await send(app, unreadable))["code"] == -32602
    store.clock.now += LEASE
    assert error_of(await send(app, answered(state)))["code"] == REFUSED[0]


class Threaded(Store):
    """A ledger over a driver that blocks: its calls run in threads, as a dependency's may."""

    def __init__(self) -> None:
        super().__init__()
        self.in_thread, self.go_on = threading.Event(), threading.Event()

    async def claim(self, *args: Any, **kwargs: Any) -> Claim:
        claim = await super().claim(*args, **kwargs)
        await run_in_threadpool(self._block)
        return claim

    def _block(self) -> None:
        self.in_thread.set()
        assert self.go_on.wait(30)


async def test_a_claim_that_could_not_be_interrupted_is_given_up() -> None:
    """decision: the client left while a thread claimed; nobody is to wait for the lease."""
    store, desk = Threaded(), Desk()
    app = worker(store, desk)
    state = await asked(app)
    first, running = start(app, answered(state))
    await until(store.in_thread.is_set)
    first.left.set()
    for _ in range(10):
        await asyncio.sleep(0)
    store.go_on.set()
    await running
    assert first.status == 499
    assert desk.runs == [(1, False)]
    # Not even the answers count as used, for nothing ran.
    assert text_of(await send(app, answered(state, ok=False))) == "Payment 1: False"
    assert desk.runs[-1] == (2, False)
