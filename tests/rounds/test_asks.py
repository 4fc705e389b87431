"""Each kind of ask: its wire form, and what comes back."""

from typing import Any

import mcp_types
import pytest
from mcp_types import (
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ListRootsRequest,
    ModelPreferences,
    Root,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
)

from fastapi_mcp_mrtr.errors import InputCancelled, InputDeclined, MCPError
from fastapi_mcp_mrtr.rounds.asks import Ask
from fastapi_mcp_mrtr.rounds.sentinels import (
    Rounds,
    need_input,
    need_roots,
    need_sampling,
    need_url,
)

from .play import CANCEL, DECLINE, Flow, accept

pytestmark = pytest.mark.anyio

URL = "https://example.org/connect"
HI = {"role": "user", "content": {"type": "text", "text": "Hi"}}
ANSWER = {
    "role": "assistant",
    "content": {"type": "text", "text": "Hello"},
    "model": "m",
    "stopReason": "endTurn",
}
SEVERAL = {**ANSWER, "content": [ANSWER["content"], ANSWER["content"]]}


def asking(ask: Ask) -> Flow:
    async def handler() -> Rounds[Any]:
        yield [(yield ask)]

    return Flow(handler)


async def answered(ask: Ask, envelope: Any) -> Any:
    """The value in the round that brings the answer, checked to be the same on a replay."""
    flow = asking(ask)
    await flow.asks()
    (first,) = await flow.result({ask.key: envelope})
    (second,) = await flow.result()
    assert first == second
    assert type(first) is type(second)
    return first


# --- on the wire -----------------------------------------------------------------------------

TOOL = Tool(name="t", input_schema={"type": "object"})
FULL_SAMPLING = need_sampling(
    "x",
    [
        "Hi",
        SamplingMessage(role="assistant", content=TextContent(type="text", text="Yes?")),
        {"role": "user", "content": {"type": "text", "text": "Go"}},  # type: ignore[list-item]
    ],
    max_tokens=5,
    system_prompt="s",
    temperature=0,
    stop_sequences=("a",),
    model_preferences=ModelPreferences(cost_priority=0.5),
    tools=[TOOL, {"name": "u", "inputSchema": {"type": "object"}}],
    tool_choice=ToolChoice(mode="auto"),
    metadata={"a": 1},
    include_context="none",
)


@pytest.mark.parametrize(
    ("ask", "model", "wire"),
    [
        (
            need_input("x", "Sure?", bool),
            ElicitRequest,
            {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "Sure?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"value": {"type": "boolean"}},
                        "required": ["value"],
                    },
                },
            },
        ),
        (
            need_url("x", "Go", URL),
            ElicitRequest,
            {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "Go", "url": URL},
            },
        ),
        (
            need_sampling("x", "Hi", max_tokens=5),
            CreateMessageRequest,
            {
                "method": "sampling/createMessage",
                "params": {"messages": [HI], "maxTokens": 5},
            },
        ),
        (
            FULL_SAMPLING,
            CreateMessageRequest,
            {
                "method": "sampling/createMessage",
                "params": {
                    "messages": [
                        HI,
                        {"role": "assistant", "content": {"type": "text", "text": "Yes?"}},
                        {"role": "user", "content": {"type": "text", "text": "Go"}},
                    ],
                    "maxTokens": 5,
                    "systemPrompt": "s",
                    "temperature": 0,
                    "stopSequences": ["a"],
                    "modelPreferences": {"costPriority": 0.5},
                    "tools": [
                        {"name": "t", "inputSchema": {"type": "object"}},
                        {"name": "u", "inputSchema": {"type": "object"}},
                    ],
                    "toolChoice": {"mode": "auto"},
                    "metadata": {"a": 1},
                    "includeContext": "none",
                },
            },
        ),
        (need_roots("x"), ListRootsRequest, {"method": "roots/list", "params": {}}),
    ],
)
def test_an_ask_has_its_wire_form(ask: Ask, model: Any, wire: Any) -> None:
    """Spec: MUST (mrtr §Server Requirements 2): one of three kinds of request."""
    assert ask.request() == wire
    assert isinstance(model.model_validate(wire), getattr(mcp_types, model.__name__))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (need_input("x", "A?", bool), need_input("x", "B?", bool)),
        (need_input("x", "A?", bool), need_input("x", "A?", int)),
        (need_input("x", "A?", bool), need_url("x", "A?", URL)),
        (need_url("x", "A?", URL), need_url("x", "A?", URL + "?b")),
        (need_sampling("x", "A?", max_tokens=1), need_sampling("x", "A?", max_tokens=2)),
        (need_sampling("x", "A?", max_tokens=1), need_roots("x")),
    ],
)
def test_another_question_has_another_digest(one: Ask, other: Ask) -> None:
    """Decision: an answer is pinned to everything that was shown."""
    assert one.digest() != other.digest()


def test_the_same_question_has_the_same_digest() -> None:
    """Decision: whatever it is called; the key is no part of the question."""
    assert need_input("x", "A?", bool).digest() == need_input("y", "A?", bool).digest()
    assert need_roots("x").digest() == need_roots("y").digest()


def test_a_message_with_broken_text_can_be_digested() -> None:
    """Decision: lone surrogates never crash."""
    assert need_input("x", "\ud800", bool).digest()


# --- what comes back -------------------------------------------------------------------------


@pytest.mark.parametrize("envelope", [accept(), accept({"a": 1}), {"action": "accept", "x": 1}])
async def test_a_url_gives_back_nothing_once_the_user_agreed(envelope: Any) -> None:
    """Spec: elicitation §Response Actions: for url mode, content is omitted."""
    assert await answered(need_url("x", "Go", URL), envelope) is None


@pytest.mark.parametrize(
    ("envelope", "error"), [(DECLINE, InputDeclined), (CANCEL, InputCancelled)]
)
async def test_a_url_may_be_refused(envelope: Any, error: Any) -> None:
    """Spec: elicitation §Response Actions: the actions apply to both modes."""
    flow = asking(need_url("x", "Go", URL))
    await flow.asks()
    with pytest.raises(error):
        await flow.round({"x": envelope})


async def test_sampling_gives_back_a_message() -> None:
    """Spec: CreateMessageResult, as the type users know from mcp_types."""
    result = await answered(need_sampling("x", "Hi", max_tokens=1), ANSWER)
    assert isinstance(result, CreateMessageResult)
    assert (result.model, result.stop_reason) == ("m", "endTurn")


@pytest.mark.parametrize(
    ("ask", "envelope"),
    [
        (need_sampling("x", "Hi", max_tokens=1, tools=[TOOL]), ANSWER),
        (need_sampling("x", "Hi", max_tokens=1, tool_choice={"mode": "none"}), SEVERAL),
        (need_sampling("x", "Hi", max_tokens=1), SEVERAL),
    ],
)
async def test_sampling_with_tools_or_several_blocks(ask: Ask, envelope: Any) -> None:
    """Spec: CreateMessageResult.content may be an array; mcp_types has a type for that."""
    result = await answered(ask, envelope)
    assert isinstance(result, CreateMessageResultWithTools)
    assert result.content_as_list[0] == TextContent(type="text", text="Hello")


async def test_roots_give_back_a_list() -> None:
    """Spec: ListRootsResult."""
    envelope = {"roots": [{"uri": "file:///home", "name": "Home"}], "more": 1}
    roots = await answered(need_roots("x"), envelope)
    assert [type(root) for root in roots] == [Root]
    assert (str(roots[0].uri), roots[0].name) == ("file:///home", "Home")
    assert await answered(need_roots("x"), {"roots": []}) == []


SURE = need_input("x", "Sure?", bool)


@pytest.mark.parametrize("more", ["a", 1.5, True, None, [], ["a", "b"]])
async def test_content_may_hold_more_than_was_asked_for(more: Any) -> None:
    """Spec: any ElicitResult; what is not needed is ignored (mrtr §Error Handling)."""
    assert await answered(SURE, accept({"value": True, "more": more})) is True


@pytest.mark.parametrize(
    ("ask", "envelope", "type_"),
    [
        (need_url("x", "Go", URL), {}, "ElicitResult"),
        (need_url("x", "Go", URL), "accept", "ElicitResult"),
        (SURE, accept({"value": True, "more": {"a": 1}}), "ElicitResult"),
        (SURE, accept({"value": True, "more": [{"a": 1}]}), "ElicitResult"),
        (SURE, accept({"value": True, "more": ["a", 1]}), "ElicitResult"),
        (SURE, accept({"value": {"a": 1}}), "ElicitResult"),
        (SURE, accept({"value": [["a"]]}), "ElicitResult"),
        (need_sampling("x", "Hi", max_tokens=1), accept(), "CreateMessageResult"),
        (need_sampling("x", "Hi", max_tokens=1), 5, "CreateMessageResult"),
        (need_sampling("x", "Hi", max_tokens=1), {**ANSWER, "content": 5}, "CreateMessageResult"),
        (need_sampling("x", "Hi", max_tokens=1), {**ANSWER, "content": [5]}, "CreateMessageResult"),
        (need_roots("x"), ANSWER, "ListRootsResult"),
        (need_roots("x"), [], "ListRootsResult"),
        (need_roots("x"), {"roots": [{"uri": "https://example.org/"}]}, "ListRootsResult"),
    ],
)
async def test_an_answer_of_another_kind_is_an_error(ask: Ask, envelope: Any, type_: str) -> None:
    """Spec: servers validate InputResponses; -32602 names the key and never the value."""
    flow = asking(ask)
    await flow.asks()
    with pytest.raises(MCPError) as caught:
        await flow.round({"x": envelope})
    assert caught.value.message == f"inputResponses['x'] is no valid {type_}"
