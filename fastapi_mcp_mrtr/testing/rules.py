"""What a server of 2026-07-28 must keep to, checked on every reply. Pure: no I/O, no app.

Each rule yields its complaints about one exchange; `RULES` names the section that each comes from.
A rule may count on all the rules above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, get_args

from mcp_types import LoggingLevel, methods
from pydantic import ValidationError

from fastapi_mcp_mrtr.errors import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from fastapi_mcp_mrtr.testing.failures import ProtocolViolation
from fastapi_mcp_mrtr.testing.wire import PROTOCOL_VERSION, read_json, sse_data

_META: Final = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request with the JSON-RPC messages of its reply, in the order they came."""

    request: Mapping[str, Any]
    status_code: int
    messages: tuple[Any, ...]

    @property
    def method(self) -> str:
        return str(self.request["method"])

    @property
    def meta(self) -> Mapping[str, Any]:
        meta: Mapping[str, Any] = self.request["params"].get("_meta", {})
        return meta

    @property
    def final(self) -> Mapping[str, Any]:
        final: Mapping[str, Any] = self.messages[-1]
        return final

    @property
    def error(self) -> Mapping[str, Any] | None:
        return self.final.get("error")

    @property
    def result(self) -> Mapping[str, Any] | None:
        return self.final.get("result")


def check(
    request: Mapping[str, Any], status_code: int, content_type: str, text: str
) -> tuple[Any, ...]:
    """The JSON-RPC messages of a reply; none where the app answered with plain HTTP.

    Raises:
        ProtocolViolation: The reply breaks a rule.
    """
    messages = _messages(status_code, content_type, text)
    if messages:
        exchange = Exchange(request, status_code, messages)
        for section, rule in RULES:
            for complaint in rule(exchange):
                raise ProtocolViolation(section, complaint)
    return messages


def _messages(status_code: int, content_type: str, text: str) -> tuple[Any, ...]:
    media_type = content_type.partition(";")[0].strip().lower()
    try:
        if media_type == "text/event-stream":
            messages = tuple(read_json(data) for data in sse_data(text))
        else:
            messages = (read_json(text),) if media_type == "application/json" else ()
    except ValueError as error:
        raise ProtocolViolation(_SENDING, f"The body is not JSON: {error}") from None
    if any(isinstance(message, dict) and "jsonrpc" in message for message in messages):
        return messages
    if 200 <= status_code < 300:
        raise ProtocolViolation(
            _SENDING,
            f"HTTP {status_code} with {content_type or 'no content type'} carries no JSON-RPC "
            "message",
        )
    return ()


def _one_response_at_the_end(x: Exchange) -> Iterator[str]:
    for message in x.messages:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            yield f"This is no JSON-RPC 2.0 message: {message!r}"
    for message in x.messages[:-1]:
        if "method" not in message:
            yield f"The stream goes on after the response {message!r}"
        if "id" in message:
            yield f"The server sent a request on the stream: {message['method']}"
    if "method" in x.final:
        yield f"The stream ended with {x.final['method']} and without a response"


def _result_or_error(x: Exchange) -> Iterator[str]:
    if ("result" in x.final) == ("error" in x.final):
        yield "A response holds either a result or an error"
    if x.error is None and not isinstance(x.result, dict):
        yield f"A result is an object, not {x.result!r}"
    if x.error is None and x.status_code != 200:
        yield f"A result came with HTTP {x.status_code}"


def _same_id(x: Exchange) -> Iterator[str]:
    sent, echoed = x.request["id"], x.final.get("id")
    # Whoever refuses a request by its transport has not read its id.
    unread = "id" not in x.final and x.error is not None and x.status_code not in (200, 400, 404)
    if not unread and (type(sent), sent) != (type(echoed), echoed):
        yield f"The request's id was {sent!r}, the response's is {echoed!r}"


def _error_codes(x: Exchange) -> Iterator[str]:
    if x.error is None:
        return
    code = x.error.get("code") if isinstance(x.error, dict) else None
    if type(code) is not int or not isinstance(x.error.get("message"), str):
        yield f"An error has an integer code and a message, not {x.error!r}"
    elif code in _WITHDRAWN or (-32099 <= code <= -32020 and code not in _STATUS):
        yield f"The error code {code} is not this revision's to use"
    elif code in _STATUS and x.status_code != _STATUS[code]:
        yield f"Error {code} belongs to HTTP {_STATUS[code]}, not {x.status_code}"
    else:
        yield from _error_data(code, x.error.get("data"))


def _error_data(code: int, data: Any) -> Iterator[str]:
    for member, kind in _DATA.get(code, ()):
        if not isinstance(data, dict) or not isinstance(data.get(member), kind):
            yield f"Error {code} needs data.{member}, not {data!r}"


_STATUS: Final[Mapping[int, int]] = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
}
"""The HTTP status that the specification ties to an error code."""

_DATA: Final[Mapping[int, tuple[tuple[str, type], ...]]] = {
    MISSING_REQUIRED_CLIENT_CAPABILITY: (("requiredCapabilities", dict),),
    UNSUPPORTED_PROTOCOL_VERSION: (("supported", list), ("requested", str)),
}
"""What the specification wants in the data of an error."""

_WITHDRAWN: Final = frozenset({-32002, -32042})
"""Codes of earlier revisions that this one must not emit."""


def _result_type(x: Exchange) -> Iterator[str]:
    if x.result is not None and x.result.get("resultType") not in ("complete", "input_required"):
        yield f"resultType is {x.result.get('resultType')!r}"


def _asks_where_allowed(x: Exchange) -> Iterator[str]:
    if _asking(x) and x.method not in methods.INPUT_REQUIRED_METHODS:
        yield f"{x.method} must not ask for input"


def _asks_or_state(x: Exchange) -> Iterator[str]:
    result = _asking(x)
    if result is None:
        return
    if not result.get("inputRequests") and "requestState" not in result:
        yield "An input_required result needs inputRequests or requestState"
    if not isinstance(result.get("requestState", ""), str):
        yield "requestState is a string"
    if not isinstance(result.get("inputRequests", {}), dict):
        yield "inputRequests is a map"


def _ask_shapes(x: Exchange) -> Iterator[str]:
    for key, ask in _asks(x):
        if not isinstance(ask, dict) or ask.get("method") not in _SHAPES:
            yield f"{key!r} is no elicitation, sampling or roots request: {ask!r}"
        elif not isinstance(ask.get("params", {}), dict) or {"id", "jsonrpc"} & ask.keys():
            yield f"{key!r} is to have a method and params alone: {ask!r}"
        else:
            for complaint in _SHAPES[ask["method"]](ask.get("params", {})):
                yield f"{key!r}: {complaint}"


def _elicitation_shape(params: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(params.get("message"), str):
        yield "an elicitation needs a message"
    mode = params.get("mode", "form")
    if mode not in ("form", "url"):
        yield f"no such mode: {mode!r}"
    if mode == "url" and "://" not in str(params.get("url")):
        yield f"not a URL: {params.get('url')!r}"
    if mode == "form":
        schema = params.get("requestedSchema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield "requestedSchema is to be an object schema"
        elif not isinstance(schema.get("properties"), dict):
            yield "requestedSchema needs properties"
        else:
            for name, node in schema["properties"].items():
                if not _is_primitive(node):
                    yield f"the field {name!r} is no primitive: {node!r}"


def _is_primitive(node: Any) -> bool:
    if not isinstance(node, dict):
        return False
    match node.get("type"):
        case "string":
            return node.get("format") in (None, "email", "uri", "date", "date-time")
        case "array":
            items = node.get("items")
            return isinstance(items, dict) and ("enum" in items or "anyOf" in items)
        case kind:
            return kind in ("number", "integer", "boolean")


def _sampling_shape(params: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(params.get("messages"), list):
        yield "sampling needs messages"
    if type(params.get("maxTokens")) is not int:
        yield "sampling needs maxTokens"


def _roots_shape(params: Mapping[str, Any]) -> Iterator[str]:
    yield from ()


_SHAPES: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "elicitation/create": _elicitation_shape,
    "sampling/createMessage": _sampling_shape,
    "roots/list": _roots_shape,
}
"""What the params of each kind of ask must hold."""


def _declared_capabilities(x: Exchange) -> Iterator[str]:
    declared = x.meta.get(f"{_META}clientCapabilities", {})
    for key, ask in _asks(x):
        needed = _needed_capability(ask["method"], ask.get("params", {}))
        held: Any = declared
        for name in needed:
            # An elicitation capability without members means form (elicitation §Capabilities).
            implied = name == "form" and held == {}
            held = {} if implied else held.get(name) if isinstance(held, Mapping) else None
        if held is None:
            yield f"{key!r} asks for {'.'.join(needed)}, which the client did not declare"


def _needed_capability(method: str, params: Mapping[str, Any]) -> tuple[str, ...]:
    if method == "elicitation/create":
        return ("elicitation", params.get("mode", "form"))
    if method == "roots/list":
        return ("roots",)
    return ("sampling", "tools") if {"tools", "toolChoice"} & params.keys() else ("sampling",)


def _schema(x: Exchange) -> Iterator[str]:
    row: Any = methods.SERVER_RESULTS.get((x.method, PROTOCOL_VERSION))
    if x.result is None or row is None:
        return
    # The arms of a union are loose enough to take each other's results: resultType chooses.
    arms = {arm.__name__: arm for arm in get_args(row) or (row,)}
    asked = arms.pop("InputRequiredResult", None)
    arm = next(iter(arms.values())) if _asking(x) is None else asked
    try:
        arm.model_validate(x.result, by_name=False)
    except ValidationError as error:
        # Of an ask's own union, the arm that fits best goes deepest.
        deepest = max(error.errors(include_url=False), key=lambda e: len(e["loc"]))
        yield f"{'.'.join(map(str, deepest['loc']))}: {deepest['msg']}"


def _notifications(x: Exchange) -> Iterator[str]:
    if x.method == "subscriptions/listen":
        return
    token, level = x.meta.get("progressToken"), x.meta.get(f"{_META}logLevel")
    progress: list[float] = []
    for message in x.messages[:-1]:
        method, params = message["method"], message.get("params")
        if method not in ("notifications/progress", "notifications/message"):
            yield f"{method} does not relate to a request"
        try:
            methods.parse_server_notification(method, PROTOCOL_VERSION, params)
        except ValidationError as error:
            yield f"{method}: {error.errors(include_url=False)[0]['msg']}: {params!r}"
        if method == "notifications/progress":
            progress.append(params["progress"])
            if token is None or params["progressToken"] != token:
                yield f"Progress for {params['progressToken']!r}, which was not asked for"
        elif level not in _LEVELS or _LEVELS.index(params["level"]) < _LEVELS.index(level):
            yield f"A log message at {params['level']}, where {level or 'none'} was asked for"
    for before, after in pairwise(progress):
        if not before < after:
            yield f"Progress went from {before} to {after}"


_LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)


def _asking(x: Exchange) -> Mapping[str, Any] | None:
    result = x.result
    return result if result is not None and result["resultType"] == "input_required" else None


def _asks(x: Exchange) -> list[tuple[str, Any]]:
    result = _asking(x) or {}
    return list(result.get("inputRequests", {}).items())


_SENDING: Final = "streamable-http §Sending Messages"

RULES: Final[tuple[tuple[str, Callable[[Exchange], Iterator[str]]], ...]] = (
    ("streamable-http §Receiving Messages", _one_response_at_the_end),
    ("basic/index §Responses", _result_or_error),
    ("basic/index §Responses", _same_id),
    ("basic/index §Error Codes", _error_codes),
    ("basic/index §ResultType", _result_type),
    ("mrtr §Supported Requests", _asks_where_allowed),
    ("mrtr §Server Requirements 6", _asks_or_state),
    ("mrtr §Server Requirements 2", _ask_shapes),
    ("mrtr §Server Requirements 7", _declared_capabilities),
    ("schema", _schema),
    ("basic/patterns/progress, server/utilities/logging", _notifications),
)
"""Every rule beside the section of the specification that it comes from."""
