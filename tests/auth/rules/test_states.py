"""Rules 33 to 40: a `requestState` is an attacker's, and no authorization; and the extensions."""

import logging
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException

from fastapi_mcp_mrtr import MCPRouter, Rounds, Secret, need_input
from tests import wire
from tests.auth.issuer import Clock, access_claims, sign

from .desk import (
    CHANGE,
    FROZEN,
    KEYS,
    LOOK,
    READ,
    WRITE,
    again,
    challenge,
    connected,
    post,
    protected_desk,
    router,
    told,
)

pytestmark = pytest.mark.anyio


def frozen(response: Any) -> bool:
    """Whether it is the one answer that every state gets that does not open."""
    assert told(response) == (400, None)
    assert wire.error_of(response) == FROZEN
    return True


async def test_a_state_is_an_attackers() -> None:
    """rule 33: MUST treat as attacker-controlled, reject on failure; SHOULD bind to the principal,
    a short time and the request (mrtr §Server Requirements 4, 5). Each fault, one answer."""
    async with protected_desk() as desk:

        @desk.mcp.tool(scopes=["notes:write"])
        async def other() -> Rounds[str]:
            yield need_input("sure", "Sure?", bool)
            yield "unreachable"  # pragma: no cover - its states are those of `change`

        token = desk.token(exp=desk.clock.now + 3000)
        asked = await desk.send(CHANGE, token)
        good = again(CHANGE, asked)
        state = good["params"]["requestState"]
        elsewhere = again(wire.call("other"), asked)
        changed = again({**CHANGE, "params": {**CHANGE["params"], "arguments": {"a": 1}}}, asked)
        for body in (elsewhere, changed):
            assert frozen(await desk.send(body, token))
        for broken in (state[:-1], f"{state}A", state.swapcase(), "", "x"):
            body = {**good, "params": {**good["params"], "requestState": broken}}
            assert frozen(await desk.send(body, token))
        assert frozen(await desk.send(good, desk.token(sub="bob")))
        assert wire.text_of(await desk.send(good, token)) == "alice True"
        desk.clock.now += 601
        assert frozen(await desk.send(good, token))


@pytest.mark.parametrize(
    ("claims", "continues"),
    [
        ({"jti": "fresh", "auth_time": 1, "sid": "s", "acr": "2"}, True),  # a refresh
        ({"scope": f"{WRITE} notes:more"}, True),  # a step-up
        ({"act": {"sub": "agent"}}, True),  # a delegation, whose actor may rotate
        ({"sub": "bob"}, False),  # another user
        ({"client_id": "reregistered"}, False),  # the client has registered anew
        ({"client_id": ..., "azp": "cli"}, True),  # the same client, as others spell it
        ({"tid": "acme"}, False),  # another tenant
        ({"org_id": "acme"}, False),
    ],
)
async def test_who_may_continue(claims: dict[str, Any], continues: bool) -> None:
    """rule 34: issuer, subject, client and tenant say who it is; nothing that a refresh changes."""
    async with protected_desk() as desk:
        asked = await desk.send(CHANGE, desk.token())
        response = await desk.send(again(CHANGE, asked), desk.token(**claims))
        if continues:
            assert wire.text_of(response) == "alice True"
        else:
            assert frozen(response)


async def test_a_client_that_acts_for_itself_is_a_principal() -> None:
    """rule 34 (RFC 9068 §2.2): `sub` is the client then, and no user of that name."""
    async with protected_desk() as desk:
        asked = await desk.send(CHANGE, desk.token(sub="cli"))
        assert wire.text_of(await desk.send(again(CHANGE, asked), desk.token(sub="cli")))
        assert frozen(await desk.send(again(CHANGE, asked), desk.token()))


async def test_revocation_shows_at_the_next_round() -> None:
    """rule 34: each round is authenticated anew, so a logout is 401 before the state is read."""
    blocked: set[str] = set()

    def user() -> str:
        if "alice" in blocked:
            raise HTTPException(401, "Logged out", {"WWW-Authenticate": "Bearer"})
        return "alice"

    app = FastAPI()
    app.include_router(router(user, Clock()))
    async with connected(app) as http:
        asked = await post(http, CHANGE)
        blocked.add("alice")
        response = await post(http, again(CHANGE, asked))
        assert told(response) == (401, "Bearer")
        blocked.clear()
        assert wire.text_of(await post(http, again(CHANGE, asked))) == "alice True"


@pytest.mark.parametrize("tenant", [{"id": "s3cret"}, ["s3cret"], True, 1.5, ""])
async def test_a_token_that_identifies_nobody_is_invalid(
    tenant: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """rule 34: its signature is good, and yet it is a token to get anew; the log says which claim
    is to blame, and not what is in it."""
    caplog.set_level(logging.INFO, logger="fastapi_mcp_mrtr")
    async with protected_desk() as desk:
        refused = await desk.send(LOOK, desk.token(tid=tenant))
        assert told(refused) == (401, challenge("invalid_token"))
        (record,) = [r for r in caplog.records if r.name == "fastapi_mcp_mrtr"]
        assert told(await desk.send(LOOK, desk.token(tid="t"))) == (200, None)
    known = refused.json()["correlation_id"]
    fault = f"of type {type(tenant).__name__}, not a string" if tenant else "an empty string"
    line = f"Access token refused: claim 'tid' is {fault} (correlation id {known})"
    assert (record.levelno, record.getMessage()) == (logging.INFO, line)


@pytest.mark.parametrize(
    "nobody", ["", {}, [], False, b"", (), {"sub": None}, {"sub": "a", "tid": {}}]
)
async def test_what_names_nobody_is_no_principal(nobody: Any) -> None:
    """rules 34, 35: a broken dependency must not make all its callers one user: refused at once."""
    app = FastAPI()
    app.include_router(router(lambda: nobody, Clock()))
    async with connected(app) as http:
        response = await post(http, LOOK)
    assert response.status_code == 200
    assert wire.error_of(response)["code"] == -32603


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", 1),
        (1, True),
        ("a", b"a"),
        (("a", "b"), "ab"),
        (("a", "b"), ("a,b",)),
        ("\u00e9", "e\u0301"),
    ],
)
async def test_principals_are_told_apart_by_type(one: Any, other: Any) -> None:
    """rule 35: typed and injective, and the same in every process: no `hash()`, no `repr`."""
    values = {"one": ("user", one), "other": ("user", other)}
    mcp = MCPRouter("desk", version="1", keys=KEYS, principal=lambda who: values[who])

    @mcp.tool()
    async def change() -> Rounds[str]:
        yield need_input("sure", "Sure?", bool)
        yield "changed"

    app = FastAPI()
    app.include_router(mcp)
    async with connected(app) as http:
        asked = await post(http, CHANGE, "/mcp?who=one")
        assert frozen(await post(http, again(CHANGE, asked), "/mcp?who=other"))
        assert wire.text_of(await post(http, again(CHANGE, asked), "/mcp?who=one")) == "changed"


async def test_the_log_names_the_check_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """rule 36: the bindings are sealed and compared one by one; the client reads one sentence."""
    async with protected_desk() as desk:
        asked = await desk.send(CHANGE, desk.token())
        await desk.send(again(CHANGE, asked), desk.token(sub="bob"))
    assert "Tool 'change' (request '2'): requestState refused: other principal" in caplog.text
    assert "alice" not in caplog.text
    assert "bob" not in caplog.text


async def test_scopes_come_before_the_state() -> None:
    """rule 37: a token that was stepped down between two rounds is refused, whosever the state is;
    nothing of the handler has run by then."""
    async with protected_desk() as desk:
        asked = await desk.send(CHANGE, desk.token())
        for token in (desk.token(READ), desk.token(READ, sub="bob")):
            response = await desk.send(again(CHANGE, asked), token)
            assert told(response) == (403, challenge("insufficient_scope", WRITE))
        garbage = {**CHANGE, "params": {**CHANGE["params"], "requestState": "x"}}
        response = await desk.send(garbage, desk.token(READ))
        assert told(response) == (403, challenge("insufficient_scope", WRITE))
        assert wire.text_of(await desk.send(again(CHANGE, asked), desk.token())) == "alice True"


async def test_other_servers_states_do_not_open() -> None:
    """rule 36: the audience is sealed, too: servers that share secrets stay apart."""
    asked: dict[str, Any] = {}
    for name in ("one", "two"):
        mcp = MCPRouter(name, version="1", keys=Secret("shared", "s" * 32))

        @mcp.tool()
        async def change() -> Rounds[str]:
            yield need_input("sure", "Sure?", bool)
            yield "changed"

        app = FastAPI()
        app.include_router(mcp)
        async with connected(app) as http:
            if asked:
                assert frozen(await post(http, again(CHANGE, asked["one"])))
            asked[name] = await post(http, CHANGE)
            assert wire.text_of(await post(http, again(CHANGE, asked[name]))) == "changed"


# ------------------------------------------------------------------------------------- extensions


async def test_a_token_that_is_bound_to_a_key_is_not_a_bearers() -> None:
    """rule 38 (RFC 9449 §7.1): whoever stole it could not prove possession, so nobody may go
    without. DPoP itself is not offered, and the metadata does not say so."""
    async with protected_desk() as desk:
        bound = sign(access_claims(scope=WRITE, cnf={"jkt": "thumbprint"}))
        assert told(await desk.send(LOOK, bound)) == (401, challenge("invalid_token"))
        response = await desk.send(LOOK, None, authorization=f"DPoP {bound}")
        assert told(response) == (401, challenge())
        metadata = await desk.http.get("/.well-known/oauth-protected-resource")
        assert "dpop" not in metadata.text


async def test_a_workload_is_a_principal_like_any_other() -> None:
    """rules 39, 40: what a federated workload or a client with credentials of its own sends is an
    ordinary token; it steps up and continues its flows."""
    async with protected_desk() as desk:
        workload = {"sub": "spiffe://example.com/batch", "client_id": "spiffe://example.com/batch"}
        refused = await desk.send(CHANGE, desk.token(READ, **workload))
        assert told(refused) == (403, challenge("insufficient_scope", WRITE))
        asked = await desk.send(CHANGE, desk.token(**workload))
        done = await desk.send(again(CHANGE, asked), desk.token(jti="next", **workload))
        assert wire.text_of(done) == "spiffe://example.com/batch True"
