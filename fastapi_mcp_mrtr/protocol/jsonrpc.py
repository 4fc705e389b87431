"""Encode JSON-RPC messages, and say which HTTP status an error has. Pure: no I/O, no framework."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic_core import to_json

from fastapi_mcp_mrtr.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)

STATUS: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
}
"""HTTP status by JSON-RPC error code; a code that is not listed travels with 200.

Sources: streamable-http §Request Metadata (404 for -32601, 400 for -32020 and -32022) and
basic/index §`_meta` (400 for -32602 and -32021). -32700 and -32600 follow -32602.
"""


def http_status(code: int) -> int:
    """The HTTP status that carries an error of this code."""
    return STATUS.get(code, 200)


def encode_result(request_id: str | int, result: Mapping[str, Any] | bytes) -> bytes:
    """A result response, on one line. Bytes are taken as the encoded result and not looked into.

    NaN and infinities become null; a lone surrogate, which no UTF-8 can carry, becomes U+FFFD.

    Raises:
        ValueError: the result holds something that JSON cannot carry.
    """
    encoded = result if type(result) is bytes else encode(result)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(request_id), encoded)


def encode_error(request_id: str | int | None, code: int, message: str, data: Any = None) -> bytes:
    """An error response, on one line. `id` is left out, never null, when the request had none.

    It does not raise: `data` that JSON cannot carry is left out, so that an error still arrives.
    """
    error: dict[str, Any] = {"code": code, "message": message}
    encoded = encode(error)
    if data is not None:
        with suppress(ValueError):
            encoded = encode({**error, "data": data})
    if request_id is None:
        return b'{"jsonrpc":"2.0","error":%b}' % encoded
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode(request_id), encoded)


def encode_notification(method: str, params: Mapping[str, Any]) -> bytes:
    """A notification, on one line.

    Raises:
        ValueError: the params hold something that JSON cannot carry.
    """
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), encode(params))


def encode(value: Any) -> bytes:
    """Compact JSON in UTF-8; see `encode_result` for what happens to values JSON has no word for.

    Raises:
        ValueError: the value holds something that JSON cannot carry.
    """
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:
        try:
            return to_json(_without_lone_surrogates(value), inf_nan_mode="null")
        except RecursionError:
            raise ValueError("The value is nested too deeply, or contains itself") from None


def _without_lone_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        # UTF-16 joins the halves of a pair, as JSON's \ud83d\ude00 means one character.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        return {
            _without_lone_surrogates(name): _without_lone_surrogates(member)
            for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_lone_surrogates(item) for item in value]
    return value
