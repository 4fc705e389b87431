"""A client's line to an endpoint: sends requests, checks replies, follows cursors.

Knows no flow.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import mcp_types
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from fastapi_mcp_mrtr.errors import HEADER_MISMATCH
from fastapi_mcp_mrtr.testing.failures import ProtocolViolation
from fastapi_mcp_mrtr.testing.param_headers import check_annotations, param_headers
from fastapi_mcp_mrtr.testing.rules import check
from fastapi_mcp_mrtr.testing.wire import (
    OMIT,
    PROTOCOL_VERSION,
    Headers,
    Meta,
    Notification,
    Omit,
    Reply,
    overlay,
    request_headers,
)

T = TypeVar("T", bound=BaseModel)

ALL_CAPABILITIES: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"context": {}, "tools": {}},
    "roots": {},
}
"""Everything that a client can declare for asks."""

_META: Final = "io.modelcontextprotocol/"


class Connection:
    """What a client is on the wire, whatever carries its requests.

    `MCPTestClient` says what the arguments mean.
    """

    version: str = PROTOCOL_VERSION
    """The revision that it speaks."""

    http: Any
    """What carries the requests: an HTTP client like `httpx2.Client`."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None,
        capabilities: Mapping[str, Any] | mcp_types.ClientCapabilities,
        client_info: Mapping[str, Any] | mcp_types.Implementation,
        progress: bool,
        log_level: mcp_types.LoggingLevel | None,
        max_rounds: int,
        max_waits: int,
    ) -> None:
        self.url = url
        self.headers = dict(headers or {})
        self.capabilities: dict[str, Any] = _plain(capabilities)
        self.client_info: dict[str, Any] = _plain(client_info)
        self.progress = progress
        self.log_level = log_level
        self.max_rounds = max_rounds
        self.max_waits = max_waits
        self.replies: list[Reply] = []
        self._ids = itertools.count(1)
        self._input_schemas: dict[str, Mapping[str, Any]] = {}

    # What the server offers

    def discover(self) -> mcp_types.DiscoverResult:
        """The server's versions, capabilities and instructions."""
        result = self.request("server/discover").result
        return mcp_types.DiscoverResult.model_validate(result)

    def list_tools(self) -> list[mcp_types.Tool]:
        """Every tool, all pages of them."""
        tools = self._all("tools/list", "tools", mcp_types.Tool)
        for tool in tools:
            check_annotations(tool.name, tool.input_schema)
        self._input_schemas = {tool.name: tool.input_schema for tool in tools}
        return tools

    def list_prompts(self) -> list[mcp_types.Prompt]:
        """Every prompt, all pages of them."""
        return self._all("prompts/list", "prompts", mcp_types.Prompt)

    def list_resources(self) -> list[mcp_types.Resource]:
        """Every static resource, all pages of them."""
        return self._all("resources/list", "resources", mcp_types.Resource)

    def list_resource_templates(self) -> list[mcp_types.ResourceTemplate]:
        """Every resource template, all pages of them."""
        return self._all(
            "resources/templates/list", "resourceTemplates", mcp_types.ResourceTemplate
        )

    def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        resource: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> mcp_types.Completion:
        """What the server suggests for an argument of a prompt or of a resource template.

        ```python
        client.complete("city", "Pa", prompt="itinerary")
        ```

        Raises:
            TypeError: Neither or both of `prompt` and `resource` are given.
        """
        if (prompt is None) == (resource is None):
            raise TypeError("complete() takes either prompt= or resource=")
        ref = (
            {"type": "ref/prompt", "name": prompt}
            if resource is None
            else {"type": "ref/resource", "uri": resource}
        )
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context is not None:
            params["context"] = {"arguments": dict(context)}
        result = self.request("completion/complete", params).result
        return mcp_types.Completion.model_validate(result["completion"])

    # The wire

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Headers | None = None,
        meta: Meta | Omit | None = None,
    ) -> Reply:
        """Send one request and return what came back.

        `headers` and `meta` change what the client sends by itself; `OMIT` as a value leaves that
        member out, and `meta=OMIT` all of `_meta`. A response stream is read to its end, so a
        `subscriptions/listen` that the server keeps open never returns.

        Raises:
            ProtocolViolation: The reply breaks a rule of the protocol.
        """
        mirrored = self._mirrored(method, params)
        reply = self._send(method, params, mirrored, headers, meta)
        if method != "tools/call" or headers or not _is_header_mismatch(reply):
            return reply
        # The tool may want headers that this client has not heard of (§Client Behavior).
        self.list_tools()
        if self._mirrored(method, params) == mirrored:
            return reply
        return self._send(method, params, self._mirrored(method, params), headers, meta)

    def _send(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        mirrored: Mapping[str, str],
        headers: Headers | None,
        meta: Meta | Omit | None,
    ) -> Reply:
        id_ = next(self._ids)
        full = {**(params or {})}
        if not isinstance(meta, Omit):
            full["_meta"] = overlay(self._meta(id_), meta)
        body = {"jsonrpc": "2.0", "id": id_, "method": method, "params": full}
        # Models, dates and the like may stand among the arguments.
        content = json.dumps(body, default=to_jsonable_python)
        all_headers = overlay(
            {**request_headers(body, mirrored), **_lower(self.headers)}, _lower(headers or {})
        )
        status_code, response_headers, text = self._post(content, all_headers)
        request = json.loads(content)
        content_type = response_headers.get("content-type", "")
        *before, final = check(request, status_code, content_type, text) or (None,)
        notifications = tuple(Notification(m["method"], m.get("params", {})) for m in before)
        reply = Reply(request, status_code, response_headers, text, final, notifications)
        self.replies.append(reply)
        return reply

    def _post(self, content: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], str]:
        """Send a body; the status, headers and body that come back."""
        response = self.http.post(self.url, content=content, headers=headers)
        return response.status_code, response.headers, response.content.decode()

    def _meta(self, id_: int) -> dict[str, Any]:
        asked_for = {
            "progressToken": f"progress-{id_}" if self.progress else OMIT,
            f"{_META}logLevel": self.log_level or OMIT,
        }
        return {
            f"{_META}protocolVersion": PROTOCOL_VERSION,
            f"{_META}clientInfo": self.client_info,
            f"{_META}clientCapabilities": self.capabilities,
            **asked_for,
        }

    def _mirrored(self, method: str, params: Mapping[str, Any] | None) -> dict[str, str]:
        if method != "tools/call" or not params:
            return {}
        schema = self._input_schemas.get(str(params.get("name")), {})
        return param_headers(schema, params.get("arguments"))

    def _all(self, method: str, member: str, item_type: type[T]) -> list[T]:
        items: list[T] = []
        cursors: list[str] = []
        while True:
            # Any string is a cursor, the empty one too (pagination §Implementation Guidelines).
            result = self.request(method, {"cursor": cursors[-1]} if cursors else None).result
            items += [item_type.model_validate(item) for item in result[member]]
            cursor = result.get("nextCursor")
            if cursor is None:
                return items
            if cursor in cursors:
                raise ProtocolViolation("pagination", f"{method} gave a cursor for the second time")
            cursors.append(cursor)


def _is_header_mismatch(reply: Reply) -> bool:
    return reply.kind == "error" and reply.error.code == HEADER_MISMATCH


def _lower(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in headers.items()}


def _plain(value: Mapping[str, Any] | BaseModel) -> dict[str, Any]:
    plain: dict[str, Any] = to_jsonable_python(value, by_alias=True, exclude_none=True)
    return plain
