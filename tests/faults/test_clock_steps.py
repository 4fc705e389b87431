"""Clocks that are set forward or back by an hour: a worker's, the store's, or both at once."""

import asyncio

import pytest

from tests.server.once import (
    REFUSED,
    Clock,
    Desk,
    answered,
    asked,
    error_of,
    send,
    text_of,
    worker,
)
from tests.state.ledger.backends import PATIENCE, Backend

pytestmark = pytest.mark.anyio

TTL = 600.0
LEASE = 300.0
HOUR = 3600.0

each_step = pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
whose = pytest.mark.parametrize(
    ("workers", "stores"), [(1, 0), (0, 1), (1, 1)], ids=["worker", "store", "both"]
)


async def passes(seconds: float, clock: Clock, backend: Backend) -> None:
    clock.now += seconds
    await backend.advance(seconds)


@each_step
@whose
@pytest.mark.parametrize("age", [1.0, HOUR + TTL - 1], ids=["new", "expired"])
async def test_a_step_revives_no_used_state(
    backend: Backend, step: float, workers: int, stores: int, age: float
) -> None:
    """decision: records outlive states by an hour, so a state that is good again is still used."""
    desk, clock = Desk(), Clock()
    app = worker(backend.ledger, desk, ttl=TTL, lease=LEASE, clock=clock)
    state = await asked(app)
    await send(app, answered(state))
    await passes(age, clock, backend)
    clock.now += workers * step
    await backend.advance(stores * step)
    assert error_of(await send(app, answered(state, ok=False)))["code"] == REFUSED[0]
    again = await send(app, answered(state))
    is_valid = 0 <= age + workers * step < TTL
    assert (again.messages[-1].get("error") is None) == is_valid
    assert not is_valid or text_of(again) == "Payment 1: True"
    assert len(desk.paid) == 1


@each_step
@whose
async def test_a_step_loses_no_claim(
    backend: Backend, step: float, workers: int, stores: int
) -> None:
    """decision: whoever runs a round when clocks step stores its response, and it is the one."""
    desk, clock = Desk(), Clock()
    app = worker(backend.ledger, desk, ttl=TTL, lease=LEASE, clock=clock)
    state = await asked(app)
    desk.go_on.clear()
    running = asyncio.ensure_future(send(app, answered(state)))
    await desk.arrived.wait()
    clock.now += workers * step
    await backend.advance(stores * step)
    async with asyncio.timeout(PATIENCE):  # it would wait for itself if it ran
        assert error_of(await send(app, answered(state, ok=False)))["code"] == REFUSED[0]
    desk.go_on.set()
    assert text_of(await running) == "Payment 1: True"
    clock.now -= workers * step
    assert text_of(await send(app, answered(state))) == "Payment 1: True"
    assert desk.runs == [(1, False), (2, False)]
