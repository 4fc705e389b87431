"""flows: what a round is given, what its next state is bound to, and when a call ends."""

import json
import logging
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Header, HTTPException
from starlette.testclient import TestClient

from fastapi_mcp_mrtr import (
    Context,
    KeyRing,
    MCPRouter,
    MemoryLedger,
    Rounds,
    Secret,
    SyncRounds,
    need_input,
    not_yet,
    step,
)
from tests import wire

FROZEN = {"code": -32602, "message": "Invalid or expired requestState"}

SECRET = Secret("one", b"1" * 32)
OTHER = Secret("two", b"2" * 32)


class Clock:
    """The time, as the test says."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def accept(**values: Any) -> dict[str, Any]:
    return {key: {"action": "accept", "content": {"value": v}} for key, v in values.items()}


def user(x_user: Annotated[str, Header()] = "alice") -> str:
    return x_user


class Desk:
    """A server with handlers of all kinds that ask, and its clock."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.runs: list[str] = []
        options = {"keys": SECRET, "clock": self.clock, "principal": user, **options}
        self.mcp = MCPRouter(options.pop("name", "desk"), version="1", **options)

        @self.mcp.tool(unasked_answers=options.get("unasked", "ignore"))
        async def book(flight: str = "LX1") -> Rounds[str]:
            self.runs.append(flight)
            seat: str = yield need_input("seat", f"Seat on {flight}?", str)
            meal: str = yield need_input("meal", "Meal?", str)
            yield f"{flight} {seat} {meal}"

        @self.mcp.tool()
        async def other(flight: str = "LX1") -> Rounds[str]:
            yield str((yield need_input("seat", f"Seat on {flight}?", str)))

        @self.mcp.prompt()
        async def plan(city: str = "Bern") -> Rounds[str]:
            yield str((yield need_input("days", f"Days in {city}?", str)))

        @self.mcp.resource("fare:{code}")
        def fare(code: str) -> SyncRounds[str]:
            cabin: str = yield need_input("cabin", "Cabin?", str)
            return f"{code} {cabin}"

        self.app = FastAPI()
        self.app.include_router(self.mcp)

    def post(self, body: dict[str, Any], **headers: Any) -> wire.Response:
        return wire.post(self.app, body, **headers)

    def state(self, body: dict[str, Any] | None = None, **headers: Any) -> str:
        """The state that a first round of `book` leaves."""
        result = wire.result_of(self.post(body or wire.call("book"), **headers))
        assert result["resultType"] == "input_required"
        return str(result["requestState"])


@pytest.fixture
def desk() -> Desk:
    return Desk()


# ---------------------------------------------------------------------------------------- rounds


def test_earlier_answers_stay_until_the_end(desk: Desk) -> None:
    """user report: a chain of dependent questions never finished (py#2986)."""
    first = wire.result_of(desk.post(wire.call("book")))
    assert list(first["inputRequests"]) == ["seat"]
    second = wire.call("book", requestState=first["requestState"], inputResponses=accept(seat="4A"))
    second_result = wire.result_of(desk.post(second))
    assert list(second_result["inputRequests"]) == ["meal"]
    assert second_result["requestState"] != first["requestState"]
    state = second_result["requestState"]
    last = wire.call("book", requestState=state, inputResponses=accept(meal="soup"))
    assert wire.text_of(desk.post(last)) == "LX1 4A soup"


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (wire.message("prompts/get", {"name": "plan"}), "days"),
        (wire.message("resources/read", {"uri": "fare:x"}), "cabin"),
    ],
)
def test_prompts_and_resources_ask_too(desk: Desk, body: dict[str, Any], key: str) -> None:
    """user report: resources/read could not ask (php#449); spec: all three methods may."""
    result = wire.result_of(desk.post(body))
    assert result["resultType"] == "input_required"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "desk"
    assert not {"messages", "contents", "ttlMs"} & result.keys()
    params = {**body["params"], "inputResponses": accept(**{key: "two"})}
    params["requestState"] = result["requestState"]
    final = wire.result_of(desk.post(wire.message(body["method"], params)))
    assert final["resultType"] == "complete"
    assert "two" in json.dumps(final)


def test_a_state_of_null_is_none(desk: Desk) -> None:
    """spec: an absent state begins a flow; user report: null is absent (py#3032)."""
    body = wire.call("book", requestState=None, inputResponses=None)
    assert wire.result_of(desk.post(body))["resultType"] == "input_required"


@pytest.mark.parametrize("responses", [[], "seat", 3, True])
def test_answers_of_another_shape_are_refused(desk: Desk, responses: Any) -> None:
    """spec: inputResponses is an object; -32602."""
    error = wire.error_of(desk.post(wire.call("book", inputResponses=responses)))
    assert (error["code"], error["message"]) == (-32602, "inputResponses must be an object")
    assert desk.runs == []


def test_answers_without_a_state_are_ignored(desk: Desk) -> None:
    """user report: what was never shown was believed (neva); decision: it was never agreed to."""
    result = wire.result_of(desk.post(wire.call("book", inputResponses=accept(seat="4A"))))
    assert list(result["inputRequests"]) == ["seat"]


def test_arguments_are_checked_after_the_state_and_before_the_handler(desk: Desk) -> None:
    """decision: the order … → state → handler."""
    state = desk.state()
    wrong = wire.call("book", {"flight": 1}, requestState=state)
    assert wire.error_of(desk.post(wrong)) == FROZEN
    assert wire.result_of(desk.post(wire.call("book", {"flight": 1})))["isError"]
    assert desk.runs == ["LX1"]


# --------------------------------------------------------------------------------------- binding


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (wire.call("other"), {}),
        (wire.call("book", {"flight": "LX2"}), {}),
        (wire.call("book", {"flight": "LX1"}), {}),  # a default is not the same as an argument
        (wire.call("book"), {"x_user": "bob"}),
        (wire.message("prompts/get", {"name": "plan"}), {}),
        (wire.message("resources/read", {"uri": "fare:a"}), {}),
    ],
)
def test_a_state_opens_for_its_own_call_only(
    desk: Desk, body: dict[str, Any], headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """user report: states were replayed across users, tools and arguments (py#3032)."""
    body["params"]["requestState"] = desk.state()
    response = desk.post(body, **headers)
    assert response.status_code == 400
    assert wire.error_of(response) == FROZEN
    assert "requestState refused" in caplog.text
    assert desk.runs == ["LX1"]


def test_a_resource_is_bound_to_its_uri(desk: Desk) -> None:
    """decision: one template serves many resources."""
    state = desk.state(wire.message("resources/read", {"uri": "fare:a"}))
    other = wire.message("resources/read", {"uri": "fare:b", "requestState": state})
    assert wire.error_of(desk.post(other)) == FROZEN


@pytest.mark.parametrize(
    "options",
    [
        {"name": "other"},
        {"audience": "other"},
        {"keys": OTHER},
    ],
)
def test_a_state_opens_on_its_own_server_only(desk: Desk, options: dict[str, Any]) -> None:
    """decision: servers that share secrets are told apart by their audience."""
    body = wire.call("book", requestState=desk.state())
    assert wire.error_of(Desk(**options).post(body)) == FROZEN


def test_a_state_opens_on_any_worker_that_has_the_secret(desk: Desk) -> None:
    """user report: flows did not survive a restart (py#692)."""
    body = wire.call("book", requestState=desk.state(), inputResponses=accept(seat="4A"))
    restarted = Desk(keys=KeyRing(primary=OTHER, accepted=[SECRET]))
    assert list(wire.result_of(restarted.post(body))["inputRequests"]) == ["meal"]


@pytest.mark.parametrize("token", [1, True, [], {}, "", "x", "AQ", "é", "\x00"])
def test_a_state_of_another_shape_is_refused(desk: Desk, token: Any) -> None:
    """user report: each of them, one message for every cause (py#3032)."""
    response = desk.post(wire.call("book", requestState=token))
    assert (response.status_code, wire.error_of(response)) == (400, FROZEN)


def test_another_version_of_a_handler_does_not_go_on_with_old_flows() -> None:
    """decision: the tag `version=` is sealed."""
    app: dict[str, wire.Response] = {}
    states: list[str] = []
    for version in ("1", "2"):
        mcp = MCPRouter("s", version="1", keys=SECRET)

        @mcp.tool(version=version)
        async def ask() -> Rounds[str]:
            yield str((yield need_input("q", "What?", str)))

        server = FastAPI()
        server.include_router(mcp)
        if states:
            app["old"] = wire.post(server, wire.call("ask", requestState=states[0]))
        states.append(wire.result_of(wire.post(server, wire.call("ask")))["requestState"])
    assert wire.error_of(app["old"]) == FROZEN


# ------------------------------------------------------------------------------------------ time


def test_a_state_expires_and_each_round_renews_it() -> None:
    """decision: `ttl` from round to round, `flow_lifetime` for all of them."""
    desk = Desk(ttl=60, flow_lifetime=100)
    state = desk.state()
    desk.clock.now += 59
    body = wire.call("book", requestState=state, inputResponses=accept(seat="4A"))
    renewed = wire.result_of(desk.post(body))["requestState"]
    desk.clock.now += 2  # 61 s
    assert wire.error_of(desk.post(body)) == FROZEN
    body = wire.call("book", requestState=renewed, inputResponses=accept(meal="soup"))
    assert wire.text_of(desk.post(body)) == "LX1 4A soup"
    desk.clock.now += 40  # 101 s: within the renewed ttl, past the flow's lifetime
    assert wire.error_of(desk.post(body)) == FROZEN


def test_a_handler_may_set_its_own_ttl() -> None:
    """decision: settings of a handler go before those of the router."""
    desk = Desk(ttl=60)

    @desk.mcp.tool(ttl=600)
    async def slow() -> Rounds[str]:
        yield str((yield need_input("q", "What?", str)))

    state = desk.state(wire.call("slow"))
    desk.clock.now += 599
    body = wire.call("slow", requestState=state, inputResponses=accept(q="x"))
    assert wire.text_of(desk.post(body)) == "x"


def test_a_state_from_the_future_is_refused(desk: Desk) -> None:
    """decision: a clock that is far ahead, or a forged one."""
    desk.clock.now += 3600
    state = desk.state()
    desk.clock.now -= 3600
    assert wire.error_of(desk.post(wire.call("book", requestState=state))) == FROZEN


# ---------------------------------------------------------------------------------------- limits


def asks_for_ever(mcp: MCPRouter, **settings: Any) -> Callable[..., Any]:
    async def ask() -> Rounds[str]:
        n = 0
        while True:
            yield_ = need_input(f"q{n}", "More?", str)
            answer: str = yield yield_
            if answer == "stop":
                break
            n += 1
        yield f"after {n}"

    return mcp.tool(**settings)(ask)


def rounds_until_error(desk: Desk) -> tuple[int, dict[str, Any]]:
    state, n = desk.state(wire.call("ask")), 0
    while True:
        answers = accept(**{f"q{n}": "more"})
        message = desk.post(wire.call("ask", requestState=state, inputResponses=answers))
        last = wire.messages_of(message)[-1]
        n += 1
        if "error" in last:
            return n, last["error"]
        state = last["result"]["requestState"]


@pytest.mark.parametrize(("router", "handler", "asked"), [(3, None, 3), (3, 5, 5), (9, 1, 1)])
def test_so_many_rounds_may_ask(router: int, handler: int | None, asked: int) -> None:
    """decision: `max_rounds` rounds may ask, then the call ends with an error."""
    desk = Desk(max_rounds=router)
    asks_for_ever(desk.mcp, max_rounds=handler)
    n, error = rounds_until_error(desk)
    assert n == asked
    assert (error["code"], error["message"]) == (-31002, "This call asked too many times")


def test_rounds_that_only_wait_are_not_counted() -> None:
    """user report: waiting used up the rounds (MCPJam#3430); decision: the lifetime bounds it."""
    desk = Desk(max_rounds=1, flow_lifetime=1000)

    @desk.mcp.tool()
    async def wait() -> Rounds[str]:
        yield need_input("q", "What?", str)
        yield not_yet()
        yield ""

    state = desk.state(wire.call("wait"))
    for _ in range(5):
        body = wire.call("wait", requestState=state, inputResponses=accept(q="x"))
        result = wire.result_of(desk.post(body))
        assert result["resultType"] == "input_required"
        assert "inputRequests" not in result
        state = result["requestState"]
    desk.clock.now += 1000
    assert wire.error_of(desk.post(wire.call("wait", requestState=state))) == FROZEN


def test_a_state_that_is_too_large_names_its_largest_entry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """user report: 300 kB of state were accepted and doubled; decision: an error when minting."""
    desk = Desk(max_state_bytes=2000)

    def big() -> str:
        return "x" * 3000

    @desk.mcp.tool()
    async def hoard() -> Rounds[str]:
        yield step("big", big)
        yield str((yield need_input("q", "What?", str)))

    error = wire.error_of(desk.post(wire.call("hoard")))
    assert error["message"] == "Internal error"
    assert "'big'" in caplog.text
    too_long = wire.call("book", requestState="A" * 2001)
    assert wire.error_of(desk.post(too_long)) == FROZEN


# ------------------------------------------------------------------------------------ single use

KEYED: dict[str, Any] = {"io.github.fastapi-mcp-mrtr/idempotencyKey": "k"}


@pytest.fixture
def once() -> Desk:
    return Desk(ledger=MemoryLedger(), single_use=True)


def test_a_used_state_gives_the_stored_response(once: Desk) -> None:
    """user report: a repeated last round paid twice (SEP spec#3182)."""
    state = once.state()
    body = wire.call("book", requestState=state, inputResponses=accept(seat="4A"))
    first, again = once.post(body), once.post({**body, "id": 2})
    assert wire.result_of(first) == wire.result_of(again)
    assert once.runs == ["LX1", "LX1"]
    other = wire.call("book", requestState=state, inputResponses=accept(seat="5B"))
    assert wire.error_of(once.post(other)) == FROZEN


def test_a_first_request_is_single_use_if_its_client_gives_it_a_key(once: Desk) -> None:
    """decision: without a key, the same request twice is two calls."""
    plain, keyed = wire.call("book"), wire.call("book", **KEYED)
    assert wire.result_of(once.post(plain)) != wire.result_of(once.post(plain))
    first = wire.result_of(once.post(keyed))
    assert wire.result_of(once.post(keyed)) == first
    other = wire.call("book", {"flight": "LX2"}, **KEYED)
    assert wire.error_of(once.post(other)) == FROZEN
    second = wire.call("book", requestState=first["requestState"], inputResponses=accept(seat="4"))
    assert list(wire.result_of(once.post(second))["inputRequests"]) == ["meal"]


@pytest.mark.parametrize(("router", "handler"), [(False, True), (True, False)])
def test_a_handler_may_be_single_use_on_its_own(router: bool, handler: bool) -> None:
    """decision: settings of a handler go before those of the router."""
    desk = Desk(ledger=MemoryLedger(), single_use=router)
    runs: list[int] = []

    @desk.mcp.tool(single_use=handler)
    async def ask() -> Rounds[str]:
        runs.append(1)
        yield str((yield need_input("q", "What?", str)))

    body = wire.call("ask", requestState=desk.state(wire.call("ask")), inputResponses=accept(q="x"))
    assert wire.text_of(desk.post(body)) == wire.text_of(desk.post(body)) == "x"
    assert len(runs) == (2 if handler else 3)


# ------------------------------------------------------------------------------------ principals


def test_a_principal_that_is_nobody_is_an_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """decision: a broken dependency must not turn its callers into one shared principal."""
    desk = Desk()
    response = desk.post(wire.call("book"), x_user="")
    error = wire.error_of(response)
    assert response.status_code == 200
    assert error["message"] == "Internal error"
    assert wire.messages_of(response)[0]["id"] == 1
    assert error["data"]["correlationId"] in caplog.text
    assert desk.runs == []


def test_objects_are_told_apart_by_principal_key() -> None:
    """decision: `principal_key=` for objects of one's own; what it raises is the server's error."""

    class User:
        def __init__(self, name: str) -> None:
            self.name = name

    def current(x_user: Annotated[str, Header()]) -> User:
        return User(x_user)

    desk = Desk(principal=current, principal_key=lambda u: u.name)
    state = desk.state(x_user="alice")
    body = wire.call("book", requestState=state, inputResponses=accept(seat="4A"))
    assert "result" in wire.messages_of(desk.post(body, x_user="alice"))[0]
    assert wire.error_of(desk.post(body, x_user="bob")) == FROZEN
    broken = Desk(principal=current, principal_key=lambda u: u.id)
    error = wire.error_of(broken.post(wire.call("book"), x_user="alice"))
    assert error["message"] == "Internal error"


def test_another_principal_gets_the_frozen_error_and_nobody_a_401(desk: Desk) -> None:
    """decision: a mismatch is no failed authentication."""

    def current(x_user: Annotated[str, Header()]) -> str:
        if x_user == "mallory":
            raise HTTPException(401)
        return x_user

    desk = Desk(principal=current)
    body = wire.call("book", requestState=desk.state(x_user="alice"))
    assert desk.post(body, x_user="bob").status_code == 400
    assert desk.post(body, x_user="mallory").status_code == 401


def test_the_flow_is_the_same_for_the_idempotency_key() -> None:
    """decision: the key for an outside system survives replay."""
    desk = Desk()
    keys: list[str] = []

    @desk.mcp.tool()
    async def pay(ctx: Context) -> Rounds[str]:
        keys.append(ctx.idempotency_key("pay"))
        yield str((yield need_input("q", "Sure?", str)))

    state = desk.state(wire.call("pay"))
    desk.post(wire.call("pay", requestState=state, inputResponses=accept(q="x")))
    desk.state(wire.call("pay"))
    assert keys[0] == keys[1] != keys[2]


def test_a_process_local_key_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """user report: flows failed seven times out of eight on eight workers (depictio#991)."""
    caplog.set_level(logging.WARNING)
    desk = Desk(keys=None)
    desk.state()
    desk.state()
    assert len([r for r in caplog.records if "key" in r.getMessage().lower()]) == 1


def test_a_state_of_one_tenant_is_none_of_another() -> None:
    """decision: a path parameter of the prefix is as much an argument as the others."""
    desk = Desk()
    app = FastAPI()
    app.include_router(desk.mcp, prefix="/tenants/{tenant}")
    post = TestClient(app).post
    body = wire.call("book")
    begun = post("/tenants/acme/mcp", json=body, headers=wire.headers(body)).json()["result"]
    body = wire.call("book", requestState=begun["requestState"])
    headers = wire.headers(body)
    assert post("/tenants/zeta/mcp", json=body, headers=headers).json()["error"]["code"] == -32602
    assert "result" in post("/tenants/acme/mcp", json=body, headers=headers).json()
