"""Log in without a person at a screen: a browser that signs in and consents as a script says.

It does what a person's browser would: opens the link, keeps cookies, fills in the forms that it
finds. Only the last step differs: where the answer goes, no program listens, so the browser hands
over the address instead of opening it. `oauth_provider` puts it behind the official client.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

CALLBACK: Final = "http://127.0.0.1:33418/callback"

REGISTERED_CALLBACK: Final = "http://127.0.0.1/callback"
"""What the document says of it: of a program on this computer, the port may be any."""

NAME: Final = "Amélie's assistant"

MAX_PAGES: Final = 10


class LoginFailed(Exception):
    """A page did not offer what the script expects."""


# ---------------------------------------------------------------------------------- the browser


@dataclass
class _Form:
    """One form of a page: where it leads, its fields, and its buttons that say something."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)
    failed: bool = False


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Form] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append(_Form(given.get("action", "")))
        elif self.found and tag == "input":
            self.found[-1].fields[given.get("name", "")] = given.get("value", "")
            self.found[-1].failed |= "aria-invalid" in given
        elif self.found and tag == "button" and "name" in given:
            self.found[-1].buttons.append((given["name"], given.get("value", "")))


class ScriptedBrowser:
    """Signs in with one API key, and answers every consent page alike.

    ```python
    browser = ScriptedBrowser("key-amelie")
    callback_url = await browser.log_in(authorization_url)
    ```

    Args:
        key: the person's API key.
        passwords: with what else they sign in, by the path that the form leads to.
        decision: which button of the consent page: "allow" or "deny".
        on_link: told which link the client wants to be opened.
        on_step: told what the person does, in words.
        transport: instead of the network.
    """

    def __init__(
        self,
        key: str,
        *,
        passwords: Mapping[str, str] | None = None,
        decision: str = "allow",
        on_link: Callable[[str], None] = lambda _: None,
        on_step: Callable[[str], None] = lambda _: None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._key = key
        self._passwords = dict(passwords or {})
        self._decision = decision
        self._on_link = on_link
        self._on_step = on_step
        self._transport = transport
        self._cookies = httpx2.Cookies()
        self._answer = ""
        self.pages: list[str] = []
        """The HTML of what was shown, in order."""

    async def log_in(self, authorization_url: str) -> str:
        """The address to which the authorization server sends the browser in the end.

        Raises: LoginFailed: it never gets there.
        """
        target = urlsplit(parse_qs(urlsplit(authorization_url).query)["redirect_uri"][0])
        async with aclosing(self._browse(authorization_url)) as responses:
            async for response in responses:
                location = urljoin(str(response.url), response.headers.get("Location", ""))
                if urlsplit(location)[:3] == target[:3]:
                    return location
        raise LoginFailed(f"After {MAX_PAGES} pages, no answer for {target.geturl()}.")

    async def visit(self, url: str) -> httpx2.Response:
        """Open a link, and do what the pages ask for until one asks for nothing. Gives that one.

        Raises: LoginFailed: the pages do not come to an end.
        """
        async with aclosing(self._browse(url)) as responses:
            async for response in responses:
                if not response.has_redirect_location and self._form(response) is None:
                    self.pages.append(response.text)
                    return response
        raise LoginFailed(f"After {MAX_PAGES} pages, no end of them at {url}.")

    async def _browse(self, url: str) -> AsyncGenerator[httpx2.Response, None]:
        """What the browser gets, redirects and pages, as it goes from one to the next."""
        async with httpx2.AsyncClient(transport=self._transport, cookies=self._cookies) as http:
            response = await http.get(url)
            for _ in range(MAX_PAGES):
                self._cookies = http.cookies
                yield response
                if response.has_redirect_location:
                    response = await http.get(
                        urljoin(str(response.url), response.headers["Location"])
                    )
                else:
                    self.pages.append(response.text)
                    action, fields = self._fill_in(response)
                    response = await http.post(urljoin(str(response.url), action), data=fields)

    def _form(self, response: httpx2.Response) -> _Form | None:
        """The form on the page that the script knows what to do with."""
        parser = _Forms()
        parser.feed(response.text)
        for form in parser.found:
            # A form that comes back has refused the key, and the script knows no other.
            if "key" in form.fields and not form.failed:
                return form
            if ("decision", self._decision) in form.buttons:
                return form
        return None

    def _fill_in(self, response: httpx2.Response) -> tuple[str, dict[str, str]]:
        form = self._form(response)
        if form is None:
            raise LoginFailed(f"Nothing to fill in on this page ({response.status_code}).")
        place = urlsplit(urljoin(str(response.url), form.action))
        if "key" in form.fields:
            self._on_step(f"signs in at {place.netloc}{place.path.removesuffix('/sign-in')}")
            passwords = [
                key for path, key in self._passwords.items() if place.path.startswith(path)
            ]
            return form.action, {**form.fields, "key": [*passwords, self._key][0]}
        self._on_step(f"reads what is asked for, and says: {self._decision}")
        return form.action, {**form.fields, "decision": self._decision}

    # The two handlers of the official client.

    async def open_link(self, authorization_url: str) -> None:
        self._on_link(authorization_url)
        self._answer = await self.log_in(authorization_url)

    async def wait_for_answer(self) -> AuthorizationCodeResult:
        """Raises: LoginFailed: the answer is no."""
        answer = {
            name: values[0] for name, values in parse_qs(urlsplit(self._answer).query).items()
        }
        if "code" not in answer:
            raise LoginFailed(f"No code, but {answer.get('error')}.")
        return AuthorizationCodeResult.model_validate(answer)


# ----------------------------------------------------------------------------------- the client


class MemoryStorage:
    """What the official client wants to remember, for as long as the process lives."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client_info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client_info = client_info


def oauth_provider(
    server_url: str,
    browser: ScriptedBrowser,
    *,
    storage: MemoryStorage | None = None,
    document_url: str | None = None,
) -> OAuthClientProvider:
    """The `auth=` of the HTTP client below the official MCP client.

    Without `document_url` the client registers dynamically; with it, that URL is its client_id.
    """
    provider = OAuthClientProvider(
        server_url,
        OAuthClientMetadata(client_name=NAME, redirect_uris=[AnyUrl(CALLBACK)]),
        storage or MemoryStorage(),
        browser.open_link,
        browser.wait_for_answer,
    )
    # Not by the constructor, which wants https: the demo's documents are on this computer.
    provider.context.client_metadata_url = document_url
    return provider


def let_token_expire(provider: OAuthClientProvider) -> None:
    """Make the client believe that its access token has expired, so that it refreshes now."""
    provider.context.token_expiry_time = 1.0


def client_document(url: str) -> dict[str, Any]:
    """What the client says of itself at `url`, which is its client_id."""
    return {
        "client_id": url,
        "client_name": NAME,
        "redirect_uris": [REGISTERED_CALLBACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


@asynccontextmanager
async def document_served() -> AsyncIterator[str]:
    """A web server on this computer with nothing but the document. Yields the document's URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Who leaves early is no reason to complain.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(response)
            finally:
                writer.close()
                await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/assistant.json"
    body = json.dumps(client_document(url)).encode()
    response = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: max-age=300\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)
    )
    async with server:
        yield url
