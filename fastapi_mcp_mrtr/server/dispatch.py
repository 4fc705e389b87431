"""Answer one classified request, by its method. Knows no HTTP: statuses belong to the shell."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from fastapi_mcp_mrtr.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MCPError,
    RequestStateError,
)
from fastapi_mcp_mrtr.protocol.headers import check_param_headers
from fastapi_mcp_mrtr.protocol.inbound import MODERN_VERSIONS, InboundRequest, naming_versions
from fastapi_mcp_mrtr.protocol.jsonrpc import encode
from fastapi_mcp_mrtr.protocol.older import OLDER_VERSIONS
from fastapi_mcp_mrtr.rounds.engine import Completed
from fastapi_mcp_mrtr.rounds.journal import Journal

from .access import Access, Authenticated
from .calls import Call
from .dialogue import Dialogue
from .failures import InvalidArguments, protocol_error, readable
from .flows import Flows, Round
from .listing import Listings
from .older.translate import older_implementation
from .registry import Entry, Kind, Registry, ResourceEntry, ToolEntry
from .results import render_completion, render_prompt, render_resource, tool_error
from .subscriptions import Bus, Subscription, parse_filter

E = TypeVar("E", bound=Entry)

Answer = dict[str, Any] | bytes | Subscription
"""The result of a request: its members, or their JSON, or a subscription to stream."""

LATEST: Final = MODERN_VERSIONS[0]
VERSIONS: Final = (*MODERN_VERSIONS, *OLDER_VERSIONS)
"""The protocol versions that can be served, newest first."""

_CAPABILITIES: Final[Mapping[Kind, Mapping[str, Any]]] = {
    "tools": {"tools": {"listChanged": True}},
    "prompts": {"prompts": {"listChanged": True}, "completions": {}},
    "resources": {"resources": {"listChanged": True, "subscribe": True}, "completions": {}},
}
"""What offering a kind of handler makes the server capable of (server/discover)."""


class MCPServer:
    """What a server offers and how it answers: one instance per router, no state per request."""

    def __init__(
        self,
        *,
        info: Mapping[str, Any],
        instructions: str | None,
        registry: Registry,
        flows: Flows,
        access: Access,
        listings: Listings,
        bus: Bus,
        versions: Sequence[str] = VERSIONS,
    ) -> None:
        self.versions: Final = tuple(versions)
        """The protocol versions served, newest first."""
        self.info: Final = dict(info)
        self.meta: Final = {"io.modelcontextprotocol/serverInfo": self.info}
        """The `_meta` of every result: who answered (basic/index §_meta)."""
        self._instructions = instructions
        self._registry = registry
        self._flows = flows
        self._access = access
        self._listings = listings
        self._bus = bus

    async def answer(self, call: Call) -> Answer:
        """Serve a request.

        Raises:
            MCPError: the error to answer with.
            ClientLeft: the client left; there is nobody to answer.
            Exception: what a dependency raised (`call.dependencies.solving`), for FastAPI's
                exception handlers.
        """
        method = _METHODS.get(call.message.method)
        if method is not None:
            return await method(self, call)
        if call.message.method == "initialize":
            raise naming_versions(_unknown_method(), self.versions)
        raise _unknown_method()

    def _complete(self, members: dict[str, Any]) -> dict[str, Any]:
        """A final result: `resultType` and who answered (basic/index §Result Responses)."""
        members["resultType"] = "complete"
        return self._signed(members)

    def _signed(self, members: dict[str, Any]) -> dict[str, Any]:
        meta = members.get("_meta")
        members["_meta"] = {**self.meta, **meta} if meta else self.meta
        return members

    async def _discover(self, call: Call) -> dict[str, Any]:
        result: dict[str, Any] = {
            "supportedVersions": list(self.versions),
            **self.introduction(),
            **self._listings.caching,
        }
        return self._complete(result)

    def introduction(self) -> dict[str, Any]:
        """What the server can do and how to use it, as every revision has it."""
        capabilities: dict[str, Any] = {"logging": {}}
        for kind, capable in _CAPABILITIES.items():
            if kind in self._registry.ever:
                capabilities.update(capable)
        result: dict[str, Any] = {"capabilities": capabilities}
        if self._instructions is not None:
            result["instructions"] = self._instructions
        return result

    def initialization(self, version: str) -> dict[str, Any]:
        """The result of `initialize` (2025-11-25, basic/lifecycle §Initialization)."""
        info = older_implementation(self.info, version)
        return {"protocolVersion": version, "serverInfo": info, **self.introduction()}

    @property
    def kinds(self) -> Collection[Kind]:
        """The kinds of handlers whose lists may change."""
        return self._registry.ever

    def ask_timeout(self, message: InboundRequest) -> float:
        """Seconds in which what a request asks of an older client has to be answered."""
        return self._flows.ask_timeout(self._entry(message))

    def dialogue(self, call: Call) -> Dialogue | None:
        """What a call of an older client was answered when it was made before, with the same
        idempotency key; None if it cannot be made again. For one that was authorized."""
        message = call.message
        entry = self._entry(message)
        if entry is None:
            return None
        target = message.params["uri" if isinstance(entry, ResourceEntry) else "name"]
        return self._flows.dialogue(call, entry, target)

    def _entry(self, message: InboundRequest) -> Entry | None:
        """The handler that a request calls, if it calls one."""
        name, uri = message.params.get("name"), message.params.get("uri")
        match message.method:
            case "tools/call":
                return self._registry.tools.get(name) if isinstance(name, str) else None
            case "prompts/get":
                return self._registry.prompts.get(name) if isinstance(name, str) else None
            case _:
                match = self._registry.match_resource(uri) if isinstance(uri, str) else None
                return None if match is None else match[0]

    async def _list(self, call: Call) -> bytes:
        return self._listings.page(
            call.message.method,
            call.message.params,
            self.meta,
            is_hidden=lambda entry: self._access.is_hidden(call, entry),
        )

    async def _call_tool(self, call: Call) -> bytes:
        params = call.message.params
        name = _text_member(params, "name")
        entry = self._shown(call, self._registry.tools.get(name))
        if entry is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {name[:128]}")
        arguments = _object_member(params, "arguments")
        if entry.param_headers and call.headers is not None:
            check_param_headers(call.headers, entry.param_headers, arguments)
        return await self._run(call, entry, arguments, name, entry.output.render)

    async def _get_prompt(self, call: Call) -> bytes:
        params = call.message.params
        name = _text_member(params, "name")
        entry = self._shown(call, self._registry.prompts.get(name))
        if entry is None:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name[:128]}")
        arguments = _object_member(params, "arguments")
        if not all(isinstance(value, str) for value in arguments.values()):
            raise MCPError(INVALID_PARAMS, "Prompt arguments must be strings")
        description = entry.definition.get("description")
        render = partial(render_prompt, description=description)
        return await self._run(call, entry, arguments, name, render)

    async def _read_resource(self, call: Call) -> bytes:
        params = call.message.params
        uri = _text_member(params, "uri")
        match = self._registry.match_resource(uri)
        if match is None or self._shown(call, match[0]) is None:
            # server/resources §Error Handling, with the URI as the suite and clients expect it.
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
        entry, variables = match

        def render(value: Any) -> dict[str, Any]:
            return {**render_resource(value, uri, entry.mime_type), **_caching(entry, params)}

        return await self._run(call, entry, dict(variables), uri, render)

    async def _run(
        self,
        call: Call,
        entry: Entry,
        arguments: dict[str, Any],
        target: str,
        render: Callable[[Any], dict[str, Any]],
    ) -> bytes:
        """One round of a handler, from the state that a request brings to the result."""
        # Before the state is looked at and before any byte: the state is no authorization.
        self._access.authorize(call, entry)
        try:
            round = self._flows.open(call, entry, arguments, target)
            return await self._flows.answer(round, partial(self._produce, round, render))
        except (RequestStateError, InvalidArguments) as error:
            return self._failed(call, entry, target, error)

    async def _produce(self, round: Round, render: Callable[[Any], dict[str, Any]]) -> bytes:
        """Run a round; what its handler's result, its questions or its failure look like."""
        call = round.call
        try:
            outcome = await self._flows.run(round)
            if isinstance(outcome, dict):
                return encode(self._signed(outcome))
            return encode(self._complete(render(outcome.value)))
        except Exception as error:
            call.forget_commits()
            if call.dependencies.solving:
                raise
            return self._failed(call, round.entry, round.target, error)

    def _failed(self, call: Call, entry: Entry, target: str, error: Exception) -> bytes:
        """The result that a failure is, for a tool.

        Raises:
            MCPError: it is none; the results of prompts and resources cannot say `isError`.
        """
        text = readable(error) if isinstance(entry, ToolEntry) else None
        if text is not None:
            return encode(self._complete(tool_error(text)))
        uri = target if isinstance(entry, ResourceEntry) else None
        try:
            raise protocol_error(error, _where(entry, call), uri) from None
        finally:
            del error  # its traceback holds this frame

    async def _complete_argument(self, call: Call) -> dict[str, Any]:
        params = call.message.params
        entry = self._completed_entry(call, _object_member(params, "ref"))
        argument = _object_member(params, "argument")
        name, typed = _text_member(argument, "name"), _text_member(argument, "value")
        known = _object_member(_object_member(params, "context"), "arguments")
        if not all(isinstance(value, str) for value in known.values()):
            raise MCPError(INVALID_PARAMS, "context.arguments must be strings")
        signature = entry.signature
        if name not in signature.argument_names:
            raise MCPError(INVALID_PARAMS, f"Unknown argument: {name[:128]}")
        completer = signature.completers.get(name)
        if completer is None:
            choices = signature.choices.get(name, ())
            return self._complete(render_completion([c for c in choices if c.startswith(typed)]))
        offered = {"value": typed, "arguments": known}
        values = {n: v for n, v in offered.items() if n in completer.argument_names}
        try:
            outcome = await call.run(completer, values, Journal(), None)
            assert isinstance(outcome, Completed)
            return self._complete(render_completion(outcome.value))
        except Exception as error:
            if call.dependencies.solving:
                raise
            raise protocol_error(error, f"Completion of {_where(entry, call)}") from None

    def _shown(self, call: Call, entry: E | None) -> E | None:
        """The entry, unless it does not exist for this caller."""
        if entry is None or self._access.is_hidden(call, entry):
            return None
        return entry

    def _completed_entry(self, call: Call, ref: Mapping[str, Any]) -> Entry:
        """The prompt or template a completion refers to (server/utilities/completion)."""
        entry: Entry | None = None
        match ref:
            case {"type": "ref/prompt", "name": str(name)}:
                entry = self._registry.prompts.get(name)
            case {"type": "ref/resource", "uri": str(uri)}:
                entry = self._registry.templates.get(uri) or self._registry.resources.get(uri)
        entry = self._shown(call, entry)
        if entry is None:
            raise MCPError(INVALID_PARAMS, "Unknown prompt or resource template")
        self._access.authorize(call, entry)
        return entry

    def scopes_of(self, method: str | None, name: str) -> tuple[str, ...]:
        """What a challenge names for a handler; nothing, for one that may be hidden."""
        entry: Entry | None = None
        match method:
            case "tools/call":
                entry = self._registry.tools.get(name)
            case "prompts/get":
                entry = self._registry.prompts.get(name)
            case "resources/read":
                entry, _ = self._registry.match_resource(name) or (None, None)
        return () if entry is None else self._access.scopes_shown(entry)

    def expires_in(self, call: Authenticated, *, at_most: float) -> float:
        """Seconds until the access token of a request expires."""
        token = self._access.token(call)
        left = at_most if token is None else token.expires_at - self._flows.clock()
        return min(max(left, 0.0), at_most)

    def has_resource(self, call: Authenticated, uri: str) -> bool:
        """Whether there is such a resource for this caller."""
        match = self._registry.match_resource(uri)
        return match is not None and self._access.allows(call, match[0])

    async def _listen(self, call: Call) -> Subscription:
        wanted = parse_filter(
            call.message.params,
            has_resource=partial(self.has_resource, call),
            offered=self._registry.ever,
        )
        return self._bus.subscribe(call.message.id, wanted)


def _caching(entry: ResourceEntry, params: Mapping[str, Any]) -> dict[str, Any]:
    """The caching hints of a read (server/utilities/caching).

    The schema requires them on every complete result, so a result that used answers, which must
    not be cached, is said to be stale at once and private.
    """
    if params.get("requestState") is not None or params.get("inputResponses") is not None:
        return {"ttlMs": 0, "cacheScope": "private"}
    return {"ttlMs": entry.cache_ttl_ms, "cacheScope": entry.cache_scope}


def _unknown_method() -> MCPError:
    return MCPError(METHOD_NOT_FOUND, "Method not found")


def _where(entry: Entry, call: Call) -> str:
    """What the log calls a failed call. The request's id is what its client knows it by."""
    return f"{type(entry).kind} {entry.name!r} (request {str(call.message.id)[:64]!r})"


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
