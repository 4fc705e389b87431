"""`python -m demo_app`, as `make demo` runs it: a child process and a real port."""

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
from demo_app.schemas import NewPassenger
from demo_app.serving import run

from .helpers import AMELIE, Browser, Process

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
    story = re.split(r"\n\n", demo.text)[-1]
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
