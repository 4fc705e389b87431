"""Which browser pages may call the endpoint (streamable-http §Security & Endpoint). Pure."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from fastapi_mcp_mrtr.protocol.headers import RequestHeaders

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
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

    Raises:
        TypeError: one string instead of a list.
        ValueError: an entry that no browser ever sends, so that it would allow nothing.
    """

    def __init__(self, allowed_origins: Iterable[str], allowed_hosts: Iterable[str]) -> None:
        for setting, value in (
            ("allowed_origins", allowed_origins),
            ("allowed_hosts", allowed_hosts),
        ):
            if isinstance(value, str):
                raise TypeError(f"{setting} is a list of strings, not one string")
        self._origins = frozenset(map(_checked_origin, allowed_origins))
        self._hosts = frozenset(map(_checked_host, allowed_hosts))

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
            or (_hostname(origin) in _LOOPBACK and _hostname(f"//{host}") in _LOOPBACK)
            or (host in self._hosts and origin in (f"https://{host}", f"http://{host}"))
        )
        return None if allowed else _REFUSAL


def _checked_origin(origin: str) -> str:
    scheme, separator, host = origin.rstrip("/").lower().partition("://")
    if not (scheme and separator and _is_host(host)):
        raise ValueError(f"allowed_origins: {origin!r} is no origin like https://app.example.com")
    return f"{scheme}://{host.removesuffix(_DEFAULT_PORTS.get(scheme, ':'))}"


def _checked_host(host: str) -> str:
    if not _is_host(host):
        raise ValueError(f"allowed_hosts: {host!r} is no host like api.example.com:8443")
    return host.lower()


def _is_host(host: str) -> bool:
    # Names beyond ASCII travel as punycode.
    return bool(host) and host.isascii() and not any(c in "/*@ " for c in host)


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
