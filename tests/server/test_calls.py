"""calls: notifications that were asked for, threads that are waited for, dependencies that end."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Annotated, Any

import anyio
import pytest
from fastapi import Depends, FastAPI, Request

from fastapi_mcp_mrtr import Context, MCPRouter, Rounds, SyncRounds, ToolError, need_input
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.protocol.inbound import InboundRequest, RequestMeta
from fastapi_mcp_mrtr.rounds.engine import Completed, InputRequired
from fastapi_mcp_mrtr.rounds.journal import Journal
from fastapi_mcp_mrtr.rounds.sentinels import Log, LogLevel, Progress
from fastapi_mcp_mrtr.server.calls import Call, ClientLeft, _limiter
from fastapi_mcp_mrtr.server.injection import RequestDependencies
from fastapi_mcp_mrtr.server.signature import read_signature
from tests import wire

pytestmark = pytest.mark.anyio


class Recorder:
    """An exchange that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    async def notify(self, message: bytes) -> None:
        self.sent.append(json.loads(message))

    def guard(self, work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        return work


def call_of(
    exchange: Recorder, token: str | int | None = "t", level: LogLevel | None = "debug"
) -> Call:
    capabilities: dict[str, Any] = {"elicitation": {}}
    meta = RequestMeta("2026-07-28", capabilities, None, level, token, None, None, {})
    request = Request({"type": "http", "headers": [], "query_string": b"", "path_params": {}})
    return Call(
        message=InboundRequest(1, "tools/call", {}, meta),
        headers=RequestHeaders.read([]),
        principal=None,
        principal_key=b"anonymous",
        dependencies=RequestDependencies(request, "/mcp", None),
        exchange=exchange,
    )


# --------------------------------------------------------------------------------- notifications


async def emitted(*notifications: Progress | Log, **settings: Any) -> list[dict[str, Any]]:
    exchange = Recorder()
    call = call_of(exchange, **settings)
    for notification in notifications:
        await call.emit(notification)
    return [message["params"] for message in exchange.sent]


async def test_progress_carries_the_token_of_the_request() -> None:
    """spec: MUST reference the token of the request (basic/patterns/progress)."""
    assert await emitted(Progress(1), Progress(2, 3, "two"), token=7) == [
        {"progressToken": 7, "progress": 1},
        {"progressToken": 7, "progress": 2, "total": 3, "message": "two"},
    ]


async def test_progress_only_increases() -> None:
    """spec: the value MUST increase with each notification."""
    steps = [0, 1, 1, 0.5, float("nan"), float("inf"), 2]
    sent = await emitted(*[Progress(step) for step in steps])
    assert [params["progress"] for params in sent] == [0, 1, 2]


async def test_a_total_that_is_no_number_is_left_out() -> None:
    """spec: `total` is a number."""
    assert await emitted(Progress(1, float("inf"))) == [{"progressToken": "t", "progress": 1}]


async def test_no_token_no_progress() -> None:
    """spec: progress is sent only for requests that ask for it."""
    assert await emitted(Progress(1), token=None) == []


@pytest.mark.parametrize(
    ("wanted", "levels"),
    [
        (None, []),
        ("debug", ["debug", "info", "error", "emergency"]),
        ("error", ["error", "emergency"]),
        ("emergency", ["emergency"]),
    ],
)
async def test_logs_have_the_level_that_was_asked_for(wanted: Any, levels: list[str]) -> None:
    """spec: MUST NOT send below the requested level, nor without one (server/utilities/logging)."""
    every: list[LogLevel] = ["debug", "info", "error", "emergency"]
    sent = await emitted(*[Log(level, "x") for level in every], level=wanted)
    assert [params["level"] for params in sent] == levels


async def test_a_log_may_name_its_logger() -> None:
    """spec: `logger` is optional, `data` is any JSON."""
    assert await emitted(Log("info", {"a": [1]}, "mine")) == [
        {"level": "info", "data": {"a": [1]}, "logger": "mine"}
    ]


async def test_a_lone_surrogate_in_a_log_does_not_fail_the_call() -> None:
    """decision: what no UTF-8 can carry becomes U+FFFD."""
    assert await emitted(Log("info", "\ud800")) == [{"level": "info", "data": "\ufffd"}]


# --------------------------------------------------------------------------------------- threads


async def test_the_result_of_a_thread_comes_back() -> None:
    """decision: `def` handlers run in worker threads."""
    main = threading.get_ident()
    other = await call_of(Recorder()).in_thread(threading.get_ident)
    assert other != main
    assert await call_of(Recorder()).in_thread(max, 1, 2) == 2


async def test_what_a_thread_raises_comes_back() -> None:
    """decision: as if it had been called here."""
    with pytest.raises(ZeroDivisionError):
        await call_of(Recorder()).in_thread(divmod, 1, 0)


class Gate:
    """Work in a thread that says when it began and goes on when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.go = threading.Event()
        self.ended = False
        self.error = error

    def work(self) -> None:
        self.loop.call_soon_threadsafe(self.began.set)
        assert self.go.wait(10)
        self.ended = True
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, ValueError("too late")])
async def test_a_cancelled_call_waits_for_its_thread(error: Exception | None) -> None:
    """decision: a generator cannot be closed while a thread is inside it."""
    gate = Gate(error)
    task = asyncio.ensure_future(call_of(Recorder()).in_thread(gate.work))
    await gate.began.wait()
    for _ in range(2):  # the second one, too, ends nothing before the thread has ended
        task.cancel()
        await anyio.wait_all_tasks_blocked()
        assert not task.done()
    gate.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.ended


async def test_a_timeout_waits_for_the_thread_too() -> None:
    """decision: cancellation by a scope of the handler is no different."""
    gate = Gate()
    with anyio.CancelScope() as scope:

        async def cancel() -> None:
            await gate.began.wait()
            scope.cancel()
            gate.go.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            await call_of(Recorder()).in_thread(gate.work)
    assert scope.cancelled_caught
    assert gate.ended


async def test_a_call_that_is_cancelled_already_still_runs_its_function() -> None:
    """decision: this is how the generator of a cancelled call is closed."""
    ran: list[int] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await call_of(Recorder()).in_thread(ran.append, 1)
    assert ran == [1]


async def test_work_that_never_came_to_run_is_no_error() -> None:
    """decision: when the loop is torn down, what waits for a thread is cancelled with it."""
    await call_of(Recorder()).in_thread(int)
    tokens = [object() for _ in range(int(_limiter.get().total_tokens))]
    for token in tokens:
        _limiter.get().acquire_on_behalf_of_nowait(token)
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(call_of(Recorder()).in_thread(int))
    await anyio.wait_all_tasks_blocked()
    for waiting in asyncio.all_tasks() - before:
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for token in tokens:
        _limiter.get().release_on_behalf_of(token)


async def test_sixty_sync_tools_with_sync_dependencies_finish_and_the_loop_answers() -> None:
    """user report: sync tools block the loop, or starve (fm#864, py#508, serena#1896).

    All of FastAPI's 40 threads wait for dependencies while handlers wait in their own.
    """
    mcp = MCPRouter("s", version="1")
    gate = threading.Barrier(40)  # as many handlers at once as there are threads for them
    last = threading.Event()

    def session() -> str:
        return threading.current_thread().name

    @mcp.tool()
    def work(n: int, name: Annotated[str, Depends(session)]) -> int:
        if n < 40:
            gate.wait(10)
        else:
            assert last.wait(10)
        return n

    @mcp.tool()
    async def health() -> str:
        return "ok"

    app = FastAPI()
    app.include_router(mcp)
    calls = [wire.Exchange(app, wire.call("work", {"n": n})) for n in range(60)]
    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(call.run)
        with anyio.fail_after(10):
            answer = await wire.Exchange(app, wire.call("health")).run()
        assert answer.messages[0]["result"]["content"][0]["text"] == "ok"
        last.set()
    assert [call.messages[0]["result"]["structuredContent"] for call in calls] == [*range(60)]


# --------------------------------------------------------------------------- rounds, dependencies


class Session:
    def __init__(self) -> None:
        self.ended: list[str] = []

    async def open(self) -> AsyncIterator[str]:
        try:
            yield "session"
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        else:
            self.ended.append("committed")


async def run(handler: Callable[..., Any], journal: Journal | None = None, **more: Any) -> Any:
    call = call_of(Recorder())
    return await call.run(read_signature(handler), {}, journal or Journal(), None, **more)


async def test_a_completed_round_commits() -> None:
    """decision: yield-dependencies end with the round."""
    session = Session()

    async def handler(s: Annotated[str, Depends(session.open)]) -> str:
        assert session.ended == []
        return s

    outcome = await run(handler)
    assert isinstance(outcome, Completed)
    assert outcome.value == "session"
    assert session.ended == ["committed"]


@pytest.mark.parametrize("form", ["async", "sync"])
async def test_a_round_that_asks_rolls_back(form: str) -> None:
    """decision: what is open at an ask is rolled back, as `except Exception` need not know."""
    session = Session()

    async def handler(s: Annotated[str, Depends(session.open)]) -> Rounds[str]:
        yield str((yield need_input("q", "What?", str)))

    def in_thread(s: Annotated[str, Depends(session.open)]) -> SyncRounds[str]:
        return str((yield need_input("q", "What?", str)))

    outcome = await run(handler if form == "async" else in_thread)
    assert isinstance(outcome, InputRequired)
    assert session.ended == ["RoundSuspended"]


async def test_a_handler_that_fails_rolls_back() -> None:
    """decision: dependencies see the handler's own exception, as in FastAPI."""
    session = Session()

    async def handler(s: Annotated[str, Depends(session.open)]) -> str:
        raise ToolError("Sold out")

    with pytest.raises(ToolError):
        await run(handler)
    assert session.ended == ["ToolError"]


async def test_a_commit_that_fails_fails_the_call() -> None:
    """decision: the client must not read "booked" when nothing was."""

    async def commits() -> AsyncIterator[None]:
        yield
        raise ToolError("Conflict")

    async def handler(s: Annotated[None, Depends(commits)]) -> str:
        return "booked"

    with pytest.raises(ToolError, match="Conflict"):
        await run(handler)


class Deserted(Recorder):
    """An exchange whose client leaves as soon as anything has to wait."""

    def guard(self, work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        async def guarded() -> Any:
            try:
                work.send(None)
            except StopIteration as done:
                return done.value
            work.close()
            raise ClientLeft

        return guarded()


async def waits() -> None:
    await asyncio.sleep(0)


async def test_a_client_that_leaves_rolls_back() -> None:
    """decision: dependencies unwind, those of the principal too, and nothing is committed."""
    session = Session()

    async def handler(s: Annotated[str, Depends(session.open)]) -> None:
        await waits()

    with pytest.raises(ClientLeft):
        await call_of(Deserted()).run(read_signature(handler), {}, Journal(), None)
    assert session.ended == ["ClientLeft"]


async def test_what_fails_while_a_client_is_gone_is_no_failure_of_the_call() -> None:
    """decision: nobody waits for it; the log says what it was."""

    async def fails() -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise ValueError("rollback failed")

    async def handler(s: Annotated[None, Depends(fails)]) -> None:
        await waits()

    with pytest.raises(ClientLeft) as caught:
        await call_of(Deserted()).run(read_signature(handler), {}, Journal(), None)
    assert repr(caught.value.__cause__) == "ValueError('rollback failed')"


async def test_an_ask_passes_an_open_task_group_of_a_dependency() -> None:
    """decision: as it passes one of the handler."""

    async def group() -> AsyncIterator[Any]:
        async with anyio.create_task_group() as tasks:
            yield tasks

    async def handler(g: Annotated[Any, Depends(group)]) -> Rounds[str]:
        yield str((yield need_input("q", "What?", str)))

    assert isinstance(await run(handler), InputRequired)


async def test_a_session_shared_with_the_principal_is_rolled_back_too() -> None:
    """decision: one session for principal and handler is one transaction."""
    session = Session()

    def user(s: Annotated[str, Depends(session.open)]) -> str:
        return "alice"

    mcp = MCPRouter("s", version="1", principal=user)

    @mcp.tool()
    async def fails(ctx: Context, s: Annotated[str, Depends(session.open)]) -> str:
        raise ToolError("Sold out")

    app = FastAPI()
    app.include_router(mcp)
    assert wire.text_of(wire.post(app, wire.call("fails"))) == "Sold out"
    wire.post(app, wire.message("tools/list"))
    assert session.ended == ["ToolError", "committed"]


async def test_commit_hooks_run_in_order_on_the_loop_or_in_a_thread() -> None:
    """decision: as their form is; one that fails is logged, the response stands."""
    ran: list[str] = []
    main = threading.get_ident()

    async def on_loop() -> None:
        ran.append("loop" if threading.get_ident() == main else "thread")

    def in_thread() -> None:
        ran.append("loop" if threading.get_ident() == main else "thread")

    call = call_of(Recorder())
    for hook in (on_loop, in_thread, lambda: on_loop(), lambda: 1 / 0, on_loop):
        call.on_commit(hook)
    await call.commit()
    assert ran == ["loop", "thread", "loop", "loop"]


async def test_commit_hooks_of_a_call_that_goes_on_or_fails_are_forgotten() -> None:
    """decision: effects that must not happen for a call that asks."""
    ran: list[int] = []
    call = call_of(Recorder())
    call.on_commit(lambda: ran.append(1))

    async def asks() -> Rounds[str]:
        yield str((yield need_input("q", "What?", str)))

    await call.run(read_signature(asks), {}, Journal(), None)
    await call.commit()
    assert ran == []


async def test_answers_that_were_not_asked_for_count_where_the_handler_says_so() -> None:
    """decision: `unasked_answers="accept"` for handlers that need no guarantee."""

    async def handler() -> Rounds[str]:
        name: str = yield need_input("name", "Name?", str)
        yield name

    answers = {"name": {"action": "accept", "content": {"value": "Alice"}}}
    signature = read_signature(handler)
    call = call_of(Recorder())
    ignored = await call.run(signature, {}, Journal(), answers)
    assert isinstance(ignored, InputRequired)
    taken = await call.run(signature, {}, Journal(), answers, accept_unasked=True)
    assert isinstance(taken, Completed)
    assert taken.value == "Alice"
