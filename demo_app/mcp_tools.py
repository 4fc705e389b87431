"""The MCP face of the desk: handlers that read like the conversation they hold.

A handler runs again from its top in every round and holds nothing in between. So whatever decides
its course comes from its arguments, from answers, or from a `step`, and whatever changes the
database does so in a `step` or after the last question. Each such effect is a transaction of its
own in `desk.py` or `payments.py` and can be repeated without harm.
"""

from itertools import count
from typing import Annotated, Literal

import anyio
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    Complete,
    Context,
    HandlerGroup,
    InputRefused,
    Rounds,
    Titles,
    ToolError,
    log,
    need_input,
    need_url,
    not_yet,
    prefixed,
    progress,
    step,
)

from .auth import CurrentCustomer
from .deps import DeskDep, Links, LinksDep, PaymentsDep, SettingsDep
from .desk import Desk
from .errors import NotFound
from .models import BookingStatus, PaymentStatus
from .payments import Payments
from .schemas import (
    ROWS,
    AirportCode,
    AirportView,
    BookingList,
    BookingView,
    CustomerView,
    FlightList,
    FlightNumber,
    Letter,
    NewPassenger,
    PaymentView,
    Reference,
    SeatMap,
    SeatsTaken,
    euros,
)

travel = HandlerGroup()

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
BOOKS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
CANCELS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)

# ----------------------------------------------------------------------------------- looking


@travel.tool(title="Search flights", annotations=READS)
async def search_flights(
    desk: DeskDep,
    origin: AirportCode | None = None,
    destination: AirportCode | None = None,
) -> FlightList:
    """Find flights between two airports, or all from or to one. Soonest first."""
    return FlightList(flights=await desk.flights(origin, destination))


@travel.tool(title="Free seats", annotations=READS)
async def free_seats(flight: FlightNumber, desk: DeskDep) -> SeatMap:
    """List the seats that are free on a flight."""
    return SeatMap(flight=flight, free=await desk.free_seats(flight))


class Fare(BaseModel):
    partner: str
    fare_cents: int


class FareComparison(BaseModel):
    flight: FlightNumber
    cheapest: Fare
    fares: list[Fare]


PARTNERS = {"Desk direct": 100, "Northwind": 104, "SkyPool": 97, "Lanterne": 110}
"""Name, and its price in percent of ours."""


@travel.tool(title="Compare fares", annotations=READS)
async def compare_fares(
    flight: FlightNumber, desk: DeskDep, settings: SettingsDep
) -> Rounds[FareComparison]:
    """Ask every partner for its price of a flight. Takes a moment and says how far it is."""
    found = await desk.flight(flight)
    fares: list[Fare] = []
    for asked, (partner, percent) in enumerate(PARTNERS.items()):
        yield progress(asked, len(PARTNERS), f"Asking {partner}")
        await anyio.sleep(settings.partner_pause)
        fares.append(Fare(partner=partner, fare_cents=found.fare_cents * percent // 100))
    yield progress(len(PARTNERS), len(PARTNERS), "Done")
    cheapest = min(fares, key=lambda fare: fare.fare_cents)
    yield log("info", f"{flight}: {len(fares)} partners asked, {cheapest.partner} is cheapest")
    yield FareComparison(flight=flight, cheapest=cheapest, fares=fares)


@travel.tool(title="My bookings", annotations=READS)
async def list_bookings(customer: CurrentCustomer, desk: DeskDep) -> BookingList:
    """List your bookings, newest first."""
    return BookingList(bookings=await desk.bookings(customer.id))


# ----------------------------------------------------------------------------------- booking


class SeatChoice(BaseModel):
    """A seat on the plane."""

    row: int = Field(ge=1, le=ROWS, title="Row", description="1 is in front.")
    letter: Letter = Field(title="Seat", description="A and F are at the window.")

    @property
    def code(self) -> str:
        return f"{self.row}{self.letter}"


@travel.tool(title="Book a seat", annotations=BOOKS, scopes=["desk:book", "desk:pay"])
async def book_seat(
    flight: FlightNumber, customer: CurrentCustomer, desk: DeskDep, ctx: Context
) -> Rounds[BookingView]:
    """Book one seat for yourself. Asks which, holds it, and asks again before it is paid for."""
    await desk.flight(flight)  # nobody should answer questions in vain
    question, attempt = f"Which seat would you like on {flight}?", 1
    while True:
        seat: SeatChoice = yield need_input(f"seat-{attempt}", question, SeatChoice)
        passenger = NewPassenger(name=customer.name, seat=seat.code)
        key = ctx.idempotency_key(f"hold-{attempt}")
        held: BookingView | SeatsTaken = yield step(
            f"hold-{attempt}", desk.hold, customer.id, flight, [passenger], key
        )
        if isinstance(held, BookingView):
            break
        question = f"Seat {seat.code} on {flight} is taken. Which one would you like instead?"
        attempt += 1

    price = euros(held.price_cents)
    try:
        agreed: bool = yield need_input(
            "confirm", f"Pay {price} from your account for seat {seat.code} on {flight}?", bool
        )
    except InputRefused:
        agreed = False
    if agreed:
        yield await desk.pay_from_account(customer.id, held.reference)
    else:
        yield await desk.cancel(customer.id, held.reference)


class Traveller(BaseModel):
    """As in the passport."""

    name: str = Field(min_length=1, max_length=60, title="Full name")


@travel.tool(
    title="Book for a party", annotations=BOOKS, scopes=["desk:book", "desk:pay"], max_rounds=40
)
async def book_party(
    flight: FlightNumber,
    travellers: Annotated[int, Field(ge=2, le=4)],
    customer: CurrentCustomer,
    desk: DeskDep,
    payments: PaymentsDep,
    links: LinksDep,
    ctx: Context,
) -> Rounds[BookingView]:
    """Book several seats at once. Asks who travels and where each sits; all seats or none.

    The payment is by card, on the desk's own page.
    """
    await desk.flight(flight)
    numbers = range(1, travellers + 1)
    party: tuple[Traveller, ...] = yield [
        need_input(f"traveller-{n}", f"Who is traveller {n} of {travellers}?", Traveller)
        for n in numbers
    ]
    seats: dict[int, str] = {}
    attempt = 1
    while True:
        for n in numbers:
            if n not in seats:
                seats[n] = yield prefixed(
                    f"try-{attempt}.traveller-{n}.",
                    choose_seat(flight, party[n - 1].name, list(seats.values())),
                )
        passengers = [NewPassenger(name=party[n - 1].name, seat=seats[n]) for n in numbers]
        key = ctx.idempotency_key(f"hold-{attempt}")
        held: BookingView | SeatsTaken = yield step(
            f"hold-{attempt}", desk.hold, customer.id, flight, passengers, key
        )
        if isinstance(held, BookingView):
            break
        seats = {n: seat for n, seat in seats.items() if seat not in held.taken}
        attempt += 1
    paid: BookingView = yield pay_on_page(held, customer, desk, payments, links, ctx)
    yield paid


async def choose_seat(flight: str, name: str, chosen: list[str]) -> Rounds[str]:
    """Sub-flow: a seat for one traveller that nobody else of the party has chosen."""
    question = f"Which seat for {name} on {flight}?"
    for attempt in count(1):
        seat: SeatChoice = yield need_input(f"seat-{attempt}", question, SeatChoice)
        if seat.code not in chosen:
            yield seat.code
            return
        question = f"Seat {seat.code} is already for somebody else of you. Which one for {name}?"


@travel.tool(title="Pay for a booking", annotations=BOOKS, scopes=["desk:pay"])
async def pay_booking(
    reference: Reference,
    customer: CurrentCustomer,
    desk: DeskDep,
    payments: PaymentsDep,
    links: LinksDep,
    ctx: Context,
) -> Rounds[BookingView]:
    """Pay for a held booking by card, on the desk's own page."""
    booking = await desk.booking(customer.id, reference)
    paid: BookingView = yield pay_on_page(booking, customer, desk, payments, links, ctx)
    yield paid


async def pay_on_page(
    booking: BookingView,
    customer: CustomerView,
    desk: Desk,
    payments: Payments,
    links: Links,
    ctx: Context,
) -> Rounds[BookingView]:
    """Sub-flow: open a payment, send the user to its page, and wait until it is settled.

    That the user agreed to open the page says nothing of what happens there, so every round looks
    at the payment itself. Card data never passes through the client (elicitation §URL Mode).
    """
    payment: PaymentView = yield step(
        "payment",
        payments.open,
        customer.id,
        booking.reference,
        ctx.idempotency_key("payment"),
    )
    try:
        yield need_url(
            "payment-page",
            f"Pay {euros(payment.amount_cents)} by card for booking {booking.reference}.",
            links.payment_page(payment.id),
        )
    except InputRefused:
        await payments.abandon(payment.id)
    if await payments.outcome(payment) is PaymentStatus.OPEN:
        yield not_yet()
    settled = await desk.booking(customer.id, booking.reference)
    if settled.status is not BookingStatus.PAID:
        raise ToolError(
            f"Booking {settled.reference} is not paid for, it is {settled.status}. While it is "
            "held, pay_booking can try again."
        )
    yield settled


@travel.tool(title="Cancel a booking", annotations=CANCELS, scopes=["desk:book"])
async def cancel_booking(
    reference: Reference, customer: CurrentCustomer, desk: DeskDep
) -> Rounds[BookingView]:
    """Give a booking back. Asks first; what was paid is refunded."""
    booking = await desk.booking(customer.id, reference)
    agreed: bool = yield need_input(
        "cancel", f"Give back booking {reference} on {booking.flight_number}?", bool
    )
    yield await desk.cancel(customer.id, reference) if agreed else booking


# ------------------------------------------------------------------------ prompts, resources


async def airport_codes(value: str, desk: DeskDep) -> list[str]:
    """What could be meant: by the code, or by the name of the city."""
    typed = value.casefold()
    return [
        airport.code
        for airport in await desk.airports()
        if airport.code.casefold().startswith(typed) or airport.city.casefold().startswith(typed)
    ]


async def flight_numbers(value: str, desk: DeskDep) -> list[str]:
    flights = await desk.flights()
    return [f.number for f in flights if f.number.startswith(value.upper())]


class Wishes(BaseModel):
    """What the trip should be like."""

    days: int = Field(default=3, ge=1, le=14, title="Days")
    pace: Annotated[
        Literal["easy", "full"],
        Titles({"easy": "Easy: two things a day", "full": "Full: as much as fits"}),
    ] = Field(default="easy", title="Pace")
    interests: list[Literal["food", "museums", "music", "nature"]] = Field(
        min_length=1, title="Interests"
    )


@travel.prompt(title="Plan a trip")
async def itinerary(
    destination: Annotated[AirportCode, Complete(airport_codes)], desk: DeskDep
) -> Rounds[str]:
    """A plan for some days in a city, after asking what they should be like."""
    city = await find_city(desk, destination)
    wishes: Wishes = yield need_input("wishes", f"How should your days in {city} be?", Wishes)
    flights = await desk.flights(destination=destination)
    arrivals = ", ".join(f"{f.number} from {f.origin}" for f in flights) or "none"
    yield (
        f"Plan {wishes.days} days in {city} for me. Pace: {wishes.pace}. "
        f"I like {', '.join(wishes.interests)}. Flights there: {arrivals}. "
        "Propose one of them, then a plan for each day."
    )


async def find_city(desk: Desk, code: str) -> str:
    for airport in await desk.airports():
        if airport.code == code:
            return airport.city
    raise NotFound(f"airport {code}")


FareClass = Annotated[
    Literal["light", "standard", "flex"],
    Titles(
        {
            "light": "Light: hand luggage only",
            "standard": "Standard: one bag, changes for a fee",
            "flex": "Flex: two bags, free changes",
        }
    ),
]

RULES = {
    "light": "No changes. No refund. One piece of hand luggage.",
    "standard": "Changes for €40. Refund of half the fare until the day before. One bag of 23 kg.",
    "flex": "Free changes. Full refund until departure. Two bags of 23 kg.",
}


@travel.resource(
    "desk://flights/{flight}/fare-rules", title="Fare rules", mime_type="text/markdown"
)
async def fare_rules(
    flight: Annotated[FlightNumber, Complete(flight_numbers)], desk: DeskDep
) -> Rounds[str]:
    """What a fare allows on a flight. Asks for the fare class."""
    found = await desk.flight(flight)
    chosen: Literal["light", "standard", "flex"] = yield need_input(
        "fare-class", f"Which fare on {flight}?", FareClass
    )
    route = f"{found.origin} to {found.destination}"
    yield f"# {flight}, {route}: {chosen}\n\n{RULES[chosen]}\n"


@travel.resource("desk://bookings/{reference}", title="A booking", mime_type="application/json")
async def read_booking(
    reference: Reference, customer: CurrentCustomer, desk: DeskDep
) -> BookingView:
    """One of your bookings."""
    return await desk.booking(customer.id, reference)


@travel.resource("desk://airports", title="Airports", mime_type="application/json")
async def airports(desk: DeskDep) -> list[AirportView]:
    """All airports the desk flies to."""
    return await desk.airports()


@travel.resource("desk://conditions", title="Conditions", mime_type="text/markdown")
def conditions() -> str:
    """How booking works here."""
    return CONDITIONS


CONDITIONS = """# Conditions

- A seat is held until the booking's `held_until`. Unpaid by then, it is free for others.
- Bookings are paid from the account or by card on the desk's own page, never in a conversation.
- A cancelled booking is refunded to where the money came from.
"""
