"""The two grants: a code for what a person approves, and new tokens for a refresh token."""

from typing import Any, Final

from .authlib_parts import (
    AuthorizationCodeGrant,
    CodeChallenge,
    InvalidRequestError,
    OAuth2Error,
    RefreshTokenGrant,
    compare_s256_code_challenge,
)
from .metadata import CLIENT_AUTH_METHODS
from .store import Approval, Code, Issued
from .wire import SPELLING


class InvalidTargetError(OAuth2Error):  # type: ignore[misc]
    """The resource is not one that tokens are issued for (RFC 8707 §2)."""

    error = "invalid_target"


class S256Only(CodeChallenge):  # type: ignore[misc]
    """PKCE for every client, with S256 said aloud.

    Authlib's own lets a request without challenge through, insists on the verifier for public
    clients only, and takes a challenge without method for a plain one.
    """

    DEFAULT_CODE_CHALLENGE_METHOD = "S256"
    SUPPORTED_CODE_CHALLENGE_METHOD: Final = ["S256"]
    CODE_CHALLENGE_METHODS: Final = {"S256": compare_s256_code_challenge}

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        for name in ("code_challenge", "code_challenge_method"):
            if name not in grant.request.payload.data:
                raise InvalidRequestError(f"Missing '{name}'")
        super().validate_code_challenge(grant, redirect_uri)

    def validate_code_verifier(self, grant: Any, result: Any) -> None:
        if "code_verifier" not in grant.request.form:
            raise InvalidRequestError("Missing 'code_verifier'")
        super().validate_code_verifier(grant, result)


class WellFormed:
    """Checks the parameters for which an error can be sent to the client.

    `Visit.authorization_request` has checked those without which it cannot.
    """

    def __call__(self, grant: Any) -> None:
        grant.register_hook("before_validate_authorization_request_payload", self.check)

    def check(self, grant: Any, redirect_uri: str) -> None:
        grant.request.payload.check(SPELLING)
        grant.request.resource = grant.requested_resource()


class _ForAResource:
    """What both grants do with `resource`, which Authlib knows nothing of."""

    request: Any
    server: Any

    def requested_resource(self, default: str | None = None) -> str:
        """The resource that the request names, spelled as in the settings.

        Raises: InvalidTargetError: it is unknown, or there are several.
        """
        settings = self.server.settings
        named = set(self.request.payload.datalist.get("resource", ()))
        found = {settings.resource(uri) for uri in named} or {
            settings.resource(default) if default else settings.resources[0]
        }
        if len(found) != 1 or None in found:
            raise InvalidTargetError("Tokens are issued for one of this server's resources.")
        uri: str = found.pop().uri
        return uri

    def check_resource(self, approval: Approval) -> None:
        """Raises: InvalidTargetError: the token is to be for something that was not approved."""
        if self.requested_resource(approval.resource) != approval.resource:
            raise InvalidTargetError("The approval is for another resource.")


class CodeGrant(_ForAResource, AuthorizationCodeGrant):  # type: ignore[misc]
    """Authorization code. Expiry, client and single use are the store's; Authlib checks none."""

    TOKEN_ENDPOINT_AUTH_METHODS: Final = list(CLIENT_AUTH_METHODS)

    @staticmethod
    def validate_no_multiple_request_parameter(request: Any) -> None:
        """Nothing: `WellFormed` does, which can tell the client."""

    def save_authorization_code(self, code: str, request: Any) -> None:
        self.server.store.approve(
            code,
            code_challenge=request.payload.data["code_challenge"],
            redirect_uri=request.payload.redirect_uri,
            person=request.user,
            client_id=request.client.id,
            resource=request.resource,
            scope=" ".join(dict.fromkeys(request.scope.split())),
        )

    def query_authorization_code(self, code: str, client: Any) -> Code | None:
        found: Code | None = self.server.store.redeem(code, client.id)
        return found

    def delete_authorization_code(self, authorization_code: Code) -> None:
        """Nothing: a code is spent when it is queried. After issuing would be too late."""

    def validate_token_request(self) -> None:
        super().validate_token_request()
        self.check_resource(self.request.authorization_code.approval)

    def authenticate_user(self, authorization_code: Code) -> Approval:
        return authorization_code.approval


class RefreshGrant(_ForAResource, RefreshTokenGrant):  # type: ignore[misc]
    """Every refresh token is good once, for public clients too; Authlib's defaults say neither."""

    TOKEN_ENDPOINT_AUTH_METHODS: Final = list(CLIENT_AUTH_METHODS)
    INCLUDE_NEW_REFRESH_TOKEN = True

    def validate_token_request(self) -> None:
        super().validate_token_request()
        self.check_resource(self.request.refresh_token.approval)

    def authenticate_refresh_token(self, refresh_token: str) -> Issued | None:
        found: Issued | None = self.server.store.refresh_token(refresh_token)
        return found

    def authenticate_user(self, refresh_token: Issued) -> Approval:
        return refresh_token.approval

    def revoke_old_credential(self, refresh_token: Issued) -> None:
        refresh_token.spent = True
