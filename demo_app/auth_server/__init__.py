"""Travel desk sign-in (demo, in-memory): an OAuth 2.1 authorization server on Authlib.

It shows what a client of a protected MCP server goes through, and what it takes to close the gaps
that a library leaves. It forgets everything when it stops, serves from one process only, and
limits nobody's rate. For real use, take a real authorization server.

    settings   what a deployment chooses
    metadata   what clients discover                        keys       what signs tokens, and when
    clients    who may ask; dynamic registration            documents  clients described by a URL
    store      approvals, and the codes and tokens of each  tokens     access tokens and their state
    grants     code and refresh token                       server     Authlib, put together
    wire       Authlib's requests and answers               visits     browsers and their forms
    pages      what people read                             routes     the endpoints
    people     the demo's customers                         authlib_parts  what is used of it
"""

from .clients import Client
from .documents import Documents
from .people import seeded_customer
from .routes import AuthServer
from .settings import SCOPES, TITLE, AuthSettings, House, Person, Resource

__all__ = [
    "SCOPES",
    "TITLE",
    "AuthServer",
    "AuthSettings",
    "Client",
    "Documents",
    "House",
    "Person",
    "Resource",
    "seeded_customer",
]
