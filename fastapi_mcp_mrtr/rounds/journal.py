"""What earlier rounds of a flow established. Data only; the engine decides what it means.

Pure: no I/O, no framework. It knows nothing of sealing, only how to be plain JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fastapi_mcp_mrtr.protocol.canonical import canonical

from .asks import Action

_ACTIONS: Final = ("accept", "decline", "cancel")
_NONE: Final[Mapping[str, Any]] = {}


class Answer(NamedTuple):
    """What a client answered. A refusal is an answer too."""

    question: str
    """The digest of the ask as it was shown."""
    action: Action
    content: Any = None


class StepResult(NamedTuple):
    """What a step returned."""

    call: str
    """The call as text, for the message when a replay makes another one."""
    digest: str
    value: Any = None


@dataclass(slots=True)
class Journal:
    """Everything a round needs to know of those before it, by key and in order of recording."""

    answers: dict[str, Answer] = field(default_factory=dict)
    steps: dict[str, StepResult] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """What the last round asked, with digests. Only these keys are read from a client."""
    rewordings: dict[str, int] = field(default_factory=dict)
    """How many rounds in a row a question read differently than before."""
    aside: set[str] = field(default_factory=set)
    """Answers the last round did not come to, because it stopped at an earlier, reworded question
    or at `not_yet()`. They stay, but no replay must come to them."""

    def copy(self) -> Journal:
        """A journal to write the next round into."""
        return Journal(
            dict(self.answers),
            dict(self.steps),
            dict(self.asked),
            dict(self.rewordings),
            set(self.aside),
        )

    def largest_key(self) -> str | None:
        """The key of the entry that takes the most room; None if there are none."""
        entries = {**self.answers, **self.steps}
        return max(entries, key=lambda key: len(canonical(list(entries[key]))), default=None)

    def to_json_obj(self) -> dict[str, Any]:
        """Plain JSON with short names: it travels with every request."""
        members: dict[str, Any] = {}
        if self.answers:
            members["a"] = {key: list(answer) for key, answer in self.answers.items()}
        if self.steps:
            members["s"] = {key: list(result) for key, result in self.steps.items()}
        if self.asked:
            members["q"] = self.asked
        if self.rewordings:
            members["r"] = self.rewordings
        if self.aside:
            members["x"] = sorted(self.aside)
        return members

    def described(self) -> dict[str, Any]:
        """JSON with long names, for people."""
        return {
            "answers": {key: answer._asdict() for key, answer in self.answers.items()},
            "steps": {key: result._asdict() for key, result in self.steps.items()},
            "asked": self.asked,
            "rewordings": self.rewordings,
            "aside": sorted(self.aside),
        }

    @classmethod
    def from_json_obj(cls, members: Any) -> Journal:
        """The journal that `to_json_obj` wrote.

        Raises:
            ValueError: It is none, for example because another version wrote it.
        """
        journal = cls()
        try:
            for key, entry in members.get("a", _NONE).items():
                answer = journal.answers[key] = Answer(*entry)
                if answer.action not in _ACTIONS:
                    raise ValueError("not a journal: unknown action")
            for key, entry in members.get("s", _NONE).items():
                journal.steps[key] = StepResult(*entry)
            for key, digest in members.get("q", _NONE).items():
                if type(digest) is not str:
                    raise ValueError("not a journal: digests are text")
                journal.asked[key] = digest
            for key, count in members.get("r", _NONE).items():
                if type(count) is not int:
                    raise ValueError("not a journal: counts are whole numbers")
                journal.rewordings[key] = count
            journal.aside.update(members.get("x", ()))
        except (AttributeError, TypeError) as error:
            raise ValueError("not a journal") from error
        return journal
