"""The rounds of one call, as the client sees them. Knows a channel to send over, and no app."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel

from fastapi_mcp_mrtr.testing.answers import Ask, envelope
from fastapi_mcp_mrtr.testing.failures import (
    AnswerNotAccepted,
    AnswersNotAsked,
    ErrorReply,
    TooManyRounds,
    UnansweredQuestion,
    UnexpectedOutcome,
    listed,
)
from fastapi_mcp_mrtr.testing.wire import (
    MCP_NAME_SOURCE,
    OMIT,
    PROTOCOL_VERSION,
    Headers,
    Meta,
    Notification,
    Outcome,
    Reply,
    overlay,
)

Answers = Mapping[str, Any]
"""For each key a value, a callable that takes the `Ask`, `DECLINE` or `CANCEL`, or `Raw`."""

R = TypeVar("R", bound=BaseModel)

# Ten years: no time to live and no flow lifetime is meant to last that long.
BEYOND_EVERY_EXPIRY: Final = 10 * 365 * 86400.0

_BASE64URL: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class Channel(Protocol):
    """What a flow needs of the client that plays it."""

    version: str
    max_rounds: int
    max_waits: int

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> Reply: ...

    def advance(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """What every round of a flow repeats."""

    method: str
    params: Mapping[str, Any]
    result_type: type[R]
    headers: Headers = field(default_factory=dict)
    meta: Meta = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.method} {self.params.get(MCP_NAME_SOURCE.get(self.method, ''), '')}".strip()


@dataclass(frozen=True, slots=True)
class _Sent:
    """What one round put over the call."""

    params: Mapping[str, Any]
    headers: Headers
    meta: Meta


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Round(Generic[R]):
    """One round of a flow: what was asked, or how the call ended.

    A round never changes. `answer` and `wait` send the next request and return the next round, so a
    round can be answered twice, the way a client does that lost the response. Answers go to the
    `request_state` of this very round.

    ```python
    first = client.begin_tool("book_seat", {"flight": "LX318"})
    assert first.asks["seat"].message == "Which seat on LX318?"
    second = first.answer({"seat": {"row": 4, "letter": "A"}})
    assert first.tamper().answer({"seat": {"row": 4, "letter": "A"}}).error.code == -32602
    ```
    """

    call: Call[R]
    number: int
    reply: Reply
    asks: Mapping[str, Ask]
    history: tuple[tuple[Ask, ...], ...]
    _channel: Channel
    _sent: _Sent
    _state: Any

    def __repr__(self) -> str:
        asked = f"asks {', '.join(self.asks)}" if self.asks else "waits"
        outcome = asked if self.kind == "input_required" else f"{self.kind} {self.reply.text}"
        return f"<Round {self.number} of {self.label}: {outcome}>"

    @property
    def kind(self) -> Outcome:
        """`complete`, `input_required`, `error`, or `rejected` for plain HTTP."""
        return self.reply.kind

    @property
    def result(self) -> R:
        """What the call returned.

        Raises:
            UnansweredQuestion: The call asks instead.
            UnexpectedOutcome: It still waits.
            ErrorReply: It ended with a JSON-RPC error.
            RejectedRequest: The app answered with plain HTTP.
        """
        raw = self.reply.result
        where = f"Round {self.number} of {self.label}"
        if self.asks:
            raise UnansweredQuestion(where, self._asked(), ())
        if self.kind == "input_required":
            raise UnexpectedOutcome(f"{where} has no result: it still waits")
        return self.call.result_type.model_validate(raw)

    @property
    def error(self) -> ErrorReply:
        """The JSON-RPC error it ended with: `code`, `message`, `data`.

        Raises:
            UnexpectedOutcome: The call asks or returned a result.
            RejectedRequest: The app answered with plain HTTP.
        """
        return self.reply.error

    @property
    def status_code(self) -> int:
        """The HTTP status of the response."""
        return self.reply.status_code

    @property
    def notifications(self) -> tuple[Notification, ...]:
        """Progress and log messages of this round, in the order they came."""
        return self.reply.notifications

    @property
    def request_state(self) -> str | None:
        """The state that the next request echoes; None where there is none."""
        return None if self._state is OMIT else self._state

    @property
    def label(self) -> str:
        """The call in words, such as `tools/call book_seat`."""
        return self.call.label

    def answer(
        self,
        answers: Answers,
        *,
        partial: bool = False,
        params: Mapping[str, Any] | None = None,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> Round[R]:
        """Answer every ask of this round and return the next one.

        `params`, `headers` and `meta` change this one request, for what only an attacker would do:
        `answer(answers, params={"name": "another_tool"})`.

        Raises:
            UnansweredQuestion: An ask has no answer, and `partial` does not allow that.
            AnswersNotAsked: A key was not asked in this round.
        """
        self._expect_ask()
        label = f"Round {self.number} of {self.label}"
        if unknown := answers.keys() - self.asks.keys():
            raise AnswersNotAsked(label, unknown, self._asked())
        missing = [ask for key, ask in self.asks.items() if key not in answers]
        if missing and not partial:
            raise UnansweredQuestion(label, missing, answers)
        members: dict[str, Any] = {"requestState": self._state}
        if answers:
            members["inputResponses"] = {
                key: envelope(self.asks[key], answer) for key, answer in answers.items()
            }
        return self.send({**members, **(params or {})}, headers=headers, meta=meta)

    def wait(self, *, headers: Headers | None = None, meta: Meta | None = None) -> Round[R]:
        """Send the state back where the server is still waiting and asks nothing.

        Raises:
            UnansweredQuestion: This round does ask.
        """
        return self.answer({}, headers=headers, meta=meta)

    def send(
        self,
        members: Mapping[str, Any],
        *,
        headers: Headers | None = None,
        meta: Meta | None = None,
    ) -> Round[R]:
        """Send the call again with exactly these members in its params, right or wrong.

        ```python
        first.send({"inputResponses": 5, "requestState": first.request_state})
        ```
        """
        sent = _Sent(
            overlay(self.call.params, members),
            {**self.call.headers, **(headers or {})},
            {**self.call.meta, **(meta or {})},
        )
        return _round(self._channel, self.call, sent, self.number + 1, self.history)

    def replay(self) -> Round[R]:
        """Send once more what led to this round: same params, same state, a new id."""
        return _round(self._channel, self.call, self._sent, self.number, self.history[:-1])

    def drop_response(self, answers: Answers | None = None) -> Round[R]:
        """Answer, lose the response, and stand where the client was: at this round.

        ```python
        second = first.drop_response(answers).answer(answers)
        ```
        """
        self.answer(answers or {})
        return self

    def tamper(self, where: int | None = None, *, bit: int = 0) -> Round[R]:
        """This round with one bit of its state flipped.

        `where` counts characters, from the end if negative; the middle one by default. A base64url
        character has the bits 0 to 5, and stays one.

        Raises:
            UnexpectedOutcome: There is no state, as nowhere on an older revision.
        """
        state = self._state
        if not isinstance(state, str) or not state:
            raise UnexpectedOutcome(f"Round {self.number} of {self.label} has no requestState")
        index = range(len(state))[len(state) // 2 if where is None else where]
        old = state[index]
        value = _BASE64URL.find(old)
        new = chr(ord(old) ^ 1 << bit) if value < 0 else _BASE64URL[value ^ 1 << bit]
        return self.with_state(state[:index] + new + state[index + 1 :])

    def with_state(self, state: Any) -> Round[R]:
        """This round with another state, of any shape; `OMIT` sends none.

        Raises:
            UnexpectedOutcome: On an older revision, which has no states.
        """
        if (version := self._channel.version) != PROTOCOL_VERSION:
            raise UnexpectedOutcome(f"{version} has no requestState that could be changed")
        return replace(self, _state=state)

    def expire(self) -> Round[R]:
        """This round, ten years later by the router's clock. `client.advance` moves it less."""
        self._channel.advance(BEYOND_EVERY_EXPIRY)
        return self

    def play(
        self, answers: Answers | None = None, *, on_wait: Callable[[Round[R]], object] | None = None
    ) -> R:
        """Play the rounds that are left, as `client.call_tool` does, and return the result."""
        return _play(self, answers or {}, on_wait)

    def transcript(self) -> str:
        """What was asked so far, a line an ask."""
        return _transcript(self.history)

    def _asked(self) -> Sequence[Ask]:
        return tuple(self.asks.values())

    def _expect_ask(self) -> None:
        if self.kind == "input_required":
            return
        raise UnexpectedOutcome(
            f"{self.label} is over and asks nothing: round {self.number} returned "
            f"{self.reply.result!r}"
        )


def begin(channel: Channel, call: Call[R]) -> Round[R]:
    """Send a call for the first time."""
    return _round(channel, call, _Sent(call.params, call.headers, call.meta), 1, ())


def _round(
    channel: Channel, call: Call[R], sent: _Sent, number: int, history: tuple[tuple[Ask, ...], ...]
) -> Round[R]:
    reply = channel.request(call.method, sent.params, headers=sent.headers, meta=sent.meta)
    result = reply.result if reply.kind == "input_required" else {}
    earlier = [ask.key for asks in history for ask in asks]
    asks = {
        key: Ask(key, ask["method"], ask.get("params", {}), earlier.count(key) + 1)
        for key, ask in result.get("inputRequests", {}).items()
    }
    return Round(
        call,
        number,
        reply,
        asks,
        (*history, tuple(asks.values())),
        channel,
        sent,
        result.get("requestState", OMIT),
    )


def _play(round_: Round[R], answers: Answers, on_wait: Callable[[Round[R]], object] | None) -> R:
    channel = round_._channel
    rounds = waits = 0
    while round_.kind == "input_required":
        if round_.asks:
            rounds += 1
            round_ = _answered(round_, answers, rounds, channel.max_rounds)
        else:
            waits += 1
            _limit(round_, "waited", waits, channel.max_waits)
            if on_wait is not None:
                on_wait(round_)
            round_ = round_.wait()
    try:
        result = round_.result
    except ErrorReply as error:
        error.add_note(f"Asked until then:\n{round_.transcript()}")
        raise
    asked = [ask for asks in round_.history for ask in asks]
    if never := answers.keys() - {ask.key for ask in asked}:
        failure = AnswersNotAsked(round_.label, never, asked)
        failure.add_note(f"It ended with {result!r}")
        raise failure
    return result


def _answered(round_: Round[R], answers: Answers, rounds: int, most: int) -> Round[R]:
    _limit(round_, "asked", rounds, most)
    if missing := [ask for key, ask in round_.asks.items() if key not in answers]:
        raise UnansweredQuestion(f"Round {round_.number} of {round_.label}", missing, answers)
    following = round_.answer({key: answers[key] for key in round_.asks})
    for key, ask in following.asks.items():
        before, sent = _answer_sent(round_, key), _answer_sent(following, key)
        if before == sent and key in round_.asks and round_.asks[key].params == ask.params:
            raise AnswerNotAccepted(f"Round {following.number} of {round_.label}", ask, sent)
    return following


def _answer_sent(round_: Round[Any], key: str) -> Any:
    return round_._sent.params.get("inputResponses", {}).get(key, OMIT)


def _limit(round_: Round[Any], verb: str, count: int, most: int) -> None:
    if count > most:
        hint = "; on_wait= is where a test completes what it waits for" * (verb == "waited")
        raise TooManyRounds(
            f"{round_.label} {verb} more than {most} times{hint}. Asked were:\n"
            f"{round_.transcript()}"
        )


def _transcript(history: tuple[tuple[Ask, ...], ...]) -> str:
    rounds = (listed(asks, f"round {number}, ") for number, asks in enumerate(history, start=1))
    return "\n".join(filter(None, rounds)) or "  nothing"
