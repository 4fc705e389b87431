"""One handler of every kind, for clients of every revision. What happened is in `events`."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Header, HTTPException
from mcp_types import CreateMessageResult, ImageContent, Root, SamplingMessage, TextContent
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    Context,
    InputRefused,
    MCPError,
    MCPRouter,
    MemoryLedger,
    Rounds,
    Secret,
    SyncRounds,
    ToolError,
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    prefixed,
    progress,
    step,
)

PAGE = "https://pay.example/1"
PIXEL = "iVBORw0KGgo="


class Seat(BaseModel):
    """Which seat."""

    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B", "C"]


class Booking(BaseModel):
    flight: str
    seat: str


class Desk:
    """The app and what it did."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.paid = False
        self.mcp = MCPRouter(
            "eras",
            version="1.0.0",
            keys=Secret("tests", "a secret of the tests, thirty-two bytes or more"),
            ledger=MemoryLedger(),
            principal=self.caller,
        )
        self._tools(self.mcp)
        self._asking_tools(self.mcp)
        self._others(self.mcp)
        self.app = FastAPI()
        self.app.include_router(self.mcp)

    def caller(self, x_user: Annotated[str, Header()] = "alice") -> str:
        if x_user == "nobody":
            raise HTTPException(403, "Not you")
        return x_user

    async def session(self) -> AsyncIterator[str]:
        self.events.append("open")
        try:
            yield "session"
        finally:
            self.events.append("close")

    def hold(self, seat: str) -> str:
        self.events.append(f"hold {seat}")
        return f"held {seat}"

    def _tools(self, mcp: MCPRouter) -> None:
        @mcp.tool()
        async def plain(a: int, b: int = 2) -> int:
            return a + b

        @mcp.tool()
        def threaded(name: str) -> str:
            return f"Hello, {name}"

        @mcp.tool()
        async def structured(flight: str) -> Booking:
            return Booking(flight=flight, seat="4A")

        @mcp.tool()
        async def picture() -> ImageContent:
            return ImageContent(data=PIXEL, mime_type="image/png")

        @mcp.tool()
        async def injected(text: str, session: Annotated[str, Depends(self.session)]) -> str:
            self.events.append("body")
            return f"{text} {session}"

        @mcp.tool()
        async def failing(how: Literal["tool", "http", "code", "crash"]) -> str:
            match how:
                case "tool":
                    raise ToolError("The flight is full")
                case "http":
                    raise HTTPException(409, "Taken")
                case "code":
                    raise MCPError(-31999, "Mine", {"a": 1})
            raise RuntimeError("secret")

        @mcp.tool()
        async def telling(ctx: Context) -> Rounds[str]:
            for n in range(3):
                yield progress(n, 3, f"step {n}")
            yield log("warning", "careful")
            await ctx.log("debug", {"deep": True})
            yield "told"

        @mcp.tool()
        async def whoami(ctx: Context) -> str:
            return f"{ctx.principal} {ctx.client.protocol_version} {ctx.round}"

    def _asking_tools(self, mcp: MCPRouter) -> None:
        @mcp.tool()
        async def book(
            flight: str, session: Annotated[str, Depends(self.session)]
        ) -> Rounds[Booking]:
            seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
            held: str = yield step("hold", self.hold, f"{seat.row}{seat.letter}")
            ok: bool = yield need_input("ok", f"Pay for {held}?", bool)
            if not ok:
                raise ToolError("Not paid")
            self.events.append("paid")
            yield Booking(flight=flight, seat=f"{seat.row}{seat.letter}")

        @mcp.tool()
        def threaded_book(flight: str) -> SyncRounds[str]:
            seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
            return f"{flight} {seat.row}{seat.letter}"

        @mcp.tool()
        async def party(travellers: int) -> Rounds[str]:
            asks = [need_input(f"name-{n}", f"Name {n}?", str) for n in range(travellers)]
            names: tuple[str, ...] = yield asks
            yield ", ".join(names)

        async def ask_name(who: str) -> Rounds[str]:
            name: str = yield need_input("name", f"Who is the {who}?", str)
            yield name

        @mcp.tool()
        async def pair() -> Rounds[str]:
            pilot: str = yield prefixed("pilot.", ask_name("pilot"))
            guest: str = yield prefixed("guest.", ask_name("guest"))
            yield f"{pilot} and {guest}"

        @mcp.tool()
        async def persistent() -> Rounds[str]:
            try:
                yield need_input("first", "Please?", bool)
            except InputRefused as refused:
                again: str = yield need_input("second", f"Why {refused.action}?", str)
                yield again
                return
            yield "fine"

        @mcp.tool()
        async def pay(ctx: Context) -> Rounds[str]:
            yield need_url("page", "Pay on the page", PAGE)
            if not self.paid:
                yield not_yet()
            yield "paid"

        @mcp.tool()
        async def poem(topic: str) -> Rounds[str]:
            message = SamplingMessage(role="user", content=TextContent(text=f"About {topic}"))
            made: CreateMessageResult = yield need_sampling("poem", [message], max_tokens=10)
            assert isinstance(made.content, TextContent)
            yield made.content.text

        @mcp.tool()
        async def folders() -> Rounds[str]:
            roots: list[Root] = yield need_roots("roots")
            yield ", ".join(str(root.uri) for root in roots)

        @mcp.tool(single_use=True)
        async def once(ctx: Context) -> Rounds[str]:
            ctx.on_commit(self.events.append, "committed")
            yield step("charge", self.hold, "money")
            yield need_input("ok", "Sure?", bool)
            yield "charged"

        @mcp.tool()
        async def endless() -> Rounds[str]:
            number: int = 0
            while True:
                yield need_input(f"again-{number}", "Again?", bool)
                number += 1

    def _others(self, mcp: MCPRouter) -> None:
        @mcp.prompt()
        async def itinerary(city: str) -> Rounds[str]:
            days: int = yield need_input("days", f"How long in {city}?", int)
            yield f"{days} days in {city}"

        @mcp.resource("eras://plain")
        async def plain_resource() -> str:
            return "plain"

        @mcp.resource("eras://rules/{flight}")
        async def rules(flight: str) -> Rounds[str]:
            fare: Literal["light", "full"] = yield need_input(
                "fare", "Which fare?", Literal["light", "full"]
            )
            yield f"{flight} {fare}"
