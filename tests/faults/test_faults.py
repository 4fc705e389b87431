"""Bookings against workers that are killed, lines that lose and repeat, and a store that restarts.

`FAULT_FLOWS` flows a store, 200 unless it says otherwise; `make faults` for 2,000, and to see the
numbers. What is random follows `FAULT_SEED`, as far as the timing of processes lets it.
"""

import asyncio
import os
import random
import sqlite3
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.state.ledger.services import PostgresServer, RedisServer, Service

from .desk import Workers
from .player import Player
from .world import Note, World, world_at

pytestmark = pytest.mark.anyio

FLOWS: Final = int(os.environ.get("FAULT_FLOWS", "200"))
SEED: Final = os.environ.get("FAULT_SEED", "1")
CLIENTS: Final = 20
WORKERS: Final = 4
LEASE: Final = 2.0
FLOWS_PER_KILL: Final = 25
LOOK_AGAIN: Final = 0.05
AT_MOST: Final = 120.0 + 2.0 * FLOWS
"""Seconds. What is not over by then hangs."""


# ----------------------------------------------------------------------------------- stores


class Store(ABC):
    """Where the ledger is, and how it is restarted."""

    ledger: str
    world: str

    @abstractmethod
    def restart(self) -> None: ...


class ServerStore(Store):
    def __init__(self, server: Service) -> None:
        self._server = server
        self.ledger = self.world = server.url

    def restart(self) -> None:
        with self._server.away():
            pass


class FileStore(Store):
    """A file does not restart. Somebody locks it, for longer than the ledger waits."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "flows.db"
        self.ledger = f"sqlite+aiosqlite:///{self._file}"
        self.world = f"sqlite+aiosqlite:///{folder / 'world.db'}"

    def restart(self) -> None:
        connection = sqlite3.connect(self._file, timeout=60, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(6)
        connection.close()


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Store]:
    if name == "sqlite":
        yield FileStore(folder)
    else:
        with RedisServer() if name == "redis" else PostgresServer() as server:
            yield ServerStore(server)


# ---------------------------------------------------------------------------------- the run


async def nemesis(workers: Workers, store: Store, seen: Counter[str]) -> None:
    """Kill a worker every so many rounds, and restart the store once, half-way."""
    rng = random.Random(f"{SEED} nemesis")
    rounds = 3 * FLOWS
    kills = [rng.randrange(rounds // 20, rounds) for _ in range(FLOWS // FLOWS_PER_KILL)]
    for at, deed in sorted([*((at, "kill") for at in kills), (rounds // 2, "restart")]):

        def is_time(at: int = at) -> bool:
            return seen["rounds"] >= at

        await until(is_time)
        if deed == "restart":
            await asyncio.to_thread(store.restart)
        else:
            worker = rng.choice(workers.all)
            worker.kill()
            worker.start()
            # One at a time, or soon there would be nobody left to kill.
            await until(worker.is_up)
        seen[deed] += 1


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - processes set no event
        await asyncio.sleep(LOOK_AGAIN)


async def bookings(workers: Workers, store: Store, seen: Counter[str]) -> dict[str, str]:
    """Play all flows, and return what each client was told in the end."""
    said: dict[str, str] = {}

    async def client(number: int) -> None:
        player = Player(workers, f"{SEED} client {number}", seen)
        for flow in range(number, FLOWS, CLIENTS):
            said[f"flow-{flow}"] = await player.book(f"flow-{flow}")

    try:
        async with asyncio.timeout(AT_MOST), asyncio.TaskGroup() as group:
            group.create_task(nemesis(workers, store, seen))
            for number in range(CLIENTS):
                group.create_task(client(number))
    except BaseException as error:
        missing = [f"flow-{flow}" for flow in range(FLOWS) if f"flow-{flow}" not in said]
        error.add_note(
            f"FAULT_SEED={SEED} {dict(seen)}\nnot over: {missing}\n{workers.log[-4000:]}"
        )
        raise
    return said


def judge(said: dict[str, str], booked: dict[str, str], notes: list[Note]) -> Counter[str]:
    """No booking is lost and none is doubled; nothing ran twice but what was taken over."""
    assert len(said) == FLOWS
    assert sorted(booked.values()) == sorted(said)
    assert said == {name: f"seat 7, booking {key}" for key, name in booked.items()}
    kinds = {kind: [note for note in notes if note.kind == kind] for kind in ("run", "mail")}
    firsts = Counter((n.name, n.detail) for n in kinds["run"] if n.detail.endswith("first"))
    assert set(firsts.values()) == {1}
    ran = {(note.name, note.detail.split()[0]) for note in kinds["run"]}
    assert ran == {(name, round_) for name in said for round_ in "123"}
    # At most once: between the record and the mail there is time to die, too.
    mails = Counter(note.name for note in kinds["mail"])
    assert set(mails.values()) == {1}
    return Counter(
        {
            "runs": len(kinds["run"]),
            "takeovers": len(kinds["run"]) - len(firsts),
            "mails": len(mails),
        }
    )


@pytest.mark.parametrize("name", ["sqlite", "redis", "postgres"])
async def test_every_booking_is_made_once(name: str, tmp_path: Path) -> None:
    """user report: with a lost response or two workers, people paid twice."""
    seen: Counter[str] = Counter()
    with opened(name, tmp_path) as store:
        environ = {
            "LEDGER": store.ledger,
            "WORLD": store.world,
            "LEASE": str(LEASE),
            "SEED": SEED,
        }
        world: World = world_at(store.world)
        await world.open()
        with Workers(WORKERS, environ, tmp_path) as workers:
            began = time.monotonic()
            said = await bookings(workers, store, seen)
            took = time.monotonic() - began
        booked, notes = await world.bookings(), await world.notes()
        await world.aclose()
    seen += judge(said, booked, notes)
    print(
        f"\n{name}: {FLOWS} flows in {took:.0f} s, FAULT_SEED={SEED}, {dict(sorted(seen.items()))}"
    )
    assert seen["kill"] == FLOWS // FLOWS_PER_KILL
    assert seen["restart"] == 1
    assert "Internal error" not in workers.log
    assert "correlation id" not in workers.log
