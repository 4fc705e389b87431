"""What is measured: each scenario with its contestants and the requests they get."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests import wire

from .load import BadAnswer, Connections, Request

ARGUMENTS: Final = {"text": "hello world"}
SEAT: Final = {"action": "accept", "content": {"row": 7, "letter": "B"}}

Prepare = Callable[[Connections], Sequence[Request]]
"""The requests of a scenario for a server, tried out before they are measured."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contestant in one scenario."""

    name: str
    server: str
    """Which of the servers."""
    prepare: Prepare
    per_request: float = 1.0
    """How many of what is counted make one request: a flow of two rounds is half a one."""
    then: Request | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    counted: str
    """What the figures count a second."""
    entrants: Sequence[Entrant] = field(default_factory=tuple)


def _post(body: Mapping[str, Any], path: str = "/mcp") -> Request:
    return Request(path, {**wire.headers(body), "x-api-key": "alice"}, json.dumps(body).encode())


def _answer(server: Connections, request: Request) -> dict[str, Any]:
    text = server.ask(request)
    messages = wire.parse("application/json" if text[:1] == "{" else "text/event-stream", text)
    result = messages[-1].get("result")
    if not isinstance(result, dict):
        raise BadAnswer(f"no result: {text[:300]}")
    return result


def plain(server: Connections) -> Sequence[Request]:
    """The same echo without MCP."""
    headers = {"content-type": "application/json", "x-api-key": "alice"}
    request = Request("/echo", headers, json.dumps(ARGUMENTS).encode())
    if json.loads(server.ask(request)) != ARGUMENTS:
        raise BadAnswer("no echo")
    return [request]


def tool(
    name: str, arguments: Mapping[str, Any] = ARGUMENTS, *, says: str = "hello world"
) -> Prepare:
    """One call of a tool."""

    def prepare(server: Connections) -> Sequence[Request]:
        request = _post(wire.call(name, arguments, progressToken="p"))
        text = _answer(server, request)["content"][0]["text"]
        if says not in text:
            raise BadAnswer(f"{name} answered {text!r}")
        return [request]

    return prepare


def flow(name: str, rounds: int) -> Prepare:
    """All rounds of a flow, played once; its states may be sent again and again."""

    def prepare(server: Connections) -> Sequence[Request]:
        requests = [_post(wire.call(name, {"flight": "LH454"}))]
        for _ in range(rounds - 1):
            result = _answer(server, requests[-1])
            more: dict[str, Any] = {"inputResponses": dict.fromkeys(result["inputRequests"], SEAT)}
            more["requestState"] = result["requestState"]
            requests.append(_post(wire.call(name, {"flight": "LH454"}, **more)))
        if _answer(server, requests[-1]).get("resultType") != "complete":
            raise BadAnswer(f"{name} does not end after {rounds} rounds")
        return requests

    return prepare


def list_tools(count: int) -> Prepare:
    def prepare(server: Connections) -> Sequence[Request]:
        request = _post(wire.message("tools/list"))
        if len(_answer(server, request)["tools"]) != count:
            raise BadAnswer(f"not {count} tools")
        return [request]

    return prepare


def first_round(name: str) -> Prepare:
    def prepare(server: Connections) -> Sequence[Request]:
        request = _post(wire.call(name, {"flight": "LH454"}))
        if _answer(server, request)["resultType"] != "input_required":
            raise BadAnswer(f"{name} does not ask")
        return [request]

    return prepare


def _second(name: str) -> Request:
    answers = {"seat": SEAT}
    return _post(wire.call(name, {"flight": "LH454"}, requestState="STATE", inputResponses=answers))


LEDGERS: Final = ("memory", "sqlite", "redis", "postgresql")

ECHO: Final = Scenario(
    "echo",
    "calls",
    (
        Entrant("Starlette route", "starlette", plain),
        Entrant("FastAPI route", "fastapi", plain),
        Entrant("FastAPI route, least", "fastapi_least", plain),
        Entrant("this library", "library", tool("echo")),
        Entrant("this library, three dependencies", "library", tool("echo_three")),
        Entrant("this library, the principal alone", "library", tool("echo_alone")),
        Entrant("mcp, JSON mode", "mcp_json", tool("echo")),
        Entrant("mcp, default mode", "mcp_default", tool("echo")),
        Entrant("fastmcp", "fastmcp", tool("echo")),
    ),
)
TWO_ROUNDS: Final = Scenario(
    "two rounds",
    "flows",
    (
        Entrant("this library", "library", flow("two_rounds", 2), 1 / 2),
        Entrant("mcp, by hand", "mcp_json", flow("two_rounds", 2), 1 / 2),
        Entrant("mcp, Resolve(Elicit)", "mcp_json", flow("two_rounds_resolved", 2), 1 / 2),
    ),
)
FIVE_ROUNDS: Final = Scenario(
    "five rounds, 4 kB in the journal",
    "flows",
    (Entrant("this library", "library", flow("five_rounds", 5), 1 / 5),),
)
LIST: Final = Scenario(
    "tools/list of 100",
    "lists",
    (
        Entrant("this library", "library_100", list_tools(100)),
        Entrant("mcp, JSON mode", "mcp_json_100", list_tools(100)),
    ),
)
FAILURE: Final = Scenario(
    "an error result",
    "calls",
    (
        Entrant("this library", "library", tool("fail")),
        Entrant("mcp, JSON mode", "mcp_json", tool("fail")),
    ),
)
STREAM: Final = Scenario(
    "100 notifications over SSE",
    "notifications",
    (
        Entrant("this library", "library", tool("stream", {}, says="done"), 100.0),
        Entrant("mcp, default mode", "mcp_default", tool("stream", {}, says="done"), 100.0),
    ),
)
TOOLS: Final = Scenario(
    "echo among more tools",
    "calls",
    tuple(Entrant(f"{count} tools", f"library_{count}", tool("echo")) for count in (1, 100, 1000)),
)
SINGLE_USE: Final = Scenario(
    "two rounds, single use",
    "flows",
    tuple(
        Entrant(name, f"library_{name}", first_round("once"), 1 / 2, _second("once"))
        for name in LEDGERS
    ),
)
SCENARIOS: Final = (
    ECHO,
    TWO_ROUNDS,
    FIVE_ROUNDS,
    LIST,
    FAILURE,
    STREAM,
    TOOLS,
    SINGLE_USE,
)
