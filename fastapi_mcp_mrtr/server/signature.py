"""Read a handler's signature once, at registration: what FastAPI fills, what the client sends.

Knows no wire format beyond JSON Schema, and runs nothing.
"""

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from fastapi_mcp_mrtr.rounds.engine import HandlerForm, form_of
from fastapi_mcp_mrtr.rounds.sentinels import result_type

from .context import Context
from .injection import Dependencies, is_dependency

_OFFERED: Final = frozenset({"value", "arguments"})
"""What the source of completions may ask for beside dependencies."""

PYDANTIC_REFUSES: Final = (PydanticUserError, PydanticUndefinedAnnotation)
"""What pydantic raises for a type that it cannot validate or describe."""

_NO_JSON: Final = (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema)
"""Those of them that say it of a type and not of a mistake in writing it."""

_OTHER_PACKAGES: Final = ("mcp", "fastmcp")
"""Whose `Context` pydantic would take for a model that the client fills in."""


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

    __slots__ = ("_renamed", "_validate", "core_schema", "names", "schema")

    def __init__(self, name: str, parameters: list[inspect.Parameter]) -> None:
        taken = {parameter.name for parameter in parameters}
        fields: dict[str, Any] = {}
        renamed: dict[str, str] = {}
        for parameter in parameters:
            field, annotation = parameter.name, _annotation(parameter)
            if hasattr(BaseModel, field):  # `schema`, `copy`, `json`: fine for a handler
                while field in taken or hasattr(BaseModel, field):
                    field += "_"
                taken.add(field)
                renamed[field] = parameter.name
                if _field_info(parameter).alias is None:
                    annotation = Annotated[annotation, Field(alias=parameter.name)]
            has_default = parameter.default is not parameter.empty
            fields[field] = (annotation, parameter.default if has_default else ...)
        model = create_model(
            f"{name}_arguments",
            __config__=ConfigDict(extra="forbid", protected_namespaces=()),
            **fields,
        )
        self._renamed = renamed
        self._validate = model.__pydantic_validator__.validate_python
        self.core_schema = model.__pydantic_core_schema__
        self.schema = json_schema(TypeAdapter(model), serialized=False)
        properties = self.schema.get("properties", ())
        if len(properties) != len(parameters):
            raise TypeError("two parameters have the same alias")
        self.names = dict(zip(properties, parameters, strict=True))
        """The parameters by the names clients use: their own, or their aliases."""

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the handler.

        Raises:
            pydantic.ValidationError: the arguments do not fit the schema.
        """
        values: dict[str, Any] = self._validate(arguments).__dict__
        if not self._renamed:
            return values
        return {self._renamed.get(name, name): value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class HandlerSignature:
    """What is known of a handler before it is ever called. Arguments go by their wire names."""

    call: Callable[..., Any]
    form: HandlerForm
    arguments: ArgumentsModel
    required: frozenset[str]
    descriptions: Mapping[str, str]
    dependencies: Dependencies | None
    context_parameter: str | None
    result: Any
    completers: Mapping[str, "HandlerSignature"]
    choices: Mapping[str, tuple[str, ...]]

    @property
    def argument_names(self) -> tuple[str, ...]:
        """What clients call the arguments, in the order of the parameters."""
        return tuple(self.arguments.names)


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
        elif _is_foreign_context(parameter.annotation):
            raise TypeError(
                f"{where}: this Context is of another package, and would be an argument for the "
                "client. Write `from fastapi_mcp_mrtr import Context`"
            )
        elif parameter.name.startswith("_"):
            raise TypeError(f"{where}: an argument's name cannot start with an underscore")
        else:
            arguments.append(parameter)
    form = form_of(call)
    if form in (HandlerForm.ASYNC_GENERATOR, HandlerForm.SYNC_GENERATOR):
        returns = result_type(returns)
    model = _arguments_model(name, arguments)
    infos = {wire: _field_info(parameter) for wire, parameter in model.names.items()}
    return HandlerSignature(
        call=call,
        form=form,
        arguments=model,
        required=frozenset(n for n, info in infos.items() if info.is_required()),
        descriptions={n: info.description for n, info in infos.items() if info.description},
        dependencies=_dependencies(name, dependencies),
        context_parameter=context_parameter,
        result=returns,
        completers={
            n: _completer(f"Handler {name!r}, parameter {n!r}", marker)
            for n, info in infos.items()
            for marker in info.metadata
            if isinstance(marker, Complete)
        },
        choices={n: options for n in infos if (options := _choices(model.schema, n))},
    )


def _arguments_model(name: str, arguments: list[inspect.Parameter]) -> ArgumentsModel:
    """Name the argument that pydantic cannot take: one at a time finds out which it is."""
    short = name.rpartition(".")[2]
    try:
        return ArgumentsModel(short, arguments)
    except (*PYDANTIC_REFUSES, TypeError) as error:
        for argument in arguments if len(arguments) > 1 else ():
            _arguments_model(name, [argument])
        if len(arguments) != 1:
            raise TypeError(f"Handler {name!r}: {error}") from error
        where = f"Handler {name!r}, parameter {arguments[0].name!r}"
        if isinstance(error, _NO_JSON):
            shown = _shown(arguments[0].annotation)
            raise TypeError(
                f"{where}: {shown} is no JSON, so no client can send it. If it is a dependency, "
                f"write `Annotated[{shown}, Depends(...)]`"
            ) from error
        raise TypeError(f"{where}: {error}") from error


def _dependencies(name: str, parameters: list[inspect.Parameter]) -> Dependencies | None:
    if not parameters:
        return None
    try:
        return Dependencies(parameters)
    except TypeError as error:
        raise TypeError(f"Handler {name!r}: {error}") from error


def _completer(where: str, marker: Complete) -> HandlerSignature:
    """The source of completions, if it can be called as one."""
    completer = read_signature(marker.source)
    if completer.form in (HandlerForm.ASYNC_GENERATOR, HandlerForm.SYNC_GENERATOR):
        raise TypeError(f"{where}: Complete() needs a function that returns the values")
    unknown = completer.required - _OFFERED
    if completer.context_parameter is not None or unknown:
        names = ", ".join(sorted(unknown)) or completer.context_parameter
        raise TypeError(
            f"{where}: Complete() offers `value`, `arguments` and dependencies, but "
            f"{handler_name(marker.source)!r} asks for {names}"
        )
    return completer


def handler_name(call: Callable[..., Any]) -> str:
    """How messages call a handler: its qualified name without the enclosing function's."""
    target = underlying(call)
    qualified: str = getattr(target, "__qualname__", type(target).__qualname__)
    return qualified.rpartition("<locals>.")[2]


def handler_place(call: Callable[..., Any]) -> str:
    """How messages tell two handlers of one name apart: `'book' (travel.desk, line 12)`."""
    target = underlying(call)
    code = getattr(target, "__code__", None) or getattr(type(target).__call__, "__code__", None)
    line = f", line {code.co_firstlineno}" if code else ""
    return f"{handler_name(call)!r} ({target.__module__}{line})"


def underlying(call: Callable[..., Any]) -> Any:
    """The function behind decorators and `functools.partial`, or the object that is called."""
    target: Any = inspect.unwrap(call)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    return target


def _resolved_parameters(
    call: Callable[..., Any], name: str
) -> tuple[list[inspect.Parameter], Any]:
    """The parameters with real annotations, also where those were written as strings."""
    target = underlying(call)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        hints = typing.get_type_hints(target, include_extras=True)
        signature = inspect.signature(call)
    except Exception as error:
        raise TypeError(
            f"Handler {name!r}{_culprit(target, error)}: an annotation does not resolve: {error}. "
            "Define what it names at module level, before the handler"
        ) from None
    parameters = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    return parameters, hints.get("return", inspect.Signature.empty)


def _culprit(target: Any, error: Exception) -> str:
    """`, parameter 'x'`: the one whose annotation has the name that does not resolve."""
    missing = getattr(error, "name", None)
    try:
        annotations = inspect.get_annotations(target)
    except NameError:  # pragma: no cover - Python 3.14 evaluates annotations here
        annotations = {}
    for parameter, annotation in annotations.items():
        if missing and re.search(rf"\b{missing}\b", str(annotation)):
            return f", parameter {parameter!r}"
    return ""


def _is_context(annotation: Any) -> bool:
    plain = getattr(annotation, "__origin__", annotation)
    return inspect.isclass(plain) and issubclass(plain, Context)


def _is_foreign_context(annotation: Any) -> bool:
    """Whether this is the context of an MCP SDK, alone or as one of several types."""
    parts = (annotation, *typing.get_args(annotation))
    # A pydantic model with parameters is a class of its own: `Context[int, str]`.
    return any(
        inspect.isclass(plain)
        and plain.__name__.partition("[")[0] == "Context"
        and plain.__module__.partition(".")[0] in _OTHER_PACKAGES
        for plain in (typing.get_origin(part) or part for part in parts)
    )


def _shown(annotation: Any) -> str:
    """A type as its author wrote it, as near as that can be told."""
    plain = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    return plain.__name__ if isinstance(plain, type) else inspect.formatannotation(plain)


def _annotation(parameter: inspect.Parameter) -> Any:
    return Any if parameter.annotation is parameter.empty else parameter.annotation


def _field_info(parameter: inspect.Parameter) -> FieldInfo:
    default = PydanticUndefined if parameter.default is parameter.empty else parameter.default
    return FieldInfo.from_annotated_attribute(_annotation(parameter), default)


def _choices(schema: dict[str, Any], name: str) -> tuple[str, ...]:
    """The string values of an enumerated argument: they complete themselves."""
    prop = schema.get("properties", {}).get(name, {})
    reference = prop.get("$ref", "").removeprefix("#/$defs/")
    options = schema.get("$defs", {}).get(reference, prop).get("enum", ())
    return tuple(option for option in options if isinstance(option, str))
