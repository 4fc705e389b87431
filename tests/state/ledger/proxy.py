"""A wire between a ledger and its store that can be cut at the moment a test wants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from .services import free_port


class Proxy:
    """Passes bytes on, both ways."""

    def __init__(self, port: int) -> None:
        self.port = free_port()
        self._store = port
        self.lost = 0
        """How many replies were lost."""
        self._loses_reply = False
        self._swallows = False
        self._melts = asyncio.Event()
        self._melts.set()
        self._links: set[asyncio.StreamWriter] = set()

    def lose_next_reply(self) -> None:
        """What the store says next gets lost, and the connection with it: it has done its work."""
        self._loses_reply = True

    def swallow(self) -> None:
        """From now on the store is not heard any more, on connections that stay open."""
        self._swallows = True

    def freeze(self) -> None:
        """From now on nothing gets through, either way: not even that a connection was closed."""
        self._melts.clear()

    def heal(self) -> None:
        """Everything works again, on new connections."""
        self._swallows = False
        self._melts.set()
        for link in self._links:
            link.close()

    async def _connect(
        self, from_ledger: asyncio.StreamReader, to_ledger: asyncio.StreamWriter
    ) -> None:
        self._links.add(to_ledger)
        await self._melts.wait()
        from_store, to_store = await asyncio.open_connection("127.0.0.1", self._store)
        self._links.add(to_store)
        with suppress(OSError, ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(from_ledger, to_store, [to_ledger]))
                group.create_task(self._return(from_store, to_ledger, [to_store]))
        for link in (to_ledger, to_store):
            self._links.discard(link)
            link.close()

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        others: list[asyncio.StreamWriter],
    ) -> None:
        while data := await source.read(64 * 1024):
            await self._melts.wait()
            target.write(data)
            await target.drain()
        await self._melts.wait()
        for link in (target, *others):
            link.close()

    async def _return(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        others: list[asyncio.StreamWriter],
    ) -> None:
        while data := await source.read(64 * 1024):
            if self._loses_reply:
                self._loses_reply = False
                self.lost += 1
                break
            if not self._swallows:
                await self._melts.wait()
                target.write(data)
                await target.drain()
        await self._melts.wait()
        for link in (target, *others):
            link.close()

    @classmethod
    @asynccontextmanager
    async def before(cls, port: int) -> AsyncIterator["Proxy"]:
        """A proxy before the store on this port."""
        proxy = cls(port)
        server = await asyncio.start_server(proxy._connect, "127.0.0.1", proxy.port)
        try:
            yield proxy
        finally:
            server.close()
            proxy.heal()
            await server.wait_closed()
