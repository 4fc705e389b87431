"""What a verified access token says, and how a verifier refuses one. Knows no token format.

The token itself is not here: who holds a `VerifiedToken` can act for the caller within this server
and nowhere else (security-considerations §Access Token Privilege Restriction).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

from .principal import claims_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedToken:
    """Who calls, through which client, with which scopes.

    It is what `ProtectedResource` returns, so what `Context.principal` is. Make one yourself to
    stand in for a login in tests:

    ```python
    alice = VerifiedToken(issuer="https://as.example.com", subject="alice")
    app.dependency_overrides[auth] = lambda: alice
    ```
    """

    issuer: str
    subject: str | None = None
    """`sub`: the user, unique per issuer. `None` for a client that acts for itself."""
    client_id: str | None = None
    """`client_id`, else `azp`, else `appid`."""
    scopes: frozenset[str] = frozenset()
    audience: tuple[str, ...] = ()
    expires_at: float = inf
    """Seconds since the epoch."""
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    """Everything the issuer said, read-only."""

    def __post_init__(self) -> None:
        """Raises: TypeError: `scopes` is one string, whose letters would be the scopes."""
        scopes: object = self.scopes
        if isinstance(scopes, str):
            raise TypeError(f"scopes takes a set of strings, not the string {scopes!r}.")
        object.__setattr__(self, "claims", MappingProxyType(dict(self.claims)))

    @property
    def mcp_principal_key(self) -> Mapping[str, Any]:
        """The claims that identify the caller: what `requestState` is bound to.

        Issuer, subject, client and tenant, whichever there are. Nothing that a refresh or a
        step-up changes is part of it.
        """
        identity = {**self.claims, "iss": self.issuer}
        if self.client_id is not None:
            identity["client_id"] = self.client_id
        if self.subject is not None:
            identity["sub"] = self.subject
        return identity


class InvalidToken(Exception):
    """The token is not acceptable: 401, with one frozen sentence for every cause.

    `reason` says why, in the log. It quotes nothing of the token.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def identified(token: VerifiedToken) -> VerifiedToken:
    """The same token, whose caller can be identified by its claims.

    Raises: InvalidToken: the issuer, subject, client or tenant is neither an integer nor a string
        with something in it.
    """
    fault = claims_fault(token.mcp_principal_key)
    if fault is not None:
        raise InvalidToken(fault)
    return token


class KeysUnavailable(Exception):
    """Whether the token is good cannot be told at the moment: 503 and `Retry-After`.

    Not 401, which would make clients throw good tokens away.
    """

    def __init__(self, reason: str, *, retry_after: int = 5) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        """Seconds."""


class TokenVerifier(Protocol):
    """What `ProtectedResource(verifier=...)` needs.

    A verifier with an attribute `issuer` is checked against `authorization_servers` at once.
    """

    async def verify(self, token: str) -> VerifiedToken:
        """Verify a token, of which nothing is known but that it is of at most 16 KiB of ASCII.

        Raises: InvalidToken, KeysUnavailable.
        """
        ...
