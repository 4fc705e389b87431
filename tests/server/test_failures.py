"""failures: what a client reads of every family of exception, and what only the log has."""

import logging
from typing import Any

import pytest
from fastapi import HTTPException
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from fastapi_mcp_mrtr import (
    HandlerError,
    InputCancelled,
    InputDeclined,
    MCPError,
    MissingClientCapability,
    RequestStateError,
    ToolError,
    UnstableQuestionError,
)
from fastapi_mcp_mrtr.errors import INPUT_REFUSED, INTERNAL_ERROR, INVALID_PARAMS
from fastapi_mcp_mrtr.server.failures import (
    InvalidArguments,
    internal_error,
    protocol_error,
    readable,
)


class Seat(BaseModel):
    row: int = Field(ge=1)
    letter: str


def invalid(**values: Any) -> InvalidArguments:
    with pytest.raises(ValidationError) as caught:
        Seat(**values)
    return InvalidArguments(caught.value)


# ------------------------------------------------------------------------- what the model reads


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("Sold out"), "Sold out"),
        (HTTPException(404, "No such flight"), "No such flight"),
        (StarletteHTTPException(409, "Taken"), "Taken"),
        (HTTPException(422, {"field": ["row", float("nan")]}), '{"field":["row",null]}'),
        (HTTPException(422, {"x": object(), "y": "\ud800"}), '{"x":"?","y":"\ufffd"}'),
        (HTTPException(404), "Not Found"),
        (InputDeclined("seat"), "The user declined 'seat'."),
        (InputCancelled("seat"), "The user cancelled 'seat'."),
    ],
)
def test_what_the_model_may_read_and_correct(error: Exception, text: str) -> None:
    """spec: tool execution errors are results with isError (server/tools §Error Handling)."""
    assert readable(error) == text


@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), MCPError(-1, "x"), HandlerError("x"), ValueError("secret")]
)
def test_what_is_no_result(error: Exception) -> None:
    """decision: everything else is a JSON-RPC error."""
    assert readable(error) is None


def test_problems_with_arguments_are_listed_without_their_values() -> None:
    """decision: a line for each, with where and what; the value may be a secret."""
    text = readable(invalid(row=0, letter=["secret"]))
    assert text == (
        "Invalid arguments\n"
        "row: Input should be greater than or equal to 1\n"
        "letter: Input should be a valid string"
    )


def test_a_problem_with_everything_has_a_place_too() -> None:
    """decision: `arguments` where there is no field to name."""
    with pytest.raises(ValidationError) as caught:
        Seat.model_validate([])
    assert str(InvalidArguments(caught.value)).splitlines()[1].startswith("arguments: ")


def test_not_all_of_very_many_problems_are_listed() -> None:
    """decision: a big wrong request does not get a bigger answer."""

    class Seats(BaseModel):
        rows: list[int]

    with pytest.raises(ValidationError) as caught:
        Seats.model_validate({"rows": ["x"] * 1000})
    lines = str(InvalidArguments(caught.value)).splitlines()
    assert lines[-1] == "and 980 more"
    assert len(lines) == 22


# ------------------------------------------------------------------------------ JSON-RPC errors


@pytest.mark.parametrize(
    ("error", "code", "message", "data"),
    [
        (MCPError(-30000, "Mine", [1]), -30000, "Mine", [1]),
        (
            MissingClientCapability({"roots": {}}),
            -32021,
            "Missing required client capability: roots",
            {"requiredCapabilities": {"roots": {}}},
        ),
        (ToolError("Sold out"), INTERNAL_ERROR, "Sold out", None),
        (HTTPException(404, "Gone"), INTERNAL_ERROR, "Gone", None),
        (
            InputDeclined("seat"),
            INPUT_REFUSED,
            "The user declined 'seat'.",
            {"key": "seat"},
        ),
    ],
)
def test_errors_for_what_cannot_say_is_error(
    error: Exception, code: int, message: str, data: Any
) -> None:
    """decision: a prompt or a resource fails with a JSON-RPC error of the same words."""
    known = protocol_error(error, "Prompt 'p'")
    assert (known.code, known.message, known.data) == (code, message, data)


def test_invalid_arguments_are_invalid_params() -> None:
    """spec: -32602 for invalid arguments (server/prompts §Error Handling)."""
    known = protocol_error(invalid(row=0, letter="A"), "Prompt 'p'")
    assert known.code == INVALID_PARAMS
    assert known.message.startswith("Invalid arguments\nrow: ")


def test_a_resource_that_is_not_there() -> None:
    """spec: resource not found is -32602 with the URI (server/resources §Error Handling)."""
    known = protocol_error(HTTPException(404, "Gone"), "Resource 'x:{id}'", "x:1")
    assert (known.code, known.message, known.data) == (INVALID_PARAMS, "Gone", {"uri": "x:1"})
    known = protocol_error(HTTPException(404, ""), "Resource 'x:{id}'", "x:1")
    assert known.message
    known = protocol_error(HTTPException(500, "Down"), "Resource 'x:{id}'", "x:1")
    assert (known.code, known.data) == (INTERNAL_ERROR, None)


def test_a_refused_state_has_its_reason_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    """spec: one error for every cause; user report: nobody could tell which (mcpsnoop#145)."""
    error = RequestStateError("expired")
    assert protocol_error(error, "Tool 'book' (request 7)") is error
    assert caplog.messages == ["Tool 'book' (request 7): requestState refused: expired"]
    assert caplog.records[0].levelno == logging.WARNING
    assert error.message == "Invalid or expired requestState"


def test_a_question_that_never_stands_still_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """user report: a timestamp in a question looped until the client gave up (py docs)."""
    known = protocol_error(UnstableQuestionError("pay"), "Tool 'book'")
    assert known.code == INTERNAL_ERROR
    assert "'pay'" in known.message
    assert "'pay' changed on every round" in caplog.messages[0]


@pytest.mark.parametrize("error", [RuntimeError("secret"), HandlerError("secret")])
def test_the_client_learns_an_id_and_the_log_the_rest(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """user report: exception texts reached clients by default (fastmcp 4.2.3)."""
    known = protocol_error(error, "Tool 'book'")
    assert (known.code, known.message) == (INTERNAL_ERROR, "Internal error")
    assert "secret" not in str(known.data)
    assert known.data["correlationId"] in caplog.messages[0]
    assert "secret" in caplog.text


def test_every_failure_has_its_own_id() -> None:
    """decision: so that one line of the log is found."""
    ids = {internal_error(ValueError(), "x").data["correlationId"] for _ in range(10)}
    assert len(ids) == 10
