"""groups: what the decorators make of a function, and what they refuse."""

import functools
import inspect
from dataclasses import fields
from typing import Annotated, Any, Literal

import pytest
from fastapi import Security
from mcp_types import Annotations, Icon, ToolAnnotations
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import Context, HandlerGroup, MCPHeader, Rounds, need_input
from fastapi_mcp_mrtr.protocol.headers import ParamHeader
from fastapi_mcp_mrtr.server.registry import Settings


class Out(BaseModel):
    n: int


class Nested(BaseModel):
    out: Out


def handler() -> str:
    """What it does."""
    return ""


def tool_of(group: HandlerGroup, name: str = "handler") -> dict[str, Any]:
    return dict(group._registry.tools[name].definition)


# ----------------------------------------------------------------------------------------- tools


@pytest.mark.parametrize("bare", [True, False])
def test_a_decorated_function_stays_itself(bare: bool) -> None:
    """decision: with or without parentheses, for tools and prompts."""
    group = HandlerGroup()
    for register in (group.tool, group.prompt):
        assert (register(handler) if bare else register()(handler)) is handler
    assert group.resource("x:a")(handler) is handler


def test_name_and_description_come_from_the_function() -> None:
    """decision: the docstring is for the model."""
    group = HandlerGroup()
    group.tool(handler)
    assert tool_of(group) == {
        "name": "handler",
        "description": "What it does.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def test_everything_else_is_given() -> None:
    """spec: the members of a Tool (server/tools §Data Types)."""
    group = HandlerGroup()
    group.tool(
        "other.name",
        title="Other",
        description="Else",
        annotations=ToolAnnotations(read_only_hint=True),
        icons=[Icon(src="https://example.com/i.png")],
        meta={"k": [1]},
    )(handler)
    definition = tool_of(group, "other.name")
    del definition["inputSchema"]
    assert definition == {
        "name": "other.name",
        "title": "Other",
        "description": "Else",
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "https://example.com/i.png"}],
        "_meta": {"k": [1]},
    }


def test_the_return_type_is_the_output_schema() -> None:
    """spec: outputSchema (server/tools §Output Schema)."""
    group = HandlerGroup()

    @group.tool()
    async def structured() -> Rounds[Out]:
        yield Out(n=1)

    @group.tool(structured=False)
    async def unstructured() -> Out:
        return Out(n=1)

    assert tool_of(group, "structured")["outputSchema"]["properties"] == {"n": {"type": "integer"}}
    assert "outputSchema" not in tool_of(group, "unstructured")


def test_an_input_schema_may_be_written_by_hand() -> None:
    """decision: it is shown, and says which headers are expected; the parameters validate."""
    group = HandlerGroup()
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"type": "string", "x-mcp-header": "A"}},
        "allOf": [{"anyOf": [{"required": ["a"]}]}],
    }

    @group.tool(input_schema=schema)
    def by_hand(a: str, b: Annotated[str, MCPHeader("B")] = "") -> str:
        return a

    schema["properties"] = {}  # what the author does with it afterwards is no business of ours
    shown = tool_of(group, "by_hand")["inputSchema"]
    assert shown["properties"] == {"a": {"type": "string", "x-mcp-header": "A"}}
    assert group._registry.tools["by_hand"].param_headers == (ParamHeader("A", ("a",), "string"),)


@pytest.mark.parametrize("schema", [{"properties": {}}, {"type": "array"}])
def test_an_input_schema_describes_an_object(schema: dict[str, Any]) -> None:
    """spec: inputSchema has `type: "object"`."""
    with pytest.raises(ValueError, match='"type": "object"'):
        HandlerGroup().tool(input_schema=schema)(handler)


@pytest.mark.parametrize("name", ["", "a b", "ä"])
def test_a_name_has_to_be_legal(name: str) -> None:
    """spec: server/tools §Tool Names."""
    with pytest.raises(ValueError, match="legal name"):
        HandlerGroup().tool(name)(handler)
    with pytest.raises(ValueError, match="legal name"):
        HandlerGroup().prompt(name)(handler)


def test_an_object_without_a_name_needs_one() -> None:
    """decision: a callable object is not called by its class."""

    class Callables:
        def __call__(self) -> str:
            """Calls."""
            return ""

    group = HandlerGroup()
    with pytest.raises(TypeError, match="'Callables' has no name of its own: pass name="):
        group.tool(Callables())
    group.tool("named")(Callables())
    assert tool_of(group, "named")["description"] == "Calls."


def test_a_partial_is_called_and_described_as_its_function() -> None:
    """decision: "Create a new function with partial application" says nothing to a model."""
    group = HandlerGroup()
    group.tool()(functools.partial(handler))
    assert tool_of(group)["description"] == "What it does."


def test_what_is_no_json_is_refused() -> None:
    """decision: fail at registration, not at every tools/list."""
    with pytest.raises(TypeError, match="_meta of 'handler' is no JSON"):
        HandlerGroup().tool(meta={"k": object()})(handler)


def test_a_return_type_without_schema_is_refused() -> None:
    """decision: fail at registration, with the tool named."""

    def opaque() -> Context: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match="Tool 'opaque': the return type has no JSON Schema"):
        HandlerGroup().tool(opaque)


async def asks_too_much() -> Rounds[str]:
    nested: Nested = yield need_input("q", "What?", Nested)
    yield str(nested)


def test_a_question_the_protocol_cannot_ask_is_refused() -> None:
    """user report: nested objects reached clients that cannot show them (mcp_dart#165)."""
    group = HandlerGroup()
    for register in (group.tool, group.prompt, group.resource("x:a")):
        with pytest.raises(TypeError, match="asks_too_much"):
            register(asks_too_much)


def test_the_scopes_of_security_dependencies_are_those_of_the_handler() -> None:
    """decision: what `Security` checks is what a challenge names."""
    group = HandlerGroup()

    def user() -> str:
        return "alice"

    @group.tool(scopes=["a"])
    async def guarded(u: Annotated[str, Security(user, scopes=["b"])]) -> str:
        return u

    settings = group._registry.tools["guarded"].settings
    assert (tuple(settings.scopes), tuple(settings.security_scopes)) == (("a",), ("b",))


@pytest.mark.parametrize("settings", [{"ttl": 0}, {"max_rounds": 0}, {"unasked_answers": "never"}])
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    """decision: fail at registration, for every kind."""
    group = HandlerGroup()
    for decorator in (group.tool, group.prompt, functools.partial(group.resource, "x:a")):
        with pytest.raises(ValueError, match=next(iter(settings))):
            decorator(**settings)


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_each_decorator_takes_each_setting(kind: str, setting: Any) -> None:
    """decision: with the type and the default that it has in `Settings`."""
    parameters = inspect.signature(getattr(HandlerGroup, kind)).parameters
    if setting.name == "security_scopes":  # the handler's own dependencies have them
        assert setting.name not in parameters
        return
    parameter = parameters[setting.name]
    assert parameter.default == setting.default
    if setting.name != "scopes":  # any sequence, kept as a tuple
        assert parameter.annotation == setting.type


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
def test_settings_are_those_that_were_given(kind: str) -> None:
    """decision: every kind of handler takes the same ones."""
    group = HandlerGroup()
    given: dict[str, Any] = {
        "ttl": 1.5,
        "max_rounds": 2,
        "version": "3",
        "unasked_answers": "accept",
        "single_use": True,
        "scopes": ("a",),
        "visibility": "authorized",
        "ask_timeout": 4.0,
    }
    decorators: dict[str, Any] = {
        "tools": group.tool,
        "prompts": group.prompt,
        "resources": functools.partial(group.resource, "x:a"),
    }

    def handler() -> str:
        return "a"

    decorators[kind](**given)(handler)
    [entry] = getattr(group._registry, kind).values()
    assert entry.settings == Settings(**given)


# --------------------------------------------------------------------------------------- prompts


def test_a_prompt_lists_its_arguments() -> None:
    """spec: arguments with name, description and required (server/prompts §Data Types)."""
    group = HandlerGroup()

    @group.prompt(title="Plan", description="Plans", icons=[Icon(src="data:,")], meta={"k": 1})
    async def plan(
        city: Annotated[str, Field(description="Where")],
        from_: Annotated[str, Field(alias="from")] = "Bern",
    ) -> str:
        return ""

    assert group._registry.prompts["plan"].definition == {
        "name": "plan",
        "title": "Plan",
        "description": "Plans",
        "arguments": [
            {"name": "city", "description": "Where", "required": True},
            {"name": "from", "required": False},
        ],
        "icons": [{"src": "data:,"}],
        "_meta": {"k": 1},
    }


def test_a_prompt_without_arguments_has_no_list_of_them() -> None:
    """decision: absent members are left out."""
    group = HandlerGroup()
    group.prompt("p")(handler)
    assert group._registry.prompts["p"].definition == {
        "name": "p",
        "description": "What it does.",
    }


# ------------------------------------------------------------------------------------- resources


def test_a_resource_and_a_template() -> None:
    """spec: Resource has `uri` and `size`, ResourceTemplate `uriTemplate` (server/resources)."""
    group = HandlerGroup()

    def by_id(id: int, unit: Literal["kg", "lb"] = "kg") -> str:
        return ""

    group.resource(
        "file:///a",
        name="a",
        title="A",
        description="The a",
        mime_type="text/plain",
        annotations=Annotations(priority=0.5),
        icons=[Icon(src="data:,")],
        meta={"k": 1},
        size=3,
    )(handler)
    group.resource("file:///{id}", size=3)(by_id)
    assert group._registry.resources["file:///a"].definition == {
        "name": "a",
        "uri": "file:///a",
        "title": "A",
        "description": "The a",
        "mimeType": "text/plain",
        "annotations": {"priority": 0.5},
        "icons": [{"src": "data:,"}],
        "size": 3,
        "_meta": {"k": 1},
    }
    assert group._registry.templates["file:///{id}"].definition == {
        "name": "by_id",
        "uriTemplate": "file:///{id}",
    }


@pytest.mark.parametrize("uri", ["", "a/b", "//host/a", "1x:a", "{scheme}:a"])
def test_a_uri_has_a_scheme(uri: str) -> None:
    """spec: `uri` is a URI (RFC 3986)."""
    with pytest.raises(ValueError, match="no scheme"):
        HandlerGroup().resource(uri)


@pytest.mark.parametrize("uri", ["x:{", "x:}", "x:{a}{a}"])
def test_a_template_has_to_be_one(uri: str) -> None:
    """spec: `uriTemplate` is a URI template (RFC 6570)."""
    with pytest.raises(ValueError, match=r"x:"):
        HandlerGroup().resource(uri)


def test_a_ttl_is_not_negative() -> None:
    """spec: ttlMs is 0 or more (server/utilities/caching)."""
    with pytest.raises(ValueError, match="cache_ttl_ms"):
        HandlerGroup().resource("x:a", cache_ttl_ms=-1)


def wants_id(id: str) -> str:
    return ""


def wants_nothing() -> str:
    return ""


@pytest.mark.parametrize(
    ("uri", "call", "name"),
    [
        ("x:{id}", wants_nothing, "id"),
        ("x:a", wants_id, "id"),
        ("x:{other}", wants_id, "id, other"),
    ],
)
def test_variables_and_arguments_have_to_agree(uri: str, call: Any, name: str) -> None:
    """decision: fail at registration, with what is missing named."""
    with pytest.raises(ValueError, match=f"disagree about {name}: "):
        HandlerGroup().resource(uri)(call)


# ---------------------------------------------------------------------------------------- groups


def test_groups_are_included_and_handlers_removed() -> None:
    """decision: the table of a group is that of the router that includes it."""
    group, root = HandlerGroup(), HandlerGroup()
    root.include(group, prefix="g.")
    group.tool(handler)
    group.prompt(handler)
    group.resource("x:a")(handler)
    assert list(root._registry.tools) == ["g.handler"]
    root.remove_tool("g.handler")
    root.remove_prompt("g.handler")
    root.remove_resource("x:a")
    assert not root._registry._entries()
    with pytest.raises(KeyError):
        root.remove_tool("g.handler")
