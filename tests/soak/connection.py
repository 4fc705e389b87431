"""A connection of a client that may be slow, rude or gone. No HTTP library would let it."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tests import wire


@dataclass(slots=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """The JSON-RPC messages of a stream, or the one of a JSON response."""

    @property
    def last(self) -> dict[str, Any]:
        return self.messages[-1] if self.messages else {}


class Gone(Exception):
    """The server closed the connection."""


def request(body: Mapping[str, Any], user: str, **changes: str | None) -> tuple[bytes, bytes]:
    """The head and the body of a POST to the endpoint."""
    content = json.dumps(body).encode()
    return head(len(content), {**wire.headers(body, **changes), "x-user": user}), content


def head(length: int, headers: Mapping[str, str], path: str = "/mcp") -> bytes:
    named = {"host": "127.0.0.1", "content-length": str(length), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Connection:
    """A socket, and what of the response it has read."""

    def __init__(self, port: int, *, buffer: int | None = None, at_once: int = 65_536) -> None:
        self._port = port
        self._at_once = at_once
        self._seen = bytearray()
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if buffer is not None:  # before connecting: it decides the window
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._is_open = False

    async def __aenter__(self) -> Self:
        try:
            await self._loop.sock_connect(self._socket, ("127.0.0.1", self._port))
        except BaseException:
            self._socket.close()
            raise
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    @property
    def is_open(self) -> bool:
        return self._is_open

    def leave(self, *, abruptly: bool = False) -> None:
        """Close; with a reset in place of a goodbye if abruptly."""
        if self._is_open:
            self._is_open = False
            if abruptly:
                linger = struct.pack("ii", 1, 0)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._socket.close()

    async def send(self, data: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._socket, data)
        except OSError as error:
            raise Gone(repr(error)) from None

    async def more(self) -> None:
        """Read what there is, or wait for it."""
        try:
            data = await self._loop.sock_recv(self._socket, self._at_once)
        except OSError as error:
            raise Gone(repr(error)) from None
        if not data:
            self.leave()
            raise Gone("it closed")
        self._seen += data

    async def read_at_least(self, count: int) -> None:
        """Have so many bytes of the response, if it has so many before it waits."""
        while len(self._seen) < count:
            await self.more()

    async def answer(self, pause: float = 0.0) -> Answer:
        """The whole response, with a pause before each read."""
        answer = await self.answer_head()
        messages = self.messages(answer, pause)
        answer.messages = [message async for message in messages]
        if answer.headers.get("connection") == "close":
            self.leave()
        return answer

    async def answer_head(self) -> Answer:
        """The response up to its body."""
        lines = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = (line.partition(":") for line in lines[1:])
        headers = {name.lower(): value.strip() for name, _, value in fields}
        return Answer(int(lines[0].split()[1]), headers)

    async def messages(self, answer: Answer, pause: float = 0.0) -> AsyncIterator[dict[str, Any]]:
        """The messages of a response, as they come."""
        length = answer.headers.get("content-length")
        if length is not None:
            answer.body = await self._take(int(length), pause)
            if answer.body[:1] == b"{":
                yield json.loads(answer.body)
            return
        while True:
            size = int((await self._until(b"\r\n")), 16)
            chunk = (await self._take(size + 2, pause))[:-2]
            if not size:
                return
            for line in chunk.split(b"\r\n"):
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    async def _until(self, end: bytes) -> bytes:
        while (at := self._seen.find(end)) < 0:
            await self.more()
        taken = bytes(self._seen[:at])
        del self._seen[: at + len(end)]
        return taken

    async def _take(self, count: int, pause: float = 0.0) -> bytes:
        while len(self._seen) < count:
            if pause:
                await asyncio.sleep(pause)
            await self.more()
        taken = bytes(self._seen[:count])
        del self._seen[:count]
        return taken
