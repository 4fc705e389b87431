"""Which scopes a caller needs for a handler, and what a caller without them is told or not shown.

Knows no token format and no header: the resource or the router's `scopes_of=` says what is granted.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, Protocol

from fastapi_mcp_mrtr.auth.challenges import ChallengeError, insufficient_scope
from fastapi_mcp_mrtr.auth.resource import ProtectedResource
from fastapi_mcp_mrtr.auth.scopes import (
    Implications,
    checked_scopes,
    listed_scopes,
    missing_scopes,
    union_scopes,
)
from fastapi_mcp_mrtr.auth.token import VerifiedToken

from .injection import RequestDependencies
from .registry import Entry

Visibility = Literal["challenge", "authorized"]

_REMEDY: Final = (
    "MCPRouter(principal=ProtectedResource(...)) reads them from the access token; with another "
    "principal say what it may do: MCPRouter(scopes_of=lambda principal: ...)"
)


class Authenticated(Protocol):
    """Whoever makes a request."""

    @property
    def principal(self) -> Any: ...
    @property
    def dependencies(self) -> RequestDependencies: ...


class Access:
    """Decides on scopes. One instance per router; the decision is made on every round.

    Args:
        resource: the protected resource behind the router's principal, if there is one.
        scopes_of: what a principal may do, where it is not for the token to say. Which scopes
            include others is for the resource to say all the same.
    """

    def __init__(
        self,
        resource: ProtectedResource | None,
        scopes_of: Callable[[Any], Iterable[str] | None] | None,
        metadata_url: str | None,
    ) -> None:
        self._resource = resource
        self._scopes_of = scopes_of
        self._imply: Implications = {} if resource is None else resource.imply
        self._metadata_url = metadata_url
        self._has_source = resource is not None or scopes_of is not None

    def require_source(self, entry: Entry) -> None:
        """Refuse to register a handler whose scopes nobody could check.

        Raises:
            ValueError: it needs scopes, and nothing says which ones a caller has; or those of its
                `Security` are none that a challenge may name.
        """
        if self._has_source:
            checked_scopes(
                f"Security(...) of {entry.kind} {entry.name!r}", entry.settings.security_scopes
            )
        elif entry.settings.scopes:
            raise ValueError(f"{entry.kind} {entry.name!r} needs scopes. {_REMEDY}")

    def authorize(self, call: Authenticated, entry: Entry) -> None:
        """Let a caller with all scopes of the handler pass.

        Raises:
            ChallengeError: 403, naming all scopes of the operation, those of every request too; or
                401, to the anonymous.
        """
        if not self.allows(call, entry):
            raise self._refusal(call, required_scopes(entry))

    def allows(self, call: Authenticated, entry: Entry) -> bool:
        """Whether the caller has all scopes of the handler."""
        required = required_scopes(entry)
        # Without a source there are only scopes of `Security`, which that dependency checks itself.
        return not (required and self._has_source and self._missing(call, required))

    def is_hidden(self, call: Authenticated, entry: Entry) -> bool:
        """Whether the handler does not exist for this caller."""
        return entry.settings.visibility == "authorized" and not self.allows(call, entry)

    def scopes_shown(self, entry: Entry) -> tuple[str, ...]:
        """What everybody may know that a handler needs."""
        return () if entry.settings.visibility == "authorized" else required_scopes(entry)

    def _missing(self, call: Authenticated, required: tuple[str, ...]) -> tuple[str, ...]:
        if self._scopes_of is not None:
            granted = listed_scopes(self._scopes_of(call.principal))
        else:
            token = self.token(call)
            granted = () if token is None else token.scopes
        return missing_scopes(required, granted, self._imply)

    def _refusal(self, call: Authenticated, required: tuple[str, ...]) -> ChallengeError:
        if self._resource is None:
            return insufficient_scope(required, self._metadata_url)
        if call.principal is None:
            return self._resource.challenge(required)
        return self._resource.challenge_insufficient(required, token=self.token(call))

    def token(self, call: Authenticated) -> VerifiedToken | None:
        """The access token of the request, verified; None where there is none."""
        if isinstance(call.principal, VerifiedToken):
            return call.principal
        return (
            None if self._resource is None else self._resource.verified(call.dependencies.request)
        )


def required_scopes(entry: Entry) -> tuple[str, ...]:
    """What a caller needs for a handler, beyond the scopes of every request."""
    settings = entry.settings
    if not settings.security_scopes:
        return settings.scopes
    return union_scopes(settings.scopes, settings.security_scopes)
