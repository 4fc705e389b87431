"""First rounds that nobody goes on with: the server keeps nothing, the store not for long.

20,000 of them; where each leaves a record 500, or all with `make faults`.
"""

import asyncio
import gc
import sys
from typing import Final

import pytest
from coverage import Coverage
from fastapi import FastAPI

from fastapi_mcp_mrtr import Ledger, MCPRouter, MemoryLedger, Rounds, Secret, need_input
from fastapi_mcp_mrtr.server.single_use import CLOCK_TOLERANCE
from tests import wire
from tests.state.ledger.backends import Backend, InSQL

from .test_faults import FLOWS

pytestmark = pytest.mark.anyio

MANY: Final = 20_000
STORED: Final = MANY if FLOWS >= 2_000 else 500
WARM_UP: Final = 200
AT_ONCE: Final = 20
TTL: Final = 600.0
LEASE: Final = 30.0
KEY: Final = "io.github.fastapi-mcp-mrtr/idempotencyKey"


def desk(ledger: Ledger) -> FastAPI:
    mcp = MCPRouter(
        "desk",
        version="1",
        keys=Secret("abandoned", bytes(range(32))),
        ledger=ledger,
        single_use=True,
        ttl=TTL,
        lease=LEASE,
    )

    @mcp.tool()
    async def book(flight: str) -> Rounds[str]:
        yield (yield need_input("seat", f"Which seat on {flight}?", str))

    app = FastAPI()
    app.include_router(mcp)
    return app


async def first_rounds(app: FastAPI, numbers: range, *, keyed: bool) -> None:
    async def first_round(number: int) -> None:
        body = wire.call("book", {"flight": "LX318"})
        if keyed:
            # Too long for the parser's cache of strings, which is bounded but does grow.
            body["params"]["_meta"][KEY] = f"{number:0100}"
        exchange = await wire.Exchange(app, body).run()
        assert exchange.messages[-1]["result"]["resultType"] == "input_required"

    for start in range(numbers.start, numbers.stop, AT_ONCE):
        await asyncio.gather(*map(first_round, range(start, start + AT_ONCE)))


def blocks() -> int:
    """How many pieces of memory are in use. A flow that is kept takes dozens."""
    gc.collect()
    return sys.getallocatedblocks()


async def left_in(backend: Backend) -> int:
    """How many records there are when a ledger has removed what it removes, bit by bit."""
    before, left = -1, await backend.leftovers()
    while left != before:
        before, left = left, await backend.leftovers()
    return left


async def test_a_flow_that_nobody_goes_on_with_is_nowhere() -> None:
    """spec: MUST NOT assume that clients go on (mrtr §Server Requirements 8)."""
    ledger = MemoryLedger()
    app = desk(ledger)
    await first_rounds(app, range(WARM_UP), keyed=False)
    before = blocks()
    await first_rounds(app, range(WARM_UP, WARM_UP + MANY), keyed=False)
    assert len(ledger) == 0
    assert blocks() - before < MANY / 4


async def test_a_record_goes_with_its_time(backend: Backend) -> None:
    """decision: nothing is left of a flow whose states have expired, in no store."""
    app = desk(backend.ledger)
    await first_rounds(app, range(WARM_UP), keyed=True)
    await backend.advance(TTL + LEASE + CLOCK_TOLERANCE + 1)
    assert await left_in(backend) == 0
    before = blocks()
    await first_rounds(app, range(WARM_UP, WARM_UP + STORED), keyed=True)
    assert await left_in(backend) == STORED
    await backend.advance(TTL + LEASE + CLOCK_TOLERANCE + 1)
    assert await left_in(backend) == 0
    # The tracer of `--cov` keeps something of every greenlet; `make faults` runs without it.
    if not (isinstance(backend, InSQL) and Coverage.current()):
        assert blocks() - before < STORED / 4
