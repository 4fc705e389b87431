"""The questions of a server, asked in a terminal. Knows no connection.

Results go to standard output; everything that is said to a person goes to standard error, so that
both can be had apart. What a server sends is shown without control characters: a terminal would
obey them.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from fastapi_mcp_mrtr.testing.answers import CANCEL, DECLINE, Ask, Refusal
from fastapi_mcp_mrtr.testing.wire import Notification

from .values import describe, options_of, read

Json = dict[str, Any]

_REFUSALS: Final[Mapping[str, Refusal]] = {"/decline": DECLINE, "/cancel": CANCEL}
_HINT: Final = "(/decline says no, /cancel gives no answer)"


class Refused(Exception):
    """Somebody typed a refusal in place of an answer."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


def clean(text: object) -> str:
    """The text with what would move the cursor, or worse, made visible. Lines stay lines."""
    return "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1]
        for character in str(text)
    )


class Terminal:
    """A person who reads `err` and types into `inp`."""

    def __init__(self, inp: TextIO | None = None, err: TextIO | None = None) -> None:
        self._in = inp or sys.stdin
        self._err = err or sys.stderr

    @property
    def is_there(self) -> bool:
        """Whether somebody can be asked."""
        return self._in.isatty()

    def say(self, text: object = "") -> None:
        """A line for the person."""
        self._err.write(f"{clean(text)}\n")
        self._err.flush()

    def notice(self, notification: Notification) -> None:
        """Progress and log messages, as they come."""
        params = notification.params
        match notification.method:
            case "notifications/progress":
                total = f"/{params['total']}" if "total" in params else ""
                message = f" {params['message']}" if "message" in params else ""
                self.say(f"[{params.get('progress')}{total}]{message}")
            case "notifications/message":
                data = params.get("data")
                shown = data if isinstance(data, str) else json.dumps(data)
                self.say(f"[{params.get('level')}] {shown}")

    def ask(self, ask: Ask) -> Any:
        """The answer, as the test client takes it."""
        self.say()
        try:
            return _BY_KIND[ask.kind](self, ask)
        except Refused as refused:
            return refused.refusal

    def _line(self, prompt: str) -> str:
        """A line that was typed. The end of input is no answer. Raises: Refused."""
        self._err.write(f"{clean(prompt)}: ")
        self._err.flush()
        line = self._in.readline()
        if not line:
            raise Refused(CANCEL)
        text = line.rstrip("\r\n")
        if text in _REFUSALS:
            raise Refused(_REFUSALS[text])
        return text

    # --------------------------------------------------------------------------- the kinds

    def form(self, ask: Ask) -> Json:
        """One line for each field."""
        self.say(f"{ask.message} {_HINT}")
        required = ask.schema.get("required", ())
        content: Json = {}
        for name, field in ask.schema.get("properties", {}).items():
            value = self._field(name, field, required=name in required)
            if value is not None:
                content[name] = value
        return content

    def _field(self, name: str, field: Json, *, required: bool) -> Any:
        if "description" in field:
            self.say(f"  {field['description']}")
        options = options_of(field)
        for number, (value, title) in enumerate(options, 1):
            self.say(f"  {number}) {value}" + (f"  {title}" if title != value else ""))
        wanted = [f"1 to {len(options)}, or the value" if options else describe(field)]
        if "default" in field:
            wanted.append(f"{json.dumps(field['default'])} if left empty")
        elif not required:
            wanted.append("may be left empty")
        while True:
            text = self._line(f"{field.get('title', name)} [{'; '.join(wanted)}]")
            if not text and "default" in field:
                return field["default"]
            if not text and not required:
                return None
            try:
                return read(_chosen(text, options), field)
            except ValueError as error:
                self.say(f"  {error}")

    def url(self, ask: Ask) -> Any:
        """Shows the address; whether to go there is the person's decision."""
        self.say(f"{ask.message} {_HINT}")
        self.say(f"  {ask.url}")
        while self._line("Open this page, then type yes").lower() not in ("y", "yes"):
            pass
        return True

    def sampling(self, ask: Ask) -> Any:
        """What a model would say, typed by hand."""
        self.say("The server wants a message of your model. Write it yourself:")
        system = ask.params.get("systemPrompt")
        self.say(f"  system: {system}" if system else "")
        for line in ask.message.splitlines():
            self.say(f"  {line}")
        return self._unrefusable("message")

    def roots(self, ask: Ask) -> list[str]:
        """Addresses of folders, until an empty line."""
        self.say("The server wants to know your roots, as file:// addresses. An empty line ends.")
        found = []
        while line := self._unrefusable("root"):
            found.append(line)
        return found

    def _unrefusable(self, prompt: str) -> str:
        """A line for what the protocol lets nobody refuse; giving up ends the command."""
        try:
            return self._line(prompt)
        except Refused:
            raise KeyboardInterrupt from None


_BY_KIND: Final[Mapping[str, Callable[[Terminal, Ask], Any]]] = {
    "form": Terminal.form,
    "url": Terminal.url,
    "sampling": Terminal.sampling,
    "roots": Terminal.roots,
}


def _chosen(text: str, options: list[tuple[str, str]]) -> str:
    """The values behind the numbers of options; text that is no number stays."""
    if not options:
        return text
    parts = [part.strip() for part in text.split(",")]
    values = [value for value, _ in options]
    return ",".join(
        values[int(part) - 1]
        if part not in values and part.isdecimal() and 0 < int(part) <= len(values)
        else part
        for part in parts
    )
