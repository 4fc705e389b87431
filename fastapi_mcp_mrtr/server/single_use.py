"""Exactly once, seen from the client: claim a round in the ledger, run it, store its response.

The same presentation again gets the stored response and nothing runs; whoever presents a used state
with other answers gets the frozen error. Knows no handler, no method and no store.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from anyio import CancelScope
from pydantic_core import from_json

from fastapi_mcp_mrtr.errors import (
    INVALID_PARAMS,
    LEDGER_UNAVAILABLE,
    HandlerError,
    MCPError,
    MissingClientCapability,
    RequestStateError,
    UnreadableAnswer,
)
from fastapi_mcp_mrtr.protocol.canonical import canonical
from fastapi_mcp_mrtr.protocol.jsonrpc import encode
from fastapi_mcp_mrtr.state.codec import RequestStateCodec
from fastapi_mcp_mrtr.state.keys import KeyRing
from fastapi_mcp_mrtr.state.ledger import (
    Answered,
    Claimed,
    Held,
    Ledger,
    LedgerUnavailable,
    Refused,
)

from .calls import Call
from .failures import internal_error

logger = logging.getLogger("fastapi_mcp_mrtr")

IDEMPOTENCY_KEY: Final = "io.github.fastapi-mcp-mrtr/idempotencyKey"
"""The `_meta` member with which a client makes its first request single-use too."""

_PURPOSE: Final = b"stored-response"
_KEY_PURPOSE: Final = b"ledger"
_MAX_KEY_LENGTH: Final = 255  # as most payment APIs allow for theirs

CLOCK_TOLERANCE: Final = 3600.0
"""Seconds by which the wall clock may be set back without reviving a state: a record outlives the
states of its flow by as much, so that a state that seems valid again is still known to be used."""

_STORE_ATTEMPTS: Final = 3

Produce = Callable[[], Awaitable[dict[str, Any]]]
"""Runs the round and gives the members of its result."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """What the ledger knows a request by: its flow, its round, and a digest of all else it says."""

    flow: str
    round: int
    fingerprint: str


class SingleUse:
    """Runs rounds that may be presented once. Holds settings only; the ledger has the records."""

    def __init__(
        self,
        ledger: Ledger,
        codec: RequestStateCodec,
        keys: KeyRing,
        *,
        lease: float,
        max_response_bytes: int,
    ) -> None:
        self._ledger = ledger
        self._codec = codec
        self._keys = keys
        self._lease = lease
        self._max_response_bytes = max_response_bytes

    def digest(self, *parts: Any, kid: str | None = None) -> str:
        """A keyed digest: the store's operator cannot guess answers and compare.

        `kid` names the secret, that of a state, so that a change of secrets changes nothing for it.
        """
        key = self._keys.derive(kid or self._keys.primary_kid, _KEY_PURPOSE)
        return hashlib.blake2b(canonical(list(parts)), key=key, digest_size=24).hexdigest()

    async def run(
        self, presentation: Presentation, call: Call, produce: Produce, *, ttl: float
    ) -> bytes:
        """The encoded result of the round: run now, or as it was stored.

        `ttl` is how long the next state of the flow will be valid.

        Raises:
            RequestStateError: the state was used already.
            MCPError: -31003 the ledger cannot be reached, and nothing ran or nothing was kept; or
                the error that the round ended with, now or then.
        """
        keep = ttl + self._lease + CLOCK_TOLERANCE
        while True:
            claim = await call.exchange.guard(self._claim(presentation, keep))
            if isinstance(claim, Answered):
                return self._open(presentation, claim.response)
            response = await self._run_claimed(presentation, claim, call, produce, keep)
            if response is not None:
                await call.commit()
                return _result(response)
            call.forget_commits()
            # The claim was lost: somebody else has run the round, and theirs is the response.

    async def _claim(self, presentation: Presentation, keep: float) -> Claimed | Answered:
        while True:
            try:
                claim = await self._ledger.claim(
                    presentation.flow,
                    presentation.round,
                    presentation.fingerprint,
                    lease=self._lease,
                    ttl=keep,
                )
            except LedgerUnavailable as error:
                raise _unavailable(error) from None
            match claim:
                case Held(retry_after):
                    await asyncio.sleep(retry_after)
                case Refused(reason):
                    raise RequestStateError(f"used already: {reason}")
                case _:
                    return claim

    async def _run_claimed(
        self, at: Presentation, claim: Claimed, call: Call, produce: Produce, keep: float
    ) -> bytes | None:
        """Run the round and store what comes of it; None if the claim was lost meanwhile."""
        call.is_takeover = claim.is_takeover
        try:
            response = await self._outcome(at, claim, produce)
        except BaseException as error:
            # Nothing of the handler ran where its dependencies failed or the answers were no
            # answers: the client may correct them and present the state again.
            ran = not (call.dependencies.solving or isinstance(error, UnreadableAnswer))
            with CancelScope(shield=True), suppress(LedgerUnavailable):
                await self._ledger.release(at.flow, at.round, claim.owner, ran=ran)
            raise
        try:
            sealed = self._seal(at, response)
        except HandlerError as error:
            known = internal_error(error, f"Flow {at.flow}")
            response = _error(known)
            sealed = self._seal(at, response)
        return response if await self._store(at, claim, sealed, keep) else None

    async def _outcome(self, at: Presentation, claim: Claimed, produce: Produce) -> bytes:
        """The round's result or error, encoded. Holds on to the claim while it runs."""
        keeper = _Keeper(self._ledger, at, claim.owner, self._lease)
        try:
            return b"R" + encode(await produce())
        except (MissingClientCapability, UnreadableAnswer):
            raise  # the client can do better with the same state
        except MCPError as error:
            return _error(error)
        finally:
            keeper.stop()

    async def _store(self, at: Presentation, claim: Claimed, sealed: bytes, keep: float) -> bool:
        answer = partial(self._ledger.answer, at.flow, at.round, claim.owner, sealed, ttl=keep)
        for _ in range(_STORE_ATTEMPTS - 1):
            with suppress(LedgerUnavailable):
                return await answer()
        try:
            return await answer()
        except LedgerUnavailable as error:
            raise _unavailable(error) from None

    def _seal(self, at: Presentation, response: bytes) -> bytes:
        # Who can write to the store must not be able to hand one flow another's response.
        place = canonical([at.flow, at.round])
        sealed = self._codec.seal(place + b"\n" + response, purpose=_PURPOSE).encode("ascii")
        if len(sealed) > self._max_response_bytes:
            raise HandlerError(
                f"The response takes {len(sealed)} bytes, over the {self._max_response_bytes} that "
                "a ledger keeps. Return a link to large content instead"
            )
        return sealed

    def _open(self, at: Presentation, sealed: bytes) -> bytes:
        try:
            stored = self._codec.unseal(sealed.decode("ascii"), purpose=_PURPOSE)
        except Exception as error:
            raise RequestStateError(f"stored response: {type(error).__name__}") from None
        place, _, response = stored.partition(b"\n")
        if not hmac.compare_digest(place, canonical([at.flow, at.round])):
            raise RequestStateError("stored response of another flow")
        return _result(response)


def idempotency_key(meta: dict[str, Any]) -> str | None:
    """The client's key for its first request, if it sent one.

    Raises:
        MCPError: -32602, it is not text of 1 to 255 characters.
    """
    key = meta.get(IDEMPOTENCY_KEY)
    if key is None:
        return None
    if not (isinstance(key, str) and 0 < len(key) <= _MAX_KEY_LENGTH):
        raise MCPError(INVALID_PARAMS, f'_meta["{IDEMPOTENCY_KEY}"] must be 1 to 255 characters')
    return key


class _Keeper:
    """Renews a claim while its round runs, from a third of the lease on."""

    __slots__ = ("_at", "_handle", "_lease", "_ledger", "_owner", "_task")

    def __init__(self, ledger: Ledger, at: Presentation, owner: str, lease: float) -> None:
        self._ledger = ledger
        self._at = at
        self._owner = owner
        self._lease = lease
        self._task: asyncio.Task[None] | None = None
        # Most rounds end before that, and cost no task.
        self._handle = asyncio.get_running_loop().call_later(lease / 3, self._start)

    def stop(self) -> None:
        self._handle.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        at = self._at
        while True:
            with suppress(LedgerUnavailable):
                if not await self._ledger.renew(at.flow, at.round, self._owner, lease=self._lease):
                    logger.warning("Flow %s, round %d: claim lost while it ran", at.flow, at.round)
                    return
            await asyncio.sleep(self._lease / 3)


def _error(error: MCPError) -> bytes:
    return b"E" + encode([error.code, error.message, error.data])


def _result(response: bytes) -> bytes:
    """The result of a stored response. Raises its error, if it ended with one."""
    if response[:1] == b"R":
        return response[1:]
    code, message, data = from_json(response[1:])
    raise MCPError(code, message, data)


def _unavailable(error: LedgerUnavailable) -> MCPError:
    logger.error("The ledger is unavailable: %s", error)
    return MCPError(LEDGER_UNAVAILABLE, "Try again later", {"retryable": True})
