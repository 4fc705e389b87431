"""The page behind `need_url`: who may see it, what it accepts, what it never tells."""

import hashlib

import httpx2
import pytest

from fastapi_mcp_mrtr.testing import MCPTestClient

from .helpers import AMELIE, BRUNO, GOOD_CARD, REFUSED_CARD, Browser, Clock
from .test_rest import hold


@pytest.fixture
def reference(http: httpx2.Client) -> str:
    """A booking of Amélie's, held and unpaid."""
    return str(hold(http, "14A").json()["reference"])


@pytest.fixture
def link(client: MCPTestClient, reference: str) -> str:
    """Where her assistant wants to send her."""
    return client.begin_tool("pay_booking", {"reference": reference}).asks["payment-page"].url


def test_the_link_names_nobody_and_opens_nothing(
    link: str, reference: str, browser: Browser
) -> None:
    """Spec: MUST NOT be personal nor pre-authenticated (elicitation §Safe URL Handling)."""
    assert "amelie" not in link
    assert reference not in link
    page = browser.open(link)
    assert browser.status == 401
    assert "€129.00" not in page
    assert reference not in page


def test_who_started_it_can_pay(
    link: str, reference: str, browser: Browser, http: httpx2.Client
) -> None:
    """Decision: the page shows what is paid for, and the booking is paid afterwards."""
    form = browser.sign_in(link, AMELIE)
    assert "Pay €129.00" in form
    assert "14A" in form
    assert "Paid" in browser.submit(link, GOOD_CARD)
    booking = http.get(f"/bookings/{reference}", headers={"X-API-Key": AMELIE}).json()
    assert booking["status"] == "paid"


def test_somebody_else_is_warned_and_shown_nothing(link: str, browser: Browser) -> None:
    """Spec: MUST verify who opens the URL before accepting information (elicitation §Phishing)."""
    page = browser.sign_in(link, BRUNO)
    assert browser.status == 403
    assert "not your payment" in page
    assert "Amélie" not in page
    assert "€129.00" not in page


def test_somebody_else_cannot_pay_even_with_a_form_of_their_own(
    link: str, reference: str, browser: Browser, http: httpx2.Client
) -> None:
    """Spec: MUST ensure that the same user completes it (elicitation §Phishing)."""
    browser.sign_in(link, BRUNO)
    for path in (link, f"{link}/cancel"):
        browser.submit(path, GOOD_CARD)
        assert browser.status == 403
    booking = http.get(f"/bookings/{reference}", headers={"X-API-Key": AMELIE}).json()
    assert booking["status"] == "held"


def test_a_form_from_elsewhere_is_refused(link: str, browser: Browser) -> None:
    """Decision: every form carries what only a page of ours could tell this browser (CSRF)."""
    browser.sign_in(link, AMELIE)
    for path in (link, f"{link}/cancel", f"{link}/sign-in", f"{link}/sign-out"):
        for csrf in ("", "0" * 64, "é"):
            browser.submit(path, {**GOOD_CARD, "key": BRUNO}, csrf=csrf)
            assert browser.status == 403
    assert "Pay €129.00" in browser.open(link)


def test_a_cookie_planted_before_signing_in_is_worthless(link: str, browser: Browser) -> None:
    """Decision: signing in mints a new session (fixation)."""
    browser.open(link)
    planted = browser.cookies
    browser.sign_in(link, AMELIE)
    browser.cookies = planted
    browser.open(link)
    assert browser.status == 401


def test_a_wrong_key_signs_nobody_in(link: str, browser: Browser) -> None:
    """Decision: the page says that the key is unknown and asks again."""
    assert "does not know this key" in browser.sign_in(link, "key-nobody")
    assert browser.status == 401


def test_signing_out_ends_the_session_on_the_server(link: str, browser: Browser) -> None:
    """Decision: a copy of the old cookie is worthless afterwards."""
    browser.sign_in(link, AMELIE)
    kept = browser.cookies
    browser.submit(f"{link}/sign-out", {})
    browser.cookies = kept
    browser.open(link)
    assert browser.status == 401


def test_a_session_ends_by_itself(link: str, browser: Browser, clock: Clock) -> None:
    """Decision: an hour."""
    browser.sign_in(link, AMELIE)
    clock.advance(3601)
    browser.open(link)
    assert browser.status == 401


def test_a_refused_card_can_be_replaced(link: str, browser: Browser) -> None:
    """Decision: the payment stays open."""
    browser.sign_in(link, AMELIE)
    assert "bank refused" in browser.submit(link, REFUSED_CARD)
    assert "Paid" in browser.submit(link, GOOD_CARD)


def test_a_card_past_its_date_is_refused(link: str, browser: Browser) -> None:
    """Decision: good to the end of its month; the tests' clock says January 2027."""
    browser.sign_in(link, AMELIE)
    assert "bank refused" in browser.submit(link, {**GOOD_CARD, "expires": "12/26"})
    assert "Paid" in browser.submit(link, {**GOOD_CARD, "expires": "01/27"})


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("number", "4242 4242 4242 4241", "Not a card number"),
        ("number", "<script>", "Not a card number"),
        ("number", "٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢", "Not a card number"),
        ("expires", "13/30", "Month and year"),
        ("code", "12", "three or four digits"),
    ],
)
def test_a_mistyped_field_is_asked_again_with_its_reason(
    link: str, browser: Browser, field: str, value: str, reason: str
) -> None:
    """Decision: the reason stands at its field, and nothing typed becomes markup."""
    browser.sign_in(link, AMELIE)
    page = browser.submit(link, {**GOOD_CARD, field: value})
    assert browser.status == 422
    assert reason in page
    assert "<script>" not in page


def test_the_security_code_is_never_shown_again(link: str, browser: Browser) -> None:
    """Decision: what need not be repeated is not."""
    browser.sign_in(link, AMELIE)
    assert "987" not in browser.submit(link, {**GOOD_CARD, "number": "1", "code": "987"})


def test_a_name_never_becomes_markup(
    http: httpx2.Client, client: MCPTestClient, browser: Browser
) -> None:
    """Decision: whatever comes from people is escaped on its way into a page."""
    booking = {"flight": "TD101", "passengers": [{"name": "<i>$amount", "seat": "14A"}]}
    held = http.post("/bookings", json=booking, headers={"X-API-Key": AMELIE}).json()
    first = client.begin_tool("pay_booking", {"reference": held["reference"]})
    page = browser.sign_in(first.asks["payment-page"].url, AMELIE)
    assert "&lt;i&gt;$amount" in page


def test_reloading_a_paid_page_pays_nothing(link: str, browser: Browser) -> None:
    """Decision: sending the form again shows the outcome."""
    browser.pay(link, AMELIE)
    browser.open(link)
    assert "Paid" in browser.page
    stale = browser.submit(link, GOOD_CARD, csrf=csrf_of(browser.cookies["desk_session"] or ""))
    assert "Paid" in stale


def test_a_lapsed_hold_cannot_be_paid(link: str, browser: Browser, clock: Clock) -> None:
    """Decision: the page says so, before and after the form is sent."""
    browser.sign_in(link, AMELIE)
    clock.advance(15 * 60)
    assert "Too late" in browser.submit(link, GOOD_CARD)
    assert "Nothing was charged" in browser.open(link)


def test_an_unknown_payment_is_not_found(link: str, browser: Browser) -> None:
    """Decision: 404, but only for somebody who has signed in."""
    unknown = link[:-4] + "AAAA"
    browser.open(unknown)
    assert browser.status == 401
    browser.sign_in(unknown, AMELIE)
    assert browser.status == 404


def test_the_page_cannot_be_framed_cached_or_scripted(link: str, http: httpx2.Client) -> None:
    """Decision: clickjacking, shared computers and injected markup find nothing to work with."""
    headers = http.get(link).headers
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"


def test_the_cookie_is_out_of_reach(link: str, http: httpx2.Client) -> None:
    """Decision: no script reads it, no foreign form sends it."""
    cookie = http.get(link).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_the_home_page_lists_departures(browser: Browser) -> None:
    """Decision: somebody who opens the address sees what it is."""
    assert "TD101" in browser.open("/")
    assert browser.open("/static/desk.css").strip().startswith(":root")
    assert browser.open("/static/desk.svg").startswith("<svg")


def csrf_of(token: str) -> str:
    """What a page of this session carries, recomputed."""
    return hashlib.sha256(f"csrf:{token}".encode()).hexdigest()
