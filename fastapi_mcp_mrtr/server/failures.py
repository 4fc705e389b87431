"""What a client may know of a failure; the rest goes to the log. Every family of exception is here.

Knows no HTTP status.
"""

import logging
import secrets
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException

from fastapi_mcp_mrtr.errors import (
    INPUT_REFUSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    InputRefused,
    MCPError,
    RequestStateError,
    ToolError,
    UnstableQuestionError,
)
from fastapi_mcp_mrtr.protocol.jsonrpc import encode

logger = logging.getLogger("fastapi_mcp_mrtr")

_MOST_PROBLEMS = 20
"""Problems with arguments that are spelled out: enough to correct them, not a megabyte of them."""


class InvalidArguments(Exception):
    """The arguments of a call do not fit the handler. The text quotes no values."""

    def __init__(self, error: ValidationError) -> None:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [
            f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
            for problem in problems[:_MOST_PROBLEMS]
        ]
        if len(problems) > _MOST_PROBLEMS:
            lines.append(f"and {len(problems) - _MOST_PROBLEMS} more")
        super().__init__("\n".join(["Invalid arguments", *lines]))


def readable(error: Exception) -> str | None:
    """The text for a result that says `isError`, which the model can read and correct.

    None for what is to be a JSON-RPC error instead.
    """
    match error:
        case ToolError():
            return error.message
        case HTTPException():
            detail: Any = error.detail
            return detail if isinstance(detail, str) else _json_text(detail)
        case InputRefused() | InvalidArguments():
            return str(error)
    return None


def protocol_error(error: Exception, where: str, uri: str | None = None) -> MCPError:
    """The JSON-RPC error for a failure. `uri` is that of the resource, if it is about one.

    Everything that is to be read as a result (`readable`) has one too, for prompts and resources,
    whose results cannot carry a failure.
    """
    match error:
        case RequestStateError():
            logger.warning("%s: requestState refused: %s", where, error.reason)
            return error
        case MCPError():
            return error
        case InvalidArguments():
            return MCPError(INVALID_PARAMS, str(error))
        case InputRefused():
            return MCPError(INPUT_REFUSED, str(error), {"key": error.key})
        case HTTPException(status_code=404) if uri is not None:
            return MCPError(INVALID_PARAMS, readable(error) or "Resource not found", {"uri": uri})
        case ToolError() | HTTPException():
            return MCPError(INTERNAL_ERROR, readable(error) or "Internal error")
        case UnstableQuestionError():
            logger.error("%s: %s", where, error)
            message = f"The question {error.key!r} changed on every round and cannot be answered"
            return MCPError(INTERNAL_ERROR, message)
    return internal_error(error, where)


def internal_error(error: Exception, where: str) -> MCPError:
    """All the client learns of a failure it cannot mend; the log has the traceback by its id."""
    correlation_id = secrets.token_hex(8)
    logger.error("%s failed (correlation id %s)", where, correlation_id, exc_info=error)
    return MCPError(INTERNAL_ERROR, "Internal error", {"correlationId": correlation_id})


def _json_text(value: Any) -> str:
    return encode(to_jsonable_python(value, fallback=lambda _: "?")).decode()
