"""What the desk shows to the outside: the same models in REST answers and MCP results."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from .models import BookingStatus, ConnectionStatus, PaymentStatus

FlightNumber = Annotated[str, Field(pattern=r"^TD\d{3}$", examples=["TD101"])]
AirportCode = Annotated[str, Field(pattern=r"^[A-Z]{3}$", examples=["AMS"])]
Reference = Annotated[str, Field(pattern=r"^[A-Z0-9]{6}$", examples=["K7QF2M"])]
SeatCode = Annotated[str, Field(pattern=r"^([1-9]|[12]\d|30)[A-F]$", examples=["14A"])]

ROWS = 30
LETTERS = "ABCDEF"


class View(BaseModel):
    """Read from a table row as well as from JSON."""

    model_config = ConfigDict(from_attributes=True)


class CustomerView(View):
    id: str
    name: str
    balance_cents: int


class AirportView(View):
    code: AirportCode
    city: str
    country: str


class FlightView(View):
    number: FlightNumber
    origin: AirportCode
    destination: AirportCode
    departs_at: datetime
    arrives_at: datetime
    fare_cents: int = Field(description="Euro cents per passenger.")


class FlightList(BaseModel):
    flights: list[FlightView]


class SeatMap(BaseModel):
    flight: FlightNumber
    free: list[SeatCode]


class PassengerView(View):
    name: str
    seat: SeatCode | None = Field(description="Empty once the booking is cancelled or expired.")


class BookingView(View):
    reference: Reference
    flight_number: FlightNumber
    status: BookingStatus
    price_cents: int
    held_until: datetime = Field(description="Until then the seats wait for the payment.")
    passengers: list[PassengerView]


class BookingList(BaseModel):
    bookings: list[BookingView]


class SeatsTaken(BaseModel):
    """Nothing was held, because somebody else has these seats."""

    taken: list[SeatCode]


class PaymentView(View):
    id: str
    customer_id: str
    booking_reference: Reference
    status: PaymentStatus
    amount_cents: int
    card_last4: str | None


class ConnectionView(View):
    id: str
    customer_id: str
    status: ConnectionStatus


class NewPassenger(BaseModel):
    name: str = Field(min_length=1, max_length=60)
    seat: SeatCode


class NewBooking(BaseModel):
    flight: FlightNumber
    passengers: list[NewPassenger] = Field(min_length=1, max_length=6)


class NameChange(BaseModel):
    """New names for the passengers of a booking, in the order of the booking."""

    names: list[Annotated[str, Field(min_length=1, max_length=60)]] = Field(min_length=1)


Letter = Literal["A", "B", "C", "D", "E", "F"]


def euros(cents: int) -> str:
    return f"€{cents / 100:,.2f}"
