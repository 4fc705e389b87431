"""Flights and bookings: the rules both faces of the app share. Knows no HTTP and no MCP.

Every method that changes something is one transaction of its own, finished before it returns, so a
flow may use it as a `step`. Each can be repeated without a second effect.
"""

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, and_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from .db import Database
from .errors import Conflict, NotFound
from .models import (
    Airport,
    Booking,
    BookingStatus,
    Customer,
    Flight,
    Passenger,
    Payment,
    PaymentMethod,
    PaymentStatus,
)
from .schemas import (
    LETTERS,
    ROWS,
    AirportView,
    BookingView,
    FlightView,
    NewPassenger,
    SeatsTaken,
)

SEATS: Final = tuple(f"{row}{letter}" for row in range(1, ROWS + 1) for letter in LETTERS)
REFERENCE_ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Without I, O, 0 and 1, which are misread."""


class Desk:
    """Search, hold, pay and cancel."""

    def __init__(
        self, database: Database, *, clock: Callable[[], float], hold_seconds: float
    ) -> None:
        self.database = database
        self._clock = clock
        self._hold_for = timedelta(seconds=hold_seconds)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    # ------------------------------------------------------------------------------ looking

    async def airports(self) -> list[AirportView]:
        async with self.database.reading() as session:
            rows = await session.scalars(select(Airport).order_by(Airport.code))
            return [AirportView.model_validate(row) for row in rows]

    async def flights(
        self, origin: str | None = None, destination: str | None = None
    ) -> list[FlightView]:
        """Flights that have not departed, soonest first."""
        query = select(Flight).where(Flight.departs_at > self.now()).order_by(Flight.departs_at)
        if origin:
            query = query.where(Flight.origin == origin)
        if destination:
            query = query.where(Flight.destination == destination)
        async with self.database.reading() as session:
            return [FlightView.model_validate(row) for row in await session.scalars(query)]

    async def flight(self, number: str) -> FlightView:
        """Raises: NotFound: there is no such flight."""
        async with self.database.reading() as session:
            return FlightView.model_validate(await find_flight(session, number))

    async def free_seats(self, number: str) -> list[str]:
        """Raises: NotFound: there is no such flight."""
        async with self.database.reading() as session:
            await find_flight(session, number)
            occupied = set(
                await session.scalars(
                    select(Passenger.seat)
                    .join(Booking, Booking.reference == Passenger.booking_reference)
                    .where(Passenger.flight_number == number, ~self._lapsed())
                )
            )
        return [seat for seat in SEATS if seat not in occupied]

    async def bookings(self, customer_id: str) -> list[BookingView]:
        query = select(Booking).where(Booking.customer_id == customer_id)
        async with self.database.reading() as session:
            rows = await session.scalars(query.order_by(Booking.created_at.desc()))
            return [self.view(row) for row in rows]

    async def booking(self, customer_id: str, reference: str) -> BookingView:
        """Raises: NotFound: there is no such booking, or it is somebody else's."""
        async with self.database.reading() as session:
            return self.view(await find_booking(session, customer_id, reference))

    # ----------------------------------------------------------------------------- changing

    async def hold(
        self,
        customer_id: str,
        flight: str,
        passengers: Sequence[NewPassenger],
        idempotency_key: str,
    ) -> BookingView | SeatsTaken:
        """Hold seats until they are paid for or the hold lapses: all of them, or none.

        Raises:
            NotFound: there is no such flight.
            Conflict: two passengers want one seat, or the key was used for something else.
        """
        seats = [passenger.seat for passenger in passengers]
        if len(set(seats)) < len(seats):
            raise Conflict("Two passengers cannot share a seat.")
        async with self.database.writing() as session:
            fare_cents = (await find_flight(session, flight)).fare_cents
            earlier = await session.scalar(
                select(Booking).where(
                    Booking.customer_id == customer_id, Booking.idempotency_key == idempotency_key
                )
            )
            if earlier is not None:
                if (earlier.flight_number, len(earlier.passengers)) != (flight, len(passengers)):
                    raise Conflict("This idempotency key was used for another booking.")
                return self.view(earlier)
            await self._release_lapsed(session, flight)
            taken = await session.scalars(
                select(Passenger.seat).where(
                    Passenger.flight_number == flight, Passenger.seat.in_(seats)
                )
            )
            if occupied := {seat for seat in taken if seat}:
                return SeatsTaken(taken=[seat for seat in seats if seat in occupied])
            booking = Booking(
                reference="".join(secrets.choice(REFERENCE_ALPHABET) for _ in range(6)),
                customer_id=customer_id,
                flight_number=flight,
                status=BookingStatus.HELD,
                held_until=self.now() + self._hold_for,
                price_cents=fare_cents * len(seats),
                idempotency_key=idempotency_key,
                created_at=self.now(),
                passengers=[
                    Passenger(position=n, name=p.name, flight_number=flight, seat=p.seat)
                    for n, p in enumerate(passengers, 1)
                ],
            )
            session.add(booking)
            await session.flush()
            return self.view(booking)

    async def rename(self, customer_id: str, reference: str, names: Sequence[str]) -> BookingView:
        """Raises: NotFound; Conflict: the number of names is not that of the passengers."""
        async with self.database.writing() as session:
            booking = await find_booking(session, customer_id, reference)
            if len(names) != len(booking.passengers):
                raise Conflict(f"This booking has {len(booking.passengers)} passengers.")
            for passenger, name in zip(booking.passengers, names, strict=True):
                passenger.name = name
            return self.view(booking)

    async def cancel(self, customer_id: str, reference: str) -> BookingView:
        """Give the seats back, and the money if the booking was paid.

        Raises: NotFound: there is no such booking, or it is somebody else's.
        """
        async with self.database.writing() as session:
            booking = await find_booking(session, customer_id, reference)
            if booking.status in (BookingStatus.HELD, BookingStatus.PAID):
                await refund(session, reference)
                release(booking, BookingStatus.CANCELLED)
            return self.view(booking)

    async def pay_from_account(self, customer_id: str, reference: str) -> BookingView:
        """Take the price from the customer's account. A booking that is paid stays as it is.

        Raises:
            NotFound: there is no such booking, or it is somebody else's.
            Conflict: the hold has lapsed, or there is not enough money on the account.
        """
        async with self.database.writing() as session:
            booking = await find_booking(session, customer_id, reference)
            if booking.status is BookingStatus.PAID:
                return self.view(booking)
            self.must_be_payable(booking)
            customer = await session.get_one(Customer, customer_id)
            if customer.balance_cents < booking.price_cents:
                raise Conflict("There is not enough money on the account.")
            customer.balance_cents -= booking.price_cents
            booking.status = BookingStatus.PAID
            session.add(
                Payment(
                    id=secrets.token_urlsafe(16),
                    customer_id=customer_id,
                    booking_reference=reference,
                    method=PaymentMethod.ACCOUNT,
                    status=PaymentStatus.PAID,
                    amount_cents=booking.price_cents,
                    # One payment from the account is all that a booking can have.
                    idempotency_key=f"account:{reference}",
                    created_at=self.now(),
                )
            )
            return self.view(booking)

    # ------------------------------------------------------------------------------- holds

    def status(self, booking: Booking) -> BookingStatus:
        """As of now: a lapsed hold is expired, whether or not its row says so yet."""
        lapsed = booking.status is BookingStatus.HELD and booking.held_until <= self.now()
        return BookingStatus.EXPIRED if lapsed else booking.status

    def must_be_payable(self, booking: Booking) -> None:
        """Raises: Conflict: the booking is not held, or its hold has lapsed."""
        if (status := self.status(booking)) is not BookingStatus.HELD:
            raise Conflict(f"Booking {booking.reference} is {status}, so it cannot be paid for.")

    def view(self, booking: Booking) -> BookingView:
        view = BookingView.model_validate(booking)
        view.status = self.status(booking)
        if view.status is BookingStatus.EXPIRED:
            for passenger in view.passengers:
                passenger.seat = None
        return view

    def _lapsed(self) -> ColumnElement[bool]:
        return and_(Booking.status == BookingStatus.HELD, Booking.held_until <= self.now())

    async def _release_lapsed(self, session: AsyncSession, flight: str) -> None:
        lapsed = await session.scalars(
            select(Booking).where(Booking.flight_number == flight, self._lapsed())
        )
        for booking in lapsed:
            release(booking, BookingStatus.EXPIRED)
        await session.flush()


def release(booking: Booking, status: BookingStatus) -> None:
    """End a booking and free its seats."""
    booking.status = status
    for passenger in booking.passengers:
        passenger.seat = None


async def find_flight(session: AsyncSession, number: str) -> Flight:
    """Raises: NotFound."""
    if (flight := await session.get(Flight, number)) is None:
        raise NotFound(f"flight {number}")
    return flight


async def find_booking(session: AsyncSession, customer_id: str, reference: str) -> Booking:
    """Raises: NotFound: also when the booking is somebody else's."""
    booking = await session.get(Booking, reference)
    if booking is None or booking.customer_id != customer_id:
        raise NotFound(f"booking {reference}")
    return booking


async def refund(session: AsyncSession, reference: str) -> None:
    """Undo what was paid for a booking. Money goes back where it came from."""
    payments = await session.scalars(
        select(Payment).where(
            Payment.booking_reference == reference, Payment.status == PaymentStatus.PAID
        )
    )
    for payment in payments:
        payment.status = PaymentStatus.REFUNDED
        if payment.method is PaymentMethod.ACCOUNT:
            await session.execute(
                update(Customer)
                .where(Customer.id == payment.customer_id)
                .values(balance_cents=Customer.balance_cents + payment.amount_cents)
            )
