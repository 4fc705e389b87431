"""endpoint: the order of its checks, what each answers, and what goes around an answer."""

import asyncio
import inspect
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from fastapi import (
    BackgroundTasks,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Query,
    Request,
    Response,
)
from fastapi.responses import JSONResponse

from fastapi_mcp_mrtr import Context, MCPRouter, Rounds, ToolError, log, need_input, progress
from tests import wire

pytestmark = pytest.mark.anyio

PLAIN = "application/json"


def key(x_key: Annotated[str, Header()] = "") -> str:
    if x_key != "right":
        raise HTTPException(401, "Wrong key", {"WWW-Authenticate": 'Key realm="desk"'})
    return "alice"


def router(ran: list[str] | None = None, **options: Any) -> MCPRouter:
    mcp = MCPRouter("desk", version="1", **options)
    ran = [] if ran is None else ran

    @mcp.tool()
    async def greet(name: str = "you") -> str:
        ran.append("greet")
        return f"Hello, {name}"

    @mcp.tool()
    async def ask() -> Rounds[str]:
        word: str = yield need_input("word", "Which?", str)
        ran.append("ask")
        yield word

    @mcp.tool()
    async def slow(fails: str = "") -> Rounds[str]:
        yield progress(1, total=2)
        yield log("info", "half way")
        if fails == "tool":
            raise ToolError("no luck")
        if fails == "capability":
            yield need_input("word", "Which?", str)
        if fails == "internal":
            raise LookupError("secret")
        yield "done"

    return mcp


def app_of(mcp: MCPRouter) -> FastAPI:
    app = FastAPI()
    app.include_router(mcp)
    return app


def plain() -> FastAPI:
    return app_of(router())


# ----------------------------------------------------------------------------------- the order

STEPS: Mapping[str, tuple[int, int | None]] = {
    "origin": (403, -32600),
    "principal": (401, None),
    "media type": (415, -32600),
    "size": (413, -32600),
    "json": (400, -32700),
    "shape": (400, -32600),
    "method header": (400, -32020),
    "name header": (400, -32020),
    "meta": (400, -32602),
    "version header": (400, -32020),
    "version": (400, -32022),
    "tool": (400, -32602),
    "parameter header": (400, -32020),
    "state": (400, -32602),
    "arguments": (200, None),
}
"""The checks in their order, with the status and code that each refuses with."""


def wrong_in(steps: list[str]) -> tuple[bytes, dict[str, str]]:
    """A request that is wrong in several ways at once."""
    meta = wire.meta()
    version = "1999-01-01" if "version" in steps else wire.VERSION
    meta[f"{wire.META}protocolVersion"] = version
    if "meta" in steps:
        del meta[f"{wire.META}clientCapabilities"]
    params: dict[str, Any] = {
        "name": "nobody" if "tool" in steps else "near",
        "arguments": {"region": "eu", "size": "x" if "arguments" in steps else 1},
        "_meta": meta,
    }
    if "state" in steps:
        params["requestState"] = "forged"
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    if "shape" in steps:
        body["id"] = None
    headers = {
        "content-type": "text/plain" if "media type" in steps else PLAIN,
        "accept": wire.SSE,
        "x-key": "wrong" if "principal" in steps else "right",
        "mcp-protocol-version": "2025-11-25" if "version header" in steps else version,
        "mcp-method": "tools/list" if "method header" in steps else "tools/call",
        "mcp-name": "other" if "name header" in steps else params["name"],
        "mcp-param-region": "us" if "parameter header" in steps else "eu",
    }
    if "origin" in steps:
        headers["origin"] = "https://evil.example"
    content = b"{" if "json" in steps else json.dumps(body).encode()
    return content + b" " * (5000 if "size" in steps else 0), headers


@pytest.fixture(scope="module")
def strict() -> FastAPI:
    from fastapi_mcp_mrtr import MCPHeader

    mcp = MCPRouter("desk", version="1", principal=key, max_body_size=4096)

    @mcp.tool()
    async def near(region: Annotated[str, MCPHeader("Region")], size: int) -> str:
        return "near"

    return app_of(mcp)


@pytest.mark.parametrize("first", range(len(STEPS)))
async def test_the_first_check_that_fails_answers(strict: FastAPI, first: int) -> None:
    """Decision: a request that is wrong in every way from here on gets this answer."""
    steps = list(STEPS)[first:]
    content, headers = wrong_in(steps)
    response = wire.client_of(strict).post("/mcp", content=content, headers=headers)
    status, code = STEPS[steps[0]]
    assert response.status_code == status
    if code is not None:
        assert wire.error_of(response)["code"] == code
    elif steps[0] == "arguments":
        assert wire.result_of(response)["isError"]


@pytest.mark.parametrize("step", STEPS)
async def test_each_check_by_itself(strict: FastAPI, step: str) -> None:
    """Decision: none of them depends on another having failed."""
    content, headers = wrong_in([step])
    response = wire.client_of(strict).post("/mcp", content=content, headers=headers)
    status, code = STEPS[step]
    assert response.status_code == status
    if code is not None:
        assert wire.error_of(response)["code"] == code


async def test_nothing_wrong(strict: FastAPI) -> None:
    """Decision: so the tests above fail for the reason they say."""
    content, headers = wrong_in([])
    response = wire.client_of(strict).post("/mcp", content=content, headers=headers)
    assert wire.text_of(response) == "near"


async def test_the_body_of_somebody_unknown_is_not_read() -> None:
    """Decision: authentication goes before the body, which may be long."""
    exchange = wire.Exchange(app_of(router(principal=key)), wire.call("greet"))
    read = 0

    async def receive() -> Any:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b"", "more_body": True}

    await exchange.app(exchange.scope, receive, exchange.send)
    assert (exchange.status, read) == (401, 0)


# ------------------------------------------------------------------------------------- principal


async def test_a_refusal_of_the_principal_is_the_response() -> None:
    """User report: a 401 without WWW-Authenticate starts no login."""
    response = wire.post(app_of(router(principal=key)), wire.call("greet"))
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Key realm="desk"'
    assert json.loads(response.text) == {"detail": "Wrong key"}


async def test_a_missing_header_of_the_principal_is_fastapis_own_answer() -> None:
    """Decision: what a dependency needs is documented and answered as on any route."""

    def who(x_user: Annotated[str, Header()]) -> str:
        return x_user

    response = wire.post(app_of(router(principal=who)), wire.call("greet"))
    assert response.status_code == 422
    assert json.loads(response.text)["detail"][0]["loc"] == ["header", "x-user"]


async def test_a_principal_that_identifies_nobody_is_an_internal_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Decision: an object of the user's own needs principal_key=; the log says so, nobody runs."""
    ran: list[str] = []
    response = wire.post(app_of(router(ran, principal=lambda: object())), wire.call("greet", id=9))
    assert response.status_code == 200
    assert wire.error_of(response)["code"] == -32603
    assert wire.messages_of(response)[0]["id"] == 9
    assert "principal_key" in caplog.text
    assert ran == []


async def test_what_identifies_a_principal_can_be_chosen() -> None:
    """Decision: states are bound to the key, handlers see the object."""

    class User:
        def __init__(self, name: str) -> None:
            self.name = name

    def who(x_user: Annotated[str, Header()]) -> User:
        return User(x_user)

    mcp = MCPRouter("desk", version="1", principal=who, principal_key=lambda user: user.name)

    @mcp.tool()
    async def mine(ctx: Context) -> Rounds[str]:
        yield need_input("ok", "Sure?", bool)
        yield f"{ctx.principal.name} {ctx.principal_key}"

    app = app_of(mcp)
    asked = wire.result_of(wire.post(app, wire.call("mine"), x_user="alice"))
    answers = {"ok": {"action": "accept", "content": {"value": True}}}
    again = wire.call("mine", requestState=asked["requestState"], inputResponses=answers)
    assert wire.text_of(wire.post(app, again, x_user="alice")).startswith("alice ")
    assert wire.error_of(wire.post(app, again, x_user="bob"))["code"] == -32602


async def test_dependencies_of_the_route_are_solved_for_every_method() -> None:
    """Decision: who may not call may not list either."""

    def never(request: Request) -> None:
        raise HTTPException(402, "Pay first")

    app = FastAPI()
    app.include_router(router(), dependencies=[Depends(never)])
    for method in ("tools/list", "server/discover", "subscriptions/listen", "no/such"):
        assert wire.post(app, wire.message(method)).status_code == 402


@pytest.mark.parametrize("where", ["path", "query", "header", "cookie"])
async def test_parameters_of_the_route_are_checked_without_a_principal(where: str) -> None:
    """Decision: a router dependency may take whatever FastAPI offers but the body."""
    from fastapi import Cookie

    def by_path(tenant: int) -> None: ...
    def by_query(tenant: Annotated[int, Query()]) -> None: ...
    def by_header(tenant: Annotated[int, Header()]) -> None: ...
    def by_cookie(tenant: Annotated[int, Cookie()]) -> None: ...

    dependency = {"path": by_path, "query": by_query, "header": by_header, "cookie": by_cookie}
    app = FastAPI()
    prefix = "/{tenant}" if where == "path" else "/x"
    app.include_router(router(), prefix=prefix, dependencies=[Depends(dependency[where])])

    def status(tenant: str) -> int:
        path = f"/{tenant}/mcp" if where == "path" else "/x/mcp"
        path += f"?tenant={tenant}" if where == "query" else ""
        headers = {"tenant": tenant} if where == "header" else {}
        cookies = {"tenant": tenant} if where == "cookie" else None
        call = wire.message("tools/list")
        return wire.post(app, call, path=path, cookies=cookies, **headers).status_code

    assert (status("7"), status("seven")) == (200, 422)


# ------------------------------------------------------------------------------ type, size, body


@pytest.mark.parametrize(
    "value", [PLAIN, "application/json; charset=utf-8", "Application/JSON", " application/json "]
)
async def test_json_by_any_of_its_names(value: str) -> None:
    """spec: media types have no case and may have parameters (RFC 9110 §8.3.1)."""
    assert wire.post(plain(), wire.call("greet"), content_type=value).status_code == 200


@pytest.mark.parametrize(
    "value", [None, "", "text/plain", "application/jsonp", "multipart/form-data", "json", ";"]
)
async def test_what_is_not_json(value: str | None) -> None:
    """Decision: 415, and pages cannot post without a preflight."""
    response = wire.post(plain(), wire.call("greet"), content_type=value)
    assert response.status_code == 415
    assert wire.error_of(response)["message"] == "Content-Type must be application/json"


def chunked(app: FastAPI, content: bytes, chunk: int) -> wire.Exchange:
    """A request whose body comes in pieces, without a length."""
    exchange = wire.Exchange(app, wire.call("greet"))
    pieces = [content[at : at + chunk] for at in range(0, len(content), chunk)]

    async def receive() -> Any:
        if not pieces:
            await exchange.left.wait()
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    exchange.receive = receive  # type: ignore[method-assign]
    return exchange


async def test_a_body_in_pieces() -> None:
    """spec: HTTP bodies may be chunked."""
    content = json.dumps(wire.call("greet")).encode()
    exchange = await chunked(plain(), content, 7).run()
    assert exchange.messages[0]["result"]["content"][0]["text"] == "Hello, you"


async def test_a_body_as_large_as_allowed() -> None:
    """Decision: the limit is the largest body that passes."""
    content = json.dumps(wire.call("greet")).encode()
    for size, status in ((len(content), 200), (len(content) - 1, 413)):
        exchange = await chunked(app_of(router(max_body_size=size)), content, 50).run()
        assert exchange.status == status


@pytest.mark.skipif(
    "max_body_size" not in inspect.signature(FastAPI).parameters,
    reason="this FastAPI puts no limit on bodies",
)
async def test_a_limit_that_the_app_sets_holds_too() -> None:
    """decision: what FastAPI puts around a route is not lost on the short way to its handler."""
    app = FastAPI()
    app.include_router(router(), max_body_size=500)
    assert wire.text_of(wire.post(app, wire.call("greet"))) == "Hello, you"
    assert wire.post(app, wire.call("greet", {"name": "x" * 500})).status_code == 413


async def test_the_apps_own_answer_to_an_exception_can_read_the_body() -> None:
    """user report: a handler of exceptions that logs the request waited for a body forever."""
    app = FastAPI()

    async def refuses() -> None:
        raise LookupError

    @app.exception_handler(LookupError)
    async def answer(request: Request, error: LookupError) -> Response:
        return JSONResponse({"method": (await request.json())["method"]}, 418)

    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def tool(nothing: Annotated[None, Depends(refuses)]) -> str:
        return ""

    app.include_router(mcp)
    response = wire.post(app, wire.call("tool"))
    assert (response.status_code, response.text) == (418, '{"method":"tools/call"}')


async def test_a_large_body_is_not_read_to_its_end() -> None:
    """User report: no limit on request bodies."""
    exchange = chunked(app_of(router(max_body_size=100)), b" " * 10_000, 40)
    await exchange.run()
    assert exchange.status == 413
    assert exchange.messages[0]["error"]["message"] == "The body is larger than 100 bytes"
    # Two pieces fit, the third shows that it is too much, and the fourth is still there.
    assert (await exchange.receive())["more_body"]


@pytest.mark.parametrize("length", ["4194305", "9" * 19, "9" * 5000, "09999999999"])
async def test_a_body_that_says_it_is_large_is_not_read(length: str) -> None:
    """Decision: and no number is so long that reading it costs anything."""
    exchange = wire.Exchange(plain(), wire.call("greet"), content_length=length)

    async def receive() -> Any:
        raise AssertionError("read")

    exchange.receive = receive  # type: ignore[method-assign]
    assert (await exchange.run()).status == 413


@pytest.mark.parametrize("length", ["", "-1", "ten", "1_0", "٣", "0"])
async def test_a_length_that_is_none_is_not_believed(length: str) -> None:
    """Decision: servers check it; what counts here is what arrives."""
    exchange = wire.Exchange(plain(), wire.call("greet"))
    exchange.scope["headers"].append((b"content-length", length.encode()))
    assert (await exchange.run()).status == 200


async def test_a_dependency_may_read_the_body_again() -> None:
    """Decision: await request.body() in a handler's dependency does not hang."""
    mcp = MCPRouter("desk", version="1")

    async def signature(request: Request) -> int:
        return len(await request.body())

    @mcp.tool()
    async def size(length: Annotated[int, Depends(signature)]) -> int:
        return length

    body = wire.call("size")
    response = wire.post(app_of(mcp), body)
    assert wire.result_of(response)["structuredContent"] == len(json.dumps(body))


async def test_a_client_that_leaves_while_sending(caplog: pytest.LogCaptureFixture) -> None:
    """User report: a disconnect logged an ERROR with a traceback."""
    caplog.set_level(logging.DEBUG, "fastapi_mcp_mrtr")
    exchange = wire.Exchange(plain(), wire.call("greet"))

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    exchange.receive = receive  # type: ignore[method-assign]
    await exchange.run()
    assert exchange.status == 499
    assert [r.levelname for r in caplog.records] == ["INFO"]
    assert caplog.messages == ["The connection closed before the response was complete"]


# --------------------------------------------------------------------------------- notifications


@pytest.mark.parametrize(
    "method", ["notifications/cancelled", "notifications/initialized", "notifications/no/such"]
)
async def test_a_notification_is_accepted(method: str) -> None:
    """spec: 202 and no body for a notification (streamable-http)."""
    body = {"jsonrpc": "2.0", "method": method, "params": {}}
    response = wire.post(plain(), body)
    assert (response.status_code, response.content) == (202, b"")


async def test_a_notification_needs_a_principal_too() -> None:
    """Decision: authentication first, whatever the message is."""
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}
    assert wire.post(app_of(router(principal=key)), body).status_code == 401


# ---------------------------------------------------------------------------------- JSON or SSE

TAKES_STREAMS = [
    wire.SSE,
    "text/event-stream",
    "TEXT/Event-Stream",
    "*/*",
    "text/*",
    "application/json;q=0.9, text/event-stream;q=0.1",
    "application/json,text/event-stream ; charset=utf-8",
    "text/event-stream;q=0.000001",
]
TAKES_NONE = [
    None,
    "",
    PLAIN,
    "application/*",
    "text/html",
    "text/event-stream;q=0",
    "text/event-stream; q=0.000",
    "text/event-stream;Q = 0.0",
    "text/event-streams",
]


async def call_slow(accept: str | None, **arguments: Any) -> wire.Exchange:
    body = wire.call("slow", arguments, logLevel="debug", progressToken="t")
    with anyio.fail_after(20):
        return await wire.Exchange(plain(), body, accept=accept).run()


@pytest.mark.parametrize("accept", TAKES_STREAMS)
async def test_notifications_open_a_stream(accept: str) -> None:
    """spec: either JSON or an SSE stream that ends with the response (streamable-http)."""
    exchange = await call_slow(accept)
    assert exchange.headers["content-type"].startswith("text/event-stream")
    assert exchange.headers["x-accel-buffering"] == "no"
    methods = [message.get("method", "response") for message in exchange.messages]
    assert methods == ["notifications/progress", "notifications/message", "response"]


@pytest.mark.parametrize("accept", TAKES_NONE)
async def test_without_a_taste_for_streams_there_are_no_notifications(accept: str | None) -> None:
    """Decision: the result still arrives; notifications are optional."""
    exchange = await call_slow(accept)
    assert exchange.headers["content-type"] == PLAIN
    assert exchange.messages[0]["result"]["content"][0]["text"] == "done"


async def test_accept_may_come_in_several_headers() -> None:
    """spec: a list may be sent in several fields (RFC 9110 §5.3)."""
    body = wire.call("slow", progressToken="t")
    exchange = wire.Exchange(plain(), body, accept=PLAIN)
    exchange.scope["headers"].append((b"accept", b"text/event-stream"))
    await exchange.run()
    assert exchange.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("accept", [*TAKES_STREAMS, *TAKES_NONE])
async def test_without_notifications_it_is_json(accept: str | None) -> None:
    """Decision: a stream is opened when it is needed."""
    exchange = await wire.Exchange(plain(), wire.call("greet"), accept=accept).run()
    assert exchange.headers["content-type"] == PLAIN
    assert exchange.headers["content-length"] == str(len(exchange.text))


async def test_a_missing_capability_keeps_its_status() -> None:
    """User report: -32021 came back with HTTP 200, inside a stream."""
    body = wire.call("ask", capabilities={}, progressToken="t")
    response = wire.post(plain(), body)
    assert response.status_code == 400
    error = wire.error_of(response)
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}


@pytest.mark.parametrize(
    ("fails", "code"), [("capability", -32021), ("internal", -32603), ("tool", None)]
)
async def test_an_error_after_a_notification_stays_in_the_stream(
    fails: str, code: int | None
) -> None:
    """Decision: the status has gone out already; the error ends the stream."""
    body = wire.call("slow", {"fails": fails}, capabilities={}, progressToken="t")
    exchange = await wire.Exchange(plain(), body).run()
    assert exchange.status == 200
    first, last = exchange.messages
    assert first["method"] == "notifications/progress"
    if code is None:
        assert last["result"]["isError"]
    else:
        assert last["error"]["code"] == code


async def test_an_ask_after_a_notification_ends_the_stream() -> None:
    """spec: an InputRequiredResult is a response like any other."""
    exchange = await call_slow(wire.SSE, fails="capability")
    assert exchange.messages[-1]["result"]["resultType"] == "input_required"


# -------------------------------------------------------------------------------- subscriptions


async def test_a_subscription_needs_a_stream() -> None:
    """spec: subscriptions/listen is answered with a stream."""
    body = wire.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    response = wire.post(plain(), body, accept=PLAIN)
    assert response.status_code == 406
    assert wire.error_of(response)["code"] == -32600


async def test_a_subscription_hears_of_changes(caplog: pytest.LogCaptureFixture) -> None:
    """spec: acknowledged first, then what was asked for (basic/patterns/subscriptions)."""
    caplog.set_level(logging.DEBUG, "fastapi_mcp_mrtr")
    mcp = router()

    @mcp.resource("desk://news")
    async def news() -> str:
        return "none"

    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["desk://news"]}
    body = wire.message("subscriptions/listen", {"notifications": wanted}, id="sub")
    exchange = wire.Exchange(app_of(mcp), body)
    async with anyio.create_task_group() as group:
        group.start_soon(exchange.run)
        await exchange.until_first_byte()

        @mcp.tool()
        async def new() -> str:
            return "new"

        mcp.notify_resource_updated("desk://news")
        mcp.notify_resource_updated("desk://other")
        await wait_all_tasks_blocked()
        exchange.left.set()
    methods = [message["method"].partition("/")[2] for message in exchange.messages]
    assert methods == ["subscriptions/acknowledged", "tools/list_changed", "resources/updated"]
    assert caplog.records == []


async def test_a_subscription_holds_no_dependency_open() -> None:
    """User report: a database session was held for as long as a client listened."""
    held: list[str] = []

    async def session() -> AsyncIterator[str]:
        held.append("opened")
        yield "alice"
        held.append("closed")

    body = wire.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    exchange = wire.Exchange(app_of(router(principal=session)), body)
    async with anyio.create_task_group() as group:
        group.start_soon(exchange.run)
        await exchange.until_first_byte()
        assert held == ["opened", "closed"]
        exchange.left.set()


# ------------------------------------------------------------------------- what goes around it


async def test_a_method_that_does_not_exist() -> None:
    """spec: -32601 travels with 404 (streamable-http §Request Metadata)."""
    response = wire.post(plain(), wire.message("tools/dance"))
    assert response.status_code == 404
    assert wire.error_of(response)["code"] == -32601


@pytest.mark.parametrize("streams", [False, True])
async def test_headers_and_cookies_of_dependencies_arrive(streams: bool) -> None:
    """Decision: what a dependency sets on its Response is sent, in both modes."""

    def mark(response: Response) -> None:
        response.headers["x-request-cost"] = "3"
        response.set_cookie("seen", "yes")
        response.set_cookie("twice", "yes")

    app = FastAPI()
    app.include_router(router(), dependencies=[Depends(mark)])
    body = wire.call("slow" if streams else "greet", progressToken="t")
    exchange = await wire.Exchange(app, body).run()
    assert exchange.headers["content-type"].startswith("text/event-stream" if streams else PLAIN)
    assert exchange.headers["x-request-cost"] == "3"
    cookies = [value for name, value in exchange.sent[0]["headers"] if name == b"set-cookie"]
    assert len(cookies) == 2


@pytest.mark.parametrize("streams", [False, True])
async def test_background_tasks_of_dependencies_run(streams: bool) -> None:
    """Decision: after the response, as in FastAPI, in both modes."""
    ran: list[str] = []
    mcp = router()

    def later(tasks: BackgroundTasks) -> None:
        tasks.add_task(ran.append, "ran")

    @mcp.tool()
    async def tell(later: Annotated[None, Depends(later)], loud: bool) -> Rounds[str]:
        if loud:
            yield progress(1)
        yield "told"

    body = wire.call("tell", {"loud": streams}, progressToken="t")
    await wire.Exchange(app_of(mcp), body).run()
    assert ran == ["ran"]


async def test_an_exception_of_a_dependency_that_nobody_handles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Decision: a handler's dependency that breaks is an internal error; the log has it all."""

    def broken() -> None:
        raise LookupError("secret")

    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def use(broken: Annotated[None, Depends(broken)]) -> str:
        return "never"

    response = wire.post(app_of(mcp), wire.call("use", id="r1"))
    assert response.status_code == 200
    error = wire.error_of(response)
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert error["data"]["correlationId"] in caplog.text
    assert "secret" in caplog.text
    assert "secret" not in response.text


@pytest.mark.parametrize("raises", [HTTPException(418, "tea"), LookupError("handled")])
async def test_an_exception_of_a_dependency_that_the_app_handles(raises: Exception) -> None:
    """Decision: HTTPException, validation errors and what the app has a handler for."""

    def broken() -> None:
        raise raises

    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def use(broken: Annotated[None, Depends(broken)]) -> str:
        return "never"

    app = app_of(mcp)

    @app.exception_handler(LookupError)
    def handle(request: Request, error: Exception) -> Response:
        return JSONResponse("handled", 418)

    assert wire.post(app, wire.call("use")).status_code == 418


async def test_an_exception_of_a_handler_is_not_the_apps_business() -> None:
    """Decision: what a handler raises is a result or a JSON-RPC error, never another body."""
    app = plain()

    @app.exception_handler(LookupError)
    def handle(request: Request, error: Exception) -> Response:
        raise AssertionError("reached")

    response = wire.post(app, wire.call("slow", {"fails": "internal"}))
    assert wire.error_of(response)["code"] == -32603


async def test_without_starlettes_middleware_nobody_handles_exceptions() -> None:
    """Decision: a router that is used as an app by itself has no handlers to look at."""

    def broken() -> None:
        raise LookupError("secret")

    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def use(broken: Annotated[None, Depends(broken)]) -> str:
        return "never"

    exchange = await wire.Exchange(mcp, wire.call("use")).run()
    assert exchange.messages[0]["error"]["code"] == -32603


# --------------------------------------------------------------------------- clients that leave


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_leaves_cancels_the_handler(
    streams: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """User report: only in one of two modes did a disconnect stop the tool; it logged errors."""
    caplog.set_level(logging.DEBUG, "fastapi_mcp_mrtr")
    seen: list[str] = []
    started = asyncio.Event()
    mcp = MCPRouter("desk", version="1")

    async def session() -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            seen.append("rolled back")
            raise
        finally:
            await asyncio.sleep(0)
            seen.append("closed")

    @mcp.tool()
    async def wait(session: Annotated[None, Depends(session)]) -> Rounds[str]:
        if streams:
            yield progress(1)
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            await asyncio.sleep(0)
            seen.append("finally")
        yield "never"

    exchange = wire.Exchange(app_of(mcp), wire.call("wait", progressToken="t"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(exchange.run)
            await started.wait()
            exchange.left.set()
    assert seen == ["finally", "rolled back", "closed"]
    assert [r.levelname for r in caplog.records] == ["INFO"]
    assert exchange.status == (200 if streams else 499)
    assert not exchange.sent[-1].get("more_body")


async def test_a_cleanup_that_fails_is_told_in_the_same_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Decision: whatever unwinding brings up, there is nobody to report it to but the log."""
    caplog.set_level(logging.DEBUG, "fastapi_mcp_mrtr")
    started = asyncio.Event()
    mcp = MCPRouter("desk", version="1")

    async def session() -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise LookupError("gone away")

    @mcp.tool()
    async def wait(session: Annotated[None, Depends(session)]) -> str:
        started.set()
        await anyio.sleep_forever()
        return "never"

    exchange = wire.Exchange(app_of(mcp), wire.call("wait"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(exchange.run)
            await started.wait()
            exchange.left.set()
    [record] = caplog.records
    assert record.levelname == "INFO"
    assert "LookupError('gone away')" in record.message


async def test_a_handler_that_fails_while_it_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Decision: the same for the handler."""
    caplog.set_level(logging.DEBUG, "fastapi_mcp_mrtr")
    started = asyncio.Event()
    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def wait() -> str:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise LookupError("in finally")

    exchange = wire.Exchange(app_of(mcp), wire.call("wait"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(exchange.run)
            await started.wait()
            exchange.left.set()
    [record] = caplog.records
    assert record.levelname == "INFO"
    assert "LookupError('in finally')" in record.message


async def test_dependencies_that_are_closing_are_left_in_peace() -> None:
    """Decision: the handler is done; a client that leaves now changes nothing."""
    seen: list[str] = []
    closing, close = asyncio.Event(), asyncio.Event()
    mcp = MCPRouter("desk", version="1")

    async def session() -> AsyncIterator[None]:
        try:
            yield
            closing.set()
            await close.wait()
            seen.append("committed")
        except BaseException:
            seen.append("rolled back")
            raise

    @mcp.tool()
    async def pay(session: Annotated[None, Depends(session)]) -> str:
        return "paid"

    exchange = wire.Exchange(app_of(mcp), wire.call("pay"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(exchange.run)
            await closing.wait()
            exchange.left.set()
            await wait_all_tasks_blocked()
            close.set()
    assert seen == ["committed"]
