"""Access tokens that only their issuer can read: it is asked about each (RFC 7662).

Nothing is remembered between requests, so a revoked token is refused at once, at the price of a
round trip to the issuer.
"""

import re
from collections.abc import Callable, Iterable
from time import time
from typing import Any, Final

from anyio import fail_after
from anyio.lowlevel import current_token
from pydantic_core import from_json

from .claims import SCOPE_CLAIMS, ClaimRules
from .token import InvalidToken, KeysUnavailable, VerifiedToken
from .urls import checked_url

_ESSENTIAL: Final = ("aud", "exp")
_ACCESS_TOKEN_TYPES: Final = frozenset({"bearer", "access_token"})
_HINT: Final = "access_token"
_CREDENTIAL: Final = re.compile(r"[\x20-\x7e]+")  # RFC 6749 §A.1, §A.2
_AUTH_METHODS: Final = ("client_secret_basic", "client_secret_post")


class IntrospectionVerifier:
    """Verifies tokens by asking the introspection endpoint of their issuer.

    ```python
    IntrospectionVerifier(
        issuer="https://as.example.com",
        audience="https://api.example.com/mcp",
        introspection_endpoint="https://as.example.com/introspect",
        client_id="notes-api",
        client_secret=os.environ["INTROSPECTION_SECRET"],
    )
    ```

    The answer must be `active`, name this server in `aud` and have an `exp`. Needs the extra
    `[oauth]`. Connections stay open for the next request; who minds calls `aclose()` at the end.

    Args:
        issuer: whose tokens these are; an `iss` in an answer must be the same, byte for byte.
        audience: what `aud` must name; several, if a token may name any of them.
        introspection_endpoint: https, or http on loopback.
        client_id: what the issuer knows this server as.
        client_secret: how this server proves that.
        auth_method: "client_secret_basic" or "client_secret_post".
        leeway: seconds by which the issuer's clock may differ from ours.
        scope_claims: which members hold scopes, as a list or separated by spaces.
        clock: seconds since the epoch.

    Raises:
        ImportError: httpx2 is not installed.
        ValueError, TypeError: a setting makes no sense.
    """

    takes_opaque_tokens: Final = True

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Iterable[str],
        introspection_endpoint: str,
        client_id: str,
        client_secret: str,
        auth_method: str = "client_secret_basic",
        leeway: float = 30.0,
        scope_claims: Iterable[str] = SCOPE_CLAIMS,
        clock: Callable[[], float] = time,
    ) -> None:
        self._rules = ClaimRules.of(
            issuer=issuer,
            audience=audience,
            leeway=leeway,
            scope_claims=scope_claims,
            essential=_ESSENTIAL,
        )
        endpoint = checked_url("introspection_endpoint", introspection_endpoint, query=True)
        if auth_method not in _AUTH_METHODS:
            raise ValueError(f"auth_method={auth_method!r} is none of {', '.join(_AUTH_METHODS)}.")
        if not (_CREDENTIAL.fullmatch(client_id) and _CREDENTIAL.fullmatch(client_secret)):
            raise ValueError("client_id and client_secret are printable ASCII, and not empty.")
        if auth_method == "client_secret_basic" and ":" in client_id:
            raise ValueError("A client_id with a colon needs auth_method='client_secret_post'.")
        self._endpoint = _Endpoint(endpoint, client_id, client_secret, auth_method)
        self._clock = clock

    @property
    def issuer(self) -> str:
        """The issuer whose tokens this verifies."""
        return self._rules.issuer

    def __repr__(self) -> str:
        return f"IntrospectionVerifier(issuer={self.issuer!r})"

    async def verify(self, token: str) -> VerifiedToken:
        """As `TokenVerifier`.

        Raises: InvalidToken, KeysUnavailable.
        """
        answer = await self._endpoint.ask(token)
        if answer.get("active") is not True:
            raise InvalidToken("not active")
        token_type = answer.get("token_type")
        if token_type is not None and str(token_type).lower() not in _ACCESS_TOKEN_TYPES:
            raise InvalidToken("other token_type")
        # Should the issuer send the token back, handlers still do not get to see it.
        claims = {name: value for name, value in answer.items() if value != token}
        return self._rules.read(claims, now=self._clock())

    async def aclose(self) -> None:
        """Close the connections. The next request opens new ones."""
        await self._endpoint.aclose()


class _Endpoint:
    """The endpoint, behind Authlib's client: one for each event loop, as connections are."""

    def __init__(self, url: str, client_id: str, client_secret: str, auth_method: str) -> None:
        from . import http_client

        self._http = http_client
        self._url = url
        self._settings = {
            "client_id": client_id,
            "client_secret": client_secret,
            "token_endpoint_auth_method": auth_method,
            **http_client.client_settings(),
        }
        self._client: Any = None
        self._client_of: object = None

    async def ask(self, token: str) -> dict[str, Any]:
        """What the issuer says about a token.

        Raises: KeysUnavailable, whatever goes wrong: it is no fault of the token.
        """
        try:
            with fail_after(self._http.TIMEOUT):
                response = await self._client_here().introspect_token(
                    self._url, token=token, token_type_hint=_HINT
                )
            answer = from_json(self._http.body_of(response), cache_strings="keys")
        except self._http.FetchError as error:
            raise KeysUnavailable(f"{self._url}: {error}") from None
        except Exception as error:
            raise KeysUnavailable(f"{self._url}: {type(error).__name__}") from None
        if not isinstance(answer, dict):
            raise KeysUnavailable(f"{self._url}: not an object")
        return answer

    def _client_here(self) -> Any:
        here = current_token()
        if self._client_of != here:
            from http.cookiejar import DefaultCookiePolicy

            from authlib.integrations.httpx_client import AsyncOAuth2Client

            self._client = AsyncOAuth2Client(**self._settings)
            # What the issuer sets with one answer is nothing that the next question should carry.
            self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
            self._client_of = here
        return self._client

    async def aclose(self) -> None:
        client, self._client, self._client_of = self._client, None, None
        if client is not None:
            await client.aclose()
