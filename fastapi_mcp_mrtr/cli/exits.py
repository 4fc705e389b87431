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
    httpx2.HTTPError: Exit.UNREACHABLE,
    httpx2.InvalidURL: Exit.UNREACHABLE,
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
    if isinstance(error, RejectedRequest):
        return f"The server answered HTTP {error.reply.status_code}: {error.reply.text[:500]}"
    return str(error) or type(error).__name__
