"""Nimbus Miles: somebody else's service, with accounts, pages and an API of its own.

It stands for whatever a server's users have elsewhere. Here it happens to run in the same process;
it knows nothing of the desk but that it is a client, and the desk uses nothing of it but URLs.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Response, Security
from pydantic import BaseModel

from fastapi_mcp_mrtr import JWTVerifier, ProtectedResource, VerifiedToken

from .auth_server import AuthServer, AuthSettings, Client, House, Person, Resource
from .db import sha256
from .pages import Brand

NAME: Final = "Nimbus Miles"

MEMBERS: Final = {
    "nimbus-amelie": ("N-20417", "A. Moreau", 48_210),
    "nimbus-bruno": ("N-81150", "B. Keller", 1_250),
}
"""Password, member number, name and miles. Other people's numbers than the desk's, on purpose."""

SCOPES: Final = {"miles:read": "See how many miles you have"}

HOUSE: Final = House(
    brand=Brand(NAME, "/static/nimbus.svg", "nimbus"),
    title=f"{NAME} (demo, in-memory)",
    service=NAME,
    key="Password",
    keys=tuple(MEMBERS),
)

ICON: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 28 28">
<rect width="28" height="28" rx="8" fill="#0f766e"/>
<path fill="#fff" d="M9 20a4.5 4.5 0 0 1-.6-9 6 6 0 0 1 11.5 1.4A3.9 3.9 0 0 1 19.5 20z"/>
</svg>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a client of Nimbus Miles knows of it: the result of registering there by hand."""

    client_id: str
    client_secret: str
    redirect_uri: str
    issuer: str
    api: str

    @property
    def authorization_endpoint(self) -> str:
        return f"{self.issuer}/authorize"

    @property
    def token_endpoint(self) -> str:
        return f"{self.issuer}/token"


class Balance(BaseModel):
    """What the API tells."""

    member: str
    miles: int


async def sign_in(password: str) -> Person | None:
    number, name, _ = MEMBERS.get(password, ("", "", 0))
    return Person(number, name) if number else None


class MilesClub:
    """Its authorization server at `/nimbus`, its API at `/nimbus/balance`.

    Args:
        base_url: where browsers reach both.
        redirect_uri: the one of its only client, the desk.
        clock: seconds since the epoch.
    """

    def __init__(self, base_url: str, redirect_uri: str, *, clock: Callable[[], float]) -> None:
        issuer = f"{base_url}/nimbus"
        secret = secrets.token_urlsafe(32)
        self.registration: Final = Registration(
            client_id="travel-desk",
            client_secret=secret,
            redirect_uri=redirect_uri,
            issuer=issuer,
            api=f"{issuer}/balance",
        )
        self.auth: Final = AuthServer(
            AuthSettings(
                issuer=issuer,
                resources=(Resource(uri=self.registration.api, name=f"{NAME} account"),),
                sign_in=sign_in,
                house=HOUSE,
                scopes=SCOPES,
            ),
            clock=clock,
            clients=[
                Client(
                    id=self.registration.client_id,
                    name="Travel desk",
                    redirect_uris=(redirect_uri,),
                    auth_method="client_secret_basic",
                    secret_sha256=sha256(secret),
                    vetted=True,
                )
            ],
        )
        self._protected = ProtectedResource(
            resource=self.registration.api,
            authorization_servers=[issuer],
            verifier=JWTVerifier(
                issuer=issuer,
                audience=self.registration.api,
                jwks_uri=f"{issuer}/jwks.json",
                fetch=self.auth.fetch_keys,
                clock=clock,
            ),
            scopes=list(SCOPES),
            scheme_name="Nimbus",
        )
        self.router: Final = self._routes()

    def _routes(self) -> APIRouter:
        router = APIRouter(include_in_schema=False)
        router.include_router(self.auth.router)
        token_needed = Security(self._protected)

        @router.get("/nimbus/balance")
        async def balance(token: Annotated[VerifiedToken, token_needed]) -> Balance:
            """The miles of whoever the token is about."""
            return next(
                Balance(member=number, miles=miles)
                for number, _, miles in MEMBERS.values()
                if number == token.subject
            )

        @router.get("/static/nimbus.svg")
        async def icon() -> Response:
            return Response(ICON, media_type="image/svg+xml")

        return router
