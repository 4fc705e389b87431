"""Many older sessions at once, over a real server: bounded while they wait, and all served."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from .wire import PATIENCE, OlderClient, fetched, requested, serving

pytestmark = pytest.mark.anyio

MANY = 500
AT_ONCE = 25
"""How many clients speak at the same moment; all of them wait at the same time."""

PER_SESSION = 256 * 1024
"""Bytes that one waiting session may cost the server: connection, call, stream and all."""


async def test_500_sessions_that_each_wait_for_an_answer(tmp_path: Path) -> None:
    """decision: bounded memory while they wait, all complete, and nothing is left of them."""
    turns = asyncio.Semaphore(AT_ONCE)
    waiting: list[int] = []
    all_wait, may_answer = asyncio.Event(), asyncio.Event()

    async def play(n: int) -> str:
        client = OlderClient(url)
        async with turns:
            await client.initialize()
        async with client.call("greet") as call:
            async with turns:
                ask = await call.next()
            waiting.append(n)
            if len(waiting) == MANY:
                all_wait.set()
            await may_answer.wait()
            async with turns:
                assert await client.answer(ask, f"N{n}") == 202
                return await call.text()

    with serving(tmp_path) as (url, _), anyio.fail_after(3 * PATIENCE):
        before = await fetched(f"{url}/stats")
        async with asyncio.TaskGroup() as group:
            plays = [group.create_task(play(n)) for n in range(MANY)]
            await all_wait.wait()
            during = await fetched(f"{url}/stats")
            may_answer.set()
        after = await fetched(f"{url}/stats")
    assert [await played for played in plays] == [f"Hello, N{n}" for n in range(MANY)]
    assert during["asks"] == MANY
    assert during["bytes"] - before["bytes"] < MANY * PER_SESSION
    assert (after["asks"], after["topics"]) == (0, 0)


async def test_both_eras_at_once(tmp_path: Path) -> None:
    """decision: one endpoint, and neither kind of client keeps the other waiting."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    headers = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "greet",
    }

    async def older(n: int) -> str:
        client = await OlderClient(url).initialize()
        async with client.call("greet") as call:
            ask = await call.next()
            await modern_done.wait()
            await client.answer(ask, f"N{n}")
            return await call.text()

    async def round_of(n: int, **members: Any) -> Any:
        params = {"name": "greet", "arguments": {}, "_meta": meta, **members}
        request = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params}
        async with requested(f"{url}/mcp", request, headers) as response:
            return (await response.json())["result"]

    async def modern(n: int) -> str:
        asked = await round_of(n)
        answer = {"name": {"action": "accept", "content": {"value": f"M{n}"}}}
        state = asked["requestState"]
        done = await round_of(n, requestState=state, inputResponses=answer)
        text: str = done["content"][0]["text"]
        return text

    modern_done = asyncio.Event()
    with serving(tmp_path) as (url, _), anyio.fail_after(PATIENCE):
        async with asyncio.TaskGroup() as group:
            olders = [group.create_task(older(n)) for n in range(AT_ONCE)]
            moderns = await asyncio.gather(*(modern(n) for n in range(AT_ONCE)))
            modern_done.set()
    assert [await one for one in olders] == [f"Hello, N{n}" for n in range(AT_ONCE)]
    assert moderns == [f"Hello, M{n}" for n in range(AT_ONCE)]
