"""Who is calling: an access token or an API key for programs, a signed-in cookie for browsers.

Knows no bookings.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Depends, HTTPException, Request, Security
from fastapi.security import APIKeyHeader
from sqlalchemy import delete, select

from fastapi_mcp_mrtr import ProtectedResource, VerifiedToken

from .auth_server import SCOPES
from .db import sha256
from .deps import DeskDep
from .desk import Desk
from .models import BrowserSession, Customer
from .schemas import CustomerView

SESSION_LIFETIME: Final = timedelta(hours=1)

_header = APIKeyHeader(
    name="X-API-Key",
    auto_error=False,
    description="The demo's keys: `key-amelie`, `key-bruno`, `key-chen`.",
)


async def customer_by_key(desk: Desk, key: str) -> CustomerView | None:
    async with desk.database.reading() as session:
        row = await session.scalar(select(Customer).where(Customer.api_key_sha256 == sha256(key)))
        return None if row is None else CustomerView.model_validate(row)


async def customer_by_id(desk: Desk, id: str | None) -> CustomerView | None:
    async with desk.database.reading() as session:
        row = await session.get(Customer, id)
        return None if row is None else CustomerView.model_validate(row)


async def known_customer(
    request: Request, key: Annotated[str | None, Security(_header)], desk: DeskDep
) -> CustomerView | None:
    """Whoever the access token is about, if the MCP endpoint has verified one; else the key's."""
    login: ProtectedResource | None = request.app.state.login
    if login is not None and (token := login.verified(request)):
        return await customer_by_id(desk, token.subject)
    return await customer_by_key(desk, key) if key else None


async def current_customer(
    customer: Annotated[CustomerView | None, Depends(known_customer)],
) -> CustomerView:
    """The same dependency serves the REST endpoints and the handlers of MCP.

    Raises:
        HTTPException: 401, the key is missing or unknown.
    """
    if customer is None:
        raise HTTPException(
            401, "Send a known API key in X-API-Key.", headers={"WWW-Authenticate": "ApiKey"}
        )
    return customer


CurrentCustomer = Annotated[CustomerView, Depends(current_customer)]


# ------------------------------------------------------------------------- the MCP endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls the MCP endpoint, and what they may do there: the router's principal.

    Attributes:
        mcp_principal_key: what a flow is bound to. A customer with a key and the same customer
            through a client that has logged in are two: what one started, the other cannot finish.
    """

    customer: CustomerView
    scopes: frozenset[str]
    mcp_principal_key: Any


def scopes_of(caller: Caller) -> frozenset[str]:
    return caller.scopes


async def caller_by_key(customer: CurrentCustomer) -> Caller:
    """A key may do all that its customer may."""
    return Caller(
        customer=customer, scopes=frozenset(SCOPES), mcp_principal_key=("key", customer.id)
    )


def caller_by_token_or_key(login: ProtectedResource) -> Callable[..., Awaitable[Caller]]:
    """The principal of a desk to which clients can log in.

    A dependency that raises `ChallengeError`: 401, there is neither a token nor a known key.
    """

    async def caller(
        # First, since `known_customer` looks at what it has verified.
        token: VerifiedToken | None = Security(login),
        customer: CustomerView | None = Depends(known_customer),
    ) -> Caller:
        if customer is None:
            raise login.challenge()
        if token is None:
            return await caller_by_key(customer)
        return Caller(
            customer=customer, scopes=token.scopes, mcp_principal_key=token.mcp_principal_key
        )

    return caller


# --------------------------------------------------------------------------------- browsers


async def sign_in(desk: Desk, key: str) -> str | None:
    """A token for a fresh session, or `None` if the key is unknown.

    The token is always new: a cookie that somebody planted before signing in is worth nothing.
    """
    customer = await customer_by_key(desk, key)
    if customer is None:
        return None
    token = secrets.token_urlsafe(32)
    async with desk.database.writing() as session:
        await session.execute(delete(BrowserSession).where(BrowserSession.expires_at < desk.now()))
        session.add(
            BrowserSession(
                token_sha256=sha256(token),
                customer_id=customer.id,
                expires_at=desk.now() + SESSION_LIFETIME,
            )
        )
    return token


async def sign_out(desk: Desk, token: str) -> None:
    async with desk.database.writing() as session:
        await session.execute(
            delete(BrowserSession).where(BrowserSession.token_sha256 == sha256(token))
        )


async def customer_by_token(desk: Desk, token: str) -> CustomerView | None:
    """Who has signed in with the browser that holds this token, if anybody."""
    async with desk.database.reading() as session:
        row = await session.scalar(
            select(Customer)
            .join(BrowserSession, BrowserSession.customer_id == Customer.id)
            .where(
                BrowserSession.token_sha256 == sha256(token),
                BrowserSession.expires_at >= desk.now(),
            )
        )
        return None if row is None else CustomerView.model_validate(row)
