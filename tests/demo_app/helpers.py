"""What the demo's tests drive it with: a clock, a browser, a server process."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

ROOT = Path(__file__).parents[2]
SECRET = "a secret of the tests, thirty-two bytes or more"
AMELIE, BRUNO, CHEN = "key-amelie", "key-bruno", "key-chen"
GOOD_CARD = {"number": "4242 4242 4242 4242", "expires": "12/90", "code": "123"}
REFUSED_CARD = {**GOOD_CARD, "number": "4000 0000 0000 0002"}


class Clock:
    """Stands still unless told."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Browser:
    """Opens pages and sends their forms, with cookies of its own. Follows no script."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http
        self.cookies = httpx2.Cookies()
        self.page = ""
        self.status = 0

    def open(self, url: str) -> str:
        return self._request("GET", url)

    def submit(self, path: str, fields: Mapping[str, str], *, csrf: str | None = None) -> str:
        """Send the form of the page that is open, as if its action were `path`."""
        found = re.search(r'name="csrf" value="(\w+)"', self.page)
        token = csrf if csrf is not None else found.group(1) if found else ""
        return self._request("POST", path, {"csrf": token, **fields})

    def sign_in(self, url: str, key: str) -> str:
        self.open(url)
        return self.submit(f"{url}/sign-in", {"key": key})

    def pay(self, url: str, key: str, card: Mapping[str, str] = GOOD_CARD) -> str:
        """All that a customer does: open the link, sign in, pay."""
        self.sign_in(url, key)
        return self.submit(url, card)

    def _request(self, method: str, url: str, data: Mapping[str, str] | None = None) -> str:
        path = urlsplit(url).path
        self._http.cookies = self.cookies
        response = self._http.request(method, path, data=data, follow_redirects=True)
        self.cookies = httpx2.Cookies(self._http.cookies)
        self._http.cookies.clear()
        self.page, self.status = response.text, response.status_code
        return self.page


class Process:
    """A child process whose output can be waited for."""

    def __init__(self, arguments: list[str], output: Path, **env: str) -> None:
        self.output = output
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("TRAVEL_", "PORT"))}
        with output.open("wb") as file:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**environ, **env},
            )

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = 60) -> re.Match[str]:
        """Return once the output matches, or fail with the output."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            assert self.popen.poll() is None, f"It ended:\n{self.text}"
            assert time.monotonic() < deadline, f"Never saw {pattern!r} in:\n{self.text}"
            time.sleep(0.02)
        return found

    def interrupt(self) -> int:
        """Ctrl-C."""
        self.popen.send_signal(signal.SIGINT)
        return self.popen.wait(60)

    def end(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(15)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(15)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(directory: Path, *, workers: int, **env: str) -> Iterator[str]:
    """The demo behind uvicorn in processes of its own. Yields its address."""
    port = free_port()
    process = Process(
        [
            *("uvicorn", "--factory", "demo_app.app:create_app"),
            *("--host", "127.0.0.1", "--port", str(port), "--workers", str(workers)),
        ],
        directory / "server.log",
        TRAVEL_DESK_DATABASE=str(directory / "desk.sqlite3"),
        TRAVEL_DESK_SECRET=SECRET,
        **env,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        # Each worker says so by itself, and only then takes its share of the load.
        process.wait_for(r"(?s)" + ".*".join(["Application startup complete"] * workers))
        yield url
        assert "Traceback" not in process.text, process.text
        assert "ERROR" not in process.text, process.text
    finally:
        process.end()
