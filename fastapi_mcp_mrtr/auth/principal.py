"""From whatever the user's own dependency returned to the bytes that say who it is.

Pure. Knows no token, header or request. The bytes are typed and injective: the string `"1"`, the
number `1` and the bytes `b"1"` are three principals. They never come from `hash()`, `repr()` or
pasting strings together, and they are the same in every process.

What is returned is read in this order:

| the dependency returned | the principal is |
|---|---|
| `None` | anonymous, an explicit marker that equals no other principal |
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

Whatever is empty is refused at every depth, and so are a bare `bool` and a mapping that names
nobody: a dependency that is broken must not turn all its callers into one shared principal.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from fastapi_mcp_mrtr.protocol.canonical import canonical

_ANONYMOUS: Final = canonical(["anonymous"])

_CLIENT: Final = ("client_id", "azp", "appid")
_TENANT: Final = ("tid", "tenant", "org_id")

# A principal is flat in practice; the limit only keeps a cyclic list from recursing for ever.
_MAX_DEPTH: Final = 8

_REMEDY: Final = (
    "Return an identity from the principal dependency, or pass principal_key= a function from what "
    "it returns to a string, int, UUID, bytes or a tuple of those."
)


def principal_key_bytes(value: Any, principal_key: Callable[[Any], Any] | None = None) -> bytes:
    """Encode the principal that a dependency returned. Never empty.

    Raises: TypeError, when the value names nobody; it quotes types and claim names only.
    """
    if value is None:
        return _ANONYMOUS
    if principal_key is not None:
        value = _named(principal_key(value), "principal_key= returned None")
    elif not isinstance(value, Mapping) and hasattr(value, "mcp_principal_key"):
        own = value.mcp_principal_key
        value = _named(own() if callable(own) else own, "mcp_principal_key is None")
    if isinstance(value, Mapping):
        return canonical(["claims", _claims(value)])
    if isinstance(value, bool):
        raise _refused("A bool says that somebody passed, not who")
    return canonical(_typed(value, _MAX_DEPTH))


def _claims(claims: Mapping[Any, Any]) -> dict[str, Any]:
    """Pick the identity out of a token's claims."""
    picked = {name: claims[name] for name in ("iss", *_TENANT) if claims.get(name) is not None}
    # A `sub` that is there and null is broken; it must not pass for a client without a user.
    if "sub" in claims:
        picked["sub"] = claims["sub"]
    for name in _CLIENT:
        if claims.get(name) is not None:
            picked["client"] = claims[name]
            break
    if not ("sub" in picked or "client" in picked):
        raise _refused(f"A mapping without sub and without {', '.join(_CLIENT)} names nobody")
    return {name: _claim(name, value) for name, value in picked.items()}


def _claim(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return _typed(value, 0)
    raise _refused(f"The claim {name!r} is a {type(value).__name__}, not a string")


def _typed(value: Any, depth: int) -> list[Any]:
    """Spell a value as JSON with its type, so that equal spellings mean equal values."""
    match value:
        case bool():
            return ["c", value]
        case int():
            # Hexadecimal, because Python refuses to print very long decimal numbers.
            return ["i", format(int(value), "x")]
        case UUID():
            return ["u", value.hex]
        case str() if value:
            return ["s", str.__str__(value)]
        case bytes() if value:
            return ["b", value.hex()]
        case tuple() | list() if value and depth:
            return ["t", *(_typed(item, depth - 1) for item in value)]
        case frozenset() | set() if value and depth:
            return ["f", *_in_order(_typed(item, depth - 1) for item in value)]
        case str() | bytes() | tuple() | list() | frozenset() | set() if not value:
            raise _refused(f"An empty {type(value).__name__} names nobody")
    raise _refused(f"A {type(value).__name__} is not an identity by itself")


def _in_order(spellings: Iterable[list[Any]]) -> list[list[Any]]:
    return sorted(spellings, key=canonical)


def _named(value: Any, otherwise: str) -> Any:
    """Refuse None: only the dependency itself may say that a caller is anonymous."""
    if value is None:
        raise _refused(otherwise)
    return value


def _refused(why: str) -> TypeError:
    return TypeError(f"{why}. {_REMEDY}")
