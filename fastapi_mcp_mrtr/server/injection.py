"""Resolve FastAPI dependencies. The one module that touches FastAPI's internals.

`get_dependant` and `solve_dependencies` are what FastAPI itself calls for a path operation, so a
handler's dependencies behave as they do there: `dependency_overrides`, caching within the request,
sub-dependencies, `Security` scopes, yield-dependencies. Trees of nothing but plain `async def`
functions, which need little of that, are called directly. Knows nothing of MCP.
"""

import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, get_origin

from fastapi import APIRouter, Request, Response, params
from fastapi.dependencies.models import (
    Dependant,
    _get_cache_key,
    _get_oauth_scopes,
    _is_coroutine_callable,
)
from fastapi.dependencies.utils import (
    get_dependant,
    request_params_to_args,
    solve_dependencies,
)
from fastapi.exceptions import FastAPIError, RequestValidationError

# Where an included route finds what `include_router` added to it (prefix, dependencies). Were it
# gone, going on without would lose those dependencies, so the import is to fail.
from fastapi.routing import APIRoute, iter_route_contexts, request_response
from fastapi.routing import _effective_route_context_var as _effective_route
from fastapi.routing import _get_scope_effective_route_context as _effective_route_of
from fastapi.security import SecurityScopes
from pydantic import ValidationError
from starlette.background import BackgroundTasks
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Message, Scope

__all__ = [
    "Dependant",
    "Dependencies",
    "DocumentedRoutes",
    "Handler",
    "RequestDependencies",
    "Tree",
    "effective_parts",
    "is_dependency",
    "iter_endpoints",
    "keep_body",
    "keep_handler",
    "kept_handler",
    "read_body",
]

_INJECTED_TYPES: Final = (
    HTTPConnection,  # and so Request
    Response,
    BackgroundTasks,
    SecurityScopes,
)
"""Annotations that FastAPI fills by type."""

_USUAL_APP: Final = f"{request_response.__qualname__}.<locals>.app"
"""What FastAPI makes of a route's handler."""

Handler = Callable[[Request], Awaitable[Response]]

_STACK_KEYS: Final = ("fastapi_inner_astack", "fastapi_function_astack")
"""Where `solve_dependencies` looks for the exit stacks of yield-dependencies."""


def is_dependency(annotation: Any, default: Any) -> bool:
    """Whether FastAPI fills this parameter: `Depends`, `Header`, `Request` and their kin.

    Raises:
        TypeError: it asks for the request body, which here is the JSON-RPC message.
    """
    metadata = getattr(annotation, "__metadata__", ())
    for marker in (*metadata, default):
        if isinstance(marker, params.Body):
            raise TypeError(
                f"{type(marker).__name__} parameters are not available to a handler: the request "
                "body is the JSON-RPC message. Declare a plain parameter instead"
            )
        if isinstance(marker, params.Depends | params.Param):
            return True
    plain = annotation.__origin__ if metadata else annotation
    plain = get_origin(plain) or plain
    return inspect.isclass(plain) and issubclass(plain, _INJECTED_TYPES)


class Dependencies:
    """The parameters of a handler that FastAPI fills.

    Raises:
        TypeError: FastAPI cannot, or a dependency asks for the request body.
    """

    __slots__ = ("_at", "_stand_in", "scopes")

    def __init__(self, parameters: Sequence[inspect.Parameter]) -> None:
        def handler() -> None:
            """Stands in for the handler: only the signature is read."""

        handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        self._stand_in = handler
        self._at: dict[str, Tree] = {}
        try:
            self.scopes: Final = tuple(dict.fromkeys(_all_scopes(self.at("/").dependant)))
            """What `Security(..., scopes=[...])` anywhere in the tree asks for."""
        except (FastAPIError, AssertionError) as error:
            raise TypeError(f"FastAPI cannot resolve a dependency: {error}") from error

    def documented(self) -> params.Depends:
        """All of them as one dependency of a route, for its OpenAPI operation."""
        return params.Depends(self._stand_in)

    def at(self, path: str) -> "Tree":
        """What there is to solve where the endpoint's path is `path`.

        A prefix such as `/tenants/{tenant}` makes `tenant` a path parameter of dependencies.
        """
        tree = self._at.get(path)
        if tree is None:
            dependant = get_dependant(path=path, call=self._stand_in)
            _refuse_body(dependant)
            tree = self._at[path] = Tree(dependant)
        return tree


def _all_scopes(dependant: Dependant) -> Iterator[str]:
    yield from dependant.own_oauth_scopes or ()
    for dependency in dependant.dependencies:
        yield from _all_scopes(dependency)


def callables_below(root: params.Depends) -> Iterator[Any]:
    """What a dependency calls, and what those it depends on call."""
    parameter = inspect.Parameter("root", inspect.Parameter.KEYWORD_ONLY, default=root)
    pending = [Dependencies([parameter]).at("/").dependant]
    while pending:
        dependant = pending.pop()
        yield dependant.call
        pending.extend(dependant.dependencies)


def hide_authorization(request: Request) -> None:
    """Take the credentials out of what later readers of the request can see."""
    headers = request.scope["headers"]
    request.scope["headers"] = [pair for pair in headers if pair[0] != b"authorization"]
    request.__dict__.pop("_headers", None)


def _refuse_body(dependant: Dependant) -> None:
    if dependant.body_params:
        call = getattr(dependant.call, "__qualname__", type(dependant.call).__name__)
        raise TypeError(
            f"The dependency {call!r} asks for the request body with its parameter "
            f"{dependant.body_params[0].name!r}, but the body is the JSON-RPC message"
        )
    for dependency in dependant.dependencies:
        _refuse_body(dependency)


class Tree:
    """A dependant with all below it, and how to call them directly if that does them justice."""

    __slots__ = ("dependant", "plain")

    def __init__(self, dependant: Dependant) -> None:
        self.dependant = dependant
        self.plain = _plain(dependant) if _UNDERSTOOD else None

    @property
    def is_empty(self) -> bool:
        """Whether solving would call or read nothing at all."""
        dependant = self.dependant
        return not (
            dependant.dependencies
            or dependant.path_params
            or dependant.query_params
            or dependant.header_params
            or dependant.cookie_params
        )


@dataclass(frozen=True, slots=True)
class _Plain:
    """A dependant below which everything is a plain `async def` function."""

    call: Callable[..., Awaitable[Any]]
    name: str | None
    cache_key: Any
    dependencies: "tuple[_Plain, ...]"
    parameters: "tuple[_Parameter, ...]"
    request_names: tuple[str, ...]
    scopes_name: str | None
    scopes: tuple[str, ...]


class _Parameter(NamedTuple):
    """A value to read of the request."""

    source: str
    """The attribute of the request."""
    name: str | bytes | None
    """What it is called there, in bytes if it is a header; `None` unless it is a single value."""
    field: Any
    validate: Callable[..., Any] | None
    """pydantic's own, for a single value: what the field's does besides is for errors."""


_SOURCES: Final = (
    ("path_params", "path_params"),
    ("query_params", "query_params"),
    ("header_params", "headers"),
    ("cookie_params", "cookies"),
)
"""Parameters of a dependant, and where a request has their values, in FastAPI's order."""

_SCALARS: Final = (str, int, float, bool, str | None, int | None, float | None, bool | None)
"""Annotations whose parameters are read as the one value of their name."""

_UNDERSTOOD: Final = {field.name for field in fields(Dependant)} <= {
    *(parameters for parameters, _ in _SOURCES),
    *("body_params", "dependencies", "name", "call", "request_param_name", "websocket_param_name"),
    *("http_connection_param_name", "response_param_name", "background_tasks_param_name"),
    *("security_scopes_param_name", "own_oauth_scopes", "parent_oauth_scopes", "use_cache"),
    *("path", "scope", "concurrency"),
}
"""Whether a dependant says nothing but what `_plain` takes into account. A FastAPI that has more to
say is left to itself."""


def _plain(dependant: Dependant, *, is_root: bool = True) -> _Plain | None:
    """The dependant as a plain one; `None` where only `solve_dependencies` will do."""
    call = dependant.call
    if (
        call is None
        or not (is_root or _is_coroutine_callable(call))
        # Without the cache it would be called once more for an error to be reported.
        or not dependant.use_cache
        or dependant.body_params
        or dependant.websocket_param_name
        or dependant.response_param_name
        or dependant.background_tasks_param_name
        or getattr(dependant, "concurrency", None) is not None
    ):
        return None
    dependencies = [_plain(below, is_root=False) for below in dependant.dependencies]
    names = (dependant.request_param_name, dependant.http_connection_param_name)
    plain = _Plain(
        call=call,
        name=dependant.name,
        cache_key=_get_cache_key(dependant=dependant),
        dependencies=tuple([below for below in dependencies if below is not None]),
        parameters=tuple(
            _parameter(source, field)
            for parameters, source in _SOURCES
            for field in getattr(dependant, parameters)
        ),
        request_names=tuple([name for name in names if name is not None]),
        scopes_name=dependant.security_scopes_param_name,
        scopes=tuple(_get_oauth_scopes(dependant=dependant)),
    )
    return plain if len(plain.dependencies) == len(dependencies) else None


def _parameter(source: str, field: Any) -> _Parameter:
    info = field.field_info
    alias: str = info.alias or field.name
    adapter = getattr(field, "_type_adapter", None)
    is_scalar = info.annotation in _SCALARS and info.validation_alias in (None, alias)
    if adapter is None or not is_scalar or field.config:
        return _Parameter(source, None, field, None)
    name = alias.lower().encode("latin-1", "replace") if source == "headers" else alias
    return _Parameter(source, name, field, adapter.validator.validate_python)


def _header(request: Request, name: bytes) -> str | None:
    """What `request.headers` has under a name, without making that object."""
    for sent, value in request.scope["headers"]:
        if sent == name:
            text: str = value.decode("latin-1")
            return text
    return None


def effective_parts(route: APIRoute) -> tuple[Dependant, Any]:
    """The dependant and the overrides provider of `route` where it is included right now.

    For use inside `APIRoute.get_route_handler`, which FastAPI calls for every inclusion.
    """
    context = _effective_route.get()
    if context is not None and context.original_route is route:
        return context.dependant, context.dependency_overrides_provider
    return route.dependant, route.dependency_overrides_provider


def keep_handler(route: APIRoute, handler: Handler) -> None:
    """Keep what answers requests of `route` where it is included right now, for `kept_handler`."""
    context = _effective_route.get()
    is_included = context is not None and context.original_route is route
    place: Any = context if is_included else route
    place.mcp_handler = handler


def kept_handler(route: APIRoute, scope: Scope) -> Handler | None:
    """What answers a request of `route` where it came in; `None` if that is not all there is to it.

    Around a handler FastAPI puts two exit stacks, which nothing here uses, and the app's answers to
    exceptions. If it puts more, such as a limit for bodies, that is to stay.
    """
    context = _effective_route_of(scope)
    is_included = context is not None and context.original_route is route
    place: Any = context if is_included else route
    if getattr(place.app, "__qualname__", None) != _USUAL_APP:
        return None
    handler: Handler = place.mcp_handler
    return handler


async def read_body(request: Request, limit: int) -> bytes | None:
    """The body, or `None` when it is longer. Stops reading where that shows.

    Dependencies can still read it: `await request.body()`.

    Raises:
        ClientDisconnect: the client left before it was sent.
    """
    if "_body" in request.__dict__ or request._stream_consumed:  # a dependency was here before
        body = await request.body()
        return body if len(body) <= limit else None
    receive = request.receive
    message = await receive()
    body = _part(message)
    if message.get("more_body"):
        # Not one after the other onto bytes, which copies all of them for each.
        parts = bytearray(body)
        while message.get("more_body") and len(parts) <= limit:
            message = await receive()
            parts += _part(message)
        body = bytes(parts)
    if len(body) > limit:
        return None
    request._body = body
    return body


def keep_body(request: Request, earlier: Request) -> None:
    """Let the body be read of a second object for a request whose body was read already."""
    if "_body" in earlier.__dict__:
        request._body = earlier._body


def _part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    part: bytes = message.get("body", b"")
    return part


class RequestDependencies:
    """Solves dependants for one request, with one cache and one lifetime for all of them.

    The lifetime ends where an `async with` on this object ends, the first time. FastAPI would close
    yield-dependencies after the response; here they close at the end of the round and see the
    exception that ended it, those of the principal too, so a dependency that rolls back on errors
    does. The background tasks that a failed block added are dropped, as FastAPI drops them.
    """

    __slots__ = (
        "_background_before",
        "_cache",
        "_overrides_provider",
        "_path",
        "_stack",
        "background",
        "request",
        "response",
        "solving",
    )

    def __init__(self, request: Request, path: str, overrides_provider: Any) -> None:
        self.request = request
        self.response: Response | None = None
        self.background: Any = None
        self.solving = False
        """Whether a dependency is being solved, or has failed to be."""
        self._path = path if "{" in path else "/"
        self._overrides_provider = overrides_provider
        self._cache: dict[Any, Any] = {}
        self._stack: AsyncExitStack | None = None
        self._background_before = 0

    async def solve(self, tree: Tree | Dependencies) -> dict[str, Any]:
        """The values for the parameters, by name.

        Raises:
            RequestValidationError: a header, cookie or query parameter is missing or wrong.
            Exception: whatever a dependency raised.
        """
        if isinstance(tree, Dependencies):
            tree = tree.at(self._path)
        self.solving = True
        if tree.plain is not None and not self._has_overrides():
            values = await self._arguments(tree.plain)
            if values is not None:
                self.solving = False
                return values
        solved = await solve_dependencies(
            request=self.request,
            dependant=tree.dependant,
            background_tasks=self.background,
            response=self.response,
            dependency_overrides_provider=self._overrides_provider,
            dependency_cache=self._cache,
            async_exit_stack=self._open_stack(),
            embed_body_fields=False,
        )
        if solved.errors:
            raise RequestValidationError(solved.errors)
        self._cache = solved.dependency_cache
        self.response = solved.response
        self.background = solved.background_tasks
        self.solving = False
        return solved.values

    def renewed(self, sent: list[tuple[bytes, bytes]]) -> "RequestDependencies":
        """For another round of the same request: all is resolved again, from the headers `sent`.

        They still have the credentials, which are hidden from what comes after the principal. So
        they are not kept here, where a handler could reach them.

        The background tasks are those of one request, whichever round adds them.
        """
        if self.background is None:
            self.background = BackgroundTasks()
        request = Request({**self.request.scope, "headers": sent}, self.request.receive)
        request._body = self.request._body
        renewed = RequestDependencies(request, self._path, self._overrides_provider)
        renewed.background = self.background
        return renewed

    def _has_overrides(self) -> bool:
        provider = self._overrides_provider
        return bool(provider is not None and provider.dependency_overrides)

    async def _arguments(self, node: _Plain) -> dict[str, Any] | None:
        """What to call a plain dependency with; `None` if a parameter is missing or does not fit.

        `solve_dependencies` is to report that. It calls none again: all that were are in the cache.
        """
        values: dict[str, Any] = {}
        cache = self._cache
        for below in node.dependencies:
            if below.cache_key in cache:
                value = cache[below.cache_key]
            else:
                arguments = await self._arguments(below)
                if arguments is None:
                    return None
                value = cache[below.cache_key] = await below.call(**arguments)
            if below.name is not None:
                values[below.name] = value
        if node.parameters and not self._read(node.parameters, values):
            return None
        for name in node.request_names:
            values[name] = self.request
        if node.scopes_name is not None:
            values[node.scopes_name] = SecurityScopes([*node.scopes])
        return values

    def _read(self, parameters: tuple[_Parameter, ...], values: dict[str, Any]) -> bool:
        """Add what the request has for these parameters. Whether it has what they need."""
        request = self.request
        for source, name, field, validate in parameters:
            value: Any = None
            if type(name) is bytes:
                value = _header(request, name)
            elif name is not None:
                value = getattr(request, source).get(name)
            if value is not None and validate is not None:
                try:
                    values[field.name] = validate(value, from_attributes=True)
                except ValidationError:
                    return False
                continue
            found, errors = request_params_to_args([field], getattr(request, source))
            if errors:
                return False
            values.update(found)
        return True

    def _open_stack(self) -> AsyncExitStack:
        if self._stack is None:
            self._stack = AsyncExitStack()
            for key in _STACK_KEYS:
                self.request.scope[key] = self._stack
        return self._stack

    async def __aenter__(self) -> Self:
        self._background_before = len(self.background.tasks) if self.background else 0
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None and self.background:
            del self.background.tasks[self._background_before :]
        stack, self._stack = self._stack, None
        if stack is None:
            return
        try:
            # Whatever it returns: a dependency may replace the exception, but not swallow it.
            await stack.__aexit__(exc_type, exc, traceback)
        except BaseExceptionGroup as group:
            # A task group that a dependency holds open wraps what passes through it.
            if not _merely_wraps(group, exc):
                raise


def _merely_wraps(group: BaseExceptionGroup[BaseException], exc: BaseException | None) -> bool:
    """Whether `exc` is all there is in the group."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner is exc


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
