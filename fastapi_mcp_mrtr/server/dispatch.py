"""Answer one classified request. Knows no HTTP: status codes and streams belong to the shell."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from fastapi_mcp_mrtr.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    TOO_MANY_ROUNDS,
    MCPError,
    ToolError,
)
from fastapi_mcp_mrtr.protocol.canonical import digest
from fastapi_mcp_mrtr.protocol.headers import check_param_headers
from fastapi_mcp_mrtr.rounds.engine import Completed, InputRequired, Outcome, run_round
from fastapi_mcp_mrtr.rounds.journal import Journal
from fastapi_mcp_mrtr.state.security import FlowState, RequestBinding, StateSecurity

from .calls import Call, protocol_error, translate
from .context import Client, Context
from .injection import DependencyScope
from .listing import Listings
from .registry import Entry, PromptEntry, Registry, ResourceEntry
from .results import render_completion, render_prompt, render_resource, tool_error
from .subscriptions import Bus, Subscription, parse_filter
from .telemetry import round_span

logger = logging.getLogger("fastapi_mcp_mrtr")

Answer = dict[str, Any] | bytes | Subscription
"""The result of a request: its members, or their JSON, or a subscription to stream."""

SUPPORTED_VERSIONS: Final = ("2026-07-28",)


@dataclass(frozen=True, slots=True)
class Defaults:
    """The router's settings that handlers may override."""

    ttl: float
    flow_lifetime: float
    max_rounds: int


class _RoundSuspended(BaseException):
    """Passes through yield-dependencies when a round ends with an ask, as `GeneratorExit` passes
    through the handler: what they hold open is rolled back, and `except Exception` stays quiet."""


class MCPServer:
    """What a server offers and how it answers: one instance per router, no state per request."""

    def __init__(
        self,
        *,
        info: Mapping[str, Any],
        instructions: str | None,
        registry: Registry,
        security: StateSecurity,
        defaults: Defaults,
        listings: Listings,
        bus: Bus,
        clock: Callable[[], float],
    ) -> None:
        self.meta: Final = {"io.modelcontextprotocol/serverInfo": dict(info)}
        """The `_meta` of every result: who answered (basic/index §_meta)."""
        self._instructions = instructions
        self._registry = registry
        self._security = security
        self._defaults = defaults
        self._listings = listings
        self._bus = bus
        self.clock = clock

    async def answer(self, call: Call) -> Answer:
        """Serve a request.

        Raises:
            MCPError: the error to answer with.
            Exception: what a dependency raised, for FastAPI's exception handlers.
        """
        method = _METHODS.get(call.message.method)
        if method is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found")
        return await method(self, call)

    def _complete(self, members: dict[str, Any]) -> dict[str, Any]:
        """A final result: `resultType` and who answered (basic/index §Result Responses)."""
        meta = members.get("_meta")
        members["resultType"] = "complete"
        members["_meta"] = {**self.meta, **meta} if meta else self.meta
        return members

    async def _discover(self, call: Call) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"logging": {}}
        offered = self._registry.ever
        if "tools" in offered:
            capabilities["tools"] = {"listChanged": True}
        if "prompts" in offered:
            capabilities["prompts"] = {"listChanged": True}
        if "resources" in offered:
            capabilities["resources"] = {"listChanged": True, "subscribe": True}
        if offered & {"prompts", "resources"}:
            capabilities["completions"] = {}
        result: dict[str, Any] = {
            "supportedVersions": list(SUPPORTED_VERSIONS),
            "capabilities": capabilities,
            **self._listings.caching,
        }
        if self._instructions is not None:
            result["instructions"] = self._instructions
        return self._complete(result)

    async def _list(self, call: Call) -> bytes:
        return self._listings.page(call.message.method, call.message.params, self.meta)

    async def _call_tool(self, call: Call) -> dict[str, Any]:
        params = call.message.params
        name = _text_member(params, "name")
        entry = self._registry.tools.get(name)
        if entry is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {name[:128]}")
        arguments = _object_member(params, "arguments")
        signature = entry.signature
        if signature.param_headers:
            check_param_headers(call.headers, signature.param_headers, arguments)
        try:
            outcome = await self._run(call, entry, arguments, name)
            if isinstance(outcome, dict):
                return outcome
            return self._complete(entry.output.render(outcome.value))
        except _DependencyFailed as failed:
            raise failed.error from None
        except ValidationError as error:
            return self._complete(tool_error(_validation_text(error)))
        except Exception as error:
            known = translate(error, f"Tool {name!r}")
            if isinstance(known, ToolError):
                return self._complete(tool_error(known.message))
            raise known from None

    async def _get_prompt(self, call: Call) -> dict[str, Any]:
        params = call.message.params
        name = _text_member(params, "name")
        entry = self._registry.prompts.get(name)
        if entry is None:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name[:128]}")
        arguments = _object_member(params, "arguments")
        if not all(isinstance(value, str) for value in arguments.values()):
            raise MCPError(INVALID_PARAMS, "Prompt arguments must be strings")
        return await self._run_untyped(call, entry, arguments, name, uri=None)

    async def _run_untyped(
        self,
        call: Call,
        entry: PromptEntry | ResourceEntry,
        arguments: dict[str, Any],
        target: str,
        uri: str | None,
    ) -> dict[str, Any]:
        """A prompt or a resource: their results cannot say `isError`, so failures are errors."""
        try:
            outcome = await self._run(call, entry, arguments, target)
            if isinstance(outcome, dict):
                return outcome
            if isinstance(entry, ResourceEntry):
                result = render_resource(outcome.value, target, entry.mime_type)
                result.update(_caching(entry, call.message.params))
            else:
                result = render_prompt(outcome.value, entry.definition.get("description"))
            return self._complete(result)
        except _DependencyFailed as failed:
            raise failed.error from None
        except ValidationError as error:
            raise MCPError(INVALID_PARAMS, _validation_text(error)) from None
        except Exception as error:
            where = f"{'Prompt' if uri is None else 'Resource'} {entry.name!r}"
            raise protocol_error(error, translate(error, where), uri) from None

    async def _read_resource(self, call: Call) -> dict[str, Any]:
        uri = _text_member(call.message.params, "uri")
        match = self._registry.match_resource(uri)
        if match is None:
            # server/resources §Error Handling, with the URI as the suite and clients expect it.
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
        entry, variables = match
        return await self._run_untyped(call, entry, dict(variables), uri, uri=uri)

    async def _complete_argument(self, call: Call) -> dict[str, Any]:
        params = call.message.params
        entry = self._completed_entry(_object_member(params, "ref"))
        argument = _object_member(params, "argument")
        name, typed = _text_member(argument, "name"), _text_member(argument, "value")
        if name not in entry.signature.argument_names:
            raise MCPError(INVALID_PARAMS, f"Unknown argument: {name[:128]}")
        completer = entry.signature.completers.get(name)
        if completer is None:
            choices = entry.signature.choices.get(name, ())
            return self._complete(render_completion(c for c in choices if c.startswith(typed)))
        known = _object_member(_object_member(params, "context"), "arguments")
        offered = {"value": typed, "arguments": known}
        values = {n: v for n, v in offered.items() if n in completer.argument_names}
        scope = DependencyScope(call.dependencies.request.scope)
        solving = True
        try:
            async with scope:
                if completer.dependant is not None:
                    values.update(await call.dependencies.solve(completer.dependant))
                solving = False
                outcome = await call.exchange.guard(
                    run_round(
                        partial(completer.call, **values),
                        completer.form,
                        Journal(),
                        None,
                        host=call,
                        capabilities={},
                    )
                )
            assert isinstance(outcome, Completed)
            return self._complete(render_completion(outcome.value or ()))
        except Exception as error:
            if solving:
                raise
            raise protocol_error(error, translate(error, "Completion"), None) from None

    def _completed_entry(self, ref: Mapping[str, Any]) -> Entry:
        """The prompt or template a completion refers to (server/utilities/completion)."""
        entry: Entry | None = None
        match ref:
            case {"type": "ref/prompt", "name": str(name)}:
                entry = self._registry.prompts.get(name)
            case {"type": "ref/resource", "uri": str(uri)}:
                entry = self._registry.templates.get(uri) or self._registry.resources.get(uri)
        if entry is None:
            raise MCPError(INVALID_PARAMS, "Unknown prompt or resource template")
        return entry

    async def _listen(self, call: Call) -> Subscription:
        wanted = parse_filter(
            call.message.params,
            has_resource=lambda uri: self._registry.match_resource(uri) is not None,
            offered=self._registry.ever,
        )
        return self._bus.subscribe(call.message.id, wanted)

    async def _run(
        self, call: Call, entry: Entry, arguments: dict[str, Any], target: str
    ) -> dict[str, Any] | Completed:
        """One round of a handler: an `InputRequiredResult`, or what it completed with."""
        params = call.message.params
        responses = params.get("inputResponses")
        if responses is not None and not isinstance(responses, dict):
            raise MCPError(INVALID_PARAMS, "inputResponses must be an object")
        binding = _LazyBinding(self, call, entry, arguments, target)
        token = params.get("requestState")
        now = self.clock()
        if token is None:
            flow = FlowState(flow_id=secrets.token_hex(16), round=0, started=now, journal=Journal())
        else:
            flow = self._security.unseal(token, binding.get(), now=now)
        values = entry.signature.arguments.validate(arguments)
        with round_span(call.message, entry.name, flow):
            outcome = await self._run_handler(call, entry, dict(values), flow, responses)
        if isinstance(outcome, Completed):
            return outcome
        return self._suspend(entry, flow, outcome, binding.get(), now)

    async def _run_handler(
        self,
        call: Call,
        entry: Entry,
        values: dict[str, Any],
        flow: FlowState,
        responses: Mapping[str, Any] | None,
    ) -> Outcome:
        """Solve the handler's dependencies and run it, all within their lifetime."""
        signature = entry.signature
        if signature.context_parameter is not None:
            values[signature.context_parameter] = self._context(call, flow)
        if signature.dependant is None:
            return await self._round(call, entry, values, flow, responses)
        solving = True
        outcome: Outcome | None = None
        try:
            async with DependencyScope(call.dependencies.request.scope):
                values.update(await call.dependencies.solve(signature.dependant))
                solving = False
                outcome = await self._round(call, entry, values, flow, responses)
                if isinstance(outcome, InputRequired):
                    raise _RoundSuspended
        except _RoundSuspended:
            pass
        except Exception as error:
            if solving:
                raise _DependencyFailed(error) from None
            raise
        if outcome is None:
            # A yield-dependency swallowed the handler's exception, as FastAPI forbids too.
            raise RuntimeError(
                "A dependency with yield caught an exception and did not raise again"
            )
        return outcome

    async def _round(
        self,
        call: Call,
        entry: Entry,
        values: dict[str, Any],
        flow: FlowState,
        responses: Mapping[str, Any] | None,
    ) -> Outcome:
        return await call.exchange.guard(
            run_round(
                partial(entry.signature.call, **values),
                entry.signature.form,
                flow.journal,
                responses,
                host=call,
                capabilities=call.message.meta.client_capabilities,
                accept_unasked=entry.settings.unasked_answers == "accept",
            )
        )

    def _context(self, call: Call, flow: FlowState) -> Context:
        meta = call.message.meta
        return Context(
            client=Client(meta.protocol_version, meta.client_capabilities, meta.client_info),
            principal=call.principal,
            principal_key=call.principal_key.decode(),
            round=flow.round + 1,
            flow_id=flow.flow_id,
            emit=call.emit,
        )

    def _suspend(
        self,
        entry: Entry,
        flow: FlowState,
        outcome: InputRequired,
        binding: RequestBinding,
        now: float,
    ) -> dict[str, Any]:
        """The `InputRequiredResult` of a round that asks (basic/patterns/mrtr)."""
        settings, defaults = entry.settings, self._defaults
        waiting = not outcome.requests
        asked = flow.asked + (not waiting)
        if asked >= (settings.max_rounds or defaults.max_rounds):
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
        asks = {} if waiting else {"inputRequests": outcome.requests}
        return {
            "resultType": "input_required",
            **asks,
            "requestState": token,
            "_meta": self.meta,
        }

    def binding(self, call: Call, entry: Entry, arguments: Any, target: str) -> RequestBinding:
        """What a state is bound to: this caller, this request, this version of the handler."""
        return RequestBinding(
            method=call.message.method,
            target=target,
            arguments_digest=digest(arguments),
            principal=call.principal_key,
            version=entry.settings.version,
        )


class _DependencyFailed(Exception):
    """Carries what a dependency raised past the handler's own error translation."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _LazyBinding:
    """Digests the arguments only for calls that have or get a state."""

    __slots__ = ("_arguments", "_binding")

    def __init__(self, server: MCPServer, *arguments: Any) -> None:
        self._arguments = (server, *arguments)
        self._binding: RequestBinding | None = None

    def get(self) -> RequestBinding:
        if self._binding is None:
            server, *arguments = self._arguments
            self._binding = server.binding(*arguments)
        return self._binding


def _caching(entry: ResourceEntry, params: Mapping[str, Any]) -> dict[str, Any]:
    """The caching hints of a read (server/utilities/caching).

    The schema requires them on every complete result, so a result that used answers, which must
    not be cached, is said to be stale at once and private.
    """
    if params.get("requestState") is not None or params.get("inputResponses") is not None:
        return {"ttlMs": 0, "cacheScope": "private"}
    return {"ttlMs": entry.cache_ttl_ms, "cacheScope": entry.cache_scope}


def _text_member(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise MCPError(INVALID_PARAMS, f"{name} must be a string")
    return value


def _object_member(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = params.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MCPError(INVALID_PARAMS, f"{name} must be an object")
    return value


def _validation_text(error: ValidationError) -> str:
    """`row: Input should be less than or equal to 40`, a line for each problem, no values."""
    problems = (
        f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return "Invalid arguments\n" + "\n".join(problems)


_METHODS: Final[Mapping[str, Callable[[MCPServer, Call], Awaitable[Answer]]]] = {
    "server/discover": MCPServer._discover,
    "tools/list": MCPServer._list,
    "tools/call": MCPServer._call_tool,
    "prompts/list": MCPServer._list,
    "prompts/get": MCPServer._get_prompt,
    "resources/list": MCPServer._list,
    "resources/templates/list": MCPServer._list,
    "resources/read": MCPServer._read_resource,
    "completion/complete": MCPServer._complete_argument,
    "subscriptions/listen": MCPServer._listen,
}
"""The methods of revision 2026-07-28; everything else is -32601."""
