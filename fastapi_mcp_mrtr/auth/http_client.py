"""How requests to an authorization server are made, over httpx2. Knows no token and no key.

httpx2 is an extra, so this module is imported by what needs it when that is constructed. A request
follows no redirect (who answers is part of the configuration), has a deadline for all of it, and
stops reading at a limit. Proxies and certificates come from the environment, as httpx2 has it.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

from anyio import fail_after

try:
    import httpx2
except ImportError as error:
    raise ImportError(
        "Fetching keys and introspecting tokens need httpx2: pip install 'fastapi-mcp-mrtr[oauth]'"
    ) from error

TIMEOUT: Final = 5.0
MAX_BYTES: Final = 256 * 1024  # a hundred RSA keys with their certificates are some 200 KiB


class FetchError(Exception):
    """The answer is not one to work with: another status, compressed, or too large."""


def client_settings() -> dict[str, Any]:
    """The keyword arguments of a client that is bounded as above, but for the deadline."""
    return {
        # Without compression, what was limited is what is read.
        "headers": {"Accept": "application/json", "Accept-Encoding": "identity"},
        "timeout": TIMEOUT,
        "follow_redirects": False,
        "event_hooks": {"response": [_limit]},
    }


async def fetch(url: str) -> bytes:
    """Get a document.

    Raises: Exception; whatever went wrong, among others FetchError and TimeoutError.
    """
    with fail_after(TIMEOUT):
        async with httpx2.AsyncClient(**client_settings()) as client:
            return body_of(await client.get(url))


def body_of(response: httpx2.Response) -> bytes:
    """The body of a 200.

    Raises: FetchError; it is another status.
    """
    if response.status_code != 200:
        raise FetchError(f"HTTP {response.status_code}")
    return response.content


async def _limit(response: httpx2.Response) -> None:
    """Called between the headers and the body of every response."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise FetchError("compressed, though nobody asked for that")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Limited(response.stream)


class _Limited(httpx2.AsyncByteStream):
    """A body that is not read beyond the limit."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_BYTES:
                raise FetchError(f"more than {MAX_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
