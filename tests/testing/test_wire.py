"""What the client sends, and how it reads what comes back."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.testing import OMIT, ErrorReply, ProtocolViolation, Reply, UnexpectedOutcome
from fastapi_mcp_mrtr.testing.param_headers import check_annotations, param_headers
from fastapi_mcp_mrtr.testing.wire import (
    header_value,
    overlay,
    read_json,
    request_headers,
    sse_data,
)

VERSION = "io.modelcontextprotocol/protocolVersion"


def body(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"_meta": {VERSION: "2026-07-28"}, **params}}


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "book"}, "book"),
        ("prompts/get", {"name": "itinerary"}, "itinerary"),
        ("resources/read", {"uri": "fare://x"}, "fare://x"),
        ("tools/list", {"name": "no"}, None),
        ("tools/call", {"name": 5}, None),
        ("tools/call", {}, None),
    ],
)
def test_headers_mirror_the_method_and_the_name(
    method: str, params: dict[str, Any], name: str | None
) -> None:
    """spec: MUST (streamable-http §Standard Request Headers)."""
    headers = request_headers(body(method, **params), {})
    assert headers["mcp-method"] == method
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert headers["accept"] == "application/json, text/event-stream"
    assert headers.get("mcp-name") == name


def test_the_version_header_follows_the_meta() -> None:
    """spec: MUST (streamable-http §Protocol Version Header): the two match."""
    assert (
        request_headers({"method": "x", "params": {"_meta": {VERSION: "v9"}}}, {})[
            "mcp-protocol-version"
        ]
        == "v9"
    )
    assert (
        request_headers({"method": "x", "params": {}}, {})["mcp-protocol-version"] == "2026-07-28"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", ""),
        ("\ud800", "=?base64?7aCA?="),
    ],
)
def test_header_values_are_encoded_as_the_table_says(text: str, value: str) -> None:
    """spec: MUST (streamable-http §Value Encoding), its own examples."""
    assert header_value(text) == value


@given(st.text())
def test_every_header_value_is_plain_ascii_and_reads_back(text: str) -> None:
    """spec: MUST (streamable-http §Value Encoding)."""
    value = header_value(text)
    assert value.isascii()
    assert value.isprintable()
    assert value == value.strip()
    if value != text:
        assert b64decode(value[9:-2]).decode() == text


def test_overlay_omits_what_is_told() -> None:
    """One way to leave a member out of headers, params and `_meta`; decision."""
    assert overlay({"a": 1, "b": 2}, {"b": OMIT, "c": None}) == {"a": 1, "c": None}
    assert overlay({"a": OMIT}, None) == {}


def test_a_stream_gives_the_data_of_its_events() -> None:
    """Comments, other fields and empty events are no data (SSE §Interpreting)."""
    text = (
        ": ping\r\n\r\nevent: message\r\ndata: 1\r\n\r\nid\ndata:\n\ndata:2\ndata: 3\n\ndata: lost"
    )
    assert list(sse_data(text)) == ["1", "2\n3"]


def test_a_stream_breaks_lines_where_the_format_does() -> None:
    """U+2028 ends no line of a stream, and JSON may hold it unescaped; user report."""
    assert list(sse_data('data: "a\u2028b"\n\n')) == ['"a\u2028b"']


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity", "{", ""])
def test_json_is_strict(text: str) -> None:
    """NaN is not JSON, whatever Python thinks; decision."""
    with pytest.raises(ValueError, match=r".+"):
        read_json(text)


def test_a_reply_that_is_no_error_says_what_it_is() -> None:
    """Reading the wrong outcome fails with the right one; decision."""
    reply = Reply({}, 200, {}, "", {"result": {"resultType": "complete", "x": 1}})
    assert reply.kind == "complete"
    assert reply.result["x"] == 1
    with pytest.raises(UnexpectedOutcome, match="'x': 1"):
        _ = reply.error


def test_a_reply_that_is_an_error_raises_it() -> None:
    """Errors carry code, message, data and the reply; decision."""
    reply = Reply({}, 400, {}, "", {"error": {"code": -32602, "message": "No", "data": {"k": 1}}})
    with pytest.raises(ErrorReply) as failure:
        _ = reply.result
    assert (failure.value.code, failure.value.message, failure.value.data) == (
        -32602,
        "No",
        {"k": 1},
    )
    assert failure.value.reply is reply
    assert str(failure.value) == "[-32602] No {'k': 1} (HTTP 400)"


def test_an_error_without_data_reads_without_it() -> None:
    """The text of an error is what a failed test shows; decision."""
    reply = Reply({}, 400, {}, "", {"error": {"code": -32602, "message": "No"}})
    assert str(reply.error) == "[-32602] No (HTTP 400)"


REGION = {"type": "string", "x-mcp-header": "Region"}


def schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("kind", "value", "header"),
    [
        ("string", "eu", "eu"),
        ("string", "Zürich", "=?base64?WsO8cmljaA==?="),
        ("integer", -7, "-7"),
        ("boolean", True, "true"),
        ("string", None, None),
    ],
)
def test_annotated_arguments_become_headers(kind: str, value: Any, header: str | None) -> None:
    """spec: MUST (streamable-http §Client Behavior 3-5)."""
    node = {"type": kind, "x-mcp-header": "Region"}
    expected = {} if header is None else {"Region": header}
    assert param_headers(schema(region=node), {"region": value}) == expected


@pytest.mark.parametrize("arguments", [{}, {"place": {}}, {"place": 5}, None, 5])
def test_an_absent_argument_has_no_header(arguments: Any) -> None:
    """spec: MUST (streamable-http §Schema Extension): omitted when no value is at that path."""
    assert param_headers(schema(place=schema(region=REGION)), arguments) == {}


def test_a_nested_property_is_found_by_its_path() -> None:
    """spec: streamable-http §Schema Extension: the exact property path."""
    nested = schema(place=schema(region=REGION), region={"type": "string"})
    arguments = {"place": {"region": "eu"}, "region": "us"}
    assert param_headers(nested, arguments) == {"Region": "eu"}


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (schema(region=REGION | {"x-mcp-header": ""}), "'' is no header name"),
        (schema(region=REGION | {"x-mcp-header": "a b"}), "'a b' is no header name"),
        (schema(region=REGION | {"x-mcp-header": 5}), "5 is no header name"),
        (schema(region=REGION | {"type": "number"}), "not 'number'"),
        (schema(region={"x-mcp-header": "Region", "anyOf": [{}]}), "not None"),
        (schema(a=REGION, b=REGION | {"x-mcp-header": "REGION"}), "used twice"),
        (schema(list={"type": "array", "items": REGION}), "on properties alone"),
        ({"type": "object", "$defs": {"r": REGION}}, "on properties alone"),
        ({"type": "object", "anyOf": [schema(region=REGION)]}, "on properties alone"),
        ({"type": "object", "x-mcp-header": "Region"}, "on properties alone"),
    ],
)
def test_a_bad_annotation_is_refused(bad: dict[str, Any], complaint: str) -> None:
    """spec: MUST (streamable-http §Schema Extension): clients reject such definitions."""
    with pytest.raises(ProtocolViolation, match=complaint) as failure:
        check_annotations("search", bad)
    assert "'search'" in str(failure.value)


@pytest.mark.parametrize(
    "good",
    [
        schema(a=REGION, b={"type": "integer", "x-mcp-header": "Other"}),
        schema(place=schema(region=REGION)),
        schema(**{"x-mcp-header": {"type": "string"}}),
        schema(region=REGION) | {"required": ["region"]},
        schema(region={"type": "object", "default": {"x-mcp-header": ""}}),
    ],
)
def test_a_good_annotation_passes(good: dict[str, Any]) -> None:
    """A property of that name and a default that holds it are no annotations; decision."""
    check_annotations("search", good)
