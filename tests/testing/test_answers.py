"""What a test writes as an answer, and what the client sends for it."""

import datetime
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from pydantic import BaseModel, Field, FileUrl

from fastapi_mcp_mrtr.testing import CANCEL, DECLINE, Ask, Raw, UnansweredQuestion, in_turn
from fastapi_mcp_mrtr.testing.answers import envelope
from tests.testing.script import CONFIRM, PAY, POEM, ROOTS, SEAT, form


def ask(request: dict[str, Any], times: int = 1) -> Ask:
    return Ask("key", request["method"], request.get("params", {}), times)


class Seat(BaseModel):
    row: int
    letter: str = Field("A", alias="seatLetter")
    note: str | None = None


@dataclass
class Place:
    row: int
    letter: str


class Class(Enum):
    FIRST = "first"


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ({"row": 4, "letter": "A"}, {"row": 4, "letter": "A"}),
        ({"row": 4, "letter": None}, {"row": 4, "letter": None}),
        (Seat(row=4, seatLetter="B"), {"row": 4, "seatLetter": "B"}),
        (Place(4, "C"), {"row": 4, "letter": "C"}),
        (
            {"row": datetime.date(2026, 7, 28), "letter": Class.FIRST},
            {"row": "2026-07-28", "letter": "first"},
        ),
    ],
    ids=["dict", "null in a dict", "model", "dataclass", "values that JSON has no words for"],
)
def test_a_form_takes_a_dict_a_model_or_a_dataclass(answer: Any, content: Any) -> None:
    """Content is the answer in its JSON form, by alias; decision."""
    assert envelope(ask(SEAT), answer) == {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("answer", "value"),
    [(True, True), (4, 4), ("x", "x"), (Class.FIRST, "first"), (["a", "b"], ["a", "b"])],
)
def test_a_bare_value_goes_into_the_only_field(answer: Any, value: Any) -> None:
    """A form of one field takes the value alone; decision."""
    assert envelope(ask(CONFIRM), answer) == {"action": "accept", "content": {"value": value}}


def test_a_bare_value_for_many_fields_names_them() -> None:
    """A scalar cannot fill two fields; decision."""
    with pytest.raises(TypeError, match=r"4 does not answer 'key' \(form\).* row, letter"):
        envelope(ask(SEAT), 4)


def test_none_leaves_an_optional_field_out() -> None:
    """The wire has no null content (elicitation §Requested Schema); an absent field is none."""
    optional = {
        "method": "elicitation/create",
        "params": {
            "message": "Name?",
            "requestedSchema": {"type": "object", "properties": {"value": {"type": "string"}}},
        },
    }
    assert envelope(ask(optional), None) == {"action": "accept", "content": {}}


def test_none_for_a_required_field_is_a_mistake() -> None:
    """A callable that forgot its return answers nothing; decision."""
    with pytest.raises(TypeError, match="'value'"):
        envelope(ask(CONFIRM), lambda _: None)


@pytest.mark.parametrize("request_", [SEAT, PAY], ids=["form", "url"])
@pytest.mark.parametrize(("answer", "action"), [(DECLINE, "decline"), (CANCEL, "cancel")])
def test_a_refusal_is_its_action_alone(request_: Any, answer: Any, action: str) -> None:
    """spec: elicitation §Response Actions: refusals carry no content."""
    assert envelope(ask(request_), answer) == {"action": action}


@pytest.mark.parametrize("request_", [POEM, ROOTS], ids=["sampling", "roots"])
def test_what_has_no_actions_cannot_be_refused(request_: Any) -> None:
    """spec: only ElicitResult has an action."""
    with pytest.raises(TypeError, match="lets nobody refuse"):
        envelope(ask(request_), DECLINE)


def test_a_url_is_accepted_with_true() -> None:
    """spec: elicitation §URL Mode: accept without content."""
    assert envelope(ask(PAY), True) == {"action": "accept"}


@pytest.mark.parametrize("answer", [False, "yes", None, 1])
def test_a_url_takes_nothing_but_true(answer: Any) -> None:
    """False would read like a refusal, of which there are two; decision."""
    with pytest.raises(TypeError, match="True, DECLINE or CANCEL"):
        envelope(ask(PAY), answer)


@pytest.mark.parametrize("request_", [SEAT, PAY], ids=["form", "url"])
def test_an_elicit_result_goes_as_it_is(request_: Any) -> None:
    """Whoever wants the envelope may write it with the official types; decision."""
    result = mcp_types.ElicitResult(action="accept", content={"row": 4})
    assert envelope(ask(request_), result) == {"action": "accept", "content": {"row": 4}}


def test_sampling_takes_the_text_alone() -> None:
    """A str becomes a whole CreateMessageResult; decision."""
    assert envelope(ask(POEM), "Roses") == {
        "role": "assistant",
        "content": {"type": "text", "text": "Roses"},
        "model": "test-model",
        "stopReason": "endTurn",
    }


def test_sampling_takes_a_result_or_a_dict() -> None:
    """A full answer goes as it is; decision."""
    result = mcp_types.CreateMessageResult(
        role="assistant", content=mcp_types.TextContent(text="Roses"), model="m"
    )
    wire = {"role": "assistant", "content": {"type": "text", "text": "Roses"}, "model": "m"}
    assert envelope(ask(POEM), result) == wire
    assert envelope(ask(POEM), wire) == wire


def test_sampling_takes_nothing_else() -> None:
    """A wrong kind of answer fails in the test, not on the server; decision."""
    with pytest.raises(TypeError, match="CreateMessageResult"):
        envelope(ask(POEM), 5)


def test_roots_are_a_list_of_uris_paths_roots_or_dicts() -> None:
    """Each becomes a Root; decision."""
    roots = [
        "file:///a",
        Path("/b"),
        mcp_types.Root(uri=FileUrl("file:///c")),
        {"uri": "file:///d", "name": "D"},
    ]
    assert envelope(ask(ROOTS), roots) == {
        "roots": [
            {"uri": "file:///a"},
            {"uri": "file:///b"},
            {"uri": "file:///c"},
            {"uri": "file:///d", "name": "D"},
        ]
    }


def test_roots_take_a_whole_result() -> None:
    """A full answer goes as it is; decision."""
    assert envelope(ask(ROOTS), mcp_types.ListRootsResult(roots=[])) == {"roots": []}
    assert envelope(ask(ROOTS), {"roots": 5}) == {"roots": 5}


def test_roots_take_no_single_uri() -> None:
    """A str is a sequence of characters, not of roots; decision."""
    with pytest.raises(TypeError, match="a list"):
        envelope(ask(ROOTS), "file:///a")


def test_raw_is_sent_whatever_it_is() -> None:
    """Hostile envelopes are written out; decision."""
    assert envelope(ask(SEAT), Raw("str")) == "str"
    assert envelope(ask(SEAT), Raw({"action": "accept"})) == {"action": "accept"}


def test_a_callable_reads_the_ask() -> None:
    """An answer may depend on the question; decision."""
    seen: list[Ask] = []

    def answer(question: Ask) -> Any:
        seen.append(question)
        return DECLINE

    assert envelope(ask(SEAT), answer) == {"action": "decline"}
    assert (seen[0].message, list(seen[0].schema["properties"])) == (
        "Which seat?",
        ["row", "letter"],
    )


def test_a_class_is_not_taken_for_a_callable() -> None:
    """`answers={"seat": Seat}` is a slip, not a way to build a seat; decision."""
    with pytest.raises(TypeError, match="not a class"):
        envelope(ask(SEAT), Seat)


def test_answers_in_turn_follow_the_number_of_the_ask() -> None:
    """A question asked again gets the next answer; decision."""
    answer = in_turn(Raw(1), Raw(2))
    assert [envelope(ask(SEAT, times), answer) for times in (1, 2)] == [1, 2]
    assert envelope(ask(SEAT), answer) == 1


def test_answers_in_turn_run_out_by_name() -> None:
    """An unanswered ask fails with what was asked; decision."""
    with pytest.raises(UnansweredQuestion, match=r"Time 2 of a question with 1 answers") as failure:
        envelope(ask(SEAT, 2), in_turn(Raw(1)))
    assert "key: Which seat?" in str(failure.value)


@pytest.mark.parametrize(
    ("request_", "kind", "message", "url"),
    [
        (form("Seat?"), "form", "Seat?", ""),
        (PAY, "url", "Please pay", "http://testserver/pay/1"),
        (POEM, "sampling", "Write a poem", ""),
        (ROOTS, "roots", "(the client's roots)", ""),
    ],
)
def test_an_ask_reads_the_same_for_every_kind(
    request_: Any, kind: str, message: str, url: str
) -> None:
    """One view of four requests; decision."""
    question = ask(request_)
    assert (question.kind, question.message, question.url) == (kind, message, url)
    assert (question.schema != {}) is (kind == "form")


def test_a_sampling_message_lists_every_block() -> None:
    """Blocks without text are named by their type; decision."""
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    text = {"type": "text", "text": "What is it?"}
    messages = [{"role": "user", "content": [image, text]}]
    question = Ask("key", "sampling/createMessage", {"messages": messages, "maxTokens": 1})
    assert question.message == "(image)\nWhat is it?"
