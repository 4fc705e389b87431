"""A server that asks, for tests that need one in a process of its own."""

import asyncio
import gc
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from fastapi_mcp_mrtr import (
    Context,
    MCPRouter,
    MemoryLedger,
    MemorySessionStore,
    RedisLedger,
    RedisSessionStore,
    Rounds,
    Secret,
    need_input,
    progress,
    step,
)

_MEMORY = Path("/proc/self/statm")
SECRET = "a secret of the tests, thirty-two bytes or more"
REDIS = os.environ.get("ERAS_REDIS")
EVENTS = Path(os.environ.get("ERAS_EVENTS", os.devnull))

store = RedisSessionStore(REDIS) if REDIS else MemorySessionStore()
mcp = MCPRouter(
    "eras",
    version="1.0.0",
    keys=Secret("tests", SECRET),
    ledger=RedisLedger(REDIS) if REDIS else MemoryLedger(),
    sessions=store,
    lease=float(os.environ.get("ERAS_LEASE", "30")),
)


def happened(event: str) -> None:
    with EVENTS.open("a") as file:
        file.write(f"{event}\n")


def charge(account: str) -> str:
    happened(f"charged {account}")
    return f"receipt of {account}"


@mcp.tool()
async def greet() -> Rounds[str]:
    """Ask for a name."""
    name: str = yield need_input("name", "Your name?", str)
    yield f"Hello, {name}"


@mcp.tool(single_use=True)
async def order(account: str) -> Rounds[str]:
    """Charge, ask, deliver."""
    receipt: str = yield step("charge", charge, account)
    address: str = yield need_input("address", f"Where to? {receipt}", str)
    yield f"{receipt} to {address}"


@mcp.tool(single_use=True)
async def send(account: str, ctx: Context) -> Rounds[str]:
    """Ask, charge, ask, send. A worker that is to die hangs when it has sent."""
    address: str = yield need_input("address", "Where to?", str)
    receipt: str = yield step("charge", charge, account)
    day: str = yield need_input("day", f"When? {receipt}", str)
    happened(f"sent {ctx.idempotency_key('send')}, takeover: {ctx.is_takeover}")
    yield progress(1)
    if "ERAS_HANGS" in os.environ:
        await asyncio.Event().wait()
    yield f"{receipt} to {address}, {day}"


@mcp.resource("eras://news/{topic}")
async def news(topic: str) -> str:
    return topic


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await store.aclose()


app = FastAPI(lifespan=lifespan)
app.include_router(mcp)


@app.post("/publish/{topic}")
async def publish(topic: str) -> int:
    """Tell subscribers, and say which worker did."""
    mcp.notify_resource_updated(f"eras://news/{topic}")
    return os.getpid()


@app.get("/stats")
def stats() -> dict[str, Any]:
    """What waits here, and how much memory it takes."""
    gc.collect()
    status = _MEMORY.read_text().split()
    return {
        "pid": os.getpid(),
        "bytes": int(status[1]) * resource.getpagesize(),
        "asks": len(mcp._asks),  # type: ignore[arg-type]
        "topics": len(store._listeners) if isinstance(store, MemorySessionStore) else None,
    }
