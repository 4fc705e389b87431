"""Every ledger, driven at random and held against the table of `protocol.py`.

The table says what is expected of each call. What a flow was promised is kept apart from it, so
that a mistake in the table would show.
"""

import asyncio
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from fastapi_mcp_mrtr.state.ledger import Answered, Claim, Claimed, Held, Refused
from fastapi_mcp_mrtr.state.ledger.protocol import (
    CLAIMS,
    OWNS,
    RETRY_AFTER,
    RUNNING,
    Presented,
    Status,
    Use,
)

from .backends import Backend, unique

# Thousands of seconds: what the test itself takes must not count.
LEASES = st.sampled_from([2000, 5000])
TTLS = st.sampled_from([1000, 9000])
STEPS = st.sampled_from([1000, 2000, 4000, 9000])

FLOWS = st.sampled_from("aab")
ROUNDS = st.sampled_from([0, 0, 1, 1, 2])
FINGERPRINTS = st.sampled_from("xxy")
RESPONSES = st.sampled_from([b"", b"\x00\xff", b"yes"])


@dataclass
class Record:
    """What the model knows of a flow."""

    status: Status
    round: int
    fingerprint: str
    owner: str
    lease_ends: float
    expires: float
    response: bytes | None = None


@dataclass
class Promise:
    """What the world was told of one round."""

    round: int
    fingerprint: str
    may_have_run: bool = False
    response: bytes | None = None


@dataclass(frozen=True)
class Owner:
    flow: str
    round: int
    token: str


class LedgerMachine(RuleBasedStateMachine):
    """Two workers, two flows, and whatever clients may send."""

    owners: "Bundle[Owner]" = Bundle("owners")

    def __init__(self, runner: asyncio.Runner, backend: Backend) -> None:
        super().__init__()
        self.run = runner.run
        self.backend = backend
        self.now = 0.0
        self.records: dict[str, Record] = {}
        self.promises: dict[str, Promise] = {}

    @initialize()
    def begin(self) -> None:
        self.prefix = unique("")

    def seen(self, flow: str) -> Record | None:
        """The record as time has left it."""
        record = self.records.get(flow)
        if record is not None and not self.now < record.expires:
            del self.records[flow]
            self.promises.pop(flow)
            return None
        return record

    # -------------------------------------------------------------------------------- claims

    @rule(
        target=owners,
        flow=FLOWS,
        round=ROUNDS,
        fingerprint=FINGERPRINTS,
        lease=LEASES,
        ttl=TTLS,
        second=st.booleans(),
    )
    def claim(
        self, flow: str, round: int, fingerprint: str, lease: float, ttl: float, second: bool
    ) -> MultipleResults[Owner] | Owner:
        record = self.seen(flow)
        ledger = self.backend.other if second else self.backend.ledger
        claim = self.run(ledger.claim(self.prefix + flow, round, fingerprint, lease=lease, ttl=ttl))
        status, relation = self.status_and_relation(record, round, fingerprint)
        move = CLAIMS[status][relation]
        assert type(claim) is move.outcome
        match claim:
            case Claimed(owner, is_takeover):
                assert is_takeover == (move.becomes is Status.TAKEN_OVER)
                expires = self.now + max(lease, ttl)
                self.records[flow] = Record(
                    move.becomes, round, fingerprint, owner, self.now + lease, expires
                )
            case Held(retry_after):
                assert 0 < retry_after <= RETRY_AFTER
            case Answered(response):
                assert record is not None
                assert response == record.response
            case Refused(reason):
                assert reason == (
                    "other answers" if relation is Presented.OTHER else "earlier round"
                )
        self.keep_promise(flow, round, fingerprint, claim)
        return Owner(flow, round, claim.owner) if isinstance(claim, Claimed) else multiple()

    def status_and_relation(
        self, record: Record | None, round: int, fingerprint: str
    ) -> tuple[Status, Presented]:
        if record is None:
            return Status.ABSENT, Presented.LATER
        status = record.status
        if status in RUNNING and not self.now < record.lease_ends:
            status = Status.LAPSED
        if round > record.round:
            return status, Presented.LATER
        if round < record.round:
            return status, Presented.EARLIER
        is_same = fingerprint == record.fingerprint
        return status, Presented.IDENTICAL if is_same else Presented.OTHER

    def keep_promise(self, flow: str, round: int, fingerprint: str, claim: Claim) -> None:
        promise = self.promises.get(flow)
        if promise is None or round > promise.round:
            assert isinstance(claim, Claimed)
            assert not claim.is_takeover
            self.promises[flow] = Promise(round, fingerprint, may_have_run=True)
            return
        if isinstance(claim, Answered):
            assert (promise.round, promise.fingerprint) == (round, fingerprint)
            assert promise.response == claim.response
        if isinstance(claim, Claimed):
            assert promise.round == round
            assert promise.response is None
            assert claim.is_takeover == promise.may_have_run
            assert promise.fingerprint == fingerprint or not promise.may_have_run
            self.promises[flow] = Promise(round, fingerprint, may_have_run=True)

    # ------------------------------------------------------------------- what owners may do

    def owned(self, owner: Owner) -> Record | None:
        record = self.seen(owner.flow)
        if record is not None and (record.round, record.owner) == (owner.round, owner.token):
            return record
        return None

    @rule(owner=owners, lease=LEASES)
    def renew(self, owner: Owner, lease: float) -> None:
        record = self.owned(owner)
        is_renewed = self.run(
            self.backend.ledger.renew(
                self.prefix + owner.flow, owner.round, owner.token, lease=lease
            )
        )
        assert is_renewed == (record is not None and record.status in RUNNING)
        if record is not None and is_renewed:
            record.lease_ends = self.now + lease
            record.expires = max(record.expires, record.lease_ends)

    @rule(owner=owners, response=RESPONSES, ttl=TTLS)
    def answer(self, owner: Owner, response: bytes, ttl: float) -> None:
        record = self.owned(owner)
        is_stored = self.run(
            self.backend.other.answer(
                self.prefix + owner.flow, owner.round, owner.token, response, ttl=ttl
            )
        )
        if record is None or record.status not in RUNNING:
            is_again = record is not None and record.status is Status.ANSWERED
            assert is_stored == (is_again and record is not None and record.response == response)
            return
        assert is_stored
        record.status = OWNS[record.status][Use.ANSWER]
        record.response, record.expires = response, self.now + ttl
        self.promises[owner.flow].response = response

    @rule(owner=consumes(owners), ran=st.booleans())
    def release(self, owner: Owner, ran: bool) -> None:
        was = self.owned(owner)
        self.run(
            self.backend.ledger.release(self.prefix + owner.flow, owner.round, owner.token, ran=ran)
        )
        if was is not None and was.status in RUNNING:
            if was.status is Status.CLAIMED and not ran:
                self.promises[owner.flow].may_have_run = False
            was.status = OWNS[was.status][Use.RELEASE_RAN if ran else Use.RELEASE]
            was.owner = ""

    # ---------------------------------------------------------------------------------- time

    @rule(seconds=STEPS)
    def wait(self, seconds: float) -> None:
        self.run(self.backend.advance(seconds))
        self.now += seconds

    @invariant()
    def every_promise_has_a_record(self) -> None:
        assert self.promises.keys() == self.records.keys()

    def teardown(self) -> None:
        self.run(self.backend.advance(20_000))
        assert self.run(self.backend.leftovers()) == 0
