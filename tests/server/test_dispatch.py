"""dispatch: what each method answers, and which error for what is wrong with its parameters."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    Complete,
    MCPError,
    MCPHeader,
    MCPRouter,
    Rounds,
    ToolError,
    need_input,
    need_roots,
    progress,
)
from tests import wire

INVALID = -32602


def app_of(mcp: MCPRouter) -> FastAPI:
    app = FastAPI()
    app.include_router(mcp)
    return app


def server() -> tuple[MCPRouter, FastAPI]:
    mcp = MCPRouter("desk", version="2", title="Desk", instructions="Ask.", list_ttl_ms=5)
    return mcp, app_of(mcp)


def error_of(app: FastAPI, body: dict[str, Any], **headers: Any) -> tuple[int, int, str]:
    response = wire.post(app, body, **headers)
    error = wire.error_of(response)
    return response.status_code, error["code"], error["message"]


# -------------------------------------------------------------------------------------- discover


def test_discover_says_who_and_what() -> None:
    """spec: supportedVersions, capabilities, instructions, caching (server/discover)."""
    mcp, app = server()
    result = wire.result_of(wire.post(app, wire.message("server/discover")))
    assert result == {
        "resultType": "complete",
        "supportedVersions": list(wire.VERSIONS),
        "capabilities": {"logging": {}},
        "instructions": "Ask.",
        "ttlMs": 5,
        "cacheScope": "public",
        "_meta": {
            "io.modelcontextprotocol/serverInfo": {
                "name": "desk",
                "version": "2",
                "title": "Desk",
            }
        },
    }
    mcp.tool("t")(lambda: "")
    mcp.prompt("p")(lambda: "")
    mcp.resource("x:a", name="r")(lambda: "")
    result = wire.result_of(wire.post(app, wire.message("server/discover")))
    assert result["capabilities"] == {
        "logging": {},
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
    }


def test_no_instructions_are_left_out() -> None:
    """decision: absent members are left out."""
    app = app_of(MCPRouter("desk", version="2"))
    result = wire.result_of(wire.post(app, wire.message("server/discover")))
    assert "instructions" not in result


# --------------------------------------------------------------------------------------- methods


@pytest.mark.parametrize(
    "method", ["ping", "logging/setLevel", "resources/subscribe", "tasks/get", "tools", "x"]
)
def test_an_unknown_method(method: str) -> None:
    """spec: MUST respond with 404 and -32601 (streamable-http §Protocol Version Header)."""
    _, app = server()
    assert error_of(app, wire.message(method)) == (404, -32601, "Method not found")


def test_initialize_is_told_which_versions_are_spoken() -> None:
    """spec: older clients open with it; the error may be all they show (versioning §Backward
    Compatibility)."""
    _, app = server()
    response = wire.post(app, wire.message("initialize"))
    error = wire.error_of(response)
    assert (response.status_code, error["code"]) == (404, -32601)
    assert "2026-07-28" in error["message"]
    assert error["data"] == {"supported": list(wire.VERSIONS)}


# ----------------------------------------------------------------------------------------- tools


def test_an_unknown_tool_is_invalid_params() -> None:
    """spec: unknown tools are protocol errors, -32602 (server/tools §Error Handling)."""
    _, app = server()
    assert error_of(app, wire.call("nope")) == (400, INVALID, "Unknown tool: nope")
    status, code, message = error_of(app, wire.call("x" * 5000))
    assert (status, code) == (400, INVALID)
    assert len(message) < 200


@pytest.mark.parametrize("arguments", [[], "a", 1, True])
def test_arguments_have_to_be_an_object(arguments: Any) -> None:
    """spec: `arguments` is an object."""
    mcp, app = server()
    mcp.tool("t")(lambda: "")
    body = wire.call("t")
    body["params"]["arguments"] = arguments
    assert error_of(app, body) == (400, INVALID, "arguments must be an object")


@pytest.mark.parametrize("arguments", [None, "absent"])
def test_absent_arguments_are_none(arguments: Any) -> None:
    """spec: `arguments` is optional; null is absent."""
    mcp, app = server()
    mcp.tool("t")(lambda: "done")
    body = wire.call("t")
    body["params"]["arguments"] = None
    if arguments == "absent":
        del body["params"]["arguments"]
    assert wire.text_of(wire.post(app, body)) == "done"


def test_invalid_arguments_are_for_the_model_to_correct() -> None:
    """spec: input validation errors are results with isError (server/tools §Error Handling)."""
    mcp, app = server()

    @mcp.tool()
    async def book(row: Annotated[int, Field(ge=1, le=40)]) -> str:
        raise AssertionError("never called")

    for arguments in ({"row": 41}, {"row": "x"}, {}, {"row": 1, "user": "root"}):
        response = wire.post(app, wire.call("book", arguments))
        result = wire.result_of(response)
        assert response.status_code == 200
        assert result["isError"] is True
        assert result["resultType"] == "complete"
        assert result["content"][0]["text"].startswith("Invalid arguments\n")


def test_a_validation_error_of_the_handlers_own_is_none_of_the_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """decision: it is a failure inside; its text would show what the handler works with."""
    mcp, app = server()

    class Reply(BaseModel):
        secret: int

    @mcp.tool()
    async def call_backend() -> str:
        Reply.model_validate({"secret": "x"})
        return ""

    error = wire.error_of(wire.post(app, wire.call("call_backend")))
    assert error["message"] == "Internal error"
    assert "secret" in caplog.text


def test_a_refused_state_is_the_frozen_error(caplog: pytest.LogCaptureFixture) -> None:
    """spec: -32602; decision: one sentence, the reason in the log with the request's id."""
    mcp, app = server()
    mcp.tool("t")(lambda: "")
    body = wire.call("t", requestState="x", id="req-7")
    assert error_of(app, body) == (400, INVALID, "Invalid or expired requestState")
    assert "Tool 't' (request 'req-7'): requestState refused" in caplog.text


def raising(error: Exception) -> Callable[[], Any]:
    async def fails() -> str:
        raise error

    return fails


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("Sold out"), "Sold out"),
        (HTTPException(404, "No such flight"), "No such flight"),
        (HTTPException(401, {"why": "x"}), '{"why":"x"}'),
    ],
)
def test_a_tool_fails_with_a_result(error: Exception, text: str) -> None:
    """spec: isError with text that the model can read; user report: only that detail."""
    mcp, app = server()
    mcp.tool()(raising(error))
    response = wire.post(app, wire.call("fails"))
    result = wire.result_of(response)
    assert response.status_code == 200
    assert (result["isError"], result["content"][0]["text"]) == (True, text)


@pytest.mark.parametrize("error", [RuntimeError("secret"), KeyError("secret")])
def test_a_bug_is_an_internal_error(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """user report: exception texts reached the client (fastmcp 4.2.3)."""
    mcp, app = server()
    mcp.tool()(raising(error))
    response = wire.post(app, wire.call("fails", id="req-7"))
    known = wire.error_of(response)
    assert (response.status_code, known["code"]) == (200, -32603)
    assert known["message"] == "Internal error"
    assert "secret" not in response.text
    assert known["data"]["correlationId"] in caplog.text
    assert "Tool 'fails' (request 'req-7')" in caplog.text
    assert "secret" in caplog.text


def test_an_error_of_ones_own_keeps_its_code_and_status() -> None:
    """decision: MCPError reaches the client exactly as given, its status by the table."""
    mcp, app = server()
    mcp.tool()(raising(MCPError(-32602, "Mine", {"k": 1})))
    response = wire.post(app, wire.call("fails"))
    assert response.status_code == 400
    assert wire.error_of(response) == {"code": -32602, "message": "Mine", "data": {"k": 1}}


def test_a_missing_capability_keeps_its_status() -> None:
    """user report: -32021 came back with HTTP 200 (ts#2399, go#1117)."""
    mcp, app = server()

    @mcp.tool()
    async def ask() -> Rounds[str]:
        yield str((yield need_roots("roots")))

    response = wire.post(app, wire.call("ask", capabilities={}))
    assert response.status_code == 400
    assert wire.error_of(response) == {
        "code": -32021,
        "message": "Missing required client capability: roots",
        "data": {"requiredCapabilities": {"roots": {}}},
    }


@pytest.mark.parametrize("value", [object(), math.nan, "itself"])
def test_a_result_that_cannot_be_sent_is_an_internal_error(value: Any) -> None:
    """user report: a result that could not be encoded ended the connection."""
    mcp, app = server()
    if value == "itself":
        value = []
        value.append(value)

    @mcp.tool("odd")
    async def odd() -> list[float]:
        return [value]

    response = wire.post(app, wire.call("odd"))
    assert (response.status_code, wire.error_of(response)["message"]) == (200, "Internal error")


def test_an_error_whose_data_cannot_be_sent_still_arrives() -> None:
    """decision: without the data."""
    mcp, app = server()
    mcp.tool()(raising(MCPError(-1, "Mine", object())))
    assert wire.error_of(wire.post(app, wire.call("fails"))) == {"code": -1, "message": "Mine"}


def test_a_results_own_meta_is_kept() -> None:
    """decision: `_meta` of a CallToolResult beside who answered."""
    mcp, app = server()

    @mcp.tool()
    async def odd() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="a")], _meta={"k": 1})

    result = wire.result_of(wire.post(app, wire.call("odd")))
    assert result["_meta"]["k"] == 1
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "desk"


def test_mirrored_arguments_are_held_against_their_headers() -> None:
    """spec: MUST reject with 400 and -32020, before the tool runs (§Server Behavior)."""
    mcp, app = server()
    ran: list[str] = []

    @mcp.tool()
    async def query(region: Annotated[str, MCPHeader("Region")]) -> str:
        ran.append(region)
        return region

    body = wire.call("query", {"region": "eu"})
    for region in (None, "us", "=?base64?x?="):
        status, code, message = error_of(app, body, mcp_param_region=region)
        assert (status, code) == (400, -32020)
        assert "Mcp-Param-Region" in message
    assert ran == []
    assert wire.text_of(wire.post(app, body, mcp_param_region="eu")) == "eu"


# --------------------------------------------------------------------------- what dependencies do


class Teapot(Exception):
    """Has a handler of its own in the app."""


def dependency_app(error: Exception) -> tuple[FastAPI, list[str]]:
    mcp, app = server()
    ran: list[str] = []

    def fails(x_fail: Annotated[str, Header()] = "") -> None:
        raise error

    @mcp.tool()
    async def tool(x: Annotated[None, Depends(fails)]) -> str:
        ran.append("tool")
        return ""

    @mcp.prompt()
    async def prompt(x: Annotated[None, Depends(fails)]) -> str:
        ran.append("prompt")
        return ""

    @mcp.resource("x:a")
    async def resource(x: Annotated[None, Depends(fails)]) -> str:
        ran.append("resource")
        return ""

    def complete(value: str, x: Annotated[None, Depends(fails)]) -> list[str]:
        ran.append("complete")
        return []

    @mcp.prompt()
    async def plan(city: Annotated[str, Complete(complete)]) -> str:
        return ""

    @app.exception_handler(Teapot)
    async def teapot(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"teapot": True}, 418, headers={"x-teapot": "1"})

    return app, ran


CALLS = [
    wire.call("tool"),
    wire.message("prompts/get", {"name": "prompt"}),
    wire.message("resources/read", {"uri": "x:a"}),
    wire.message(
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "plan"},
            "argument": {"name": "city", "value": ""},
        },
    ),
]


@pytest.mark.parametrize("body", CALLS)
def test_an_http_exception_of_a_dependency_is_the_response(body: dict[str, Any]) -> None:
    """decision: status and headers kept, decided before any byte."""
    app, ran = dependency_app(HTTPException(401, "Who?", {"WWW-Authenticate": "Bearer"}))
    response = wire.post(app, body)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert json.loads(response.text) == {"detail": "Who?"}
    assert ran == []


@pytest.mark.parametrize("body", CALLS)
def test_the_apps_exception_handlers_apply_to_dependencies(body: dict[str, Any]) -> None:
    """user report: exception handlers of the app were passed over (fm#396)."""
    app, ran = dependency_app(Teapot())
    response = wire.post(app, body)
    assert (response.status_code, response.headers["x-teapot"]) == (418, "1")
    assert ran == []


@pytest.mark.parametrize("body", CALLS)
def test_any_other_failure_of_a_dependency_is_an_internal_error(
    body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """decision: JSON-RPC for the client, the traceback for the log."""
    app, ran = dependency_app(RuntimeError("secret"))
    response = wire.post(app, body)
    assert (response.status_code, wire.error_of(response)["message"]) == (200, "Internal error")
    assert "secret" not in response.text
    assert "secret" in caplog.text
    assert ran == []


def test_what_a_handler_raises_is_not_for_the_apps_handlers() -> None:
    """decision: from a handler's body it belongs to the call."""
    mcp, app = server()

    @app.exception_handler(Teapot)
    async def teapot(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({}, 418)

    mcp.tool()(raising(Teapot()))
    response = wire.post(app, wire.call("fails"))
    assert (response.status_code, wire.error_of(response)["message"]) == (200, "Internal error")


def test_a_failing_commit_is_a_failure_of_the_call() -> None:
    """decision: what a dependency raises after the handler is the call's own failure."""
    mcp, app = server()

    async def commits() -> AsyncIterator[None]:
        yield
        raise HTTPException(409, "Taken")

    @mcp.tool()
    async def book(x: Annotated[None, Depends(commits)]) -> str:
        return "booked"

    result = wire.result_of(wire.post(app, wire.call("book")))
    assert (result["isError"], result["content"][0]["text"]) == (True, "Taken")


# --------------------------------------------------------------------------------------- prompts


def test_a_prompt_is_rendered() -> None:
    """spec: messages and description (server/prompts)."""
    mcp, app = server()

    @mcp.prompt(description="Plans")
    async def plan(city: str, days: int = 1) -> str:
        return f"{days} in {city}"

    body = wire.message("prompts/get", {"name": "plan", "arguments": {"city": "B", "days": "3"}})
    result = wire.result_of(wire.post(app, body))
    assert result["description"] == "Plans"
    assert result["messages"][0]["content"]["text"] == "3 in B"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"name": "nope"}, "Unknown prompt: nope"),
        ({"name": "plan", "arguments": []}, "arguments must be an object"),
        ({"name": "plan", "arguments": {"city": 1}}, "Prompt arguments must be strings"),
        ({"name": "plan"}, "Invalid arguments\ncity: Field required"),
        ({"name": "plan", "arguments": {"city": "B", "days": "x"}}, "Invalid arguments\ndays: "),
        ({"name": "plan", "arguments": {"city": "B", "u": "x"}}, "Invalid arguments\nu: "),
    ],
)
def test_what_is_wrong_with_a_prompt(params: dict[str, Any], message: str) -> None:
    """spec: -32602 for an unknown name or invalid arguments (server/prompts §Error Handling)."""
    mcp, app = server()

    @mcp.prompt()
    async def plan(city: str, days: int = 1) -> str:
        return ""

    status, code, text = error_of(app, wire.message("prompts/get", params))
    assert (status, code) == (400, INVALID)
    assert text.startswith(message)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ToolError("Closed"), -32603, "Closed"),
        (HTTPException(404, "Closed"), -32603, "Closed"),
        (RuntimeError("secret"), -32603, "Internal error"),
    ],
)
def test_a_prompt_fails_with_an_error(error: Exception, code: int, text: str) -> None:
    """decision: its result cannot say isError."""
    mcp, app = server()
    mcp.prompt()(raising(error))
    assert error_of(app, wire.message("prompts/get", {"name": "fails"})) == (200, code, text)


def test_a_declined_question_of_a_prompt_is_an_error_outside_the_reserved_range() -> None:
    """decision: -31001 with the key, for prompts and resources."""
    mcp, app = server()

    @mcp.prompt()
    async def plan() -> Rounds[str]:
        yield str((yield need_input("days", "Days?", int)))

    body = wire.message("prompts/get", {"name": "plan"})
    state = wire.result_of(wire.post(app, body))["requestState"]
    answers = {"days": {"action": "decline"}}
    body["params"].update(requestState=state, inputResponses=answers)
    response = wire.post(app, body)
    assert (response.status_code, wire.error_of(response)) == (
        200,
        {"code": -31001, "message": "The user declined 'days'.", "data": {"key": "days"}},
    )


# ------------------------------------------------------------------------------------- resources


def resource_app() -> FastAPI:
    mcp, app = server()

    @mcp.resource("x:static", cache_ttl_ms=7, cache_scope="public")
    async def static() -> str:
        return "s"

    @mcp.resource("fare:{code}/{n}")
    async def fare(code: str, n: int) -> Rounds[str]:
        if code == "gone":
            raise HTTPException(404, "Gone")
        if code == "ask":
            yield str((yield need_input("q", "What?", str)))
            return
        yield f"{code} {n}"

    return app


def test_a_resource_is_read() -> None:
    """spec: contents with URI and type, and caching hints (server/resources, caching)."""
    app = resource_app()
    result = wire.result_of(wire.post(app, wire.message("resources/read", {"uri": "x:static"})))
    assert result["contents"] == [{"uri": "x:static", "mimeType": "text/plain", "text": "s"}]
    assert (result["ttlMs"], result["cacheScope"]) == (7, "public")
    result = wire.result_of(wire.post(app, wire.message("resources/read", {"uri": "fare:a/2"})))
    assert result["contents"][0]["text"] == "a 2"
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


def test_what_used_answers_is_not_cached() -> None:
    """spec: a result that used answers MUST NOT be cached: stale at once, and private."""
    mcp, app = server()

    @mcp.resource("x:a", cache_ttl_ms=1000, cache_scope="public")
    async def asks() -> Rounds[str]:
        yield str((yield need_input("q", "What?", str)))

    body = wire.message("resources/read", {"uri": "x:a"})
    first = wire.result_of(wire.post(app, body))
    assert not {"ttlMs", "cacheScope"} & first.keys()
    answers = {"q": {"action": "accept", "content": {"value": "x"}}}
    body["params"].update(requestState=first["requestState"], inputResponses=answers)
    result = wire.result_of(wire.post(app, body))
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


@pytest.mark.parametrize(
    ("uri", "data"),
    [("x:nope", {"uri": "x:nope"}), ("fare:gone/1", {"uri": "fare:gone/1"}), ("", {"uri": ""})],
)
def test_a_resource_that_is_not_there(uri: str, data: dict[str, str]) -> None:
    """spec: -32602 with the URI (server/resources §Error Handling)."""
    response = wire.post(resource_app(), wire.message("resources/read", {"uri": uri}))
    error = wire.error_of(response)
    assert (response.status_code, error["code"], error["data"]) == (400, INVALID, data)


def test_a_variable_that_does_not_fit_is_invalid() -> None:
    """decision: as any argument of another type."""
    body = wire.message("resources/read", {"uri": "fare:a/x"})
    status, code, text = error_of(resource_app(), body)
    assert (status, code) == (400, INVALID)
    assert text.startswith("Invalid arguments\nn: ")


def test_a_resource_that_fails_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """decision: its result cannot say isError."""
    mcp, app = server()
    mcp.resource("x:{id}")(lambda id: object())
    response = wire.post(app, wire.message("resources/read", {"uri": "x:secret"}))
    assert (response.status_code, wire.error_of(response)["message"]) == (200, "Internal error")
    assert "Resource 'x:{id}'" in caplog.text


# ------------------------------------------------------------------------------------ completion


def completion(ref: dict[str, Any], name: str, value: str, **more: Any) -> dict[str, Any]:
    params = {"ref": ref, "argument": {"name": name, "value": value}, **more}
    return wire.message("completion/complete", params)


PLAN = {"type": "ref/prompt", "name": "plan"}


def completion_app(source: Callable[..., Any]) -> FastAPI:
    mcp, app = server()

    @mcp.prompt()
    async def plan(
        city: Annotated[str, Complete(source)], cabin: Literal["first", "fast", "second"], n: int
    ) -> str:
        return ""

    @mcp.resource("fare:{code}")
    async def fare(code: Annotated[str, Complete(source)]) -> str:
        return ""

    @mcp.resource("x:a")
    async def static() -> str:
        return ""

    return app


def cities(value: str, arguments: dict[str, str]) -> list[str]:
    return [f"{value}aris {arguments.get('cabin', '')}"]


@pytest.mark.parametrize(
    ("ref", "name", "more", "values"),
    [
        (PLAN, "city", {}, ["Paris "]),
        (PLAN, "city", {"context": {"arguments": {"cabin": "first"}}}, ["Paris first"]),
        (PLAN, "city", {"context": None}, ["Paris "]),
        ({"type": "ref/resource", "uri": "fare:{code}"}, "code", {}, ["Paris "]),
        (PLAN, "n", {}, []),
    ],
)
def test_completions_come_from_their_source(
    ref: dict[str, Any], name: str, more: dict[str, Any], values: list[str]
) -> None:
    """spec: completion/complete for prompts and templates, with what is known already."""
    response = wire.post(completion_app(cities), completion(ref, name, "P", **more))
    assert wire.result_of(response)["completion"]["values"] == values


def test_the_values_of_a_literal_complete_themselves() -> None:
    """decision: what the schema lists need not be listed again."""
    response = wire.post(completion_app(cities), completion(PLAN, "cabin", "f"))
    completed = wire.result_of(response)["completion"]
    assert completed == {"values": ["first", "fast"], "total": 2, "hasMore": False}


async def cities_async(value: str) -> list[str]:
    return [value]


def test_a_source_may_be_async() -> None:
    """decision: as any handler."""
    response = wire.post(completion_app(cities_async), completion(PLAN, "city", "P"))
    assert wire.result_of(response)["completion"]["values"] == ["P"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "Unknown prompt or resource template"),
        ({"ref": "plan"}, "ref must be an object"),
        ({"ref": {"type": "ref/prompt"}}, "Unknown prompt or resource template"),
        ({"ref": {"type": "ref/prompt", "name": 1}}, "Unknown prompt or resource template"),
        ({"ref": {"type": "ref/resource", "uri": "x:b"}}, "Unknown prompt or resource template"),
        ({"ref": {"type": "other", "name": "plan"}}, "Unknown prompt or resource template"),
        ({"ref": PLAN}, "name must be a string"),
        ({"ref": PLAN, "argument": []}, "argument must be an object"),
        ({"ref": PLAN, "argument": {"name": "city"}}, "value must be a string"),
        ({"ref": PLAN, "argument": {"name": "x", "value": ""}}, "Unknown argument: x"),
        (
            {"ref": PLAN, "argument": {"name": "city", "value": ""}, "context": []},
            "context must be an object",
        ),
        (
            {
                "ref": PLAN,
                "argument": {"name": "city", "value": ""},
                "context": {"arguments": {"a": 1}},
            },
            "context.arguments must be strings",
        ),
        (
            {
                "ref": {"type": "ref/resource", "uri": "x:a"},
                "argument": {"name": "a", "value": ""},
            },
            "Unknown argument: a",
        ),
    ],
)
def test_what_is_wrong_with_a_completion(params: dict[str, Any], message: str) -> None:
    """spec: -32602 for an invalid ref or argument (server/utilities/completion)."""
    app = completion_app(cities)
    body = wire.message("completion/complete", params)
    assert error_of(app, body) == (400, INVALID, message)


def fails(value: str) -> list[str]:
    raise RuntimeError("secret")


def refuses(value: str) -> list[str]:
    raise HTTPException(503, "Try later")


def returns_text(value: str) -> str:
    return "Paris"


@pytest.mark.parametrize(
    ("source", "text"),
    [(fails, "Internal error"), (refuses, "Try later"), (returns_text, "Internal error")],
)
def test_a_source_that_fails(
    source: Callable[..., Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: as a prompt that fails."""
    body = completion(PLAN, "city", "P")
    assert error_of(completion_app(source), body) == (200, -32603, text)
    assert "Completion of Prompt 'plan'" in caplog.text or source is refuses


# --------------------------------------------------------------------------------- subscriptions


def test_a_subscription_is_for_what_the_server_has() -> None:
    """spec: the acknowledgment names what was agreed to (basic/patterns/subscriptions)."""
    _, app = server()
    body = wire.message("subscriptions/listen", {"notifications": {"toolsListChanged": 1}})
    status, code, _ = error_of(app, body)
    assert (status, code) == (400, INVALID)


def test_a_subscription_needs_a_stream() -> None:
    """decision: without Accept: text/event-stream there is nothing to answer with: 406."""
    app = resource_app()
    wanted = {"resourcesListChanged": True, "resourceSubscriptions": ["x:static", "x:nope"]}
    body = wire.message("subscriptions/listen", {"notifications": wanted})
    response = wire.post(app, body, accept="application/json")
    assert response.status_code == 406
    assert wire.error_of(response)["code"] == -32600


@pytest.mark.anyio
async def test_a_subscription_is_acknowledged_and_stays_open() -> None:
    """spec: the acknowledgment opens the stream, with what was agreed to."""
    wanted = {"resourcesListChanged": True, "resourceSubscriptions": ["x:static", "x:nope"]}
    body = wire.message("subscriptions/listen", {"notifications": wanted})
    exchange = wire.Exchange(resource_app(), body)
    task = asyncio.ensure_future(exchange.run())
    await exchange.until_first_byte()
    assert not task.done()
    exchange.left.set()
    await task
    assert exchange.messages[0]["params"]["notifications"] == {
        "resourcesListChanged": True,
        "resourceSubscriptions": ["x:static"],
    }


# ------------------------------------------------------------------------------------- streaming


def test_a_failure_after_a_notification_stays_in_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """decision: the status has gone out already; the error is the last event."""
    mcp, app = server()

    @mcp.tool()
    async def work() -> Rounds[str]:
        yield progress(1)
        raise RuntimeError("secret")

    response = wire.post(app, wire.call("work", progressToken="t"))
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    first, last = wire.messages_of(response)
    assert first["method"] == "notifications/progress"
    assert last["error"]["message"] == "Internal error"
    assert "secret" not in response.text


def test_a_missing_capability_after_a_notification_stays_in_the_stream() -> None:
    """decision: as any error."""
    mcp, app = server()

    @mcp.tool()
    async def work() -> Rounds[str]:
        yield progress(1)
        yield str((yield need_roots("roots")))

    response = wire.post(app, wire.call("work", progressToken="t", capabilities={}))
    assert response.status_code == 200
    assert wire.error_of(response)["code"] == -32021


def test_nothing_is_logged_where_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    """decision: bad input is the client's, a ToolError the model's; neither is for the log."""
    caplog.set_level(logging.DEBUG, logger="fastapi_mcp_mrtr")
    mcp, app = server()
    mcp.tool()(raising(ToolError("Sold out")))
    wrong = (wire.call("nope"), wire.message("x"))
    for body in (wire.call("fails"), wire.message("tools/list"), *wrong):
        wire.post(app, body)
    assert [r for r in caplog.records if r.name == "fastapi_mcp_mrtr"] == []
