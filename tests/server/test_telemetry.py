"""telemetry: one span a round, with its parent from the client, and nothing of what was said."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fastapi_mcp_mrtr import MCPRouter, Rounds, need_input
from fastapi_mcp_mrtr.server import telemetry
from fastapi_mcp_mrtr.testing import MCPTestClient
from tests import wire

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The API lets a process set its provider once only.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def app() -> FastAPI:
    mcp = MCPRouter("s", version="1")

    @mcp.tool()
    async def ask(kind: str = "") -> Rounds[str]:
        if kind:
            raise RuntimeError("secret")
        name: str = yield need_input("name", "Name?", str)
        yield name

    @mcp.resource("fare:{code}")
    def fare(code: str) -> str:
        return code

    app = FastAPI()
    app.include_router(mcp)
    return app


def rounds(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """Our spans; FastAPI has its own around them."""
    spans = exporter.get_finished_spans()
    return [s for s in spans if (s.instrumentation_scope or s).name == "fastapi_mcp_mrtr"]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_rounds_of_one_flow_share_its_id(app: FastAPI, exporter: InMemorySpanExporter) -> None:
    """decision: one span a round, counted from 1, linked by the flow."""
    state = wire.result_of(wire.post(app, wire.call("ask")))["requestState"]
    answers = {"name": {"action": "accept", "content": {"value": "Alice"}}}
    wire.post(app, wire.call("ask", requestState=state, inputResponses=answers))
    first, second = rounds(exporter)
    assert first.name == second.name == "tools/call ask"
    assert first.kind is trace.SpanKind.SERVER
    assert attributes(first)["mcp.flow.id"] == attributes(second)["mcp.flow.id"]
    assert [attributes(span)["mcp.flow.round"] for span in (first, second)] == [1, 2]
    assert attributes(first)["mcp.method.name"] == "tools/call"
    assert attributes(first)["mcp.protocol.version"] == "2026-07-28"
    assert "Alice" not in first.to_json() + second.to_json()


def test_rounds_of_an_older_client_are_spans_too(
    app: FastAPI, exporter: InMemorySpanExporter
) -> None:
    """decision: one call of an older client is as many spans as it takes rounds, of one flow."""
    client = MCPTestClient(app, version="2025-11-25")
    client.call_tool("ask", answers={"name": "Alice"}, meta={"traceparent": PARENT})
    client.close()
    first, second = rounds(exporter)
    assert first.name == second.name == "tools/call ask"
    assert attributes(first)["mcp.flow.id"] == attributes(second)["mcp.flow.id"]
    assert [attributes(span)["mcp.flow.round"] for span in (first, second)] == [1, 2]
    assert attributes(first)["mcp.protocol.version"] == "2025-11-25"
    assert {span.parent.trace_id for span in (first, second) if span.parent} == {int(TRACE, 16)}
    assert "Alice" not in first.to_json() + second.to_json()


@pytest.mark.parametrize("state", ["k=v", None])
def test_the_parent_comes_from_the_request(
    app: FastAPI, exporter: InMemorySpanExporter, state: str | None
) -> None:
    """spec: trace context in `_meta` (basic/index §_meta)."""
    wire.post(app, wire.call("ask", traceparent=PARENT, tracestate=state))
    (span,) = rounds(exporter)
    assert span.parent is not None
    assert format(span.parent.trace_id, "032x") == TRACE
    assert format(span.parent.span_id, "016x") == SPAN
    assert span.parent.trace_state.get("k") == ("v" if state else None)


@pytest.mark.parametrize("traceparent", [None, "nonsense", "00-0-0-00", 7])
def test_without_a_valid_parent_the_servers_own_span_is_the_parent(
    app: FastAPI, exporter: InMemorySpanExporter, traceparent: Any
) -> None:
    """decision: trace context that makes no sense does not tear the trace apart."""
    tracer = trace.get_tracer_provider().get_tracer("app")

    async def traced(scope: Any, receive: Any, send: Any) -> None:
        with tracer.start_as_current_span("http"):
            await app(scope, receive, send)

    wire.post(traced, wire.call("ask", traceparent=traceparent, tracestate="k=v"))
    (span,) = rounds(exporter)
    around = {s.context.span_id for s in exporter.get_finished_spans() if s.context}
    assert span.parent is not None
    assert span.parent.span_id in around


def test_a_failure_is_a_status_without_its_text(
    app: FastAPI, exporter: InMemorySpanExporter
) -> None:
    """decision: an exception's message may hold an answer; its type is enough."""
    wire.post(app, wire.call("ask", {"kind": "x"}))
    (span,) = rounds(exporter)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "RuntimeError"
    assert span.events == ()
    assert "secret" not in span.to_json()


def test_a_resource_is_named_by_its_template(app: FastAPI, exporter: InMemorySpanExporter) -> None:
    """decision: few names for many URIs."""
    wire.post(app, wire.message("resources/read", {"uri": "fare:secret"}))
    (span,) = rounds(exporter)
    assert span.name == "resources/read fare:{code}"


def test_without_a_provider_there_is_no_span_to_pay_for(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: one span a round costs nothing where nobody collects them."""

    def never(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(telemetry, "_span", never)
    for provider in (None, trace.ProxyTracerProvider(), trace.NoOpTracerProvider()):
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        assert "requestState" in wire.result_of(wire.post(app, wire.call("ask")))


@pytest.mark.parametrize("where", ["environment", "another API"])
def test_a_provider_that_nobody_set_is_still_found(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """decision: named in the environment, it is loaded when first asked for; and an
    opentelemetry that keeps it elsewhere is asked as well."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    if where == "environment":
        monkeypatch.setattr(telemetry, "_IS_NAMED", True)
    else:
        monkeypatch.delattr(trace, "_TRACER_PROVIDER")
    wire.post(app, wire.call("ask"))
    assert len(rounds(exporter)) == 1
    provider.shutdown()
