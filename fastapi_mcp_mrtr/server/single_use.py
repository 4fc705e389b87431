"""Exactly once, seen from the client: claim a round in the ledger, run it, store its response.

The same presentation again gets the stored response and nothing runs; whoever presents a used state
with other answers gets the frozen error. What becomes of a round that was claimed:

| it ended with | the ledger | the same again | other answers |
|---|---|---|---|
| a result or an ask, `isError` or an error | has the response | gets it | refused |
| a dependency's failure, answers that are none | gives the claim up | runs | run |
| a capability missing, the client leaving | knows that it ran | takes over | refused |
| a crash, no store to record it in | knows after the lease | takes over | refused |

Knows no handler, no method and no store.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

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
from fastapi_mcp_mrtr.state.security import FlowState, RequestBinding
from fastapi_mcp_mrtr.state.workers import warn_if_process_local

from .calls import Call, ClientLeft, uninterrupted
from .failures import internal_error

logger = logging.getLogger("fastapi_mcp_mrtr")

IDEMPOTENCY_KEY: Final = "io.github.fastapi-mcp-mrtr/idempotencyKey"
"""The `_meta` member with which a client makes its first request single-use too."""

CLOCK_TOLERANCE: Final = 3600.0
"""Seconds by which clocks may step without reviving a state: a record outlives the states of its
flow by as much, so that a state that seems valid again is still known to be used."""

_MAX_KEY_LENGTH: Final = 255  # as most payment APIs allow for theirs
_FLOW_ID_LENGTH: Final = 32
_STORE_ATTEMPTS: Final = 3

_RESPONSE: Final = b"stored-response"
_FINGERPRINT: Final = b"ledger"

Produce = Callable[[], Awaitable[bytes]]
"""Runs the round and gives its result, encoded."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """What the ledger knows a request by: its flow, its round, and a digest of all else it says."""

    flow: str
    round: int
    fingerprint: str

    def __str__(self) -> str:
        return f"Flow {self.flow}, round {self.round}"


class SingleUse:
    """Runs rounds that may be presented once. Holds settings only; the ledger has the records."""

    def __init__(
        self,
        ledger: Ledger,
        codec: RequestStateCodec,
        keys: KeyRing,
        *,
        audience: str,
        lease: float,
        max_response_bytes: int,
    ) -> None:
        self._ledger = ledger
        self._codec = codec
        self._keys = keys
        self._audience = audience
        self._lease = lease
        self._max_response_bytes = max_response_bytes

    def first(
        self, key: Any, binding: RequestBinding, responses: Mapping[str, Any] | None
    ) -> Presentation:
        """A first request, known by the idempotency key its client sent. The flow is the key's.

        Raises:
            MCPError: -32602, the key is not text of 1 to 255 characters.
        """
        if not (isinstance(key, str) and 0 < len(key) <= _MAX_KEY_LENGTH):
            problem = f'_meta["{IDEMPOTENCY_KEY}"] must be a string of 1 to 255 characters'
            raise MCPError(INVALID_PARAMS, problem)
        # Under no secret: workers that differ in their primary one, as they do while it is being
        # replaced, must come to the same. To whoever reads the store the key is the secret.
        principal = binding.principal.decode()
        named = [key, self._audience, principal, binding.method, binding.target]
        said = [*named, binding.arguments_digest, binding.version, responses]
        flow = hashlib.sha256(canonical(named)).hexdigest()[:_FLOW_ID_LENGTH]
        return Presentation(flow, 0, hashlib.sha256(canonical(said)).hexdigest())

    def later(
        self, flow: FlowState, token: str, responses: Mapping[str, Any] | None
    ) -> Presentation:
        """A request that brings a state, which was opened."""
        # Keyed, so that whoever reads the store cannot guess answers and compare; with the secret
        # of the state, so that replacing secrets changes nothing for it.
        secret = self._keys.derive(flow.kid or self._keys.primary_kid, _FINGERPRINT)
        said = hashlib.blake2b(canonical([token, responses]), key=secret, digest_size=24)
        return Presentation(flow.flow_id, flow.round, said.hexdigest())

    async def run(self, at: Presentation, call: Call, produce: Produce, *, ttl: float) -> bytes:
        """The encoded result of the round: run now, or as it was stored.

        `ttl` is how long states of the flow may still be presented.

        Raises:
            RequestStateError: the state was used already.
            MCPError: -31003, the ledger cannot be reached, and nothing ran or nothing was kept; or
                the error that the round ended with, now or then.
        """
        keep = ttl + self._lease + CLOCK_TOLERANCE
        claim = await self._present(at, call, keep)
        if isinstance(claim, Claimed):
            response = await self._run_claimed(at, claim, call, produce, keep)
            if response is not None:
                return _result(response)
            # Somebody took over while it ran, so theirs is the response.
            claim = await self._claim(at, keep)
        if isinstance(claim, Claimed):
            # They gave up. Their run was this one's second already; a third is for a new request.
            await uninterrupted(self._release(at, claim, ran=True))
            raise _try_again("its claim was lost, and so was the one that took over", at)
        return self._open(at, claim.response)

    async def note(self, at: Presentation, text: bytes, *, ttl: float) -> bytes:
        """Keep a text where none is kept: the text that is, which may be somebody else's.

        One that is over `max_response_bytes` is not kept; the log says so. `ttl` is how long
        somebody may want it.

        Raises:
            RequestStateError: there is one of a later round already.
            MCPError: -31003, the ledger cannot be reached.
        """
        keep = ttl + self._lease + CLOCK_TOLERANCE
        sealed = self._seal(at, b"R" + text)
        if len(sealed) > self._max_response_bytes:
            logger.warning("%s: too large to be kept, so the call cannot be made again", at)
            return text
        while isinstance(claim := await self._claim(at, keep), Claimed):
            if await uninterrupted(self._store(at, claim, sealed, keep, but="answered, but")):
                return text
        return self._open(at, claim.response)

    async def noted(self, at: Presentation, *, ttl: float) -> bytes | None:
        """The text that is kept, if one is. If none is, earlier rounds are over for `ttl` seconds.

        Raises:
            RequestStateError: there is one of a later round, or it cannot be read.
            MCPError: -31003, the ledger cannot be reached.
        """
        # To look is to claim. It is given up again, and leaves the number of the round.
        claim = await self._claim(at, ttl + self._lease + CLOCK_TOLERANCE)
        if isinstance(claim, Claimed):
            await uninterrupted(self._release(at, claim, ran=False))
            return None
        return self._open(at, claim.response)

    async def _present(self, at: Presentation, call: Call, keep: float) -> Claimed | Answered:
        """Claim, or wait for who has, as long as the client does."""
        made: list[Claimed | Answered] = []

        async def claim() -> None:
            made.append(await self._claim(at, keep))

        try:
            await call.exchange.guard(claim())
        except ClientLeft:
            # It left while the ledger could not be interrupted, as in a thread of its own.
            if made and isinstance(made[0], Claimed):
                await uninterrupted(self._release(at, made[0], ran=False))
            raise
        return made[0]

    async def _claim(self, at: Presentation, keep: float) -> Claimed | Answered:
        while True:
            try:
                claim = await self._ledger.claim(
                    at.flow, at.round, at.fingerprint, lease=self._lease, ttl=keep
                )
            except LedgerUnavailable as error:
                raise _try_again(f"the ledger is unavailable: {error}", at) from None
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
        """Run the round and record what comes of it; None if the claim was lost meanwhile."""
        call.is_takeover = claim.is_takeover
        try:
            response = await self._outcome(at, claim, produce)
        except BaseException as error:
            # Where dependencies failed or answers were none, the handler did nothing that it had
            # not done before: the client may correct them and present the state again.
            nothing_new = isinstance(error, UnreadableAnswer) and not error.after_step
            ran = not (call.dependencies.solving or nothing_new)
            await uninterrupted(self._release(at, claim, ran=ran))
            raise
        # What was done is recorded, and what was recorded has its effects, whoever has left.
        return await uninterrupted(self._record(at, claim, call, response, keep))

    async def _outcome(self, at: Presentation, claim: Claimed, produce: Produce) -> bytes:
        """The round's response, a result or an error. Holds on to the claim while it runs."""
        keeper = _Keeper(self._ledger, at, claim.owner, self._lease)
        try:
            return b"R" + await produce()
        except (MissingClientCapability, UnreadableAnswer):
            raise  # the client can do better with the same state
        except MCPError as error:
            return _error(error)
        finally:
            keeper.stop()

    async def _record(
        self, at: Presentation, claim: Claimed, call: Call, response: bytes, keep: float
    ) -> bytes | None:
        sealed = self._seal(at, response)
        if len(sealed) > self._max_response_bytes:
            call.forget_commits()
            too_large = HandlerError(
                f"The response takes {len(sealed)} bytes, over the {self._max_response_bytes} that "
                "a ledger keeps. Return a link to large content instead"
            )
            response = _error(internal_error(too_large, str(at)))
            sealed = self._seal(at, response)
        if not await self._store(at, claim, sealed, keep):
            return None
        await call.commit()
        return response

    async def _store(
        self,
        at: Presentation,
        claim: Claimed,
        sealed: bytes,
        keep: float,
        *,
        but: str = "it ran, but",
    ) -> bool:
        reason = ""
        for _ in range(_STORE_ATTEMPTS):
            try:
                return await self._ledger.answer(at.flow, at.round, claim.owner, sealed, ttl=keep)
            except LedgerUnavailable as error:
                reason = str(error)
        raise _try_again(f"{but} the ledger is unavailable: {reason}", at)

    async def _release(self, at: Presentation, claim: Claimed, *, ran: bool) -> None:
        with suppress(LedgerUnavailable):
            await self._ledger.release(at.flow, at.round, claim.owner, ran=ran)

    def _seal(self, at: Presentation, response: bytes) -> bytes:
        warn_if_process_local(self._keys)
        # Who can write to the store must not be able to hand one flow another's response.
        place = canonical([at.flow, at.round])
        return self._codec.seal(place + b"\n" + response, purpose=_RESPONSE).encode("ascii")

    def _open(self, at: Presentation, sealed: bytes) -> bytes:
        try:
            stored = self._codec.unseal(sealed.decode("ascii"), purpose=_RESPONSE)
        except RequestStateError as error:
            raise RequestStateError(f"stored response: {error.reason}") from None
        except Exception as error:
            raise RequestStateError(f"stored response: {type(error).__name__}") from None
        place, _, response = stored.partition(b"\n")
        if not hmac.compare_digest(place, canonical([at.flow, at.round])):
            raise RequestStateError("stored response of another flow")
        return _result(response)


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
                    logger.warning("%s: claim lost while it ran", at)
                    return
            await asyncio.sleep(self._lease / 3)


def _error(error: MCPError) -> bytes:
    try:
        return b"E" + encode([error.code, error.message, error.data])
    except ValueError:  # data that JSON cannot carry, which would not have been sent either
        return b"E" + encode([error.code, error.message, None])


def _result(response: bytes) -> bytes:
    """The result of a stored response. Raises its error, if it ended with one."""
    if response[:1] == b"R":
        return response[1:]
    code, message, data = from_json(response[1:])
    raise MCPError(code, message, data)


def _try_again(why: str, at: Presentation) -> MCPError:
    logger.error("%s: %s", at, why)
    return MCPError(LEDGER_UNAVAILABLE, "Try again later", {"retryable": True})
