"""Requests to an issuer are bounded: no redirect, no endless body, no endless wait."""

import sys
from typing import Any

import anyio
import pytest

from fastapi_mcp_mrtr.auth import http_client
from fastapi_mcp_mrtr.auth.http_client import MAX_BYTES, FetchError, fetch
from fastapi_mcp_mrtr.auth.introspection import IntrospectionVerifier
from fastapi_mcp_mrtr.auth.jwks import JWKSCache
from fastapi_mcp_mrtr.auth.jwt import JWTVerifier

from .issuer import ISSUER, RESOURCE, Answer, Issuer, jwk_set, rsa, serve

pytestmark = pytest.mark.anyio


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


async def test_a_document_is_fetched(issuer: Issuer) -> None:
    """decision: a GET that carries nothing of ours."""
    issuer.answers["/doc"] = Answer([b"abc", b"def"])
    async with serve(issuer) as url:
        assert await fetch(f"{url}/doc") == b"abcdef"
    (request,) = issuer.requests
    assert request.method == "GET"
    assert request.headers["accept"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert {"authorization", "cookie"}.isdisjoint(request.headers)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(issuer: Issuer, status: int) -> None:
    """decision: who answers is configuration."""
    issuer.answers["/doc"] = Answer({}, status, headers={"Location": "/elsewhere"})
    async with serve(issuer) as url:
        with pytest.raises(FetchError, match=f"HTTP {status}"):
            await fetch(f"{url}/doc")
    assert [request.path for request in issuer.requests] == ["/doc"]


@pytest.mark.parametrize("status", [201, 204, 400, 401, 404, 500, 503])
async def test_only_a_200_counts(issuer: Issuer, status: int) -> None:
    """decision"""
    issuer.answers["/doc"] = Answer([] if status == 204 else {"keys": []}, status)
    async with serve(issuer) as url:
        with pytest.raises(FetchError, match=f"HTTP {status}"):
            await fetch(f"{url}/doc")


async def test_a_body_is_read_up_to_its_limit(issuer: Issuer) -> None:
    """decision: size cap."""
    piece = b" " * 1024
    issuer.answers["/most"] = Answer([piece] * (MAX_BYTES // 1024))
    issuer.answers["/more"] = Answer([piece] * (MAX_BYTES // 1024) + [b" "])
    async with serve(issuer) as url:
        assert len(await fetch(f"{url}/most")) == MAX_BYTES
        with pytest.raises(FetchError, match="more than 262144 bytes"):
            await fetch(f"{url}/more")


async def test_a_compressed_body_is_refused(issuer: Issuer) -> None:
    """decision: the limit is for what is read, not for what it unfolds to."""
    issuer.answers["/doc"] = Answer([b"x"], headers={"Content-Encoding": "gzip"})
    issuer.answers["/plain"] = Answer([b"x"], headers={"Content-Encoding": "identity"})
    async with serve(issuer) as url:
        with pytest.raises(FetchError, match="compressed"):
            await fetch(f"{url}/doc")
        assert await fetch(f"{url}/plain") == b"x"


async def test_an_issuer_that_does_not_answer_is_given_up(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: a deadline for all of it."""
    monkeypatch.setattr(http_client, "TIMEOUT", 0.01)
    never = anyio.Event()
    issuer.answers["/doc"] = Answer({}, wait_for=never)
    async with serve(issuer) as url:
        try:
            with pytest.raises(Exception, match=r"^$|timed out") as failed:
                await fetch(f"{url}/doc")
        finally:
            never.set()
    assert "Timeout" in type(failed.value).__name__


# -------------------------------------------------------------------------- without the extra


@pytest.fixture
def without_httpx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.delitem(sys.modules, http_client.__name__)
    monkeypatch.delattr(sys.modules["fastapi_mcp_mrtr.auth"], "http_client")


@pytest.mark.usefixtures("without_httpx2")
@pytest.mark.parametrize(
    ("needs_it", "settings"),
    [
        (JWKSCache, {"uri": "https://as.example.com/jwks.json"}),
        (
            JWTVerifier,
            {
                "issuer": ISSUER,
                "audience": RESOURCE,
                "jwks_uri": "https://as.example.com/jwks.json",
            },
        ),
        (
            IntrospectionVerifier,
            {
                "issuer": ISSUER,
                "audience": RESOURCE,
                "introspection_endpoint": "https://as.example.com/introspect",
                "client_id": "api",
                "client_secret": "secret",
            },
        ),
    ],
)
def test_without_the_extra_constructing_says_which(needs_it: Any, settings: Any) -> None:
    """decision: at construction, not at the first request."""
    with pytest.raises(ImportError, match=r"pip install 'fastapi-mcp-mrtr\[oauth\]'"):
        needs_it(**settings)


@pytest.mark.usefixtures("without_httpx2")
def test_without_the_extra_there_are_other_ways_to_get_keys() -> None:
    """decision: a coroutine, or the keys themselves."""

    async def my_own(url: str) -> bytes:
        raise NotImplementedError

    uri = "https://as.example.com/jwks.json"
    JWTVerifier(issuer=ISSUER, audience=RESOURCE, jwks_uri=uri, fetch=my_own)
    JWTVerifier(issuer=ISSUER, audience=RESOURCE, jwks=jwk_set(rsa()))


def test_without_joserfc_constructing_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: at construction, and by the name of the extra."""
    for name in ("joserfc", "joserfc.jwk", "joserfc.jws", "joserfc.errors"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("jwks", "jws"):
        monkeypatch.delitem(sys.modules, f"fastapi_mcp_mrtr.auth.{name}")
    with pytest.raises(ImportError, match=r"needs joserfc.*fastapi-mcp-mrtr\[oauth\]"):
        JWTVerifier(issuer=ISSUER, audience=RESOURCE, jwks={})
