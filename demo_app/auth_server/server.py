"""The authorization server proper: Authlib's, put together from our parts. Knows no page."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from .authlib_parts import AuthorizationServer, InvalidClientError
from .clients import Client, Clients, Registration
from .grants import CodeGrant, RefreshGrant, S256Only, WellFormed
from .keys import SigningKeys
from .settings import AuthSettings
from .store import Store
from .tokens import AccessTokens, Introspection, Revocation, claims_of
from .wire import Answer, EndpointRequest, with_issuer


class Server(AuthorizationServer):  # type: ignore[misc]
    """Authlib is synchronous. Its calls are short and touch memory only, so they run on the event
    loop, where nothing else happens between the steps of one."""

    def __init__(
        self,
        settings: AuthSettings,
        clock: Callable[[], float],
        clients: Iterable[Client] = (),
    ) -> None:
        super().__init__(scopes_supported=list(settings.scopes))
        # On DEBUG, Authlib's grants log the tokens that they issue.
        logging.getLogger("authlib.oauth2.rfc6749.grants").setLevel(logging.INFO)
        self.settings = settings
        self.clients = Clients(settings, clients)
        self.store = Store(settings, clock)
        self.keys = SigningKeys(
            clock=clock,
            period=settings.key_period,
            publish_ahead=settings.publish_ahead,
            token_lifetime=settings.access_lifetime,
        )
        self.register_grant(CodeGrant, [S256Only(), WellFormed()])
        self.register_grant(RefreshGrant)
        self.register_token_generator("default", AccessTokens(settings, self.keys, clock))
        self.register_endpoint(Registration(settings, self.clients, clock))
        self.register_endpoint(Revocation())
        self.register_endpoint(Introspection())

    # ---------------------------------------------------------- what Authlib wants to be told

    def query_client(self, client_id: str) -> Client | None:
        return self.clients.get(client_id)

    def save_token(self, token: dict[str, Any], request: EndpointRequest) -> None:
        access_token = token["access_token"]
        self.store.keep_access_token(access_token, request.user, claims_of(access_token))
        if "refresh_token" in token:
            self.store.keep_refresh_token(token["refresh_token"], request.user)

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Nobody listens; Authlib's own raises."""

    def create_oauth2_request(self, request: EndpointRequest) -> EndpointRequest:
        return request

    def create_json_request(self, request: Any) -> Any:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Answer:
        answer = Answer(status, body, headers)
        if answer.location:
            # Here, and not by Authlib's extension: that one misses errors of `get_consent_grant`.
            answer.location = with_issuer(answer.location, self.settings.issuer)
        return answer

    def authenticate_client(
        self, request: EndpointRequest, methods: list[str], endpoint: str = "token"
    ) -> Client:
        """By the one way that the request uses, so that a wrong secret is not made up for."""
        used = request.credentials() or "none"
        if used not in methods:
            raise InvalidClientError(f"Authenticate with {' or '.join(methods)}.", status_code=401)
        client: Client = super().authenticate_client(request, [used], endpoint)
        return client
