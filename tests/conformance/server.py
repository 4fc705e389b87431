"""The fixture server that the official conformance suite expects, on the public API alone.

    python -m tests.conformance.server --port 8001      # http://127.0.0.1:8001/mcp

Names, texts and keys are the suite's: it looks for exactly these.
"""

import argparse
import asyncio
import base64
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import uvicorn
from fastapi import FastAPI
from mcp_types import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    Complete,
    Context,
    MCPHeader,
    MCPRouter,
    Rounds,
    Secret,
    Titles,
    ToolError,
    log,
    need_input,
    need_roots,
    need_sampling,
    progress,
)

PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
)
"""One red pixel."""

WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA=="
"""Two samples of silence."""

mcp = MCPRouter(
    "mrtr-conformance",
    version="1.0.0",
    title="Conformance fixtures",
    instructions="Fixtures for the official conformance suite; of no use to anybody else.",
    keys=Secret.generate("fixtures"),
)


# --------------------------------------------------------------------------- content (tools)


@mcp.tool()
async def test_simple_text() -> str:
    """Answers with one text."""
    return "This is a simple text response for testing."


@mcp.tool()
async def test_image_content() -> ImageContent:
    """Answers with one image."""
    return ImageContent(data=PNG, mime_type="image/png")


@mcp.tool()
async def test_audio_content() -> AudioContent:
    """Answers with one sound."""
    return AudioContent(data=WAV, mime_type="audio/wav")


@mcp.tool()
async def test_embedded_resource() -> EmbeddedResource:
    """Answers with one embedded resource."""
    return _embedded(
        "test://embedded-resource", "text/plain", "This is an embedded resource content."
    )


@mcp.tool()
async def test_multiple_content_types() -> list[ContentBlock]:
    """Answers with text, an image and an embedded resource."""
    return [
        TextContent(text="Multiple content types test:"),
        ImageContent(data=PNG, mime_type="image/png"),
        _embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ]


def _embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


@mcp.tool()
async def test_error_handling() -> str:
    """Always fails, in a way that the model may read."""
    raise ToolError("This tool intentionally returns an error for testing")


# --------------------------------------------------------------------- notifications (tools)


@mcp.tool()
async def test_tool_with_progress() -> Rounds[str]:
    """Reports its progress three times."""
    for done in (0, 50, 100):
        yield progress(done, total=100)
        await asyncio.sleep(0.05)
    yield "The work is done."


@mcp.tool()
async def test_logging_tool() -> Rounds[str]:
    """Logs a message, which reaches only clients that asked for logs on this request."""
    yield log("info", "Tool execution started")
    yield "The work is done."


class Name(BaseModel):
    name: str


@mcp.tool()
async def test_streaming_elicitation() -> Rounds[str]:
    """Notifies, then asks: never by a request on the stream."""
    yield log("info", "About to ask")
    answer: Name = yield need_input("user_name", "What is your name?", Name)
    yield f"Hello, {answer.name}!"


@mcp.tool()
async def test_missing_capability() -> Rounds[str]:
    """Needs sampling, so a client that did not declare it is told so."""
    completion = yield need_sampling("greeting", "Generate a greeting", max_tokens=50)
    yield f"The model said: {completion.content}"


# ---------------------------------------------------------------------- list changes (tools)


@mcp.tool()
async def test_trigger_tool_change() -> str:
    """Adds a tool and takes it away again, so that listeners hear of it."""

    async def dynamic() -> str:
        """Comes and goes."""
        return "here for a moment"

    mcp.tool("test_dynamic_tool")(dynamic)
    mcp.remove_tool("test_dynamic_tool")
    return "The list of tools changed."


@mcp.tool()
async def test_trigger_prompt_change() -> str:
    """Adds a prompt and takes it away again, so that listeners hear of it."""

    async def dynamic() -> str:
        """Comes and goes."""
        return "here for a moment"

    mcp.prompt("test_dynamic_prompt")(dynamic)
    mcp.remove_prompt("test_dynamic_prompt")
    return "The list of prompts changed."


# --------------------------------------------------------------------------- schemas (tools)


@mcp.tool()
async def test_x_mcp_header(region: Annotated[str, MCPHeader("Region")] = "") -> str:
    """Takes an argument that clients mirror into a header."""
    return f"Region: {region}"


@mcp.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {
            "properties": {"contactMethod": {"const": "phone"}},
            "required": ["contactMethod"],
        },
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(
    name: str = "",
    address: dict[str, Any] | None = None,
    contactMethod: Literal["phone", "email"] | None = None,
    phone: str | None = None,
    email: str | None = None,
) -> str:
    """Shows an input schema of its own, word for word."""
    return f"{name}: {contactMethod} {phone or email} {address}"


# ---------------------------------------------------------------------------- rounds (tools)


class Confirmation(BaseModel):
    ok: bool


class Color(BaseModel):
    color: str


@mcp.tool(unasked_answers="accept")  # the suite also answers before it was asked
async def test_input_required_result_elicitation() -> Rounds[str]:
    """Asks the user one question."""
    answer: Name = yield need_input("user_name", "What is your name?", Name)
    yield f"Hello, {answer.name}!"


@mcp.tool()
async def test_input_required_result_sampling() -> Rounds[str]:
    """Asks the client's model one question."""
    completion = yield need_sampling(
        "capital_question", "What is the capital of France?", max_tokens=100
    )
    yield f"The model said: {completion.content}"


@mcp.tool()
async def test_input_required_result_list_roots() -> Rounds[str]:
    """Asks the client for its roots."""
    roots = yield need_roots("client_roots")
    yield f"{len(roots)} root(s): {', '.join(str(root.uri) for root in roots)}"


@mcp.tool()
async def test_input_required_result_request_state() -> Rounds[str]:
    """Asks, and needs its own state back."""
    answer: Confirmation = yield need_input("confirm", "Go on?", Confirmation)
    yield f"state-ok: {answer.ok}"


@mcp.tool()
async def test_input_required_result_multiple_inputs() -> Rounds[str]:
    """Asks three different things in one round."""
    name, greeting, roots = yield (
        need_input("user_name", "What is your name?", Name),
        need_sampling("greeting", "Generate a greeting", max_tokens=50),
        need_roots("client_roots"),
    )
    yield f"{name.name}, {greeting.content}, {len(roots)} root(s)"


@mcp.tool()
async def test_input_required_result_multi_round() -> Rounds[str]:
    """Asks in two rounds, one after the other."""
    name: Name = yield need_input("step1", "What is your name?", Name)
    color: Color = yield need_input("step2", f"Which color does {name.name} like?", Color)
    yield f"{name.name} likes {color.color}."


@mcp.tool()
async def test_input_required_result_tampered_state() -> Rounds[str]:
    """Asks, and refuses a state that somebody changed."""
    answer: Confirmation = yield need_input("confirm", "Go on?", Confirmation)
    yield f"Confirmed: {answer.ok}"


@mcp.tool()
async def test_input_required_result_capabilities(ctx: Context) -> Rounds[str]:
    """Asks only for what this client can do."""
    capabilities = ctx.client.capabilities
    answers: list[str] = []
    if "sampling" in capabilities:
        completion = yield need_sampling("greeting", "Generate a greeting", max_tokens=50)
        answers.append(str(completion.content))
    if "elicitation" in capabilities:
        name: Name = yield need_input("user_name", "What is your name?", Name)
        answers.append(name.name)
    yield ", ".join(answers) or "Nothing to ask."


# ------------------------------------------------- what only older revisions are asked (tools)


@mcp.tool()
async def test_tool_with_logging() -> Rounds[str]:
    """Logs three messages, for sessions that set a level."""
    for message in ("started", "processing data", "completed"):
        yield log("info", f"Tool execution {message}")
        await asyncio.sleep(0.05)
    yield "The work is done."


@mcp.tool()
async def test_sampling(prompt: str) -> Rounds[str]:
    """Asks the client's model what it was asked."""
    completion = yield need_sampling("prompt", prompt, max_tokens=100)
    yield f"LLM response: {completion.content}"


class Account(BaseModel):
    username: str
    email: str


@mcp.tool()
async def test_elicitation(message: str) -> Rounds[str]:
    """Asks the user who they are."""
    account: Account = yield need_input("account", message, Account)
    yield f"User response: {account.username}, {account.email}"


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@mcp.tool()
async def test_elicitation_sep1034_defaults() -> Rounds[str]:
    """Asks with a default in every field."""
    answer: Defaults = yield need_input("defaults", "Please check what is filled in", Defaults)
    yield f"Elicitation completed: {answer!r}"


_FIRST_TO_THIRD: Final = ("First", "Second", "Third")
_OPTIONS: Final = Titles({f"value{n}": f"{o} Option" for n, o in enumerate(_FIRST_TO_THIRD, 1)})
_CHOICES: Final = Titles({f"value{n}": f"{o} Choice" for n, o in enumerate(_FIRST_TO_THIRD, 1)})


class Enums(BaseModel):
    untitledSingle: Literal["option1", "option2", "option3"]
    titledSingle: Annotated[Literal["value1", "value2", "value3"], _OPTIONS]
    legacyEnum: Literal["opt1", "opt2", "opt3"] = Field(
        json_schema_extra={"enumNames": ["Option One", "Option Two", "Option Three"]}
    )
    untitledMulti: list[Literal["option1", "option2", "option3"]]
    titledMulti: Annotated[list[Literal["value1", "value2", "value3"]], _CHOICES]


@mcp.tool()
async def test_elicitation_sep1330_enums() -> Rounds[str]:
    """Asks with every form that a choice can have."""
    answer: Enums = yield need_input("enums", "Please choose", Enums)
    yield f"Elicitation completed: {answer!r}"


# --------------------------------------------------------------------------------- resources


@mcp.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@mcp.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that never changes."""
    return base64.b64decode(PNG)


@mcp.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text that clients may subscribe to."""
    return "This is the content of the watched resource."


@mcp.resource("test://template/{id}/data", mime_type="application/json")
async def template(id: str) -> dict[str, Any]:
    """Data made from the address."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# ----------------------------------------------------------------------------------- prompts


def _suggest(value: str) -> list[str]:
    return [word for word in ("test", "testing", "testValue1") if word.startswith(value)]


@mcp.prompt()
async def test_simple_prompt() -> str:
    """One message, no arguments."""
    return "This is a simple prompt for testing."


@mcp.prompt()
async def test_prompt_with_arguments(arg1: Annotated[str, Complete(_suggest)], arg2: str) -> str:
    """One message that holds both arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@mcp.prompt()
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:
    """A resource, and what to do with it."""
    text = "Embedded resource content for testing."
    return [
        PromptMessage(role="user", content=_embedded(resourceUri, "text/plain", text)),
        _user("Please process the embedded resource above."),
    ]


@mcp.prompt()
async def test_prompt_with_image() -> list[PromptMessage]:
    """An image, and what to do with it."""
    return [
        PromptMessage(role="user", content=ImageContent(data=PNG, mime_type="image/png")),
        _user("Please analyze the image above."),
    ]


def _user(text: str) -> PromptMessage:
    return PromptMessage(role="user", content=TextContent(text=text))


class UserContext(BaseModel):
    context: str


@mcp.prompt()
async def test_input_required_result_prompt() -> Rounds[str]:
    """Asks before it answers."""
    answer: UserContext = yield need_input(
        "user_context", "What context should the prompt use?", UserContext
    )
    yield f"Use this context: {answer.context}"


app = FastAPI(title="Conformance fixtures")
app.include_router(mcp)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve on 127.0.0.1 until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8001)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args(argv).port, log_level="warning")


if __name__ == "__main__":
    main()
