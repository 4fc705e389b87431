"""How options read to the user: `Titles`, metadata for the types that a form offers.

Pure: no I/O, no framework. It knows pydantic's schemas, and nothing of rounds or the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, init=False)
class Titles:
    """Say how options read to the user: `Annotated[Literal["a", "b"], Titles({"a": "Aisle"})]`.

    Works on a `Literal`, on an `Enum` with text values, and on lists of either. On `str` and
    `list[str]` the titles *are* the options, for choices known only while the handler runs:

        flights = {f.number: f"{f.number} at {f.time}" for f in found}
        number: str = yield need_input("flight", "Which one?", Annotated[str, Titles(flights)])

    An option without a title shows its value.
    """

    items: tuple[tuple[str, str], ...]

    def __init__(self, titles: Mapping[Any, str]) -> None:
        pairs = tuple((k.value if isinstance(k, Enum) else k, v) for k, v in titles.items())
        if not pairs:
            raise TypeError("Titles needs at least one option")
        for pair in pairs:
            if not all(isinstance(part, str) for part in pair):
                raise TypeError(f"Titles maps option values (text) to titles (text), not {pair!r}")
        object.__setattr__(self, "items", pairs)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return self._open_options(source) or handler(source)

    def _open_options(self, source: Any) -> core_schema.CoreSchema | None:
        """`str` with the titles as its options, alone, in a list or optional; else None."""
        if source is str:
            return core_schema.literal_schema([value for value, _ in self.items])
        if get_origin(source) is list and get_args(source) == (str,):
            return core_schema.list_schema(self._open_options(str))
        members = get_args(source) if get_origin(source) in (Union, UnionType) else ()
        match [member for member in members if member is not NoneType]:
            case [one] if len(members) == 2 and (inner := self._open_options(one)):
                return core_schema.nullable_schema(inner)
        return None

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> Json:
        return self._titled(handler(schema), handler.resolve_ref_schema)

    def _titled(self, schema: Json, resolve: Callable[[Json], Json]) -> Json:
        schema = dict(resolve(schema))
        if "items" in schema:
            return {**schema, "items": self._titled(schema["items"], resolve)}
        if "anyOf" in schema:  # `| None`; a wider union is refused later, by name
            parts = [
                s if s == {"type": "null"} else self._titled(s, resolve) for s in schema["anyOf"]
            ]
            return {**schema, "anyOf": parts}
        options = [schema.pop("const")] if "const" in schema else schema.pop("enum", None)
        if options is None:
            raise TypeError("Titles belongs on a Literal, an Enum, text, or a list of those")
        titles = dict(self.items)
        if unknown := titles.keys() - set(options):
            raise TypeError(f"Titles names {min(unknown)!r}, which is none of the options")
        return {**schema, "oneOf": [{"const": o, "title": titles.get(o, o)} for o in options]}
