"""What the rounds of one call were given, so that its client can make the call again.

An older client sees no state: all it can do when a worker died is to make its whole call again,
with the same idempotency key. The ledger knows the round that was presented last, and refuses the
first one; so whoever plays the client of the rounds keeps here what it presented.

Knows no method, no handler and no store.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json

from fastapi_mcp_mrtr.errors import RequestStateError
from fastapi_mcp_mrtr.protocol.jsonrpc import encode

from .single_use import Presentation, SingleUse

_RECORDS: Final = 2
"""How many records take turns: while one is written, the other has what was before."""


class Dialogue:
    """The last entry of a call, which the ledger keeps sealed, and how many there were.

    Entries are numbered from 1. A ledger refuses a number that is lower than the one it keeps, so
    who begins at 1 and goes up by one comes to the last entry and never passes it.
    """

    def __init__(self, once: SingleUse, flow: str, *, ttl: float) -> None:
        self._once = once
        self._flow = flow
        self._ttl = ttl
        self._number = 0
        """Of the last entry that was seen or made."""

    async def add(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Add an entry after the last one that was seen: the one that stands there now, which
        somebody else may have made; None if there are more already.

        Raises:
            MCPError: -31003, the ledger cannot be reached.
        """
        at = self._place(self._number + 1)
        try:
            text = encode(dict(entry))
            entry = _read(text)
        except ValueError:  # nested too deeply, by a level or two: the call goes on without
            self._number += 1
            return entry
        try:
            kept = await self._once.note(at, text, ttl=self._ttl)
        except RequestStateError:
            return None
        self._number += 1
        return entry if kept == text else _read(kept)

    async def last(self) -> Mapping[str, Any] | None:
        """The last entry, unless it was seen already or there is none.

        Raises:
            MCPError: -31003, the ledger cannot be reached.
        """
        found: bytes | None = None
        while True:
            try:
                noted = await self._once.noted(self._place(self._number + 1), ttl=self._ttl)
            except RequestStateError:
                pass  # it has made room for a later one
            else:
                if noted is None:
                    return None if found is None else _read(found)
                found = noted
            self._number += 1

    def _place(self, number: int) -> Presentation:
        named = f"{self._flow} {number % _RECORDS}".encode()
        place = hashlib.sha256(named).hexdigest()[: len(self._flow)]
        return Presentation(place, number, place)


def _read(entry: bytes) -> Mapping[str, Any]:
    read: Mapping[str, Any] = from_json(entry)
    return read
