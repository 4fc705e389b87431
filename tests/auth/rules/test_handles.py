"""Rules 28 to 32: handles are no credentials, caches are no access control, streams end."""

from typing import Any

import anyio
import pytest

from fastapi_mcp_mrtr import Context
from tests import wire
from tests.auth.issuer import NOW

from .desk import LIST, LISTEN, READ, challenge, protected_desk, told

pytestmark = pytest.mark.anyio


async def test_there_is_no_proxy_for_other_authorization_servers() -> None:
    """rule 28: MUST obtain consent per client (security-considerations §Confused Deputy Problem)
    is about proxies: this server has no authorization, token or registration endpoint."""
    async with protected_desk() as desk:
        for path in (
            "/authorize",
            "/token",
            "/register",
            "/.well-known/oauth-authorization-server",
        ):
            assert (await desk.http.get(path)).status_code == 404
            assert (await desk.http.post(path)).status_code == 404


async def test_what_is_stored_for_a_caller_has_a_key_of_its_own() -> None:
    """rule 29: MUST NOT use possession of a handle as authentication, SHOULD key by the user (best
    practices §State Handle Hijacking): `principal_key` is the same after a refresh or step-up, and
    different for another user, client or tenant."""
    async with protected_desk() as desk:

        @desk.mcp.tool()
        async def key(ctx: Context) -> str:
            return ctx.principal_key

        async def key_of(**claims: Any) -> str:
            return wire.text_of(await desk.send(wire.call("key"), desk.token(**claims)))

        alice = await key_of()
        assert alice == await key_of(jti="other", scope=f"{READ} notes:more", exp=NOW + 900)
        others = {
            await key_of(sub="bob"),
            await key_of(client_id="other"),
            await key_of(tid="acme"),
        }
        assert len({alice, *others}) == 4


async def test_a_list_that_depends_on_the_caller_is_private() -> None:
    """rule 30: MUST be the same on all pages, and access control MUST NOT rest on it (caching
    §Security); a list that everybody gets may be shared."""
    async with protected_desk(router_settings={"page_size": 1}) as desk:

        async def scopes() -> list[str]:
            found, cursor = [], None
            while True:
                params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
                page = wire.result_of(
                    await desk.send(wire.message("tools/list", params), desk.token(READ))
                )
                found.append(page["cacheScope"])
                cursor = page.get("nextCursor")
                if cursor is None:
                    return found

        assert await scopes() == ["public"] * 3

        @desk.mcp.tool(scopes=["notes:audit"], visibility="authorized")
        async def audit() -> str:
            return "audited"  # pragma: no cover - hidden

        # Hidden from this caller, and so all pages are private, however few there are.
        assert await scopes() == ["private"] * 3
        hidden = await desk.send(wire.call("audit"), desk.token(READ))
        assert wire.error_of(hidden) == {"code": -32602, "message": "Unknown tool: audit"}
        names = [
            tool["name"]
            for tool in wire.result_of(await desk.send(LIST, desk.token(f"{READ} notes:audit")))[
                "tools"
            ]
        ]
        assert names == ["look"]


async def test_the_user_is_whom_the_token_names() -> None:
    """rule 31: MUST bind elicitations to the client and user identity, from credentials, MUST NOT
    from what the client says (client/elicitation §Security Considerations)."""
    async with protected_desk() as desk:
        said = {"sub": "bob", "user": "bob", "principal": "bob"}
        body = wire.message("tools/call", {"name": "look", "arguments": {}, **said}, **said)
        assert wire.text_of(await desk.send(body, desk.token(), x_user="bob")) == "alice"


async def test_a_subscription_ends_when_its_token_does() -> None:
    """rule 32: gracefully, with the result that says so; the client comes back with a fresh one."""
    async with protected_desk() as desk:
        with anyio.fail_after(30):
            response = await desk.send(LISTEN, desk.token(exp=desk.clock.now + 0.05))
        messages = wire.messages_of(response)
        assert messages[0]["method"] == "notifications/subscriptions/acknowledged"
        assert messages[-1]["id"] == LISTEN["id"]
        assert messages[-1]["result"]["resultType"] == "complete"
        # Expired as it is, within the leeway, it opens nothing that lasts.
        with anyio.fail_after(30):
            late = await desk.send(LISTEN, desk.token(exp=desk.clock.now - 10))
        assert wire.messages_of(late)[-1]["result"]["resultType"] == "complete"
        assert told(await desk.send(LISTEN, None)) == (401, challenge())


async def test_a_resource_that_needs_a_scope_is_not_subscribed_to_without() -> None:
    """rules 11, 32: updates are data, too."""
    async with protected_desk() as desk:

        @desk.mcp.resource("desk://audit", scopes=["notes:audit"])
        async def audit() -> str:
            return ""  # pragma: no cover - only subscribed to

        body = wire.message(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["desk://audit"]}}
        )

        async def agreed(scope: str) -> Any:
            token = desk.token(scope, exp=desk.clock.now + 0.05)
            first = wire.messages_of(await desk.send(body, token))[0]
            return first["params"]["notifications"]

        assert await agreed(READ) == {}
        assert await agreed(f"{READ} notes:audit") == {"resourceSubscriptions": ["desk://audit"]}
