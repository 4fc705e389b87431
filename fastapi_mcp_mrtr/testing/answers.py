"""From the answer that a test writes to the one that a client sends. Knows no app and no rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal

import mcp_types
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from fastapi_mcp_mrtr.testing.failures import UnansweredQuestion

AskKind = Literal["form", "url", "sampling", "roots"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One question as the client received it.

    `times` counts how often this key was asked in the flow, this time included, so that an answer
    given as a callable can tell the first try from the second:

    ```python
    answers = {"seat": lambda ask: {"row": 99 if ask.times == 1 else 4, "letter": "A"}}
    ```
    """

    key: str
    method: str
    params: Mapping[str, Any]
    times: int = 1

    @property
    def kind(self) -> AskKind:
        """What sort of answer it wants."""
        if self.method == "elicitation/create":
            return "url" if self.params.get("mode") == "url" else "form"
        return "sampling" if self.method == "sampling/createMessage" else "roots"

    @property
    def message(self) -> str:
        """The question to the user; the texts of a sampling request; a fixed text for roots."""
        if self.kind == "roots":
            return "(the client's roots)"
        if self.kind == "sampling":
            return "\n".join(_texts(self.params["messages"]))
        return str(self.params["message"])

    @property
    def schema(self) -> Mapping[str, Any]:
        """The `requestedSchema` of a form; empty for every other kind."""
        schema: Mapping[str, Any] = self.params.get("requestedSchema", {})
        return schema

    @property
    def url(self) -> str:
        """Where a url-mode question sends the user; empty for every other kind."""
        return str(self.params.get("url", ""))


def _texts(messages: Any) -> list[str]:
    blocks = [message["content"] for message in messages]
    flat = [block for item in blocks for block in (item if isinstance(item, list) else [item])]
    return [block.get("text", f"({block['type']})") for block in flat]


class Refusal(Enum):
    """How a user refuses a form or a url: no, or no answer at all."""

    DECLINE = "decline"
    CANCEL = "cancel"


DECLINE: Final = Refusal.DECLINE
"""The answer of a user who says no."""
CANCEL: Final = Refusal.CANCEL
"""The answer of a user who closes the question."""


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer sent exactly as given, whatever its shape: for what no real client would send.

    ```python
    answers = {"seat": Raw({"action": "accept"})}
    ```
    """

    value: Any


def in_turn(*answers: Any) -> Callable[[Ask], Any]:
    """One answer for each time a key is asked: `in_turn({"row": 99}, {"row": 4})`."""

    def answer(ask: Ask) -> Any:
        if ask.times > len(answers):
            label = f"Time {ask.times} of a question with {len(answers)} answers in turn"
            raise UnansweredQuestion(label, [ask], [ask.key])
        return answers[ask.times - 1]

    return answer


def envelope(ask: Ask, answer: Any) -> Any:
    """The member of `inputResponses` for an answer.

    Raises:
        TypeError: The answer is of no kind that this ask can take.
    """
    if isinstance(answer, type):
        raise _mismatch(ask, answer, "a value, not a class")
    if callable(answer):
        answer = answer(ask)
    if isinstance(answer, Raw):
        return answer.value
    if isinstance(answer, Refusal):
        if ask.kind in ("sampling", "roots"):
            raise _mismatch(ask, answer, "a result: the protocol lets nobody refuse it")
        return {"action": answer.value}
    return _ENVELOPES[ask.kind](ask, answer)


def _form(ask: Ask, answer: Any) -> Any:
    if isinstance(answer, mcp_types.ElicitResult):
        return _dumped(answer)
    if isinstance(answer, Mapping):
        content = to_jsonable_python(dict(answer), by_alias=True)
    elif isinstance(answer, BaseModel) or is_dataclass(answer):
        content = _dumped(answer)
    else:
        content = _wrapped(ask, answer)
    return {"action": "accept", "content": content}


def _wrapped(ask: Ask, answer: Any) -> dict[str, Any]:
    fields = list(ask.schema.get("properties", ()))
    if len(fields) != 1:
        raise _mismatch(ask, answer, f"a dict or a model with the fields {', '.join(fields)}")
    if answer is None:
        if fields[0] in ask.schema.get("required", ()):
            raise _mismatch(ask, answer, f"a value for {fields[0]!r}")
        return {}
    return {fields[0]: to_jsonable_python(answer, by_alias=True)}


def _url(ask: Ask, answer: Any) -> Any:
    if isinstance(answer, mcp_types.ElicitResult):
        return _dumped(answer)
    if answer is not True:
        raise _mismatch(ask, answer, "True, DECLINE or CANCEL")
    return {"action": "accept"}


def _sampling(ask: Ask, answer: Any) -> Any:
    if isinstance(answer, str):
        return {
            "role": "assistant",
            "content": {"type": "text", "text": answer},
            "model": "test-model",
            "stopReason": "endTurn",
        }
    if isinstance(answer, BaseModel | Mapping):
        return _dumped(answer)
    raise _mismatch(ask, answer, "a str, a CreateMessageResult or a dict")


def _roots(ask: Ask, answer: Any) -> Any:
    if isinstance(answer, mcp_types.ListRootsResult | Mapping):
        return _dumped(answer)
    if isinstance(answer, list | tuple):
        return {"roots": [_root(root) for root in answer]}
    raise _mismatch(ask, answer, "a list of URIs, paths or Roots")


def _root(root: Any) -> Any:
    if isinstance(root, Path):
        return {"uri": root.as_uri()}
    return {"uri": root} if isinstance(root, str) else _dumped(root)


_ENVELOPES: Final[Mapping[AskKind, Callable[[Ask, Any], Any]]] = {
    "form": _form,
    "url": _url,
    "sampling": _sampling,
    "roots": _roots,
}
"""How an answer of each kind is put on the wire."""


def _dumped(value: Any) -> Any:
    return to_jsonable_python(value, by_alias=True, exclude_none=True)


def _mismatch(ask: Ask, answer: Any, wanted: str) -> TypeError:
    return TypeError(f"{answer!r} does not answer {ask.key!r} ({ask.kind}): it takes {wanted}.")
