"""The request of one handler and its response, as JSON Schema and as examples. Knows no route.

Schemas are made when the document is: `describe` turns pydantic's core schemas into references to
the components that FastAPI lists, so a model that tools and routes share is there once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic_core import to_json

from fastapi_mcp_mrtr.protocol.headers import encode_value, value_at
from fastapi_mcp_mrtr.protocol.inbound import NAME_SOURCE
from fastapi_mcp_mrtr.rounds.engine import HandlerForm
from fastapi_mcp_mrtr.server.access import required_scopes
from fastapi_mcp_mrtr.server.registry import Entry, PromptEntry, ResourceEntry, ToolEntry

from .examples import example
from .openapi import (
    ID,
    META,
    VERSION_HEADER,
    Describe,
    Json,
    MCPContent,
    MCPPromptMessage,
    MCPRequestMeta,
    MCPResourceContents,
    SchemaOf,
    constant,
    header,
    obj,
)

_ASKING: Final = (HandlerForm.ASYNC_GENERATOR, HandlerForm.SYNC_GENERATOR)

_TEXT: Final = {"type": "string"}
_COMPLETE: Final = {"resultType": constant("complete")}


@dataclass(frozen=True, slots=True)
class Message:
    """What every handler has in common. `method` and what is called by it differ by kind."""

    method: ClassVar[str]
    entry: Entry

    @property
    def label(self) -> str:
        """What the definition calls the handler; not unique among resources."""
        return str(self.entry.definition["name"])

    @property
    def asks(self) -> bool:
        """Whether the handler may ask at all."""
        return self.entry.signature.form in _ASKING

    def name(self) -> str:
        """What `Mcp-Name` and the body call it by."""
        return self.entry.name

    def description(self) -> str:
        """The handler's own, what its source shows of its asks, and the scopes it needs."""
        parts = [str(self.entry.definition.get("description", ""))]
        if self.asks:
            listed = [f"- {_question(ask)}" for ask in self.entry.asks]
            parts.append("**Asks** in further rounds" + (":" if listed else "."))
            parts.append("\n".join(listed))
        if scopes := required_scopes(self.entry):
            parts.append("**Scopes**: " + ", ".join(f"`{scope}`" for scope in scopes))
        return "\n\n".join(part for part in parts if part)

    def headers(self) -> list[Json]:
        """The header parameters, filled in as the first example needs them."""
        about = f"`params.{NAME_SOURCE[self.method]}` of the body"
        return [
            VERSION_HEADER,
            header("Mcp-Method", "`method` of the body", self.method),
            header("Mcp-Name", about, encode_value(self.name())),
        ]

    # ---------------------------------------------------------------------------- examples

    def arguments(self) -> Json:
        """Arguments that fit."""
        return {}

    def examples(self) -> Json:
        """Bodies by name: the first round and, where the handler may ask, a later one."""
        first = {"summary": "First round", "value": self._example(1)}
        if not self.asks:
            return {"first": first}
        answers = {
            key: {"action": "accept", "content": example(form)}
            for key, form in self._forms().items()
        }
        state = {"requestState": "the requestState that came", "inputResponses": answers}
        again = {"summary": "Next round, with answers", "value": self._example(2, **state)}
        return {"first": first, "next": again}

    def _example(self, id_: int, **more: Any) -> Json:
        params: Json = {NAME_SOURCE[self.method]: self.name()}
        if arguments := self.arguments():
            params["arguments"] = arguments
        params = {**params, **more, "_meta": META}
        return {"jsonrpc": "2.0", "id": id_, "method": self.method, "params": params}

    # ----------------------------------------------------------------------------- schemas

    def request_schema(self, describe: Describe) -> Json:
        """The JSON-RPC request."""
        source = NAME_SOURCE[self.method]
        params: Json = {source: self.name_schema()}
        required = [source, "_meta"]
        arguments = self.arguments_schema(describe)
        if arguments is not None:
            params["arguments"] = arguments
            required += ["arguments"] if self.entry.signature.required else []
        if self.asks:
            params["requestState"] = {**_TEXT, "description": "As it came"}
            params["inputResponses"] = self._answers_schema()
        params["_meta"] = describe(MCPRequestMeta.core_schema())
        request = {
            "jsonrpc": constant("2.0"),
            "id": ID,
            "method": constant(self.method),
            "params": obj(params, required),
        }
        return obj(request)

    def response_schemas(self) -> dict[str, SchemaOf]:
        """The responses that there are beside errors: what the handler returns, or asks for."""
        schemas: dict[str, SchemaOf] = {"result": lambda d: _response(self.result_schema(d))}
        if self.asks:
            schemas["input_required"] = lambda _: _response(self._input_required_schema())
        return schemas

    def name_schema(self) -> Json:
        """What `name` may be."""
        return constant(self.entry.name)

    def arguments_schema(self, describe: Describe) -> Json | None:
        """The arguments; None where a request has none."""
        return None

    def result_schema(self, describe: Describe) -> Json:
        """The result of a finished call."""
        raise NotImplementedError  # pragma: no cover - every kind has its own

    def _forms(self) -> dict[str, Json]:
        return {ask.key: ask.question.requested_schema for ask in self.entry.asks if ask.key}

    def _answers_schema(self) -> Json:
        actions = {"type": "string", "enum": ["accept", "decline", "cancel"]}
        answers = {
            key: obj({"action": actions, "content": form}, ["action"])
            for key, form in self._forms().items()
        }
        about = "By the keys of the `inputRequests` that they answer"
        return {**obj(answers, ()), "description": about}

    def _input_required_schema(self) -> Json:
        requests = {
            key: {"type": "object", "examples": [_form_request(form)]}
            for key, form in self._forms().items()
        }
        result = {
            "resultType": constant("input_required"),
            "inputRequests": obj(requests, ()),
            "requestState": {**_TEXT, "description": "To be sent back as it is"},
        }
        return obj(result, ["resultType"])


@dataclass(frozen=True, slots=True)
class ToolMessage(Message):
    """`tools/call`."""

    method: ClassVar[str] = "tools/call"
    entry: ToolEntry

    def headers(self) -> list[Json]:
        headers = super(ToolMessage, self).headers()
        arguments = self.arguments()
        for param in self.entry.param_headers:
            value = value_at(param.path, arguments)
            about = f"`params.arguments.{'.'.join(param.path)}` of the body; absent if that is"
            text = None if value is None else encode_value(_text(value))
            headers.append(header(param.full_name, about, text, required=value is not None))
        return headers

    def arguments(self) -> Json:
        arguments: Json = example(self.entry.definition["inputSchema"])
        return arguments

    def arguments_schema(self, describe: Describe) -> Json:
        own, shown = self.entry.signature.arguments, self.entry.definition["inputSchema"]
        if shown == own.schema:
            return describe(own.core_schema)
        replaced: Json = _without_references(shown, shown.get("$defs", {}))
        return replaced

    def result_schema(self, describe: Describe) -> Json:
        block = describe(MCPContent.core_schema())
        result = {**_COMPLETE, "content": _list(block)}
        if self.entry.output.core_schema is not None:
            result["structuredContent"] = describe(self.entry.output.core_schema)
        return obj(
            {**result, "isError": {"type": "boolean", "default": False}}, ["resultType", "content"]
        )


@dataclass(frozen=True, slots=True)
class PromptMessage(Message):
    """`prompts/get`, whose arguments are text."""

    method: ClassVar[str] = "prompts/get"
    entry: PromptEntry

    def arguments(self) -> Json:
        values: Json = example(self.entry.signature.arguments.schema)
        return {name: _text(value) for name, value in values.items()}

    def arguments_schema(self, describe: Describe) -> Json:
        signature = self.entry.signature
        described = {name: {"description": text} for name, text in signature.descriptions.items()}
        texts = {name: {**_TEXT, **described.get(name, {})} for name in signature.argument_names}
        return obj(texts, sorted(signature.required))

    def result_schema(self, describe: Describe) -> Json:
        message = describe(MCPPromptMessage.core_schema())
        return obj({**_COMPLETE, "messages": _list(message)})


@dataclass(frozen=True, slots=True)
class ResourceMessage(Message):
    """`resources/read`, of a resource or of one that a template stands for."""

    method: ClassVar[str] = "resources/read"
    entry: ResourceEntry

    def name(self) -> str:
        template = self.entry.template
        if template is None:
            return self.entry.name
        values: Json = example(self.entry.signature.arguments.schema)
        # A variable whose argument has a default is in a URI all the same.
        texts = {name: _text(values.get(name) or name) for name in template.variables}
        return template.expand(texts)

    def name_schema(self) -> Json:
        if self.entry.template is None:
            return constant(self.entry.name)
        return {**_TEXT, "description": f"A URI of `{self.entry.name}`"}

    def result_schema(self, describe: Describe) -> Json:
        contents = describe(MCPResourceContents.core_schema())
        return obj({**_COMPLETE, "contents": _list(contents)})


def _response(result: Json) -> Json:
    return obj({"jsonrpc": constant("2.0"), "id": ID, "result": result})


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _form_request(form: Json) -> Json:
    params = {"mode": "form", "message": "...", "requestedSchema": form}
    return {"method": "elicitation/create", "params": params}


def _question(ask: Any) -> str:
    properties = ask.question.requested_schema["properties"]
    fields = ", ".join(f"{name} ({member['type']})" for name, member in properties.items())
    return f"`{ask.key or '…'}`: {fields}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


def _without_references(schema: Any, defs: Mapping[str, Any], depth: int = 0) -> Any:
    """The schema with `#/$defs/` put in their places: there they would be those of the document."""
    if isinstance(schema, list):
        return [_without_references(item, defs, depth) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        if depth > _DEPTH:
            return {}
        target = defs.get(str(schema["$ref"]).rpartition("/")[2], {})
        rest = {name: member for name, member in schema.items() if name != "$ref"}
        return _without_references({**target, **rest}, defs, depth + 1)
    return {
        name: _without_references(member, defs, depth)
        for name, member in schema.items()
        if name != "$defs"
    }


_DEPTH: Final = 8
"""How often a schema may refer to itself before the document has had enough of it."""
