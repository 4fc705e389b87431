"""Rules 10 to 20: every request is authenticated, before anything else of it counts."""

import json
from typing import Any

import anyio
import pytest
from joserfc.jwk import OctKey

from tests import wire
from tests.auth.issuer import NOW, RESOURCE, Answer, access_claims, jwk_set, rsa, sign

from .desk import (
    CHANGE,
    DISCOVER,
    LIST,
    LISTEN,
    LOOK,
    READ,
    WRITE,
    again,
    challenge,
    protected_desk,
    told,
)

pytestmark = pytest.mark.anyio

NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}


async def test_every_request_is_authenticated() -> None:
    """rule 10: MUST verify all inbound requests (best practices §State Handle Hijacking)."""
    async with protected_desk() as desk:
        assert (await desk.send(LIST, desk.token())).status_code == 200
        # One connection, and the server has just seen a good token on it.
        for body in (DISCOVER, LIST, LOOK, CHANGE, LISTEN, NOTIFICATION):
            assert told(await desk.send(body, None)) == (401, challenge())


async def test_the_round_that_follows_is_authenticated_anew() -> None:
    """rule 10: nothing is remembered; a state is no token (basic/index §Statelessness)."""
    async with protected_desk() as desk:
        asked = await desk.send(CHANGE, desk.token())
        assert told(await desk.send(again(CHANGE, asked), None)) == (401, challenge())
        done = await desk.send(again(CHANGE, asked), desk.token())
        assert wire.text_of(done) == "alice True"


MALFORMED: dict[str, dict[str, Any]] = {
    "no JSON": {"content": "{"},
    "no message": {"content": "[]"},
    "too large": {"content": " " * (4 * 1024 * 1024 + 1)},
    "another media type": {"content_type": "text/plain"},
    "another version": {"mcp_protocol_version": "1999-01-01"},
    "a header that disagrees": {"mcp_method": "tools/list"},
    "no such method": {"method": "no/such"},
    "no such tool": {"name": "no-such"},
}


async def test_nothing_is_said_about_a_request_before_its_token() -> None:
    """rule 11: MUST validate access tokens before processing the request, and return no data to
    unauthorized parties (security-considerations §Access Token Privilege Restriction)."""
    async with protected_desk() as desk:
        for what, changes in MALFORMED.items():
            changes = dict(changes)
            body = wire.call(changes.pop("name", "look"))
            body["method"] = changes.pop("method", body["method"])
            content = changes.pop("content", json.dumps(body))
            headers = wire.headers(body, **changes)

            async def answer(token: str | None) -> Any:
                authorization = {"authorization": f"Bearer {token}"} if token else {}
                sent = {**headers, **authorization}  # noqa: B023
                return await desk.http.post("/mcp", content=content, headers=sent)  # noqa: B023

            assert told(await answer(None)) == (401, challenge()), what
            assert told(await answer("no")) == (401, challenge("invalid_token")), what
            assert (await answer(desk.token())).status_code in (400, 404, 413, 415), what


async def test_the_order_of_the_checks() -> None:
    """rule 11: Origin (403), then authentication (401), then the message (400), then scopes (403),
    then the state and the handler: each request mends one thing."""
    evil = {"origin": "https://evil.example"}
    async with protected_desk() as desk:
        asked = await desk.send(CHANGE, desk.token())
        foreign = again(CHANGE, asked)
        steps = [
            (await desk.send(foreign, None, **evil, mcp_method="x"), 403, None),
            (await desk.send(foreign, None, mcp_method="x"), 401, challenge()),
            (await desk.send(foreign, desk.token(READ, sub="bob"), mcp_method="x"), 400, None),
            (
                await desk.send(foreign, desk.token(READ, sub="bob")),
                403,
                challenge("insufficient_scope", WRITE),
            ),
            (await desk.send(foreign, desk.token(sub="bob")), 400, None),
            (await desk.send(foreign, desk.token()), 200, None),
        ]
    for response, status, expected in steps:
        assert told(response) == (status, expected)


async def test_what_is_answered_without_a_token() -> None:
    """rule 11: only metadata, preflights and 405, none of which has anything of anybody's."""
    async with protected_desk() as desk:
        # Older clients send these; what they would get is somebody's.
        for method in ("GET", "DELETE"):
            assert (await desk.http.request(method, "/mcp")).status_code == 401
        assert (await desk.http.request("PUT", "/mcp")).status_code == 405
        assert (await desk.http.request("OPTIONS", "/mcp")).status_code == 204
        assert (await desk.http.get("/.well-known/oauth-protected-resource/mcp")).status_code == 200


_PEM = rsa().as_pem(private=False)
# Made by hand: joserfc refuses a PEM as a secret, as an attacker's library does not.
_PUBLIC_AS_SECRET = OctKey(_PEM, _PEM, {"kid": "rsa"})

FORGED: dict[str, str] = {
    "alg none": sign(access_claims(), alg="none"),
    "HS256 with the public key": sign(access_claims(), alg="HS256", key=_PUBLIC_AS_SECRET),
    "a key of the attacker's": sign(access_claims(), key=rsa("attacker"), kid="rsa"),
    "crit": sign(access_claims(), crit=["exp"]),
    "an ID token": sign(access_claims(), typ="JWT"),
    "another typ": sign(access_claims(), typ="dpop+jwt"),
    "exp is NaN": sign(access_claims(exp=float("nan"))),
    "no exp": sign(access_claims(exp=...)),
    "exp is text": sign(access_claims(exp=str(NOW + 300))),
    "no aud": sign(access_claims(aud=...)),
    "a sibling path": sign(access_claims(aud=f"{RESOURCE}2")),
    "a path below": sign(access_claims(aud=f"{RESOURCE}/admin")),
    "the host alone": sign(access_claims(aud="https://api.example.com")),
    "an array of others": sign(access_claims(aud=["https://a.example", f"{RESOURCE}/x"])),
    "an array in an array": sign(access_claims(aud=[[RESOURCE]])),
    "another issuer": sign(access_claims(iss="https://as.example.com/")),
    "no sub": sign(access_claims(sub=...)),
    "no iat": sign(access_claims(iat=...)),
    "oversized": sign(access_claims(more="x" * 16384)),
    "an oversized header": sign(access_claims(), more="x" * 4097),
    "bound to a key": sign(access_claims(cnf={"jkt": "x"})),
}


async def test_a_forged_or_foreign_token_is_401() -> None:
    """rules 12, 13, 16: MUST be validated as in OAuth 2.1 §5.2, MUST be issued for this server;
    invalid or expired MUST be 401 (index §Token Handling)."""
    async with protected_desk() as desk:
        assert (await desk.send(LOOK, sign(access_claims()))).status_code == 200
        for what, token in FORGED.items():
            response = await desk.send(LOOK, token)
            assert told(response) == (401, challenge("invalid_token")), what
            assert response.json()["error"] == "invalid_token", what


async def test_the_audience_may_be_one_of_several() -> None:
    """rule 13: `aud` is a string or an array that contains the resource (RFC 7519 §4.1.3)."""
    async with protected_desk() as desk:
        token = desk.token(aud=["https://other.example", RESOURCE])
        assert wire.text_of(await desk.send(LOOK, token)) == "alice"


async def test_the_audience_is_not_what_the_request_says() -> None:
    """rule 13: MUST NOT accept tokens for others (index §Token Handling), whatever `Host` claims:
    a server that the attacker runs got this token legitimately."""
    async with protected_desk() as desk:
        theirs = desk.token(aud="https://evil.example/mcp")
        forwarded = {"x_forwarded_host": "evil.example", "x_forwarded_proto": "https"}
        response = await desk.send(LOOK, theirs, host="evil.example", **forwarded)
        assert told(response) == (401, challenge("invalid_token"))
        # And what is told about this server does not come from there either.
        assert "evil" not in response.headers["WWW-Authenticate"]


async def test_a_token_counts_as_bearer_in_the_header_alone() -> None:
    """rule 15: MUST use the Authorization header, MUST NOT be in the query (index §Token
    Requirements): there it is no credential, so 401 has no `error` (RFC 6750 §3.1)."""
    async with protected_desk() as desk:
        token = desk.token()
        headers = wire.headers(LOOK)
        body = json.dumps(LOOK)
        query = await desk.http.post(f"/mcp?access_token={token}", content=body, headers=headers)
        cookie = headers | {"cookie": f"access_token={token}"}
        other = headers | {"authorization": f"DPoP {token}"}
        for response in (
            query,
            await desk.http.post("/mcp", content=body, headers=cookie),
            await desk.http.post("/mcp", content=body, headers=other),
        ):
            assert told(response) == (401, challenge())
            assert response.content == b"{}"


async def test_two_headers_are_a_request_error() -> None:
    """rule 15: more than one way of sending a token is 400 `invalid_request` (RFC 6750 §3.1)."""
    async with protected_desk() as desk:
        headers = [*wire.headers(LOOK).items()]
        headers += [("Authorization", f"Bearer {desk.token()}")] * 2
        response = await desk.http.post("/mcp", content=json.dumps(LOOK), headers=headers)
    assert response.status_code == 400
    assert response.headers["WWW-Authenticate"].startswith('Bearer error="invalid_request", ')
    assert response.json()["error"] == "invalid_request"


async def test_expired_wins_over_short_of_scopes() -> None:
    """rule 16: a client gets on by refreshing; stepping up an expired token leads nowhere."""
    async with protected_desk() as desk:
        token = desk.token("", exp=NOW - 31)
        assert told(await desk.send(CHANGE, token)) == (401, challenge("invalid_token"))


async def test_forged_kids_are_one_fetch_in_thirty_seconds() -> None:
    """rule 12: the issuer is not to pay for what strangers send."""
    async with protected_desk() as desk:
        tokens = [desk.token(key=rsa("forged")), *(f"{n}.x.y" for n in range(3))]
        tokens += [sign(access_claims(), kid=f"forged-{n}") for n in range(25)]

        async def storm() -> None:
            async with anyio.create_task_group() as tasks:
                for token in tokens:
                    tasks.start_soon(refused, token)

        async def refused(token: str) -> None:
            assert told(await desk.send(LOOK, token)) == (401, challenge("invalid_token"))

        await storm()
        assert len(desk.issuer.requests) == 1
        desk.clock.now += 29
        await storm()
        assert len(desk.issuer.requests) == 1
        desk.clock.now += 1
        await storm()
        assert len(desk.issuer.requests) == 2
        assert (await desk.send(LOOK, desk.token())).status_code == 200


async def test_an_outage_of_the_issuer_does_not_stop_a_flow() -> None:
    """rule 17: cached keys serve on, and so does the flow that is under way."""
    async with protected_desk(router_settings={"ttl": 1000.0}) as desk:
        asked = await desk.send(CHANGE, desk.token())
        desk.issuer.answers["/jwks.json"] = Answer({}, 500)
        desk.clock.now += 301
        done = await desk.send(again(CHANGE, asked), desk.token())
        assert wire.text_of(done) == "alice True"
        assert len(desk.issuer.requests) == 2


async def test_without_any_key_it_is_503() -> None:
    """rule 17: when the token cannot be judged, 401 would make clients throw a good one away."""
    async with protected_desk() as desk:
        desk.issuer.answers["/jwks.json"] = Answer({}, 500)
        response = await desk.send(LOOK, desk.token())
        assert told(response) == (503, None)
        assert (response.headers["Retry-After"], response.content) == ("5", b"")
        desk.issuer.answers["/jwks.json"] = Answer(jwk_set(rsa()))
        assert (await desk.send(LOOK, desk.token())).status_code == 503
        desk.clock.now += 5
        assert (await desk.send(LOOK, desk.token())).status_code == 200


async def test_keys_may_rotate_within_a_flow() -> None:
    """rule 12: the signature of each round's token is verified with the issuer's keys of then."""
    async with protected_desk() as desk:
        asked = await desk.send(CHANGE, desk.token())
        desk.issuer.answers["/jwks.json"] = Answer(jwk_set(rsa("next")))
        desk.clock.now += 30
        done = await desk.send(again(CHANGE, asked), desk.token(key=rsa("next")))
        assert wire.text_of(done) == "alice True"
        # The old key has been withdrawn.
        late = await desk.send(again(CHANGE, asked), desk.token())
        assert told(late) == (401, challenge("invalid_token"))


async def test_a_foreign_origin_is_403_without_a_challenge() -> None:
    """rule 18: MUST validate Origin, 403 if it is not allowed; MAY be a JSON-RPC error without id
    (streamable-http §Security & Endpoint). A good token does not help."""
    async with protected_desk() as desk:
        response = await desk.send(LOOK, desk.token(), origin="https://evil.example")
    assert told(response) == (403, None)
    assert response.json().get("id") is None
    assert response.json()["error"]["code"] == -32600


async def test_what_a_foreign_page_can_send_unasked_is_refused() -> None:
    """rule 18: a browser sends these types cross-site without a preflight, cookies included."""
    async with protected_desk() as desk:
        for media_type in ("text/plain", "application/x-www-form-urlencoded", None):
            response = await desk.send(LOOK, desk.token(), content_type=media_type)
            assert response.status_code == 415
