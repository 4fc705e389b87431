"""jsonrpc: what is sent, byte for byte, and with which HTTP status."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastapi_mcp_mrtr import errors
from fastapi_mcp_mrtr.protocol.jsonrpc import (
    encode,
    encode_error,
    encode_notification,
    encode_result,
    http_status,
)

ANY_TEXT = st.text(st.characters())  # lone surrogates included
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (errors.PARSE_ERROR, 400),
        (errors.INVALID_REQUEST, 400),
        (errors.METHOD_NOT_FOUND, 404),
        (errors.INVALID_PARAMS, 400),
        (errors.INTERNAL_ERROR, 200),
        (errors.HEADER_MISMATCH, 400),
        (errors.MISSING_REQUIRED_CLIENT_CAPABILITY, 400),
        (errors.UNSUPPORTED_PROTOCOL_VERSION, 400),
        (errors.INPUT_REFUSED, 200),
        (errors.TOO_MANY_ROUNDS, 200),
    ],
)
def test_status_of_each_code(code: int, status: int) -> None:
    """spec: MUST (streamable-http §Protocol Version Header, basic/index §_meta)."""
    assert http_status(code) == status


@pytest.mark.parametrize("request_id", [0, -1, 2**53, 10**30, "", "a", 'quo"te', "日本"])
def test_the_id_is_echoed_exactly(request_id: str | int) -> None:
    """spec: MUST include the same ID as the request (basic/index §Responses)."""
    assert json.loads(encode_result(request_id, {}))["id"] == request_id
    assert json.loads(encode_error(request_id, -1, "no"))["id"] == request_id


def test_a_result_is_one_compact_line() -> None:
    """decision: compact JSON, because an SSE `data:` line holds one whole message."""
    assert encode_result(1, {"resultType": "complete", "text": "a\nb"}) == (
        b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","text":"a\\nb"}}'
    )


def test_encoded_results_are_not_encoded_again() -> None:
    """decision: a cached list is sent as the bytes it was cached as."""
    assert encode_result("x", b'{"tools":[]}') == (
        b'{"jsonrpc":"2.0","id":"x","result":{"tools":[]}}'
    )


def test_an_error_without_id_leaves_id_out() -> None:
    """spec: `id` may be absent, and is never null (basic/index §Error Responses)."""
    assert encode_error(None, -32700, "Parse error") == (
        b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}'
    )


def test_an_error_carries_its_data() -> None:
    """spec: MAY include `data` of any type (basic/index §Error Responses)."""
    assert encode_error(3, -32602, "no", {"uri": "a:b"}) == (
        b'{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"no","data":{"uri":"a:b"}}}'
    )


@pytest.mark.parametrize("data", [object(), {"when": object()}, b"\xff"])
def test_an_error_still_arrives_when_its_data_cannot(data: Any) -> None:
    """decision: unencodable `data` is left out; an error path must not fail in its turn."""
    assert encode_error(3, -32602, "no", data) == encode_error(3, -32602, "no")


def test_a_notification_has_no_id() -> None:
    """spec: MUST NOT include an ID (basic/index §Notifications)."""
    assert encode_notification("notifications/progress", {"progress": 1}) == (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_without_a_json_form_become_null(number: float) -> None:
    """decision: NaN and infinities are no JSON; null is, and a client can parse the rest."""
    assert encode({"x": number}) == b'{"x":null}'


def test_lone_surrogates_become_the_replacement_character() -> None:
    """decision: half a character cannot be written in UTF-8, and is no reason to lose a result."""
    assert json.loads(encode({"a\ud800": ["\udfff!", ("\ud83d\ude00", 1)]})) == {
        "a\ufffd": ["\ufffd!", ["😀", 1]]
    }


def test_a_value_that_is_no_json_is_refused() -> None:
    """decision: the caller hears about it; nothing is guessed."""
    with pytest.raises(ValueError, match="object"):
        encode({"x": object()})


def test_a_value_that_contains_itself_is_refused() -> None:
    """decision: a ValueError like any other value without a JSON form, not a RecursionError."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        encode(loop)


@given(ANY_JSON)
def test_whatever_is_json_like_becomes_json(value: Any) -> None:
    """decision: no text and no number makes encoding fail."""
    assert json.loads(encode_result(1, {"value": value}))["id"] == 1
    assert b"\n" not in encode(value)
