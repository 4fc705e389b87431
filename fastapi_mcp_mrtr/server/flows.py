"""One round of one flow: open its state, run the handler, seal the next state.

Knows no method and what becomes of a result.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, TOO_MANY_ROUNDS, MCPError
from fastapi_mcp_mrtr.protocol.canonical import digest
from fastapi_mcp_mrtr.rounds.engine import Completed, InputRequired
from fastapi_mcp_mrtr.rounds.journal import Journal
from fastapi_mcp_mrtr.state.security import FlowState, RequestBinding, StateSecurity

from .calls import Call
from .context import Client, Context
from .failures import InvalidArguments
from .registry import Entry
from .telemetry import round_span


@dataclass(frozen=True, slots=True)
class Defaults:
    """The router's settings that handlers may override."""

    ttl: float
    flow_lifetime: float
    max_rounds: int


class Flows:
    """Runs rounds. Holds settings only: what a flow has come to travels in its state."""

    def __init__(
        self, security: StateSecurity, defaults: Defaults, clock: Callable[[], float]
    ) -> None:
        self._security = security
        self._defaults = defaults
        self.clock = clock

    async def run(
        self, call: Call, entry: Entry, arguments: dict[str, Any], target: str
    ) -> Completed | dict[str, Any]:
        """Run one round of a handler: what it completed with, or an `InputRequiredResult`.

        `target` is the name or URI that the state is bound to.

        Raises:
            MCPError: the state is refused, or an answer is none.
            InvalidArguments: the arguments do not fit the handler.
            Exception: what the handler or a dependency raised.
        """
        params = call.message.params
        responses = params.get("inputResponses")
        if responses is not None and not isinstance(responses, dict):
            raise MCPError(INVALID_PARAMS, "inputResponses must be an object")
        token = params.get("requestState")
        now = self.clock()
        binding: RequestBinding | None = None
        if token is None:
            flow = FlowState(flow_id=secrets.token_hex(16), round=0, started=now, journal=Journal())
        else:
            binding = _binding(call, entry, arguments, target)
            flow = self._security.unseal(token, binding, now=now)
        signature = entry.signature
        try:
            values = signature.arguments.validate(arguments)
        except ValidationError as error:
            raise InvalidArguments(error) from None
        if signature.context_parameter is not None:
            values[signature.context_parameter] = _context(call, flow)
        with round_span(call.message, entry.name, flow):
            outcome = await call.run(
                signature,
                values,
                flow.journal,
                responses,
                accept_unasked=entry.settings.unasked_answers == "accept",
            )
        if isinstance(outcome, Completed):
            return outcome
        binding = binding or _binding(call, entry, arguments, target)
        return self._suspend(entry, flow, outcome, binding, now)

    def _suspend(
        self,
        entry: Entry,
        flow: FlowState,
        outcome: InputRequired,
        binding: RequestBinding,
        now: float,
    ) -> dict[str, Any]:
        """The members of the `InputRequiredResult` of a round that asks (basic/patterns/mrtr)."""
        settings, defaults = entry.settings, self._defaults
        # A round that only waits (`not_yet`) asks nothing; `flow_lifetime` bounds those.
        asked = flow.asked + bool(outcome.requests)
        if asked > (settings.max_rounds or defaults.max_rounds):
            raise MCPError(TOO_MANY_ROUNDS, "This call asked too many times")
        next_flow = FlowState(
            flow_id=flow.flow_id,
            round=flow.round + 1,
            asked=asked,
            started=flow.started,
            journal=outcome.journal,
        )
        token = self._security.seal(
            next_flow,
            binding,
            now=now,
            ttl=settings.ttl or defaults.ttl,
            flow_lifetime=defaults.flow_lifetime,
        )
        asks: Mapping[str, Any] = {"inputRequests": outcome.requests} if outcome.requests else {}
        return {"resultType": "input_required", **asks, "requestState": token}


def _binding(call: Call, entry: Entry, arguments: Any, target: str) -> RequestBinding:
    """What a state is bound to: this caller, this request, this version of the handler."""
    return RequestBinding(
        method=call.message.method,
        target=target,
        arguments_digest=digest(arguments),
        principal=call.principal_key,
        version=entry.settings.version,
    )


def _context(call: Call, flow: FlowState) -> Context:
    meta = call.message.meta
    return Context(
        client=Client(meta.protocol_version, meta.client_capabilities, meta.client_info),
        principal=call.principal,
        principal_key=call.principal_key.decode(),
        round=flow.round + 1,
        flow_id=flow.flow_id,
        emit=call.emit,
    )
