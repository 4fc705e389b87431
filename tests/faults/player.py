"""A client that plays bookings over a bad line: it loses responses, repeats requests, asks anybody.

Whatever it does, what a request was answered once it must be answered always.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi_mcp_mrtr.testing.wire import PROTOCOL_VERSION, request_headers

from .desk import Workers

_META: Final = "io.modelcontextprotocol/"
_KEY: Final = "io.github.fastapi-mcp-mrtr/idempotencyKey"
_REFUSED: Final = (-32602, "Invalid or expired requestState")
_TRY_AGAIN: Final = -31003

_PAUSE: Final = 0.1
_PATIENCE: Final = 60.0
"""Seconds for one response. Only a worker that hangs takes so long."""

# Of a hundred requests so many meet this.
_LINE: Final = {"fine": 64, "loses the response": 10, "breaks": 13, "says it twice": 13}


class Lost(Exception):
    """There was no response, or not all of it."""


@dataclass(frozen=True)
class Answer:
    """An outcome, without the id of the request that it was the answer to."""

    text: bytes

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.text)
        return message

    @property
    def error(self) -> tuple[int, str] | None:
        error = self.message.get("error")
        return None if error is None else (error["code"], error["message"])


class Player:
    """Plays one flow after another. `seen` counts what the line did and what came back."""

    def __init__(self, workers: Workers, seed: str, seen: Counter[str]) -> None:
        self._workers = workers
        self._rng = random.Random(seed)
        self._seen = seen

    async def book(self, name: str) -> str:
        """Book, to the end. Returns what the desk said in the end."""
        params = {"name": "book", "arguments": {"name": name}}
        sent: list[dict[str, Any]] = [params]
        answer = await self._answer_to(params, name)
        for key, value in (("seat", 7), ("ok", True)):
            state = answer.message["result"]["requestState"]
            params = {**params, "requestState": state, "inputResponses": _accepts(key, value)}
            sent.append(params)
            answer = await self._answer_to(params, name)
        await self._insist(sent, answer, name)
        text: str = answer.message["result"]["content"][0]["text"]
        return text

    async def _answer_to(self, params: Mapping[str, Any], name: str) -> Answer:
        """Send a request until there is an answer, which must be a result."""
        answers: set[Answer] = set()
        keep = False
        while not keep:
            line = self._rng.choices([*_LINE], [*_LINE.values()])[0]
            self._seen[f"line {line}"] += 1
            copies = 2 if line == "says it twice" else 1
            patience = self._rng.uniform(0, 0.1) if line == "breaks" else _PATIENCE
            tries = await asyncio.gather(
                *(self._try(params, name, patience) for _ in range(copies))
            )
            answers.update(answer for answer in tries if answer is not None)
            keep = bool(answers) and line != "loses the response"
            assert len(answers) < 2, f"{name} was answered differently: {answers}"
        self._seen["rounds"] += 1
        (answer,) = answers
        assert answer.error is None, f"{name}: {answer.text!r}"
        return answer

    async def _insist(self, sent: list[dict[str, Any]], last: Answer, name: str) -> None:
        """Say things again, when all is over."""
        match self._rng.randrange(8):
            case 0:
                assert await self._answer_to(sent[-1], name) == last
            case 1:
                other = {**sent[-1], "inputResponses": _accepts("ok", False)}
                await self._refused(other, name)
            case 2:
                await self._refused(self._rng.choice(sent[:-1]), name)

    async def _refused(self, params: Mapping[str, Any], name: str) -> None:
        answer = None
        while answer is None:
            answer = await self._try(params, name, _PATIENCE)
        assert answer.error == _REFUSED, f"{name}: {answer.text!r}"
        self._seen["refused"] += 1

    async def _try(self, params: Mapping[str, Any], name: str, patience: float) -> Answer | None:
        """One request to some worker. None: no answer, or that there is none now."""
        worker = self._rng.choice(self._workers.all)
        self._seen["requests"] += 1
        try:
            async with asyncio.timeout(patience):
                answer = await _post(worker.port, _message(params, name, self._seen["requests"]))
        except (Lost, OSError, TimeoutError):
            self._seen["lost"] += 1
        else:
            if answer.error is None or answer.error[0] != _TRY_AGAIN:
                return answer
            self._seen["told to try again"] += 1
        await asyncio.sleep(_PAUSE)
        return None


def _accepts(key: str, value: Any) -> dict[str, Any]:
    return {key: {"action": "accept", "content": {"value": value}}}


def _message(params: Mapping[str, Any], name: str, id_: int) -> dict[str, Any]:
    meta = {
        f"{_META}protocolVersion": PROTOCOL_VERSION,
        f"{_META}clientInfo": {"name": "faults", "version": "1"},
        f"{_META}clientCapabilities": {"elicitation": {}},
        _KEY: name,
    }
    full = {**params, "_meta": meta}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": full}


async def _post(port: int, message: Mapping[str, Any]) -> Answer:
    body = json.dumps(message).encode()
    headers = request_headers(message, {})
    headers |= {"host": "desk", "connection": "close", "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        await writer.drain()
        response = await reader.read()
    finally:
        writer.close()
    return _answer_in(response)


def _answer_in(response: bytes) -> Answer:
    head, _, content = response.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    if not content or len(content) != int(fields[b"content-length"]):
        raise Lost
    outcome = {**json.loads(content), "id": None}
    return Answer(json.dumps(outcome, sort_keys=True).encode())
