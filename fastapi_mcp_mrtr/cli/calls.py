"""One call, with all its rounds: answers come from options, else from a person. Knows no HTTP."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import mcp_types

from fastapi_mcp_mrtr.testing.answers import DECLINE, Ask, Refusal
from fastapi_mcp_mrtr.testing.flow import Call, begin

from .exits import Exit, Stop
from .remote import Remote
from .terminal import Terminal
from .values import read

Json = dict[str, Any]

_MAX_WAITS: Final = 1000


class Answered:
    """The answers that were given with the command: each is used the first time it is asked for.

    Args:
        given: text for each `key` or `key.field`.
        refusals: how to refuse a key.
    """

    def __init__(
        self, terminal: Terminal, given: Mapping[str, str], refusals: Mapping[str, Refusal]
    ) -> None:
        self._terminal = terminal
        self._given = given
        self._refusals = refusals
        self._unused = given.keys() | refusals.keys()

    @property
    def unused(self) -> Iterable[str]:
        """The keys, with their fields, that nothing asked for."""
        return sorted(self._unused)

    def answers(self, asks: Mapping[str, Ask]) -> Json:
        """An answer to every ask of a round.

        Raises:
            Stop: there is none to one of them, and nobody to ask.
        """
        found = {key: self._first(ask) for key, ask in asks.items() if ask.times == 1}
        missing = [ask for key, ask in asks.items() if found.get(key) is None]
        if missing and not self._terminal.is_there:
            raise Stop(Exit.UNANSWERED, _unanswered(missing))
        for ask in missing:
            found[ask.key] = self._terminal.ask(ask)
        return found

    def _first(self, ask: Ask) -> Any:
        """What the command line says to an ask; None if nothing."""
        if ask.key in self._refusals:
            self._unused.discard(ask.key)
            return self._refusals[ask.key]
        whole = self._given.get(ask.key)
        prefix = f"{ask.key}."
        parts = {k.removeprefix(prefix): v for k, v in self._given.items() if k.startswith(prefix)}
        if whole is None and not parts:
            return None
        used = [f"{prefix}{name}" for name in parts] if whole is None else [ask.key]
        self._unused.difference_update(used)
        properties: Json = ask.schema.get("properties", {})
        try:
            if ask.kind != "form":
                return _OTHERS[ask.kind](whole or "")
            if whole is None:
                return {name: read(text, properties.get(name, {})) for name, text in parts.items()}
            if len(properties) == 1 and not whole.startswith("{"):
                ((name, schema),) = properties.items()
                return {name: read(whole, schema)}
            return read(whole, {"type": "object"})
        except ValueError as error:
            raise Stop(Exit.UNANSWERED, f"--answer {ask.key}: {error}") from None


_OTHERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "url": lambda text: read(text, {"type": "boolean"}) or DECLINE,
    "sampling": str,
    "roots": lambda text: read(text, {"type": "array"}),
}
"""How an answer that is no form is written."""


def play(
    remote: Remote,
    tool: str,
    arguments: Json,
    answered: Answered,
    *,
    pause: float,
    terminal: Terminal,
) -> Json:
    """Call a tool and go through its rounds; the result, as on the wire.

    Raises:
        Stop: a question has no answer, or it never ends.
        ErrorReply, RejectedRequest, ProtocolViolation: the server does not play along.
    """
    first: Call[mcp_types.CallToolResult] = Call(
        "tools/call", {"name": tool, "arguments": arguments}, mcp_types.CallToolResult
    )
    round_ = begin(remote, first)
    while round_.kind == "input_required":
        if round_.asks:
            round_ = round_.answer(answered.answers(round_.asks))
        else:
            if round_.number > _MAX_WAITS:
                raise Stop(Exit.UNANSWERED, f"{tool} is still not done")
            terminal.say(f"{tool} waits; asking again in {pause:g} seconds (Ctrl-C to leave it)")
            time.sleep(pause)
            round_ = round_.wait()
    for key in answered.unused:
        terminal.say(f"{tool} did not ask for {key}")
    return round_.reply.result


def _unanswered(asks: Iterable[Ask]) -> str:
    lines = [f"  {ask.key}{' again' * (ask.times > 1)}: {ask.message}" for ask in asks]
    keys = " ".join(f"--answer {ask.key}=..." for ask in asks)
    return "\n".join(["The tool asks, and this is no terminal:", *lines, f"Answer with {keys}"])
