"""inbound: what a POST is, and which error comes first when it is nothing the server can serve."""

import gc
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
)
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.protocol.inbound import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    PROTOCOL_VERSION_KEY,
    InboundNotification,
    InboundRequest,
    Rejection,
    classify,
    naming_versions,
)

V = "2026-07-28"
SUPPORTED = (V,)
META: dict[str, Any] = {PROTOCOL_VERSION_KEY: V, CLIENT_CAPABILITIES_KEY: {}}
ABSENT: Any = object()

Outcome = InboundRequest | InboundNotification | Rejection


def headers(**changes: str | None) -> RequestHeaders:
    """The headers of a tools/call of `book`; a keyword changes one, None removes it."""
    values: dict[str, str | None] = {
        "MCP-Protocol-Version": V,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "book",
    }
    values.update({name.replace("_", "-"): value for name, value in changes.items()})
    return RequestHeaders.read(
        (name.encode(), value.encode("latin-1"))
        for name, value in values.items()
        if value is not None
    )


def post(message: Any, head: RequestHeaders | None = None) -> Outcome:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return classify(head or headers(), body, supported=SUPPORTED)


def call(*, meta: Any = META, params: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """A tools/call of `book`. `params` and `top` change members; ABSENT removes one."""
    inner = {"name": "book", "arguments": {}, "_meta": meta, **(params or {})}
    message = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {name: value for name, value in inner.items() if value is not ABSENT},
        **top,
    }
    return {name: value for name, value in message.items() if value is not ABSENT}


def accepted(message: Any, head: RequestHeaders | None = None) -> InboundRequest:
    outcome = post(message, head)
    assert isinstance(outcome, InboundRequest)
    return outcome


def refused(message: Any, head: RequestHeaders | None = None, *, code: int) -> Rejection:
    outcome = post(message, head)
    assert isinstance(outcome, Rejection)
    assert (outcome.code, outcome.status) == (code, 400)
    return outcome


# ------------------------------------------------------------------------------------ requests


def test_a_request_in_order_is_handed_on() -> None:
    """spec: a request with its headers and its _meta (§Standard Request Headers)."""
    request = accepted(call(params={"arguments": {"row": 4}}))
    assert request.id == 7
    assert request.method == "tools/call"
    assert request.params["arguments"] == {"row": 4}
    assert request.meta.protocol_version == V
    assert request.meta.client_capabilities == {}
    assert request.meta.raw == META
    assert request.params["_meta"] is request.meta.raw


def test_optional_metadata_is_none_when_absent() -> None:
    """spec: clientInfo, logLevel, progressToken and the trace context are optional (§_meta)."""
    meta = accepted(call()).meta
    assert meta.client_info is None
    assert meta.log_level is None
    assert meta.progress_token is None
    assert meta.traceparent is None
    assert meta.tracestate is None


def test_optional_metadata_is_read() -> None:
    """spec: the reserved keys of basic/index §_meta."""
    info = {"name": "client", "version": "1", "title": "Client"}
    parent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
    meta = accepted(
        call(
            meta={
                **META,
                CLIENT_INFO_KEY: info,
                LOG_LEVEL_KEY: "notice",
                "progressToken": 12,
                "traceparent": parent,
                "tracestate": "a=b",
                "com.example/x": 1,
            }
        )
    ).meta
    assert meta.client_info == info
    assert meta.log_level == "notice"
    assert meta.progress_token == 12
    assert meta.traceparent == parent
    assert meta.tracestate == "a=b"
    assert meta.raw["com.example/x"] == 1


@pytest.mark.parametrize("request_id", [0, -1, 1785000000000, 10**30, "", "a-1", "日本"])
def test_ids_are_strings_or_integers(request_id: str | int) -> None:
    """spec: requests MUST include a string or integer ID (basic/index §Requests)."""
    assert accepted(call(id=request_id)).id == request_id


def test_a_method_nobody_knows_is_handed_on() -> None:
    """decision: which methods exist is for the dispatcher, after every check here."""
    request = accepted(call(method="unknown/method"), headers(Mcp_Method="unknown/method"))
    assert request.method == "unknown/method"


def test_params_are_needed_only_for_their_meta() -> None:
    """spec: every request carries _meta, so params cannot be left out (basic/index §_meta)."""
    refused(call(params=None) | {"params": {}}, code=INVALID_PARAMS)
    message = call(method="tools/list")
    del message["params"]
    head = headers(Mcp_Method="tools/list")
    assert "_meta is required" in refused(message, head, code=INVALID_PARAMS).message


# --------------------------------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"jsonrpc":"2.0",}',
        b"{} {}",
        b"\xff\xfe",
        b'"\xff"',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":"\\ud800"}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 300 + b"1" + b"}" * 300,
    ],
)
def test_what_is_no_json_is_a_parse_error(body: bytes) -> None:
    """spec: JSON-RPC -32700; user report: malformed JSON must never be a 500."""
    rejection = refused(body, code=PARSE_ERROR)
    assert rejection.id is None
    assert rejection.message.startswith("Parse error: ")


@pytest.mark.parametrize("message", [[], [call()], None, 1, "x", True])
def test_what_is_no_object_is_refused(message: Any) -> None:
    """spec: the body MUST be a single request or notification (§Sending Messages 4)."""
    assert refused(message, code=INVALID_REQUEST).id is None


def test_a_batch_is_told_so() -> None:
    """decision: a client of an older revision learns what to change."""
    assert "batches" in refused([call()], code=INVALID_REQUEST).message


@pytest.mark.parametrize("version", [ABSENT, None, "1.0", 2.0, ""])
def test_jsonrpc_must_be_2_0(version: Any) -> None:
    """spec: messages MUST follow JSON-RPC 2.0 (basic/index §Messages)."""
    assert refused(call(jsonrpc=version), code=INVALID_REQUEST).id == 7


@pytest.mark.parametrize("request_id", [None, True, False, 1.0, 1.5, {}, []])
def test_other_ids_are_refused_and_not_echoed(request_id: Any) -> None:
    """spec: the ID MUST NOT be null (basic/index §Requests); only a legal one is echoed."""
    assert refused(call(id=request_id), code=INVALID_REQUEST).id is None


@pytest.mark.parametrize("method", [ABSENT, None, "", 5, ["tools/call"]])
def test_a_method_is_a_non_empty_string(method: Any) -> None:
    """spec: JSON-RPC 2.0 §Request object."""
    refused(call(method=method), code=INVALID_REQUEST)


@pytest.mark.parametrize("params", [None, [], "x", 0, False])
def test_params_must_be_an_object(params: Any) -> None:
    """spec: `params` is an object (basic/index §Requests)."""
    message = {**call(), "params": params}
    assert refused(message, code=INVALID_PARAMS).id == 7


@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": 1, "message": "no"}}])
def test_posted_responses_are_refused_without_an_id(answer: dict[str, Any]) -> None:
    """spec: the client MUST NOT send responses (§Sending Messages 4)."""
    rejection = refused({"jsonrpc": "2.0", "id": 1, **answer}, code=INVALID_REQUEST)
    assert rejection.id is None
    assert "responses" in rejection.message


@pytest.mark.parametrize("name", ["arguments", "inputResponses"])
@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400 + ".0"])
@pytest.mark.parametrize("shape", ['{"x":%s}', '{"x":[1,{"y":%s}]}', "[[%s]]"])
def test_a_number_too_large_for_a_float_is_refused(name: str, number: str, shape: str) -> None:
    """decision: it would read as infinity, which no JSON can say again."""
    raw = json.dumps(call(params={name: "@"})).replace('"@"', shape % number).encode()
    assert f"params.{name}" in refused(raw, code=INVALID_PARAMS).message


def test_other_numbers_are_left_alone() -> None:
    """decision: floats near the limit, nested values and the text Infinity are all fine."""
    arguments = {"a": [1.5, {"b": 1e308}, "Infinity"], "c": {"d": None}, "e": 10**400}
    assert accepted(call(params={"arguments": arguments})).params["arguments"] == arguments


# ---------------------------------------------------------------------------------- notifications


@pytest.mark.parametrize("params", [{}, {"requestId": 1}])
def test_a_notification_needs_no_headers(params: dict[str, Any]) -> None:
    """spec: header requirements for notification POSTs are not defined (§Sending Messages)."""
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    assert post(message, RequestHeaders.read([])) == InboundNotification(
        "notifications/cancelled", params
    )


def test_a_notification_needs_no_params() -> None:
    """spec: `params` is optional (basic/index §Notifications)."""
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert post(message) == InboundNotification("notifications/initialized", {})


def test_a_request_without_an_id_cannot_be_accepted() -> None:
    """spec: a notification that cannot be accepted is an HTTP error without an id."""
    assert refused(call(id=ABSENT), code=INVALID_REQUEST).id is None


# --------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    "changes",
    [
        {"Mcp_Method": None},
        {"Mcp_Method": "prompts/list"},
        {"Mcp_Method": "TOOLS/CALL"},
        {"Mcp_Method": "tools/call\x01"},
        {"Mcp_Name": None},
        {"Mcp_Name": "wrong_tool_name"},
        {"Mcp_Name": "BOOK"},
        {"Mcp_Name": "=?base64?Ym9vaw?="},
        {"MCP_Protocol_Version": None},
        {"MCP_Protocol_Version": "2025-11-25"},
    ],
)
def test_a_header_that_is_missing_or_disagrees_is_refused(changes: dict[str, str | None]) -> None:
    """spec: MUST reject with 400 and -32020 (streamable-http §Server Validation)."""
    assert refused(call(), headers(**changes), code=HEADER_MISMATCH).id == 7


@pytest.mark.parametrize("name", ["Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"])
def test_a_header_sent_twice_with_different_values_is_refused(name: str) -> None:
    """user report: a second header named another tool than the one that ran."""
    raw = [(b"mcp-protocol-version", V.encode()), (b"mcp-method", b"tools/call")]
    raw += [(b"mcp-name", b"book"), (name.lower().encode(), b"other")]
    assert "twice" in refused(call(), RequestHeaders.read(raw), code=HEADER_MISMATCH).message


@pytest.mark.parametrize("name", [" book ", "=?base64?Ym9vaw==?="])
def test_a_name_is_trimmed_and_decoded_before_it_is_compared(name: str) -> None:
    """spec: MUST decode an encoded Mcp-Name before comparing (§Value Encoding)."""
    accepted(call(), headers(Mcp_Name=name))


@pytest.mark.parametrize("name", ["Mcp_Method", "MCP_Protocol_Version"])
def test_blanks_around_any_mirrored_header_do_not_count(name: str) -> None:
    """spec: optional whitespace is no part of a field value (RFC 9110 §5.5)."""
    accepted(call(), headers(**{name: f"\t{headers().get(name.lower().replace('_', '-'))} "}))


def test_a_name_outside_ascii_travels_encoded() -> None:
    """spec: MUST encode what plain ASCII cannot carry (§Value Encoding)."""
    encoded = f"=?base64?{b64encode('büchen'.encode()).decode()}?="
    accepted(call(params={"name": "büchen"}), headers(Mcp_Name=encoded))
    refused(call(params={"name": "büchen"}), headers(Mcp_Name="büchen"), code=HEADER_MISMATCH)


@pytest.mark.parametrize(
    ("method", "source"),
    [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")],
)
def test_methods_that_need_a_name(method: str, source: str) -> None:
    """spec: the table in streamable-http §Standard Request Headers."""
    message = call(method=method, params={"name": ABSENT, source: "file:///a"})
    accepted(message, headers(Mcp_Method=method, Mcp_Name="file:///a"))
    head = headers(Mcp_Method=method, Mcp_Name=None)
    assert "Mcp-Name" in refused(message, head, code=HEADER_MISMATCH).message


def test_other_methods_need_no_name() -> None:
    """spec: Mcp-Name is required for three methods only."""
    accepted(call(method="tools/list"), headers(Mcp_Method="tools/list", Mcp_Name=None))


@pytest.mark.parametrize("name", [ABSENT, None, 5, ["book"]])
def test_a_name_must_be_a_string(name: Any) -> None:
    """decision: later code may rely on it."""
    assert "params.name" in refused(call(params={"name": name}), code=INVALID_PARAMS).message


def test_a_mismatch_shows_both_values_in_short() -> None:
    """spec: the example error names both; decision: never more than a line of either."""
    text = refused(
        call(params={"name": "x" * 1000}), headers(Mcp_Name="wrong"), code=HEADER_MISMATCH
    ).message
    assert "'wrong'" in text
    assert "x" * 64 + "..." in text
    assert len(text) < 200


# ----------------------------------------------------------------------------------------- _meta


@pytest.mark.parametrize("key", [PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY])
@pytest.mark.parametrize("value", [ABSENT, None, 1, [], True])
def test_required_metadata(key: str, value: Any) -> None:
    """spec: a request missing a required field MUST be rejected with -32602 and 400 (§_meta)."""
    meta = {name: v for name, v in {**META, key: value}.items() if v is not ABSENT}
    assert key in refused(call(meta=meta), code=INVALID_PARAMS).message


@pytest.mark.parametrize("meta", [ABSENT, None, [], "x"])
def test_meta_must_be_an_object(meta: Any) -> None:
    """spec: -32602 for a request without its metadata (basic/index §_meta)."""
    assert "_meta" in refused(call(meta=meta), code=INVALID_PARAMS).message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (CLIENT_INFO_KEY, "client"),
        (CLIENT_INFO_KEY, {"name": "client"}),
        (CLIENT_INFO_KEY, {"name": 1, "version": "1"}),
        (LOG_LEVEL_KEY, "verbose"),
        (LOG_LEVEL_KEY, 3),
        (LOG_LEVEL_KEY, ["info"]),
        ("progressToken", 1.5),
        ("progressToken", True),
        ("progressToken", {}),
    ],
)
def test_optional_metadata_of_the_wrong_type(key: str, value: Any) -> None:
    """spec: the types of basic/index §_meta."""
    assert key in refused(call(meta={**META, key: value}), code=INVALID_PARAMS).message


@pytest.mark.parametrize("key", [CLIENT_INFO_KEY, LOG_LEVEL_KEY, "progressToken", "traceparent"])
def test_optional_metadata_may_be_null(key: str) -> None:
    """decision: some serializers write null for what is absent, and nothing depends on it."""
    accepted(call(meta={**META, key: None}))


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_log_levels(level: str) -> None:
    """spec: the levels of RFC 5424 (utilities/logging)."""
    assert accepted(call(meta={**META, LOG_LEVEL_KEY: level})).meta.log_level == level


@pytest.mark.parametrize("token", ["", "p", 0, -5, 10**20])
def test_progress_tokens(token: str | int) -> None:
    """spec: a progress token is a string or an integer (patterns/progress)."""
    assert accepted(call(meta={**META, "progressToken": token})).meta.progress_token == token


@pytest.mark.parametrize("key", ["traceparent", "tracestate"])
def test_a_trace_context_that_is_no_text_is_dropped(key: str) -> None:
    """decision: tracing never makes a request fail."""
    meta = accepted(call(meta={**META, key: 5})).meta
    assert meta.traceparent is None
    assert meta.tracestate is None


@pytest.mark.parametrize(
    "capabilities",
    [
        {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}},
        {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}},
        {"elicitation": {"form": {}, "later": 3}},
        {"extensions": {"io.modelcontextprotocol/tasks": {}}, "experimental": {"x": {}}},
        {"later": True},
    ],
)
def test_capabilities_are_kept_as_sent(capabilities: dict[str, Any]) -> None:
    """spec: the shape of ClientCapabilities; nothing is closed."""
    meta = {**META, CLIENT_CAPABILITIES_KEY: capabilities}
    assert accepted(call(meta=meta)).meta.client_capabilities == capabilities


@pytest.mark.parametrize(
    ("capabilities", "names"),
    [
        ({"elicitation": None}, "elicitation"),
        ({"elicitation": True}, "elicitation"),
        ({"elicitation": {"url": False}}, "elicitation.url"),
        ({"elicitation": {"form": None}}, "elicitation.form"),
        ({"sampling": []}, "sampling"),
        ({"sampling": {"tools": True}}, "sampling.tools"),
        ({"roots": False}, "roots"),
        ({"extensions": ["a"]}, "extensions"),
        ({"extensions": {"com.example/x": True}}, "extensions.com.example/x"),
        ({"experimental": "x"}, "experimental"),
    ],
)
def test_a_capability_is_an_object(capabilities: dict[str, Any], names: str) -> None:
    """decision: `false` and `null` must not be taken for a declaration."""
    meta = {**META, CLIENT_CAPABILITIES_KEY: capabilities}
    assert f"{names} must be an object" in refused(call(meta=meta), code=INVALID_PARAMS).message


# -------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize("version", ["1900-01-01", "v999.0.0", "2025-11-25", ""])
def test_an_unsupported_version_names_the_supported_ones(version: str) -> None:
    """spec: MUST respond with -32022 listing the supported versions (versioning)."""
    rejection = refused(
        call(meta={**META, PROTOCOL_VERSION_KEY: version}),
        headers(MCP_Protocol_Version=version),
        code=UNSUPPORTED_PROTOCOL_VERSION,
    )
    assert rejection.data == {"supported": [V], "requested": version}
    assert rejection.id == 7


@pytest.mark.parametrize(
    ("message", "head"),
    [
        (call(method="initialize", meta=ABSENT), RequestHeaders.read([])),
        (call(method="initialize", meta=ABSENT), headers(Mcp_Method="initialize")),
        (call(method="initialize"), RequestHeaders.read([])),
        ({"jsonrpc": "2.0", "id": 7, "method": "initialize"}, headers(Mcp_Method="initialize")),
        (
            call(method="initialize", meta={**META, PROTOCOL_VERSION_KEY: "2025-11-25"}),
            headers(Mcp_Method="initialize", MCP_Protocol_Version="2025-11-25"),
        ),
        ({"jsonrpc": "1.0", "id": 7, "method": "initialize"}, RequestHeaders.read([])),
    ],
)
def test_every_refusal_of_initialize_names_the_versions(
    message: dict[str, Any], head: RequestHeaders
) -> None:
    """spec: SHOULD name the versions in any error to `initialize` (versioning §Backward)."""
    outcome = post(message, head)
    assert isinstance(outcome, Rejection)
    assert outcome.status == 400
    assert V in outcome.message
    assert outcome.data["supported"] == [V]
    assert outcome.id == 7


def test_the_dispatcher_can_name_the_versions_too() -> None:
    """decision: with modern headers `initialize` ends as -32601, which names them too."""
    error = naming_versions(MCPError(METHOD_NOT_FOUND, "Method not found"), SUPPORTED)
    assert error.code == METHOD_NOT_FOUND
    assert V in error.message
    assert error.data == {"supported": [V]}


# ----------------------------------------------------------------------------------------- order


FAULTS: list[tuple[str, int]] = [
    ("shape", INVALID_REQUEST),
    ("method header", HEADER_MISMATCH),
    ("name header", HEADER_MISMATCH),
    ("meta", INVALID_PARAMS),
    ("version header", HEADER_MISMATCH),
    ("version", UNSUPPORTED_PROTOCOL_VERSION),
    ("number", INVALID_PARAMS),
]
SAYS = {
    "shape": "jsonrpc",
    "method header": "Mcp-Method",
    "name header": "Mcp-Name",
    "meta": "_meta",
    "version header": "MCP-Protocol-Version",
    "version": "Unsupported",
    "number": "out of range",
}


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_the_first_fault_in_the_order_is_the_one_reported(first: int) -> None:
    """spec: server validation; each fault is tried together with all that come after it."""
    name, code = FAULTS[first]
    wrong = {fault for fault, _ in FAULTS[first:]}
    meta = {**META, PROTOCOL_VERSION_KEY: "v999.0.0" if "version" in wrong else V}
    if "meta" in wrong:
        del meta[CLIENT_CAPABILITIES_KEY]
    version_header = "1900-01-01" if "version header" in wrong else meta[PROTOCOL_VERSION_KEY]
    message = call(
        meta=meta, params={"arguments": ["@"]}, jsonrpc="1.0" if "shape" in wrong else "2.0"
    )
    raw = json.dumps(message).replace('"@"', "1e999").encode()
    head = headers(
        Mcp_Method="x" if "method header" in wrong else "tools/call",
        Mcp_Name="x" if "name header" in wrong else "book",
        MCP_Protocol_Version=version_header,
    )
    assert SAYS[name] in refused(raw, head, code=code).message


# ------------------------------------------------------------------------------------- properties

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
HEADER_NAMES = st.sampled_from(
    [b"mcp-method", b"Mcp-Name", b"MCP-Protocol-Version", b"mcp-param-x", b"accept", b"\xff"]
)
HEADER_VALUES = st.binary(max_size=20) | st.sampled_from([b"tools/call", b"book", V.encode()])


def nearly(value: Any) -> st.SearchStrategy[Any]:
    """The value, or with some luck anything else."""
    return st.just(value) | JSON


@given(st.binary(), st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES)))
def test_any_bytes_and_any_headers_have_a_class(
    body: bytes, raw: list[tuple[bytes, bytes]]
) -> None:
    """decision: `classify` never raises."""
    outcome = classify(RequestHeaders.read(raw), body, supported=SUPPORTED)
    assert isinstance(outcome, InboundRequest | InboundNotification | Rejection)


@given(
    st.fixed_dictionaries(
        {"jsonrpc": nearly("2.0"), "method": nearly("tools/call")},
        optional={
            "id": nearly(1),
            "params": st.fixed_dictionaries(
                {"name": nearly("book")},
                optional={
                    "arguments": JSON,
                    "_meta": st.fixed_dictionaries(
                        {
                            PROTOCOL_VERSION_KEY: nearly(V),
                            CLIENT_CAPABILITIES_KEY: nearly({})
                            | st.dictionaries(st.sampled_from(["elicitation", "roots"]), JSON),
                        },
                        optional={
                            CLIENT_INFO_KEY: JSON,
                            LOG_LEVEL_KEY: JSON,
                            "progressToken": JSON,
                            "traceparent": JSON,
                        },
                    ),
                },
            )
            | JSON,
        },
    )
)
def test_anything_that_looks_like_a_call_has_a_class(message: Any) -> None:
    """decision: what is handed on keeps every promise, what is refused has an error to send."""
    match post(message):
        case InboundRequest() as request:
            assert type(request.id) in (str, int)
            assert isinstance(request.params["name"], str)
            assert all(isinstance(c, dict) for c in request.meta.client_capabilities.values())
        case InboundNotification(method, params):
            assert method.startswith("notifications/")
            assert isinstance(params, dict)
        case Rejection(status, _, text, request_id):
            assert status == 400
            assert text
            assert request_id is None or request_id == message["id"]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    "body", [json.dumps(call()).encode(), b"{", json.dumps(call(id=None)).encode()]
)
def test_nothing_is_left_to_the_cycle_collector(body: bytes) -> None:
    """decision: cycles on the hot path would cost the tail of the latency."""
    head = headers()
    for _ in range(50):
        classify(head, body, supported=SUPPORTED)
    assert gc.collect() == 0
