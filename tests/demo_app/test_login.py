"""The whole demo behind OAuth: the official client's logins, and who may go on with whose flow."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult
from sqlalchemy import delete

from demo_app.app import create_app
from demo_app.models import Customer
from demo_app.oauth_player import (
    LoginFailed,
    ScriptedBrowser,
    document_served,
    let_token_expire,
    oauth_provider,
)
from demo_app.settings import Settings
from fastapi_mcp_mrtr import Secret
from fastapi_mcp_mrtr.testing import MCPTestClient

from .helpers import AMELIE, BRUNO, SECRET
from .oauth import ARGUMENTS, LoginDesk, bearer, login_desk, post

pytestmark = pytest.mark.anyio

SEAT = {"seat-1": {"row": 14, "letter": "A"}, "confirm": {"value": True}}
ALL = "desk:read desk:book desk:pay"


@asynccontextmanager
async def connected(
    desk: LoginDesk, login: OAuthClientProvider, *, expire_at: str | None = None
) -> AsyncIterator[Client]:
    """The official client with the official provider. Its token expires at one question."""

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        key = str(context.request_id)
        if key == expire_at:
            let_token_expire(login)
        return ElicitResult(action="accept", content=SEAT[key])

    async with httpx2.AsyncClient(auth=login, timeout=60) as http:
        transport = streamable_http_client(desk.mcp, http_client=http)
        async with Client(transport, elicitation_callback=answer) as client:
            yield client


class Login:
    """A person at a client of their own, and the tokens that come of it."""

    def __init__(self, desk: LoginDesk, key: str = AMELIE) -> None:
        self._desk = desk
        self._provider = oauth_provider(desk.mcp, ScriptedBrowser(key))

    async def token(self, tool: str = "list_bookings") -> str:
        """An access token that is good for `tool`."""
        async with connected(self._desk, self._provider) as client:
            await client.session.call_tool(tool, ARGUMENTS.get(tool, {}), allow_input_required=True)
        tokens = self._provider.context.current_tokens
        assert tokens is not None
        return tokens.access_token

    async def refreshed(self) -> str:
        let_token_expire(self._provider)
        return await self.token()


ANSWER = {"seat-1": {"action": "accept", "content": SEAT["seat-1"]}}


# ----------------------------------------------------------------------------- the whole way


@pytest.mark.parametrize("mode", ["dynamic registration", "client document"])
async def test_the_official_client_logs_in_steps_up_and_refreshes_in_the_middle_of_a_flow(
    tmp_path: Path, mode: str
) -> None:
    """spec: both ways to register (client-registration); step-up (index §Scope Step-Up)."""
    documents = document_served() if mode == "client document" else nullcontext()
    async with login_desk(tmp_path) as desk, documents as url:
        browser = ScriptedBrowser(AMELIE)
        login = oauth_provider(desk.mcp, browser, document_url=url)
        async with connected(desk, login, expire_at="confirm") as client:
            found = await client.call_tool("search_flights", {"origin": "VIE"})
            booked = await client.call_tool("book_seat", {"flight": "TD101"})
    assert not found.is_error
    assert booked.structured_content is not None, booked.content
    assert booked.structured_content["status"] == "paid"
    registered = desk.recorder.told("/as/register")
    assert registered == ([] if url else [("POST", "/as/register", 201)])
    search, *_ = desk.recorder.calls("search_flights")
    assert search.claims["scope"] == "desk:read"
    refused, first, second, third = desk.recorder.calls("book_seat")
    assert [each.status for each in (refused, first, second, third)] == [403, 200, 200, 200]
    assert (url or search.claims["client_id"]) == first.claims["client_id"]
    assert first.claims["scope"] == ALL
    assert second.token != third.token
    assert third.claims["sub"] == "amelie"
    assert "New" in browser.pages[-1]  # the second consent says what is


async def test_somebody_who_says_no_stays_outside(tmp_path: Path) -> None:
    """decision"""
    async with login_desk(tmp_path) as desk:
        login = oauth_provider(desk.mcp, ScriptedBrowser(AMELIE, decision="deny"))
        with pytest.RaisesGroup(
            pytest.RaisesExc(LoginFailed, match="access_denied"), flatten_subgroups=True
        ):
            async with connected(desk, login):
                raise AssertionError("connected")


# ------------------------------------------------------------------------------ whose flow it is


async def test_a_flow_goes_on_with_new_tokens_of_the_same_person_and_nobody_elses(
    tmp_path: Path,
) -> None:
    """spec: MUST (client/elicitation §Security 1): bound to client and user, not to a token."""
    async with login_desk(tmp_path) as desk:
        amelie = Login(desk)
        asked = (await post(desk, bearer(await amelie.token("book_seat")), "book_seat")).json()
        go_on = {"requestState": asked["result"]["requestState"], "inputResponses": ANSWER}
        for stranger in (
            bearer(await Login(desk, BRUNO).token("book_seat")),
            bearer(await Login(desk).token("book_seat")),  # Amélie at another client
            {"X-API-Key": AMELIE},
            {"X-API-Key": BRUNO},
        ):
            refused = await post(desk, stranger, "book_seat", **go_on)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)
        # A second of the same kind: another person's token beside the right key.
        both = {**bearer(await Login(desk, BRUNO).token("book_seat")), "X-API-Key": AMELIE}
        assert (await post(desk, both, "book_seat", **go_on)).status_code == 400
        gone_on = await post(desk, bearer(await amelie.refreshed()), "book_seat", **go_on)
    assert gone_on.json()["result"]["inputRequests"].keys() == {"confirm"}


async def test_a_flow_that_a_key_started_is_not_for_a_token(tmp_path: Path) -> None:
    """decision: what authenticates with a key and with a token are two principals."""
    async with login_desk(tmp_path) as desk:
        asked = (await post(desk, {"X-API-Key": AMELIE}, "book_seat")).json()
        go_on = {"requestState": asked["result"]["requestState"], "inputResponses": ANSWER}
        token = await Login(desk).token("book_seat")
        assert (await post(desk, bearer(token), "book_seat", **go_on)).status_code == 400
        assert (await post(desk, {"X-API-Key": AMELIE}, "book_seat", **go_on)).status_code == 200


async def test_rights_are_looked_at_in_every_round(tmp_path: Path) -> None:
    """spec: state is never authorization (mrtr §Server Requirements)."""
    async with login_desk(tmp_path) as desk:
        amelie = Login(desk)
        before = await amelie.token()
        asked = (await post(desk, bearer(await amelie.token("book_seat")), "book_seat")).json()
        go_on = {"requestState": asked["result"]["requestState"], "inputResponses": ANSWER}
        refused = await post(desk, bearer(before), "book_seat", **go_on)
    assert refused.status_code == 403
    assert f'scope="{ALL}"' in refused.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    ("tool", "needed"),
    [
        ("list_bookings", None),
        ("free_seats", None),
        ("cancel_booking", "desk:read desk:book"),
        ("pay_booking", "desk:read desk:pay"),
        ("book_seat", ALL),
        ("book_party", ALL),
    ],
)
async def test_what_reading_does_not_include(tmp_path: Path, tool: str, needed: str | None) -> None:
    """decision: who changes something needs a right to; the challenge names all of them."""
    async with login_desk(tmp_path) as desk:
        answer = await post(desk, bearer(await Login(desk).token()), tool)
    assert answer.status_code == (403 if needed else 200)
    if needed:
        assert f'scope="{needed}"' in answer.headers["WWW-Authenticate"]


# ----------------------------------------------------------------------------- beside the token


async def test_an_api_key_gets_in_as_before(tmp_path: Path) -> None:
    """decision: for programs that nobody can log in; and REST takes nothing else."""
    async with login_desk(tmp_path) as desk:
        key = {"X-API-Key": AMELIE}
        assert (await post(desk, key, "list_bookings")).status_code == 200
        token = await Login(desk).token()
        async with httpx2.AsyncClient(base_url=desk.base) as http:
            assert (await http.get("/me", headers=key)).json()["id"] == "amelie"
            assert (await http.get("/me", headers=bearer(token))).status_code == 401
            assert (await http.get("/docs")).status_code == 200
            assert (await http.get("/")).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "key-nobody"}, {"Authorization": "Basic x"}])
async def test_a_stranger_is_told_where_to_log_in(tmp_path: Path, headers: dict[str, str]) -> None:
    """spec: SHOULD name the scope, MUST say where the metadata is (index §Discovery)."""
    async with login_desk(tmp_path) as desk:
        refused = await post(desk, headers, "list_bookings")
        metadata = f"{desk.base}/.well-known/oauth-protected-resource/mcp"
        async with httpx2.AsyncClient(timeout=60) as http:
            document = (await http.get(metadata)).json()
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"] == (
        f'Bearer scope="desk:read", resource_metadata="{metadata}"'
    )
    assert (document["resource"], document["authorization_servers"]) == (
        desk.mcp,
        [f"{desk.base}/as"],
    )


async def test_a_token_of_a_customer_that_left_opens_nothing(tmp_path: Path) -> None:
    """decision: fail closed, though signature and audience are right."""
    async with login_desk(tmp_path) as desk:
        token = await Login(desk).token()
        async with desk.app.state.desk.database.writing() as session:
            await session.execute(delete(Customer).where(Customer.id == "amelie"))
        refused = await post(desk, bearer(token), "list_bookings")
    assert refused.status_code == 401


def test_without_login_there_is_nothing_to_discover(tmp_path: Path) -> None:
    """decision: several workers take API keys; no client is sent to a server that is not there."""
    app = create_app(Settings(database=tmp_path / "desk.sqlite3", secret=Secret("tests", SECRET)))
    with MCPTestClient(app, headers={"X-API-Key": AMELIE}) as client:
        assert client.http.get("/.well-known/oauth-protected-resource/mcp").status_code == 404
        assert client.http.get("/as/jwks.json").status_code == 404
        client.headers = {}
        assert client.http.post("/mcp", json={}).headers["WWW-Authenticate"] == "ApiKey"


def test_logging_in_needs_an_address() -> None:
    """decision: the issuer is part of every token, and no request is asked for it."""
    with pytest.raises(ValueError, match="login=True needs public_url"):
        Settings(login=True)
    environ = {"TRAVEL_DESK_LOGIN": "1", "TRAVEL_DESK_URL": "https://desk.example.com/"}
    chosen = Settings.from_env(environ)
    assert (chosen.login, chosen.base_url) == (True, "https://desk.example.com")
    assert not Settings.from_env({"TRAVEL_DESK_LOGIN": "0"}).login
