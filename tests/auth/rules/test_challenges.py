"""Rules 21 to 27: what a refused client is told, over HTTP, and what is logged instead."""

import logging
import re
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Security
from fastapi.middleware.cors import CORSMiddleware
from fastapi.security import HTTPBearer

from fastapi_mcp_mrtr import MCPRouter, Rounds, VerifiedToken, progress
from tests import wire
from tests.auth.issuer import NOW, Answer, Clock, jwk_set, rsa

from .desk import (
    CHANGE,
    FROZEN,
    LIST,
    LISTEN,
    LOOK,
    READ,
    WRITE,
    again,
    challenge,
    connected,
    protected_desk,
    resource,
    router,
    told,
)

pytestmark = pytest.mark.anyio

DUPLICATE = (
    'Bearer error="invalid_request", '
    'error_description="The Authorization header was sent more than once"'
)


async def test_every_row_of_the_table() -> None:
    """rules 15-18, 21 (RFC 6750 §3.1): MUST return appropriate statuses (index §Error Handling);
    status, challenge and body of each situation."""
    async with protected_desk() as desk:
        desk.issuer.answers["/jwks.json"] = Answer({}, 500)
        unknown = await desk.send(LOOK, desk.token())
        desk.issuer.answers["/jwks.json"] = Answer(jwk_set(rsa()))
        desk.clock.now += 5
        asked = await desk.send(CHANGE, desk.token())
        twice = [*wire.headers(LOOK).items(), ("authorization", "a"), ("authorization", "b")]
        rows = [
            (await desk.send(LOOK, None), 401, challenge(), {}),
            (await desk.send(LOOK, None, authorization="Basic x"), 401, challenge(), {}),
            (await desk.send(LOOK, "no"), 401, challenge("invalid_token"), "invalid_token"),
            (
                await desk.send(CHANGE, desk.token(READ)),
                403,
                challenge("insufficient_scope", WRITE),
                "insufficient_scope",
            ),
            (await desk.http.post("/mcp", headers=twice), 400, DUPLICATE, "invalid_request"),
            (unknown, 503, None, None),
            (await desk.send(again(CHANGE, asked), desk.token(sub="bob")), 400, None, FROZEN),
        ]
    for response, status, expected, body in rows:
        assert told(response) == (status, expected)
        if body is None:
            assert response.content == b""
            continue
        assert response.headers["Content-Type"] == "application/json"
        error = response.json().get("error", {})
        assert error == body or response.json() == body


async def test_each_refusal_says_which_scopes_and_where() -> None:
    """rule 21: SHOULD include `scope` (index §Scope Selection Strategy); a 403 SHOULD have
    `error`, `scope` and `resource_metadata` (index §Runtime Insufficient Scope Errors)."""
    async with protected_desk() as desk:
        for body in (LIST, LOOK, LISTEN):
            assert told(await desk.send(body, desk.token("notes:list"))) == (
                403,
                challenge("insufficient_scope"),
            )


@pytest.mark.parametrize("scope", ["", READ, WRITE, f"{READ} notes:tag"])
async def test_one_challenge_has_all_scopes_of_the_operation(scope: str) -> None:
    """rule 22: SHOULD include all scopes in a single challenge, consistently (index §Runtime
    Insufficient Scope Errors): those of the router, of the tool and of its `Security`."""
    async with protected_desk() as desk:
        both = wire.call("both")
        refused = await desk.send(both, desk.token(scope))
        assert told(refused) == (403, challenge("insufficient_scope", f"{WRITE} notes:tag"))
        assert wire.text_of(await desk.send(both, desk.token(f"{WRITE} notes:tag"))) == "alice"


async def test_a_token_without_any_scope_is_asked_once() -> None:
    """rule 22: challenging incrementally forces multiple round-trips (index §Runtime Insufficient
    Scope Errors): whatever kind of handler the headers name; but nobody learns of what is hidden
    or does not exist."""
    async with protected_desk() as desk:

        @desk.mcp.prompt(scopes=["notes:plan"])
        async def plan() -> str:
            return ""  # pragma: no cover - refused

        @desk.mcp.resource("desk://notes/{id}", scopes=["notes:fetch"])
        async def note(id: str) -> str:
            return ""  # pragma: no cover - refused

        @desk.mcp.tool(scopes=["notes:audit"], visibility="authorized")
        async def audit() -> str:
            return ""  # pragma: no cover - refused

        for body, scopes in (
            (wire.call("change"), WRITE),
            (wire.message("prompts/get", {"name": "plan"}), f"{READ} notes:plan"),
            (wire.message("resources/read", {"uri": "desk://notes/5"}), f"{READ} notes:fetch"),
            (wire.message("resources/read", {"uri": "desk://other"}), READ),
            (wire.call("audit"), READ),
            (wire.call("no-such"), READ),
            (LIST, READ),
        ):
            response = await desk.send(body, desk.token("none"))
            assert told(response) == (403, challenge("insufficient_scope", scopes))
        for name, body in (("=?base64?!?=", wire.call("change")), ("change", LIST)):
            response = await desk.send(body, desk.token("none"), mcp_name=name)
            assert told(response) == (403, challenge("insufficient_scope", READ))


async def test_a_broader_scope_satisfies_a_narrower_requirement() -> None:
    """rule 23: MUST account for scope hierarchies (index §Scope Challenge Handling); what is asked
    for stays literal."""
    async with protected_desk() as desk:
        asked = await desk.send(CHANGE, desk.token(f"{READ} notes:admin"))
        assert asked.status_code == 200
        # The implied scope does not travel back: a writer is no admin.
        refused = await desk.send(CHANGE, desk.token("notes:admin"))
        assert told(refused) == (403, challenge("insufficient_scope", WRITE))


async def test_challenges_can_be_read_by_clients_that_search_them() -> None:
    """rule 24: at least one parameter (RFC 6750 §3), quoted, the description last, and nothing in
    it that looks like a parameter."""
    async with protected_desk() as desk:
        refused = [
            await desk.send(LOOK, None),
            await desk.send(LOOK, "no"),
            await desk.send(CHANGE, desk.token(READ)),
        ]
    for response in refused:
        header = response.headers["WWW-Authenticate"]
        parameter = r'[a-z_]+="[\x20\x21\x23-\x5b\x5d-\x7e]*"'
        assert re.fullmatch(f"Bearer {parameter}(, {parameter})*", header)
        for name in ("scope", "resource_metadata"):
            assert len(re.findall(f"{name}=", header)) == 1
        assert re.search(r'error_description="[^"=]*"$', header) or "error" not in header


async def test_the_reason_is_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """rule 25: one sentence for every cause, and an id under which the log has the real one."""
    caplog.set_level(logging.INFO, logger="fastapi_mcp_mrtr")
    async with protected_desk() as desk:
        bodies = [
            (await desk.send(LOOK, token)).json()
            for token in (
                desk.token(exp=NOW - 60),
                desk.token(aud="https://other.example"),
                desk.token(key=rsa("attacker"), sub="mallory"),
            )
        ]
    ids = [body.pop("correlation_id") for body in bodies]
    assert bodies[0] == bodies[1] == bodies[2]
    lines = [r.getMessage() for r in caplog.records if r.name == "fastapi_mcp_mrtr"]
    assert lines == [
        f"Access token refused: {reason} (correlation id {known})"
        for reason, known in zip(["expired", "other audience", "unknown key"], ids, strict=True)
    ]


async def test_elevations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """rule 25: log elevation events (best practices §Scope Minimization): asked for, granted."""
    caplog.set_level(logging.INFO, logger="fastapi_mcp_mrtr")
    async with protected_desk() as desk:
        await desk.send(CHANGE, desk.token(READ))
    (line,) = [r.getMessage() for r in caplog.records if r.name == "fastapi_mcp_mrtr"]
    assert line == (
        "Asked the client 'cli' for the scopes ['notes:read', 'notes:write']; it has ['notes:read']"
    )


async def test_browser_clients_can_ask_and_read_the_challenge() -> None:
    """rule 26: a preflight carries no token, so it is answered before authentication; and scripts
    read only the headers that are exposed."""
    mcp = router(resource("http://127.0.0.1:9/jwks.json", Clock()), Clock())
    app = FastAPI()
    app.include_router(mcp)
    page = "https://app.example.com"
    app.add_middleware(CORSMiddleware, allow_origins=[page], **mcp.cors_headers())
    preflight = {
        "origin": page,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, mcp-method, mcp-protocol-version",
    }
    async with connected(app) as http:
        allowed = await http.request("OPTIONS", "/mcp", headers=preflight)
        refused = await http.post("/mcp", headers={"origin": "http://localhost:3000"})
    assert allowed.status_code == 200
    assert allowed.headers["Access-Control-Allow-Origin"] == page
    assert told(refused) == (401, challenge())
    exposed = refused.headers["Access-Control-Expose-Headers"].split(", ")
    assert "WWW-Authenticate" in exposed


async def test_a_stream_does_not_start_before_the_scopes_are_checked() -> None:
    """rule 27: a stream that is open cannot turn into a 403."""
    started: list[str] = []
    async with protected_desk() as desk:

        @desk.mcp.tool(scopes=["notes:export"])
        async def export() -> Rounds[str]:
            started.append("export")
            yield progress(1)
            yield "exported"

        body = wire.call("export", progressToken="p")
        refused = await desk.send(body, desk.token())
        assert told(refused) == (403, challenge("insufficient_scope", f"{READ} notes:export"))
        assert started == []
        done = await desk.send(body, desk.token(f"{READ} notes:export"))
        assert done.headers["Content-Type"].startswith("text/event-stream")
        assert started == ["export"]


# ---------------------------------------------------- challenges that an app's own code has raised


OWN = "https://api.example.com/.well-known/oauth-protected-resource/mcp"


def raises(status: int, challenge: str | None = None, **headers: str) -> Any:
    if challenge is not None:
        headers["WWW-Authenticate"] = challenge

    def refuse() -> None:
        raise HTTPException(status, "No", headers or None)

    return refuse


@pytest.mark.parametrize("where", ["principal", "router", "handler"])
@pytest.mark.parametrize(
    ("refuse", "status", "becomes"),
    [
        (raises(401, "Bearer"), 401, f'Bearer resource_metadata="{OWN}"'),
        (
            raises(401, 'Bearer scope="items"'),
            401,
            f'Bearer scope="items", resource_metadata="{OWN}"',
        ),
        (
            raises(403, 'Bearer error="insufficient_scope", scope="items"'),
            403,
            f'Bearer error="insufficient_scope", scope="items", resource_metadata="{OWN}"',
        ),
        (raises(401), 401, f'Bearer resource_metadata="{OWN}"'),
        (raises(401, "APIKey"), 401, "APIKey"),
        (raises(401, 'Basic realm="desk"'), 401, 'Basic realm="desk"'),
        (raises(403), 403, None),
        (raises(307, Location="/login"), 307, None),
    ],
)
def test_an_apps_own_refusal_says_where_to_log_in(
    where: str, refuse: Any, status: int, becomes: str | None
) -> None:
    """rule 21 (RFC 9728 §5.1): whichever dependency refuses, of the principal, of the router or of
    a handler; API keys, redirects and a bare 403 stay what they are."""
    settings: dict[str, Any] = {"principal": refuse} if where == "principal" else {}
    if where == "router":
        settings = {"dependencies": [Depends(refuse)]}
    for metadata_url in (OWN, None):
        mcp = MCPRouter("desk", version="1", resource_metadata_url=metadata_url, **settings)

        @mcp.tool()
        async def look(user: Annotated[None, Depends(refuse)]) -> str:
            return "unreachable"  # pragma: no cover - refused

        app = FastAPI()
        app.include_router(mcp)
        response = wire.post(app, LOOK)
        raised = refuse_headers(refuse).get("WWW-Authenticate")
        expected = becomes if metadata_url else raised
        assert (response.status_code, response.headers.get("www-authenticate")) == (
            status,
            expected,
        )


def refuse_headers(refuse: Any) -> dict[str, str]:
    with pytest.raises(HTTPException) as raised:
        refuse()
    return dict(raised.value.headers or {})


def test_what_a_handlers_body_raises_is_no_challenge() -> None:
    """decision: a call that has begun is answered as a call."""
    mcp = MCPRouter("desk", version="1", principal=HTTPBearer(), principal_key=str)

    @mcp.tool()
    async def look() -> str:
        raise HTTPException(401, "Log in to the partner")

    app = FastAPI()
    app.include_router(mcp)
    response = wire.post(app, LOOK, authorization="Bearer x")
    assert response.status_code == 200
    assert wire.text_of(response) == "Log in to the partner"


def test_scopes_of_security_are_checked_at_registration() -> None:
    """rules 8, 9: they end up in the challenge as well."""
    auth = resource("http://127.0.0.1:9/jwks.json", Clock())
    mcp = router(auth, Clock())
    with pytest.raises(ValueError, match=r"Security\(\.\.\.\) of Tool 'export' has 'offline_acc"):

        @mcp.tool()
        async def export(
            who: Annotated[VerifiedToken, Security(auth, scopes=["offline_access"])],
        ) -> None: ...
