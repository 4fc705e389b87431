"""The endpoint's routes, and how FastAPI finds them. Touches its internals, as `server.injection`
does.

FastAPI looks for a request's route twice when a router is included, and puts two exit stacks around
every handler. `MCPRoutes` and `MCPRoute` leave out what nothing here needs.
"""

import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import fastapi.routing
from fastapi import APIRouter, Request, Response

# Where an included route finds what `include_router` added to it (prefix, dependencies). Were it
# gone, going on without would lose those dependencies, so the import is to fail.
from fastapi.routing import APIRoute, iter_route_contexts, request_response
from fastapi.routing import _effective_route_context_var as _effective_route
from fastapi.routing import _get_scope_effective_route_context as _effective_route_of
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Receive, Scope, Send

from fastapi_mcp_mrtr.server.calls import ClientLeft
from fastapi_mcp_mrtr.server.injection import Dependant, keep_body

from .endpoint import Handler, MCPEndpoint
from .exchange import EXCHANGE, HTTPExchange

logger = logging.getLogger("fastapi_mcp_mrtr")

_FASTAPI: Final = "fastapi"
"""Where a scope has what FastAPI keeps about the request."""
_INCLUDED_IN: Final = getattr(fastapi.routing, "_FASTAPI_INCLUDED_ROUTER_KEY", None)
_EFFECTIVE_ROUTE: Final = getattr(fastapi.routing, "_FASTAPI_EFFECTIVE_ROUTE_CONTEXT_KEY", None)
_route_selected: Final[Any] = getattr(fastapi.routing, "_route_selected", None)
"""Tells FastAPI's telemetry. A FastAPI without one of the three looks twice."""

_VERSION: Final = "_routes_version"
"""Counts the changes of a router's routes."""

_FAILED: Final = "fastapi_mcp_mrtr.failed"
_KNOWN: Final = "mcp_known"
_SELECTED: Final = "fastapi_mcp_mrtr.selected"
_CLIENT_CLOSED_REQUEST: Final = 499  # nginx's status for a client that left; nobody reads it.

_USUAL_APP: Final = f"{request_response.__qualname__}.<locals>.app"
"""What FastAPI makes of a route's handler."""


class MCPRoute(APIRoute):
    """The endpoint's route: with and without a final slash, and without FastAPI's body handling.

    `get_route_handler` is FastAPI's public hook for that; it is called for every inclusion.
    """

    methods: set[str]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        if match is Match.NONE and scope["type"] == "http":
            match, child_scope = self._matches_other(scope)
        context, included_in = _effective_route_of(scope), _included_in(scope)
        is_known = context is not None and included_in is not None and _route_selected is not None
        if is_known and match is Match.FULL:
            place = scope["method"], scope["path"]
            scope[_SELECTED] = _Selected(*place, self, context, included_in, child_scope)
        return match, child_scope

    def _matches_other(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"]
        # A redirect would make clients drop the body or their Authorization header.
        other = path[:-1] if path.endswith("/") else path + "/"
        return super().matches({**scope, "path": other})

    def get_route_handler(self) -> Any:
        endpoint: MCPEndpoint = self.endpoint.mcp_endpoint  # type: ignore[attr-defined]
        serve = None if "POST" in self.methods else endpoint.serve_session
        handler = endpoint.handler(*effective_parts(self), serve)
        keep_handler(self, handler)
        return partial(_answer_by_way_of_fastapi, handler)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in self.methods:
            await self._refuse(scope, receive, send)
            return
        exchange = scope[EXCHANGE] = HTTPExchange(receive, send)
        try:
            handler = kept_handler(self, scope)
            if handler is None or not await _answer(handler, scope, receive, send):
                await super().handle(scope, receive, send)
        except (ClientDisconnect, ClientLeft) as left:
            reason = exchange.reason or (repr(left.__cause__) if left.__cause__ else None)
            why = f" ({reason})" if reason else ""
            logger.info("The connection closed before the response was complete%s", why)
            if not exchange.is_streaming:
                # Middleware that waits for a response gets one; there is nobody to read it.
                await Response(status_code=_CLIENT_CLOSED_REQUEST)(scope, receive, send)
        finally:
            # The server's `receive` may refer to the scope: a cycle, if it stayed.
            scope.pop(EXCHANGE, None)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint: MCPEndpoint = self.endpoint.mcp_endpoint  # type: ignore[attr-defined]
        served = ", ".join(endpoint.methods)
        if scope["method"] == "OPTIONS":  # before authentication, which preflights cannot pass
            preflight = Response(status_code=204, headers={"Allow": f"OPTIONS, {served}"})
            await preflight(scope, receive, send)
        elif "app" in scope:
            raise HTTPException(405, headers={"Allow": served})
        else:
            refusal = Response("Method Not Allowed", 405, headers={"Allow": served})
            await refusal(scope, receive, send)


async def _answer(handler: Handler, scope: Scope, receive: Receive, send: Send) -> bool:
    """Answer a request. Whether it is; if not, `_answer_by_way_of_fastapi` will raise the reason.

    Most requests take this short way. The way through FastAPI ends at the app's own answers to
    exceptions.
    """
    request = Request(scope, receive, send)
    try:
        response = await handler(request)
    except Exception as error:
        scope[_FAILED] = request, error
        return False
    await response(scope, receive, send)
    return True


async def _answer_by_way_of_fastapi(handler: Handler, request: Request) -> Response:
    failed = request.scope.pop(_FAILED, None)
    if failed is None:
        return await handler(request)
    earlier, error = failed
    keep_body(request, earlier)
    try:
        raise error
    finally:
        del failed, error  # its traceback holds this frame


class MCPRoutes(APIRouter):
    """A router whose routes FastAPI needs to look for only once where it is included.

    It asks whether one `matches`, and then has `handle` find the same one again. So what was found
    stays with the request in between; and since a path without parameters leads to the same route
    every time, it is found again at once.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether there is a route for the request, as FastAPI says or has said before."""
        scope.pop(_SELECTED, None)  # whatever was asked before, perhaps by others
        included_in = _included_in(scope)
        known: _Known | None = getattr(included_in, _KNOWN, None)
        if known is not None and known.fits(scope, self):
            scope[_SELECTED] = known.selected
            return Match.FULL, {}
        match, child_scope = super().matches(scope)
        selected: _Selected | None = scope.get(_SELECTED)
        if selected is not None and selected.fits(scope) and not child_scope["path_params"]:
            known = _Known(selected, getattr(self, _VERSION, None))
            if known.fits(scope, self):
                setattr(included_in, _KNOWN, known)
        return match, child_scope

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request over to the route, as FastAPI does once it has found it again."""
        selected: _Selected | None = scope.pop(_SELECTED, None)
        if selected is not None and selected.fits(scope):
            scope[_FASTAPI][_EFFECTIVE_ROUTE] = selected.context
            # Nobody is served without what the inclusion adds, such as authentication.
            is_there = _effective_route_of(scope) is selected.context
            if is_there:
                scope.update(selected.child_scope)
                scope["path_params"] = {**selected.child_scope["path_params"]}
                _route_selected(scope=scope, path=selected.context.path_format)
                await selected.route.handle(scope, receive, send)
                return
        await super().handle(scope, receive, send)


def _included_in(scope: Scope) -> Any:
    """Where the router is included that FastAPI is asking."""
    return scope.get(_FASTAPI, {}).get(_INCLUDED_IN)


class _Selected(NamedTuple):
    """The route that a request matches, and where it is included."""

    method: str
    path: str
    route: "MCPRoute"
    context: Any
    included_in: Any
    child_scope: Scope

    def fits(self, scope: Scope) -> bool:
        """Whether it was selected for this very place."""
        return (
            self.path == scope["path"]
            and self.method == scope.get("method")
            and self.included_in is _included_in(scope)
        )


class _Known(NamedTuple):
    """What FastAPI has selected before."""

    selected: _Selected
    version: int | None

    def fits(self, scope: Scope, router: APIRouter) -> bool:
        """Whether it would select the same again, asked where the router is included like then."""
        return (
            self.version is not None
            and self.version == getattr(router, _VERSION, None)
            and self.selected.path == scope["path"]
            and self.selected.method == scope.get("method")
            and not scope.get("root_path")
            and not scope.get("path_params")
        )


def _place(route: APIRoute, context: Any) -> Any:
    """Where FastAPI has what belongs to `route`: an inclusion's context if it is the route's, else
    the route itself."""
    return route if context is None or context.original_route is not route else context


def effective_parts(route: APIRoute) -> tuple[Dependant, Any]:
    """The dependant and the overrides provider of `route` where it is included right now.

    For use inside `APIRoute.get_route_handler`, which FastAPI calls for every inclusion.
    """
    place = _place(route, _effective_route.get())
    return place.dependant, place.dependency_overrides_provider


def keep_handler(route: APIRoute, handler: Handler) -> None:
    """Keep what answers requests of `route` where it is included right now, for `kept_handler`."""
    _place(route, _effective_route.get()).mcp_handler = handler


def kept_handler(route: APIRoute, scope: Scope) -> Handler | None:
    """What answers a request of `route` where it came in; `None` if that is not all there is to it.

    Around a handler FastAPI puts two exit stacks, which nothing here uses, and the app's answers to
    exceptions. If it puts more, such as a limit for bodies, that is to stay.
    """
    place = _place(route, _effective_route_of(scope))
    if getattr(place.app, "__qualname__", None) != _USUAL_APP:
        return None
    handler: Handler = place.mcp_handler
    return handler


def iter_endpoints(app: Any) -> Iterator[tuple[str, Callable[..., Awaitable[Any]]]]:
    """Every path and endpoint of an app, those of included routers and mounted sub-apps too."""
    routes: Sequence[BaseRoute] = getattr(app, "routes", ())
    for context in iter_route_contexts(routes):
        route = context.original_route
        if isinstance(route, Mount):
            for path, endpoint in iter_endpoints(route.app):
                yield (context.path or "") + path, endpoint
        elif context.path is not None and context.endpoint is not None:
            yield context.path, context.endpoint


class DocumentedRoute(APIRoute):
    """A route for OpenAPI alone: it never matches."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Match.NONE, {}


class DocumentedRoutes(APIRouter):
    """Routes for OpenAPI alone: made by `build` when a document is, and never matched.

    FastAPI walks through all routes whenever a router is included, which is not to cost the app's
    start; and it counts versions of them, on every request too, which is not to cost calls. So
    there are none until an app asks for the version, as it does before it makes the document.
    """

    def __init__(self, build: Callable[[], Iterable[BaseRoute]]) -> None:
        self._build = build
        self._numbers = itertools.count(1)
        self._number = 0
        self._wanted = False
        self._built: tuple[int, list[BaseRoute]] = (0, [])
        super().__init__()

    def changed(self) -> None:
        """Have the routes made anew. Callable from any thread."""
        self._number = next(self._numbers)

    def _get_routes_version(self, seen: set[int] | None = None) -> int:
        # `seen` has the routers above: the one this is part of, and what that is included in.
        if not self._wanted and seen is not None and len(seen) > 1:
            self._wanted = True
            self.changed()
        return self._number

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """No path. A request for `/mcp%23tool=x` would find the route of `/mcp#tool=x`."""
        return Match.NONE, {}

    @property
    def routes(self) -> list[BaseRoute]:
        number = self._number
        if self._wanted and self._built[0] != number:
            self._built = (number, list(self._build()))
        return self._built[1]

    @routes.setter
    def routes(self, routes: list[BaseRoute]) -> None:
        """What Starlette's constructor sets: none."""
