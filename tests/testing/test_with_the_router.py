"""The client against the library's own router: the two were written apart and have to agree."""

import re
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import mcp_types
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    Complete,
    Context,
    MCPHeader,
    MCPRouter,
    Rounds,
    SyncRounds,
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    progress,
    step,
)
from fastapi_mcp_mrtr.testing import (
    CANCEL,
    DECLINE,
    OMIT,
    AnswersNotAsked,
    ErrorReply,
    MCPTestClient,
    Raw,
    RejectedRequest,
    UnansweredQuestion,
    in_turn,
)

STATE_REFUSED = (-32602, "Invalid or expired requestState")


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B", "C"]


class Booking(BaseModel):
    flight: str
    seat: str


def current_user(x_user: Annotated[str, Header()] = "alice") -> str:
    if x_user == "mallory":
        raise HTTPException(401, "Who are you?")
    return x_user


class Desk:
    """What a flow does to the outside."""

    def __init__(self) -> None:
        self.holds: list[int] = []
        self.paid = False

    async def hold(self, row: int) -> int:
        self.holds.append(row)
        return 120


def complete_city(value: str) -> list[str]:
    return [city for city in ("Bern", "Paris") if city.startswith(value)]


def travel_desk(desk: Desk, **options: Any) -> MCPRouter:
    mcp = MCPRouter("travel-desk", version="1.0.0", principal=current_user, page_size=2, **options)

    @mcp.tool()
    async def book_seat(flight: str) -> Rounds[Booking]:
        """Book a seat."""
        seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
        price: int = yield step("hold", desk.hold, seat.row)
        ok: bool = yield need_input("confirm", f"Pay {price}?", bool)
        assert ok
        yield Booking(flight=flight, seat=f"{seat.row}{seat.letter}")

    @mcp.tool()
    def pay() -> SyncRounds[str]:
        yield need_url("pay", "Please pay", "http://testserver/pay")
        while not desk.paid:
            yield not_yet()
        return "paid"

    @mcp.tool()
    async def sum_up() -> Rounds[str]:
        poem, roots = yield need_sampling("poem", "Write", max_tokens=9), need_roots("roots")
        yield f"{poem.content.text} {roots[0].uri}"

    @mcp.tool()
    async def search(region: Annotated[str, MCPHeader("Region")], ctx: Context) -> Rounds[str]:
        yield progress(1, total=2)
        yield log("info", {"region": region})
        yield f"{ctx.principal} in {region}"

    @mcp.prompt()
    async def plan(city: Annotated[str, Complete(complete_city)]) -> Rounds[str]:
        days: int = yield need_input("days", "How many days?", int)
        yield f"Plan {days} days in {city}."

    @mcp.resource("fare://{code}", name="fare")
    async def fare(code: str) -> Rounds[str]:
        cabin: str = yield need_input("cabin", "Which cabin?", Literal["first", "second"])
        yield f"{code} {cabin}"

    return mcp


def travel_app(desk: Desk, mcp: MCPRouter) -> FastAPI:
    app = FastAPI()
    app.include_router(mcp)

    @app.get("/pay")
    def pay_page() -> str:
        desk.paid = True
        return "Thank you"

    return app


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def app(desk: Desk) -> FastAPI:
    return travel_app(desk, travel_desk(desk))


@pytest.fixture
def client(app: FastAPI) -> MCPTestClient:
    return MCPTestClient(app)


A4 = {"row": 4, "letter": "A"}
FLIGHT = {"flight": "LX318"}


def test_the_example_of_the_client_runs(app: FastAPI) -> None:
    """Every example of the docs is executed; decision."""
    assert MCPTestClient.__doc__
    example = re.search(r"```python\n(.*?)```", textwrap.dedent(MCPTestClient.__doc__), re.DOTALL)
    assert example
    exec(textwrap.dedent(example[1]), {"app": app})  # the docstring's own code


def test_a_flow_with_a_correction_books_once(client: MCPTestClient, desk: Desk) -> None:
    """The main job, with an answer that is asked again; decision."""
    result = client.call_tool(
        "book_seat",
        FLIGHT,
        answers={
            "seat": in_turn({"row": 99, "letter": "A"}, Seat(row=4, letter="B")),
            "confirm": True,
        },
    )
    assert result.structured_content == {"flight": "LX318", "seat": "4B"}
    assert desk.holds == [4]
    assert len(client.replies) == 4


def test_a_correction_says_what_was_wrong(client: MCPTestClient) -> None:
    """decision: the reason is appended to the message."""
    second = client.begin_tool("book_seat", FLIGHT).answer({"seat": {"row": 99, "letter": "A"}})
    assert second.asks["seat"].message.startswith("Which seat on LX318?\n(")
    assert "row" in second.asks["seat"].message
    assert second.asks["seat"].times == 2


def test_unanswered_and_never_asked_are_told_apart(client: MCPTestClient) -> None:
    """The two ways in which a test and a flow disagree; decision."""
    with pytest.raises(UnansweredQuestion, match=r"confirm: Pay 120\?"):
        client.call_tool("book_seat", FLIGHT, answers={"seat": A4})
    with pytest.raises(AnswersNotAsked, match="meal"):
        client.call_tool("book_seat", FLIGHT, answers={"seat": A4, "confirm": True, "meal": "soup"})


@pytest.mark.parametrize(("refusal", "verb"), [(DECLINE, "declined"), (CANCEL, "cancelled")])
def test_a_refusal_ends_the_flow(client: MCPTestClient, refusal: Any, verb: str) -> None:
    """decision: unhandled, a refusal is an isError result."""
    result = client.call_tool("book_seat", FLIGHT, answers={"seat": A4, "confirm": refusal})
    assert result.is_error
    assert isinstance(result.content[0], mcp_types.TextContent)
    assert verb in result.content[0].text


def test_a_payment_page_is_opened_by_the_answer(client: MCPTestClient) -> None:
    """An answer may do what the user would do at the url; decision."""
    result = client.call_tool(
        "pay", answers={"pay": lambda ask: client.http.get(ask.url).status_code == 200}
    )
    assert isinstance(result.content[0], mcp_types.TextContent)
    assert result.content[0].text == "paid"


def test_a_payment_can_take_its_time(client: MCPTestClient, desk: Desk) -> None:
    """spec: elicitation §URL Mode: still waiting is a state without asks."""
    waits: list[str | None] = []

    def pay_at_the_third(round_: Any) -> None:
        waits.append(round_.request_state)
        desk.paid = len(waits) == 3

    client.call_tool("pay", answers={"pay": True}, on_wait=pay_at_the_third)
    assert len(waits) == 3


def test_sampling_and_roots_are_answered_in_one_round(client: MCPTestClient) -> None:
    """A batch of both; decision."""
    result = client.call_tool("sum_up", answers={"poem": "Roses", "roots": [Path("/home")]})
    assert isinstance(result.content[0], mcp_types.TextContent)
    assert result.content[0].text == "Roses file:///home"


def test_progress_and_logs_are_read_from_the_stream(client: MCPTestClient) -> None:
    """spec: streamable-http §Receiving Messages."""
    round_ = client.begin_tool("search", {"region": "eu"})
    assert round_.result.is_error is False
    assert [n.method for n in round_.notifications] == [
        "notifications/progress",
        "notifications/message",
    ]


def test_parameter_headers_are_found_out(client: MCPTestClient) -> None:
    """spec: SHOULD (streamable-http §Client Behavior): list on -32020, then retry."""
    client.call_tool("search", {"region": "Zürich"})
    methods = [reply.request["method"] for reply in client.replies]
    # Two pages of tools.
    assert methods == ["tools/call", "tools/list", "tools/list", "tools/call"]
    client.call_tool("search", {"region": "eu"})
    assert len(client.replies) == 5


def test_a_wrong_parameter_header_is_refused(client: MCPTestClient) -> None:
    """spec: MUST (streamable-http §Server Behavior for Custom Headers)."""
    wrong = client.begin_tool("search", {"region": "eu"}, headers={"Mcp-Param-Region": "us"})
    assert (wrong.error.code, wrong.status_code) == (-32020, 400)
    bad = client.request("tools/list", headers={"Mcp-Method": OMIT})
    assert bad.error.code == -32020


def test_prompts_and_resources_ask_too(client: MCPTestClient) -> None:
    """spec: mrtr §Supported Requests."""
    prompt = client.get_prompt("plan", {"city": "Bern"}, answers={"days": 3})
    assert isinstance(prompt.messages[0].content, mcp_types.TextContent)
    assert prompt.messages[0].content.text == "Plan 3 days in Bern."
    resource = client.read_resource("fare://Y", answers={"cabin": "first"})
    assert isinstance(resource.contents[0], mcp_types.TextResourceContents)
    assert resource.contents[0].text == "Y first"


def test_what_the_server_offers_is_listed(client: MCPTestClient) -> None:
    """All pages, typed; decision."""
    assert client.discover().supported_versions[0] == "2026-07-28"
    assert {t.name for t in client.list_tools()} == {"book_seat", "pay", "sum_up", "search"}
    assert [p.name for p in client.list_prompts()] == ["plan"]
    assert client.list_resources() == []
    assert [t.uri_template for t in client.list_resource_templates()] == ["fare://{code}"]
    assert client.complete("city", "P", prompt="plan").values == ["Paris"]


def second_round(client: MCPTestClient) -> Any:
    return client.begin_tool("book_seat", FLIGHT).answer({"seat": A4})


@pytest.mark.parametrize("where", [0, 1, None, -2, -1])
def test_a_tampered_state_is_refused(client: MCPTestClient, where: int | None) -> None:
    """spec: MUST (mrtr §Server Requirements 4)."""
    error = second_round(client).tamper(where).answer({"confirm": True}).error
    assert (error.code, error.message) == STATE_REFUSED


@pytest.mark.parametrize("state", ["", 5, "AAAA", [], True])
def test_a_made_up_state_is_refused(client: MCPTestClient, state: Any) -> None:
    """spec: MUST (mrtr §Server Requirements 4)."""
    error = second_round(client).with_state(state).answer({"confirm": True}).error
    assert (error.code, error.message) == STATE_REFUSED


def test_an_expired_state_is_refused_until_the_clock_is_back(app: FastAPI) -> None:
    """spec: SHOULD (mrtr §Server Requirements 5): a short expiry."""
    with MCPTestClient(app) as client:
        round_ = second_round(client)
        error = round_.expire().answer({"confirm": True}).error
        assert (error.code, error.message) == STATE_REFUSED
    assert (
        MCPTestClient(app).begin("tools/call", round_._sent.params, mcp_types.CallToolResult).asks
    )


@pytest.mark.parametrize(("seconds", "kind"), [(599, "complete"), (601, "error")])
def test_the_clock_moves_by_as_much_as_told(app: FastAPI, seconds: float, kind: str) -> None:
    """decision: ttl is 600 seconds."""
    with MCPTestClient(app) as client:
        round_ = second_round(client)
        client.advance(seconds)
        assert round_.answer({"confirm": True}).kind == kind


def test_another_principal_is_refused(client: MCPTestClient) -> None:
    """user report: bob submits alice's state."""
    round_ = second_round(client)
    with client.as_principal("bob"):
        error = round_.answer({"confirm": True}).error
        assert (error.code, error.message) == STATE_REFUSED
        assert "bob" in str(client.call_tool("search", {"region": "eu"}).content)
    assert round_.answer({"confirm": True}, headers={"x-user": "bob"}).error.code == -32602
    assert round_.answer({"confirm": True}).result.is_error is False


def test_a_state_belongs_to_its_call(client: MCPTestClient) -> None:
    """spec: SHOULD (mrtr §Server Requirements 5): the originating request."""
    round_ = second_round(client)
    other = {"arguments": {"flight": "XX1"}}
    assert round_.answer({"confirm": True}, params=other).error.code == -32602
    assert round_.answer({"confirm": True}, params={"name": "pay"}).error.code == -32602


def test_a_rejected_principal_is_plain_http(client: MCPTestClient) -> None:
    """decision: an HTTPException of a dependency is the HTTP response."""
    round_ = client.begin_tool("book_seat", FLIGHT, headers={"x-user": "mallory"})
    assert (round_.kind, round_.status_code) == ("rejected", 401)
    with pytest.raises(RejectedRequest):
        client.call_tool("book_seat", FLIGHT, headers={"x-user": "mallory"})


def test_a_dropped_response_and_a_replay_repeat_the_round(
    client: MCPTestClient, desk: Desk
) -> None:
    """decision: without single_use a round runs again, and a step is at least once."""
    first = client.begin_tool("book_seat", FLIGHT)
    second = first.drop_response({"seat": A4}).answer({"seat": A4})
    assert desk.holds == [4, 4]
    assert second.replay().asks["confirm"].message == "Pay 120?"
    assert desk.holds == [4, 4, 4]


def test_a_wrong_envelope_is_refused_by_key(client: MCPTestClient) -> None:
    """decision: no ElicitResult at all is -32602."""
    first = client.begin_tool("book_seat", FLIGHT)
    error = first.answer({"seat": Raw("str")}).error
    assert error.code == -32602
    assert "seat" in error.message
    assert (
        first.send({"inputResponses": 5, "requestState": first.request_state}).error.code == -32602
    )


def test_a_missing_answer_is_asked_again(client: MCPTestClient) -> None:
    """spec: SHOULD (mrtr §Error Handling)."""
    first = client.begin_tool("sum_up")
    second = first.answer({"poem": "Roses"}, partial=True)
    assert list(second.asks) == ["roots"]


def test_a_capability_that_was_not_declared_is_missing(app: FastAPI) -> None:
    """spec: MUST (basic/index §_meta): -32021, HTTP 400."""
    client = MCPTestClient(app, capabilities={"elicitation": {"url": {}}})
    round_ = client.begin_tool("book_seat", FLIGHT)
    assert (round_.error.code, round_.status_code) == (-32021, 400)
    assert "elicitation" in round_.error.data["requiredCapabilities"]
    client.capabilities["elicitation"] = {}
    assert client.begin_tool("book_seat", FLIGHT).asks


def test_an_unknown_tool_is_an_error_reply(client: MCPTestClient) -> None:
    """spec: tools §Error Handling."""
    with pytest.raises(ErrorReply) as failure:
        client.call_tool("nope")
    assert failure.value.code == -32602


def nested(mcp: MCPRouter) -> FastAPI:
    outer = APIRouter(prefix="/v1")
    outer.include_router(mcp)
    app = FastAPI()
    app.include_router(outer, prefix="/api")
    return app


def mounted(mcp: MCPRouter) -> FastAPI:
    inner = FastAPI()
    inner.include_router(mcp)
    app = FastAPI()
    app.mount("/sub", inner)
    return app


@pytest.mark.parametrize(
    ("make", "url"),
    [
        (nested, "/api/v1/mcp"),
        (nested, "/api/v1/mcp/"),
        (mounted, "/sub/mcp"),
        (mounted, "/sub/mcp/"),
    ],
)
def test_the_client_finds_its_way_into_the_app(
    desk: Desk, make: Callable[[MCPRouter], FastAPI], url: str
) -> None:
    """user report: prefixes, nested routers, sub-apps, with and without the last slash."""
    mcp = travel_desk(desk)
    client = MCPTestClient(make(mcp), url)
    assert client.router is mcp
    round_ = second_round(client)
    with client.as_principal("bob"):
        assert round_.answer({"confirm": True}).error.code == -32602
    assert round_.answer({"confirm": True}).result.is_error is False
    round_.expire()
    assert round_.answer({"confirm": True}).error.code == -32602
    client.close()


def test_a_principal_may_be_given_as_depends(desk: Desk) -> None:
    """decision: `principal=` accepts a callable or `Depends(...)`."""
    mcp = MCPRouter("x", version="1", principal=Depends(current_user))

    @mcp.tool()
    async def whoami(ctx: Context) -> str:
        return str(ctx.principal)

    client = MCPTestClient(travel_app(desk, mcp))
    with client.as_principal("bob"):
        assert "bob" in str(client.call_tool("whoami").content)


def test_an_anonymous_router_has_nobody_to_be(desk: Desk) -> None:
    """decision: anonymous is explicit."""
    client = MCPTestClient(travel_app(desk, MCPRouter("x", version="1")))
    with pytest.raises(TypeError, match="no principal="), client.as_principal("bob"):
        pass


@pytest.mark.anyio
async def test_a_test_may_be_async(client: MCPTestClient) -> None:
    """The client blocks the test's loop and uses another; decision."""
    result = client.call_tool("book_seat", FLIGHT, answers={"seat": A4, "confirm": True})
    assert result.is_error is False


@pytest.mark.parametrize("enter", [True, False], ids=["context", "bare"])
def test_one_client_plays_many_flows_at_once(app: FastAPI, desk: Desk, enter: bool) -> None:
    """Requests at the same moment are a test of their own; decision."""
    client = MCPTestClient(app)

    def play(row: int) -> Any:
        answers = {"seat": {"row": row, "letter": "A"}, "confirm": True}
        return client.call_tool("book_seat", FLIGHT, answers=answers).structured_content

    with client if enter else nullcontext(), ThreadPoolExecutor(8) as threads:
        seats = [booking["seat"] for booking in threads.map(play, range(1, 25))]
    assert seats == [f"{row}A" for row in range(1, 25)]
    assert sorted(desk.holds) == list(range(1, 25))
    assert len({reply.request["id"] for reply in client.replies}) == 72
