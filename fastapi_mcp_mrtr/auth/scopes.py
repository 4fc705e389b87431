"""Which scopes an operation needs and a token lacks. Pure: no token, no request, no framework.

A broader scope satisfies a narrower requirement where `imply` says so, and so do the scopes that
it implies in turn. What is *asked for* stays literal: no challenge names a broader scope than the
one that was declared.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

Implications = Mapping[str, tuple[str, ...]]

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749 §3.3
_OFFLINE: Final = "offline_access"


def missing_scopes(
    required: Iterable[str], granted: Iterable[str], imply: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """The required scopes that are neither granted nor implied by one that is, in their order."""
    have = frozenset(granted)
    missing = tuple([scope for scope in required if scope not in have])
    if missing and imply:
        have = implied_scopes(have, imply)
        missing = tuple([scope for scope in missing if scope not in have])
    return missing


def implied_scopes(granted: Iterable[str], imply: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The granted scopes and, over any number of steps, all that they imply."""
    have: set[str] = set()
    pending = list(granted)
    while pending:
        scope = pending.pop()
        if scope not in have:
            have.add(scope)
            pending.extend(imply.get(scope, ()))
    return frozenset(have)


def listed_scopes(said: Iterable[str] | None) -> Iterable[str]:
    """Scopes as an app of its own accord says them: several, or one string as in a token.

    `None` is what a look-up says of somebody whom it does not know: no scope. A string is several
    letters to Python, of which one may be a scope's name.
    """
    return said.split() if isinstance(said, str) else said or ()


def union_scopes(*lists: Iterable[str]) -> tuple[str, ...]:
    """The scopes of all lists, each once, in the order of their first mention."""
    return tuple(dict.fromkeys(scope for scopes in lists for scope in scopes))


def checked_scopes(setting: str, scopes: Iterable[str]) -> tuple[str, ...]:
    """Scopes that a challenge or the metadata may name, each once.

    Raises:
        TypeError: a single string, where a list of strings is needed.
        ValueError: a scope is malformed, a wildcard (best practices §Scope Minimization), or
            `offline_access`, which is between the client and the authorization server
            (index §Refresh Tokens).
    """
    checked = _well_formed(setting, scopes)
    for scope in checked:
        if "*" in scope:
            raise ValueError(f"{setting} has the wildcard {scope!r}. Name the scopes one by one.")
        if scope == _OFFLINE:
            raise ValueError(
                f"{setting} has {_OFFLINE!r}, which no resource requires: clients ask the "
                "authorization server for it if they want refresh tokens."
            )
    return checked


def checked_implications(imply: Mapping[str, Iterable[str]] | None) -> Implications:
    """Read an `imply=` setting: `{"notes:admin": ["notes:write"]}`. Cycles do no harm.

    Raises: TypeError, ValueError; as `checked_scopes`, but a broader scope may be a wildcard.
    """
    checked = {}
    for broader, narrower in (imply or {}).items():
        _well_formed("imply", [broader])
        checked[broader] = checked_scopes(f"imply[{broader!r}]", narrower)
    return checked


def _well_formed(setting: str, scopes: Iterable[str]) -> tuple[str, ...]:
    if isinstance(scopes, str):
        raise TypeError(f"{setting} takes a list of scopes, not the string {scopes!r}.")
    checked = union_scopes(scopes)
    for scope in checked:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ValueError(f"{setting} has {scope!r}, which is no scope (RFC 6749 §3.3).")
    return checked
