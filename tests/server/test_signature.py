"""signature: what is an argument, what FastAPI fills, and what fails before the first call."""

import functools
import sys
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Annotated, Any, Literal

import pytest
from fastapi import Body, Cookie, Depends, File, Form, Header, Query, Request, Security
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, computed_field

from fastapi_mcp_mrtr import Complete, Context, MCPRouter, Rounds, SyncRounds, need_input
from fastapi_mcp_mrtr.rounds.engine import HandlerForm
from fastapi_mcp_mrtr.server.signature import (
    handler_name,
    handler_place,
    json_schema,
    read_signature,
    underlying,
)


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)


class Cabin(Enum):
    FIRST = "first"
    SECOND = "second"


def current_user() -> str:
    return "alice"


def schema_of(call: Callable[..., Any]) -> dict[str, Any]:
    return read_signature(call).arguments.schema


# ------------------------------------------------------------------------------------- arguments


def test_arguments_become_the_input_schema() -> None:
    """spec: inputSchema is a JSON Schema object (server/tools §Data Types)."""

    async def find(
        origin: str,
        seats: Annotated[int, Field(ge=1, description="How many")] = 1,
        cabin: Literal["first", "second"] | None = None,
    ) -> str:
        return ""

    assert schema_of(find) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "origin": {"type": "string"},
            "seats": {"type": "integer", "minimum": 1, "default": 1, "description": "How many"},
            "cabin": {
                "anyOf": [{"type": "string", "enum": ["first", "second"]}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["origin"],
    }


def test_titles_that_repeat_the_name_are_left_out() -> None:
    """decision: a generated title tells the model nothing; one that was given stays."""

    def book(seat: Seat, note: Annotated[str, Field(title="A note")]) -> str:
        return ""

    schema = schema_of(book)
    assert "title" not in schema
    assert schema["properties"]["note"]["title"] == "A note"
    assert "title" not in schema["$defs"]["Seat"]["properties"]["row"]


def test_no_arguments_is_an_empty_object() -> None:
    """spec: `{"type": "object", "additionalProperties": false}` for a tool without parameters."""
    assert schema_of(lambda: "")["additionalProperties"] is False
    assert read_signature(lambda: "").arguments.validate({}) == {}


def test_an_argument_without_annotation_takes_anything() -> None:
    """decision: as FastAPI and pydantic read it."""

    def echo(value) -> str:  # type: ignore[no-untyped-def]
        return str(value)

    assert read_signature(echo).arguments.validate({"value": [1]}) == {"value": [1]}


def test_arguments_arrive_converted_and_typed() -> None:
    """decision: what the annotations promise, a model included, is what the handler gets."""

    def book(seat: Seat, cabin: Cabin = Cabin.FIRST) -> str:
        return ""

    values = read_signature(book).arguments.validate({"seat": {"row": 4}, "cabin": "second"})
    assert values == {"seat": Seat(row=4), "cabin": Cabin.SECOND}


@pytest.mark.parametrize("arguments", [{}, {"seat": {"row": 0}}, {"seat": {"row": 1}, "user": 1}])
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any]) -> None:
    """user report: extra arguments were passed on (py#1097); spec: MUST validate tool inputs."""

    def book(seat: Seat) -> str:
        return ""

    with pytest.raises(ValidationError):
        read_signature(book).arguments.validate(arguments)


def test_a_default_that_can_change_is_not_shared() -> None:
    """decision: nothing about one request is kept on an object that outlives it."""

    def add(items: list[int] = []) -> str:  # noqa: B006
        return ""

    arguments = read_signature(add).arguments
    arguments.validate({})["items"].append(1)
    assert arguments.validate({}) == {"items": []}


def test_names_that_pydantic_uses_itself_are_free_for_handlers() -> None:
    """decision: `copy`, `schema` and `json` are good names for arguments."""

    def transform(
        copy: Annotated[int, Field(ge=1)], copy_: str, schema: str = "x", model_config: int = 0
    ) -> str:
        return ""

    signature = read_signature(transform)
    assert signature.argument_names == ("copy", "copy_", "schema", "model_config")
    assert signature.required == {"copy", "copy_"}
    assert signature.arguments.schema["properties"]["copy"] == {"type": "integer", "minimum": 1}
    assert signature.arguments.validate({"copy": 2, "copy_": "y"}) == {
        "copy": 2,
        "copy_": "y",
        "schema": "x",
        "model_config": 0,
    }


def test_an_alias_is_the_name_on_the_wire() -> None:
    """decision: a word that Python reserves is reached by its alias, everywhere."""

    def plan(
        from_: Annotated[str, Field(alias="from", description="Where")],
        json: Annotated[str, Field(alias="JSON")] = "j",
    ) -> str:
        return ""

    signature = read_signature(plan)
    assert signature.argument_names == ("from", "JSON")
    assert signature.required == {"from"}
    assert signature.descriptions == {"from": "Where"}
    assert signature.arguments.validate({"from": "Bern", "JSON": "k"}) == {
        "from_": "Bern",
        "json": "k",
    }


def test_the_values_of_an_enumeration_complete_themselves() -> None:
    """decision: what the schema lists need not be listed again."""

    def plan(a: Literal["x", "y"], b: Cabin, c: Literal[1, "z"], d: int, e: bool) -> str:
        return ""

    assert read_signature(plan).choices == {
        "a": ("x", "y"),
        "b": ("first", "second"),
        "c": ("z",),
    }


def test_a_schema_for_what_is_sent_differs_from_one_for_what_is_read() -> None:
    """decision: a computed field is part of an output alone."""

    class Out(BaseModel):
        n: int

        @computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return 2 * self.n

    adapter: TypeAdapter[Any] = TypeAdapter(Out)
    assert list(json_schema(adapter, serialized=False)["properties"]) == ["n"]
    assert list(json_schema(adapter, serialized=True)["properties"]) == ["n", "double"]


# ---------------------------------------------------------------------------------- dependencies


def test_what_fastapi_fills_is_no_argument() -> None:
    """user report: dependencies showed up in the input schema, for clients to set (fm#3137)."""

    def handler(
        x: int,
        request: Request,
        a: Annotated[str, Depends(current_user)],
        b: Annotated[str, Security(current_user, scopes=["s"])],
        c: Annotated[str, Header()],
        e: Annotated[str, Query()],
        d: str = Depends(current_user),
        f: str = Cookie("none"),
    ) -> str:
        return ""

    signature = read_signature(handler)
    assert signature.argument_names == ("x",)
    assert signature.dependencies is not None
    dependant = signature.dependencies.at("/").dependant
    assert [d.name for d in dependant.dependencies] == ["a", "b", "d"]
    assert [p.name for p in dependant.header_params] == ["c"]


def test_a_handler_without_dependencies_has_none_to_solve() -> None:
    """decision: what is not used costs nothing."""
    assert read_signature(lambda: "").dependencies is None


def test_the_context_is_found_by_its_annotation() -> None:
    """decision: the name is free, metadata may stand around it."""

    def plain(x: int, ctx: Context) -> str:
        return ""

    def annotated(c: Annotated[Context, "anything"]) -> str:
        return ""

    assert read_signature(plain).context_parameter == "ctx"
    assert read_signature(plain).argument_names == ("x",)
    assert read_signature(annotated).context_parameter == "c"


@pytest.mark.parametrize("marker", [Body(), Form(), File()])
def test_the_request_body_is_refused(marker: Any) -> None:
    """decision: the body is the JSON-RPC message; the message names handler and parameter."""

    def handler(payload: Annotated[str, marker]) -> str:
        return ""

    with pytest.raises(TypeError, match=r"Handler 'handler', parameter 'payload': .*JSON-RPC"):
        read_signature(handler)


def test_a_dependency_that_reads_the_body_is_refused() -> None:
    """decision: however deep it is, it fails at registration and not at every call."""

    def payload(seat: Seat) -> Seat:
        return seat

    def outer(inner: Annotated[Seat, Depends(payload)]) -> Seat:
        return inner

    def handler(seat: Annotated[Seat, Depends(outer)]) -> str:
        return ""

    with pytest.raises(TypeError, match=r"Handler 'handler': .*'.*payload'.*'seat'"):
        read_signature(handler)


def test_a_dependency_that_fastapi_cannot_read_is_refused() -> None:
    """decision: FastAPI's own complaint, with the handler's name before it."""

    def broken(x: Annotated[Desk, Query()]) -> None: ...

    def handler(x: Annotated[None, Depends(broken)]) -> str:
        return ""

    with pytest.raises(TypeError, match="Handler 'handler': FastAPI cannot resolve"):
        read_signature(handler)


class Desk:
    """No type that a request could carry."""


# --------------------------------------------------------------------------- what is refused


def positional_only(x: int, /) -> str:
    return ""


def variadic(*args: int) -> str:
    return ""


def keywords(**kwargs: int) -> str:
    return ""


def underscored(_x: int) -> str:
    return ""


def opaque(desk: Desk) -> str:
    return ""


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (positional_only, "x"),
        (variadic, "args"),
        (keywords, "kwargs"),
        (underscored, "_x"),
        (opaque, "desk"),
    ],
)
def test_what_has_no_meaning_is_refused(call: Callable[..., Any], parameter: str) -> None:
    """decision: fail at registration, with the handler and the parameter named."""
    with pytest.raises(TypeError, match=f"Handler '{call.__name__}', parameter '{parameter}'"):
        read_signature(call)


class Session:
    """As a database has them."""


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (Session, "Session"),
        (Annotated[Session, "the database"], "Session"),
        (list[Session], rf"list\[{__name__}\.Session\]"),
        (Callable[[int], int], r"collections\.abc\.Callable\[\[int\], int\]"),
    ],
)
def test_a_forgotten_depends_is_named(annotation: Any, shown: str) -> None:
    """User report: pydantic proposed `arbitrary_types_allowed`, where `Depends` was missing."""

    def handler(flight: str, db: Any) -> str:
        return ""

    handler.__annotations__["db"] = annotation
    with pytest.raises(
        TypeError,
        match=rf"^Handler 'handler', parameter 'db': {shown} is no JSON, .*"
        rf"`Annotated\[{shown}, Depends\(\.\.\.\)\]`$",
    ):
        read_signature(handler)


def foreign(module: str, name: str = "Context") -> Any:
    return type(name, (BaseModel,), {"__module__": module})


@pytest.mark.parametrize(
    "annotation",
    [
        foreign("mcp.server.mcpserver.context"),
        foreign("fastmcp"),
        foreign("mcp.server.fastmcp", "Context[Any, Any]"),
        foreign("fastmcp") | None,
        Annotated[foreign("fastmcp"), "the context"],
    ],
)
def test_the_context_of_another_package_is_refused(annotation: Any) -> None:
    """User report: it became an argument that the client had to send."""

    def handler(ctx: Any) -> str:
        return ""

    handler.__annotations__["ctx"] = annotation
    with pytest.raises(TypeError, match=r"'ctx': .*`from fastapi_mcp_mrtr import Context`"):
        read_signature(handler)


@pytest.mark.parametrize("annotation", [foreign("travel.mcp"), foreign("mcp.types", "Contexts")])
def test_what_is_only_called_like_it_is_an_argument(annotation: Any) -> None:
    """Decision: an author's own model may be called Context."""

    def handler(ctx: Any) -> str:
        return ""

    handler.__annotations__["ctx"] = annotation
    assert read_signature(handler).argument_names == ("ctx",)


def test_where_a_handler_is_that_has_no_source() -> None:
    """Decision: the module is all there is to say."""
    assert handler_place(len) == "'len' (builtins)"
    assert handler_place(functools.partial(current_user)).endswith(
        f"({__name__}, line {current_user.__code__.co_firstlineno})"
    )


def test_a_model_that_is_not_complete_is_refused() -> None:
    """decision: as any annotation that does not resolve."""

    class Recursive(BaseModel):
        inner: "Missing"  # type: ignore[name-defined] # noqa: F821

    def handler(n: int, r: Recursive) -> str:
        return ""

    with pytest.raises(TypeError, match=r"Handler 'handler', parameter 'r': .*Missing"):
        read_signature(handler)


def test_two_arguments_of_one_name_are_refused() -> None:
    """decision: an alias names one place on the wire."""

    def handler(a: Annotated[str, Field(alias="x")], b: Annotated[str, Field(alias="x")]) -> str:
        return ""

    with pytest.raises(TypeError, match="Handler 'handler': two parameters have the same alias"):
        read_signature(handler)


def test_an_annotation_that_does_not_resolve_names_the_parameter() -> None:
    """user report: a string annotation turned a principal into a query parameter."""

    def handler(a: int, user: "Annotated[Nobody, Depends(current_user)]") -> str:  # type: ignore[name-defined] # noqa: F821
        return ""

    with pytest.raises(TypeError, match=r"Handler 'handler', parameter 'user': .*'Nobody'"):
        read_signature(handler)


def test_an_annotation_that_is_no_python_is_refused() -> None:
    """decision: whatever evaluating an annotation raises, the handler is named."""

    def handler(a: "int[") -> str:  # type: ignore[valid-type] # noqa: F722
        return ""

    with pytest.raises(TypeError, match="Handler 'handler': an annotation does not resolve"):
        read_signature(handler)


def module_of(source: str) -> ModuleType:
    """A module, which is where string annotations are looked up."""
    module = ModuleType("handlers_in_a_string")
    sys.modules[module.__name__] = module
    exec(source, module.__dict__)
    return module


def test_a_module_with_future_annotations_works_for_module_level_names() -> None:
    """user report: `from __future__ import annotations` lost the dependencies."""
    module = module_of(
        "from __future__ import annotations\n"
        "from typing import Annotated\n"
        "from fastapi import Depends, Request\n"
        "from pydantic import BaseModel\n"
        "from fastapi_mcp_mrtr import Context, Rounds\n"
        "class Out(BaseModel):\n"
        "    n: int\n"
        "def user() -> str: ...\n"
        "async def handler(x: int, u: Annotated[str, Depends(user)], r: Request, c: Context)"
        " -> Rounds[Out]:\n"
        "    yield Out(n=x)\n"
    )
    signature = read_signature(module.handler)
    assert signature.argument_names == ("x",)
    assert signature.context_parameter == "c"
    assert signature.dependencies is not None
    assert signature.result is module.Out


# ------------------------------------------------------------------------------ forms and names


async def async_function() -> int:
    return 1


def sync_function() -> int:
    return 1


async def async_generator() -> Rounds[int]:
    yield 1


def sync_generator() -> SyncRounds[int]:
    number: int = yield need_input("n", "How many?", int)
    return number


@pytest.mark.parametrize(
    ("call", "form"),
    [
        (async_function, HandlerForm.ASYNC_FUNCTION),
        (sync_function, HandlerForm.SYNC_FUNCTION),
        (async_generator, HandlerForm.ASYNC_GENERATOR),
        (sync_generator, HandlerForm.SYNC_GENERATOR),
    ],
)
def test_the_result_type_of_every_form_is_known(
    call: Callable[..., Any], form: HandlerForm
) -> None:
    """decision: `T` of `Rounds[T]` gives the tool its output schema, as a return type does."""
    signature = read_signature(call)
    assert signature.form is form
    assert signature.result is int


class Callables:
    def method(self, x: int) -> int:
        return x

    def __call__(self, y: int) -> str:
        return ""


def decorated(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return wrapper


def test_methods_partials_decorated_functions_and_objects_are_handlers_too() -> None:
    """decision: what can be called can be a handler."""
    assert read_signature(Callables().method).argument_names == ("x",)
    assert read_signature(Callables()).argument_names == ("y",)
    assert read_signature(functools.partial(Callables().method)).argument_names == ("x",)
    assert read_signature(decorated(Callables().method)).argument_names == ("x",)


def test_messages_call_a_handler_by_the_name_its_author_gave_it() -> None:
    """decision: without the function around it, with the class it is in."""
    call = Callables()
    assert handler_name(async_function) == "async_function"
    assert handler_name(call.method) == "Callables.method"
    assert handler_name(call) == "Callables"
    assert handler_name(functools.partial(decorated(call.method))) == "Callables.method"
    assert underlying(functools.partial(async_function)) is async_function


# ----------------------------------------------------------------------------------- completers


def test_a_completer_is_read_like_a_handler() -> None:
    """decision: it may have dependencies, and ask for what is known already."""

    def cities(value: str, arguments: dict[str, str], u: Annotated[str, Depends(current_user)]):  # type: ignore[no-untyped-def]
        return []

    def plan(city: Annotated[str, Complete(cities)]) -> str:
        return ""

    completer = read_signature(plan).completers["city"]
    assert completer.argument_names == ("value", "arguments")
    assert completer.dependencies is not None


async def generates(value: str) -> Rounds[str]:
    yield value


def wants_more(value: str, country: str) -> list[str]:
    return []


def wants_context(value: str, ctx: Context) -> list[str]:
    return []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (generates, "needs a function that returns"),
        (wants_more, "asks for country"),
        (wants_context, "asks for ctx"),
    ],
)
def test_a_completer_that_cannot_be_called_is_refused(
    source: Callable[..., Any], reason: str
) -> None:
    """decision: fail at registration, not when a user types."""

    def plan(city: Annotated[str, Complete(source)]) -> str:
        return ""

    with pytest.raises(TypeError, match=f"Handler 'plan', parameter 'city': .*{reason}"):
        MCPRouter("s", version="1").prompt()(plan)
