"""The app that test_over_http.py serves: tools that wait, and a way to watch and to release them.

    uvicorn --factory tests.http.served:create_app

What happens is counted under a name; GET /happened/{name} returns once it has happened often
enough, and POST /let/{name} lets go of what waits for it. So no test has to guess how long anything
takes.
"""

import asyncio
import logging
import os
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import Depends, FastAPI, Request, Response
from fastapi.middleware.gzip import GZipMiddleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint

from fastapi_mcp_mrtr import Context, MCPRouter, Rounds, progress

WAIT = 60.0
"""Seconds after which whatever waits gives up, so that no test hangs."""


class Marks:
    """What has happened how often, and what may go on. From any thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._gates: dict[str, threading.Event] = defaultdict(threading.Event)

    def happened(self, name: str) -> None:
        with self._changed:
            self._counts[name] += 1
            self._changed.notify_all()

    def wait(self, name: str, times: int) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._counts[name] >= times, WAIT)
            return self._counts[name]

    def let(self, name: str) -> None:
        self._gates[name].set()

    def wait_for(self, name: str) -> None:
        self._gates[name].wait(WAIT)


marks = Marks()
mcp = MCPRouter(
    "served",
    version="1",
    principal=lambda: None,  # or the log would have a line about it
    shutdown_grace=float(os.environ.get("SHUTDOWN_GRACE", WAIT)),
)


async def session() -> AsyncIterator[str]:
    try:
        yield "session"
        marks.happened("committed")
    except BaseException:
        await asyncio.sleep(0)
        marks.happened("rolled back")
        raise
    finally:
        await asyncio.sleep(0)
        marks.happened("closed")


@mcp.tool()
async def wait(session: Annotated[str, Depends(session)], streams: bool) -> Rounds[str]:
    """Waits until the client leaves."""
    if streams:
        yield progress(1)
    marks.happened("waiting")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        marks.happened("finally")
    yield "never"


def slow_to_open(session: Annotated[str, Depends(session)]) -> Iterator[str]:
    marks.happened("opening")
    marks.wait_for("open")
    try:
        yield session
    except BaseException:
        marks.happened("sync rolled back")
        raise
    finally:
        marks.happened("sync closed")


@mcp.tool()
async def enter(opened: Annotated[str, Depends(slow_to_open)]) -> str:
    """Its dependency is still being entered, in a worker thread, when the client leaves."""
    marks.happened("handler ran")
    return opened


def sync_dependency() -> str:
    marks.happened("dependency")
    return "solved"


@mcp.tool()
def blocks(number: int, solved: Annotated[str, Depends(sync_dependency)]) -> str:
    """Blocks its thread until it is let go."""
    marks.happened("blocked")
    marks.wait_for("blocks")
    return f"{solved} {number}"


@mcp.tool()
async def long(ctx: Context) -> str:
    """Streams, and ends when the process is told to with SIGUSR1."""
    signalled = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, signalled.set)
    await ctx.report_progress(1)
    try:
        await signalled.wait()
    finally:
        marks.happened("long ended")
        logging.getLogger("served").info("long ended")
    return "finished"


class Passes(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


def create_app() -> FastAPI:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s [%(name)s] %(message)s")
    app = FastAPI()
    app.include_router(mcp)
    match os.environ.get("MIDDLEWARE"):
        case "base":
            app.add_middleware(Passes)
            app.add_middleware(Passes)
        case "gzip":
            app.add_middleware(GZipMiddleware, minimum_size=0)

    @app.get("/health")
    async def health() -> str:
        return "well"

    @app.get("/happened/{name}")
    async def happened(name: str, times: int = 1) -> int:
        return await asyncio.to_thread(marks.wait, name, times)

    @app.post("/let/{name}")
    async def let(name: str) -> None:
        marks.let(name)

    return app
