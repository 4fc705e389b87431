"""Several processes and one Redis: answers find the worker that waits, and one of them dies."""

import signal
from pathlib import Path

import anyio
import pytest

from .wire import PATIENCE, OlderClient, fetched, requested, serving

pytestmark = pytest.mark.anyio

KEY = {"io.github.fastapi-mcp-mrtr/idempotencyKey": "order-1"}


async def test_an_answer_that_reaches_another_worker(tmp_path: Path, redis_url: str) -> None:
    """user report: behind a load balancer the answer went to a process that had not asked."""
    with (
        serving(tmp_path, name="a", ERAS_REDIS=redis_url) as (a, _),
        serving(tmp_path, name="b", ERAS_REDIS=redis_url) as (b, _),
        anyio.fail_after(PATIENCE),
    ):
        client = await OlderClient(a).initialize()
        async with client.call("greet", url=a) as call:
            ask = await call.next()
            assert await client.answer(ask, "Ada", b) == 202
            assert await call.text() == "Hello, Ada"
        # And the other way round, in the same session.
        async with client.call("greet", url=b) as call:
            ask = await call.next()
            assert await client.answer(ask, "Bo", a) == 202
            assert await call.text() == "Hello, Bo"


async def test_the_worker_that_waits_is_killed(tmp_path: Path, redis_url: str) -> None:
    """decision: the client sees a broken connection, tries again on whichever worker is left, and
    goes on where it was; what a step recorded does not run again."""
    events = tmp_path / "events"
    env = {"ERAS_REDIS": redis_url, "ERAS_EVENTS": str(events)}
    with (
        serving(tmp_path, name="a", **env) as (a, worker),
        serving(tmp_path, name="b", **env) as (b, _),
        anyio.fail_after(PATIENCE),
    ):
        client = await OlderClient(a).initialize()
        async with client.call("order", {"account": "ada"}, meta=KEY) as call:
            lost = await call.next()
            worker.popen.send_signal(signal.SIGKILL)
            with pytest.raises((OSError, EOFError)):
                await call.next()
        # Nobody waits for this answer any more; it is taken and does nothing.
        assert await client.answer(lost, "nowhere", b) == 202
        async with client.call("order", {"account": "ada"}, meta=KEY, url=b) as call:
            ask = await call.next()
            assert ask["params"]["message"] == lost["params"]["message"]
            await client.answer(ask, "Rome", b)
            assert await call.text() == "receipt of ada to Rome"
    assert events.read_text() == "charged ada\n"


async def test_the_worker_dies_while_a_later_question_waits(tmp_path: Path, redis_url: str) -> None:
    """user report: the same call on another worker was refused for ever. It goes on with the
    question that waited; made once more when it has ended, it gets the same result."""
    events = tmp_path / "events"
    env = {"ERAS_REDIS": redis_url, "ERAS_EVENTS": str(events)}
    arguments = {"account": "bo"}
    with (
        serving(tmp_path, name="a", **env) as (a, worker),
        serving(tmp_path, name="b", **env) as (b, _),
        anyio.fail_after(PATIENCE),
    ):
        client = await OlderClient(a).initialize()
        async with client.call("send", arguments, meta=KEY) as call:
            await client.answer(await call.next(), "Rome", a)
            lost = await call.next()
            worker.popen.send_signal(signal.SIGKILL)
            with pytest.raises((OSError, EOFError)):
                await call.next()
        async with client.call("send", arguments, meta=KEY, url=b) as call:
            ask = await call.next()
            assert ask["params"]["message"] == lost["params"]["message"]
            await client.answer(ask, "today", b)
            assert await call.text() == "receipt of bo to Rome, today"
        async with client.call("send", arguments, meta=KEY, url=b) as call:
            assert (await call.json())["result"]["content"][0]["text"] == (
                "receipt of bo to Rome, today"
            )
    charged, sent = events.read_text().splitlines()
    assert charged == "charged bo"
    assert sent.endswith("takeover: False")


async def test_the_worker_dies_in_the_last_round(tmp_path: Path, redis_url: str) -> None:
    """decision: when its lease is over another one takes over with the answers that were given, and
    the same idempotency key for what the first one may have done."""
    events = tmp_path / "events"
    env = {"ERAS_REDIS": redis_url, "ERAS_EVENTS": str(events), "ERAS_LEASE": "0.5"}
    arguments, meta = {"account": "cy"}, {"io.github.fastapi-mcp-mrtr/idempotencyKey": "order-2"}
    with (
        serving(tmp_path, name="a", ERAS_HANGS="yes", **env) as (a, worker),
        serving(tmp_path, name="b", **env) as (b, _),
        anyio.fail_after(PATIENCE),
    ):
        client = await OlderClient(a).initialize()
        async with client.call("send", arguments, meta={**meta, "progressToken": 1}) as call:
            for answer in ("Rome", "today"):
                await client.answer(await call.next(), answer, a)
            assert (await call.next())["method"] == "notifications/progress"
            worker.popen.send_signal(signal.SIGKILL)
            with pytest.raises((OSError, EOFError)):
                await call.next()
        async with client.call("send", arguments, meta=meta, url=b) as call:
            assert (await call.json())["result"]["content"][0]["text"] == (
                "receipt of cy to Rome, today"
            )
    charged, sent, again = events.read_text().splitlines()
    assert charged == "charged cy"
    assert sent.replace("False", "True") == again


async def test_subscribers_of_every_worker_hear_of_it(tmp_path: Path, redis_url: str) -> None:
    """user report: of several workers only one told its subscribers that a resource changed."""
    uri = "eras://news/sport"
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"resourceSubscriptions": [uri]}, "_meta": meta}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    with (
        serving(tmp_path, name="a", ERAS_REDIS=redis_url) as (a, _),
        serving(tmp_path, name="b", ERAS_REDIS=redis_url) as (b, _),
        anyio.fail_after(PATIENCE),
    ):
        client = await OlderClient(a).initialize()
        await client.tell({"id": 1, "method": "resources/subscribe", "params": {"uri": uri}})
        async with (
            requested(f"{b}/mcp", headers=client.headers, method="GET") as older,
            requested(f"{b}/mcp", listen, headers) as modern,
        ):
            agreed = await modern.next()
            assert agreed["params"]["notifications"] == {"resourceSubscriptions": [uri]}
            await fetched(f"{a}/publish/sport", method="POST")
            for stream in (modern, older):
                message = await stream.next()
                assert message["method"] == "notifications/resources/updated"
                assert message["params"]["uri"] == uri
