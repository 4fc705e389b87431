"""What makes a flow single-use: one record per flow, and who may claim it. Knows no store.

A *presentation* is a request that brings the state of one round; round 0 is the first request,
which brings none. Its *fingerprint* stands for everything else it says, so that two presentations
are identical if round and fingerprint are. A record says which round was presented last, and what
came of it. What a presentation gets depends on how it relates to the record; this is `CLAIMS`:

```text
| record | a later round | identical | other answers | an earlier round |
|---|---|---|---|---|
| absent | Claimed → claimed | | | |
| open | Claimed → claimed | Claimed → claimed | Claimed → claimed | Refused |
| claimed | Claimed → claimed | Held | Refused | Refused |
| taken over | Claimed → claimed | Held | Refused | Refused |
| lapsed | Claimed → claimed | Claimed → taken over | Refused | Refused |
| answered | Claimed → claimed | Answered | Refused | Refused |
```

What the owner of a claim may do with it is `OWNS`. To everybody else, `renew` and `answer` are
False and `release` does nothing:

```text
| record | renew | answer | release, nothing ran | release, it ran |
|---|---|---|---|---|
| claimed | True | True → answered | open | lapsed |
| taken over | True | True → answered | lapsed | lapsed |
| answered | False | True if it is the same response | | |
```

Time does the rest: a claim whose lease is over is lapsed (its owner is still the owner until
somebody takes over), and a record that has expired is absent. A record outlives its lease.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

RETRY_AFTER: Final = 0.1
"""Seconds after which a presentation that is held may ask again: somebody is waiting for it."""

Reason: TypeAlias = Literal["other answers", "earlier round"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """Run the round now. `is_takeover`: an earlier claim of it may have run, in part or wholly."""

    owner: str = field(repr=False)
    is_takeover: bool


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else is running the identical request. Ask again in `retry_after` seconds."""

    retry_after: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The identical request was answered; this is the response."""

    response: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """The state was used already. `reason` is for the log and never reaches the client."""

    reason: Reason


Claim: TypeAlias = Claimed | Held | Answered | Refused


class LedgerUnavailable(Exception):
    """The store cannot be reached, is full or did not answer in time. Nothing may run now."""


class Ledger(Protocol):
    """Where the rounds of single-use flows are claimed and their responses kept.

    Every method is atomic: of any number of callers in any number of processes, one is first. Every
    method may be repeated when its reply was lost; an owner is recognised.

    Raises: LedgerUnavailable, from each method. What was asked for may have happened all the same.
    """

    async def claim(
        self, flow: str, round: int, fingerprint: str, *, lease: float, ttl: float
    ) -> Claim:
        """Present a state; `Claimed` if this caller is to run the round.

        The claim holds for `lease` seconds unless it is renewed. The record expires after `ttl`
        seconds, but not before the lease: `ttl` is how long the state could still be presented,
        and as much more as clocks may be wrong.
        """
        ...

    async def renew(self, flow: str, round: int, owner: str, *, lease: float) -> bool:
        """Hold on for `lease` seconds from now. False: the claim was lost, somebody took over."""
        ...

    async def answer(
        self, flow: str, round: int, owner: str, response: bytes, *, ttl: float
    ) -> bool:
        """Store the response for `ttl` seconds. False: the claim was lost and nothing is stored."""
        ...

    async def release(self, flow: str, round: int, owner: str, *, ran: bool) -> None:
        """Give the claim up without a response. `ran`: whoever claims it next is taking over."""
        ...

    async def aclose(self) -> None:
        """Let go of connections the ledger made itself. It may be used again."""
        ...


# ------------------------------------------------------------------------- the state machine


class Status(Enum):
    """What a record says, in the words that stores write."""

    ABSENT = "absent"
    OPEN = "open"
    """Claimed and given up before anything ran. Earlier rounds stay used."""
    CLAIMED = "claimed"
    TAKEN_OVER = "taken over"
    """Claimed again, after somebody who may have run it."""
    LAPSED = "lapsed"
    """Given up after it ran, or not renewed: whoever held it may have crashed."""
    ANSWERED = "answered"


class Presented(Enum):
    """How a presentation relates to the record. To an absent one, every round is later."""

    LATER = "a later round"
    IDENTICAL = "identical"
    OTHER = "other answers"
    EARLIER = "an earlier round"


class Move(NamedTuple):
    """What a presentation gets, and what the record says afterwards."""

    outcome: type[Claimed] | type[Held] | type[Answered] | type[Refused]
    becomes: Status


def _row(
    status: Status, identical: Move | None = None, other: Move | None = None
) -> Mapping[Presented, Move]:
    """One row of the table. Unless it says otherwise, a used state is refused and nothing moves."""
    refused = Move(Refused, status)
    return MappingProxyType(
        {
            Presented.LATER: _CLAIM,
            Presented.IDENTICAL: identical or refused,
            Presented.OTHER: other or refused,
            Presented.EARLIER: refused,
        }
    )


_CLAIM: Final = Move(Claimed, Status.CLAIMED)

CLAIMS: Final[Mapping[Status, Mapping[Presented, Move]]] = MappingProxyType(
    {
        Status.ABSENT: MappingProxyType({Presented.LATER: _CLAIM}),
        Status.OPEN: _row(Status.OPEN, _CLAIM, _CLAIM),
        Status.CLAIMED: _row(Status.CLAIMED, Move(Held, Status.CLAIMED)),
        Status.TAKEN_OVER: _row(Status.TAKEN_OVER, Move(Held, Status.TAKEN_OVER)),
        Status.LAPSED: _row(Status.LAPSED, Move(Claimed, Status.TAKEN_OVER)),
        Status.ANSWERED: _row(Status.ANSWERED, Move(Answered, Status.ANSWERED)),
    }
)
"""What a presentation gets."""


class Use(Enum):
    """What the owner of a claim may do with it."""

    RENEW = "renew"
    ANSWER = "answer"
    RELEASE = "release, nothing ran"
    RELEASE_RAN = "release, it ran"


OWNS: Final[Mapping[Status, Mapping[Use, Status]]] = MappingProxyType(
    {
        Status.CLAIMED: MappingProxyType(
            {
                Use.RENEW: Status.CLAIMED,
                Use.ANSWER: Status.ANSWERED,
                Use.RELEASE: Status.OPEN,
                Use.RELEASE_RAN: Status.LAPSED,
            }
        ),
        Status.TAKEN_OVER: MappingProxyType(
            {
                Use.RENEW: Status.TAKEN_OVER,
                Use.ANSWER: Status.ANSWERED,
                Use.RELEASE: Status.LAPSED,
                Use.RELEASE_RAN: Status.LAPSED,
            }
        ),
    }
)
"""What the record says after its owner has used it. A claim that was answered is used up."""

RUNNING: Final = tuple(OWNS)
"""The statuses in which somebody owns the claim."""

REASONS: Final[Mapping[Presented, Reason]] = MappingProxyType(
    {Presented.OTHER: "other answers", Presented.EARLIER: "earlier round"}
)


# ------------------------------------------------------------------------- what stores share


def presented(
    recorded_round: int, recorded_fingerprint: str, round: int, fingerprint: str
) -> Presented:
    """How a presentation relates to a record that is there."""
    if round != recorded_round:
        return Presented.LATER if round > recorded_round else Presented.EARLIER
    return Presented.IDENTICAL if fingerprint == recorded_fingerprint else Presented.OTHER


def unclaimed(
    status: Status, relation: Presented, *, lease_left: float, response: bytes
) -> Held | Answered | Refused | None:
    """What a presentation gets that may not claim; `None` if it may."""
    outcome = CLAIMS[status][relation].outcome
    if outcome is Refused:
        return Refused(REASONS[relation])
    if outcome is Answered:
        return Answered(response)
    if outcome is Held:
        return held(lease_left)
    return None


def held(lease_left: float) -> Held:
    """Ask again soon, and at the latest when the lease is over."""
    return Held(min(lease_left, RETRY_AFTER))


def new_owner() -> str:
    """A token that nobody else has."""
    return secrets.token_urlsafe(16)


def milliseconds(seconds: float) -> int:
    """A span of time for stores that count whole milliseconds; never nothing.

    Raises: ValueError or OverflowError, for what is no number.
    """
    return max(1, math.ceil(seconds * 1000))
