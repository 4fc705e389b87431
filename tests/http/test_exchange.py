"""exchange: JSON until a notification, then a stream, and what happens when clients leave."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio import to_thread, wait_all_tasks_blocked
from fastapi import FastAPI
from sse_starlette.sse import AppStatus
from starlette.background import BackgroundTask
from starlette.types import Message

from fastapi_mcp_mrtr import Context, MCPRouter
from fastapi_mcp_mrtr.errors import HandlerError
from fastapi_mcp_mrtr.http.exchange import (
    AlreadySent,
    HTTPExchange,
    JSONBytes,
    StreamSettings,
    event,
)
from fastapi_mcp_mrtr.server.calls import ClientLeft
from tests import wire

pytestmark = pytest.mark.anyio

SETTINGS = StreamSettings(keep_alive=15, shutdown_grace=5)


class Connection:
    """An ASGI connection: what was sent, and a client that leaves when it is told to."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.left = asyncio.Event()
        self.received = 0
        self.broken: Exception | None = None
        self.pinged = asyncio.Event()
        self.readable = asyncio.Event()
        self.readable.set()
        self.exchange = HTTPExchange(self.receive, self.send)

    async def receive(self) -> Message:
        self.received += 1
        if self.received == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.readable.wait()
        if self.broken is not None:
            raise self.broken
        self.sent.append(message)
        if b": ping" in message.get("body", b""):
            self.pinged.set()

    def may_stream(self) -> HTTPExchange:
        self.exchange.may_stream(SETTINGS.response)
        return self.exchange

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def forever() -> Coroutine[Any, Any, None]:
    return anyio.sleep_forever()


# ------------------------------------------------------------------------------------- messages


async def test_a_message_is_one_event_on_one_line() -> None:
    """spec: a message is the data of one SSE event (streamable-http)."""
    assert event(b'{"a":1}') == b'data: {"a":1}\r\n\r\n'


async def test_a_response_of_encoded_json() -> None:
    """Decision: bytes go out as they are, with the two headers that HTTP wants."""
    connection = Connection()
    await JSONBytes(b"{}", 400)({"type": "http"}, connection.receive, connection.send)
    start, body = connection.sent
    assert start["status"] == 400
    assert start["headers"] == [(b"content-type", b"application/json"), (b"content-length", b"2")]
    assert body["body"] == b"{}"


@pytest.mark.parametrize("has_task", [True, False])
async def test_what_has_been_sent_is_not_sent_again(has_task: bool) -> None:
    """Decision: the background tasks of dependencies run after a stream too."""
    ran: list[int] = []
    connection, response = Connection(), AlreadySent()
    response.background = BackgroundTask(ran.append, 1) if has_task else None
    await response({"type": "http"}, connection.receive, connection.send)
    assert (connection.sent, ran) == ([], [1] if has_task else [])


# --------------------------------------------------------------------------- JSON or a stream


async def test_without_notifications_there_is_no_stream() -> None:
    """Decision: so that errors keep their HTTP status."""
    exchange = Connection().may_stream()
    assert not exchange.is_streaming
    assert await exchange.finish(b"{}") is False


async def test_a_notification_opens_the_stream() -> None:
    """spec: notifications come before the response, on the stream that ends with it."""
    connection = Connection()
    exchange = connection.may_stream()
    await exchange.notify(b"1")
    assert exchange.is_streaming
    await exchange.notify(b"2")
    assert await exchange.finish(b"3")
    start, *_, last = connection.sent
    headers = dict(start["headers"])
    assert start["status"] == 200
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"x-accel-buffering"] == b"no"
    assert connection.body == b"data: 1\r\n\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n"
    assert last["more_body"] is False


async def test_the_first_notification_does_not_wait_for_the_response() -> None:
    """Decision: a client sees progress while the handler works."""
    connection = Connection()
    exchange = connection.may_stream()
    await exchange.notify(b"1")
    await wait_all_tasks_blocked()
    assert connection.body == b"data: 1\r\n\r\n"
    await exchange.finish(b"2")


async def test_a_client_that_takes_no_stream_gets_no_notifications() -> None:
    """Decision: a missing notification is better than a failed call."""
    connection = Connection()
    await connection.exchange.notify(b"1")
    assert not connection.exchange.is_streaming
    assert await connection.exchange.finish(b"2") is False
    assert connection.sent == []


async def test_after_the_response_there_are_no_notifications() -> None:
    """spec: the response is the last message of its stream."""
    connection = Connection()
    exchange = connection.may_stream()
    await exchange.notify(b"1")
    await exchange.finish(b"2")
    await exchange.notify(b"3")
    assert connection.body == b"data: 1\r\n\r\ndata: 2\r\n\r\n"


async def test_a_slow_reader_slows_the_handler() -> None:
    """User report: memory grew with what a reader had not taken."""
    connection = Connection()
    exchange = connection.may_stream()
    connection.readable.clear()
    done = 0

    async def handler() -> None:
        nonlocal done
        for done in range(1, 101):
            await exchange.notify(b"%d" % done)

    async with anyio.create_task_group() as group:
        group.start_soon(handler)
        await wait_all_tasks_blocked()
        assert 16 <= done <= 20
        connection.readable.set()
    assert done == 100
    await exchange.finish(b"end")
    assert connection.body.count(b"data: ") == 101


async def test_a_quiet_stream_is_kept_open() -> None:
    """Decision: comments, which clients skip, keep proxies from closing it."""
    connection = Connection()
    connection.exchange.may_stream(StreamSettings(0.001, 5).response)
    await connection.exchange.notify(b"1")
    with anyio.fail_after(20):
        await connection.pinged.wait()
    await connection.exchange.finish(b"2")
    assert connection.body.endswith(b"data: 2\r\n\r\n")


# ------------------------------------------------------------------------------------- the guard


async def test_work_that_does_not_wait_costs_no_task() -> None:
    """Decision: nobody watches a connection for a call that is over at once."""
    connection = Connection()

    async def work() -> str:
        return "done"

    assert await connection.exchange.guard(work()) == "done"
    assert connection.received == 0


async def test_what_it_raises_comes_through() -> None:
    """Decision: a guard is only there for clients that leave."""

    async def at_once() -> None:
        raise LookupError("at once")

    async def later() -> None:
        await asyncio.sleep(0)
        raise LookupError("later")

    for work in (at_once, later):
        with pytest.raises(LookupError):
            await Connection().exchange.guard(work())


async def test_work_stays_in_the_requests_task() -> None:
    """Decision: timeouts, cancel scopes and context variables hold across a guard."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def work() -> object:
        await asyncio.sleep(0)
        variable.set("inside")
        return asyncio.current_task()

    assert await Connection().exchange.guard(work()) is asyncio.current_task()
    assert variable.get() == "inside"


async def test_a_client_that_leaves_cancels_the_work() -> None:
    """spec: closing the connection cancels the request (streamable-http §Cancellation)."""
    connection = Connection()
    seen: list[str] = []

    async def work() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)  # cleaning up may wait
            seen.append("cleaned up")

    connection.left.set()
    with pytest.raises(ClientLeft):
        await connection.exchange.guard(work())
    assert seen == ["cleaned up"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_client_that_leaves_twice_cancels_once() -> None:
    """Decision: a second cancellation would interrupt the cleaning up."""
    connection = Connection()
    cancellations = 0

    async def work() -> None:
        nonlocal cancellations
        for _ in range(2):
            try:
                await asyncio.wait_for(forever(), 0.01)
            except TimeoutError:
                return
            except asyncio.CancelledError:
                cancellations += 1
                connection.exchange._leave()

    connection.left.set()
    with pytest.raises(ClientLeft):
        await connection.exchange.guard(work())
    assert cancellations == 1


async def test_a_result_that_came_too_late_is_dropped() -> None:
    """Decision: a handler that swallows its cancellation has nobody to answer."""
    connection = Connection()

    async def work() -> str:
        with suppress(asyncio.CancelledError):
            await forever()
        return "done"

    connection.left.set()
    with pytest.raises(ClientLeft):
        await connection.exchange.guard(work())


async def test_what_goes_wrong_after_that_is_the_reason() -> None:
    """Decision: it is no error of the call, but the log may say it."""
    connection = Connection()

    async def work() -> None:
        try:
            await forever()
        finally:
            raise LookupError("while cleaning up")

    connection.left.set()
    with pytest.raises(ClientLeft):
        await connection.exchange.guard(work())
    assert connection.exchange.reason == "LookupError('while cleaning up')"


async def test_another_cancellation_stays_one() -> None:
    """Decision: a server that stops cancels its requests; nobody must swallow that."""
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        await forever()

    async def request() -> None:
        await Connection().exchange.guard(work())

    task = asyncio.create_task(request())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_timeout_around_it_holds() -> None:
    """Decision: anyio's scopes see through a guard."""
    with anyio.move_on_after(0.01) as scope:
        await Connection().exchange.guard(forever())
    assert scope.cancelled_caught


async def test_a_task_that_died_is_no_cancellation_of_the_call() -> None:
    """Decision: the author's mistake is an internal error, not a request without an answer."""

    async def work() -> None:
        other = asyncio.ensure_future(forever())
        asyncio.get_running_loop().call_soon(other.cancel)
        await other

    with pytest.raises(HandlerError, match="awaited something that was cancelled"):
        await Connection().exchange.guard(work())


@pytest.mark.parametrize("raises", [False, True])
async def test_a_thread_is_waited_for_before_the_work_is_cancelled(raises: bool) -> None:
    """User report: a session was closed while a thread still used it."""
    connection = Connection()
    entered, leave = threading.Event(), threading.Event()
    seen: list[str] = []

    def in_thread() -> str:
        entered.set()
        leave.wait(20)
        seen.append("thread ended")
        if raises:
            raise LookupError
        return "opened"

    async def work() -> None:
        try:
            seen.append(await to_thread.run_sync(in_thread))
            await asyncio.sleep(0)
            seen.append("went on")
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    async def client() -> None:
        await asyncio.to_thread(entered.wait, 20)
        connection.left.set()
        await wait_all_tasks_blocked()
        leave.set()

    async with anyio.create_task_group() as group:
        group.start_soon(client)
        with pytest.raises(ClientLeft):
            await connection.exchange.guard(work())
    assert seen == ["thread ended", *(["LookupError"] if raises else ["opened", "CancelledError"])]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_one_thread_after_another_is_waited_for() -> None:
    """Decision: the work is cancelled between two of them."""
    connection = Connection()
    entered, leave = threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        entered.set()
        leave.wait(20)
        ran.append("first")

    async def work() -> None:
        await to_thread.run_sync(first)
        await to_thread.run_sync(ran.append, "second")

    async def client() -> None:
        await asyncio.to_thread(entered.wait, 20)
        connection.left.set()
        await wait_all_tasks_blocked()
        leave.set()

    async with anyio.create_task_group() as group:
        group.start_soon(client)
        with pytest.raises(ClientLeft):
            await connection.exchange.guard(work())
    assert ran == ["first"]


async def test_work_that_ends_with_its_thread_is_over() -> None:
    """Decision: nothing was cancelled, and still nobody is there to answer."""
    connection = Connection()
    entered, leave = threading.Event(), threading.Event()

    def in_thread() -> None:
        entered.set()
        leave.wait(20)

    async def client() -> None:
        await asyncio.to_thread(entered.wait, 20)
        connection.left.set()
        await wait_all_tasks_blocked()
        leave.set()

    async with anyio.create_task_group() as group:
        group.start_soon(client)
        with pytest.raises(ClientLeft):
            await connection.exchange.guard(to_thread.run_sync(in_thread))
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


# -------------------------------------------------------------------------- streams that break


async def test_a_connection_that_breaks_cancels_the_handler() -> None:
    """spec: closing the connection cancels the request, in both modes (§Cancellation)."""
    connection = Connection()
    exchange = connection.may_stream()

    async def work() -> None:
        await exchange.notify(b"1")
        await forever()

    connection.broken = OSError("broken pipe")
    with pytest.raises(ClientLeft):
        await exchange.guard(work())
    await exchange.abandon()
    assert exchange.reason == "OSError('broken pipe')"


async def test_a_client_that_leaves_ends_the_stream() -> None:
    """Decision: the response beside the handler goes with it."""
    connection = Connection()
    exchange = connection.may_stream()

    async def work() -> None:
        await exchange.notify(b"1")
        await wait_all_tasks_blocked()
        connection.left.set()
        await forever()

    with pytest.raises(ClientLeft):
        await exchange.guard(work())
    await exchange.abandon()
    await exchange.notify(b"2")
    assert connection.body == b"data: 1\r\n\r\n"


async def test_a_notification_on_a_broken_stream_says_so() -> None:
    """Decision: a handler between two awaits learns it at the next notification."""
    connection = Connection()
    exchange = connection.may_stream()
    connection.broken = OSError("broken pipe")
    await exchange.notify(b"1")
    await wait_all_tasks_blocked()
    with pytest.raises(ClientLeft):
        await exchange.notify(b"2")
    await exchange.abandon()


async def test_a_response_on_a_broken_stream_says_so() -> None:
    """Decision: the log has one line about it."""
    connection = Connection()
    exchange = connection.may_stream()
    await exchange.notify(b"1")
    await wait_all_tasks_blocked()
    connection.broken = OSError("broken pipe")
    with pytest.raises(ClientLeft):
        await exchange.finish(b"2")


async def test_a_response_on_a_stream_that_broke_before_says_so() -> None:
    """Decision: a handler that sends nothing more learns it when it is done."""
    connection = Connection()
    exchange = connection.may_stream()
    connection.broken = OSError("broken pipe")
    await exchange.notify(b"1")
    await wait_all_tasks_blocked()
    with pytest.raises(ClientLeft):
        await exchange.finish(b"2")
    assert exchange.reason == "OSError('broken pipe')"


async def test_a_stream_without_a_response_is_ended() -> None:
    """Decision: the connection may be fine, and servers log an unfinished response as an error."""
    connection = Connection()
    exchange = connection.may_stream()
    await exchange.notify(b"1")
    await wait_all_tasks_blocked()
    await exchange.abandon()
    assert connection.body == b"data: 1\r\n\r\n"
    assert connection.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_an_exchange_without_a_stream_is_abandoned_too() -> None:
    """Decision: nothing to let go of, and no notifications from then on."""
    connection = Connection()
    exchange = connection.may_stream()
    await exchange.abandon()
    await exchange.notify(b"1")
    assert connection.sent == []


# ----------------------------------------------------------------------------- a server that stops

CUT: Message = {"type": "http.response.body", "body": b"data: end\r\n\r\n", "more_body": False}
ENDED: Message = {**CUT, "body": b""}


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> StreamSettings:
    """The server was told to stop, and its streams have a moment to end."""
    monkeypatch.setattr(AppStatus, "should_exit", True)
    return StreamSettings(keep_alive=15, shutdown_grace=0.01)


async def test_a_call_that_outlasts_the_grace_ends_with_a_response(
    stopping: StreamSettings,
) -> None:
    """spec: the final response ends the stream, also when it says that the call did not end."""
    connection = Connection()
    exchange = connection.exchange
    exchange.may_stream(stopping.response)

    async def work() -> None:
        await exchange.notify(b"1")
        await forever()

    with pytest.raises(ClientLeft):
        await exchange.guard(work())
    await exchange.abandon(b"end")
    assert connection.sent[-1] == CUT
    assert exchange.reason == "the server is stopping"


async def test_a_call_that_is_cancelled_ends_with_a_response() -> None:
    """Decision: so it does where the server cancels the task of the request."""
    connection = Connection()
    exchange = connection.may_stream()
    await exchange.notify(b"1")
    await wait_all_tasks_blocked()
    await exchange.abandon(b"end")
    assert connection.sent[-1] == CUT


async def test_a_client_that_has_left_is_sent_nothing_more() -> None:
    """spec: nothing more is sent for a cancelled request (§Cancellation)."""
    connection = Connection()
    exchange = connection.may_stream()

    async def work() -> None:
        await exchange.notify(b"1")
        connection.left.set()
        await forever()

    with pytest.raises(ClientLeft):
        await exchange.guard(work())
    await exchange.abandon(b"end")
    assert b"end" not in connection.body


@pytest.mark.parametrize("notifications", [1, 40])
async def test_a_slow_reader_gets_the_response_of_a_call_that_was_done(
    stopping: StreamSettings, notifications: int
) -> None:
    """Decision: what was done is said, if not what led to it; and the stream has an end."""
    connection = Connection()
    exchange = connection.exchange
    exchange.may_stream(stopping.response)
    await exchange.notify(b"1")
    connection.readable.clear()

    async def work() -> None:
        with suppress(ClientLeft):
            for number in range(1, notifications):
                await exchange.notify(b"%d" % number)

    async def client() -> None:
        assert exchange._stream is not None
        await asyncio.wait([exchange._stream])
        connection.readable.set()

    async with anyio.create_task_group() as group:
        group.start_soon(client)
        await work()
        assert await exchange.finish(b"end")
    assert connection.sent[-1] == CUT


async def test_a_slow_reader_gets_the_response_once(stopping: StreamSettings) -> None:
    """Decision: if it was sent, and only the end of the stream was not, that is what is missing."""
    connection = Connection()
    exchange = connection.exchange
    exchange.may_stream(stopping.response)
    sending = connection.send

    async def send(message: Message) -> None:
        await sending(message)
        if message.get("body") == CUT["body"]:
            connection.readable.clear()  # all buffers are full now

    exchange._send = send
    await exchange.notify(b"1")

    async def client() -> None:
        assert exchange._stream is not None
        await asyncio.wait([exchange._stream])
        connection.readable.set()

    async with anyio.create_task_group() as group:
        group.start_soon(client)
        assert await exchange.finish(b"end")
    assert connection.sent[-1] == ENDED
    assert connection.body.count(b"end") == 1


def test_what_is_streamed_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """decision: no log holds a state or an answer, that of the SSE library at DEBUG neither."""
    mcp = MCPRouter("s", version="1")

    @mcp.tool()
    async def speak(ctx: Context) -> str:
        await ctx.report_progress(1)
        return "s3cret"

    app = FastAPI()
    app.include_router(mcp)
    with caplog.at_level(logging.DEBUG):
        reply = wire.post(app, wire.call("speak", progressToken=1))
    assert "s3cret" in reply.text
    assert "s3cret" not in caplog.text


async def test_notifications_in_a_row_go_out_together() -> None:
    """decision: one write for many of them; none is lost, and they stay in order."""
    connection = Connection()
    exchange = connection.may_stream()
    messages = [b'"%d"' % number for number in range(100)]
    for message in messages:
        await exchange.notify(message)
    assert await exchange.finish(b'"end"')
    assert connection.body == b"".join(map(event, [*messages, b'"end"']))
    assert len(connection.sent) < 30


async def test_a_notification_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: a handler that computes between two notifications still shows its progress."""
    monkeypatch.setattr("fastapi_mcp_mrtr.http.exchange._HELD_BACK", -1.0)
    connection = Connection()
    exchange = connection.may_stream()
    await exchange.notify(b'"first"')
    await wait_all_tasks_blocked()
    await exchange.notify(b'"second"')
    assert connection.body == event(b'"first"') + event(b'"second"')
    assert await exchange.finish(b'"end"')


async def test_a_client_that_leaves_before_the_last_message_fits_has_left() -> None:
    """decision: the call then ends as any other whose client left."""
    connection = Connection()
    exchange = connection.may_stream()
    connection.readable.clear()
    async with anyio.create_task_group() as tasks:
        for number in range(16):  # as many as may wait
            await exchange.notify(b"%d" % number)

        async def finish() -> None:
            with pytest.raises(ClientLeft):
                await exchange.finish(b'"end"')

        tasks.start_soon(finish)
        await wait_all_tasks_blocked()
        connection.broken = OSError("reset")
        connection.readable.set()
