"""The protected resource in an app, over real HTTP: who gets in, and what others are told."""

import gc
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, Request, Security
from fastapi.openapi.utils import get_openapi
from fastapi.security import SecurityScopes
from fastapi.testclient import TestClient
from starlette.types import Scope

from fastapi_mcp_mrtr.auth.challenges import ChallengeError, send_challenge
from fastapi_mcp_mrtr.auth.introspection import IntrospectionVerifier
from fastapi_mcp_mrtr.auth.jwt import JWTVerifier
from fastapi_mcp_mrtr.auth.principal import principal_key_bytes
from fastapi_mcp_mrtr.auth.resource import ProtectedResource
from fastapi_mcp_mrtr.auth.token import InvalidToken, KeysUnavailable, VerifiedToken

from .issuer import (
    ISSUER,
    NOW,
    RESOURCE,
    Answer,
    Clock,
    Issuer,
    access_claims,
    access_token,
    jwk_set,
    nobody,
    rsa,
    serve,
    sign,
)

pytestmark = pytest.mark.anyio

METADATA_URL = "https://api.example.com/.well-known/oauth-protected-resource/mcp"
FOUND_AT = f'resource_metadata="{METADATA_URL}"'

NO_CREDENTIALS = f'Bearer scope="notes:read", {FOUND_AT}'
INVALID = (
    f'Bearer error="invalid_token", scope="notes:read", {FOUND_AT}, '
    'error_description="The access token is invalid or expired"'
)
DUPLICATE = (
    'Bearer error="invalid_request", '
    'error_description="The Authorization header was sent more than once"'
)


def insufficient(scopes: str) -> str:
    return (
        f'Bearer error="insufficient_scope", scope="{scopes}", {FOUND_AT}, '
        'error_description="The access token lacks a scope that this operation needs"'
    )


class Counting:
    """A verifier that counts, and for which the token says what is to happen."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    async def verify(self, token: str) -> Any:
        self.tokens.append(token)
        match token.split("."):
            case ["refuse", reason]:
                raise InvalidToken(reason)
            case ["later", seconds]:
                raise KeysUnavailable("issuer is down", retry_after=int(seconds))
            case ["break"]:
                raise ZeroDivisionError
            case ["none"]:
                return None
            case ["tenant", tenant]:
                return VerifiedToken(issuer=ISSUER, subject="alice", claims={"tid": [tenant]})
            case ["issuer", host]:
                return VerifiedToken(issuer=f"https://{host}.example.com", subject="alice")
        scopes = frozenset(token.replace("_", ":").split("-"))
        return VerifiedToken(issuer=ISSUER, subject="alice", client_id="cli", scopes=scopes)


def jwt_verifier(**settings: Any) -> JWTVerifier:
    keys = jwk_set(rsa())
    good = {"issuer": ISSUER, "audience": RESOURCE, "jwks": keys, "clock": Clock()}
    return JWTVerifier(**{**good, **settings})


def protected(verifier: Any = None, **settings: Any) -> ProtectedResource:
    return ProtectedResource(
        **{
            "resource": RESOURCE,
            "authorization_servers": [ISSUER],
            "verifier": jwt_verifier() if verifier is None else verifier,
            "scopes": ["notes:read"],
            **settings,
        }
    )


def make_app(auth: ProtectedResource) -> FastAPI:
    """Routes as a user writes them; refusals with their exact bodies."""
    app = FastAPI()
    app.add_exception_handler(ChallengeError, send_challenge)

    @app.get("/me")
    async def me(token: Annotated[VerifiedToken, Depends(auth)]) -> dict[str, Any]:
        return {"sub": token.subject, "client": token.client_id, "scopes": sorted(token.scopes)}

    @app.get("/write")
    async def write(
        token: Annotated[VerifiedToken, Security(auth, scopes=["notes:write", "notes:tag"])],
    ) -> str:
        return "written"

    return app


@asynccontextmanager
async def client(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    async with serve(app) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        yield client


async def answer(auth: ProtectedResource, path: str = "/me", *authorization: str) -> Any:
    async with client(make_app(auth)) as http:
        return await http.get(path, headers=[("Authorization", each) for each in authorization])


def told(response: Any) -> tuple[int, str | None, Any]:
    body = json.loads(response.content)
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, response.headers.get("WWW-Authenticate"), body


# ------------------------------------------------------------------------------------ who gets in


async def test_a_good_token_gets_in() -> None:
    """rules 12, 15: the happy path over HTTP."""
    response = await answer(protected(), "/me", f"Bearer {access_token()}")
    assert (response.status_code, response.json()) == (
        200,
        {"sub": "alice", "client": "cli", "scopes": ["notes:read"]},
    )
    assert "WWW-Authenticate" not in response.headers


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer ", "bEaReR   "])
async def test_the_scheme_is_compared_without_case(scheme: str) -> None:
    """rule 15 (RFC 9110 §11.1): and one or more spaces."""
    response = await answer(protected(), "/me", f"{scheme} {access_token()}")
    assert response.status_code == 200


@pytest.mark.parametrize(
    "authorization",
    [
        [],
        [""],
        ["Basic YWxpY2U6c2VjcmV0"],
        ["DPoP abc"],
        ["Bearerabc"],
        ["Token abc"],
        ["abc"],
    ],
)
async def test_no_credentials(authorization: list[str]) -> None:
    """rules 15, 21: 401 without error; other schemes too."""
    response = await answer(protected(), "/me", *authorization)
    assert told(response) == (401, NO_CREDENTIALS, {})


async def test_a_token_in_the_query_is_none() -> None:
    """rule 15, spec: MUST NOT (index §Token Requirements 2): ignored, hence 401 without error."""
    response = await answer(protected(), f"/me?access_token={access_token()}")
    assert told(response) == (401, NO_CREDENTIALS, {})


async def test_a_token_in_the_form_is_none() -> None:
    """rule 15: nor in a body."""
    async with client(make_app(protected())) as http:
        form = {"access_token": access_token()}
        response = await http.request("GET", "/me", data=form)
    assert told(response) == (401, NO_CREDENTIALS, {})


async def test_nobody_is_told_of_scopes_that_there_are_not() -> None:
    """rules 15, 21: one parameter is left."""
    response = await answer(protected(scopes=[]))
    assert told(response) == (401, f"Bearer {FOUND_AT}", {})


GOOD = access_token()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "abc",
        "a b",
        "a,b",
        '"quoted"',
        "a=b",
        "Bearer abc",
        GOOD + "A",
        GOOD + ",",
        GOOD[:-4],
        sign(access_claims(), alg="none"),
        sign(access_claims(), typ="JWT"),
        sign(access_claims(), crit=["exp"]),
        access_token(iss="https://evil.example.com"),
        access_token(aud="https://api.example.com/mcp2"),
        access_token(exp=NOW - 60),
        access_token(exp=...),
        access_token(exp=float("nan")),
        access_token(key=rsa("unknown")),
    ],
)
async def test_a_token_that_is_not_acceptable(token: str) -> None:
    """rules 16, 21: malformed, forged, for others, expired: one answer for all."""
    response = await answer(protected(), "/me", f"Bearer {token}".strip())
    status, challenge, body = told(response)
    assert (status, challenge) == (401, INVALID)
    assert re.fullmatch("[0-9a-f]{16}", body.pop("correlation_id"))
    assert body == {
        "error": "invalid_token",
        "error_description": "The access token is invalid or expired",
    }


async def test_a_token_has_a_limit() -> None:
    """rule 12: 16 KiB, before anybody looks into it."""
    verifier = Counting()
    auth = protected(verifier, scopes=[])
    assert (await answer(auth, "/me", "Bearer " + "a" * 16384)).status_code == 200
    assert (await answer(auth, "/me", "Bearer " + "a" * 16385)).status_code == 401
    assert [len(token) for token in verifier.tokens] == [16384]


async def test_bytes_that_are_no_text_are_no_token() -> None:
    """rule 12: 401 and no 500."""
    async with client(make_app(protected())) as http:
        headers = [(b"Authorization", b"Bearer \xff\xfe\xe9")]
        response = await http.get("/me", headers=headers)
    assert told(response)[:2] == (401, INVALID)


async def test_expired_and_short_of_scopes_is_expired() -> None:
    """rule 16: 401 wins, so that the client refreshes instead of stepping up."""
    token = access_token(exp=NOW - 60, scope="")
    assert told(await answer(protected(), "/write", f"Bearer {token}"))[0] == 401


@pytest.mark.parametrize("second", [f"Bearer {GOOD}", "Bearer abc", "Basic abc", ""])
async def test_two_headers_are_one_too_many(second: str) -> None:
    """rule 15: whichever they are, even twice the same."""
    response = await answer(protected(), "/me", f"Bearer {GOOD}", second)
    body = {
        "error": "invalid_request",
        "error_description": "The Authorization header was sent more than once",
    }
    assert told(response) == (400, DUPLICATE, body)


async def test_two_headers_that_a_proxy_joined_are_no_token() -> None:
    """rule 15: a comma is not part of a token."""
    response = await answer(protected(), "/me", f"Bearer {GOOD}, Bearer {GOOD}")
    assert told(response)[:2] == (401, INVALID)


async def test_keys_unavailable() -> None:
    """rule 17: 503, when to come back, and no reason to throw the token away."""
    response = await answer(protected(Counting()), "/me", "Bearer later.7")
    assert (response.status_code, response.content) == (503, b"")
    assert response.headers["Retry-After"] == "7"
    assert "WWW-Authenticate" not in response.headers


async def test_an_issuer_that_is_down_is_a_503() -> None:
    """rule 17: with the cache and the HTTP client that there are."""
    with nobody() as url:
        verifier = jwt_verifier(jwks=None, jwks_uri=f"{url}/jwks.json")
        response = await answer(protected(verifier), "/me", f"Bearer {GOOD}")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")


async def test_an_issuer_that_the_metadata_does_not_name_is_refused() -> None:
    """rule 12: issuer ∈ the metadata's list, for verifiers of one's own too."""
    auth = protected(Counting(), scopes=[])
    assert (await answer(auth, "/me", "Bearer issuer.as")).status_code == 200
    assert (await answer(auth, "/me", "Bearer issuer.other")).status_code == 401


@pytest.mark.parametrize(("token", "error"), [("break", ZeroDivisionError), ("none", TypeError)])
async def test_a_broken_verifier_lets_nobody_in(token: str, error: type[Exception]) -> None:
    """rule 34: fail closed, and loud."""
    request = Request({"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]})
    with pytest.raises(error):
        await protected(Counting())(request, SecurityScopes())


async def test_every_request_is_verified() -> None:
    """rule 10, spec: MUST: nothing is remembered between requests."""
    verifier = Counting()
    async with client(make_app(protected(verifier))) as http:
        for _ in range(3):
            await http.get("/me", headers={"Authorization": "Bearer notes_read"})
    assert len(verifier.tokens) == 3


# ----------------------------------------------------------------------------------------- scopes


async def test_a_token_without_the_scope_of_every_request() -> None:
    """rules 12, 21, 22."""
    response = await answer(protected(), "/me", f"Bearer {access_token(scope='notes:list')}")
    body = {
        "error": "insufficient_scope",
        "error_description": "The access token lacks a scope that this operation needs",
    }
    assert told(response) == (403, insufficient("notes:read"), body)


@pytest.mark.parametrize(
    "scope", ["", "notes:read", "notes:write notes:tag", "notes:tag notes:read"]
)
async def test_all_scopes_of_an_operation_are_in_one_challenge(scope: str) -> None:
    """rule 22: base scopes and those of `Security`, granted or not, in the same order."""
    response = await answer(protected(), "/write", f"Bearer {access_token(scope=scope)}")
    assert told(response)[:2] == (403, insufficient("notes:read notes:write notes:tag"))


async def test_a_token_with_all_scopes_gets_in() -> None:
    """rule 12"""
    token = access_token(scope="notes:tag notes:write other notes:read")
    assert (await answer(protected(), "/write", f"Bearer {token}")).status_code == 200


async def test_a_401_names_what_the_operation_needs() -> None:
    """rule 21, spec: SHOULD (index §Scope Selection Strategy): no second trip for a 403."""
    response = await answer(protected(), "/write")
    scopes = "notes:read notes:write notes:tag"
    assert told(response) == (401, f'Bearer scope="{scopes}", {FOUND_AT}', {})


async def test_a_broader_scope_is_enough_and_the_challenge_stays_literal() -> None:
    """rule 23, spec: MUST (index §Step-Up Authorization Flow): scope hierarchies."""
    imply = {"notes:admin": ["notes:write"], "notes:write": ["notes:read", "notes:tag"]}
    auth = protected(imply=imply)
    token = access_token(scope="notes:admin")
    assert (await answer(auth, "/write", f"Bearer {token}")).status_code == 200
    token = access_token(scope="notes:tag")
    response = await answer(auth, "/write", f"Bearer {token}")
    assert told(response)[:2] == (403, insufficient("notes:read notes:write notes:tag"))


async def test_a_handlers_scopes_are_checked_by_whoever_knows_them() -> None:
    """decision: what the endpoint uses, for tools with `scopes=`."""
    auth = protected(imply={"notes:admin": ["notes:write"]})
    reader = VerifiedToken(issuer=ISSUER, subject="alice", scopes=frozenset({"notes:read"}))
    assert auth.required_scopes(["notes:write"], ["notes:read", "notes:tag"]) == (
        "notes:read",
        "notes:write",
        "notes:tag",
    )
    assert auth.missing_scopes(reader, ["notes:read", "notes:write"]) == ("notes:write",)
    auth.authorize(reader, [])
    with pytest.raises(ChallengeError) as refused:
        auth.authorize(reader, ["notes:write"])
    assert refused.value.status_code == 403
    assert refused.value.headers == {"WWW-Authenticate": insufficient("notes:read notes:write")}
    admin = VerifiedToken(issuer=ISSUER, scopes=frozenset({"notes:read", "notes:admin"}))
    auth.authorize(admin, ["notes:write"])


async def test_step_ups_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """rule 25: elevation events: scopes asked, scopes granted."""
    caplog.set_level(logging.INFO, logger="fastapi_mcp_mrtr")
    auth = protected()
    refusal = auth.challenge_insufficient(["notes:write"])
    assert refusal.status_code == 403
    await answer(auth, "/write", f"Bearer {access_token(scope='notes:read a')}")
    assert [r.getMessage() for r in caplog.records if r.name == "fastapi_mcp_mrtr"] == [
        "Asked the client None for the scopes ['notes:read', 'notes:write']; it has unknown ones",
        "Asked the client 'cli' for the scopes ['notes:read', 'notes:write', 'notes:tag']; "
        "it has ['a', 'notes:read']",
    ]


# ------------------------------------------------------------------------- once in every request


async def test_a_token_is_verified_once_however_often_it_is_asked_for() -> None:
    """decision: FastAPI runs a dependency again for other scopes; verification is not repeated."""
    verifier = Counting()
    auth = protected(verifier)
    app = make_app(auth)

    async def inner(token: Annotated[VerifiedToken, Security(auth, scopes=["a"])]) -> VerifiedToken:
        return token

    @app.get("/often")
    async def often(
        first: Annotated[VerifiedToken, Depends(auth)],
        second: Annotated[VerifiedToken, Security(auth, scopes=["b"])],
        third: Annotated[VerifiedToken, Security(inner, scopes=["c"])],
    ) -> bool:
        return first is second is third

    async with client(app) as http:
        good = await http.get("/often", headers={"Authorization": "Bearer notes_read-a-b-c"})
        assert good.json() is True
        assert len(verifier.tokens) == 1
        short = await http.get("/often", headers={"Authorization": "Bearer notes_read-b-c"})
    # The chain of `Security` asks for the scopes along it.
    assert told(short)[:2] == (403, insufficient("notes:read c a"))


async def test_what_was_verified_can_be_asked_for() -> None:
    """decision: the endpoint checks a handler's scopes after the dependencies were solved."""
    auth = protected(Counting())
    request = Request({"type": "http", "headers": [(b"authorization", b"Bearer notes_read")]})
    assert auth.verified(request) is None
    token = await auth(request, SecurityScopes())
    assert auth.verified(request) is token
    assert protected(Counting()).verified(request) is None


# ------------------------------------------------------------------- another way beside the token


def mixed(verifier: Any = None) -> FastAPI:
    """An app that takes a token or a key."""
    auth = protected(verifier, auto_error=False)
    app = FastAPI()
    app.add_exception_handler(ChallengeError, send_challenge)

    async def caller(
        request: Request, token: Annotated[VerifiedToken | None, Security(auth)]
    ) -> str | None:
        if token is None and request.headers.get("X-Key") != "good":
            raise auth.challenge(["notes:write"])
        return token.subject if token else "key"

    @app.get("/")
    async def who(name: Annotated[str, Depends(caller)]) -> str:
        return name

    return app


async def test_a_dependency_may_know_another_way_in() -> None:
    """decision: `auto_error=False`, as in `fastapi.security` (oauth: mixed schemes)."""
    async with client(mixed()) as http:
        key = {"X-Key": "good"}
        token = {"Authorization": f"Bearer {access_token()}"}
        assert (await http.get("/", headers=key)).json() == "key"
        assert (await http.get("/", headers={**key, "Authorization": "Basic eA=="})).json() == "key"
        assert (await http.get("/", headers={**key, **token})).json() == "alice"
        nobody = await http.get("/")
    challenge = f'Bearer scope="notes:read notes:write", {FOUND_AT}'
    assert told(nobody) == (401, challenge, {})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Authorization", "Bearer wrong")], 401),
        ([("Authorization", "Bearer")], 401),
        ([("Authorization", f"Bearer {access_token(scope='other')}")], 403),
        ([("Authorization", "Basic eA=="), ("Authorization", "Basic eA==")], 400),
    ],
)
async def test_what_is_there_must_be_good_all_the_same(
    headers: list[tuple[str, str]], status: int
) -> None:
    """decision: whoever sends a token is told what is wrong with it; the key does not help."""
    async with client(mixed()) as http:
        refused = await http.get("/", headers=[*headers, ("X-Key", "good")])
    assert refused.status_code == status


async def test_two_resources_do_not_share_their_tokens() -> None:
    """rule 13: what one verified says nothing to the other."""
    first, second = protected(Counting()), protected(Counting())
    request = Request({"type": "http", "headers": [(b"authorization", b"Bearer notes_read")]})
    await first(request, SecurityScopes())
    second._verifier = jwt_verifier()
    with pytest.raises(ChallengeError):
        await second(request, SecurityScopes())


# -------------------------------------------------------------------------- the token is not kept


async def test_what_a_handler_gets_holds_no_token() -> None:
    """rule 14, spec: MUST NOT (security-considerations §Access Token Privilege Restriction)."""
    token = access_token()
    scope: Scope = {"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]}
    auth = protected()
    verified = await auth(Request(scope), SecurityScopes())
    assert verified is not None
    del scope["headers"]
    everything = [
        repr(verified),
        repr(dict(verified.claims)),
        repr(dict(verified.mcp_principal_key)),
        repr(scope),
        repr(vars(auth)),
        str(principal_key_bytes(verified)),
    ]
    for part in [token, *token.split(".")]:
        assert part not in "".join(everything)


async def test_no_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """rule 25: at no level, by no library involved, whatever becomes of the token."""
    caplog.set_level(1)
    issuer = Issuer()
    async with serve(issuer) as url:
        auth = protected(jwt_verifier(jwks=None, jwks_uri=f"{url}/jwks.json"))
        tokens = [
            access_token(),
            access_token(scope=""),
            access_token(exp=NOW - 60),
            access_token(key=rsa("unknown")),
            access_token()[:-8] + "AAAAAAAA",
            "not-a-jwt-but-secret.x.y",
            "malformed-but-secret!",
        ]
        async with client(make_app(auth)) as http:
            statuses = [
                (await http.get("/me", headers={"Authorization": f"Bearer {token}"})).status_code
                for token in tokens
            ]
    assert statuses == [200, 403, 401, 401, 401, 401, 401]
    assert len(issuer.requests) == 1
    names = {record.name for record in caplog.records}
    assert {"fastapi_mcp_mrtr", "httpx2", "uvicorn.asgi"} <= names
    parts = {part for token in tokens for part in token.split(".") if len(part) > 1}
    for record in caplog.records:
        shown = logging.Formatter().format(record)
        assert not [part for part in parts if part in shown]


async def test_the_reason_is_in_the_log_under_the_id_that_the_client_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """rule 25: generic text to the client, the real reason with a correlation id to the log."""
    caplog.set_level(logging.INFO, logger="fastapi_mcp_mrtr")
    response = await answer(protected(), "/me", f"Bearer {access_token(exp=NOW - 60)}")
    (line,) = [r.getMessage() for r in caplog.records if r.name == "fastapi_mcp_mrtr"]
    known = response.json()["correlation_id"]
    assert line == f"Access token refused: expired (correlation id {known})"
    assert "expired (" not in response.text


async def test_what_a_verifier_of_ones_own_lets_through_must_identify_somebody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """rule 34: whoever verified the token, it is invalid where its claims name nobody."""
    caplog.set_level(logging.INFO, logger="fastapi_mcp_mrtr")
    response = await answer(protected(Counting()), "/me", "Bearer tenant.acme")
    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, INVALID)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "fastapi_mcp_mrtr"]
    assert "refused: claim 'tid' is of type list, not a string (" in line


async def test_an_outage_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """rule 25: somebody has to do something."""
    await answer(protected(Counting()), "/me", "Bearer later.5")
    (record,) = [r for r in caplog.records if r.name == "fastapi_mcp_mrtr"]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "Cannot tell whether access tokens are good: issuer is down"


@pytest.mark.parametrize(
    "header",
    [None, "", "Basic x", "Bearer abc", f"Bearer {GOOD}", f"Bearer {GOOD}A", "Bearer later.5"],
)
async def test_authenticating_leaves_no_work_to_the_cycle_collector(header: str | None) -> None:
    """decision: garbage cycles are what makes p99; refused requests included."""
    auth = protected(Counting() if header == "Bearer later.5" else None)
    headers = [] if header is None else [(b"authorization", header.encode())]

    async def use() -> None:
        with suppress(ChallengeError):
            await auth(Request({"type": "http", "headers": headers}), SecurityScopes())

    await use()
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            await use()
        assert gc.collect() == 0
    finally:
        gc.enable()


# --------------------------------------------------------------------------------- the metadata


def test_the_metadata_document_to_the_byte() -> None:
    """rules 1, 2, 5 (RFC 9728 §3.2): members in this order, and none that is empty."""
    assert protected(resource_name="Notes").metadata == (
        b'{"resource":"https://api.example.com/mcp",'
        b'"authorization_servers":["https://as.example.com"],'
        b'"scopes_supported":["notes:read"],"bearer_methods_supported":["header"],'
        b'"resource_name":"Notes"}'
    )
    assert protected(scopes=[]).metadata == (
        b'{"resource":"https://api.example.com/mcp",'
        b'"authorization_servers":["https://as.example.com"],'
        b'"bearer_methods_supported":["header"]}'
    )
    documented = protected(
        verifier=Counting(),
        authorization_servers=["https://as.example.com/", "https://AS2.example.com/Tenant"],
        scopes_supported=["a", "b"],
        resource_name="Notizen für Zoë",
        resource_documentation="https://docs.example.com/?page=notes#mcp",
    )
    assert json.loads(documented.metadata) == {
        "resource": "https://api.example.com/mcp",
        "authorization_servers": ["https://as.example.com/", "https://AS2.example.com/Tenant"],
        "scopes_supported": ["a", "b"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Notizen für Zoë",
        "resource_documentation": "https://docs.example.com/?page=notes#mcp",
    }


def test_scopes_supported_may_be_fewer_or_others_than_the_base() -> None:
    """rule 9: a challenge may name scopes outside it."""
    auth = protected(scopes=["a", "b"], scopes_supported=["a"])
    assert json.loads(auth.metadata)["scopes_supported"] == ["a"]
    assert "scopes_supported" not in json.loads(protected(scopes_supported=[]).metadata)


@pytest.mark.parametrize(
    "resource",
    [
        "https://api.example.com",
        "https://api.example.com/",
        "https://api.example.com:8443/api/v1/mcp",
        "https://api.example.com/mcp/",
        "https://api.example.com/a%20b/MCP",
        "http://127.0.0.1:8000/mcp",
    ],
)
def test_the_resource_is_emitted_byte_for_byte(resource: str) -> None:
    """rule 6: through no parser that appends a slash."""
    auth = protected(resource=resource)
    assert auth.resource == json.loads(auth.metadata)["resource"] == resource


def test_scheme_and_host_of_the_resource_are_emitted_in_lower_case() -> None:
    """rule 7, spec: (index §Canonical Server URI)."""
    auth = protected(resource="HTTPS://API.Example.com/MCP")
    assert auth.resource == "https://api.example.com/MCP"
    assert auth.metadata_url == ("https://api.example.com/.well-known/oauth-protected-resource/MCP")


def test_where_the_metadata_is() -> None:
    """rules 3, 4: three ways to find it, computed from the setting and never from a request."""
    auth = protected(resource="https://api.example.com/api%20v1/mcp")
    assert auth.metadata_url == (
        "https://api.example.com/.well-known/oauth-protected-resource/api%20v1/mcp"
    )
    # Routes are matched against paths that were decoded.
    assert auth.metadata_path == "/.well-known/oauth-protected-resource/api v1/mcp"
    assert auth.root_metadata_path == "/.well-known/oauth-protected-resource"
    assert auth.resource_path == "/api v1/mcp"
    root = protected(resource="https://api.example.com")
    assert root.metadata_path == root.root_metadata_path
    assert root.resource_path == ""


def test_behind_a_proxy_the_metadata_may_be_elsewhere() -> None:
    """decision: `resource_metadata` is what changes, the path form does not."""
    elsewhere = "https://api.example.com/api/v1/.well-known/oauth-protected-resource"
    auth = protected(resource_metadata_url=elsewhere)
    assert auth.metadata_url == elsewhere
    assert auth.metadata_path == "/.well-known/oauth-protected-resource/mcp"
    challenge = auth.challenge_insufficient([]).headers["WWW-Authenticate"]
    assert f'resource_metadata="{elsewhere}"' in challenge


async def test_the_metadata_is_for_everybody() -> None:
    """rule 5: 200, JSON, no token, any origin, cacheable."""
    auth = protected()
    app = make_app(auth)
    app.add_api_route(auth.metadata_path, auth.metadata_response, include_in_schema=False)
    async with client(app) as http:
        response = await http.get("/.well-known/oauth-protected-resource/mcp")
    assert (response.status_code, response.content) == (200, auth.metadata)
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.headers["Cache-Control"] == "public, max-age=3600"


# -------------------------------------------------------------------------------------- FastAPI


def openapi(auth: ProtectedResource) -> dict[str, Any]:
    return get_openapi(title="t", version="1", routes=make_app(auth).routes)


def test_openapi_shows_the_scheme() -> None:
    """decision: by itself, because it is a real dependency."""
    schema = openapi(protected(description="A token from the login page"))
    assert schema["components"]["securitySchemes"] == {
        "MCPOAuth2": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token from the login page",
        }
    }
    assert schema["paths"]["/me"]["get"]["security"] == [{"MCPOAuth2": []}]
    assert schema["paths"]["/write"]["get"]["security"] == [
        {"MCPOAuth2": ["notes:write", "notes:tag"]}
    ]


def test_openapi_can_log_in() -> None:
    """decision: with the issuer's endpoints it is an OAuth flow, and its docs page has a button."""
    schema = openapi(
        protected(
            scheme_name="Notes",
            scopes_supported=["notes:read", "notes:write"],
            authorization_url="https://as.example.com/authorize",
            token_url="https://as.example.com/token",
        )
    )
    assert schema["components"]["securitySchemes"] == {
        "Notes": {
            "type": "oauth2",
            "flows": {
                "authorizationCode": {
                    "authorizationUrl": "https://as.example.com/authorize",
                    "tokenUrl": "https://as.example.com/token",
                    "scopes": {"notes:read": "", "notes:write": ""},
                }
            },
        }
    }


def test_it_can_be_overridden_in_tests() -> None:
    """decision: the test recipe."""
    auth = protected()
    app = make_app(auth)
    alice = VerifiedToken(issuer=ISSUER, subject="alice", scopes=frozenset({"a"}))
    app.dependency_overrides[auth] = lambda: alice
    with TestClient(app) as client:
        assert client.get("/me").json() == {"sub": "alice", "client": None, "scopes": ["a"]}
        assert client.get("/write").status_code == 200
        app.dependency_overrides.clear()
        assert client.get("/me").status_code == 401


def test_fastapis_own_handler_keeps_status_and_challenge() -> None:
    """decision: an HTTPException like any other, where nobody asks for the exact body."""
    app = make_app(protected())
    del app.exception_handlers[ChallengeError]
    with TestClient(app) as client:
        response = client.get("/me")
    assert (response.status_code, response.json()) == (401, {"detail": "Not authenticated"})
    assert response.headers["WWW-Authenticate"] == NO_CREDENTIALS


# ------------------------------------------------------------------------------ several issuers


async def test_several_issuers() -> None:
    """rule 12: JWTs of one, opaque tokens of the other, each checked by its own verifier."""
    second = "https://second.example.com"
    issuer = Issuer()
    issuer.answers["/introspect"] = Answer({"active": True, **access_claims(iss=..., sub="bob")})
    async with serve(issuer) as url:
        asks = IntrospectionVerifier(
            issuer=second,
            audience=RESOURCE,
            introspection_endpoint=f"{url}/introspect",
            client_id="api",
            client_secret="secret",
            clock=Clock(),
        )
        auth = protected([jwt_verifier(), asks], authorization_servers=[second, ISSUER])
        try:
            alice = await answer(auth, "/me", f"Bearer {access_token()}")
            bob = await answer(auth, "/me", "Bearer opaque")
            other = await answer(auth, "/me", f"Bearer {access_token(iss='https://evil.example')}")
        finally:
            await asks.aclose()
    assert (alice.json()["sub"], bob.json()["sub"]) == ("alice", "bob")
    assert told(other)[:2] == (401, INVALID)
    assert [request.form["token"] for request in issuer.requests] == ["opaque"]


# --------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"resource": "http://api.example.com/mcp"}, "must be https"),
        ({"resource": "https://api.example.com/mcp#x"}, "must not have a fragment"),
        ({"resource": "https://api.example.com/mcp?x=y"}, "must not have a query"),
        ({"resource": "api.example.com/mcp"}, "absolute URL"),
        ({"authorization_servers": []}, "needs at least one"),
        ({"authorization_servers": ["http://as.example.com"]}, "must be https"),
        ({"authorization_servers": ["https://as.example.com?x"]}, "must not have a query"),
        ({"authorization_servers": [ISSUER, ISSUER]}, "one of them twice"),
        (
            {"authorization_servers": [ISSUER + "/"]},
            "authorization_servers has https://as.example.com/, but verifier= is for "
            "https://as.example.com. They are compared byte for byte.",
        ),
        ({"authorization_servers": [ISSUER, "https://x.example.com"]}, "but verifier= is for"),
        ({"verifier": jwt_verifier(issuer="https://x.example.com")}, "but verifier= is for"),
        ({"verifier": [jwt_verifier(issuer="https://x.example.com")]}, "but verifier= is for"),
        ({"verifier": []}, "verifier= is for none"),
        ({"verifier": [jwt_verifier()], "authorization_servers": [ISSUER, "https://x"]}, "is for"),
        ({"scopes": ["offline_access"]}, "no resource requires"),
        ({"scopes": ["notes:*"]}, "wildcard"),
        ({"scopes_supported": ["offline_access"]}, "scopes_supported has 'offline_access'"),
        ({"scopes_supported": ["*"]}, "scopes_supported has the wildcard"),
        ({"imply": {"admin": ["offline_access"]}}, "no resource requires"),
        ({"resource_documentation": "docs"}, "absolute URL"),
        ({"resource_metadata_url": "http://api.example.com/prm"}, "must be https"),
        ({"resource_metadata_url": 'https://api.example.com/"'}, "is no URL"),
        ({"scheme_name": "MCP OAuth"}, "scheme_name='MCP OAuth'"),
        ({"scheme_name": ""}, "scheme_name=''"),
        ({"token_url": "https://as.example.com/token"}, "go together"),
        ({"authorization_url": "https://as.example.com/authorize"}, "go together"),
        (
            {"authorization_url": "/authorize", "token_url": "https://as.example.com/token"},
            "authorization_url='/authorize'",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], why: str) -> None:
    """rules 2, 7, 8, 9, 20: at construction, and naming the setting."""
    with pytest.raises(ValueError, match=re.escape(why)):
        protected(**settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"authorization_servers": ISSUER}, "takes a list, not the string"),
        ({"scopes": "notes:read"}, "takes a list of scopes"),
        ({"verifier": lambda token: None}, "takes a token verifier, not function"),
        ({"verifier": 5}, "takes a token verifier, not int"),
    ],
)
def test_settings_of_another_type_are_refused(settings: dict[str, Any], why: str) -> None:
    """decision: at construction."""
    with pytest.raises(TypeError, match=why):
        protected(**settings)


def test_its_repr_names_the_resource() -> None:
    """decision"""
    assert repr(protected()) == "ProtectedResource('https://api.example.com/mcp')"
