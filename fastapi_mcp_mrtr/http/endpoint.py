"""The MCP endpoint: one request from its headers to its response, in a fixed order.

Origin (403) → principal (401) → media type (415) and size (413) → message (400) → the server.
What is decided before the first byte keeps its HTTP status. Knows no handler.
"""

import inspect
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from fastapi_mcp_mrtr.auth.challenges import ChallengeError, augment_challenge
from fastapi_mcp_mrtr.auth.principal import principal_key_bytes
from fastapi_mcp_mrtr.auth.resource import OPERATION_SCOPES, ProtectedResource
from fastapi_mcp_mrtr.errors import INVALID_REQUEST, SERVER_STOPPED, MCPError
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.protocol.inbound import (
    InboundNotification,
    InboundRequest,
    classify,
    id_of,
)
from fastapi_mcp_mrtr.protocol.jsonrpc import encode_error, encode_result, http_status
from fastapi_mcp_mrtr.server.calls import Call
from fastapi_mcp_mrtr.server.dispatch import LATEST, MCPServer
from fastapi_mcp_mrtr.server.failures import internal_error
from fastapi_mcp_mrtr.server.injection import (
    Dependant,
    RequestDependencies,
    Tree,
    hide_authorization,
    read_body,
)
from fastapi_mcp_mrtr.server.older.bridge import Caller
from fastapi_mcp_mrtr.server.subscriptions import Subscription

from .arrival import Arrival
from .exchange import EXCHANGE, AlreadySent, HTTPExchange, JSONBytes, StreamSettings
from .origin import OriginPolicy

if TYPE_CHECKING:
    from .older import OlderEndpoint

logger = logging.getLogger("fastapi_mcp_mrtr")

_SUBSCRIPTION_SECONDS: Final = 86_400.0  # a day; the event loop's timers take no infinity
_STOPPED: Final = "The server stopped before the call was complete"
_ACCEPT: Final = b"application/json, text/event-stream"  # as the spec's example and most clients
_VERSION: Final = b"mcp-protocol-version"
_LATEST: Final = LATEST.encode()
_STREAM_TYPES: Final = frozenset({"text/event-stream", "text/*", "*/*"})


Sent = list[tuple[bytes, bytes]]
"""The headers of a request as they came, with its credentials."""

Handler = Callable[[Request], Awaitable[Response]]
"""What answers a request."""


@dataclass(slots=True)  # not frozen: there is one for each call, and that would take longer
class Authenticated:
    """A request of which it is known whose it is, and what it takes to ask that again."""

    headers: RequestHeaders
    principal: Any
    dependencies: RequestDependencies
    tree: Tree
    sent: Sent


Serve = Callable[[Authenticated], Awaitable[Response]]
"""What answers a request that is let in."""


class MCPEndpoint:
    """Answers the requests of one router. Holds settings only, nothing about a request."""

    def __init__(
        self,
        *,
        server: MCPServer,
        origins: OriginPolicy,
        streams: StreamSettings,
        max_body_size: int,
        principal_key: Callable[[Any], Any] | None,
        resource: ProtectedResource | None,
        metadata_url: str | None,
        older: "OlderEndpoint | None" = None,
    ) -> None:
        self._server = server
        self._older = older
        self._origins = origins
        self._streams = streams
        self._max_body_size = max_body_size
        self._principal_key = principal_key
        self._resource = resource
        self._metadata_url = metadata_url
        self._anonymous = principal_key_bytes(None)
        self._paths: set[str] = set()

    @property
    def methods(self) -> tuple[str, ...]:
        """The HTTP methods that are served."""
        return ("POST",) if self._older is None else ("DELETE", "GET", "POST")

    def handler(
        self, dependant: Dependant, overrides_provider: Any, serve: Serve | None = None
    ) -> Handler:
        """What answers requests where the route is included with these dependencies.

        `serve` answers those that are authenticated; by default, what is posted.
        """
        serve = serve or self._serve
        tree = Tree(dependant)
        solves = not tree.is_empty
        path = dependant.path or "/"
        if overrides_provider is not None:  # it is in an app, so no prefix is still to come
            self._warn_of_other_resource(path)

        async def handle(request: Request) -> Response:
            sent: Sent = request.scope["headers"]
            headers = RequestHeaders.read(sent)
            refusal = self._origins.refusal(headers)
            if refusal is not None:
                return JSONBytes(encode_error(None, INVALID_REQUEST, refusal), 403)
            try:
                async with RequestDependencies(request, path, overrides_provider) as dependencies:
                    principal = None
                    if solves:
                        principal = await self._authenticate(headers, dependencies, tree)
                    response = await serve(
                        Authenticated(headers, principal, dependencies, tree, sent)
                    )
            except ChallengeError as challenge:
                return challenge.response()
            except HTTPException as raised:
                raise augment_challenge(raised, self._metadata_url) from None
            carry_over_headers(dependencies, response)
            response.background = dependencies.background
            return response

        return handle

    def operation_scopes(self, request: Request) -> tuple[str, ...]:
        """What the handler needs that the headers name, before the body says the same."""
        headers = RequestHeaders.read(request.scope["headers"])
        try:
            name = headers.require_decoded("Mcp-Name")
        except MCPError:
            return ()
        return self._server.scopes_of(headers.mcp_method, name)

    async def _authenticate(
        self, headers: RequestHeaders, dependencies: RequestDependencies, tree: Tree
    ) -> Any:
        """Solve the route's dependencies, the principal among them."""
        if headers.mcp_method != "subscriptions/listen":
            values = await dependencies.solve(tree)
        else:
            # A subscription lasts for hours; what its dependencies hold open must not.
            async with dependencies:
                values = await dependencies.solve(tree)
        if self._resource is not None:
            # Handlers get what the token says, never the token: nobody can pass it on.
            hide_authorization(dependencies.request)
            headers.forget("authorization")
        return values.get("principal")

    def _warn_of_other_resource(self, path: str) -> None:
        """Say so at start-up if clients will not find the resource where they call."""
        if self._resource is None or path in self._paths:
            return
        self._paths.add(path)  # FastAPI asks again whenever routes change
        if not self._resource.resource_path.rstrip("/").endswith(path.rstrip("/")):
            logger.warning(
                "The endpoint is at %s, but ProtectedResource(resource=%r) does not end in that "
                "path: clients compare the two and refuse",
                path,
                self._resource.resource,
            )

    async def _serve(self, request: Authenticated) -> Response:
        headers, dependencies = request.headers, request.dependencies
        if not _is_json(headers):
            message = "Content-Type must be application/json"
            return JSONBytes(encode_error(None, INVALID_REQUEST, message), 415)
        body = None
        if not headers.announces_more_than(self._max_body_size):
            body = await read_body(dependencies.request, self._max_body_size)
        if body is None:
            message = f"The body is larger than {self._max_body_size} bytes"
            return JSONBytes(encode_error(None, INVALID_REQUEST, message), 413)
        is_latest = headers.has(_VERSION, _LATEST) or headers.protocol_version == LATEST
        if self._older is not None and not is_latest:
            message = self._older.message(headers, body)
            if message is not None:
                arrival = self._arrival(request, message)
                return (
                    arrival
                    if isinstance(arrival, Response)
                    else await self._older.post(arrival, message)
                )
        match classify(headers, body, supported=self._server.versions):
            case InboundRequest() as message_in:
                try:
                    key = self.key_of(request.principal)
                except Exception as error:
                    return JSONBytes(
                        _internal_error(message_in.id, error, "Identifying the principal")
                    )
                exchange: HTTPExchange = dependencies.request.scope[EXCHANGE]
                if takes_stream(headers):
                    exchange.may_stream(partial(self._stream, dependencies))
                call = Call(
                    message=message_in,
                    headers=headers,
                    principal=request.principal,
                    principal_key=key,
                    dependencies=dependencies,
                    exchange=exchange,
                )
                return await self._respond(call, exchange)
            case InboundNotification():
                return Response(status_code=202)
            case no:
                return JSONBytes(encode_error(no.id, no.code, no.message, no.data), no.status)

    async def serve_session(self, request: Authenticated) -> Response:
        """Answer a GET or a DELETE, which only older clients send."""
        assert self._older is not None
        arrival = self._arrival(request)
        if isinstance(arrival, Response):
            return arrival
        is_get = request.dependencies.request.method == "GET"
        return await (self._older.get(arrival) if is_get else self._older.delete(arrival))

    def _arrival(self, request: Authenticated, message: Any = None) -> Arrival | Response:
        """A request for the endpoint of older clients; or the error, if nobody can say whose."""
        try:
            key = self.key_of(request.principal)
        except Exception as error:
            request_id = id_of(message)
            body = _internal_error(request_id, error, "Identifying the principal")
            return JSONBytes(body, 500 if request_id is None else 200)

        headers, dependencies = request.headers, request.dependencies

        @asynccontextmanager
        async def again() -> AsyncIterator[Caller]:
            async with dependencies.renewed(request.sent) as renewed:
                principal = None
                if not request.tree.is_empty:
                    principal = await self._authenticate(headers, renewed, request.tree)
                yield Caller(principal, self.key_of(principal), renewed)

        caller = Caller(request.principal, key, dependencies)
        return Arrival(headers, caller, dependencies.request.scope[EXCHANGE], again)

    def key_of(self, principal: Any) -> bytes:
        """What identifies a principal. Raises: what `principal_key` does."""
        if principal is None:
            return self._anonymous
        return principal_key_bytes(principal, self._principal_key)

    async def _respond(self, call: Call, exchange: HTTPExchange) -> Response:
        request_id = call.message.id
        status = 200
        try:
            result = await self._server.answer(call)
            if isinstance(result, Subscription):
                return self._subscribe(result, call)
            body = encode_result(request_id, result)
        except ChallengeError:
            raise
        except MCPError as error:
            body = encode_error(request_id, error.code, error.message, error.data)
            status = http_status(error.code)
        except Exception as error:
            if call.dependencies.solving and app_handles(error, call.dependencies.request):
                raise
            body = _internal_error(request_id, error, call.message.method)
        except BaseException:
            await exchange.abandon(stopped(request_id))
            raise
        return AlreadySent() if await exchange.finish(body) else JSONBytes(body, status)

    def _subscribe(self, subscription: Subscription, call: Call) -> Response:
        """The open stream of `subscriptions/listen` (basic/patterns/subscriptions)."""
        if call.headers is None or not takes_stream(call.headers):
            message = "subscriptions/listen needs Accept: text/event-stream"
            return JSONBytes(encode_error(subscription.id, INVALID_REQUEST, message), 406)
        expires = self._server.expires_in(call, at_most=_SUBSCRIPTION_SECONDS)
        messages = subscription.messages(self._server.meta)
        return self._streams.until(expires, messages, subscription.close)

    def _stream(self, dependencies: RequestDependencies, events: AsyncIterator[bytes]) -> Response:
        """The response of a call that sends notifications."""
        response = self._streams.response(events)
        carry_over_headers(dependencies, response)
        return response


def endpoint_function(endpoint: MCPEndpoint, principal: Any) -> Callable[..., Awaitable[Response]]:
    """What FastAPI sees as the path operation: a request and, as a dependency, the principal."""

    async def mcp(**_: Any) -> Response:
        raise NotImplementedError  # pragma: no cover - MCPRoute answers in its place

    parameters = [_parameter("request", Request)]
    if principal is not None:
        parameters.append(_parameter("principal", Any, principal))
    mcp.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    mcp.mcp_endpoint = endpoint  # type: ignore[attr-defined]
    setattr(mcp, OPERATION_SCOPES, endpoint.operation_scopes)
    return mcp


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> Any:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _is_json(headers: RequestHeaders) -> bool:
    if headers.has(b"content-type", b"application/json"):
        return True
    return (headers.content_type or "").partition(";")[0].strip().lower() == "application/json"


def takes_stream(headers: RequestHeaders) -> bool:
    """Whether `Accept` has SSE. An absent one has not: the header is required, with both types."""
    if headers.has(b"accept", _ACCEPT):
        return True
    for media_range in (headers.accept or "").lower().split(","):
        media_type, *parameters = (part.strip() for part in media_range.split(";"))
        if media_type in _STREAM_TYPES and not any(map(_REFUSES.fullmatch, parameters)):
            return True
    return False


_REFUSES: Final = re.compile(r"q\s*=\s*0(\.0*)?")
"""The weight that means "not acceptable" (RFC 9110 §12.4.2)."""


def app_handles(error: Exception, request: Request) -> bool:
    """Whether the app has its own answer to what a dependency raised."""
    if isinstance(error, HTTPException | RequestValidationError):
        return True
    handlers, _ = request.scope.get("starlette.exception_handlers", ({}, {}))
    return any(kind in handlers for kind in type(error).__mro__)


def stopped(request_id: str | int) -> bytes:
    """The error for a streaming call that took longer than a server that stops could wait."""
    return encode_error(request_id, SERVER_STOPPED, _STOPPED)


def _internal_error(request_id: str | int | None, error: Exception, where: str) -> bytes:
    known = internal_error(error, where)
    return encode_error(request_id, known.code, known.message, known.data)


def carry_over_headers(dependencies: RequestDependencies, response: Response) -> None:
    """Headers and cookies that dependencies set on their `Response`, as FastAPI does."""
    if dependencies.response is not None:
        response.headers.raw.extend(dependencies.response.headers.raw)
