"""What earlier rounds of a flow established. Data only; the engine decides what it means.

Pure: no I/O, no framework. It knows nothing of sealing, only how to be plain JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fastapi_mcp_mrtr.protocol.canonical import canonical

from .asks import Action

_ACTIONS: Final = ("accept", "decline", "cancel")


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
        members = {
            "a": {key: list(answer) for key, answer in self.answers.items()},
            "s": {key: list(result) for key, result in self.steps.items()},
            "q": self.asked,
            "r": self.rewordings,
            "x": sorted(self.aside),
        }
        return {name: member for name, member in members.items() if member}

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
        try:
            journal = cls(
                {key: Answer(*entry) for key, entry in members.get("a", {}).items()},
                {key: StepResult(*entry) for key, entry in members.get("s", {}).items()},
                dict(members.get("q", {})),
                dict(members.get("r", {})),
                set(members.get("x", ())),
            )
        except (AttributeError, TypeError) as error:
            raise ValueError("not a journal") from error
        if not all(answer.action in _ACTIONS for answer in journal.answers.values()):
            raise ValueError("not a journal: unknown action")
        if not all(type(digest) is str for digest in journal.asked.values()):
            raise ValueError("not a journal: digests are text")
        if not all(type(count) is int for count in journal.rewordings.values()):
            raise ValueError("not a journal: counts are whole numbers")
        return journal
