"""Session ids of older revisions: sealed tokens that say what was agreed. No clock, no HTTP.

A session is kept by nobody. Its id says everything that was agreed, so any worker serves any of its
requests, and a server that restarts with the same secret knows its sessions. As with a
`requestState`, each condition says what is accepted, and the id is bound to the principal that
opened the session: to everybody else it is no session at all.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

from fastapi_mcp_mrtr.errors import RequestStateError, SessionNotFound
from fastapi_mcp_mrtr.state import sealed
from fastapi_mcp_mrtr.state.codec import SESSION, RequestStateCodec
from fastapi_mcp_mrtr.state.keys import KeyRing
from fastapi_mcp_mrtr.state.workers import warn_if_process_local

MAX_SESSION_ID_BYTES: Final = 4096
"""What a session id may be long, as a header: half of what nginx takes in one line by default."""

MAX_INFO_CHARACTERS: Final = 100
"""What is kept of each string in `clientInfo`: names are for people and the log."""

_UID_BYTES: Final = 16
_FORMAT: Final = 1

_KEPT_CAPABILITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "elicitation": ("form", "url"),
    "sampling": ("context", "tools"),
    "roots": (),
}
"""The capabilities that decide what may be asked, and their members."""

_KEPT_INFO: Final = ("name", "title", "version")


class _Claims(NamedTuple):
    """The payload, a JSON array in this order. A change of any kind needs another `_FORMAT`."""

    format: int
    audience: str
    expires: float
    kid: str
    principal: str
    uid: str
    version: str
    capabilities: dict[str, Any]
    client_info: dict[str, Any] | None


_CLAIMS: Final = sealed.Claims(_Claims, format=_FORMAT)


@dataclass(frozen=True, slots=True)
class Session:
    """What a client and this server agreed at `initialize` (basic/lifecycle §Initialization)."""

    uid: str
    """Unguessable, and the name of the session in a store and in the log."""
    version: str
    """The revision that was negotiated."""
    capabilities: dict[str, Any]
    client_info: dict[str, Any] | None
    expires: float
    """Until when, in seconds since the epoch."""

    @classmethod
    def begin(
        cls,
        *,
        version: str,
        capabilities: Mapping[str, Any],
        client_info: Mapping[str, Any] | None,
        expires: float,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> Self:
        """A new session, with what an id has room for.

        Of the capabilities those stay that decide what may be asked, without what they may contain
        beside; of `clientInfo` the first characters of name, title and version.
        """
        return cls(
            uid=entropy(_UID_BYTES).hex(),
            version=version,
            capabilities=_capabilities(capabilities),
            client_info=None if client_info is None else _info(client_info),
            expires=expires,
        )


class SessionSecurity:
    """Turn a `Session` into the `Mcp-Session-Id` a client carries, and back if all is well."""

    def __init__(self, codec: RequestStateCodec, keys: KeyRing, *, audience: str) -> None:
        self._codec = codec
        self._keys = keys
        self._principals = sealed.KeyedHash(keys, sealed.PRINCIPAL)
        # However long the name of a server is, the id has a place for it.
        name = audience.encode("utf-8", "surrogatepass")
        self._audience = blake2b(name, digest_size=16).hexdigest()

    def seal(self, session: Session, *, principal: bytes) -> str:
        """Mint the id of a session from `Session.begin`.

        Raises: ValueError, when the codec makes it longer than a header may be.
        """
        warn_if_process_local(self._keys)
        kid = self._keys.primary_kid
        claims = _Claims(
            format=_FORMAT,
            audience=self._audience,
            expires=session.expires,
            kid=kid,
            principal=self._principals.make(kid, principal),
            uid=session.uid,
            version=session.version,
            capabilities=session.capabilities,
            client_info=session.client_info,
        )
        # The slower writer takes lone surrogates too, and a session begins once.
        payload = json.dumps(claims, separators=(",", ":")).encode("ascii")
        token = self._codec.seal(payload, purpose=SESSION)
        # Visible ASCII (transports §Session Management); a space would not survive a header.
        if not (isinstance(token, str) and token.isascii() and token.isprintable()):
            raise TypeError("A RequestStateCodec must seal to a str of ASCII.")
        if not (len(token) <= MAX_SESSION_ID_BYTES and " " not in token):
            raise ValueError(
                f"The codec made a session id of {len(token)} characters; at most "
                f"{MAX_SESSION_ID_BYTES} without a space fit into a header."
            )
        return token

    def unseal(self, token: str, *, principal: bytes, now: float) -> Session:
        """Open a session id that came with a request.

        Raises: SessionNotFound, whatever is wrong with it.
        """
        try:
            return self._unseal(token, principal, now)
        except RequestStateError as error:
            raise SessionNotFound(error.reason) from None

    def _unseal(self, token: str, principal: bytes, now: float) -> Session:
        payload = sealed.open_token(
            self._codec,
            token,
            purpose=SESSION,
            max_bytes=MAX_SESSION_ID_BYTES,
            limit="a session id",
        )
        claims = _CLAIMS.read(payload)
        sealed.require(claims.audience == self._audience, "other audience")
        sealed.require(now < claims.expires < math.inf, "expired")
        sealed.require(
            self._principals.fits(claims.principal, claims.kid, principal), "other principal"
        )
        return Session(
            uid=claims.uid,
            version=claims.version,
            capabilities=claims.capabilities,
            client_info=claims.client_info,
            expires=claims.expires,
        )


def _capabilities(declared: Mapping[str, Any]) -> dict[str, Any]:
    """The capabilities that count; one that is no object declares nothing."""
    return {
        name: {member: {} for member in members if isinstance(capability.get(member), Mapping)}
        for name, members in _KEPT_CAPABILITIES.items()
        if isinstance(capability := declared.get(name), Mapping)
    }


def _info(info: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: info[name][:MAX_INFO_CHARACTERS]
        for name in _KEPT_INFO
        if isinstance(info.get(name), str)
    }
