"""`HandlerGroup`: the decorators that make tools, prompts and resources of functions.

Everything that can be wrong with a handler is found here, at registration. Runs no handler.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from fastapi_mcp_mrtr.auth.scopes import checked_scopes
from fastapi_mcp_mrtr.checks import require_not_negative
from fastapi_mcp_mrtr.rounds.questions import declared_asks

from .param_headers import param_headers
from .registry import (
    PromptEntry,
    Registry,
    ResourceEntry,
    Settings,
    ToolEntry,
    UnaskedAnswers,
    checked_name,
)
from .results import ToolOutput
from .signature import HandlerSignature, handler_name, read_signature, underlying

if TYPE_CHECKING:  # mcp_types takes longer to import than all of this package
    from mcp_types import Annotations, Icon, ToolAnnotations
from .uri_template import UriTemplate

F = TypeVar("F", bound=Callable[..., Any])


class HandlerGroup:
    """Tools, prompts and resources to be joined into a router: `mcp.include(group)`.

    ```python
    flights = HandlerGroup()

    @flights.tool()
    async def find_flights(origin: str) -> list[Flight]: ...

    mcp.include(flights, prefix="flights.")
    ```
    """

    def __init__(self) -> None:
        self._registry = Registry()

    @overload
    def tool(self, name: F, /) -> F: ...
    @overload
    def tool(
        self,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        annotations: "ToolAnnotations | None" = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        structured: bool = True,
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
        single_use: bool | None = None,
        scopes: Sequence[str] = (),
        visibility: Literal["challenge", "authorized"] = "challenge",
        ask_timeout: float | None = None,
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        name: Any = None,
        *,
        title: str | None = None,
        description: str | None = None,
        annotations: "ToolAnnotations | None" = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        structured: bool = True,
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
        single_use: bool | None = None,
        scopes: Sequence[str] = (),
        visibility: Literal["challenge", "authorized"] = "challenge",
        ask_timeout: float | None = None,
    ) -> Any:
        """Offer a function as a tool (server/tools). Returns the function unchanged.

        Args:
            name: what clients call it by; the function's name by default. 1 to 128 of
                `A-Z a-z 0-9 _ . -`.
            title: a name for people.
            description: what it does, for the model; the docstring by default.
            annotations: hints for clients, such as `readOnlyHint`.
            icons: pictures for user interfaces.
            meta: the tool's `_meta`.
            input_schema: show this JSON Schema instead of the one made from the parameters. The
                parameters still validate.
            structured: `False` leaves out `outputSchema` and structured content.
            ttl: seconds a round's `requestState` stays valid; the router's by default.
            max_rounds: how many rounds may ask before the flow ends with an error.
            version: a tag sealed into the state. Change it when the handler changes so that old
                flows cannot go on; they get the frozen error.
            unasked_answers: `"accept"` also reads answers that come without a state, to questions
                that were never shown. For handlers that need no such guarantee.
            single_use: run each round once however often it is presented, and answer the same
                request with the stored response. Needs the router's `ledger=`; the router's
                setting by default.
            scopes: what a caller's access token must grant, checked on every round; those of the
                handler's own `Security(..., scopes=[...])` are added.
            visibility: `"challenge"` lists the handler for everybody and answers a caller without
                its scopes with 403; for `"authorized"` it does not exist for such a caller.
            ask_timeout: seconds a client of an older revision has to answer; the router's by
                default, and never more than `ttl`.

        Raises:
            TypeError: a parameter, the return type or a question cannot be expressed.
            ValueError: the name is taken or not a legal name.
        """
        settings = _given_settings(locals())

        def register(call: F) -> F:
            tool_name = checked_name(_name(name, call))
            signature = read_signature(call)
            asks = tuple(declared_asks(call))
            where = f"Tool {tool_name!r}"
            output = ToolOutput.of(signature.result if structured else None, where=where)
            definition = _definition(
                name=tool_name,
                title=title,
                description=description or _documentation(call),
                inputSchema=input_schema or signature.arguments.schema,
                outputSchema=output.schema,
                annotations=annotations,
                icons=icons,
                _meta=meta,
            )
            if definition["inputSchema"].get("type") != "object":
                raise ValueError(f'{where}: input_schema must have "type": "object"')
            headers = param_headers(where, definition["inputSchema"])
            self._registry.add(
                ToolEntry(
                    tool_name,
                    definition,
                    signature,
                    _settings(settings, signature),
                    output,
                    headers,
                    asks=asks,
                )
            )
            return call

        return register if name is None or isinstance(name, str) else register(name)

    @overload
    def prompt(self, name: F, /) -> F: ...
    @overload
    def prompt(
        self,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
        single_use: bool | None = None,
        scopes: Sequence[str] = (),
        visibility: Literal["challenge", "authorized"] = "challenge",
        ask_timeout: float | None = None,
    ) -> Callable[[F], F]: ...
    def prompt(
        self,
        name: Any = None,
        *,
        title: str | None = None,
        description: str | None = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
        single_use: bool | None = None,
        scopes: Sequence[str] = (),
        visibility: Literal["challenge", "authorized"] = "challenge",
        ask_timeout: float | None = None,
    ) -> Any:
        """Offer a function as a prompt (server/prompts). Returns the function unchanged.

        Its arguments arrive as text and are converted to the annotated types. It returns text,
        `PromptMessage` objects, or a list of either. The other arguments are those of `tool`.

        Raises:
            TypeError: a parameter or a question cannot be expressed.
            ValueError: the name is taken or not a legal name.
        """
        settings = _given_settings(locals())

        def register(call: F) -> F:
            prompt_name = checked_name(_name(name, call))
            signature = read_signature(call)
            asks = tuple(declared_asks(call))
            definition = _definition(
                name=prompt_name,
                title=title,
                description=description or _documentation(call),
                arguments=_prompt_arguments(signature),
                icons=icons,
                _meta=meta,
            )
            self._registry.add(
                PromptEntry(
                    prompt_name, definition, signature, _settings(settings, signature), asks=asks
                )
            )
            return call

        return register if name is None or isinstance(name, str) else register(name)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: "Annotations | None" = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        size: int | None = None,
        cache_ttl_ms: int = 0,
        cache_scope: Literal["public", "private"] = "private",
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
        single_use: bool | None = None,
        scopes: Sequence[str] = (),
        visibility: Literal["challenge", "authorized"] = "challenge",
        ask_timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Offer a function as a resource, or as a template of resources (server/resources).

        A URI with variables makes a template: `{id}` matches within one path segment, `{+path}`
        across several (RFC 6570 levels 1 and 2). The variables are the function's arguments.

        Args:
            uri: the resource's URI, or a URI template.
            name: the programmatic name; the function's name by default.
            mime_type: of what is returned; by default `text/plain` for text, `application/json`
                for data, `application/octet-stream` for bytes.
            size: of the content in bytes, if known.
            cache_ttl_ms: how long clients may keep the content, in milliseconds.
            cache_scope: `"public"` only if every caller reads the same (server/utilities/caching).

        The other arguments are those of `tool`.

        Raises:
            TypeError: a parameter or a question cannot be expressed.
            ValueError: the URI is taken or not one, or its variables and the function's
                arguments differ.
        """
        settings = _given_settings(locals())
        template = UriTemplate.parse(uri) if "{" in uri or "}" in uri else None
        if not re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", uri):
            raise ValueError(f"{uri!r} is not a URI: it has no scheme (RFC 3986)")
        require_not_negative(cache_ttl_ms=cache_ttl_ms)  # server/utilities/caching

        def register(call: F) -> F:
            signature = read_signature(call)
            asks = tuple(declared_asks(call))
            _require_variables(uri, template, signature)
            definition = _definition(
                **{"uriTemplate" if template else "uri": uri},
                name=_name(name, call),
                title=title,
                description=description or _documentation(call),
                mimeType=mime_type,
                annotations=annotations,
                icons=icons,
                size=None if template else size,
                _meta=meta,
            )
            self._registry.add(
                ResourceEntry(
                    uri,
                    definition,
                    signature,
                    _settings(settings, signature),
                    mime_type,
                    cache_ttl_ms,
                    cache_scope,
                    template,
                    asks=asks,
                )
            )
            return call

        return register

    def include(self, group: "HandlerGroup", prefix: str = "") -> None:
        """Join another group, or another router's handlers, into this one.

        What `group` registers or removes later follows. `prefix` goes before the names of tools
        and prompts; resources keep their URIs.

        Raises:
            ValueError: a name or URI is taken, or the groups would include each other.
        """
        self._registry.include(group._registry, prefix)

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool. Raises `KeyError` if there is none of that name."""
        self._registry.remove("tools", name)

    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt. Raises `KeyError` if there is none of that name."""
        self._registry.remove("prompts", name)

    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource or template. Raises `KeyError` if there is none of that URI."""
        self._registry.remove("resources", uri)


def _name(name: Any, call: Callable[..., Any]) -> str:
    """The name given or else the function's own."""
    if isinstance(name, str):
        return name
    own = getattr(underlying(call), "__name__", None)
    if own is None:
        raise TypeError(f"{handler_name(call)!r} has no name of its own: pass name=")
    return str(own)


_SETTINGS: Final = tuple(
    setting.name for setting in fields(Settings) if setting.name != "security_scopes"
)
"""What the decorators take by the same names: all but what the handler itself says."""


def _given_settings(arguments: Mapping[str, Any]) -> Settings:
    """Those among the arguments of a decorator that say how its handler runs."""
    given: dict[str, Any] = {name: arguments[name] for name in _SETTINGS}
    given["scopes"] = checked_scopes("scopes", given["scopes"])
    return Settings(**given)


def _settings(settings: Settings, signature: HandlerSignature) -> Settings:
    """The settings with the scopes that the handler's own `Security` dependencies need."""
    dependencies = signature.dependencies
    if dependencies is None or not dependencies.scopes:
        return settings
    return replace(settings, security_scopes=dependencies.scopes)


def _documentation(call: Callable[..., Any]) -> str | None:
    target = underlying(call)
    return inspect.getdoc(target if inspect.isroutine(target) else type(target).__call__) or None


def _definition(*, name: str, **members: Any) -> dict[str, Any]:
    """The wire form of a definition: plain JSON, absent members left out."""
    definition: dict[str, Any] = {"name": name}
    for member, value in members.items():
        if value is not None:
            try:
                definition[member] = _plain(value)
            except ValueError as error:
                raise TypeError(f"{member} of {name!r} is no JSON: {error}") from error
    return definition


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return to_jsonable_python(value)


def _prompt_arguments(signature: HandlerSignature) -> list[dict[str, Any]] | None:
    arguments = [
        _definition(
            name=name,
            description=signature.descriptions.get(name),
            required=name in signature.required,
        )
        for name in signature.argument_names
    ]
    return arguments or None


def _require_variables(uri: str, template: UriTemplate | None, signature: HandlerSignature) -> None:
    variables = frozenset(template.variables) if template else frozenset()
    unknown = variables.symmetric_difference(signature.argument_names)
    missing = unknown - (frozenset(signature.argument_names) - signature.required)
    if missing:
        raise ValueError(
            f"Resource {uri!r} and handler {handler_name(signature.call)!r} disagree about "
            f"{', '.join(sorted(missing))}: every variable needs an argument of its name and every "
            "argument without a default a variable"
        )
