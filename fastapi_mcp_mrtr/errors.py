"""Every exception and wire code of the package. Knows nothing else of it.

```text
Exception
├── MCPError(code, message, data)            reaches the client as a JSON-RPC error
│   ├── MissingClientCapability              -32021
│   ├── UnreadableAnswer                     -32602, an answer that is none
│   └── RequestStateError                    -32602, one frozen sentence; .reason goes to the log
├── ToolError(message)                       reaches the client as an isError result
├── SessionNotFound(reason)                  HTTP 404, one frozen body; .reason goes to the log
├── InputRefused                             raised at the handler's yield
│   ├── InputDeclined
│   └── InputCancelled
└── HandlerError                             the author's mistake; the client reads "Internal error"
    ├── NondeterminismError(key, recorded, requested)
    ├── DuplicateKeyError(key)
    ├── UnstableQuestionError(key)
    └── RequestStateTooLarge(size, limit, largest_key)
TypeError / ValueError                       bad configuration or registration, raised at import
```
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

# What 2025-11-25 and earlier revisions define beside those.
RESOURCE_NOT_FOUND: Final = -32002
URL_ELICITATION_REQUIRED: Final = -32042

# Own codes lie outside the JSON-RPC reserved range, -32768 to -32000 (basic/index §Error Codes).
INPUT_REFUSED: Final = -31001
TOO_MANY_ROUNDS: Final = -31002
LEDGER_UNAVAILABLE: Final = -31003
SERVER_STOPPED: Final = -31004

INVALID_REQUEST_STATE: Final = "Invalid or expired requestState"


class MCPError(Exception):
    """An error that reaches the client as a JSON-RPC error, exactly as given.

    Raise it from a handler to choose the code yourself; codes of your own belong outside
    -32768 to -32000 (basic/index §Error Codes).
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class MissingClientCapability(MCPError):
    """The client did not declare what an ask needs: -32021, HTTP 400 (basic/index §_meta)."""

    def __init__(self, required: Mapping[str, Any]) -> None:
        names = ", ".join(sorted(required))
        super().__init__(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"Missing required client capability: {names}",
            {"requiredCapabilities": dict(required)},
        )


class UnreadableAnswer(MCPError):
    """What a client sent for an ask is no answer at all: -32602 (mrtr §Error Handling).

    `after_step` says whether a step had run in this round, as one may have if the question was
    never asked. It is for the ledger and never reaches the client.
    """

    def __init__(self, message: str, *, after_step: bool = False) -> None:
        super().__init__(INVALID_PARAMS, message)
        self.after_step = after_step


class RequestStateError(MCPError):
    """A `requestState` failed a check: -32602 with one frozen sentence for every cause.

    `reason` names the check that failed. It is for the log and never reaches the client.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(INVALID_PARAMS, INVALID_REQUEST_STATE)
        self.reason = reason


class SessionNotFound(Exception):
    """A session id of an older revision that is none here and now, whatever is wrong with it.

    `reason` names the check that failed. It is for the log and never reaches the client.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ToolError(Exception):
    """A failure the model may read and correct: the tool answers with `isError` and this text.

    From a prompt or a resource, which have no such result, it is a JSON-RPC error with this text.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InputRefused(Exception):
    """The user refused a question. Raised at the `yield` that asked it; `key` says which.

    Catch it to offer something else. Unhandled, a tool answers with an `isError` result that says
    who declined what; a prompt or resource with JSON-RPC error -31001.
    """

    action: Literal["decline", "cancel"]

    def __init__(self, key: str) -> None:
        super().__init__(f"The user {self._verb} {key!r}.")
        self.key = key

    _verb = "refused"


class InputDeclined(InputRefused):
    """The user said no: `action` was "decline" (elicitation §Response Actions)."""

    action = "decline"
    _verb = "declined"


class InputCancelled(InputRefused):
    """The user dismissed the question: `action` was "cancel" (elicitation §Response Actions)."""

    action = "cancel"
    _verb = "cancelled"


class HandlerError(Exception):
    """A mistake in a handler. The client reads "Internal error", the log the whole story."""


class NondeterminismError(HandlerError):
    """A replay took another way than the rounds before it: what was recorded and requested."""

    def __init__(self, key: str, recorded: str, requested: str) -> None:
        super().__init__(
            f"{key!r} was recorded as {recorded} but this round {requested}. Whatever decides an "
            "ask or a step must come from arguments, answers or earlier steps."
        )
        self.key = key
        self.recorded = recorded
        self.requested = requested


class DuplicateKeyError(HandlerError):
    """Two asks or steps of one run share a key. In a loop, put the index in the key."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The key {key!r} was used twice in one run. Keys name an ask or a step and must be "
            "unique; in a loop put the index in the key."
        )
        self.key = key


class UnstableQuestionError(HandlerError):
    """A question that reads differently on every round, so that no answer ever fits it."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The question {key!r} changed on every round, so no answer can ever be pinned to it. "
            "Keep times, random values and counters out of its message and schema."
        )
        self.key = key


class RequestStateTooLarge(HandlerError):
    """The sealed state would exceed `max_state_bytes`. `largest_key` names the biggest entry."""

    def __init__(self, size: int, limit: int, largest_key: str | None) -> None:
        biggest = f"; the largest entry is {largest_key!r}" if largest_key else ""
        super().__init__(
            f"The requestState would be {size} bytes, over the limit of {limit}{biggest}. Keep "
            "large values in your own storage and journal a reference to them."
        )
        self.size = size
        self.limit = limit
        self.largest_key = largest_key
