"""Which browser pages may call the endpoint (streamable-http §Security & Endpoint). Pure."""

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from fastapi_mcp_mrtr.protocol.headers import RequestHeaders

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names under which browsers reach the computer that they run on."""
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
"""Ports that browsers leave out of an Origin."""
_REFUSAL: Final = "Origin not allowed; the server's allowed_origins or allowed_hosts decides"


class OriginPolicy:
    """Decides on the `Origin` header, the defence against DNS rebinding and other sites' pages.

    Accepted: no Origin (not a browser); a loopback Origin while Host is loopback; an Origin in
    `allowed_origins`; the same origin as a Host in `allowed_hosts`. Everything else is refused.

    Args:
        allowed_origins: such as `https://app.example.com`; exact, without a path.
        allowed_hosts: such as `api.example.com` or `api.example.com:8443`.
        own_hosts: more of those, which have been checked: where this package shows a page.

    Raises:
        TypeError: one string instead of a list.
        ValueError: an entry that no browser ever sends, so that it would allow nothing.
    """

    def __init__(
        self,
        allowed_origins: Iterable[str],
        allowed_hosts: Iterable[str],
        own_hosts: Iterable[str] = (),
    ) -> None:
        self._origins = frozenset(checked_origins("allowed_origins", allowed_origins))
        self._hosts = frozenset(checked_hosts("allowed_hosts", allowed_hosts)).union(own_hosts)

    def refusal(self, headers: RequestHeaders) -> str | None:
        """Why a request is refused, naming the setting that would allow it; `None` if it is not."""
        if headers.origin is None:
            return None
        # Of two that differ, somebody else may have checked the other one.
        if headers.conflicts & {"origin", "host"}:
            return _REFUSAL
        origin, host = headers.origin.lower(), (headers.host or "").lower()
        allowed = (
            origin in self._origins
            or (is_loopback(origin) and is_loopback(f"//{host}"))
            or (host in self._hosts and origin in (f"https://{host}", f"http://{host}"))
        )
        return None if allowed else _REFUSAL


def checked_origins(setting: str, origins: Iterable[str]) -> Iterator[str]:
    """Origins as browsers spell them. Raises: TypeError, ValueError; they name the setting."""
    for origin in _strings(setting, origins):
        scheme, separator, host = origin.rstrip("/").lower().partition("://")
        if not (scheme and separator and _is_host(host)):
            raise ValueError(f"{setting}: {origin!r} is no origin like https://app.example.com")
        yield f"{scheme}://{host.removesuffix(_DEFAULT_PORTS.get(scheme, ':'))}"


def checked_hosts(setting: str, hosts: Iterable[str]) -> Iterator[str]:
    """Hosts as browsers spell them. Raises: TypeError, ValueError; they name the setting."""
    for host in _strings(setting, hosts):
        if not _is_host(host):
            raise ValueError(f"{setting}: {host!r} is no host like api.example.com:8443")
        yield host.lower()


def is_loopback(url: str) -> bool:
    """Whether a URL, or `//` and a Host header, leads to the computer that the browser runs on."""
    try:
        return urlsplit(url).hostname in LOOPBACK
    except ValueError:
        return False


def _strings(setting: str, value: Iterable[str]) -> Iterable[str]:
    if isinstance(value, str):
        raise TypeError(f"{setting} is a list of strings, not one string")
    return value


def _is_host(host: str) -> bool:
    # Names beyond ASCII travel as punycode.
    return bool(host) and host.isascii() and not any(c in "/*@ " for c in host)
