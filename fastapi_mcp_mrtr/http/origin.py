"""Which browser pages may call the endpoint (streamable-http §Security & Endpoint). Pure."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class OriginPolicy:
    """Decides on the `Origin` header, the defence against DNS rebinding and other sites' pages.

    Accepted: no Origin (not a browser); a loopback Origin while Host is loopback; an Origin in
    `allowed_origins`; the same origin as a Host in `allowed_hosts`. Everything else is refused.

    Args:
        allowed_origins: such as `https://app.example.com`; exact, without a path.
        allowed_hosts: such as `api.example.com` or `api.example.com:8443`.
    """

    def __init__(self, allowed_origins: Iterable[str], allowed_hosts: Iterable[str]) -> None:
        for setting, value in (
            ("allowed_origins", allowed_origins),
            ("allowed_hosts", allowed_hosts),
        ):
            if isinstance(value, str):
                raise TypeError(f"{setting} is a list of strings, not one string")
        self._origins = frozenset(origin.rstrip("/").lower() for origin in allowed_origins)
        self._hosts = frozenset(host.lower() for host in allowed_hosts)

    def refusal(self, origin: str | None, host: str | None) -> str | None:
        """Why a request is refused, naming the setting that would allow it; `None` if it is not."""
        if origin is None:
            return None
        origin = origin.lower()
        host = (host or "").lower()
        if origin in self._origins:
            return None
        if _hostname(origin) in _LOOPBACK and _hostname(f"//{host}") in _LOOPBACK:
            return None
        if host in self._hosts and origin in (f"https://{host}", f"http://{host}"):
            return None
        return "Origin not allowed; the server's allowed_origins or allowed_hosts setting decides"


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
