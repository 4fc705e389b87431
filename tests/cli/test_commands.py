"""commands: against a real server, with the exit statuses that scripts rely on."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastapi_mcp_mrtr import Secret, __version__
from fastapi_mcp_mrtr.cli.terminal import Terminal
from fastapi_mcp_mrtr.testing import MCPTestClient

from . import served
from .conftest import run, run_json

SEAT = ("--answer", "seat.row=4", "--answer", "seat.letter=A")


def test_the_version() -> None:
    """user report: what a bug report begins with."""
    assert run("--version").stdout == f"fastapi-mcp-mrtr {__version__}\n"


def test_the_help_names_every_option_on_a_narrow_terminal() -> None:
    """user report: 40 columns cut names."""
    shown = run("call", "--help", env={"COLUMNS": "40"}).stdout
    for option in ("--arg", "--answer", "--decline", "--timeout", "MCP_TOKEN", "--pause"):
        assert option in shown


# -------------------------------------------------------------------------------------- keygen


def test_a_secret_is_good_for_a_key() -> None:
    """Decision: 32 random bytes, and nothing else on standard output."""
    first, second = (run("keygen").stdout.strip() for _ in range(2))
    assert re.fullmatch(r"[0-9a-f]{64}", first)
    assert first != second
    labelled = json.loads(run("keygen", "--kid", "2026-08").stdout)
    Secret(labelled["kid"], labelled["value"])


@pytest.mark.parametrize("kid", ["", "a b", "x" * 33])
def test_a_label_that_no_key_takes(kid: str) -> None:
    """user report: said by the one who makes it, not by the server that starts with it."""
    assert "A kid is 1 to 32 characters" in run("keygen", "--kid", kid, status=2).stderr


# ------------------------------------------------------------------------------------- inspect


def test_what_a_server_offers_is_listed(url: str) -> None:
    """Decision: names with arguments, a line of description each."""
    shown = run("inspect", url).stdout
    assert re.match(r"The desk 1\.0\n  revisions: 2026-07-28.*\n  Ask away\.\n", shown)
    assert "  book_seat(flight: string)\n      Book a seat.\n" in shown
    assert "region: string, limit?: integer, exact?: boolean" in shown
    assert "  itinerary(origin, days?)\n" in shown
    assert "  desk://about\n      About the desk\n" in shown
    assert "  seats://{flight}\n" in shown


def test_the_same_for_programs(url: str) -> None:
    """Decision: the definitions as they came."""
    found = run_json("inspect", url)
    assert {tool["name"] for tool in found["tools"]} >= {"book_seat", "query"}
    assert found["resourceTemplates"][0]["uriTemplate"] == "seats://{flight}"


def test_a_list_that_fails_is_no_empty_list(base: str) -> None:
    """Decision: only "method not found" means that there is none."""
    assert run_json("inspect", f"{base}/failing", status=4)["error"].startswith("[-31000] Tired")


def test_lists_that_a_server_does_not_have_are_empty(base: str) -> None:
    """spec: a method for what is not offered is -32601 (basic/index §Error Codes)."""
    found = run_json("inspect", f"{base}/bare")
    assert (found["prompts"], found["resources"], found["resourceTemplates"]) == ([], [], [])
    assert run("inspect", f"{base}/bare").stdout.splitlines()[-1] == "      Says hello."


# ---------------------------------------------------------------------------------------- call


def test_answers_come_from_options(url: str) -> None:
    """Decision: field by field, as JSON, or bare where there is one field."""
    for seat in (SEAT, ("--answer", 'seat={"row": 4, "letter": "A"}')):
        result = run("call", url, "book_seat", "-a", "flight=LX318", *seat, "--answer", "confirm=y")
        assert json.loads(result.stdout) == {"flight": "LX318", "seat": "4A", "note": "none"}
        assert result.stderr.startswith('[1/2] looking\n[info] {"flight": "LX318"}\n')


def test_a_result_for_programs(url: str) -> None:
    """Decision: as it came."""
    result = run_json("call", url, "query", "-a", "region=us")
    assert result["content"][0]["text"].startswith("Region.US")


def test_arguments_are_read_by_the_tools_schema(url: str) -> None:
    """Decision: and mirrored into headers where the tool wants that."""
    options = ["region=eu", "limit=5", "exact=no", "tags=a,b", 'where={"a": 1}', "ratio=0.5"]
    given = [part for option in options for part in ("--arg", option)]
    shown = run("call", url, "query", *given).stdout
    assert shown == "Region.EU 5 False ['a', 'b'] {'a': 1} 0.5\n"


@pytest.mark.parametrize("option", ["limit=five", "limit", "=5"])
def test_an_argument_that_cannot_be_read_is_a_usage_error(url: str, option: str) -> None:
    """Decision: before anything is called."""
    run("call", url, "query", "--arg", option, status=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--arg", "flight=L", "--arg", "flight=K"), "flight is given twice"),
        (("--answer", "seat=1", "--answer", "seat=2"), "seat is given twice"),
        (("-H", "X-Key: 1", "-H", "x-key: 2"), "x-key is given twice"),
        (("--answer", "seat=1", "--decline", "seat"), "seat is both answered and refused"),
        (("--cancel", "seat", "--decline", "seat"), "seat is both declined and cancelled"),
    ],
)
def test_what_contradicts_itself_is_a_usage_error(
    url: str, options: tuple[str, ...], said: str
) -> None:
    """user report: neither the first nor the last of them is what was meant."""
    assert said in run("call", url, "book_seat", *options, status=2).stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("--timeout", each) for each in ("-1", "0", "nan", "inf")]
    + [("--pause", each) for each in ("-1", "nan", "1e9")],
)
def test_a_time_that_nobody_can_wait_for_is_a_usage_error(
    url: str, option: str, value: str
) -> None:
    """user report: a traceback before, or an error of the operating system."""
    assert "86400 seconds" in run("call", url, "query", option, value, status=2).stderr


def test_what_was_not_asked_for_is_told(url: str) -> None:
    """user report: a key with a typo was ignored."""
    spare = ("--answer", "chair=12A", "--answer", "seat.wish=x", "--cancel", "desk")
    whole = ("--answer", 'seat={"row": 4, "letter": "A"}', "--answer", "confirm=y")
    said = run("call", url, "book_seat", "-a", "flight=X", *whole, *spare).stderr
    told = [line for line in said.splitlines() if "did not ask" in line]
    assert told == [f"book_seat did not ask for {key}" for key in ("chair", "desk", "seat.wish")]
    assert "did not ask" not in run("call", url, "pay", "--decline", "page", status=1).stderr


def test_a_refusal_is_an_answer(url: str) -> None:
    """spec: decline and cancel (elicitation §Response Actions); a failed tool is status 1."""
    for option, said in (("--decline", "declined"), ("--cancel", "cancelled")):
        shown = run("call", url, "book_seat", "-a", "flight=X", *SEAT, option, "confirm", status=1)
        assert f"{said} 'confirm'" in shown.stdout


def test_what_is_no_text_is_named(url: str) -> None:
    """Decision: a terminal shows no pictures."""
    assert run("call", url, "picture").stdout == "(image)\n"


def test_other_kinds_of_answers(url: str) -> None:
    """Decision: a word for a page, text for a model, addresses for roots."""
    assert run("call", url, "pay", "--answer", "page=yes").stdout == "paid\n"
    assert "declined" in run("call", url, "pay", "--answer", "page=no", status=1).stdout
    answers = ("--answer", "thought=7", "--answer", "roots=file:///a,file:///b")
    assert run("call", url, "think", *answers).stdout == "7 in file:///a file:///b\n"


def test_a_tool_that_waits_is_asked_again(url: str) -> None:
    """spec: the client paces its retries (mrtr §Client Requirements)."""
    result = run("call", url, "patience", "-a", "rounds=2", "--pause", "0")
    assert result.stdout == "done in round 3\n"
    assert result.stderr.count("patience waits; asking again in 0 seconds") == 2


def test_a_tool_that_waits_for_ever_is_left(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision: a script ends."""
    monkeypatch.setattr("fastapi_mcp_mrtr.cli.calls._MAX_WAITS", 2)
    stopped = run_json("call", url, "patience", "-a", "rounds=9", "--pause", "0", status=3)
    assert stopped == {"error": "patience is still not done", "status": "unanswered"}


def test_a_question_without_an_answer_is_told(url: str) -> None:
    """Decision: with the option that answers it, and status 3."""
    result = run("call", url, "book_seat", "-a", "flight=LX318", status=3)
    assert "  seat: Which seat on LX318?\nAnswer with --answer seat=...\n" in result.stderr


def test_an_answer_that_is_refused_is_not_sent_for_ever(url: str) -> None:
    """Decision: an option answers the first time; then it takes a person."""
    wrong = ("--answer", "seat.row=99", "--answer", "seat.letter=A")
    result = run("call", url, "book_seat", "-a", "flight=X", *wrong, status=3)
    assert "  seat again: Which seat on X?\n(row: must be at most 40" in result.stderr


@pytest.mark.parametrize("answer", ["seat.row=four", "seat={", "seat=4A"])
def test_an_answer_that_cannot_be_read_is_told(url: str, answer: str) -> None:
    """Decision: before it is sent."""
    result = run("call", url, "book_seat", "-a", "flight=X", "--answer", answer, status=3)
    assert "--answer seat: " in result.stderr


def test_a_word_that_is_neither_yes_nor_no(url: str) -> None:
    """user report: what is wrong is said, not that an answer is missing."""
    given = ("-a", "flight=X", *SEAT, "--answer", "confirm=maybe")
    said = run("call", url, "book_seat", *given, status=3).stderr
    assert said.endswith("\n--answer confirm: 'maybe' is not yes or no\n")


def test_a_person_is_asked_what_no_option_answers(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision: options first. tests/cli/test_interactive.py types into a real terminal."""
    monkeypatch.setattr(Terminal, "is_there", True)
    typed = "4\nA\n\n"
    options = ("-a", "flight=LX318", "--answer", "confirm=yes")
    shown = run("call", url, "book_seat", *options, input=typed).stdout
    assert json.loads(shown)["seat"] == "4A"


@pytest.mark.parametrize(
    ("path", "arguments", "status", "said"),
    [
        ("/mcp", ("nothing",), 4, "[-32602] Unknown tool: nothing (HTTP 400)"),
        ("/mcp", ("nasty", "--token", "wrong"), 5, "HTTP 401"),
        (
            "/elsewhere",
            ("nasty",),
            5,
            'HTTP 404: {"detail":"Not Found"}\nIs that the whole address?',
        ),
        ("/silent", ("nasty",), 5, "HTTP 403\n"),
        ("/broken", ("nasty",), 7, ""),
    ],
)
def test_what_goes_wrong_has_a_status(
    base: str, path: str, arguments: tuple[str, ...], status: int, said: str
) -> None:
    """Decision: documented in docs/reference/cli.md."""
    assert said in run("call", f"{base}{path}", *arguments, status=status).stderr


def test_a_server_that_is_not_there() -> None:
    """Decision: status 6, with the address and without the password in it."""
    stopped = run_json("inspect", "http://ada:hush@127.0.0.1:1/mcp", status=6)
    assert stopped["status"] == "unreachable"
    assert stopped["error"].startswith("No answer from 127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nowhere", "begins with http://"),
        ("127.0.0.1:8137/mcp", "begins with http://"),
        ("ftp://x/", "begins with http://"),
        ("http:///mcp", "begins with http://"),
        ("http://[::1/", "Invalid port"),
        ("http://127.0.0.1:99999/mcp", "no port is 99999"),
    ],
)
def test_what_is_no_address_is_a_usage_error(url: str, said: str) -> None:
    """user report: nothing was tried, so nothing is unreachable."""
    # Long lines of a usage error are broken where the terminal ends.
    assert said in " ".join(run("inspect", url, status=2).stderr.split())


def test_the_token_comes_from_the_environment(url: str) -> None:
    """Decision: options of a command can be seen by everybody on the machine."""
    run("inspect", url, env={"MCP_TOKEN": served.TOKEN})
    run("inspect", url, env={"MCP_TOKEN": "wrong"}, status=5)


def test_headers_are_sent(url: str) -> None:
    """Decision: any, and before the token."""
    right = f"Authorization: Bearer {served.TOKEN}"
    run("inspect", url, "-H", right, env={"MCP_TOKEN": "wrong"})
    run("inspect", url, "-H", right.replace("A", "a", 1), env={"MCP_TOKEN": "wrong"})
    run("inspect", url, "--header", "Authorization: Bearer wrong", status=5)
    run("inspect", url, "--header", "no colon", status=2)


@pytest.mark.parametrize("option", [("-H", "X: ä"), ("-H", "X y: 1"), ("--token", "a\nb")])
def test_a_header_that_cannot_be_sent_is_a_usage_error(url: str, option: tuple[str, str]) -> None:
    """spec: names are tokens, and values have no line ends (RFC 9110 §5)."""
    assert "what HTTP cannot carry" in run("inspect", url, *option, status=2).stderr


def test_nothing_a_server_prints_steers_the_terminal(url: str) -> None:
    """Decision: results, too."""
    assert run("call", url, "nasty").stdout == "\\x1b[2Jgone\\r\\u202e!\n"


def test_odd_events_do_not_end_the_command_before_its_time(base: str) -> None:
    """Decision: what they break is said once all has come."""
    assert "[info] odd" in run("call", f"{base}/odd", "nasty", status=7).stderr


# ---------------------------------------------------------------------------------- open-state


@pytest.fixture
def state() -> str:
    first = MCPTestClient(served.app).begin_tool("book_seat", {"flight": "LX318"})
    second = first.answer({"seat": {"row": 4, "letter": "A"}})
    assert second.request_state is not None
    return second.request_state


def test_a_state_is_opened_with_a_secret_of_the_environment(state: str) -> None:
    """Decision: for support; times can be read, and the journal is there."""
    options = ("--keys", "2026-08=env:SECRET")
    said = json.loads(run("open-state", state, *options, env={"SECRET": served.SECRET}).stdout)
    assert (said["method"], said["target"], said["round"]) == ("tools/call", "book_seat", 2)
    assert said["journal"]["answers"]["seat"]["content"] == {"row": 4, "letter": "A"}
    assert re.match(r"\d{4}-\d\d-\d\dT", said["expires"])


def test_a_state_from_a_pipe_and_a_secret_from_a_file(state: str, tmp_path: Path) -> None:
    """Decision: neither need be an argument."""
    (tmp_path / "old").write_text("z" * 40)
    (tmp_path / "new").write_text(served.SECRET + "\n")
    keys = ("--keys", f"old=file:{tmp_path}/old", "--keys", f"2026-08=file:{tmp_path}/new")
    said = json.loads(run("open-state", "-", *keys, input=f"{state}\n").stdout)
    assert said["round"] == 2


def test_a_secret_is_asked_for_and_not_shown(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision: by the kid that the state names."""
    prompts: list[str] = []

    def getpass(prompt: str) -> str:
        prompts.append(prompt)
        return served.SECRET

    monkeypatch.setattr("getpass.getpass", getpass)
    assert json.loads(run("open-state", state).stdout)["round"] == 2
    assert prompts == ["The secret '2026-08': "]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("2026-08=env:OTHER", "does not open with 2026-08: seal broken"),
        ("other=env:OTHER", "does not open with other: sealed under an unknown kid"),
        ("2026-08=env:NOT_THERE", "there is no variable NOT_THERE"),
        ("2026-08=file:/not/there", "No such file"),
        ("2026-08=the-secret-itself", "env:NAME or file:PATH"),
        ("2026-08=env:SHORT", "at least 32"),
    ],
)
def test_why_a_state_does_not_open(state: str, keys: str, said: str) -> None:
    """Decision: told to whoever has the secrets; status 1."""
    env = {"OTHER": "o" * 40, "SHORT": "short"}
    assert said in run("open-state", state, "--keys", keys, env=env, status=1).stderr


@pytest.mark.parametrize("token", ["nonsense", "AAAA", "AQ"])
def test_what_is_no_state(token: str) -> None:
    """Decision: said before a secret is asked for."""
    assert "This is no requestState" in run("open-state", token, status=1).stderr


# ----------------------------------------------------------------------------------- the extra


def test_a_missing_extra_is_named() -> None:
    """Decision: the command is installed with the package, what it needs is not."""
    code = """
import sys
sys.modules["typer"] = None
from fastapi_mcp_mrtr.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'fastapi-mcp-mrtr[cli]'" in done.stderr


def test_the_command_runs(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Decision: `fastapi-mcp-mrtr` is `fastapi_mcp_mrtr.cli:main`."""
    from fastapi_mcp_mrtr.cli import main

    monkeypatch.setattr(sys, "argv", ["fastapi-mcp-mrtr", "keygen"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert len(capsys.readouterr().out.strip()) == 64
    monkeypatch.setitem(sys.modules, "fastapi_mcp_mrtr.cli.commands", None)
    with pytest.raises(SystemExit, match=r"fastapi-mcp-mrtr\[cli\]"):
        main()
