"""Clients described by a document: what is fetched, from where, and what is believed."""

import json
from typing import Any

import httpx2
import pytest

from demo_app.auth_server import Documents
from demo_app.auth_server.documents import (
    DEFAULT_AGE,
    MAX_AGE,
    MAX_BYTES,
    DocumentRefused,
    document_url,
    is_public,
    lifetime,
    resolve,
)
from demo_app.oauth_player import LoginFailed

from .helpers import Clock
from .oauth import CALLBACK, Kit, kit, problem_of, settings

pytestmark = pytest.mark.anyio

URL = "https://app.example.com/oauth/client.json"


def document(**changes: Any) -> dict[str, Any]:
    said = {
        "client_id": URL,
        "client_name": "Example",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        **changes,
    }
    return {name: value for name, value in said.items() if value is not ...}


def served(body: object = None, status: int = 200, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body or document()).encode()
    kind = {"Content-Type": "application/json"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, content=content, headers={**kind, **named})


async def refused(made: Kit, client_id: str = URL) -> None:
    """The page says so; nobody is sent anywhere."""
    browser = made.browser()
    with pytest.raises(LoginFailed, match="400"):
        await made.ask(client_id, browser)
    assert "That did not work" in browser.pages[-1]


# ------------------------------------------------------------------------------- how it goes


async def test_a_client_needs_no_registration() -> None:
    """spec: SHOULD (client-registration §Client ID Metadata Documents): and the tokens are its."""
    async with kit(documents={URL: served()}) as made:
        tokens = await made.tokens(URL)
        refreshed = await made.refresh(URL, tokens["refresh_token"])
    assert refreshed.status_code == 200
    assert len(made.fetched) == 1


async def test_nothing_is_fetched_for_somebody_who_has_not_signed_in() -> None:
    """decision: or anybody could make the server call others."""
    async with kit(documents={URL: served()}) as made:
        assert "Sign in" in (await made.http.get(made.link(URL))).text
        assert made.fetched == []


async def test_nothing_is_fetched_for_programs() -> None:
    """decision: for the token endpoint a client exists once somebody has been asked about it."""
    async with kit(documents={URL: served()}) as made:
        response = await made.token(URL, code="any")
        assert problem_of(response) == (400, "invalid_client")
        assert made.fetched == []


async def test_the_request_says_what_it_wants_and_follows_nothing() -> None:
    """spec: MUST (draft-ietf-oauth-client-id-metadata-document-00 §3)"""
    moved = served(status=302, Location="https://app.example.com/elsewhere")
    async with kit(documents={URL: moved, "https://app.example.com/elsewhere": served()}) as made:
        await refused(made)
    (request,) = made.fetched
    assert request.headers["accept"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"


# -------------------------------------------------------------------------- which URLs there are


@pytest.mark.parametrize(
    "url",
    [URL, "https://app.example.com:8443/c", "https://a.example/c?v=1", "https://[2a00::1]/c"],
)
def test_a_url_that_a_document_may_have(url: str) -> None:
    """spec: MUST (draft §3): https, and a path."""
    assert document_url(url, loopback=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://app.example.com/c",
        "HTTPS://app.example.com/c",
        "https://app.example.com",
        "https://app.example.com/",
        "https://app.example.com/c#f",
        "https://user@app.example.com/c",
        "https://app.example.com/./c",
        "https://app.example.com/a/../c",
        "https://app.example.com/a/%2e%2e/c",
        "https://app.example.com:port/c",
        "https://[::1/c",
        "https:///c",
        "https:app.example.com/c",
        "https://app.example.com/c d",
        "https://app.example.com\\c",
        "https://\u00fc.example.com/c",
        f"https://app.example.com/{'c' * 2000}",
        "http://127.0.0.1/c",
        "ftp://app.example.com/c",
        "abc",
    ],
)
def test_a_url_that_none_may_have(url: str) -> None:
    """spec: MUST (draft §3): no fragment, no user, no dot segments."""
    assert document_url(url, loopback=False) is None


def test_plain_http_needs_a_setting_and_this_computer() -> None:
    """decision: for demos."""
    assert document_url("http://127.0.0.1:5000/c", loopback=True)
    assert document_url("http://localhost/c", loopback=True)
    assert document_url("http://app.example.com/c", loopback=True) is None


# ------------------------------------------------------------------------ which addresses count

PRIVATE = [
    "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "0.0.0.0", "192.0.0.9", "192.88.99.1", "198.18.0.1", "203.0.113.1", "224.0.0.1",
    "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1",
    "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public(address: str) -> None:
    """spec: SHOULD (security-considerations §Authorization Server Abuse Protection)"""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:2800:220:1::1"])
def test_an_address_that_is(address: str) -> None:
    """decision"""
    assert is_public(address)


class Names:
    """A resolver that answers differently each time it is asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[str]:
        return self.answers.pop(0)


def documents(names: Names, transport: httpx2.MockTransport, **changes: Any) -> Documents:
    return Documents(settings(**changes), Clock(), resolver=names, transport=transport)


def must_not_be_called(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError(request.url)


@pytest.mark.parametrize("answer", [["10.0.0.1"], ["8.8.8.8", "10.0.0.1"], []])
async def test_a_name_that_leads_inside_is_not_called(answer: list[str]) -> None:
    """spec: SHOULD: not even if another of its addresses is public."""
    with pytest.raises(DocumentRefused, match="not public"):
        await documents(Names(answer), httpx2.MockTransport(must_not_be_called)).client(URL)


async def test_what_was_checked_is_what_is_called() -> None:
    """decision: a name that changes its mind after the check (DNS rebinding) gains nothing."""
    called: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        called.append(request)
        return served()

    names = Names(["93.184.216.34"], ["127.0.0.1"])
    await documents(names, httpx2.MockTransport(answer)).client(URL)
    assert called[0].url.host == "93.184.216.34"
    assert called[0].headers["Host"] == "app.example.com"
    assert called[0].extensions["sni_hostname"] == "app.example.com"
    assert len(names.answers) == 1


async def test_an_address_that_does_not_answer_is_passed_over() -> None:
    """decision"""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "2606:2800:220:1::1":
            raise httpx2.ConnectError("no way there")
        return served()

    names = Names(["2606:2800:220:1::1", "93.184.216.34"])
    client = await documents(names, httpx2.MockTransport(answer)).client(URL)
    assert client.name == "Example"


async def test_this_computer_needs_a_setting() -> None:
    """decision: for demos."""
    url = "http://localhost:5000/c"

    def answer(request: httpx2.Request) -> httpx2.Response:
        return served(document(client_id=url))

    transport = httpx2.MockTransport(answer)
    made = documents(Names(["127.0.0.1"]), transport, loopback_documents=True)
    assert (await made.client(url)).id == url
    for name in (url, "https://localhost:5000/c"):
        with pytest.raises(DocumentRefused, match=r"no URL|not public"):
            await documents(Names(["127.0.0.1"]), transport).client(name)


async def test_names_are_looked_up() -> None:
    """decision"""
    assert "127.0.0.1" in await resolve("127.0.0.1", 80)


@pytest.mark.parametrize(
    "failure", [OSError("no such name"), httpx2.ConnectError("refused"), TimeoutError()]
)
async def test_whatever_goes_wrong_there_is_no_client(failure: Exception) -> None:
    """decision: and never a 500."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        raise failure

    with pytest.raises(DocumentRefused):
        await documents(Names(["8.8.8.8"]), httpx2.MockTransport(answer)).client(URL)


# ------------------------------------------------------------------------- what is believed


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "https://app.example.com/oauth/other.json"},
        {"client_id": ...},
        {"client_name": ...},
        {"redirect_uris": ...},
        {"redirect_uris": ["http://evil.example/cb"]},
        {"token_endpoint_auth_method": "client_secret_basic"},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"client_secret": "known to all"},
        {"client_secret_expires_at": 0},
    ],
)
async def test_a_document_that_is_wrong_describes_nobody(changes: dict[str, Any]) -> None:
    """spec: MUST (client-registration §Implementation Requirements; draft §4.1)"""
    async with kit(documents={URL: served(document(**changes))}) as made:
        await refused(made)


@pytest.mark.parametrize(
    "response",
    [
        served(status=404),
        served(b"not JSON"),
        served(b"[]"),
        served(Content_Type="text/html"),
        served(Content_Encoding="gzip", body=b""),
        served(document(padding="x" * MAX_BYTES)),
    ],
    ids=["missing", "no JSON", "no object", "HTML", "compressed", "too large"],
)
async def test_an_answer_that_is_no_document(response: httpx2.Response) -> None:
    """spec: MUST, SHOULD (draft §4, §6.6)"""
    async with kit(documents={URL: response}) as made:
        await refused(made)


async def test_a_redirect_uri_must_be_in_the_document() -> None:
    """spec: MUST (client-registration §Implementation Requirements)"""
    async with kit(documents={URL: served()}) as made:
        browser = made.browser()
        with pytest.raises(LoginFailed, match="400"):
            await made.ask(URL, browser, redirect_uri="https://evil.example/cb")
        assert "code" in await made.ask(URL, redirect_uri=CALLBACK)


# ------------------------------------------------------------------------------ how long it counts


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", DEFAULT_AGE),
        ("max-age=60", 60),
        ("public, Max-Age=60", 60),
        ("max-age=999999", MAX_AGE),
        ("max-age=soon", DEFAULT_AGE),
        ("no-store", 0),
        ("no-cache, max-age=60", 0),
        ("max-age=0", 0),
    ],
)
def test_a_document_says_how_long_it_may_be_kept(header: str, seconds: float) -> None:
    """spec: SHOULD (client-registration §Implementation Requirements), within limits."""
    assert lifetime(header) == seconds


@pytest.mark.parametrize(("header", "fetches"), [("max-age=60", 2), ("no-store", 3)])
async def test_it_is_fetched_again_when_it_is_old(header: str, fetches: int) -> None:
    """spec: SHOULD"""
    async with kit(documents={URL: served(Cache_Control=header)}) as made:
        browser = made.browser()
        for wait in (0, 59, 1):
            made.clock.advance(wait)
            assert "code" in await made.ask(URL, browser)
    assert len(made.fetched) == fetches


async def test_a_failure_is_not_kept() -> None:
    """spec: MUST NOT (draft §4.4)"""
    async with kit() as made:
        await refused(made)
        made.documents[URL] = served()
        assert "code" in await made.ask(URL)
