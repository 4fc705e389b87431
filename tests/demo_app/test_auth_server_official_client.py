"""The official client's OAuth provider against the authorization server and a protected API."""

import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI, Response, Security
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

from demo_app.auth_server import AuthServer, AuthSettings, Documents, Resource, seeded_customer
from demo_app.oauth_player import (
    CALLBACK,
    NAME,
    LoginFailed,
    MemoryStorage,
    ScriptedBrowser,
    client_document,
    document_served,
    let_token_expire,
    oauth_provider,
)
from fastapi_mcp_mrtr.auth.challenges import ChallengeError, send_challenge
from fastapi_mcp_mrtr.auth.jwt import JWTVerifier
from fastapi_mcp_mrtr.auth.resource import ProtectedResource
from fastapi_mcp_mrtr.auth.token import VerifiedToken

from .helpers import AMELIE, BRUNO
from .oauth import ISSUER, MCP, Kit, kit, listening, serving

pytestmark = pytest.mark.anyio

WEB_DOCUMENT = "https://assistant.example.com/client.json"


def protect(app: FastAPI, base: str, verifier: JWTVerifier) -> None:
    """A small API beside the authorization server: one route to read, one to pay."""
    auth = ProtectedResource(
        resource=f"{base}/mcp",
        authorization_servers=[f"{base}/as"],
        verifier=verifier,
        scopes=["desk:read"],
    )
    app.add_exception_handler(ChallengeError, send_challenge)

    @app.get(auth.metadata_path)
    async def metadata() -> Response:
        return auth.metadata_response()

    @app.get("/mcp")
    async def read(token: Annotated[VerifiedToken, Security(auth)]) -> dict[str, Any]:
        return {"who": token.subject, "client": token.client_id, "scopes": sorted(token.scopes)}

    @app.get("/mcp/pay")
    async def pay(
        token: Annotated[VerifiedToken, Security(auth, scopes=["desk:pay"])],
    ) -> dict[str, Any]:
        return {"who": token.subject, "client": token.client_id, "scopes": sorted(token.scopes)}


@asynccontextmanager
async def protected_kit(**changes: Any) -> AsyncIterator[Kit]:
    """Both in this process, by the clock of the tests."""
    async with kit(**changes) as made:
        verifier = JWTVerifier(
            issuer=ISSUER,
            audience=MCP,
            jwks_uri=f"{ISSUER}/jwks.json",
            fetch=made.auth.fetch_keys,
            clock=made.clock,
        )
        protect(made.app, "http://127.0.0.1:8000", verifier)
        yield made


@dataclass
class Deployed:
    """Both behind uvicorn, by the clock on the wall."""

    base: str
    auth: AuthServer


@asynccontextmanager
async def deployed(documents: Any = None, **changes: Any) -> AsyncIterator[Deployed]:
    with listening() as (listener, port):
        base = f"http://127.0.0.1:{port}"
        settings = AuthSettings(
            **{
                "issuer": f"{base}/as",
                "resources": (Resource(uri=f"{base}/mcp", name="Travel desk"),),
                "sign_in": seeded_customer,
                "loopback_documents": True,
                **changes,
            }
        )
        auth = AuthServer(settings, documents=documents(settings) if documents else None)
        app = FastAPI()
        app.include_router(auth.router)
        verifier = JWTVerifier(
            issuer=f"{base}/as", audience=f"{base}/mcp", jwks_uri=f"{base}/as/jwks.json"
        )
        protect(app, base, verifier)
        async with serving(app, listener):
            yield Deployed(base, auth)


def client(provider: OAuthClientProvider, made: Kit | None = None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(auth=provider, transport=made.transport if made else None)


async def story(provider: OAuthClientProvider, base: str, made: Kit | None = None) -> str:
    """Log in, step up, refresh: as the same client and person all the time. Gives the client."""
    async with client(provider, made) as http:
        first = (await http.get(f"{base}/mcp")).json()
        assert (first["who"], first["scopes"]) == ("amelie", ["desk:read"])
        paid = (await http.get(f"{base}/mcp/pay")).json()
        assert paid == {**first, "scopes": ["desk:pay", "desk:read"]}
        before = provider.context.current_tokens
        let_token_expire(provider)
        assert (await http.get(f"{base}/mcp/pay")).json() == paid
        after = provider.context.current_tokens
    assert before is not None
    assert after is not None
    assert before.access_token != after.access_token
    assert before.refresh_token != after.refresh_token
    assert isinstance(first["client"], str)
    return first["client"]


# ------------------------------------------------------------------------------- in this process


async def test_it_registers_logs_in_steps_up_and_refreshes() -> None:
    """spec: dynamic registration (client-registration §Dynamic Client Registration)"""
    async with protected_kit() as made:
        steps: list[str] = []
        browser = ScriptedBrowser(AMELIE, on_step=steps.append, transport=made.transport)
        name = await story(oauth_provider(MCP, browser), "http://127.0.0.1:8000", made)
        assert made.auth.server.clients.get(name) is not None
        assert made.fetched == []
    # The browser stays signed in, so the second consent needs no second login.
    assert [step.split()[0] for step in steps] == ["signs", "reads", "reads"]


async def test_it_describes_itself_and_does_all_that_without_registering() -> None:
    """spec: SHOULD (client-registration §Client ID Metadata Documents), the client as it comes."""
    document = httpx2.Response(200, json=client_document(WEB_DOCUMENT))
    async with protected_kit(documents={WEB_DOCUMENT: document}) as made:
        browser = made.browser()
        provider = OAuthClientProvider(
            MCP,
            OAuthClientMetadata(client_name=NAME, redirect_uris=[AnyUrl(CALLBACK)]),
            MemoryStorage(),
            browser.open_link,
            browser.wait_for_answer,
            client_metadata_url=WEB_DOCUMENT,
        )
        assert await story(provider, "http://127.0.0.1:8000", made) == WEB_DOCUMENT


async def test_a_no_is_a_no() -> None:
    """decision"""
    async with protected_kit() as made:
        provider = oauth_provider(MCP, made.browser(decision="deny"))
        async with client(provider, made) as http:
            with pytest.raises(LoginFailed, match="access_denied"):
                await http.get(MCP)


async def test_it_refuses_the_answer_of_another_issuer() -> None:
    """spec: MUST (index §Authorization Response Validation): which `iss` makes possible."""

    class MixedUp(ScriptedBrowser):
        async def log_in(self, authorization_url: str) -> str:
            url = await super().log_in(authorization_url)
            return url.replace("8000%2Fas", "8000%2Fother")

    async with protected_kit() as made:
        provider = oauth_provider(MCP, MixedUp(AMELIE, transport=made.transport))
        async with client(provider, made) as http:
            with pytest.raises(OAuthFlowError, match="iss"):
                await http.get(MCP)


async def test_a_token_of_another_resource_does_not_get_in() -> None:
    """spec: MUST (security-considerations §Access Token Privilege Restriction)"""
    async with protected_kit() as made:
        name = (await made.register())["client_id"]
        code = await made.code(name, resource="http://127.0.0.1:8000/flights")
        tokens = (await made.token(name, code=code, resource=None)).json()
        bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
        assert (await made.http.get(MCP, headers=bearer)).status_code == 401


async def test_logging_in_again_is_another_person() -> None:
    """decision: the browser decides who, not the client."""
    async with protected_kit() as made:
        who = []
        for key in (AMELIE, BRUNO):
            async with client(oauth_provider(MCP, made.browser(key)), made) as http:
                who.append((await http.get(MCP)).json()["who"])
    assert who == ["amelie", "bruno"]


async def test_keys_may_change_meanwhile() -> None:
    """decision: a resource server that keeps keys as long as it may has the new one in time."""
    async with protected_kit() as made:
        provider = oauth_provider(MCP, made.browser())
        async with client(provider, made) as http:
            first = (await http.get(MCP)).json()
            made.auth.keys.rotate()
            for seconds in (299, 1, 300):
                made.clock.advance(seconds)
                let_token_expire(provider)
                assert (await http.get(MCP)).json() == first
    assert len(made.auth.keys.published()["keys"]) == 2


# --------------------------------------------------------------------------------- over real HTTP


async def test_over_http_it_registers() -> None:
    """decision"""
    async with deployed() as made:
        provider = oauth_provider(f"{made.base}/mcp", ScriptedBrowser(AMELIE))
        await story(provider, made.base)


async def test_over_http_it_describes_itself() -> None:
    """decision: with a document on this computer, as `make demo` has it."""
    async with deployed() as made, document_served() as url:
        browser = ScriptedBrowser(AMELIE)
        provider = oauth_provider(f"{made.base}/mcp", browser, document_url=url)
        assert await story(provider, made.base) == url
        assert url in browser.pages[-1]


# ----------------------------------------------------------------------------------- over real TLS


def certificate(host: str, directory: Path) -> dict[str, str]:
    """A certificate for `host` that signs itself, as uvicorn wants it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    day = datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.now(datetime.UTC) - day)
        .not_valid_after(datetime.datetime.now(datetime.UTC) + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "key.pem", directory / "certificate.pem"
    paths[0].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    paths[1].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return {"ssl_keyfile": str(paths[0]), "ssl_certfile": str(paths[1])}


@pytest.mark.parametrize("host", ["assistant.test", "somebody-else.test"])
async def test_the_certificate_is_checked_against_the_name(host: str, tmp_path: Path) -> None:
    """decision: though it is the checked address that is called. The client as it comes."""
    tls = certificate(host, tmp_path)
    web = FastAPI()

    @web.get("/client.json")
    async def document() -> dict[str, Any]:
        return client_document(url)

    async def here(name: str, port: int) -> list[str]:
        assert name == "assistant.test"
        return ["127.0.0.1"]

    def documents(settings: AuthSettings) -> Documents:
        trusted = ssl.create_default_context(cafile=tls["ssl_certfile"])
        return Documents(settings, lambda: 0.0, resolver=here, ssl_context=trusted)

    with listening() as (listener, port):
        url = f"https://assistant.test:{port}/client.json"
        async with deployed(documents) as made, serving(web, listener, **tls):
            browser = ScriptedBrowser(AMELIE)
            provider = oauth_provider(f"{made.base}/mcp", browser, document_url=url)
            async with client(provider) as http:
                if host == "assistant.test":
                    assert (await http.get(f"{made.base}/mcp")).json()["client"] == url
                else:
                    with pytest.raises(LoginFailed, match="400"):
                        await http.get(f"{made.base}/mcp")
