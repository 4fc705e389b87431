"""The pages between a flow and Nimbus Miles: before somebody goes there, and when they are back.

They let a browser do only what the customer does who began the connection: the link in a client
names a connection and nobody's person, and whoever opens it signs in first (elicitation §Phishing).
Otherwise somebody could send the link on, and would get at whatever account the other one connects.
"""

import logging
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Form, Request, Response

from . import pages
from .auth import customer_by_token, sign_out
from .deps import DeskDep, MilesDep
from .miles import Refused
from .models import ConnectionStatus
from .schemas import ConnectionView
from .web import BrowserDep, OwnForm, Visit, Words, try_key, visit

logger = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)

CALLBACK: Final = "/connect/back"

CONNECTION: Final = Words(
    waiting="An account that you may want to connect",
    missing="No such connection",
    foreign="This is not for you",
    warning="Somebody else began it. If a link from somebody else brought you here, do not go on: "
    "they would get at your account with Nimbus Miles.",
)

NO_ANSWER: Final = (
    "This answer of Nimbus Miles does not belong to what this browser began here, or has been "
    "used before. Nothing was connected. Open the link of your assistant once more."
)


async def visit_connection(
    connection_id: str, browser: BrowserDep, desk: DeskDep, miles: MilesDep
) -> Visit[ConnectionView]:
    connection = partial(miles.get, connection_id)
    return await visit(f"/connect/{connection_id}", CONNECTION, browser, desk, connection)


VisitDep = Annotated[Visit[ConnectionView], Depends(visit_connection)]


@router.get(CALLBACK)
async def come_back(
    request: Request, browser: BrowserDep, desk: DeskDep, miles: MilesDep
) -> Response:
    """Where Nimbus Miles sends the browser, with its answer in the query."""
    customer = await customer_by_token(desk, browser.token)
    try:
        if customer is None:
            raise Refused("nobody has signed in")
        answer = dict(request.query_params)
        connection = await miles.arrive(answer, browser=browser.token, customer_id=customer.id)
    except Refused as refused:
        logger.warning("An answer of Nimbus Miles was refused: %s", refused)
        return browser.page(pages.notice("That did not work", NO_ANSWER), 403)
    return browser.redirect(f"/connect/{connection.id}")


@router.get("/connect/{connection_id}", name="connect_page")
async def show(visit: VisitDep) -> Response:
    connection, csrf = visit.subject, visit.browser.csrf
    if connection.status is ConnectionStatus.OPEN:
        return visit.browser.page(pages.connect(connection, visit.customer, csrf))
    return visit.browser.page(pages.connected(connection, visit.customer, csrf))


@router.post("/connect/{connection_id}", dependencies=[OwnForm])
async def go(visit: VisitDep, miles: MilesDep) -> Response:
    """On to Nimbus Miles, now that it is known who goes."""
    link = await miles.depart(visit.subject, visit.browser.token)
    return visit.browser.redirect(link or f"/connect/{visit.subject.id}")


@router.post("/connect/{connection_id}/cancel", dependencies=[OwnForm])
async def do_not_connect(visit: VisitDep, miles: MilesDep) -> Response:
    await miles.abandon(visit.subject.id)
    return visit.browser.redirect(f"/connect/{visit.subject.id}")


@router.post("/connect/{connection_id}/sign-in", dependencies=[OwnForm])
async def enter(
    connection_id: str, browser: BrowserDep, desk: DeskDep, key: Annotated[str, Form()] = ""
) -> Response:
    return await try_key(f"/connect/{connection_id}", CONNECTION, browser, desk, key)


@router.post("/connect/{connection_id}/sign-out", dependencies=[OwnForm])
async def leave(connection_id: str, browser: BrowserDep, desk: DeskDep) -> Response:
    await sign_out(desk, browser.token)
    browser.renew()
    return browser.redirect(f"/connect/{connection_id}")
