"""How a test fails: what was asked and not answered, answered and not asked, or not allowed at all.

```text
AssertionError
├── UnansweredQuestion     the server asked what the test does not answer
├── AnswersNotAsked        the test answers what the server never asked
├── AnswerNotAccepted      the server keeps asking what the test keeps answering the same way
├── TooManyRounds          the flow did not end
├── UnexpectedOutcome      the test wanted a result, an ask or an error and got another of the three
└── ProtocolViolation      the server broke a rule of the specification
MCPError
└── ErrorReply             the server answered with a JSON-RPC error
Exception
└── RejectedRequest        the app answered with plain HTTP: a 401, a redirect, another 404
```
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fastapi_mcp_mrtr.errors import MCPError

if TYPE_CHECKING:
    from fastapi_mcp_mrtr.testing.answers import Ask
    from fastapi_mcp_mrtr.testing.wire import Reply


class UnansweredQuestion(AssertionError):
    """The server asked what the test does not answer: `asks`, while `given` are the keys it had."""

    def __init__(self, label: str, asks: Sequence[Ask], given: Iterable[str]) -> None:
        self.asks = tuple(asks)
        self.given = tuple(given)
        super().__init__(
            f"{label} asks what the test does not answer:\n{listed(self.asks)}\n"
            f"Answers given: {_names(self.given)}"
        )


class AnswersNotAsked(AssertionError):
    """The test answers what the server never asked: `keys`, where `asked` were the questions."""

    def __init__(self, label: str, keys: Iterable[str], asked: Sequence[Ask]) -> None:
        self.keys = tuple(keys)
        self.asked = tuple(asked)
        questions = listed(self.asked) or "  nothing"
        super().__init__(f"{label} never asked: {_names(self.keys)}\nAsked were:\n{questions}")


class AnswerNotAccepted(AssertionError):
    """The server asks the same again after the same answer: `ask` says why, if the server does."""

    def __init__(self, label: str, ask: Ask, sent: object) -> None:
        self.ask = ask
        super().__init__(f"{label} does not accept the answer {sent!r}:\n{listed([ask])}")


class TooManyRounds(AssertionError):
    """The flow was still going after as many rounds as the client plays."""


class UnexpectedOutcome(AssertionError):
    """The round had another outcome than the one the test reads from it."""


class ProtocolViolation(AssertionError):
    """The server broke the specification. `section` says where the rule stands."""

    def __init__(self, section: str, detail: str) -> None:
        self.section = section
        self.detail = detail
        super().__init__(f"{detail} ({section})")


class ErrorReply(MCPError):
    """The server answered with a JSON-RPC error; `reply` is everything it sent."""

    def __init__(self, reply: Reply, code: int, message: str, data: object) -> None:
        super().__init__(code, message, data)
        self.reply = reply

    def __str__(self) -> str:
        detail = "" if self.data is None else f" {self.data!r}"
        return f"[{self.code}] {self.message}{detail} (HTTP {self.reply.status_code})"


class RejectedRequest(Exception):
    """The app answered with plain HTTP, without any JSON-RPC message; `reply` is what it sent."""

    def __init__(self, reply: Reply) -> None:
        hint = _HINTS.get(reply.status_code, "")
        super().__init__(f"The app answered HTTP {reply.status_code}: {reply.text[:500]!r}{hint}")
        self.reply = reply


_HINTS = {
    307: ". A redirect loses the body: the endpoint's url is another one, pass it as url=",
    404: ". If the router is included under a prefix, pass url= with the whole path",
}
"""What usually lies behind a status."""


def listed(asks: Iterable[Ask], where: str = "") -> str:
    """The asks in words, one below the other."""
    lines = (f"  {where}{ask.key}: {ask.message}".replace("\n", "\n    ") for ask in asks)
    return "\n".join(lines)


def _names(keys: Iterable[str]) -> str:
    return ", ".join(sorted(keys)) or "none"
