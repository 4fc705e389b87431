"""headers: how MCP's headers are read, decoded and held against arguments."""

from base64 import b64encode
from contextlib import suppress
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.errors import HEADER_MISMATCH, MCPError
from fastapi_mcp_mrtr.protocol.headers import (
    HeaderValueError,
    ParamHeader,
    RequestHeaders,
    check_param_headers,
    decode_value,
    encode_value,
)


def read(*raw: tuple[str, str]) -> RequestHeaders:
    return RequestHeaders.read((n.encode("latin-1"), v.encode("latin-1")) for n, v in raw)


# ------------------------------------------------------------------------------------- reading


def test_each_header_has_its_attribute() -> None:
    """decision: the shell reads headers once, here."""
    headers = read(
        ("host", "localhost:8000"),
        ("origin", "http://localhost:3000"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "book"),
    )
    assert headers.host == "localhost:8000"
    assert headers.origin == "http://localhost:3000"
    assert headers.content_type == "application/json"
    assert headers.accept == "application/json, text/event-stream"
    assert headers.protocol_version == "2026-07-28"
    assert headers.mcp_method == "tools/call"
    assert headers.mcp_name == "book"
    assert headers.conflicts == frozenset()


@pytest.mark.parametrize(
    ("length", "is_more"),
    [
        ("100", False),
        ("101", True),
        ("0101", True),
        ("9" * 5000, True),
        ("", False),
        ("ten", False),
    ],
)
def test_a_body_is_as_long_as_its_sender_says(length: str, is_more: bool) -> None:
    """decision: what is no number says nothing; the bytes that come are counted anyway."""
    assert read(("content-length", length)).announces_more_than(100) is is_more
    assert not read().announces_more_than(100)


@pytest.mark.parametrize("text", ["book", "a" * 128, "a" * 129, "with space", "-"])
def test_a_header_says_what_it_spells(text: str) -> None:
    """decision: found by one comparison of bytes; longer text is held against it in full."""
    headers = read(("mcp-name", text))
    assert headers.says(b"mcp-name", text) is (len(text) <= 128)
    assert not headers.says(b"mcp-name", text + "x")
    assert headers.require_decoded("Mcp-Name") == text


@pytest.mark.parametrize(
    "text", [" book", "book ", "book\t", "büch", "=?base64?Ym9vaw==?=", "\x7f"]
)
def test_what_is_not_its_own_header_value_is_said_by_none(text: str) -> None:
    """spec: such values travel in the Base64 form (§Value Encoding)."""
    assert not read(("mcp-name", text)).says(b"mcp-name", text)


def test_headers_that_contradict_each_other_say_nothing() -> None:
    """decision: somebody else may have read the other one."""
    headers = read(("mcp-name", "book"), ("mcp-name", "cancel"))
    assert not headers.says(b"mcp-name", "book")


def test_a_header_that_was_not_sent_is_none() -> None:
    """decision: absent and empty are told apart."""
    assert read().origin is None
    assert read(("origin", "")).origin == ""


@pytest.mark.parametrize("name", ["mcp-method", "MCP-METHOD", "Mcp-Method"])
def test_names_have_no_case(name: str) -> None:
    """spec: MUST use case-insensitive comparisons for header names (§Case Sensitivity)."""
    assert read((name, "tools/call")).mcp_method == "tools/call"


@pytest.mark.parametrize("value", [" book", "book ", "\t book \t"])
def test_blanks_around_a_value_do_not_count(value: str) -> None:
    """spec: optional whitespace is no part of a field value (RFC 9110 §5.5)."""
    assert read(("mcp-name", value)).mcp_name == "book"


def test_a_header_repeated_with_one_value_is_that_value() -> None:
    """decision: proxies do it, and nobody can read it differently."""
    headers = read(("mcp-name", "book"), ("Mcp-Name", " book"))
    assert headers.mcp_name == "book"
    assert headers.conflicts == frozenset()


def test_a_header_repeated_with_two_values_is_recorded() -> None:
    """user report: duplicates must be noticed, whichever one a proxy looks at."""
    headers = read(("Mcp-Name", "book"), ("mcp-name", "cancel"), ("host", "a"), ("host", "b"))
    assert headers.mcp_name == "book"
    assert headers.conflicts == {"mcp-name", "host"}


@given(st.text(max_size=12) | st.sampled_from(["=?base64?aGk=?=", "book", " book", "a\tb"]))
def test_what_a_header_says_is_what_it_decodes_to(text: str) -> None:
    """decision: the short comparison accepts nothing that the careful one would not."""
    with suppress(UnicodeEncodeError):
        headers = read(("mcp-name", text))
        if headers.says(b"mcp-name", text):
            assert headers.require_decoded("Mcp-Name") == text


def test_a_header_says_nothing_while_any_two_contradict_each_other() -> None:
    """decision: the careful comparison then decides which one matters."""
    headers = read(("mcp-name", "book"), ("mcp-method", "a"), ("mcp-method", "b"))
    assert not headers.says(b"mcp-name", "book")
    assert read(("mcp-name", "book")).says(b"mcp-name", "book")


def test_accept_headers_are_joined() -> None:
    """spec: several lines of a list are one list (RFC 9110 §5.3)."""
    headers = read(("accept", "application/json"), ("accept", "text/event-stream"))
    assert headers.accept == "application/json, text/event-stream"
    assert headers.conflicts == frozenset()


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        (read(), "the Mcp-Method header is required"),
        (read(("mcp-method", "a"), ("mcp-method", "b")), "twice with different values"),
        (read(("mcp-method", "tøols")), "invalid characters"),
        (read(("mcp-method", "a\x00b")), "invalid characters"),
        (read(("mcp-method", "a\x7fb")), "invalid characters"),
    ],
)
def test_a_required_header_is_there_once_and_plain(headers: RequestHeaders, says: str) -> None:
    """spec: MUST reject with -32020 (streamable-http §Server Validation)."""
    with pytest.raises(MCPError, match=says) as caught:
        headers.require("Mcp-Method")
    assert caught.value.code == HEADER_MISMATCH


def test_a_required_header_may_hold_a_tab() -> None:
    """spec: values consist of visible ASCII, space and tab (§Value Encoding)."""
    assert read(("mcp-name", "a\tb")).require("Mcp-Name") == "a\tb"


# ------------------------------------------------------------------------------------ decoding


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("us-west1", "us-west1"),
        ("=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
        ("=?base64?IHBhZGRlZCA=?=", " padded "),
        ("=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
        ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
        ("=?base64?SGVsbG8=?=", "Hello"),
        ("=?base64??=", ""),
        ("", ""),
    ],
)
def test_the_examples_of_the_spec_decode(raw: str, text: str) -> None:
    """spec: the table in streamable-http §Value Encoding."""
    assert decode_value(raw) == text


@pytest.mark.parametrize(
    "raw",
    [
        "SGVsbG8=",
        "=?base64?SGVsbG8=",
        "SGVsbG8=?=",
        "=?BASE64?SGVsbG8=?=",
        "=?base64?=",  # the markers share a character
        "x=?base64?SGVsbG8=?=",
    ],
)
def test_without_both_markers_a_value_is_literal(raw: str) -> None:
    """spec: markers MUST appear exactly as shown (streamable-http §Value Encoding)."""
    assert decode_value(raw) == raw


@pytest.mark.parametrize(
    "payload",
    [
        "SGVsbG8",  # padding missing
        "SGVsbG8==",  # too much padding
        "SGVs!!!bG8=",  # foreign characters
        "SGVs bG8=",
        "SGVsbG9=",  # bits behind the end: a second spelling
        "SGVsbG8=SGVsbG8=",  # data after the padding
        "_-8=",  # the URL alphabet
        "=",
        "/w==",  # not UTF-8
        "7aCA",  # a surrogate
    ],
)
def test_broken_base64_is_refused(payload: str) -> None:
    """spec: MUST reject a malformed value; strict, so that one value has one spelling."""
    with pytest.raises(HeaderValueError):
        decode_value(f"=?base64?{payload}?=")


@pytest.mark.parametrize("raw", ["é", "a\nb", "a\x00", "\x7f", "世"])
def test_invalid_characters_are_refused(raw: str) -> None:
    """spec: visible ASCII, space and tab only (streamable-http §Value Encoding)."""
    with pytest.raises(HeaderValueError, match="invalid characters"):
        decode_value(raw)


@given(st.text())
def test_every_text_survives_encoding(text: str) -> None:
    """spec: servers MUST decode before comparing (streamable-http §Value Encoding)."""
    assert decode_value(f"=?base64?{b64encode(text.encode()).decode()}?=") == text


@given(st.text(st.characters()))
def test_decoding_gives_text_or_its_own_error(raw: str) -> None:
    """decision: no other exception comes out, whatever goes in."""
    with suppress(HeaderValueError):
        assert isinstance(decode_value(raw), str)


# -------------------------------------------------------------------------------------- Mcp-Param

REGION = ParamHeader("Region", ("region",), "string")
COUNT = ParamHeader("Count", ("count",), "integer")
FORCE = ParamHeader("Force", ("force",), "boolean")
NESTED = ParamHeader("Tenant", ("where", "tenant"), "string")


def mismatch(param: ParamHeader, headers: RequestHeaders, arguments: dict[str, Any]) -> str:
    with pytest.raises(MCPError) as caught:
        check_param_headers(headers, [param], arguments)
    assert caught.value.code == HEADER_MISMATCH
    assert param.full_name in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("param", "header", "value"),
    [
        (REGION, "us-west1", "us-west1"),
        (REGION, "=?base64?SGVsbG8=?=", "Hello"),
        (REGION, "SGVsbG8=", "SGVsbG8="),
        (REGION, "=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        (REGION, "", ""),
        (COUNT, "42", 42),
        (COUNT, "-7", -7),
        (COUNT, "42.0", 42),
        (COUNT, "42", 42.0),
        (COUNT, "0", 0),
        (COUNT, "-0", 0),
        (COUNT, str(2**53 - 1), 2**53 - 1),
        (COUNT, str(1 - 2**53), 1 - 2**53),
        (FORCE, "true", True),
        (FORCE, "false", False),
    ],
)
def test_a_header_that_agrees_is_accepted(param: ParamHeader, header: str, value: Any) -> None:
    """spec: MUST match after decoding; integers SHOULD be compared numerically."""
    headers = read((param.full_name, header))
    check_param_headers(headers, [param], {param.path[0]: value})


@pytest.mark.parametrize(
    ("param", "header", "value"),
    [
        (REGION, "us-west1", "us-west2"),
        (REGION, "US-WEST1", "us-west1"),
        (REGION, "padded", " padded "),
        (REGION, "=?base64?SGVsbG8?=", "Hello"),
        (REGION, "=?base64?SGVs!!!bG8=?=", "Hello"),
        (REGION, "=?base64?SGVsbG8=?=", "=?base64?SGVsbG8=?="),
        (REGION, "é", "é"),
        (REGION, "5", 5),
        (REGION, "['a']", ["a"]),
        (COUNT, "42", 43),
        (COUNT, "42.5", 42),
        (COUNT, "42.5", 42.5),
        (COUNT, "4.2e1", 42),
        (COUNT, "+42", 42),
        (COUNT, "4_2", 42),
        (COUNT, "٤٢", 42),
        (COUNT, "42", "42"),
        (COUNT, "1", True),
        (COUNT, "", 0),
        (COUNT, str(2**53), 2**53),
        (COUNT, "9" * 5000, 9),
        (COUNT, "1", float("inf")),
        (FORCE, "True", True),
        (FORCE, "1", True),
        (FORCE, "1", 1),
        (FORCE, "true", "true"),
        (FORCE, "true", False),
    ],
)
def test_a_header_that_disagrees_is_refused(param: ParamHeader, header: str, value: Any) -> None:
    """spec: MUST reject with -32020 (§Server Behavior for Custom Headers)."""
    raw = (param.full_name.encode(), header.encode())
    mismatch(param, RequestHeaders.read([raw]), {param.path[0]: value})


def test_a_value_without_its_header_is_refused() -> None:
    """spec: client omits header but value is in body: MUST reject."""
    assert "required" in mismatch(REGION, read(), {"region": "test-value"})


def test_two_headers_that_differ_are_refused() -> None:
    """user report: duplicates of Mcp-Param-* are checked too."""
    headers = read(("Mcp-Param-Region", "a"), ("mcp-param-region", "b"))
    assert "twice" in mismatch(REGION, headers, {"region": "a"})


@pytest.mark.parametrize("arguments", [{}, {"region": None}])
def test_a_value_that_is_absent_needs_no_header(arguments: dict[str, Any]) -> None:
    """spec: parameter null or not in arguments: MUST NOT expect the header."""
    check_param_headers(read(), [REGION], arguments)


@pytest.mark.parametrize("arguments", [{}, {"region": None}])
def test_a_header_without_a_value_is_refused(arguments: dict[str, Any]) -> None:
    """spec: client MUST omit the header; a proxy would act on what the tool never sees."""
    headers = read(("mcp-param-region", "us-west1"))
    assert "has no value" in mismatch(REGION, headers, arguments)


def test_headers_no_parameter_asks_for_are_ignored() -> None:
    """spec: only recognized headers are validated (§Server Behavior for Custom Headers)."""
    check_param_headers(read(("mcp-param-other", "é")), [REGION], {})


def test_nested_arguments_are_read_at_their_path() -> None:
    """spec: extraction reads the exact property path (§Schema Extension)."""
    headers = read(("mcp-param-tenant", "acme"))
    check_param_headers(headers, [NESTED], {"where": {"tenant": "acme"}})
    assert "params.arguments.where.tenant" in mismatch(NESTED, headers, {"where": {}})
    check_param_headers(read(), [NESTED], {"where": {}})


@pytest.mark.parametrize("where", ["acme", ["acme"], None, 5])
def test_a_path_that_leads_nowhere_is_an_absent_value(where: Any) -> None:
    """spec: no value at that path: the header is omitted (§Schema Extension)."""
    check_param_headers(read(), [NESTED], {"where": where})


def test_an_error_never_shows_a_parameter() -> None:
    """decision: a mirrored argument may be confidential, and errors are logged."""
    text = mismatch(REGION, read(("mcp-param-region", "hunter2")), {"region": "swordfish"})
    assert "hunter2" not in text
    assert "swordfish" not in text


@pytest.mark.parametrize("name", ["", "Re gion", "Région", "a:b", "a\r\nb", "a\n"])
def test_a_name_no_header_can_have_fails_at_registration(name: str) -> None:
    """spec: x-mcp-header MUST match 1*tchar (streamable-http §Schema Extension)."""
    with pytest.raises(ValueError, match="header name"):
        ParamHeader(name, ("region",), "string")


def test_a_header_for_no_argument_fails_at_registration() -> None:
    """decision: an empty path is a mistake of the caller."""
    with pytest.raises(ValueError, match="mirrors no argument"):
        ParamHeader("Region", (), "string")


@given(
    st.sampled_from(["string", "integer", "boolean"]),
    st.none() | st.binary(),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
)
def test_no_header_and_no_argument_makes_the_check_fail_otherwise(
    kind: Literal["string", "integer", "boolean"], header: bytes | None, value: Any
) -> None:
    """decision: the check ends in agreement or in -32020, never in another exception."""
    raw = [] if header is None else [(b"mcp-param-x", header)]
    param = ParamHeader("X", ("x",), kind)
    with suppress(MCPError):
        check_param_headers(RequestHeaders.read(raw), [param], {"x": value})


@pytest.mark.parametrize(
    "text", ["book_seat", "a b", "", "Müsli", " a", "a ", "a\tb", "=?base64?", "\n"]
)
def test_an_encoded_value_is_safe_and_decodes_to_its_text(text: str) -> None:
    """spec: MUST encode what a header cannot carry (streamable-http §Value Encoding)."""
    raw = encode_value(text)
    assert raw.isascii()
    assert raw.isprintable()
    assert raw == raw.strip()
    assert decode_value(raw) == text


def test_a_plain_value_is_sent_as_it_is() -> None:
    """spec: only what needs it is encoded (streamable-http §Value Encoding)."""
    assert encode_value("book_seat 2") == "book_seat 2"
