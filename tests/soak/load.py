"""Clients that come again and again for a while, and what they found."""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from .probe import percentile
from .visits import Client, Visit

THINKING: Final = 1.0
"""Seconds between the visits of a client, on average. Two hundred that did not think would measure
how long the queue is, not how long anything takes."""

_SHOWN: Final = 20  # findings; the rest are likely the same


@dataclass(slots=True)
class Found:
    """What happened to the clients of one load."""

    visits: Counter[str] = field(default_factory=Counter)
    seconds: list[tuple[float, float]] = field(default_factory=list)
    """Of the timed kind of visit: when it began, since the load did, and how long it took."""
    wrong: list[str] = field(default_factory=list)

    def p99_ms(self, since: float, until: float) -> float:
        """The 99th percentile of visits that began in this span."""
        took = sorted(took for began, took in self.seconds if since <= began < until)
        return round(percentile(took, 0.99) * 1000, 1)


async def load(
    port: int, mix: Sequence[Visit], *, clients: int, seconds: float, seed: int, timed: str
) -> Found:
    """Have so many clients visit for so long. Returns when all have ended their last visit."""
    found = Found()
    began = time.monotonic()
    plays = {visit.name: visit.play for visit in mix}
    weights = [visit.weight for visit in mix]

    async def come_and_go(number: int) -> None:
        client = Client(number, port, seed)
        try:
            await asyncio.sleep(client.random.uniform(0, THINKING))
            while (now := time.monotonic() - began) < seconds:
                name = client.random.choices(list(plays), weights)[0]
                try:
                    await plays[name](client)
                except Exception as error:
                    if len(found.wrong) < _SHOWN:
                        last = traceback.extract_tb(error.__traceback__)[-1]
                        where = f"{last.name}:{last.lineno}"
                        found.wrong.append(f"{client.name}, {name} ({where}): {error!r}")
                    client.leave()
                found.visits[name] += 1
                if name == timed:
                    found.seconds.append((now, time.monotonic() - began - now))
                await asyncio.sleep(client.random.expovariate(1 / THINKING))
        finally:
            client.leave()

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(come_and_go(number))
    return found
