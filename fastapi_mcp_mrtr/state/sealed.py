"""What sealed tokens have in common, whatever they say: how they open and whose they are. No clock.

A codec only vouches that this server wrote a payload. Here a payload becomes claims of exactly the
types that were declared, and a principal the keyed hash that tokens carry in its place.
"""

import hmac
import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import product
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_type_hints

from pydantic_core import from_json

from fastapi_mcp_mrtr.errors import RequestStateError

from .codec import REASONS, RequestStateCodec
from .keys import KeyRing

C = TypeVar("C", bound=NamedTuple)

PRINCIPAL: Final = b"principal"
ASK: Final = b"ask"
# Without the key nobody can look for a collision, so 128 bits are ample.
_HASH_BYTES: Final = 16

# Exact types, because to Python a bool is a number.
_JSON_TYPES: Final[Mapping[Any, tuple[type, ...]]] = {
    int: (int,),
    float: (float, int),
    str: (str,),
    str | None: (str, type(None)),
    dict[str, Any]: (dict,),
    dict[str, Any] | None: (dict, type(None)),
}


def require(accepted: bool, otherwise: str) -> None:
    """Say what is accepted, and the reason for the log if it is not.

    Raises: RequestStateError
    """
    if accepted is not True:
        raise RequestStateError(otherwise)


def open_token(
    codec: RequestStateCodec, token: object, *, purpose: bytes, max_bytes: int, limit: str
) -> bytes:
    """Return the payload of a token. `limit` is what the log calls the longest it may be.

    Raises: RequestStateError, whatever is wrong with it.
    """
    if not isinstance(token, str):
        raise RequestStateError("not a string")
    # Before decoding, so that what is too long costs nothing.
    if not (token.isascii() and 0 < len(token) <= max_bytes):
        raise RequestStateError(f"not ASCII, empty or longer than {limit}")
    try:
        payload: object = codec.unseal(token, purpose=purpose)
    except Exception as error:
        reason = f"codec raised {type(error).__name__}"
        if isinstance(error, RequestStateError) and error.reason in REASONS:
            reason = error.reason
        raise RequestStateError(reason) from None
    if not isinstance(payload, bytes):
        raise RequestStateError("codec returned something else than bytes")
    return payload


class Claims(Generic[C]):
    """How a payload becomes claims: a JSON array in the order of the fields, the format first."""

    def __init__(self, claims: type[C], *, format: int) -> None:
        self._make: Callable[..., C] = claims
        self._format = format
        self._types = {
            name: _JSON_TYPES[annotation] for name, annotation in get_type_hints(claims).items()
        }
        # Every tuple of types that claims may have: one look-up instead of many.
        self._shapes = frozenset(product(*self._types.values()))

    def read(self, payload: bytes) -> C:
        """Parse a payload into claims of exactly the types declared.

        Raises: RequestStateError
        """
        values = _decode(payload)
        if not (isinstance(values, list) and values and values[0] == self._format):
            raise RequestStateError("payload of another format")
        if not len(values) == len(self._types):
            raise RequestStateError("payload of another shape")
        if tuple(map(type, values)) not in self._shapes:
            by_name = zip(self._types.items(), values, strict=True)
            odd = next(name for (name, types), value in by_name if type(value) not in types)
            raise RequestStateError(f"claim {odd} of another type")
        return self._make(*values)


class KeyedHash:
    """A hash that nobody makes without the secret, of one kind of thing: whose a token is, without
    user data in it; or that an id was given out here.
    """

    def __init__(self, keys: KeyRing, purpose: bytes) -> None:
        self._keys = keys
        self._purpose = purpose

    def make(self, kid: str, value: bytes) -> str:
        """Hash bytes under the secret `kid`: 32 hexadecimal digits.

        Raises: LookupError, when the ring has no such secret.
        """
        if not value:
            raise ValueError("Nothing to hash; even an anonymous principal has bytes of its own.")
        # Keyed BLAKE2 is a MAC of its own (RFC 7693 §2.9), at a third of what HMAC-SHA256 costs.
        key = self._keys.derive(kid, self._purpose)
        return blake2b(value, digest_size=_HASH_BYTES, key=key).hexdigest()

    def fits(self, claimed: str, kid: str, value: bytes) -> bool:
        """Whether a hash is that of these bytes."""
        try:
            expected = self.make(kid, value)
        except LookupError:
            return False
        return claimed.isascii() and hmac.compare_digest(expected, claimed)


def _decode(payload: bytes) -> Any:
    try:
        return from_json(payload)
    except ValueError:
        pass
    # Lone surrogates and deep nesting, which the fast reader refuses.
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise RequestStateError("payload is not JSON") from None
