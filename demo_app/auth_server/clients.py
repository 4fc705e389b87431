"""Who may ask for tokens: what a client is, what it may say of itself, and how it registers.

A client comes in one of three ways: known from the start, by dynamic registration (RFC 7591,
deprecated since 2026-07-28 and kept for older clients), or by a document (`documents.py`). All
three pass `ClientMetadata`: Authlib's own checks let a client go without redirect URIs, with
`http://evil.example` or with `*` in a host, and fail on values that are no strings.
"""

import hmac
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)

from .authlib_parts import (
    ClientMixin,
    ClientRegistrationEndpoint,
    InvalidClientMetadataError,
    InvalidRedirectURIError,
)
from .metadata import GRANT_TYPES
from .settings import AuthSettings
from .store import digest

# ------------------------------------------------------------------------------- redirect URIs

_REST: Final = r"(?P<rest>(?:/[\w.~!$&'()*+,;=:@%/-]*)?(?:\?[\w.~!$&'()*+,;=:@%/?-]*)?)"

_WEB: Final = re.compile(
    rf"(?P<origin>https://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::\d{{1,5}})?){_REST}",
    re.ASCII | re.IGNORECASE,
)

_LOOPBACK: Final = re.compile(
    rf"(?P<host>http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::(?P<port>\d{{1,5}}))?{_REST}",
    re.ASCII,
)

_PRIVATE_USE: Final = re.compile(
    rf"(?P<scheme>[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)+):(?=/){_REST}", re.ASCII
)

_ANSWER: Final = re.compile(r"[?&](?:code|state|iss|error|error_\w+)=")
"""A query that forges a part of the answer, which is appended to it."""


def redirect_problem(uri: str, private_use_schemes: tuple[str, ...] = ()) -> str | None:
    """Why no code may be sent to this URI; `None` if one may.

    https, or http on this computer (MCP security-considerations §Communication Security). What the
    patterns do not name, such as `*`, user info, a fragment or a backslash, is refused.
    """
    private = _PRIVATE_USE.fullmatch(uri)
    if private and private["scheme"] not in private_use_schemes:
        return "the scheme is not one that this server redirects to"
    if not (private or _WEB.fullmatch(uri) or _LOOPBACK.fullmatch(uri)):
        return "must be https, or http on localhost, without user info, wildcard and fragment"
    if _ANSWER.search(uri):
        return "the query must leave the parameters of the answer alone"
    return None


def is_loopback(uri: str) -> bool:
    return _LOOPBACK.fullmatch(uri) is not None


def same_redirect(registered: str, requested: str) -> bool:
    """Identical; but for the port on this computer, which programs cannot choose beforehand
    (RFC 8252 §7.3)."""
    if registered == requested:
        return True
    ours, theirs = _LOOPBACK.fullmatch(registered), _LOOPBACK.fullmatch(requested)
    if ours is None or theirs is None:
        return False
    return ours.group("host", "rest") == theirs.group("host", "rest")


def origin(redirect_uri: str) -> str:
    """Whom the answer goes to: what the person is told, and what the page's forms may lead to."""
    if web := _WEB.fullmatch(redirect_uri):
        return web["origin"]
    if local := _LOOPBACK.fullmatch(redirect_uri):
        return local["host"] + (f":{local['port']}" if local["port"] else "")
    return redirect_uri.partition(":")[0] + ":"


# ---------------------------------------------------------------------- what clients say of it


def _redirect_uri(uri: str, info: ValidationInfo) -> str:
    if problem := redirect_problem(uri, (info.context or {}).get("private_use_schemes", ())):
        raise ValueError(problem)
    return uri


def _readable(name: str) -> str:
    """Without what could rearrange the consent page: control and direction characters."""
    spaced = " ".join(name.split())
    kept = "".join(c for c in spaced if unicodedata.category(c)[0] != "C").strip()
    if not kept:
        raise ValueError("must be readable")
    return kept


def _supported(wanted: Any) -> Any:
    """A server may replace what a client wishes for (RFC 7591 §3.2.1)."""
    if isinstance(wanted, list):
        return [grant for grant in GRANT_TYPES if grant in wanted]
    return wanted


def _authorization_code(grants: list[str]) -> list[str]:
    if "authorization_code" not in grants:
        raise ValueError("must name authorization_code")
    return grants


AuthMethod = Literal["none", "client_secret_basic", "client_secret_post"]

PUBLIC: Final = "none"


class ClientMetadata(BaseModel):
    """What RFC 7591 §2 lets a client say, as far as it matters here. The rest is ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    redirect_uris: Annotated[
        list[Annotated[str, Field(max_length=2000), AfterValidator(_redirect_uri)]],
        Field(min_length=1, max_length=10),
    ]
    client_name: Annotated[str, Field(max_length=100), AfterValidator(_readable)] | None = None
    # RFC 7591's default is client_secret_basic, with which public clients would get a secret.
    token_endpoint_auth_method: AuthMethod = PUBLIC
    grant_types: Annotated[
        list[str], BeforeValidator(_supported), AfterValidator(_authorization_code)
    ] = ["authorization_code"]
    response_types: Annotated[list[Literal["code"]], Field(min_length=1)] = ["code"]
    application_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Client(ClientMixin):  # type: ignore[misc]
    """One client, as Authlib asks for it.

    Attributes:
        document: whether the id is the URL of the document that says all this.
        vetted: whether somebody has registered it by hand, so that its name is true.
        introspects: the resource whose tokens it may introspect; then it may do nothing else.
    """

    id: str
    name: str | None = None
    redirect_uris: tuple[str, ...] = ()
    auth_method: str = PUBLIC
    secret_sha256: str | None = field(default=None, repr=False)
    grant_types: tuple[str, ...] = GRANT_TYPES
    document: bool = False
    vetted: bool = False
    introspects: str | None = None

    def get_client_id(self) -> str:
        return self.id

    def get_default_redirect_uri(self) -> str | None:
        return self.redirect_uris[0] if len(self.redirect_uris) == 1 else None

    def get_allowed_scope(self, scope: str) -> str:
        """Any that there is: what a client may do is for a person to decide, at every request.

        A limit at registration would make step-up impossible.
        """
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return any(same_redirect(uri, redirect_uri) for uri in self.redirect_uris)

    def check_client_secret(self, client_secret: str) -> bool:
        return self.secret_sha256 is not None and hmac.compare_digest(
            self.secret_sha256, digest(client_secret)
        )

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        if self.introspects or endpoint == "introspection":
            return bool(self.introspects) and endpoint == "introspection" and method != PUBLIC
        return method == self.auth_method

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code" and not self.introspects

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.grant_types


# ------------------------------------------------------------------------------- registration

MAX_CLIENTS: Final = 1000
"""Anybody may register, so the table has an end. The oldest give way."""


class Clients:
    """The clients that there are."""

    def __init__(self, settings: AuthSettings, known: Iterable[Client] = ()) -> None:
        resources = [
            Client(id=r.id, name=r.name, secret_sha256=digest(r.secret), introspects=r.uri)
            for r in settings.resources
            if r.secret is not None
        ]
        self._known = {client.id: client for client in (*known, *resources)}
        self._added: dict[str, Client] = {}

    def get(self, client_id: str) -> Client | None:
        return self._known.get(client_id) or self._added.get(client_id)

    def add(self, client: Client) -> None:
        self._added.pop(client.id, None)
        self._added[client.id] = client
        if len(self._added) > MAX_CLIENTS:
            del self._added[next(iter(self._added))]


class Registration(ClientRegistrationEndpoint):  # type: ignore[misc]
    """Dynamic registration, open to anybody: it gives no rights, since people decide on those."""

    def __init__(
        self, settings: AuthSettings, clients: Clients, clock: Callable[[], float]
    ) -> None:
        super().__init__()
        self._settings = settings
        self._clients = clients
        self._clock = clock

    def authenticate_token(self, request: Any) -> str:
        return "anybody"

    def extract_client_metadata(self, request: Any) -> dict[str, Any]:
        """Raises: InvalidRedirectURIError, InvalidClientMetadataError."""
        try:
            metadata = ClientMetadata.model_validate(
                request.payload.data,
                context={"private_use_schemes": self._settings.private_use_schemes},
            )
        except ValidationError as error:
            raise _refusal(error) from None
        request.metadata = metadata
        return {
            **metadata.model_dump(exclude_none=True),
            # Not what it wished for, but what it may ask people for.
            "scope": " ".join(self._settings.scopes),
        }

    def generate_client_info(self, request: Any) -> dict[str, Any]:
        info: dict[str, Any] = super().generate_client_info(request)
        info["client_id_issued_at"] = int(self._clock())
        if request.metadata.token_endpoint_auth_method == PUBLIC:
            # Authlib gives everybody a secret; one that is never checked only misleads.
            del info["client_secret"], info["client_secret_expires_at"]
        return info

    def save_client(self, info: dict[str, Any], _: dict[str, Any], request: Any) -> Client:
        secret = info.get("client_secret")
        client = described(
            request.metadata, info["client_id"], secret_sha256=digest(secret) if secret else None
        )
        self._clients.add(client)
        return client


def described(metadata: ClientMetadata, client_id: str, **more: Any) -> Client:
    """The client that has said this of itself."""
    return Client(
        id=client_id,
        name=metadata.client_name,
        redirect_uris=tuple(metadata.redirect_uris),
        auth_method=metadata.token_endpoint_auth_method,
        grant_types=tuple(metadata.grant_types),
        **more,
    )


def problem_of(error: ValidationError) -> tuple[str, str]:
    """The member that is wrong, and what is wrong with it, in characters that OAuth allows."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the document"
    text = f"{place}: {first['msg'].removeprefix('Value error, ')}"
    return place, re.sub(r"[^ !#-\[\]-~]", "'", text)


def _refusal(error: ValidationError) -> Exception:
    place, text = problem_of(error)
    about_uris = place.startswith("redirect_uris")
    refusal: Exception = (InvalidRedirectURIError if about_uris else InvalidClientMetadataError)(
        text
    )
    return refusal
