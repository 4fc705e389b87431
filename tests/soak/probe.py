"""What the server process says of itself: tasks, descriptors, threads, memory, the loop's lag."""

import asyncio
import gc
import math
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

_EVERY: Final = 0.005  # seconds; uvloop's timers are exact to a millisecond


class Lag:
    """How late the loop's timers are. Each measurement starts the next one."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._again()

    def _again(self) -> None:
        self._due = self._loop.time() + _EVERY
        self._loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        self._late.append(max(0.0, self._loop.time() - self._due))
        self._again()

    def take(self) -> dict[str, float]:
        """Milliseconds since it was last asked."""
        late, self._late = sorted(self._late), []
        return {
            name: round(percentile(late, share) * 1000, 2)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
        }


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that so many are not above. Zero of nothing."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0.0


class Garbage:
    """What the cycle collector has found, by generation."""

    def __init__(self) -> None:
        gc.callbacks.append(self._collected)
        self.runs: Counter[int] = Counter()
        self.found = 0

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            self.runs[info["generation"]] += 1
            self.found += info["collected"]


def resident_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def descriptors() -> list[str]:
    """What is open: files by name, sockets as such."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}").partition(":[")[0])
        except FileNotFoundError:  # the descriptor that listed the directory
            continue
    return sorted(names)


def tasks() -> list[str]:
    """What runs on the loop, but for the request that asks."""
    current = asyncio.current_task()
    return sorted(_described(task) for task in asyncio.all_tasks() if task is not current)


def _described(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    return getattr(coroutine, "__qualname__", repr(coroutine))


def threads() -> dict[str, Any]:
    """How many there are, and how many of FastAPI's are at work."""
    return {
        "count": threading.active_count(),
        "borrowed": to_thread.current_default_thread_limiter().borrowed_tokens,
    }
