"""List cursors: opaque, of one list, and -32602 for whatever else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, MCPError
from fastapi_mcp_mrtr.state.codec import AESGCMCodec, RequestStateCodec
from fastapi_mcp_mrtr.state.cursor import open_cursor, seal_cursor

from .samples import FIXED_CODEC, RING, OpenCodec, seal, security

CODEC = AESGCMCodec(RING)
CURSOR = seal_cursor(FIXED_CODEC, "tools/list", "book_seat")


def refuse(cursor: object, list_name: str = "tools/list", codec: RequestStateCodec = CODEC) -> None:
    with pytest.raises(MCPError) as refused:
        open_cursor(codec, list_name, cursor)
    error = refused.value
    assert (error.code, error.message, error.data) == (INVALID_PARAMS, "Invalid cursor", None)


@given(st.text(), st.text())
def test_round_trip(list_name: str, position: str) -> None:
    """decision: any position comes back, the empty one and lone surrogates too."""
    assert open_cursor(CODEC, list_name, seal_cursor(CODEC, list_name, position)) == position


def test_lone_surrogates() -> None:
    """decision: a name is text, whatever is in it."""
    assert open_cursor(CODEC, "x", seal_cursor(CODEC, "x", "\ud800")) == "\ud800"


def test_position_cannot_be_read() -> None:
    """spec: cursors are opaque (pagination §Implementation Guidelines)."""
    assert "book_seat" not in CURSOR
    assert seal_cursor(CODEC, "tools/list", "book_seat") != CURSOR


def test_another_lists_cursor() -> None:
    """spec: SHOULD be -32602 (pagination §Error Handling); a cursor is of one list."""
    refuse(CURSOR, "prompts/list")


def test_a_request_state_is_no_cursor() -> None:
    """decision: tokens of one purpose do not open for another."""
    refuse(seal(security()))


@pytest.mark.parametrize("cursor", [None, "", 1, True, [], {}, CURSOR.encode(), CURSOR + "="])
def test_other_values(cursor: object) -> None:
    """spec: SHOULD be -32602 (pagination §Error Handling), and never a crash."""
    refuse(cursor)


@given(st.text())
def test_any_text(cursor: str) -> None:
    """spec: SHOULD be -32602 (pagination §Error Handling)."""
    refuse(cursor)


def test_too_long_is_refused_before_the_codec_sees_it() -> None:
    """decision: what is too long costs nothing."""
    codec = OpenCodec(opens_to=b'["tools/list","x"]')
    assert open_cursor(codec, "tools/list", "0" * 64 * 1024) == "x"
    refuse("0" * (64 * 1024 + 1), codec=codec)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"1",
        b"{}",
        b'"ab"',
        b"[]",
        b'["tools/list"]',
        b'["tools/list",1]',
        b'["tools/list",null]',
        b'["tools/list","x","y"]',
        b'[1,"x"]',
        b"[" * 100_000,
        "text",
        None,
    ],
)
def test_other_payloads(payload: Any) -> None:
    """decision: a good seal around something else, as an older version may have made."""

    class Opening(OpenCodec):
        def unseal(self, token: str, *, purpose: bytes) -> bytes:
            return payload  # type: ignore[no-any-return]

    refuse("0", codec=Opening())


def test_any_exception_of_any_codec() -> None:
    """decision: every exception is the one answer."""

    class Raising(OpenCodec):
        def unseal(self, token: str, *, purpose: bytes) -> bytes:
            raise MCPError(1, token)

    refuse("0", codec=Raising())
