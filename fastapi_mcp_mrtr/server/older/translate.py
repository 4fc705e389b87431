"""Today's results and asks as older revisions have them. Pure: no I/O, no framework.

What a revision does not know is left out, so that clients which check strictly can read the rest.
What it had in another form is put into that form. What it cannot say at all is for the caller: an
ask that raises `CannotAsk` is not sent.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic_core import from_json

from fastapi_mcp_mrtr.protocol.jsonrpc import encode

Json = dict[str, Any]

_NEW: Final = ("resultType", "ttlMs", "cacheScope")
_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"

_LATEST: Final = "2025-11-25"
_BEFORE_TITLES: Final = "2025-03-26"


class CannotAsk(Exception):
    """The revision has no form for an ask. The text says what it lacks."""


def older_result(method: str, result: Json, version: str) -> Json:
    """The result of a request as a revision has it. Changes and returns `result`."""
    for name in _NEW:
        result.pop(name, None)
    meta = result.get("_meta")
    if meta is not None:
        meta.pop(_SERVER_INFO, None)
        if not meta:
            del result["_meta"]
    translate = _RESULTS.get(method)
    if translate is not None:
        translate(result, version)
    return result


def older_list(method: str, encoded: bytes, version: str) -> bytes:
    """A list result, from bytes to bytes. The lists that all callers share are translated once."""
    if b'"cacheScope":"public"' in encoded:
        return _shared_list(method, encoded, version)
    return encode(older_result(method, from_json(encoded), version))


@lru_cache(maxsize=64)
def _shared_list(method: str, encoded: bytes, version: str) -> bytes:
    return encode(older_result(method, from_json(encoded), version))


# ------------------------------------------------------------------------------------ results


def _tool_result(result: Json, version: str) -> None:
    # Today any JSON is structured content; before, it was an object.
    if version == _BEFORE_TITLES or type(result.get("structuredContent")) is not dict:
        result.pop("structuredContent", None)
    result["content"] = [_content(block, version) for block in result["content"]]


def _prompt_result(result: Json, version: str) -> None:
    for message in result["messages"]:
        message["content"] = _content(message["content"], version)


def _resource_result(result: Json, version: str) -> None:
    for contents in result["contents"]:
        _without(contents, version)


def _tools(result: Json, version: str) -> None:
    for tool in result["tools"]:
        _without(tool, version)
        schema = tool.get("outputSchema")
        # Today it may be any schema; before, it was that of an object.
        if version == _BEFORE_TITLES or not (schema and schema.get("type") == "object"):
            tool.pop("outputSchema", None)


def _prompts(result: Json, version: str) -> None:
    for prompt in result["prompts"]:
        _without(prompt, version)
        for argument in prompt.get("arguments", ()):
            _without(argument, version)


def _resources(result: Json, version: str) -> None:
    for resource in result["resources"]:
        _without(resource, version)


def _templates(result: Json, version: str) -> None:
    for template in result["resourceTemplates"]:
        _without(template, version)


_RESULTS: Final[Mapping[str, Callable[[Json, str], None]]] = {
    "tools/call": _tool_result,
    "prompts/get": _prompt_result,
    "resources/read": _resource_result,
    "tools/list": _tools,
    "prompts/list": _prompts,
    "resources/list": _resources,
    "resources/templates/list": _templates,
}


def _content(block: Json, version: str) -> Json:
    """A content block. A link to a resource, which 2025-03-26 does not have, is text there."""
    if version == _BEFORE_TITLES and block["type"] == "resource_link":
        return {"type": "text", "text": f"{block['name']}: {block['uri']}"}
    _without(block, version)
    resource = block.get("resource")
    if type(resource) is dict:
        _without(resource, version)
    return block


def _without(member: Json, version: str) -> None:
    """Leave out the members of anything named or described that a revision has not."""
    if version == _LATEST:
        return
    member.pop("icons", None)
    if version != _BEFORE_TITLES:
        return
    member.pop("title", None)
    member.pop("_meta", None)
    annotations = member.get("annotations")
    if type(annotations) is dict:
        annotations.pop("lastModified", None)


def older_implementation(info: Mapping[str, Any], version: str) -> Json:
    """What the server says of itself."""
    named = dict(info)
    _without(named, version)
    return named


# --------------------------------------------------------------------------------------- asks


def older_ask(request: Mapping[str, Any], version: str, elicitation_id: str) -> Json:
    """The method and params of an ask, as a revision has them.

    `elicitation_id` is what a url is known by, where the user is sent to one.

    Raises:
        CannotAsk: the revision has no form for it.
    """
    method, params = request["method"], request["params"]
    if method == "elicitation/create":
        params = _elicitation(params, version, elicitation_id)
    elif method == "sampling/createMessage" and version != _LATEST:
        params = {**params, "messages": _single_blocks(params["messages"])}
    return {"method": method, "params": params} if params else {"method": method}


def _elicitation(params: Mapping[str, Any], version: str, elicitation_id: str) -> Json:
    if params["mode"] == "url":
        return {**params, "elicitationId": elicitation_id}
    if version == _LATEST:
        return {**params}
    schema = params["requestedSchema"]
    properties = {name: _field(name, field) for name, field in schema["properties"].items()}
    return {
        "message": params["message"],
        "requestedSchema": {**schema, "properties": properties},
    }


def _field(name: str, field: Mapping[str, Any]) -> Json:
    """A field of a form as 2025-06-18 has it: one choice, its titles beside it, few defaults."""
    if field.get("type") == "array":
        raise CannotAsk(f"the field {name!r} takes several choices, which MCP 2025-06-18 cannot")
    older = {**field}
    options = older.pop("oneOf", None)
    if options is not None:
        older["enum"] = [option["const"] for option in options]
        older["enumNames"] = [option["title"] for option in options]
    if older.get("type") != "boolean":
        older.pop("default", None)
    return older


def _single_blocks(messages: list[Json]) -> list[Json]:
    """Messages of one block each: several blocks in one message came with 2025-11-25."""
    single: list[Json] = []
    for message in messages:
        content = message["content"]
        blocks = content if type(content) is list else [content]
        single += [{"role": message["role"], "content": block} for block in blocks]
    return single
