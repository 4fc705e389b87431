"""What a `requestState` is bound to and what is checked when it comes back. No codec, no clock.

The codec vouches that this server wrote the payload. That is not enough: a genuine state may come
from another user, for another call, or a day late. So every binding is sealed and compared on each
round, one by one, and each condition says what is accepted, so that a NaN or a claim that is
missing rejects. The client reads one frozen sentence; `RequestStateError.reason` names the check
that failed, in words of this package: never a token, an answer or a journal value.
"""

import json
import math
import sys
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from fastapi_mcp_mrtr.errors import HandlerError, RequestStateError, RequestStateTooLarge
from fastapi_mcp_mrtr.rounds.journal import Journal

from .codec import REQUEST_STATE, RequestStateCodec
from .keys import KeyRing
from .sealed import PRINCIPAL, Claims, KeyedHash, open_token, require
from .workers import warn_if_process_local

LEEWAY: Final = 60.0
"""Seconds by which another worker's clock may be ahead of ours."""

_FORMAT: Final = 1


class _Claims(NamedTuple):
    """The payload, a JSON array in this order. A change of any kind needs another `_FORMAT`."""

    format: int
    audience: str
    issued: float
    expires: float
    started: float
    ends: float
    flow_id: str
    round: int
    asked: int
    kid: str
    principal: str
    method: str
    target: str
    arguments: str
    version: str | None
    journal: dict[str, Any]


_CLAIMS: Final = Claims(_Claims, format=_FORMAT)


@dataclass(slots=True)
class RequestBinding:
    """What makes one request the same call as another: a state opens for an equal binding only."""

    method: str
    target: str
    """The name of the tool or prompt, or the resource's URI."""
    arguments_digest: str
    principal: bytes
    """From `principal_key_bytes`; sealed as a keyed hash, so that a token carries no user data."""
    version: str | None = None
    """The handler's `version=` tag."""


@dataclass(slots=True)
class FlowState:
    """Where a flow stands between two rounds. One is made anew for each, and never changed."""

    flow_id: str
    round: int
    """The round that minted the state, counted from 1."""
    started: float
    """When the first round ran, in seconds since the epoch."""
    journal: Journal
    asked: int = 0
    """How many of the rounds asked something, as opposed to `not_yet()`."""
    kid: str | None = field(default=None, compare=False)
    """The primary secret's label when the state was minted; `None` before the first one."""
    expires: float = field(default=0.0, compare=False)
    """Until when the state is good, in seconds since the epoch; 0 before the first one."""


class StateSecurity:
    """Turn a `FlowState` into the `requestState` a client carries, and back if all is well."""

    def __init__(
        self, codec: RequestStateCodec, keys: KeyRing, *, audience: str, max_state_bytes: int
    ) -> None:
        self._codec = codec
        self._keys = keys
        self._principals = KeyedHash(keys, PRINCIPAL)
        self._audience = audience
        self._max_bytes = max_state_bytes

    def seal(
        self,
        flow: FlowState,
        binding: RequestBinding,
        *,
        now: float,
        ttl: float,
        flow_lifetime: float,
    ) -> str:
        """Mint the state of one round: good for `ttl` seconds, within the lifetime of its flow.

        Raises: RequestStateTooLarge; HandlerError when the journal cannot be written as JSON.
        """
        warn_if_process_local(self._keys)
        kid = self._keys.primary_kid
        claims = _Claims(
            format=_FORMAT,
            audience=self._audience,
            issued=now,
            expires=now + ttl,
            started=flow.started,
            ends=flow.started + flow_lifetime,
            flow_id=flow.flow_id,
            round=flow.round,
            asked=flow.asked,
            kid=kid,
            principal=self._principals.make(kid, binding.principal),
            method=binding.method,
            target=binding.target,
            arguments=binding.arguments_digest,
            version=binding.version,
            journal=flow.journal.to_json_obj(),
        )
        token = self._codec.seal(_encode(claims), purpose=REQUEST_STATE)
        if not (isinstance(token, str) and token.isascii()):
            raise TypeError("A RequestStateCodec must seal to a str of ASCII.")
        if not len(token) <= self._max_bytes:
            raise RequestStateTooLarge(len(token), self._max_bytes, flow.journal.largest_key())
        return token

    def unseal(self, token: object, binding: RequestBinding, *, now: float) -> FlowState:
        """Open a state that came back with a request.

        Raises: RequestStateError, whatever is wrong with it.
        """
        claims = self._open(token)
        require(claims.audience == self._audience, "other audience")
        require(claims.issued <= now + LEEWAY, "issued in the future")
        require(claims.started <= now + LEEWAY, "flow started in the future")
        require(now < claims.ends < math.inf, "flow lifetime over")
        require(now < claims.expires < math.inf, "expired")
        require(
            self._principals.fits(claims.principal, claims.kid, binding.principal),
            "other principal",
        )
        require(claims.method == binding.method, "other method")
        require(claims.target == binding.target, "other target")
        require(claims.arguments == binding.arguments_digest, "other arguments")
        require(claims.version == binding.version, "other handler version")
        require(0 <= claims.asked <= claims.round and claims.round >= 1, "impossible round")
        return FlowState(
            flow_id=claims.flow_id,
            round=claims.round,
            started=claims.started,
            journal=_journal(claims),
            asked=claims.asked,
            kid=claims.kid,
            expires=claims.expires,
        )

    def describe(self, token: object, principal: bytes) -> dict[str, Any]:
        """What a state of this principal says, for a developer to read. It need not be usable any
        more: expiry and the call that it belongs to are told, not checked.

        Raises: RequestStateError, it is no state of this server's, or somebody else's.
        """
        claims = self._open(token)
        require(claims.audience == self._audience, "other audience")
        require(self._principals.fits(claims.principal, claims.kid, principal), "other principal")
        said = _described(claims)
        del said["principal"]
        return said

    def _open(self, token: object) -> _Claims:
        payload = open_token(
            self._codec,
            token,
            purpose=REQUEST_STATE,
            max_bytes=self._max_bytes,
            limit="max_state_bytes",
        )
        return _CLAIMS.read(payload)


def describe_state(codec: RequestStateCodec, token: str) -> dict[str, Any]:
    """What a state says, for whoever has the secrets. Only its seal is checked.

    Raises: RequestStateError, it is none, or sealed with another secret.
    """
    payload = open_token(
        codec, token, purpose=REQUEST_STATE, max_bytes=sys.maxsize, limit="any length"
    )
    return _described(_CLAIMS.read(payload))


def _described(claims: _Claims) -> dict[str, Any]:
    return {**claims._asdict(), "journal": _journal(claims).described()}


def _journal(claims: _Claims) -> Journal:
    try:
        return Journal.from_json_obj(claims.journal)
    except Exception:
        raise RequestStateError("journal of another shape") from None


def _encode(claims: _Claims) -> bytes:
    try:
        return to_json([*claims], inf_nan_mode="constants")
    except ValueError:
        pass
    # Lone surrogates and deep nesting, which the fast writer refuses.
    try:
        return json.dumps(claims, separators=(",", ":")).encode("ascii")
    except (ValueError, TypeError, RecursionError) as error:
        raise HandlerError(f"The journal is not JSON ({type(error).__name__}).") from error
