"""injection: FastAPI's dependencies around a handler, as they are around a path operation."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Annotated, Any

import anyio
import pytest
from fastapi import (
    BackgroundTasks,
    Body,
    Cookie,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Path,
    Query,
    Request,
    Response,
    Security,
)
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyHeader, SecurityScopes
from starlette.background import BackgroundTasks as StarletteBackgroundTasks
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import Message

from fastapi_mcp_mrtr import MCPRouter, Rounds, need_input
from fastapi_mcp_mrtr.server.injection import (
    Dependencies,
    RequestDependencies,
    hide_authorization,
    is_dependency,
    keep_body,
    read_body,
)
from tests import wire

pytestmark = pytest.mark.anyio

EMPTY = inspect.Parameter.empty


def nothing() -> None: ...


def parameters_of(call: Callable[..., Any]) -> list[inspect.Parameter]:
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(call).parameters.values()
    ]


def dependencies_of(call: Callable[..., Any]) -> Dependencies:
    return Dependencies(parameters_of(call))


def request_of(**scope: Any) -> Request:
    return Request({"type": "http", "headers": [], "query_string": b"", "path_params": {}, **scope})


def sending(parts: list[bytes], *, leaves: bool = False) -> Request:
    """A request with a body in parts, whose client may leave instead of ending it."""
    messages: list[Message] = [
        {"type": "http.request", "body": part, "more_body": leaves or number < len(parts)}
        for number, part in enumerate(parts, 1)
    ]
    messages.append({"type": "http.disconnect"})

    async def receive() -> Message:
        return messages.pop(0)

    request = request_of()
    return Request(request.scope, receive)


# ------------------------------------------------------------------------- what is a dependency


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (Annotated[int, Depends(nothing)], EMPTY),
        (int, Depends(nothing)),
        (Annotated[int, Security(nothing, scopes=["a"])], EMPTY),
        (Annotated[int, Header()], EMPTY),
        (Annotated[int, "else", Cookie()], EMPTY),
        (int, Query()),
        (Annotated[int, Path()], EMPTY),
        (Request, EMPTY),
        (Annotated[Request, "mine"], EMPTY),
        (HTTPConnection, EMPTY),
        (Response, EMPTY),
        (BackgroundTasks, EMPTY),
        (StarletteBackgroundTasks, EMPTY),
        (SecurityScopes, EMPTY),
    ],
)
async def test_what_fastapi_fills(annotation: Any, default: Any) -> None:
    """decision: everything that FastAPI fills in a path operation, but for the body."""
    assert is_dependency(annotation, default)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(int, EMPTY), (EMPTY, EMPTY), (Annotated[int, "x"], 3), (list[int], EMPTY), (None, None)],
)
async def test_what_the_client_sends(annotation: Any, default: Any) -> None:
    """decision: everything else is an argument."""
    assert not is_dependency(annotation, default)


async def test_the_body_is_refused() -> None:
    """decision: the body is the JSON-RPC message."""
    with pytest.raises(TypeError, match="Body parameters are not available"):
        is_dependency(Annotated[int, Body()], EMPTY)


async def test_a_form_in_a_dependency_is_refused() -> None:
    """decision: however deep, with the dependency and its parameter named."""

    class Reader:
        def __call__(self, payload: Annotated[str, Body()]) -> str:
            return payload

    def handler(a: Annotated[str, Depends(Reader())]) -> None: ...

    with pytest.raises(TypeError, match=r"'Reader' asks for the request body .*'payload'"):
        dependencies_of(handler)


async def test_what_fastapi_cannot_resolve_is_refused() -> None:
    """decision: fail at registration, with FastAPI's own reason."""

    def broken(x: Annotated[Session, Query()]) -> None: ...

    def handler(a: Annotated[None, Depends(broken)]) -> None: ...

    with pytest.raises(TypeError, match="FastAPI cannot resolve a dependency"):
        dependencies_of(handler)


# -------------------------------------------------------------------------------------- solving


async def test_values_come_by_name_and_calls_are_shared() -> None:
    """user report: the principal was computed twice, with two sessions (decision: one cache)."""
    calls = []

    def user() -> str:
        calls.append("user")
        return "alice"

    def principal(u: Annotated[str, Depends(user)]) -> str:
        return u.upper()

    def handler(
        u: Annotated[str, Depends(user)], v: Annotated[str, Depends(principal)]
    ) -> None: ...

    async with RequestDependencies(request_of(), "/mcp", None) as dependencies:
        assert await dependencies.solve(dependencies_of(principal)) == {"u": "alice"}
        assert await dependencies.solve(dependencies_of(handler)) == {"u": "alice", "v": "ALICE"}
    assert calls == ["user"]


async def test_overrides_apply() -> None:
    """user report: `dependency_overrides` was ignored in tools (py#2081)."""

    def user() -> str:
        return "alice"

    def handler(u: Annotated[str, Depends(user)]) -> None: ...

    app = FastAPI()
    app.dependency_overrides[user] = lambda: "bob"
    async with RequestDependencies(request_of(), "/mcp", app) as dependencies:
        assert await dependencies.solve(dependencies_of(handler)) == {"u": "bob"}


async def test_a_missing_header_is_fastapis_own_error() -> None:
    """decision: what a dependency needs of the request is reported as FastAPI reports it."""

    def handler(x_tenant: Annotated[str, Header()]) -> None: ...

    dependencies = RequestDependencies(request_of(), "/mcp", None)
    with pytest.raises(RequestValidationError):
        await dependencies.solve(dependencies_of(handler))
    assert dependencies.solving


async def test_it_is_known_whether_a_dependency_failed_or_the_handler() -> None:
    """decision: what a dependency raises belongs to the app, what a handler raises to the call."""

    def fails() -> None:
        raise HTTPException(418)

    def handler(x: Annotated[None, Depends(fails)]) -> None: ...

    dependencies = RequestDependencies(request_of(), "/mcp", None)
    assert not dependencies.solving
    await dependencies.solve(dependencies_of(lambda: None))
    assert not dependencies.solving
    with pytest.raises(HTTPException):
        await dependencies.solve(dependencies_of(handler))
    assert dependencies.solving


async def test_a_path_parameter_of_the_prefix_reaches_dependencies_of_handlers() -> None:
    """decision: `/tenants/{tenant}/mcp` makes `tenant` a path parameter, as in FastAPI."""

    def tenant_of(tenant: str) -> str:
        return tenant

    def handler(tenant: Annotated[str, Depends(tenant_of)]) -> None: ...

    request = request_of(path_params={"tenant": "acme"}, query_string=b"tenant=evil")
    at_prefix = RequestDependencies(request, "/tenants/{tenant}/mcp", None)
    assert await at_prefix.solve(dependencies_of(handler)) == {"tenant": "acme"}
    without = RequestDependencies(request, "/mcp", None)
    assert await without.solve(dependencies_of(handler)) == {"tenant": "evil"}


async def test_a_body_that_was_read_already_can_be_read_again() -> None:
    """user report: a dependency that verifies a signature needs the bytes of the body."""
    request = sending([b'{"a"', b": 1}"])
    assert await read_body(request, 8) == b'{"a": 1}'
    assert await request.body() == b'{"a": 1}'
    assert await request.json() == {"a": 1}
    second = Request(request.scope, request.receive)
    keep_body(second, request)
    assert await second.json() == {"a": 1}


async def test_a_body_that_was_not_read_is_not_kept() -> None:
    """decision: what was refused unread stays unread, for the app's exception handlers too."""
    earlier = sending([b"a"])
    second = Request(earlier.scope, earlier.receive)
    keep_body(second, earlier)
    assert await second.body() == b"a"


@pytest.mark.parametrize("parts", [[b"abcd"], [b"ab", b"cd"], [b"", b"abc", b"d", b"e" * 99]])
async def test_a_body_that_is_too_long_is_not_read_to_its_end(parts: list[bytes]) -> None:
    """spec: none; decision: the limit holds for what arrives, whatever was announced."""
    request = sending(parts)
    assert await read_body(request, 3) is None
    assert await read_body(sending([b"abc"]), 3) == b"abc"
    if len(parts) == 3:
        assert (await request.receive())["body"] == parts[-1]


@pytest.mark.parametrize("parts", [[], [b"a"]])
async def test_a_client_that_leaves_while_it_sends_is_seen(parts: list[bytes]) -> None:
    """spec: none; decision: as Starlette reports it."""
    with pytest.raises(ClientDisconnect):
        await read_body(sending(parts, leaves=True), 3)


async def test_a_body_that_a_dependency_has_read_is_read_again() -> None:
    """user report: a dependency that verifies a signature needs the bytes of the body."""
    request = sending([b"abc"])
    assert await request.body() == b"abc"
    assert await read_body(request, 3) == b"abc"
    assert await read_body(request, 2) is None


async def test_credentials_can_be_taken_out_of_the_request() -> None:
    """user report: the caller's token was passed on to another server (fm#3260)."""
    request = request_of(headers=[(b"authorization", b"Bearer t"), (b"x-key", b"k")])
    assert "authorization" in request.headers
    hide_authorization(request)
    assert dict(request.headers) == {"x-key": "k"}
    assert dict(Request(request.scope).headers) == {"x-key": "k"}


# ------------------------------------------------------------------------------------- lifetimes


async def solved_and_ended(
    error: BaseException, handler: Callable[..., Any], request: RequestDependencies | None = None
) -> None:
    """A block in which a handler is solved, and which an exception ends."""
    request = request or RequestDependencies(request_of(), "/mcp", None)
    async with request:
        await request.solve(dependencies_of(handler))
        raise error


class Suspended(BaseException):
    """What ends a round that asks."""


class Session:
    """A resource that says how it ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def open(self) -> AsyncIterator[str]:
        try:
            yield "session"
        except Exception as error:
            self.ended.append(f"rolled back: {error!r}")
            raise
        except BaseException as error:
            self.ended.append(f"unwound: {type(error).__name__}")
            raise
        else:
            self.ended.append("committed")

    def open_in_thread(self) -> Iterator[str]:
        try:
            yield "session"
        except Exception:
            self.ended.append("rolled back")
            raise
        except BaseException as error:
            self.ended.append(f"unwound: {type(error).__name__}")
            raise
        else:
            self.ended.append("committed")


@pytest.mark.parametrize("how", ["open", "open_in_thread"])
async def test_what_dependencies_hold_open_ends_with_the_block(how: str) -> None:
    """decision: at the end of the round, not after the response."""
    session = Session()

    def handler(s: Annotated[str, Depends(getattr(session, how))]) -> None: ...

    async with RequestDependencies(request_of(), "/mcp", None) as dependencies:
        async with dependencies:
            assert await dependencies.solve(dependencies_of(handler)) == {"s": "session"}
            assert session.ended == []
        assert session.ended == ["committed"]
    assert session.ended == ["committed"]


@pytest.mark.parametrize("how", ["open", "open_in_thread"])
async def test_what_dependencies_hold_open_sees_the_exception(how: str) -> None:
    """decision: one that rolls back on errors does, also the one that the principal opened."""
    session = Session()

    def handler(s: Annotated[str, Depends(getattr(session, how))]) -> None: ...

    async with RequestDependencies(request_of(), "/mcp", None) as dependencies:
        await dependencies.solve(dependencies_of(handler))  # the principal's
        with pytest.raises(ZeroDivisionError):
            await solved_and_ended(ZeroDivisionError(), handler, dependencies)
    assert session.ended[0].startswith("rolled back")
    assert len(session.ended) == 1


async def test_a_dependency_cannot_swallow_what_ended_the_block() -> None:
    """decision: as FastAPI, where a dependency that does not raise again is an error."""

    async def swallows() -> AsyncIterator[None]:
        with suppress(ZeroDivisionError):
            yield

    def handler(s: Annotated[None, Depends(swallows)]) -> None: ...

    with pytest.raises(ZeroDivisionError):
        await solved_and_ended(ZeroDivisionError(), handler)


async def test_a_dependency_may_replace_the_exception() -> None:
    """decision: a dependency that translates errors does so, as in FastAPI."""

    async def translates() -> AsyncIterator[None]:
        try:
            yield
        except ZeroDivisionError:
            raise HTTPException(422, "Cannot divide") from None

    def handler(s: Annotated[None, Depends(translates)]) -> None: ...

    with pytest.raises(HTTPException):
        await solved_and_ended(ZeroDivisionError(), handler)


async def group() -> AsyncIterator[Any]:
    async with anyio.create_task_group() as tasks:
        yield tasks


async def test_a_task_group_of_a_dependency_does_not_hide_what_passes_through() -> None:
    """decision: a ToolError is itself, also behind an open task group."""

    def handler(g: Annotated[Any, Depends(group)]) -> None: ...

    with pytest.raises(ZeroDivisionError):
        await solved_and_ended(ZeroDivisionError(), handler)


@pytest.mark.parametrize("open_", [Session.open, Session.open_in_thread])
async def test_an_ask_unwinds(open_: Any) -> None:
    """decision: dependencies unwind at an ask, which `except Exception` does not see."""
    session = Session()

    def handler(
        g: Annotated[Any, Depends(group)], s: Annotated[str, Depends(open_.__get__(session))]
    ) -> None: ...

    with pytest.raises(Suspended):
        await solved_and_ended(Suspended(), handler)
    assert session.ended == ["unwound: Suspended"]


async def test_what_else_a_task_group_collects_is_not_lost() -> None:
    """decision: a task that failed too is part of the story."""

    async def fails() -> None:
        raise RuntimeError("in the background")

    def handler(g: Annotated[Any, Depends(group)]) -> None: ...

    async def block() -> None:
        async with RequestDependencies(request_of(), "/mcp", None) as dependencies:
            values = await dependencies.solve(dependencies_of(handler))
            values["g"].start_soon(fails)
            await anyio.wait_all_tasks_blocked()
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert len(caught.value.exceptions) == 2


async def test_background_tasks_of_a_block_that_failed_are_dropped() -> None:
    """decision: as in FastAPI; those that were added before it stay."""
    ran: list[str] = []

    def handler(tasks: BackgroundTasks) -> None: ...

    def mails(tasks: BackgroundTasks) -> None:
        tasks.add_task(ran.append, "mail")

    def mailing(_: Annotated[None, Depends(mails)]) -> None: ...

    async with RequestDependencies(request_of(), "/mcp", None) as dependencies:
        values = await dependencies.solve(dependencies_of(handler))
        values["tasks"].add_task(ran.append, "audit")
        with pytest.raises(ZeroDivisionError):
            await solved_and_ended(ZeroDivisionError(), mailing, dependencies)
        async with dependencies:
            values["tasks"].add_task(ran.append, "receipt")
    await dependencies.background()
    assert ran == ["audit", "receipt"]


# -------------------------------------------------------------------------------- where included


async def operation() -> None: ...


async def test_nothing_to_solve_is_seen() -> None:
    """decision: a route without dependencies costs no solving."""

    def with_header(x: Annotated[str, Header()]) -> None: ...

    assert dependencies_of(lambda: None).at("/").is_empty
    assert not dependencies_of(with_header).at("/").is_empty


# --------------------------------------------------------------------------- through the router


def current_user(x_user: Annotated[str, Header()] = "alice") -> str:
    return x_user


def app_with(mcp: MCPRouter, **options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(mcp, **options)
    return app


async def test_a_client_can_neither_see_nor_set_a_dependency() -> None:
    """user report: `{"x": 1, "user": "root"}` made the client root (fm#3137, py#2081)."""
    mcp = MCPRouter("s", version="1")

    @mcp.tool()
    async def whoami(x: int, user: Annotated[str, Depends(current_user)]) -> str:
        return user

    app = app_with(mcp)
    tools = wire.result_of(wire.post(app, wire.message("tools/list")))["tools"]
    assert list(tools[0]["inputSchema"]["properties"]) == ["x"]
    assert wire.text_of(wire.post(app, wire.call("whoami", {"x": 1}))) == "alice"
    forged = wire.result_of(wire.post(app, wire.call("whoami", {"x": 1, "user": "root"})))
    assert forged["isError"]
    assert "user" in forged["content"][0]["text"]


async def test_dependencies_see_the_real_request() -> None:
    """user report: cookies and other headers were lost on the way to the tool (fa#82, fa#186)."""
    mcp = MCPRouter("s", version="1")

    @mcp.tool()
    async def look(
        request: Request,
        x_key: Annotated[str, Header()],
        session: Annotated[str, Cookie()],
        q: Annotated[str, Query()],
        tenant: Annotated[str, Path()],
    ) -> list[str]:
        assert request.client is not None
        body = await request.json()
        return [request.method, x_key, session, q, tenant, body["method"]]

    app = app_with(mcp, prefix="/{tenant}")
    response = wire.post(
        app, wire.call("look"), path="/acme/mcp?q=1", cookies={"session": "s"}, x_key="k"
    )
    expected = ["POST", "k", "s", "1", "acme", "tools/call"]
    assert wire.result_of(response)["structuredContent"] == expected


async def test_principal_and_handler_share_one_call_of_a_dependency() -> None:
    """decision: one solve a call for principal and handler together."""
    calls: list[str] = []

    async def session() -> str:
        calls.append("session")
        return "s"

    def user(s: Annotated[str, Depends(session)]) -> str:
        calls.append("user")
        return "alice"

    mcp = MCPRouter("s", version="1", principal=user)

    @mcp.tool()
    async def whoami(u: Annotated[str, Depends(user)], s: Annotated[str, Depends(session)]) -> str:
        return u

    assert wire.text_of(wire.post(app_with(mcp), wire.call("whoami"))) == "alice"
    assert calls == ["session", "user"]


async def test_headers_and_cookies_set_through_the_response_arrive() -> None:
    """decision: as in FastAPI, on JSON and on streams alike."""
    mcp = MCPRouter("s", version="1")

    def stamped(response: Response) -> None:
        response.headers["x-stamp"] = "1"
        response.set_cookie("seen", "yes")

    @mcp.tool()
    async def plain(_: Annotated[None, Depends(stamped)], response: Response) -> str:
        response.headers["x-handler"] = "2"
        return ""

    @mcp.tool()
    async def streamed(s: Annotated[None, Depends(stamped)]) -> Rounds[str]:
        from fastapi_mcp_mrtr import progress

        yield progress(1)
        yield ""

    app = app_with(mcp)
    response = wire.post(app, wire.call("plain"))
    assert (response.headers["x-stamp"], response.headers["x-handler"]) == ("1", "2")
    assert "seen=yes" in response.headers["set-cookie"]
    response = wire.post(app, wire.call("streamed", progressToken="t"))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-stamp"] == "1"
    assert "seen=yes" in response.headers["set-cookie"]


async def test_background_tasks_run_after_a_round_that_completes() -> None:
    """decision: not after one that asks, which would run them once a round."""
    ran: list[str] = []
    mcp = MCPRouter("s", version="1")

    @mcp.tool()
    async def order(tasks: BackgroundTasks) -> Rounds[str]:
        tasks.add_task(ran.append, "mail")
        ok: bool = yield need_input("ok", "Order?", bool)
        yield str(ok)

    app = app_with(mcp)
    first = wire.result_of(wire.post(app, wire.call("order")))
    assert ran == []
    answer = {"ok": {"action": "accept", "content": {"value": True}}}
    state = first["requestState"]
    second = wire.call("order", requestState=state, inputResponses=answer)
    assert wire.text_of(wire.post(app, second)) == "True"
    assert ran == ["mail"]


async def test_security_schemes_and_scopes_reach_the_dependency() -> None:
    """decision: `Security` works as in FastAPI."""
    scheme = APIKeyHeader(name="x-key")
    mcp = MCPRouter("s", version="1")

    def user(scopes: SecurityScopes, key: Annotated[str, Depends(scheme)]) -> str:
        return f"{key} {scopes.scope_str}"

    @mcp.tool()
    async def whoami(u: Annotated[str, Security(user, scopes=["read", "write"])]) -> str:
        return u

    app = app_with(mcp)
    assert wire.text_of(wire.post(app, wire.call("whoami"), x_key="k")) == "k read write"
    assert wire.post(app, wire.call("whoami")).status_code in (401, 403)
