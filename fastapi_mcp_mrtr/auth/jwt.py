"""Access tokens that are JWTs, verified with the issuer's public keys. Knows no HTTP.

The signature is joserfc's business, the claims are those of `claims.py`. Between them stands what
a signature does not say: which algorithms count, and that the token was made to be an access token.
"""

from collections.abc import Callable, Iterable, Mapping
from time import time
from typing import Any, Final, Literal

from joserfc.errors import UnsupportedAlgorithmError
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact
from pydantic_core import from_json

from .claims import SCOPE_CLAIMS, ClaimRules
from .jwks import Fetch, JWKSCache, KeySet, KeySource
from .token import InvalidToken, KeysUnavailable, VerifiedToken

Profile = Literal["rfc9068", "jwt"]

_TYPES: Final[Mapping[str, frozenset[str | None]]] = {
    "rfc9068": frozenset({"at+jwt", "application/at+jwt"}),
    "jwt": frozenset({"at+jwt", "application/at+jwt", "jwt", None}),
}
"""The `typ` headers, in lower case, that each profile takes for an access token (RFC 9068 §4)."""

_KEY_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("Ed25519", "Ed448", "EdDSA"), "OKP"),
}
"""The algorithms there are: asymmetric ones only, so that no public key serves as a secret."""

_ESSENTIAL: Final = ("iss", "sub", "aud", "exp", "iat")
_MAX_HEADER: Final = 4096  # joserfc's 512 bytes are too few for Entra ID's


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
            none, as Keycloak, Entra ID and Auth0 make them.
        algorithms: the signature algorithms that count. Symmetric ones never do.
        leeway: seconds by which the issuer's clock may differ from ours.
        scope_claims: which claims hold scopes, as a list or separated by spaces.
        clock: seconds since the epoch.

    Raises:
        ImportError: httpx2 is needed and not installed.
        ValueError, TypeError: a setting makes no sense.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Iterable[str],
        jwks_uri: str | None = None,
        jwks: Mapping[str, Any] | JWKSCache | None = None,
        fetch: Fetch | None = None,
        profile: Profile = "rfc9068",
        algorithms: Iterable[str] = ("RS256", "ES256", "PS256", "Ed25519"),
        leeway: float = 30.0,
        scope_claims: Iterable[str] = SCOPE_CLAIMS,
        clock: Callable[[], float] = time,
    ) -> None:
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
        self._registry = _Registry(algorithms)
        self._keys = _key_source(jwks_uri, jwks, fetch, clock)
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
            signature = extract_compact(token.encode("ascii"), registry=self._registry)
            key = await self._keys.get(*self._key_name(signature.protected))
            if not validate_compact(signature, key, registry=self._registry):
                raise InvalidToken("bad signature")
            return self._claims(signature)
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
        return kid, _KEY_TYPES[self._registry.get_alg(header["alg"]).name]

    def _claims(self, signature: CompactSignature) -> VerifiedToken:
        claims = from_json(signature.payload, cache_strings="keys")
        if not isinstance(claims, dict):
            raise InvalidToken("no claims")
        return self._rules.read(claims, now=self._clock())


class _Registry(JWSRegistry):
    """Which algorithms and headers joserfc takes."""

    max_header_length = _MAX_HEADER

    def __init__(self, algorithms: Iterable[str]) -> None:
        names = (algorithms,) if isinstance(algorithms, str) else tuple(algorithms)
        unknown = [name for name in names if name not in _KEY_TYPES]
        if unknown or not names:
            raise ValueError(f"algorithms={names!r} takes some of {', '.join(_KEY_TYPES)}.")
        # Not strict: issuers add header members of their own, such as Entra ID's `nonce`.
        super().__init__(algorithms=names, strict_check_header=False)
        self._models = {name: self.algorithms[name] for name in names}

    def get_alg(self, name: str) -> Any:
        # The base class warns, on each request, of EdDSA, which here somebody chose.
        model = self._models.get(name)
        if model is None:
            raise UnsupportedAlgorithmError("algorithm not allowed")
        return model


def _key_source(
    jwks_uri: str | None,
    jwks: Mapping[str, Any] | JWKSCache | None,
    fetch: Fetch | None,
    clock: Callable[[], float],
) -> KeySource:
    if (jwks_uri is None) == (jwks is None):
        raise ValueError("Either jwks_uri= or jwks= says where the issuer's keys are.")
    if jwks_uri is not None:
        return JWKSCache(jwks_uri, fetch=fetch, clock=clock)
    if isinstance(jwks, JWKSCache):
        return jwks
    keys = KeySet(jwks)
    if not keys:
        raise ValueError("jwks= has no key that is asymmetric and for signatures.")
    return keys
