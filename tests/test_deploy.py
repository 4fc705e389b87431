"""docs/deploy: the template is a service that runs, with several workers and a ledger in Redis."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from fastapi_mcp_mrtr.testing import MCPTestClient

from .state.ledger.services import RedisServer
from .test_docs import free_port

TEMPLATE = Path(__file__).resolve().parents[1] / "docs" / "deploy" / "template"
KEY = "an-api-key-of-ada"
STATE_KEYS = f"2026-08={'n' * 64} 2026-05={'o' * 64}"


def environment(redis_url: str, folder: Path) -> dict[str, str]:
    """As compose.yaml sets it: secrets from files."""
    (folder / "state_keys").write_text(STATE_KEYS.replace(" ", "\n"))
    (folder / "api_keys").write_text(f"ada={KEY}\n")
    return {
        "ALLOWED_HOSTS": "mcp.example.com",
        "API_KEYS_FILE": str(folder / "api_keys"),
        "MCP_STATE_KEYS_FILE": str(folder / "state_keys"),
        "REDIS_URL": redis_url,
    }


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The template's `service.main`, imported from where it lies."""
    monkeypatch.syspath_prepend(TEMPLATE)
    yield importlib.import_module("service.main")
    for name in [name for name in sys.modules if name.partition(".")[0] == "service"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service as the image starts it, but on loopback and a free port."""
    _, _, exec_form = (TEMPLATE / "Dockerfile").read_text().rpartition("\nCMD ")
    command: list[str] = json.loads(exec_form.replace("\\\n", ""))
    port = free_port()
    options: dict[str, str] = {"0.0.0.0": "127.0.0.1", "8000": str(port)}
    with RedisServer() as redis:
        environ = environment(redis.url, tmp_path_factory.mktemp("secrets"))
        process = subprocess.Popen(
            [sys.executable, "-m", *(options.get(part, part) for part in command)],
            cwd=TEMPLATE,
            env={**os.environ, **environ, "WEB_CONCURRENCY": "2", "PYTHONDONTWRITEBYTECODE": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        lines = (line for line in process.stderr if "Application startup complete" in line)
        assert [next(lines, None) is not None for _ in range(2)] == [True, True]
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.communicate(timeout=30)


def body(**more: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    params = {"name": "buy_ticket", "arguments": {"flight": "LX318"}, **more, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def headers(key: str = KEY) -> dict[str, str]:
    return {
        "X-API-Key": key,
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "buy_ticket",
    }


def test_flows_are_served_by_any_worker_and_happen_once(running: str) -> None:
    """Two workers, one secret, one ledger: each last round twice, with one result. decision"""
    for _ in range(10):
        # A connection for each request, so that either worker may get it.
        asked = httpx2.post(f"{running}/mcp", json=body(), headers=headers()).json()["result"]
        answer = {"confirm": {"action": "accept", "content": {"value": True}}}
        last = body(requestState=asked["requestState"], inputResponses=answer)
        one, two = (
            httpx2.post(f"{running}/mcp", json=last, headers=headers()).json()["result"]
            for _ in range(2)
        )
        assert one == two
        assert one["content"][0]["text"].startswith("Bought LX318, receipt LX318-")


async def accept(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """The user of an older client, who buys it."""
    return ElicitResult(action="accept", content={"value": True})


@pytest.mark.anyio
async def test_answers_of_an_older_client_find_the_worker_that_waits(running: str) -> None:
    """The call is on one worker, its answer arrives on either. user report"""
    one_connection_each = httpx2.Limits(max_keepalive_connections=0)
    with anyio.fail_after(60):  # so long would an answer be missing
        async with (
            httpx2.AsyncClient(
                headers={"X-API-Key": KEY}, limits=one_connection_each, timeout=None
            ) as http,
            Client(
                streamable_http_client(f"{running}/mcp", http_client=http),
                mode="legacy",
                elicitation_callback=accept,
            ) as client,
        ):
            assert client.protocol_version == "2025-11-25"
            for _ in range(20):
                bought = await client.call_tool("buy_ticket", {"flight": "LX318"})
                (content,) = bought.content
                assert isinstance(content, TextContent)
                assert content.text.startswith("Bought LX318, receipt LX318-")


def test_it_says_how_it_is(running: str) -> None:
    """Alive and ready. decision"""
    assert httpx2.get(f"{running}/healthz").json() == {"status": "alive"}
    assert httpx2.get(f"{running}/readyz").json() == {"status": "ready"}


def test_who_has_no_key_is_refused(running: str) -> None:
    """Before anything is read. decision"""
    refused = httpx2.post(f"{running}/mcp", json=body(), headers=headers("another"))
    assert refused.status_code == 401


def test_a_service_without_redis_is_alive_and_not_ready(
    service: ModuleType, tmp_path: Path
) -> None:
    """So it is not restarted, and gets no calls. decision"""
    settings = service.Settings.from_env(environment(f"redis://127.0.0.1:{free_port()}", tmp_path))
    with MCPTestClient(service.create_app(settings), headers={"X-API-Key": KEY}) as client:
        assert client.http.get("/healthz").status_code == 200
        assert client.http.get("/readyz").status_code == 503
        asked = client.begin_tool("buy_ticket", {"flight": "LX318"})
        assert asked.answer({"confirm": True}).error.code == -31003


def test_requests_are_measured(service: ModuleType, tmp_path: Path) -> None:
    """By FastAPI, by route and status. decision"""
    settings = service.Settings.from_env(environment("redis://127.0.0.1:1", tmp_path))
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    app = service.create_app(settings, telemetry={"meter_provider": provider})
    with MCPTestClient(app, headers={"X-API-Key": KEY}) as client:
        client.list_tools()
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    (duration,) = (m for m in metrics if m.name == "http.server.request.duration")
    (point,) = duration.data.data_points
    attributes = dict(point.attributes or {})
    assert attributes["http.route"] == "/mcp"
    assert attributes["http.response.status_code"] == 200


@pytest.mark.parametrize("missing", ["API_KEYS", "MCP_STATE_KEYS", "REDIS_URL"])
def test_what_is_missing_stops_the_start(service: ModuleType, missing: str) -> None:
    """Rather than a random secret in each worker. decision"""
    environ = {"API_KEYS": f"ada={KEY}", "MCP_STATE_KEYS": STATE_KEYS, "REDIS_URL": "redis://x"}
    assert service.Settings.from_env(environ).keys.kids == ("2026-08", "2026-05")
    del environ[missing]
    with pytest.raises(KeyError, match=missing):
        service.Settings.from_env(environ)


def test_the_dockerfile_is_sound() -> None:
    """hadolint has nothing to say. The image is not built here. decision"""
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, TEMPLATE / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_compose_sets_is_what_is_read() -> None:
    """No variable that nobody reads. decision"""
    compose = yaml.safe_load((TEMPLATE / "compose.yaml").read_text())
    variables = set(compose["services"]["desk"]["environment"])
    source = (TEMPLATE / "service" / "settings.py").read_text()
    for name in variables:
        known = name.removesuffix("_FILE") in source
        assert (
            known
            or name.startswith(("OTEL_", "FASTAPI_OTEL_"))
            or name
            in (
                "FORWARDED_ALLOW_IPS",
                "WEB_CONCURRENCY",
            )
        )
    assert set(compose["secrets"]) == {"api_keys", "state_keys"}
