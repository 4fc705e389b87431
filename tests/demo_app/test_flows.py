"""Every MCP flow of the demo, in process."""

from typing import Any

import httpx2
import pytest
from mcp_types import CallToolResult, TextContent, TextResourceContents

from fastapi_mcp_mrtr.testing import CANCEL, DECLINE, ErrorReply, MCPTestClient, RejectedRequest

from .helpers import AMELIE, BRUNO, CHEN, Browser, Clock
from .test_rest import hold


def content(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def error_text(result: CallToolResult) -> str:
    assert result.is_error
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


def seat(row: int, letter: str) -> dict[str, Any]:
    return {"row": row, "letter": letter}


def test_what_the_desk_offers(client: MCPTestClient) -> None:
    """Decision: the list a customer sees first."""
    assert {tool.name for tool in client.list_tools()} == {
        "search_flights",
        "free_seats",
        "compare_fares",
        "list_bookings",
        "book_seat",
        "book_party",
        "pay_booking",
        "cancel_booking",
    }
    assert [prompt.name for prompt in client.list_prompts()] == ["itinerary"]
    assert {str(r.uri) for r in client.list_resources()} == {"desk://airports", "desk://conditions"}
    assert {template.uri_template for template in client.list_resource_templates()} == {
        "desk://flights/{flight}/fare-rules",
        "desk://bookings/{reference}",
    }


def test_injected_parameters_are_not_in_the_schemas(client: MCPTestClient) -> None:
    """User report: the client could see and set what a dependency should give."""
    schemas = {tool.name: tool.input_schema for tool in client.list_tools()}
    assert schemas["book_party"]["properties"].keys() == {"flight", "travellers"}


def test_a_stranger_is_refused(client: MCPTestClient) -> None:
    """Decision: 401 from the app's own dependency, as for REST."""
    client.headers = {}
    with pytest.raises(RejectedRequest):
        client.call_tool("search_flights")
    assert client.replies[-1].status_code == 401


def test_search_flights(client: MCPTestClient) -> None:
    """Decision: a plain tool with structured output."""
    found = content(client.call_tool("search_flights", {"origin": "VIE"}))
    assert [flight["number"] for flight in found["flights"]] == ["TD305", "TD521"]


def test_the_slow_comparison_says_how_far_it_is(client: MCPTestClient) -> None:
    """Decision: progress for every partner, one log line, one result."""
    compared = client.begin_tool("compare_fares", {"flight": "TD101"})
    assert content(compared.result)["cheapest"] == {"partner": "SkyPool", "fare_cents": 12_513}
    methods = [notification.method for notification in compared.notifications]
    assert methods == ["notifications/progress"] * 5 + ["notifications/message"]


def test_book_a_seat(client: MCPTestClient) -> None:
    """Decision: which seat, a hold, a confirmation that pays."""
    first = client.begin_tool("book_seat", {"flight": "TD101"})
    second = first.answer({"seat-1": seat(14, "A")})
    assert second.asks["confirm"].message == "Pay €129.00 from your account for seat 14A on TD101?"
    booked = content(second.answer({"confirm": True}).result)
    assert booked["status"] == "paid"
    assert booked["passengers"] == [{"name": "Amélie Moreau", "seat": "14A"}]


def test_the_seat_is_held_between_the_rounds(client: MCPTestClient) -> None:
    """Decision: that is what the step is for."""
    first = client.begin_tool("book_seat", {"flight": "TD101"})
    first.answer({"seat-1": seat(14, "A")})
    free = content(client.call_tool("free_seats", {"flight": "TD101"}))["free"]
    assert "14A" not in free


def test_a_lost_response_holds_no_second_seat(client: MCPTestClient) -> None:
    """User report: the client repeats a round whose response it never saw."""
    answers = {"seat-1": seat(14, "A")}
    first = client.begin_tool("book_seat", {"flight": "TD101"})
    content(first.drop_response(answers).answer(answers).answer({"confirm": True}).result)
    assert len(content(client.call_tool("list_bookings"))["bookings"]) == 1


def test_a_repeated_last_round_pays_once(client: MCPTestClient, http: httpx2.Client) -> None:
    """User report: the final response was lost and the same round came again, charging twice."""
    second = client.begin_tool("book_seat", {"flight": "TD101"}).answer({"seat-1": seat(14, "A")})
    done = second.answer({"confirm": True})
    assert content(done.replay().result) == content(done.result)
    me = http.get("/me", headers={"X-API-Key": AMELIE}).json()
    assert me["balance_cents"] == 250_000 - 12_900


def test_a_taken_seat_is_asked_for_again(client: MCPTestClient, http: httpx2.Client) -> None:
    """Decision: what was free when the question was asked may be taken when it is answered."""
    first = client.begin_tool("book_seat", {"flight": "TD101"})
    hold(http, "14A", key=BRUNO)
    second = first.answer({"seat-1": seat(14, "A")})
    assert second.asks["seat-2"].message.startswith("Seat 14A on TD101 is taken.")
    third = second.answer({"seat-2": seat(14, "B")})
    booked = content(third.answer({"confirm": True}).result)
    assert booked["passengers"][0]["seat"] == "14B"


def test_the_course_of_a_flow_does_not_change_when_a_seat_gets_free(
    client: MCPTestClient, http: httpx2.Client, clock: Clock
) -> None:
    """Decision: the step remembers that 14A was taken, though it is free again on replay."""
    hold(http, "14A", key=BRUNO)
    second = client.begin_tool("book_seat", {"flight": "TD101"}).answer({"seat-1": seat(14, "A")})
    third = second.answer({"seat-2": seat(14, "B")})
    http.delete(
        f"/bookings/{http.get('/bookings', headers={'X-API-Key': BRUNO}).json()[0]['reference']}",
        headers={"X-API-Key": BRUNO},
    )
    booked = content(third.answer({"confirm": True}).result)
    assert booked["passengers"][0]["seat"] == "14B"


def test_a_row_that_does_not_exist_is_asked_for_again(client: MCPTestClient) -> None:
    """Spec: SHOULD validate against the schema (elicitation §Form Mode Security)."""
    first = client.begin_tool("book_seat", {"flight": "TD101"})
    again = first.answer({"seat-1": seat(99, "A")})
    assert "30" in again.asks["seat-1"].message


@pytest.mark.parametrize("answer", [False, DECLINE, CANCEL])
def test_who_does_not_agree_pays_nothing(
    client: MCPTestClient, http: httpx2.Client, answer: Any
) -> None:
    """Decision: "no", a refusal and a closed dialogue all give the seat back."""
    answers = {"seat-1": seat(14, "A"), "confirm": answer}
    cancelled = content(client.call_tool("book_seat", {"flight": "TD101"}, answers=answers))
    assert cancelled["status"] == "cancelled"
    assert "14A" in http.get("/flights/TD101/seats").json()["free"]


def test_too_little_money_is_said(client: MCPTestClient) -> None:
    """Decision: the rule's own words reach the client."""
    client.headers = {"X-API-Key": CHEN}
    answers = {"seat-1": seat(14, "A"), "confirm": True}
    result = client.call_tool("book_seat", {"flight": "TD101"}, answers=answers)
    assert error_text(result) == "There is not enough money on the account."


def test_a_hold_that_lapsed_cannot_be_confirmed(client: MCPTestClient, clock: Clock) -> None:
    """Decision: who answers too late is told; the state itself may live longer than the hold."""
    second = client.begin_tool("book_seat", {"flight": "TD101"}).answer({"seat-1": seat(14, "A")})
    client.router.clock = lambda: 1_800_000_000.0  # only the desk's clock goes on
    clock.advance(15 * 60)
    assert "expired" in error_text(second.answer({"confirm": True}).result)


def test_a_flow_belongs_to_who_started_it(client: MCPTestClient) -> None:
    """Spec: SHOULD reject the state of a different principal (mrtr §Server Requirements 5)."""
    second = client.begin_tool("book_seat", {"flight": "TD101"}).answer({"seat-1": seat(14, "A")})
    stolen = second.answer({"confirm": True}, headers={"X-API-Key": BRUNO})
    assert stolen.error.code == -32602


PARTY = {
    "traveller-1": {"name": "Ada"},
    "traveller-2": {"name": "Bo"},
    "traveller-3": {"name": "Cy"},
}


def test_book_a_party(client: MCPTestClient, browser: Browser) -> None:
    """Decision: all names in one round, then a seat each, then the payment page."""
    names = client.begin_tool("book_party", {"flight": "TD412", "travellers": 3})
    assert names.asks.keys() == PARTY.keys()
    round_ = names.answer(PARTY)
    for n, name in enumerate(["Ada", "Bo", "Cy"], 1):
        key = f"try-1.traveller-{n}.seat-1"
        assert round_.asks[key].message == f"Which seat for {name} on TD412?"
        round_ = round_.answer({key: seat(20 + n, "C")})
    link = round_.asks["payment-page"].url
    waiting = round_.answer({"payment-page": True})
    assert not waiting.asks
    browser.pay(link, AMELIE)
    booked = content(waiting.wait().result)
    assert booked["status"] == "paid"
    assert [passenger["seat"] for passenger in booked["passengers"]] == ["21C", "22C", "23C"]


def test_a_party_answers_in_any_number_of_rounds(client: MCPTestClient) -> None:
    """Spec: SHOULD ask again for what is missing (mrtr §Error Handling)."""
    names = client.begin_tool("book_party", {"flight": "TD412", "travellers": 3})
    partial = names.answer({"traveller-2": {"name": "Bo"}}, partial=True)
    assert partial.asks.keys() == {"traveller-1", "traveller-3"}


def test_a_party_cannot_share_a_seat(client: MCPTestClient) -> None:
    """Decision: said at once, before anything is held."""
    round_ = client.begin_tool("book_party", {"flight": "TD412", "travellers": 2}).answer(
        {"traveller-1": {"name": "Ada"}, "traveller-2": {"name": "Bo"}}
    )
    round_ = round_.answer({"try-1.traveller-1.seat-1": seat(5, "A")})
    round_ = round_.answer({"try-1.traveller-2.seat-1": seat(5, "A")})
    assert "already" in round_.asks["try-1.traveller-2.seat-2"].message


def test_only_who_lost_a_seat_chooses_again(client: MCPTestClient, http: httpx2.Client) -> None:
    """Decision: all seats are held together; a taken one is asked for again, the others are not."""
    round_ = client.begin_tool("book_party", {"flight": "TD101", "travellers": 2}).answer(
        {"traveller-1": {"name": "Ada"}, "traveller-2": {"name": "Bo"}}
    )
    round_ = round_.answer({"try-1.traveller-1.seat-1": seat(14, "A")})
    hold(http, "14B", key=BRUNO)
    round_ = round_.answer({"try-1.traveller-2.seat-1": seat(14, "B")})
    assert round_.asks.keys() == {"try-2.traveller-2.seat-1"}
    round_ = round_.answer({"try-2.traveller-2.seat-1": seat(14, "C")})
    assert round_.asks.keys() == {"payment-page"}


@pytest.mark.parametrize(("tool", "more"), [("book_seat", {}), ("book_party", {"travellers": 2})])
def test_an_unknown_flight_is_said_before_anything_is_asked(
    client: MCPTestClient, tool: str, more: dict[str, int]
) -> None:
    """Decision: nobody answers questions in vain."""
    result = client.call_tool(tool, {"flight": "TD999", **more})
    assert error_text(result) == "There is no flight TD999."


def test_pay_on_the_page(client: MCPTestClient, http: httpx2.Client, browser: Browser) -> None:
    """Spec: consent is not completion, the server says "not yet" (elicitation §URL Mode)."""
    reference = hold(http, "14A").json()["reference"]
    waits: list[int] = []

    def pay_at_the_third_wait(round_: Any) -> None:
        waits.append(round_.number)
        if len(waits) == 3:
            [ask] = [ask for asks in round_.history for ask in asks]
            browser.pay(ask.url, AMELIE)

    paid = content(
        client.call_tool(
            "pay_booking",
            {"reference": reference},
            answers={"payment-page": True},
            on_wait=pay_at_the_third_wait,
        )
    )
    assert paid["status"] == "paid"
    assert len(waits) == 3


def test_paid_before_the_client_came_back(
    client: MCPTestClient, http: httpx2.Client, browser: Browser
) -> None:
    """Decision: then there is nothing to wait for."""
    reference = hold(http, "14A").json()["reference"]
    first = client.begin_tool("pay_booking", {"reference": reference})
    browser.pay(first.asks["payment-page"].url, AMELIE)
    assert content(first.answer({"payment-page": True}).result)["status"] == "paid"


def test_who_refuses_to_open_the_page_closes_the_payment(
    client: MCPTestClient, http: httpx2.Client, browser: Browser
) -> None:
    """Spec: MUST handle declined requests (elicitation §Error Handling)."""
    reference = hold(http, "14A").json()["reference"]
    first = client.begin_tool("pay_booking", {"reference": reference})
    assert "not paid for, it is held" in error_text(first.answer({"payment-page": DECLINE}).result)
    assert "Not paid" in browser.sign_in(first.asks["payment-page"].url, AMELIE)


def test_who_backs_out_on_the_page_ends_the_wait(
    client: MCPTestClient, http: httpx2.Client, browser: Browser
) -> None:
    """Decision: the flow says so; the booking can still be paid for."""
    reference = hold(http, "14A").json()["reference"]
    waiting = client.begin_tool("pay_booking", {"reference": reference}).answer(
        {"payment-page": True}
    )
    [link] = [ask.url for asks in waiting.history for ask in asks]
    browser.sign_in(link, AMELIE)
    browser.submit(f"{link}/cancel", {})
    assert "not paid" in error_text(waiting.wait().result)
    second = client.begin_tool("pay_booking", {"reference": reference})
    assert second.asks["payment-page"].url != link


def test_a_wait_ends_when_the_hold_lapses(
    client: MCPTestClient, http: httpx2.Client, clock: Clock
) -> None:
    """Decision: nobody waits for what cannot be paid any more."""
    reference = hold(http, "14A").json()["reference"]
    waiting = client.begin_tool("pay_booking", {"reference": reference}).answer(
        {"payment-page": True}
    )
    client.router.clock = lambda: 1_800_000_000.0  # only the desk's clock goes on
    clock.advance(15 * 60)
    assert "not paid" in error_text(waiting.wait().result)


def test_a_wait_ends_when_the_booking_is_paid_in_another_way(
    client: MCPTestClient, http: httpx2.Client, browser: Browser
) -> None:
    """Decision: what counts is the booking; the page then accepts nothing more."""
    reference = hold(http, "14A").json()["reference"]
    waiting = client.begin_tool("pay_booking", {"reference": reference}).answer(
        {"payment-page": True}
    )
    http.post(f"/bookings/{reference}/payment", headers={"X-API-Key": AMELIE})
    assert content(waiting.wait().result)["status"] == "paid"
    [link] = [ask.url for asks in waiting.history for ask in asks]
    assert "Nothing was charged" in browser.sign_in(link, AMELIE)


def test_a_booking_that_is_paid_opens_no_payment(
    client: MCPTestClient, http: httpx2.Client
) -> None:
    """Decision: the rule's own words reach the client."""
    reference = hold(http, "14A").json()["reference"]
    http.post(f"/bookings/{reference}/payment", headers={"X-API-Key": AMELIE})
    result = client.call_tool("pay_booking", {"reference": reference})
    assert error_text(result) == f"Booking {reference} is paid, so it cannot be paid for."


def test_a_client_without_url_mode_is_told(client: MCPTestClient, http: httpx2.Client) -> None:
    """Spec: MUST NOT send modes that the client does not support (elicitation §Capabilities)."""
    reference = hold(http, "14A").json()["reference"]
    client.capabilities = {"elicitation": {}}
    first = client.begin_tool("pay_booking", {"reference": reference})
    assert first.error.code == -32021


@pytest.mark.parametrize(("answer", "status"), [(True, "cancelled"), (False, "held")])
def test_cancel_a_booking(
    client: MCPTestClient, http: httpx2.Client, answer: bool, status: str
) -> None:
    """Decision: asks first."""
    reference = hold(http, "14A").json()["reference"]
    result = client.call_tool(
        "cancel_booking", {"reference": reference}, answers={"cancel": answer}
    )
    assert content(result)["status"] == status


def test_a_refused_cancellation_cancels_nothing(client: MCPTestClient, http: httpx2.Client) -> None:
    """Decision: left to the library: an error result that says who declined what."""
    reference = hold(http, "14A").json()["reference"]
    result = client.call_tool(
        "cancel_booking", {"reference": reference}, answers={"cancel": DECLINE}
    )
    assert "declined" in error_text(result)
    booking = http.get(f"/bookings/{reference}", headers={"X-API-Key": AMELIE}).json()
    assert booking["status"] == "held"


def test_the_itinerary_prompt_asks(client: MCPTestClient) -> None:
    """Decision: prompts ask like tools; a form with a number, a choice and several choices."""
    first = client.begin_prompt("itinerary", {"destination": "LIS"})
    schema = first.asks["wishes"].schema["properties"]
    assert schema["pace"]["oneOf"][0] == {"const": "easy", "title": "Easy: two things a day"}
    assert schema["interests"]["type"] == "array"
    wishes = {"days": 4, "pace": "full", "interests": ["food", "music"]}
    [message] = first.answer({"wishes": wishes}).result.messages
    assert isinstance(message.content, TextContent)
    assert "4 days in Lisbon" in message.content.text
    assert "TD101 from AMS" in message.content.text


def test_an_itinerary_to_nowhere_is_an_error(client: MCPTestClient) -> None:
    """Decision: a prompt has no error result, so it is a JSON-RPC error with the detail."""
    with pytest.raises(ErrorReply, match="no airport XXX"):
        client.get_prompt("itinerary", {"destination": "XXX"})


def test_airports_complete_by_code_and_by_city(client: MCPTestClient) -> None:
    """Spec: completion of prompt arguments (server/utilities/completion)."""
    assert client.complete("destination", "b", prompt="itinerary").values == ["BCN"]
    assert client.complete("destination", "Lis", prompt="itinerary").values == ["LIS"]


def test_flights_complete_in_the_fare_rules(client: MCPTestClient) -> None:
    """Spec: completion of template variables (server/utilities/completion)."""
    found = client.complete("flight", "td10", resource="desk://flights/{flight}/fare-rules")
    assert found.values == ["TD101", "TD103", "TD104"]


def test_the_fare_rules_ask_for_the_class(client: MCPTestClient) -> None:
    """Decision: resources ask like tools; one choice, with a title each."""
    first = client.begin_resource("desk://flights/TD101/fare-rules")
    [field] = first.asks["fare-class"].schema["properties"].values()
    assert [option["const"] for option in field["oneOf"]] == ["light", "standard", "flex"]
    [rules] = first.answer({"fare-class": "flex"}).result.contents
    assert isinstance(rules, TextResourceContents)
    assert rules.text.startswith("# TD101, AMS to LIS: flex")
    assert rules.mime_type == "text/markdown"


def test_static_resources(client: MCPTestClient) -> None:
    """Decision: one from the database, one from the code."""
    [airports] = client.read_resource("desk://airports").contents
    assert isinstance(airports, TextResourceContents)
    assert '"Lisbon"' in airports.text
    [conditions] = client.read_resource("desk://conditions").contents
    assert isinstance(conditions, TextResourceContents)
    assert conditions.text.startswith("# Conditions")


def test_a_booking_is_a_resource_of_its_owner(client: MCPTestClient, http: httpx2.Client) -> None:
    """Decision: somebody else's does not exist."""
    reference = hold(http, "14A").json()["reference"]
    [booking] = client.read_resource(f"desk://bookings/{reference}").contents
    assert isinstance(booking, TextResourceContents)
    assert reference in booking.text
    with pytest.raises(ErrorReply):
        client.read_resource(f"desk://bookings/{reference}", headers={"X-API-Key": BRUNO})
