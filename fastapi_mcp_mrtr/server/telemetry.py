"""OpenTelemetry: one span a round, its parent from the request's `_meta` (basic/index §_meta)."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fastapi_mcp_mrtr.protocol.inbound import InboundRequest
from fastapi_mcp_mrtr.state.security import FlowState

_propagator: Final = TraceContextTextMapPropagator()
_NOTHING: Final[AbstractContextManager[None]] = nullcontext()
_INACTIVE: Final = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
_IS_NAMED: Final = OTEL_PYTHON_TRACER_PROVIDER in os.environ
"""Whether there is a provider that is made when somebody asks for it."""
_UNKNOWN: Final = object()


def round_span(message: InboundRequest, name: str, flow: FlowState) -> AbstractContextManager[None]:
    """A server span around one round. Costs nothing while no tracer provider is configured.

    Rounds of one flow share the attribute `mcp.flow.id`; `mcp.flow.round` counts them from 1.
    """
    # While there is none, `get_tracer_provider` looks into the environment again each time.
    if not _IS_NAMED and getattr(trace, "_TRACER_PROVIDER", _UNKNOWN) is None:
        return _NOTHING
    provider = trace.get_tracer_provider()
    if isinstance(provider, _INACTIVE):
        return _NOTHING
    return _span(provider, message, name, flow)


@contextmanager
def _span(
    provider: trace.TracerProvider, message: InboundRequest, name: str, flow: FlowState
) -> Iterator[None]:
    carrier: dict[str, str] = {}
    if message.meta.traceparent is not None:
        carrier["traceparent"] = message.meta.traceparent
        if message.meta.tracestate is not None:
            carrier["tracestate"] = message.meta.tracestate
    attributes: dict[str, Any] = {
        "mcp.method.name": message.method,
        "mcp.protocol.version": message.meta.protocol_version,
        "mcp.flow.id": flow.flow_id,
        "mcp.flow.round": flow.round + 1,
    }
    tracer = provider.get_tracer("fastapi_mcp_mrtr")
    with tracer.start_as_current_span(
        f"{message.method} {name}",
        # No valid parent in `_meta`: the current span, FastAPI's, is the parent.
        context=_propagator.extract(carrier, context.get_current()),
        kind=trace.SpanKind.SERVER,
        attributes=attributes,
        # Both would write the exception's message, which may hold an answer.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Exception as error:
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
