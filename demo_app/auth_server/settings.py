"""What a deployment of the authorization server chooses. Checked once, when it is constructed."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from demo_app.db import CUSTOMERS
from demo_app.pages import DESK, Brand

TITLE: Final = "Travel desk sign-in (demo, in-memory)"

CUSTOMERS_KEYS: Final = tuple(key for _, _, key, _ in CUSTOMERS)

SCOPES: Final[Mapping[str, str]] = {
    "desk:read": "See flights, free seats and your bookings",
    "desk:book": "Hold seats and cancel bookings in your name",
    "desk:pay": "Pay for bookings in your name",
}
"""What each scope allows, in the words of the consent page. The first is the default scope."""

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """Whose server it is, in the words of its pages.

    Attributes:
        title: says that it is a demo.
        service: what programs want to use, in a sentence.
        key: what people sign in with, and `keys` those that there are.
    """

    brand: Brand = DESK
    title: str = TITLE
    service: str = "the travel desk"
    key: str = "API key"
    keys: tuple[str, ...] = CUSTOMERS_KEYS


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who has signed in. The id becomes the `sub` of tokens, the name stays here."""

    id: str
    name: str


SignIn = Callable[[str], Awaitable[Person | None]]
"""From an API key to whom it belongs, if to anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An API that tokens are issued for.

    Attributes:
        uri: its identifier (RFC 8707), which becomes the `aud` of tokens.
        name: what the consent page calls it.
        id: the client_id with which it may introspect the tokens that are for it.
        secret: goes with `id`. Without one it cannot introspect.
    """

    uri: str
    name: str
    id: str = "resource"
    secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """Lifetimes are in seconds.

    Attributes:
        issuer: the identifier of this server, and the URL under which its endpoints are. Clients
            compare it byte for byte.
        resources: the APIs that tokens may be for. The first is meant if a client names none.
        sign_in: knows people by their API keys.
        house: whose server it is, for its pages.
        scopes: every scope there is, with what it allows in words. The first is the default.
        loopback_documents: whether a client may be described by a document on this computer, over
            plain http. For demos: it lets clients make this server call whatever listens here.
        private_use_schemes: schemes that redirect URIs may have besides https, such as
            "com.example.app". None by default: MCP wants https or localhost.
        publish_ahead: how long a new signing key is published before it signs: as long as resource
            servers may keep the key set.
    """

    issuer: str
    resources: tuple[Resource, ...]
    sign_in: SignIn
    house: House = field(default_factory=House)
    scopes: Mapping[str, str] = field(default_factory=lambda: SCOPES)
    loopback_documents: bool = False
    private_use_schemes: tuple[str, ...] = ()
    code_lifetime: float = 60
    access_lifetime: int = 300
    approval_lifetime: float = 30 * 24 * 3600
    session_lifetime: int = 3600
    key_period: float = 24 * 3600
    publish_ahead: int = 300

    def __post_init__(self) -> None:
        """Raises: ValueError: a setting cannot work."""
        url = urlsplit(self.issuer)
        loopback = url.scheme == "http" and url.hostname in LOOPBACK
        if not (url.scheme == "https" or loopback) or not url.hostname:
            raise ValueError(f"issuer={self.issuer!r} must be https, or http on this computer.")
        if re.search(r"[?#@\s]|/$", self.issuer):
            raise ValueError(
                f"issuer={self.issuer!r} must be a plain URL without slash at the end."
            )
        if not self.resources or not self.scopes:
            raise ValueError("There must be a resource and a scope: tokens are for something.")

    @property
    def path(self) -> str:
        """Where the endpoints are on this host; empty at the root."""
        return urlsplit(self.issuer).path

    @property
    def https(self) -> bool:
        return self.issuer.startswith("https:")

    @property
    def default_scope(self) -> str:
        return next(iter(self.scopes))

    def resource(self, uri: str) -> Resource | None:
        """The resource that `uri` names, whatever the case of its scheme and host."""
        return next((r for r in self.resources if _canonical(r.uri) == _canonical(uri)), None)


def _canonical(uri: str) -> str:
    """Schemes and hosts may come in upper case (index §Canonical Server URI), paths may not."""
    parts = re.fullmatch(r"([^/?#]*//[^/?#]*)(.*)", uri)
    return parts[1].lower() + parts[2] if parts else uri
