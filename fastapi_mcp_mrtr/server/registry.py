"""What a server offers: tools, prompts, resources. Filled by decorators, read by the dispatcher.

A `HandlerGroup` can be included in others; what is registered or removed later follows. Knows no
HTTP and runs no handler.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar, overload

from mcp_types import Annotations, Icon, ToolAnnotations
from pydantic import BaseModel

from fastapi_mcp_mrtr.rounds.questions import declared_asks

from .results import ToolOutput
from .signature import HandlerSignature, handler_name, read_signature
from .uri_template import TemplateIndex, UriTemplate

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["tools", "prompts", "resources"]
UnaskedAnswers = Literal["ignore", "accept"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
"""Tool names a client can rely on (server/tools §Tool Names); prompts follow the same rule."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a handler overrides of the router's settings; `None` leaves the router's."""

    ttl: float | None = None
    max_rounds: int | None = None
    version: str | None = None
    unasked_answers: UnaskedAnswers = "ignore"

    def __post_init__(self) -> None:
        if self.ttl is not None and not self.ttl > 0:
            raise ValueError(f"ttl must be a positive number of seconds, not {self.ttl!r}")
        if self.max_rounds is not None and not self.max_rounds > 0:
            raise ValueError(f"max_rounds must be at least 1, not {self.max_rounds!r}")
        if self.unasked_answers not in ("ignore", "accept"):
            raise ValueError('unasked_answers is "ignore" or "accept"')


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered handler. `definition` is what the list method shows of it."""

    name: str
    definition: Mapping[str, Any]
    signature: HandlerSignature
    settings: Settings


@dataclass(frozen=True, slots=True)
class ToolEntry(Entry):
    output: ToolOutput


@dataclass(frozen=True, slots=True)
class PromptEntry(Entry):
    """A prompt; `name` is what clients get it by."""


@dataclass(frozen=True, slots=True)
class ResourceEntry(Entry):
    """A resource, or a template of them when `template` is set; `name` is the URI or template."""

    mime_type: str | None
    cache_ttl_ms: int
    cache_scope: Literal["public", "private"]
    template: UriTemplate | None


class Registry:
    """The tables behind a `HandlerGroup`: lookups that do not grow with what is registered."""

    def __init__(self) -> None:
        self.tools: dict[str, ToolEntry] = {}
        self.prompts: dict[str, PromptEntry] = {}
        self.resources: dict[str, ResourceEntry] = {}
        self.templates: dict[str, ResourceEntry] = {}
        self._template_index: TemplateIndex[ResourceEntry] = TemplateIndex()
        self._listeners: list[Callable[[Kind], None]] = []
        self._parents: list[tuple[Registry, str]] = []
        self.ever: set[Kind] = set()

    def on_change(self, listener: Callable[[Kind], None]) -> None:
        """Call `listener` with what changed, from the thread that changed it."""
        self._listeners.append(listener)

    def add(self, entry: Entry) -> None:
        """Register here and in every registry that includes this one.

        Raises:
            ValueError: the name or URI is taken, here or there. Nothing is registered then.
        """
        targets = list(self._targets(entry))
        for registry, adopted in targets:
            registry._require_free(adopted)
        for registry, adopted in targets:
            registry._put(adopted)

    def remove(self, kind: Kind, name: str) -> None:
        """Take a handler back, here and in every registry that includes this one.

        Raises:
            KeyError: nothing is registered under that name or URI.
        """
        entry = self._find(kind, name)
        for registry, adopted in self._targets(entry):
            registry._drop(adopted)

    def include(self, other: "Registry", prefix: str) -> None:
        """Take over all handlers of `other`, those it gets later too.

        Raises:
            ValueError: it would include itself, or a name or URI is taken.
        """
        if other is self or other in self._ancestors():
            raise ValueError("A group cannot include itself, directly or through another one")
        for entry in other._entries():
            for registry, adopted in self._targets(_prefixed(entry, prefix)):
                registry._require_free(adopted)
        for entry in other._entries():
            for registry, adopted in self._targets(_prefixed(entry, prefix)):
                registry._put(adopted)
        other._parents.append((self, prefix))

    def match_resource(self, uri: str) -> tuple[ResourceEntry, dict[str, str]] | None:
        """The resource or template that serves `uri`, with the template's variables."""
        entry = self.resources.get(uri)
        return (entry, {}) if entry is not None else self._template_index.match(uri)

    def _entries(self) -> list[Entry]:
        return [
            *self.tools.values(),
            *self.prompts.values(),
            *self.resources.values(),
            *self.templates.values(),
        ]

    def _ancestors(self) -> "set[Registry]":
        parents = {parent for parent, _ in self._parents}
        return parents.union(*(parent._ancestors() for parent in parents))

    def _targets(self, entry: Entry) -> "list[tuple[Registry, Entry]]":
        targets: list[tuple[Registry, Entry]] = [(self, entry)]
        for parent, prefix in self._parents:
            targets.extend(parent._targets(_prefixed(entry, prefix)))
        return targets

    def _table(self, entry: Entry) -> tuple[Kind, dict[str, Any]]:
        if isinstance(entry, ToolEntry):
            return "tools", self.tools
        if isinstance(entry, ResourceEntry):
            return "resources", self.templates if entry.template else self.resources
        return "prompts", self.prompts

    def _find(self, kind: Kind, name: str) -> Entry:
        tables: Mapping[str, Any] = {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": {**self.resources, **self.templates},
        }
        entry: Entry = tables[kind][name]
        return entry

    def _require_free(self, entry: Entry) -> None:
        kind, table = self._table(entry)
        taken = table.get(entry.name)
        if taken is not None:
            raise ValueError(
                f"{kind[:-1]} {entry.name!r} is already registered by "
                f"{handler_name(taken.signature.call)!r}"
            )

    def _put(self, entry: Entry) -> None:
        kind, table = self._table(entry)
        table[entry.name] = entry
        self.ever.add(kind)
        self._changed(kind, entry)

    def _drop(self, entry: Entry) -> None:
        kind, table = self._table(entry)
        del table[entry.name]
        self._changed(kind, entry)

    def _changed(self, kind: Kind, entry: Entry) -> None:
        if isinstance(entry, ResourceEntry) and entry.template:
            # Built anew and swapped, so that lookups in other threads see the old or the new one.
            index: TemplateIndex[ResourceEntry] = TemplateIndex()
            for other in self.templates.values():
                assert other.template is not None
                index.add(other.template, other)
            self._template_index = index
        for listener in self._listeners:
            listener(kind)


def _prefixed(entry: Entry, prefix: str) -> Entry:
    """The entry under a parent's prefix. Resources keep their URIs, which are global already."""
    if not prefix or isinstance(entry, ResourceEntry):
        return entry
    name = prefix + entry.name
    return replace(entry, name=name, definition={**entry.definition, "name": name})


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
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        structured: bool = True,
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        name: Any = None,
        *,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        structured: bool = True,
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
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

        Raises:
            TypeError: a parameter, the return type or a question cannot be expressed.
            ValueError: the name is taken or not a legal name.
        """
        settings = Settings(ttl, max_rounds, version, unasked_answers)

        def register(call: F) -> F:
            tool_name = _checked_name(name if isinstance(name, str) else call.__name__)
            signature = read_signature(call)
            declared_asks(call)
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
            self._registry.add(ToolEntry(tool_name, definition, signature, settings, output))
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
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
    ) -> Callable[[F], F]: ...
    def prompt(
        self,
        name: Any = None,
        *,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
    ) -> Any:
        """Offer a function as a prompt (server/prompts). Returns the function unchanged.

        Its arguments arrive as text and are converted to the annotated types. It returns text,
        `PromptMessage` objects, or a list of either. The other arguments are those of `tool`.

        Raises:
            TypeError: a parameter or a question cannot be expressed.
            ValueError: the name is taken or not a legal name.
        """
        settings = Settings(ttl, max_rounds, version, unasked_answers)

        def register(call: F) -> F:
            prompt_name = _checked_name(name if isinstance(name, str) else call.__name__)
            signature = read_signature(call)
            declared_asks(call)
            definition = _definition(
                name=prompt_name,
                title=title,
                description=description or _documentation(call),
                arguments=_prompt_arguments(signature),
                icons=icons,
                _meta=meta,
            )
            self._registry.add(PromptEntry(prompt_name, definition, signature, settings))
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
        annotations: Annotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        size: int | None = None,
        cache_ttl_ms: int = 0,
        cache_scope: Literal["public", "private"] = "private",
        ttl: float | None = None,
        max_rounds: int | None = None,
        version: str | None = None,
        unasked_answers: UnaskedAnswers = "ignore",
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
        settings = Settings(ttl, max_rounds, version, unasked_answers)
        template = UriTemplate.parse(uri) if "{" in uri or "}" in uri else None
        if not re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", uri):
            raise ValueError(f"{uri!r} is not a URI: it has no scheme (RFC 3986)")
        if cache_ttl_ms < 0:
            raise ValueError("cache_ttl_ms must be 0 or more (server/utilities/caching)")

        def register(call: F) -> F:
            signature = read_signature(call)
            declared_asks(call)
            _require_variables(uri, template, signature)
            definition = _definition(
                **{"uriTemplate" if template else "uri": uri},
                name=name or call.__name__,
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
                    settings,
                    mime_type,
                    cache_ttl_ms,
                    cache_scope,
                    template,
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


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a legal name: 1 to 128 of A-Z a-z 0-9 _ . -")
    return name


def _documentation(call: Callable[..., Any]) -> str | None:
    return inspect.getdoc(call) or None


def _definition(**members: Any) -> dict[str, Any]:
    """The wire form of a definition: models dumped, absent members left out."""
    return {
        name: [_plain(item) for item in value] if name == "icons" else _plain(value)
        for name, value in members.items()
        if value is not None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


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
