"""The command in a terminal of its own: typed into, read, and interrupted like by a person."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds after which a command that says nothing is stuck."""
COMMAND = "from fastapi_mcp_mrtr.cli import main; main()"


class Typist:
    """Somebody at a terminal. Standard output goes to a pipe: results and questions stay apart."""

    def __init__(self, *arguments: str) -> None:
        self._seen = ""
        self._screen, terminal = pty.openpty()
        attributes = termios.tcgetattr(terminal)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            cwd=ROOT,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=terminal,
            start_new_session=True,
            text=True,
        )
        os.close(terminal)

    def reads(self, text: str) -> None:
        """Read the screen up to `text`; fail if the command ends before, or says nothing."""
        while text not in self._seen:
            ready, _, _ = select.select([self._screen], [], [], PATIENCE)
            try:
                self._seen += os.read(self._screen, 1024).decode() if ready else ""
            except OSError:  # the other end is closed
                ready = []
            if not ready:
                pytest.fail(f"{text!r} is not in {self._seen!r}")
        _, _, self._seen = self._seen.partition(text)

    def rest(self) -> str:
        """What else the screen shows, once the command has ended."""
        seen = b""
        while True:
            try:
                seen += os.read(self._screen, 1024)
            except OSError:
                return seen.decode()

    def types(self, line: str) -> None:
        os.write(self._screen, f"{line}\n".encode())

    def ends(self, status: int) -> str:
        """What was printed, once the command has ended with this status."""
        printed, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == status
        return printed

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._screen)


@pytest.fixture
def typist(url: str) -> Iterator[type[Typist]]:
    opened: list[Typist] = []

    class Own(Typist):
        def __init__(self, *arguments: str) -> None:
            super().__init__("call", url, *arguments)
            opened.append(self)

    yield Own
    for each in opened:
        each.close()


def test_a_conversation_in_a_terminal(typist: type[Typist]) -> None:
    """Decision: a wrong type is asked again here, a wrong value by the server; no cancels."""
    person = typist("book_seat", "--arg", "flight=LX318")
    person.reads("Which seat on LX318? (/decline says no, /cancel gives no answer)")
    person.reads("row [a whole number, 1 to 40]: ")
    person.types("four")
    person.reads("'four' is not a whole number")
    person.types("99")
    person.reads("letter [1 to 3, or the value]: ")
    person.types("1")
    person.reads("A wish [text; may be left empty]: ")
    person.types("")
    person.reads("must be at most 40")
    for answer in ("4", "B", "by the window"):
        person.reads("]: ")
        person.types(answer)
    person.reads("Book 4B?")
    person.reads("[yes or no]: ")
    person.types("yes")
    assert json.loads(person.ends(0)) == {"flight": "LX318", "seat": "4B", "note": "by the window"}


def test_saying_no_in_a_terminal(typist: type[Typist]) -> None:
    """spec: decline (elicitation §Response Actions)."""
    person = typist("pay")
    person.reads("https://pay.example.com/1")
    person.types("/decline")
    assert "declined 'page'" in person.ends(1)


def test_leaving_with_ctrl_c(typist: type[Typist]) -> None:
    """Decision: no traceback."""
    person = typist("pay")
    person.reads("Open this page, then type yes: ")
    person.process.send_signal(signal.SIGINT)
    assert person.ends(130) == ""
    assert "Traceback" not in person.rest()
