"""Every flow of the demo with the official client over real HTTP: one process, then three; as it
connects today, and as clients of older revisions do.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    LoggingMessageNotificationParams,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

from tests.state.ledger.services import RedisServer

from .helpers import AMELIE, BRUNO, Browser, served

pytestmark = pytest.mark.anyio

Answers = Mapping[str, Any]


class Address(str):
    """Where the server is, and how clients are to connect."""

    mode: Literal["auto", "legacy"] = "auto"


VERSION = {"auto": "2026-07-28", "legacy": "2025-11-25"}
ASK = "io.github.fastapi-mcp-mrtr/ask"
"""The key of a question, in the `_meta` of a request of the server's."""

SERVERS = {
    "one process": (1, "auto"),
    "one process, older": (1, "legacy"),
    "three workers": (3, "auto"),
    "three workers, older": (3, "legacy"),
}


@pytest.fixture(scope="module", params=SERVERS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for the whole module; its tests keep to seats of their own."""
    workers, mode = SERVERS[request.param]
    settings = {"TRAVEL_DESK_PATIENCE": "0", "TRAVEL_DESK_PARTNER_PAUSE": "0"}
    with ExitStack() as stack:
        if workers > 1:
            settings["TRAVEL_DESK_REDIS"] = stack.enter_context(RedisServer()).url
        folder = tmp_path_factory.mktemp("served")
        address = Address(stack.enter_context(served(folder, workers=workers, **settings)))
        address.mode = mode  # type: ignore[assignment]
        yield address


@asynccontextmanager
async def connected(
    url: str,
    answers: Answers,
    *,
    key: str = AMELIE,
    on_wait: Callable[[], object] | None = None,
    logs: list[str] | None = None,
) -> AsyncIterator[Client]:
    """The official client. It answers from `answers`, and calls `on_wait` when it may only wait."""

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        about: Any = (params.meta or {}).get(ASK, {"key": context.request_id})
        found = answers[str(about["key"])]
        if isinstance(params, ElicitRequestURLParams):
            found(params.url)
            if on_wait is not None and mode == "legacy":  # the server waits by itself
                group.start_soon(waiting, on_wait)
            return ElicitResult(action="accept")
        return ElicitResult(action="accept", content=found)

    async def waiting(on_wait: Callable[[], object]) -> None:
        for _ in range(2):
            await anyio.to_thread.run_sync(on_wait)

    async def received(response: httpx2.Response) -> None:
        if on_wait and response.headers.get("content-type") == "application/json":
            result = (await response.aread(), response.json())[1].get("result", {})
            if result.get("resultType") == "input_required" and not result.get("inputRequests"):
                await anyio.to_thread.run_sync(on_wait)

    async def logged(params: LoggingMessageNotificationParams) -> None:
        if logs is not None:
            logs.append(str(params.data))

    mode = getattr(url, "mode", "auto")
    async with (
        anyio.create_task_group() as group,
        httpx2.AsyncClient(
            headers={"X-API-Key": key}, timeout=60, event_hooks={"response": [received]}
        ) as http,
    ):
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(
            transport,
            elicitation_callback=answer,
            logging_callback=logged,
            log_level="debug" if logs is not None else None,
            mode=mode,
        ) as client:
            assert client.protocol_version == VERSION[mode]
            if logs is not None and mode == "legacy":
                with pytest.warns(MCPDeprecationWarning):
                    await client.set_logging_level("debug")
            yield client


def seat(row: int, letter: str) -> dict[str, Any]:
    return {"row": row, "letter": letter}


async def hold(http: httpx2.AsyncClient, flight: str, seat: str) -> str:
    passengers = [{"name": "Amélie Moreau", "seat": seat}]
    response = await http.post("/bookings", json={"flight": flight, "passengers": passengers})
    return str(response.raise_for_status().json()["reference"])


async def test_search(url: str) -> None:
    """Decision: a plain tool, its structured output checked by the client against its schema."""
    async with connected(url, {}) as client:
        found = await client.call_tool("search_flights", {"origin": "VIE"})
    assert found.structured_content is not None
    assert [f["number"] for f in found.structured_content["flights"]] == ["TD305", "TD521"]


async def test_progress_and_a_log_line(url: str) -> None:
    """Decision: both arrive on the response stream, in order."""
    logs: list[str] = []
    seen: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connected(url, {}, logs=logs) as client:
        await client.call_tool("compare_fares", {"flight": "TD101"}, progress_callback=progressed)
    assert seen == [0, 1, 2, 3, 4]
    assert logs == ["TD101: 4 partners asked, SkyPool is cheapest"]


async def test_book_a_seat(url: str) -> None:
    """Decision: three rounds, one paid booking."""
    answers = {"seat-1": seat(1, "A"), "confirm": {"value": True}}
    async with connected(url, answers) as client:
        booked = await client.call_tool("book_seat", {"flight": "TD101"})
    assert booked.structured_content is not None
    assert booked.structured_content["status"] == "paid"


async def test_book_a_party_and_pay_on_the_page(url: str) -> None:
    """Decision: a batch, indexed questions, and a wait that ends in the browser."""
    links: list[str] = []
    waits: list[None] = []

    def on_wait() -> None:
        waits.append(None)
        if len(waits) == 2:
            with httpx2.Client(base_url=url) as http:
                assert "Paid" in Browser(http).pay(links[0], AMELIE)

    answers = {
        "traveller-1": {"name": "Ada"},
        "traveller-2": {"name": "Bo"},
        "try-1.traveller-1.seat-1": seat(2, "A"),
        "try-1.traveller-2.seat-1": seat(2, "B"),
        "payment-page": links.append,
    }
    async with connected(url, answers, on_wait=on_wait) as client:
        booked = await client.call_tool("book_party", {"flight": "TD101", "travellers": 2})
    assert booked.structured_content is not None, booked.content
    assert booked.structured_content["status"] == "paid"
    assert len(waits) == 2
    assert links[0].startswith(f"{url}/pay/")


async def test_pay_for_a_booking_made_over_rest(url: str) -> None:
    """Decision: paid before the client comes back, so there is nothing to wait for."""

    def pay(link: str) -> None:
        with httpx2.Client(base_url=url) as http:
            assert "Paid" in Browser(http).pay(link, AMELIE)

    async with httpx2.AsyncClient(base_url=url, headers={"X-API-Key": AMELIE}) as rest:
        reference = await hold(rest, "TD101", "3A")
    async with connected(url, {"payment-page": pay}) as client:
        paid = await client.call_tool("pay_booking", {"reference": reference})
    assert paid.structured_content is not None
    assert paid.structured_content["status"] == "paid"


async def test_cancel(url: str) -> None:
    """Decision: the model's own text says what happened, too."""
    async with httpx2.AsyncClient(base_url=url, headers={"X-API-Key": AMELIE}) as rest:
        reference = await hold(rest, "TD101", "4A")
    async with connected(url, {"cancel": {"value": True}}) as client:
        cancelled = await client.call_tool("cancel_booking", {"reference": reference})
        mine = await client.call_tool("list_bookings")
    assert cancelled.structured_content is not None
    assert cancelled.structured_content["status"] == "cancelled"
    assert mine.structured_content is not None
    assert reference in {b["reference"] for b in mine.structured_content["bookings"]}


async def test_the_prompt_asks_and_completes(url: str) -> None:
    """Decision: prompts are flows like tools."""
    wishes = {"days": 4, "pace": "full", "interests": ["food"]}
    async with connected(url, {"wishes": wishes}) as client:
        completed = await client.complete(
            PromptReference(name="itinerary"), {"name": "destination", "value": "Lis"}
        )
        assert completed.completion.values == ["LIS"]
        prompt = await client.get_prompt("itinerary", {"destination": "LIS"})
    [message] = prompt.messages
    assert isinstance(message.content, TextContent)
    assert "4 days in Lisbon" in message.content.text


async def test_the_fare_rules_ask_and_complete(url: str) -> None:
    """Decision: resources are flows like tools."""
    template = "desk://flights/{flight}/fare-rules"
    async with connected(url, {"fare-class": {"value": "light"}}) as client:
        completed = await client.complete(
            ResourceTemplateReference(uri=template), {"name": "flight", "value": "TD10"}
        )
        assert completed.completion.values == ["TD101", "TD103", "TD104"]
        read = await client.read_resource("desk://flights/TD101/fare-rules")
    [rules] = read.contents
    assert isinstance(rules, TextResourceContents)
    assert rules.text.startswith("# TD101, AMS to LIS: light")


async def test_static_resources(url: str) -> None:
    """Decision: listed and read without a question."""
    async with connected(url, {}) as client:
        listed = await client.list_resources()
        assert {r.name for r in listed.resources} >= {"airports", "conditions"}
        for resource in listed.resources:
            assert (await client.read_resource(str(resource.uri))).contents


async def test_one_seat_for_many(url: str) -> None:
    """Decision: eight flows choose 9A at the same moment; one gets it, seven are asked again."""
    seats: list[str] = []

    async def book(number: int) -> None:
        answers = {
            "seat-1": seat(9, "A"),
            "seat-2": seat(10 + number, "A"),
            "confirm": {"value": True},
        }
        async with connected(url, answers, key=(AMELIE, BRUNO)[number % 2]) as client:
            booked = await client.call_tool("book_seat", {"flight": "TD630"})
        assert booked.structured_content is not None, booked.content
        assert booked.structured_content["status"] == "paid"
        seats.append(booked.structured_content["passengers"][0]["seat"])

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(book, number)
    assert len(set(seats)) == 8
    assert seats.count("9A") == 1


@pytest.mark.parametrize("url", ["three workers", "three workers, older"], indirect=True)
async def test_two_hundred_flows_from_twenty_clients(url: str) -> None:
    """User report: with state held per process, one flow in eight finished over eight workers."""
    finished: list[str] = []

    async def flows(number: int) -> None:
        wishes = {"days": 2, "pace": "easy", "interests": ["music"]}
        answers = {
            "wishes": wishes,
            "fare-class": {"value": "flex"},
            "cancel": {"value": True},
        }
        async with (
            httpx2.AsyncClient(base_url=url, headers={"X-API-Key": AMELIE}, timeout=60) as rest,
            connected(url, answers) as client,
        ):
            for letter in "ABCD":
                reference = await hold(rest, "TD210", f"{number}{letter}")
                cancelled = await client.call_tool("cancel_booking", {"reference": reference})
                assert cancelled.structured_content is not None, cancelled.content
                finished.append(cancelled.structured_content["status"])
            for city in ("LIS", "OSL", "VIE"):
                prompt = await client.get_prompt("itinerary", {"destination": city})
                finished.append(prompt.messages[0].role)
            for flight in ("TD101", "TD305", "TD412"):
                read = await client.read_resource(f"desk://flights/{flight}/fare-rules")
                finished.append(str(read.contents[0].mime_type))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            for number in range(1, 21):
                group.start_soon(flows, number)
    assert {outcome: finished.count(outcome) for outcome in finished} == {
        "cancelled": 80,
        "user": 60,
        "text/markdown": 60,
    }


async def test_a_flow_goes_on_after_a_restart(tmp_path: Path) -> None:
    """User report: a deployment in the middle of a conversation lost it."""
    with served(tmp_path, workers=1) as url:
        async with connected(url, {}) as client:
            asked = await client.session.call_tool(
                "book_seat", {"flight": "TD101"}, allow_input_required=True
            )
            assert isinstance(asked, InputRequiredResult)
            asked = await client.session.call_tool(
                "book_seat",
                {"flight": "TD101"},
                input_responses={"seat-1": accepted(seat(1, "A"))},
                request_state=asked.request_state,
                allow_input_required=True,
            )
            assert isinstance(asked, InputRequiredResult)
    with served(tmp_path, workers=1) as url:
        async with connected(url, {}) as client:
            booked = await client.call_tool(
                "book_seat",
                {"flight": "TD101"},
                input_responses={"confirm": accepted({"value": True})},
                request_state=asked.request_state,
            )
    assert booked.structured_content is not None, booked.content
    assert booked.structured_content["status"] == "paid"


def accepted(content: dict[str, Any]) -> ElicitResult:
    return ElicitResult(action="accept", content=content)
