"""Bad input, item by item and at random: a clear JSON-RPC error, no 5xx, and nothing ran."""

import asyncio
import base64
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Header, HTTPException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from fastapi_mcp_mrtr import (
    KeyRing,
    MCPHeader,
    MCPRouter,
    Rounds,
    Secret,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    step,
)
from fastapi_mcp_mrtr.testing.wire import read_json
from tests import wire

pytestmark = pytest.mark.anyio

FROZEN = "Invalid or expired requestState"
SECRET = Secret("one", b"1" * 32)
NOW = 1_800_000_000.0
REFUSALS = {400, 404, 406, 413, 415}


class Seat(BaseModel):
    row: int
    letter: str = "A"


class Desk:
    """A server that counts its effects, and a client that sends it bytes."""

    def __init__(self, **options: Any) -> None:
        self.effects: list[str] = []
        self.now = NOW
        settings = {"keys": SECRET, "principal": who, "clock": lambda: self.now, **options}
        self.mcp = MCPRouter("desk", version="1", **settings)
        self._register()
        self.app = FastAPI()
        self.app.include_router(self.mcp)

    def _register(self) -> None:
        mcp, effects = self.mcp, self.effects

        @mcp.tool()
        async def book(
            flight: str, region: Annotated[str, MCPHeader("Region")] = "eu"
        ) -> Rounds[str]:
            seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
            await_hold: int = yield step("hold", effects.append, f"hold {seat.row}")
            ok: bool = yield need_input("ok", "Pay?", bool)
            effects.append(f"paid {ok}")
            yield f"{flight} {seat.row}{seat.letter} {await_hold}"

        @mcp.tool()
        async def other(flight: str) -> Rounds[str]:
            yield need_input("seat", f"Which seat on {flight}?", Seat)
            effects.append("other")
            yield "other"

        @mcp.tool()
        async def everything() -> Rounds[str]:
            yield (
                need_url("url", "Pay", "https://pay.example"),
                need_sampling("poem", "Write", max_tokens=9),
                need_roots("roots"),
            )
            effects.append("everything")
            yield "done"

        @mcp.tool()
        async def echo(text: str, number: int = 0) -> str:
            effects.append("echo")
            return text

        @mcp.prompt()
        async def plan(city: str) -> str:
            effects.append("plan")
            return city

        @mcp.resource("desk://fares/{flight}")
        async def fares(flight: str) -> str:
            effects.append("fares")
            return flight

    async def send(
        self, content: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> tuple[int, dict[str, Any]]:
        """Send bytes. What comes back is JSON by the book, and one message."""
        exchange = await wire.Exchange(self.app, content, raw_headers=headers).run()
        if exchange.status == 202:
            assert exchange.text == ""
            return 202, {}
        assert exchange.headers["content-type"] == "application/json"
        message = read_json(exchange.text)
        assert message["jsonrpc"] == "2.0"
        assert ("result" in message) != ("error" in message)
        return exchange.status, message

    async def post(self, body: Mapping[str, Any], **changes: str | None) -> dict[str, Any]:
        """Send a message with the headers that belong to it."""
        return (await self.send(json.dumps(body).encode(), raw(body, **changes)))[1]

    async def refuses(
        self, body: Mapping[str, Any] | bytes, code: int, headers: Any = None, status: int = 400
    ) -> dict[str, Any]:
        """Send what must be refused, by this code and status, with nothing done."""
        before = list(self.effects)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        if headers is None:
            headers = raw(wire.call("echo") if isinstance(body, bytes) else body)
        got, message = await self.send(content, headers)
        assert "error" in message, message
        assert (got, message["error"]["code"]) == (status, code), message
        assert isinstance(message["error"]["message"], str)
        assert self.effects == before
        error: dict[str, Any] = message["error"]
        return error


def who(x_user: Annotated[str, Header()] = "alice") -> str:
    if not x_user:
        raise HTTPException(401)
    return x_user


def raw(body: Mapping[str, Any], **changes: str | None) -> list[tuple[bytes, bytes]]:
    named = {"mcp_param_region": "eu"} if body["params"].get("name") == "book" else {}
    full = wire.headers(body, **{**named, **changes})
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in full.items()]


def book(**more: Any) -> dict[str, Any]:
    return wire.call("book", {"flight": "LX1", "region": "eu"}, **more)


def accept(**contents: Any) -> dict[str, Any]:
    return {key: {"action": "accept", "content": value} for key, value in contents.items()}


@pytest.fixture
def desk() -> Desk:
    return Desk()


# --------------------------------------------------------------------------------- the message

NOT_JSON = {
    "broken": b'{"jsonrpc": "2.0",',
    "empty": b"",
    "blank": b" \r\n",
    "no UTF-8": b'{"jsonrpc": "\xff"}',
    "UTF-16": '{"jsonrpc": "2.0"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "two messages": b"{}{}",
    "single quotes": b"{'jsonrpc': '2.0'}",
    "NaN": b'{"jsonrpc": NaN}',
    "ten thousand arrays": b"[" * 10_000 + b"]" * 10_000,
    "ten thousand objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "a NUL": b"\0",
}


@pytest.mark.parametrize("content", NOT_JSON.values(), ids=NOT_JSON)
async def test_what_is_no_json(desk: Desk, content: bytes) -> None:
    """spec: -32700 for what cannot be parsed (JSON-RPC §Error object)."""
    error = await desk.refuses(content, -32700)
    assert error["message"].startswith("Parse error")


async def test_arguments_ten_thousand_levels_deep(desk: Desk) -> None:
    """Decision: no input is deep enough to exhaust the stack."""
    deep = json.dumps(wire.call("echo", {"text": "@"})).replace('"@"', "[" * 10_000 + "]" * 10_000)
    await desk.refuses(deep.encode(), -32700)


@pytest.mark.parametrize("depth", [50, 190, 199])
async def test_what_can_be_parsed_is_not_too_deep_for_what_follows(desk: Desk, depth: int) -> None:
    """Decision: the parser's own limit is the limit everywhere."""
    deep = json.dumps(wire.call("book", {"flight": "LX1", "region": "eu", "more": "@"}))
    content = deep.replace('"@"', "[" * depth + "]" * depth).encode()
    status, message = await desk.send(content, raw(book()))
    assert status in (200, 400)
    assert message.get("error", {}).get("code") != -32603
    assert desk.effects == []


async def test_five_megabytes(desk: Desk) -> None:
    """User report: no limit on request bodies."""
    body = json.dumps(wire.call("echo", {"text": "x" * 5_000_000})).encode()
    await desk.refuses(body, -32600, status=413)


NO_MESSAGES: dict[str, Any] = {
    "a batch": [wire.call("echo", {"text": "x"})],
    "an empty batch": [],
    "a string": "tools/call",
    "a number": 3,
    "null": None,
    "true": True,
    "empty": {},
    "an id of null": wire.call("echo", {"text": "x"}, id=None),
    "an id of true": wire.call("echo", {"text": "x"}, id=True),
    "an id of 1.5": wire.call("echo", {"text": "x"}, id=1.5),
    "an id of an array": wire.call("echo", {"text": "x"}, id=[1]),
    "an id of an object": wire.call("echo", {"text": "x"}, id={}),
    "no id": {k: v for k, v in wire.call("echo", {"text": "x"}).items() if k != "id"},
    "no jsonrpc": {k: v for k, v in wire.call("echo", {"text": "x"}).items() if k != "jsonrpc"},
    "jsonrpc 1.0": {**wire.call("echo", {"text": "x"}), "jsonrpc": "1.0"},
    "jsonrpc of a number": {**wire.call("echo", {"text": "x"}), "jsonrpc": 2.0},
    "a method of a number": {**wire.call("echo", {"text": "x"}), "method": 3},
    "an empty method": {**wire.call("echo", {"text": "x"}), "method": ""},
    "a response": {"jsonrpc": "2.0", "id": 1, "result": {}},
    "an error": {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
}


@pytest.mark.parametrize("message", NO_MESSAGES.values(), ids=NO_MESSAGES)
async def test_what_is_no_request(desk: Desk, message: Any) -> None:
    """spec: one JSON-RPC request or notification per POST; ids are strings or integers."""
    await desk.refuses(json.dumps(message).encode(), -32600)


@pytest.mark.parametrize("id", [0, -1, 2**70, "", "x" * 10_000, "\0", "1"])
async def test_odd_ids_come_back_as_they_were(desk: Desk, id: Any) -> None:
    """spec: the id of a response MUST be that of its request."""
    message = await desk.post(wire.call("echo", {"text": "x"}, id=id))
    assert message["id"] == id
    assert type(message["id"]) is type(id)


@pytest.mark.parametrize("params", [[], "x", 3, None, True])
async def test_params_of_another_type(desk: Desk, params: Any) -> None:
    """Decision: MCP has named parameters only."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    await desk.refuses(json.dumps(body).encode(), -32602)


@pytest.mark.parametrize("member", ["protocolVersion", "clientCapabilities"])
@pytest.mark.parametrize("value", [..., None, 3, [], True])
async def test_metadata_that_is_missing_or_odd(desk: Desk, member: str, value: Any) -> None:
    """spec: -32602 for a request without its required _meta (basic/index)."""
    body = wire.call("echo", {"text": "x"})
    meta = body["params"]["_meta"]
    meta[f"{wire.META}{member}"] = value
    if value is ...:
        del meta[f"{wire.META}{member}"]
    await desk.refuses(body, -32602)


@pytest.mark.parametrize("meta", [None, [], "x", 3])
async def test_metadata_that_is_none(desk: Desk, meta: Any) -> None:
    """spec: _meta is required."""
    body = wire.call("echo", {"text": "x"})
    body["params"]["_meta"] = meta
    await desk.refuses(body, -32602)


@pytest.mark.parametrize(
    "members",
    [
        {f"{wire.META}logLevel": "loud"},
        {f"{wire.META}clientInfo": "me"},
        {f"{wire.META}clientInfo": {"name": 3, "version": "1"}},
        {f"{wire.META}clientCapabilities": {"elicitation": True}},
        {f"{wire.META}clientCapabilities": {"elicitation": {"form": False}}},
        {"progressToken": 1.5},
        {"progressToken": []},
    ],
)
async def test_optional_metadata_that_is_odd(desk: Desk, members: dict[str, Any]) -> None:
    """Decision: what is there has to be right; `false` declares no capability."""
    body = wire.call("echo", {"text": "x"})
    body["params"]["_meta"].update(members)
    await desk.refuses(body, -32602)


@pytest.mark.parametrize("version", ["", "2025-11-25", "2026-07-29", "1", "DRAFT", "x" * 5000])
async def test_versions_that_are_not_spoken(desk: Desk, version: str) -> None:
    """spec: -32022 with the versions that are (versioning)."""
    body = wire.call("echo", {"text": "x"})
    body["params"]["_meta"][f"{wire.META}protocolVersion"] = version
    headers = raw(body, mcp_protocol_version=version)
    error = await desk.refuses(body, -32022, headers)
    assert error["data"] == {"supported": list(wire.VERSIONS), "requested": version}


@pytest.mark.parametrize("method", ["", "tools/", "TOOLS/CALL", "rpc.x", "x" * 5000, "\0", "é"])
async def test_methods_that_are_none(desk: Desk, method: str) -> None:
    """spec: -32601 with 404; but the header has to agree first, and has no such characters."""
    body = wire.message(method)
    status, message = await desk.send(json.dumps(body).encode(), raw(body))
    plain = method.isascii() and method.isprintable()
    expected = (-32600, 400) if not method else (-32601, 404) if plain else (-32020, 400)
    assert (message["error"]["code"], status) == expected


# ------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize("value", [None, "", "text/plain", "application/json-seq", "\x00"])
async def test_content_types_that_are_not_json(desk: Desk, value: str | None) -> None:
    """Decision: 415, so that no page can post without a preflight."""
    body = wire.call("echo", {"text": "x"})
    await desk.refuses(body, -32600, raw(body, content_type=value), status=415)


async def test_two_content_types(desk: Desk) -> None:
    """Decision: the first one counts; a parser in front of us would see one or the other."""
    body = wire.call("echo", {"text": "x"})
    headers = [(b"content-type", b"text/plain"), *raw(body)]
    await desk.refuses(body, -32600, headers, status=415)


@pytest.mark.parametrize("name", ["mcp-method", "mcp-name", "mcp-protocol-version"])
@pytest.mark.parametrize("value", ["", "other", "=?base64?b3RoZXI=?=", "é", "x" * 8000])
async def test_headers_that_say_something_else(desk: Desk, name: str, value: str) -> None:
    """User report: the header named one tool, the body another, and that one ran."""
    body = wire.call("echo", {"text": "x"})
    headers = raw(body, **{name: value})
    await desk.refuses(body, -32020, headers)


@pytest.mark.parametrize("name", [b"mcp-method", b"mcp-name", b"mcp-protocol-version"])
@pytest.mark.parametrize("first", [True, False])
async def test_headers_that_contradict_themselves(desk: Desk, name: bytes, first: bool) -> None:
    """spec: -32020; a proxy may have acted on the other one."""
    body = wire.call("echo", {"text": "x"})
    other = [(name.title(), b"other")]
    await desk.refuses(body, -32020, other + raw(body) if first else raw(body) + other)


async def test_a_header_that_repeats_itself_is_fine(desk: Desk) -> None:
    """Decision: twice the same is no contradiction."""
    body = wire.call("echo", {"text": "x"})
    status, message = await desk.send(json.dumps(body).encode(), raw(body) * 2)
    assert status == 200
    assert "result" in message


@pytest.mark.parametrize("name", ["mcp-method", "mcp-name", "mcp-protocol-version"])
async def test_headers_that_are_missing(desk: Desk, name: str) -> None:
    """spec: -32020 for a required header that is missing (streamable-http)."""
    body = wire.call("echo", {"text": "x"})
    await desk.refuses(body, -32020, raw(body, **{name: None}))


BAD_BASE64 = [
    "=?base64?",
    "=?base64??=",
    "=?base64?!!!!?=",
    "=?base64?ZWNobw?=",  # no padding
    "=?base64?ZWNobw===?=",
    "=?base64?ZWNobx==?=",  # bits that nobody wrote
    "=?base64?ZWN obw==?=",
    "=?base64?_w==?=",  # another alphabet
    "=?base64?/w==?=",  # no UTF-8
    "=?BASE64?ZWNobw==?=",
    "=?base64?7aCA?=",  # a lone surrogate
    "=?base64?ZWNobw==?= ",
    "=?utf-8?b?ZWNobw==?=",
]


@pytest.mark.parametrize("value", BAD_BASE64)
async def test_bad_base64_in_the_name(desk: Desk, value: str) -> None:
    """spec: a value that does not decode is a mismatch (§Value Encoding)."""
    body = wire.call("echo", {"text": "x"})
    if value == "=?base64?ZWNobw==?= ":  # blanks around a value are no part of it
        assert "result" in await desk.post(body, mcp_name=value)
    else:
        await desk.refuses(body, -32020, raw(body, mcp_name=value))


@pytest.mark.parametrize("value", [*BAD_BASE64[:-2], "us", "", "EU", "é", None])
async def test_bad_values_of_a_mirrored_argument(desk: Desk, value: str | None) -> None:
    """spec: Mcp-Param-* MUST agree with the body (§Server Behavior for Custom Headers)."""
    await desk.refuses(book(), -32020, raw(book(), mcp_param_region=value))


async def test_a_mirror_of_nothing(desk: Desk) -> None:
    """Decision: a proxy would act on a value that the tool never sees."""
    body = wire.call("book", {"flight": "LX1"})
    await desk.refuses(body, -32020)


async def test_headers_of_any_bytes_and_number(desk: Desk) -> None:
    """Decision: other headers are nobody's business here."""
    body = wire.call("echo", {"text": "x"})
    odd = [(b"x-\xff", bytes(range(128, 256))), (b"", b""), (b"mcp-param-", b"x")]
    status, _ = await desk.send(json.dumps(body).encode(), [*raw(body), *odd * 200])
    assert status == 200


# ------------------------------------------------------------------------------------- targets

TARGETS: dict[str, dict[str, Any]] = {
    "tool": wire.call("nobody"),
    "tool of another case": wire.call("ECHO", {"text": "x"}),
    "long tool": wire.call("x" * 100_000),
    "prompt": wire.message("prompts/get", {"name": "nobody"}),
    "resource": wire.message("resources/read", {"uri": "desk://nobody"}),
    "no URI": wire.message("resources/read", {"uri": "not a uri"}),
    "template that does not match": wire.message("resources/read", {"uri": "desk://fares/a/b"}),
    "traversal": wire.message("resources/read", {"uri": "desk://fares/../../etc/passwd"}),
    "long URI": wire.message("resources/read", {"uri": "desk://" + "x" * 100_000}),
    "cursor": wire.message("tools/list", {"cursor": "forged"}),
    "cursor of a number": wire.message("tools/list", {"cursor": 3}),
    "filter": wire.message("subscriptions/listen", {"notifications": "all"}),
    "no filter": wire.message("subscriptions/listen"),
    "completion of nothing": wire.message("completion/complete"),
    "completion of nobody": wire.message(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "nobody"}, "argument": {"name": "x", "value": ""}},
    ),
    "a ref of a number": wire.message("completion/complete", {"ref": 3, "argument": {}}),
    "a prompt's argument of a number": wire.message(
        "prompts/get", {"name": "plan", "arguments": {"city": 3}}
    ),
    "a prompt without its argument": wire.message("prompts/get", {"name": "plan"}),
    "arguments of a list": wire.message("tools/call", {"name": "echo", "arguments": ["x"]}),
    "arguments of a string": wire.message("tools/call", {"name": "echo", "arguments": "x"}),
}


@pytest.mark.parametrize("body", TARGETS.values(), ids=TARGETS)
async def test_what_is_not_there(desk: Desk, body: dict[str, Any]) -> None:
    """spec: -32602 for an unknown tool, prompt, resource or cursor (server/*)."""
    error = await desk.refuses(body, -32602)
    assert len(error["message"]) < 1000


@pytest.mark.parametrize("name", [None, 3, ["echo"], {}])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
async def test_names_that_are_none(desk: Desk, method: str, name: Any) -> None:
    """Decision: the header cannot agree with what is no string."""
    member = "uri" if method == "resources/read" else "name"
    body = wire.message(method, {member: name, "arguments": {}})
    await desk.refuses(body, -32602, raw(body, mcp_name="echo"))


WRONG_ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"text": 3},
    {"text": None},
    {"text": ["x"]},
    {"text": "x", "number": "three"},
    {"text": "x", "number": 1.5},
    {"text": "x", "number": {}},
    {"text": "x", "number": 1e300},
]


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS)
async def test_arguments_of_another_type(desk: Desk, arguments: dict[str, Any]) -> None:
    """spec: input validation errors are tool errors, for the model to correct (server/tools)."""
    message = await desk.post(wire.call("echo", arguments))
    assert message["result"]["isError"]
    assert message["result"]["content"][0]["text"].startswith("Invalid arguments\n")
    assert desk.effects == []


async def test_arguments_out_of_range(desk: Desk) -> None:
    """Decision: JSON has no word for what the handler would see."""
    content = json.dumps(wire.call("echo", {"text": "x", "number": 7})).replace("7}", "1e999}")
    await desk.refuses(content.encode(), -32602)


async def test_extra_arguments(desk: Desk) -> None:
    """Decision: a misspelled argument is told, as the schema has no such member."""
    message = await desk.post(wire.call("echo", {"text": "x", "user": "root"}))
    assert message["result"]["isError"]
    assert "user" in message["result"]["content"][0]["text"]
    assert desk.effects == []


TEXTS = ["\0", "a\0b", "\ud83d\ude00", "\x7f\x1b[2J", "\u2028", "é" * 1000, ""]


@pytest.mark.parametrize("text", TEXTS)
async def test_odd_strings(desk: Desk, text: str) -> None:
    """Decision: what JSON can carry comes through, in arguments, answers and sealed journals."""
    message = await desk.post(wire.call("echo", {"text": text}))
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16")
    assert message["result"]["content"][0]["text"] == joined
    body = wire.call("book", {"flight": text, "region": "eu"})
    seat = {"row": 1, "letter": text}
    body["params"] |= {
        "requestState": await state_of(desk, body),
        "inputResponses": accept(seat=seat),
    }
    assert list((await desk.post(body))["result"]["inputRequests"]) == ["ok"]


@pytest.mark.parametrize("text", ["\ud800", "x\udfff", "\ude00\ud83d"])
async def test_lone_surrogates(desk: Desk, text: str) -> None:
    """Decision: half a character is no text, and no UTF-8 could send it back."""
    await desk.refuses(wire.call("echo", {"text": text}), -32700)


# ------------------------------------------------------------------------------- requestState


async def state_of(desk: Desk, body: Mapping[str, Any] | None = None, **changes: str) -> str:
    message = await desk.post(body or book(), **changes)
    state: str = message["result"]["requestState"]
    return state


async def frozen(
    desk: Desk, state: Any, body: dict[str, Any] | None = None, **changes: str | None
) -> None:
    """The state is refused in the one sentence, though everything else is right."""
    body = body or book()
    body["params"] |= {"requestState": state, "inputResponses": accept(seat={"row": 4}, ok=True)}
    error = await desk.refuses(body, -32602, raw(body, **changes))
    assert error == {"code": -32602, "message": FROZEN}


@pytest.mark.parametrize(
    "state",
    [0, 1, True, False, 1.5, [], {}, ["x"], {"x": 1}, "", " ", "x", "null", "é", "\0",
     "A" * 70_000, "=" * 100, "AQ", "AQNvbmU"],
)  # fmt: skip
async def test_states_of_another_shape(desk: Desk, state: Any) -> None:
    """User report: a state of another type was a 500, or was believed."""
    await frozen(desk, state)


async def test_states_that_are_cut_short(desk: Desk) -> None:
    """spec: a state that fails its integrity check MUST be rejected (mrtr)."""
    state = await state_of(desk)
    for length in range(len(state)):
        await frozen(desk, state[:length])


async def test_states_with_something_added(desk: Desk) -> None:
    """Decision: padding, blanks and anything else make it another string."""
    state = await state_of(desk)
    for more in ("=", "==", "A", "AAAA", " ", "\n", "\0", ".", "é"):
        await frozen(desk, state + more)
        await frozen(desk, more + state)


async def test_states_spelled_otherwise(desk: Desk) -> None:
    """Decision: a token has one spelling, or it could be told apart from its twin."""
    # Only a token whose last character has unused bits has a twin.
    while not len(state := await state_of(desk)) % 4:
        desk = Desk(keys=Secret(f"{SECRET.kid}e", b"1" * 32))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(state[-1])
    await frozen(desk, state[:-1] + alphabet[last + 1])
    standard = state.replace("-", "+").replace("_", "/")
    if standard != state:
        await frozen(desk, standard)
    for at in (0, len(state) // 2):
        await frozen(desk, state[:at] + "\n" + state[at:])


async def test_one_bit_flipped_anywhere(desk: Desk) -> None:
    """spec: tampering MUST be detected (mrtr §Security)."""
    state = await state_of(desk)
    sealed = bytearray(base64.urlsafe_b64decode(state + "=" * (-len(state) % 4)))
    for at in range(len(sealed)):
        sealed[at] ^= 1 << at % 8
        await frozen(desk, base64.urlsafe_b64encode(sealed).rstrip(b"=").decode())
        sealed[at] ^= 1 << at % 8
    for at, character in enumerate(state):
        await frozen(desk, state[:at] + chr(ord(character) ^ 1) + state[at + 1 :])


@pytest.mark.parametrize(
    "keys",
    [
        Secret("one", b"2" * 32),
        Secret("two", b"1" * 32),
        KeyRing(primary=Secret("two", b"2" * 32), accepted=[Secret("three", b"1" * 32)]),
    ],
)
async def test_a_state_of_another_key(desk: Desk, keys: Any) -> None:
    """Decision: neither another secret nor the same one under another label opens it."""
    await frozen(Desk(keys=keys), await state_of(desk))


async def test_a_state_of_another_server(desk: Desk) -> None:
    """Decision: servers that share a secret do not share flows."""
    await frozen(Desk(audience="elsewhere"), await state_of(desk))


async def test_a_state_of_another_tool(desk: Desk) -> None:
    """User report: a state could be replayed to another tool."""
    state = await state_of(desk, wire.call("other", {"flight": "LX1"}))
    await frozen(desk, state)


async def test_a_state_of_other_arguments(desk: Desk) -> None:
    """User report: a state could be replayed with other arguments."""
    state = await state_of(desk)
    for arguments in (
        {"flight": "LX2", "region": "eu"},
        {"flight": "LX1", "region": "eu", "more": 1},
        {"flight": ["LX1"], "region": "eu"},
    ):
        await frozen(desk, state, wire.call("book", arguments))
    without = wire.call("book", {"flight": "LX1"})
    await frozen(desk, state, without, mcp_param_region=None)


async def test_a_state_of_another_method(desk: Desk) -> None:
    """Decision: a prompt of the same name is another call."""
    body = wire.message("prompts/get", {"name": "plan", "arguments": {"city": "x"}})
    await frozen(desk, await state_of(desk), body)


async def test_a_state_of_another_principal(desk: Desk) -> None:
    """User report: bob submitted alice's state and approved her action."""
    state = await state_of(desk, x_user="alice")
    for user in ("bob", "Alice", "alice ", "aliceb"):
        if user != "alice ":  # blanks around a header's value are no part of it
            await frozen(desk, state, x_user=user)


async def test_a_state_that_expired(desk: Desk) -> None:
    """spec: states SHOULD expire (mrtr §Security)."""
    state = await state_of(desk)
    for later in (600, 3600, 1e9, float("inf"), float("nan")):
        desk.now = NOW + later
        await frozen(desk, state)


async def test_a_state_from_the_future(desk: Desk) -> None:
    """Decision: somebody's clock is wrong, and expiry means nothing then."""
    desk.now = NOW + 61
    state = await state_of(desk)
    desk.now = NOW
    await frozen(desk, state)


async def test_a_cursor_is_no_state(desk: Desk) -> None:
    """Decision: tokens are sealed for one purpose."""
    paged = Desk(page_size=1)
    listed = await paged.post(wire.message("tools/list"))
    await frozen(paged, listed["result"]["nextCursor"])


async def test_a_state_is_no_cursor(desk: Desk) -> None:
    """Decision: and the other way round."""
    body = wire.message("tools/list", {"cursor": await state_of(desk)})
    await desk.refuses(body, -32602)


async def test_the_log_says_why_and_quotes_nothing(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """User report: it was hard to tell a changed from a missing or invented state."""
    caplog.set_level(logging.DEBUG)
    state = await state_of(desk)
    await frozen(desk, state, x_user="bob")
    assert "other principal" in caplog.text
    for secret in (state, state[:16], "LX1", "alice", "bob"):
        assert secret not in caplog.text


# ----------------------------------------------------------------------------- inputResponses


@pytest.mark.parametrize("responses", [[], [1], "seat", 3, True, 1.5])
async def test_answers_that_are_no_object(desk: Desk, responses: Any) -> None:
    """spec: inputResponses is an object."""
    body = book(requestState=await state_of(desk), inputResponses=responses)
    await desk.refuses(body, -32602)


NO_ANSWERS: list[Any] = [
    None, 3, "accept", [], True, {}, {"action": None}, {"action": "maybe"}, {"action": ["accept"]},
    {"action": "ACCEPT"}, {"content": {"row": 4}}, {"action": "accept", "content": []},
    {"action": "accept", "content": "x"}, {"action": "accept", "content": 4},
    {"action": "accept", "content": {"row": {"deep": 1}}}, {"role": "assistant"}, {"roots": []},
    {"action": "accept", "content": {"row": [4]}},
    {"action": "accept", "content": {"row": 4, "letter": "A", "more": {"deep": 1}}},
]  # fmt: skip


@pytest.mark.parametrize("answer", NO_ANSWERS)
async def test_answers_that_are_none(desk: Desk, answer: Any) -> None:
    """spec: -32602, naming the key (mrtr §Error Handling), or asked again; never a 500."""
    body = book(requestState=await state_of(desk), inputResponses={"seat": answer})
    status, message = await desk.send(json.dumps(body).encode(), raw(body))
    if "error" in message:
        assert (status, message["error"]["code"]) == (400, -32602)
        assert "seat" in message["error"]["message"]
    else:
        assert list(message["result"]["inputRequests"]) == ["seat"]
    assert desk.effects == []


@pytest.mark.parametrize(
    "content",
    [{}, {"row": None}, {"row": "4"}, {"row": 4.5}, {"row": True}, {"row": 4, "letter": 3},
     {"letter": "A"}, {"row": ["4"]}],
)  # fmt: skip
async def test_contents_that_do_not_fit_are_asked_again(desk: Desk, content: Any) -> None:
    """spec: SHOULD ask again (mrtr §Error Handling); user report: it was a 500."""
    body = book(requestState=await state_of(desk), inputResponses=accept(seat=content))
    message = await desk.post(body)
    asked = message["result"]["inputRequests"]["seat"]["params"]["message"]
    assert asked.startswith("Which seat on LX1?\n(")
    assert desk.effects == []


@pytest.mark.parametrize("key", ["url", "poem", "roots"])
@pytest.mark.parametrize("answer", NO_ANSWERS)
async def test_answers_to_other_kinds_of_asks(desk: Desk, key: str, answer: Any) -> None:
    """spec: each ask has a result type of its own, and nothing else answers it."""
    body = wire.call("everything")
    body["params"]["requestState"] = await state_of(desk, body)
    body["params"]["inputResponses"] = {key: answer}
    status, message = await desk.send(json.dumps(body).encode(), raw(body))
    if "error" in message:
        assert (status, message["error"]["code"]) == (400, -32602)
    else:
        assert message["result"]["resultType"] == "input_required"
    assert desk.effects == []


async def test_answers_that_were_never_asked(desk: Desk) -> None:
    """User report: answers on a first request were believed."""
    everything = accept(seat={"row": 4}, ok=True, hold=1, other=True)
    first = await desk.post(book(inputResponses=everything))
    assert list(first["result"]["inputRequests"]) == ["seat"]
    state = first["result"]["requestState"]
    second = await desk.post(book(requestState=state, inputResponses=everything))
    assert list(second["result"]["inputRequests"]) == ["ok"]
    assert desk.effects == ["hold 4"]


async def test_ten_thousand_answers(desk: Desk) -> None:
    """Decision: those that were not asked for cost nothing and are not kept."""
    many = accept(**{f"k{n}": {"row": n} for n in range(10_000)})
    message = await desk.post(book(requestState=await state_of(desk), inputResponses=many))
    assert list(message["result"]["inputRequests"]) == ["seat"]
    assert len(message["result"]["requestState"]) < 1000


# ------------------------------------------------------------------------------------ anything

DESK = Desk()
"""One server for all that is generated: nothing of one request may show in another."""

CALM = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
"""The fixture keeps what all examples have logged; and the machine may be busy."""

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["book", "other", "everything", "echo", "plan", "nobody"]) | st.text()
METHODS = st.sampled_from(
    ["tools/call", "tools/list", "prompts/get", "prompts/list", "resources/read", "server/discover",
     "resources/list", "resources/templates/list", "completion/complete", "initialize", "ping",
     "notifications/cancelled"]
) | st.text()  # fmt: skip
HEADER_NAMES = st.sampled_from(
    [b"content-type", b"accept", b"content-length", b"host", b"origin", b"mcp-method", b"mcp-name",
     b"mcp-protocol-version", b"mcp-param-region", b"x-user"]
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn, state: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A request that is right but for some members, each replaced by anything."""
    body = wire.message(
        draw(METHODS), {"name": draw(NAMES), "uri": "desk://fares/x", "arguments": {"flight": "x"}}
    )
    if draw(st.booleans()):
        body = book(requestState=state, inputResponses={"seat": draw(JSON)})
    for path in draw(
        st.lists(
            st.sampled_from(
                ["id", "jsonrpc", "method", "params", "params._meta", "params.name", "params.uri",
                 "params.arguments", "params.requestState", "params.inputResponses",
                 "params.cursor", "params.ref", "params.argument", "params.notifications"]
            ),
            max_size=3,
        )
    ):  # fmt: skip
        *parents, member = path.split(".")
        inside: Any = body
        for parent in parents:
            inside = inside.get(parent)
        if isinstance(inside, dict):
            inside[member] = draw(JSON)
    if isinstance(body.get("params"), dict) and isinstance(body["params"].get("_meta"), dict):
        body["params"]["_meta"] |= draw(st.dictionaries(st.text(), JSON, max_size=2))
    headers = well_formed(body)
    for name, value in draw(st.lists(st.tuples(HEADER_NAMES, st.binary(max_size=20)), max_size=2)):
        headers.insert(draw(st.integers(0, len(headers))), (name, value))
    content = json.dumps(body).encode()
    if draw(st.booleans()):
        return content, headers
    at = draw(st.integers(0, len(content)))
    return content[:at] + draw(st.binary(max_size=5)) + content[at:], headers


def well_formed(body: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """Headers that agree with the body as far as headers can."""
    params = body.get("params")
    named = params if isinstance(params, dict) else {}
    method = body.get("method")
    values = {
        "content-type": "application/json",
        "accept": wire.SSE,
        "mcp-protocol-version": wire.VERSION,
        "mcp-method": method if isinstance(method, str) else "tools/call",
        "mcp-name": named.get("uri" if method == "resources/read" else "name"),
        "mcp-param-region": "eu",
    }
    return [
        (name.encode(), value.encode("utf-8", "surrogatepass"))
        for name, value in values.items()
        if isinstance(value, str)
    ]


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """What the package logs as an error, over all examples."""
    logged: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(self.format(record))

    handler = Keeps(logging.ERROR)
    logger = logging.getLogger("fastapi_mcp_mrtr")
    logger.addHandler(handler)
    yield logged
    logger.removeHandler(handler)


async def answers_clearly(
    content: bytes, headers: list[tuple[bytes, bytes]], errors: list[str]
) -> None:
    """Whatever it is: a status of ours, a message by the book, no effect and nothing in the log."""
    exchange = await wire.Exchange(DESK.app, content, raw_headers=headers).run()
    assert exchange.status in {200, 202, 401, 403, *REFUSALS}, exchange.text
    assert errors == []
    assert [effect for effect in DESK.effects if effect.startswith(("paid", "hold"))] == []
    if exchange.status in (202, 401):
        return
    message = read_json(exchange.text)
    assert message["jsonrpc"] == "2.0"
    if exchange.status == 200:
        assert "result" in message
    else:
        assert message["error"]["code"] != -32603
        assert isinstance(message["error"]["message"], str)


@CALM
@given(st.data())
def test_any_request(errors: list[str], data: st.DataObject) -> None:
    """Decision: whatever arrives, a clear answer, never a 5xx, never a lost or repeated effect."""
    content, headers = data.draw(requests(asyncio.run(state_of(DESK))))
    asyncio.run(answers_clearly(content, headers, errors))


@CALM
@given(st.binary(), st.lists(st.tuples(HEADER_NAMES, st.binary(max_size=30)), max_size=6))
def test_any_bytes(errors: list[str], content: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Decision: the same for what is no request at all."""
    asyncio.run(answers_clearly(content, headers, errors))
    asyncio.run(answers_clearly(content, [*headers, *raw(wire.call("echo"))], errors))


@CALM
@given(st.data())
def test_any_state(errors: list[str], data: st.DataObject) -> None:
    """spec: a state that is not as it was made MUST be rejected (mrtr)."""
    state = asyncio.run(state_of(DESK))
    at = data.draw(st.integers(0, len(state)))
    until = data.draw(st.integers(at, len(state)))
    added = data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    other = state[:at] + added + state[until:]
    if other != state:
        asyncio.run(frozen(DESK, other))
    assert errors == []
