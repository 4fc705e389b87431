"""A paying tool on one or more workers, and ledgers that can be held up, lost and looked into."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
from fastapi import FastAPI, Header

from fastapi_mcp_mrtr import (
    Context,
    Ledger,
    LedgerUnavailable,
    MCPRouter,
    MemoryLedger,
    Rounds,
    Secret,
    need_input,
)
from fastapi_mcp_mrtr.state.ledger import Claim
from fastapi_mcp_mrtr.testing.flow import Round
from tests import wire

NOW = 1_785_000_000.0
SECRET = Secret("2026-08", bytes(range(32)))
KEY = "io.github.fastapi-mcp-mrtr/idempotencyKey"
REFUSED = (-32602, "Invalid or expired requestState")
TRY_AGAIN = {"code": -31003, "message": "Try again later", "data": {"retryable": True}}


@dataclass
class Clock:
    """Both clocks may be one; here a test moves each by itself."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


def current_user(x_user: Annotated[str, Header()] = "alice") -> str:
    return x_user


@dataclass
class Desk:
    """What flows did: which rounds ran, and what was paid under which key."""

    runs: list[tuple[int, bool]] = field(default_factory=list)
    """The number of each round that ran, and whether it was a takeover."""
    paid: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """A run that pays has come to the point where it waits."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, so that it does not wait, until a test clears it."""

    def __post_init__(self) -> None:
        self.go_on.set()

    async def pay(self, key: str) -> int:
        self.arrived.set()
        await self.go_on.wait()
        self.paid.append(key)
        return len(self.paid)


def worker(ledger: Ledger | None, desk: Desk, **options: Any) -> FastAPI:
    """One process of the server. Workers share a ledger, a secret and the desk."""
    settings: dict[str, Any] = {"keys": SECRET, "principal": current_user, "single_use": True}
    mcp = MCPRouter("desk", version="1", ledger=ledger, **{**settings, **options})

    @mcp.tool()
    async def pay(amount: int, ctx: Context) -> Rounds[str]:
        desk.runs.append((ctx.round, ctx.is_takeover))
        ok: bool = yield need_input("ok", f"Pay {amount}?", bool)
        number = await desk.pay(ctx.idempotency_key("pay"))
        yield f"Payment {number}: {ok}"

    app = FastAPI()
    app.include_router(mcp)
    return app


# ----------------------------------------------------------------------------------- requests


def result_bytes(reply: "Round[Any] | wire.Exchange | wire.Response") -> str:
    """The result as it was sent; what stands before it has the request's own id."""
    text = reply.reply.text if isinstance(reply, Round) else reply.text
    result = text.partition('"result":')[2]
    assert result, text
    return result


def keyed(body: dict[str, Any], key: str = "a") -> dict[str, Any]:
    """The request with an idempotency key."""
    body["params"]["_meta"][KEY] = key
    return body


async def send(app: FastAPI, body: dict[str, Any]) -> wire.Exchange:
    return await wire.Exchange(app, body).run()


async def asked(app: FastAPI, amount: int = 5) -> str:
    """The state after the first round."""
    first = await send(app, wire.call("pay", {"amount": amount}))
    state: str = first.messages[-1]["result"]["requestState"]
    return state


def answered(state: str, ok: bool = True, amount: int = 5, id: Any = 1) -> dict[str, Any]:
    """The request with the answer."""
    answers = {"ok": {"action": "accept", "content": {"value": ok}}}
    return wire.call("pay", {"amount": amount}, requestState=state, inputResponses=answers, id=id)


def text_of(reply: wire.Exchange) -> str:
    text: str = reply.messages[-1]["result"]["content"][0]["text"]
    return text


def error_of(reply: wire.Exchange) -> dict[str, Any]:
    error: dict[str, Any] = reply.messages[-1]["error"]
    return error


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until it is so."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0)


# ------------------------------------------------------------------------------------ ledgers


class Store:
    """A `MemoryLedger` behind a line that a test can cut, hold up and listen to."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.inner = MemoryLedger(clock=self.clock)
        self.calls: list[str] = []
        self.away: set[str] = set()
        """Methods that do not reach it."""
        self.failures: dict[str, int] = {}
        """How often a method does not reach it."""
        self.held_up: dict[str, asyncio.Event] = {}
        """Methods that wait for an event once they have done what they do."""

    @property
    def records(self) -> dict[str, Any]:
        return dict(self.inner._records)

    async def claim(
        self, flow: str, round: int, fingerprint: str, *, lease: float, ttl: float
    ) -> Claim:
        self._reach("claim")
        claim = await self.inner.claim(flow, round, fingerprint, lease=lease, ttl=ttl)
        await self._reply("claim")
        return claim

    async def renew(self, flow: str, round: int, owner: str, *, lease: float) -> bool:
        self._reach("renew")
        renewed = await self.inner.renew(flow, round, owner, lease=lease)
        await self._reply("renew")
        return renewed

    async def answer(
        self, flow: str, round: int, owner: str, response: bytes, *, ttl: float
    ) -> bool:
        self._reach("answer")
        stored = await self.inner.answer(flow, round, owner, response, ttl=ttl)
        await self._reply("answer")
        return stored

    async def release(self, flow: str, round: int, owner: str, *, ran: bool) -> None:
        self._reach("release")
        await self.inner.release(flow, round, owner, ran=ran)
        await self._reply("release")

    async def aclose(self) -> None: ...

    def _reach(self, method: str) -> None:
        self.calls.append(method)
        if method in self.away:
            raise LedgerUnavailable(f"no way to {method}")
        if self.failures.get(method, 0) > 0:
            self.failures[method] -= 1
            raise LedgerUnavailable(f"no way to {method}")

    async def _reply(self, method: str) -> None:
        if method in self.held_up:
            await self.held_up[method].wait()
