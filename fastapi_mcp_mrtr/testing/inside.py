"""What the client may reach inside the app under test: its clock and its dependency overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol


class HasClock(Protocol):
    """The part of a router that a clock is moved in."""

    @property
    def clock(self) -> Callable[[], float]: ...
    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None: ...


class ShiftedClock:
    """A router's clock, ahead by what the clients of its tests have advanced it together.

    Shared by all clients of one router, so that they may close in any order.
    """

    def __init__(self, original: Callable[[], float]) -> None:
        self.original = original
        self.shifts: dict[int, float] = {}

    def __call__(self) -> float:
        return self.original() + sum(self.shifts.values())


def advance_clock(router: HasClock, owner: int, seconds: float) -> None:
    """Move the router's clock on, on behalf of one owner."""
    clock = router.clock
    if not isinstance(clock, ShiftedClock):
        clock = router.clock = ShiftedClock(clock)
    clock.shifts[owner] = clock.shifts.get(owner, 0.0) + seconds


def restore_clock(router: HasClock, owner: int) -> None:
    """Take back what one owner has moved; the last one leaves the router's own clock behind."""
    clock = router.clock
    if isinstance(clock, ShiftedClock):
        clock.shifts.pop(owner, None)
        if not clock.shifts:
            router.clock = clock.original


@contextmanager
def overridden(app: Any, dependency: Callable[..., Any], value: Any) -> Iterator[None]:
    """Let a dependency give this value, in the app and in every app mounted inside it."""
    with ExitStack() as stack:
        for overrides in _overrides(app, set()):
            stack.enter_context(_replaced(overrides, dependency, value))
        yield


@contextmanager
def _replaced(
    overrides: dict[Callable[..., Any], Callable[..., Any]],
    dependency: Callable[..., Any],
    value: Any,
) -> Iterator[None]:
    before = overrides.get(dependency)
    overrides[dependency] = lambda: value
    try:
        yield
    finally:
        if before is None:
            del overrides[dependency]
        else:
            overrides[dependency] = before


def _overrides(node: Any, seen: set[int]) -> Iterator[dict[Callable[..., Any], Callable[..., Any]]]:
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    overrides = getattr(node, "dependency_overrides", None)
    if overrides is not None:
        yield overrides
    # `app` is what a middleware wraps and what a Mount holds; FastAPI keeps an included router
    # behind `original_router`.
    for child in (
        getattr(node, "app", None),
        getattr(node, "original_router", None),
        *(getattr(node, "routes", None) or ()),
    ):
        yield from _overrides(child, seen)
