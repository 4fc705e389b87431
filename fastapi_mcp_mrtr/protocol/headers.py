"""Read the headers MCP defines and hold them against the body. Pure: knows no request object."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

from fastapi_mcp_mrtr.errors import HEADER_MISMATCH, MCPError

_LISTS: Final = frozenset({b"accept"})
"""Headers that may be sent several times, because their value is a list (RFC 9110 §5.3)."""

_NO_CONFLICTS: Final[frozenset[str]] = frozenset()

_SENTINEL_START: Final = "=?base64?"
_SENTINEL_END: Final = "?="

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DECIMAL: Final = re.compile(r"(-?[0-9]{1,16})(?:\.0+)?")
_LARGEST_INTEGER: Final = 2**53 - 1
_LENGTH_DIGITS: Final = 18  # more digits than any body has bytes

_KEPT: Final = 1024
_KEPT_LENGTH: Final = 128
"""How many texts are kept as header values, and how long they may be: the names of tools recur."""


class HeaderValueError(ValueError):
    """A header value with characters it must not have, or with a broken Base64 form."""


class RequestHeaders:
    """The headers of one request: names without case, values without surrounding blanks.

    Values are text as sent; a Base64 form is still encoded. `conflicts` names (in lower case) the
    headers that came twice with different values: the first one is kept, and whoever relies on a
    header listed there relies on what another party may have read differently.
    """

    __slots__ = ("_values", "conflicts")

    def __init__(self, values: dict[bytes, bytes], conflicts: frozenset[str]) -> None:
        self._values = values
        self.conflicts = conflicts

    @classmethod
    def read(cls, raw: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
        """Read the `headers` of an ASGI scope."""
        raw = [*raw]
        values = dict(raw)
        # As most servers hand them over: each once, in lower case already.
        if len(values) == len(raw) and b"".join(values).islower():
            return cls(values, _NO_CONFLICTS)
        values = {}
        conflicts: set[str] = set()
        for name, value in raw:
            name = name.lower()
            first = values.setdefault(name, value)
            if first == value:
                continue
            if name in _LISTS:
                values[name] = first + b", " + value
            elif first.strip(b" \t") != value.strip(b" \t"):
                conflicts.add(name.decode("latin-1"))
        return cls(values, frozenset(conflicts))

    def get(self, name: str) -> str | None:
        """The value of a header, its name given in lower case."""
        return self._text(name.encode("latin-1"))

    def _text(self, name: bytes) -> str | None:
        value = self._values.get(name)
        return None if value is None else value.strip(b" \t").decode("latin-1")

    def has(self, name: bytes, value: bytes) -> bool:
        """Whether a header, its name in lower case, has just this value, byte for byte."""
        return self._values.get(name) == value

    def forget(self, name: str) -> None:
        """Drop a header, its name given in lower case, that nobody is to read any more."""
        self._values.pop(name.encode("latin-1"), None)

    @property
    def origin(self) -> str | None:
        return self._text(b"origin")

    @property
    def host(self) -> str | None:
        return self._text(b"host")

    @property
    def content_type(self) -> str | None:
        return self._text(b"content-type")

    def announces_more_than(self, limit: int) -> bool:
        """Whether the body is to be longer than `limit` bytes, as far as its sender says."""
        announced = self._values.get(b"content-length", b"")
        return len(announced) > _LENGTH_DIGITS or (announced.isdigit() and int(announced) > limit)

    @property
    def accept(self) -> str | None:
        """All `Accept` headers, joined."""
        return self._text(b"accept")

    @property
    def protocol_version(self) -> str | None:
        return self._text(b"mcp-protocol-version")

    @property
    def mcp_method(self) -> str | None:
        return self._text(b"mcp-method")

    @property
    def mcp_name(self) -> str | None:
        return self._text(b"mcp-name")

    def says(self, name: bytes, text: str) -> bool:
        """Whether a header says just `text`: nothing to decode, to trim or to object to.

        `name` is in lower case. If it does not, `require` or `require_decoded` find out why.
        """
        if self.conflicts or len(text) > _KEPT_LENGTH:
            return False
        literal = _literal(text)
        return literal is not None and self._values.get(name) == literal

    def require(self, name: str) -> str:
        """The value of a header that must be there exactly once, its name as the spec writes it.

        Raises:
            MCPError: -32020, the header is missing, contradicts itself or is no plain text.
        """
        value = self.get(name.lower())
        if value is None:
            raise header_mismatch(f"the {name} header is required")
        if self.conflicts and name.lower() in self.conflicts:
            raise header_mismatch(f"the {name} header was sent twice with different values")
        if not _is_plain(value):
            raise header_mismatch(f"the {name} header contains invalid characters")
        return value

    def require_decoded(self, name: str) -> str:
        """Like `require`, for the headers whose value may be in the Base64 form.

        Raises:
            MCPError: -32020, as for `require`, or the Base64 form is broken.
        """
        try:
            return decode_value(self.require(name))
        except HeaderValueError as error:
            raise header_mismatch(f"the {name} header {error}") from None


def header_mismatch(what: str) -> MCPError:
    """The error for headers that contradict the body, or are missing or malformed: -32020."""
    return MCPError(HEADER_MISMATCH, f"Header mismatch: {what}")


def decode_value(raw: str) -> str:
    """The text behind a header value (streamable-http §Value Encoding).

    `=?base64?...?=` is decoded, strictly: canonical padding, no foreign characters, UTF-8 inside.
    Anything without both markers is literal.

    Raises:
        HeaderValueError: characters other than printable ASCII and tab, or a broken Base64 form.
    """
    if not _is_plain(raw):
        raise HeaderValueError("contains invalid characters")
    if not (raw.startswith(_SENTINEL_START) and raw.endswith(_SENTINEL_END, len(_SENTINEL_START))):
        return raw
    payload = raw[len(_SENTINEL_START) : -len(_SENTINEL_END)]
    try:
        decoded = b64decode(payload, validate=True)
        text = decoded.decode()
    except ValueError:
        raise HeaderValueError("is not valid Base64 of UTF-8 text") from None
    # Two spellings of one value would let a proxy and this server see different values.
    if b64encode(decoded).decode() != payload:
        raise HeaderValueError("is not canonical Base64")
    return text


def encode_value(text: str) -> str:
    """The text as a header value: itself where that is safe, else its Base64 form."""
    if _is_literal(text):
        return text
    return _SENTINEL_START + b64encode(text.encode()).decode() + _SENTINEL_END


def _is_literal(text: str) -> bool:
    """Whether text is its own header value: ASCII, no blanks around it, no Base64 marker."""
    return (
        text.isascii()
        and text.isprintable()
        and text == text.strip(" ")
        and not text.startswith(_SENTINEL_START)
    )


@lru_cache(_KEPT)
def _literal(text: str) -> bytes | None:
    """Text as the header value that it is itself, if it is one."""
    return text.encode("ascii") if _is_literal(text) else None


def _is_plain(value: str) -> bool:
    """Only visible ASCII, space and tab (RFC 9110 §5.5)."""
    return value.isascii() and (value.isprintable() or value.replace("\t", " ").isprintable())


@dataclass(frozen=True, slots=True)
class ParamHeader:
    """A tool argument that clients mirror into the header `Mcp-Param-{header_name}`.

    `header_name` is the value of `x-mcp-header` (streamable-http §Schema Extension), `path`
    the chain of property names that leads to the argument.

    Raises:
        ValueError: the name is not a header name, or the path is empty.
    """

    header_name: str
    path: tuple[str, ...]
    kind: Literal["string", "integer", "boolean"]
    full_name: str = field(init=False)

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.header_name):
            raise ValueError(
                f"{self.header_name!r} cannot be part of a header name: use letters, digits and -"
            )
        if not self.path:
            raise ValueError(f"the header {self.header_name!r} mirrors no argument")
        object.__setattr__(self, "full_name", f"Mcp-Param-{self.header_name}")


def check_param_headers(
    headers: RequestHeaders, tool_params: Sequence[ParamHeader], arguments: Mapping[str, Any]
) -> None:
    """Hold `Mcp-Param-*` against the arguments of a call.

    Source: streamable-http §Server Behavior for Custom Headers.

    An argument that is there needs its header, equal after decoding. One that is absent or null
    must have none: a proxy would act on a value that the tool never sees. Headers no tool
    parameter asks for are ignored. An argument of another type than declared never agrees.

    Raises:
        MCPError: -32020, naming the header; never the value, which may be confidential.
    """
    for param in tool_params:
        value = value_at(param.path, arguments)
        if value is None:
            if headers.get(param.full_name.lower()) is not None:
                raise header_mismatch(
                    f"the {param.full_name} header was sent but {_dotted(param)} has no value"
                )
            continue
        text = headers.require_decoded(param.full_name)
        if not _AGREES[param.kind](text, value):
            raise header_mismatch(
                f"the {param.full_name} header does not match {_dotted(param)} ({param.kind})"
            )


def value_at(path: tuple[str, ...], arguments: Mapping[str, Any]) -> Any:
    """The argument that a chain of property names leads to; None if there is none."""
    value: Any = arguments
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _dotted(param: ParamHeader) -> str:
    return "params.arguments." + ".".join(param.path)


def _integers_agree(text: str, value: Any) -> bool:
    """Compared as numbers, `42.0` and `42` being equal, inside JavaScript's safe range."""
    decimal = _DECIMAL.fullmatch(text)
    return (
        decimal is not None
        and type(value) in (int, float)
        and int(decimal[1]) == value
        and abs(value) <= _LARGEST_INTEGER
    )


_AGREES: Final[Mapping[str, Callable[[str, Any], bool]]] = {
    "string": lambda text, value: type(value) is str and text == value,
    "integer": _integers_agree,
    "boolean": lambda text, value: type(value) is bool and text == ("true" if value else "false"),
}
"""How a header value and an argument of each kind are compared."""
