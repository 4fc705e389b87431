"""SIGTERM under load: calls finish or are cancelled, streams end with a response, nothing fails."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from fastapi_mcp_mrtr.errors import SERVER_STOPPED
from tests import wire

from .connection import Answer, Gone, request
from .server import Server, served
from .visits import MIX, Client, Wrong

SEED: Final = 1

EACH: Final = 10
"""Clients of each kind, waiting when the signal comes."""

BUSY: Final = 50
"""Clients that go from visit to visit, into the signal."""


async def lasts(client: Client, seconds: float, *, streams: bool) -> Answer:
    arguments = {"seconds": seconds, "streams": streams}
    async with client.another() as connection:
        return await client.ask(client.call("lasts", arguments, progressToken="p"), connection)


async def json_that_finishes(client: Client) -> str:
    answer = await lasts(client, 0, streams=False)
    return str(answer.last["result"]["content"][0]["text"])


async def stream_that_finishes(client: Client) -> str:
    answer = await lasts(client, 0, streams=True)
    return str(answer.last["result"]["content"][0]["text"])


async def stream_that_lasts(client: Client) -> str:
    """Longer than `shutdown_grace`."""
    return str((await lasts(client, 600, streams=True)).last["error"]["code"])


async def subscription(client: Client) -> str:
    wanted = {"notifications": {"toolsListChanged": True}}
    async with client.another() as connection:
        body = wire.message("subscriptions/listen", wanted, id=client.new_id())
        return str((await client.ask(body, connection)).last["result"]["resultType"])


async def json_that_lasts(client: Client) -> str:
    """Longer than uvicorn waits: it cancels the request as that of any route."""
    async with client.another() as connection:
        body = client.call("lasts", {"seconds": 600, "streams": False})
        await connection.send(b"".join(request(body, client.name)))
        return str((await connection.answer()).status)


async def half_open(client: Client) -> str:
    """A body that never comes is waited for no longer."""
    async with client.another() as connection:
        await connection.send(request(client.call("echo", {"text": "x"}), client.name)[0])
        return str((await connection.answer()).status)


KINDS: Final[dict[str, tuple[Callable[[Client], Awaitable[str]], set[str]]]] = {
    "JSON": (json_that_finishes, {"lasted"}),
    "SSE": (stream_that_finishes, {"lasted"}),
    "SSE, too long": (stream_that_lasts, {str(SERVER_STOPPED)}),
    "subscriptions": (subscription, {"complete"}),
    "JSON, too long": (json_that_lasts, {"500", "closed"}),
    "half-open": (half_open, {"500", "closed"}),
}
"""What clients wait for when the signal comes, and what they get: what they asked for, if time
permits; where uvicorn had to cancel, what it says to that."""


async def stop_in_the_middle(server: Server, number: int) -> dict[str, Counter[str]]:
    """Send the signal when everybody waits; what each kind of client got."""
    got: dict[str, Counter[str]] = {kind: Counter() for kind in [*KINDS, "busy"]}
    stopped = asyncio.Event()

    async def wait(kind: str, client: Client) -> None:
        try:
            got[kind][await KINDS[kind][0](client)] += 1
        except Gone:
            got[kind]["closed"] += 1

    async def be_busy(client: Client) -> None:
        visits = [visit.play for visit in MIX]
        try:
            while not stopped.is_set():
                await client.random.choice(visits)(client)
        except* (Gone, OSError):
            pass  # the server closes what has nothing under way, and accepts nobody new
        except* Wrong as wrong:
            got["busy"].update(str(error) for error in wrong.exceptions)
        finally:
            client.leave()

    async with asyncio.TaskGroup() as group:
        for k in range(BUSY):
            group.create_task(be_busy(Client(1000 + k, server.port, SEED)))
        for i, kind in enumerate(KINDS):
            for j in range(EACH):
                group.create_task(wait(kind, Client(i * EACH + j, server.port, SEED)))
        while not all_wait(await asyncio.to_thread(server.report)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # the server is asked, so that it need not tell
        server.process.popen.send_signal(number)
        await asyncio.to_thread(server.process.wait_for, "Shutting down")
        stopped.set()
        server.process.popen.send_signal(signal.SIGUSR1)
    return got


def all_wait(report: dict[str, Any]) -> bool:
    requests = sum("run_asgi" in task for task in report["tasks"])
    return report["marks"].get("lasting", 0) >= 4 * EACH and requests >= len(KINDS) * EACH


@pytest.mark.parametrize(
    ("number", "exits_with"),
    # uvicorn ends by the signal that it got, once it is done; Ctrl-C it takes for a plain end.
    [(signal.SIGTERM, {0, -signal.SIGTERM}), (signal.SIGINT, {0})],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_signal_under_load(tmp_path: Path, number: int, exits_with: set[int]) -> None:
    """Decision: calls finish within the grace or are cancelled, and every stream has its end."""
    with served(tmp_path) as server:
        got = asyncio.run(stop_in_the_middle(server, number))
        assert server.process.popen.wait(60) in exits_with
    for kind, (_, right) in KINDS.items():
        assert set(got[kind]) <= right, got
        assert got[kind].total() == EACH, got
    # Whoever read a stream too slowly was told, like everybody else.
    assert all(str(SERVER_STOPPED) in wrong for wrong in got["busy"]), got["busy"]
    assert "Finished server process" in server.process.text
    assert "without completing response" not in server.process.text, server.process.text
