"""The MCP server as an OAuth 2.1 resource server: a FastAPI dependency and its metadata.

It reads the token from the request, has a verifier verify it, and refuses as `challenges.py` says.
Everything it says of itself comes from its settings: what a request claims about the host it was
sent to would let another server's tokens in. Knows no JWT, no MCP message and no handler.
"""

import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from fastapi import Request, Response
from fastapi.openapi import models
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase
from pydantic_core import to_json

from .challenges import (
    ChallengeError,
    insufficient_scope,
    invalid_request,
    invalid_token,
    keys_unavailable,
    no_credentials,
)
from .issuers import IssuerVerifier, SeveralIssuers
from .scopes import checked_implications, checked_scopes, missing_scopes, union_scopes
from .token import InvalidToken, KeysUnavailable, TokenVerifier, VerifiedToken, identified
from .urls import WELL_KNOWN, canonical, checked_url, metadata_url

logger = logging.getLogger("fastapi_mcp_mrtr")

OPERATION_SCOPES: Final = "mcp_operation_scopes"
"""The attribute of an endpoint that tells the scopes of the operation that a request is for."""

_MEMO: Final = "fastapi_mcp_mrtr.tokens"
_MAX_TOKEN: Final = 16 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 §2.1
_SCHEME_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")

_METADATA_HEADERS: Final = {
    "Access-Control-Allow-Origin": "*",
    "Cache-Control": "public, max-age=3600",
}


class ProtectedResource(SecurityBase):
    """Requires an access token that was issued for this server.

    ```python
    auth = ProtectedResource(
        resource="https://api.example.com/mcp",
        authorization_servers=["https://as.example.com"],
        verifier=JWTVerifier(
            issuer="https://as.example.com",
            audience="https://api.example.com/mcp",
            jwks_uri="https://as.example.com/jwks.json",
        ),
        scopes=["notes:read"],
    )
    mcp = MCPRouter("notes", version="1.0.0", principal=auth)
    ```

    It is a dependency like those of `fastapi.security`, shows in OpenAPI, and gives routes and
    handlers the `VerifiedToken`: `Depends(auth)`, or `Security(auth, scopes=["notes:write"])`. A
    token is verified once in a request, and anew in every request.

    Args:
        resource: the URL that clients call, as they are to name it to the authorization server.
        authorization_servers: the issuers, byte for byte.
        verifier: a `JWTVerifier`, an `IntrospectionVerifier`, one of your own; or several, each for
            another issuer.
        scopes: what every request needs. Named in each challenge.
        imply: scopes that include others: `{"notes:admin": ["notes:write"]}`. Holds for what the
            router's `scopes_of=` says, too.
        scopes_supported: what the metadata lists, `scopes` by default: the least that is of use.
        resource_name: a name for people.
        resource_documentation: a page for people.
        resource_metadata_url: where the metadata can be fetched, if a proxy hides the usual place.
        scheme_name: the name of the scheme in OpenAPI.
        description: its description there.
        authorization_url: with `token_url`, lets people log in from FastAPI's docs page.
        token_url: with `authorization_url`.
        auto_error: as in `fastapi.security`: whether a request without a token is refused. `False`
            gives `None` instead, for a dependency that knows another way to authenticate and
            raises `challenge()` where that fails too. A token that is there must be good.

    Raises:
        ValueError, TypeError: a setting makes no sense.
    """

    def __init__(
        self,
        *,
        resource: str,
        authorization_servers: Iterable[str],
        verifier: TokenVerifier | Iterable[IssuerVerifier],
        scopes: Iterable[str] = (),
        imply: Mapping[str, Iterable[str]] | None = None,
        scopes_supported: Iterable[str] | None = None,
        resource_name: str | None = None,
        resource_documentation: str | None = None,
        resource_metadata_url: str | None = None,
        scheme_name: str = "MCPOAuth2",
        description: str | None = None,
        authorization_url: str | None = None,
        token_url: str | None = None,
        auto_error: bool = True,
    ) -> None:
        # Lower case is what is emitted, and all else stays as it is (index §Canonical Server URI).
        self.resource: Final = canonical(checked_url("resource", resource))
        self.authorization_servers: Final = _checked_issuers(authorization_servers)
        self.scopes: Final = checked_scopes("scopes", scopes)
        """What every request needs."""
        self.metadata_url: Final = (
            metadata_url(self.resource)
            if resource_metadata_url is None
            else checked_url("resource_metadata_url", resource_metadata_url)
        )
        """Where challenges say that the metadata is."""
        self.auto_error: Final = auto_error
        self.imply: Final = checked_implications(imply)
        """Which scopes include others."""
        self._verifier = _checked_verifier(verifier, self.authorization_servers)
        supported = self.scopes
        if scopes_supported is not None:
            supported = checked_scopes("scopes_supported", scopes_supported)
        if resource_documentation is not None:
            checked_url("resource_documentation", resource_documentation, query=True, fragment=True)
        self.metadata: Final = _encoded(
            resource=self.resource,
            authorization_servers=self.authorization_servers,
            scopes_supported=supported,
            bearer_methods_supported=["header"],
            resource_name=resource_name,
            resource_documentation=resource_documentation,
        )
        """The metadata document (RFC 9728 §3.2), the bytes that are served."""
        if not _SCHEME_NAME.fullmatch(scheme_name):
            raise ValueError(f"scheme_name={scheme_name!r} may have A-Z a-z 0-9 . _ - only.")
        self.scheme_name = scheme_name
        self.model = _openapi_model(
            authorization_url, token_url, union_scopes(self.scopes, supported), description
        )

    def __repr__(self) -> str:
        return f"ProtectedResource({self.resource!r})"

    async def __call__(
        self, request: Request, security_scopes: SecurityScopes
    ) -> VerifiedToken | None:
        """Authenticate a request, and check the scopes that hold for it as far as FastAPI knows.

        Gives `None` for a request without a token, and only with `auto_error=False`.

        Raises: ChallengeError.
        """
        required = self.required_scopes(security_scopes.scopes)
        verified: dict[ProtectedResource, VerifiedToken]
        verified = request.scope.setdefault(_MEMO, {})
        token = verified.get(self)
        if token is None:
            token = await self._authenticate(request, required)
            if token is None:
                return None
            verified[self] = token
        if self.missing_scopes(token, required):
            required = union_scopes(required, _operation_scopes(request))
            raise self.challenge_insufficient(required, token=token)
        return token

    def verified(self, request: Request) -> VerifiedToken | None:
        """The token of a request that this resource has verified already."""
        verified: Mapping[ProtectedResource, VerifiedToken] = request.scope.get(_MEMO, {})
        return verified.get(self)

    # ------------------------------------------------------------------------------- scopes

    def required_scopes(self, *more: Iterable[str]) -> tuple[str, ...]:
        """The scopes of every request and those of an operation, for one challenge with all."""
        return union_scopes(self.scopes, *more)

    def missing_scopes(self, token: VerifiedToken, required: Iterable[str]) -> tuple[str, ...]:
        """Those that the token neither has nor implies."""
        return missing_scopes(required, token.scopes, self.imply)

    def authorize(self, token: VerifiedToken, required: Iterable[str]) -> None:
        """Let a token with the scopes of every request and these pass.

        Raises: ChallengeError, 403; its challenge names all of them.
        """
        required = self.required_scopes(required)
        if self.missing_scopes(token, required):
            raise self.challenge_insufficient(required, token=token)

    def challenge(self, required: Iterable[str] = ()) -> ChallengeError:
        """The 401 for a request without credentials: where to log in, and for which scopes."""
        return no_credentials(self.required_scopes(required), self.metadata_url)

    def challenge_insufficient(
        self, required: Iterable[str], *, token: VerifiedToken | None = None
    ) -> ChallengeError:
        """The 403 that asks for the scopes of every request and these. Logs what was asked.

        Args:
            required: all the scopes of the operation, granted or not.
            token: whose grants the log is to name beside them.
        """
        required = self.required_scopes(required)
        logger.info(
            "Asked the client %r for the scopes %s; it has %s",
            token.client_id if token else None,
            list(required),
            sorted(token.scopes) if token else "unknown ones",
        )
        return insufficient_scope(required, self.metadata_url)

    # ----------------------------------------------------------------------------- metadata

    @property
    def metadata_path(self) -> str:
        """The path form of the metadata's place: a route for the outermost app, without prefix."""
        return unquote(urlsplit(metadata_url(self.resource)).path)

    @property
    def root_metadata_path(self) -> str:
        """Where clients look last; an alias for apps with one resource."""
        return WELL_KNOWN

    @property
    def resource_path(self) -> str:
        """The path of the resource: it should end with the one where the endpoint is mounted."""
        return unquote(urlsplit(self.resource).path)

    def metadata_response(self) -> Response:
        """The metadata, for everybody: no token, any origin, and caches may keep it an hour."""
        return Response(self.metadata, 200, _METADATA_HEADERS, "application/json")

    # ----------------------------------------------------------------------- authentication

    async def _authenticate(
        self, request: Request, required: tuple[str, ...]
    ) -> VerifiedToken | None:
        headers = request.headers.getlist("Authorization")
        if len(headers) > 1:
            raise invalid_request()
        scheme, _, credentials = (headers[0] if headers else "").partition(" ")
        if scheme.lower() != "bearer":
            if self.auto_error:
                raise self.challenge(required)
            return None
        try:
            return await self._verify(credentials.strip(" "))
        except InvalidToken as refusal:
            correlation_id = secrets.token_hex(8)
            logger.info(
                "Access token refused: %s (correlation id %s)", refusal.reason, correlation_id
            )
            raise invalid_token(required, self.metadata_url, correlation_id) from None
        except KeysUnavailable as unknown:
            logger.warning("Cannot tell whether access tokens are good: %s", unknown.reason)
            raise keys_unavailable(unknown.retry_after) from None

    async def _verify(self, token: str) -> VerifiedToken:
        if not 0 < len(token) <= _MAX_TOKEN or not _TOKEN.fullmatch(token):
            raise InvalidToken("malformed")
        verified = await self._verifier.verify(token)
        if not isinstance(verified, VerifiedToken):
            raise TypeError("A verifier must return a VerifiedToken.")
        if verified.issuer not in self.authorization_servers:
            raise InvalidToken("issuer not among authorization_servers")
        return identified(verified)


def _operation_scopes(request: Request) -> Iterable[str]:
    """What the operation needs that FastAPI does not know of: the endpoint may say.

    So that a client that lacks scopes of both kinds is asked once for all of them.
    """
    endpoint = request.scope.get("endpoint")
    scopes: Iterable[str] = getattr(endpoint, OPERATION_SCOPES, _no_scopes)(request)
    return scopes


def _no_scopes(request: Request) -> Iterable[str]:
    return ()


def _checked_issuers(issuers: Iterable[str]) -> tuple[str, ...]:
    if isinstance(issuers, str):
        raise TypeError(f"authorization_servers takes a list, not the string {issuers!r}.")
    checked = tuple([checked_url("authorization_servers", issuer) for issuer in issuers])
    if not checked:
        raise ValueError("authorization_servers needs at least one: it says where to get a token.")
    if len(set(checked)) != len(checked):
        raise ValueError("authorization_servers has one of them twice.")
    return checked


def _checked_verifier(
    verifier: TokenVerifier | Iterable[IssuerVerifier], issuers: tuple[str, ...]
) -> TokenVerifier:
    verified: tuple[str | None, ...]
    if isinstance(verifier, Iterable):
        several = SeveralIssuers(verifier)
        verifier, verified = several, several.issuers
    elif hasattr(verifier, "verify"):
        verified = (getattr(verifier, "issuer", None),)
    else:
        raise TypeError(f"verifier= takes a token verifier, not {type(verifier).__name__}.")
    if None not in verified and set(verified) != set(issuers):
        raise ValueError(
            f"authorization_servers has {', '.join(issuers)}, but verifier= is for "
            f"{', '.join(map(str, verified)) or 'none'}. They are compared byte for byte."
        )
    return verifier


def _encoded(**members: Any) -> bytes:
    """A JSON object without the members that are empty (RFC 9728 §3.2)."""
    return to_json({name: value for name, value in members.items() if value})


def _openapi_model(
    authorization_url: str | None,
    token_url: str | None,
    scopes: Iterable[str],
    description: str | None,
) -> models.SecurityBase:
    if authorization_url is None and token_url is None:
        return models.HTTPBearer(description=description)
    if authorization_url is None or token_url is None:
        raise ValueError("authorization_url= and token_url= go together.")
    flow = models.OAuthFlowAuthorizationCode(
        authorizationUrl=checked_url("authorization_url", authorization_url, query=True),
        tokenUrl=checked_url("token_url", token_url, query=True),
        scopes=dict.fromkeys(scopes, ""),
    )
    flows = models.OAuthFlows(authorizationCode=flow)
    return models.OAuth2(flows=flows, description=description)
