"""terminal: questions to a person, line by line."""

import io
from typing import Any

import pytest

from fastapi_mcp_mrtr.cli.terminal import Terminal, clean
from fastapi_mcp_mrtr.testing import CANCEL, DECLINE, Ask, Notification

SEAT = {
    "type": "object",
    "properties": {
        "row": {"type": "integer", "minimum": 1, "description": "Counted from the front"},
        "letter": {"type": "string", "enum": ["A", "B"]},
        "meal": {"type": "string", "oneOf": [{"const": "v", "title": "Vegan"}], "default": "v"},
        "note": {"type": "string", "title": "A wish"},
    },
    "required": ["row", "letter"],
}


def asked(ask: Ask, *typed: str) -> tuple[Any, str]:
    """The answer of somebody who types these lines, and what was shown."""
    shown = io.StringIO()
    answer = Terminal(io.StringIO("".join(f"{line}\n" for line in typed)), shown).ask(ask)
    return answer, shown.getvalue()


def form(schema: Any = SEAT, message: str = "Which seat?") -> Ask:
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return Ask("seat", "elicitation/create", params)


URL = Ask(
    "page",
    "elicitation/create",
    {"mode": "url", "message": "Pay here.", "url": "https://pay.example.com/1"},
)
SAMPLING = Ask(
    "thought",
    "sampling/createMessage",
    {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Think\nhard"}}],
        "systemPrompt": "Be brief",
    },
)
ROOTS = Ask("roots", "roots/list", {})


def test_a_form_is_asked_field_by_field() -> None:
    """Decision: by type, with defaults, and what may be left out left out."""
    answer, shown = asked(form(), "4", "2", "", "")
    assert answer == {"row": 4, "letter": "B", "meal": "v"}
    assert "Which seat? (/decline says no, /cancel gives no answer)" in shown
    assert "  Counted from the front\nrow [a whole number, 1 to]: " in shown
    assert "  2) B\nletter [1 to 2, or the value]: " in shown
    assert "  1) v  Vegan\n" in shown
    assert 'meal [1 to 1, or the value; "v" if left empty]: ' in shown
    assert "A wish [text; may be left empty]: " in shown


def test_what_is_not_of_the_type_is_asked_again() -> None:
    """Decision: without a round to the server; what else it checks, it says."""
    answer, shown = asked(form(), "four", "4", "B", "v", "by the window")
    assert answer == {"row": 4, "letter": "B", "meal": "v", "note": "by the window"}
    assert "  'four' is not a whole number\n" in shown


def test_several_options_are_chosen_by_numbers() -> None:
    """Decision: or by their values; what is neither is for the server to refuse."""
    schema = {"properties": {"v": {"type": "array", "items": {"enum": ["x", "2"]}}}}
    answer, _ = asked(form(schema), "1, 2,9")
    assert answer == {"v": ["x", "2", "9"]}


@pytest.mark.parametrize(
    ("typed", "refusal"), [(("/decline",), DECLINE), (("4", "/cancel"), CANCEL), (("4",), CANCEL)]
)
def test_a_form_can_be_refused_at_any_field(typed: tuple[str, ...], refusal: Any) -> None:
    """spec: three actions (elicitation §Response Actions); the end of input is no answer."""
    assert asked(form(), *typed)[0] is refusal


def test_a_url_is_shown_and_nobody_is_sent_there() -> None:
    """spec: consent before a URL is opened, and it is shown whole (elicitation §URL Mode)."""
    answer, shown = asked(URL, "what?", "Yes")
    assert answer is True
    assert "Pay here." in shown
    assert "  https://pay.example.com/1\n" in shown
    assert asked(URL, "/decline")[0] is DECLINE


def test_a_model_is_played_by_hand() -> None:
    """Decision: sampling is deprecated, and still asked for."""
    answer, shown = asked(SAMPLING, "seven")
    assert answer == "seven"
    assert "  system: Be brief\n  Think\n  hard\n" in shown


def test_roots_are_typed_until_an_empty_line() -> None:
    """Decision: as many as there are."""
    assert asked(ROOTS, "file:///a", "file:///b", "")[0] == ["file:///a", "file:///b"]
    assert asked(ROOTS, "")[0] == []


@pytest.mark.parametrize("ask", [SAMPLING, ROOTS], ids=["sampling", "roots"])
def test_what_nobody_may_refuse_ends_the_command(ask: Ask) -> None:
    """spec: sampling and roots have no refusal (mrtr §Client Requirements)."""
    with pytest.raises(KeyboardInterrupt):
        asked(ask, "/cancel")


@pytest.mark.parametrize(
    ("method", "params", "line"),
    [
        ("notifications/progress", {"progress": 1, "total": 2, "message": "go"}, "[1/2] go\n"),
        ("notifications/progress", {"progress": 1}, "[1]\n"),
        ("notifications/message", {"level": "info", "data": "text"}, "[info] text\n"),
        ("notifications/message", {"level": "info", "data": [1]}, "[info] [1]\n"),
        ("notifications/other", {}, ""),
    ],
)
def test_notifications_are_lines(method: str, params: Any, line: str) -> None:
    """Decision: on standard error, so that results stay apart."""
    shown = io.StringIO()
    Terminal(err=shown).notice(Notification(method, params))
    assert shown.getvalue() == line


def test_a_server_cannot_steer_the_terminal() -> None:
    """Decision: escape sequences, carriage returns and direction marks are shown, not obeyed."""
    assert clean("\x1b[2Ja\rb\u202e\x9b é\n") == "\\x1b[2Ja\\rb\\u202e\\x9b é\n"
    _, shown = asked(form(message="\x1b]0;gone\x07"), "/cancel")
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_a_pipe_is_nobody_to_ask() -> None:
    """Decision: only a terminal has a person before it."""
    assert not Terminal(io.StringIO()).is_there
