"""The console's files and the headers that they are sent with. Knows no route and no request.

Nothing on the page comes from anywhere else, no script or style stands in it, and no script can
turn text into markup or code: what a server sends stays text, whatever it looks like.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

STATIC: Final = Path(__file__).parent / "static"

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_PAGE: Final = "index.html"
_DEBUG: Final = b'name="console-debug" content="no"'

_EVERYWHERE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

# What a host of a source may consist of; an IPv6 address cannot be said (CSP3 §2.3.1).
_SOURCE: Final = re.compile(r"https?://[a-z0-9.-]+(?::\d+)?")


class Asset(NamedTuple):
    """A file of the page. Browsers keep it and ask whether it has changed."""

    body: bytes
    headers: dict[str, str]


class Page(NamedTuple):
    """The page itself."""

    body: bytes
    headers: dict[str, str]


def load_assets() -> dict[str, Asset]:
    """Every file beside the page, by name. Raises: FileNotFoundError: none were built."""
    assets = {}
    for file in sorted(STATIC.iterdir()):
        if media_type := _TYPES.get(file.suffix):
            body = file.read_bytes()
            headers = {
                **_EVERYWHERE,
                "Content-Type": media_type,
                "Cache-Control": "no-cache",
                "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            }
            assets[file.name] = Asset(body, headers)
    return assets


def load_page(*, debug: bool, connect: Iterable[str]) -> Page:
    """The page, told whether it may ask for sealed states, and whom else it may talk to."""
    body = (STATIC / _PAGE).read_bytes()
    if debug:
        body = body.replace(_DEBUG, _DEBUG.replace(b'"no"', b'"yes"'))
    headers = {
        **_EVERYWHERE,
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": content_security_policy(connect),
        "Cross-Origin-Opener-Policy": "same-origin",
        "X-Frame-Options": "DENY",
        "Cache-Control": "no-store",
    }
    return Page(body, headers)


def content_security_policy(connect: Iterable[str]) -> str:
    """The policy of the page. `connect` are URLs whose origins it may call to sign people in."""
    allowed = dict.fromkeys(filter(None, map(_origin, connect)))
    directives = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "media-src": "data:",
        "connect-src": " ".join(["'self'", *allowed]),
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in directives.items())


def _origin(url: str) -> str | None:
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}".lower()
    return origin if _SOURCE.fullmatch(origin) else None
