"""A booking desk, one process of several: they share a ledger, a secret and the outside world.

`LEDGER` and `WORLD` are the URLs of the two; `LEASE` is how long a dead worker's rounds stay its
own, in seconds; `SEED` and `WORKER` are what its pauses follow.
"""

import asyncio
import logging
import os
import random

from fastapi import FastAPI

from fastapi_mcp_mrtr import (
    Context,
    Ledger,
    MCPRouter,
    RedisLedger,
    Rounds,
    Secret,
    SQLLedger,
    need_input,
    step,
)

from .world import world_at

logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s")

_LEDGER = os.environ["LEDGER"]
_pauses = random.Random(f"{os.environ['SEED']} worker {os.environ['WORKER']}")

ledger: Ledger = RedisLedger(_LEDGER) if _LEDGER.startswith("redis") else SQLLedger(_LEDGER)
world = world_at(os.environ["WORLD"])

mcp = MCPRouter(
    "booking-desk",
    version="1.0.0",
    keys=Secret("faults", bytes(range(32))),
    ledger=ledger,
    single_use=True,
    lease=float(os.environ["LEASE"]),
)


async def _a_moment() -> None:
    """Between any two effects there is time to die."""
    await asyncio.sleep(_pauses.uniform(0, 0.02))


async def hold(name: str, seat: int) -> str:
    await world.note("hold", name)
    await _a_moment()
    return f"seat {seat}"


@mcp.tool()
async def book(name: str, ctx: Context) -> Rounds[str]:
    """Book a seat."""
    await world.note("run", name, f"{ctx.round} {'again' if ctx.is_takeover else 'first'}")
    seat: int = yield need_input("seat", "Which seat?", int)
    held: str = yield step("hold", hold, name, seat)
    await _a_moment()
    yield need_input("ok", f"Pay for {held}?", bool)
    key = ctx.idempotency_key("book")
    await _a_moment()
    await world.book(key, name)
    ctx.on_commit(world.note, "mail", name)
    await _a_moment()
    yield f"{held}, booking {key}"


app = FastAPI()
app.include_router(mcp)
