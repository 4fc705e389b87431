"""The tables. REST, MCP and the payment page read and write the same ones."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import DateTime, Dialect, Enum, ForeignKey, TypeDecorator, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class BookingStatus(StrEnum):
    """HELD leads to one of the others; PAID can still be CANCELLED."""

    HELD = "held"
    PAID = "paid"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class PaymentStatus(StrEnum):
    """OPEN leads to PAID or ABANDONED; PAID can become REFUNDED."""

    OPEN = "open"
    PAID = "paid"
    ABANDONED = "abandoned"
    REFUNDED = "refunded"


class PaymentMethod(StrEnum):
    ACCOUNT = "account"
    CARD = "card"


class ConnectionStatus(StrEnum):
    """OPEN leads to one of the others."""

    OPEN = "open"
    CONNECTED = "connected"
    ABANDONED = "abandoned"


class UTCDateTime(TypeDecorator[datetime]):
    """Aware datetimes in Python, UTC in the file; SQLite itself knows no time zones."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


ENUMS = (BookingStatus, PaymentStatus, PaymentMethod, ConnectionStatus)


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UTCDateTime,
        **{e: Enum(e, native_enum=False) for e in ENUMS},
    }


class Customer(Base):
    """Somebody with an API key and money on account. The key itself is not stored."""

    __tablename__ = "customers"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    api_key_sha256: Mapped[str] = mapped_column(unique=True)
    balance_cents: Mapped[int]


class BrowserSession(Base):
    """A browser that has signed in. The cookie's token is not stored either."""

    __tablename__ = "browser_sessions"

    token_sha256: Mapped[str] = mapped_column(primary_key=True)
    customer_id: Mapped[str] = mapped_column(ForeignKey("customers.id"))
    expires_at: Mapped[datetime]


class Airport(Base):
    __tablename__ = "airports"

    code: Mapped[str] = mapped_column(primary_key=True)
    city: Mapped[str]
    country: Mapped[str]


class Flight(Base):
    __tablename__ = "flights"

    number: Mapped[str] = mapped_column(primary_key=True)
    origin: Mapped[str] = mapped_column(ForeignKey("airports.code"))
    destination: Mapped[str] = mapped_column(ForeignKey("airports.code"))
    departs_at: Mapped[datetime]
    arrives_at: Mapped[datetime]
    fare_cents: Mapped[int]


class Booking(Base):
    """One flight for some passengers. `idempotency_key` makes asking for it twice harmless."""

    __tablename__ = "bookings"
    __table_args__ = (UniqueConstraint("customer_id", "idempotency_key"),)

    reference: Mapped[str] = mapped_column(primary_key=True)
    customer_id: Mapped[str] = mapped_column(ForeignKey("customers.id"))
    flight_number: Mapped[str] = mapped_column(ForeignKey("flights.number"))
    status: Mapped[BookingStatus]
    held_until: Mapped[datetime]
    price_cents: Mapped[int]
    idempotency_key: Mapped[str]
    created_at: Mapped[datetime]
    passengers: Mapped[list["Passenger"]] = relationship(
        lazy="selectin", order_by="Passenger.position"
    )


class Passenger(Base):
    """Sits on a seat while the booking is held or paid, on none afterwards.

    The unique constraint is what makes a double booking impossible, whoever writes: SQL lets any
    number of NULLs through it, so a released seat is free for the next passenger.
    """

    __tablename__ = "passengers"
    __table_args__ = (UniqueConstraint("flight_number", "seat"),)

    booking_reference: Mapped[str] = mapped_column(
        ForeignKey("bookings.reference"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    flight_number: Mapped[str] = mapped_column(ForeignKey("flights.number"))
    seat: Mapped[str | None]


class Payment(Base):
    """Of a card number only the last four digits are kept."""

    __tablename__ = "payments"
    __table_args__ = (UniqueConstraint("customer_id", "idempotency_key"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    customer_id: Mapped[str] = mapped_column(ForeignKey("customers.id"))
    booking_reference: Mapped[str] = mapped_column(ForeignKey("bookings.reference"))
    method: Mapped[PaymentMethod]
    status: Mapped[PaymentStatus]
    amount_cents: Mapped[int]
    card_last4: Mapped[str | None]
    idempotency_key: Mapped[str]
    created_at: Mapped[datetime]


class Connection(Base):
    """One attempt of a customer to connect an account elsewhere.

    The `state` that goes along is not stored itself. It is gone once a browser has come back.
    """

    __tablename__ = "connections"
    __table_args__ = (UniqueConstraint("customer_id", "idempotency_key"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    customer_id: Mapped[str] = mapped_column(ForeignKey("customers.id"))
    status: Mapped[ConnectionStatus]
    idempotency_key: Mapped[str]
    expires_at: Mapped[datetime]
    state_sha256: Mapped[str | None] = mapped_column(unique=True)
    browser_sha256: Mapped[str | None]
    code_verifier: Mapped[str | None]


class MilesToken(Base):
    """What a customer has let the desk do at Nimbus Miles: the token response, as JSON."""

    __tablename__ = "miles_tokens"

    customer_id: Mapped[str] = mapped_column(ForeignKey("customers.id"), primary_key=True)
    token: Mapped[str]
