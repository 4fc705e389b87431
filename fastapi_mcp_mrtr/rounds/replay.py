"""What one run may take from the journal, what it adds, and where it contradicts it.

Pure and synchronous: no I/O, no framework, no generators. Every error raised here is final: the
round cannot go on, because the handler is no longer the one that earlier rounds ran, or because
the client cannot be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi_mcp_mrtr.errors import (
    DuplicateKeyError,
    HandlerError,
    MissingClientCapability,
    NondeterminismError,
    UnreadableAnswer,
    UnstableQuestionError,
)

from .asks import Action, Ask, MalformedAnswer, merged
from .forms import InvalidAnswer
from .journal import Answer, Journal, StepResult
from .sentinels import Step
from .steps import call_digest, call_text, result_codec

MAX_REWORDINGS: Final = 3
"""Rounds in a row that a question may read differently: a price may change, a clock always does."""


@dataclass(slots=True)
class Settled:
    """A batch of which nothing is missing, or whose user refused."""

    values: tuple[Any, ...]
    refused: tuple[str, Action] | None
    """The first refusal in the order of the batch."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a step returned in an earlier round."""

    value: Any


@dataclass(frozen=True, slots=True)
class Unrun:
    """A step that has no result yet, described before it runs and may change its arguments."""

    step: Step
    key: str
    call: str
    digest: str


@dataclass(slots=True)
class _Missing:
    """An ask without a usable answer."""

    ask: Ask
    key: str
    digest: str
    is_new: bool
    """Whether no earlier round asked it, in any wording."""
    reason: str | None
    """Why the answer that came does not count, for the user to read."""


class Replay:
    """One run's view of the journal. It writes into the journal it was given."""

    __slots__ = (
        "_accept_unasked",
        "_capabilities",
        "_has_run_steps",
        "_reached",
        "_responses",
        "journal",
        "requests",
    )

    def __init__(
        self,
        journal: Journal,
        responses: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        accept_unasked: bool,
    ) -> None:
        self.journal = journal
        self.requests: dict[str, dict[str, Any]] = {}
        """What to send once the run was suspended."""
        self._responses = responses
        self._capabilities = capabilities
        self._accept_unasked = accept_unasked
        self._reached: set[str] = set()
        self._has_run_steps = False

    # --- asks --------------------------------------------------------------------------------

    def settle(self, batch: Sequence[Ask], prefix: str) -> Settled | None:
        """The answers to a batch of asks; None if the run is suspended to ask for some.

        Every answer that came is journaled, whatever becomes of the others.
        """
        values: list[Any] = []
        missing: list[_Missing] = []
        refused: tuple[str, Action] | None = None
        for ask in batch:
            key = prefix + ask.key
            self._reach(key)
            found = self._find(ask, key)
            if isinstance(found, _Missing):
                missing.append(found)
                continue
            action, value = found
            values.append(value)
            if action != "accept" and refused is None:
                refused = key, action
        if refused is None and missing:
            self._suspend_at(missing)
            return None
        return Settled(tuple(values), refused)

    def _find(self, ask: Ask, key: str) -> tuple[Action, Any] | _Missing:
        """What the journal or this request's answers hold for an ask."""
        journal = self.journal
        if (step := journal.steps.get(key)) is not None:
            raise NondeterminismError(key, step.call, "asked a question by that key")
        digest = ask.digest()
        answer = journal.answers.get(key)
        shown = journal.asked.get(key) if answer is None else answer.question
        if shown is not None and shown != digest:
            self._reworded(key)
            return _Missing(ask, key, digest, False, None)
        journal.rewordings.pop(key, None)
        try:
            if answer is not None:
                value = ask.value(answer.content) if answer.action == "accept" else None
                return answer.action, value
            if key in self._responses and (shown is not None or self._accept_unasked):
                return self._read(ask, key, digest)
        except InvalidAnswer as error:
            journal.answers.pop(key, None)
            return _Missing(ask, key, digest, shown is None, error.reason)
        return _Missing(ask, key, digest, shown is None, None)

    def _read(self, ask: Ask, key: str, digest: str) -> tuple[Action, Any]:
        """Journal the answer this request brought."""
        try:
            action, content, value = ask.read(self._responses[key])
        except MalformedAnswer as error:
            raise UnreadableAnswer(
                f"inputResponses[{key!r}] is no valid {error}", after_step=self._has_run_steps
            ) from None
        self.journal.answers[key] = Answer(digest, action, content)
        self.journal.asked.pop(key, None)
        return action, value

    def _reworded(self, key: str) -> None:
        """The answer was to another wording. It is asked again, but not for ever."""
        count = self.journal.rewordings.get(key, 0) + 1
        if count >= MAX_REWORDINGS:
            raise UnstableQuestionError(key)
        self.journal.rewordings[key] = count
        self.journal.answers.pop(key, None)

    # --- steps -------------------------------------------------------------------------------

    def recall(self, step: Step, key: str) -> Recalled | Unrun:
        """The journaled result of a step, or what to `record` once it has run."""
        self._reach(key)
        if key in self.journal.answers or key in self.journal.asked:
            raise NondeterminismError(key, "a question", f"ran the step {_call_text(step)}")
        digest = call_digest(step.fn, step.args, step.kwargs)
        recorded = self.journal.steps.get(key)
        if recorded is None:
            self._has_run_steps = True
            return Unrun(step, key, _call_text(step), digest)
        if recorded.digest != digest:
            raise NondeterminismError(key, recorded.call, f"ran {_call_text(step)}")
        try:
            return Recalled(result_codec(step.fn).read(recorded.value))
        except ValueError as error:
            raise HandlerError(
                f"The result that step {key!r} journaled does not fit what its function returns now"
            ) from error

    def record(self, unrun: Unrun, result: Any) -> Any:
        """Journal a result; give back what every later round will read."""
        codec = result_codec(unrun.step.fn)
        try:
            written = codec.write(result)
            value = codec.read(written)
        except ValueError as error:
            raise HandlerError(
                f"The result of step {unrun.key!r} cannot be journaled: what {unrun.call} returned "
                "does not survive being written to JSON and read back by its return annotation"
            ) from error
        self.journal.steps[unrun.key] = StepResult(unrun.call, unrun.digest, written)
        return value

    # --- suspending --------------------------------------------------------------------------

    def wait(self) -> None:
        """Suspend without asking (`not_yet`)."""
        self._suspend({})

    def _suspend_at(self, missing: Sequence[_Missing]) -> None:
        """Suspend to ask what is missing."""
        lacking: list[dict[str, Any]] = []
        asked: dict[str, str] = {}
        is_new = True
        for one in missing:
            is_new = is_new and one.is_new
            if needed := one.ask.lacking(self._capabilities):
                lacking.append(needed)
            self.requests[one.key] = _worded(one)
            asked[one.key] = one.digest
        if is_new:
            self._check_drift(missing[0].key)
        if lacking:
            raise MissingClientCapability(merged(lacking))
        self._suspend(asked)

    def _suspend(self, asked: dict[str, str]) -> None:
        self.journal.asked = asked
        self.journal.aside = self.journal.answers.keys() - self._reached

    def _check_drift(self, new_key: str) -> None:
        """A new ask lies behind all that earlier rounds came to. One that does not is a detour."""
        for key, recorded in self._expected():
            if key not in self._reached:
                raise NondeterminismError(key, recorded, f"asked {new_key!r} without coming to it")

    def _expected(self) -> Iterator[tuple[str, str]]:
        """What a deterministic handler must come to before it asks anything new."""
        for key in self.journal.answers:
            if key not in self.journal.aside:
                yield key, "an answered question"
        for key, step in self.journal.steps.items():
            yield key, step.call
        for key in self.journal.asked:
            yield key, "a question"

    def _reach(self, key: str) -> None:
        if key in self._reached:
            raise DuplicateKeyError(key)
        self._reached.add(key)


def _call_text(step: Step) -> str:
    return call_text(step.fn, step.args, step.kwargs)


def _worded(missing: _Missing) -> dict[str, Any]:
    """The request, with the reason why it is asked again. The reason is no part of its digest."""
    request = missing.ask.request()
    if missing.reason is not None:
        params = request["params"]
        params["message"] = f"{params['message']}\n({missing.reason})"
    return request
