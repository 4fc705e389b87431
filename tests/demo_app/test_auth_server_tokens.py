"""Codes and tokens: who gets one, for how long, and what ends it."""

import base64
import json
import logging
from typing import Any

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from .oauth import (
    CALLBACK,
    DESK_SECRET,
    ISSUER,
    MCP,
    REST,
    VERIFIER,
    Kit,
    kit,
    problem_of,
)

pytestmark = pytest.mark.anyio

OTHER = "http://127.0.0.1:6000/callback"


async def client_of(made: Kit, **changes: Any) -> str:
    registered: str = (await made.register(**changes))["client_id"]
    return registered


def decoded(made: Kit, token: str) -> jwt.Token:
    keys = KeySet.import_key_set(made.auth.keys.published())  # type: ignore[arg-type]
    return jwt.decode(token, keys, algorithms=["ES256"])


# ------------------------------------------------------------------------------- access tokens


async def test_an_access_token_says_for_whom_and_for_what() -> None:
    """spec: MUST (RFC 9068 §2; security-considerations §Token Audience Binding)"""
    async with kit() as made:
        client = await client_of(made)
        tokens = await made.tokens(client, scope="desk:read desk:book")
        token = decoded(made, tokens["access_token"])
        now = int(made.clock())
    (key,) = made.auth.keys.published()["keys"]
    assert token.header == {"typ": "at+jwt", "alg": "ES256", "kid": key["kid"]}
    jti = token.claims.pop("jti")
    assert len(jti) >= 16
    assert token.claims == {
        "iss": ISSUER,
        "aud": MCP,
        "sub": "amelie",
        "client_id": client,
        "scope": "desk:read desk:book",
        "iat": now,
        "exp": now + 300,
    }


async def test_the_answer_may_not_be_kept() -> None:
    """spec: MUST (RFC 6749 §5.1)"""
    async with kit() as made:
        client = await client_of(made)
        response = await made.token(client, code=await made.code(client))
    assert response.headers["cache-control"] == "no-store"
    answer = response.json()
    assert answer["token_type"] == "Bearer"
    assert answer["expires_in"] == 300
    assert answer["scope"] == "desk:read"


@pytest.mark.parametrize(("resource", "audience"), [(REST, REST), (None, MCP)])
async def test_the_audience_is_the_resource(resource: str | None, audience: str) -> None:
    """user report: Authlib's default is the client. spec: MUST (RFC 9068 §3)"""
    async with kit() as made:
        client = await client_of(made)
        code = await made.code(client, resource=resource)
        response = await made.token(client, code=code, resource=resource)
        assert decoded(made, response.json()["access_token"]).claims["aud"] == audience


async def test_the_audience_is_spelled_as_in_the_settings() -> None:
    """spec: SHOULD (index §Canonical Server URI)"""
    shouted = "HTTP://127.0.0.1:8000/mcp"
    async with kit() as made:
        client = await client_of(made)
        code = await made.code(client, resource=shouted)
        response = await made.token(client, code=code, resource=shouted)
        assert decoded(made, response.json()["access_token"]).claims["aud"] == MCP


async def test_signing_keys_can_change_meanwhile() -> None:
    """decision: tokens of both keys are good."""
    async with kit() as made:
        client = await client_of(made)
        old = await made.tokens(client)
        made.auth.keys.rotate()
        made.clock.advance(300)
        new = (await made.refresh(client, old["refresh_token"])).json()
        kids = {decoded(made, tokens["access_token"]).header["kid"] for tokens in (old, new)}
    assert len(kids) == 2


# --------------------------------------------------------------------------------------- codes


async def test_a_code_is_good_once() -> None:
    """spec: MUST NOT (OAuth 2.1 §4.1.3); SHOULD: what the first use got is revoked."""
    async with kit() as made:
        client = await client_of(made)
        code = await made.code(client)
        first = (await made.token(client, code=code)).json()
        assert await made.is_active(first["access_token"])
        assert problem_of(await made.token(client, code=code)) == (400, "invalid_grant")
        assert not await made.is_active(first["access_token"])
        refreshed = await made.refresh(client, first["refresh_token"])
    assert problem_of(refreshed) == (400, "invalid_grant")


async def test_a_code_is_good_for_a_minute() -> None:
    """user report: Authlib does not look. spec: SHOULD be short-lived."""
    async with kit() as made:
        client = await client_of(made)
        code = await made.code(client)
        made.clock.advance(59)
        assert (await made.token(client, code=code)).status_code == 200
        late = await made.code(client)
        made.clock.advance(60)
        response = await made.token(client, code=late)
    assert problem_of(response) == (400, "invalid_grant")


async def test_a_code_is_good_for_its_client() -> None:
    """user report: Authlib does not look. spec: MUST (RFC 6749 §4.1.3)"""
    async with kit() as made:
        mine, other = await client_of(made), await client_of(made)
        code = await made.code(mine)
        assert problem_of(await made.token(other, code=code)) == (400, "invalid_grant")
        # It has leaked, so it is spent for its client as well.
        assert problem_of(await made.token(mine, code=code)) == (400, "invalid_grant")


@pytest.mark.parametrize(
    ("verifier", "error"),
    [
        ("w" * 43, "invalid_grant"),
        (None, "invalid_request"),
        ("", "invalid_request"),
        ("short", "invalid_request"),
    ],
)
async def test_a_code_needs_its_verifier(verifier: str | None, error: str) -> None:
    """spec: MUST (OAuth 2.1 §4.1.3)"""
    async with kit() as made:
        client = await client_of(made)
        code = await made.code(client)
        response = await made.token(client, code=code, code_verifier=verifier)
        assert problem_of(response) == (400, error)
        # Who guesses does so once.
        assert problem_of(await made.token(client, code=code)) == (400, "invalid_grant")


async def test_confidential_clients_need_it_too() -> None:
    """user report: Authlib insists for public clients only."""
    async with kit() as made:
        client = await made.register(token_endpoint_auth_method="client_secret_post")
        code = await made.code(client["client_id"])
        response = await made.token(
            client["client_id"],
            client_secret=client["client_secret"],
            code=code,
            code_verifier=None,
        )
    assert problem_of(response) == (400, "invalid_request")


@pytest.mark.parametrize("uri", [OTHER, None, "http://127.0.0.1:5001/callback"])
async def test_a_code_is_good_for_its_redirect_uri(uri: str | None) -> None:
    """spec: MUST (RFC 6749 §4.1.3): identical, the port too."""
    async with kit() as made:
        client = await client_of(made, redirect_uris=[CALLBACK, OTHER])
        response = await made.token(client, code=await made.code(client), redirect_uri=uri)
    assert problem_of(response) == (400, "invalid_grant")


@pytest.mark.parametrize("resource", [REST, "https://evil.example", f"{MCP}/"])
async def test_a_code_is_good_for_its_resource(resource: str) -> None:
    """spec: invalid_target (RFC 8707 §2.2)"""
    async with kit() as made:
        client = await client_of(made)
        response = await made.token(client, code=await made.code(client), resource=resource)
    assert problem_of(response) == (400, "invalid_target")


async def test_the_resource_need_not_be_repeated() -> None:
    """decision: it was approved, and the conformance suite does not."""
    async with kit() as made:
        client = await client_of(made)
        response = await made.token(
            client, code=await made.code(client, resource=REST), resource=None
        )
        assert decoded(made, response.json()["access_token"]).claims["aud"] == REST


@pytest.mark.parametrize("code", [None, "guessed"])
async def test_a_code_that_there_is_not(code: str | None) -> None:
    """spec: MUST (RFC 6749 §5.2)"""
    async with kit() as made:
        response = await made.token(await client_of(made), code=code)
    assert problem_of(response) == (400, "invalid_grant" if code else "invalid_request")


# ------------------------------------------------------------------------------ refresh tokens


async def test_every_refresh_token_is_good_once() -> None:
    """user report: Authlib neither rotates nor lets public clients refresh. spec: MUST
    (security-considerations §Token Theft)"""
    async with kit() as made:
        client = await client_of(made)
        first = await made.tokens(client, scope="desk:read desk:book")
        second = (await made.refresh(client, first["refresh_token"], resource=MCP)).json()
        third = (await made.refresh(client, second["refresh_token"])).json()
        claims = decoded(made, third["access_token"]).claims
    assert len({t["refresh_token"] for t in (first, second, third)}) == 3
    assert claims["sub"] == "amelie"
    assert claims["aud"] == MCP
    assert claims["client_id"] == client
    assert third["scope"] == claims["scope"] == "desk:read desk:book"


async def test_using_one_again_ends_the_family() -> None:
    """spec: SHOULD (OAuth 2.1 §4.3.1): one of the two has stolen it."""
    async with kit() as made:
        client = await client_of(made)
        first = await made.tokens(client)
        second = (await made.refresh(client, first["refresh_token"])).json()
        for token in (first["refresh_token"], second["refresh_token"]):
            assert problem_of(await made.refresh(client, token)) == (400, "invalid_grant")
        assert not await made.is_active(second["access_token"])


async def test_other_families_live_on() -> None:
    """decision: another computer of the same person."""
    async with kit() as made:
        client = await client_of(made)
        here, there = await made.tokens(client), await made.tokens(client)
        for _ in range(2):
            await made.refresh(client, here["refresh_token"])
        assert (await made.refresh(client, there["refresh_token"])).status_code == 200


async def test_a_refresh_token_is_good_for_its_client() -> None:
    """spec: MUST (RFC 6749 §6); and trying does not spend it."""
    async with kit() as made:
        mine, other = await client_of(made), await client_of(made)
        token = (await made.tokens(mine))["refresh_token"]
        assert problem_of(await made.refresh(other, token)) == (400, "invalid_grant")
        assert (await made.refresh(mine, token)).status_code == 200


async def test_a_refresh_token_is_good_for_its_resource() -> None:
    """spec: invalid_target (RFC 8707 §2.2)"""
    async with kit() as made:
        client = await client_of(made)
        token = (await made.tokens(client))["refresh_token"]
        response = await made.refresh(client, token, resource=REST)
        assert problem_of(response) == (400, "invalid_target")


async def test_refreshing_may_ask_for_less() -> None:
    """spec: MUST NOT (RFC 6749 §6): never for more; and what was approved stays approved."""
    async with kit() as made:
        client = await client_of(made)
        first = await made.tokens(client, scope="desk:read desk:book")
        less = (await made.refresh(client, first["refresh_token"], scope="desk:read")).json()
        assert decoded(made, less["access_token"]).claims["scope"] == "desk:read"
        more = await made.refresh(client, less["refresh_token"], scope="desk:read desk:pay")
        assert problem_of(more) == (400, "invalid_scope")
        again = (await made.refresh(client, less["refresh_token"])).json()
        assert again["scope"] == "desk:read desk:book"


async def test_an_approval_ends() -> None:
    """decision: after thirty days people are asked again."""
    async with kit(approval_lifetime=1000) as made:
        client = await client_of(made)
        first = await made.tokens(client)
        made.clock.advance(999)
        second = (await made.refresh(client, first["refresh_token"])).json()
        made.clock.advance(1)
        response = await made.refresh(client, second["refresh_token"])
        assert problem_of(response) == (400, "invalid_grant")
        assert not await made.is_active(second["access_token"])


async def test_a_client_that_does_not_refresh_gets_none() -> None:
    """spec: SHOULD (index §Refresh Tokens)"""
    async with kit() as made:
        client = await client_of(made, grant_types=["authorization_code"])
        assert "refresh_token" not in await made.tokens(client)
        token = (await made.tokens(await client_of(made)))["refresh_token"]
        assert problem_of(await made.refresh(client, token)) == (400, "unauthorized_client")


@pytest.mark.parametrize("token", [None, "guessed"])
async def test_a_refresh_token_that_there_is_not(token: str | None) -> None:
    """spec: MUST (RFC 6749 §5.2)"""
    async with kit() as made:
        client = await client_of(made)
        form = {"grant_type": "refresh_token", "refresh_token": token}
        response = await made.token(client, **form)
    assert problem_of(response) == (400, "invalid_grant" if token else "invalid_request")


async def test_an_access_token_is_no_refresh_token() -> None:
    """decision"""
    async with kit() as made:
        client = await client_of(made)
        tokens = await made.tokens(client)
        response = await made.refresh(client, tokens["access_token"])
    assert problem_of(response) == (400, "invalid_grant")


# -------------------------------------------------------------------------------- step-up


async def test_a_step_up_asks_for_more_with_the_same_client() -> None:
    """spec: SHOULD (index §Step-Up Authorization Flow): and the subject stays the same."""
    async with kit() as made:
        client = await client_of(made, scope="desk:read")
        little = decoded(made, (await made.tokens(client))["access_token"]).claims
        more = await made.tokens(client, scope="desk:read desk:pay")
        claims = decoded(made, more["access_token"]).claims
    assert claims["scope"] == "desk:read desk:pay"
    for name in ("iss", "sub", "aud", "client_id"):
        assert claims[name] == little[name]


# ------------------------------------------------------------------------------ which client


async def confidential(made: Kit, method: str) -> tuple[str, str]:
    client = await made.register(token_endpoint_auth_method=method)
    return client["client_id"], client["client_secret"]


async def exchange(made: Kit, code: str, auth: Any = None, **form: str) -> httpx2.Response:
    wanted = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
        **form,
    }
    return await made.http.post("/as/token", data=wanted, auth=auth)


async def test_a_confidential_client_authenticates_as_it_said() -> None:
    """spec: MUST (RFC 6749 §3.2.1)"""
    async with kit() as made:
        name, secret = await confidential(made, "client_secret_basic")
        code = await made.code(name)
        assert (await exchange(made, code, (name, secret))).status_code == 200
        name, secret = await confidential(made, "client_secret_post")
        code = await made.code(name)
        in_body = {"client_id": name, "client_secret": secret}
        assert (await exchange(made, code, **in_body)).status_code == 200


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_and_in_no_other_way(method: str) -> None:
    """spec: MUST: not without, not wrongly, not by the other method. The code stays unspent."""
    async with kit() as made:
        name, secret = await confidential(made, method)
        code = await made.code(name)
        by_basic: dict[str, Any] = {"auth": (name, secret)}
        by_post: dict[str, Any] = {"client_id": name, "client_secret": secret}
        right, wrong = (
            (by_basic, by_post) if method == "client_secret_basic" else (by_post, by_basic)
        )
        attempts: list[dict[str, Any]] = [
            {"client_id": name},
            {"client_id": name, "client_secret": "guessed"},
            {"auth": (name, "guessed")},
            {"auth": (name, "caf\u00e9")},
            wrong,
        ]
        for form in attempts:
            response = await exchange(made, code, **form)
            assert response.json()["error"] == "invalid_client", form
            assert response.status_code in {400, 401}
        assert (await exchange(made, code, **right)).status_code == 200


async def test_a_public_client_needs_no_secret_and_may_have_none() -> None:
    """decision: a secret that nobody checks would only look like security."""
    async with kit() as made:
        client = await client_of(made)
        code = await made.code(client)
        in_body = {"client_id": client, "client_secret": "made up"}
        assert (await exchange(made, code, **in_body)).json()["error"] == "invalid_client"
        assert (await exchange(made, code, (client, "x"))).json()["error"] == "invalid_client"


async def test_one_way_of_authenticating_at_a_time() -> None:
    """spec: MUST NOT (RFC 6749 §2.3): a public client's id does not make up for a wrong secret."""
    async with kit() as made:
        public = await client_of(made)
        code = await made.code(public)
        both = await exchange(made, code, ("desk", DESK_SECRET), client_secret="x")
        assert problem_of(both) == (400, "invalid_request")
        mixed = await exchange(made, code, ("desk", "guessed"), client_id=public)
        assert problem_of(mixed) == (401, "invalid_client")


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b":only a secret").decode(),
        "Bearer abc",
        "Basic \u00fc".encode("latin-1"),
    ],
)
async def test_an_authorization_header_that_cannot_be_read(header: str | bytes) -> None:
    """user report: Authlib fails on one that is not UTF-8. spec: MUST be 401 (RFC 6749 §5.2)"""
    async with kit() as made:
        response = await made.http.post(
            "/as/token",
            data={"grant_type": "authorization_code", "code": "any"},
            headers=[(b"Authorization", header if isinstance(header, bytes) else header.encode())],
        )
    assert problem_of(response) == (401, "invalid_client")
    assert response.headers["www-authenticate"].startswith("Basic ")


async def test_a_resource_is_no_client() -> None:
    """decision: its secret is for introspection alone."""
    async with kit() as made:
        response = await exchange(made, "any", ("desk", DESK_SECRET))
        assert problem_of(response) == (401, "invalid_client")
        response = await made.http.post(
            "/as/revoke", data={"token": "any"}, auth=("desk", DESK_SECRET)
        )
        assert problem_of(response) == (401, "invalid_client")


# ------------------------------------------------------------------------------ malformed


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "invalid_request"),
        (b"grant_type=password&username=a&password=b", "unsupported_grant_type"),
        (b"grant_type=client_credentials", "unsupported_grant_type"),
        (b"grant_type=%22%5C", "invalid_request"),
        (b"grant_type=authorization_code&grant_type=authorization_code", "invalid_request"),
        (b"grant_type=%ff", "invalid_request"),
        (b"grant_type=\xff", "invalid_request"),
        (b"grant_type=authorization_code", "invalid_client"),
        (b"grant_type=authorization_code&client_id=nobody&code=x", "invalid_client"),
        (b"&".join(b"a=%d" % n for n in range(51)), "invalid_request"),
    ],
)
async def test_a_request_that_makes_no_sense(body: bytes, error: str) -> None:
    """spec: MUST (RFC 6749 §5.2): the right code, and never a 500."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with kit() as made:
        response = await made.http.post("/as/token", content=body, headers=form)
    assert response.status_code in {400, 401}
    assert response.json()["error"] == error
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("place", ["token", "revoke", "introspect"])
async def test_parameters_come_in_the_body_as_a_form(place: str) -> None:
    """spec: MUST NOT (RFC 6749 §3.2): not in the URL, not as JSON, not without end."""
    async with kit() as made:
        for response in (
            await made.http.post(f"/as/{place}?grant_type=authorization_code&token=x"),
            await made.http.post(f"/as/{place}", json={"grant_type": "authorization_code"}),
        ):
            assert problem_of(response) == (400, "invalid_request")
        large = await made.http.post(f"/as/{place}", data={"token": "x" * 20_000})
        assert problem_of(large) == (413, "invalid_request")


# -------------------------------------------------------------------------------- revocation


async def revoke(made: Kit, client: str, token: str, **form: str) -> httpx2.Response:
    return await made.http.post("/as/revoke", data={"client_id": client, "token": token, **form})


async def test_a_refresh_token_is_given_back_with_its_family() -> None:
    """spec: SHOULD (RFC 7009 §2.1)"""
    async with kit() as made:
        client = await client_of(made)
        tokens = await made.tokens(client)
        assert (await revoke(made, client, tokens["refresh_token"])).status_code == 200
        assert not await made.is_active(tokens["access_token"])
        refreshed = await made.refresh(client, tokens["refresh_token"])
    assert problem_of(refreshed) == (400, "invalid_grant")


async def test_an_access_token_is_given_back_alone() -> None:
    """spec: MAY (RFC 7009 §2.1)"""
    async with kit() as made:
        client = await client_of(made)
        tokens = await made.tokens(client)
        assert (await revoke(made, client, tokens["access_token"])).status_code == 200
        assert not await made.is_active(tokens["access_token"])
        assert (await made.refresh(client, tokens["refresh_token"])).status_code == 200


async def test_only_its_client_gives_a_token_back() -> None:
    """spec: MUST (RFC 7009 §2.1)"""
    async with kit() as made:
        mine, other = await client_of(made), await client_of(made)
        token = (await made.tokens(mine))["access_token"]
        assert (await revoke(made, other, token)).status_code == 400
        assert await made.is_active(token)


@pytest.mark.parametrize("hint", ["refresh_token", "access_token", "something else"])
async def test_a_hint_is_only_a_hint(hint: str) -> None:
    """spec: MUST (RFC 7009 §2.1): a wrong one is no reason to refuse. user report: Authlib's 401"""
    async with kit() as made:
        client = await client_of(made)
        token = (await made.tokens(client))["access_token"]
        assert (await revoke(made, client, token, token_type_hint=hint)).status_code == 200
        assert not await made.is_active(token)


async def test_a_token_that_there_is_not_is_revoked_already() -> None:
    """spec: MUST (RFC 7009 §2.2)"""
    async with kit() as made:
        response = await revoke(made, await client_of(made), "guessed")
        assert response.status_code == 200
        missing = await revoke(made, await client_of(made), "")
        assert problem_of(missing) == (400, "invalid_request")


async def test_revocation_wants_to_know_who() -> None:
    """spec: MUST (RFC 7009 §2.1)"""
    async with kit() as made:
        response = await made.http.post("/as/revoke", data={"token": "any"})
    assert response.json()["error"] == "invalid_client"


# ------------------------------------------------------------------------------ introspection


async def test_a_resource_learns_what_the_token_says() -> None:
    """spec: MUST (RFC 7662 §2.2)"""
    async with kit() as made:
        token = (await made.tokens(await client_of(made)))["access_token"]
        response = await made.introspect(token, token_type_hint="access_token")
        claims = decoded(made, token).claims
    assert response.json() == {"active": True, "token_type": "Bearer", **claims}
    assert response.headers["cache-control"] == "no-store"


async def test_it_may_send_its_secret_in_the_body() -> None:
    """decision"""
    async with kit() as made:
        token = (await made.tokens(await client_of(made)))["access_token"]
        response = await made.introspect(
            token, auth=None, client_id="desk", client_secret=DESK_SECRET
        )
    assert response.json()["active"] is True


async def test_another_resource_learns_nothing() -> None:
    """spec: SHOULD (RFC 7662 §2.2): that a token is for somebody else is none of its business."""
    async with kit() as made:
        token = (await made.tokens(await client_of(made)))["access_token"]
        response = await made.introspect(token, ("flights", DESK_SECRET[::-1]))
    assert response.json() == {"active": False}


async def test_nobody_else_is_told_anything() -> None:
    """spec: MUST (RFC 7662 §2.1): not the token's own client, nor a confidential one."""
    async with kit() as made:
        public = await client_of(made)
        token = (await made.tokens(public))["access_token"]
        name, secret = await confidential(made, "client_secret_basic")
        for auth, form in (
            (None, {}),
            (None, {"client_id": public}),
            (("desk", "guessed"), {}),
            (("nobody", "x"), {}),
            ((name, secret), {}),
        ):
            response = await made.introspect(token, auth, **form)
            assert problem_of(response) == (401, "invalid_client")


async def test_what_is_over_is_not_active() -> None:
    """spec: MUST (RFC 7662 §2.2)"""
    async with kit() as made:
        tokens = await made.tokens(await client_of(made))
        made.clock.advance(299)
        assert await made.is_active(tokens["access_token"])
        made.clock.advance(1)
        for token in (tokens["access_token"], tokens["refresh_token"], "guessed"):
            assert (await made.introspect(token)).json() == {"active": False}
        missing = await made.introspect("")
    assert problem_of(missing) == (400, "invalid_request")


# -------------------------------------------------------------------------- memory, and logs


async def test_the_dead_are_forgotten() -> None:
    """decision: memory ends with what can still be used, or betray a theft."""
    async with kit(approval_lifetime=1000, session_lifetime=60) as made:
        client = await client_of(made)
        await made.tokens(client)
        await made.code(client)
        made.clock.advance(1000)
        await made.code(client)
        store = made.auth.server.store
    assert len(store._codes) == 1
    assert len(store._tokens) == 0
    assert len(store._sessions) == 1


async def test_no_secret_is_logged_or_stored(caplog: pytest.LogCaptureFixture) -> None:
    """user report: on DEBUG, Authlib logs the tokens that it issues."""
    caplog.set_level(logging.DEBUG)
    async with kit() as made:
        name, secret = await confidential(made, "client_secret_basic")
        code = await made.code(name)
        first = (await exchange(made, code, (name, secret))).json()
        form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
        second = (await made.http.post("/as/token", data=form, auth=(name, secret))).json()
        store = made.auth.server.store
        kept = repr((store._codes, store._tokens, store._sessions, made.auth.server.clients._added))
    found = json.dumps([record.getMessage() for record in caplog.records])
    for value in (code, secret, *(t[k] for t in (first, second) for k in t if k.endswith("token"))):
        assert value not in found
        assert value not in kept
    assert "amelie allowed 'desk:read'" in found
