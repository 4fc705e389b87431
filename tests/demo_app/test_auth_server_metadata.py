"""The authorization server before anybody asks it for anything: settings, discovery, keys."""

from typing import Any

import httpx2
import pytest

from demo_app.auth_server import Resource
from demo_app.auth_server.keys import MARGIN, SigningKeys

from .helpers import Clock
from .oauth import ISSUER, MCP, REST, Kit, kit, settings

pytestmark = pytest.mark.anyio

WELL_KNOWN = "/.well-known/oauth-authorization-server/as"


async def discovered(made: Kit) -> dict[str, Any]:
    response = await made.http.get(WELL_KNOWN)
    document: dict[str, Any] = response.json()
    return document


async def test_the_document_is_between_host_and_path() -> None:
    """spec: MUST (authorization-server-discovery §Authorization Server Metadata Discovery)"""
    async with kit() as made:
        response = await made.http.get(WELL_KNOWN)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json()["issuer"] == ISSUER


async def test_an_issuer_without_path_is_discovered_at_the_root() -> None:
    """spec: MUST (RFC 8414 §3.1)"""
    async with kit(issuer="https://as.example.com") as made:
        response = await made.http.get("/.well-known/oauth-authorization-server")
        assert response.json()["token_endpoint"] == "https://as.example.com/token"
        assert (await made.http.get("/jwks.json")).status_code == 200


async def test_what_clients_look_for_is_announced() -> None:
    """spec: MUST, SHOULD (security-considerations §Authorization Code Protection;
    client-registration §Advertising CIMD Support; index §Authorization Response Validation)"""
    async with kit() as made:
        document = await discovered(made)
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert document["client_id_metadata_document_supported"] is True
    assert document["authorization_response_iss_parameter_supported"] is True
    assert document["response_types_supported"] == ["code"]
    assert document["grant_types_supported"] == ["authorization_code", "refresh_token"]
    assert document["scopes_supported"] == ["desk:read", "desk:book", "desk:pay"]
    assert document["protected_resources"] == [MCP, REST]


async def test_every_announced_endpoint_is_there() -> None:
    """decision"""
    async with kit() as made:
        document = await discovered(made)
        for name, url in document.items():
            if name.endswith("_endpoint") or name == "jwks_uri":
                method = "GET" if name in {"jwks_uri", "authorization_endpoint"} else "POST"
                assert (await made.http.request(method, url)).status_code not in {404, 405}, name


@pytest.mark.parametrize("place", [WELL_KNOWN, "/as/jwks.json", "/as/token", "/as/register"])
async def test_programs_in_a_browser_may_call(place: str) -> None:
    """spec: CORS is outside of authentication. decision"""
    asking = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "POST"}
    async with kit() as made:
        preflight = await made.http.options(place, headers=asking)
        method = "GET" if place in {WELL_KNOWN, "/as/jwks.json"} else "POST"
        response = await made.http.request(method, place, headers=asking)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "MCP-Protocol-Version" in preflight.headers["access-control-allow-headers"]
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("place", ["/as/authorize", "/as/sign-in", "/as/introspect"])
async def test_pages_for_people_are_not_for_programs(place: str) -> None:
    """decision: a page that another site could read would tell it the CSRF token."""
    asking = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "GET"}
    async with kit() as made:
        preflight = await made.http.options(place, headers=asking)
        response = await made.http.get(place, headers=asking)
    assert preflight.status_code == 405
    assert "access-control-allow-origin" not in response.headers


# ----------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "issuer",
    [
        "http://as.example.com",
        "http://127.0.0.1.example.com/as",
        "ftp://127.0.0.1/as",
        "as",
        "https:///as",
        "https://as.example.com/",
        "https://as.example.com/as/",
        "https://as.example.com/as?tenant=1",
        "https://as.example.com/as#here",
        "https://somebody@as.example.com/as",
        "https://as.example.com/a s",
    ],
)
def test_an_issuer_that_cannot_work_is_refused(issuer: str) -> None:
    """spec: MUST (security-considerations §Communication Security; RFC 8414 §2)"""
    with pytest.raises(ValueError, match="issuer="):
        settings(issuer=issuer)


@pytest.mark.parametrize("missing", ["resources", "scopes"])
def test_tokens_are_for_something(missing: str) -> None:
    """decision"""
    with pytest.raises(ValueError, match="for something"):
        settings(**{missing: ()})


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        (MCP, MCP),
        ("HTTP://127.0.0.1:8000/mcp", MCP),
        ("https://API.example.com/MCP", "https://api.example.com/MCP"),
        ("https://api.example.com/mcp", None),
        (f"{MCP}/", None),
        (f"{MCP}/more", None),
        ("nothing", None),
    ],
)
def test_a_resource_is_known_by_its_uri(named: str, meant: str | None) -> None:
    """spec: SHOULD (index §Canonical Server URI): scheme and host may come in upper case."""
    chosen = settings(
        resources=(
            Resource(uri=MCP, name="Travel desk"),
            Resource(uri="https://api.example.com/MCP", name="Another"),
        )
    )
    found = chosen.resource(named)
    assert (found and found.uri) == meant


# --------------------------------------------------------------------------------------- keys


def kids(keys: SigningKeys) -> list[str]:
    return [key["kid"] for key in keys.published()["keys"]]


def signing(keys: SigningKeys) -> str:
    (only,) = keys.active()
    return str(only.kid)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(clock: Clock) -> SigningKeys:
    return SigningKeys(clock=clock, period=10_000, publish_ahead=300, token_lifetime=300)


def test_the_first_key_signs_at_once(keys: SigningKeys) -> None:
    """decision: nobody can have fetched an older set."""
    assert kids(keys) == [signing(keys)]


def test_a_new_key_is_published_before_it_signs(keys: SigningKeys, clock: Clock) -> None:
    """decision: a resource server that keeps the set for 300 s has it in time."""
    old = signing(keys)
    keys.rotate()
    new = kids(keys)[-1]
    assert kids(keys) == [old, new]
    clock.advance(299)
    assert signing(keys) == old
    clock.advance(1)
    assert signing(keys) == new


def test_an_old_key_is_published_while_its_tokens_live(keys: SigningKeys, clock: Clock) -> None:
    """decision"""
    old = signing(keys)
    keys.rotate()
    clock.advance(300 + 300 + MARGIN - 1)
    assert old in kids(keys)
    clock.advance(1)
    assert kids(keys) == [signing(keys)] != [old]


def test_rotating_twice_makes_one_new_key(keys: SigningKeys, clock: Clock) -> None:
    """decision: a second one would push the first out before it signs."""
    keys.rotate()
    keys.rotate()
    assert len(kids(keys)) == 2


def test_keys_rotate_by_themselves(keys: SigningKeys, clock: Clock) -> None:
    """decision"""
    old = signing(keys)
    clock.advance(10_000)
    assert signing(keys) == old
    assert len(kids(keys)) == 2
    clock.advance(300)
    assert signing(keys) != old


async def test_what_is_published_is_public() -> None:
    """decision: and resource servers may keep it for as long as keys are published ahead."""
    async with kit(publish_ahead=120) as made:
        response: httpx2.Response = await made.http.get("/as/jwks.json")
    assert response.headers["cache-control"] == "max-age=120"
    (key,) = response.json()["keys"]
    assert {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256"}.items() <= key.items()
    assert "d" not in key
