"""Over real HTTP: uvicorn in a process of its own, raw sockets, clients that leave, signals."""

import json
import re
import signal
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from fastapi_mcp_mrtr.errors import SERVER_STOPPED
from tests import wire
from tests.demo_app.helpers import Process, free_port

SECONDS = 60
GONE = "The connection closed before the response was complete"


class Raw:
    """A connection of bytes, from which a client can walk away at any moment."""

    def __init__(self, port: int, body: dict[str, Any], **headers: str) -> None:
        content = json.dumps(body).encode()
        named = {
            "host": f"127.0.0.1:{port}",
            "content-length": str(len(content)),
            **wire.headers(body),
            **headers,
        }
        lines = [f"{name}: {value}" for name, value in named.items()]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.socket.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + content)
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def until(self, pattern: bytes) -> bytes:
        """Everything up to the pattern."""
        while not re.search(pattern, self.seen):
            more = self.socket.recv(65536)
            assert more, f"It closed: {self.seen!r}"
            self.seen += more
        return self.seen

    def rest(self) -> bytes:
        """Everything up to the end of the response."""
        return self.until(rb"(?s)0\r\n\r\n$|\r\n\r\n\{.*\}$")

    def leave(self, *, abruptly: bool = False) -> None:
        if abruptly:  # a reset in place of a goodbye
            linger = struct.pack("ii", 1, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.socket.close()


class Server:
    """The served app, what happens in it, and what it has logged."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS * 2)

    def call(self, name: str, arguments: dict[str, Any] | None = None, **headers: str) -> Raw:
        return Raw(self.port, wire.call(name, arguments, progressToken="t"), **headers)

    def happened(self, name: str, times: int = 1) -> int:
        """Wait until it has happened so often; how often it has."""
        count = self.http.get(f"/happened/{name}", params={"times": times}).json()
        assert count >= times, f"{name}: {count} of {times}\n{self.process.text}"
        return int(count)

    def count(self, name: str) -> int:
        return self.happened(name, 0)

    def let(self, name: str) -> None:
        self.http.post(f"/let/{name}")

    def logged_since(self, start: int) -> list[str]:
        """The lines of the log since then, but for uvicorn's own of no interest."""
        return [line for line in self.process.text[start:].splitlines() if "uvicorn" not in line]


@contextmanager
def served(directory: Path, *options: str, **env: str) -> Iterator[Server]:
    port = free_port()
    process = Process(
        [
            *("uvicorn", "--factory", "tests.http.served:create_app", "--no-access-log"),
            *("--host", "127.0.0.1", "--port", str(port), *options),
        ],
        directory / "server.log",
        **env,
    )
    try:
        process.wait_for("Application startup complete")
        process.wait_for("Uvicorn running")
        server = Server(process, port)
        with server.http:
            yield server
    finally:
        process.end()


ASGI_SERVERS = {
    "plain": ((), ""),
    "h11 on asyncio": (("--http", "h11", "--loop", "asyncio"), ""),
    "BaseHTTPMiddleware": ((), "base"),
    "GZip": ((), "gzip"),
}


@pytest.fixture(scope="module", params=ASGI_SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    options, middleware = ASGI_SERVERS[request.param]
    with served(tmp_path_factory.mktemp("served"), *options, MIDDLEWARE=middleware) as server:
        yield server


# --------------------------------------------------------------------------- clients that leave


@pytest.mark.parametrize("abruptly", [False, True], ids=["closes", "resets"])
@pytest.mark.parametrize("streams", [False, True], ids=["JSON", "SSE"])
def test_a_client_that_leaves_cancels_the_handler(
    server: Server, streams: bool, abruptly: bool
) -> None:
    """User report: a disconnect did not stop the tool, or in one mode only, and logged errors."""
    before = {name: server.count(name) for name in ("waiting", "finally", "rolled back", "closed")}
    start = len(server.process.text)
    client = server.call("wait", {"streams": streams})
    server.happened("waiting", before["waiting"] + 1)
    if streams:
        client.until(rb"notifications/progress")
    client.leave(abruptly=abruptly)
    for name, count in before.items():
        assert server.happened(name, count + 1) == count + 1
    server.process.wait_for(rf"(?s).{{{start}}}.*{GONE}", SECONDS)
    assert server.http.get("/health").json() == "well"
    assert server.logged_since(start) == [f"INFO [fastapi_mcp_mrtr] {GONE}"]
    assert server.count("committed") == 0


def test_a_dependency_that_is_being_entered_is_exited(server: Server) -> None:
    """User report: a session leaked, because its client left while a thread was opening it."""
    start = len(server.process.text)
    closed = server.count("closed")
    client = server.call("enter")
    server.happened("opening")
    client.leave()
    # The loop goes on, and learns that the client left, while the thread is still opening.
    assert server.http.get("/health").json() == "well"
    assert server.count("closed") == closed
    server.let("open")
    assert server.happened("sync rolled back") == 1
    assert server.happened("sync closed") == 1
    server.happened("closed", closed + 1)
    server.process.wait_for(rf"(?s).{{{start}}}.*{GONE}", SECONDS)
    assert server.logged_since(start) == [f"INFO [fastapi_mcp_mrtr] {GONE}"]
    assert server.count("handler ran") == 0


# -------------------------------------------------------------------------------------- threads


def test_sixty_tools_that_block(server: Server) -> None:
    """User report: sync tools starved each other's dependencies, or blocked the event loop."""

    def call(number: int) -> Any:
        body = wire.call("blocks", {"number": number})
        return server.http.post("/mcp", json=body, headers=wire.headers(body)).json()

    with ThreadPoolExecutor(60) as clients:
        results = clients.map(call, range(60))
        # All threads for handlers are taken, and still every dependency is solved.
        server.happened("blocked", 40)
        server.happened("dependency", 60)
        assert server.http.get("/health").json() == "well"
        server.let("blocks")
        texts = [result["result"]["content"][0]["text"] for result in results]
    assert texts == [f"solved {number}" for number in range(60)]


# -------------------------------------------------------------------------------------- signals


def assert_well_ended(server: Server) -> None:
    """uvicorn finished by itself; it then ends by the signal it got, which is its way."""
    assert server.process.popen.wait(SECONDS) in (0, -signal.SIGTERM)
    assert "Finished server process" in server.process.text
    assert not re.search("ERROR|WARNING|Traceback", server.process.text), server.process.text


def test_a_subscription_ends_with_its_result(tmp_path: Path) -> None:
    """spec: a server that stops SHOULD end a subscription gracefully (§Graceful Closure)."""
    wanted = {"notifications": {"toolsListChanged": True}}
    body = wire.message("subscriptions/listen", wanted, id="sub")
    with served(tmp_path) as server:
        with Raw(server.port, body) as client:
            client.until(rb"subscriptions/acknowledged")
            server.process.popen.send_signal(signal.SIGTERM)
            text = client.rest().decode()
        assert_well_ended(server)
    last = json.loads(text[text.rindex("data: ") + 6 :].partition("\r\n")[0])
    assert last["id"] == "sub"
    assert last["result"]["resultType"] == "complete"


def test_a_streaming_call_may_finish(tmp_path: Path) -> None:
    """Decision: a server that stops lets calls finish within shutdown_grace."""
    with served(tmp_path) as server:
        with server.call("long") as client:
            client.until(rb"notifications/progress")
            server.process.popen.send_signal(signal.SIGTERM)
            server.process.wait_for("Shutting down")
            server.process.popen.send_signal(signal.SIGUSR1)
            assert b'"text":"finished"' in client.rest()
        assert_well_ended(server)


def test_a_streaming_call_that_takes_longer_is_cancelled(tmp_path: Path) -> None:
    """Decision: after shutdown_grace it ends with an error that says so; the log has one line."""
    with served(tmp_path, SHUTDOWN_GRACE="0.1") as server:
        with server.call("long") as client:
            client.until(rb"notifications/progress")
            server.process.popen.send_signal(signal.SIGTERM)
            text = client.rest().decode()
        assert_well_ended(server)
        last = json.loads(text[text.rindex("data: ") + 6 :].partition("\r\n")[0])
        assert last["error"]["code"] == SERVER_STOPPED
        assert server.process.text.count("long ended") == 1
        assert server.process.text.count(GONE) == 1
