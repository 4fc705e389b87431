"""The journal as plain JSON."""

import json
from typing import Any

import pytest

from fastapi_mcp_mrtr.rounds.journal import Answer, Journal, StepResult


def full() -> Journal:
    return Journal(
        answers={"a": Answer("d1", "accept", {"value": 1}), "b": Answer("d2", "decline")},
        steps={"s": StepResult("f(1)", "d3", [1, 2] * 20)},
        asked={"c": "d4"},
        rewordings={"c": 1},
        aside={"a"},
    )


def test_it_survives_being_written_to_json() -> None:
    """Decision: the journal travels sealed with the client and comes back the same."""
    journal = full()
    assert Journal.from_json_obj(json.loads(json.dumps(journal.to_json_obj()))) == journal


def test_its_order_survives_too() -> None:
    """Decision: entries are kept in the order in which they were recorded."""
    journal = Journal(answers={key: Answer("d", "accept") for key in "zab"})
    assert list(Journal.from_json_obj(journal.to_json_obj()).answers) == ["z", "a", "b"]


def test_an_empty_one_takes_no_room() -> None:
    """Decision: it travels with every request."""
    assert Journal().to_json_obj() == {}
    assert Journal.from_json_obj({}) == Journal()


@pytest.mark.parametrize(
    "members",
    [
        None,
        [],
        "x",
        {"a": []},
        {"a": {"k": 5}},
        {"a": {"k": ["d"]}},
        {"a": {"k": ["d", "maybe"]}},
        {"a": {"k": ["d", ["accept"]]}},
        {"s": {"k": ["call", "d", 1, "more"]}},
        {"q": 5},
        {"x": 5},
        {"q": {"k": 5}},
        {"r": {"k": "1"}},
    ],
)
def test_another_shape_is_refused(members: Any) -> None:
    """Decision: a state of another version is no journal; whoever unseals it rejects it."""
    with pytest.raises(ValueError, match="not a journal"):
        Journal.from_json_obj(members)


def test_a_copy_is_independent() -> None:
    """Decision: a round writes into a copy."""
    journal = full()
    copied = journal.copy()
    copied.answers.clear()
    copied.steps.clear()
    copied.asked.clear()
    copied.rewordings.clear()
    copied.aside.clear()
    assert journal == full()


def test_the_largest_entry_is_named() -> None:
    """Decision: a state that is too large says what makes it so."""
    journal = full()
    assert journal.largest_key() == "s"
    journal.answers["b"] = Answer("d2", "accept", {"value": "x" * 100})
    assert journal.largest_key() == "b"
    assert Journal().largest_key() is None


@pytest.mark.parametrize("value", ["\ud800", ["deep"] * 3])
def test_the_largest_entry_is_found_whatever_it_holds(value: Any) -> None:
    """Decision: a state that is too large is reported by its biggest entry, not by a crash."""
    nested = value
    for _ in range(600):
        nested = [nested]
    journal = Journal(
        steps={"small": StepResult("f()", "d", 1), "big": StepResult("g()", "d", nested)}
    )
    assert journal.largest_key() == "big"
