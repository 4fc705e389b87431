"""The document with which clients discover the server (RFC 8414). Pure."""

from typing import Any, Final

from .authlib_parts import AuthorizationServerMetadata, IssuerMetadata, get_well_known_url
from .settings import AuthSettings

CLIENT_AUTH_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
RESOURCE_AUTH_METHODS: Final = ("client_secret_basic", "client_secret_post")
GRANT_TYPES: Final = ("authorization_code", "refresh_token")


def metadata(settings: AuthSettings) -> dict[str, Any]:
    """Raises: ValueError: Authlib finds fault with it."""
    issuer = settings.issuer
    document = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register",
        "revocation_endpoint": f"{issuer}/revoke",
        "introspection_endpoint": f"{issuer}/introspect",
        "jwks_uri": f"{issuer}/jwks.json",
        "scopes_supported": list(settings.scopes),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "token_endpoint_auth_methods_supported": list(CLIENT_AUTH_METHODS),
        "revocation_endpoint_auth_methods_supported": list(CLIENT_AUTH_METHODS),
        "introspection_endpoint_auth_methods_supported": list(RESOURCE_AUTH_METHODS),
        # Clients go no further without (security-considerations §Authorization Code Protection).
        "code_challenge_methods_supported": ["S256"],
        "client_id_metadata_document_supported": True,
        "authorization_response_iss_parameter_supported": True,
        "protected_resources": [resource.uri for resource in settings.resources],
    }
    AuthorizationServerMetadata(document).validate(metadata_classes=[IssuerMetadata])
    return document


def well_known_path(settings: AuthSettings) -> str:
    """Where clients look: the suffix goes between host and path (RFC 8414 §3.1)."""
    path: str = get_well_known_url(settings.issuer)
    return path
