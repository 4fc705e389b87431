"""The endpoint behind OAuth: challenges, scopes on every round, metadata, what handlers can see."""

import logging
import math
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Cookie, Depends, FastAPI, Header, HTTPException, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer, OAuth2PasswordBearer

from fastapi_mcp_mrtr import (
    Complete,
    Context,
    HandlerGroup,
    MCPRouter,
    ProtectedResource,
    Rounds,
    Secret,
    VerifiedToken,
    need_input,
)
from fastapi_mcp_mrtr.auth.token import InvalidToken
from fastapi_mcp_mrtr.testing import MCPTestClient, RejectedRequest

NOW = 1_800_000_000.0
METADATA = "https://api.example.com/.well-known/oauth-protected-resource/api/mcp"
KEYS = Secret("test", "k" * 32)


class Verifier:
    """Tokens read `user~scope+scope`; the issuer's part is tested in tests/auth."""

    issuer = "https://as.example.com"

    async def verify(self, token: str) -> VerifiedToken:
        user, separator, scopes = token.partition("~")
        if not separator:
            raise InvalidToken("no scopes in it")
        return VerifiedToken(
            issuer=self.issuer,
            subject=user,
            client_id="app",
            scopes=frozenset(scopes.split("+")),
            expires_at=NOW + 60,
        )


def resource(**settings: Any) -> ProtectedResource:
    return ProtectedResource(
        **{
            "resource": "https://api.example.com/api/mcp",
            "authorization_servers": [Verifier.issuer],
            "verifier": Verifier(),
            "scopes": ["read"],
            "imply": {"admin": ["write"]},
            **settings,
        }
    )


def airports(value: str) -> list[str]:
    return ["ZRH"]


def desk(principal: Any, **settings: Any) -> MCPRouter:
    """A router with one tool that everybody may call."""
    mcp = MCPRouter(
        "desk", version="1", principal=principal, keys=KEYS, clock=lambda: NOW, **settings
    )

    @mcp.tool()
    async def look(ctx: Context) -> str:
        return repr(ctx.principal)

    return mcp


def client(mcp: MCPRouter, token: str | None, *, prefix: str = "/api") -> MCPTestClient:
    app = FastAPI()
    app.include_router(mcp, prefix=prefix)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return MCPTestClient(app, f"{prefix}/mcp", headers=headers)


def as_(played: MCPTestClient, token: str) -> MCPTestClient:
    played.headers["Authorization"] = f"Bearer {token}"
    return played


def refusal(call: Callable[[], Any]) -> tuple[int, str | None, str]:
    with pytest.raises(RejectedRequest) as caught:
        call()
    reply = caught.value.reply
    return reply.status_code, reply.headers.get("www-authenticate"), reply.text


def test_a_request_without_a_token_is_told_where_to_get_one() -> None:
    """rules 3, 21: the 401 has the metadata and the scopes; no error, and the exact body."""
    mcp = desk(resource())
    status, challenge, body = refusal(lambda: client(mcp, None).list_tools())
    assert (status, body) == (401, "{}")
    assert challenge == f'Bearer scope="read", resource_metadata="{METADATA}"'


def test_a_token_without_a_tools_scopes_is_asked_for_all_of_them() -> None:
    """rule 22: one challenge names the scopes of every request and those of the operation."""
    auth = resource()
    mcp = desk(auth)

    @mcp.tool(scopes=["write"])
    async def change(who: Annotated[VerifiedToken, Security(auth, scopes=["book"])]) -> str:
        return who.subject or ""

    status, challenge, _ = refusal(lambda: client(mcp, "ada~read").call_tool("change"))
    assert status == 403
    assert challenge is not None
    assert 'scope="read write book"' in challenge
    assert 'error="insufficient_scope"' in challenge
    played = client(mcp, "ada~read+admin+book")  # rule 23: admin implies write
    assert played.call_tool("change").structured_content is None
    assert played.replies[-1].result["content"][0]["text"] == "ada"


def test_scopes_are_checked_on_every_round_before_the_state() -> None:
    """rule 37: a token that lost its scope gets 403, whosever the state is."""
    mcp = desk(resource())

    @mcp.tool(scopes=["write"])
    async def change(ctx: Context) -> Rounds[str]:
        sure: bool = yield need_input("sure", "Sure?", bool)
        yield f"{ctx.principal.subject} {sure}"

    played = client(mcp, "ada~read+write")
    first = played.begin_tool("change")
    as_(played, "ada~read")
    assert first.answer({"sure": True}).status_code == 403
    as_(played, "ben~read")
    assert first.answer({"sure": True}).status_code == 403
    as_(played, "ben~read+write")
    assert first.answer({"sure": True}).error.code == -32602
    as_(played, "ada~read+write+more")  # stepped up, the same user
    assert first.answer({"sure": True}).result.content[0].text == "ada True"  # type: ignore[union-attr]


def test_the_token_is_out_of_reach_of_handlers_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    """rule 14: whoever cannot see a token cannot pass it on."""
    mcp = desk(resource())
    seen: list[Any] = []

    @mcp.tool()
    async def spy(
        ctx: Context,
        request: Request,
        authorization: Annotated[str | None, Header()] = None,
    ) -> str:
        seen.extend([request.headers.items(), request.scope["headers"], authorization])
        seen.extend([repr(ctx.principal), dict(ctx.principal.claims), ctx.principal_key])
        return "ok"

    with caplog.at_level(logging.DEBUG):
        client(mcp, "ada~read+s3cret").call_tool("spy")
    assert "ada~read+s3cret" not in repr(seen)
    assert "ada~read+s3cret" not in caplog.text


def test_a_principal_may_be_made_of_the_token() -> None:
    """decision: `current_user` that depends on the resource is how a FastAPI app does it."""
    auth = resource()

    async def current_user(token: Annotated[VerifiedToken, Depends(auth)]) -> str:
        return f"user:{token.subject}"

    mcp = desk(current_user)

    @mcp.tool(scopes=["write"])
    async def change(ctx: Context) -> str:
        return str(ctx.principal)

    assert refusal(lambda: client(mcp, "ada~read").call_tool("change"))[0] == 403
    played = client(mcp, "ada~read+write")
    assert played.call_tool("change").content[0].text == "user:ada"  # type: ignore[union-attr]


def test_another_principal_says_what_it_may_do() -> None:
    """decision: `scopes_of=` for apps whose own authentication knows scopes, as a string too; who
    is not known there may do nothing."""

    def user(x_key: Annotated[str, Header()]) -> str:
        return x_key

    mcp = desk(user, scopes_of={"ada": "read write"}.get)

    @mcp.tool(scopes=["write"])
    async def change() -> str:
        return "changed"

    played = client(mcp, None)
    played.headers["x-key"] = "ben"
    status, challenge, _ = refusal(lambda: played.call_tool("change"))
    assert status == 403
    assert challenge is not None
    assert 'scope="write"' in challenge
    assert "resource_metadata" not in challenge
    played.headers["x-key"] = "ada"
    assert played.call_tool("change").content[0].text == "changed"  # type: ignore[union-attr]


def test_a_token_or_a_key() -> None:
    """decision: mixed schemes; each says what its caller may do, and what a token lacks is asked
    for in one challenge."""
    auth = resource(auto_error=False)

    def caller(
        x_key: Annotated[str | None, Header()] = None, token: Any = Security(auth)
    ) -> tuple[str, str, str]:
        if token is not None:
            return "user", token.subject, " ".join(token.scopes)
        if x_key is None:
            raise auth.challenge()
        return "key", x_key, "write"

    mcp = desk(
        caller, principal_key=lambda who: who[:2], scopes_of=lambda who: tuple(who[2].split())
    )

    @mcp.tool(scopes=["write"])
    async def change() -> str:
        return "changed"

    status, challenge, _ = refusal(lambda: client(mcp, None).call_tool("change"))
    assert (status, challenge) == (401, f'Bearer scope="read", resource_metadata="{METADATA}"')
    status, challenge, _ = refusal(lambda: client(mcp, "ada~read").call_tool("change"))
    assert status == 403
    assert challenge is not None
    assert 'error="insufficient_scope", scope="read write"' in challenge
    with_key = client(mcp, None)
    with_key.headers["x-key"] = "ada"
    for played in (with_key, client(mcp, "ada~read+write")):
        assert played.call_tool("change").content[0].text == "changed"  # type: ignore[union-attr]


def test_a_scope_implies_others_whoever_says_that_it_is_granted() -> None:
    """decision: what includes what belongs to the scopes, and not to how they are looked up."""
    granted = ["admin"]
    mcp = desk(resource(), scopes_of=lambda token: granted)

    @mcp.tool(scopes=["write"], visibility="authorized")
    async def change() -> str:
        return "changed"

    played = client(mcp, "ada~read+write")
    assert played.call_tool("change").content[0].text == "changed"  # type: ignore[union-attr]
    assert "change" in [tool.name for tool in played.list_tools()]
    granted[:] = ["read"]  # what the token says besides counts for nothing here
    assert played.request("tools/call", {"name": "change"}).error.code == -32602


def test_without_a_resource_no_scope_implies_another() -> None:
    """decision: nothing says what includes what."""
    mcp = desk(lambda: "ada", scopes_of=lambda _: ["admin"])

    @mcp.tool(scopes=["write"])
    async def change() -> str:
        return "changed"  # pragma: no cover - nobody may

    status, challenge, _ = refusal(lambda: client(mcp, None).call_tool("change"))
    assert (status, challenge is not None and 'scope="write"' in challenge) == (403, True)


def test_who_is_let_in_without_a_token_is_asked_for_one() -> None:
    """decision: 401, where there are no credentials, also for a tool that needs scopes."""
    mcp = desk(resource(auto_error=False))

    @mcp.tool(scopes=["write"])
    async def change() -> str:
        return "changed"

    played = client(mcp, None)
    assert played.call_tool("look").content[0].text == "None"  # type: ignore[union-attr]
    status, challenge, body = refusal(lambda: played.call_tool("change"))
    assert (status, body) == (401, "{}")
    assert challenge == f'Bearer scope="read write", resource_metadata="{METADATA}"'


def test_scopes_that_nobody_could_check_are_refused_at_registration() -> None:
    """decision: fail closed, and at import."""
    mcp = desk(None)
    group = HandlerGroup()

    @group.tool(scopes=["write"])
    async def change() -> str:
        return ""  # pragma: no cover - never registered

    with pytest.raises(ValueError, match="Tool 'change' needs scopes"):
        mcp.include(group)


@pytest.mark.parametrize("setting", [{"scopes": "write"}, {"scopes": ["a b"]}])
def test_scopes_are_a_list_of_scopes(setting: dict[str, Any]) -> None:
    """decision: a string would be read letter by letter."""
    with pytest.raises((TypeError, ValueError), match="scope"):
        HandlerGroup().tool(**setting)(lambda: None)


def test_visibility_is_one_of_two() -> None:
    """decision: fail at registration."""
    with pytest.raises(ValueError, match="visibility"):
        HandlerGroup().tool(visibility="hidden")(lambda: None)  # type: ignore[call-overload]


def hidden_desk() -> MCPRouter:
    mcp = desk(resource(), page_size=2)

    @mcp.tool(scopes=["admin"], visibility="authorized")
    async def audit() -> str:
        return "audited"

    @mcp.tool(scopes=["write"])
    async def change() -> str:
        return "changed"  # pragma: no cover - only listed

    @mcp.prompt(scopes=["admin"], visibility="authorized")
    async def report(of: Annotated[str, Complete(airports)]) -> str:
        return of  # pragma: no cover - only completed

    @mcp.prompt(scopes=["write"])
    async def plan(to: Annotated[str, Complete(airports)]) -> str:
        return to  # pragma: no cover - only completed

    @mcp.resource("desk://secrets", scopes=["admin"], visibility="authorized")
    async def secrets() -> str:
        return "secret"

    return mcp


def test_what_is_hidden_does_not_exist_for_others() -> None:
    """decision: filtered lists are private, a direct call is an unknown tool."""
    played = client(hidden_desk(), "ada~read")
    assert [tool.name for tool in played.list_tools()] == ["look", "change"]
    assert {reply.result["cacheScope"] for reply in played.replies} == {"private"}
    call = played.request("tools/call", {"name": "audit"})
    assert call.error.message == "Unknown tool: audit"
    prompt = played.request("prompts/get", {"name": "report", "arguments": {"of": "x"}})
    assert prompt.error.message == "Unknown prompt: report"
    read = played.request("resources/read", {"uri": "desk://secrets"})
    assert read.error.message == "Resource not found"
    complete = {"ref": {"type": "ref/prompt", "name": "report"}}
    argument = {"argument": {"name": "of", "value": ""}}
    assert played.request("completion/complete", {**complete, **argument}).error.code == -32602


def test_no_template_answers_in_place_of_what_is_hidden() -> None:
    """decision: a handler for all of a folder must not give out what somebody took out of it."""
    mcp = hidden_desk()

    @mcp.resource("desk://{name}")
    async def everything(name: str) -> str:
        return f"all of {name}"

    played = client(mcp, "ada~read")
    read = played.request("resources/read", {"uri": "desk://secrets"})
    assert read.error.message == "Resource not found"
    assert played.read_resource("desk://hours").contents[0].text == "all of hours"  # type: ignore[union-attr]


def test_who_has_the_scopes_sees_it() -> None:
    """decision: over page boundaries too."""
    played = client(hidden_desk(), "ada~read+admin")
    assert [tool.name for tool in played.list_tools()] == ["look", "audit", "change"]
    assert played.call_tool("audit").content[0].text == "audited"  # type: ignore[union-attr]
    assert played.read_resource("desk://secrets").contents[0].text == "secret"  # type: ignore[union-attr]
    assert played.complete("of", prompt="report").values == ["ZRH"]


def test_completions_need_the_scopes_of_what_they_complete() -> None:
    """spec: MUST control access to sensitive suggestions (utilities/completion §Security)."""
    played = client(hidden_desk(), "ada~read")
    assert refusal(lambda: played.complete("to", prompt="plan"))[0] == 403


@pytest.mark.parametrize(
    ("principal", "challenge"),
    [
        (HTTPBearer(), f'Bearer resource_metadata="{METADATA}"'),
        (OAuth2PasswordBearer("token"), f'Bearer resource_metadata="{METADATA}"'),
        (APIKeyHeader(name="x-key"), "APIKey"),
    ],
)
def test_the_challenge_of_an_apps_own_authentication_is_augmented(
    principal: Any, challenge: str
) -> None:
    """decision: it stays what the app raised, and says where to log in."""
    mcp = desk(principal, principal_key=str, resource_metadata_url=METADATA)
    assert refusal(lambda: client(mcp, None).list_tools())[:2] == (401, challenge)


def test_without_metadata_an_apps_challenge_stays_as_it_is() -> None:
    """rule 2: no configured issuer, no `resource_metadata`."""

    def user(session: Annotated[str | None, Cookie()] = None) -> str:
        raise HTTPException(401, "Log in")

    mcp = desk(user)
    assert refusal(lambda: client(mcp, None).list_tools())[:2] == (401, None)


def test_the_metadata_is_at_its_own_path_and_at_the_root() -> None:
    """rules 3-6: unauthenticated, byte for byte, whatever prefix the endpoint has."""
    mcp = desk(resource(resource_name="Desk"))
    app = FastAPI()
    outer = APIRouter(prefix="/api")
    outer.include_router(mcp)
    app.include_router(outer)
    app.include_router(mcp.well_known)
    http = MCPTestClient(app, "/api/mcp").http
    for path in (
        "/.well-known/oauth-protected-resource/api/mcp",
        "/.well-known/oauth-protected-resource",
    ):
        reply = http.get(path)
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == "*"
        assert reply.text == (
            '{"resource":"https://api.example.com/api/mcp",'
            '"authorization_servers":["https://as.example.com"],"scopes_supported":["read"],'
            '"bearer_methods_supported":["header"],"resource_name":"Desk"}'
        )


def test_without_a_protected_resource_there_is_no_metadata() -> None:
    """rule 2: an app with API keys only serves none."""
    mcp = desk(None)
    with pytest.raises(LookupError, match="no ProtectedResource"):
        _ = mcp.well_known


def test_a_resource_with_another_path_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """decision: clients compare the resource with the URL they call."""
    mcp = desk(resource(resource="https://api.example.com/other"))
    client(mcp, "ada~read").list_tools()
    assert "does not end in that path" in caplog.text


def test_a_subscription_ends_with_its_token() -> None:
    """rule 32: gracefully, so that the client comes back with a fresh one."""
    mcp = desk(resource())
    mcp.clock = lambda: NOW + 60 - 0.01
    reply = client(mcp, "ada~read").request(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
    )
    assert reply.result["resultType"] == "complete"


def test_the_openapi_document_shows_the_scheme() -> None:
    """decision: it is a real dependency of the route."""
    mcp = desk(resource())
    app = FastAPI()
    app.include_router(mcp)
    document = app.openapi()
    assert document["paths"]["/mcp"]["post"]["security"] == [{"MCPOAuth2": ["read"]}]


def test_an_override_stands_in_for_a_login() -> None:
    """decision: the recipe for tests is FastAPI's own."""
    auth = resource()
    mcp = desk(auth)

    @mcp.tool(scopes=["write"])
    async def change(ctx: Context) -> str:
        return ctx.principal.subject or ""

    played = client(mcp, None)
    token = VerifiedToken(
        issuer=Verifier.issuer, subject="eve", scopes=frozenset(["write"]), expires_at=math.inf
    )
    with played.as_principal(token):
        assert played.call_tool("change").content[0].text == "eve"  # type: ignore[union-attr]
    with played.as_principal("somebody without a token"):
        assert refusal(lambda: played.call_tool("change"))[0] == 403
