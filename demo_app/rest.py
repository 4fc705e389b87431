"""The REST face of the desk, shown in /docs."""

import secrets
from typing import Annotated

from fastapi import APIRouter, Header, Query

from .auth import CurrentCustomer
from .deps import DeskDep
from .errors import Conflict
from .schemas import (
    AirportCode,
    AirportView,
    BookingView,
    CustomerView,
    FlightNumber,
    FlightView,
    NameChange,
    NewBooking,
    Reference,
    SeatMap,
    SeatsTaken,
)

router = APIRouter()


@router.get("/airports", tags=["flights"])
async def list_airports(desk: DeskDep) -> list[AirportView]:
    return await desk.airports()


@router.get("/flights", tags=["flights"])
async def list_flights(
    desk: DeskDep,
    origin: Annotated[AirportCode | None, Query()] = None,
    destination: Annotated[AirportCode | None, Query()] = None,
) -> list[FlightView]:
    """Flights that have not departed yet, soonest first."""
    return await desk.flights(origin, destination)


@router.get("/flights/{number}", tags=["flights"])
async def read_flight(number: FlightNumber, desk: DeskDep) -> FlightView:
    return await desk.flight(number)


@router.get("/flights/{number}/seats", tags=["flights"])
async def read_seats(number: FlightNumber, desk: DeskDep) -> SeatMap:
    return SeatMap(flight=number, free=await desk.free_seats(number))


@router.get("/me", tags=["bookings"])
async def read_me(customer: CurrentCustomer) -> CustomerView:
    """Who the API key belongs to, and the money on account."""
    return customer


@router.get("/bookings", tags=["bookings"])
async def list_bookings(customer: CurrentCustomer, desk: DeskDep) -> list[BookingView]:
    """Your own bookings, newest first."""
    return await desk.bookings(customer.id)


@router.post("/bookings", tags=["bookings"], status_code=201)
async def create_booking(
    new: NewBooking,
    customer: CurrentCustomer,
    desk: DeskDep,
    idempotency_key: Annotated[str | None, Header(max_length=100)] = None,
) -> BookingView:
    """Hold seats. They wait for the payment until `held_until`.

    With an `Idempotency-Key` the request can be repeated without holding more seats.
    """
    key = f"rest:{idempotency_key or secrets.token_urlsafe(16)}"
    held = await desk.hold(customer.id, new.flight, new.passengers, key)
    if isinstance(held, SeatsTaken):
        raise Conflict(f"Taken by somebody else: {', '.join(held.taken)}.")
    return held


@router.get("/bookings/{reference}", tags=["bookings"])
async def read_booking(
    reference: Reference, customer: CurrentCustomer, desk: DeskDep
) -> BookingView:
    return await desk.booking(customer.id, reference)


@router.patch("/bookings/{reference}", tags=["bookings"])
async def rename_passengers(
    reference: Reference, change: NameChange, customer: CurrentCustomer, desk: DeskDep
) -> BookingView:
    return await desk.rename(customer.id, reference, change.names)


@router.post("/bookings/{reference}/payment", tags=["bookings"])
async def pay_booking(
    reference: Reference, customer: CurrentCustomer, desk: DeskDep
) -> BookingView:
    """Pay from the account. Paying twice takes the money once."""
    return await desk.pay_from_account(customer.id, reference)


@router.delete("/bookings/{reference}", tags=["bookings"])
async def cancel_booking(
    reference: Reference, customer: CurrentCustomer, desk: DeskDep
) -> BookingView:
    """Give the seats back, and the money if the booking was paid."""
    return await desk.cancel(customer.id, reference)
