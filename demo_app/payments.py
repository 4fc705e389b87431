"""Paying by card: what the page does and what a flow waits for. Knows no HTTP and no MCP."""

import asyncio
import secrets
from datetime import datetime
from typing import Final

import anyio
from pydantic import BaseModel, Field, field_validator
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from .desk import Desk, find_booking
from .errors import NotFound
from .models import Booking, BookingStatus, Payment, PaymentMethod, PaymentStatus
from .schemas import PaymentView

DECLINED_CARD: Final = "4000000000000002"
"""The number a tester types to see a refusal, as card processors offer one."""

POLL_SECONDS: Final = 0.2
"""The page may be served by another worker, so the database is where a flow hears of a payment."""


class Card(BaseModel):
    """What the page's form must contain. It is checked and thrown away."""

    number: str = Field(max_length=30)
    expires: str = Field(pattern=r"^(0[1-9]|1[0-2])\s?/\s?\d{2}$")
    code: str = Field(pattern=r"^\d{3,4}$")

    @field_validator("number")
    @classmethod
    def _checksum(cls, value: str) -> str:
        digits = value.replace(" ", "").replace("-", "")
        if not (digits.isascii() and digits.isdigit() and 12 <= len(digits) <= 19):
            raise ValueError("not a card number")
        doubled = [int(d) * 2 for d in digits[-2::-2]]
        if (sum(map(int, digits[-1::-2])) + sum(d - 9 * (d > 9) for d in doubled)) % 10:
            raise ValueError("not a card number")
        return digits

    def lapsed(self, now: datetime) -> bool:
        """A card is good to the end of the month it names."""
        month, year = int(self.expires[:2]), 2000 + int(self.expires[-2:])
        return (year, month) < (now.year, now.month)


class CardDeclined(Exception):
    """The bank said no. The payment stays open, so another card can be tried."""


class Payments:
    """Card payments. Each is opened by a flow and settled by a browser, for the same customer."""

    def __init__(self, desk: Desk, *, patience: float) -> None:
        self._desk = desk
        self._patience = patience

    async def open(self, customer_id: str, reference: str, idempotency_key: str) -> PaymentView:
        """Start paying for a held booking; again with the same key, the same payment.

        Raises:
            NotFound: there is no such booking, or it is somebody else's.
            Conflict: the booking is not held, or its hold has lapsed.
        """
        async with self._desk.database.writing() as session:
            booking = await find_booking(session, customer_id, reference)
            payment = await session.scalar(
                select(Payment).where(
                    Payment.customer_id == customer_id, Payment.idempotency_key == idempotency_key
                )
            )
            if payment is None:
                self._desk.must_be_payable(booking)
                payment = Payment(
                    id=secrets.token_urlsafe(16),
                    customer_id=customer_id,
                    booking_reference=reference,
                    method=PaymentMethod.CARD,
                    status=PaymentStatus.OPEN,
                    amount_cents=booking.price_cents,
                    idempotency_key=idempotency_key,
                    created_at=self._desk.now(),
                )
                session.add(payment)
                await session.flush()
            return await self._view(session, payment)

    async def get(self, payment_id: str) -> PaymentView:
        """Raises: NotFound. Whose payment it is, the caller must check."""
        async with self._desk.database.reading() as session:
            payment = await session.get(Payment, payment_id)
            if payment is None:
                raise NotFound("such payment")
            return await self._view(session, payment)

    async def charge(self, payment: PaymentView, card: Card) -> PaymentView:
        """Settle an open payment and its booking in one transaction. A second time changes nothing.

        Raises:
            CardDeclined: the bank refused the card.
            Conflict: the booking is no longer held.
        """
        async with self._desk.database.writing() as session:
            row = await session.get_one(Payment, payment.id)
            if row.status is not PaymentStatus.OPEN:
                return await self._view(session, row)
            booking = await find_booking(session, row.customer_id, row.booking_reference)
            self._desk.must_be_payable(booking)
            if card.number == DECLINED_CARD or card.lapsed(self._desk.now()):
                raise CardDeclined
            row.status = PaymentStatus.PAID
            row.card_last4 = card.number[-4:]
            booking.status = BookingStatus.PAID
            return await self._view(session, row)

    async def abandon(self, payment_id: str) -> PaymentView:
        """Close an open payment unpaid. One that is settled stays as it is."""
        async with self._desk.database.writing() as session:
            row = await session.get_one(Payment, payment_id)
            if row.status is PaymentStatus.OPEN:
                row.status = PaymentStatus.ABANDONED
            return await self._view(session, row)

    async def outcome(self, payment: PaymentView) -> PaymentStatus:
        """Wait a little for the browser. OPEN means: not yet, ask again."""
        deadline = anyio.current_time() + self._patience
        # The client may leave meanwhile; a query that is cut short would fill the log.
        while (status := (await asyncio.shield(self.get(payment.id))).status) is PaymentStatus.OPEN:
            if anyio.current_time() >= deadline:
                break
            await anyio.sleep(POLL_SECONDS)
        return status

    async def _view(self, session: AsyncSession, payment: Payment) -> PaymentView:
        """As of now: once the hold has lapsed, nobody can settle an open payment any more."""
        view = PaymentView.model_validate(payment)
        if view.status is PaymentStatus.OPEN:
            booking = await session.get_one(Booking, payment.booking_reference)
            if self._desk.status(booking) is not BookingStatus.HELD:
                view.status = PaymentStatus.ABANDONED
        return view
