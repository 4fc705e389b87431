"""streams: an SSE response that ends as one, whichever of its parts ends first."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from sse_starlette.sse import AppStatus
from starlette.background import BackgroundTask
from starlette.types import Message

from fastapi_mcp_mrtr.http.streams import EventStream

pytestmark = pytest.mark.anyio

SCOPE = {"type": "http", "method": "POST"}


class Client:
    """Takes what is sent; leaves when told to."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.sent: list[Message] = []
        self.commented = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message.get("body", b"").startswith(b":"):
            self.commented.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Endless:
    """Events that never end by themselves, and that say whether they were closed."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.closed = False

    async def events(self) -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\r\n\r\n"
            self.began.set()
            await asyncio.Event().wait()
        finally:
            self.closed = True


async def two() -> AsyncIterator[bytes]:
    yield b"data: 1\r\n\r\n"
    yield b"data: 2\r\n\r\n"


async def run(stream: EventStream, client: Client) -> None:
    with anyio.fail_after(10):
        await stream(SCOPE, client.receive, client.send)


async def test_all_events_are_sent_and_the_stream_ends() -> None:
    """spec: the final response SHOULD terminate the stream (§Receiving Messages)."""
    client, ran = Client(), list[int]()
    await run(EventStream(two(), background=BackgroundTask(ran.append, 1)), client)
    assert client.body == b"data: 1\r\n\r\ndata: 2\r\n\r\n"
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    headers = dict(client.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"x-accel-buffering"] == b"no"
    assert ran == [1]


async def test_events_need_not_come_from_a_generator() -> None:
    """decision: any async iterable will do."""

    class One:
        def __init__(self) -> None:
            self.events = [b"data: 1\r\n\r\n"]

        def __aiter__(self) -> "One":
            return self

        async def __anext__(self) -> bytes:
            if not self.events:
                raise StopAsyncIteration
            return self.events.pop()

    client = Client()
    await run(EventStream(One()), client)
    assert client.body == b"data: 1\r\n\r\n"


async def test_a_client_that_leaves_ends_the_stream() -> None:
    """spec: closing the stream is cancellation (§Cancellation)."""
    client, endless = Client(), Endless()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, EventStream(endless.events()), client)
        await endless.began.wait()
        client.left.set()
    assert endless.closed


async def test_a_server_that_stops_ends_the_stream_after_its_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """decision: told first, cut when the grace is over."""
    told = asyncio.Event()
    endless = Endless()
    monkeypatch.setattr(AppStatus, "should_exit", True)
    shutdown: Any = told
    stream = EventStream(endless.events(), shutdown_event=shutdown, shutdown_grace_period=0.01)
    await run(stream, Client())
    assert told.is_set()
    assert endless.closed


async def test_a_quiet_stream_is_kept_open_with_comments() -> None:
    """spec: servers are encouraged to send SSE comments (§Receiving Messages, note)."""
    client, endless = Client(), Endless()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, EventStream(endless.events(), ping=0.001), client)
        with anyio.fail_after(10):
            await client.commented.wait()
        client.left.set()


async def test_what_the_events_raise_is_raised() -> None:
    """decision: a failure is the server's to report."""

    async def fails() -> AsyncIterator[bytes]:
        yield b"data: 1\r\n\r\n"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run(EventStream(fails()), Client())


async def test_what_sending_raises_is_raised_and_the_events_are_closed() -> None:
    """decision: as above; what the events hold open is let go."""
    endless = Endless()

    class Broken(Client):
        async def send(self, message: Message) -> None:
            if message.get("body"):
                raise OSError("reset by peer")

    with pytest.raises(OSError, match="reset"):
        await run(EventStream(endless.events()), Broken())
    assert endless.closed


async def test_a_stream_that_is_cancelled_leaves_nothing_running() -> None:
    """decision: whoever cancels the response cancels all of it."""
    endless = Endless()
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(run(EventStream(endless.events()), Client()))
    await endless.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert endless.closed
    watchers = {t for t in asyncio.all_tasks() - before if "watcher" in repr(t.get_coro())}
    assert asyncio.all_tasks() - before == watchers  # one a loop, of sse-starlette
