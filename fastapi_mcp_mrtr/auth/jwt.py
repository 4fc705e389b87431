"""Access tokens that are JWTs, verified with the issuer's public keys. Knows no HTTP.

The signature is joserfc's business, the claims are those of `claims.py`. Between them stands what
a signature does not say: which algorithms count, and that the token was made to be an access token.
"""

from collections.abc import Callable, Iterable, Mapping
from time import time
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic_core import from_json

from .claims import SCOPE_CLAIMS, ClaimRules
from .token import InvalidToken, KeysUnavailable, VerifiedToken

if TYPE_CHECKING:
    from .jwks import Fetch, JWKSCache

Profile = Literal["rfc9068", "jwt"]

_TYPES: Final[Mapping[str, frozenset[str | None]]] = {
    "rfc9068": frozenset({"at+jwt", "application/at+jwt"}),
    "jwt": frozenset({"at+jwt", "application/at+jwt", "jwt", None}),
}
"""The `typ` headers, in lower case, that each profile takes for an access token (RFC 9068 §4)."""

_ESSENTIAL: Final = ("iss", "sub", "aud", "exp", "iat")


class JWTVerifier:
    """Verifies JWT access tokens of one issuer.

    ```python
    JWTVerifier(
        issuer="https://as.example.com",
        audience="https://api.example.com/mcp",
        jwks_uri="https://as.example.com/jwks.json",
    )
    ```

    Args:
        issuer: the `iss` of its tokens, byte for byte.
        audience: what `aud` must name; several, if a token may name any of them.
        jwks_uri: where the issuer publishes its keys. Needs the extra `[oauth]`, or `fetch=`.
        jwks: the keys themselves: a JWK set, or a `JWKSCache` with settings of its own.
        fetch: gets `jwks_uri` in place of httpx2.
        profile: "rfc9068" takes tokens whose `typ` is `at+jwt`; "jwt" also those with `JWT` or
            none, as Keycloak, Entra ID and Auth0 make them. ID tokens look like those: have scopes
            required, or an audience that is no client's id.
        algorithms: the signature algorithms that count. Symmetric ones never do.
        leeway: seconds by which the issuer's clock may differ from ours.
        scope_claims: which claims hold scopes, as a list or separated by spaces.
        clock: seconds since the epoch.

    Raises:
        ImportError: joserfc is not installed, or httpx2 is needed and not installed.
        ValueError, TypeError: a setting makes no sense.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Iterable[str],
        jwks_uri: str | None = None,
        jwks: "Mapping[str, Any] | JWKSCache | None" = None,
        fetch: "Fetch | None" = None,
        profile: Profile = "rfc9068",
        algorithms: Iterable[str] = ("RS256", "ES256", "PS256", "Ed25519"),
        leeway: float = 30.0,
        scope_claims: Iterable[str] = SCOPE_CLAIMS,
        clock: Callable[[], float] = time,
    ) -> None:
        try:
            from .jwks import key_source
            from .jws import Signatures
        except ModuleNotFoundError as error:
            raise ImportError(
                f"JWTVerifier needs {error.name}: pip install 'fastapi-mcp-mrtr[oauth]'"
            ) from error

        self._rules = ClaimRules.of(
            issuer=issuer,
            audience=audience,
            leeway=leeway,
            scope_claims=scope_claims,
            essential=_ESSENTIAL,
        )
        if profile not in _TYPES:
            raise ValueError(f"profile={profile!r} is none of {', '.join(_TYPES)}.")
        self._types = _TYPES[profile]
        self._signatures = Signatures(algorithms)
        self._keys = key_source(jwks_uri, jwks, fetch, clock)
        self._clock = clock

    @property
    def issuer(self) -> str:
        """The issuer whose tokens this verifies."""
        return self._rules.issuer

    def __repr__(self) -> str:
        return f"JWTVerifier(issuer={self.issuer!r})"

    async def verify(self, token: str) -> VerifiedToken:
        """As `TokenVerifier`.

        Raises: InvalidToken, KeysUnavailable.
        """
        try:
            signature = self._signatures.parse(token)
            key = await self._keys.get(*self._key_name(signature.protected))
            if not self._signatures.is_valid(signature, key):
                raise InvalidToken("bad signature")
            return self._read(signature.payload)
        except (InvalidToken, KeysUnavailable):
            raise
        except Exception as error:
            # Not JoseError alone: what parsers raise for what nobody thought of is no 500.
            raise InvalidToken(type(error).__name__) from None

    def _key_name(self, header: Mapping[str, Any]) -> tuple[str | None, str]:
        """Which key the token asks for, once its header is one that we understand."""
        if "crit" in header:
            raise InvalidToken("crit in header")
        typ = header.get("typ")
        if (typ.lower() if isinstance(typ, str) else typ) not in self._types:
            raise InvalidToken("other typ")
        kid = header.get("kid")
        if not isinstance(kid, str | None):
            raise InvalidToken("kid of another type")
        return kid, self._signatures.key_type(header)

    def _read(self, payload: bytes) -> VerifiedToken:
        claims = from_json(payload, cache_strings="keys")
        if not isinstance(claims, dict):
            raise InvalidToken("no claims")
        return self._rules.read(claims, now=self._clock())
