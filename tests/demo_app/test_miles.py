"""An account elsewhere, connected through url mode: who may, once, and what the client never sees.

Alice of the specification is Amélie here, and Bob is Bruno.
"""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from sqlalchemy import select

from demo_app.miles import NotConnected
from demo_app.models import MilesToken
from demo_app.oauth_player import ScriptedBrowser, oauth_provider

from .helpers import AMELIE, BRUNO, Clock
from .oauth import LoginDesk, bearer, login_desk, post

pytestmark = pytest.mark.anyio

PASSWORDS = {AMELIE: "nimbus-amelie", BRUNO: "nimbus-bruno"}


@pytest.fixture
async def desk(tmp_path: Path, clock: Clock) -> AsyncIterator[LoginDesk]:
    async with login_desk(tmp_path, clock) as desk:
        yield desk


class Flow:
    """A call of `my_miles` by somebody with an API key, round by round."""

    def __init__(self, desk: LoginDesk, key: str = AMELIE) -> None:
        self._desk = desk
        self._key = {"X-API-Key": key}
        self._state: str | None = None
        self.link = ""

    async def begin(self) -> "Flow":
        result = await self._round()
        self.link = result["inputRequests"]["connect-page"]["params"]["url"]
        return self

    async def go_on(self, action: str = "accept") -> dict[str, Any]:
        return await self._round(
            requestState=self._state, inputResponses={"connect-page": {"action": action}}
        )

    async def wait(self) -> dict[str, Any]:
        return await self._round(requestState=self._state)

    async def _round(self, **more: Any) -> dict[str, Any]:
        answer = await post(self._desk, self._key, "my_miles", **more)
        result: dict[str, Any] = answer.json()["result"]
        self._state = result.get("requestState")
        return result


def text(result: dict[str, Any]) -> str:
    assert result["isError"], result
    said: str = result["content"][0]["text"]
    return said


def person(key: str = AMELIE, decision: str = "allow") -> ScriptedBrowser:
    return ScriptedBrowser(key, passwords={"/nimbus": PASSWORDS[key]}, decision=decision)


async def tokens(desk: LoginDesk) -> dict[str, dict[str, Any]]:
    """What the desk has been given, by whose it is."""
    async with desk.app.state.desk.database.reading() as session:
        rows = await session.scalars(select(MilesToken))
        return {row.customer_id: json.loads(row.token) for row in rows}


class Hand:
    """A browser that goes one step at a time."""

    def __init__(self, desk: LoginDesk, http: httpx2.AsyncClient) -> None:
        self._desk = desk
        self.http = http
        self.page = httpx2.Response(0)

    async def open(self, url: str) -> httpx2.Response:
        self.page = await self.http.get(url)
        return self.page

    async def submit(self, path: str, *, csrf: str | None = None, **fields: str) -> httpx2.Response:
        found = re.search(r'name="csrf" value="(\w+)"', self.page.text)
        token = csrf if csrf is not None else found.group(1) if found else ""
        self.page = await self.http.post(f"{path}", data={"csrf": token, **fields})
        return self.page

    async def sign_in(self, link: str, key: str) -> httpx2.Response:
        await self.open(link)
        assert (await self.submit(f"{link}/sign-in", key=key)).status_code == 303
        return await self.open(link)

    async def depart(self, link: str, key: str) -> str:
        """As far as the link to Nimbus Miles, which is not opened."""
        await self.sign_in(link, key)
        return str((await self.submit(link)).headers["Location"])


@pytest.fixture
async def hand(desk: LoginDesk) -> AsyncIterator[Hand]:
    async with httpx2.AsyncClient(timeout=60) as http:
        yield Hand(desk, http)


@pytest.fixture
async def other_hand(desk: LoginDesk) -> AsyncIterator[Hand]:
    async with httpx2.AsyncClient(timeout=60) as http:
        yield Hand(desk, http)


async def answer_of_nimbus(link: str, key: str = AMELIE) -> str:
    """The address to which Nimbus Miles sends the browser of whoever says yes there."""
    return await ScriptedBrowser(PASSWORDS[key]).log_in(link)


# ---------------------------------------------------------------------------------- the whole way


async def test_the_client_gets_a_link_and_a_number_and_never_a_token(tmp_path: Path) -> None:
    """spec: MUST NOT (elicitation §Understanding the Distinction 1, 2): the official client, logged
    in, over real HTTP; every byte it sent and got is looked through."""
    wire: list[str] = []
    browser = person()

    async def sent(request: httpx2.Request) -> None:
        wire.append(f"{request.url} {dict(request.headers)} {request.content.decode()}")

    async def received(response: httpx2.Response) -> None:
        wire.append(f"{dict(response.headers)} {(await response.aread()).decode()}")

    async def connect(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        await browser.visit(params.url)
        return ElicitResult(action="accept")

    async with login_desk(tmp_path) as desk:
        login = oauth_provider(desk.mcp, ScriptedBrowser(AMELIE))
        async with httpx2.AsyncClient(
            auth=login, event_hooks={"request": [sent], "response": [received]}
        ) as http:
            transport = streamable_http_client(desk.mcp, http_client=http)
            async with Client(transport, elicitation_callback=connect) as client:
                result = await client.call_tool("my_miles")
                again = await client.call_tool("my_miles")  # nobody is asked twice
        kept = (await tokens(desk))["amelie"]
        assert login.context.current_tokens is not None
        own = login.context.current_tokens.access_token
    assert result.structured_content == {"member": "N-20417", "miles": 48210}
    assert again.structured_content == result.structured_content
    everything = "\n".join(wire)
    for secret in (kept["access_token"], kept["refresh_token"], "nimbus-amelie"):
        assert secret not in everything
    assert own in everything  # so the search finds what is there
    assert kept["access_token"] not in {seen.token for seen in desk.recorder.seen}


async def test_it_waits_until_the_browser_is_done(desk: LoginDesk) -> None:
    """spec: consent is not completion (elicitation §URL Mode): "not yet", and then the result."""
    flow = await Flow(desk).begin()
    for result in (await flow.go_on(), await flow.wait()):
        assert result["resultType"] == "input_required"
        assert "inputRequests" not in result
    assert "Connected" in (await person().visit(flow.link)).text
    assert (await flow.wait())["structuredContent"]["miles"] == 48210


async def test_nimbus_asks_about_the_desk_by_its_name(desk: LoginDesk) -> None:
    """decision: a client that somebody has registered by hand needs no warning, and gets none."""
    browser = person()
    await browser.visit((await Flow(desk).begin()).link)
    [consent] = [page for page in browser.pages if "in your name" in page]
    assert "Let <q>Travel desk</q> use your account?" in consent
    assert "Known here as" in consent
    assert "See how many miles you have" in consent
    assert "Did you just start" not in consent
    assert "nobody has checked" not in consent


# ------------------------------------------------------------------------------------- the link


async def test_the_link_says_nothing_and_opens_nothing(desk: LoginDesk, hand: Hand) -> None:
    """spec: MUST NOT be personal nor pre-authenticated (elicitation §Safe URL Handling 1, 2)."""
    link = (await Flow(desk).begin()).link
    assert re.fullmatch(rf"{desk.base}/connect/[\w-]{{22}}", link)
    other = (await Flow(desk).begin()).link
    assert link != other
    page = await hand.open(link)
    assert page.status_code == 401
    assert "Amélie" not in page.text
    assert "Nimbus" not in page.text
    assert (await hand.submit(link)).status_code == 401


async def test_bob_cannot_use_alices_link(desk: LoginDesk, hand: Hand) -> None:
    """spec: MUST (elicitation §Phishing): who opens it is who began it, whatever form is sent."""
    flow = await Flow(desk).begin()
    page = await hand.sign_in(flow.link, BRUNO)
    assert page.status_code == 403
    assert "do not go on" in page.text
    assert "Amélie" not in page.text
    for path in (flow.link, f"{flow.link}/cancel"):
        refused = await hand.submit(path)
        assert refused.status_code == 403
        assert "Location" not in refused.headers
    await flow.go_on()
    assert (await flow.wait())["resultType"] == "input_required"
    assert await tokens(desk) == {}


async def test_bob_cannot_finish_what_alice_took_further(desk: LoginDesk, hand: Hand) -> None:
    """spec: MUST (elicitation §Phishing): she passes on the link to Nimbus Miles, not the desk's.

    Bruno is signed in at the desk, and says yes at Nimbus Miles.
    """
    flow = await Flow(desk).begin()
    to_nimbus = await hand.depart(flow.link, AMELIE)
    bruno = person(BRUNO)
    await bruno.visit((await Flow(desk, BRUNO).begin()).link)  # he has an account there, connected
    before = await tokens(desk)
    end = await bruno.visit(to_nimbus)
    assert (end.status_code, end.url.path) == (403, "/connect/back")
    assert await tokens(desk) == before
    assert before.keys() == {"bruno"}
    # Nor can she come back with his answer: it was good for one.
    assert (await hand.open(str(end.url))).status_code == 403


async def test_alice_cannot_have_bob_arrive_with_her_answer(
    desk: LoginDesk, hand: Hand, other_hand: Hand
) -> None:
    """decision: else Bruno's desk would show, and fill, an account of hers (login CSRF)."""
    flow, his = await Flow(desk).begin(), await Flow(desk, BRUNO).begin()
    back = await answer_of_nimbus(await hand.depart(flow.link, AMELIE))
    await other_hand.sign_in(his.link, BRUNO)
    assert (await other_hand.open(back)).status_code == 403
    assert await tokens(desk) == {}


async def test_another_browser_of_alice_does_not_count_either(
    desk: LoginDesk, hand: Hand, other_hand: Hand
) -> None:
    """decision: the `state` is of one browser, as well as of one person."""
    flow = await Flow(desk).begin()
    back = await answer_of_nimbus(await hand.depart(flow.link, AMELIE))
    await other_hand.sign_in(flow.link, AMELIE)
    assert (await other_hand.open(back)).status_code == 403


# ----------------------------------------------------------------------------------- once, in time


async def test_an_answer_counts_once(desk: LoginDesk, hand: Hand) -> None:
    """decision: replayed, it is refused, and changes nothing."""
    flow = await Flow(desk).begin()
    back = await answer_of_nimbus(await hand.depart(flow.link, AMELIE))
    assert (await hand.open(back)).status_code == 303
    before = await tokens(desk)
    assert (await hand.open(back)).status_code == 403
    assert await tokens(desk) == before
    assert before.keys() == {"amelie"}


async def test_a_link_that_has_been_used_leads_nowhere(desk: LoginDesk, hand: Hand) -> None:
    """decision: it says what became of it."""
    flow = await Flow(desk).begin()
    await hand.open(await answer_of_nimbus(await hand.depart(flow.link, AMELIE)))
    page = await hand.open(flow.link)
    assert "Connected" in page.text
    again = await hand.submit(flow.link)
    assert again.headers["Location"] == urlsplit(flow.link).path


async def test_going_a_second_time_makes_the_first_worthless(desk: LoginDesk, hand: Hand) -> None:
    """decision: one `state` at a time."""
    flow = await Flow(desk).begin()
    first = await hand.depart(flow.link, AMELIE)
    second = await hand.depart(flow.link, AMELIE)
    assert (await hand.open(await answer_of_nimbus(first))).status_code == 403
    assert (await hand.open(await answer_of_nimbus(second))).status_code == 303


async def test_a_link_lasts_ten_minutes(desk: LoginDesk, hand: Hand, clock: Clock) -> None:
    """decision: then the page says so, and the flow ends."""
    flow = await Flow(desk).begin()
    await flow.go_on()
    clock.advance(599)
    assert (await hand.sign_in(flow.link, AMELIE)).status_code == 200
    assert (await flow.wait())["resultType"] == "input_required"
    clock.advance(1)
    assert "Not connected" in (await hand.open(flow.link)).text
    assert text(await flow.wait()) == "No Nimbus Miles account was connected."


async def test_an_answer_that_comes_too_late_is_refused(
    desk: LoginDesk, hand: Hand, clock: Clock
) -> None:
    """decision: ten minutes at Nimbus Miles."""
    flow = await Flow(desk).begin()
    back = await answer_of_nimbus(await hand.depart(flow.link, AMELIE))
    clock.advance(600)
    assert (await hand.open(back)).status_code == 403
    assert await tokens(desk) == {}


# ---------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    "change",
    [
        {"state": "guessed"},
        {"state": None},
        {"iss": "https://elsewhere.example"},
        {"iss": None},
        {"code": "guessed"},
    ],
)
async def test_an_answer_that_was_changed_is_refused(
    desk: LoginDesk, hand: Hand, change: dict[str, str | None]
) -> None:
    """spec: MUST (RFC 9700 §4.4, §4.7): state, issuer and code are what they were."""
    flow = await Flow(desk).begin()
    back = urlsplit(await answer_of_nimbus(await hand.depart(flow.link, AMELIE)))
    answer = {name: values[0] for name, values in parse_qs(back.query).items()}
    changed = {name: value for name, value in {**answer, **change}.items() if value is not None}
    refused = await hand.http.get(f"{desk.base}/connect/back", params=changed)
    assert refused.status_code == 403
    assert await tokens(desk) == {}


async def test_an_answer_needs_somebody_who_has_signed_in(
    desk: LoginDesk, hand: Hand, other_hand: Hand
) -> None:
    """decision: fail closed."""
    flow = await Flow(desk).begin()
    back = await answer_of_nimbus(await hand.depart(flow.link, AMELIE))
    assert (await other_hand.open(back)).status_code == 403
    await hand.open(flow.link)
    await hand.submit(f"{flow.link}/sign-out")
    assert (await hand.open(back)).status_code == 403


async def test_forms_from_elsewhere_are_refused(desk: LoginDesk, hand: Hand) -> None:
    """decision: every form carries what only a page of ours could tell this browser (CSRF)."""
    link = (await Flow(desk).begin()).link
    await hand.sign_in(link, AMELIE)
    for path in (link, f"{link}/cancel", f"{link}/sign-in", f"{link}/sign-out"):
        assert (await hand.submit(path, csrf="0" * 64, key=BRUNO)).status_code == 403
    assert "Connect your Nimbus" in (await hand.open(link)).text


async def test_a_wrong_key_signs_nobody_in(desk: LoginDesk, hand: Hand) -> None:
    """decision"""
    link = (await Flow(desk).begin()).link
    await hand.open(link)
    assert (await hand.submit(f"{link}/sign-in", key="key-nobody")).status_code == 401


async def test_an_unknown_link_is_not_found(desk: LoginDesk, hand: Hand) -> None:
    """spec: resilient to a modified URL (elicitation §Phishing)."""
    link = (await Flow(desk).begin()).link
    await hand.sign_in(link, AMELIE)
    assert (await hand.open(f"{link[:-1]}-")).status_code == 404


@pytest.mark.parametrize("where", ["client", "desk", "Nimbus Miles"])
async def test_a_no_ends_the_flow_wherever_it_is_said(
    desk: LoginDesk, hand: Hand, where: str
) -> None:
    """spec: MUST handle declined requests (elicitation §Error Handling)."""
    flow = await Flow(desk).begin()
    result = None
    if where == "client":
        result = await flow.go_on("decline")
    elif where == "desk":
        await hand.sign_in(flow.link, AMELIE)
        await hand.submit(f"{flow.link}/cancel")
    else:
        no = ScriptedBrowser(PASSWORDS[AMELIE], decision="deny")
        await hand.open(await no.log_in(await hand.depart(flow.link, AMELIE)))
    assert text(result or await flow.go_on()) == "No Nimbus Miles account was connected."
    await hand.sign_in(flow.link, AMELIE)
    assert "Not connected" in hand.page.text
    assert await tokens(desk) == {}


# -------------------------------------------------------------------------------- what is connected


async def test_tokens_are_refreshed(desk: LoginDesk, clock: Clock) -> None:
    """decision: the customer is not asked again for what they have allowed."""
    await person().visit((await Flow(desk).begin()).link)
    before = (await tokens(desk))["amelie"]
    async with desk.app.state.desk.database.writing() as session:
        row = await session.get_one(MilesToken, "amelie")
        row.token = json.dumps({**before, "expires_at": 1})
    clock.advance(3600)
    assert (await desk.app.state.miles.balance("amelie")).miles == 48210
    after = (await tokens(desk))["amelie"]
    assert before["access_token"] != after["access_token"]
    assert before["refresh_token"] != after["refresh_token"]


@pytest.mark.parametrize("expired", [True, False])
async def test_a_right_that_was_taken_back_is_forgotten(
    desk: LoginDesk, clock: Clock, expired: bool
) -> None:
    """decision: the flow says so, and the next one asks to connect again."""
    await person().visit((await Flow(desk).begin()).link)
    kept = (await tokens(desk))["amelie"]
    async with desk.app.state.desk.database.writing() as session:
        row = await session.get_one(MilesToken, "amelie")
        row.token = json.dumps({**kept, "refresh_token": "no", "expires_at": 1 if expired else 9e9})
    clock.advance(3600)
    answer = await post(desk, {"X-API-Key": AMELIE}, "my_miles")
    assert "no longer lets the desk look" in text(answer.json()["result"])
    assert await tokens(desk) == {}
    assert (await Flow(desk).begin()).link


async def test_what_one_connects_is_not_the_others(desk: LoginDesk) -> None:
    """spec: MUST bind what is stored to the user (elicitation §Statefulness)."""
    await person().visit((await Flow(desk).begin()).link)
    await person(BRUNO).visit((await Flow(desk, BRUNO).begin()).link)
    for key, miles in ((AMELIE, 48210), (BRUNO, 1250)):
        answer = await post(desk, {"X-API-Key": key}, "my_miles")
        assert answer.json()["result"]["structuredContent"]["miles"] == miles
    with pytest.raises(NotConnected):
        await desk.app.state.miles.balance("chen")


async def test_the_tokens_of_one_are_nothing_to_the_other(desk: LoginDesk) -> None:
    """spec: MUST NOT (security best practices §Token Passthrough)"""
    await person().visit((await Flow(desk).begin()).link)
    nimbus = bearer((await tokens(desk))["amelie"]["access_token"])
    assert (await post(desk, nimbus, "list_bookings")).status_code == 401
    login = oauth_provider(desk.mcp, ScriptedBrowser(AMELIE))
    async with httpx2.AsyncClient(auth=login) as http:
        await http.post(desk.mcp)
    assert login.context.current_tokens is not None
    own = bearer(login.context.current_tokens.access_token)
    async with httpx2.AsyncClient(timeout=60) as http:
        assert (await http.get(f"{desk.base}/nimbus/balance", headers=own)).status_code == 401
        assert (await http.get(f"{desk.base}/nimbus/balance", headers=nimbus)).status_code == 200
