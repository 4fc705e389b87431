"""What the authorization server's tests drive it with: one in this process, and its clients."""

import base64
import hashlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from demo_app.app import create_app
from demo_app.auth_server import (
    AuthServer,
    AuthSettings,
    Client,
    Documents,
    Resource,
    seeded_customer,
)
from demo_app.oauth_player import ScriptedBrowser
from demo_app.settings import Settings
from fastapi_mcp_mrtr import Secret

from .helpers import AMELIE, SECRET, Clock

BASE = "http://127.0.0.1:8000"
ISSUER = f"{BASE}/as"
MCP = f"{BASE}/mcp"
REST = f"{BASE}/flights"
DESK_SECRET = "what the desk and its authorization server share"
CALLBACK = "http://127.0.0.1:5000/callback"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=")
RESOURCES = (
    Resource(uri=MCP, name="Travel desk", id="desk", secret=DESK_SECRET),
    Resource(uri=REST, name="Flights", id="flights", secret=DESK_SECRET[::-1]),
)
PUBLIC = {
    "client_name": "Assistant",
    "redirect_uris": [CALLBACK],
    "grant_types": ["authorization_code", "refresh_token"],
    "token_endpoint_auth_method": "none",
}


def settings(**changes: Any) -> AuthSettings:
    return AuthSettings(
        **{"issuer": ISSUER, "resources": RESOURCES, "sign_in": seeded_customer, **changes}
    )


class Kit:
    """An authorization server, a browser, and a program that talks to both."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        documents: Mapping[str, httpx2.Response] | None = None,
        clients: Iterable[Client] = (),
        **changes: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.fetched: list[httpx2.Request] = []
        self.documents = dict(documents or {})
        chosen = settings(**changes)
        self.auth = AuthServer(
            chosen,
            clock=self.clock,
            clients=clients,
            documents=Documents(
                chosen, self.clock, resolver=public, transport=httpx2.MockTransport(self._document)
            ),
        )
        self.app = FastAPI()
        self.app.include_router(self.auth.router)
        self.transport = httpx2.ASGITransport(self.app)
        self.http = httpx2.AsyncClient(transport=self.transport, base_url=BASE)

    def _document(self, request: httpx2.Request) -> httpx2.Response:
        """The web as the server sees it: by name, whatever the address."""
        self.fetched.append(request)
        path = request.url.raw_path.decode()
        return self.documents.get(f"https://{request.headers['Host']}{path}", httpx2.Response(404))

    def browser(self, key: str = AMELIE, decision: str = "allow") -> ScriptedBrowser:
        return ScriptedBrowser(key, decision=decision, transport=self.transport)

    # -------------------------------------------------------------------------- the program

    async def register(self, **changes: Any) -> dict[str, Any]:
        """What the server makes of a public client with `changes`."""
        response = await self.http.post("/as/register", json={**PUBLIC, **changes})
        assert response.status_code == 201, response.text
        registered: dict[str, Any] = response.json()
        return registered

    def link(self, client_id: str, **changes: str | None) -> str:
        """An authorization request, with `changes`; `None` leaves a parameter out."""
        wanted = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": CALLBACK,
            "state": "as it was",
            "scope": "desk:read",
            "resource": MCP,
            "code_challenge": CHALLENGE.decode(),
            "code_challenge_method": "S256",
            **changes,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        return f"{ISSUER}/authorize?{urlencode(given)}"

    async def ask(
        self, client_id: str, browser: ScriptedBrowser | None = None, /, **changes: str | None
    ) -> dict[str, str]:
        """The parameters with which the browser comes back."""
        url = await (browser or self.browser()).log_in(self.link(client_id, **changes))
        return answer_of(url)

    async def code(self, client_id: str, **changes: str | None) -> str:
        return (await self.ask(client_id, **changes))["code"]

    async def token(self, client_id: str | None = None, **form: str | None) -> httpx2.Response:
        """The token endpoint's answer to a code, or to whatever `form` makes of that."""
        wanted = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "redirect_uri": CALLBACK,
            "code_verifier": VERIFIER,
            "resource": MCP,
            **form,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        return await self.http.post("/as/token", data=given)

    async def tokens(self, client_id: str, **changes: str | None) -> dict[str, Any]:
        """All the way from the link to the tokens."""
        response = await self.token(client_id, code=await self.code(client_id, **changes))
        assert response.status_code == 200, response.text
        tokens: dict[str, Any] = response.json()
        return tokens

    async def refresh(self, client_id: str, token: str, **form: str | None) -> httpx2.Response:
        only = {"redirect_uri": None, "code_verifier": None, "resource": None}
        return await self.token(
            client_id, grant_type="refresh_token", refresh_token=token, **{**only, **form}
        )

    async def introspect(
        self, token: str, auth: tuple[str, str] | None = ("desk", DESK_SECRET), **form: str
    ) -> httpx2.Response:
        return await self.http.post(
            "/as/introspect",
            data={"token": token, **form},
            auth=auth or httpx2.USE_CLIENT_DEFAULT,
        )

    async def is_active(self, token: str) -> bool:
        active: bool = (await self.introspect(token)).json()["active"]
        return active


async def public(host: str, port: int) -> list[str]:
    """Every name leads to an address that anybody may call."""
    return ["93.184.216.34"]


def answer_of(url: str) -> dict[str, str]:
    """The query of a callback, where nothing may come twice."""
    answer = parse_qs(urlsplit(url).query, strict_parsing=True)
    assert all(len(values) == 1 for values in answer.values()), answer
    return {name: values[0] for name, values in answer.items()}


def problem_of(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket, **tls: Any) -> AsyncIterator[None]:
    """The app behind uvicorn, in this event loop, on a socket that listens already."""
    config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1, **tls)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [listener])
        try:
            yield
        finally:
            server.should_exit = True


@contextmanager
def listening() -> Iterator[tuple[socket.socket, int]]:
    """A socket on a free port of this computer, before there is anything to serve on it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener, listener.getsockname()[1]


@asynccontextmanager
async def kit(**changes: Any) -> AsyncIterator[Kit]:
    made = Kit(**changes)
    async with made.http:
        yield made


# ------------------------------------------------------------------ the desk that clients log in to


@dataclass
class Seen:
    """One request as it reached the app, and the status it got."""

    method: str
    path: str
    token: str | None
    body: Any
    status: int = 0

    @property
    def tool(self) -> str | None:
        called = self.path == "/mcp" and self.body.get("method") == "tools/call"
        return self.body["params"]["name"] if called else None

    @property
    def claims(self) -> dict[str, Any]:
        """What the token says; whether it is true is not looked at."""
        assert self.token is not None
        payload = self.token.split(".")[1]
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=="))
        return claims


class Recorder:
    """An ASGI app around another, that writes down what the clients of that one do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.seen: list[Seen] = []

    def told(self, *parts: str) -> list[tuple[str, str, int]]:
        """Method, path and status of the requests whose path has one of these in it."""
        return [
            (each.method, each.path, each.status)
            for each in self.seen
            if any(part in each.path for part in parts)
        ]

    def calls(self, tool: str) -> list[Seen]:
        return [each for each in self.seen if each.tool == tool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"")
        parsed: Any = None
        if kind == b"application/json":
            parsed = json.loads(body)
        elif kind.startswith(b"application/x-www-form"):
            parsed = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        scheme, _, token = headers.get(b"authorization", b"").decode().partition(" ")
        seen = Seen(scope["method"], scope["path"], token if scheme == "Bearer" else None, parsed)
        self.seen.append(seen)
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
            await send(message)

        await self._app(scope, replay, watch)


@dataclass
class LoginDesk:
    """The whole demo behind uvicorn, as `make demo` puts it together."""

    base: str
    app: FastAPI
    recorder: Recorder

    @property
    def mcp(self) -> str:
        return f"{self.base}/mcp"

    @property
    def auth(self) -> AuthServer:
        server: AuthServer = self.app.state.auth_server
        return server


@asynccontextmanager
async def login_desk(
    directory: Path, clock: Callable[[], float] = time.time, **changes: Any
) -> AsyncIterator[LoginDesk]:
    with listening() as (listener, port):
        base = f"http://127.0.0.1:{port}"
        chosen = Settings(
            **{
                "database": directory / "desk.sqlite3",
                "secret": Secret("tests", SECRET),
                "public_url": base,
                "login": True,
                "patience": 0,
                "partner_pause": 0,
                **changes,
            }
        )
        app = create_app(chosen, clock=clock)
        recorder = Recorder(app)
        async with serving(recorder, listener):
            yield LoginDesk(base, app, recorder)


ARGUMENTS: dict[str, dict[str, Any]] = {"book_seat": {"flight": "TD101"}}
"""What tools are called with, where that matters."""


async def post(desk: LoginDesk, headers: dict[str, str], tool: str, **more: Any) -> Any:
    """One round, by hand."""
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": ARGUMENTS.get(tool, {}),
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {
                    "elicitation": {"form": {}, "url": {}}
                },
            },
            **more,
        },
    }
    async with httpx2.AsyncClient(timeout=60) as http:
        return await http.post(
            desk.mcp,
            json=body,
            headers={
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "tools/call",
                "Mcp-Name": tool,
                **headers,
            },
        )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
