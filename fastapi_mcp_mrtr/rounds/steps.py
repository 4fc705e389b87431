"""Steps: telling one call from another, and results that read the same on every round.

Pure: no I/O, no framework. It runs nothing; the engine does.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID
from weakref import WeakKeyDictionary

from pydantic import AnyUrl, BaseModel, ConfigDict, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import Url, from_json, to_json
from typing_extensions import Format, get_annotations

from fastapi_mcp_mrtr.protocol.canonical import canonical, digest

_SHOWN: Final = 80
"""Characters of an argument in a recorded call: enough to recognise it, and small in the state."""

# --- results ---------------------------------------------------------------------------------


class ResultCodec:
    """Write a step's result as JSON and read it back, by the return annotation of its function.

    Without an annotation a result is read back as the JSON values it was written as.
    """

    __slots__ = ("_adapter",)

    def __init__(self, adapter: TypeAdapter[Any] | None) -> None:
        self._adapter = adapter

    def write(self, result: Any) -> Any:
        """The result as JSON values. Raises: ValueError."""
        if self._adapter is not None:
            # By field names both ways: aliases may differ between writing and reading.
            result = self._adapter.dump_python(result, mode="json", by_alias=False, warnings=False)
        return from_json(to_json(result))

    def read(self, written: Any) -> Any:
        """The result from JSON values. Raises: ValueError."""
        encoded = to_json(written)
        if self._adapter is None:
            return from_json(encoded)
        return self._adapter.validate_json(encoded, by_alias=False, by_name=True)


_JSON: Final = ResultCodec(None)

_codecs: Final[WeakKeyDictionary[Callable[..., Any], ResultCodec]] = WeakKeyDictionary()
"""Made once a function, and forgotten with it."""


def result_codec(fn: Callable[..., Any]) -> ResultCodec:
    """The codec for results of `fn`.

    Raises:
        TypeError: `fn` is no callable, yields, or returns what JSON cannot hold.
    """
    function = _function(fn)
    if function is None:
        return _JSON
    codec = _codecs.get(function)
    if codec is None:
        codec = _codecs[function] = _new_codec(function)
    return codec


def _function(fn: Any) -> Callable[..., Any] | None:
    """The function or class that carries the return annotation; None if nothing can."""
    if not callable(fn):
        raise TypeError(f"wants a function to call, not {type(fn).__name__}")
    while isinstance(fn, partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if inspect.ismethod(fn):
        fn = fn.__func__
    if not (inspect.isfunction(fn) or inspect.isclass(fn)):
        fn = type(fn).__call__
    return fn if inspect.isfunction(fn) or inspect.isclass(fn) else None


def _new_codec(function: Callable[..., Any]) -> ResultCodec:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{call_name(function)} yields; run it as a sub-flow: `yield` its generator"
        )
    returned = _returned(function)
    if returned is Any or returned is object:
        return _JSON
    try:
        # Functions defined inside a handler are new on every round; their annotations are not.
        return _codec_for(returned) if _is_hashable(returned) else ResultCodec(_adapter(returned))
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise TypeError(
            f"{call_name(function)} returns {returned!r}, which cannot be journaled; "
            "return plain data: scalars, lists, dicts, dataclasses or pydantic models"
        ) from error


def _returned(function: Callable[..., Any]) -> Any:
    if inspect.isclass(function):
        return function

    def alone() -> None: ...

    # Alone, so that a parameter whose annotation does not resolve is no hindrance.
    annotations = get_annotations(function, format=Format.FORWARDREF)
    if "return" not in annotations:
        return Any
    alone.__annotations__ = {"return": annotations["return"]}
    scope = getattr(function, "__globals__", {})
    try:
        returned = get_type_hints(alone, globalns=scope, include_extras=True)["return"]
    except NameError as error:
        raise TypeError(
            f"the return annotation of {call_name(function)} does not resolve: {error}"
        ) from None
    if get_origin(returned) in (Awaitable, Coroutine):
        returned = get_args(returned)[-1]
    return returned


@lru_cache(maxsize=1024)
def _codec_for(annotation: Any) -> ResultCodec:
    return ResultCodec(_adapter(annotation))


def _is_hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    # Bytes that are no UTF-8 survive as base64. A model brings its own configuration instead.
    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    try:
        return TypeAdapter(annotation, config=config)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(annotation)


# --- calls -----------------------------------------------------------------------------------

_SPELLED: Final = (datetime, date, time, timedelta, Decimal, UUID, PurePath, AnyUrl, Url)
"""Types whose text says everything about a value. Others count by the name of their type alone."""


def call_name(fn: Any) -> str:
    """The name a call is recorded under."""
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def call_digest(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Tells calls apart: the function's name and the arguments as far as they are data."""
    plain = [call_name(fn), _plain(args), _plain(kwargs)]
    while isinstance(fn, partial):
        plain += [_plain(fn.args), _plain(fn.keywords)]
        fn = fn.func
    return digest(plain)


def call_text(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The call as an author would write it, for the message that shows two side by side."""
    shown = [_shown(arg) for arg in args]
    shown += [f"{name}={_shown(arg)}" for name, arg in kwargs.items()]
    return f"{call_name(fn)}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if callable(value):
        return call_name(value)
    if getattr(type(value), "__repr__", None) is object.__repr__:  # its text is an address
        return f"<{type(value).__qualname__}>"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: Any) -> Any:
    """The value as JSON that is the same in every process: sets in order, no addresses."""
    match value:
        case None | bool() | int() | float() | str():
            return value.value if isinstance(value, Enum) else value
        case Enum():
            return _plain(value.value)
        case list() | tuple():
            return [_plain(item) for item in value]
        case Mapping():
            if all(type(key) is str for key in value):
                return {"members": {key: _plain(member) for key, member in value.items()}}
            pairs = [[_plain(key), _plain(member)] for key, member in value.items()]
            return {"pairs": sorted(pairs, key=canonical)}
        case Set():
            return {"set": sorted((_plain(item) for item in value), key=canonical)}
        case bytes() | bytearray() | memoryview():
            return {"bytes": bytes(value).hex()}
        case BaseModel():
            members = {**value.__dict__, **(value.model_extra or {})}
            return {type(value).__qualname__: _plain(members)}
        case _ if is_dataclass(value) and not isinstance(value, type):
            members = {f.name: getattr(value, f.name, None) for f in fields(value)}
            return {type(value).__qualname__: _plain(members)}
        case _ if isinstance(value, _SPELLED):
            return {type(value).__qualname__: str(value)}
        case _ if callable(value):
            return {"callable": call_name(value)}
    return {"object": type(value).__qualname__}
