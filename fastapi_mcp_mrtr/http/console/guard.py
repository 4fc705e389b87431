"""Who may see the console: this computer, and the hosts that its settings name.

The page shows nothing that the endpoint does not tell any caller, but a developer who turns it on
does not mean to show it to the world. Where the server listens is not known when a router is made,
so each request is judged, by what a browser cannot choose. Decides; knows no route.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi_mcp_mrtr.http.origin import is_loopback
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.state.workers import SERVERS, program_names

from .settings import Console

REFUSAL: Final = "The console is for this computer only; Console(hosts=[...]) lets others in"

_FORWARDED: Final = (
    "forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip",
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto",
    "x-forwarded-server", "x-original-host",
)  # fmt: skip
"""What a proxy adds: behind one, the address of the client is the proxy's."""

_OLD: Final = "1.0"
"""The HTTP version that no browser speaks and that nginx, told nothing else, passes requests on in:
then with a loopback `Host`, and without any of the headers above."""


class Guard:
    """Decides who may see a console. Holds settings only."""

    def __init__(self, console: Console) -> None:
        self._hosts = console.hosts

    def refusal(self, headers: RequestHeaders, scope: Mapping[str, Any]) -> str | None:
        """Why a request is refused, or `None`. `scope` is the ASGI one."""
        if "host" in headers.conflicts:
            return REFUSAL
        if (headers.host or "").lower() in self._hosts:
            return None
        return None if is_local(headers, scope) else REFUSAL


def is_local(headers: RequestHeaders, scope: Mapping[str, Any]) -> bool:
    """Whether a request was made on this computer, and for it, as far as anybody can tell."""
    client = scope.get("client")
    return (
        not headers.conflicts & {"host", "origin"}
        and is_loopback(f"//{headers.host or ''}")
        and _is_loopback_address(client[0] if client else "")
        and scope.get("http_version") != _OLD
        and all(headers.get(name) is None for name in _FORWARDED)
    )


def is_same_origin(headers: RequestHeaders) -> bool:
    """Whether a page of the very host that is called sends this."""
    host, origin = (headers.host or "").lower(), (headers.origin or "").lower()
    return origin in (f"http://{host}", f"https://{host}")


def refuse_evident_host(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Stop a server that evidently listens to others than this computer.

    Raises: RuntimeError.
    """
    host = evident_host(argv, environ)
    if host is not None:
        raise RuntimeError(
            f"This server listens on {host}, and console=True is for this computer only. Listen "
            "on 127.0.0.1, turn the console off, or say under which names people may open it: "
            'MCPRouter(console=Console(hosts=["desk.example.com"])).'
        )


_LONG: Final = re.compile(r"--host[= ](\S+)")
_BIND: Final = re.compile(r"(?:--bind[= ]|-b[= ]?)(\S+)")
_VARIABLES: Final = ("UVICORN_HOST", "GRANIAN_HOST")
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - where some servers listen without being told


def evident_host(argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Where the command line or the environment says that the server listens, if not on loopback.

    Read: `--host` of uvicorn, granian and `fastapi`, their variables, and `--bind` of gunicorn and
    hypercorn. `None` is no proof: an address in code or in a configuration file cannot be seen.
    """
    programs = SERVERS.intersection(program_names(argv))
    line = " ".join(argv)
    found = _LONG.findall(line)
    if programs & {"gunicorn", "hypercorn"}:
        line = f"{environ.get('GUNICORN_CMD_ARGS', '')} {line}"
        found += map(_host_of, _BIND.findall(line))
        if not found and "gunicorn" in programs and environ.get("PORT"):
            found = [_EVERYWHERE]
    elif not found and programs:
        found = [environ[name] for name in _VARIABLES if environ.get(name)]
        if not found and "fastapi" in programs and "run" in argv:
            found = [_EVERYWHERE]
    return next((host for host in found if not _is_here(host)), None)


def _host_of(address: str) -> str:
    """The host of `host:port`; a socket's path as it is."""
    return address if address.startswith(("unix:", "fd:")) else address.rpartition(":")[0] or "*"


def _is_here(host: str) -> bool:
    return host == "localhost" or host.startswith(("unix:", "fd:")) or _is_loopback_address(host)


def _is_loopback_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
