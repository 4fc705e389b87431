"""The parts of Authlib that serve here, without types.

It has none of its own, and the stubs that type checkers bring are of another version: they would
have us write for a library that is not the one installed.
"""

from typing import Any

from authlib.common import urls
from authlib.oauth2 import rfc6749, rfc7009, rfc7591, rfc7636, rfc7662, rfc8414, rfc9068, rfc9207
from authlib.oauth2.rfc6749 import grants, requests
from authlib.oauth2.rfc7636 import challenge

_rfc9207: Any = rfc9207  # newer than the stubs

add_params_to_uri: Any = urls.add_params_to_uri

# The framework (RFC 6749).
AuthorizationServer: Any = rfc6749.AuthorizationServer
OAuth2Payload: Any = requests.OAuth2Payload
OAuth2Request: Any = rfc6749.OAuth2Request
AuthorizationCodeGrant: Any = grants.AuthorizationCodeGrant
RefreshTokenGrant: Any = grants.RefreshTokenGrant
AuthorizationCodeMixin: Any = rfc6749.AuthorizationCodeMixin
ClientMixin: Any = rfc6749.ClientMixin
TokenMixin: Any = rfc6749.TokenMixin
OAuth2Error: Any = rfc6749.OAuth2Error
InvalidClientError: Any = rfc6749.InvalidClientError
InvalidRequestError: Any = rfc6749.InvalidRequestError

# What later RFCs add.
RevocationEndpoint: Any = rfc7009.RevocationEndpoint
ClientRegistrationEndpoint: Any = rfc7591.ClientRegistrationEndpoint
InvalidClientMetadataError: Any = rfc7591.InvalidClientMetadataError
InvalidRedirectURIError: Any = rfc7591.InvalidRedirectURIError
CodeChallenge: Any = rfc7636.CodeChallenge
compare_s256_code_challenge: Any = challenge.compare_s256_code_challenge
IntrospectionEndpoint: Any = rfc7662.IntrospectionEndpoint
AuthorizationServerMetadata: Any = rfc8414.AuthorizationServerMetadata
IssuerMetadata: Any = _rfc9207.AuthorizationServerMetadata
get_well_known_url: Any = rfc8414.get_well_known_url
JWTBearerTokenGenerator: Any = rfc9068.JWTBearerTokenGenerator
