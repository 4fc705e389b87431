"""The signatures of tokens, by joserfc. Knows no claims and no keys but the one it is given.

Only what constructs a `JWTVerifier` imports this: joserfc takes an eighth of FastAPI's time.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from joserfc.errors import UnsupportedAlgorithmError
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact

from .jwks import PublicKey

_KEY_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("Ed25519", "Ed448", "EdDSA"), "OKP"),
}
"""The algorithms there are: asymmetric ones only, so that no public key serves as a secret."""

_MAX_HEADER: Final = 4096  # joserfc's 512 bytes are too few for Entra ID's


class Signatures:
    """Reads and checks the signatures that these algorithms make.

    Raises:
        ValueError: an algorithm is none of those.
    """

    __slots__ = ("_registry",)

    def __init__(self, algorithms: Iterable[str]) -> None:
        names = (algorithms,) if isinstance(algorithms, str) else tuple(algorithms)
        unknown = [name for name in names if name not in _KEY_TYPES]
        if unknown or not names:
            raise ValueError(f"algorithms={names!r} takes some of {', '.join(_KEY_TYPES)}.")
        self._registry = _Registry(names)

    def parse(self, token: str) -> CompactSignature:
        """Take a token apart. Nothing of it can be trusted yet.

        Raises: Exception, of whatever class.
        """
        return extract_compact(token.encode("ascii"), registry=self._registry)

    def key_type(self, header: Mapping[str, Any]) -> str:
        """Which type of key the algorithm needs.

        Raises: Exception, where the algorithm is not allowed.
        """
        return _KEY_TYPES[self._registry.get_alg(header["alg"]).name]

    def is_valid(self, signature: CompactSignature, key: PublicKey) -> bool:
        """Whether the owner of the key made it.

        Raises: Exception, where the header or the key forbids it.
        """
        return validate_compact(signature, key, registry=self._registry)


class _Registry(JWSRegistry):
    """Which algorithms and headers joserfc takes."""

    max_header_length = _MAX_HEADER

    def __init__(self, names: tuple[str, ...]) -> None:
        # Not strict: issuers add header members of their own, such as Entra ID's `nonce`.
        super().__init__(algorithms=names, strict_check_header=False)
        self._models = {name: self.algorithms[name] for name in names}

    def get_alg(self, name: str) -> Any:
        # The base class warns, on each request, of EdDSA, which here somebody chose.
        model = self._models.get(name)
        if model is None:
            raise UnsupportedAlgorithmError("algorithm not allowed")
        return model
