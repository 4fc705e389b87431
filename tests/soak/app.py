"""The app that is soaked: handlers of every form, and routes that say what is left of them.

uvicorn --factory tests.soak.app:create_app
"""

import asyncio
import gc
import logging
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    Context,
    MCPError,
    MCPRouter,
    MemoryLedger,
    Rounds,
    Secret,
    SyncRounds,
    ToolError,
    need_input,
    not_yet,
    progress,
    step,
)

from .probe import Garbage, Lag, descriptors, resident_kb, tasks, threads

FLOOD = 300
"""Notifications to a slow reader, of a kilobyte each: more than any buffer on the way holds."""

BIG = 1_000_000
"""Characters of a large result."""


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B", "C"]


class Asked(BaseModel):
    text: str


marks: Counter[str] = Counter()
"""How often things have begun and ended. What began must have ended."""

ledger = MemoryLedger()
released = asyncio.Event()


async def user(x_user: Annotated[str, Header()] = "alice") -> str:
    return x_user


async def session() -> AsyncIterator[str]:
    marks["sessions opened"] += 1
    try:
        yield "session"
    finally:
        await asyncio.sleep(0)
        marks["sessions closed"] += 1


def session_in_thread() -> Iterator[str]:
    marks["thread sessions opened"] += 1
    try:
        yield "session"
    finally:
        marks["thread sessions closed"] += 1


async def unavailable() -> None:
    raise HTTPException(503, "on purpose")


async def hold(row: int) -> int:
    await asyncio.sleep(0)
    return row * 100


Session = Annotated[str, Depends(session)]
SessionInThread = Annotated[str, Depends(session_in_thread)]


def create_router(shutdown_grace: float) -> MCPRouter:
    mcp = MCPRouter(
        "soak",
        version="1",
        keys=Secret("soak", b"s" * 32),
        principal=user,
        ledger=ledger,
        # So short that what a flow leaves behind expires while the soak runs.
        ttl=10,
        flow_lifetime=20,
        lease=3,
        keep_alive=1,
        shutdown_grace=shutdown_grace,
    )
    _add_calls(mcp)
    _add_flows(mcp)
    _add_streams(mcp)
    _add_failures(mcp)
    return mcp


def _add_calls(mcp: MCPRouter) -> None:
    @mcp.tool()
    async def echo(text: str, session: Session) -> str:
        return text

    @mcp.tool()
    def echo_in_thread(text: str, session: SessionInThread) -> str:
        time.sleep(0.001)
        return text

    @mcp.tool()
    async def big() -> str:
        return "x" * BIG

    @mcp.tool()
    async def touch(number: int) -> str:
        mcp.notify_resource_updated(f"soak://items/{number}")
        return "touched"

    @mcp.prompt()
    async def plan(city: str) -> str:
        return f"Plan {city}"

    @mcp.resource("soak://static")
    def static() -> str:
        return "static"

    @mcp.resource("soak://items/{number}")
    async def item(number: int) -> str:
        return f"item {number}"


def _add_flows(mcp: MCPRouter) -> None:
    @mcp.tool()
    async def book(flight: str, session: Session) -> Rounds[str]:
        seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
        price: int = yield step("hold", hold, seat.row)
        ok: bool = yield need_input("confirm", f"Pay {price}?", bool)
        yield f"{flight} {seat.row}{seat.letter} {price} {ok}"

    @mcp.tool()
    def book_in_thread(flight: str, session: SessionInThread) -> SyncRounds[str]:
        seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
        ok: bool = yield need_input("confirm", "Pay?", bool)
        return f"{flight} {seat.row}{seat.letter} 0 {ok}"

    @mcp.tool(single_use=True)
    async def book_once(flight: str, session: Session, ctx: Context) -> Rounds[str]:
        seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
        await asyncio.sleep(0.002)
        marks["bookings"] += 1
        ctx.on_commit(marks.update, ["committed"])
        # The number says which run it was: a repeated request must bring the same one.
        yield f"{flight} {seat.row}{seat.letter} {marks['bookings']}"

    @mcp.tool()
    async def waits_for_user() -> Rounds[str]:
        yield not_yet()
        yield "never"

    @mcp.prompt()
    async def plan_by_asking(city: str) -> Rounds[str]:
        days: int = yield need_input("days", "How many days?", int)
        yield f"Plan {days} days in {city}"

    @mcp.resource("soak://asking/{number}")
    def asking(number: int, session: SessionInThread) -> SyncRounds[str]:
        answer: Asked = yield need_input("password", f"Password of {number}?", Asked)
        return f"{number}: {answer.text}"


def _add_streams(mcp: MCPRouter) -> None:
    @mcp.tool()
    async def export(parts: int, session: Session) -> Rounds[str]:
        for part in range(parts):
            yield progress(part + 1, parts)
            await asyncio.sleep(0.002)
        yield f"{parts} parts"

    @mcp.tool()
    def export_in_thread(parts: int, ctx: Context, session: SessionInThread) -> str:
        for part in range(parts):
            ctx.report_progress(part + 1, parts)
        return f"{parts} parts"

    @mcp.tool()
    async def export_and_ask(parts: int) -> Rounds[str]:
        for part in range(parts):
            yield progress(part + 1, parts)
        name: str = yield need_input("name", "Under which name?", str)
        yield f"{parts} parts as {name}"

    @mcp.tool()
    async def flood(ctx: Context, session: Session) -> str:
        for number in range(FLOOD):
            await ctx.report_progress(number + 1, message="x" * 1000)
        return "flooded"

    @mcp.tool()
    async def lasts(seconds: float, streams: bool, session: Session, ctx: Context) -> str:
        """Waits; to be cancelled, or to be let finish with SIGUSR1."""
        if streams:
            await ctx.report_progress(1)
        marks["lasting"] += 1
        try:
            if seconds:
                await asyncio.sleep(seconds)
            else:
                await released.wait()
        finally:
            marks["lasting"] -= 1
        return "lasted"


def _add_failures(mcp: MCPRouter) -> None:
    @mcp.tool()
    async def raises(session: Session) -> str:
        raise RuntimeError("on purpose")

    @mcp.tool()
    def raises_after_an_ask(session: SessionInThread) -> SyncRounds[str]:
        yield need_input("ok", "Fail?", bool)
        raise RuntimeError("on purpose")

    @mcp.tool()
    async def raises_in_stream(session: Session) -> Rounds[str]:
        yield progress(1)
        raise RuntimeError("on purpose")

    @mcp.tool()
    async def refuses() -> str:
        raise ToolError("on purpose")

    @mcp.tool()
    async def has_its_code() -> str:
        raise MCPError(-30999, "on purpose")

    @mcp.tool()
    async def is_unavailable(session: Session, never: Annotated[None, Depends(unavailable)]) -> str:
        return "never"


class _OnPurpose(logging.Filter):
    """Leaves out what a handler was asked to raise; everything else that is logged is a finding."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not (record.levelno >= logging.ERROR and str(error) == "on purpose")


def create_app(shutdown_grace: float = 5.0) -> FastAPI:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s [%(name)s] %(message)s")
    logging.getLogger("fastapi_mcp_mrtr").addFilter(_OnPurpose())
    garbage = Garbage()
    probes: list[Lag] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        probes.append(Lag())
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, released.set)
        yield

    app = FastAPI(lifespan=lifespan)
    app.include_router(create_router(shutdown_grace))

    @app.post("/plain")
    async def plain(asked: Asked, user: Annotated[str, Depends(user)]) -> Asked:
        return asked

    @app.get("/report")
    async def report(collect: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {"lag": probes[0].take(), "garbage": garbage.found}
        found |= {"collections": dict(garbage.runs), "uncollectable": len(gc.garbage)}
        if collect:
            gc.collect()
            found["objects"] = Counter(type(thing).__name__ for thing in gc.get_objects())
            probes[0].take()  # what that took is not the load's
        return found | {
            "tasks": tasks(),
            "descriptors": descriptors(),
            "threads": threads(),
            "resident_kb": resident_kb(),
            "cpu": time.process_time(),
            "flows": len(ledger),
            "marks": dict(marks),
        }

    return app
