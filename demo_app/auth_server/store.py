"""What the server remembers, in memory: approvals, and the codes and tokens that came of them.

Secrets are kept as hashes. Nothing here awaits, so on one event loop every method is atomic.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .authlib_parts import AuthorizationCodeMixin, TokenMixin
from .settings import AuthSettings, Person

Kind = Literal["access", "refresh"]


def new_secret() -> str:
    """256 bits, so that a plain hash is enough to store it."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(slots=True, eq=False)
class Approval:
    """What a person let a client do. All tokens that came of it are one family and die with it."""

    person: Person
    client_id: str
    resource: str
    scope: str
    expires_at: float
    revoked: bool = False

    def get_user_id(self) -> str:
        """The `sub` of tokens: Authlib takes an approval for its user."""
        return self.person.id

    def live(self, now: float) -> bool:
        return not self.revoked and now < self.expires_at


@dataclass(slots=True, eq=False)
class Code(AuthorizationCodeMixin):  # type: ignore[misc]
    """An authorization code that has been issued. The code itself is not stored."""

    approval: Approval
    redirect_uri: str | None
    code_challenge: str
    expires_at: float
    spent: bool = False
    code_challenge_method: str = "S256"

    def get_redirect_uri(self) -> str | None:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.approval.scope


@dataclass(slots=True, eq=False)
class Issued(TokenMixin):  # type: ignore[misc]
    """A token that has been issued. The token itself is not stored.

    `spent` is what a refresh token becomes by being used, and an access token by being revoked.
    """

    approval: Approval
    kind: Kind
    expires_at: float
    claims: Mapping[str, Any] = field(default_factory=dict)
    spent: bool = False

    def check_client(self, client: Any) -> bool:
        return bool(client.get_client_id() == self.approval.client_id)

    def get_scope(self) -> str:
        return self.approval.scope


class Store:
    """The tables. Knows no request."""

    def __init__(self, settings: AuthSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._codes: dict[str, Code] = {}
        self._tokens: dict[str, Issued] = {}
        self._sessions: dict[str, tuple[Person, float]] = {}

    # --------------------------------------------------------------------------- browsers

    def open_session(self, person: Person) -> str:
        token = new_secret()
        self._sessions[digest(token)] = person, self._clock() + self._settings.session_lifetime
        return token

    def person(self, session: str) -> Person | None:
        """Who has signed in with the browser that holds this token, if anybody."""
        person, expires_at = self._sessions.get(digest(session), (None, 0.0))
        return person if self._clock() < expires_at else None

    def close_session(self, session: str) -> None:
        self._sessions.pop(digest(session), None)

    # -------------------------------------------------------------------------- approvals

    def approve(
        self, code: str, code_challenge: str, redirect_uri: str | None, **what: Any
    ) -> None:
        """A person has agreed to `what`; `code` is what the client gets for it."""
        self._forget_the_dead()
        now = self._clock()
        approval = Approval(**what, expires_at=now + self._settings.approval_lifetime)
        self._codes[digest(code)] = Code(
            approval, redirect_uri, code_challenge, now + self._settings.code_lifetime
        )

    def redeem(self, code: str, client_id: str) -> Code | None:
        """The code, if it is good. It is spent by the first attempt, whatever becomes of that.

        A second attempt means that the code has leaked, so it revokes what the first one got
        (OAuth 2.1 §4.1.3).
        """
        found = self._codes.get(digest(code))
        if found is None:
            return None
        if found.spent:
            found.approval.revoked = True
        good = (
            not found.spent
            and found.approval.client_id == client_id
            and self._clock() < found.expires_at
        )
        found.spent = True
        return found if good else None

    def approved_scopes(self, person: Person, client_id: str, resource: str) -> frozenset[str]:
        """What this person has let this client do there before."""
        now = self._clock()
        asked = person, client_id, resource
        return frozenset(
            scope
            for issued in self._tokens.values()
            if (a := issued.approval).live(now) and (a.person, a.client_id, a.resource) == asked
            for scope in a.scope.split()
        )

    # ----------------------------------------------------------------------------- tokens

    def keep_access_token(self, token: str, approval: Approval, claims: Mapping[str, Any]) -> None:
        self._forget_the_dead()
        self._tokens[digest(token)] = Issued(approval, "access", claims["exp"], claims)

    def keep_refresh_token(self, token: str, approval: Approval) -> None:
        self._tokens[digest(token)] = Issued(approval, "refresh", approval.expires_at)

    def token(self, token: str) -> Issued | None:
        """The token, if it is live."""
        found = self._tokens.get(digest(token))
        now = self._clock()
        if found and not found.spent and now < found.expires_at and found.approval.live(now):
            return found
        return None

    def refresh_token(self, token: str) -> Issued | None:
        """The token, if it may be used.

        One that has been used before means that somebody stole it, before or after its use, so the
        whole family is revoked (OAuth 2.1 §4.3.1).
        """
        found = self._tokens.get(digest(token))
        if found is None or found.kind != "refresh":
            return None
        if found.spent:
            found.approval.revoked = True
        return self.token(token)

    def _forget_the_dead(self) -> None:
        """What can neither be used nor betray a theft any longer."""
        now = self._clock()
        for code, row in list(self._codes.items()):
            if now >= row.approval.expires_at or (not row.spent and now >= row.expires_at):
                del self._codes[code]
        for token, issued in list(self._tokens.items()):
            if now >= issued.expires_at or now >= issued.approval.expires_at:
                del self._tokens[token]
        for session, (_, expires_at) in list(self._sessions.items()):
            if now >= expires_at:
                del self._sessions[session]
