"""The official client, `mcp.Client`, against a router over real HTTP: what the demo does not show.

Both ends share an event loop, so a test can change the server under an open connection.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import anyio
import pytest
import uvicorn
from fastapi import FastAPI
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    BlobResourceContents,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ImageContent,
    ListRootsResult,
    LoggingMessageNotificationParams,
    PromptMessage,
    PromptReference,
    Root,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, FileUrl

from fastapi_mcp_mrtr import (
    Context,
    MCPHeader,
    MCPRouter,
    Rounds,
    ToolError,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
)

pytestmark = pytest.mark.anyio

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
)


class Seat(BaseModel):
    row: int
    letter: Literal["A", "B"] = "A"


class Desk:
    """A server whose handlers use everything that the protocol has."""

    def __init__(self) -> None:
        self.paid = asyncio.Event()
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.mcp = mcp = MCPRouter("desk", version="1", page_size=3, title="The desk")

        @mcp.tool()
        async def book(flight: str) -> Rounds[Seat]:
            seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
            sure: bool = yield need_input("sure", f"Row {seat.row}?", bool)
            if not sure:
                raise ToolError("Then not")
            yield seat

        @mcp.tool()
        async def pay() -> Rounds[str]:
            yield need_url("page", "Please pay", "https://pay.example/1")
            while not self.paid.is_set():
                self.waiting.set()
                yield not_yet()
            yield "paid"

        @mcp.tool()
        async def write() -> Rounds[str]:
            poem, roots = yield (
                need_sampling("poem", "A poem, please", max_tokens=99),
                need_roots("roots"),
            )
            yield f"{poem.content.text} in {roots[0].uri}"

        @mcp.tool()
        async def near(region: Annotated[str, MCPHeader("Region")]) -> str:
            return region

        @mcp.tool()
        async def report(ctx: Context) -> str:
            for done in (1, 2, 3):
                await ctx.report_progress(done, total=3, message=f"step {done}")
            await ctx.log("debug", "too quiet")
            await ctx.log("warning", {"what": "loud"}, logger="desk")
            return "reported"

        @mcp.tool()
        async def draw() -> list[ImageContent | TextContent]:
            return [ImageContent(data=PIXEL, mime_type="image/png"), TextContent(text="a pixel")]

        @mcp.tool()
        async def fail(how: str) -> str:
            raise ToolError("no luck") if how == "tool" else LookupError("secret")

        @mcp.tool()
        async def wait() -> str:
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"

        @mcp.prompt()
        async def plan(city: Literal["Bern", "Basel", "Paris"]) -> Rounds[list[PromptMessage]]:
            days: int = yield need_input("days", f"How many days in {city}?", int)
            text = TextContent(text=f"{days} days in {city}")
            yield [PromptMessage(role="user", content=text)]

        @mcp.resource("desk://rules/{name}", mime_type="text/plain")
        async def rules(name: str) -> Rounds[str]:
            cabin: str = yield need_input("cabin", "Which cabin?", str)
            yield f"{name}: {cabin}"

        @mcp.resource("desk://pixel", mime_type="image/png")
        async def pixel() -> bytes:
            return b"\x89PNG"


class Person:
    """Who sits in front of the client: gives these answers, and keeps what was shown."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.shown: list[str] = []
        self.logs: list[tuple[str, Any]] = []

    async def elicit(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        answer = self.answers[str(context.request_id)]
        self.shown.append(
            params.url if isinstance(params, ElicitRequestURLParams) else params.message
        )
        if isinstance(answer, ElicitResult):
            return answer
        return ElicitResult(action="accept", content=answer)

    async def sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult:
        text = TextContent(text=f"Roses ({params.max_tokens})")
        return CreateMessageResult(role="assistant", content=text, model="tests")

    async def list_roots(self, context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///home"), name="home")])

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        self.logs.append((params.level, params.data))


@asynccontextmanager
async def serving(desk: Desk) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    """The desk behind uvicorn on a free port. Yields its address."""
    app = FastAPI()
    app.include_router(desk.mcp)
    config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=30)
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                with anyio.fail_after(60):
                    yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", server
            finally:
                server.should_exit = True


@asynccontextmanager
async def connected(desk: Desk, person: Person | None = None) -> AsyncIterator[Client]:
    person = person or Person()
    async with (
        serving(desk) as (url, _),
        Client(
            url,
            elicitation_callback=person.elicit,
            sampling_callback=person.sample,
            list_roots_callback=person.list_roots,
            logging_callback=person.log,
            log_level="info",
        ) as client,
    ):
        assert client.protocol_version == "2026-07-28"
        yield client


def text_of(result: Any) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


# --------------------------------------------------------------------------------------- lists


async def tools_of(client: Client) -> list[str]:
    """The names on all pages. The client remembers the tools' schemas."""
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        assert len(page.tools) <= 3
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def test_the_client_learns_what_there_is() -> None:
    """spec: server/discover and the lists, page by page."""
    async with connected(Desk()) as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.title) == ("desk", "The desk")
        assert await tools_of(client) == [
            "book",
            "pay",
            "write",
            "near",
            "report",
            "draw",
            "fail",
            "wait",
        ]
        assert [p.name for p in (await client.list_prompts()).prompts] == ["plan"]
        assert [r.uri for r in (await client.list_resources()).resources] == ["desk://pixel"]
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "desk://rules/{name}"


# --------------------------------------------------------------------------------------- tools


async def test_a_tool_that_asks_twice() -> None:
    """Decision: the client answers each question once, and checks the structured result."""
    person = Person(seat={"row": 4, "letter": "B"}, sure={"value": True})
    async with connected(Desk(), person) as client:
        await client.list_tools()
        booked = await client.call_tool("book", {"flight": "LX1"})
    assert booked.structured_content == {"row": 4, "letter": "B"}
    assert person.shown == ["Which seat on LX1?", "Row 4?"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_who_refuses(action: Literal["decline", "cancel"]) -> None:
    """spec: a refusal is an answer; unhandled, the model reads of it."""
    async with connected(Desk(), Person(seat=ElicitResult(action=action))) as client:
        refused = await client.call_tool("book", {"flight": "LX1"})
    assert refused.is_error
    assert "seat" in text_of(refused)


async def test_an_answer_that_does_not_fit_is_asked_again() -> None:
    """spec: SHOULD ask again (mrtr §Error Handling)."""
    person = Person(seat={"row": 4}, sure={"value": True})

    async def mends(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        given = await person.elicit(context, params)
        person.answers["seat"] = {"row": 5}
        return given

    person.answers["seat"] = {"row": "four"}
    async with serving(Desk()) as (url, _), Client(url, elicitation_callback=mends) as client:
        booked = await client.call_tool("book", {"flight": "LX1"})
    assert booked.structured_content == {"row": 5, "letter": "A"}
    assert person.shown[1].startswith("Which seat on LX1?\n(row: ")


async def test_a_page_that_is_waited_for() -> None:
    """spec: url mode; while nothing has come of it the server says so with a state alone."""
    desk = Desk()
    person = Person(page=ElicitResult(action="accept"))

    async def pays() -> None:
        await desk.waiting.wait()
        desk.paid.set()

    async with connected(desk, person) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(pays)
        assert text_of(await client.call_tool("pay")) == "paid"
    assert person.shown == ["https://pay.example/1"]


async def test_sampling_and_roots_in_one_round() -> None:
    """spec: one InputRequiredResult may carry several requests of any kind."""
    async with connected(Desk()) as client:
        written = await client.call_tool("write")
    assert text_of(written) == "Roses (99) in file:///home"


async def test_a_client_without_the_capability() -> None:
    """spec: -32021 with what is missing."""
    async with serving(Desk()) as (url, _), Client(url) as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("write")
    assert raised.value.error.code == -32021
    assert set(raised.value.error.data["requiredCapabilities"]) == {"sampling", "roots"}


async def test_an_argument_in_a_header() -> None:
    """spec: x-mcp-header; the value is Base64 where a header cannot carry it."""
    async with connected(Desk()) as client:
        await tools_of(client)
        assert text_of(await client.call_tool("near", {"region": "eu, Zürich"})) == "eu, Zürich"


async def test_progress_and_logs() -> None:
    """spec: on the response stream, from the level that was asked for."""
    person = Person()
    seen: list[tuple[float, float | None, str | None]] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with connected(Desk(), person) as client:
        done = await client.call_tool("report", progress_callback=progressed)
    assert text_of(done) == "reported"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert person.logs == [("warning", {"what": "loud"})]


async def test_content_of_several_kinds() -> None:
    """spec: text and images (server/tools §Tool Result)."""
    async with connected(Desk()) as client:
        image, text = (await client.call_tool("draw")).content
    assert isinstance(image, ImageContent)
    assert isinstance(text, TextContent)
    assert (image.data, text.text) == (PIXEL, "a pixel")


async def test_failures() -> None:
    """Decision: what the model may correct is a result; a bug is an error without its text."""
    async with connected(Desk()) as client:
        assert text_of(await client.call_tool("fail", {"how": "tool"})) == "no luck"
        assert (await client.call_tool("fail", {"how": 3})).is_error  # invalid arguments
        with pytest.raises(MCPError) as bug:
            await client.call_tool("fail", {"how": "bug"})
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("nobody")
    assert (bug.value.error.code, bug.value.error.message) == (-32603, "Internal error")
    assert unknown.value.error.code == -32602


async def test_a_call_that_is_cancelled() -> None:
    """spec: a client cancels by closing the stream, and the handler stops (§Cancellation)."""
    desk = Desk()
    async with connected(desk) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "wait")
        await desk.waiting.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(30):
            await desk.cancelled.wait()


# ------------------------------------------------------------------------ prompts and resources


async def test_a_prompt_that_asks() -> None:
    """spec: prompts/get may ask too."""
    async with connected(Desk(), Person(days={"value": 3})) as client:
        prompt = await client.get_prompt("plan", {"city": "Bern"})
    [message] = prompt.messages
    assert message.content == TextContent(text="3 days in Bern")


async def test_a_completion() -> None:
    """spec: completion/complete for an argument of a prompt."""
    async with connected(Desk()) as client:
        found = await client.complete(PromptReference(name="plan"), {"name": "city", "value": "B"})
    assert found.completion.values == ["Bern", "Basel"]


async def test_resources() -> None:
    """spec: resources/read may ask too; bytes are a blob."""
    async with connected(Desk(), Person(cabin={"value": "light"})) as client:
        [rules] = (await client.read_resource("desk://rules/TD101")).contents
        [pixel] = (await client.read_resource("desk://pixel")).contents
        with pytest.raises(MCPError) as nothing:
            await client.read_resource("desk://nobody")
    assert isinstance(rules, TextResourceContents)
    assert (rules.text, rules.mime_type) == ("TD101: light", "text/plain")
    assert isinstance(pixel, BlobResourceContents)
    assert pixel.blob == "iVBORw=="
    assert nothing.value.error.data == {"uri": "desk://nobody"}


# -------------------------------------------------------------------------------- subscriptions


async def test_listening() -> None:
    """spec: subscriptions/listen, acknowledged with what the server agreed to."""
    desk = Desk()
    async with (
        connected(desk) as client,
        client.listen(
            tools_list_changed=True, resource_subscriptions=["desk://pixel", "desk://nobody"]
        ) as subscription,
    ):
        assert subscription.honored.resource_subscriptions == ["desk://pixel"]

        @desk.mcp.tool()
        async def late() -> str:
            return "late"

        assert await anext(subscription) == ToolsListChanged()
        desk.mcp.notify_resource_updated("desk://pixel")
        assert await anext(subscription) == ResourceUpdated("desk://pixel")
        assert text_of(await client.call_tool("late")) == "late"


async def test_a_server_that_stops_ends_a_subscription_gracefully() -> None:
    """spec: §Graceful Closure; the loop ends, and nothing is raised."""
    async with (
        serving(Desk()) as (url, server),
        Client(url) as client,
        client.listen(tools_list_changed=True) as subscription,
    ):
        server.should_exit = True
        assert [event async for event in subscription] == []


async def test_several_clients_at_once() -> None:
    """Decision: flows do not mix, whoever's round comes when."""
    seats: dict[int, int] = {}

    async def books(url: str, row: int) -> None:
        person = Person(seat={"row": row}, sure={"value": True})
        async with Client(url, elicitation_callback=person.elicit) as client:
            booked = await client.call_tool("book", {"flight": "LX1"})
        assert booked.structured_content is not None
        seats[row] = booked.structured_content["row"]

    async with serving(Desk()) as (url, _), anyio.create_task_group() as tasks:
        for row in range(1, 11):
            tasks.start_soon(books, url, row)
    assert seats == {row: row for row in range(1, 11)}
