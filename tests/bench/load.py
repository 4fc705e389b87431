"""The load: requests in turn over 16 connections, from the other core, in slices of a moment each.

A machine that others use too changes its speed from second to second. So contestants take turns
several times a second, which makes each slice of one comparable with the slices beside it; no
common load generator can be had to work for so short a time. This one does next to nothing: it
waits for sockets, looks for the end of a response, and sends bytes that were made before. `busy`
says how much of its core that took; near 1 it would be what is measured.
"""

import re
import select
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .servers import Server

CONNECTIONS: Final = 16

_PATIENCE: Final = 30.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_STATE: Final = re.compile(rb'"requestState":"([^"]+)"')
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


class BadAnswer(RuntimeError):
    """A contestant did not do what is to be measured."""


@dataclass(frozen=True, slots=True)
class Request:
    """A POST."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def encoded(self, port: int, state: bytes = b"") -> bytes:
        """The bytes to send to a port, with `state` where the body has `STATE`."""
        body = self.body.replace(b"STATE", state)
        lines = [f"POST {self.path} HTTP/1.1", f"host: 127.0.0.1:{port}"]
        lines.append(f"content-length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(slots=True)
class Slice:
    """What was found in a moment."""

    responses: int
    elapsed: float
    server_cpu: float
    load_cpu: float
    latencies: list[float] = field(repr=False)

    @property
    def per_cpu_second(self) -> float:
        """Responses for each second that the server had its core for."""
        return self.responses / self.server_cpu


class Connections:
    """The connections to one server, kept from slice to slice."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        for _ in range(CONNECTIONS):
            link = socket.create_connection(("127.0.0.1", server.port), _PATIENCE)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[link.fileno()] = link
            self._poll.register(link.fileno(), select.EPOLLIN)

    def close(self) -> None:
        self._poll.close()
        for link in self._sockets.values():
            link.close()

    def ask(self, request: Request) -> str:
        """The body of the response to one request.

        Raises: BadAnswer, unless it is a 200.
        """
        link = next(iter(self._sockets.values()))
        link.sendall(request.encoded(self._server.port))
        received = b""
        while not _is_complete(received):
            received += _receive(link)
        head, _, body = received.partition(b"\r\n\r\n")
        if b"\r\ntransfer-encoding: chunked" in head.lower():
            # Each chunk is here one or more events, which hold no line of digits alone.
            body = b"".join(re.split(rb"(?:^|\r\n)[0-9a-f]+\r\n", body))
        return body.decode()

    def drive(
        self, requests: Sequence[Request], seconds: float, *, then: Request | None = None
    ) -> Slice:
        """Send the requests in turn for a while; wait for what is on its way.

        Each `requestState` that comes back is sent on in `then`, once.

        Raises: BadAnswer, if one response was no success.
        """
        encoded = [request.encoded(self._server.port) for request in requests]
        turn = 0
        states: list[bytes] = []
        latencies: list[float] = []
        begun: dict[int, float] = {}
        received = dict.fromkeys(self._sockets, b"")
        clock, busy, cpu = time.perf_counter, time.process_time(), self._server.cpu_seconds()
        start = clock()
        end = start + seconds
        for number, link in self._sockets.items():
            begun[number] = clock()
            link.sendall(encoded[turn % len(encoded)])
            turn += 1
        while begun:
            ready = self._poll.poll(_PATIENCE)
            if not ready:
                raise BadAnswer("no response for half a minute")
            for number, _ in ready:
                link = self._sockets[number]
                response = received[number] + _receive(link)
                if not _is_complete(response):
                    received[number] = response
                    continue
                received[number] = b""
                now = clock()
                latencies.append(now - begun[number])
                if then is not None:
                    states += _STATE.findall(response)
                if now >= end:
                    del begun[number]
                    continue
                begun[number] = now
                if then is not None and states:
                    link.sendall(then.encoded(self._server.port, states.pop()))
                else:
                    link.sendall(encoded[turn % len(encoded)])
                    turn += 1
        elapsed = clock() - start
        cpu = self._server.cpu_seconds() - cpu
        return Slice(len(latencies), elapsed, cpu, time.process_time() - busy, latencies)


def _receive(link: socket.socket) -> bytes:
    data = link.recv(1 << 20)
    if not data:
        raise BadAnswer("the server closed the connection")
    return data


def _is_complete(response: bytes) -> bool:
    """Whether a whole response is there.

    Raises: BadAnswer, if it is no success.
    """
    if not response:
        return False
    if not response.startswith(b"HTTP/1.1 200"):
        raise BadAnswer(response[:400].decode(errors="replace"))
    head = response.find(b"\r\n\r\n")
    if head < 0:
        return False
    length = _LENGTH.search(response, 0, head + 2)
    if length is None:
        return response.endswith(_LAST_CHUNK)
    return len(response) >= head + 4 + int(length[1])
