"""Plays rounds against a handler the way a client would, journal written to JSON in between."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
from pydantic_core import from_json, to_json

from fastapi_mcp_mrtr.rounds.engine import (
    Completed,
    InputRequired,
    Outcome,
    form_of,
    run_round,
)
from fastapi_mcp_mrtr.rounds.journal import Journal
from fastapi_mcp_mrtr.rounds.sentinels import Log, Progress

R = TypeVar("R")

EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


class Host:
    """Worker threads by anyio, and a list of what was sent."""

    def __init__(self) -> None:
        self.sent: list[Progress | Log] = []

    async def emit(self, notification: Progress | Log) -> None:
        self.sent.append(notification)

    async def in_thread(self, fn: Callable[..., R], *args: Any) -> R:
        # Cancelled or not: what runs is waited for.
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(fn, *args)
        raise AssertionError("nobody cancels this scope")


class Flow:
    """One call of a handler over its rounds."""

    def __init__(
        self,
        handler: Callable[..., Any],
        *args: Any,
        capabilities: Any = EVERYTHING,
        accept_unasked: bool = False,
    ) -> None:
        self.handler = handler
        self.host = Host()
        self.journal = Journal()
        self._call = partial(handler, *args)
        self._capabilities = capabilities
        self._accept_unasked = accept_unasked

    async def round(self, answers: dict[str, Any] | None = None) -> Outcome:
        outcome = await run_round(
            self._call,
            form_of(self.handler),
            self.journal,
            answers,
            host=self.host,
            capabilities=self._capabilities,
            accept_unasked=self._accept_unasked,
        )
        sealed = to_json(outcome.journal.to_json_obj())
        self.journal = Journal.from_json_obj(from_json(sealed))
        return outcome

    async def asks(self, answers: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """A round that must end in asks."""
        outcome = await self.round(answers)
        assert isinstance(outcome, InputRequired)
        json.dumps(outcome.requests)
        return outcome.requests

    async def result(self, answers: dict[str, Any] | None = None) -> Any:
        """A round that must complete."""
        outcome = await self.round(answers)
        assert isinstance(outcome, Completed)
        return outcome.value


def accept(content: Any = None) -> dict[str, Any]:
    """An accepted form. What is no object becomes the one property of a scalar."""
    if content is None:
        return {"action": "accept"}
    return {
        "action": "accept",
        "content": content if isinstance(content, dict) else {"value": content},
    }


DECLINE = {"action": "decline"}
CANCEL = {"action": "cancel"}
