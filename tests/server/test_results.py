"""results: what handlers may return, and what becomes of it on the wire."""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, ConfigDict, Field

from fastapi_mcp_mrtr import (
    HandlerError,
    Rounds,
    SyncRounds,
    need_input,
    need_roots,
    not_yet,
)
from fastapi_mcp_mrtr.rounds.sentinels import Sentinel
from fastapi_mcp_mrtr.server.results import (
    ToolOutput,
    render_completion,
    render_prompt,
    render_resource,
    tool_error,
)


class Booking(BaseModel):
    flight: str
    on: date = date(2026, 7, 28)


class Aliased(BaseModel):
    seat_row: int = Field(serialization_alias="seatRow", default=4)


class Row:
    """As an ORM has them."""

    flight = "LX1"
    on = date(2026, 1, 1)


@dataclass
class Point:
    x: int
    y: float


class Cabin(Enum):
    FIRST = "first"


TEXT = TextContent(text="a")
IMAGE = ImageContent(data="aGk=", mime_type="image/png")
TEXT_WIRE = {"type": "text", "text": "a"}
IMAGE_WIRE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def output(annotation: Any) -> ToolOutput:
    return ToolOutput.of(annotation, where="Tool 't'")


def rendered(annotation: Any, value: Any) -> dict[str, Any]:
    return output(annotation).render(value)


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


# ----------------------------------------------------------------------------- declared results


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (Booking, Booking(flight="LX1"), {"flight": "LX1", "on": "2026-07-28"}),
        (Booking, {"flight": "LX1"}, {"flight": "LX1", "on": "2026-07-28"}),
        (Booking, Row(), {"flight": "LX1", "on": "2026-01-01"}),
        (Aliased, Aliased(seat_row=5), {"seatRow": 5}),
        (list[Booking], [Booking(flight="a")], [{"flight": "a", "on": "2026-07-28"}]),
        (Booking | None, None, None),
        (Point, Point(1, 2.0), {"x": 1, "y": 2.0}),
        (dict[str, Any], {"a": [1]}, {"a": [1]}),
        (dict[str, Any], {"a": math.nan}, {"a": None}),
        (int, 3, 3),
        (bool, True, True),
        (float, 1.5, 1.5),
        (float | None, math.inf, None),
        (Decimal, Decimal("1.20"), "1.20"),
        (Cabin, Cabin.FIRST, "first"),
        (Literal["a", "b"], "a", "a"),
        (list[str], ["NaN", "Infinity"], ["NaN", "Infinity"]),
        (list[str], ["\ud800"], ["\ufffd"]),
        (tuple[int, str], (1, "a"), [1, "a"]),
    ],
)
def test_a_declared_result_is_structured_and_text(
    annotation: Any, value: Any, structured: Any
) -> None:
    """spec: structured content of any JSON type, and SHOULD be text as well (server/tools
    §Structured Content)."""
    result = rendered(annotation, value)
    assert result["structuredContent"] == structured
    assert json.loads(result["content"][0]["text"]) == structured
    assert result["isError"] is False


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Booking, "text"),
        (Booking, {"flight": 1}),
        (Booking, Point(1, 2)),
        (Booking, IMAGE),
        (int, "three"),
        (list[int], [1, "x"]),
        (float, math.nan),
        (list[float], [1.0, -math.inf]),
    ],
)
def test_a_result_of_another_type_is_the_handlers_mistake(annotation: Any, value: Any) -> None:
    """spec: MUST provide structured results that conform to outputSchema; JSON has no NaN."""
    with pytest.raises(HandlerError, match="does not fit the declared return type"):
        rendered(annotation, value)


def test_a_result_that_is_missing_is_the_handlers_mistake() -> None:
    """User report: a forgotten last `yield` was called a value of the wrong type."""
    with pytest.raises(HandlerError, match="ended without a result"):
        rendered(Booking, None)
    assert rendered(Booking | None, None)["structuredContent"] is None


class Parent(BaseModel):
    children: list["Parent"] = []


def test_a_model_that_contains_itself_is_the_handlers_mistake() -> None:
    """decision: recursion ends in an error that says so."""
    parent = Parent()
    parent.children.append(parent)
    with pytest.raises(HandlerError, match="does not fit"):
        rendered(Parent, parent)


@pytest.mark.parametrize(
    "annotation",
    [str, None, type(None), Any, object, IMAGE.__class__, list[str | ImageContent], CallToolResult],
)
def test_types_that_say_nothing_of_a_structure_have_no_schema(annotation: Any) -> None:
    """decision: text and ready-made content are what they are."""
    assert output(annotation).schema is None


def test_a_type_has_a_schema() -> None:
    """spec: outputSchema is any JSON Schema."""
    assert output(list[int]).schema == {"type": "array", "items": {"type": "integer"}}
    assert output(Aliased).schema == {
        "type": "object",
        "properties": {"seatRow": {"type": "integer", "default": 4}},
    }


class Unfinished(BaseModel):
    other: "Missing"  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize("annotation", [Row, list[Row], Unfinished])
def test_a_type_without_schema_is_refused(annotation: Any) -> None:
    """decision: fail at registration, with the tool named."""
    with pytest.raises(TypeError, match="Tool 't': the return type has no JSON Schema"):
        output(annotation)


@pytest.mark.parametrize("annotation", [Rounds[str], SyncRounds[str], Rounds[None]])
def test_rounds_of_a_function_are_refused(annotation: Any) -> None:
    """User report: `return` where `yield` was meant, and a message about pydantic's schemas."""
    with pytest.raises(TypeError, match="Tool 't': it declares Rounds but yields nothing"):
        output(annotation)


# --------------------------------------------------------------------------- undeclared results


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, []),
        ("a", [TEXT_WIRE]),
        ("", [{"type": "text", "text": ""}]),
        (TEXT, [TEXT_WIRE]),
        (IMAGE, [IMAGE_WIRE]),
        ([TEXT, IMAGE], [TEXT_WIRE, IMAGE_WIRE]),
        (("a", IMAGE), [TEXT_WIRE, IMAGE_WIRE]),
        (3, [{"type": "text", "text": "3"}]),
        (math.nan, [{"type": "text", "text": "null"}]),
        (date(2026, 7, 28), [{"type": "text", "text": '"2026-07-28"'}]),
    ],
)
def test_an_undeclared_result_is_content(value: Any, content: list[Any]) -> None:
    """decision: without a declared type there is no structure to promise."""
    assert rendered(Any, value) == {"content": content, "isError": False}


@pytest.mark.parametrize("kind", ["audio", "resource_link", "resource"])
def test_all_kinds_of_content_are_passed_on(kind: str) -> None:
    """spec: ContentBlock (server/tools §Tool Result)."""
    block: Any = {
        "audio": AudioContent(data="aGk=", mime_type="audio/wav"),
        "resource_link": ResourceLink(uri="x:a", name="a"),
        "resource": EmbeddedResource(resource=TextResourceContents(uri="x:a", text="a")),
    }[kind]
    assert rendered(type(block), block)["content"][0]["type"] == kind


@pytest.mark.parametrize(
    ("value", "structured"),
    [
        ({"a": 1}, {"a": 1}),
        ([1, "a"], [1, "a"]),
        (["a", "b"], ["a", "b"]),
        ([], []),
        (Booking(flight="a"), {"flight": "a", "on": "2026-07-28"}),
        (Point(1, 2.0), {"x": 1, "y": 2.0}),
    ],
)
def test_undeclared_data_is_structured_too(value: Any, structured: Any) -> None:
    """decision: an object or a list is what it is, declared or not."""
    result = rendered(Any, value)
    assert result["structuredContent"] == structured
    assert json.loads(result["content"][0]["text"]) == structured


@pytest.mark.parametrize("value", [Row(), {"a": Row()}, itself(), deep(10_000), b"\xff"])
def test_a_value_without_json_is_the_handlers_mistake(value: Any) -> None:
    """user report: a result that could not be encoded took the connection down."""
    with pytest.raises(HandlerError, match="no JSON"):
        rendered(Any, value)


class Loose(BaseModel):
    seat: Any


@dataclass
class LoosePoint:
    x: Any


@pytest.mark.parametrize("sentinel", [need_roots("k"), need_input("k", "Sure?", bool), not_yet()])
@pytest.mark.parametrize(
    ("annotation", "wrap"),
    [
        (Any, lambda it: {"seat": it}),
        (Any, lambda it: ["a", it]),
        (Any, lambda it: [{"seats": ({"a": it},)}]),
        (Any, LoosePoint),
        (Any, lambda it: Loose(seat=it)),
        (Any, lambda it: CallToolResult(content=[], structured_content={"seat": it})),
        (dict[str, Any], lambda it: {"seat": it}),
        (dict[str, int], lambda it: {"seat": it}),
        (list[Any], lambda it: [it]),
        (LoosePoint, LoosePoint),
        (Loose, lambda it: Loose(seat=it)),
        (Booking, lambda it: Booking.model_construct(flight=it, on=date(2026, 7, 28))),
    ],
)
def test_a_sentinel_within_a_result_is_a_forgotten_yield(
    sentinel: Sentinel, annotation: Any, wrap: Callable[[Any], Any]
) -> None:
    """decision: whatever holds it, the error is about the `yield` and names what was forgotten."""
    with pytest.raises(HandlerError, match=r"must be yielded: (need_|not_yet).* was not yielded"):
        rendered(annotation, wrap(sentinel))


def test_a_ready_made_result_is_passed_on() -> None:
    """decision: whoever builds a CallToolResult has the last word."""
    assert rendered(Booking, CallToolResult(content=[TEXT], is_error=True)) == {
        "content": [TEXT_WIRE],
        "isError": True,
        "resultType": "complete",
    }
    explicit = CallToolResult(content=[], structured_content=None)
    assert rendered(Any, explicit)["structuredContent"] is None


def test_a_failure_is_a_result_too() -> None:
    """spec: isError with text that the model can read (server/tools §Error Handling)."""
    assert tool_error("a") == {"content": [TEXT_WIRE], "isError": True}


# --------------------------------------------------------------------------------------- prompts


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("a", [{"role": "user", "content": TEXT_WIRE}]),
        (IMAGE, [{"role": "user", "content": IMAGE_WIRE}]),
        (
            ["a", PromptMessage(role="assistant", content=IMAGE)],
            [
                {"role": "user", "content": TEXT_WIRE},
                {"role": "assistant", "content": IMAGE_WIRE},
            ],
        ),
        ((), []),
    ],
)
def test_what_a_prompt_may_return(value: Any, messages: list[Any]) -> None:
    """decision: text is a user's message; anything that is a message stays one."""
    assert render_prompt(value, None) == {"messages": messages}
    assert render_prompt(value, "Plans")["description"] == "Plans"


def test_a_ready_made_prompt_is_passed_on() -> None:
    """decision: its own description goes before that of the prompt."""
    result = GetPromptResult(description="Mine", messages=[])
    assert render_prompt(result, "Plans")["description"] == "Mine"


@pytest.mark.parametrize("value", [None, 3, {"role": "user"}, ["a", 3]])
def test_what_is_no_message_is_the_handlers_mistake(value: Any) -> None:
    """decision: nothing is guessed into a message."""
    with pytest.raises(HandlerError, match="A prompt returns text"):
        render_prompt(value, None)


# ------------------------------------------------------------------------------------- resources

CONTENTS = TextResourceContents(uri="x:b", mime_type="text/html", text="b")
CONTENTS_WIRE = {"uri": "x:b", "mimeType": "text/html", "text": "b"}
BLOB = BlobResourceContents(uri="x:c", blob="aGk=")


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("a", {"uri": "x:a", "mimeType": "text/plain", "text": "a"}),
        (b"hi", {"uri": "x:a", "mimeType": "application/octet-stream", "blob": "aGk="}),
        ({"n": 1}, {"uri": "x:a", "mimeType": "application/json", "text": '{"n":1}'}),
        ([1], {"uri": "x:a", "mimeType": "application/json", "text": "[1]"}),
        (Aliased(), {"uri": "x:a", "mimeType": "application/json", "text": '{"seatRow":4}'}),
        (Point(1, 2), {"uri": "x:a", "mimeType": "application/json", "text": '{"x":1,"y":2}'}),
        (["\ud800"], {"uri": "x:a", "mimeType": "application/json", "text": '["\ufffd"]'}),
        (CONTENTS, CONTENTS_WIRE),
        (BLOB, {"uri": "x:c", "blob": "aGk="}),
    ],
)
def test_what_a_resource_may_return(value: Any, contents: dict[str, Any]) -> None:
    """spec: contents are text or blob, with a URI (server/resources §Data Types)."""
    assert render_resource(value, "x:a", None) == {"contents": [contents]}


def test_the_declared_mime_type_is_used() -> None:
    """decision: what the decorator says holds for everything but ready-made contents."""
    for value in ("a", b"a", {"a": 1}):
        assert render_resource(value, "x:a", "x/y")["contents"][0]["mimeType"] == "x/y"
    assert render_resource([CONTENTS], "x:a", "x/y") == {"contents": [CONTENTS_WIRE]}


def test_a_ready_made_result_leaves_caching_to_the_decorator() -> None:
    """decision: the hints are one place's business; answers make them void."""
    result = ReadResourceResult(contents=[CONTENTS], ttl_ms=5, cache_scope="public")
    rendered = render_resource(result, "x:a", None)
    assert rendered["contents"] == [CONTENTS_WIRE]
    assert not {"ttlMs", "cacheScope"} & rendered.keys()


def test_a_sentinel_within_a_resource_is_a_forgotten_yield() -> None:
    """decision: as within a tool's result."""
    with pytest.raises(HandlerError, match="must be yielded"):
        render_resource({"roots": [need_roots("k")]}, "x:a", None)


@pytest.mark.parametrize("value", [None, []])
def test_nothing_is_no_resource(value: Any) -> None:
    """spec: SHOULD NOT return empty contents for what is not there (server/resources)."""
    with pytest.raises(HandlerError, match="returned nothing"):
        render_resource(value, "x:a", None)


@pytest.mark.parametrize("value", [3, True, Row(), {"a": Row()}, itself()])
def test_what_is_no_contents_is_the_handlers_mistake(value: Any) -> None:
    """decision: nothing is guessed into text."""
    with pytest.raises(HandlerError):
        render_resource(value, "x:a", None)


# ----------------------------------------------------------------------------------- completions


def generated() -> Iterator[str]:
    yield from ("a", "b")


@pytest.mark.parametrize(
    ("values", "offered"),
    [
        (None, []),
        ([], []),
        (["a", "b"], ["a", "b"]),
        (generated(), ["a", "b"]),
        ((1, 2), ["1", "2"]),
    ],
)
def test_completions(values: Any, offered: list[str]) -> None:
    """spec: values, total and hasMore (server/utilities/completion §Data Types)."""
    completion = {"values": offered, "total": len(offered), "hasMore": False}
    assert render_completion(values) == {"completion": completion}


def test_completions_are_at_most_a_hundred() -> None:
    """spec: at most 100 values."""
    completion = render_completion(range(101))["completion"]
    assert (len(completion["values"]), completion["total"]) == (100, 101)
    assert completion["hasMore"]


@pytest.mark.parametrize("values", ["Paris", b"Paris", {"a": 1}, 3])
def test_what_is_no_list_of_values_is_the_handlers_mistake(values: Any) -> None:
    """decision: "Paris" does not offer P, a, r, i and s."""
    with pytest.raises(HandlerError, match="list of text"):
        render_completion(values)


class Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid")
    n: float


def test_a_model_with_nan_names_the_field_in_the_log() -> None:
    """decision: the author reads where it is."""
    with pytest.raises(HandlerError, match="n\n"):
        rendered(Frozen, Frozen(n=math.nan))


# --------------------------------------------------------------------------- without mcp_types


def test_nothing_needs_mcp_types_that_does_not_use_it() -> None:
    """decision: it takes longer to import than all of this package."""
    code = "import sys, fastapi_mcp_mrtr; sys.exit('mcp_types' in sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_values_of_other_types_need_no_mcp_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: before anybody imported it, nothing can be of its types."""
    monkeypatch.delitem(sys.modules, "mcp_types")
    assert rendered(Any, [1]) == {
        "content": [{"type": "text", "text": "[1]"}],
        "isError": False,
        "structuredContent": [1],
    }
    assert render_prompt("Hello", None)["messages"][0]["content"]["text"] == "Hello"
    assert render_resource("text", "a:b", None)["contents"][0]["text"] == "text"
    assert "mcp_types" not in sys.modules
