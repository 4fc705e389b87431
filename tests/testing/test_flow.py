"""Whole flows and single rounds, against a server that plays a script."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult

from fastapi_mcp_mrtr.testing import (
    DECLINE,
    OMIT,
    AnswerNotAccepted,
    AnswersNotAsked,
    Ask,
    ErrorReply,
    MCPTestClient,
    Notification,
    RejectedRequest,
    Reply,
    Round,
    TooManyRounds,
    UnansweredQuestion,
    UnexpectedOutcome,
    in_turn,
)
from fastapi_mcp_mrtr.testing.flow import Call, begin
from fastapi_mcp_mrtr.testing.wire import PROTOCOL_VERSION
from tests.testing.script import (
    CONFIRM,
    SEAT,
    Answer,
    Script,
    Seen,
    as_events,
    asking,
    done,
    failed,
    form,
)

A4 = {"row": 4, "letter": "A"}


def play(*replies: Answer, **options: Any) -> tuple[MCPTestClient, list[Seen]]:
    script = Script(list(replies))
    return MCPTestClient(script.app(), **options), script.seen


def booking(**options: Any) -> tuple[MCPTestClient, list[Seen]]:
    """Two asks and a result."""
    return play(asking("s1", seat=SEAT), asking("s2", confirm=CONFIRM), done("booked"), **options)


def test_a_flow_plays_to_its_result() -> None:
    """The main job: every ask answered, the result returned; decision."""
    client, seen = booking()
    result = client.call_tool("book", {"flight": "LX1"}, answers={"seat": A4, "confirm": True})
    assert isinstance(result, CallToolResult)
    assert result.content[0].model_dump()["text"] == "booked"
    assert len(seen) == len(client.replies) == 3


def test_every_round_repeats_the_call_and_echoes_its_own_state() -> None:
    """spec: MUST (mrtr §Client Requirements 2, 4)."""
    client, seen = booking()
    client.call_tool("book", {"flight": "LX1"}, answers={"seat": A4, "confirm": DECLINE})
    assert [s.params["arguments"] for s in seen] == [{"flight": "LX1"}] * 3
    assert [s.params.get("requestState") for s in seen] == [None, "s1", "s2"]
    assert "requestState" not in seen[0].params
    assert [s.params.get("inputResponses") for s in seen] == [
        None,
        {"seat": {"action": "accept", "content": A4}},
        {"confirm": {"action": "decline"}},
    ]


def test_every_request_has_an_id_and_a_progress_token_of_its_own() -> None:
    """spec: MUST (mrtr §Client Requirements 3, progress §Progress Flow)."""
    client, seen = booking()
    client.call_tool("book", answers={"seat": A4, "confirm": True})
    assert len({s.body["id"] for s in seen}) == 3
    assert len({s.meta["progressToken"] for s in seen}) == 3


def test_no_state_is_sent_where_none_came() -> None:
    """spec: MUST NOT (mrtr §Client Requirements 2)."""
    client, seen = play(asking("s1", seat=SEAT), asking(confirm=CONFIRM), done())
    client.call_tool("book", answers={"seat": A4, "confirm": True})
    assert "requestState" not in seen[2].params


def test_an_unanswered_question_is_listed() -> None:
    """A flow that asks more than the test knows says what; decision."""
    client, _ = booking()
    with pytest.raises(UnansweredQuestion) as failure:
        client.call_tool("book", answers={"seat": A4, "other": 1})
    assert [ask.key for ask in failure.value.asks] == ["confirm"]
    assert str(failure.value) == (
        "Round 2 of tools/call book asks what the test does not answer:\n"
        "  confirm: Pay 120?\n"
        "Answers given: other, seat"
    )


def test_an_answer_never_asked_is_listed() -> None:
    """A test that expects a question that does not come must fail; decision."""
    client, _ = play(asking("s1", seat=SEAT), done("sold out"))
    with pytest.raises(AnswersNotAsked) as failure:
        client.call_tool("book", answers={"seat": A4, "confirm": True})
    assert failure.value.keys == ("confirm",)
    assert str(failure.value) == (
        "tools/call book never asked: confirm\nAsked were:\n  seat: Which seat?"
    )
    assert "sold out" in failure.value.__notes__[0]


def test_an_answer_to_a_flow_without_questions_is_listed() -> None:
    """The list of what was asked may be empty; decision."""
    client, _ = play(done())
    with pytest.raises(AnswersNotAsked, match="Asked were:\n  nothing"):
        client.call_tool("book", answers={"seat": A4})


def test_a_question_asked_again_gets_the_answer_again() -> None:
    """A reworded question is answered by the same value; decision."""
    client, seen = play(
        asking("s1", seat=SEAT), asking("s2", seat=form("Now?", row={"type": "integer"})), done()
    )
    client.call_tool("book", answers={"seat": A4})
    assert seen[1].params["inputResponses"] == seen[2].params["inputResponses"]


def test_a_question_asked_again_may_get_another_answer() -> None:
    """`in_turn` and `ask.times` count the asks of a key; decision."""
    client, seen = play(asking("s1", seat=SEAT), asking("s2", seat=SEAT, confirm=CONFIRM), done())
    times: list[int] = []

    def confirm(ask: Ask) -> bool:
        times.append(ask.times)
        return True

    client.call_tool("book", answers={"seat": in_turn({"row": 99}, A4), "confirm": confirm})
    rows = [s.params["inputResponses"]["seat"]["content"]["row"] for s in seen[1:]]
    assert rows == [99, 4]
    assert times == [1]


def test_rounds_are_bounded() -> None:
    """A server that asks for ever ends the test; decision."""
    asks = [asking("s", seat=form(f"Seat {n}?", row={"type": "integer"})) for n in range(4)]
    client, seen = play(*asks, max_rounds=3)
    with pytest.raises(TooManyRounds, match=r"asked more than 3 times\. Asked were:\n  round 1"):
        client.call_tool("book", answers={"seat": A4})
    assert len(seen) == 4


def test_an_answer_that_the_server_does_not_accept_is_named() -> None:
    """Three rounds tell what sixteen would not: the answer is wrong; decision."""
    again = form("Which seat?\n(row: must be at most 40)", row={"type": "integer"})
    client, seen = play(asking("s1", seat=SEAT), asking("s2", seat=again), asking("s3", seat=again))
    with pytest.raises(AnswerNotAccepted) as failure:
        client.call_tool("book", answers={"seat": {"row": 99}})
    assert len(seen) == 3
    assert failure.value.ask.key == "seat"
    assert str(failure.value) == (
        "Round 3 of tools/call book does not accept the answer "
        "{'action': 'accept', 'content': {'row': 99}}:\n"
        "  seat: Which seat?\n    (row: must be at most 40)"
    )


def test_a_question_asked_the_same_way_may_get_another_answer() -> None:
    """A corrected answer is a new one; decision."""
    client, _ = play(*[asking("s", seat=SEAT)] * 3, asking("s", confirm=CONFIRM), done())
    client.call_tool("book", answers={"seat": lambda ask: {"row": ask.times}, "confirm": True})


def test_an_error_at_the_end_comes_with_what_was_asked() -> None:
    """A flow that fails late is debugged by its questions; decision."""
    client, _ = play(asking("s", seat=SEAT), failed(-31002, "Too many rounds", 200))
    with pytest.raises(ErrorReply) as failure:
        client.call_tool("book", answers={"seat": A4})
    assert failure.value.code == -31002
    assert failure.value.__notes__ == ["Asked until then:\n  round 1, seat: Which seat?"]


def test_an_error_before_any_ask_says_so_too() -> None:
    """The note is there whatever came before; decision."""
    client, _ = play(failed(-32602, "Unknown tool"))
    with pytest.raises(ErrorReply) as failure:
        client.call_tool("nope")
    assert failure.value.__notes__ == ["Asked until then:\n  nothing"]


def test_a_waiting_server_is_asked_again() -> None:
    """spec: mrtr §Client Requirements 1: MAY retry at once, with the state alone."""
    client, seen = play(asking("s1"), asking("s2"), done())
    client.call_tool("pay")
    assert [s.params.get("requestState") for s in seen] == [None, "s1", "s2"]
    assert all("inputResponses" not in s.params for s in seen)


def test_the_hook_completes_what_the_server_waits_for() -> None:
    """Once before each retry, with the round; decision."""
    client, _ = play(asking("s1"), asking("s2"), done())
    waits: list[int] = []
    client.call_tool("pay", on_wait=lambda round_: waits.append(round_.number))
    assert waits == [1, 2]


def test_waits_are_bounded_by_themselves() -> None:
    """user report: rounds that only wait use up the round cap."""
    client, _ = play(*[asking("s")] * 3, asking("s", seat=SEAT), done(), max_rounds=1, max_waits=3)
    client.call_tool("pay", answers={"seat": A4})
    client, _ = play(*[asking("s")] * 4, max_waits=3)
    with pytest.raises(TooManyRounds, match="waited more than 3 times; on_wait="):
        client.call_tool("pay")


def test_prompts_and_resources_play_too() -> None:
    """spec: mrtr §Supported Requests."""
    messages = [{"role": "user", "content": {"type": "text", "text": "Hi"}}]
    contents = [{"uri": "fare://x", "text": "Rules"}]
    cached = {"ttlMs": 0, "cacheScope": "private"}
    client, seen = play(
        asking("s", seat=SEAT),
        {"result": {"resultType": "complete", "messages": messages}},
        asking("s", seat=SEAT),
        {"result": {"resultType": "complete", "contents": contents, **cached}},
    )
    prompt = client.get_prompt("plan", {"city": "Bern"}, answers={"seat": A4})
    assert prompt.messages[0].role == "user"
    resource = client.read_resource("fare://x", answers={"seat": A4})
    assert str(resource.contents[0].uri) == "fare://x"
    assert [s.headers["mcp-name"] for s in seen] == ["plan", "plan", "fare://x", "fare://x"]
    assert seen[0].params["arguments"] == {"city": "Bern"}


# Single rounds


def test_a_round_shows_what_was_asked() -> None:
    """Asks by key, with message and schema; decision."""
    client, _ = booking()
    first = client.begin_tool("book", {"flight": "LX1"})
    assert (first.kind, first.number, first.status_code) == ("input_required", 1, 200)
    assert first.request_state == "s1"
    assert first.asks["seat"].message == "Which seat?"
    assert list(first.asks["seat"].schema["properties"]) == ["row", "letter"]
    assert first.transcript() == "  round 1, seat: Which seat?"


def test_a_round_prints_as_what_happened() -> None:
    """A failed assertion shows the round, so it has to be short; decision."""
    client, _ = play(asking("s1", seat=SEAT, confirm=CONFIRM), asking("s2"), failed(-32602, "No"))
    first = client.begin_tool("book")
    assert repr(first) == "<Round 1 of tools/call book: asks seat, confirm>"
    second = first.answer({"seat": A4, "confirm": True})
    assert repr(second) == "<Round 2 of tools/call book: waits>"
    third = second.wait()
    assert repr(third).startswith("<Round 3 of tools/call book: error {")


def test_a_round_answers_step_by_step() -> None:
    """The next round is another object; the first stays as it was; decision."""
    client, _ = booking()
    first = client.begin_tool("book")
    second = first.answer({"seat": A4})
    third = second.answer({"confirm": True})
    assert [r.number for r in (first, second, third)] == [1, 2, 3]
    assert list(first.asks) == ["seat"]
    assert third.result.structured_content is None
    assert third.request_state is None


def test_a_flow_begun_by_hand_plays_on() -> None:
    """From any round to the end; answers given by hand need not be repeated; decision."""
    client, _ = booking()
    second = client.begin_tool("book").answer({"seat": A4})
    assert second.play({"confirm": True}).is_error is False


def test_a_round_without_result_says_what_it_asks() -> None:
    """Reading the result of an open round names its questions; decision."""
    client, _ = booking()
    with pytest.raises(UnansweredQuestion, match="seat: Which seat"):
        _ = client.begin_tool("book").result


def test_a_round_that_waits_has_no_result() -> None:
    """Waiting is not asking; decision."""
    client, _ = play(asking("s"))
    with pytest.raises(UnexpectedOutcome, match="still waits"):
        _ = client.begin_tool("pay").result


def test_a_round_without_error_says_what_it_has() -> None:
    """Reading an error that did not come fails; decision."""
    client, _ = booking()
    with pytest.raises(UnexpectedOutcome, match="inputRequests"):
        _ = client.begin_tool("book").error


def test_a_failed_round_has_an_error() -> None:
    """Errors by code; decision."""
    client, _ = play(failed(-32602, "No"))
    round_ = client.begin_tool("book")
    assert (round_.kind, round_.error.code, round_.status_code) == ("error", -32602, 400)
    with pytest.raises(ErrorReply):
        _ = round_.result
    with pytest.raises(ErrorReply):
        round_.answer({})


def test_a_finished_round_takes_no_answer() -> None:
    """There is nothing to answer; decision."""
    client, _ = play(done())
    with pytest.raises(UnexpectedOutcome, match="tools/call book is over"):
        client.begin_tool("book").answer({"seat": A4})


def test_a_rejected_round_is_plain_http() -> None:
    """A 401 of a dependency has no JSON-RPC message; decision."""
    client, _ = play(JSONResponse({"detail": "Who are you?"}, 401))
    round_ = client.begin_tool("book")
    assert (round_.kind, round_.status_code) == ("rejected", 401)
    for read in (lambda: round_.result, lambda: round_.error):
        with pytest.raises(RejectedRequest, match=r"HTTP 401: .*Who are you") as failure:
            read()
        assert failure.value.reply is round_.reply


def test_every_ask_of_a_round_wants_an_answer() -> None:
    """spec: MUST (mrtr §Client Requirements 1)."""
    client, _ = play(asking("s", seat=SEAT, confirm=CONFIRM))
    first = client.begin_tool("book")
    with pytest.raises(UnansweredQuestion, match="confirm: Pay 120"):
        first.answer({"seat": A4})
    with pytest.raises(AnswersNotAsked, match="never asked: nope"):
        first.answer({"seat": A4, "confirm": True, "nope": 1})


def test_some_answers_may_be_left_out_on_purpose() -> None:
    """spec: mrtr §Error Handling: the server asks again for what is missing."""
    client, seen = play(asking("s", seat=SEAT, confirm=CONFIRM), asking("s2", confirm=CONFIRM))
    second = client.begin_tool("book").answer({"seat": A4}, partial=True)
    assert list(seen[1].params["inputResponses"]) == ["seat"]
    assert second.asks["confirm"].times == 2


def test_waiting_is_for_rounds_that_ask_nothing() -> None:
    """`wait` sends the state alone; decision."""
    client, seen = play(asking("s1"), asking("s2", seat=SEAT))
    second = client.begin_tool("pay").wait()
    assert seen[1].params["requestState"] == "s1"
    with pytest.raises(UnansweredQuestion):
        second.wait()


def test_notifications_belong_to_their_round() -> None:
    """spec: streamable-http §Receiving Messages."""

    def stream(seen: Seen) -> Any:
        token = seen.meta["progressToken"]
        progress = {"progressToken": token, "progress": 1}
        return as_events(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress},
            {"jsonrpc": "2.0", "id": seen.body["id"], **asking("s", seat=SEAT)},
        )

    client, seen = play(stream, done())
    first = client.begin_tool("book")
    second = first.answer({"seat": A4})
    token = seen[0].meta["progressToken"]
    assert first.notifications == (
        Notification("notifications/progress", {"progressToken": token, "progress": 1}),
    )
    assert second.notifications == ()


# Attacks and faults


def test_a_replayed_round_is_sent_again_as_it_was() -> None:
    """user report: the same final request, sent twice; only the id is new."""
    client, seen = play(asking("s1", seat=SEAT), done(), done())
    second = client.begin_tool("book").answer({"seat": A4}, headers={"x-user": "bob"})
    again = second.replay()
    assert again.number == second.number
    assert seen[1].params | {"_meta": 0} == seen[2].params | {"_meta": 0}
    assert seen[1].body["id"] != seen[2].body["id"]
    assert seen[2].headers["x-user"] == "bob"


def test_a_replayed_ask_is_asked_the_same_number_of_times() -> None:
    """A replay is no new round of the flow; decision."""
    client, _ = play(*[asking("s1", seat=SEAT)] * 2)
    first = client.begin_tool("book")
    assert first.replay().asks["seat"].times == first.asks["seat"].times == 1


def test_a_dropped_response_leaves_the_client_where_it_was() -> None:
    """user report: the final response is lost and the client sends the round again."""
    client, seen = play(asking("s1", seat=SEAT), done("lost"), done("found"))
    first = client.begin_tool("book")
    assert first.drop_response({"seat": A4}) is first
    assert first.answer({"seat": A4}).result.content[0].model_dump()["text"] == "found"
    assert seen[1].params | {"_meta": 0} == seen[2].params | {"_meta": 0}


def test_a_dropped_response_of_a_wait_needs_no_answers() -> None:
    """State-only rounds can be lost as well; decision."""
    client, seen = play(asking("s1"), asking("s2"))
    client.begin_tool("pay").drop_response()
    assert seen[1].params["requestState"] == "s1"


@pytest.mark.parametrize(("state", "sent"), [(5, 5), ("", ""), (None, None), ([], [])])
def test_a_state_of_any_shape_can_be_sent(state: Any, sent: Any) -> None:
    """user report: number, empty string, explicit null."""
    client, seen = play(asking("s1", seat=SEAT), done())
    client.begin_tool("book").with_state(state).answer({"seat": A4})
    assert seen[1].params["requestState"] == sent


def test_a_state_can_be_left_out() -> None:
    """Answers without a state; user report."""
    client, seen = play(asking("s1", seat=SEAT), done())
    round_ = client.begin_tool("book").with_state(OMIT)
    round_.answer({"seat": A4})
    assert round_.request_state is None
    assert "requestState" not in seen[1].params


def test_a_request_may_differ_from_the_flow_it_belongs_to() -> None:
    """user report: a state sent to another tool, with other arguments, by another client."""
    client, seen = play(asking("s1", seat=SEAT), done())
    client.begin_tool("book").answer(
        {"seat": A4},
        params={"name": "cancel", "inputResponses": {}},
        headers={"x-user": "bob"},
        meta={"extra": 1},
    )
    assert seen[1].params["name"] == seen[1].headers["mcp-name"] == "cancel"
    assert seen[1].params["inputResponses"] == {}
    assert (seen[1].headers["x-user"], seen[1].meta["extra"]) == ("bob", 1)


def test_params_can_be_sent_raw() -> None:
    """`inputResponses` of every wrong shape; decision."""
    client, seen = play(asking("s1", seat=SEAT), done())
    client.begin_tool("book").send({"inputResponses": 5, "arguments": OMIT})
    assert seen[1].params["inputResponses"] == 5
    assert "arguments" not in seen[1].params


def test_headers_and_meta_of_the_call_hold_for_all_its_rounds() -> None:
    """A flow is one user's; decision."""
    client, seen = booking()
    client.call_tool(
        "book", answers={"seat": A4, "confirm": True}, headers={"x-user": "bob"}, meta={"m": 1}
    )
    assert [s.headers["x-user"] for s in seen] == ["bob"] * 3
    assert [s.meta["m"] for s in seen] == [1] * 3


class Silent:
    """A channel that answers every request with one state."""

    version = PROTOCOL_VERSION
    max_rounds = max_waits = 1

    def __init__(self, state: str) -> None:
        self.state = state
        self.advanced = 0.0

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Any = None,
        meta: Any = None,
    ) -> Reply:
        result = {"resultType": "input_required", "requestState": self.state}
        return Reply({}, 200, {}, "", {"result": result})

    def advance(self, seconds: float) -> None:
        self.advanced += seconds


def silent(state: str) -> tuple[Round[CallToolResult], Silent]:
    channel = Silent(state)
    return begin(channel, Call("tools/call", {}, CallToolResult)), channel


TOKENS = st.text("ABCxyz019-_", min_size=1)


@given(TOKENS, st.data())
def test_tampering_changes_one_bit_of_one_character(token: str, data: st.DataObject) -> None:
    """user report: each base64 character flipped; the state stays base64url."""
    round_, _ = silent(token)
    where = data.draw(st.integers(-len(token), len(token) - 1))
    bit = data.draw(st.integers(0, 5))
    changed = round_.tamper(where, bit=bit)
    bad = str(changed.request_state)
    assert [i for i in range(len(token)) if bad[i] != token[i]] == [where % len(token)]
    assert re.fullmatch(r"[A-Za-z0-9_-]+", bad)
    assert changed.tamper(where, bit=bit).request_state == token
    assert round_.request_state == token


def test_tampering_flips_the_middle_unless_told() -> None:
    """The middle is neither version nor key id nor tag; decision."""
    assert silent("AAAAA")[0].tamper().request_state == "AABAA"
    assert silent("AAAAA")[0].tamper(bit=5).request_state == "AAgAA"


def test_tampering_works_on_any_state() -> None:
    """A codec of one's own may write other characters; decision."""
    assert silent(".")[0].tamper().request_state == "/"


@pytest.mark.parametrize("state", [OMIT, "", None, 5])
def test_tampering_needs_a_state(state: Any) -> None:
    """Nothing to flip fails loudly; decision."""
    with pytest.raises(UnexpectedOutcome, match="no requestState"):
        silent("x")[0].with_state(state).tamper()


def test_tampering_beyond_the_state_fails() -> None:
    """A position that is none; decision."""
    with pytest.raises(IndexError):
        silent("AAAA")[0].tamper(4)


def test_expiring_moves_the_clock_and_keeps_the_round() -> None:
    """Ten years outlast every time to live; decision."""
    round_, channel = silent("A")
    assert round_.expire() is round_
    assert channel.advanced == 10 * 365 * 86400


def test_a_call_of_another_method_is_named_by_its_method() -> None:
    """Labels are for messages; decision."""
    assert Call("ext/method", {}, CallToolResult).label == "ext/method"
