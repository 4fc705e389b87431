"""What a run takes from its journal: answers that count, steps that are not repeated, detours."""

from contextlib import suppress
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr.errors import (
    INVALID_PARAMS,
    DuplicateKeyError,
    HandlerError,
    InputCancelled,
    InputDeclined,
    InputRefused,
    MCPError,
    MissingClientCapability,
    NondeterminismError,
    UnstableQuestionError,
)
from fastapi_mcp_mrtr.rounds.sentinels import (
    Rounds,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    step,
)

from .play import CANCEL, DECLINE, EVERYTHING, Flow, accept

pytestmark = pytest.mark.anyio


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B", "C"]


# --- answers ---------------------------------------------------------------------------------


async def chain() -> Rounds[str]:
    a: str = yield need_input("a", "A?", str)
    b: str = yield need_input("b", f"B after {a}?", str)
    c: str = yield need_input("c", f"C after {b}?", str)
    yield a + b + c


async def test_every_answer_stays_and_each_question_is_asked_once() -> None:
    """User report (python-sdk 2986): a chain of three dependent questions ends in four rounds."""
    flow = Flow(chain)
    assert list(await flow.asks()) == ["a"]
    assert list(await flow.asks({"a": accept("1")})) == ["b"]
    assert list(await flow.asks({"b": accept("2")})) == ["c"]
    assert await flow.result({"c": accept("3")}) == "123"


async def ask_seat() -> Rounds[Seat]:
    seat: Seat = yield need_input("seat", "Seat?", Seat)
    yield seat


async def test_the_handler_gets_a_typed_value_without_its_envelope() -> None:
    """User report (airlift 2079): content is unwrapped and validated."""
    flow = Flow(ask_seat)
    await flow.asks()
    result = await flow.result({"seat": accept({"row": 4, "letter": "A"})})
    assert result == Seat(row=4, letter="A")


async def test_an_answer_without_a_question_is_ignored() -> None:
    """User report (neva): what was never shown was never agreed to."""
    assert list(await Flow(ask_seat).asks({"seat": accept({"row": 4, "letter": "A"})})) == ["seat"]


async def test_an_answer_to_another_question_is_ignored() -> None:
    """Spec: SHOULD (mrtr §Error Handling): ignore what is not recognized or needed."""
    flow = Flow(chain)
    await flow.asks()
    early = {"b": accept("2"), "never": accept("x"), "never2": 5}
    assert list(await flow.asks(early)) == ["a"]
    assert list(await flow.asks({"a": accept("1")})) == ["b"]


async def test_a_handler_may_opt_in_to_unasked_answers() -> None:
    """Decision: `unasked_answers="accept"` for handlers that need no such guarantee."""
    flow = Flow(chain, accept_unasked=True)
    answers = {"a": accept("1"), "b": accept("2"), "c": accept("3"), "more": accept("4")}
    assert await flow.result(answers) == "123"


async def test_an_answer_given_once_is_not_replaced_by_a_later_one() -> None:
    """Decision: what the flow went on with stays, or its steps would no longer fit."""
    flow = Flow(chain)
    await flow.asks()
    await flow.asks({"a": accept("1")})
    assert (await flow.asks({"a": accept("other")}))["b"]["params"]["message"] == "B after 1?"


async def test_a_missing_answer_is_asked_again() -> None:
    """Spec: SHOULD (mrtr §Error Handling): ask again for what is missing, as it was."""
    flow = Flow(ask_seat)
    first = await flow.asks()
    assert await flow.asks() == first
    assert await flow.asks({}) == first


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (accept({"row": 50, "letter": "A"}), "row: must be at most 40"),
        (accept({"row": "x", "letter": "A"}), "row: must be a whole number"),
        (accept({"row": ["4"], "letter": "A"}), "row: must be a whole number"),
        (accept({}), "row: is required; letter: is required"),
        (accept(), "row: is required; letter: is required"),
        ({"action": "accept", "content": None}, "row: is required; letter: is required"),
    ],
)
async def test_content_that_does_not_fit_is_asked_again_with_the_reason(
    answer: Any, reason: str
) -> None:
    """User report (mcp-use 1882, php 449): another round instead of an error or a wrong value."""
    flow = Flow(ask_seat)
    await flow.asks()
    asks = await flow.asks({"seat": answer})
    assert asks["seat"]["params"]["message"] == f"Seat?\n({reason})"


async def test_the_reason_is_no_part_of_the_question() -> None:
    """Decision: a question with a reason is not a reworded one; its answer counts."""
    flow = Flow(ask_seat)
    await flow.asks()
    for _ in range(5):
        await flow.asks({"seat": accept({"row": 50, "letter": "A"})})
    assert await flow.asks() == await Flow(ask_seat).asks()
    await flow.asks({"seat": accept({"row": 50, "letter": "A"})})
    assert await flow.result({"seat": accept({"row": 4, "letter": "A"})})


async def test_an_unasked_answer_that_does_not_fit_is_asked_with_the_reason() -> None:
    """Decision: opting in changes which answers are read, not how."""
    flow = Flow(ask_seat, accept_unasked=True)
    asks = await flow.asks({"seat": accept({"row": 50, "letter": "A"})})
    assert "at most 40" in asks["seat"]["params"]["message"]


@pytest.mark.parametrize(
    "envelope",
    [
        12345,
        "accept",
        None,
        [],
        {},
        {"action": "yes"},
        {"action": 1},
        {"content": {"row": 4, "letter": "A"}},
        {"action": "accept", "content": "secret"},
        {"action": "accept", "content": ["secret"]},
    ],
)
async def test_what_is_no_answer_at_all_is_an_error_that_names_the_key(envelope: Any) -> None:
    """Spec: protocol errors get a JSON-RPC error; decision: the value is never repeated."""
    flow = Flow(ask_seat)
    await flow.asks()
    with pytest.raises(MCPError) as caught:
        await flow.round({"seat": envelope})
    assert caught.value.code == INVALID_PARAMS
    assert caught.value.message == "inputResponses['seat'] is no valid ElicitResult"


async def test_a_malformed_answer_that_was_not_asked_for_is_ignored() -> None:
    """Spec: SHOULD (mrtr §Error Handling): ignore what is not needed."""
    assert list(await Flow(ask_seat).asks({"seat": 12345})) == ["seat"]


async def test_journaled_content_that_no_longer_fits_is_asked_again() -> None:
    """Decision: a deployment with a stricter validator invalidates answers, not flows."""
    flow = Flow(ask_seat)
    await flow.asks()
    answered = {"seat": accept({"row": 4, "letter": "A"})}
    await flow.result(answered)
    flow.journal.answers["seat"] = flow.journal.answers["seat"]._replace(content={"row": 50})
    asks = await flow.asks()
    assert "at most 40" in asks["seat"]["params"]["message"]
    assert flow.journal.answers == {}


async def test_a_key_used_twice_in_a_run_is_an_error() -> None:
    """Decision: two asks must not share an answer."""

    async def handler() -> Rounds[str]:
        yield (yield need_input("a", "A?", str)) + (yield need_input("a", "B?", str))

    flow = Flow(handler)
    await flow.asks()
    with pytest.raises(DuplicateKeyError) as caught:
        await flow.round({"a": accept("1")})
    assert caught.value.key == "a"


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("envelope", "error"), [(DECLINE, InputDeclined), (CANCEL, InputCancelled)]
)
@pytest.mark.parametrize("content", [None, {"row": 4, "letter": "A"}, "nonsense"])
async def test_a_refusal_is_raised_at_the_yield_whatever_its_content(
    envelope: Any, error: type[InputRefused], content: Any
) -> None:
    """User report (rust-sdk 1147): content counts only with action "accept"."""
    flow = Flow(ask_seat)
    await flow.asks()
    with pytest.raises(error) as caught:
        await flow.round({"seat": {**envelope, "content": content}})
    assert caught.value.key == "seat"


async def test_a_handler_may_catch_a_refusal_and_go_on() -> None:
    """Decision: a refusal is an answer, journaled like one and raised again on every replay."""

    async def handler() -> Rounds[str]:
        try:
            seat: str = yield need_input("seat", "Seat?", str)
        except InputRefused as refused:
            seat = f"any, {refused.key} was {refused.action}"
        meal: str = yield need_input("meal", f"Meal at {seat}?", str)
        yield f"{seat}, {meal}"

    flow = Flow(handler)
    await flow.asks()
    assert list(await flow.asks({"seat": DECLINE})) == ["meal"]
    assert await flow.result({"meal": accept("none")}) == "any, seat was decline, none"


async def test_a_handler_may_end_without_result_on_a_refusal() -> None:
    """Decision: it completes with None, as everywhere."""

    async def handler() -> Rounds[str]:
        with suppress(InputRefused):
            yield (yield need_input("seat", "Seat?", str))

    flow = Flow(handler)
    await flow.asks()
    assert await flow.result({"seat": DECLINE}) is None


# --- batches ---------------------------------------------------------------------------------


async def batch() -> Rounds[Any]:
    try:
        yield list((yield [need_input(key, f"{key}?", str) for key in "abc"]))
    except InputRefused as refused:
        again: str = yield need_input("again", f"{refused.key} was {refused.action}?", str)
        yield again


async def test_a_batch_is_one_round_and_gives_back_answers_in_order() -> None:
    """Decision: several asks at once, as a tuple in their order."""
    flow = Flow(batch)
    assert list(await flow.asks()) == ["a", "b", "c"]
    answers = {"c": accept("3"), "a": accept("1"), "b": accept("2")}
    assert await flow.result(answers) == ["1", "2", "3"]


async def test_only_what_is_missing_of_a_batch_is_asked_again() -> None:
    """Spec: SHOULD (mrtr §Error Handling): request the missing information again."""
    flow = Flow(batch)
    await flow.asks()
    assert list(await flow.asks({"b": accept("2"), "c": accept({"value": 3})})) == ["a", "c"]
    assert await flow.result({"a": accept("1"), "c": accept("3")}) == ["1", "2", "3"]


async def test_the_first_refusal_of_a_batch_is_raised_and_all_answers_are_kept() -> None:
    """Decision: in the order of the batch, not of the answers; nothing that came is lost."""
    flow = Flow(batch)
    await flow.asks()
    asks = await flow.asks({"c": CANCEL, "b": DECLINE, "a": accept("1")})
    assert asks["again"]["params"]["message"] == "b was decline?"
    assert [answer.action for answer in flow.journal.answers.values()] == [
        "accept",
        "decline",
        "cancel",
    ]
    assert await flow.result({"again": accept("yes")}) == "yes"


async def test_a_refusal_does_not_wait_for_what_is_missing() -> None:
    """Decision: a user who refused one question is not asked the others again."""
    flow = Flow(batch)
    await flow.asks()
    assert list(await flow.asks({"c": CANCEL})) == ["again"]
    assert await flow.result({"again": accept("yes"), "a": accept("late")}) == "yes"


async def test_a_key_used_twice_in_a_batch_is_an_error() -> None:
    """Spec: MUST (mrtr §Server Requirements 2): keys are unique within a request."""

    async def handler() -> Rounds[Any]:
        yield need_input("a", "A?", str), need_input("a", "B?", str)

    with pytest.raises(DuplicateKeyError):
        await Flow(handler).round()


# --- rewording -------------------------------------------------------------------------------


class Shop:
    """A price that changes between rounds."""

    def __init__(self) -> None:
        self.price = 100

    async def buy(self) -> Rounds[str]:
        ok: bool = yield need_input("pay", f"Pay {self.price}?", bool)
        gift: bool = yield need_input("gift", "Wrap it?", bool)
        yield f"{self.price} {ok} {gift}"


async def test_a_reworded_question_is_asked_again() -> None:
    """Decision: yes to one price is no yes to another."""
    shop = Shop()
    flow = Flow(shop.buy)
    await flow.asks()
    shop.price = 200
    asks = await flow.asks({"pay": accept(True)})
    assert asks["pay"]["params"]["message"] == "Pay 200?"
    assert list(await flow.asks({"pay": accept(True)})) == ["gift"]
    assert await flow.result({"gift": accept(False)}) == "200 True False"


async def test_a_refusal_of_a_reworded_question_does_not_count_either() -> None:
    """Decision: a refusal is pinned like any answer."""
    shop = Shop()
    flow = Flow(shop.buy)
    await flow.asks()
    shop.price = 50
    assert list(await flow.asks({"pay": DECLINE})) == ["pay"]


async def test_a_journaled_answer_is_pinned_too_and_later_answers_stay() -> None:
    """Decision: the reworded question alone is asked again; what came after it is kept."""
    shop = Shop()
    flow = Flow(shop.buy)
    await flow.asks()
    await flow.asks({"pay": accept(True)})
    await flow.result({"gift": accept(True)})
    shop.price = 200
    assert list(await flow.asks()) == ["pay"]
    assert await flow.result({"pay": accept(True)}) == "200 True True"


async def test_a_changed_schema_is_another_question() -> None:
    """Decision: the digest pins the question as rendered, schema included."""
    schema: Any = int

    async def handler() -> Rounds[Any]:
        yield (yield need_input("a", "A?", schema))

    flow = Flow(handler)
    await flow.asks()
    schema = float
    assert list(await flow.asks({"a": accept(1)})) == ["a"]


async def test_a_question_that_changes_on_every_round_ends_the_flow() -> None:
    """User report (python-sdk docs): a timestamp in the message asks until the client gives up."""
    now = 0

    async def handler() -> Rounds[Any]:
        yield (yield need_input("pay", f"Pay at {now}?", bool))

    flow = Flow(handler)
    await flow.asks()
    now = 1
    await flow.asks({"pay": accept(True)})
    now = 2
    await flow.asks({"pay": accept(True)})
    now = 3
    with pytest.raises(UnstableQuestionError) as caught:
        await flow.round({"pay": accept(True)})
    assert caught.value.key == "pay"


async def test_a_question_may_change_now_and_then() -> None:
    """Decision: only rewordings in a row count."""
    shop = Shop()
    flow = Flow(shop.buy)
    await flow.asks()
    for _ in range(5):
        shop.price += 1
        await flow.asks({"pay": accept(True)})
        await flow.asks()
    assert flow.journal.rewordings == {}


async def test_reworded_unasked_answers_do_not_count() -> None:
    """Decision: opting in to unasked answers is no opting out of pins."""
    shop = Shop()
    flow = Flow(shop.buy, accept_unasked=True)
    await flow.asks()
    shop.price = 200
    assert list(await flow.asks({"pay": accept(True)})) == ["pay"]


# --- detours ---------------------------------------------------------------------------------


class Detour:
    """A handler whose way depends on something outside."""

    def __init__(self, *ways: str) -> None:
        self.ways = ways
        self.now = ways[0]

    def turn(self) -> None:
        self.now = self.ways[1]


class AskAOrB(Detour):
    async def handler(self) -> Rounds[str]:
        yield (yield need_input(self.now, "?", str))


async def test_asking_something_else_than_before_is_an_error() -> None:
    """User report (SwiftMCP 160): a clear error, not a wrong answer to a wrong question."""
    detour = AskAOrB("a", "b")
    flow = Flow(detour.handler)
    await flow.asks()
    detour.turn()
    with pytest.raises(NondeterminismError, match="asked 'b' without coming to it") as caught:
        await flow.round({"a": accept("x")})
    assert caught.value.key == "a"


class SkipAnswer(Detour):
    async def handler(self) -> Rounds[str]:
        if self.now == "long":
            yield need_input("a", "?", str)
        yield (yield need_input("b", "?", str)) + (yield need_input("c", "?", str))


async def test_passing_by_an_answered_question_is_an_error_at_the_next_ask() -> None:
    """Decision: found where it matters, before anything is asked on the wrong way."""
    detour = SkipAnswer("long", "short")
    flow = Flow(detour.handler)
    await flow.asks()
    await flow.asks({"a": accept("x")})
    detour.turn()
    with pytest.raises(NondeterminismError) as caught:
        await flow.round({"b": accept("y")})
    assert caught.value.key == "a"
    assert caught.value.recorded == "an answered question"


class SkipStep(Detour):
    async def handler(self) -> Rounds[str]:
        if self.now == "long":
            yield step("hold", len, "seat")
        yield (yield need_input("a", "?", str)) + (yield need_input("b", "?", str))


async def test_passing_by_a_step_is_an_error_that_shows_it() -> None:
    """Decision: an effect that the handler no longer knows of must not be lost in silence."""
    detour = SkipStep("long", "short")
    flow = Flow(detour.handler)
    await flow.asks()
    detour.turn()
    with pytest.raises(NondeterminismError) as caught:
        await flow.round({"a": accept("x")})
    assert (caught.value.key, caught.value.recorded) == ("hold", "len('seat')")


class StepOrAsk(Detour):
    async def handler(self) -> Rounds[Any]:
        if self.now == "step":
            yield step("x", len, "seat")
        else:
            yield need_input("x", "?", str)
        yield need_input("y", "?", str)
        yield need_input("z", "?", str)


@pytest.mark.parametrize(
    ("ways", "answers", "requested"),
    [
        (("step", "ask"), {"y": accept("1")}, "asked a question by that key"),
        (("ask", "step"), {"x": accept("1")}, "ran the step len('seat')"),
    ],
)
async def test_a_key_is_either_an_ask_or_a_step(
    ways: tuple[str, str], answers: Any, requested: str
) -> None:
    """Decision: an answer must not be taken for a result, nor the reverse."""
    detour = StepOrAsk(*ways)
    flow = Flow(detour.handler)
    await flow.asks()
    detour.turn()
    with pytest.raises(NondeterminismError) as caught:
        await flow.round(answers)
    assert (caught.value.key, caught.value.requested) == ("x", requested)


async def test_an_answered_key_must_not_become_a_step() -> None:
    """Decision: the same for an answer in the journal."""
    detour = StepOrAsk("ask", "step")
    flow = Flow(detour.handler)
    await flow.asks()
    await flow.asks({"x": accept("1")})
    detour.turn()
    with pytest.raises(NondeterminismError):
        await flow.round({"y": accept("1")})


async def test_a_step_once_asked_about_must_stay_in_sight() -> None:
    """Decision: a step that was passed by at a reworded question is still expected afterwards."""
    price = 100

    async def handler() -> Rounds[str]:
        ok: bool = yield need_input("pay", f"Pay {price}?", bool)
        if ok:
            yield step("hold", len, "seat")
        yield (yield need_input("meal", "Meal?", str)) + (yield need_input("bag", "Bag?", str))

    flow = Flow(handler)
    await flow.asks()
    await flow.asks({"pay": accept(True)})
    price = 200
    assert list(await flow.asks({"meal": accept("x")})) == ["pay"]
    with pytest.raises(NondeterminismError) as caught:
        await flow.round({"pay": accept(False)})
    assert caught.value.key == "hold"


async def test_answers_after_a_reworded_question_need_not_be_reached() -> None:
    """Decision: another answer to the reworded question may rightly lead another way."""
    price = 100

    async def handler() -> Rounds[str]:
        if (yield need_input("pay", f"Pay {price}?", bool)):
            yield (yield need_input("meal", "Meal?", str)) + (yield need_input("bag", "?", str))
        yield (yield need_input("why", "Why not?", str))

    flow = Flow(handler)
    await flow.asks()
    await flow.asks({"pay": accept(True)})
    await flow.asks({"meal": accept("x")})
    price = 200
    assert list(await flow.asks()) == ["pay"]
    assert flow.journal.aside == {"meal"}
    assert list(await flow.asks({"pay": accept(False)})) == ["why"]
    assert await flow.result({"why": accept("dear")}) == "dear"


async def test_waiting_earlier_than_before_is_no_detour() -> None:
    """Decision: `not_yet` depends on the outside by its nature; nothing is lost meanwhile."""
    ready = True

    async def handler() -> Rounds[str]:
        if not ready:
            yield not_yet()
        yield (yield need_input("a", "?", str)) + (yield need_input("b", "?", str))

    flow = Flow(handler)
    await flow.asks()
    await flow.asks({"a": accept("1")})
    ready = False
    assert await flow.asks({"b": accept("2")}) == {}
    ready = True
    assert list(await flow.asks()) == ["b"]
    assert await flow.result({"b": accept("2")}) == "12"


async def test_completing_early_is_no_detour() -> None:
    """Decision: only a new ask is checked; a result needs nothing more from the journal."""
    detour = SkipAnswer("long", "short")

    async def handler() -> Rounds[str]:
        if detour.now == "short":
            yield "sold out"
            return
        yield (yield need_input("a", "?", str))

    flow = Flow(handler)
    await flow.asks()
    detour.turn()
    assert await flow.result({"a": accept("1")}) == "sold out"


# --- steps -----------------------------------------------------------------------------------


class Hold(BaseModel):
    seat: Seat
    price: int


class Desk:
    """Counts what it does, and can be made to fail."""

    def __init__(self) -> None:
        self.holds = 0
        self.error: Exception | None = None

    async def hold(self, row: int) -> Hold:
        if self.error is not None:
            raise self.error
        self.holds += 1
        return Hold(seat=Seat(row=row, letter="A"), price=self.holds)

    async def book(self, row: int = 4) -> Rounds[str]:
        try:
            hold: Hold = yield step("hold", self.hold, row)
        except LookupError as error:
            yield f"failed: {error}"
            return
        assert isinstance(hold, Hold)
        ok: bool = yield need_input("ok", f"Pay {hold.price}?", bool)
        yield f"{hold.price} {ok}"


async def test_a_step_runs_once_in_a_flow() -> None:
    """User report (php-sdk 466): code above an ask runs once a round; a step does not."""
    desk = Desk()
    flow = Flow(desk.book)
    await flow.asks()
    await flow.asks()
    assert await flow.result({"ok": accept(True)}) == "1 True"
    assert desk.holds == 1


async def test_a_failing_step_raises_at_the_yield_and_runs_again() -> None:
    """Decision: a failure is no result; the handler may catch it, the next round tries again."""
    desk = Desk()
    desk.error = LookupError("no seats")
    flow = Flow(desk.book)
    assert await flow.result() == "failed: no seats"
    assert flow.journal.steps == {}
    desk.error = None
    assert list(await flow.asks()) == ["ok"]


async def test_other_arguments_on_replay_are_an_error_that_shows_both_calls() -> None:
    """Decision: NondeterminismError shows recorded beside requested."""
    desk = Desk()
    flow = Flow(desk.book, 4)
    await flow.asks()
    other = Flow(desk.book, 7)
    other.journal = flow.journal
    with pytest.raises(NondeterminismError) as caught:
        await other.round()
    assert caught.value.recorded == "Desk.hold(4)"
    assert caught.value.requested == "ran Desk.hold(7)"
    assert desk.holds == 1


async def test_a_step_may_change_its_arguments() -> None:
    """Decision: a call is told by what it was called with."""

    def fill(seats: list[str]) -> int:
        seats.append("1A")
        return len(seats)

    async def handler() -> Rounds[int]:
        taken: int = yield step("fill", fill, [])
        yield need_input("ok", "?", bool)
        yield taken

    flow = Flow(handler)
    await flow.asks()
    assert await flow.result({"ok": accept(True)}) == 1


async def test_another_function_on_replay_is_an_error() -> None:
    """Decision: a result belongs to the function that made it."""
    function: Any = len

    async def handler() -> Rounds[Any]:
        yield step("x", function, "a")
        yield need_input("y", "?", str)

    flow = Flow(handler)
    await flow.asks()
    function = str
    with pytest.raises(NondeterminismError, match=r"len\('a'\).*str\('a'\)"):
        await flow.round()


async def test_a_key_used_for_two_steps_is_an_error() -> None:
    """Decision: two steps must not share a result."""

    async def handler() -> Rounds[Any]:
        yield step("x", len, "a")
        yield step("x", len, "a")

    with pytest.raises(DuplicateKeyError):
        await Flow(handler).round()


async def test_a_result_that_cannot_be_journaled_is_the_authors_error() -> None:
    """Decision: found when the step runs, not on the replay that cannot read it."""

    def connect(word: str):  # type: ignore[no-untyped-def]
        return object()

    async def handler() -> Rounds[Any]:
        try:
            yield step("x", connect, "a")
        except Exception:
            yield "swallowed"

    with pytest.raises(HandlerError, match=r"'x'.*connect\('a'\)"):
        await Flow(handler).round()


async def test_a_journaled_result_that_no_longer_fits_is_the_authors_error() -> None:
    """Decision: a deployment that changes a return type needs another `version=`."""
    desk = Desk()
    flow = Flow(desk.book)
    await flow.asks()
    flow.journal.steps["hold"] = flow.journal.steps["hold"]._replace(value={"price": 1})
    with pytest.raises(HandlerError, match="'hold'"):
        await flow.round()


async def test_the_value_is_the_same_on_the_first_run_and_on_replay() -> None:
    """Decision: both read what was journaled, so no branch depends on which round it is."""
    seen: list[Any] = []

    def pair():  # type: ignore[no-untyped-def]
        return ("a", {1: 2})

    async def handler() -> Rounds[Any]:
        seen.append((yield step("pair", pair)))
        yield need_input("y", "?", str)

    flow = Flow(handler)
    await flow.asks()
    await flow.asks()
    assert seen == [["a", {"1": 2}]] * 2


async def test_sync_steps_run_in_a_thread_and_may_return_an_awaitable() -> None:
    """Decision: whatever a step is, the handler gets its result."""
    import threading

    loop_thread = threading.get_ident()

    def where() -> bool:
        return threading.get_ident() == loop_thread

    async def on_loop() -> bool:
        return where()

    def indirectly() -> Any:
        return on_loop()

    class Callable:
        async def __call__(self) -> bool:
            return where()

    async def handler() -> Rounds[list[bool]]:
        steps: Any = (where, on_loop, indirectly, Callable())
        results: list[bool] = []
        for i, fn in enumerate(steps):
            results.append((yield step(str(i), fn)))
        yield results

    assert await Flow(handler).result() == [False, True, True, True]


async def test_stop_iteration_in_a_step_is_an_error_at_the_yield() -> None:
    """Decision: it must neither end the handler nor hang the thread."""

    def empty() -> None:
        next(iter(()))

    async def handler() -> Rounds[str]:
        try:
            yield step("x", empty)
        except RuntimeError as error:
            yield str(error)

    assert "StopIteration" in await Flow(handler).result()


# --- capabilities ----------------------------------------------------------------------------


async def asks_form() -> Rounds[Any]:
    yield need_input("x", "?", str)


async def asks_url() -> Rounds[Any]:
    yield need_url("x", "Go", "https://example.org/")


async def asks_sampling() -> Rounds[Any]:
    yield need_sampling("x", "Hi", max_tokens=1)


async def asks_sampling_with_tools() -> Rounds[Any]:
    yield need_sampling("x", "Hi", max_tokens=1, tool_choice={"mode": "none"})


async def asks_sampling_with_context() -> Rounds[Any]:
    yield need_sampling("x", "Hi", max_tokens=1, include_context="thisServer")


async def asks_roots() -> Rounds[Any]:
    yield need_roots("x")


async def asks_everything() -> Rounds[Any]:
    yield (
        need_input("a", "?", str),
        need_url("b", "Go", "https://example.org/"),
        need_sampling("c", "Hi", max_tokens=1, tool_choice={"mode": "none"}),
        need_roots("d"),
    )


FORM: dict[str, Any] = {"elicitation": {"form": {}}}
URL: dict[str, Any] = {"elicitation": {"url": {}}}


@pytest.mark.parametrize(
    ("handler", "capabilities", "lacking"),
    [
        (asks_form, {}, FORM),
        (asks_form, URL, FORM),
        (asks_form, {"elicitation": None}, FORM),
        (asks_form, {"elicitation": True}, FORM),
        (asks_form, {"elicitation": {}}, None),
        (asks_form, {"elicitation": {"form": None, "url": None}}, None),
        (asks_form, FORM, None),
        (asks_url, {"elicitation": {}}, URL),
        (asks_url, FORM, URL),
        (asks_url, {}, URL),
        (asks_url, URL, None),
        (asks_sampling, {}, {"sampling": {}}),
        (asks_sampling, {"sampling": {}}, None),
        (asks_sampling_with_tools, {}, {"sampling": {"tools": {}}}),
        (asks_sampling_with_tools, {"sampling": {}}, {"sampling": {"tools": {}}}),
        (asks_sampling_with_tools, {"sampling": {"tools": {}}}, None),
        (asks_sampling_with_context, {"sampling": {"tools": {}}}, {"sampling": {"context": {}}}),
        (asks_sampling_with_context, {"sampling": {"context": {}}}, None),
        (asks_roots, {}, {"roots": {}}),
        (asks_roots, {"roots": {}}, None),
        (
            asks_everything,
            {},
            {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}},
        ),
        (asks_everything, FORM | {"roots": {}}, URL | {"sampling": {"tools": {}}}),
        (asks_everything, EVERYTHING, None),
    ],
)
async def test_nothing_is_sent_that_the_client_did_not_declare(
    handler: Any, capabilities: Any, lacking: Any
) -> None:
    """Spec: MUST NOT (mrtr §Server Requirements 7, sampling §Capabilities): -32021 instead."""
    flow = Flow(handler, capabilities=capabilities)
    if lacking is None:
        assert await flow.asks()
        return
    with pytest.raises(MissingClientCapability) as caught:
        await flow.round()
    assert caught.value.data == {"requiredCapabilities": lacking}


async def test_a_capability_for_what_is_answered_already_is_not_needed() -> None:
    """Decision: only what would be sent counts."""
    flow = Flow(asks_everything)
    await flow.asks()
    answers = {"a": accept("x"), "b": accept(), "d": {"roots": []}}
    narrow = Flow(asks_everything, capabilities={"sampling": {"tools": {}}})
    narrow.journal = flow.journal
    assert list(await narrow.asks(answers)) == ["c"]
