"""One message each way: what a request carries, what a reply holds. Knows no rounds and no app."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from fastapi_mcp_mrtr.testing.failures import ErrorReply, RejectedRequest, UnexpectedOutcome

PROTOCOL_VERSION: Final = "2026-07-28"

MCP_NAME_SOURCE: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}
"""The member of `params` that `Mcp-Name` mirrors (streamable-http §Standard Request Headers)."""


class Omit(Enum):
    """The type of `OMIT`."""

    OMIT = "omit"


OMIT: Final = Omit.OMIT
"""In `headers=`, `meta=` and `params=`: leave this member out of the request."""

Headers = Mapping[str, str | Omit]
Meta = Mapping[str, Any]

Outcome = Literal["complete", "input_required", "error", "rejected"]


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification from the response stream, such as `notifications/progress`."""

    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """Everything that came back for one request.

    `kind` says which of the four outcomes it is; `result` and `error` read it and fail with the
    other outcome's facts.
    """

    request: Mapping[str, Any]
    status_code: int
    headers: Mapping[str, str] = field(repr=False)
    text: str = field(repr=False)
    message: Mapping[str, Any] | None
    notifications: tuple[Notification, ...] = ()

    @property
    def kind(self) -> Outcome:
        """What the server answered; `rejected` is plain HTTP without a JSON-RPC message."""
        if self.message is None:
            return "rejected"
        if "error" in self.message:
            return "error"
        # Older revisions have no resultType: their results are complete.
        required = self.message["result"].get("resultType") == "input_required"
        return "input_required" if required else "complete"

    @property
    def result(self) -> dict[str, Any]:
        """The JSON-RPC result, `input_required` ones included.

        Raises:
            ErrorReply: The server answered with an error.
            RejectedRequest: The app answered with plain HTTP.
        """
        if self.message is None:
            raise RejectedRequest(self)
        if "error" in self.message:
            raise self.error
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def error(self) -> ErrorReply:
        """The JSON-RPC error: `code`, `message`, `data`.

        Raises:
            UnexpectedOutcome: There is a result instead.
            RejectedRequest: The app answered with plain HTTP.
        """
        if self.message is None:
            raise RejectedRequest(self)
        if "error" not in self.message:
            raise UnexpectedOutcome(f"There is no error but a result: {self.message['result']!r}")
        error = self.message["error"]
        return ErrorReply(self, error["code"], error["message"], error.get("data"))


def overlay(base: Mapping[str, Any], changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """`base` with the changes over it and without what they omit."""
    merged = {**base, **(changes or {})}
    return {name: value for name, value in merged.items() if value is not OMIT}


def request_headers(body: Mapping[str, Any], arguments: Mapping[str, str]) -> dict[str, str]:
    """The headers that mirror a request, and those its tool wants for its arguments."""
    params: Mapping[str, Any] = body["params"]
    meta: Mapping[str, Any] = params.get("_meta", {})
    version = meta.get("io.modelcontextprotocol/protocolVersion", PROTOCOL_VERSION)
    name = params.get(MCP_NAME_SOURCE.get(body["method"], ""))
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": header_value(str(version)),
        "mcp-method": header_value(body["method"]),
    }
    if isinstance(name, str):
        headers["mcp-name"] = header_value(name)
    return headers | {f"mcp-param-{header.lower()}": value for header, value in arguments.items()}


def header_value(text: str) -> str:
    """The text itself where it is safe in a header, else its Base64 form (§Value Encoding)."""
    if _SAFE.fullmatch(text) and not _SENTINEL.fullmatch(text):
        return text
    # surrogatepass: what a test sends may be wrong on purpose; the server is to reject it.
    return f"=?base64?{b64encode(text.encode('utf-8', 'surrogatepass')).decode('ascii')}?="


_SAFE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_SENTINEL: Final = re.compile(r"=\?base64\?.*\?=")


def sse_data(text: str) -> Iterator[str]:
    """The data of each event in a Server-Sent Events stream; comments and empty events are none."""
    data: list[str] = []
    for line in _LINE_END.split(text):
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif line == "":
            if any(data):
                yield "\n".join(data)
            data.clear()


# The three line ends of the format; str.splitlines() knows more, which JSON may hold unescaped.
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def read_json(text: str) -> Any:
    """Strict JSON.

    Raises:
        ValueError: It is none, or holds NaN or an infinity.
    """
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
