"""The URLs in the settings: which are acceptable, and how they are compared. Pure.

Issuers and resources are identifiers: they are kept and emitted as configured, never taken apart
and put together again. A parser that appends a slash makes another identifier of them.
"""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""The path of the metadata at the root, and the start of its path form (RFC 9728 §3.1)."""

_URL: Final = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")  # RFC 3986 §2


def checked_url(setting: str, value: str, *, query: bool = False, fragment: bool = False) -> str:
    """Return `value` byte for byte, if it is an absolute https URL, or http on loopback.

    Raises:
        ValueError: it is not; or it has user information, or an unwanted query or fragment.
    """
    why = _objection(value, query=query, fragment=fragment)
    if why is not None:
        raise ValueError(f"{setting}={value!r} {why}.")
    return value


def _objection(value: object, *, query: bool, fragment: bool) -> str | None:
    if not isinstance(value, str) or not _URL.fullmatch(value):
        return "is no URL"
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no URL"
    if not host or "://" not in value:
        return "is no absolute URL"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        return "must be https; plain http is for loopback addresses only"
    if "@" in parts.netloc:
        return "must not have user information"
    if "#" in value and not fragment:
        return "must not have a fragment"
    if "?" in value and not query:
        return "must not have a query"
    return None


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine: `localhost`, 127.0.0.0/8, `::1`."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def canonical(uri: str) -> str:
    """A web URL with scheme and host in lower case, the rest as it was; other URIs as they are.

    The canonical form of a resource is lower-case there, and others are to be accepted
    (index §Canonical Server URI).
    """
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        return uri
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}"


def metadata_url(resource: str) -> str:
    """Where the metadata of a resource is: between its host and its path (RFC 9728 §3.1)."""
    scheme, _, rest = resource.partition("://")
    host, slash, path = rest.partition("/")
    # Only the slash that ends the host is dropped; one that ends the path belongs to it.
    return f"{scheme}://{host}{WELL_KNOWN}{slash + path if path else ''}"
