"""Whatever an app authenticates with: nobody continues somebody else's flow (rule 34).

Each scheme is what FastAPI's documentation has people write; the endpoint is real, the client too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Cookie, Depends, FastAPI, Header, HTTPException, Request, Security
from fastapi.security import (
    APIKeyCookie,
    APIKeyHeader,
    HTTPAuthorizationCredentials,
    HTTPBearer,
    OAuth2PasswordBearer,
    OpenIdConnect,
)
from starlette.middleware.sessions import SessionMiddleware

from fastapi_mcp_mrtr import JWTVerifier, ProtectedResource, Rounds, VerifiedToken, need_input
from tests import wire
from tests.auth.issuer import ISSUER, RESOURCE, Clock, access_token, jwk_set, rsa

from .desk import CHANGE, FROZEN, LOOK, METADATA_URL, again, connected, post, router, told

pytestmark = pytest.mark.anyio

ISSUED: Mapping[str, str] = {
    "t-alice": "alice",
    "t-alice-refreshed": "alice",
    "t-bob": "bob",
}
"""Tokens, keys and session ids, and whose they are."""


def known(credential: str | None, *, required: bool = True) -> str | None:
    if credential is not None and credential in ISSUED:
        return ISSUED[credential]
    if required or credential is not None:
        raise HTTPException(401, "Who is this?")
    return None


# ----------------------------------------------------------------------------- the apps' own code


def from_password_bearer(token: Annotated[str, Depends(OAuth2PasswordBearer("token"))]) -> Any:
    return known(token)


def from_optional_password_bearer(
    token: Annotated[str | None, Depends(OAuth2PasswordBearer("token", auto_error=False))],
) -> Any:
    return known(token, required=False)


def from_bearer(
    found: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())],
) -> Any:
    return known(found.credentials)


def from_optional_bearer(
    found: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
) -> Any:
    return known(found.credentials if found else None, required=False)


def from_openid(header: Annotated[str, Security(OpenIdConnect(openIdConnectUrl="/oidc"))]) -> Any:
    return known(header.removeprefix("Bearer "))


def from_key(key: Annotated[str, Security(APIKeyHeader(name="X-API-Key"))]) -> Any:
    return known(key)


def from_optional_key(
    key: Annotated[str | None, Security(APIKeyHeader(name="X-API-Key", auto_error=False))],
) -> Any:
    return known(key, required=False)


def from_cookie(key: Annotated[str, Security(APIKeyCookie(name="key"))]) -> Any:
    return known(key)


def from_optional_cookie(key: Annotated[str | None, Cookie()] = None) -> Any:
    return known(key, required=False)


def from_session(request: Request) -> Any:
    if "user" not in request.session:
        raise HTTPException(401, "Log in")
    return request.session["user"]


def from_optional_session(request: Request) -> Any:
    return request.session.get("user")


def from_certificate(x_client_cert_subject: Annotated[str, Header()]) -> Any:
    """Set by a proxy, which checked the certificate and drops what clients send."""
    return ("certificate", x_client_cert_subject)


def from_optional_certificate(x_client_cert_subject: Annotated[str | None, Header()] = None) -> Any:
    return None if x_client_cert_subject is None else ("certificate", x_client_cert_subject)


@dataclass
class Account:
    """A user as an ORM has one: another object on every request."""

    id: int
    last_seen: float

    def mcp_principal_key(self) -> tuple[str, int]:
        return ("account", self.id)


class Accounts:
    """A dependency that is an object with `__call__`, and async."""

    def __init__(self, *, required: bool) -> None:
        self.required = required
        self.calls = 0

    async def __call__(self, request: Request) -> Account | None:
        self.calls += 1
        user = known(request.headers.get("x-own"), required=self.required)
        return None if user is None else Account({"alice": 1, "bob": 2}[user], self.calls)


def from_bearer_or_key(
    found: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    key: Annotated[str | None, Security(APIKeyHeader(name="X-API-Key", auto_error=False))],
) -> Any:
    if found is not None:
        return ("user", known(found.credentials))
    return ("key", known(key))


def from_optional_bearer_or_key(
    found: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    key: Annotated[str | None, Security(APIKeyHeader(name="X-API-Key", auto_error=False))],
) -> Any:
    return None if found is None and key is None else from_bearer_or_key(found, key)


CLOCK = Clock()


def protected(**settings: Any) -> ProtectedResource:
    verifier = JWTVerifier(issuer=ISSUER, audience=RESOURCE, jwks=jwk_set(rsa()), clock=CLOCK)
    return ProtectedResource(
        resource=RESOURCE, authorization_servers=[ISSUER], verifier=verifier, **settings
    )


resource = protected()
optional_resource = protected(auto_error=False)


def from_token(token: Annotated[VerifiedToken, Depends(resource)]) -> Any:
    return ("user", token.subject)


def from_optional_token(token: Annotated[VerifiedToken | None, Depends(optional_resource)]) -> Any:
    return None if token is None else ("user", token.subject)


# ------------------------------------------------------------------------------------- the schemes


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


JWT = {
    "t-alice": access_token(),
    "t-alice-refreshed": access_token(jti="fresh", scope="notes:read notes:write"),
    "t-bob": access_token(sub="bob"),
}
SUBJECTS = {
    "t-alice": "CN=alice,O=Example",
    "t-alice-refreshed": "CN=alice,O=Example",  # renewed, with another serial number
    "t-bob": "CN=bob,O=Example",
}


@dataclass
class Scheme:
    """How an app knows its users; `optional` lets strangers in."""

    required: Any
    optional: Any
    send: Callable[[str], dict[str, str]]
    """The headers of who has this credential."""
    unauthenticated: str | None = None
    """The challenge to who has none."""
    augmented: str | None = None
    """The same, of an app with metadata; None if it is left alone."""
    middleware: list[Any] = field(default_factory=list)


FOUND = f'resource_metadata="{METADATA_URL}"'

SCHEMES: Mapping[str, Scheme] = {
    "OAuth2PasswordBearer": Scheme(
        from_password_bearer,
        from_optional_password_bearer,
        bearer,
        "Bearer",
        f"Bearer {FOUND}",
    ),
    "HTTPBearer": Scheme(from_bearer, from_optional_bearer, bearer, "Bearer", f"Bearer {FOUND}"),
    "OpenIdConnect": Scheme(from_openid, from_optional_bearer, bearer, "Bearer", f"Bearer {FOUND}"),
    "APIKeyHeader": Scheme(
        from_key, from_optional_key, lambda key: {"x-api-key": key}, "APIKey", "APIKey"
    ),
    "APIKeyCookie": Scheme(
        from_cookie, from_optional_cookie, lambda key: {"cookie": f"key={key}"}, "APIKey", "APIKey"
    ),
    "a session": Scheme(
        from_session,
        from_optional_session,
        lambda key: {"cookie": f"session={key}"},
        None,
        f"Bearer {FOUND}",
        [(SessionMiddleware, {"secret_key": "s" * 32})],
    ),
    "a certificate": Scheme(
        from_certificate,
        from_optional_certificate,
        lambda key: {"x-client-cert-subject": SUBJECTS[key]},
    ),
    "a callable": Scheme(
        Accounts(required=True),
        Accounts(required=False),
        lambda key: {"x-own": key},
        None,
        f"Bearer {FOUND}",
    ),
    "bearer or key": Scheme(
        from_bearer_or_key, from_optional_bearer_or_key, bearer, None, f"Bearer {FOUND}"
    ),
    "a key instead of a bearer": Scheme(
        from_bearer_or_key,
        from_optional_bearer_or_key,
        lambda key: {"x-api-key": key},
        None,
        f"Bearer {FOUND}",
    ),
    "an access token": Scheme(
        resource,
        optional_resource,
        lambda key: bearer(JWT[key]),
        f"Bearer {FOUND}",
        f"Bearer {FOUND}",
    ),
    "a user of an access token": Scheme(
        from_token,
        from_optional_token,
        lambda key: bearer(JWT[key]),
        f"Bearer {FOUND}",
        f"Bearer {FOUND}",
    ),
}

every_scheme = pytest.mark.parametrize("name", SCHEMES)


class App:
    """An app with a scheme, and a client of it."""

    def __init__(self, scheme: Scheme, principal: Any, **settings: Any) -> None:
        self.scheme = scheme
        self.app = FastAPI()
        for middleware, options in scheme.middleware:
            self.app.add_middleware(middleware, **options)
        self.app.include_router(router(principal, CLOCK, **settings))

        @self.app.post("/login/{name}")
        async def login(name: str, request: Request) -> None:
            request.session["user"] = ISSUED[name]

    async def headers(self, http: httpx2.AsyncClient, credential: str | None) -> dict[str, str]:
        if credential is None:
            return {}
        if self.scheme.middleware:  # a session's cookie is not the client's to choose
            response = await http.post(f"/login/{credential}")
            http.cookies.clear()
            credential = response.cookies["session"]
        return self.scheme.send(credential)

    async def send(self, http: httpx2.AsyncClient, body: Any, credential: str | None) -> Any:
        return await post(http, body, **await self.headers(http, credential))


def is_frozen(response: Any) -> bool:
    return told(response) == (400, None) and wire.error_of(response) == FROZEN


@every_scheme
async def test_a_flow_belongs_to_who_began_it(name: str) -> None:
    """rules 34, 36: bob gets the one answer for every state that does not open, and no challenge,
    which would begin an authorization for nothing; alice continues with a refreshed credential."""
    app = App(SCHEMES[name], SCHEMES[name].required)
    async with connected(app.app) as http:
        asked = await app.send(http, CHANGE, "t-alice")
        body = again(CHANGE, asked)
        assert is_frozen(await app.send(http, body, "t-bob"))
        stranger = await app.send(http, body, None)
        assert stranger.status_code in (401, 422)
        done = await app.send(http, body, "t-alice-refreshed")
        assert wire.text_of(done).endswith(" True")
        # Bob's own flow is bob's, and he cannot be made to finish alice's by handing him hers.
        asked = await app.send(http, CHANGE, "t-bob")
        assert is_frozen(await app.send(http, again(CHANGE, asked), "t-alice"))


@every_scheme
async def test_to_be_anonymous_is_not_to_be_anybody(name: str) -> None:
    """rule 34: an anonymous flow is refused after login, which else an attacker could have begun
    for a victim to finish; and so is a user's after logout."""
    app = App(SCHEMES[name], SCHEMES[name].optional)
    async with connected(app.app) as http:
        asked = await app.send(http, CHANGE, None)
        assert is_frozen(await app.send(http, again(CHANGE, asked), "t-alice"))
        assert wire.text_of(await app.send(http, again(CHANGE, asked), None)) == "None True"
        asked = await app.send(http, CHANGE, "t-alice")
        assert is_frozen(await app.send(http, again(CHANGE, asked), None))


@every_scheme
async def test_who_has_no_credential_is_told_how_to_get_one(name: str) -> None:
    """rules 2, 21: what the app raised, and where to log in if there is such a place."""
    scheme = SCHEMES[name]
    app = App(scheme, scheme.required)
    async with connected(app.app) as http:
        refused = await app.send(http, LOOK, None)
        assert told(refused) == (422 if name == "a certificate" else 401, scheme.unauthenticated)
    app = App(scheme, scheme.required, resource_metadata_url=METADATA_URL)
    async with connected(app.app) as http:
        refused = await app.send(http, LOOK, None)
        assert told(refused) == (422 if name == "a certificate" else 401, scheme.augmented)


async def test_a_user_and_a_key_of_one_name_are_two() -> None:
    """rule 35: where credentials of several kinds are taken, a tuple says which it was."""
    users = App(SCHEMES["bearer or key"], from_bearer_or_key)
    async with connected(users.app) as http:
        asked = await post(http, CHANGE, authorization="Bearer t-alice")
        body = again(CHANGE, asked)
        assert is_frozen(await post(http, body, x_api_key="t-alice"))
        assert wire.text_of(await post(http, body, authorization="Bearer t-alice")) == (
            "('user', 'alice') True"
        )


async def test_a_token_stepped_down_is_refused_before_the_state() -> None:
    """rule 37: the app's own scopes count on every round, too: `scopes_of=`."""
    scopes = {"t-alice": ["write"], "t-alice-refreshed": [], "t-bob": []}

    def user(found: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> Any:
        return {"sub": known(found.credentials), "scopes": scopes[found.credentials]}

    mcp = router(user, CLOCK, scopes_of=lambda user: user["scopes"])

    @mcp.tool(scopes=["write"])
    async def book() -> Rounds[str]:
        yield need_input("sure", "Sure?", bool)
        yield "booked"

    app = FastAPI()
    app.include_router(mcp)
    async with connected(app) as http:
        body = wire.call("book")
        asked = await post(http, body, **bearer("t-alice"))
        for credential in ("t-alice-refreshed", "t-bob"):
            refused = await post(http, again(body, asked), **bearer(credential))
            assert refused.status_code == 403
            assert (
                'error="insufficient_scope", scope="write"' in (refused.headers["WWW-Authenticate"])
            )
        assert wire.text_of(await post(http, again(body, asked), **bearer("t-alice"))) == "booked"
