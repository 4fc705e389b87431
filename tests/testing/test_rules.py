"""Each rule that the client holds a server to, broken once."""

import json
from typing import Any

import pytest

from fastapi_mcp_mrtr.testing import ALL_CAPABILITIES, ProtocolViolation
from fastapi_mcp_mrtr.testing.rules import check
from tests.testing.script import CONFIRM, PAY, POEM, ROOTS, SEAT

META = "io.modelcontextprotocol/"
JSON = "application/json; charset=utf-8"
STREAM = "text/event-stream"

DONE = {"resultType": "complete", "content": []}


def request(method: str = "tools/call", **meta: Any) -> dict[str, Any]:
    full = {f"{META}clientCapabilities": ALL_CAPABILITIES, **meta}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": full}}


def response(result: Any = None, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, **({} if result is None else {"result": result}), **members}


def error(code: Any, message: Any = "No", **members: Any) -> dict[str, Any]:
    return response(error={"code": code, "message": message, **members})


def asking(**asks: Any) -> dict[str, Any]:
    return response({"resultType": "input_required", "inputRequests": asks})


def progress(value: float, token: str = "t") -> dict[str, Any]:
    return notification("progress", progressToken=token, progress=value)


def log(level: str) -> dict[str, Any]:
    return notification("message", level=level, data="x")


def notification(name: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params}


def checked(message: Any, status: int = 200, sent: dict[str, Any] | None = None) -> Any:
    return check(sent or request(), status, JSON, json.dumps(message))


def streamed(*messages: Any, sent: dict[str, Any] | None = None) -> Any:
    text = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
    return check(sent or request(), 200, STREAM, text)


@pytest.mark.parametrize(
    "message",
    [
        response(DONE),
        asking(seat=SEAT, confirm=CONFIRM, pay=PAY, poem=POEM, roots=ROOTS),
        response({"resultType": "input_required", "requestState": "s"}),
    ],
    ids=["complete", "every kind of ask", "state alone"],
)
def test_a_good_reply_passes(message: Any) -> None:
    """spec: basic/index §Responses, mrtr §InputRequiredResult."""
    assert checked(message) == (message,)


def test_a_good_stream_passes() -> None:
    """spec: streamable-http §Receiving Messages."""
    sent = request(progressToken="t", **{f"{META}logLevel": "info"})
    assert len(streamed(progress(1), log("error"), progress(2.5), response(DONE), sent=sent)) == 4


def test_an_unknown_method_is_not_held_to_a_schema() -> None:
    """Extensions bring methods of their own; decision."""
    checked(response({"resultType": "complete", "x": 1}), sent=request("ext/method"))


@pytest.mark.parametrize(
    ("status", "text"), [(401, '{"detail":"No"}'), (404, "Not Found"), (307, "")]
)
def test_plain_http_is_no_message(status: int, text: str) -> None:
    """An HTTPException of a dependency stays plain HTTP; decision."""
    content_type = JSON if text.startswith("{") else ""
    assert check(request(), status, content_type, text) == ()


@pytest.mark.parametrize(
    ("status", "content_type", "text", "detail"),
    [
        (200, JSON, "{", "not JSON"),
        (200, JSON, '{"detail": "ok"}', "no JSON-RPC message"),
        (202, "", "", "HTTP 202 with no content type"),
        (200, "text/html", "<html>", "text/html"),
        (200, STREAM, ": only comments\n\n", "no JSON-RPC message"),
        (200, STREAM, "data: {\n\n", "not JSON"),
    ],
)
def test_a_request_gets_json_or_a_stream(
    status: int, content_type: str, text: str, detail: str
) -> None:
    """spec: MUST (streamable-http §Sending Messages 6)."""
    with pytest.raises(ProtocolViolation, match=detail) as failure:
        check(request(), status, content_type, text)
    assert failure.value.section == "streamable-http §Sending Messages"


def violates(
    section: str, detail: str, message: Any, status: int = 200, sent: dict[str, Any] | None = None
) -> None:
    with pytest.raises(ProtocolViolation, match=detail) as failure:
        checked(message, status, sent)
    assert failure.value.section == section
    assert section in str(failure.value)


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (response(), "either a result or an error"),
        (response(DONE, error={"code": 1, "message": ""}), "either a result or an error"),
        (response("text"), "A result is an object"),
        (response(DONE, id=2), "id was 1, the response's is 2"),
        (response(DONE, id="1"), "id was 1, the response's is '1'"),
        (response(DONE, id=True), "the response's is True"),
        ({"jsonrpc": "2.0", "result": DONE}, "the response's is None"),
    ],
)
def test_a_response_is_a_result_or_an_error_for_the_id_sent(message: Any, detail: str) -> None:
    """spec: MUST (basic/index §Responses)."""
    violates("basic/index §Responses", detail, message)


def test_a_result_comes_with_http_200() -> None:
    """A client that looks at the status first must not miss a result; decision."""
    violates("basic/index §Responses", "HTTP 500", response(DONE), 500)


@pytest.mark.parametrize(
    ("messages", "detail"),
    [
        ([response(DONE, jsonrpc="1.0")], "no JSON-RPC 2.0"),
        ([5, response(DONE)], "no JSON-RPC 2.0 message: 5"),
        ([response(DONE), response(DONE)], "goes on after the response"),
        ([{"jsonrpc": "2.0", "id": 9, "method": "ping"}, response(DONE)], "sent a request.*ping"),
        ([progress(1)], "ended with notifications/progress"),
    ],
)
def test_a_stream_holds_notifications_and_one_response(messages: list[Any], detail: str) -> None:
    """spec: MUST (streamable-http §Receiving Messages)."""
    with pytest.raises(ProtocolViolation, match=detail) as failure:
        streamed(*messages)
    assert failure.value.section == "streamable-http §Receiving Messages"


@pytest.mark.parametrize(
    ("message", "status", "detail"),
    [
        (response(error=5), 400, "integer code"),
        (error("-1"), 400, "integer code"),
        (error(True), 400, "integer code"),
        (error(-31001, message=None), 200, "integer code"),
        (error(-32002), 400, "-32002 is not this revision's"),
        (error(-32042), 400, "-32042 is not this revision's"),
        (error(-32099), 400, "-32099 is not this revision's"),
        (error(-32601), 200, "belongs to HTTP 404"),
        (error(-32020), 200, "belongs to HTTP 400"),
        (error(-32021, data={"requiredCapabilities": {}}), 200, "belongs to HTTP 400"),
        (error(-32021), 400, "data.requiredCapabilities"),
        (error(-32022, data={"supported": []}), 400, "data.requested"),
    ],
)
def test_an_error_has_a_code_of_this_revision_with_its_status_and_data(
    message: Any, status: int, detail: str
) -> None:
    """spec: MUST (basic/index §Error Codes, streamable-http §Protocol Version Header)."""
    violates("basic/index §Error Codes", detail, message, status)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (error(-31001), 200),
        (error(-32602), 400),
        (error(-32601), 404),
        (error(-32022, data={"supported": [], "requested": "v9"}), 400),
    ],
)
def test_a_good_error_passes(message: Any, status: int) -> None:
    """spec: basic/index §Error Responses."""
    assert checked(message, status) == (message,)


def test_an_error_of_the_transport_may_lack_the_id() -> None:
    """spec: streamable-http §Security 1: a 403 MAY comprise an error without id."""
    message = {"jsonrpc": "2.0", "error": {"code": -31003, "message": "Origin"}}
    assert checked(message, 403) == (message,)


def test_an_error_of_the_endpoint_may_not() -> None:
    """spec: MUST (basic/index §Error Responses): the same ID as the request."""
    message = {"jsonrpc": "2.0", "error": {"code": -32602, "message": "No"}}
    violates("basic/index §Responses", "the response's is None", message, 400)


@pytest.mark.parametrize("result", [{"content": []}, {"content": [], "resultType": "task"}])
def test_a_result_has_a_known_type(result: Any) -> None:
    """spec: MUST (basic/index §ResultType)."""
    violates("basic/index §ResultType", "resultType is", response(result))


def test_only_three_methods_ask() -> None:
    """spec: MUST NOT (mrtr §Supported Requests)."""
    sent = request("tools/list")
    violates("mrtr §Supported Requests", "tools/list must not", asking(seat=SEAT), sent=sent)


@pytest.mark.parametrize(
    ("result", "detail"),
    [
        ({}, "needs inputRequests or requestState"),
        ({"inputRequests": {}}, "needs inputRequests or requestState"),
        ({"requestState": 5}, "requestState is a string"),
        ({"requestState": None}, "requestState is a string"),
        ({"inputRequests": [SEAT]}, "inputRequests is a map"),
    ],
)
def test_an_ask_has_requests_or_a_state(result: Any, detail: str) -> None:
    """spec: MUST (mrtr §Server Requirements 6)."""
    message = response({"resultType": "input_required", **result})
    violates("mrtr §Server Requirements 6", detail, message)


def elicit(**params: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": "?", **params}}


def field(node: Any) -> dict[str, Any]:
    return elicit(requestedSchema={"type": "object", "properties": {"x": node}})


@pytest.mark.parametrize(
    ("ask", "detail"),
    [
        (5, "'k' is no elicitation"),
        ({"method": "ping"}, "'k' is no elicitation"),
        ({"method": "roots/list", "params": []}, "a method and params alone"),
        ({"method": "roots/list", "id": 1}, "a method and params alone"),
        ({"method": "elicitation/create"}, "needs a message"),
        (elicit(mode="video"), "no such mode: 'video'"),
        (elicit(mode="url"), "not a URL: None"),
        (elicit(mode="url", url="/pay"), "not a URL: '/pay'"),
        (elicit(), "an object schema"),
        (elicit(requestedSchema={"type": "string"}), "an object schema"),
        (elicit(requestedSchema={"type": "object"}), "needs properties"),
        (field(5), "'x' is no primitive"),
        (field({"type": "object"}), "'x' is no primitive"),
        (field({"type": "string", "format": "ipv4"}), "'x' is no primitive"),
        (field({"type": "array", "items": {"type": "string"}}), "'x' is no primitive"),
        (field({"type": "array"}), "'x' is no primitive"),
        (field({"anyOf": [{"type": "string"}]}), "'x' is no primitive"),
        ({"method": "sampling/createMessage", "params": {"maxTokens": 1}}, "needs messages"),
        ({"method": "sampling/createMessage", "params": {"messages": []}}, "needs maxTokens"),
    ],
)
def test_an_ask_is_one_of_three_well_formed_requests(ask: Any, detail: str) -> None:
    """spec: MUST (mrtr §Server Requirements 2, elicitation §Requested Schema)."""
    violates("mrtr §Server Requirements 2", detail, asking(k=ask))


@pytest.mark.parametrize(
    "node",
    [
        {"type": "string", "format": "date-time"},
        {"type": "number"},
        {"type": "integer"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}},
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
    ],
)
def test_every_primitive_passes(node: Any) -> None:
    """spec: elicitation §Requested Schema."""
    checked(asking(k=field(node)))


TOOLS_POEM = {**POEM, "params": {**POEM["params"], "toolChoice": {}}}


@pytest.mark.parametrize(
    ("ask", "declared", "missing"),
    [
        (SEAT, {}, "elicitation.form"),
        (SEAT, {"elicitation": {"url": {}}}, "elicitation.form"),
        (PAY, {"elicitation": {}}, "elicitation.url"),
        (PAY, {"elicitation": {"form": {}}}, "elicitation.url"),
        (POEM, {"elicitation": {}}, "sampling"),
        (TOOLS_POEM, {"sampling": {}}, "sampling.tools"),
        (ROOTS, {}, "roots"),
        (ROOTS, None, "roots"),
    ],
)
def test_an_ask_needs_the_declared_capability(ask: Any, declared: Any, missing: str) -> None:
    """spec: MUST NOT (mrtr §Server Requirements 7)."""
    sent = request(**{f"{META}clientCapabilities": declared})
    violates("mrtr §Server Requirements 7", f"asks for {missing},", asking(k=ask), sent=sent)


@pytest.mark.parametrize(
    ("ask", "declared"),
    [
        (SEAT, {"elicitation": {}}),
        (SEAT, {"elicitation": {"form": {}}}),
        (PAY, {"elicitation": {"url": {}}}),
        (POEM, {"sampling": {}}),
        (TOOLS_POEM, {"sampling": {"tools": {}}}),
        (ROOTS, {"roots": {}}),
    ],
)
def test_an_ask_that_was_declared_passes(ask: Any, declared: Any) -> None:
    """spec: elicitation §Capabilities: an empty one means form."""
    checked(asking(k=ask), sent=request(**{f"{META}clientCapabilities": declared}))


@pytest.mark.parametrize(
    ("method", "result", "detail"),
    [
        ("tools/call", {}, "content: Field required"),
        ("tools/list", {"tools": []}, "cacheScope: Field required"),
        ("completion/complete", {"completion": {"values": ["x"] * 101}}, "at most 100"),
    ],
)
def test_a_result_has_its_schema(method: str, result: Any, detail: str) -> None:
    """spec: the schema of the revision."""
    message = response({"resultType": "complete", **result})
    violates("schema", detail, message, sent=request(method))


def test_an_ask_has_its_schema_too() -> None:
    """spec: the schema of the revision."""
    ask = {**POEM, "params": {"messages": [5], "maxTokens": 1}}
    violates("schema", "messages.0", asking(k=ask))


@pytest.mark.parametrize(
    ("messages", "detail"),
    [
        ([notification("tools/list_changed")], "does not relate to a request"),
        ([progress(1, token="u")], "Progress for 'u'"),
        ([notification("progress", progressToken="t")], "Field required"),
        ([progress(1), progress(1)], "Progress went from 1 to 1"),
        ([log("debug")], "log message at debug, where info"),
        ([notification("message", level="loud", data=1)], "Input should be"),
    ],
)
def test_notifications_are_those_asked_for(messages: list[Any], detail: str) -> None:
    """spec: MUST (progress §Progress Flow, logging §Per-request log level)."""
    sent = request(progressToken="t", **{f"{META}logLevel": "info"})
    with pytest.raises(ProtocolViolation, match=detail):
        streamed(*messages, response(DONE), sent=sent)


@pytest.mark.parametrize("message", [progress(1), log("emergency")])
def test_nothing_is_notified_unasked(message: Any) -> None:
    """spec: MUST NOT (logging §Per-request log level, progress §Behavior 1)."""
    with pytest.raises(ProtocolViolation):
        streamed(message, response(DONE))


def test_a_subscription_brings_other_notifications() -> None:
    """spec: subscriptions §Receiving Notifications."""
    sent = request("subscriptions/listen")
    end = response({"resultType": "complete", "_meta": {f"{META}subscriptionId": 1}})
    streamed(notification("tools/list_changed"), end, sent=sent)
