"""`python -m demo_app`, as `make demo` runs it: a child process and a real port."""

import io
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from demo_app.db import Database
from demo_app.desk import Desk
from demo_app.player import Transcript, logging_in, play_booking
from demo_app.schemas import NewPassenger
from demo_app.serving import run

from .helpers import AMELIE, Browser, Process
from .oauth import login_desk

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the demo on a free port; ends it if the test did not."""
    started: list[Process] = []

    def start(*options: str) -> Process:
        log = tmp_path / f"{len(started)}.log"
        process = Process(["demo_app", *options], log, PORT="0", TRAVEL_DESK_PARTNER_PAUSE="0")
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()


def test_it_plays_one_complete_booking(start: Start) -> None:
    """Decision: every round shows what was sent, asked and answered, and what came of it."""
    demo = start("--once")
    assert demo.popen.wait(60) == 0, demo.text
    [story] = [act for act in demo.text.split("\n\n") if act.startswith("3. ")]
    for line in (
        '→ tools/call book_seat {"flight": "TD101"}',
        "← asks seat-1: Which seat would you like on TD101?",
        "row: integer, 1 to 30",
        "✎ Amélie: accept (row: 14, letter: A)",
        "+ the answer to confirm",
        "status         paid",
        "passengers     Amélie Moreau  14A",
    ):
        assert line in story, story
    assert [int(n) for n in re.findall(r"Round (\d)", story)] == [1, 2, 3]
    assert "\x1b" not in demo.text  # colours are for terminals
    assert "Traceback" not in demo.text


def test_it_shows_how_the_client_logs_in(start: Start) -> None:
    """Decision: from the 401 to the token, then the rights that booking takes, then a new token."""
    demo = start("--once")
    assert demo.popen.wait(60) == 0, demo.text
    login, _, story = demo.text.partition("1. A tool")
    to_log_in = (
        r"← 401, no token; needed: desk:read\n",
        r"→ GET /.well-known/oauth-protected-resource/mcp\n",
        r"← the desk trusts (http://127\.0\.0\.1:\d+/as)\n",
        r"→ GET /.well-known/oauth-authorization-server/as\n",
        r"↗ opens http://127\.0\.0\.1:\d+/as/authorize\n",
        r"for the client http://127\.0\.0\.1:\d+/assistant\.json, which says there",
        r"to have desk:read\n",
        r"✎ Amélie signs in at 127\.0\.0\.1:\d+/as\n",
        r"✎ Amélie reads what is asked for, and says: allow\n",
        r"→ POST /as/token \(authorization_code\)\n",
        r"← a token for desk:read, good for 300 s\n",
    )
    assert re.search(r"(?s)" + ".*".join(to_log_in), login), login
    to_book = (
        r"→ tools/call book_seat",
        r"← 403, insufficient_scope; needed: desk:read desk:book desk:pay\n",
        r"to have desk:read desk:book desk:pay\n",
        r"says: allow\n",
        r"← asks seat-1",
        r"Round 2\n",
        r"← asks confirm",
        r"→ POST /as/token \(refresh_token\)\n",
        r"Round 3\n",
        r"status         paid",
    )
    assert re.search(r"(?s)" + ".*".join(to_book), story), story


def test_it_connects_an_account_with_somebody_else(start: Start) -> None:
    """Decision: the client sees a link and a number; the pages are between the person and two
    servers."""
    demo = start("--once")
    assert demo.popen.wait(60) == 0, demo.text
    [act] = [act for act in demo.text.split("\n\n") if act.startswith("4. ")]
    steps = (
        r"← asks connect-page",
        r"http://(127\.0\.0\.1:\d+)/connect/[\w-]{22}\n",
        r"signs in at \1/connect/",
        r"says: allow\n",
        r"signs in at \1/nimbus\n",
        r"says: allow\n",
        r"miles          48210",
    )
    assert re.search(r"(?s)" + ".*".join(steps), act), act


@pytest.mark.anyio
async def test_the_server_saw_every_step_of_the_login(tmp_path: Path) -> None:
    """Decision: the story is what happened; told by the server's side, not by the player's."""
    out = io.StringIO()
    async with login_desk(tmp_path) as desk:
        transcript = Transcript(out)
        async with logging_in(desk.base, transcript) as login:
            await play_booking(desk.base, transcript, login)
    told = desk.recorder.told
    assert desk.recorder.seen[0].token is None
    assert desk.recorder.seen[0].status == 401
    assert told(".well-known") == [
        ("GET", "/.well-known/oauth-protected-resource/mcp", 200),
        ("GET", "/.well-known/oauth-authorization-server/as", 200),
    ]
    # Once signed in, and asked twice: for reading, and for what a booking takes.
    assert told("/as/sign-in") == [("POST", "/as/sign-in", 303)]
    assert [s for m, p, s in told("/as/authorize") if m == "POST"] == [303, 303]
    assert told("/nimbus/authorize")[-1] == ("POST", "/nimbus/authorize", 303)
    assert told("/connect/back") == [("GET", "/connect/back", 303)]
    grants = [s.body["grant_type"] for s in desk.recorder.seen if s.path == "/as/token"]
    assert grants == ["authorization_code", "authorization_code", "refresh_token"]

    refused, *rounds = desk.recorder.calls("book_seat")
    assert refused.status == 403
    assert refused.claims["scope"] == "desk:read"
    assert [each.status for each in rounds] == [200, 200, 200]
    assert refused.body == rounds[0].body  # the same request, with another token
    assert {(each.claims["sub"], each.claims["client_id"]) for each in rounds} == {
        ("amelie", refused.claims["client_id"])
    }
    assert rounds[1].claims["scope"] == "desk:read desk:book desk:pay"
    assert rounds[0].token == rounds[1].token != rounds[2].token
    assert rounds[1].claims["jti"] != rounds[2].claims["jti"]
    client = desk.auth.server.clients.get(refused.claims["client_id"])
    assert client is not None
    assert client.document
    [payment] = re.findall(r"status +(\w+)", out.getvalue())
    assert payment == "paid"


def test_a_database_that_was_used_before(start: Start, tmp_path: Path) -> None:
    """Decision: `--database` keeps what happened; 14A is taken, so the desk asks for another."""
    file = tmp_path / "kept.sqlite3"
    anyio.run(take_seat_14a, file)
    demo = start("--once", "--database", str(file))
    assert demo.popen.wait(60) == 0, demo.text
    assert "Seat 14A on TD101 is taken." in demo.text
    assert "passengers     Amélie Moreau  14F" in demo.text


async def take_seat_14a(file: Path) -> None:
    desk = Desk(Database(file), clock=time.time, hold_seconds=900)
    await desk.database.prepare(desk.now())
    await desk.hold("bruno", "TD101", [NewPassenger(name="Bruno", seat="14A")], "key")
    await desk.database.close()


def test_the_visitor_finishes_the_last_call_and_closes_the_desk(start: Start) -> None:
    """Decision: it serves on, waits for the payment, and Ctrl-C is no failure."""
    demo = start()
    url = demo.wait_for(r"REST endpoints\s+(http://127\.0\.0\.1:\d+)/docs").group(1)
    link = demo.wait_for(r"Payment page\s+(\S+)").group(1)
    with httpx2.Client(base_url=url) as http:
        assert http.get("/docs").status_code == 200
        assert "Paid" in Browser(http).pay(link, AMELIE)
    demo.wait_for(r"passengers\s+Amélie Moreau  30F")
    assert demo.interrupt() == 0, demo.text
    assert "Traceback" not in demo.text
    assert demo.text.endswith("The desk is closed.\n")


def test_ctrl_c_while_a_call_waits(start: Start) -> None:
    """Decision: the client goes first, so that no request holds the server up."""
    demo = start()
    demo.wait_for(r"Round 2\n.*pay_booking")
    assert demo.interrupt() == 0, demo.text
    assert "Traceback" not in demo.text
    assert "ERROR" not in demo.text


def test_sigterm_is_no_failure_either(start: Start) -> None:
    """Decision: that is how a supervisor says Ctrl-C."""
    demo = start()
    demo.wait_for(r"Payment page")
    demo.end()
    assert demo.popen.returncode == 0, demo.text
    assert "Traceback" not in demo.text


def test_a_busy_port_is_one_clear_message(capsys: pytest.CaptureFixture[str]) -> None:
    """Decision: what is wrong and what to do, in one line, and exit code 1."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert run(["--port", str(port)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Cannot listen on 127.0.0.1:{port}: Address already in use.")
    assert "choose another one: PORT=" in line


def test_a_port_that_is_none_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Decision: said before anything starts."""
    monkeypatch.setenv("PORT", "eighty")
    with pytest.raises(SystemExit, match="2"):
        run([])
    assert "'eighty' is no port" in capsys.readouterr().err
