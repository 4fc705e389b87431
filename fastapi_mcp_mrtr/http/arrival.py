"""A request of an older client on its way from the endpoint to `older.py`. Knows no message."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.server.older.bridge import Caller

from .exchange import HTTPExchange


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that has been authenticated."""

    headers: RequestHeaders
    caller: Caller
    connection: HTTPExchange
    again: Callable[[], AbstractAsyncContextManager[Caller]]
    """Authenticates the same request again, for another round of its call."""
