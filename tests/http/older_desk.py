"""A server for tests of older revisions: handlers of every form, and a way to see what they do."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import BackgroundTasks, Depends, FastAPI, Header, HTTPException, Response
from mcp_types import CallToolResult, Icon, ResourceLink, SamplingMessage, TextContent
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    Context,
    MCPHeader,
    MCPRouter,
    MemoryLedger,
    Rounds,
    Secret,
    ToolError,
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    progress,
    step,
)

SECRET = Secret("2026-08", bytes(range(32)))


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B"] = "A"


class Desk:
    """The app, and what happened in it."""

    def __init__(self, **settings: Any) -> None:
        self.happened: list[str] = []
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        self.paid = False
        self.refuse: int | None = None
        self.refuse_calls: int | None = None
        """The same, for requests with the header X-Call."""
        self.now = 1_785_000_000.0
        settings = {
            "keys": SECRET,
            "principal": self.user,
            "ledger": MemoryLedger(),
            "title": "The desk",
            "instructions": "Ask.",
            "clock": lambda: self.now,
            **settings,
        }
        self.mcp = MCPRouter("desk", version="1", **settings)
        self._plain()
        self._asking()
        self._others()
        self.app = FastAPI()
        self.app.include_router(self.mcp)

    async def user(
        self,
        response: Response,
        x_user: Annotated[str, Header()] = "alice",
        x_call: Annotated[str | None, Header()] = None,
    ) -> str:
        refusal = self.refuse or (x_call and self.refuse_calls)
        if refusal:
            raise HTTPException(refusal, "Not any more")
        response.headers["x-seen"] = x_user
        return x_user

    async def database(self) -> AsyncIterator[str]:
        self.happened.append("opened")
        try:
            yield "database"
            self.happened.append("committed")
        except BaseException:
            self.happened.append("rolled back")
            raise

    def _plain(self) -> None:
        mcp = self.mcp

        @mcp.tool(icons=[Icon(src="https://x.example/i.png")], title="Echo")
        async def echo(text: str, ctx: Context) -> str:
            """Say it again."""
            return f"{text} ({ctx.client.protocol_version})"

        @mcp.tool()
        async def add(a: int, b: int) -> Seat:
            return Seat(row=a + b)

        @mcp.tool()
        async def numbers() -> list[int]:
            return [1, 2]

        @mcp.tool()
        async def link() -> CallToolResult:
            """Content of every kind that is not everywhere."""
            return CallToolResult(
                content=[
                    TextContent(text="see"),
                    ResourceLink(name="rules", uri="desk://rules", title="The rules"),
                ],
            )

        @mcp.tool()
        async def fail(how: str) -> str:
            raise ToolError("no luck") if how == "tool" else LookupError("secret")

        @mcp.tool()
        async def near(region: Annotated[str, MCPHeader("Region")]) -> str:
            return region

        @mcp.tool()
        async def report(ctx: Context) -> str:
            for done in (1, 2, 3):
                await ctx.report_progress(done, total=3)
            await ctx.log("debug", "quiet")
            await ctx.log("warning", "loud")
            return "reported"

        @mcp.tool()
        async def wait(ctx: Context, streams: bool = False) -> str:
            if streams:
                await ctx.report_progress(1)
            self.waiting.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.happened.append("cancelled")
                raise
            if streams:
                await ctx.report_progress(2)
            self.happened.append("finished")
            return "waited"

        @mcp.tool()
        async def later(tasks: BackgroundTasks) -> Rounds[str]:
            sure: bool = yield need_input("sure", "Sure?", bool)
            tasks.add_task(self.happened.append, f"background {sure}")
            yield "later"

        async def forbidden() -> None:
            raise HTTPException(418, "No coffee")

        @mcp.tool()
        async def teapot(_: Annotated[None, Depends(forbidden)]) -> str:
            return "never"

        async def broken() -> None:
            raise LookupError("secret")

        @mcp.tool()
        async def broken_dependency(_: Annotated[None, Depends(broken)]) -> str:
            return "never"

    def _asking(self) -> None:
        mcp = self.mcp

        @mcp.tool()
        async def book(
            flight: str, ctx: Context, _: Annotated[str, Depends(self.database)]
        ) -> Rounds[str]:
            yield log("info", "booking")
            yield progress(1)
            seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
            yield progress(2)
            sure: bool = yield need_input("sure", f"Row {seat.row}?", bool)
            yield log("info", "booked")
            yield f"{seat.row}{seat.letter} {sure} in round {ctx.round} for {ctx.principal}"

        @mcp.tool()
        async def everything() -> Rounds[str]:
            name, poem, roots = yield (
                need_input("name", "Name?", str),
                need_sampling("poem", "A poem", max_tokens=9),
                need_roots("roots"),
            )
            yield f"{name} {poem.content.text} {roots[0].uri}"

        @mcp.tool()
        async def pay() -> Rounds[str]:
            yield need_url("page", "Please pay", "https://pay.example/1")
            while not self.paid:
                self.waiting.set()
                yield not_yet()
            yield "paid"

        @mcp.tool()
        async def not_yet_once(ctx: Context) -> Rounds[str]:
            self.waiting.set()
            if ctx.round == 1:
                yield not_yet()
            yield "ready"

        @mcp.tool()
        async def consent() -> Rounds[str]:
            yield need_url("page", "Please read", "https://pay.example/2")
            yield "read"

        async def both() -> Rounds[str]:
            a, b = yield need_input("a", "A?", str), need_input("b", "B?", str)
            yield a + b

        mcp.tool()(both)
        mcp.tool("hurry", ask_timeout=0.05)(both)

        @mcp.tool(ask_timeout=0.05)
        async def never_ready() -> Rounds[str]:
            yield not_yet()
            yield ""

        @mcp.tool()
        async def talk() -> Rounds[str]:
            messages = [
                SamplingMessage(
                    role="user", content=[TextContent(text="one"), TextContent(text="two")]
                )
            ]
            said = yield need_sampling("said", messages, max_tokens=9)
            yield said.content.text

        @mcp.tool()
        async def tags() -> Rounds[str]:
            picked: list[Literal["a", "b"]] = yield need_input("tags", "?", list[Literal["a", "b"]])
            yield ",".join(picked)

        def charge() -> int:
            self.happened.append("charged")
            return 1

        @mcp.tool(single_use=True)
        async def buy() -> Rounds[str]:
            yield step("charge", charge)
            sure: bool = yield need_input("sure", "Sure?", bool)
            yield f"bought {sure}"

    def _others(self) -> None:
        mcp = self.mcp

        @mcp.prompt(title="A plan")
        async def plan(city: str) -> Rounds[str]:
            days: int = yield need_input("days", f"How long in {city}?", int)
            yield f"{days} days in {city}"

        @mcp.resource("desk://rules", mime_type="text/plain", title="Rules")
        async def rules() -> str:
            return "be kind"

        @mcp.resource("desk://cabin/{name}")
        async def cabin(name: str) -> Rounds[str]:
            which: str = yield need_input("cabin", "Which cabin?", str)
            yield f"{name}: {which}"
