"""Resolve FastAPI dependencies. Besides `plain_dependencies` and `http.routes` no other module
touches FastAPI's internals.

`get_dependant` and `solve_dependencies` are what FastAPI itself calls for a path operation, so a
handler's dependencies behave as they do there: `dependency_overrides`, caching within the request,
sub-dependencies, `Security` scopes, yield-dependencies. Knows nothing of MCP.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self, get_origin

from fastapi import Request, Response, params
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant, solve_dependencies
from fastapi.exceptions import FastAPIError, RequestValidationError
from fastapi.security import SecurityScopes
from starlette.background import BackgroundTasks
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import Message

from .plain_dependencies import PlainTree

__all__ = [
    "Dependant",
    "Dependencies",
    "RequestDependencies",
    "Tree",
    "is_dependency",
    "keep_body",
    "read_body",
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
        self.plain = PlainTree.of(dependant)

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


async def read_body(request: Request, limit: int) -> bytes | None:
    """The body, or `None` when it is longer. Stops reading where that shows.

    Dependencies can still read it: `await request.body()`.

    Raises:
        ClientDisconnect: the client left before it was sent.
    """
    if hasattr(request, "_body") or request._stream_consumed:  # a dependency was here before
        body = await request.body()
        return body if len(body) <= limit else None
    receive = request._receive
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
    if hasattr(earlier, "_body"):
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
            values = await tree.plain.arguments(self.request, self._cache)
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

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open that sees how the block ends, and nothing to do after it."""
        return self._stack is None and self.background is None

    def _has_overrides(self) -> bool:
        provider = self._overrides_provider
        return bool(provider is not None and provider.dependency_overrides)

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
