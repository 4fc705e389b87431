"""The official client, `mcp.Client`, in legacy mode over real HTTP, and in auto mode beside it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    PromptReference,
    TextContent,
    TextResourceContents,
)

from fastapi_mcp_mrtr import MCPRouter

from .test_official_client import Desk, Person, serving, text_of

pytestmark = pytest.mark.anyio


class Asked(Person):
    """Answers by what is asked: the ids of live requests are nobody's to guess."""

    async def elicit(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        shown = params.url if isinstance(params, ElicitRequestURLParams) else params.message
        self.shown.append(shown)
        for beginning, answer in self.answers.items():
            if shown.startswith(beginning):
                if isinstance(answer, ElicitResult):
                    return answer
                return ElicitResult(action="accept", content=answer)
        raise AssertionError(shown)


@asynccontextmanager
async def connected(
    desk: Desk, mode: ConnectMode, person: Person | None = None
) -> AsyncIterator[Client]:
    person = person or Person()
    async with (
        serving(desk) as (url, _),
        Client(
            url,
            mode=mode,
            elicitation_callback=person.elicit,
            sampling_callback=person.sample,
            list_roots_callback=person.list_roots,
            logging_callback=person.log,
        ) as client,
    ):
        expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
        assert client.protocol_version == expected
        yield client


async def test_a_tool_that_asks_twice() -> None:
    """interop: two rounds behind one call."""
    person = Asked(**{"Which seat": {"row": 4, "letter": "B"}, "Row 4": {"value": True}})
    async with connected(Desk(), "legacy", person) as client:
        result = await client.call_tool("book", {"flight": "LX1"})
    assert result.structured_content == {"row": 4, "letter": "B"}
    assert person.shown == ["Which seat on LX1?", "Row 4?"]


async def test_a_refusal() -> None:
    """interop: decline ends the call with a result that says so."""
    person = Asked(**{"Which seat": ElicitResult(action="decline")})
    async with connected(Desk(), "legacy", person) as client:
        result = await client.call_tool("book", {"flight": "LX1"})
    assert result.is_error
    assert "declined" in text_of(result)


async def test_sampling_and_roots_in_one_round() -> None:
    """interop: two live requests at once."""
    async with connected(Desk(), "legacy") as client:
        assert text_of(await client.call_tool("write")) == "Roses (99) in file:///home"


async def test_a_page_and_waiting() -> None:
    """interop: url mode with its elicitationId, then `not_yet()`."""
    desk = Desk()
    person = Asked(**{"https://pay": ElicitResult(action="accept")})
    async with connected(desk, "legacy", person) as client, anyio.create_task_group() as tasks:

        async def pay() -> None:
            await desk.waiting.wait()
            desk.paid.set()

        tasks.start_soon(pay)
        assert text_of(await client.call_tool("pay")) == "paid"
    assert person.shown == ["https://pay.example/1"]


async def test_prompts_and_resources_that_ask() -> None:
    """interop: all kinds of handlers."""
    person = Asked(**{"How many": {"value": 3}, "Which cabin": {"value": "first"}})
    async with connected(Desk(), "legacy", person) as client:
        prompt = await client.get_prompt("plan", {"city": "Bern"})
        assert isinstance(prompt.messages[0].content, TextContent)
        assert prompt.messages[0].content.text == "3 days in Bern"
        read = await client.read_resource("desk://rules/ann")
        assert isinstance(read.contents[0], TextResourceContents)
        assert read.contents[0].text == "ann: first"


async def test_progress() -> None:
    """interop: on the stream of the call."""
    seen: list[float] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connected(Desk(), "legacy") as client:
        result = await client.call_tool("report", progress_callback=progress)
    assert text_of(result) == "reported"
    assert seen == [1, 2, 3]


async def test_lists_and_completion() -> None:
    """interop: pages, and what completes an argument."""
    async with connected(Desk(), "legacy") as client:
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert {"book", "pay", "write", "near"} <= set(names)
        done = await client.complete(PromptReference(name="plan"), {"name": "city", "value": "B"})
        assert done.completion.values == ["Bern", "Basel"]


async def test_mirrored_headers_and_content_and_errors() -> None:
    """interop: what needs nothing of today's transport."""
    async with connected(Desk(), "legacy") as client:
        assert text_of(await client.call_tool("near", {"region": "eu"})) == "eu"
        assert len((await client.call_tool("draw")).content) == 2
        assert (await client.call_tool("fail", {"how": "tool"})).is_error
        with pytest.raises(MCPError) as failed:
            await client.call_tool("fail", {"how": "else"})
        assert failed.value.code == -32603
        with pytest.raises(MCPError) as gone:
            await client.read_resource("desk://nothing")
        assert gone.value.code == -32002


async def test_a_call_that_is_given_up() -> None:
    """interop: the client says so by a notification, and the handler is cancelled."""
    desk = Desk()
    async with connected(desk, "legacy") as client:
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                await client.call_tool("wait")

            tasks.start_soon(call)
            await desk.waiting.wait()
            tasks.cancel_scope.cancel()
        await desk.cancelled.wait()


async def test_both_modes_at_once() -> None:
    """spec: a dual-era server MAY serve both eras on the same endpoint (versioning)."""
    async with (
        serving(Desk()) as (url, _),
        Client(url, mode="legacy") as older,
        Client(url, mode="auto") as today,
    ):
        assert (older.protocol_version, today.protocol_version) == ("2025-11-25", "2026-07-28")
        for client in (older, today):
            assert text_of(await client.call_tool("report")) == "reported"


async def test_auto_mode_falls_back() -> None:
    """interop: a server without today's revision says which ones it has."""
    mcp = MCPRouter("older", version="1", versions=["2025-06-18"])

    @mcp.tool()
    async def echo(text: str) -> str:
        return text

    desk = Desk()
    desk.mcp = mcp
    async with serving(desk) as (url, _), Client(url, mode="auto") as client:
        assert client.protocol_version == "2025-06-18"
        assert text_of(await client.call_tool("echo", {"text": "x"})) == "x"
