"""With which status the command ends, and why. Knows no terminal and no server."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

import httpx2  # noqa: TID251 - the person at the terminal says where to go

from fastapi_mcp_mrtr.testing.failures import ErrorReply, ProtocolViolation, RejectedRequest


class Exit(IntEnum):
    """The command's exit status. 2 is for a command line that makes no sense."""

    DONE = 0
    FAILED = 1
    """The tool's result says that it failed; the state does not open."""
    UNANSWERED = 3
    """The server asks what neither an option nor a terminal answers."""
    ERROR = 4
    """The server answered with a JSON-RPC error."""
    REJECTED = 5
    """The server answered with plain HTTP: 401, 403, 404, ..."""
    UNREACHABLE = 6
    """There was no answer."""
    VIOLATION = 7
    """What the server sent breaks the protocol."""


class Stop(Exception):
    """The command ends here: with this status, and a sentence for whoever typed it."""

    def __init__(self, status: Exit, message: str) -> None:
        super().__init__(message)
        self.status = status


_STATUS: Final[Mapping[type[Exception], Exit]] = {
    ErrorReply: Exit.ERROR,
    RejectedRequest: Exit.REJECTED,
    ProtocolViolation: Exit.VIOLATION,
    httpx2.RequestError: Exit.UNREACHABLE,
}


@contextmanager
def stopping() -> Iterator[None]:
    """Turn what a server does wrong into `Stop`."""
    try:
        yield
    except tuple(_STATUS) as error:
        status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
        raise Stop(status, _sentence(error)) from error


def _sentence(error: Exception) -> str:
    said = str(error) or type(error).__name__
    if isinstance(error, RejectedRequest):
        status, text = error.reply.status_code, error.reply.text.strip()
        said = f"The server answered HTTP {status}" + f": {text[:500]}" * bool(text)
        return said + _HINTS.get(status, "")
    if isinstance(error, httpx2.RequestError):
        # Without a name and a password that the address may hold.
        return f"No answer from {error.request.url.netloc.decode()}: {said}"
    return said


_HINTS: Final[Mapping[int, str]] = {
    404: "\nIs that the whole address? Most endpoints are at /mcp",
}
"""What usually lies behind a status."""
