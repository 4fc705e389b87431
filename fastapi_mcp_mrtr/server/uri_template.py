"""URI templates of resources: which URI a template serves, and with which values. Pure.

Two forms of RFC 6570, the ones a resource needs:

```text
{name}     one piece of a path or query: at least one character, none of / ? #
{+name}    the rest of a path, slashes and all; at most one in a template
```

Matching takes time linear in the URI and never backtracks. Where several readings are possible,
`{+name}` takes as much as it can; among the others the leftmost takes as little as it can before
a `{+name}`, the rightmost behind it.

Values are percent-decoded once, as UTF-8. So a `{name}` holds a slash only where the client wrote
`%2F`, and either form may hold `..` or a NUL: a handler that opens files must check the path it
ends up with (server/resources §Security Considerations 5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import quote, unquote

T = TypeVar("T")

_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_DELIMITER: Final = re.compile(r"[/?#]")
_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NO_URI_CHARACTER: Final = re.compile(rf"[^A-Za-z0-9\-._~%{re.escape(_RESERVED)}]")


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """A template, checked. Make one with `parse`.

    ```python
    template = UriTemplate.parse("file:///{project}/{+path}")
    template.match("file:///acme/src/main.rs")  # {"project": "acme", "path": "src/main.rs"}
    ```

    Attributes:
        text: the template as written.
        variables: their names, in order.
    """

    text: str
    variables: tuple[str, ...]
    _literals: tuple[str, ...]  # one more than variables: they stand between literals
    _reserved: int | None  # which variable is the {+name}

    @classmethod
    def parse(cls, text: str) -> UriTemplate:
        """Read a template.

        Raises:
            ValueError: it uses what RFC 6570 does not have or this module does not serve.
        """
        literals = _EXPRESSION.split(text)[::2]
        expressions: list[str] = _EXPRESSION.findall(text)
        for literal in literals:
            _check_literal(text, literal)
        names: list[str] = []
        for expression in expressions:
            name = expression.removeprefix("+")
            _check_name(text, expression, name)
            if name in names:
                raise _invalid(text, f"the variable {name!r} is used twice")
            names.append(name)
        for left, right, between in zip(names, names[1:], literals[1:], strict=False):
            if not between:
                raise _invalid(text, f"nothing separates the variables {left!r} and {right!r}")
        reserved = [i for i, expression in enumerate(expressions) if expression[0] == "+"]
        if len(reserved) > 1:
            raise _invalid(text, "there is more than one {+variable}, so URIs are ambiguous")
        return cls(text, tuple(names), tuple(literals), reserved[0] if reserved else None)

    @property
    def literal_prefix(self) -> str:
        """What every URI of this template begins with."""
        return self._literals[0]

    @property
    def specificity(self) -> tuple[int, int]:
        """Larger for the template to prefer where several with one prefix match."""
        return sum(map(len, self._literals)), self._reserved is None

    def match(self, uri: str) -> dict[str, str] | None:
        """The decoded variables of `uri`, or None if this template does not serve it.

        A URI with broken percent-encoding, or with bytes that are no UTF-8, is served by none.
        """
        prefix, suffix = self._literals[0], self._literals[-1]
        if not self.variables:
            return {} if uri == prefix else None
        start, end = len(prefix), len(uri) - len(suffix)
        if not (start < end and uri.startswith(prefix) and uri.endswith(suffix)):
            return None
        last = len(self.variables) - 1
        widest = last if self._reserved is None else self._reserved
        raw = [""] * (last + 1)
        # Left of the widest variable, each one ends at the first place where its literal follows.
        for i in range(widest):
            literal = self._literals[i + 1]
            found = uri.find(literal, start + 1, end)
            if found < 0:
                return None
            raw[i], start = uri[start:found], found + len(literal)
        # Right of it, each one begins at the last place where its literal precedes.
        for i in range(last, widest, -1):
            literal = self._literals[i]
            found = uri.rfind(literal, start, end - 1)
            if found < 0:
                return None
            raw[i], end = uri[found + len(literal) : end], found
        if start >= end:
            return None
        raw[widest] = uri[start:end]
        return self._decoded(raw)

    def expand(self, values: Mapping[str, str]) -> str:
        """The URI for these values: what `match` gives them back from.

        A `{name}` is encoded except for unreserved characters, a `{+name}` also except for
        reserved ones. A `%` is always encoded, also where RFC 6570 would take it for an escape.

        Raises:
            ValueError: a variable has no value, or an empty one.
        """
        parts = [self._literals[0]]
        for i, name in enumerate(self.variables):
            value = values.get(name)
            if not value:
                raise ValueError(f"URI template {self.text!r}: {name!r} needs a value")
            parts.append(quote(value, safe=_RESERVED if i == self._reserved else ""))
            parts.append(self._literals[i + 1])
        return "".join(parts)

    def _decoded(self, raw: list[str]) -> dict[str, str] | None:
        values: dict[str, str] = {}
        for i, value in enumerate(raw):
            if i != self._reserved and _DELIMITER.search(value):
                return None
            decoded = _decode(value)
            if decoded is None:
                return None
            values[self.variables[i]] = decoded
        return values


def _decode(value: str) -> str | None:
    if "%" not in value:
        return value
    if _BROKEN_ESCAPE.search(value):
        return None
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return None


def _check_literal(text: str, literal: str) -> None:
    if "{" in literal or "}" in literal:
        raise _invalid(text, "a brace has no partner")
    illegal = _NO_URI_CHARACTER.search(literal)
    if illegal is not None:
        raise _invalid(text, f"{illegal[0]!r} is no URI character; percent-encode it")
    if _BROKEN_ESCAPE.search(literal):
        raise _invalid(text, "a % is not followed by two hexadecimal digits")


def _check_name(text: str, expression: str, name: str) -> None:
    if not expression:
        raise _invalid(text, "a variable has no name")
    if name.isascii() and name.isidentifier():
        return
    raise _invalid(
        text,
        f"{{{expression}}} is not supported: use {{name}}, or {{+name}} to take slashes too, "
        "with the name of one argument",
    )


def _invalid(text: str, what: str) -> ValueError:
    return ValueError(f"URI template {text!r}: {what}")


class TemplateIndex(Generic[T]):
    """Find the template that serves a URI, with the value registered for it.

    Where several do, the one with the longest literal beginning wins, then the one with more
    literal text, then the one without a `{+name}`, then the one added first. A lookup takes time
    by how many lengths the beginnings have and how many templates share one, not by how many
    templates there are.

    Lookups in other threads see a change entirely or not at all; changes must not overlap.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[tuple[UriTemplate, T], ...]] = {}
        self._lengths: tuple[int, ...] = ()

    def add(self, template: UriTemplate, value: T) -> None:
        """Serve the URIs of `template` with `value`."""
        bucket = [*self._buckets.get(template.literal_prefix, ()), (template, value)]
        # Stable, so that equals stay in the order they came.
        bucket.sort(key=lambda entry: entry[0].specificity, reverse=True)
        self._put(template.literal_prefix, tuple(bucket))

    def remove(self, template: UriTemplate) -> None:
        """Stop serving `template`.

        Raises:
            KeyError: it is not in the index.
        """
        bucket = self._buckets.get(template.literal_prefix, ())
        rest = tuple(entry for entry in bucket if entry[0] != template)
        if len(rest) == len(bucket):
            raise KeyError(template.text)
        self._put(template.literal_prefix, rest)

    def match(self, uri: str) -> tuple[T, dict[str, str]] | None:
        """The value of the most specific template that serves `uri`, and the variables."""
        buckets = self._buckets
        for length in self._lengths:
            for template, value in buckets.get(uri[:length], ()):
                variables = template.match(uri)
                if variables is not None:
                    return value, variables
        return None

    def _put(self, prefix: str, bucket: tuple[tuple[UriTemplate, T], ...]) -> None:
        buckets = {**self._buckets, prefix: bucket}
        if not bucket:
            del buckets[prefix]
        self._buckets = buckets
        self._lengths = tuple(sorted({len(prefix) for prefix in buckets}, reverse=True))
