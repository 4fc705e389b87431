"""Opaque tokens: what the issuer is asked, and which of its answers lets a caller in."""

import base64
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from fastapi_mcp_mrtr.auth import http_client
from fastapi_mcp_mrtr.auth.introspection import IntrospectionVerifier
from fastapi_mcp_mrtr.auth.token import InvalidToken, KeysUnavailable, VerifiedToken

from .issuer import ISSUER, NOW, RESOURCE, Answer, Clock, Issuer, access_claims, nobody, serve

pytestmark = pytest.mark.anyio

TOKEN = "opaque-token.with+odd/characters~=="
SECRET = "s3cret/+&= with spaces"


def active(**changes: Any) -> dict[str, Any]:
    return {"active": True, **access_claims(**changes)}


@pytest.fixture
def issuer() -> Issuer:
    issuer = Issuer()
    issuer.answers["/introspect"] = Answer(active())
    return issuer


@asynccontextmanager
async def verifier(issuer: Issuer, **settings: Any) -> AsyncIterator[IntrospectionVerifier]:
    """A verifier that asks the issuer over real HTTP."""
    async with serve(issuer) as url:
        verifier = IntrospectionVerifier(
            **{
                "issuer": ISSUER,
                "audience": RESOURCE,
                "introspection_endpoint": f"{url}/introspect",
                "client_id": "notes-api",
                "client_secret": SECRET,
                "clock": Clock(),
                **settings,
            }
        )
        try:
            yield verifier
        finally:
            await verifier.aclose()


async def refusal(issuer: Issuer, answer: Any) -> str:
    issuer.answers["/introspect"] = Answer(answer)
    async with verifier(issuer) as asks:
        with pytest.raises(InvalidToken) as refused:
            await asks.verify(TOKEN)
    return refused.value.reason


# --------------------------------------------------------------------------------- the question


async def test_the_issuer_is_asked_about_the_token(issuer: Issuer) -> None:
    """decision (RFC 7662 §2.1): a form, authenticated; the token comes from nobody else."""
    async with verifier(issuer) as asks:
        token = await asks.verify(TOKEN)
    assert token == VerifiedToken(
        issuer=ISSUER,
        subject="alice",
        client_id="cli",
        scopes=frozenset({"notes:read"}),
        audience=(RESOURCE,),
        expires_at=NOW + 300,
        claims=active(),
    )
    (request,) = issuer.requests
    assert (request.method, request.path) == ("POST", "/introspect")
    assert request.form == {"token": TOKEN, "token_type_hint": "access_token"}
    credentials = base64.b64encode(f"notes-api:{SECRET}".encode()).decode()
    assert request.headers["authorization"] == f"Basic {credentials}"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_the_secret_may_go_into_the_form(issuer: Issuer) -> None:
    """decision: client_secret_post, for clients whose id has a colon."""
    how = {"auth_method": "client_secret_post", "client_id": "https://api.example.com"}
    async with verifier(issuer, **how) as asks:
        assert (await asks.verify(TOKEN)).subject == "alice"
    (request,) = issuer.requests
    assert "authorization" not in request.headers
    assert request.form == {
        "token": TOKEN,
        "token_type_hint": "access_token",
        "client_id": "https://api.example.com",
        "client_secret": SECRET,
    }


async def test_nothing_is_remembered(issuer: Issuer) -> None:
    """rule 10: a revoked token is refused at once; nor do cookies join one request to another."""
    issuer.answers["/introspect"] = Answer(active(), headers={"Set-Cookie": "session=1; Path=/"})
    async with verifier(issuer) as asks:
        await asks.verify(TOKEN)
        await asks.verify(TOKEN)
        issuer.answers["/introspect"] = Answer({"active": False})
        with pytest.raises(InvalidToken, match="not active"):
            await asks.verify(TOKEN)
    assert len(issuer.requests) == 3
    assert all("cookie" not in request.headers for request in issuer.requests)


async def test_a_connection_serves_several_requests(issuer: Issuer) -> None:
    """decision: a round trip is enough, a handshake each time would be too much."""
    clients = []

    class Recording(Issuer):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            clients.append(scope["client"])
            await issuer(scope, receive, send)

    async with verifier(Recording()) as asks:
        for _ in range(3):
            await asks.verify(TOKEN)
        assert len(set(clients)) == 1
        await asks.aclose()
        await asks.verify(TOKEN)
    assert len(set(clients)) == 2


def test_every_event_loop_has_connections_of_its_own(issuer: Issuer) -> None:
    """decision: FastAPI's test client runs one loop after the other."""

    async def one() -> None:
        async with serve(issuer) as url:
            asks._endpoint._url = f"{url}/introspect"
            try:
                assert (await asks.verify(TOKEN)).subject == "alice"
            finally:
                await asks._endpoint._client.aclose()

    asks = IntrospectionVerifier(
        issuer=ISSUER,
        audience=RESOURCE,
        introspection_endpoint="https://as.example.com/introspect",
        client_id="api",
        client_secret="secret",
        clock=Clock(),
    )
    anyio.run(one)
    anyio.run(one)


# ---------------------------------------------------------------------------------- the answers


@pytest.mark.parametrize(
    "answer",
    [
        {"active": False},
        {"active": False, **access_claims()},
        access_claims(),
        active() | {"active": "true"},
        active() | {"active": 1},
        active() | {"active": None},
        {},
    ],
)
async def test_a_token_that_is_not_active_is_refused(issuer: Issuer, answer: Any) -> None:
    """rule 16: active is true and nothing else."""
    assert await refusal(issuer, answer) == "not active"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": "https://api.example.com/mcp/other"}, "other audience"),
        ({"aud": ["https://other.example.com"]}, "other audience"),
        ({"aud": ...}, "no aud"),
        ({"iss": "https://evil.example.com"}, "other issuer"),
        ({"iss": ISSUER + "/"}, "other issuer"),
        ({"iss": None}, "other issuer"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": ...}, "no exp"),
        ({"exp": float("nan")}, "expired"),
        ({"nbf": NOW + 60}, "nbf in the future"),
        ({"sub": ..., "client_id": ...}, "no subject"),
        ({"sub": ""}, "claim 'sub' is an empty string"),
        ({"sub": {"id": "alice"}}, "claim 'sub' is of type dict, not a string"),
        ({"client_id": ["cli"]}, "claim 'client_id' is of type list, not a string"),
        ({"tid": {"id": "t"}}, "claim 'tid' is of type dict, not a string"),
        ({"tenant": ["t"]}, "claim 'tenant' is of type list, not a string"),
        ({"org_id": True}, "claim 'org_id' is of type bool, not a string"),
        ({"org_id": ""}, "claim 'org_id' is an empty string"),
        ({"sub": None}, "no subject"),
        ({"scope": 5}, "scope of another type"),
        ({"cnf": {"jkt": "x"}}, "bound to a key"),
        ({"token_type": "DPoP"}, "other token_type"),
        ({"token_type": "refresh_token"}, "other token_type"),
        ({"token_type": 5}, "other token_type"),
    ],
)
async def test_an_active_token_for_somebody_else_is_refused(
    issuer: Issuer, changes: dict[str, Any], reason: str
) -> None:
    """decision: Authlib's validator checks `active` alone; aud, iss and exp are for us to check."""
    assert await refusal(issuer, active(**changes)) == reason


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": ...},
        {"iat": ...},
        {"iat": None, "nbf": None},
        {"token_type": "Bearer"},
        {"token_type": "bearer"},
        {"token_type": "access_token"},
        {"aud": [RESOURCE, "https://other.example.com"]},
        {"exp": int(NOW) + 5},
    ],
)
async def test_what_is_optional_may_be_missing(issuer: Issuer, changes: dict[str, Any]) -> None:
    """decision (RFC 7662 §2.2): who asked an issuer knows which one it was."""
    issuer.answers["/introspect"] = Answer(active(**changes))
    async with verifier(issuer) as asks:
        token = await asks.verify(TOKEN)
    assert (token.issuer, token.subject) == (ISSUER, "alice")


async def test_a_client_without_user_is_known_by_its_client(issuer: Issuer) -> None:
    """rule 34: client credentials."""
    issuer.answers["/introspect"] = Answer(active(sub=...))
    async with verifier(issuer) as asks:
        token = await asks.verify(TOKEN)
    assert (token.subject, token.client_id) == (None, "cli")


async def test_a_token_that_is_sent_back_is_dropped(issuer: Issuer) -> None:
    """rule 14: the raw token is not in what handlers get."""
    issuer.answers["/introspect"] = Answer(active(access_token=TOKEN, token=TOKEN))
    async with verifier(issuer) as asks:
        token = await asks.verify(TOKEN)
    assert TOKEN not in f"{token!r}{dict(token.claims)!r}{dict(token.mcp_principal_key)!r}"


# --------------------------------------------------------------------------------------- outage


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer({}, 500), "HTTP 500"),
        (Answer({}, 503), "HTTP 503"),
        (Answer({}, 429), "HTTP 429"),
        (Answer({"error": "invalid_client"}, 401), "HTTP 401"),
        (Answer(active(), 302, headers={"Location": "/elsewhere"}), "HTTP 302"),
        (Answer(active(), 201), "HTTP 201"),
        (Answer([b"<html>"]), "ValueError"),
        (Answer([b""]), "ValueError"),
        (Answer([b"[" * 100_000]), "ValueError"),
        (Answer([]), "ValueError"),
        (Answer([b"[]"]), "not an object"),
        (Answer([b"true"]), "not an object"),
        (Answer([b" " * 300_000]), "more than 262144 bytes"),
        (Answer([b"x"], headers={"Content-Encoding": "gzip"}), "compressed"),
    ],
)
async def test_an_answer_to_something_else_says_nothing(
    issuer: Issuer, answer: Answer, reason: str
) -> None:
    """rule 17: 503; also where the issuer refuses *our* credentials, no doing of the caller."""
    issuer.answers["/introspect"] = answer
    async with verifier(issuer) as asks:
        with pytest.raises(KeysUnavailable) as unknown:
            await asks.verify(TOKEN)
    assert reason in unknown.value.reason
    assert TOKEN not in unknown.value.reason
    assert [request.path for request in issuer.requests] == ["/introspect"]


async def test_an_issuer_that_is_gone_says_nothing(issuer: Issuer) -> None:
    """rule 17: 503."""
    with nobody() as url:
        async with verifier(issuer, introspection_endpoint=f"{url}/introspect") as asks:
            with pytest.raises(KeysUnavailable, match="ConnectError"):
                await asks.verify(TOKEN)


async def test_an_issuer_that_does_not_answer_is_given_up(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rule 17: a deadline for all of it."""
    monkeypatch.setattr(http_client, "TIMEOUT", 0.01)
    never = anyio.Event()
    issuer.answers["/introspect"] = Answer(active(), wait_for=never)
    async with verifier(issuer) as asks:
        with pytest.raises(KeysUnavailable, match="Timeout"):
            await asks.verify(TOKEN)
        never.set()


# --------------------------------------------------------------------------------------- privacy


async def test_neither_token_nor_secret_is_logged(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """rule 25: at no level, by no library involved."""
    caplog.set_level(1)
    async with verifier(issuer) as asks:
        await asks.verify(TOKEN)
        issuer.answers["/introspect"] = Answer([b"<html>"], 500)
        with pytest.raises(KeysUnavailable):
            await asks.verify(TOKEN)
    assert {"httpx2", "httpcore2.http11"} <= {record.name for record in caplog.records}
    basic = base64.b64encode(f"notes-api:{SECRET}".encode()).decode()
    for record in caplog.records:
        shown = logging.Formatter().format(record)
        assert "opaque-token" not in shown
        assert "s3cret" not in shown
        assert basic not in shown


async def test_its_repr_shows_no_secret(issuer: Issuer) -> None:
    """rule 25"""
    async with verifier(issuer) as asks:
        assert repr(asks) == "IntrospectionVerifier(issuer='https://as.example.com')"
        assert "s3cret" not in repr(asks._endpoint)


# --------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"introspection_endpoint": "http://as.example.com/i"}, "must be https"),
        ({"introspection_endpoint": "https://as.example.com/i#x"}, "fragment"),
        ({"issuer": "as.example.com"}, "absolute URL"),
        ({"audience": ()}, "never guessed"),
        ({"auth_method": "none"}, "is none of client_secret_basic, client_secret_post"),
        ({"client_id": ""}, "printable ASCII, and not empty"),
        ({"client_secret": ""}, "printable ASCII, and not empty"),
        ({"client_secret": "geheim\u2026"}, "printable ASCII, and not empty"),
        ({"client_id": "https://api.example.com"}, "auth_method='client_secret_post'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], why: str) -> None:
    """decision: at construction."""
    good = {
        "issuer": ISSUER,
        "audience": RESOURCE,
        "introspection_endpoint": "https://as.example.com/introspect?tenant=1",
        "client_id": "api",
        "client_secret": "secret",
    }
    assert IntrospectionVerifier(**good).issuer == ISSUER  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=why):
        IntrospectionVerifier(**{**good, **settings})


async def test_closing_what_was_never_used_is_fine() -> None:
    """decision"""
    asks = IntrospectionVerifier(
        issuer=ISSUER,
        audience=RESOURCE,
        introspection_endpoint="https://as.example.com/introspect",
        client_id="api",
        client_secret="secret",
    )
    await asks.aclose()


async def test_asking_leaves_no_client_behind(issuer: Issuer) -> None:
    """decision: Authlib's client is a cycle, so there is one, and not one a request."""
    async with verifier(issuer) as asks:
        await asks.verify(TOKEN)
        client = asks._endpoint._client
        gc.collect()
        await asks.verify(TOKEN)
        assert asks._endpoint._client is client
