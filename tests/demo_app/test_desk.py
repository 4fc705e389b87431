"""The rules under contention, with several processes' worth of connections to one file."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from demo_app.db import Database
from demo_app.desk import Desk
from demo_app.schemas import BookingView, NewPassenger, SeatsTaken

from .helpers import Clock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desks(tmp_path: Path, clock: Clock) -> AsyncIterator[list[Desk]]:
    """Four desks that share nothing but the file, as four workers would."""
    databases = [Database(tmp_path / "desk.sqlite3") for _ in range(4)]
    desks = [Desk(database, clock=clock, hold_seconds=900) for database in databases]
    async with anyio.create_task_group() as group:
        for desk in desks:
            group.start_soon(desk.database.prepare, desk.now())
    yield desks
    for database in databases:
        await database.close()


async def test_workers_that_start_together_fill_the_database_once(desks: list[Desk]) -> None:
    """User report: what works in one process fails in several."""
    assert len(await desks[0].airports()) == 8


async def test_one_seat_goes_to_one_customer(desks: list[Desk]) -> None:
    """Decision: forty requests at once over four connections' worth of workers, one booking."""
    outcomes: list[BookingView | SeatsTaken] = []

    async def hold(number: int) -> None:
        customer = ("amelie", "bruno")[number % 2]
        passenger = NewPassenger(name="A", seat="14A")
        desk = desks[number % len(desks)]
        outcomes.append(await desk.hold(customer, "TD101", [passenger], f"key {number}"))

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(hold, number)
    assert len([held for held in outcomes if isinstance(held, BookingView)]) == 1
    assert len(outcomes) == 40


async def test_one_key_holds_once(desks: list[Desk]) -> None:
    """Decision: the same request twice at the same moment is one effect."""
    references: set[str] = set()

    async def hold(desk: Desk) -> None:
        held = await desk.hold("amelie", "TD101", [NewPassenger(name="A", seat="14A")], "key")
        assert isinstance(held, BookingView)
        references.add(held.reference)

    async with anyio.create_task_group() as group:
        for desk in desks * 5:
            group.start_soon(hold, desk)
    assert len(references) == 1


async def test_one_booking_is_paid_once(desks: list[Desk]) -> None:
    """Decision: twenty confirmations at the same moment take the money once."""
    held = await desks[0].hold("amelie", "TD101", [NewPassenger(name="A", seat="14A")], "key")
    assert isinstance(held, BookingView)
    async with anyio.create_task_group() as group:
        for desk in desks * 5:
            group.start_soon(desk.pay_from_account, "amelie", held.reference)
    cancelled = await desks[0].cancel("amelie", held.reference)
    assert cancelled.status == "cancelled"
