"""The server that the command's tests call: tools that ask for every kind of thing.

uvicorn tests.cli.served:app
"""

import os
from enum import Enum
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Request, Response
from mcp_types import CallToolResult, ImageContent
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    Context,
    MCPHeader,
    MCPRouter,
    Rounds,
    Secret,
    Titles,
    ToolError,
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    progress,
)

SECRET = "a secret of the tests, long enough for a key"
TOKEN = "token-ada"


class Seat(BaseModel):
    row: int = Field(ge=1, le=40, description="Counted from the front")
    letter: Literal["A", "B", "C"]
    note: str | None = Field(default=None, title="A wish")


class Extras(BaseModel):
    meal: Annotated[Literal["veg", "fish"], Titles({"veg": "Vegetables"})] = "veg"
    bags: float = 0
    wishes: list[Literal["aisle", "exit", "quiet"]] = []


class Region(Enum):
    EU = "eu"
    US = "us"


def user(request: Request) -> str:
    given = request.headers.get("authorization")
    if given not in (None, f"Bearer {TOKEN}"):
        raise HTTPException(401, "Unknown token")
    return given or "nobody"


mcp = MCPRouter(
    "desk",
    version="1.0",
    title="The desk",
    instructions="Ask away.",
    principal=user,
    keys=Secret("2026-08", os.environ.get("SECRET", SECRET)),
)


@mcp.tool()
async def book_seat(flight: str) -> Rounds[dict[str, str]]:
    """Book a seat."""
    yield progress(1, total=2, message="looking")
    yield log("info", {"flight": flight})
    seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
    ok: bool = yield need_input("confirm", f"Book {seat.row}{seat.letter}?", bool)
    if not ok:
        raise ToolError("Then not.")
    yield {"flight": flight, "seat": f"{seat.row}{seat.letter}", "note": seat.note or "none"}


@mcp.tool()
async def extras() -> Rounds[str]:
    """Choose extras."""
    chosen: Extras = yield need_input("extras", "What else?", Extras)
    yield f"{chosen.meal}, {chosen.bags:g} bags, {','.join(chosen.wishes) or 'no'} wishes"


@mcp.tool()
async def pay() -> Rounds[str]:
    """Pay on a page."""
    yield need_url("page", "Pay here.", "https://pay.example.com/1")
    yield "paid"


@mcp.tool()
async def patience(ctx: Context, rounds: int) -> Rounds[str]:
    """Waits for some rounds."""
    if ctx.round <= rounds:
        yield not_yet()
    yield f"done in round {ctx.round}"


@mcp.tool()
async def think() -> Rounds[str]:
    """Has the client's model think."""
    answer = yield need_sampling(
        "thought", "Think of a number", max_tokens=5, system_prompt="Be brief"
    )
    roots = yield need_roots("roots")
    yield f"{answer.content.text} in {' '.join(str(root.uri) for root in roots)}"


@mcp.tool()
async def query(
    region: Annotated[Region, MCPHeader("Region")],
    limit: int = 10,
    exact: bool = False,
    tags: list[str] | None = None,
    where: dict[str, int] | None = None,
    ratio: float = 1,
) -> str:
    """Takes arguments of every kind."""
    return f"{region} {limit} {exact} {tags} {where} {ratio}"


@mcp.tool()
async def picture() -> CallToolResult:
    """A picture, and no text."""
    return CallToolResult(content=[ImageContent(type="image", data="AA==", mime_type="image/png")])


@mcp.tool()
async def nasty() -> str:
    """Tries to move the cursor."""
    return "\x1b[2Jgone\r\u202e!"


@mcp.prompt()
async def itinerary(origin: str, days: int = 3) -> str:
    """An itinerary."""
    return f"{days} days from {origin}"


@mcp.resource("desk://about", title="About the desk")
async def about() -> str:
    return "We sell seats."


@mcp.resource("seats://{flight}")
async def seats(flight: str) -> str:
    return flight


bare = MCPRouter("bare", version="1", path="/bare")


@bare.tool()
async def hello() -> str:
    """Says hello."""
    return "hello"


app = FastAPI()
app.include_router(mcp)
app.include_router(bare)


@app.post("/broken")
async def broken() -> dict[str, str]:
    """A server that breaks the protocol."""
    return {"jsonrpc": "1.0"}


@app.post("/silent")
async def silent() -> Response:
    """One that refuses without a word."""
    return Response(status_code=403)


@app.post("/odd")
async def odd() -> Response:
    """One that sends what is no message."""
    events = [
        "[1",
        "[1]",
        '{"method": "notifications/message", "params": {"level": "info", "data": "odd"}}',
    ]
    events.append('{"method": "notifications/message", "params": 5}')
    content = "".join(f"data: {event}\n\n" for event in events)
    return Response(content, media_type="text/event-stream")


@app.post("/failing")
async def failing(request: Request) -> dict[str, Any]:
    """One that says who it is, and fails at everything else."""
    message = await request.json()
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] != "server/discover":
        return {**answer, "error": {"code": -31000, "message": "Tired"}}
    discovered = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "private",
    }
    return {**answer, "result": discovered}
