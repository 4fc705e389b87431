"""Resolve FastAPI dependencies. The one module that touches FastAPI's internals.

`get_dependant` and `solve_dependencies` are what FastAPI itself calls for a path operation, so a
handler's dependencies behave as they do there: `dependency_overrides`, caching within the request,
sub-dependencies, `Security` scopes, yield-dependencies. Knows nothing of MCP.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, get_origin

from fastapi import BackgroundTasks, Request, Response, params
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant, solve_dependencies
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.security import SecurityScopes
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Mount

try:
    # Where an included route keeps what `include_router` added to it (prefix, dependencies).
    from fastapi.routing import _effective_route_context_var as _effective_route
except ImportError:  # pragma: no cover - FastAPI that copies routes on include instead
    _effective_route = None  # type: ignore[assignment]

__all__ = [
    "Dependant",
    "DependencyScope",
    "RequestDependencies",
    "dependant_of",
    "effective_parts",
    "is_dependency",
    "iter_endpoints",
    "needs_solving",
]

_INJECTED_TYPES: Final = (
    HTTPConnection,  # and so Request
    Response,
    BackgroundTasks,
    SecurityScopes,
)
"""Annotations that FastAPI fills by type."""

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


def dependant_of(parameters: Sequence[inspect.Parameter]) -> Dependant | None:
    """What FastAPI has to solve for these parameters; `None` when there are none."""
    if not parameters:
        return None

    def handler() -> None:
        """Stands in for the handler: only the signature is read."""

    handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return get_dependant(path="/", call=handler)


def needs_solving(dependant: Dependant) -> bool:
    """Whether solving would call or read anything at all."""
    return bool(
        dependant.dependencies
        or dependant.path_params
        or dependant.query_params
        or dependant.header_params
        or dependant.cookie_params
    )


def effective_parts(route: APIRoute) -> tuple[Dependant, Any]:
    """The dependant and the overrides provider of `route` where it is included right now.

    For use inside `APIRoute.get_route_handler`, which FastAPI calls once per inclusion.
    """
    if _effective_route is not None:
        context = _effective_route.get()
        if context is not None and context.original_route is route:
            assert context.dependant is not None
            return context.dependant, context.dependency_overrides_provider
    return route.dependant, route.dependency_overrides_provider


class RequestDependencies:
    """Solves dependants for one request, sharing one cache between all of them."""

    __slots__ = ("_cache", "_overrides_provider", "background", "request", "response")

    def __init__(self, request: Request, overrides_provider: Any) -> None:
        self.request = request
        self._overrides_provider = overrides_provider
        self._cache: dict[Any, Any] = {}
        self.response: Response | None = None
        self.background: Any = None

    async def solve(self, dependant: Dependant) -> dict[str, Any]:
        """The values for `dependant`'s parameters, by name.

        Raises:
            RequestValidationError: a header, cookie or query parameter is missing or wrong.
            Exception: whatever a dependency raised.
        """
        solved = await solve_dependencies(
            request=self.request,
            dependant=dependant,
            background_tasks=self.background,
            response=self.response,
            dependency_overrides_provider=self._overrides_provider,
            dependency_cache=self._cache,
            async_exit_stack=self.request.scope[_STACK_KEYS[0]],
            embed_body_fields=False,
        )
        if solved.errors:
            raise RequestValidationError(solved.errors)
        self._cache = solved.dependency_cache
        self.response = solved.response
        self.background = solved.background_tasks
        return solved.values


class DependencyScope:
    """The lifetime of the yield-dependencies solved inside it: `async with DependencyScope(scope)`.

    FastAPI would close them after the response; here they close when the block ends and see the
    exception that ended it, so a dependency that rolls back on errors does.
    """

    __slots__ = ("_outer", "_scope", "_stack")

    def __init__(self, scope: Any) -> None:
        self._scope = scope
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> None:
        scope = self._scope
        self._outer = [scope.get(key) for key in _STACK_KEYS]
        await self._stack.__aenter__()
        for key in _STACK_KEYS:
            scope[key] = self._stack

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        for key, stack in zip(_STACK_KEYS, self._outer, strict=True):
            self._scope[key] = stack
        return await self._stack.__aexit__(exc_type, exc, traceback)


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
