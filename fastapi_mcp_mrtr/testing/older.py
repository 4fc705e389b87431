"""A session of an older revision, played as today's rounds. Knows HTTP and messages, and no flow.

There the server sends its asks as requests while a call is under way. Here such a call looks like
one of today: what the server asked is an `input_required` reply, and its `requestState` names the
call that waits, so whoever plays rounds plays these too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mcp_types import methods
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from fastapi_mcp_mrtr.testing.failures import ProtocolViolation, UnexpectedOutcome
from fastapi_mcp_mrtr.testing.live import PATIENCE, LiveResponse, Loop, post_scope
from fastapi_mcp_mrtr.testing.wire import (
    OMIT,
    Headers,
    Meta,
    Notification,
    Omit,
    Reply,
    overlay,
    read_json,
    sse_data,
)

if TYPE_CHECKING:
    from fastapi_mcp_mrtr.testing.client import MCPTestClient

ASK: Final = "io.github.fastapi-mcp-mrtr/ask"
"""The member of an ask's `_meta` that says which key it is for, and how many come together."""

_SENDING: Final = "transports §Sending Messages to the Server"
_SESSION: Final = "mcp-session-id"

_LOOK: Final = 0.02
"""Seconds of silence after which to look whether the handler waits for something (`not_yet()`)."""


@dataclass
class _LiveCall:
    """A call that is under way."""

    request: Mapping[str, Any]
    response: LiveResponse
    headers: Headers
    read: int = 0
    """How many of its messages have been read."""
    open: dict[str, Any] = field(default_factory=dict)
    """The ids of the asks that wait for an answer, by key."""
    waited: int = 0
    """How often any handler had waited when this was last looked at."""


class OlderSession:
    """The line of an `MCPTestClient` that speaks an older revision."""

    def __init__(self, client: MCPTestClient, version: str) -> None:
        self.version = version
        self.id: str | None = None
        self._client = client
        self._loop = Loop(client.http)
        self._ids = itertools.count(1)
        self._calls: dict[str, _LiveCall] = {}
        self._responses: list[LiveResponse] = []

    def close(self) -> None:
        """Leave the calls that are under way."""
        for response in self._responses:
            self._loop.call(response.leave)
        self._responses.clear()
        self._calls.clear()
        self._loop.close()

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        headers: Headers | None,
        meta: Meta | Omit | None,
    ) -> Reply:
        """Send a request, or the answers to what one that is under way asked."""
        members = {**(params or {})}
        if "requestState" not in members:
            return self._begin(method, members, headers or {}, meta)
        state, answers = members["requestState"], members.get("inputResponses", {})
        call = self._calls.pop(state, None) if isinstance(state, str) else None
        if call is None or answers.keys() != call.open.keys():
            raise UnexpectedOutcome(
                f"{self.version} has no requestState: a call that asks can be answered once, every "
                "ask of it, by the session that made it"
            )
        for key, ask_id in call.open.items():
            answer = {"id": ask_id, "result": answers[key]}
            refused = self._tell(answer, {**call.headers, **(headers or {})})
            if refused is not None:
                # It still waits, for whoever may answer.
                self._calls[state] = call
                return refused
        call.open = {}
        return self._next(call)

    # ------------------------------------------------------------------------------- sessions

    def _begin(
        self, method: str, members: Mapping[str, Any], headers: Headers, meta: Meta | Omit | None
    ) -> Reply:
        if self.id is None and (refused := self._initialize(headers)) is not None:
            return refused
        reply = self._call(method, members, headers, meta)
        if reply.status_code != 404 or reply.kind != "error":
            return reply
        # Expired, or somebody else's: a client begins another (§Session Management 4).
        if (refused := self._initialize(headers)) is not None:
            return refused
        return self._call(method, members, headers, meta)

    def _initialize(self, headers: Headers) -> Reply | None:
        """Open a session. The reply if it is refused."""
        self.id = None
        client = self._client
        params = {
            "protocolVersion": self.version,
            "capabilities": client.capabilities,
            "clientInfo": client.client_info,
        }
        reply = self._call("initialize", params, headers, OMIT)
        if reply.kind != "complete":
            return reply
        if (served := reply.result["protocolVersion"]) != self.version:
            raise UnexpectedOutcome(f"The server serves {served} instead of {self.version}")
        self.id = reply.headers.get(_SESSION)
        refused = self._tell({"method": "notifications/initialized"}, headers)
        if refused is not None:
            self.id = None
            return refused
        if client.log_level is not None:
            self._call("logging/setLevel", {"level": client.log_level}, headers, OMIT)
        return None

    # ------------------------------------------------------------------------------- requests

    def _call(
        self, method: str, members: Mapping[str, Any], headers: Headers, meta: Meta | Omit | None
    ) -> Reply:
        request_id = next(self._ids)
        params = {**members}
        if not isinstance(meta, Omit):
            token = f"progress-{request_id}" if self._client.progress else OMIT
            own = overlay({"progressToken": token}, meta)
            params.update({"_meta": own} if own else {})
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        response, sent = self._post(body, headers)
        # What it asks is answered in the session that it was made in, whatever came after.
        kept = {_SESSION: self.id or OMIT, **_lower(headers)}
        return self._next(_LiveCall(sent, response, kept, waited=waits_of(self._client)))

    def _tell(self, members: Mapping[str, Any], headers: Headers) -> Reply | None:
        """Send what has no answer. The reply if it is refused, by an HTTP error (§Sending 4)."""
        response, sent = self._post({"jsonrpc": "2.0", **members}, headers)
        self._end(response)
        if (response.status, response.content) == (202, b""):
            return None
        if response.status is not None and response.status < 400:
            raise ProtocolViolation(
                _SENDING, f"HTTP {response.status} {response.content!r} for {dict(members)!r}"
            )
        call = _LiveCall(sent, response, headers)
        errors = (message for message in self._unread(call, True) if "error" in message)
        return self._reply(call, next(errors, None), [])

    def _post(self, body: Mapping[str, Any], headers: Headers) -> tuple[LiveResponse, Any]:
        content = json.dumps(body, default=to_jsonable_python).encode()
        own: dict[str, Any] = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if self.id is not None:
            own |= {_SESSION: self.id, "mcp-protocol-version": self.version}
        named = overlay({**own, **_lower(self._client.headers)}, _lower(headers))
        scope = post_scope(self._client.url, named)
        response: LiveResponse = self._loop.call(_respond, self._client.app, scope, content)
        self._responses = [each for each in self._responses if not each.is_over] + [response]
        return response, json.loads(content)

    # ------------------------------------------------------------------------------- replies

    def _next(self, call: _LiveCall) -> Reply:
        """What comes next of a call: what it asks, that it waits, or its end."""
        notifications: list[Notification] = []
        asks: dict[str, Any] = {}
        silent = 0.0
        while True:
            # As of now: what comes while this is read is for the next time.
            is_over, known = call.response.is_over, len(call.response.content)
            for message in self._unread(call, is_over):
                if "method" not in message:
                    return self._over(call, message, notifications)
                if "id" not in message:
                    self._check_notification(message)
                    params = message.get("params", {})
                    notifications.append(Notification(message["method"], params))
                    continue
                together = self._read_ask(call, message, asks)
                if len(asks) == together:
                    return self._asking(call, asks, notifications)
            if is_over:
                return self._over(call, None, notifications)
            self._loop.call(call.response.change, known, _LOOK)
            silent = 0.0 if len(call.response.content) > known else silent + _LOOK
            if (waits := waits_of(self._client)) > call.waited:
                call.waited = waits
                return self._asking(call, {}, notifications)
            if silent > PATIENCE:
                raise UnexpectedOutcome(f"The server said nothing for {PATIENCE:g} seconds")

    def _unread(self, call: _LiveCall, is_over: bool) -> Iterator[dict[str, Any]]:
        """The messages that were not read before. Each counts as read when it is given out."""
        response = call.response
        media_type = response.headers.get("content-type", "").partition(";")[0].strip()
        text = response.content.decode(errors="ignore")
        try:
            if media_type == "text/event-stream":
                messages = [read_json(data) for data in sse_data(text)]
            elif is_over and media_type == "application/json":
                messages = [read_json(text)]
            else:
                messages = []
        except ValueError as error:
            raise ProtocolViolation(_SENDING, f"The body is not JSON: {error}") from None
        for message in messages[call.read :]:
            call.read += 1
            if isinstance(message, dict) and message.get("jsonrpc") == "2.0":
                yield message

    def _read_ask(self, call: _LiveCall, message: Mapping[str, Any], asks: dict[str, Any]) -> int:
        """Add an ask to those that came, and return how many come together."""
        method, params = message["method"], {**message.get("params", {})}
        _valid(methods.parse_server_request, method, self.version, message.get("params"))
        about = params.pop("_meta", {}).get(ASK, {})
        key: str = about.get("key", method)
        of: int = about.get("of", 1)
        asks[key] = {"method": method, "params": params} if params else {"method": method}
        call.open[key] = message["id"]
        return of

    def _check_notification(self, message: Mapping[str, Any]) -> None:
        _valid(
            methods.parse_server_notification,
            message["method"],
            self.version,
            message.get("params"),
        )

    def _asking(
        self, call: _LiveCall, asks: Mapping[str, Any], notifications: list[Notification]
    ) -> Reply:
        state = f"call-{call.request['id']}"
        self._calls[state] = call
        result: dict[str, Any] = {"resultType": "input_required", "requestState": state}
        if asks:
            result["inputRequests"] = dict(asks)
        message = {"jsonrpc": "2.0", "id": call.request["id"], "result": result}
        return self._reply(call, message, notifications)

    def _over(
        self, call: _LiveCall, message: Mapping[str, Any] | None, notifications: list[Notification]
    ) -> Reply:
        self._end(call.response)
        if message is not None:
            self._check_response(call, message)
        return self._reply(call, message, notifications)

    def _end(self, response: LiveResponse) -> None:
        try:
            self._loop.call(response.end)
        except Exception:
            if self._client.raise_server_exceptions:
                raise

    def _check_response(self, call: _LiveCall, message: Mapping[str, Any]) -> None:
        method, sent = call.request["method"], call.request["id"]
        is_late = call.response.status == 200
        if message.get("id") != sent and (is_late or message.get("id") is not None):
            raise ProtocolViolation(_SENDING, f"{message.get('id')!r} answers {sent!r}")
        if "result" in message:
            _valid(methods.validate_server_result, method, self.version, message["result"])
            for member in ("resultType", "ttlMs", "cacheScope"):
                if member in message["result"]:
                    raise ProtocolViolation("schema", f"{self.version} has no {member}")

    def _reply(
        self,
        call: _LiveCall,
        message: Mapping[str, Any] | None,
        notifications: list[Notification],
    ) -> Reply:
        response = call.response
        reply = Reply(
            call.request,
            response.status or 500,
            response.headers,
            response.content.decode(errors="replace"),
            message,
            tuple(notifications),
        )
        self._client.replies.append(reply)
        return reply


def waits_of(client: MCPTestClient) -> int:
    """How often calls of older clients have waited for something other than an answer."""
    from fastapi_mcp_mrtr.http.router import find_router

    try:
        return find_router(client.app, client.url).waits
    except LookupError:  # a server of another make
        return 0


async def _respond(app: Any, scope: Any, body: bytes) -> LiveResponse:
    return LiveResponse(app, scope, body)


def _valid(parse: Callable[..., Any], method: str, version: str, what: Any) -> None:
    try:
        parse(method, version, what)
    except (ValidationError, KeyError, ValueError) as error:
        raise ProtocolViolation("schema", f"{method} in {version}: {error}") from None


def _lower(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in headers.items()}
