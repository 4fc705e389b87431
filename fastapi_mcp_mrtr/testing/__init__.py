"""Test what you built, with whole flows and in process.

`MCPTestClient(app)` plays a flow with the answers that a test gives it, steps through its rounds,
and does what an attacker or a bad network would. Nothing here is needed to serve.
"""

from fastapi_mcp_mrtr.testing.answers import CANCEL, DECLINE, Ask, Raw, Refusal, in_turn
from fastapi_mcp_mrtr.testing.client import MCPTestClient
from fastapi_mcp_mrtr.testing.connection import ALL_CAPABILITIES
from fastapi_mcp_mrtr.testing.failures import (
    AnswerNotAccepted,
    AnswersNotAsked,
    ErrorReply,
    ProtocolViolation,
    RejectedRequest,
    TooManyRounds,
    UnansweredQuestion,
    UnexpectedOutcome,
)
from fastapi_mcp_mrtr.testing.flow import Answers, Round
from fastapi_mcp_mrtr.testing.wire import OMIT, Notification, Reply

__all__ = [
    "ALL_CAPABILITIES",
    "CANCEL",
    "DECLINE",
    "OMIT",
    "AnswerNotAccepted",
    "Answers",
    "AnswersNotAsked",
    "Ask",
    "ErrorReply",
    "MCPTestClient",
    "Notification",
    "ProtocolViolation",
    "Raw",
    "Refusal",
    "RejectedRequest",
    "Reply",
    "Round",
    "TooManyRounds",
    "UnansweredQuestion",
    "UnexpectedOutcome",
    "in_turn",
]
