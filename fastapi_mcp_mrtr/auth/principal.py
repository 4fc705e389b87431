"""From whatever the user's own dependency returned to the bytes that say who it is.

Pure. Knows no token, header or request. The bytes are typed and injective: the string `"1"`, the
number `1` and the bytes `b"1"` are three principals. They never come from `hash()`, `repr()` or
pasting strings together, and they are the same in every process.

What is returned is read in this order:

| the dependency returned | the principal is |
|---|---|
| `None` | anonymous: a marker of its own, the same for all who are |
| anything, with `principal_key=` set | what `principal_key(value)` returns, read as below |
| a mapping | its identity claims, as in a verified token |
| an object with `mcp_principal_key` | that attribute, or what that method returns, read as below |
| `str`, `int`, `bytes`, `UUID` | itself |
| `tuple`, `list`, `frozenset`, `set` of those and of `bool` | itself; lists count as tuples |

The identity claims are `iss`, `sub`, the client (`client_id`, else `azp`, else `appid`) and the
tenant (`tid`, `tenant`, `org_id`), as far as present: `sub` is unique only per issuer, and an
elicitation is bound "to the client and user identity" (client/elicitation §Security). Without
`sub` the client alone is the principal, as for client credentials. Nothing that changes when a
token is refreshed (`jti`, `exp`, `scope`, `act`, `cnf`) is part of it.

A state of one principal opens for no other, so anonymous callers are not protected from each other,
and who logs in between two rounds starts over. To tell anonymous callers apart, return something
that does: a cookie's value, a client certificate, a network.

Whatever is empty is refused at every depth, and so are a bare `bool` and a mapping that names
nobody: a dependency that is broken must not turn all its callers into one shared principal.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import starmap
from json.encoder import encode_basestring_ascii
from types import UnionType
from typing import Any, Final
from uuid import UUID

_ANONYMOUS: Final = b'["anonymous"]'

_TENANT: Final = ("tid", "tenant", "org_id")
CLIENT_CLAIMS: Final = ("client_id", "azp", "appid")

# A principal is flat in practice; the limit keeps a list that contains itself from recursing.
_MAX_DEPTH: Final = 8

_REMEDY: Final = (
    "Return an identity from the principal dependency, or pass principal_key= a function from what "
    "it returns to a string, int, UUID, bytes or a tuple of those."
)


def principal_key_bytes(value: Any, principal_key: Callable[[Any], Any] | None = None) -> bytes:
    """Encode the principal that a dependency returned: JSON, ASCII only, never empty.

    Raises: TypeError, when the value names nobody. It quotes types and claim names, no values.
    """
    if value is None:
        return _ANONYMOUS
    if principal_key is not None:
        value = _named(principal_key(value), "principal_key= returned None")
    elif type(value) is str:  # what most are
        return _typed(value, 0).encode("ascii")
    elif not isinstance(value, Mapping) and hasattr(value, "mcp_principal_key"):
        own = value.mcp_principal_key
        value = _named(own() if callable(own) else own, "mcp_principal_key is None")
    if isinstance(value, Mapping):
        return f'["claims",{",".join(_claims(value))}]'.encode("ascii")
    if isinstance(value, bool):
        raise _refused("A bool says that somebody passed, not who")
    return _typed(value, _MAX_DEPTH).encode("ascii")


def claims_fault(claims: Mapping[Any, Any]) -> str | None:
    """What keeps one of the identity claims from being part of an identity, if anything does."""
    return next(filter(None, starmap(claim_fault, _identity(claims))), None)


def claim_fault(name: str, value: Any, accepted: type | UnionType = str | int) -> str | None:
    """Why a claim names nobody, if it does not: its name and type, not its value."""
    if isinstance(value, bool) or not isinstance(value, accepted):
        return f"claim {name!r} is of type {type(value).__name__}, not a string"
    return f"claim {name!r} is an empty string" if value == "" else None


def _claims(claims: Mapping[Any, Any]) -> Iterator[str]:
    """Spell the identity among a token's claims."""
    named = False
    for name, value in _identity(claims):
        fault = claim_fault(name, value)
        if fault is not None:
            raise _refused(f"The {fault}")
        label = "client" if name in CLIENT_CLAIMS else name
        named = named or label in ("client", "sub")
        yield f'["{label}",{_typed(value, 0)}]'
    if not named:
        raise _refused(f"A mapping without sub and without {', '.join(CLIENT_CLAIMS)} names nobody")


def _identity(claims: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """The identity among a token's claims; those that are null count as absent."""
    for name in ("iss", *_TENANT):
        if claims.get(name) is not None:
            yield name, claims[name]
    for name in CLIENT_CLAIMS:
        if claims.get(name) is not None:
            yield name, claims[name]
            break
    # But a `sub` that is null is a broken one: it must not pass for a client without a user.
    if "sub" in claims:
        yield "sub", claims["sub"]


def _typed(value: Any, depth: int) -> str:
    """Spell a value as JSON with its type, so that equal spellings mean equal principals."""
    match value:
        case str() if value:
            return f'["s",{encode_basestring_ascii(value)}]'
        case bool():
            return '["c",true]' if value else '["c",false]'
        case int():
            # Hexadecimal, because Python refuses to print very long decimal numbers.
            return f'["i","{int(value):x}"]'
        case UUID():
            return f'["u","{value.hex}"]'
        case bytes() if value:
            return f'["b","{value.hex()}"]'
        case tuple() | list() if value and depth:
            return f'["t",{",".join([_typed(item, depth - 1) for item in value])}]'
        case frozenset() | set() if value and depth:
            return f'["f",{",".join(sorted([_typed(item, depth - 1) for item in value]))}]'
        case str() | bytes() | tuple() | list() | frozenset() | set() if not value:
            raise _refused(f"An empty {type(value).__name__} names nobody")
    raise _refused(f"A {type(value).__name__} is not an identity by itself")


def _named(value: Any, otherwise: str) -> Any:
    """Refuse None: only the dependency itself may say that a caller is anonymous."""
    if value is None:
        raise _refused(otherwise)
    return value


def _refused(why: str) -> TypeError:
    return TypeError(f"{why}. {_REMEDY}")
