"""List cursors: a position only this server can name. Knows no list.

Clients must treat a cursor as opaque (server/utilities/pagination); a sealed one really is.
"""

import contextlib
import json
from typing import Final

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, MCPError
from fastapi_mcp_mrtr.protocol.canonical import canonical

from .codec import CURSOR, RequestStateCodec

INVALID_CURSOR: Final = "Invalid cursor"

# A position is a name or a URI; nothing of that kind is longer than a whole requestState may be.
_MAX_CURSOR_BYTES: Final = 64 * 1024


def seal_cursor(codec: RequestStateCodec, list_name: str, position: str) -> str:
    """Seal the place where the next page of a list begins."""
    return codec.seal(canonical([list_name, position]), purpose=CURSOR)


def open_cursor(codec: RequestStateCodec, list_name: str, cursor: object) -> str:
    """Return the position a cursor of this very list was sealed with.

    Raises: MCPError, -32602 `Invalid cursor`, for anything else (pagination §Error Handling).
    """
    # Whatever a codec or the parser makes of a cursor that is not ours, it is not ours.
    with contextlib.suppress(Exception):
        if isinstance(cursor, str) and 0 < len(cursor) <= _MAX_CURSOR_BYTES:
            sealed_for, position = json.loads(codec.unseal(cursor, purpose=CURSOR))
            if sealed_for == list_name and isinstance(position, str):
                return position
    raise MCPError(INVALID_PARAMS, INVALID_CURSOR)
