"""Call dependencies that are plain `async def` functions, with nothing but such functions below.

They need little of what `solve_dependencies` does, at a third of its cost, and what comes out is
the same. What is not understood here, in a dependency or in the FastAPI that is installed, is left
to FastAPI.
"""

from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from fastapi import Request
from fastapi.dependencies.models import (
    Dependant,
    _get_cache_key,
    _get_oauth_scopes,
    _is_coroutine_callable,
)
from fastapi.dependencies.utils import request_params_to_args
from fastapi.security import SecurityScopes
from pydantic import ValidationError

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
"""Whether a dependant says nothing but what `_is_plain` takes into account. A FastAPI that has more
to say is left to itself."""


class PlainTree:
    """A dependant below which every dependency is a plain `async def` function."""

    __slots__ = ("_root", "below")

    def __init__(self, root: "_Node", below: "tuple[_Node, ...]") -> None:
        self._root = root
        self.below = below
        """The dependencies, each once, in the order in which FastAPI calls them."""

    @classmethod
    def of(cls, dependant: Dependant) -> "PlainTree | None":
        """The tree of a dependant; `None` where only `solve_dependencies` will do."""
        below = list(_all_below(dependant))
        is_plain = _UNDERSTOOD and _is_plain(dependant)
        if not is_plain or not all(_is_plain(each) and _is_async(each) for each in below):
            return None
        nodes: dict[Any, _Node] = {}
        for node in map(_node, below):
            nodes.setdefault(node.cache_key, node)
        return cls(_node(dependant), tuple(nodes.values()))

    async def arguments(
        self, request: Request, cache: MutableMapping[Any, Any]
    ) -> dict[str, Any] | None:
        """What to call the root with; `None` if a parameter is missing or does not fit.

        `solve_dependencies` is to report that. It calls none again: all that were are in the cache.
        """
        for node in self.below:
            if node.cache_key not in cache:
                arguments = node.arguments(request, cache)
                if arguments is None:
                    return None
                cache[node.cache_key] = await node.call(**arguments)
        return self._root.arguments(request, cache)


@dataclass(frozen=True, slots=True)
class _Node:
    """One function, and what FastAPI calls it with."""

    call: Callable[..., Awaitable[Any]]
    cache_key: Any
    dependencies: tuple[tuple[str, Any], ...]
    """The parameters that are dependencies, and the keys by which the cache has their values."""
    parameters: "tuple[_Parameter, ...]"
    request_names: tuple[str, ...]
    scopes_name: str | None
    scopes: tuple[str, ...]

    def arguments(self, request: Request, cache: MutableMapping[Any, Any]) -> dict[str, Any] | None:
        """`None` if the request has not what the parameters need."""
        values: dict[str, Any] = {}
        for name, key in self.dependencies:
            values[name] = cache[key]
        if self.parameters and not _read(request, self.parameters, values):
            return None
        for name in self.request_names:
            values[name] = request
        if self.scopes_name is not None:
            values[self.scopes_name] = SecurityScopes([*self.scopes])
        return values


class _Parameter(NamedTuple):
    """A value to read of the request."""

    source: str
    """The attribute of the request."""
    name: str | bytes | None
    """What it is called there, in bytes if it is a header; `None` unless it is a single value."""
    field: Any
    validate: Callable[..., Any] | None
    """pydantic's own, for a single value: what the field's does besides is for errors."""


def _all_below(dependant: Dependant) -> Iterator[Dependant]:
    for below in dependant.dependencies:
        yield from _all_below(below)
        yield below


def _is_plain(dependant: Dependant) -> bool:
    return not (
        dependant.call is None
        # Without the cache it would be called once more for an error to be reported.
        or not dependant.use_cache
        or dependant.body_params
        or dependant.websocket_param_name
        or dependant.response_param_name
        or dependant.background_tasks_param_name
        or getattr(dependant, "concurrency", None) is not None
    )


def _is_async(dependant: Dependant) -> bool:
    return dependant.call is not None and _is_coroutine_callable(dependant.call)


def _node(dependant: Dependant) -> _Node:
    names = (dependant.request_param_name, dependant.http_connection_param_name)
    assert dependant.call is not None
    return _Node(
        call=dependant.call,
        cache_key=_get_cache_key(dependant=dependant),
        dependencies=tuple(
            (below.name, _get_cache_key(dependant=below))
            for below in dependant.dependencies
            if below.name is not None
        ),
        parameters=tuple(
            _parameter(source, field)
            for parameters, source in _SOURCES
            for field in getattr(dependant, parameters)
        ),
        request_names=tuple([name for name in names if name is not None]),
        scopes_name=dependant.security_scopes_param_name,
        scopes=tuple(_get_oauth_scopes(dependant=dependant)),
    )


def _parameter(source: str, field: Any) -> _Parameter:
    info = field.field_info
    alias: str = info.alias or field.name
    adapter = getattr(field, "_type_adapter", None)
    is_scalar = info.annotation in _SCALARS and info.validation_alias in (None, alias)
    if adapter is None or not is_scalar or field.config:
        return _Parameter(source, None, field, None)
    name = alias.lower().encode("latin-1", "replace") if source == "headers" else alias
    return _Parameter(source, name, field, adapter.validator.validate_python)


def _read(
    request: Request, parameters: tuple[_Parameter, ...], values: MutableMapping[str, Any]
) -> bool:
    """Add what the request has for these parameters. Whether it has what they need."""
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


def _header(request: Request, name: bytes) -> str | None:
    """What `request.headers` has under a name, without making that object."""
    for sent, value in request.scope["headers"]:
        if sent == name:
            text: str = value.decode("latin-1")
            return text
    return None
