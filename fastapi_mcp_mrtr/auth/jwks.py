"""The keys an issuer signs with: read from its JWK set, and cached. Knows no token.

A token's `kid` is the sender's word, so it decides which key is looked up and nothing else: forged
ones cause one fetch in 30 seconds, however many there are.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import ceil
from time import time
from typing import Any, Final, Protocol

from anyio import Lock
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey
from pydantic_core import from_json

from fastapi_mcp_mrtr.checks import require_positive

from .token import InvalidToken, KeysUnavailable
from .urls import checked_url

logger = logging.getLogger("fastapi_mcp_mrtr")

PublicKey = RSAKey | ECKey | OKPKey

Fetch = Callable[[str], Awaitable[bytes]]
"""From a URL to the body that is found there; any exception means that nothing was."""

_KEY_TYPES: Final = (RSAKey, ECKey, OKPKey)
_MIN_RSA_BITS: Final = 2048  # RFC 7518 §3.3


class KeySource(Protocol):
    """Where a verifier gets its keys."""

    async def get(self, kid: str | None, key_type: str) -> PublicKey:
        """The key of that name and type; the only one there is, for a token that names none.

        Raises: InvalidToken, KeysUnavailable.
        """
        ...


class KeySet:
    """The usable keys of a JWK set: asymmetric, for signatures, and understood.

    The others are skipped one by one, so that a key of the next generation or a broken one does not
    take the good ones along.

    Raises:
        ValueError: it is no JWK set.
    """

    __slots__ = ("_by_name", "_keys")

    def __init__(self, document: Any) -> None:
        if not isinstance(document, Mapping) or not isinstance(document.get("keys"), list):
            raise ValueError("This is no JWK set: an object with a list named keys.")
        self._keys = list(_usable(document["keys"]))
        self._by_name: dict[tuple[str | None, str], PublicKey] = {}
        for key in self._keys:
            self._by_name.setdefault((key.kid, key.key_type), key)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, kid: str | None, key_type: str) -> PublicKey | None:
        """The key, if there is no doubt which one it is."""
        if kid is not None:
            return self._by_name.get((kid, key_type))
        if len(self._keys) == 1 and self._keys[0].key_type == key_type:
            return self._keys[0]
        return None

    async def get(self, kid: str | None, key_type: str) -> PublicKey:
        """As `KeySource`: for keys that are part of the configuration."""
        key = self.find(kid, key_type)
        if key is None:
            raise InvalidToken("unknown key")
        return key


def _usable(documents: list[Any]) -> Iterator[PublicKey]:
    for document in documents:
        try:
            if document.get("use", "sig") != "sig":
                continue
            key = JWKRegistry.import_key(document)
            if isinstance(key, RSAKey) and key.public_key.key_size < _MIN_RSA_BITS:
                raise ValueError("too short")
        except Exception as error:  # joserfc raises KeyError, binascii.Error, JoseError and more
            logger.debug("Skipped a key of a JWK set (%s)", type(error).__name__)
            continue
        # A symmetric key in a public document is a secret no more.
        if isinstance(key, _KEY_TYPES):
            yield key


class JWKSCache:
    """The keys at a `jwks_uri`, fetched when they are needed.

    They are fresh for `ttl` seconds. A `kid` that is not among them causes a fetch, at most one in
    `cooldown` seconds, and so does nothing else. When a fetch fails, the last keys serve on for
    `stale` seconds; without any, `KeysUnavailable`. However many requests wait, one fetches; where
    there is an old key meanwhile, the others use that and do not wait.

    ```python
    keys = JWKSCache("https://as.example.com/jwks.json")
    JWTVerifier(issuer="https://as.example.com", audience=..., jwks=keys)
    ```

    Args:
        uri: https, or http on loopback.
        fetch: what gets it, in place of httpx2; raising means that it could not.
        ttl: seconds for which keys are fresh.
        cooldown: seconds between two fetches, while there are keys.
        retry_after: seconds between two fetches, while there are none; clients are told of it.
        stale: seconds for which keys serve while they cannot be renewed.
        clock: seconds; only differences count.

    Raises:
        ImportError: httpx2 is not installed and there is no `fetch`.
        ValueError, TypeError: a setting makes no sense.
    """

    def __init__(
        self,
        uri: str,
        *,
        fetch: Fetch | None = None,
        ttl: float = 300.0,
        cooldown: float = 30.0,
        retry_after: float = 5.0,
        stale: float = 24 * 3600.0,
        clock: Callable[[], float] = time,
    ) -> None:
        self._uri = checked_url("jwks_uri", uri, query=True)
        self._fetch = _fetch_over_httpx2() if fetch is None else fetch
        require_positive(ttl=ttl, cooldown=cooldown, retry_after=retry_after, stale=stale)
        self._ttl = ttl
        self._cooldown = cooldown
        self._retry_after = retry_after
        self._stale = stale
        self._clock = clock
        self._lock = Lock()
        self._keys: KeySet | None = None
        self._fetched = self._tried = float("-inf")
        self._attempts = 0

    def __repr__(self) -> str:
        return f"JWKSCache({self._uri!r})"

    async def get(self, kid: str | None, key_type: str) -> PublicKey:
        """As `KeySource`."""
        key = self._find(kid, key_type)
        if self._is_due(key) and not (key is not None and self._lock.locked()):
            await self._refresh(self._attempts)
            key = self._find(kid, key_type)
        if key is not None:
            return key
        if not self._current():
            seconds = ceil(self._retry_after)
            raise KeysUnavailable(f"no keys from {self._uri}", retry_after=seconds)
        raise InvalidToken("unknown key")

    def _find(self, kid: str | None, key_type: str) -> PublicKey | None:
        keys = self._current()
        return keys.find(kid, key_type) if keys else None

    def _current(self) -> KeySet | None:
        # A clock that was set back makes everything old, rather than good for ever.
        return self._keys if 0 <= self._clock() - self._fetched < self._stale else None

    def _is_due(self, key: PublicKey | None) -> bool:
        now = self._clock()
        if key is not None and 0 <= now - self._fetched < self._ttl:
            return False
        pause = self._cooldown if self._current() else self._retry_after
        return not 0 <= now - self._tried < pause

    async def _refresh(self, attempts: int) -> None:
        async with self._lock:
            if self._attempts != attempts:
                return  # Another request did while this one waited for the lock.
            try:
                self._keys = KeySet(from_json(await self._fetch(self._uri)))
            except Exception as error:
                kind = type(error).__name__
                logger.warning("No keys from %s: %s: %s", self._uri, kind, error)
            else:
                self._fetched = self._clock()
            # A request that is cancelled does not get here, and the next one fetches.
            self._attempts += 1
            self._tried = self._clock()


def key_source(
    jwks_uri: str | None,
    jwks: Mapping[str, Any] | JWKSCache | None,
    fetch: Fetch | None,
    clock: Callable[[], float],
) -> KeySource:
    """Read the settings of a verifier that say where its keys are.

    Raises: ImportError, ValueError.
    """
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


def _fetch_over_httpx2() -> Fetch:
    from .http_client import fetch

    return fetch
