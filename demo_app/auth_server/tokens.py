"""Access tokens, and the two endpoints that are about tokens that exist already."""

import json
from collections.abc import Callable
from typing import Any, Final

from joserfc.jwk import KeySet
from joserfc.jws import extract_compact

from .authlib_parts import (
    IntrospectionEndpoint,
    InvalidRequestError,
    JWTBearerTokenGenerator,
    RevocationEndpoint,
)
from .clients import Client
from .keys import ALGORITHM, SigningKeys
from .metadata import CLIENT_AUTH_METHODS, RESOURCE_AUTH_METHODS
from .settings import AuthSettings
from .store import Approval, Issued, new_secret


class AccessTokens(JWTBearerTokenGenerator):  # type: ignore[misc]
    """JWTs of RFC 9068. Without these settings they would last ten days and be for the client."""

    def __init__(
        self, settings: AuthSettings, keys: SigningKeys, clock: Callable[[], float]
    ) -> None:
        super().__init__(
            settings.issuer,
            alg=ALGORITHM,
            refresh_token_generator=lambda **_: new_secret(),
            expires_generator=settings.access_lifetime,
        )
        self._lifetime = settings.access_lifetime
        self._keys = keys
        self._clock = clock

    def get_jwks(self) -> KeySet:
        return self._keys.active()

    def get_audiences(self, client: Client, user: Approval, scope: str) -> str:
        return user.resource

    def get_extra_claims(
        self, client: Client, grant_type: str, user: Approval, scope: str
    ) -> dict[str, Any]:
        now = int(self._clock())
        return {"iat": now, "exp": now + self._lifetime}


def claims_of(access_token: str) -> dict[str, Any]:
    """What a token says that was made here a moment ago, so nothing is verified."""
    claims: dict[str, Any] = json.loads(extract_compact(access_token.encode()).payload)
    return claims


def _needs_token(request: Any) -> None:
    """Hints are ignored (RFC 7009 §2.1): Authlib answers 401 to those it does not know."""
    if "token" not in request.form:
        raise InvalidRequestError("Missing 'token' in request.")


class Revocation(RevocationEndpoint):  # type: ignore[misc]
    """A client gives back what it has: an access token alone, a refresh token with its family."""

    CLIENT_AUTH_METHODS: Final = list(CLIENT_AUTH_METHODS)

    def check_params(self, request: Any, client: Client) -> None:
        _needs_token(request)

    def query_token(self, token_string: str, token_type_hint: str | None) -> Issued | None:
        found: Issued | None = self.server.store.token(token_string)
        return found

    def revoke_token(self, token: Issued, request: Any) -> None:
        if token.kind == "refresh":
            token.approval.revoked = True
        token.spent = True


class Introspection(IntrospectionEndpoint):  # type: ignore[misc]
    """Tells a resource about access tokens that are for it. For all others they do not exist."""

    CLIENT_AUTH_METHODS: Final = list(RESOURCE_AUTH_METHODS)

    def check_params(self, request: Any, client: Client) -> None:
        _needs_token(request)

    def query_token(self, token_string: str, token_type_hint: str | None) -> Issued | None:
        found: Issued | None = self.server.store.token(token_string)
        return found

    def check_permission(self, token: Issued, client: Client, request: Any) -> bool:
        return token.kind == "access" and token.approval.resource == client.introspects

    def create_introspection_payload(self, token: Issued | None) -> dict[str, Any]:
        if token is None:
            return {"active": False}
        return {"active": True, "token_type": "Bearer", **token.claims}
