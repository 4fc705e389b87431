"""Ledgers: where single-use flows are claimed and their responses kept. Knows no handler, no HTTP.

`RedisLedger` and `SQLLedger` are imported when they are first asked for: they need the extras
`[redis]` and `[sql]`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from fastapi_mcp_mrtr.state.extras import ask_for

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
    return ask_for(name, _EXTRAS, __name__)
