"""The pages: a home page, and the payment page that `need_url` sends people to.

The link to a payment proves nothing: it names the payment, not a person, and may have been passed
on. So the page shows and accepts nothing until somebody has signed in with this browser, and then
only if that is the customer whose flow opened the payment (elicitation §Phishing).
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError

from . import pages
from .auth import SESSION_LIFETIME, customer_by_token, sign_in, sign_out
from .deps import DeskDep, PaymentsDep
from .desk import Desk
from .errors import Conflict, NotFound
from .models import PaymentStatus
from .payments import Card, CardDeclined
from .schemas import ConnectionView, CustomerView, PaymentView

router = APIRouter(include_in_schema=False)

SESSION_COOKIE: Final = "desk_session"

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""No scripts, no frames around the page (clickjacking), and nothing kept by a shared computer."""

FIELD_ERRORS: Final = {
    "number": "Not a card number.",
    "expires": "Month and year, as 04/30.",
    "code": "The three or four digits on the card.",
}


class Browser:
    """The browser behind one request: the cookie it has, and the pages it is sent."""

    def __init__(self, request: Request) -> None:
        self.token = request.cookies.get(SESSION_COOKIE) or secrets.token_urlsafe(32)
        self._https = request.url.scheme == "https"

    @property
    def csrf(self) -> str:
        """What a form must carry: only a page that this browser got from us can know it."""
        return hashlib.sha256(f"csrf:{self.token}".encode()).hexdigest()

    def renew(self) -> None:
        """Forget who has signed in."""
        self.token = secrets.token_urlsafe(32)

    def page(self, html: pages.Html, status_code: int = 200) -> Response:
        response = HTMLResponse(html, status_code, HEADERS)
        self._set_cookie(response)
        return response

    def redirect(self, path: str) -> Response:
        """After a form, so that reloading the page repeats nothing."""
        response = RedirectResponse(path, 303, HEADERS)
        self._set_cookie(response)
        return response

    def _set_cookie(self, response: Response) -> None:
        response.set_cookie(
            SESSION_COOKIE,
            self.token,
            max_age=int(SESSION_LIFETIME.total_seconds()),
            httponly=True,
            secure=self._https,
            # Lax: a link in a client opens the page signed in, a foreign form arrives without.
            samesite="lax",
        )


BrowserDep = Annotated[Browser, Depends(Browser)]


class Stop(Exception):
    """The request ends here, with this page. `show_stop` is its handler on the app."""

    def __init__(self, response: Response) -> None:
        self.response = response


def show_stop(_request: Request, stop: Exception) -> Response:
    assert isinstance(stop, Stop)
    return stop.response


def own_form(browser: BrowserDep, csrf: Annotated[str, Form()] = "") -> None:
    """Raises: Stop: the form comes from somebody else's page, or from an old one."""
    if not hmac.compare_digest(csrf.encode(), browser.csrf.encode()):
        text = "This form does not belong to the page you have open. Go back and reload it."
        raise Stop(browser.page(pages.notice("That did not work", text), 403))


OwnForm = Depends(own_form)


S = TypeVar("S", bound=PaymentView | ConnectionView)


class Visit(Generic[S]):
    """A signed-in customer looking at something that is theirs."""

    def __init__(self, browser: Browser, customer: CustomerView, subject: S) -> None:
        self.browser = browser
        self.customer = customer
        self.subject = subject


class Words(NamedTuple):
    """What a page says to those who do not get to see what it is about."""

    waiting: str
    missing: str
    foreign: str
    warning: str


async def visit(
    place: str, words: Words, browser: Browser, desk: Desk, subject: Callable[[], Awaitable[S]]
) -> Visit[S]:
    """Raises: Stop: nobody has signed in, or what is at `place` is not theirs."""
    customer = await customer_by_token(desk, browser.token)
    if customer is None:
        raise Stop(browser.page(pages.sign_in(place, words.waiting, browser.csrf), 401))
    account = pages.account(customer, place, browser.csrf)
    try:
        found = await subject()
    except NotFound:
        html = pages.notice(words.missing, "The link may be incomplete.", account)
        raise Stop(browser.page(html, 404)) from None
    if found.customer_id != customer.id:
        raise Stop(browser.page(pages.notice(words.foreign, words.warning, account), 403))
    return Visit(browser, customer, found)


async def try_key(place: str, words: Words, browser: Browser, desk: Desk, key: str) -> Response:
    """Sign in with what somebody entered, and back to `place`."""
    token = await sign_in(desk, key.strip())
    if token is None:
        html = pages.sign_in(place, words.waiting, browser.csrf, failed=True)
        return browser.page(html, 401)
    browser.token = token
    return browser.redirect(place)


PAYMENT: Final = Words(
    waiting="A payment",
    missing="No such payment",
    foreign="This is not your payment",
    warning="Somebody else started it. If a link from somebody else brought you here, do not pay: "
    "you would be paying for them.",
)


async def visit_payment(
    payment_id: str, browser: BrowserDep, desk: DeskDep, payments: PaymentsDep
) -> Visit[PaymentView]:
    payment = partial(payments.get, payment_id)
    return await visit(f"/pay/{payment_id}", PAYMENT, browser, desk, payment)


VisitDep = Annotated[Visit[PaymentView], Depends(visit_payment)]


@router.get("/")
async def home(desk: DeskDep, browser: BrowserDep) -> Response:
    return browser.page(pages.home(await desk.flights(), await desk.airports()))


@router.get("/static/desk.css")
async def style() -> Response:
    return Response(pages.STYLE, media_type="text/css")


@router.get("/static/desk.svg")
async def icon() -> Response:
    return Response(pages.ICON, media_type="image/svg+xml")


@router.get("/pay/{payment_id}", name="payment_page")
async def show_payment(visit: VisitDep, desk: DeskDep) -> Response:
    return await _show(visit, desk)


@router.post("/pay/{payment_id}", dependencies=[OwnForm])
async def pay(
    visit: VisitDep,
    desk: DeskDep,
    payments: PaymentsDep,
    number: Annotated[str, Form()] = "",
    expires: Annotated[str, Form()] = "",
    code: Annotated[str, Form()] = "",
) -> Response:
    entered = {"number": number.strip(), "expires": expires.strip(), "code": code.strip()}
    try:
        await payments.charge(visit.subject, Card.model_validate(entered))
    except ValidationError as error:
        wrong = {str(problem["loc"][0]): "" for problem in error.errors()}
        errors = {name: FIELD_ERRORS[name] for name in wrong}
        return await _show(visit, desk, entered=entered, errors=errors)
    except CardDeclined:
        return await _show(visit, desk, failure="The bank refused this card. Try another one.")
    except Conflict:
        pass  # the hold lapsed meanwhile; the page that follows says so
    return visit.browser.redirect(f"/pay/{visit.subject.id}")


@router.post("/pay/{payment_id}/cancel", dependencies=[OwnForm])
async def do_not_pay(visit: VisitDep, payments: PaymentsDep) -> Response:
    await payments.abandon(visit.subject.id)
    return visit.browser.redirect(f"/pay/{visit.subject.id}")


@router.post("/pay/{payment_id}/sign-in", dependencies=[OwnForm])
async def enter(
    payment_id: str, browser: BrowserDep, desk: DeskDep, key: Annotated[str, Form()] = ""
) -> Response:
    return await try_key(f"/pay/{payment_id}", PAYMENT, browser, desk, key)


@router.post("/pay/{payment_id}/sign-out", dependencies=[OwnForm])
async def leave(payment_id: str, browser: BrowserDep, desk: DeskDep) -> Response:
    await sign_out(desk, browser.token)
    browser.renew()
    return browser.redirect(f"/pay/{payment_id}")


async def _show(
    visit: Visit[PaymentView],
    desk: Desk,
    *,
    entered: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
    failure: str | None = None,
) -> Response:
    customer, payment, csrf = visit.customer, visit.subject, visit.browser.csrf
    booking = await desk.booking(customer.id, payment.booking_reference)
    flight = await desk.flight(booking.flight_number)
    if payment.status is not PaymentStatus.OPEN:
        return visit.browser.page(pages.settled(payment, booking, flight, customer, csrf))
    html = pages.pay(
        payment,
        booking,
        flight,
        customer,
        csrf,
        entered=entered,
        errors=errors,
        failure=failure,
    )
    return visit.browser.page(html, 422 if errors or failure else 200)
