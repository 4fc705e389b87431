"""What every ledger does, on every store: memory, SQLite, PostgreSQL, Redis, a Redis cluster."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from fastapi_mcp_mrtr.state.ledger import Answered, Claim, Claimed, Held, Ledger, Refused
from fastapi_mcp_mrtr.state.ledger.protocol import RETRY_AFTER
from tests.state.play import play

from .backends import Backend, OpenBackend
from .model import LedgerMachine

# Long against what a test takes. What ends sooner is said where it does.
LEASE = 1000.0
TTL = 5000.0
MANY = 40


async def claim(ledger: Ledger, *, flow: str = "f", round: int = 0, says: str = "x") -> Claim:
    return await ledger.claim(flow, round, says, lease=LEASE, ttl=TTL)


async def owner_of(ledger: Ledger, *, flow: str = "f", round: int = 0, says: str = "x") -> str:
    claimed = await claim(ledger, flow=flow, round=round, says=says)
    assert isinstance(claimed, Claimed)
    return claimed.owner


def kinds(claims: Sequence[Claim]) -> Counter[type[Any]]:
    return Counter(type(claim) for claim in claims)


def test_model(open_backend: OpenBackend) -> None:
    """decision: the table of states holds, for whatever clients and workers do."""
    play(LedgerMachine, open_backend, examples=25)


# ---------------------------------------------------------------------------- at the same time


@pytest.mark.anyio
class TestAtTheSameTime:
    async def test_one_of_many_claims(self, backend: Backend) -> None:
        """user report: the final request twice at the same moment ran twice."""
        ledgers = [backend.ledger, backend.other] * (MANY // 2)
        claims = await asyncio.gather(*(claim(ledger) for ledger in ledgers))
        assert kinds(claims) == {Claimed: 1, Held: MANY - 1}

    async def test_one_of_many_answers_is_taken(self, backend: Backend) -> None:
        """decision: with other answers at the same moment, too, one runs; it is not said which."""
        ledgers = [backend.ledger, backend.other] * (MANY // 2)
        claims = await asyncio.gather(
            *(claim(ledger, says="xy"[n // 2 % 2]) for n, ledger in enumerate(ledgers))
        )
        assert kinds(claims) == {Claimed: 1, Held: MANY // 2 - 1, Refused: MANY // 2}

    async def test_one_of_many_takes_over(self, backend: Backend) -> None:
        """decision: a crashed worker's claim goes to one."""
        await claim(backend.ledger)
        await backend.advance(LEASE)
        ledgers = [backend.ledger, backend.other] * (MANY // 2)
        claims = await asyncio.gather(*(claim(ledger) for ledger in ledgers))
        assert kinds(claims) == {Claimed: 1, Held: MANY - 1}
        assert [c.is_takeover for c in claims if isinstance(c, Claimed)] == [True]

    async def test_who_is_cancelled_leaves_nothing_behind(self, backend: Backend) -> None:
        """decision: at whatever moment a client leaves, its claim is free and the store is well."""
        flows = {f"flow {n}": n / 4000 for n in range(5 * MANY)}

        async def leaves(flow: str, moment: float) -> None:
            claiming = asyncio.create_task(claim(backend.ledger, flow=flow))
            await asyncio.wait({claiming}, timeout=moment)
            claiming.cancel()
            try:
                claimed = await claiming
            except asyncio.CancelledError:
                return
            assert isinstance(claimed, Claimed)
            await backend.ledger.release(flow, 0, claimed.owner, ran=False)

        for start in range(MANY):
            batch = list(flows.items())[start::MANY]
            await asyncio.gather(*itertools.starmap(leaves, batch))
            await owner_of(backend.ledger, flow=f"after {start}")
        await backend.ledger.aclose()
        assert kinds([await claim(backend.other, flow=flow) for flow in flows]) == {
            Claimed: len(flows)
        }

    async def test_one_of_many_goes_on(self, backend: Backend) -> None:
        """decision: the next round of an answered one is claimed once."""
        owner = await owner_of(backend.ledger)
        await backend.ledger.answer("f", 0, owner, b"asked", ttl=TTL)
        ledgers = [backend.ledger, backend.other] * (MANY // 2)
        claims = await asyncio.gather(*(claim(ledger, round=1) for ledger in ledgers))
        assert kinds(claims) == {Claimed: 1, Held: MANY - 1}

    async def test_an_answer_or_a_takeover(self, backend: Backend) -> None:
        """decision: who comes back late either stores the response or has lost the claim."""
        for n in range(10):
            flow = f"f{n}"
            owner = await owner_of(backend.ledger, flow=flow)
            await backend.advance(LEASE)
            is_stored, claimed = await asyncio.gather(
                backend.ledger.answer(flow, 0, owner, b"late", ttl=TTL),
                claim(backend.other, flow=flow),
            )
            if is_stored:
                assert claimed == Answered(b"late")
            else:
                assert isinstance(claimed, Claimed)
                assert claimed.is_takeover

    async def test_flows_do_not_wait_for_each_other(self, backend: Backend) -> None:
        """decision: what one flow holds is nothing to another."""
        claims = await asyncio.gather(
            *(claim(backend.ledger, flow=f"f{n}") for n in range(MANY)),
            *(claim(backend.other, flow=f"f{n}") for n in range(MANY)),
        )
        assert kinds(claims) == {Claimed: MANY, Held: MANY}


# ------------------------------------------------------------------------------------ one flow


@pytest.mark.anyio
class TestOneFlow:
    async def test_an_identical_request_is_answered_alike(self, backend: Backend) -> None:
        """user report: the final response was lost, and the handler ran again."""
        owner = await owner_of(backend.ledger)
        assert await backend.ledger.answer("f", 0, owner, b"paid", ttl=TTL)
        assert await claim(backend.other) == Answered(b"paid")

    @pytest.mark.parametrize("response", [b"", bytes(range(256)), b"\xff" * 1_000_000])
    async def test_responses_are_any_bytes(self, backend: Backend, response: bytes) -> None:
        """decision: what is sealed is no text."""
        owner = await owner_of(backend.ledger)
        assert await backend.ledger.answer("f", 0, owner, response, ttl=TTL)
        assert await claim(backend.other) == Answered(response)

    @pytest.mark.parametrize("flow", ["", "{a}b", "a b\n", "'; --", "ü\U0001f600", "x" * 500])
    async def test_flows_have_any_name(self, backend: Backend, flow: str) -> None:
        """decision: an idempotency key comes from a client."""
        owner = await owner_of(backend.ledger, flow=flow)
        assert await backend.ledger.answer(flow, 0, owner, b"yes", ttl=TTL)
        assert await claim(backend.other, flow=flow) == Answered(b"yes")
        assert isinstance(await claim(backend.other, flow=flow + "!"), Claimed)

    async def test_other_answers_are_refused(self, backend: Backend) -> None:
        """spec: MUST enforce single use server-side (mrtr §Server Requirements)."""
        owner = await owner_of(backend.ledger)
        assert await claim(backend.other, says="y") == Refused("other answers")
        await backend.ledger.answer("f", 0, owner, b"yes", ttl=TTL)
        assert await claim(backend.other, says="y") == Refused("other answers")

    async def test_an_earlier_round_is_refused(self, backend: Backend) -> None:
        """decision: a flow does not go back, not even to what it answered then."""
        owner = await owner_of(backend.ledger)
        await backend.ledger.answer("f", 0, owner, b"asked", ttl=TTL)
        await claim(backend.ledger, round=1)
        assert await claim(backend.other) == Refused("earlier round")

    async def test_an_earlier_round_stays_used_when_nothing_ran(self, backend: Backend) -> None:
        """decision: giving a round up does not make the one before it new."""
        owner = await owner_of(backend.ledger)
        await backend.ledger.answer("f", 0, owner, b"asked", ttl=TTL)
        owner = await owner_of(backend.ledger, round=1)
        await backend.ledger.release("f", 1, owner, ran=False)
        assert await claim(backend.other) == Refused("earlier round")
        assert isinstance(await claim(backend.other, round=1, says="y"), Claimed)

    async def test_a_takeover_stays_one(self, backend: Backend) -> None:
        """decision: that the second did nothing does not say what the first one did."""
        await claim(backend.ledger)
        await backend.advance(LEASE)
        owner = await owner_of(backend.other)
        await backend.other.release("f", 0, owner, ran=False)
        third = await claim(backend.ledger)
        assert isinstance(third, Claimed)
        assert third.is_takeover

    async def test_who_waits_asks_again_soon(self, backend: Backend) -> None:
        """decision: not at the end of a long lease, but when there may be an answer."""
        await claim(backend.ledger)
        assert await claim(backend.other) == Held(RETRY_AFTER)


# ----------------------------------------------------------------------------------- repeating


@pytest.mark.anyio
class TestRepeating:
    async def test_answer(self, backend: Backend) -> None:
        """decision: the reply may have been lost, so the same response is stored already."""
        owner = await owner_of(backend.ledger)
        assert await backend.ledger.answer("f", 0, owner, b"yes", ttl=TTL)
        assert await backend.ledger.answer("f", 0, owner, b"yes", ttl=TTL)

    async def test_another_answer(self, backend: Backend) -> None:
        """decision: the first response is the one; a second one is not told that it is."""
        owner = await owner_of(backend.ledger)
        assert await backend.ledger.answer("f", 0, owner, b"yes", ttl=TTL)
        assert not await backend.ledger.answer("f", 0, owner, b"no", ttl=TTL)
        assert await claim(backend.other) == Answered(b"yes")

    async def test_renew(self, backend: Backend) -> None:
        """decision: a heartbeat is renewed as often as it likes, until there is an answer."""
        owner = await owner_of(backend.ledger)
        assert await backend.ledger.renew("f", 0, owner, lease=LEASE)
        assert await backend.ledger.renew("f", 0, owner, lease=LEASE)
        await backend.ledger.answer("f", 0, owner, b"yes", ttl=TTL)
        assert not await backend.ledger.renew("f", 0, owner, lease=LEASE)

    @pytest.mark.parametrize("ran", [False, True])
    async def test_release(self, backend: Backend, ran: bool) -> None:
        """decision: giving up what somebody else has claimed since does nothing to them."""
        owner = await owner_of(backend.ledger)
        await backend.ledger.release("f", 0, owner, ran=ran)
        second = await owner_of(backend.other)
        await backend.ledger.release("f", 0, owner, ran=False)
        assert isinstance(await claim(backend.ledger), Held)
        assert await backend.other.answer("f", 0, second, b"yes", ttl=TTL)

    async def test_strangers(self, backend: Backend) -> None:
        """decision: flow, round and owner all have to fit."""
        owner = await owner_of(backend.ledger, round=1)
        for flow, round, token in [("f", 1, ""), ("f", 1, "x"), ("f", 0, owner), ("g", 1, owner)]:
            assert not await backend.other.renew(flow, round, token, lease=LEASE)
            assert not await backend.other.answer(flow, round, token, b"no", ttl=TTL)
            await backend.other.release(flow, round, token, ran=False)
        assert await backend.ledger.answer("f", 1, owner, b"yes", ttl=TTL)


# ---------------------------------------------------------------------------------------- time


@pytest.mark.anyio
class TestTime:
    async def test_the_store_has_a_clock_of_its_own(self, backend: Backend) -> None:
        """decision: a lease ends although nobody says so."""
        first = await backend.ledger.claim("f", 0, "x", lease=0.002, ttl=TTL)
        assert isinstance(first, Claimed)
        # The one test that waits for real time, because it is about real time: 2 ms, asked for
        # again and again. The clocks of memory and SQLite are ours, and stand.
        second: Claim = Held(0.0)
        while isinstance(second, Held):
            await backend.advance(0.001)
            second = await claim(backend.other)
        assert isinstance(second, Claimed)
        assert second.is_takeover

    async def test_a_lease_that_is_over_is_still_its_owners(self, backend: Backend) -> None:
        """decision: work that nobody took over is not thrown away."""
        owner = await owner_of(backend.ledger)
        await backend.advance(LEASE)
        assert await backend.ledger.answer("f", 0, owner, b"late", ttl=TTL)
        assert await claim(backend.other) == Answered(b"late")

    async def test_a_lost_claim_stores_nothing(self, backend: Backend) -> None:
        """decision: of two who ran, the one that holds the claim answers."""
        first = await owner_of(backend.ledger)
        await backend.advance(LEASE)
        second = await owner_of(backend.other)
        assert not await backend.ledger.renew("f", 0, first, lease=LEASE)
        assert not await backend.ledger.answer("f", 0, first, b"first", ttl=TTL)
        assert await backend.other.answer("f", 0, second, b"second", ttl=TTL)
        assert await claim(backend.ledger) == Answered(b"second")

    async def test_a_record_outlives_its_lease(self, backend: Backend) -> None:
        """decision: a claim that is alive is never forgotten."""
        claimed = await backend.ledger.claim("f", 0, "x", lease=2 * LEASE, ttl=1)
        assert isinstance(claimed, Claimed)
        await backend.advance(1.5 * LEASE)
        assert isinstance(await claim(backend.other), Held)
        assert await backend.ledger.renew("f", 0, claimed.owner, lease=LEASE)
        await backend.advance(0.75 * LEASE)
        assert isinstance(await claim(backend.other), Held)

    async def test_expired_is_absent(self, backend: Backend) -> None:
        """decision: what can no longer be presented need not be remembered."""
        owner = await owner_of(backend.ledger)
        await backend.ledger.answer("f", 0, owner, b"yes", ttl=TTL)
        await backend.advance(TTL)
        assert not await backend.ledger.answer("f", 0, owner, b"yes", ttl=TTL)
        again = await claim(backend.other)
        assert isinstance(again, Claimed)
        assert not again.is_takeover

    async def test_nothing_is_left_behind(self, backend: Backend) -> None:
        """decision: abandoned flows go, answered and unanswered, and those that live stay."""
        for n in range(30):
            owner = await owner_of(backend.ledger, flow=f"f{n}")
            if n % 3 == 1:
                await backend.ledger.answer(f"f{n}", 0, owner, b"yes", ttl=TTL)
            if n % 3 == 2:
                await backend.ledger.release(f"f{n}", 0, owner, ran=n % 2 == 0)
        assert await backend.leftovers() == 30
        await backend.advance(TTL - 1000)
        await claim(backend.ledger, flow="alive")
        await backend.advance(1000)
        assert await backend.leftovers() == 1

    @pytest.mark.parametrize("nothing", [0.0, -5.0])
    async def test_no_time_at_all(self, backend: Backend, nothing: float) -> None:
        """decision: who has no time left gets next to none, and no error."""
        claimed = await backend.ledger.claim("f", 0, "x", lease=nothing, ttl=nothing)
        assert isinstance(claimed, Claimed)

    async def test_no_number_is_no_time(self, backend: Backend) -> None:
        """decision: NaN is refused, whatever a comparison with it says."""
        with pytest.raises(ValueError, match="NaN"):
            await backend.ledger.claim("f", 0, "x", lease=float("nan"), ttl=TTL)


# ------------------------------------------------------------------------------------- closing


@pytest.mark.anyio
async def test_a_closed_ledger_opens_again(backend: Backend) -> None:
    """decision: a test client that comes and goes does not wear a ledger out."""
    owner = await owner_of(backend.ledger)
    await backend.ledger.aclose()
    await backend.ledger.aclose()
    assert await backend.ledger.answer("f", 0, owner, b"yes", ttl=TTL)


@pytest.mark.anyio
async def test_what_is_logged_says_nothing(backend: Backend) -> None:
    """decision: neither a response nor an owner is readable in what a debugger prints."""
    owner = await owner_of(backend.ledger)
    await backend.ledger.answer("f", 0, owner, b"secret", ttl=TTL)
    assert "secret" not in repr(await claim(backend.ledger))
    assert owner not in repr(Claimed(owner, False))
