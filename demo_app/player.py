"""Play a booking with the official MCP client, and print what crosses the wire, round by round.

A client like any other: it knows an address, and somebody who can log in there. Where and how to
log in it learns from the desk's answers.
"""

import io
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TextIO
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
)
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    TextContent,
)

from .oauth_player import ScriptedBrowser, document_served, let_token_expire, oauth_provider

API_KEY: Final = "key-amelie"

MILES_KEY: Final = "nimbus-amelie"
"""Of Amélie's account with somebody else than the desk."""

STYLES: Final = {
    "title": "1;34",
    "sent": "36",
    "asked": "33",
    "answered": "32",
    "result": "1",
    "dim": "2",
    "error": "31",
}
"""ANSI codes, for a terminal only."""

CALLS: Final = ("tools/call", "prompts/get", "resources/read")
"""The methods that may take several rounds. What else a client sends is not part of the story."""


class PlayFailed(Exception):
    """The desk did not do what the script expects."""


class Transcript:
    """Prints calls round by round, a line a fact."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        if isinstance(out, io.TextIOWrapper):  # a terminal without arrows is no reason to fail
            out.reconfigure(errors="replace")
        self._colours = out.isatty() and "NO_COLOR" not in os.environ
        self._round = 0
        self._waiting = False
        self._refused = False

    def line(self, text: str = "", style: str | None = None) -> None:
        if style and self._colours:
            text = f"\x1b[{STYLES[style]}m{text}\x1b[0m"
        print(text, file=self._out, flush=True)

    def begin(self, title: str) -> None:
        self._round = 0
        self._waiting = False
        self.line()
        self.line(title, "title")

    async def sent(self, request: httpx2.Request) -> None:
        """Hook of the HTTP client: a request is about to leave."""
        if request.headers.get("content-type") != "application/json":
            self._login_sent(request)
            return
        body = json.loads(request.content or b"{}")
        if "method" not in body:
            self._login_sent(request)
            return
        if self._refused:
            self._refused = False
            self.line("    → the same request once more, with the new token", "sent")
            return
        if body["method"] not in CALLS:
            return
        self._round += 1
        if self._waiting:
            return
        params = body["params"]
        self.line(f"  Round {self._round}", "result")
        arguments = " " + compact(params["arguments"]) if params.get("arguments") else ""
        self.line(
            f"    → {body['method']} {params.get('name', params.get('uri'))}{arguments}", "sent"
        )
        if answers := params.get("inputResponses"):
            self.line(f"      + the answer to {', '.join(answers)}", "sent")
        if state := params.get("requestState"):
            self.line(f"      + requestState, as it came: {len(state)} sealed characters", "sent")

    async def received(self, response: httpx2.Response) -> None:
        """Hook of the HTTP client: a response begins. Streams are left to the client."""
        if response.status_code in (401, 403):
            self._refused = True
            error = extract_field_from_www_auth(response, "error") or "no token"
            scope = extract_scope_from_www_auth(response)
            self.line(f"    ← {response.status_code}, {error}; needed: {scope}", "asked")
            return
        if response.headers.get("content-type") != "application/json":
            return
        if response.request.url.path != "/mcp":
            self._login_received(json.loads(await response.aread()))
            return
        result = json.loads(await response.aread()).get("result", {})
        if result.get("resultType") != "input_required":
            return
        asks = result.get("inputRequests") or {}
        for key, ask in asks.items():
            self.line(f"    ← asks {key}: {ask['params']['message']}", "asked")
            for detail in details(ask["params"]):
                self.line(f"        {detail}", "asked")
        if not asks and not self._waiting:
            self.line("    ← not yet. The client keeps asking …", "asked")
        self._waiting = not asks

    def _login_sent(self, request: httpx2.Request) -> None:
        """A request that is about logging in."""
        form = parse_qs(request.content.decode()) if request.method == "POST" else {}
        grant = f" ({form['grant_type'][0]})" if "grant_type" in form else ""
        self.line(f"    → {request.method} {request.url.path}{grant}", "sent")

    def _login_received(self, document: Mapping[str, Any]) -> None:
        """What the desk and its authorization server say of themselves, and the tokens."""
        if servers := document.get("authorization_servers"):
            self.line(f"    ← the desk trusts {', '.join(servers)}", "asked")
        elif "token_endpoint" in document:
            self.line(f"    ← {document['issuer']} can log people in", "asked")
        elif "client_id" in document:
            self.line(f"    ← registered as {document['client_id']}", "asked")
        elif "access_token" in document:
            seconds = document["expires_in"]
            self.line(f"    ← a token for {document['scope']}, good for {seconds} s", "asked")

    def link(self, url: str) -> None:
        """The client has a link for the person to open."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self.line(f"    ↗ opens {url.partition('?')[0]}", "answered")
        client, scope = asked["client_id"], asked["scope"]
        itself = ", which says there what it is" if client.startswith("http") else ""
        self.line(f"        for the client {client}{itself}", "answered")
        self.line(f"        to have {scope}", "answered")

    def person(self, what: str) -> None:
        self.line(f"    ✎ Amélie {what}", "answered")

    async def reported(self, progress: float, total: float | None, message: str | None) -> None:
        self.line(f"    ← progress {progress:g} of {total or 0:g}: {message}", "dim")

    def answered(self, who: str, result: ElicitResult) -> None:
        content = ", ".join(
            f"{name}: {plain(value)}" for name, value in (result.content or {}).items()
        )
        self.line(f"    ✎ {who}: {result.action}" + f" ({content})" * bool(content), "answered")

    def result(self, result: CallToolResult) -> None:
        if self._waiting:
            self.line(f"  Round {self._round}", "result")
        if result.is_error:
            texts = [block.text for block in result.content if isinstance(block, TextContent)]
            self.line(f"    ← error: {' '.join(texts)}", "error")
            return
        self.line("    ← result", "result")
        for name, value in (result.structured_content or {}).items():
            rows = value if isinstance(value, list) else [value]
            for label, row in zip([name, *[""] * len(rows)], rows, strict=False):
                self.line(f"        {label:<14} {plain(row)}")


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> str:
    """A value for people: without braces and quotes."""
    if isinstance(value, dict):
        return "  ".join(plain(part) for part in value.values())
    return value if isinstance(value, str) else compact(value)


def details(params: Mapping[str, Any]) -> list[str]:
    """What a form wants, a line a field; or where a link leads."""
    if params.get("mode") == "url":
        return [params["url"]]
    fields = params["requestedSchema"]["properties"]
    return [f"{name}: {kind(field)}" for name, field in fields.items()]


def kind(field: Mapping[str, Any]) -> str:
    options = field.get("enum") or [option["const"] for option in field.get("oneOf", ())]
    if options:
        return " or ".join(options)
    bounds = f", {field['minimum']} to {field['maximum']}" if "maximum" in field else ""
    return f"{field['type']}{bounds}"


async def nothing(url: str) -> None:
    """Leaves a link alone."""


class Traveller:
    """Answers what the desk asks, as somebody in front of a client would."""

    def __init__(self, name: str, transcript: Transcript, seats: Iterator[str]) -> None:
        self._name = name
        self._transcript = transcript
        self._seats = seats
        self.on_link: Callable[[str], Awaitable[None]] = nothing
        self.on_question: Callable[[str], None] = lambda key: None

    async def answer(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        """The client's elicitation callback; the request's id is the key of the question."""
        key = str(context.request_id)
        result = self._choose(key, params)
        self._transcript.answered(self._name, result)
        self.on_question(key)
        if isinstance(params, ElicitRequestURLParams):
            await self.on_link(params.url)
        return result

    def _choose(self, key: str, params: ElicitRequestParams) -> ElicitResult:
        if isinstance(params, ElicitRequestURLParams):
            return ElicitResult(action="accept")
        if key.startswith("seat"):
            seat = next(self._seats)
            return ElicitResult(
                action="accept", content={"row": int(seat[:-1]), "letter": seat[-1]}
            )
        if key == "confirm":
            return ElicitResult(action="accept", content={"value": True})
        raise PlayFailed(f"The script has no answer for {key!r}: {params.message}")


@dataclass(frozen=True, slots=True)
class Login:
    """What logs the official client in whenever the desk wants it to, and Amélie at her screen."""

    provider: OAuthClientProvider
    browser: ScriptedBrowser


@asynccontextmanager
async def logging_in(base_url: str, transcript: Transcript) -> AsyncIterator[Login]:
    async with document_served() as document:
        browser = ScriptedBrowser(
            API_KEY,
            passwords={"/nimbus": MILES_KEY},
            on_link=transcript.link,
            on_step=transcript.person,
        )
        provider = oauth_provider(f"{base_url}/mcp", browser, document_url=document)
        yield Login(provider, browser)


@asynccontextmanager
async def connected(
    base_url: str, transcript: Transcript, traveller: Traveller, login: Login
) -> AsyncIterator[Client]:
    """The official client, with the traveller behind its callback and its traffic in view."""
    async with httpx2.AsyncClient(
        auth=login.provider,
        timeout=60,
        event_hooks={"request": [transcript.sent], "response": [transcript.received]},
    ) as http:
        transport = streamable_http_client(f"{base_url}/mcp", http_client=http)
        # A round waits for a payment for some seconds; a person may take many minutes.
        async with Client(
            transport, elicitation_callback=traveller.answer, input_required_max_rounds=1000
        ) as client:
            yield client


async def play_booking(base_url: str, transcript: Transcript, login: Login) -> None:
    """Log in, search, choose a seat, agree to the price; then connect an account elsewhere.

    Raises:
        PlayFailed: the desk answered with something else.
    """
    window_seats = (f"{row}{letter}" for row in range(14, 31) for letter in "AF")
    traveller = Traveller("Amélie", transcript, window_seats)
    transcript.begin("Amélie's assistant comes without a token, and is told where to get one")
    async with connected(base_url, transcript, traveller, login) as client:
        name = client.server_info.title if client.server_info else None
        transcript.line(f"    Connected to “{name}”, MCP {client.protocol_version}")

        transcript.begin("1. A tool that answers at once")
        found = await client.call_tool("search_flights", {"origin": "AMS", "destination": "LIS"})
        show(found, transcript)

        transcript.begin("2. A tool that reports how far it is")
        show(
            await client.call_tool(
                "compare_fares", {"flight": "TD101"}, progress_callback=transcript.reported
            ),
            transcript,
        )

        def expire(key: str) -> None:
            if key == "confirm":
                transcript.line("    … meanwhile the token expires (the player pretends)", "dim")
                let_token_expire(login.provider)

        transcript.begin("3. A booking, which takes more rights: two questions, a hold, a payment")
        traveller.on_question = expire
        show(await client.call_tool("book_seat", {"flight": "TD101"}), transcript)

        async def connect(url: str) -> None:
            await login.browser.visit(url)

        transcript.begin("4. Miles that somebody else counts: an account to be connected")
        traveller.on_link = connect
        show(await client.call_tool("my_miles"), transcript)


async def play_payment(
    base_url: str,
    transcript: Transcript,
    login: Login,
    on_link: Callable[[str], None],
) -> None:
    """Start paying for a booking on the desk's page, and wait as long as the desk does.

    The seats are held through REST, with an API key: the two faces of the desk meet in one booking.

    Raises:
        PlayFailed: the desk answered with something else.
    """
    async with httpx2.AsyncClient(base_url=base_url, headers={"X-API-Key": API_KEY}) as rest:
        seats = (await rest.get("/flights/TD104/seats")).raise_for_status().json()["free"]
        passengers = [{"name": "Amélie Moreau", "seat": seats[-1]}]
        held = await rest.post("/bookings", json={"flight": "TD104", "passengers": passengers})
        reference = held.raise_for_status().json()["reference"]
    traveller = Traveller("Amélie", transcript, iter(()))

    async def invite(url: str) -> None:
        on_link(url)

    traveller.on_link = invite
    async with connected(base_url, transcript, traveller, login) as client:
        transcript.begin("5. A payment on a page of the desk: your turn")
        result = await client.call_tool("pay_booking", {"reference": reference})
        transcript.result(result)


def show(result: CallToolResult, transcript: Transcript) -> None:
    """Raises: PlayFailed: it is an error."""
    transcript.result(result)
    if result.is_error:
        raise PlayFailed("The desk answered with an error.")
