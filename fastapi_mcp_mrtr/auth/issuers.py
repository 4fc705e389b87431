"""Several issuers behind one resource: which of their verifiers a token goes to.

The `iss` that is read here is unverified and only routes; each verifier checks it again. A token
of an unknown issuer goes to nobody, least of all to another issuer's introspection endpoint.
"""

from base64 import urlsafe_b64decode
from collections.abc import Iterable
from typing import Protocol

from pydantic_core import from_json

from .token import InvalidToken, TokenVerifier, VerifiedToken


class IssuerVerifier(TokenVerifier, Protocol):
    """A verifier for the tokens of one issuer."""

    @property
    def issuer(self) -> str: ...


class SeveralIssuers:
    """Verifies the tokens of several issuers.

    Tokens that are no JWTs go to the verifier that takes them, if exactly one does.

    Raises:
        ValueError: two verifiers are for the same issuer.
    """

    def __init__(self, verifiers: Iterable[IssuerVerifier]) -> None:
        self._by_issuer: dict[str, IssuerVerifier] = {}
        for verifier in verifiers:
            if verifier.issuer in self._by_issuer:
                raise ValueError(f"Two verifiers are for the issuer {verifier.issuer!r}.")
            self._by_issuer[verifier.issuer] = verifier
        opaque = [v for v in self._by_issuer.values() if getattr(v, "takes_opaque_tokens", False)]
        self._opaque = opaque[0] if len(opaque) == 1 else None

    @property
    def issuers(self) -> tuple[str, ...]:
        """All issuers, in the order of their verifiers."""
        return tuple(self._by_issuer)

    async def verify(self, token: str) -> VerifiedToken:
        """As `TokenVerifier`.

        Raises: InvalidToken, KeysUnavailable.
        """
        claims = _unverified_claims(token)
        verifier = self._opaque if claims is None else self._by_issuer.get(str(claims.get("iss")))
        if verifier is None:
            raise InvalidToken("unknown issuer")
        return await verifier.verify(token)


def _unverified_claims(token: str) -> dict[str, object] | None:
    """What stands where the claims of a JWT would be, or `None` if that is no JSON object."""
    try:
        _, payload, _ = token.split(".")
        claims = from_json(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return None
    return claims if isinstance(claims, dict) else None
