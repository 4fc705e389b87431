"""A form: what goes out, and the check that turns what comes back into a value.

Pure: no I/O, no framework. How a type becomes a form is no business of this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json, to_jsonable_python

Json = dict[str, Any]

SCALAR: Final = "value"
"""The one property that carries an answer which is no model."""


class InvalidAnswer(Exception):
    """Content that does not fit its question. `reason` is for the user who gave it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _finite(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


WIRE_TYPES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "string": (lambda v: type(v) is str, "must be text"),
    "integer": (lambda v: _finite(v) and v == int(v), "must be a whole number"),
    "number": (_finite, "must be a number"),
    "boolean": (lambda v: type(v) is bool, "must be yes or no"),
    "array": (
        lambda v: type(v) is list and all(type(item) is str for item in v),
        "must be a list of options",
    ),
}
"""What content may hold for each type, and what is wrong with anything else."""


_DATE: Final = "must be a date like 2026-07-28"
_DATE_TIME: Final = "must be a date and time like 2026-07-28T09:30:00Z"
_URL: Final = "must be a URL"
_REASONS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be more than {gt}",
    "less_than": "must be less than {lt}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} options",
    "too_long": "must have at most {max_length} options",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": _DATE,
    "datetime_parsing": _DATE_TIME,
    "datetime_from_date_parsing": _DATE_TIME,
    "timezone_aware": "must name its time zone",
    "timezone_naive": "must not name a time zone",
    "url_parsing": _URL,
    "url_syntax_violation": _URL,
    "url_too_long": _URL,
    "url_scheme": "must be a URL that begins with {expected_schemes}",
}
"""Pydantic's error types in plain words, without the value that was given."""


def _reason(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, Exception):  # the author's own ValueError or assert, in their words
        text = str(cause) or "is not valid"
    elif error["type"] == "value_error":  # EmailStr; its own text quotes what was given
        text = "must be an email address"
    elif (template := _REASONS.get(error["type"])) is not None:
        text = template.format_map(context)
    else:
        text = str(error["msg"])
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {text}" if place else text


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A type as a form: the schema that goes out and the check on what comes back."""

    name: str
    requested_schema: Json
    digest: str
    _adapter: TypeAdapter[Any]
    _kinds: Mapping[str, str]
    _nulls: tuple[str, ...]
    """Optional properties without a default: left out on the wire, `None` to the model."""
    _factories: Mapping[str, str]
    """Properties whose default is made anew each time, and the attribute that holds it."""
    _scalar: bool

    def parse(self, content: Any) -> Any:
        """The value that `content` stands for. Unknown properties are ignored.

        Raises:
            InvalidAnswer: It does not fit. `reason` says why, without repeating what was given.
        """
        return self._value(self._known(content))

    def accept(self, content: Any) -> tuple[Any, Json]:
        """The value, and the content to journal so that every later round reads the same value.

        Raises:
            InvalidAnswer: As `parse`.
        """
        known = self._known(content)
        value = self._value(known)
        for name, attribute in self._factories.items():
            if name not in known:
                known[name] = to_jsonable_python(getattr(value, attribute))
        return value, known

    def dump(self, value: Any) -> Json:
        """The content that answers with `value`, for clients that hold the value."""
        dumped = self._adapter.dump_python(value, mode="json", by_alias=True, exclude_none=True)
        return {SCALAR: dumped} if self._scalar else dumped

    def _known(self, content: Any) -> Json:
        """The known properties, each of its wire type. A null stands for "left out"."""
        if not isinstance(content, dict):
            raise InvalidAnswer("must be a form")
        known: Json = {}
        wrong: list[str] = []
        for name, kind in self._kinds.items():
            if (value := content.get(name)) is None:
                continue
            fits, reason = WIRE_TYPES[kind]
            if fits(value):
                known[name] = int(value) if kind == "integer" else value
            else:
                wrong.append(reason if self._scalar else f"{name}: {reason}")
        if wrong:
            raise InvalidAnswer("; ".join(wrong))
        return known

    def _value(self, known: Json) -> Any:
        filled = {**dict.fromkeys(self._nulls), **known} if self._nulls else known
        given: Any = filled
        if self._scalar:
            if SCALAR not in filled:
                raise InvalidAnswer(_REASONS["missing"])
            given = filled[SCALAR]
        try:
            # JSON mode, because only there does strict still read dates and enums from text.
            return self._adapter.validator.validate_json(
                to_json(given), strict=True, by_alias=True, by_name=False
            )
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
        except ValueError:  # text that is no Unicode cannot be written as JSON
            raise InvalidAnswer("must be readable text") from None
        raise InvalidAnswer("; ".join(_reason(one) for one in found))
