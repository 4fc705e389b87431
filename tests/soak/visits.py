"""What a client does in one visit, well-behaved or not, and what it must then see.

Each visit draws all that is random from the client's own generator, so a seed repeats it.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests import wire

from .app import BIG, FLOOD
from .connection import Answer, Connection, Gone, head, request
from .server import KEEP_ALIVE

PATIENCE: Final = 60.0
"""Seconds until a response that does not come is a finding."""

INTERNAL_ERROR: Final = -32603


class Wrong(AssertionError):
    """The server did not answer as it must."""


class Client:
    """One of the two hundred: a name, a random generator, and a connection that it keeps."""

    def __init__(self, number: int, port: int, seed: int) -> None:
        self.name = f"client-{number}"
        self.random = random.Random(f"{seed} {number}")
        self.port = port
        self._kept: Connection | None = None
        self._used = 0.0
        self._next_id = 0

    async def ask(
        self, body: Mapping[str, Any], on: Connection | None = None, **changes: str | None
    ) -> Answer:
        """Send a message over the kept connection, or another: the whole response."""
        connection = on or await self.connection()
        before, content = request(body, self.name, **changes)
        await connection.send(before + content)
        async with asyncio.timeout(PATIENCE):
            answer = await connection.answer()
        _check(answer, body)
        return answer

    async def connection(self) -> Connection:
        """The connection that it keeps between its visits."""
        now = time.monotonic()
        if self._kept is not None and now - self._used > KEEP_ALIVE / 2:
            self._kept.leave()  # before the server does
        if self._kept is None or not self._kept.is_open:
            self._kept = await Connection(self.port).__aenter__()
        self._used = now
        return self._kept

    def another(self, **options: Any) -> Connection:
        """A connection for one visit."""
        return Connection(self.port, **options)

    def leave(self) -> None:
        if self._kept is not None:
            self._kept.leave()

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Any:
        return wire.call(name, arguments, id=self.new_id(), **more)

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def word(self) -> str:
        return f"{self.random.getrandbits(64):x}"


def _check(answer: Answer, body: Mapping[str, Any]) -> None:
    if answer.status >= 500:
        raise Wrong(f"{answer.status} for {body['method']}: {answer.body[:200]!r}")
    if answer.last.get("id") != body["id"]:
        raise Wrong(f"not the response to {body['id']}: {answer.body[-200:]!r}")


def must(condition: object, answer: Answer | Mapping[str, Any]) -> None:
    """Raises: Wrong, with what there was instead."""
    if not condition:
        shown = answer.last if isinstance(answer, Answer) else answer
        raise Wrong(f"unexpected: {str(shown)[:300]}")


def _result(answer: Answer) -> dict[str, Any]:
    must(answer.status == 200 and "result" in answer.last, answer)
    result: dict[str, Any] = answer.last["result"]
    return result


def _text(answer: Answer) -> str:
    result = _result(answer)
    must(result["resultType"] == "complete" and not result.get("isError"), answer)
    text: str = result["content"][0]["text"]
    return text


# --------------------------------------------------------------------------------- plain calls


async def plain(client: Client) -> None:
    """A route of FastAPI's own, for comparison."""
    content = json.dumps({"text": client.word()}).encode()
    headers = {"content-type": "application/json", "x-user": client.name}
    connection = await client.connection()
    await connection.send(head(len(content), headers, "/plain") + content)
    answer = await connection.answer()
    must(answer.status == 200 and json.loads(answer.body) == json.loads(content), answer)


async def echo(client: Client) -> None:
    word = client.word()
    must(_text(answer := await client.ask(client.call("echo", {"text": word}))) == word, answer)


async def echo_in_thread(client: Client) -> None:
    word = client.word()
    answer = await client.ask(client.call("echo_in_thread", {"text": word}))
    must(_text(answer) == word, answer)


async def lists(client: Client) -> None:
    kind = client.random.choice(["tools", "prompts", "resources"])
    answer = await client.ask(wire.message(f"{kind}/list", id=client.new_id()))
    must(_result(answer)[kind], answer)


async def discover(client: Client) -> None:
    answer = await client.ask(wire.message("server/discover", id=client.new_id()))
    must(_result(answer)["supportedVersions"], answer)


async def prompt(client: Client) -> None:
    params = {"name": "plan", "arguments": {"city": client.word()}}
    answer = await client.ask(wire.message("prompts/get", params, id=client.new_id()))
    must(_result(answer)["messages"], answer)


async def resource(client: Client) -> None:
    uri = client.random.choice(["soak://static", "soak://items/7"])
    answer = await client.ask(wire.message("resources/read", {"uri": uri}, id=client.new_id()))
    must(_result(answer)["contents"][0]["uri"] == uri, answer)


# --------------------------------------------------------------------------------------- flows


def _seat(client: Client) -> dict[str, Any]:
    return {"row": client.random.randint(1, 40), "letter": client.random.choice("ABC")}


def _accept(content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def _play(
    client: Client, method: str, params: Mapping[str, Any], answers: Mapping[str, Any]
) -> Answer:
    """All rounds of a flow, with these answers."""
    more: dict[str, Any] = {}
    while True:
        body = wire.message(method, {**params, **more}, id=client.new_id(), progressToken="p")
        answer = await client.ask(body)
        result = _result(answer)
        if result["resultType"] == "complete":
            return answer
        more["requestState"] = result["requestState"]
        more["inputResponses"] = {key: answers[key] for key in result["inputRequests"]}


async def _book(client: Client, tool: str) -> None:
    flight, seat = client.word(), _seat(client)
    paid = client.random.random() < 0.8
    answers = {"seat": _accept(seat), "confirm": _accept({"value": paid})}
    params = {"name": tool, "arguments": {"flight": flight}}
    answer = await _play(client, "tools/call", params, answers)
    price = seat["row"] * 100 if tool == "book" else 0
    must(_text(answer) == f"{flight} {seat['row']}{seat['letter']} {price} {paid}", answer)


async def book(client: Client) -> None:
    await _book(client, "book")


async def book_in_thread(client: Client) -> None:
    await _book(client, "book_in_thread")


async def declines(client: Client) -> None:
    params = {"name": "book", "arguments": {"flight": client.word()}}
    answer = await _play(client, "tools/call", params, {"seat": {"action": "decline"}})
    must(_result(answer)["isError"], answer)


async def abandons(client: Client) -> None:
    """A first round that nobody comes back to."""
    answer = await client.ask(client.call("book_once", {"flight": client.word()}))
    must(_result(answer)["resultType"] == "input_required", answer)


async def waits_for_user(client: Client) -> None:
    answer = await client.ask(client.call("waits_for_user"))
    state = _result(answer)["requestState"]
    must(_result(await client.ask(client.call("waits_for_user", requestState=state))), answer)


async def prompt_that_asks(client: Client) -> None:
    params = {"name": "plan_by_asking", "arguments": {"city": client.word()}}
    answer = await _play(client, "prompts/get", params, {"days": _accept({"value": 3})})
    must("3 days" in str(_result(answer)["messages"]), answer)


async def resource_that_asks(client: Client) -> None:
    answers = {"password": _accept({"text": client.word()})}
    answer = await _play(client, "resources/read", {"uri": "soak://asking/7"}, answers)
    must(answers["password"]["content"]["text"] in str(_result(answer)["contents"]), answer)


async def books_once(client: Client) -> None:
    """The last round several times, at once or one after the other: it ran once."""
    flight, seat = client.word(), _seat(client)
    first = _result(await client.ask(client.call("book_once", {"flight": flight})))
    more = {"requestState": first["requestState"], "inputResponses": {"seat": _accept(seat)}}
    texts = []

    async def again(on: Connection | None = None) -> None:
        body = client.call("book_once", {"flight": flight}, **more)
        texts.append(_text(await client.ask(body, on)))

    async def again_elsewhere() -> None:
        async with client.another() as connection:
            await again(connection)

    if client.random.random() < 0.5:
        for _ in range(3):
            await again()
    else:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(again_elsewhere())
    must(len(set(texts)) == 1, {"texts": texts})
    other = {**more, "inputResponses": {"seat": _accept({**seat, "row": seat["row"] % 40 + 1})}}
    answer = await client.ask(client.call("book_once", {"flight": flight}, **other))
    must(answer.status == 400 and answer.last["error"]["code"] == -32602, answer)


# ------------------------------------------------------------------------------------- streams


async def _export(client: Client, tool: str) -> None:
    parts = client.random.randint(1, 20)
    answer = await client.ask(client.call(tool, {"parts": parts}, progressToken="p"))
    must(_text(answer) == f"{parts} parts", answer)
    must(len(answer.messages) == parts + 1, answer)


async def export(client: Client) -> None:
    await _export(client, "export")


async def export_in_thread(client: Client) -> None:
    await _export(client, "export_in_thread")


async def export_and_ask(client: Client) -> None:
    params = {"name": "export_and_ask", "arguments": {"parts": 3}}
    answer = await _play(client, "tools/call", params, {"name": _accept({"value": "Ann"})})
    must(_text(answer) == "3 parts as Ann", answer)


def _listen(client: Client, number: int) -> dict[str, Any]:
    wanted = {"resourceSubscriptions": [f"soak://items/{number}"], "toolsListChanged": True}
    return wire.message("subscriptions/listen", {"notifications": wanted}, id=client.new_id())


async def subscribes(client: Client) -> None:
    """Hears what it caused, some of what others did, and leaves."""
    number = client.random.randint(1, 20)
    async with client.another() as connection:
        before, content = request(_listen(client, number), client.name)
        await connection.send(before + content)
        async with asyncio.timeout(PATIENCE):
            answer = await connection.answer_head()
            messages = connection.messages(answer)
            first = await anext(messages)
            must(first["method"] == "notifications/subscriptions/acknowledged", first)
            for _ in range(client.random.randint(1, 4)):
                await client.ask(client.call("touch", {"number": number}))
                update = await anext(messages)
                if "result" in update:  # the end of a subscription at a server that stops
                    raise Gone
                must(update["method"] == "notifications/resources/updated", update)
        await asyncio.sleep(client.random.uniform(0, 2))
        connection.leave(abruptly=client.random.random() < 0.5)


# -------------------------------------------------------------------------------- slow readers


async def reads_stream_slowly(client: Client) -> None:
    """A window of two kilobytes, half a kilobyte at a time."""
    async with client.another(buffer=2048, at_once=client.random.randint(2048, 8192)) as slow:
        body = client.call("flood", progressToken="p")
        before, content = request(body, client.name)
        await slow.send(before + content)
        async with asyncio.timeout(PATIENCE):
            answer = await slow.answer(pause=0.01)
        _check(answer, body)
        must(_text(answer) == "flooded" and len(answer.messages) == FLOOD + 1, answer)


async def reads_result_slowly(client: Client) -> None:
    async with client.another(buffer=4096, at_once=32_768) as slow:
        before, content = request(client.call("big"), client.name)
        await slow.send(before + content)
        async with asyncio.timeout(PATIENCE):
            answer = await slow.answer(pause=0.01)
        must(len(_text(answer)) == BIG, answer)


async def stops_reading(client: Client) -> None:
    """Reads a little of a stream that no buffer holds, then nothing, then is gone."""
    async with client.another(buffer=2048, at_once=512) as slow:
        before, content = request(client.call("flood", progressToken="p"), client.name)
        await slow.send(before + content)
        await slow.read_at_least(client.random.randint(1, 5000))
        await asyncio.sleep(client.random.uniform(0, 3))
        slow.leave(abruptly=client.random.random() < 0.5)


# ------------------------------------------------------------------- half-open, and disconnects


async def half_open(client: Client) -> None:
    """The head and no body, or half of it, for a while."""
    async with client.another() as connection:
        before, content = request(client.call("echo", {"text": "x" * 200}), client.name)
        share = client.random.choice([0.0, 0.5, client.random.random()])
        await connection.send(before + content[: int(len(content) * share)])
        await asyncio.sleep(client.random.uniform(0, 5))
        connection.leave(abruptly=client.random.random() < 0.5)


async def leaves_while_sending(client: Client) -> None:
    async with client.another() as connection:
        whole = b"".join(request(client.call("book", {"flight": "x"}), client.name))
        await connection.send(whole[: client.random.randrange(len(whole))])
        connection.leave(abruptly=client.random.random() < 0.5)


async def leaves_while_waiting(client: Client) -> None:
    """At a random point of a call of any kind: before it runs, while it runs, while it streams."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("lasts", {"seconds": 60, "streams": client.random.random() < 0.5}),
        ("echo_in_thread", {"text": "x"}),
        ("export", {"parts": 20}),
        ("export_in_thread", {"parts": 20}),
        ("book_once", {"flight": "x"}),
        ("flood", {}),
        ("big", {}),
    ]
    name, arguments = client.random.choice(calls)
    async with client.another() as connection:
        body = client.call(name, arguments, progressToken="p")
        await connection.send(b"".join(request(body, client.name)))
        await asyncio.sleep(client.random.expovariate(1 / 0.02))
        connection.leave(abruptly=client.random.random() < 0.5)


async def leaves_while_reading(client: Client) -> None:
    async with client.another() as connection:
        name = client.random.choice(["export", "big"])
        arguments = {"parts": 20} if name == "export" else {}
        body = client.call(name, arguments, progressToken="p")
        await connection.send(b"".join(request(body, client.name)))
        await connection.read_at_least(client.random.randint(1, 2000))
        connection.leave(abruptly=client.random.random() < 0.5)


async def leaves_in_last_round(client: Client) -> None:
    """Leaves while a single-use round runs, and asks once more for what became of it."""
    arguments = {"flight": client.word()}
    first = _result(await client.ask(client.call("book_once", arguments)))
    more = {"requestState": first["requestState"]}
    more["inputResponses"] = {"seat": _accept(_seat(client))}
    async with client.another() as connection:
        body = client.call("book_once", arguments, **more)
        await connection.send(b"".join(request(body, client.name)))
        await asyncio.sleep(client.random.expovariate(1 / 0.004))
        connection.leave(abruptly=client.random.random() < 0.5)
    must(_text(answer := await client.ask(client.call("book_once", arguments, **more))), answer)


# ------------------------------------------------------------------------------------ failures


async def _internal_error(client: Client, body: Mapping[str, Any]) -> None:
    answer = await client.ask(body)
    must(answer.last.get("error", {}).get("code") == INTERNAL_ERROR, answer)


async def raises(client: Client) -> None:
    await _internal_error(client, client.call("raises"))


async def raises_in_stream(client: Client) -> None:
    await _internal_error(client, client.call("raises_in_stream", progressToken="p"))


async def raises_after_an_ask(client: Client) -> None:
    first = _result(await client.ask(client.call("raises_after_an_ask")))
    more = {"requestState": first["requestState"]}
    more["inputResponses"] = {"ok": _accept({"value": True})}
    await _internal_error(client, client.call("raises_after_an_ask", **more))


async def is_refused(client: Client) -> None:
    must(_result(answer := await client.ask(client.call("refuses")))["isError"], answer)
    answer = await client.ask(client.call("has_its_code"))
    must(answer.last["error"]["code"] == -30999, answer)


async def is_unavailable(client: Client) -> None:
    """The one 5xx that is meant: a dependency's HTTPException."""
    connection = await client.connection()
    await connection.send(b"".join(request(client.call("is_unavailable"), client.name)))
    answer = await connection.answer()
    must(answer.status == 503 and b"on purpose" in answer.body, answer)


# ----------------------------------------------------------------------------------- malformed


async def malformed(client: Client) -> None:
    """A request that is wrong somewhere, and whatever it is answered, no fault of the server's."""
    whole = bytearray(b"".join(request(client.call("book", {"flight": "x"}), client.name)))
    end = whole.index(b"\r\n\r\n") + 4
    random_ = client.random
    match random_.randrange(5):
        case 0:  # bits of the body
            for _ in range(random_.randint(1, 5)):
                whole[random_.randrange(end, len(whole))] ^= 1 << random_.randrange(8)
        case 1:  # bytes of the head
            for _ in range(random_.randint(1, 3)):
                whole[random_.randrange(end)] = random_.randrange(256)
        case 2:  # a body of noise
            whole[end:] = random_.randbytes(len(whole) - end)
        case 3:  # a state that is none
            token = f"1.soak.{client.word()}"
            whole = bytearray(
                b"".join(
                    request(client.call("book", {"flight": "x"}, requestState=token), client.name)
                )
            )
        case _:  # a header too few
            for name in (b"mcp-method", b"content-type", b"accept", b"mcp-protocol-version"):
                if random_.random() < 0.5:
                    whole = bytearray(bytes(whole).replace(name + b":", b"x-" + name + b":"))
    async with client.another() as connection:
        await connection.send(bytes(whole))
        try:
            # A head that promises more than there is gets no answer, and need not.
            async with asyncio.timeout(1):
                answer = await connection.answer()
        except (TimeoutError, Gone):
            return
        must(answer.status < 500, answer)
        must(answer.last.get("error", {}).get("code") != INTERNAL_ERROR, answer)


# ------------------------------------------------------------------------------------- the mix


@dataclass(frozen=True, slots=True)
class Visit:
    """A kind of visit, and how often it is chosen."""

    play: Callable[[Client], Awaitable[None]]
    weight: float

    @property
    def name(self) -> str:
        return self.play.__name__


PLAIN: Final = (Visit(plain, 1),)
MIX: Final = (
    Visit(echo, 20),
    Visit(echo_in_thread, 6),
    Visit(lists, 4),
    Visit(discover, 1),
    Visit(prompt, 3),
    Visit(resource, 4),
    Visit(book, 9),
    Visit(book_in_thread, 4),
    Visit(declines, 2),
    Visit(abandons, 2),
    Visit(waits_for_user, 1),
    Visit(prompt_that_asks, 2),
    Visit(resource_that_asks, 2),
    Visit(books_once, 4),
    Visit(export, 5),
    Visit(export_in_thread, 3),
    Visit(export_and_ask, 2),
    Visit(subscribes, 4),
    Visit(reads_stream_slowly, 2),
    Visit(reads_result_slowly, 2),
    Visit(stops_reading, 1),
    Visit(half_open, 2),
    Visit(leaves_while_sending, 2),
    Visit(leaves_while_waiting, 4),
    Visit(leaves_while_reading, 2),
    Visit(leaves_in_last_round, 2),
    Visit(raises, 1),
    Visit(raises_in_stream, 1),
    Visit(raises_after_an_ask, 1),
    Visit(is_refused, 1),
    Visit(is_unavailable, 1),
    Visit(malformed, 1),
)
"""The weights add up to about a hundred, so that one in a hundred is malformed."""
