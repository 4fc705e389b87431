"""Who is calling: an API key for programs, a signed-in cookie for browsers. Knows no bookings."""

import secrets
from datetime import timedelta
from typing import Annotated, Final

from fastapi import Depends, HTTPException, Security
from fastapi.security import APIKeyHeader
from sqlalchemy import delete, select

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


async def current_customer(
    key: Annotated[str | None, Security(_header)], desk: DeskDep
) -> CustomerView:
    """The same dependency guards the REST endpoints and is the MCP router's `principal=`.

    Raises:
        HTTPException: 401, the key is missing or unknown.
    """
    customer = await customer_by_key(desk, key) if key else None
    if customer is None:
        raise HTTPException(
            401, "Send a known API key in X-API-Key.", headers={"WWW-Authenticate": "ApiKey"}
        )
    return customer


CurrentCustomer = Annotated[CustomerView, Depends(current_customer)]


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
