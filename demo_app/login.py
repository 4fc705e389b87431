"""Logging in to the MCP endpoint: the authorization server, and what its tokens are good for.

The server is the demo's own and keeps everything in memory, so it serves one process. A desk with
several workers does without: programs send their API keys, as they may in any case.
"""

import time
from collections.abc import Callable

from fastapi_mcp_mrtr import JWTVerifier, ProtectedResource

from .auth_server import AuthServer, AuthSettings, Resource, seeded_customer

BASE_SCOPE = "desk:read"
"""What every MCP request needs. Tools that do more need more (`scopes=`)."""


def authorization_server(public_url: str, *, clock: Callable[[], float] = time.time) -> AuthServer:
    """At `/as` below the desk, for the desk's MCP endpoint."""
    return AuthServer(
        AuthSettings(
            issuer=f"{public_url}/as",
            resources=(Resource(uri=f"{public_url}/mcp", name="Travel desk"),),
            sign_in=seeded_customer,
            # The played client describes itself on this computer.
            loopback_documents=True,
        ),
        clock=clock,
    )


def protected_desk(
    public_url: str, server: AuthServer, *, clock: Callable[[], float] = time.time
) -> ProtectedResource:
    """The MCP endpoint as that server's resource. A request without a token may have a key."""
    issuer = server.settings.issuer
    resource = f"{public_url}/mcp"
    return ProtectedResource(
        resource=resource,
        authorization_servers=[issuer],
        verifier=JWTVerifier(
            issuer=issuer,
            audience=resource,
            jwks_uri=f"{issuer}/jwks.json",
            fetch=server.fetch_keys,  # it is in this process
            clock=clock,
        ),
        scopes=[BASE_SCOPE],
        resource_name="Travel desk",
        auto_error=False,
    )
