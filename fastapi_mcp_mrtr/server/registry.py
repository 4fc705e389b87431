"""What a server offers: tools, prompts, resources, in tables that are filled from any thread.

A registry can be included in others; what is added or removed later follows. Knows no HTTP and
runs no handler.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

from fastapi_mcp_mrtr.checks import require_positive
from fastapi_mcp_mrtr.protocol.headers import ParamHeader
from fastapi_mcp_mrtr.rounds.questions import DeclaredAsk

from .results import ToolOutput
from .signature import HandlerSignature, handler_place
from .uri_template import TemplateIndex, UriTemplate

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
    single_use: bool | None = None
    scopes: tuple[str, ...] = ()
    """What a caller needs, beyond the scopes of every request, as `scopes=` declares it."""
    security_scopes: tuple[str, ...] = ()
    """What the handler's own `Security(..., scopes=[...])` dependencies ask for."""
    visibility: Literal["challenge", "authorized"] = "challenge"
    ask_timeout: float | None = None

    def __post_init__(self) -> None:
        own = {"ttl": self.ttl, "max_rounds": self.max_rounds, "ask_timeout": self.ask_timeout}
        require_positive(**{name: value for name, value in own.items() if value is not None})
        if self.unasked_answers not in ("ignore", "accept"):
            raise ValueError('unasked_answers is "ignore" or "accept"')
        if self.visibility not in ("challenge", "authorized"):
            raise ValueError('visibility is "challenge" or "authorized"')


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered handler. `definition` is what the list method shows of it."""

    kind: ClassVar[str]
    """What messages call it."""
    name: str
    definition: Mapping[str, Any]
    signature: HandlerSignature
    settings: Settings
    asks: tuple[DeclaredAsk, ...] = field(default=(), kw_only=True)
    """The forms that its source shows, for documentation."""


@dataclass(frozen=True, slots=True)
class ToolEntry(Entry):
    """A tool; `name` is what clients call it by."""

    kind: ClassVar[str] = "Tool"
    output: ToolOutput
    param_headers: tuple[ParamHeader, ...]


@dataclass(frozen=True, slots=True)
class PromptEntry(Entry):
    """A prompt; `name` is what clients get it by."""

    kind: ClassVar[str] = "Prompt"


@dataclass(frozen=True, slots=True)
class ResourceEntry(Entry):
    """A resource, or a template of them when `template` is set; `name` is the URI or template."""

    kind: ClassVar[str] = "Resource"
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
        self._conditions: list[Callable[[Entry], None]] = []
        self._parents: list[tuple[Registry, str]] = []
        self.ever: set[Kind] = set()
        """The kinds of which there has been something, now or before."""

    def on_change(self, listener: Callable[[Kind], None]) -> None:
        """Call `listener` with what changed, from the thread that changed it."""
        self._listeners.append(listener)

    def require(self, condition: Callable[[Entry], None]) -> None:
        """Have `condition` raise for entries that are not to be registered here."""
        self._conditions.append(condition)

    def add(self, entry: Entry) -> None:
        """Register here and in every registry that includes this one.

        Raises:
            ValueError: the name or URI is taken, here or there. Nothing is registered then.
        """
        self._put_all([entry])

    def remove(self, kind: Kind, name: str) -> None:
        """Take a handler back, here and in every registry that includes this one.

        Raises:
            KeyError: nothing is registered under that name or URI.
        """
        tables: Mapping[str, Mapping[str, Entry]] = {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": {**self.resources, **self.templates},
        }
        entry = tables[kind][name]
        for registry, adopted in self._targets(entry):
            registry._drop(adopted)

    def include(self, other: "Registry", prefix: str) -> None:
        """Take over all handlers of `other`, those it gets later too.

        Raises:
            ValueError: it would include itself, or a name or URI is taken or not legal. Nothing is
                included then.
        """
        if other is self or other in self._ancestors():
            raise ValueError("A group cannot include itself, directly or through another one")
        if prefix:
            checked_name(prefix)
        self._put_all([_prefixed(entry, prefix) for entry in other._entries()])
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

    def _put_all(self, entries: Iterable[Entry]) -> None:
        """Register everywhere or, if a name is taken or comes twice somewhere, nowhere."""
        targets = [target for entry in entries for target in self._targets(entry)]
        new: set[tuple[Registry, Kind, str]] = set()
        for registry, entry in targets:
            kind, table = registry._table(entry)
            place = (registry, kind, entry.name)
            taken = entry if place in new else table.get(entry.name)
            if taken is not None:
                raise ValueError(
                    f"{kind[:-1]} {entry.name!r} is already registered by "
                    f"{handler_place(taken.signature.call)}; it cannot be "
                    f"{handler_place(entry.signature.call)} too"
                )
            new.add(place)
            for condition in registry._conditions:
                condition(entry)
        for registry, entry in targets:
            registry._put(entry)

    def _table(self, entry: Entry) -> tuple[Kind, dict[str, Any]]:
        if isinstance(entry, ToolEntry):
            return "tools", self.tools
        if isinstance(entry, ResourceEntry):
            return "resources", self.templates if entry.template else self.resources
        return "prompts", self.prompts

    def _put(self, entry: Entry) -> None:
        kind, table = self._table(entry)
        table[entry.name] = entry
        self.ever.add(kind)
        self._changed(kind, entry)

    def _drop(self, entry: Entry) -> None:
        """Remove an entry, unless it is gone here already or another one has its name."""
        kind, table = self._table(entry)
        present = table.get(entry.name)
        if present is not None and present.signature is entry.signature:
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


def checked_name(name: str) -> str:
    """The name, if it is one that clients can rely on. Raises: ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a legal name: 1 to 128 of A-Z a-z 0-9 _ . -")
    return name


def _prefixed(entry: Entry, prefix: str) -> Entry:
    """The entry under a parent's prefix. Resources keep their URIs, which are global already."""
    if not prefix or isinstance(entry, ResourceEntry):
        return entry
    name = checked_name(prefix + entry.name)
    return replace(entry, name=name, definition={**entry.definition, "name": name})
