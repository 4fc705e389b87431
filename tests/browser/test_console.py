"""The console as people use it: every kind of question, refusals, rounds; and signing in."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from .conftest import OpenTab, Serving, Tab
from .served import open_app, protected_app

AXE = Path(__file__).parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def site(serve: Serving) -> str:
    return serve(lambda _: open_app())


@pytest.fixture(scope="module")
def protected(serve: Serving) -> str:
    return serve(protected_app)


class Console:
    """The page, by what is written on it."""

    def __init__(self, tab: Tab, url: str) -> None:
        self.tab = tab
        self.page = tab.page
        self.page.goto(url)

    @property
    def run(self) -> Locator:
        return self.page.locator("section.run")

    @property
    def result(self) -> Locator:
        return self.run.locator(".result")

    def choose(self, title: str) -> "Console":
        self.page.get_by_role("navigation").get_by_role("link", name=title).click()
        expect(self.page.get_by_role("heading", level=1, name=title)).to_be_focused()
        return self

    def call(self, title: str, **arguments: str) -> "Console":
        self.choose(title)
        for label, value in arguments.items():
            self.page.locator(".item").get_by_label(label).fill(value)
        self.press("Call")
        return self

    def press(self, name: str | re.Pattern[str]) -> None:
        self.page.get_by_role("button", name=name, exact=isinstance(name, str)).click()

    def question(self, text: str) -> Locator:
        return self.page.get_by_role("article").filter(has_text=text)

    def expect_result(self, text: str) -> None:
        expect(self.result).to_contain_text(text)

    def panel(self, number: int, title: str | re.Pattern[str]) -> Locator:
        """What a round has to show, opened."""
        shown = self.run.locator(".round").filter(has_text=f"Round {number}")
        shown.get_by_role("button", name=title).click()
        return shown.locator(".json-box")


@pytest.fixture
def console(open_tab: OpenTab, site: str) -> Console:
    return Console(open_tab(viewport={"width": 1200, "height": 860}), f"{site}/api/mcp/console")


# -------------------------------------------------------------------------------- the catalogue


def test_everything_that_the_server_offers_is_listed(console: Console) -> None:
    """Tools, prompts, resources and templates, below what the server says of itself. decision"""
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Travel desk")
    expect(console.page.get_by_text("book with the flight's number")).to_be_visible()
    listed = console.page.get_by_role("navigation")
    for section in ("Tools", "Prompts", "Resources", "Templates"):
        expect(listed.get_by_role("heading", name=section)).to_be_visible()


def test_the_list_can_be_filtered(console: Console) -> None:
    """By title, name and description. decision"""
    console.page.get_by_label("Filter").fill("FARES")
    links = console.page.get_by_role("navigation").get_by_role("link")
    expect(links).to_have_count(1)
    console.page.get_by_label("Filter").fill("no such thing")
    expect(console.page.get_by_text("Nothing matches.")).to_be_visible()


def test_an_item_has_an_address(console: Console, site: str) -> None:
    """A link to a tool can be kept, and opens it. decision"""
    console.page.goto("about:blank")
    console.page.goto(f"{site}/api/mcp/console#tool/book_seat")
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Book a seat")


# ----------------------------------------------------------------------------------- questions


def test_a_flow_of_forms_ends_with_its_result(console: Console) -> None:
    """user report: nobody could see what a tool asks without writing a client."""
    console.call("Book a seat", flight="LX318")
    seat = console.question("Which seat would you like on LX318?")
    expect(console.page.get_by_role("heading", name="Travel desk asks")).to_be_focused()
    seat.get_by_label("Row").fill("12")
    seat.get_by_label("Seat").select_option("B")
    console.tab.picture("form")
    console.press("Send")
    confirm = console.question("Pay 129.5 euros for 12B?")
    expect(confirm.get_by_role("radio", checked=True)).to_have_count(0)
    confirm.get_by_label("Yes").check()
    console.press("Send")
    expect(console.page.get_by_role("heading", name="Result after 3 rounds")).to_be_focused()
    console.expect_result('"paid": true')


def test_the_time_line_has_every_request_and_response(console: Console) -> None:
    """As they went over the wire, the state among them. decision"""
    console.call("Book a seat", flight="LX318")
    console.question("Which seat").wait_for()
    expect(console.panel(1, "Response")).to_contain_text('"requestState": "')
    console.press("Decline")
    expect(console.run.get_by_text("Answered seat (decline)")).to_be_visible()
    request = console.panel(2, "Request")
    expect(request).to_contain_text('"MCP-Protocol-Version": "2026-07-28"')
    expect(request).to_contain_text('"action": "decline"')


def test_a_wrong_answer_is_shown_at_its_field(console: Console) -> None:
    """Before it is sent, where the schema says so. decision"""
    console.call("Book a seat", flight="LX318")
    seat = console.question("Which seat")
    seat.get_by_label("Row").fill("41")
    console.press("Send")
    row = seat.get_by_label("Row")
    expect(row).to_have_accessible_description(re.compile("Must be at most 40", re.IGNORECASE))
    expect(row).to_be_focused()
    missing = re.compile("is required", re.IGNORECASE)
    expect(seat.get_by_label("Seat")).to_have_accessible_description(missing)


def test_what_the_server_finds_wrong_is_shown_at_the_field(console: Console) -> None:
    """The reason that it appends to the question, and the answer to be mended. decision"""
    console.call("Book a seat", flight="LX318")
    seat = console.question("Which seat")
    seat.get_by_label("Row").fill("13")
    seat.get_by_label("Seat").select_option("C")
    console.press("Send")
    row = seat.get_by_label("Row")
    expect(row).to_have_accessible_description(re.compile("there is no such row", re.IGNORECASE))
    expect(seat).not_to_contain_text("(row:")
    expect(row).to_have_value("13")
    expect(seat.get_by_label("Seat")).to_have_value(re.compile("."))
    console.tab.picture("refused")
    row.fill("14")
    expect(seat).not_to_contain_text("there is no such row")
    console.press("Send")
    expect(console.question("Pay 129.5 euros for 14C?")).to_be_visible()


@pytest.mark.parametrize(
    ("button", "said"),
    [("Decline", "The user declined 'seat'."), ("Cancel", "The user cancelled 'seat'.")],
)
def test_every_question_can_be_refused(console: Console, button: str, said: str) -> None:
    """spec: MUST (elicitation §User Interaction Model): clear decline and cancel options"""
    console.call("Book a seat", flight="LX318")
    console.question("Which seat").wait_for()
    console.press(button)
    console.expect_result("The tool reports an error")
    console.expect_result(said)


def test_the_questions_of_a_batch_are_answered_one_by_one(console: Console) -> None:
    """And sent together; each may be changed until then. Options show their titles. decision"""
    console.call("Plan a trip")
    meals = console.question("What would you like to eat?")
    baggage = console.question("How much do you bring?")
    send = console.page.get_by_role("button", name="Send 2 answers")
    meals.get_by_label("Meal").select_option(label="Fish")
    expect(meals.get_by_label("Coffee")).to_be_checked()
    meals.get_by_label("Wine").check()
    meals.get_by_role("button", name="Answer", exact=True).click()
    expect(send).to_be_disabled()
    baggage.get_by_label("bags").fill("2")
    console.tab.picture("half")
    baggage.get_by_role("button", name="Answer", exact=True).click()
    expect(send).to_be_focused()
    meals.get_by_role("button", name="Change").click()
    meals.get_by_label("Meal").select_option(label="Vegetables")
    meals.get_by_role("button", name="Answer", exact=True).click()
    send.click()
    console.expect_result("v and w, c, 2 bags")


def test_one_question_of_a_batch_can_be_refused(console: Console) -> None:
    """Each has an action of its own. decision"""
    console.call("Plan a trip")
    console.question("bring?").get_by_role("button", name="Decline").click()
    expect(console.question("bring?")).to_contain_text("Declined")
    meals = console.question("to eat?")
    meals.get_by_label("Meal").select_option(label="Meat")
    meals.get_by_role("button", name="Answer", exact=True).click()
    console.press("Send 2 answers")
    console.expect_result("The user declined 'baggage'.")


def test_a_link_is_opened_by_people_alone(console: Console, site: str) -> None:
    """spec: MUST (elicitation §URL Mode): host shown, consent before navigation"""
    console.call("Pay by card", page=f"{site}/elsewhere")
    pay = console.question("Please pay for your flight.")
    host = site.removeprefix("http://")
    expect(pay.locator("strong")).to_have_text(host)
    expect(pay.get_by_text(f"{site}/elsewhere?payment=")).to_be_visible()
    assert len(console.page.context.pages) == 1
    console.tab.picture("link")
    with console.page.context.expect_page() as opened:
        pay.get_by_role("link", name=f"Open {host} in a new tab").click()
    expect(opened.value.get_by_role("heading")).to_have_text("Elsewhere")
    assert opened.value.evaluate("window.opener") is None
    opened.value.close()
    console.press("Continue")
    expect(console.page.get_by_role("heading", name="The server is waiting")).to_be_focused()
    console.tab.picture("waiting")
    console.press("Check now")
    console.expect_result("Paid.")
    expect(console.run.get_by_text("waits")).to_be_visible()


def test_an_address_that_is_none_of_the_web_s_is_not_opened(console: Console) -> None:
    """A hostile server sends what its own library would refuse. decision"""

    def hostile(route: Any) -> None:
        body = json.loads(route.request.post_data)
        params = {"mode": "url", "message": "Please look.", "url": "javascript:alert(1)"}
        asked = {"odd": {"method": "elicitation/create", "params": params}}
        result = {"resultType": "input_required", "inputRequests": asked, "requestState": "x"}
        route.fulfill(json={"jsonrpc": "2.0", "id": body["id"], "result": result})

    console.choose("Pay by card")
    console.page.get_by_label("page").fill("https://pay.example/")
    console.page.route("**/api/mcp", hostile)
    console.press("Call")
    odd = console.question("Please look.")
    expect(odd).to_contain_text("This is no web address")
    expect(odd.get_by_role("link")).to_have_count(0)
    expect(odd.get_by_role("button", name="Continue")).to_have_count(0)
    expect(odd.get_by_role("button", name="Decline")).to_be_visible()


FORM = {"mode": "form", "message": 7}
GARBAGE: list[dict[str, Any]] = [
    {"resultType": "input_required", "inputRequests": {"a": 7, "b": {}, "c": {"method": "?"}}},
    {"resultType": "input_required", "inputRequests": [], "requestState": 7},
    *(
        {
            "resultType": "input_required",
            "inputRequests": {
                "__proto__": {
                    "method": "elicitation/create",
                    "params": {**FORM, "requestedSchema": schema},
                }
            },
        }
        for schema in (
            7,
            {"type": "object", "properties": {"__proto__": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
            {"$ref": "#"},
            {"type": "object", "properties": {"a": 7, "b": None, "c": {"type": "nothing"}}},
        )
    ),
    {"resultType": "input_required", "inputRequests": {"s": {"method": "sampling/createMessage"}}},
    {"content": [None, 7, {"type": "text", "text": {}}, {"type": "image", "data": 7}]},
    {"content": [{"type": "resource"}, {"type": "resource_link"}, {"type": "audio"}]},
    {"content": "x", "structuredContent": None, "isError": "yes"},
    {"messages": [7, {"role": {}, "content": 7}], "contents": [7]},
    {},
]


@pytest.mark.parametrize("result", GARBAGE, ids=range(len(GARBAGE)))
def test_whatever_a_server_sends_leaves_the_page_standing(
    open_tab: OpenTab, site: str, result: dict[str, Any]
) -> None:
    """A hostile server gets no further than a broken one. decision"""
    tab = open_tab()
    console = Console(tab, f"{site}/api/mcp/console").choose("Fail")

    def send_garbage(route: Any) -> None:
        body = json.loads(route.request.post_data)
        route.fulfill(json={"jsonrpc": "2.0", "id": body["id"], "result": result})

    console.page.route("**/api/mcp", send_garbage)
    console.press("Call")
    heading = console.page.locator("#run-title, main > .notice")
    expect(heading).not_to_have_text("Round 1 is running")
    for button in console.page.locator(".question .primary").all():
        button.click()
    expect(console.page.get_by_role("navigation")).to_be_visible()
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Fail")
    tab.complaints.clear()


def test_sampling_is_answered_by_hand(console: Console) -> None:
    """The person at the page is the model. decision"""
    console.call("Write a greeting")
    asked = console.question("A reply from your model")
    expect(asked).to_contain_text("Be brief.")
    expect(asked).to_contain_text("Greet a traveller to Lisbon.")
    asked.get_by_label("Reply").fill("Bom dia!")
    console.tab.picture("asked")
    console.press("Send the reply")
    console.expect_result("It wrote: Bom dia!")


def test_folders_are_listed_by_hand(console: Console) -> None:
    """As many as there are, each a file URL. decision"""
    console.call("List folders")
    asked = console.question("The folders that the server may look at")
    asked.get_by_label("Folder 1").fill("/tmp")
    expect(asked).to_contain_text("must begin with file://")
    asked.get_by_label("Folder 1").fill("file:///home/ada")
    console.press("Add a folder")
    asked.get_by_label("Folder 2").fill("file:///home/bob")
    console.press("Send the list")
    console.expect_result("file:///home/ada, file:///home/bob")


def test_a_call_can_be_stopped(console: Console) -> None:
    """The connection is closed, which cancels it, and the round can be tried again. decision"""
    console.call("Compare fares", pause="1")
    expect(console.run.get_by_role("progressbar")).to_be_visible()
    console.press("Stop")
    expect(console.run).to_contain_text("You stopped this call")
    expect(console.page.get_by_role("button", name="Try this round again")).to_be_visible()


# ------------------------------------------------------------------------------------- results


def test_progress_is_a_bar_and_log_lines_are_listed(console: Console, site: str) -> None:
    """While the call runs. decision"""
    console.call("Compare fares", pause="1")
    bar = console.run.get_by_role("progressbar", name="Asking Northwind (0 of 3)")
    expect(bar).to_have_attribute("max", "3")
    lines = console.page.get_by_role("list", name="Log lines").get_by_role("listitem")
    expect(lines).to_have_text(["infoNorthwind answered"])
    console.tab.picture("running")
    console.page.request.post(f"{site}/release")
    console.expect_result("SkyPool is cheapest.")
    expect(lines).to_have_count(4)
    expect(lines.last).to_have_text('warning{"slow":["SkyPool"]}')


def test_pictures_sounds_and_files_are_shown_as_such(console: Console) -> None:
    """And nothing that a server sends becomes markup, script or a link off the web. decision"""
    console.call("Show a postcard")
    picture = console.result.get_by_role("img").first
    expect(picture).to_have_js_property("naturalWidth", 240)
    expect(console.result.locator("audio")).to_have_count(1)
    expect(console.result).to_contain_text("Greetings <b onclick='x'>from</b> Lisbon.")
    expect(console.result).to_contain_text("type image/svg+xml, 6 bytes")
    expect(console.result.get_by_role("link")).to_have_count(0)
    console.result.get_by_role("button", name="Read it here").first.click()
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Terms")
    console.expect_result("Be on time.")


def test_an_error_of_a_tool_is_one_to_read(console: Console) -> None:
    """Not an empty result. decision"""
    console.call("Fail")
    console.expect_result("The tool reports an error")
    console.expect_result("There are no flights today.")


def test_an_error_of_the_protocol_shows_its_code(console: Console) -> None:
    """And its data: here what the client did not declare. decision"""
    console.press("Client")
    console.page.get_by_label("Replies for a model (sampling)").uncheck()
    console.tab.picture("client")
    console.press("Done")
    console.call("Write a greeting")
    expect(console.page.get_by_role("alert")).to_contain_text("-32021")
    expect(console.page.get_by_role("alert")).to_contain_text('"requiredCapabilities"')


def test_arguments_of_every_shape_have_a_form(console: Console) -> None:
    """Nested, listed, dated; and what a header repeats. decision"""
    console.choose("Search flights")
    item = console.page.locator(".item")
    item.get_by_label("origin").fill("ZRH")
    item.get_by_label("latest").fill("2026-12-24")
    console.press("Add an item")
    item.get_by_label("stops-1").fill("LIS")
    item.get_by_label("region").fill("Zürich")
    console.press("Call")
    console.expect_result("ZRH until 2026-12-24 by ['LIS'] in Zürich")
    expect(console.panel(1, "Request")).to_contain_text('"Mcp-Param-Region": "=?base64?')


def test_arguments_can_be_written_as_json(console: Console) -> None:
    """What no form lets through is for the server to refuse. decision"""
    console.choose("Search flights")
    console.press("Write JSON")
    source = console.page.get_by_label("JSON object")
    source.fill("{")
    console.press("Call")
    expect(source).to_have_accessible_description(
        re.compile("must be a JSON object", re.IGNORECASE)
    )
    source.fill('{"where": {"origin": 7}}')
    console.press("Call")
    console.expect_result("where.origin")


def test_prompts_and_templates_are_filled_in(console: Console) -> None:
    """Their arguments are a form, too. decision"""
    console.choose("Plan a weekend")
    console.press("Get")
    city = console.page.get_by_label("city")
    expect(city).to_have_accessible_description(re.compile("is required", re.IGNORECASE))
    city.fill("Lisbon")
    console.press("Get")
    console.expect_result("Plan a calm weekend in Lisbon.")
    console.choose("A flight")
    console.page.get_by_label("number").fill("LX 318/a")
    console.press("Read")
    expect(console.result).to_contain_text("desk://flights/LX%20318%2Fa")


def test_arguments_are_suggested_while_they_are_typed(console: Console) -> None:
    """By the server's own completions. spec: completion/complete"""
    console.choose("Plan a weekend")
    options = console.page.locator("datalist option")
    expect(options).to_have_count(3)
    console.page.get_by_label("city").fill("Li")
    expect(options).to_have_count(2)
    assert [option.get_attribute("value") for option in options.all()] == ["Lisbon", "Lima"]


# ---------------------------------------------------------------------------------- debug mode


def test_debug_mode_opens_sealed_states(console: Console) -> None:
    """For whom they were made, through the server, with the answers in them. decision"""
    console.call("Book a seat", flight="LX318")
    seat = console.question("Which seat")
    seat.get_by_label("Row").fill("12")
    seat.get_by_label("Seat").select_option("B")
    console.press("Send")
    console.question("Pay").wait_for()
    said = console.panel(2, "Sealed state")
    expect(said).to_contain_text("tools/call book_seat")
    expect(said).to_contain_text('"row": 12')
    expect(said).to_contain_text("hold('LX318', '12B')")


def test_headers_by_hand_go_with_every_request(console: Console) -> None:
    """With those of debug mode too: somebody else's state stays closed. decision"""
    console.press("Access")
    console.page.get_by_label("Header").fill("X-API-Key")
    console.page.get_by_label("Value").fill("ada")
    console.tab.picture("access")
    console.press("Use these")
    expect(console.page.get_by_role("button", name="Headers")).to_be_visible()
    console.call("Book a seat", flight="LX318")
    console.question("Which seat").wait_for()
    console.press("Headers")
    console.page.get_by_label("Value").fill("bob")
    console.press("Use these")
    expect(console.panel(1, "Sealed state")).to_contain_text("Invalid or expired requestState")
    assert "ada" not in console.page.evaluate("JSON.stringify([localStorage, sessionStorage])")


# -------------------------------------------------------------------------------- signing in


class SignIn:
    """The pages of the authorization server."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def sign_in(self, key: str = "key-amelie") -> None:
        self.page.get_by_label("key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()

    def decide(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).click()


def test_people_sign_in_and_step_up(open_tab: OpenTab, protected: str) -> None:
    """Discovery, registration, PKCE, consent and back; then once more for another scope. The
    place, and what was typed there, survive the way. spec: MUST (authorization §Flow Steps)"""
    tab = open_tab(viewport={"width": 1200, "height": 860})
    console = Console(tab, f"{protected}/mcp/console")
    page = console.page
    expect(page.get_by_role("heading", name="The server wants to know who you are")).to_be_visible()
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("You will be sent to")).to_contain_text("desk:read")
    tab.picture("before")
    page.get_by_role("button", name=re.compile("^Continue to 127")).click()
    pages = SignIn(page)
    pages.sign_in()
    pages.decide("Allow")

    expect(page.get_by_text("You are signed in.")).to_be_visible()
    assert page.url == f"{protected}/mcp/console"
    assert "eyJ" not in page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    console.call("Who am I")
    console.question("Do you want to know?").get_by_label("Yes").check()
    console.press("Send")
    console.expect_result("You are ")
    expect(console.panel(1, "Sealed state")).to_contain_text("tools/call whoami")

    console.call("Cancel", booking="H1")
    needed = page.get_by_role("heading", name="This needs more than you were granted")
    expect(needed).to_be_visible()
    console.run.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("You will be sent to")).to_contain_text("desk:read desk:book")
    tab.picture("step-up")
    page.get_by_role("button", name=re.compile("^Continue to 127")).click()
    pages.decide("Allow")
    expect(page.get_by_label("booking")).to_have_value("H1")
    console.press("Call")
    console.expect_result("H1 is cancelled.")


def test_people_who_do_not_agree_are_told_so(open_tab: OpenTab, protected: str) -> None:
    """The page goes on without a token. decision"""
    console = Console(open_tab(), f"{protected}/mcp/console")
    page = console.page
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=re.compile("^Continue to 127")).click()
    pages = SignIn(page)
    pages.sign_in("key-bruno")
    pages.decide("Do not allow")
    expect(page.get_by_text("You were not signed in: access was denied.")).to_be_visible()


def test_a_client_id_that_is_known_no_more_can_be_replaced(
    open_tab: OpenTab, protected: str
) -> None:
    """An authorization server that was started anew has forgotten the page. decision"""
    console = Console(open_tab(), f"{protected}/mcp/console")
    page = console.page
    known = f"JSON.stringify({{'{protected}/as': 'forgotten'}})"
    page.evaluate(f"sessionStorage.setItem('mcp-console-clients', {known})")
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    field = page.get_by_label("Client ID")
    expect(field).to_have_value("forgotten")
    field.fill("")
    expect(field).to_be_visible()
    page.get_by_role("button", name=re.compile("^Continue to 127")).click()
    pages = SignIn(page)
    pages.sign_in()
    pages.decide("Allow")
    expect(page.get_by_text("You are signed in.")).to_be_visible()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("code=x&state=forged", "belongs to no sign-in that was begun here"),
        ("code=x&state={state}&iss=https://evil.example", "does not come from"),
        ("code=x&state={state}", "does not come from"),
        ("error=evil&error_description=evil&state={state}&iss=x", "does not come from"),
    ],
)
def test_a_forged_answer_is_not_taken(
    open_tab: OpenTab, protected: str, query: str, why: str
) -> None:
    """spec: MUST (authorization §Authorization Response Validation): state, and iss first"""
    console = Console(open_tab(), f"{protected}/mcp/console")
    page = console.page
    asked: list[str] = []
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=re.compile("^Continue to 127")).click()
    page.get_by_label("key").wait_for()
    state = re.search(r"[?&]state=([^&]+)", page.url)
    assert state is not None
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{protected}/mcp/console?{query.format(state=state[1])}")
    expect(page.get_by_role("status").filter(has_text=why)).to_be_visible()
    expect(page.get_by_role("main")).not_to_contain_text("evil&")
    assert not any(url.endswith("/as/token") for url in asked)
    assert page.url == f"{protected}/mcp/console"


def test_a_token_by_hand_is_forgotten_with_the_page(open_tab: OpenTab, protected: str) -> None:
    """It is kept in memory only. decision"""
    console = Console(open_tab(), f"{protected}/mcp/console")
    console.press("Access")
    console.page.get_by_label("Bearer token").fill("no-token-of-theirs")
    console.press("Use these")
    expect(console.page.get_by_role("button", name="Token", exact=True)).to_be_visible()
    console.page.reload()
    expect(console.page.get_by_role("button", name="Access")).to_be_visible()


def test_another_address_of_the_server_is_pointed_out(open_tab: OpenTab, protected: str) -> None:
    """spec: RFC 9728 §3.3: metadata of another resource must not be used"""
    console = Console(open_tab(), f"{protected.replace('127.0.0.1', 'localhost')}/mcp/console")
    console.page.get_by_role("main").get_by_role("button", name="Sign in").click()
    expect(console.page.get_by_role("alert")).to_contain_text(f"calls itself {protected}/mcp")


# ------------------------------------------------------------------------- everybody can use it


def asking(console: Console) -> None:
    console.call("Book a seat", flight="LX318")
    console.question("Which seat").wait_for()
    console.press("Send")
    console.question("Which seat").locator(".field-errors").first.wait_for()
    console.panel(1, "Sealed state").locator(".facts").wait_for()


def half_answered(console: Console) -> None:
    console.call("Plan a trip")
    console.question("bring?").get_by_role("button", name="Decline").click()


def shown(console: Console) -> None:
    console.call("Show a postcard")
    console.result.get_by_role("img").first.wait_for()
    console.panel(1, "Response").wait_for()


def sampling(console: Console) -> None:
    console.call("Write a greeting").question("A reply from your model").wait_for()


def folders(console: Console) -> None:
    console.call("List folders").question("The folders").wait_for()


def linked(console: Console) -> None:
    console.call("Pay by card", page="https://pay.example/").question("Please pay").wait_for()


def waiting(console: Console) -> None:
    linked(console)
    console.press("Continue")
    console.page.get_by_role("button", name="Check now").wait_for()


def refused(console: Console) -> None:
    console.page.get_by_role("main").get_by_role("button", name="Sign in").click()
    console.page.get_by_text("You will be sent to").wait_for()


def failed(console: Console) -> None:
    console.call("Fail").result.wait_for()


def logged(console: Console) -> None:
    console.call("Compare fares")
    console.page.get_by_role("list", name="Log lines").wait_for()


def nested(console: Console) -> None:
    console.choose("Search flights")
    console.press("Add an item")


def access(console: Console) -> None:
    console.press("Access")


def settings(console: Console) -> None:
    console.press("Client")


def welcome(console: Console) -> None:
    console.page.get_by_role("navigation").get_by_role("link").first.wait_for()


VIEWS: list[Callable[[Console], None]] = [
    welcome, asking, half_answered, linked, waiting, sampling, folders, shown, failed, logged,
    nested, access, settings, refused,
]  # fmt: skip


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        why = "axe-core is not installed: make console-check"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return AXE.read_text()


@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 400)])
def test_everybody_can_use_every_view(
    open_tab: OpenTab, site: str, protected: str, axe: str, theme: str, width: int
) -> None:
    """axe-core finds nothing serious, and nothing is cut off: the page scrolls down only.
    decision: usable with keyboard and screen reader, at 400 pixels, dark and light"""
    # axe-core builds elements from text, which the page's own policy forbids.
    tab = open_tab(color_scheme=theme, viewport={"width": width, "height": 800}, bypass_csp=True)
    found: dict[str, Any] = {}
    for view in VIEWS:
        tab.page.goto("about:blank")
        endpoint = f"{protected}/mcp" if view is refused else f"{site}/api/mcp"
        view(Console(tab, f"{endpoint}/console"))
        tab.page.evaluate(axe)
        report = tab.page.evaluate("axe.run({resultTypes: ['violations']})")
        for violation in report["violations"]:
            if violation["impact"] in SERIOUS:
                nodes = [node["html"] for node in violation["nodes"]]
                found[f"{view.__name__}: {violation['id']}"] = nodes
        if tab.page.evaluate("document.documentElement.scrollWidth") > width:
            found[f"{view.__name__}: cut off"] = True
        tab.picture(view.__name__)
    assert found == {}


def test_a_small_window_leads_back_to_the_list(open_tab: OpenTab, site: str) -> None:
    """Where the list and an item do not fit beside each other. decision"""
    console = Console(
        open_tab(viewport={"width": 400, "height": 800}), f"{site}/api/mcp/console"
    ).choose("Fail")
    expect(console.page.get_by_role("navigation")).to_be_hidden()
    console.page.get_by_role("link", name="All of Travel desk").click()
    expect(console.page.get_by_role("navigation")).to_be_visible()


def test_a_flow_needs_no_mouse(console: Console) -> None:
    """From the list to the result by keys alone. decision"""
    keys = console.page.keyboard
    console.page.get_by_role("navigation").get_by_role("link").first.wait_for()
    keys.press("Tab")
    expect(console.page.get_by_text("Skip to the content")).to_be_focused()
    console.page.get_by_label("Filter").focus()
    keys.press("Tab")
    keys.press("Enter")
    expect(console.page.get_by_role("heading", name="Book a seat")).to_be_focused()
    keys.press("Tab")
    keys.type("LX318")
    keys.press("Enter")
    expect(console.page.get_by_role("heading", name="Travel desk asks")).to_be_focused()
    while console.page.evaluate("document.activeElement.type") != "number":
        keys.press("Tab")
    keys.type("12")
    keys.press("Tab")
    keys.type("A")
    keys.press("Tab")
    keys.press("Enter")
    expect(console.page.get_by_role("heading", name="Travel desk asks")).to_be_focused()
    while console.page.evaluate("document.activeElement.type") != "radio":
        keys.press("Tab")
    keys.press("Space")
    keys.press("Tab")
    keys.press("Enter")
    expect(console.page.get_by_role("heading", name="Result after 3 rounds")).to_be_focused()
    console.expect_result('"paid": true')


def test_what_happens_is_said_aloud(console: Console) -> None:
    """Progress and results, in a polite live region. decision"""
    console.call("Compare fares")
    console.expect_result("SkyPool")
    expect(console.run.get_by_role("status")).to_have_text("Done")
    expect(console.run.get_by_role("status")).to_have_attribute("aria-live", "polite")


def test_the_page_needs_nobody_else(console: Console, site: str) -> None:
    """No CDN, no font, nothing from another origin. decision"""
    asked: list[str] = []
    console.page.on("request", lambda request: asked.append(request.url))
    console.page.reload()
    console.page.get_by_role("navigation").get_by_role("link").first.wait_for()
    assert [url for url in asked if not url.startswith(site)] == []
    assert console.page.evaluate("document.cookie") == ""


def test_the_policy_holds(console: Console) -> None:
    """What a server could smuggle in would not run. decision"""
    page = console.page
    page.get_by_role("navigation").get_by_role("link").first.wait_for()
    for attempt in (
        "document.body.innerHTML = '<img src=x onerror=alert(1)>'",
        "document.body.append(Object.assign(document.createElement('script'), {src: 'https://evil.example/'}))",
        "setTimeout('alert(1)')",
        "fetch('https://evil.example/')",
    ):
        page.evaluate(f"async () => {{ try {{ await ({attempt}) }} catch {{}} }}")
    assert len(console.tab.complaints) >= 4
    assert all(
        "Content Security Policy" in complaint or "Trusted" in complaint
        for complaint in console.tab.complaints
    ), console.tab.complaints
    console.tab.complaints.clear()


def test_it_paints_soon(console: Console) -> None:
    """One second on loopback is the aim; a busy machine is no failure, so this only tells.
    issue: first paint on loopback under one second"""
    console.page.get_by_role("navigation").get_by_role("link").first.wait_for()
    name = "performance.getEntriesByName('first-contentful-paint')"
    console.page.wait_for_function(f"{name}.length > 0")
    painted = console.page.evaluate(f"{name}[0].startTime")
    print(f"first contentful paint after {painted:.0f} ms")
    assert painted > 0
