"""Calls to a store that is away, slow or silent. There is no store: a test says what it does."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fastapi_mcp_mrtr.state.ledger.protocol import Claimed, LedgerUnavailable
from fastapi_mcp_mrtr.state.remote import Failure, PerLoop, Remote

from .ledger.backends import PATIENCE

pytestmark = pytest.mark.anyio

SOON = 0.05
"""Seconds after which a call is over in which nothing else happens."""


class Hiccup(Exception):
    """May pass."""


class Mistake(Exception):
    """Never passes."""


def describe(error: Exception) -> Failure | None:
    if not isinstance(error, Hiccup | Mistake):
        return None
    return Failure(type(error).__name__, isinstance(error, Hiccup))


def remote(timeout: float = PATIENCE, *, interrupts: bool = True) -> Remote:
    return Remote(
        "Store",
        timeout=timeout,
        describe=describe,
        unavailable=LedgerUnavailable,
        interrupts=interrupts,
    )


@pytest.fixture
async def told() -> AsyncIterator[list[dict[str, Any]]]:
    """What the event loop would report as lost errors."""
    loop = asyncio.get_running_loop()
    lost: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: lost.append(context))
    yield lost
    loop.set_exception_handler(None)


class Silent:
    """An attempt that ends when the test says so, whoever cancels it."""

    def __init__(self, ending: Exception | None = None) -> None:
        self.times = 0
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.lets_go = asyncio.Event()
        self._ending = ending

    async def __call__(self) -> Any:
        self.times += 1
        self.begun.set()
        for _ in range(3):  # or a test that fails would never end
            try:
                await self.lets_go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
            else:
                break
        if self._ending is not None:
            raise self._ending


async def left(store: Remote) -> set[asyncio.Task[Any]]:
    return set(await store._tasks.get())


async def test_a_failure_that_may_pass_is_waited_out() -> None:
    """decision: a restart of the store is not noticed if it is short."""
    answers = iter([Hiccup(), Hiccup(), Hiccup()])

    async def attempt() -> str:
        for error in answers:
            raise error
        return "yes"

    assert await remote().call(attempt) == "yes"


@pytest.mark.parametrize(
    ("error", "within", "reason"),
    [(Mistake("secret"), PATIENCE, "Mistake"), (Hiccup("secret"), SOON, "Hiccup")],
)
async def test_the_reason_is_all_that_is_told(error: Exception, within: float, reason: str) -> None:
    """decision: a driver's message may quote what was to be stored, so it is no cause either."""

    async def attempt() -> None:
        raise error

    with pytest.raises(LedgerUnavailable) as raised:
        await remote(within).call(attempt)
    assert str(raised.value) == f"Store: {reason}"
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


async def test_what_is_not_the_stores_fault_is_raised_as_it_is() -> None:
    """decision: a mistake in the program must not look like an outage."""

    async def attempt() -> None:
        raise KeyError("mistake")

    with pytest.raises(KeyError):
        await remote().call(attempt)


async def test_a_silent_driver_is_left_to_itself() -> None:
    """decision: the timeout holds, whether or not the driver can let go of its connection."""
    store, silent = remote(SOON), Silent()
    with pytest.raises(LedgerUnavailable, match=r"^Store: no answer within 0\.05 seconds$"):
        await store.call(silent)
    (driver,) = await left(store)
    await silent.cancelled.wait()
    assert not driver.done()
    silent.lets_go.set()
    await asyncio.wait({driver})
    assert not await left(store)


async def test_what_is_left_may_end_by_itself() -> None:
    """decision: a client that leaves costs no connection, as long as the store answers."""
    store, silent = remote(), Silent()
    calling = asyncio.create_task(store.call(silent))
    await silent.begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    silent.lets_go.set()
    await store.settle()
    assert not silent.cancelled.is_set()


async def test_some_drivers_are_never_interrupted() -> None:
    """decision: those that end by themselves, and that leave something behind when cancelled."""
    store, silent = remote(SOON, interrupts=False), Silent()
    other = remote(SOON), Silent()
    with pytest.raises(LedgerUnavailable):
        await store.call(silent)
    with pytest.raises(LedgerUnavailable):
        await other[0].call(other[1])
    await other[1].cancelled.wait()
    assert not silent.cancelled.is_set()
    silent.lets_go.set()
    other[1].lets_go.set()
    for each in (store, other[0]):
        await each.settle()


@pytest.mark.parametrize("ending", [Hiccup(), Mistake(), KeyError("mistake")])
async def test_a_driver_may_make_an_error_of_being_cancelled(
    ending: Exception, told: list[dict[str, Any]]
) -> None:
    """decision: nobody waits, so it is neither repeated nor reported as an error that was lost."""
    store, silent = remote(SOON), Silent(ending)
    with pytest.raises(LedgerUnavailable):
        await store.call(silent)
    (driver,) = await left(store)
    await silent.cancelled.wait()
    silent.lets_go.set()
    await asyncio.wait({driver})
    assert silent.times == 1
    del driver, silent
    gc.collect()
    assert not told


async def test_a_caller_that_is_cancelled_waits_for_no_driver() -> None:
    """spec: disconnecting cancels (streamable-http §Cancellation), and promptly."""
    store, silent = remote(), Silent()
    calling = asyncio.create_task(store.call(silent))
    await silent.begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert len(await left(store)) == 1
    silent.lets_go.set()
    await store.settle()


async def test_an_error_that_comes_with_the_cancellation_is_not_reported(
    told: list[dict[str, Any]],
) -> None:
    """decision: whoever has gone needs no error."""
    begun, fail = asyncio.Event(), asyncio.Event()

    async def attempt() -> None:
        begun.set()
        await fail.wait()
        raise Mistake

    calling = asyncio.create_task(remote().call(attempt))
    await begun.wait()
    fail.set()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    del calling
    gc.collect()
    assert not told


async def test_a_claim_is_given_up_when_its_attempt_has_ended() -> None:
    """decision: what is still on its way to the store must not overtake that it is not wanted."""
    store, silent = remote(SOON), Silent(Hiccup())
    given_up = asyncio.Event()

    async def give_up() -> None:
        assert silent.lets_go.is_set()
        given_up.set()

    with pytest.raises(LedgerUnavailable):
        await store.claim(silent, give_up)
    store._timeout = PATIENCE
    assert not given_up.is_set()
    silent.lets_go.set()
    await given_up.wait()
    await store.settle()


async def test_a_claim_whose_attempt_never_ends_is_given_up_all_the_same() -> None:
    """decision: on another connection, which may be a better one."""
    store, silent = remote(SOON), Silent()
    given_up = asyncio.Event()

    async def give_up() -> None:
        given_up.set()
        raise LedgerUnavailable("again")

    with pytest.raises(LedgerUnavailable):
        await store.claim(silent, give_up)
    await given_up.wait()
    silent.lets_go.set()
    await store.settle()


async def test_a_claim_that_was_not_begun_is_given_up_at_once() -> None:
    """decision: nothing is on its way."""
    store = remote()
    given_up = asyncio.Event()

    async def never() -> Claimed:
        raise AssertionError

    async def give_up() -> None:
        given_up.set()

    claiming = asyncio.create_task(store.claim(never, give_up))
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await given_up.wait()


async def test_claims_that_are_given_up_are_bounded() -> None:
    """decision: during an outage, what is left to do afterwards does not grow for ever."""
    store = remote()
    ever = asyncio.Event()

    async def fails() -> Claimed:
        raise Mistake

    async def give_up() -> None:
        await ever.wait()

    claims = [store.claim(fails, give_up) for _ in range(300)]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {LedgerUnavailable}
    assert len(await left(store)) == 256
    ever.set()
    await store.settle()
    assert not await left(store)
    await store.settle()


async def test_nobody_waits_for_ever_when_a_ledger_is_closed() -> None:
    """decision: a server that shuts down waits as long as for two calls, whatever drivers do."""
    store, silent = remote(SOON), Silent()
    with pytest.raises(LedgerUnavailable):
        await store.call(silent)
    (driver,) = await left(store)
    await store.settle()
    assert not driver.done()
    silent.lets_go.set()
    await asyncio.wait({driver})


async def test_a_call_leaves_nothing_to_the_cycle_collector() -> None:
    """decision: neither one that is answered nor one that fails."""
    store = remote()

    async def answers() -> bytes:
        return b"yes"

    async def fails() -> None:
        raise Mistake

    async def both() -> None:
        assert await store.call(answers) == b"yes"
        try:
            await store.call(fails)
        except LedgerUnavailable:
            return

    await both()
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            await both()
        assert gc.collect() == 0
    finally:
        gc.enable()


async def test_what_was_never_made_is_not_closed() -> None:
    """decision: a ledger that nobody used opens no connection in order to close it."""
    made: list[str] = []

    async def close(_: None) -> None:
        made.append("closed")

    things = PerLoop(lambda: made.append("made"), close)
    await things.aclose()
    assert made == []
    await things.get()
    await things.get()
    await things.aclose()
    await things.aclose()
    assert made == ["made", "closed"]
