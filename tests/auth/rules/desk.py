"""A travel desk behind OAuth and the issuer of its tokens, both over real HTTP on loopback."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx2
from fastapi import FastAPI, Security

from fastapi_mcp_mrtr import (
    Context,
    JWTVerifier,
    MCPRouter,
    ProtectedResource,
    Rounds,
    Secret,
    VerifiedToken,
    need_input,
)
from tests import wire
from tests.auth.issuer import ISSUER, RESOURCE, Clock, Issuer, access_token, serve

METADATA_URL = "https://api.example.com/.well-known/oauth-protected-resource/mcp"
FOUND_AT = f'resource_metadata="{METADATA_URL}"'
KEYS = Secret("rules", "k" * 32)
FROZEN = {"code": -32602, "message": "Invalid or expired requestState"}

YES = {"sure": {"action": "accept", "content": {"value": True}}}
LIST = wire.message("tools/list")
DISCOVER = wire.message("server/discover")
LOOK = wire.call("look")
CHANGE = wire.call("change")
LISTEN = wire.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})

READ, WRITE = "notes:read", "notes:read notes:write"


def resource(jwks_uri: str, clock: Clock, **settings: Any) -> ProtectedResource:
    """A resource that needs `notes:read` of everybody."""
    verifier = JWTVerifier(issuer=ISSUER, audience=RESOURCE, jwks_uri=jwks_uri, clock=clock)
    return ProtectedResource(
        **{
            "resource": RESOURCE,
            "authorization_servers": [ISSUER],
            "verifier": verifier,
            "scopes": ["notes:read"],
            "imply": {"notes:admin": ["notes:write"]},
            **settings,
        }
    )


def router(
    principal: Any, clock: Clock, *, writing: Sequence[str] = (), **settings: Any
) -> MCPRouter:
    """A tool that anybody may call, and one that asks and needs the scopes for writing."""
    mcp = MCPRouter("desk", version="1", principal=principal, keys=KEYS, clock=clock, **settings)

    @mcp.tool()
    async def look(ctx: Context) -> str:
        return str(getattr(ctx.principal, "subject", ctx.principal))

    @mcp.tool(scopes=writing)
    async def change(ctx: Context) -> Rounds[str]:
        sure: bool = yield need_input("sure", "Sure?", bool)
        yield f"{getattr(ctx.principal, 'subject', ctx.principal)} {sure}"

    return mcp


class Desk:
    """The desk as a client sees it, with its parts within reach."""

    def __init__(
        self, http: httpx2.AsyncClient, issuer: Issuer, clock: Clock, mcp: MCPRouter
    ) -> None:
        self.http = http
        self.issuer = issuer
        self.clock = clock
        self.mcp = mcp

    def token(self, scope: str = WRITE, **changes: Any) -> str:
        """A good access token of alice's, from now on."""
        times = {"iat": self.clock.now, "exp": self.clock.now + 300}
        return access_token(**{"scope": scope, **times, **changes})

    async def send(self, body: Mapping[str, Any], token: str | None, **headers: Any) -> Any:
        """Post a request with a token."""
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        return await post(self.http, body, **headers)


async def post(
    http: httpx2.AsyncClient,
    body: Mapping[str, Any],
    path: str = "/mcp",
    **headers: Any,
) -> Any:
    """Post a request; `headers` as in `wire.headers`."""
    return await http.post(path, content=json.dumps(body), headers=wire.headers(body, **headers))


def again(body: Mapping[str, Any], asked: Any, answers: Any = None) -> dict[str, Any]:
    """The request once more, with the state of a response that asked."""
    state = wire.result_of(asked)["requestState"]
    answered = {"requestState": state, "inputResponses": YES if answers is None else answers}
    return {**body, "id": 2, "params": {**body["params"], **answered}}


def challenge(error: str | None = None, scope: str = "notes:read") -> str:
    """The `WWW-Authenticate` of the desk, to the byte."""
    descriptions = {
        "invalid_token": "The access token is invalid or expired",
        "insufficient_scope": "The access token lacks a scope that this operation needs",
    }
    if error is None:
        return f'Bearer scope="{scope}", {FOUND_AT}'
    return (
        f'Bearer error="{error}", scope="{scope}", {FOUND_AT}, '
        f'error_description="{descriptions[error]}"'
    )


def told(response: Any) -> tuple[int, str | None]:
    """Status and challenge."""
    return response.status_code, response.headers.get("WWW-Authenticate")


@asynccontextmanager
async def connected(app: Any, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the app, which is behind uvicorn."""
    async with serve(app, **settings) as url, httpx2.AsyncClient(base_url=url, timeout=60) as http:
        yield http


@asynccontextmanager
async def protected_desk(
    *, router_settings: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Desk]:
    """A desk that takes the tokens of an issuer, whose keys it fetches."""
    issuer, clock = Issuer(), Clock()
    async with serve(issuer) as url:
        auth = resource(f"{url}/jwks.json", clock, **settings)
        mcp = router(auth, clock, writing=["notes:write"], **(router_settings or {}))

        @mcp.tool(scopes=["notes:write"])
        async def both(
            who: Annotated[VerifiedToken, Security(auth, scopes=["notes:tag"])],
        ) -> str:
            return str(who.subject)

        app = FastAPI()
        app.include_router(mcp)
        app.include_router(mcp.well_known)
        async with connected(app) as http:
            yield Desk(http, issuer, clock, mcp)
