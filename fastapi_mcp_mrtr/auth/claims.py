"""What the claims about an access token must say. Pure: no signature, no clock, no I/O.

The same for a JWT and for what an introspection endpoint answers. Each condition says what is
accepted, so that a NaN, an overflow or a claim of another type rejects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .principal import CLIENT_CLAIMS, claim_fault
from .token import InvalidToken, VerifiedToken, identified
from .urls import canonical, checked_url

SCOPE_CLAIMS: Final = ("scope", "scp")

_MAX_LEEWAY: Final = 300.0  # "no more than a few minutes" (RFC 7519 §4.1.4)
_MAX_TIME: Final = 2.0**53  # beyond it a float is no exact number of seconds


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """Which issuer and audience are ours, and what else a token needs."""

    issuer: str
    audiences: frozenset[str]
    leeway: float
    scope_claims: tuple[str, ...]
    essential: tuple[str, ...]
    """Claims that must be there; the others are checked where they are."""

    @classmethod
    def of(
        cls,
        *,
        issuer: str,
        audience: str | Iterable[str],
        leeway: float,
        scope_claims: Iterable[str],
        essential: tuple[str, ...],
    ) -> "ClaimRules":
        """Read the settings of a verifier.

        Raises: TypeError, ValueError; a setting makes no sense.
        """
        audiences = (audience,) if isinstance(audience, str) else tuple(audience)
        if not audiences or not all(isinstance(each, str) and each for each in audiences):
            raise ValueError(f"audience={audience!r} must name this server; it is never guessed.")
        if not 0 <= leeway <= _MAX_LEEWAY:
            raise ValueError(f"leeway={leeway!r} must be 0 to {_MAX_LEEWAY:.0f} seconds.")
        if isinstance(scope_claims, str):
            raise TypeError(f"scope_claims takes a list of names, not {scope_claims!r}.")
        return cls(
            issuer=checked_url("issuer", issuer),
            audiences=frozenset(map(canonical, audiences)),
            leeway=leeway,
            scope_claims=tuple(scope_claims),
            essential=essential,
        )

    def read(self, claims: Mapping[str, Any], *, now: float) -> VerifiedToken:
        """Turn claims into a verified token.

        Raises: InvalidToken, whatever is wrong with them.
        """
        missing = next((name for name in self.essential if claims.get(name) is None), None)
        _require(missing is None, f"no {missing}")
        _require(claims.get("iss", self.issuer) == self.issuer, "other issuer")
        audience = _strings(claims.get("aud"), "aud")
        _require(any(canonical(each) in self.audiences for each in audience), "other audience")
        expires: Any = claims.get("exp")
        _require(_is_time(expires) and now - self.leeway < expires, "expired")
        for name in ("nbf", "iat"):
            since: Any = claims.get(name)
            accepted = since is None or (_is_time(since) and since <= now + self.leeway)
            _require(accepted, f"{name} in the future")
        # Bound to a key whose proof is not checked here: it is no bearer token (RFC 9449 §7.1).
        _require(claims.get("cnf") is None, "bound to a key")
        named_by = next((name for name in CLIENT_CLAIMS if claims.get(name) is not None), None)
        client = None if named_by is None else _name(claims, named_by)
        _require(claims.get("sub", client) is not None, "no subject")
        subject = _name(claims, "sub") if "sub" in claims else None
        token = VerifiedToken(
            issuer=self.issuer,
            subject=subject,
            client_id=client,
            scopes=self._scopes(claims),
            audience=tuple(audience),
            expires_at=float(expires),
            claims=claims,
        )
        return identified(token)

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        scopes: set[str] = set()
        for name in self.scope_claims:
            value = claims.get(name)
            if value is not None:
                scopes.update(value.split(" ") if isinstance(value, str) else _strings(value, name))
        return frozenset(filter(None, scopes))


def _require(accepted: bool, otherwise: str) -> None:
    if not accepted:
        raise InvalidToken(otherwise)


def _strings(value: Any, name: str) -> list[str]:
    """A string, or a list of strings, as a list."""
    strings = [value] if isinstance(value, str) else value
    _require(
        isinstance(strings, list) and all(isinstance(each, str) for each in strings),
        f"{name} of another type",
    )
    return strings


def _name(claims: Mapping[str, Any], claim: str) -> str:
    name: Any = claims[claim]
    fault = claim_fault(claim, name, str)
    if fault is not None:
        raise InvalidToken(fault)
    return str(name)


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -_MAX_TIME <= value <= _MAX_TIME
    )
