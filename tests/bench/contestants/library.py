"""This library, with every check on and a principal on every call."""

import os
from typing import Annotated

from fastapi import Depends, FastAPI

from fastapi_mcp_mrtr import (
    Context,
    Ledger,
    MCPRouter,
    MemoryLedger,
    Rounds,
    Secret,
    ToolError,
    need_input,
    step,
)

from .shared import Seat, clock, current_user, database, settings

TOOLS = int(os.environ.get("BENCH_TOOLS", "0"))
"""How many tools there are instead of those that the other measurements need."""
LEDGER = os.environ.get("BENCH_LEDGER", "")


def ledger() -> Ledger:
    if LEDGER.startswith("redis"):
        from fastapi_mcp_mrtr import RedisLedger

        return RedisLedger(LEDGER)
    if LEDGER:
        from fastapi_mcp_mrtr import SQLLedger

        return SQLLedger(LEDGER)
    return MemoryLedger(max_flows=10_000_000)


mcp = MCPRouter(
    "bench",
    version="1",
    principal=current_user,
    keys=Secret("bench", b"s" * 32),
    ledger=ledger(),
    page_size=1000,
)


@mcp.tool()
async def echo(text: str, value: Annotated[str, Depends(settings)]) -> str:
    return text


async def remember(size: int) -> str:
    return "x" * size


def add_all() -> None:
    @mcp.tool()
    async def echo_alone(text: str) -> str:
        return text

    @mcp.tool()
    async def echo_three(
        text: str,
        value: Annotated[str, Depends(settings)],
        rows: Annotated[str, Depends(database)],
        time: Annotated[str, Depends(clock)],
    ) -> str:
        return text

    @mcp.tool()
    async def fail(text: str) -> str:
        raise ToolError(text)

    @mcp.tool()
    async def two_rounds(flight: str) -> Rounds[str]:
        seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
        yield f"{seat.row}{seat.letter}"

    @mcp.tool()
    async def five_rounds(flight: str) -> Rounds[str]:
        yield step("journal", remember, 4096)
        for number in range(4):
            yield need_input(f"seat-{number}", f"Which seat on {flight}?", Seat)
        yield flight

    @mcp.tool(single_use=True)
    async def once(flight: str) -> Rounds[str]:
        seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
        yield f"{seat.row}{seat.letter}"

    @mcp.tool()
    async def stream(context: Context) -> str:
        for number in range(100):
            await context.report_progress(number + 1, total=100)
        return "done"


def add(number: int) -> None:
    @mcp.tool(f"tool_{number}")
    async def tool(text: str, size: int = 1, deep: bool = False) -> str:
        """One of many tools, with a description of ordinary length for the model to read."""
        return text


if TOOLS:
    for number in range(TOOLS - 1):
        add(number)
else:
    add_all()

app = FastAPI()
app.include_router(mcp)
