"""Dynamic registration: what Authlib alone would let through, crash on, or give away."""

from typing import Any

import pytest

from demo_app.auth_server.clients import MAX_CLIENTS, Client, Clients, redirect_problem

from .oauth import CALLBACK, PUBLIC, kit, problem_of, settings

pytestmark = pytest.mark.anyio


async def test_a_public_client_gets_no_secret() -> None:
    """user report: Authlib mints a secret for everybody."""
    async with kit() as made:
        client = await made.register()
    assert client["token_endpoint_auth_method"] == "none"
    assert not {"client_secret", "client_secret_expires_at"} & set(client)
    assert client["client_id_issued_at"] == int(made.clock())


async def test_a_client_that_says_nothing_of_it_is_public() -> None:
    """user report: Authlib's default is client_secret_basic, and the official client sends none."""
    silent = {name: value for name, value in PUBLIC.items() if "auth_method" not in name}
    async with kit() as made:
        response = await made.http.post("/as/register", json=silent)
    assert response.json()["token_endpoint_auth_method"] == "none"


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_confidential_client_gets_a_secret(method: str) -> None:
    """spec: MUST (index §Overview 1): both kinds of clients."""
    async with kit() as made:
        client = await made.register(token_endpoint_auth_method=method)
        kept = made.auth.server.clients.get(client["client_id"])
    assert len(client["client_secret"]) >= 40
    assert client["client_secret_expires_at"] == 0
    assert client["client_secret"] not in repr(kept)


async def test_what_was_registered_is_repeated() -> None:
    """spec: MUST (RFC 7591 §3.2.1); and no cache may keep it."""
    async with kit() as made:
        response = await made.http.post(
            "/as/register",
            json={
                **PUBLIC,
                "application_type": "native",
                "scope": "desk:read",
                "grant_types": ["authorization_code", "urn:example:other"],
                "tos_uri": "javascript:alert(1)",
            },
        )
    client = response.json()
    assert response.headers["cache-control"] == "no-store"
    assert client["client_name"] == "Assistant"
    assert client["redirect_uris"] == [CALLBACK]
    assert client["application_type"] == "native"
    # Replaced, as a server may: the grants that there are, and all scopes, since people decide.
    assert client["grant_types"] == ["authorization_code"]
    assert client["scope"] == "desk:read desk:book desk:pay"
    assert "tos_uri" not in client


@pytest.mark.parametrize(
    "uri",
    [
        CALLBACK,
        "http://localhost/callback",
        "http://[::1]:9/callback?a=b",
        "https://app.example.com",
        "https://app.example.com:8443/callback?tenant=1",
        "https://[2001:db8::1]/callback",
    ],
)
def test_a_redirect_uri_may_be_https_or_local(uri: str) -> None:
    """spec: MUST (security-considerations §Communication Security)"""
    assert redirect_problem(uri) is None


BAD_URIS = [
    "http://evil.example/cb",
    "http://127.0.0.1.evil.example/cb",
    "http://localhost.evil.example/cb",
    "http://127.0.0.2/cb",
    "http://user@localhost/cb",
    "https://user:password@app.example.com/cb",
    "https://*.example.com/cb",
    "https://app.example.com/cb#fragment",
    "https://app.example.com\\@evil.example/cb",
    "https://app.example.com/cb\n",
    "https://app.example.com/ü",
    "https:///cb",
    "https://app.example.com/cb?iss=https://other.example",
    "https://app.example.com/cb?a=b&code=forged",
    "https://app.example.com/cb?error_description=forged",
    "javascript:alert(1)",
    "data:text/html,hello",
    "app://callback",
    "com.example.app:/callback",
    "/callback",
    "",
]


@pytest.mark.parametrize("uri", BAD_URIS)
async def test_any_other_redirect_uri_is_refused(uri: str) -> None:
    """user report: Authlib accepts http://evil.example/cb and wildcard hosts."""
    async with kit() as made:
        response = await made.http.post("/as/register", json={**PUBLIC, "redirect_uris": [uri]})
    assert problem_of(response) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize(
    "uris", [[], None, [1], [None], "https://app.example.com/cb", [CALLBACK] * 11]
)
async def test_redirect_uris_are_a_list_of_some(uris: Any) -> None:
    """user report: Authlib accepts none at all, and crashes on what is no string."""
    async with kit() as made:
        response = await made.http.post("/as/register", json={**PUBLIC, "redirect_uris": uris})
    assert problem_of(response) == (400, "invalid_redirect_uri")


async def test_a_scheme_of_an_app_needs_a_setting() -> None:
    """decision: OAuth for native apps has them (RFC 8252 §7.1), MCP does not."""
    uri = "com.example.app:/callback"
    async with kit(private_use_schemes=("com.example.app",)) as made:
        client = await made.register(redirect_uris=[uri])
        answer = await made.ask(client["client_id"], redirect_uri=uri)
    assert "code" in answer
    assert redirect_problem("com.example.other:/callback", ("com.example.app",))


@pytest.mark.parametrize(
    "changes",
    [
        {"client_name": 5},
        {"client_name": "n" * 101},
        {"client_name": "\u202e\u0007 "},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"token_endpoint_auth_method": ["none"]},
        {"grant_types": ["refresh_token"]},
        {"grant_types": "authorization_code"},
        {"response_types": ["token"]},
        {"response_types": []},
    ],
)
async def test_metadata_of_the_wrong_kind_is_refused(changes: dict[str, Any]) -> None:
    """user report: Authlib registers a client_name of 5."""
    async with kit() as made:
        response = await made.http.post("/as/register", json={**PUBLIC, **changes})
    assert problem_of(response) == (400, "invalid_client_metadata")


async def test_a_name_cannot_rearrange_the_page() -> None:
    """decision: direction marks and line breaks are left out."""
    async with kit() as made:
        client = await made.register(client_name=" Nice\n\u202eapp\u200b\U0001f600 ")
    assert client["client_name"] == "Nice app\U0001f600"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "invalid_request"),
        (b"{", "invalid_request"),
        (b"[" * 10_000, "invalid_request"),
        (b"[]", "invalid_client_metadata"),
        (b"null", "invalid_client_metadata"),
        (b"{}", "invalid_redirect_uri"),
        (b'{"redirect_uris": ["' + b"\xff" + b'"]}', "invalid_request"),
    ],
)
async def test_a_body_that_is_no_registration(body: bytes, error: str) -> None:
    """decision: a clear answer, and never a 500."""
    async with kit() as made:
        response = await made.http.post(
            "/as/register", content=body, headers={"Content-Type": "application/json"}
        )
    assert problem_of(response) == (400, error)


async def test_a_body_that_is_not_declared_as_json() -> None:
    """decision: so that no foreign form can register anything."""
    async with kit() as made:
        response = await made.http.post("/as/register", data={"redirect_uris": CALLBACK})
    assert problem_of(response) == (400, "invalid_request")


async def test_a_body_that_is_too_large() -> None:
    """decision"""
    async with kit() as made:
        response = await made.http.post("/as/register", json={**PUBLIC, "x": "x" * 20_000})
    assert problem_of(response) == (413, "invalid_request")


def test_the_table_of_clients_has_an_end() -> None:
    """decision: anybody may register, so the oldest give way."""
    clients = Clients(settings())
    for number in range(MAX_CLIENTS):
        clients.add(Client(id=str(number)))
    clients.add(Client(id="0"))  # seen again, so no longer the oldest
    clients.add(Client(id="one more"))
    assert clients.get("1") is None
    assert all(clients.get(name) for name in ("0", "one more", "desk"))


# --------------------------------------------------------------------- which redirect URI is meant


@pytest.mark.parametrize(
    ("registered", "requested"),
    [
        (CALLBACK, CALLBACK),
        ("http://127.0.0.1/callback", "http://127.0.0.1:49152/callback"),
        ("http://localhost:1/callback?a=b", "http://localhost:2/callback?a=b"),
        ("http://[::1]:80/callback", "http://[::1]/callback"),
        ("https://app.example.com/cb", "https://app.example.com/cb"),
    ],
)
def test_a_program_on_this_computer_may_use_any_port(registered: str, requested: str) -> None:
    """spec: MUST (RFC 8252 §7.3): it learns its port when it starts."""
    assert Client(id="c", redirect_uris=(registered,)).check_redirect_uri(requested)


@pytest.mark.parametrize(
    ("registered", "requested"),
    [
        ("http://127.0.0.1/callback", "http://localhost/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1/other"),
        ("http://127.0.0.1/callback", "http://127.0.0.1/callback?a=b"),
        ("http://127.0.0.1/callback", "http://127.0.0.1@evil.example/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:80@evil.example/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:123456/callback"),
        ("http://127.0.0.1/callback", "https://127.0.0.1/callback"),
        ("https://app.example.com/cb", "https://app.example.com:8443/cb"),
        ("https://app.example.com/cb", "https://app.example.com/cb/"),
        ("https://app.example.com/cb", "https://app.example.com/CB"),
        ("https://app.example.com/cb", "https://app.example.com/x/../cb"),
    ],
)
def test_everything_else_must_be_identical(registered: str, requested: str) -> None:
    """spec: MUST (security-considerations §Open Redirection)"""
    assert not Client(id="c", redirect_uris=(registered,)).check_redirect_uri(requested)
