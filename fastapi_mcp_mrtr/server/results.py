"""Turn what a handler returns into the result of its method. Pure: no I/O, no framework."""

import base64
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, from_json, to_json, to_jsonable_python

from fastapi_mcp_mrtr.errors import HandlerError
from fastapi_mcp_mrtr.protocol.jsonrpc import encode
from fastapi_mcp_mrtr.rounds.sentinels import Sentinel, result_type

from .signature import PYDANTIC_REFUSES, json_schema

_UNSTRUCTURED: Final = (inspect.Signature.empty, Any, None, type(None), str, object)


class _Ready(NamedTuple):
    """The types of what is sent as it is."""

    content: tuple[type[Any], ...] = ()
    contents: tuple[type[Any], ...] = ()
    tool_result: tuple[type[Any], ...] = ()
    prompt_result: tuple[type[Any], ...] = ()
    prompt_message: tuple[type[Any], ...] = ()
    resource_result: tuple[type[Any], ...] = ()


_NONE_YET: Final = _Ready()


def _ready() -> _Ready:
    """Those types, if there can be objects of them: mcp_types takes longer to import than all of
    this package, so nobody does who has no need of it."""
    return _ready_types() if "mcp_types" in sys.modules else _NONE_YET


@cache
def _ready_types() -> _Ready:
    import mcp_types as m

    return _Ready(
        (m.TextContent, m.ImageContent, m.AudioContent, m.ResourceLink, m.EmbeddedResource),
        (m.TextResourceContents, m.BlobResourceContents),
        (m.CallToolResult,),
        (m.GetPromptResult,),
        (m.PromptMessage,),
        (m.ReadResourceResult,),
    )


def _dump(model: BaseModel) -> dict[str, Any]:
    try:
        return model.model_dump(mode="json", by_alias=True, exclude_none=True)
    except ValueError as error:
        raise _mistake(error, f"The result is no JSON: {error}") from error


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_error(text: str) -> dict[str, Any]:
    """A failure the model can read and correct (server/tools §Error Handling)."""
    return {"content": [_text(text)], "isError": True}


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """How a tool's values become results: with structured content where its type is known.

    `schema` is the tool's `outputSchema`; a value that does not fit it is the handler's mistake
    (server/tools §Output Schema: servers MUST provide structured results that conform).
    """

    schema: dict[str, Any] | None
    _adapter: TypeAdapter[Any] | None

    @classmethod
    def of(cls, annotation: Any, *, where: str) -> "ToolOutput":
        """The output of a tool with this return type.

        Raises:
            TypeError: the type has no JSON Schema.
        """
        if annotation in _UNSTRUCTURED or _mentions_content(annotation):
            return cls(None, None)
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(annotation)
            return cls(json_schema(adapter, serialized=True), adapter)
        except PYDANTIC_REFUSES as error:
            if result_type(annotation) is not None:
                raise TypeError(
                    f"{where}: it declares Rounds but yields nothing. A function that returns its "
                    "result declares the type of that alone"
                ) from None
            raise TypeError(f"{where}: the return type has no JSON Schema: {error}") from error

    @property
    def core_schema(self) -> CoreSchema | None:
        """What pydantic makes `schema` of."""
        return None if self._adapter is None else self._adapter.core_schema

    def render(self, value: Any) -> dict[str, Any]:
        """The members of a `CallToolResult` for `value`.

        Raises:
            HandlerError: the value cannot be sent, or not as the declared type.
        """
        if self._adapter is None and isinstance(value, str):
            return _content([_text(value)])
        if isinstance(value, _ready().tool_result):
            return _tool_result(value)
        if self._adapter is not None:
            structured = self._conforming(value, self._adapter)
            return {**_content([_text(_json_text(structured))]), "structuredContent": structured}
        blocks = _content_blocks(value)
        if blocks is not None:
            return _content(blocks)
        structured = _jsonable(value)
        result = _content([_text(_json_text(structured))])
        if isinstance(structured, dict | list):
            result["structuredContent"] = structured
        return result

    def _conforming(self, value: Any, adapter: TypeAdapter[Any]) -> Any:
        """The JSON value of the declared type that `value` is."""
        try:
            validated = adapter.validate_python(value, from_attributes=True)
            structured = adapter.dump_python(validated, mode="json", by_alias=True)
            if not _is_plain(structured):
                # JSON has no NaN: where null does not fit either, the client must not get it.
                structured = from_json(encode(structured))
                adapter.validate_python(structured)
        except ValueError as error:  # pydantic's ValidationError and serialization errors
            message = f"The result does not fit the declared return type: {error}"
            if value is None:
                message = "The handler ended without a result, and its return type declares one"
            raise _mistake(error, message) from error
        return structured


def _content(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": blocks, "isError": False}


def _tool_result(result: Any) -> dict[str, Any]:
    dumped = _dump(result)
    if "structured_content" in result.model_fields_set:  # null counts as a value here
        dumped.setdefault("structuredContent", None)
    return dumped


def _jsonable(value: Any) -> Any:
    try:
        return to_jsonable_python(value, by_alias=True)
    except ValueError as error:  # a type without a JSON form, or a value that contains itself
        raise _mistake(error, f"The result is no JSON: {error}") from error


def _mistake(error: ValueError, message: str) -> HandlerError:
    """The error with `message`, or a clearer one if a `yield` was forgotten within the result."""
    if isinstance(error.__cause__, HandlerError):
        return error.__cause__
    if isinstance(error, ValidationError):
        for one in error.errors():
            if isinstance(one["input"], Sentinel):
                return one["input"].in_result()
    return HandlerError(message)


def _is_plain(value: Any) -> bool:
    """Whether JSON can say all of it: no NaN, no infinity, no lone surrogate."""
    try:
        text = to_json(value, inf_nan_mode="constants")
    except ValueError:
        return False
    return b"NaN" not in text and b"Infinity" not in text


def _json_text(value: Any) -> str:
    return encode(value).decode()


def _mentions_content(annotation: Any) -> bool:
    """Whether a return type is or contains ready-made content."""
    if inspect.isclass(annotation):
        ready = _ready()
        return issubclass(annotation, (*ready.content, *ready.tool_result))
    return any(_mentions_content(argument) for argument in get_args(annotation))


def _content_blocks(value: Any) -> list[dict[str, Any]] | None:
    """`value` as content blocks, if that is what it is."""
    if value is None:
        return []
    content = _ready().content
    if isinstance(value, content):
        return [_dump(value)]
    if (
        isinstance(value, list | tuple)
        and all(isinstance(item, (*content, str)) for item in value)
        and any(isinstance(item, content) for item in value)
    ):
        return [_text(item) if isinstance(item, str) else _dump(item) for item in value]
    return None


def render_prompt(value: Any, description: str | None) -> dict[str, Any]:
    """The members of a `GetPromptResult`: text, content and messages are all accepted.

    Raises:
        HandlerError: the value is none of those.
    """
    if isinstance(value, _ready().prompt_result):
        return _dump(value)
    items = value if isinstance(value, list | tuple) else [value]
    result: dict[str, Any] = {"messages": [_message(item) for item in items]}
    if description:
        result["description"] = description
    return result


def _message(item: Any) -> dict[str, Any]:
    if isinstance(item, _ready().prompt_message):
        return _dump(item)
    if isinstance(item, str):
        return {"role": "user", "content": _text(item)}
    if isinstance(item, _ready().content):
        return {"role": "user", "content": _dump(item)}
    raise HandlerError(
        f"A prompt returns text, content or PromptMessage objects, not {type(item).__name__}"
    )


def render_resource(value: Any, uri: str, mime_type: str | None) -> dict[str, Any]:
    """The members of a `ReadResourceResult` but for the caching hints.

    Raises:
        HandlerError: the value cannot be sent, or is empty (an empty `contents` would be
            ambiguous: server/resources §Error Handling).
    """
    if isinstance(value, _ready().resource_result):
        result = _dump(value)
        result.pop("ttlMs", None)
        result.pop("cacheScope", None)
        return result
    contents = _ready().contents
    if isinstance(value, contents):
        return {"contents": [_dump(value)]}
    if value is None or value == []:
        raise HandlerError(
            "A resource returned nothing. Raise HTTPException(404) if it is not there"
        )
    if isinstance(value, list) and all(isinstance(item, contents) for item in value):
        return {"contents": [_dump(item) for item in value]}
    return {"contents": [{"uri": uri, **_contents(value, mime_type)}]}


def _contents(value: Any, mime_type: str | None) -> dict[str, Any]:
    if isinstance(value, str):
        return {"mimeType": mime_type or "text/plain", "text": value}
    if isinstance(value, bytes):
        blob = base64.b64encode(value).decode()
        return {"mimeType": mime_type or "application/octet-stream", "blob": blob}
    if isinstance(value, BaseModel | Mapping | list | tuple) or is_dataclass(value):
        text = _json_text(_jsonable(value))
        return {"mimeType": mime_type or "application/json", "text": text}
    raise HandlerError(
        f"A resource returns text, bytes, data or resource contents, not {type(value).__name__}"
    )


def render_completion(values: Iterable[Any] | None) -> dict[str, Any]:
    """The members of a `CompleteResult`: at most 100 values (server/utilities/completion).

    Raises:
        HandlerError: what a completer returned is no list of values.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values or (), Iterable):
        raise HandlerError(f"Completions are a list of text, not a {type(values).__name__}")
    offered = [str(value) for value in values or ()]
    return {
        "completion": {
            "values": offered[:100],
            "total": len(offered),
            "hasMore": len(offered) > 100,
        }
    }
