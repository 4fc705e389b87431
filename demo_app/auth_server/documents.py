"""Client ID Metadata Documents: a client whose id is the URL of a JSON that describes it.

The URL comes from whoever sends a person here, so fetching it is where this server could be made
to call others (draft-ietf-oauth-client-id-metadata-document-00 §6). Therefore: only for somebody
who has signed in, only public addresses, checked and then connected to without a second look-up,
no redirects, no proxy, five seconds, five kilobytes.
"""

import re
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from socket import SOCK_STREAM
from typing import Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

import anyio
import httpx2
from pydantic import ValidationError, model_validator

from .clients import PUBLIC, Client, ClientMetadata, described, problem_of
from .settings import LOOPBACK, AuthSettings

MAX_BYTES: Final = 5 * 1024  # §6.6 of the draft
TIMEOUT: Final = 5.0
DEFAULT_AGE: Final = 5 * 60.0
MAX_AGE: Final = 24 * 3600.0
"""How long a document is kept that says nothing of it, and at most."""

IPV6: Final = ip_network("2000::/3")
"""Where public IPv6 addresses are. Outside it are also those that carry an IPv4 address."""

NOT_PUBLIC: Final = tuple(
    ip_network(network)
    for network in (
        "192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/4",  # protocols', 6to4's relays, multicast
        "2001::/23", "2002::/16",  # Teredo and other protocols', 6to4
    )
)  # fmt: skip
"""What some versions of `ipaddress` call global, and no client's web server has."""

DEFAULT_PORTS: Final = {"https": 443, "http": 80}

JSON: Final = re.compile(r"application/(?:[\w.-]+\+)?json")

Resolve = Callable[[str, int], Awaitable[Iterable[str]]]
"""From host and port to addresses."""


class DocumentRefused(Exception):
    """There is no usable document. The text is for the log: it may tell what answers where."""


class Document(ClientMetadata):
    """The members that a document needs beyond those of a registration, or may not have."""

    client_id: str
    client_secret: None = None
    client_secret_expires_at: None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.client_name is None:
            raise ValueError("client_name is missing")
        # No secret can be in a public document, and keys are not supported here.
        if self.token_endpoint_auth_method != PUBLIC:
            raise ValueError("token_endpoint_auth_method must be none")
        return self


def document_url(client_id: str, *, loopback: bool) -> SplitResult | None:
    """The URL that a client_id is, or `None` if it is not one that a document may have."""
    if not re.fullmatch(r"[\w.~!$&'()*+,;=:@%/?\[\]-]{1,2000}", client_id, re.ASCII):
        return None
    try:
        url = urlsplit(client_id)
        host, _ = url.hostname, url.port
    except ValueError:
        return None
    plain = loopback and url.scheme == "http" and host in LOOPBACK
    segments = unquote(url.path).split("/")
    if (
        (url.scheme == "https" or plain)
        and client_id.startswith(f"{url.scheme}://")
        and host
        and "@" not in url.netloc
        and len(url.path) > 1
        and not {".", ".."} & set(segments)
    ):
        return url
    return None


def is_public(address: str) -> bool:
    """Whether an address is one that anybody on the internet could call."""
    ip = ip_address(address)
    if isinstance(ip, IPv6Address) and ip not in IPV6:
        return False
    return ip.is_global and not any(ip in network for network in NOT_PUBLIC)


def lifetime(cache_control: str) -> float:
    """For how many seconds a document may be kept, by its own header."""
    directives = {part.strip().lower() for part in cache_control.split(",")}
    if directives & {"no-store", "no-cache"}:
        return 0.0
    ages = [age[1] for part in directives if (age := re.fullmatch(r"max-age=(\d{1,9})", part))]
    return min(float(ages[0]), MAX_AGE) if ages else DEFAULT_AGE


async def resolve(host: str, port: int) -> list[str]:
    """Raises: OSError: the name leads nowhere."""
    found = await anyio.getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Documents:
    """Fetches clients' documents, and keeps them for as long as they say.

    Args:
        resolver: looks host names up.
        ssl_context: whose certificates count, if not those of the system.
        transport: makes the requests in place of httpx2's own.
    """

    def __init__(
        self,
        settings: AuthSettings,
        clock: Callable[[], float],
        *,
        resolver: Resolve = resolve,
        ssl_context: ssl.SSLContext | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._resolve = resolver
        self._client = partial(
            httpx2.AsyncClient,
            verify=ssl_context or True,
            transport=transport,
            trust_env=False,  # a proxy would look the name up again
            follow_redirects=False,
            timeout=TIMEOUT,
        )
        self._kept: dict[str, tuple[Client, float]] = {}

    async def client(self, client_id: str) -> Client:
        """The client that the document at `client_id` describes.

        Raises: DocumentRefused: there is none, it is not one, or it must not be fetched.
        """
        now = self._clock()
        self._kept = {key: kept for key, kept in self._kept.items() if now < kept[1]}
        if client_id in self._kept:
            return self._kept[client_id][0]
        try:
            with anyio.fail_after(TIMEOUT):
                body, cache_control = await self._fetch(client_id)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise DocumentRefused(f"{client_id}: {str(error) or type(error).__name__}") from error
        client = self._read(client_id, body)
        if (age := lifetime(cache_control)) > 0:
            self._kept[client_id] = client, now + age
        return client

    async def _fetch(self, client_id: str) -> tuple[bytes, str]:
        loopback = self._settings.loopback_documents
        url = document_url(client_id, loopback=loopback)
        if url is None:
            raise DocumentRefused(f"{client_id}: no URL that a document may have")
        host = url.hostname or ""
        addresses = list(await self._resolve(host, url.port or DEFAULT_PORTS[url.scheme]))
        if not addresses or not all(may_be_called(a, loopback=loopback) for a in addresses):
            raise DocumentRefused(f"{client_id}: is at {addresses}, which is not public")
        async with self._client() as http:
            for address in addresses[:-1]:
                try:
                    return await self._get(http, client_id, url, address)
                except httpx2.ConnectError:
                    continue
            return await self._get(http, client_id, url, addresses[-1])

    async def _get(
        self, http: httpx2.AsyncClient, client_id: str, url: SplitResult, address: str
    ) -> tuple[bytes, str]:
        """Ask the address that was checked, and have its certificate checked against the name."""
        async with http.stream(
            "GET",
            httpx2.URL(client_id).copy_with(host=address),
            headers={
                "Host": url.netloc,
                "Accept": "application/json",
                "Accept-Encoding": "identity",  # so that what was limited is what is read
            },
            extensions={"sni_hostname": url.hostname},
        ) as response:
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            coding = response.headers.get("Content-Encoding", "identity")
            if response.status_code != 200 or coding != "identity" or not JSON.fullmatch(kind):
                raise DocumentRefused(
                    f"{client_id}: answered {response.status_code}, {kind!r}, {coding!r}"
                )
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise DocumentRefused(f"{client_id}: more than {MAX_BYTES} bytes")
            return body, response.headers.get("Cache-Control", "")

    def _read(self, client_id: str, body: bytes) -> Client:
        try:
            document = Document.model_validate_json(
                body, context={"private_use_schemes": self._settings.private_use_schemes}
            )
        except ValidationError as error:
            raise DocumentRefused(f"{client_id}: {problem_of(error)[1]}") from None
        if document.client_id != client_id:
            raise DocumentRefused(f"{client_id}: names itself {document.client_id!r}")
        return described(document, client_id, document=True)


def may_be_called(address: str, *, loopback: bool) -> bool:
    return is_public(address) or (loopback and ip_address(address).is_loopback)
