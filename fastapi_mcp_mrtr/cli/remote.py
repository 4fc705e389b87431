"""A server somewhere: the connection of the test client, over HTTP. Knows no terminal."""

import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx2  # noqa: TID251 - the person at the terminal says where to go

from fastapi_mcp_mrtr._version import __version__
from fastapi_mcp_mrtr.testing.connection import ALL_CAPABILITIES, Connection
from fastapi_mcp_mrtr.testing.wire import Notification

_INFO: Final = {"name": "fastapi-mcp-mrtr", "version": __version__}
_MAX_ROUNDS: Final = 100  # a person would have given up before


def unreachable(url: str) -> str | None:
    """Why nothing can ever be sent to this URL; None if something can."""
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        return str(error)
    if parts.scheme not in ("http", "https") or not parts.host:
        return "it begins with http:// or https:// and a host"
    return None if parts.port is None or 0 < parts.port < 65_536 else f"no port is {parts.port}"


class Remote(Connection):
    """A server at a URL. `on_notification` is called as notifications come, not at the end."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout: float,
        on_notification: Callable[[Notification], None],
    ) -> None:
        super().__init__(
            url, headers, ALL_CAPABILITIES, _INFO, True, "debug", _MAX_ROUNDS, _MAX_ROUNDS
        )
        self._on_notification = on_notification
        # A redirect would hand the Authorization header to somebody else.
        self.http = httpx2.Client(timeout=timeout, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.http.close()

    def advance(self, seconds: float) -> None:
        """No client moves a server's clock."""
        raise NotImplementedError  # pragma: no cover - asked for by Round.expire alone

    def _post(self, content: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], str]:
        lines: list[str] = []
        with self.http.stream("POST", self.url, content=content, headers=headers) as response:
            for line in response.iter_lines():
                lines.append(line)
                self._notice(line)
        return response.status_code, response.headers, "".join(f"{line}\n" for line in lines)

    def _notice(self, line: str) -> None:
        """Report a notification. Whether it is a legal one is found out once all has come."""
        if not line.startswith("data:"):
            return
        try:
            message: Any = json.loads(line[5:])
        except ValueError:
            return
        if isinstance(message, dict) and "id" not in message:
            params = message.get("params")
            self._on_notification(
                Notification(str(message.get("method")), params if isinstance(params, dict) else {})
            )
