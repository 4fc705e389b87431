"""The session stores under test, each with a hand on the clock of its store."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from fastapi_mcp_mrtr.state.sessions import MemorySessionStore, SessionStore
from tests.state.ledger.backends import FakeClock


class Backend(Protocol):
    """A store, two ways to it as two workers have them, and its clock."""

    @property
    def store(self) -> SessionStore: ...
    @property
    def other(self) -> SessionStore: ...

    async def advance(self, seconds: float) -> None:
        """Let time pass in the store."""

    async def leftovers(self) -> int:
        """How much is there, once everything is removed that removes itself."""
        ...


OpenBackend = Callable[[], AbstractAsyncContextManager[Backend]]


@dataclass
class InMemory:
    """There is no second worker."""

    clock: FakeClock
    store: MemorySessionStore

    @property
    def other(self) -> MemorySessionStore:
        return self.store

    async def advance(self, seconds: float) -> None:
        self.clock.now += seconds

    async def leftovers(self) -> int:
        await self.store.revoke("last", ttl=1)
        await self.store.append("last", b"", ttl=1)
        return len(self.store) - 1 + len(self.store._streams) - 1 + len(self.store._listeners)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Backend]:
    clock = FakeClock()
    yield InMemory(clock, MemorySessionStore(clock=clock))
