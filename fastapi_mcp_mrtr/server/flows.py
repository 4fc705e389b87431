"""One round of one flow: open its state, run the handler, seal the next state.

Knows no method and what becomes of a result.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, TOO_MANY_ROUNDS, MCPError
from fastapi_mcp_mrtr.protocol.canonical import digest
from fastapi_mcp_mrtr.rounds.engine import Completed, InputRequired
from fastapi_mcp_mrtr.rounds.journal import Journal
from fastapi_mcp_mrtr.state.security import FlowState, RequestBinding, StateSecurity

from .calls import Call
from .context import Client, Context
from .dialogue import Dialogue
from .failures import InvalidArguments
from .registry import Entry
from .single_use import IDEMPOTENCY_KEY, Presentation, Produce, SingleUse
from .telemetry import round_span

_NOTHING_YET: Final = Journal()
"""The journal of a flow that begins. A round writes into a copy."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The router's settings that handlers may override."""

    ttl: float
    flow_lifetime: float
    max_rounds: int
    single_use: bool
    ask_timeout: float = 600.0


@dataclass(slots=True)
class Round:
    """One round of a flow that is about to run, its state opened and its request checked."""

    call: Call
    entry: Entry
    arguments: dict[str, Any]
    values: dict[str, Any]
    """The arguments as the handler takes them."""
    target: str
    flow: FlowState
    responses: Mapping[str, Any] | None
    now: float
    binding: RequestBinding | None
    presented: Presentation | None
    """What the ledger knows it by; `None` where it may be presented again."""


class Flows:
    """Runs rounds. Holds settings only: what a flow has come to travels in its state."""

    def __init__(
        self,
        security: StateSecurity,
        defaults: Defaults,
        single_use: SingleUse | None,
        clock: Callable[[], float],
    ) -> None:
        self._security = security
        self._defaults = defaults
        self._single_use = single_use
        self.clock = clock

    def open(self, call: Call, entry: Entry, arguments: dict[str, Any], target: str) -> Round:
        """Open the state a request brings, or begin a flow. `target` is its name or URI.

        Raises:
            MCPError: the state is refused, or there are answers of another shape.
            InvalidArguments: the arguments do not fit the handler.
        """
        params = call.message.params
        responses = params.get("inputResponses")
        if responses is not None and not isinstance(responses, dict):
            raise MCPError(INVALID_PARAMS, "inputResponses must be an object")
        token = params.get("requestState")
        now = self.clock()
        once = self._once(entry)
        key = None if once is None else call.message.meta.raw.get(IDEMPOTENCY_KEY)
        binding: RequestBinding | None = None
        presented: Presentation | None = None
        if token is not None:
            binding = _binding(call, entry, arguments, target)
            flow = self._security.unseal(token, binding, now=now)
            if once is not None:
                presented = once.later(flow, token, responses)
        else:
            flow = FlowState(
                flow_id=os.urandom(16).hex(), round=0, started=now, journal=_NOTHING_YET
            )
            if once is not None and key is not None:
                binding = _binding(call, entry, arguments, target)
                presented = once.first(key, binding, responses)
                flow = replace(flow, flow_id=presented.flow)
        try:
            # Before it is claimed: who sends other arguments instead is not refused.
            values = entry.signature.arguments.validate(arguments)
        except ValidationError as error:
            raise InvalidArguments(error) from None
        return Round(
            call, entry, arguments, values, target, flow, responses, now, binding, presented
        )

    def describe(self, token: object, principal_key: bytes) -> dict[str, Any]:
        """What a `requestState` of this principal says. Raises: RequestStateError."""
        return {**self._security.describe(token, principal_key), "now": self.clock()}

    def ask_timeout(self, entry: Entry | None) -> float:
        """Seconds in which an older client has to answer: a state that expired is good no more."""
        defaults = self._defaults
        settings = entry.settings if entry is not None else None
        timeout = (settings and settings.ask_timeout) or defaults.ask_timeout
        return min(timeout, (settings and settings.ttl) or defaults.ttl)

    def dialogue(self, call: Call, entry: Entry, target: str) -> Dialogue | None:
        """What a call was answered when it was made before; None if it cannot be made again.

        Raises:
            MCPError: -32602, its idempotency key is none.
        """
        once = self._once(entry)
        key = call.message.meta.raw.get(IDEMPOTENCY_KEY)
        if once is None or key is None:
            return None
        flow = once.first(key, _binding(call, entry, None, target), None).flow
        # No state of the flow is good for longer.
        return Dialogue(once, flow, ttl=self._defaults.flow_lifetime)

    def _once(self, entry: Entry) -> SingleUse | None:
        own = entry.settings.single_use
        return self._single_use if (self._defaults.single_use if own is None else own) else None

    async def answer(self, round: Round, produce: Produce) -> bytes:
        """What `produce` makes of the round: once, however often it comes, under `single_use`.

        Raises:
            MCPError: the state was used already, or the ledger cannot be reached.
            Exception: what `produce` raised.
        """
        if round.presented is None or self._single_use is None:
            result = await produce()
            await round.call.commit()
            return result
        ttl = round.entry.settings.ttl or self._defaults.ttl
        # The state that was presented may have been given another time to live.
        ttl = max(ttl, round.flow.expires - round.now)
        return await self._single_use.run(round.presented, round.call, produce, ttl=ttl)

    async def run(self, round: Round) -> Completed | dict[str, Any]:
        """Run a round: what its handler completed with, or an `InputRequiredResult`.

        Raises:
            MCPError: an answer is none, or the client cannot be asked.
            Exception: what the handler or a dependency raised.
        """
        call, entry, flow, values = round.call, round.entry, round.flow, round.values
        signature = entry.signature
        if signature.context_parameter is not None:
            values[signature.context_parameter] = _context(call, flow)
        with round_span(call.message, entry.name, flow):
            outcome = await call.run(
                signature,
                values,
                flow.journal,
                round.responses,
                accept_unasked=entry.settings.unasked_answers == "accept",
            )
        if isinstance(outcome, Completed):
            return outcome
        binding = round.binding or _binding(call, entry, round.arguments, round.target)
        return self._suspend(entry, flow, outcome, binding, round.now)

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
    # A path parameter of the prefix, such as a tenant, is as much an argument as the others.
    path = call.dependencies.request.scope.get("path_params")
    return RequestBinding(
        method=call.message.method,
        target=target,
        arguments_digest=digest([arguments, path] if path else arguments),
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
        is_takeover=call.is_takeover,
        on_commit=call.on_commit,
    )
