"""translate: today's results, lists and asks as each older revision has them."""

import json
from typing import Any

import pytest

from fastapi_mcp_mrtr.protocol.jsonrpc import encode
from fastapi_mcp_mrtr.server.older.translate import (
    CannotAsk,
    older_ask,
    older_implementation,
    older_list,
    older_result,
)

V3, V2, V1 = "2025-11-25", "2025-06-18", "2025-03-26"
SERVER = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
COMMON: dict[str, Any] = {"resultType": "complete", "ttlMs": 1, "cacheScope": "public"}
ICONS = [{"src": "https://x.example/i.png"}]
NOTES = {"audience": ["user"], "lastModified": "2026-01-01T00:00:00Z"}


def result(method: str, version: str, **members: Any) -> dict[str, Any]:
    fresh = json.loads(json.dumps({**COMMON, "_meta": SERVER, **members}))
    return older_result(method, fresh, version)


@pytest.mark.parametrize("version", [V3, V2, V1])
def test_what_came_with_todays_revision_goes(version: str) -> None:
    """spec: no resultType, ttlMs, cacheScope; `{}` is exactly that (conformance §9)."""
    assert result("ping", version) == {}
    assert result("completion/complete", version, completion={"values": []}) == {
        "completion": {"values": []}
    }


def test_metadata_of_the_handlers_own_stays() -> None:
    """spec: results may have `_meta` (basic/index); only who answered is today's."""
    assert result("ping", V3, _meta={**SERVER, "a.example/x": 1}) == {"_meta": {"a.example/x": 1}}
    assert older_result("ping", {"resultType": "complete"}, V3) == {}


# ---------------------------------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("version", "structured", "kept"),
    [(V3, {"a": 1}, True), (V2, {"a": 1}, True), (V1, {"a": 1}, False), (V3, [1], False)],
)
def test_structured_content(version: str, structured: Any, kept: bool) -> None:
    """spec: it came with 2025-06-18, as an object; any JSON is today's (changelogs)."""
    called = result("tools/call", version, content=[], structuredContent=structured)
    assert called == {"content": [], **({"structuredContent": structured} if kept else {})}


LINK = {"type": "resource_link", "name": "rules", "uri": "a:b", "title": "T", "icons": ICONS}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (V3, LINK),
        (V2, {name: value for name, value in LINK.items() if name != "icons"}),
        (V1, {"type": "text", "text": "rules: a:b"}),
    ],
)
def test_links(version: str, expected: Any) -> None:
    """spec: resource_link came with 2025-06-18, icons with 2025-11-25 (changelogs)."""
    assert result("tools/call", version, content=[LINK])["content"] == [expected]


def test_content_of_the_first_revision() -> None:
    """spec: it has neither `_meta` nor lastModified in content (2025-03-26 schema)."""
    block = {
        "type": "resource",
        "resource": {"uri": "a:b", "text": "x", "_meta": {"a": 1}},
        "annotations": NOTES,
        "_meta": {"a": 1},
    }
    assert result("tools/call", V1, content=[block])["content"] == [
        {
            "type": "resource",
            "resource": {"uri": "a:b", "text": "x"},
            "annotations": {"audience": ["user"]},
        }
    ]
    assert result("tools/call", V2, content=[block])["content"] == [block]


def test_prompts_and_resources() -> None:
    """spec: the same content in messages, and contents without `_meta` (2025-03-26 schema)."""
    got = result("prompts/get", V1, messages=[{"role": "user", "content": LINK}])
    assert got["messages"][0]["content"]["text"] == "rules: a:b"
    contents = [{"uri": "a:b", "text": "x", "_meta": {"a": 1}}]
    assert result("resources/read", V1, contents=contents) == {
        "contents": [{"uri": "a:b", "text": "x"}]
    }
    assert result("resources/read", V3, contents=contents) == {"contents": contents}


# ---------------------------------------------------------------------------------------- lists

OBJECT = {"type": "object", "properties": {}}
TOOL = {
    "name": "t",
    "title": "T",
    "icons": ICONS,
    "_meta": {"a": 1},
    "inputSchema": OBJECT,
    "annotations": {"title": "T", "readOnlyHint": True},
}


@pytest.mark.parametrize(
    ("version", "gone"),
    [(V3, set()), (V2, {"icons"}), (V1, {"icons", "title", "_meta", "outputSchema"})],
)
def test_tools(version: str, gone: set[str]) -> None:
    """spec: titles, `_meta` and outputSchema came with 2025-06-18, icons with 2025-11-25."""
    tool = {**TOOL, "outputSchema": OBJECT}
    expected = {name: value for name, value in tool.items() if name not in gone}
    assert result("tools/list", version, tools=[tool]) == {"tools": [expected]}


@pytest.mark.parametrize("schema", [{"type": "array"}, {"$ref": "#/$defs/A"}, {}])
def test_an_output_schema_was_that_of_an_object(schema: Any) -> None:
    """spec: `type: "object"` at the root (2025-11-25 schema, Tool)."""
    (tool,) = result("tools/list", V3, tools=[{**TOOL, "outputSchema": schema}])["tools"]
    assert "outputSchema" not in tool


def test_the_other_lists() -> None:
    """spec: names without titles, of arguments too (2025-03-26 schema)."""
    prompts = [{"name": "p", "title": "P", "arguments": [{"name": "a", "title": "A"}]}]
    assert result("prompts/list", V1, prompts=prompts)["prompts"] == [
        {"name": "p", "arguments": [{"name": "a"}]}
    ]
    assert result("prompts/list", V2, prompts=prompts)["prompts"] == prompts
    named = [{"name": "r", "uri": "a:b", "title": "R", "size": 3, "icons": ICONS}]
    assert result("resources/list", V1, resources=named)["resources"] == [
        {"name": "r", "uri": "a:b", "size": 3}
    ]
    templates = [{"name": "r", "uriTemplate": "a:{b}", "title": "R"}]
    got = result("resources/templates/list", V1, resourceTemplates=templates, nextCursor="c")
    assert got == {
        "resourceTemplates": [{"name": "r", "uriTemplate": "a:{b}"}],
        "nextCursor": "c",
    }


def test_lists_from_bytes_to_bytes() -> None:
    """Decision: a list that all callers share is translated once."""
    encoded = encode({**COMMON, "tools": [TOOL], "_meta": SERVER})
    translated = older_list("tools/list", encoded, V2)
    assert json.loads(translated)["tools"][0]["title"] == "T"
    assert older_list("tools/list", encoded, V2) is translated
    private = encoded.replace(b"public", b"private")
    assert older_list("tools/list", private, V2) == translated
    assert older_list("tools/list", private, V2) is not older_list("tools/list", private, V2)


def test_the_server_itself() -> None:
    """spec: an Implementation had no title at first (2025-03-26 schema)."""
    info = {"name": "s", "version": "1", "title": "S"}
    assert older_implementation(info, V1) == {"name": "s", "version": "1"}
    assert older_implementation(info, V2) == info


# ----------------------------------------------------------------------------------------- asks


def form(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": []}
    params = {"mode": "form", "message": "?", "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def test_a_form() -> None:
    """spec: as today (2025-11-25), without a mode before it."""
    ask = form(a={"type": "string", "default": "x"})
    assert older_ask(ask, V3, "id") == ask
    older = older_ask(ask, V2, "id")["params"]
    assert older == {
        "message": "?",
        "requestedSchema": {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": [],
        },
    }
    assert ask["params"]["requestedSchema"]["properties"]["a"]["default"] == "x"


def test_titled_options() -> None:
    """spec: enumNames beside enum, until 2025-11-25 (its changelog)."""
    options = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
    older = older_ask(form(a={"type": "string", "oneOf": options}), V2, "id")
    assert older["params"]["requestedSchema"]["properties"]["a"] == {
        "type": "string",
        "enum": ["a", "b"],
        "enumNames": ["A", "B"],
    }


def test_the_default_of_yes_and_no() -> None:
    """spec: a BooleanSchema had one first (2025-06-18 schema)."""
    field = {"type": "boolean", "default": True}
    older = older_ask(form(a=field), V2, "id")["params"]["requestedSchema"]
    assert older["properties"]["a"] == field


def test_several_choices() -> None:
    """spec: lists in forms came with 2025-11-25."""
    with pytest.raises(CannotAsk, match="'a'"):
        older_ask(form(a={"type": "array"}), V2, "id")


def test_a_page() -> None:
    """spec: an elicitationId (2025-11-25 client/elicitation §URL Mode)."""
    params = {"mode": "url", "message": "?", "url": "https://x.example"}
    older = older_ask({"method": "elicitation/create", "params": params}, V3, "id")
    assert older["params"] == {**params, "elicitationId": "id"}


def test_messages_of_several_blocks() -> None:
    """spec: one block a message until 2025-11-25 (its changelog)."""
    one, two = {"type": "text", "text": "1"}, {"type": "text", "text": "2"}
    messages = [{"role": "user", "content": [one, two]}, {"role": "assistant", "content": one}]
    ask = {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 9}}
    assert older_ask(ask, V3, "id") == ask
    assert older_ask(ask, V2, "id")["params"] == {
        "messages": [
            {"role": "user", "content": one},
            {"role": "user", "content": two},
            {"role": "assistant", "content": one},
        ],
        "maxTokens": 9,
    }


def test_roots() -> None:
    """spec: params are optional (client/roots)."""
    assert older_ask({"method": "roots/list", "params": {}}, V1, "id") == {"method": "roots/list"}
