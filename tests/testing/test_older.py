"""The client that speaks an older revision: sessions, what it holds servers to, what it cannot do.

That it plays the same scripts as today's is what tests/eras is about.
"""

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Header, HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fastapi_mcp_mrtr import MCPRouter, Rounds, Secret, need_input
from fastapi_mcp_mrtr.testing import (
    OMIT,
    ErrorReply,
    MCPTestClient,
    ProtocolViolation,
    RejectedRequest,
    UnansweredQuestion,
    UnexpectedOutcome,
    live,
    older,
)
from fastapi_mcp_mrtr.testing.wire import PROTOCOL_VERSION

VERSION = "2025-11-25"


class Desk:
    """A tool that asks, for whoever is not nobody."""

    def __init__(self) -> None:
        self.loops: set[Any] = set()
        self.left = threading.Event()
        self.mcp = MCPRouter(
            "desk",
            version="1.0.0",
            keys=Secret("tests", "a secret of the tests, thirty-two bytes or more"),
            principal=self.caller,
        )

        @self.mcp.tool()
        async def greet() -> Rounds[str]:
            name: str = yield need_input("name", "Your name?", str)
            self.loops.add(asyncio.get_running_loop())
            yield f"Hello, {name}"

        @self.mcp.tool()
        async def slow() -> str:
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
            return "never"

        @self.mcp.tool()
        async def two() -> Rounds[str]:
            a, _ = yield need_input("a", "A?", str), need_input("b", "B?", str)
            yield a

        self.app = FastAPI(lifespan=self.lifespan)
        self.app.include_router(self.mcp)

    def caller(self, x_user: Annotated[str, Header()] = "alice") -> str:
        if x_user == "nobody":
            raise HTTPException(403, "Not you")
        return x_user

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        self.loops.add(asyncio.get_running_loop())
        yield


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def client(desk: Desk) -> Iterator[MCPTestClient]:
    client = MCPTestClient(desk.app, version=VERSION)
    yield client
    client.close()


def greeting(client: MCPTestClient) -> str:
    result = client.call_tool("greet", answers={"name": "Ada"})
    return str(result.content[0].text)  # type: ignore[union-attr]


# -------------------------------------------------------------------------------- the event loop


def test_without_a_lifespan(client: MCPTestClient, desk: Desk) -> None:
    """decision: bare, the client has a loop of its own for as long as it is open."""
    assert greeting(client) == greeting(client) == "Hello, Ada"
    assert len(desk.loops) == 1


def test_in_the_loop_of_the_lifespan(desk: Desk) -> None:
    """decision: what the app opened in its lifespan belongs to the loop that calls run in."""
    with MCPTestClient(desk.app, version=VERSION) as client:
        assert greeting(client) == "Hello, Ada"
    assert len(desk.loops) == 1


def test_a_client_that_nobody_closes(desk: Desk) -> None:
    """decision: its thread ends with it."""
    before = set(threading.enumerate())
    client = MCPTestClient(desk.app, version=VERSION)
    client.begin_tool("greet")
    new = set(threading.enumerate()) - before
    assert new
    del client
    gc.collect()
    for thread in new:
        thread.join(20)
    assert not any(thread.is_alive() for thread in new)


def test_a_call_that_is_left(client: MCPTestClient) -> None:
    """decision: closing leaves nothing running."""
    first = client.begin_tool("greet")
    client.close()
    with pytest.raises(UnexpectedOutcome, match="has no requestState"):
        first.answer({"name": "Ada"})


# ------------------------------------------------------------------------------------- sessions


def test_a_session_of_somebody_else(client: MCPTestClient) -> None:
    """spec: a client whose session is not found begins another (§Session Management 4)."""
    assert greeting(client) == "Hello, Ada"
    with client.as_principal("bob"):
        assert greeting(client) == "Hello, Ada"
    statuses = [reply.status_code for reply in client.replies]
    assert statuses.count(404) == 1


@pytest.mark.parametrize("version", [VERSION, PROTOCOL_VERSION])
def test_nobody_else_can_go_on(desk: Desk, version: str) -> None:
    """user report: it was called a breach of the protocol; spec: 404 (§Session Management 3)."""
    with MCPTestClient(desk.app, version=version) as client:
        asked = client.begin_tool("greet")
        with client.as_principal("bob"):
            refused = asked.answer({"name": "Bob"})
            assert refused.kind == "error"
            with pytest.raises(ErrorReply):
                asked.play({"name": "Bob"})
            assert greeting(client) == "Hello, Ada"
        assert "Hello, Eve" in asked.answer({"name": "Eve"}).reply.text


def test_what_refuses_somebody_else_is_what_came(client: MCPTestClient) -> None:
    """decision: the status and the code of the revision, not those of another."""
    asked = client.begin_tool("greet")
    with client.as_principal("bob"):
        refused = asked.answer({"name": "Bob"})
    assert (refused.status_code, refused.error.code) == (404, -32600)
    assert client.replies[-1] is refused.reply


def test_a_session_that_cannot_be_opened(client: MCPTestClient) -> None:
    """decision: what refuses `initialize` is the reply to what was asked for."""
    client.headers = {"X-User": "nobody"}
    assert client.begin_tool("greet").status_code == 403
    client.headers = {}
    assert greeting(client) == "Hello, Ada"


def test_a_session_that_cannot_be_opened_again(client: MCPTestClient) -> None:
    """decision: the same for the second one."""
    assert greeting(client) == "Hello, Ada"
    client.advance(10 * 86_400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "client_info", {"name": 5})
        assert client.begin_tool("greet").error.code == -32602


def test_without_log_messages_and_progress(desk: Desk) -> None:
    """decision: what is not asked for is not sent."""
    client = MCPTestClient(desk.app, version=VERSION, log_level=None, progress=False)
    assert greeting(client) == "Hello, Ada"
    assert [r.request["method"] for r in client.replies[:2]] == ["initialize", "tools/call"]
    assert "_meta" not in client.replies[1].request["params"]
    client.close()


def test_a_request_without_meta(client: MCPTestClient) -> None:
    """decision: OMIT leaves out all of it."""
    reply = client.request("tools/list", meta=OMIT)
    assert "_meta" not in reply.request["params"]
    assert len(reply.result["tools"]) == 3


def test_a_server_without_that_revision() -> None:
    """decision: negotiation ends elsewhere, and so does the test."""
    mcp = MCPRouter(
        "desk", version="1.0.0", keys=Secret.generate("t"), versions=["2026-07-28", "2025-06-18"]
    )
    app = FastAPI()
    app.include_router(mcp)
    client = MCPTestClient(app, version=VERSION)
    with pytest.raises(UnexpectedOutcome, match="serves 2025-06-18 instead of 2025-11-25"):
        client.list_tools()
    client.close()


# ------------------------------------------------------------------- what only a state can show


@pytest.mark.parametrize(
    "act",
    [
        lambda first: first.tamper(),
        lambda first: first.with_state(5),
        lambda first: first.send({"requestState": first.request_state}),
    ],
)
def test_there_is_no_state(client: MCPTestClient, act: Callable[[Any], Any]) -> None:
    """decision: said, instead of sent as something else."""
    with pytest.raises(UnexpectedOutcome, match=r"2025-11-25 has no requestState"):
        act(client.begin_tool("greet"))


def test_a_round_is_answered_once(client: MCPTestClient) -> None:
    """decision: the call that asked has gone on."""
    first = client.begin_tool("greet")
    assert first.answer({"name": "Ada"}).kind == "complete"
    with pytest.raises(UnexpectedOutcome, match="can be answered once"):
        first.answer({"name": "Bo"})


def test_all_of_a_batch_is_answered(client: MCPTestClient) -> None:
    """decision: the server waits for all, so a part of them would wait for ever."""
    first = client.begin_tool("two")
    with pytest.raises(UnansweredQuestion):
        first.answer({"a": "x"})
    with pytest.raises(UnexpectedOutcome, match="every ask of it"):
        first.answer({"a": "x"}, partial=True)


# --------------------------------------------------------------------------------- what goes wrong


def test_an_exception_that_leaves_the_app() -> None:
    """decision: it reaches the test, or is a 500 if that is wanted."""

    def answer(message: Mapping[str, Any]) -> Response:
        raise RuntimeError("out of order")

    client = MCPTestClient(server(answer), version=VERSION)
    with pytest.raises(RuntimeError, match="out of order"):
        client.begin_tool("x")
    client.close()
    client = MCPTestClient(server(answer), version=VERSION, raise_server_exceptions=False)
    assert client.begin_tool("x").status_code == 500
    client.close()


def test_a_server_that_says_nothing(
    client: MCPTestClient, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: a test that would wait for ever fails instead."""
    client.list_tools()
    monkeypatch.setattr(older, "PATIENCE", 0.05)
    with pytest.raises(UnexpectedOutcome, match=r"said nothing for 0\.05 seconds"):
        client.begin_tool("slow")
    client.close()
    assert desk.left.wait(60)


# ----------------------------------------------------------- a server that does not keep to rules


def sse(*messages: Any) -> Response:
    lines = [m if isinstance(m, str) else f"data: {json.dumps(m)}\n\n" for m in messages]
    return StreamingResponse(iter(lines), media_type="text/event-stream")


def server(answer: Callable[[Mapping[str, Any]], Response]) -> ASGIApp:
    """An endpoint that opens sessions as it should, and does what it likes with the rest."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        message = json.loads((await receive())["body"])
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": VERSION,
                    "capabilities": {},
                    "serverInfo": {"name": "odd", "version": "1"},
                }
                body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                response: Response = JSONResponse(body, headers={"mcp-session-id": "s"})
            case "notifications/initialized":
                response = Response(status_code=202)
            case "logging/setLevel":
                response = JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": {}})
            case _:
                response = answer(message)
        await response(scope, receive, send)

    return app


def reply_to(message: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], **members}


ASK = {
    "jsonrpc": "2.0",
    "id": "a",
    "method": "sampling/createMessage",
    "params": {"messages": [], "maxTokens": 1},
}
TEXT = {"content": [{"type": "text", "text": "x"}]}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda m: sse("data: {\n\n"), "The body is not JSON"),
        (lambda m: sse({**ASK, "method": "x/y"}), "x/y in 2025-11-25"),
        (lambda m: sse({**ASK, "params": {}}), "maxTokens"),
        (
            lambda m: sse({"jsonrpc": "2.0", "method": "notifications/odd"}),
            "notifications/odd in 2025-11-25",
        ),
        (lambda m: JSONResponse(reply_to({"id": "other"}, result=TEXT)), "'other' answers"),
        (lambda m: JSONResponse(reply_to(m, result={"content": 5})), "tools/call in 2025-11-25"),
        (
            lambda m: JSONResponse(reply_to(m, result={**TEXT, "resultType": "complete"})),
            "2025-11-25 has no resultType",
        ),
    ],
)
def test_a_reply_that_breaks_a_rule(
    answer: Callable[[Mapping[str, Any]], Response], complaint: str
) -> None:
    """decision: the client holds the server to its revision."""
    client = MCPTestClient(server(answer), version=VERSION)
    with pytest.raises(ProtocolViolation, match=complaint):
        client.begin_tool("x")
    client.close()


def test_an_answer_that_is_refused() -> None:
    """spec: an HTTP error, with an error in its body or without (§Sending Messages 4)."""

    def answer(message: Mapping[str, Any]) -> Response:
        return sse(ASK) if "method" in message else Response("no", 400)

    client = MCPTestClient(server(answer), version=VERSION)
    refused = client.begin_tool("x").answer({"sampling/createMessage": "y"})
    assert (refused.kind, refused.status_code, refused.reply.text) == ("rejected", 400, "no")
    with pytest.raises(RejectedRequest, match="HTTP 400: 'no'"):
        refused.result  # noqa: B018 - it raises
    client.close()


def test_an_answer_that_is_neither_taken_nor_refused() -> None:
    """spec: 202 with no body for what has no answer (§Sending Messages 4)."""

    def answer(message: Mapping[str, Any]) -> Response:
        return sse(ASK) if "method" in message else Response("ok", 200)

    client = MCPTestClient(server(answer), version=VERSION)
    with pytest.raises(ProtocolViolation, match="HTTP 200 b'ok'"):
        client.begin_tool("x").answer({"sampling/createMessage": "y"})
    client.close()


def test_an_answer_that_breaks_the_server() -> None:
    """decision: as for any request, a 500 if that is wanted."""

    def answer(message: Mapping[str, Any]) -> Response:
        if "method" in message:
            return sse(ASK)
        raise RuntimeError("out of order")

    app = server(answer)
    client = MCPTestClient(app, version=VERSION, raise_server_exceptions=False)
    first = client.begin_tool("x")
    assert first.answer({"sampling/createMessage": "y"}).status_code == 500
    client.raise_server_exceptions = True
    with pytest.raises(RuntimeError, match="out of order"):
        first.answer({"sampling/createMessage": "y"})
    client.close()


def test_a_session_that_is_refused_once_it_is_open() -> None:
    """decision: like one whose `initialize` is refused."""
    inner = server(lambda m: sse(ASK))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        if b"notifications/initialized" in message.get("body", b""):
            await Response("gone", 410)(scope, receive, send)
            return

        async def again() -> Any:
            return message

        await inner(scope, again, send)

    client = MCPTestClient(app, version=VERSION)
    assert client.begin_tool("x").status_code == 410
    client.close()


def test_a_stream_that_ends_too_early() -> None:
    """decision: no result is no result."""
    client = MCPTestClient(server(lambda m: sse(": nothing\n\n", "data: 5\n\n")), version=VERSION)
    assert client.begin_tool("x").kind == "rejected"
    client.close()


def test_plain_http() -> None:
    """decision: what is no JSON-RPC is given as it is."""
    client = MCPTestClient(server(lambda m: Response("gone", 410)), version=VERSION)
    reply = client.begin_tool("x").reply
    assert (reply.kind, reply.status_code, reply.text) == ("rejected", 410, "gone")
    client.close()


def test_an_error_that_knows_no_id() -> None:
    """decision: who refuses a request by its transport has not read its id."""

    def answer(message: Mapping[str, Any]) -> Response:
        error = {"code": -32600, "message": "no"}
        return JSONResponse(reply_to({"id": None}, error=error), 400)

    client = MCPTestClient(server(answer), version=VERSION)
    assert client.begin_tool("x").error.code == -32600
    client.close()


def test_a_response_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: after the result a stream is over."""

    def answer(message: Mapping[str, Any]) -> Response:
        async def lines() -> AsyncIterator[str]:
            yield f"data: {json.dumps(reply_to(message, result=TEXT))}\n\n"
            await asyncio.Event().wait()

        return StreamingResponse(lines(), media_type="text/event-stream")

    monkeypatch.setattr(live, "PATIENCE", 0.05)
    client = MCPTestClient(server(answer), version=VERSION)
    with pytest.raises(UnexpectedOutcome, match=r"did not end within 0\.05 seconds"):
        client.begin_tool("x")
    client.close()


def test_asks_of_other_servers_go_by_their_method() -> None:
    """decision: what a key is, only this package says; the client plays any server."""

    def answer(message: Mapping[str, Any]) -> Response:
        return Response(status_code=202) if "method" not in message else sse(ASK, late(message))

    def late(message: Mapping[str, Any]) -> dict[str, Any]:
        return reply_to(message, result=TEXT)

    client = MCPTestClient(server(answer), version=VERSION)
    first = client.begin_tool("x")
    assert first.asks.keys() == {"sampling/createMessage"}
    assert first.answer({"sampling/createMessage": "y"}).kind == "complete"
    client.close()


def test_the_ask_says_its_key(client: MCPTestClient) -> None:
    """decision: in `_meta`, where other clients ignore it."""
    first = client.begin_tool("greet")
    assert '"io.github.fastapi-mcp-mrtr/ask":{"key":"name","of":1}' in first.reply.text
    assert "_meta" not in first.asks["name"].params
