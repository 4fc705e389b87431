"""Ledgers: where single-use flows are claimed and their responses kept. Knows no handler, no HTTP.

`RedisLedger` and `SQLLedger` are imported when they are first asked for: they need the extras
`[redis]` and `[sql]`.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .memory import MemoryLedger
from .protocol import Answered, Claim, Claimed, Held, Ledger, LedgerUnavailable, Refused

if TYPE_CHECKING:
    from .redis import RedisLedger
    from .sql import SQLLedger, flows_table

__all__ = [
    "Answered",
    "Claim",
    "Claimed",
    "Held",
    "Ledger",
    "LedgerUnavailable",
    "MemoryLedger",
    "RedisLedger",
    "Refused",
    "SQLLedger",
    "flows_table",
]

_EXTRAS: Final[Mapping[str, str]] = {
    "RedisLedger": "redis",
    "SQLLedger": "sql",
    "flows_table": "sql",
}
"""The extra that each name needs, which is also its module here."""


def __getattr__(name: str) -> Any:
    extra = _EXTRAS.get(name)
    if extra is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{extra}", __name__), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs the extra [{extra}]: pip install 'fastapi-mcp-mrtr[{extra}]' "
            f"({error.name} is not installed)"
        ) from error
