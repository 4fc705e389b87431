"""Who listens for what within one process. Knows topics, threads and event loops; no store."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from threading import Lock


class QueueListener:
    """The messages that wait for one reader, in the event loop that made it."""

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque(maxlen=limit)
        self._arrived = asyncio.Event()

    async def receive(self) -> bytes:
        """The next message."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()

    def deliver(self, message: bytes) -> None:
        """Take a message, from any thread. The oldest makes room."""
        # A loop that is closed took its reader with it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, message)

    def _take(self, message: bytes) -> None:
        self._waiting.append(message)
        self._arrived.set()


class Listeners:
    """The listeners of a process by topic. Sending costs by those that want the message."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_topic: dict[str, set[QueueListener]] = {}

    def __len__(self) -> int:
        """How many topics are listened for."""
        return len(self._by_topic)

    def send(self, topic: str, message: bytes) -> None:
        """Deliver to all that listen for the topic, from any thread."""
        with self._lock:
            wanted = tuple(self._by_topic.get(topic, ()))
        for listener in wanted:
            listener.deliver(message)

    @asynccontextmanager
    async def listen(self, topic: str, limit: int) -> AsyncGenerator[QueueListener, None]:
        """Listen as long as the block lasts."""
        listener = QueueListener(limit)
        with self._lock:
            self._by_topic.setdefault(topic, set()).add(listener)
        try:
            yield listener
        finally:
            with self._lock:
                others = self._by_topic[topic]
                others.remove(listener)
                if not others:
                    del self._by_topic[topic]
