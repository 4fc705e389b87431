"""The four things a handler can ask a client for: how each is sent, pinned and read back.

Pure: no I/O, no framework. An ask knows its wire form and its answers, not when it is sent.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaSerializer
from pydantic_core.core_schema import any_schema, plain_serializer_function_ser_schema

from fastapi_mcp_mrtr.errors import HandlerError
from fastapi_mcp_mrtr.protocol.canonical import digest

from .forms import Question

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult, CreateMessageResultWithTools, Root

Json = dict[str, Any]
Action = Literal["accept", "decline", "cancel"]

MAX_KEY_LENGTH: Final = 128


class MalformedAnswer(Exception):
    """What came back is no answer at all to this kind of ask. Says which type it should be."""


class Sentinel:
    """What a generator handler may yield beside its result and other handlers' generators.

    It stands for nothing until it is yielded, so it is neither true nor false, no text and no JSON:
    a forgotten `yield` shows where its answer is used. It still has a `repr`.
    """

    __slots__ = ()

    _target: ClassVar[str] = ""
    """What an example assigns the value of the `yield` to."""

    __pydantic_serializer__: ClassVar[SchemaSerializer]

    def __bool__(self) -> NoReturn:
        raise TypeError(self._not_yielded())

    def __str__(self) -> NoReturn:
        raise TypeError(self._not_yielded())

    def __format__(self, _: str) -> NoReturn:
        raise TypeError(self._not_yielded())

    def in_result(self) -> HandlerError:
        """What is wrong if a handler's result has this in it."""
        return HandlerError(
            f"A handler's result contains something that must be yielded: {self._not_yielded()}"
        )

    def _not_yielded(self) -> str:
        name = re.sub(r"\B([A-Z])", r"_\1", type(self).__name__).lower()
        key = getattr(self, "key", None)
        call = f"{name}(...)" if key is None else f"{name}({key!r})"
        return f"{call} was not yielded: write `{self._target}yield {name}(...)`"


def _no_json(sentinel: Sentinel) -> NoReturn:
    raise sentinel.in_result()


# What pydantic writes an object with, wherever in a value it comes upon one.
_NO_JSON: Final = any_schema(serialization=plain_serializer_function_ser_schema(_no_json))
Sentinel.__pydantic_serializer__ = SchemaSerializer(_NO_JSON)


class Ask(Sentinel):
    """A request to the client. The `yield` gives back its answer, in this round or a later one."""

    __slots__ = ()

    _target = "answer = "

    key: str

    @abstractmethod
    def request(self) -> Json:
        """The ask as a member of `inputRequests`."""

    @abstractmethod
    def digest(self) -> str:
        """Pins an answer to what was asked: another wording, another digest."""

    @abstractmethod
    def lacking(self, capabilities: Mapping[str, Any]) -> Json:
        """What this ask needs and the client has not declared; empty if it may be sent."""

    @abstractmethod
    def read(self, envelope: Any) -> tuple[Action, Any, Any]:
        """The action, the content to journal and the value that it stands for.

        Raises:
            InvalidAnswer: The content does not fit; the user may correct it.
            MalformedAnswer: It is no answer to an ask of this kind.
        """

    @abstractmethod
    def value(self, content: Any) -> Any:
        """What the `yield` gives back for accepted, journaled content.

        Raises:
            InvalidAnswer: It no longer fits.
        """


@dataclass(frozen=True, slots=True)
class NeedInput(Ask):
    """A form (elicitation §Form Mode)."""

    key: str
    message: str
    question: Question

    def request(self) -> Json:
        params = {
            "mode": "form",
            "message": self.message,
            "requestedSchema": self.question.requested_schema,
        }
        return {"method": "elicitation/create", "params": params}

    def digest(self) -> str:
        return digest(("form", self.message, self.question.digest))

    def lacking(self, capabilities: Mapping[str, Any]) -> Json:
        modes = _declared(capabilities, "elicitation")
        # elicitation §Capabilities: an empty object is equivalent to form mode only.
        if modes is not None and (not modes or "form" in modes):
            return {}
        return {"elicitation": {"form": {}}}

    def read(self, envelope: Any) -> tuple[Action, Any, Any]:
        action = _action(envelope)
        if action != "accept":
            return action, None, None
        content = envelope.get("content")
        if content is None:
            content = {}
        if not (isinstance(content, dict) and all(map(_is_flat, content.values()))):
            raise MalformedAnswer("ElicitResult")
        value, known = self.question.accept(content)
        return action, known, value

    def value(self, content: Any) -> Any:
        return self.question.parse(content)


@dataclass(frozen=True, slots=True)
class NeedUrl(Ask):
    """A page to visit (elicitation §URL Mode). Accepting means consent, not that it is done."""

    key: str
    message: str
    url: str

    def request(self) -> Json:
        params = {"mode": "url", "message": self.message, "url": self.url}
        return {"method": "elicitation/create", "params": params}

    def digest(self) -> str:
        return digest(("url", self.message, self.url))

    def lacking(self, capabilities: Mapping[str, Any]) -> Json:
        modes = _declared(capabilities, "elicitation")
        return {} if modes is not None and "url" in modes else {"elicitation": {"url": {}}}

    def read(self, envelope: Any) -> tuple[Action, Any, Any]:
        return _action(envelope), None, None

    def value(self, content: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class NeedSampling(Ask):
    """A message from the client's model (sampling §Creating Messages)."""

    key: str
    params: Json

    def request(self) -> Json:
        return {"method": "sampling/createMessage", "params": self.params}

    def digest(self) -> str:
        return digest(("sampling", self.params))

    @property
    def _with_tools(self) -> bool:
        return "tools" in self.params or "toolChoice" in self.params

    def lacking(self, capabilities: Mapping[str, Any]) -> Json:
        declared = _declared(capabilities, "sampling")
        needed = set()
        if self._with_tools:
            needed.add("tools")
        if self.params.get("includeContext", "none") != "none":
            needed.add("context")
        missing = sorted(needed if declared is None else needed - declared)
        if declared is not None and not missing:
            return {}
        return {"sampling": {name: {} for name in missing}}

    def read(self, envelope: Any) -> tuple[Action, Any, Any]:
        try:
            result = self._result(envelope)
        except ValidationError:
            raise MalformedAnswer("CreateMessageResult") from None
        return "accept", as_wire(result), result

    def value(self, content: Any) -> CreateMessageResult | CreateMessageResultWithTools:
        return self._result(content)

    def _result(self, raw: Any) -> CreateMessageResult | CreateMessageResultWithTools:
        # Imported here: mcp_types costs more than the whole package, and few handlers sample.
        from mcp_types import CreateMessageResult, CreateMessageResultWithTools

        # Several blocks are a legal answer to any sampling ask, though few models give them.
        several = isinstance(raw, Mapping) and isinstance(raw.get("content"), list)
        if self._with_tools or several:
            return CreateMessageResultWithTools.model_validate(raw)
        return CreateMessageResult.model_validate(raw)


@dataclass(frozen=True, slots=True)
class NeedRoots(Ask):
    """The client's roots (roots §Listing Roots)."""

    key: str

    def request(self) -> Json:
        return {"method": "roots/list", "params": {}}

    def digest(self) -> str:
        return "roots"

    def lacking(self, capabilities: Mapping[str, Any]) -> Json:
        return {} if _declared(capabilities, "roots") is not None else {"roots": {}}

    def read(self, envelope: Any) -> tuple[Action, Any, Any]:
        from mcp_types import ListRootsResult

        try:
            result = ListRootsResult.model_validate(envelope)
        except ValidationError:
            raise MalformedAnswer("ListRootsResult") from None
        return "accept", as_wire(result.roots), result.roots

    def value(self, content: Any) -> list[Root]:
        from mcp_types import ListRootsResult

        return ListRootsResult.model_validate({"roots": content}).roots


# --- checks and conversions ------------------------------------------------------------------


def checked_key(key: Any) -> str:
    """The key, if it can name an ask or a step.

    Raises:
        TypeError: It is no text.
        ValueError: It is empty or too long.
    """
    if not isinstance(key, str):
        raise TypeError(f"A key must be text, not {type(key).__name__}")
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        raise ValueError(f"A key has 1 to {MAX_KEY_LENGTH} characters, not {len(key)}")
    return key


def checked_message(key: str, message: Any) -> str:
    """The message, if it is one. Raises: TypeError."""
    if not isinstance(message, str):
        raise TypeError(f"The message of {key!r} must be text, not {type(message).__name__}")
    return message


def checked_url(key: str, url: Any) -> str:
    """The URL, if a user can be sent there.

    Raises:
        ValueError: It is no absolute http or https URL.
    """
    text = str(url)
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        valid = False
    if not valid or any(character <= " " for character in text):
        raise ValueError(f"The url of {key!r} must be an absolute http or https URL")
    return text


def sampling_messages(messages: Any) -> list[Json]:
    """Text, a `SamplingMessage`, or a list of those, as the wire has them.

    Raises:
        TypeError: It is anything else, or nothing.
    """
    given = messages if isinstance(messages, list | tuple) else [messages]
    if not given:
        raise TypeError("need_sampling wants at least one message")
    return [_message(message) for message in given]


def _message(message: Any) -> Json:
    if isinstance(message, str):
        return {"role": "user", "content": {"type": "text", "text": message}}
    wire = as_wire(message)
    if not (isinstance(wire, dict) and "role" in wire and "content" in wire):
        raise TypeError(
            f"need_sampling wants text or SamplingMessage, not {type(message).__name__}"
        )
    return wire


def as_wire(value: Any) -> Any:
    """Wire models, alone or in lists, as the dicts they stand for; anything else as it is."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        return {name: as_wire(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [as_wire(item) for item in value]
    return value


def merged(parts: Iterable[Json]) -> Json:
    """Nested objects laid over each other: the capabilities that several asks need together."""
    whole: Json = {}
    for part in parts:
        for name, member in part.items():
            whole[name] = {**whole.get(name, {}), **member}
    return whole


def _declared(capabilities: Mapping[str, Any], name: str) -> set[str] | None:
    """The members of a declared capability; None if it is not declared. Null means absent."""
    members = capabilities.get(name)
    if not isinstance(members, dict):
        return None
    return {member for member, value in members.items() if value is not None}


def _is_flat(value: Any) -> bool:
    """Whether `ElicitResult.content` may hold it, asked for or not. Clients also send null."""
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return not isinstance(value, dict)


def _action(envelope: Any) -> Action:
    match envelope:
        case {"action": "accept"}:
            return "accept"
        case {"action": "decline"}:
            return "decline"
        case {"action": "cancel"}:
            return "cancel"
    raise MalformedAnswer("ElicitResult")
