"""An authorization server as far as a resource server sees it: keys, tokens, three endpoints."""

import json
import socket
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qs

import anyio
import uvicorn
from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

ISSUER = "https://as.example.com"
RESOURCE = "https://api.example.com/mcp"
NOW = 1_800_000_000.0


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


# -------------------------------------------------------------------------------- keys, tokens


def rsa(kid: str | None = "rsa", bits: int = 2048) -> RSAKey:
    """The key of that name, the same whenever it is asked for."""
    return _rsa(kid, bits)


def ec(kid: str | None = "ec", curve: str = "P-256") -> ECKey:
    return _ec(kid, curve)


def okp(kid: str | None = "okp", curve: str = "Ed25519") -> OKPKey:
    return _okp(kid, curve)


@cache
def _rsa(kid: str | None, bits: int) -> RSAKey:
    return RSAKey.generate_key(bits, {"kid": kid} if kid else None)


@cache
def _ec(kid: str | None, curve: Any) -> ECKey:
    return ECKey.generate_key(curve, {"kid": kid} if kid else None)


@cache
def _okp(kid: str | None, curve: Any) -> OKPKey:
    return OKPKey.generate_key(curve, {"kid": kid} if kid else None)


def jwk_set(*keys: Key, **members: Any) -> dict[str, Any]:
    """What a `jwks_uri` serves: the public halves."""
    return {"keys": [{**key.as_dict(private=False), **members} for key in keys]}


def access_claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good token; a change to `...` leaves one out."""
    claims = {
        "iss": ISSUER,
        "sub": "alice",
        "client_id": "cli",
        "aud": RESOURCE,
        "exp": NOW + 300,
        "iat": NOW,
        "jti": "f00",
        "scope": "notes:read",
        **changes,
    }
    return {name: value for name, value in claims.items() if value is not ...}


def sign(
    payload: bytes | dict[str, Any],
    *,
    alg: str = "RS256",
    key: Key | None = None,
    **header: Any,
) -> str:
    """A token with this payload; header members `...` are left out."""
    key = key or rsa()
    members = {"alg": alg, "typ": "at+jwt", "kid": key.kid, **header}
    members = {name: value for name, value in members.items() if value is not ...}
    if isinstance(payload, dict):
        payload = json.dumps(payload).encode()
    signed = f"{b64(json.dumps(members).encode())}.{b64(payload)}"
    signature = jws.JWSRegistry.algorithms[alg].sign(signed.encode(), key)
    return f"{signed}.{b64(signature)}"


def access_token(*, alg: str = "RS256", key: Key | None = None, **changes: Any) -> str:
    """A token that is good but for the changes to its claims."""
    return sign(access_claims(**changes), alg=alg, key=key)


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


# ----------------------------------------------------------------------------------- endpoints

Scope = dict[str, Any]
ASGIApp = Callable[[Scope, Any, Any], Awaitable[None]]


class Issuer:
    """Answers `/jwks.json`, `/introspect` and whatever else a test puts into `answers`."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {"/jwks.json": Answer(jwk_set(rsa()))}
        self.requests: list[Request] = []

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.requests.append(Request(scope, body))
        await self.answers[scope["path"]].send(send)


class Answer:
    """A response: JSON, or bytes in pieces that come as fast as they are read."""

    def __init__(
        self,
        body: Any,
        status: int = 200,
        *,
        headers: dict[str, str] | None = None,
        wait_for: anyio.Event | None = None,
    ) -> None:
        self.status = status
        self.pieces = body if isinstance(body, list) else [json.dumps(body).encode()]
        self.headers = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
        self.wait_for = wait_for

    async def send(self, send: Any) -> None:
        if self.wait_for is not None:
            await self.wait_for.wait()
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})


class Request:
    """What the issuer was asked."""

    def __init__(self, scope: Scope, body: bytes) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        self.form = {k: v[0] for k, v in parse_qs(body.decode()).items()}


@contextmanager
def nobody() -> Iterator[str]:
    """An address where every connection is refused, and that no one else is given meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@asynccontextmanager
async def serve(app: Any, **settings: Any) -> AsyncIterator[str]:
    """The app behind uvicorn on loopback, in this event loop. Yields its address."""
    settings = {
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "log_level": "trace",
    } | settings
    config = uvicorn.Config(app, **settings)
    server = _Server(config)
    # Created with its protocol, without which asyncio would not set TCP_NODELAY.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with anyio.create_task_group() as tasks:
            # The socket listens already, so nobody has to wait for the server.
            tasks.start_soon(server.serve, [listener])
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.told_to_stop.set()


class _Server(uvicorn.Server):
    """Stops when it is told to, and not at the next of its ten looks a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told_to_stop = anyio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.told_to_stop.wait()
