"""Running rounds: what a handler of each form completes with, and what happens to it at an ask."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial, wraps
from typing import Any

import anyio
import pytest

from fastapi_mcp_mrtr.errors import HandlerError, InputDeclined, MCPError
from fastapi_mcp_mrtr.rounds.engine import Completed, HandlerForm, InputRequired, form_of
from fastapi_mcp_mrtr.rounds.sentinels import (
    Log,
    Progress,
    Rounds,
    SyncRounds,
    log,
    need_input,
    not_yet,
    prefixed,
    progress,
    step,
)

from .play import CANCEL, DECLINE, Flow, accept

pytestmark = pytest.mark.anyio


# --- forms -----------------------------------------------------------------------------------


async def async_function(word: str = "a") -> str:
    return word


def sync_function(word: str = "a") -> str:
    return word


async def async_generator(word: str = "a") -> Rounds[str]:
    yield word


def sync_generator(word: str = "a") -> SyncRounds[str]:
    yield progress(0)
    return word


class AsyncCallable:
    async def __call__(self, word: str = "a") -> str:
        return word


class GeneratorCallable:
    async def __call__(self, word: str = "a") -> Rounds[str]:
        yield word


FORMS = [
    (async_function, HandlerForm.ASYNC_FUNCTION),
    (sync_function, HandlerForm.SYNC_FUNCTION),
    (async_generator, HandlerForm.ASYNC_GENERATOR),
    (sync_generator, HandlerForm.SYNC_GENERATOR),
    (partial(async_generator, word="a"), HandlerForm.ASYNC_GENERATOR),
    (partial(partial(async_function), word="a"), HandlerForm.ASYNC_FUNCTION),
    (AsyncCallable(), HandlerForm.ASYNC_FUNCTION),
    (GeneratorCallable(), HandlerForm.ASYNC_GENERATOR),
    (GeneratorCallable().__call__, HandlerForm.ASYNC_GENERATOR),
    (len, HandlerForm.SYNC_FUNCTION),
]


@pytest.mark.parametrize(("handler", "form"), FORMS)
def test_a_handler_is_told_by_how_it_is_defined(handler: Any, form: HandlerForm) -> None:
    """Decision: four forms, also behind partials, methods and callable objects."""
    assert form_of(handler) is form


@pytest.mark.parametrize("handler", [handler for handler, _ in FORMS[:-1]])
async def test_every_form_completes_with_its_result(handler: Any) -> None:
    """Decision: return value or first yielded value that is no sentinel."""
    assert await Flow(handler).result() == "a"


def passed_on(handler: Any) -> Any:
    @wraps(handler)
    def wrapper(*args: Any) -> Any:
        return handler(*args)

    return wrapper


def passed_on_async(handler: Any) -> Any:
    @wraps(handler)
    async def wrapper(*args: Any) -> Any:
        return handler(*args)

    return wrapper


@pytest.mark.parametrize("handler", [async_function, async_generator, sync_generator])
@pytest.mark.parametrize("decorator", [passed_on, passed_on_async])
async def test_a_plain_wrapper_does_not_change_what_a_handler_is(
    handler: Any, decorator: Any
) -> None:
    """Decision: what a wrapper hands out, a generator or a coroutine, runs all the same."""
    if handler is async_function and decorator is passed_on_async:
        handler = sync_function
    assert await Flow(decorator(handler)).result() == "a"


@pytest.mark.parametrize("handler", [async_function, sync_function])
async def test_a_function_ignores_answers(handler: Any) -> None:
    """Decision: what never asks has nothing to read, and its result is cacheable."""
    outcome = await Flow(handler).round({"seat": accept("1A")})
    assert isinstance(outcome, Completed)
    assert outcome.used_answers is False


async def test_stop_iteration_from_a_sync_handler_is_an_error() -> None:
    """Decision: StopIteration cannot cross a future; it must not look like a hang or a result."""

    def handler() -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await Flow(handler).round()


# --- results ---------------------------------------------------------------------------------


async def test_the_generator_is_resumed_to_its_end_after_its_result() -> None:
    """Decision: `async with session.begin()` around the last yield commits."""
    happened: list[str] = []

    @asynccontextmanager
    async def transaction() -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            happened.append("rollback")
            raise
        happened.append("commit")

    async def handler() -> Rounds[str]:
        async with transaction():
            yield "done"

    assert await Flow(handler).result() == "done"
    assert happened == ["commit"]


async def test_the_same_for_a_sync_generator_that_yields_its_result() -> None:
    """Decision: the sync form has both, a returned and a yielded result."""
    happened: list[str] = []

    def handler() -> SyncRounds[str]:
        yield "done"
        happened.append("end")
        return None

    assert await Flow(handler).result() == "done"
    assert happened == ["end"]


async def test_an_exception_after_the_result_fails_the_call() -> None:
    """Decision: a commit that fails is no success."""

    async def handler() -> Rounds[str]:
        yield "done"
        raise LookupError("commit failed")

    with pytest.raises(LookupError):
        await Flow(handler).round()


async def second_result() -> Rounds[str]:
    yield "one"
    yield "two"


def second_result_sync() -> SyncRounds[str]:
    yield "one"
    return "two"


async def ask_after_result() -> Rounds[str]:
    yield "one"
    yield need_input("seat", "Seat?", str)


async def step_after_result() -> Rounds[str]:
    yield "one"
    yield step("hold", len, "x")


async def sub_flow_after_result() -> Rounds[str]:
    yield "one"
    yield async_generator()


async def forgotten_await() -> Rounds[Any]:
    yield async_function()


async def forgotten_await_of_a_future() -> Rounds[Any]:
    class Later:
        def __await__(self) -> Any:
            raise NotImplementedError

    yield Later()


async def returned_ask() -> Any:
    return need_input("a", "A?", str)


async def returned_ask_of_a_sub_flow() -> Rounds[Any]:
    yield returned_ask_by_generator()


def returned_ask_sync() -> Any:
    return [need_input("a", "A?", str)]


def returned_ask_by_generator() -> SyncRounds[Any]:
    yield progress(1)
    return need_input("a", "A?", str)


async def batch_of_steps() -> Rounds[Any]:
    yield [step("a", len, "x")]


async def mixed_batch() -> Rounds[Any]:
    yield need_input("a", "A?", str), "x"


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (second_result, "second result"),
        (second_result_sync, "returned another"),
        (ask_after_result, "NeedInput 'seat' after its result"),
        (step_after_result, "Step 'hold' after its result"),
        (sub_flow_after_result, "async_generator after its result"),
        (forgotten_await, "await"),
        (forgotten_await_of_a_future, "await"),
        (returned_ask, "returned NeedInput 'a'"),
        (returned_ask_sync, "returned list"),
        (returned_ask_by_generator, "returned NeedInput 'a'"),
        (returned_ask_of_a_sub_flow, "returned NeedInput 'a'"),
        (batch_of_steps, "yielded Step 'a' in a batch, which is for asks only"),
        (mixed_batch, "yielded str in a batch"),
    ],
)
async def test_what_makes_no_sense_is_the_authors_error(handler: Any, says: str) -> None:
    """Decision: clear errors for yields and returns that cannot be meant."""
    with pytest.raises(HandlerError, match=says):
        await Flow(handler).round()


async def test_notifications_after_the_result_are_fine() -> None:
    """Decision: a last progress notification is no second result."""

    async def handler() -> Rounds[str]:
        yield "done"
        yield progress(1)

    flow = Flow(handler)
    assert await flow.result() == "done"
    assert flow.host.sent == [Progress(1)]


@pytest.mark.parametrize("value", [[], (), ["a"], ("a", 1), {"a": 1}, None, 0])
async def test_anything_that_is_no_sentinel_is_a_result(value: Any) -> None:
    """Decision: also empty and plain lists and tuples."""

    async def handler() -> Rounds[Any]:
        yield value

    assert await Flow(handler).result() == value


async def test_a_generator_without_result_completes_with_none() -> None:
    """Decision: like a function without `return`."""

    async def handler() -> Rounds[str]:
        return
        yield

    assert await Flow(handler).result() is None


# --- notifications, not_yet ------------------------------------------------------------------


async def test_progress_and_log_are_emitted_at_once_and_give_back_nothing() -> None:
    """Spec: basic/patterns/progress and server/utilities/logging, as sentinels."""

    async def handler() -> Rounds[Any]:
        yield [(yield progress(1, 2, "half")), (yield log("info", {"a": 1}, "me"))]

    flow = Flow(handler)
    assert await flow.result() == [None, None]
    assert flow.host.sent == [Progress(1, 2, "half"), Log("info", {"a": 1}, "me")]


async def test_not_yet_ends_the_round_without_a_question() -> None:
    """Spec: mrtr allows requestState without inputRequests ("still waiting")."""
    ready = False

    async def handler() -> Rounds[str]:
        name = yield need_input("name", "Name?", str)
        if not ready:
            yield not_yet()
        yield name

    flow = Flow(handler)
    await flow.asks()
    assert await flow.asks({"name": accept("Ann")}) == {}
    assert await flow.asks() == {}
    ready = True
    assert await flow.result() == "Ann"


# --- closing ---------------------------------------------------------------------------------


async def test_at_an_ask_the_generator_is_closed() -> None:
    """Decision: nothing is held between rounds; `finally` runs, open transactions roll back."""
    happened: list[str] = []

    async def handler() -> Rounds[str]:
        try:
            yield need_input("seat", "Seat?", str)
        except BaseException as error:
            happened.append(type(error).__name__)
            raise
        finally:
            await anyio.lowlevel.checkpoint()
            happened.append("finally")

    await Flow(handler).asks()
    assert happened == ["GeneratorExit", "finally"]


async def test_a_sync_generator_is_closed_too() -> None:
    """Decision: the same for `def`, in a worker thread."""
    happened: list[str] = []

    def handler() -> SyncRounds[str]:
        try:
            answer: str = yield need_input("seat", "Seat?", str)
            return answer
        finally:
            happened.append("finally")

    await Flow(handler).asks()
    assert happened == ["finally"]


async def test_a_generator_that_returns_at_its_closing_just_ends() -> None:
    """Decision: catching GeneratorExit and returning is legal Python."""

    async def handler() -> Rounds[str]:
        try:
            yield need_input("seat", "Seat?", str)
        except GeneratorExit:
            return

    def sync_handler() -> SyncRounds[str]:
        try:
            answer: str = yield need_input("seat", "Seat?", str)
            return answer
        except GeneratorExit:
            return None

    assert "seat" in await Flow(handler).asks()
    assert "seat" in await Flow(sync_handler).asks()


@pytest.mark.parametrize("group", [anyio.create_task_group, asyncio.TaskGroup])
async def test_a_task_group_may_be_open_across_an_ask(group: Any) -> None:
    """Decision: background work of a handler ends with the round."""
    happened: list[str] = []

    async def background() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            happened.append("cancelled")

    async def handler() -> Rounds[str]:
        async with group() as tasks:
            start = getattr(tasks, "start_soon", None) or (lambda fn: tasks.create_task(fn()))
            start(background)
            await anyio.lowlevel.checkpoint()
            yield need_input("seat", "Seat?", str)

    assert "seat" in await Flow(handler).asks()
    assert happened == ["cancelled"]


async def test_errors_of_a_task_group_are_not_lost_at_an_ask() -> None:
    """Decision: only the closing itself is taken out of the group."""

    async def background() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise LookupError("cleanup failed")

    async def handler() -> Rounds[str]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(background)
            await anyio.lowlevel.checkpoint()
            yield need_input("seat", "Seat?", str)

    with pytest.raises(BaseExceptionGroup) as caught:
        await Flow(handler).round()
    assert caught.value.split(LookupError)[0] is not None


async def stubborn() -> Rounds[str]:
    try:
        yield need_input("seat", "Seat?", str)
    except BaseException:
        yield "fallback"


def stubborn_sync() -> SyncRounds[str]:
    try:
        answer: str = yield need_input("seat", "Seat?", str)
        return answer
    except BaseException:
        yield "fallback"
        return None


async def very_stubborn() -> Rounds[str]:
    for _ in range(3):
        try:
            yield need_input("seat", "Seat?", str)
        except GeneratorExit:
            continue


def very_stubborn_sync() -> SyncRounds[str]:
    for _ in range(3):
        try:
            yield need_input("seat", "Seat?", str)
        except GeneratorExit:
            continue
    return None


@pytest.mark.parametrize("handler", [stubborn, stubborn_sync])
async def test_yielding_instead_of_closing_is_a_clear_error(handler: Any) -> None:
    """Decision: a bare `except` around an ask must not hang, loop or answer for the user."""
    with pytest.raises(HandlerError, match="GeneratorExit"):
        await Flow(handler).round()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("handler", [very_stubborn, very_stubborn_sync])
async def test_a_generator_that_never_closes_is_left_behind(handler: Any) -> None:
    """Decision: one more try, then the same error; there is nothing else to be done."""
    with pytest.raises(HandlerError, match="GeneratorExit"):
        await Flow(handler).round()


async def test_an_exception_while_closing_fails_the_round() -> None:
    """Decision: a rollback that fails is not hidden behind a question."""

    async def handler() -> Rounds[str]:
        try:
            yield need_input("seat", "Seat?", str)
        finally:
            raise LookupError("rollback failed")

    with pytest.raises(LookupError):
        await Flow(handler).round()


async def test_after_an_ask_no_parent_goes_on() -> None:
    """Decision: a failing rollback of a sub-flow is not something its parent can make good."""

    async def child() -> Rounds[None]:
        try:
            yield need_input("seat", "Seat?", str)
        finally:
            raise LookupError("rollback failed")

    async def parent() -> Rounds[str]:
        try:
            yield child()
        except LookupError:
            yield "swallowed"

    with pytest.raises(LookupError):
        await Flow(parent).round()


async def test_engine_errors_cannot_be_caught_by_the_handler() -> None:
    """Decision: a handler that went astray must not go on in its `except Exception`."""

    async def handler() -> Rounds[str]:
        try:
            yield need_input("seat", "Seat?", str)
        except Exception:
            yield "swallowed"

    with pytest.raises(MCPError):
        await Flow(handler, capabilities={}).round()


# --- sub-flows -------------------------------------------------------------------------------


async def choose(word: str) -> Rounds[str]:
    answer: str = yield need_input("choice", f"{word}?", str)
    yield f"{word}:{answer}"


def choose_sync(word: str) -> SyncRounds[str]:
    answer: str = yield need_input("choice", f"{word}?", str)
    return f"{word}:{answer}"


@pytest.mark.parametrize("child", [choose, choose_sync])
async def test_a_sub_flow_gives_its_result_to_the_yield(child: Any) -> None:
    """Decision: another handler generator runs as part of this one."""

    async def parent() -> Rounds[list[str]]:
        yield [(yield prefixed("1.", child("a"))), (yield child("b"))]

    flow = Flow(parent)
    assert list(await flow.asks()) == ["1.choice"]
    assert list(await flow.asks({"1.choice": accept("x")})) == ["choice"]
    assert await flow.result({"choice": accept("y")}) == ["a:x", "b:y"]


@pytest.mark.parametrize("child", [choose, choose_sync])
async def test_a_sync_handler_may_have_sub_flows_too(child: Any) -> None:
    """Decision: any form inside any form."""

    def parent() -> SyncRounds[str]:
        answer: str = yield prefixed("1.", child("a"))
        return answer

    flow = Flow(parent)
    await flow.asks()
    assert await flow.result({"1.choice": accept("x")}) == "a:x"


async def test_prefixes_add_up() -> None:
    """Decision: a prefix names a place, and places nest."""

    async def middle() -> Rounds[str]:
        yield (yield prefixed("inner.", choose("a")))

    async def parent() -> Rounds[str]:
        yield (yield prefixed("outer.", middle()))

    assert list(await Flow(parent).asks()) == ["outer.inner.choice"]


async def test_steps_of_a_sub_flow_are_prefixed_too() -> None:
    """Decision: one name space for asks and steps."""

    async def child(word: str) -> Rounds[int]:
        yield (yield step("length", len, word))

    async def parent() -> Rounds[int]:
        yield (yield prefixed("1.", child("a"))) + (yield prefixed("2.", child("bcd")))

    flow = Flow(parent)
    assert await flow.result() == 4
    assert list(flow.journal.steps) == ["1.length", "2.length"]


async def test_the_innermost_sub_flow_is_closed_first() -> None:
    """Decision: unwinding goes from the inside out, as for nested calls."""
    closed: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        try:
            yield
        finally:
            closed.append(name)

    async def child() -> Rounds[None]:
        with noted("child"):
            yield need_input("seat", "Seat?", str)

    def middle() -> SyncRounds[None]:
        with noted("middle"):
            yield child()
        return None

    async def parent() -> Rounds[None]:
        with noted("parent"):
            yield middle()

    await Flow(parent).asks()
    assert closed == ["child", "middle", "parent"]


async def test_an_exception_while_closing_a_sub_flow_still_closes_its_parent() -> None:
    """Decision: GeneratorExit for everybody, then the error."""
    seen: list[str] = []

    async def child() -> Rounds[None]:
        try:
            yield need_input("seat", "Seat?", str)
        finally:
            raise LookupError("rollback failed")

    async def parent() -> Rounds[None]:
        try:
            yield child()
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    with pytest.raises(LookupError):
        await Flow(parent).round()
    assert seen == ["GeneratorExit"]


@pytest.mark.parametrize("form", ["async", "sync"])
async def test_an_exception_of_a_sub_flow_is_raised_at_its_parents_yield(form: str) -> None:
    """Decision: sub-flows fail like calls."""

    async def child() -> Rounds[None]:
        yield need_input("seat", "Seat?", str)
        raise LookupError("no seats")

    async def parent() -> Rounds[str]:
        try:
            yield child()
        except LookupError as error:
            yield f"caught {error}"

    def sync_parent() -> SyncRounds[str]:
        try:
            yield child()
        except LookupError as error:
            return f"caught {error}"
        raise AssertionError

    flow = Flow(parent if form == "async" else sync_parent)
    await flow.asks()
    assert await flow.result({"seat": accept("1A")}) == "caught no seats"


async def test_a_refusal_inside_a_sub_flow_reaches_the_parent() -> None:
    """Decision: unhandled in the child, it is the parent's to handle."""

    async def parent() -> Rounds[str]:
        try:
            yield prefixed("1.", choose("a"))
        except InputDeclined as refused:
            yield refused.key

    flow = Flow(parent)
    await flow.asks()
    assert await flow.result({"1.choice": DECLINE}) == "1.choice"


async def test_a_sub_flow_that_has_ended_already_gives_back_nothing() -> None:
    """Decision: as iterating over a generator twice does."""

    async def parent() -> Rounds[list[Any]]:
        child = async_generator()
        yield [(yield child), (yield child)]

    assert await Flow(parent).result() == ["a", None]


# --- cancellation ----------------------------------------------------------------------------


async def test_a_timeout_that_is_open_across_a_yield_works() -> None:
    """Decision: all in one task, so that cancel scopes of the handler see the cancellation."""

    async def slow() -> None:
        await anyio.sleep_forever()

    async def handler() -> Rounds[str]:
        with anyio.CancelScope() as scope:
            scope.cancel()
            yield step("slow", slow)
        yield "timed out" if scope.cancelled_caught else "?"

    assert await Flow(handler).result() == "timed out"


@pytest.mark.parametrize("form", ["async", "sync"])
async def test_cancelling_the_round_unwinds_the_handler(form: str) -> None:
    """Decision: a client that leaves ends the handler; `finally` runs."""
    happened: list[str] = []
    started = anyio.Event()

    async def slow() -> None:
        started.set()
        await anyio.sleep_forever()

    async def handler() -> Rounds[None]:
        try:
            yield step("slow", slow)
        finally:
            happened.append("finally")

    def sync_handler() -> SyncRounds[None]:
        try:
            yield step("slow", slow)
        finally:
            happened.append("finally")
        return None

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Flow(handler if form == "async" else sync_handler).round)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert happened == ["finally"]


# --- journal and memory ----------------------------------------------------------------------


async def test_the_journal_that_came_in_is_not_changed() -> None:
    """Decision: the same request run twice must find the same journal."""
    flow = Flow(choose, "a")
    await flow.asks()
    before = flow.journal
    written = before.to_json_obj()
    await flow.result({"choice": accept("x")})
    assert before.to_json_obj() == written


@pytest.mark.parametrize("answer", [accept("x"), DECLINE])
async def test_whether_answers_were_used_is_known(answer: Any) -> None:
    """Spec: results that used answers must not be cached (server/utilities/caching)."""

    async def handler() -> Rounds[str]:
        try:
            yield (yield need_input("choice", "?", str))
        except InputDeclined:
            yield "none"

    flow = Flow(handler)
    await flow.asks()
    outcome = await flow.round({"choice": answer})
    assert isinstance(outcome, Completed)
    assert outcome.used_answers is True


async def test_a_result_that_came_before_any_ask_used_none() -> None:
    """Decision: pending answers that nobody read do not matter."""
    asking = True

    async def handler() -> Rounds[str]:
        if asking:
            yield need_input("choice", "?", str)
        yield "done"

    flow = Flow(handler)
    await flow.asks()
    asking = False
    outcome = await flow.round({"choice": accept("x")})
    assert outcome == Completed("done", outcome.journal, used_answers=False)


async def failing(word: str) -> Rounds[str]:
    fails(word)
    yield word


def fails(word: str) -> None:
    raise LookupError(word)


async def busy() -> Rounds[list[Any]]:
    """Every kind of ending in one handler."""
    results: list[Any] = []
    children: list[Any] = [choose, choose_sync, failing]
    for i, child in enumerate(children):
        try:
            results.append((yield prefixed(f"{i}.", child("a"))))
        except (InputDeclined, LookupError) as error:
            results.append(str(error))
    try:
        yield step("fails", fails, "x")
    except LookupError:
        results.append((yield step("length", len, "abc")))
    yield progress(1)
    yield results


def busy_sync() -> SyncRounds[str]:
    with suppress(LookupError):
        yield step("fails", fails, "x")
    try:
        answer: str = yield need_input("choice", "?", bool)
        return answer
    except InputDeclined as refused:
        return refused.key


async def unhandled() -> Rounds[str]:
    yield (yield need_input("choice", "?", bool))


def unhandled_sync() -> SyncRounds[str]:
    answer: str = yield need_input("choice", "?", bool)
    return answer


@pytest.mark.parametrize(
    ("handler", "rounds"),
    [
        (async_function, [None]),
        (async_generator, [None]),
        (unhandled, [None, {"choice": accept(3)}, {"choice": accept(True)}]),
        (unhandled, [None, {"choice": DECLINE}]),
        (unhandled, [None, {"choice": 1}]),
        (partial(failing, "x"), [None]),
        (busy, [None, {"0.choice": DECLINE}, {"1.choice": accept("x")}]),
        (second_result, [None]),
        (ask_after_result, [None]),
        (sync_function, [None]),
        (sync_generator, [None]),
        (busy_sync, [None, {"choice": accept(True)}]),
        (busy_sync, [None, {"choice": DECLINE}]),
        (unhandled_sync, [None, {"choice": CANCEL}]),
    ],
)
async def test_no_round_leaves_work_for_the_cycle_collector(handler: Any, rounds: Any) -> None:
    """Decision: zero objects in reference cycles; it is what makes the slowest requests slow."""

    async def play() -> None:
        flow = Flow(handler)
        for answers in rounds:
            try:
                await flow.round(answers)
            except Exception:
                return

    for _ in range(3):
        await play()
    gc.collect()
    gc.disable()
    try:
        for _ in range(200):
            await play()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_outcomes_are_told_apart_by_type() -> None:
    """Decision: expected outcomes are values."""
    assert not issubclass(InputRequired, Completed)
