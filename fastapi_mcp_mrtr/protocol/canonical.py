"""One spelling for every JSON value, and its digest. Pure: no I/O, no clock, no framework.

Two values get the same bytes if and only if they are the same JSON value of the same type: the
order of object members does not matter; `1`, `1.0`, `"1"` and `true` are four different values.
Keeping `1` and `1.0` apart errs on the safe side: a client sends the same arguments on every round
of a flow, and one that does not is asked to start over.
"""

import binascii
import json.encoder
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Any, Final

# ASCII escapes spell every string, lone surrogates included. `allow_nan` so that no float raises.
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=True, allow_nan=True, sort_keys=True, separators=(",", ":")
)

# What `_ENCODER` makes anew for each value where Python has it in C. It looks for no cycles, which
# what a parser returned cannot have.
_make: Final[Callable[..., Any] | None] = getattr(json.encoder, "c_make_encoder", None)
_chunks: Final[Callable[[Any, int], Iterable[str]]] = (
    _make(None, _ENCODER.default, encode_basestring_ascii, None, ":", ",", True, False, True)
    if _make is not None
    else lambda value, _: _ENCODER.encode(value)
)

# The client chooses what is digested, so collisions count and not only second preimages:
# 192 bits leave 96 against them. A multiple of 3, so that base64 needs no padding.
_DIGEST_BYTES: Final = 24

_TO_URLSAFE: Final = bytes.maketrans(b"+/", b"-_")


class _Text(str):
    """Already encoded; told apart from a JSON string that still has to be."""

    __slots__ = ()


def canonical(value: Any) -> bytes:
    """Encode a JSON value, as a parser returned it, in its one canonical form (ASCII).

    Any depth of nesting is fine, and so are lone surrogates, NaN and the infinities.
    """
    try:
        text = "".join(_chunks(value, 0))
    except RecursionError:
        text = _encode_deep(value)
    return text.encode("ascii")


def digest(value: Any) -> str:
    """Digest a JSON value: 32 characters of base64url over its canonical form."""
    hashed = blake2b(canonical(value), digest_size=_DIGEST_BYTES).digest()
    return binascii.b2a_base64(hashed, newline=False).translate(_TO_URLSAFE).decode("ascii")


def _encode_deep(value: Any) -> str:
    """Encode without recursion, byte for byte what `_ENCODER` would give with a deeper stack."""
    parts: list[str] = []
    unfinished: list[Iterator[Any]] = [iter((value,))]
    while unfinished:
        for item in unfinished[-1]:
            if isinstance(item, _Text):
                parts.append(item)
            elif isinstance(item, dict | list | tuple):
                unfinished.append(_pieces(item))
                break
            else:
                parts.append(_ENCODER.encode(item))
        else:
            unfinished.pop()
    return "".join(parts)


def _pieces(container: dict[str, Any] | Sequence[Any]) -> Iterator[Any]:
    """Yield the punctuation and keys of one object or array as `_Text`, its values as they are."""
    separator = ""
    if isinstance(container, dict):
        yield _Text("{")
        for key in sorted(container):
            yield _Text(f"{separator}{encode_basestring_ascii(key)}:")
            yield container[key]
            separator = ","
        yield _Text("}")
    else:
        yield _Text("[")
        for item in container:
            yield _Text(separator)
            yield item
            separator = ","
        yield _Text("]")
