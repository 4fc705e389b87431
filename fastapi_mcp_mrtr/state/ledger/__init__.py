"""Ledgers: where single-use flows are claimed and their responses kept. Knows no handler, no HTTP.

`RedisLedger` and `SQLLedger` need the extras `[redis]` and `[sql]`; they are imported from
`.redis` and `.sql` by whoever uses them.
"""

from .memory import MemoryLedger
from .protocol import (
    Answered,
    Claim,
    Claimed,
    Held,
    Ledger,
    LedgerUnavailable,
    Refused,
)

__all__ = [
    "Answered",
    "Claim",
    "Claimed",
    "Held",
    "Ledger",
    "LedgerUnavailable",
    "MemoryLedger",
    "Refused",
]
