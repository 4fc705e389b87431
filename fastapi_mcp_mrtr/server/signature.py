"""Read a handler's signature once, at registration: what FastAPI fills, what the client sends.

Knows no wire format beyond JSON Schema, and runs nothing.
"""

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    TypeAdapter,
    create_model,
)
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticUndefined

from fastapi_mcp_mrtr.protocol.headers import ParamHeader
from fastapi_mcp_mrtr.rounds.engine import HandlerForm, form_of
from fastapi_mcp_mrtr.rounds.sentinels import result_type

from .context import Context
from .injection import Dependant, dependant_of, is_dependency

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""`1*tchar` of RFC 9110 §5.6.2: what may stand in a header name."""

_HEADER_KINDS: Final = ("string", "integer", "boolean")
"""JSON Schema types a mirrored parameter may have (server/tools §x-mcp-header)."""


@dataclass(frozen=True, slots=True)
class MCPHeader:
    """Mirror a tool parameter into the `Mcp-Param-<name>` header (server/tools §x-mcp-header).

    ```python
    @mcp.tool()
    async def run_query(sql: str, region: Annotated[str, MCPHeader("Region")]) -> str: ...
    ```

    Proxies can then route on the value, and the server refuses a call whose header and body differ.
    For string, integer and boolean parameters; never for secrets, since headers are visible.

    Raises:
        ValueError: `name` cannot stand in a header name.
    """

    name: str

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.name):
            raise ValueError(f"MCPHeader({self.name!r}): not a header name (RFC 9110 §5.6.2)")

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        # `str | None` is omitted rather than null on the wire, so the property is a plain string.
        options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
        if len(options) == 1:
            schema = {**{k: v for k, v in schema.items() if k != "anyOf"}, **options[0]}
            schema.pop("default", None)
        return {**schema, "x-mcp-header": self.name}


@dataclass(frozen=True, slots=True)
class Complete:
    """Offer completions for a prompt argument or a template variable (server/utilities/completion).

    `source` gets what was typed so far and returns the values to offer, best first; of more than
    100 the first 100 are sent. It may also declare `arguments: dict[str, str]` (what the client has
    filled in already) and FastAPI dependencies, and may be `async`.

    ```python
    async def airports(value: str) -> list[str]: ...

    @mcp.prompt()
    async def itinerary(origin: Annotated[str, Complete(airports)]) -> str: ...
    ```
    """

    source: Callable[..., Any]


class _NoTitles(GenerateJsonSchema):
    """Leaves out titles made from field names: they only repeat the name to the model."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema(adapter: TypeAdapter[Any], *, serialized: bool) -> dict[str, Any]:
    """JSON Schema 2020-12 of a type, without generated titles."""
    schema = adapter.json_schema(
        schema_generator=_NoTitles, mode="serialization" if serialized else "validation"
    )
    schema.pop("title", None)
    return schema


class ArgumentsModel:
    """Validates the arguments a client sends and describes them as JSON Schema."""

    __slots__ = ("_renamed", "_validate", "schema")

    def __init__(self, name: str, parameters: list[inspect.Parameter]) -> None:
        fields: dict[str, Any] = {}
        renamed: dict[str, str] = {}
        for parameter in parameters:
            default = ... if parameter.default is parameter.empty else parameter.default
            annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
            field = parameter.name
            if hasattr(BaseModel, field):  # `schema`, `copy`, `json`: fine for a handler
                field = f"{field}_argument"
                renamed[field] = parameter.name
                default = FieldInfo.from_annotated_attribute(annotation, default)
                default.alias = default.validation_alias = parameter.name
            fields[field] = (annotation, default)
        model = create_model(
            f"{name}_arguments",
            __config__=ConfigDict(extra="forbid", protected_namespaces=()),
            **fields,
        )
        self._renamed = renamed
        self._validate = model.__pydantic_validator__.validate_python
        self.schema = json_schema(TypeAdapter(model), serialized=False)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the handler.

        Raises:
            pydantic.ValidationError: the arguments do not fit the schema.
        """
        values: dict[str, Any] = self._validate(arguments).__dict__
        if self._renamed:
            return {self._renamed.get(name, name): value for name, value in values.items()}
        return values


@dataclass(frozen=True, slots=True)
class HandlerSignature:
    """What is known of a handler before it is ever called."""

    call: Callable[..., Any]
    form: HandlerForm
    arguments: ArgumentsModel
    argument_names: tuple[str, ...]
    required: frozenset[str]
    descriptions: Mapping[str, str]
    dependant: Dependant | None
    context_parameter: str | None
    result: Any
    completers: Mapping[str, "HandlerSignature"]
    choices: Mapping[str, tuple[str, ...]]
    param_headers: tuple[ParamHeader, ...]


def read_signature(call: Callable[..., Any]) -> HandlerSignature:
    """Split the parameters of `call` into dependencies, context and arguments.

    Raises:
        TypeError: an annotation does not resolve, or a parameter has no meaning here. The message
            names the handler and the parameter.
    """
    name = handler_name(call)
    dependencies: list[inspect.Parameter] = []
    arguments: list[inspect.Parameter] = []
    context_parameter = None
    parameters, returns = _resolved_parameters(call, name)
    for parameter in parameters:
        where = f"Handler {name!r}, parameter {parameter.name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{where}: *args, **kwargs and positional-only are not supported")
        parameter = parameter.replace(kind=parameter.KEYWORD_ONLY)
        try:
            injected = is_dependency(parameter.annotation, parameter.default)
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        if injected:
            dependencies.append(parameter)
        elif _is_context(parameter.annotation):
            context_parameter = parameter.name
        elif parameter.name.startswith("_"):
            raise TypeError(f"{where}: an argument's name cannot start with an underscore")
        else:
            arguments.append(parameter)
    try:
        model = ArgumentsModel(name.rpartition(".")[2], arguments)
    except PydanticUserError as error:
        raise TypeError(f"Handler {name!r}: an argument has no JSON Schema: {error}") from error
    form = form_of(call)
    if form in (HandlerForm.ASYNC_GENERATOR, HandlerForm.SYNC_GENERATOR):
        returns = result_type(returns)
    infos = {argument.name: _field_info(argument) for argument in arguments}
    return HandlerSignature(
        call=call,
        form=form,
        arguments=model,
        argument_names=tuple(infos),
        required=frozenset(n for n, info in infos.items() if info.is_required()),
        descriptions={n: info.description for n, info in infos.items() if info.description},
        dependant=dependant_of(dependencies),
        context_parameter=context_parameter,
        result=returns,
        completers={
            n: read_signature(marker.source)
            for n, info in infos.items()
            for marker in info.metadata
            if isinstance(marker, Complete)
        },
        choices={n: options for n in infos if (options := _choices(model.schema, n))},
        param_headers=_param_headers(name, model.schema),
    )


def handler_name(call: Callable[..., Any]) -> str:
    """How messages call a handler: its qualified name without the enclosing function's."""
    target: Any = inspect.unwrap(call)
    while isinstance(target, functools.partial):
        target = target.func
    qualified: str = getattr(target, "__qualname__", type(target).__qualname__)
    return qualified.rpartition("<locals>.")[2]


def _resolved_parameters(
    call: Callable[..., Any], name: str
) -> tuple[list[inspect.Parameter], Any]:
    """The parameters with real annotations, also where those were written as strings."""
    target: Any = call
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"Handler {name!r}: the annotation {error.name!r} does not resolve. Define it at "
            "module level, before the handler"
        ) from None
    signature = inspect.signature(call)
    parameters = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    return parameters, hints.get("return", inspect.Signature.empty)


def _is_context(annotation: Any) -> bool:
    plain = getattr(annotation, "__origin__", annotation)
    return inspect.isclass(plain) and issubclass(plain, Context)


def _field_info(parameter: inspect.Parameter) -> FieldInfo:
    default = PydanticUndefined if parameter.default is parameter.empty else parameter.default
    annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
    return FieldInfo.from_annotated_attribute(annotation, default)


def _choices(schema: dict[str, Any], name: str) -> tuple[str, ...]:
    """The string values of an enumerated argument: they complete themselves."""
    prop = schema.get("properties", {}).get(name, {})
    reference = prop.get("$ref", "").removeprefix("#/$defs/")
    options = schema.get("$defs", {}).get(reference, prop).get("enum", ())
    return tuple(option for option in options if isinstance(option, str))


def _param_headers(name: str, schema: dict[str, Any]) -> tuple[ParamHeader, ...]:
    """The mirrored parameters, each checked against server/tools §x-mcp-header."""
    headers: dict[str, ParamHeader] = {}
    for prop, definition in schema.get("properties", {}).items():
        header = definition.get("x-mcp-header")
        if header is None:
            continue
        where = f"Handler {name!r}, parameter {prop!r}: MCPHeader({header!r})"
        kind = definition.get("type")
        if kind not in _HEADER_KINDS:
            raise TypeError(f"{where} needs a string, integer or boolean parameter")
        if header.lower() in headers:
            raise TypeError(f"{where} is used twice; header names ignore case")
        headers[header.lower()] = ParamHeader(header, (prop,), kind)
    if _count_key(schema, "x-mcp-header") != len(headers):
        raise TypeError(f"Handler {name!r}: MCPHeader belongs on a parameter, not inside a model")
    return tuple(headers.values())


def _count_key(node: Any, key: str) -> int:
    if isinstance(node, dict):
        return (key in node) + sum(_count_key(value, key) for value in node.values())
    if isinstance(node, list):
        return sum(_count_key(value, key) for value in node)
    return 0
