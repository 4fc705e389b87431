"""The table of flows and the statements on it. Knows SQL; no connection and no time.

Times are whole milliseconds since the epoch. PostgreSQL reads its own clock; SQLite has none that
could be set for a test, so the time arrives as a parameter there.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    and_,
    bindparam,
    case,
    delete,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from .protocol import OWNS, RUNNING, Status, Use

TABLE: Final = "mcp_flows"

SWEPT_AT_ONCE: Final = 500
"""A few milliseconds of work, for which a writer of SQLite has to wait."""

_POSTGRESQL_NOW: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
_RUNNING: Final = [status.value for status in RUNNING]


def flows_table(metadata: MetaData, name: str = TABLE) -> Table:
    """The table, for migrations of your own: call it on the metadata that Alembic compares with."""
    return Table(
        name,
        metadata,
        Column("flow", String, primary_key=True),
        Column("round", Integer, nullable=False),
        Column("fingerprint", String, nullable=False),
        Column("status", String(16), nullable=False),
        Column("owner", String, nullable=False),
        Column("lease_ends", BigInteger, nullable=False),
        Column("expires", BigInteger, nullable=False),
        Column("response", LargeBinary, nullable=True),
        Index(f"ix_{name}_expires", "expires"),
    )


def checked_dialect(dialect: str) -> str:
    """The dialect, if there are statements in it. Raises: ValueError."""
    if dialect not in ("sqlite", "postgresql"):
        raise ValueError(f"SQLLedger knows SQLite and PostgreSQL, and not {dialect!r}.")
    return dialect


class Statements:
    """What is said to one kind of database. Parameters end in an underscore."""

    def __init__(self, table: Table, dialect: str) -> None:
        self.needs_now = checked_dialect(dialect) == "sqlite"
        insert = sqlite.insert if self.needs_now else postgresql.insert
        now: ColumnElement[int] = (
            bindparam("now_", type_=BigInteger)
            if self.needs_now
            else literal_column(_POSTGRESQL_NOW, BigInteger)
        )
        row = table.c
        round = bindparam("round_", type_=Integer)
        fingerprint = bindparam("fingerprint_", type_=String)
        owner = bindparam("owner_", type_=String)
        ttl = bindparam("ttl_", type_=BigInteger)
        lease = bindparam("lease_", type_=BigInteger)

        is_this_flow = row.flow == bindparam("flow_", type_=String)
        is_owned = and_(is_this_flow, row.round == round, row.owner == owner, row.expires > now)
        is_owned_and_running = and_(is_owned, row.status.in_(_RUNNING))

        is_anew = or_(row.expires <= now, row.round < round, row.status == Status.OPEN.value)
        is_own = row.owner == owner
        is_lapsed = or_(row.status == Status.LAPSED.value, row.lease_ends <= now)
        may_claim = or_(
            row.expires <= now,
            row.round < round,
            and_(
                row.round == round,
                or_(
                    row.status == Status.OPEN.value,
                    and_(
                        row.fingerprint == fingerprint,
                        row.status != Status.ANSWERED.value,
                        or_(is_own, is_lapsed),
                    ),
                ),
            ),
        )
        becomes = case(
            (is_anew, Status.CLAIMED.value),
            (is_own, row.status),  # the reply was lost
            else_=Status.TAKEN_OVER.value,
        )
        values: dict[str, Any] = {
            "round": round,
            "fingerprint": fingerprint,
            "owner": owner,
            "lease_ends": now + lease,
            "expires": now + case((lease > ttl, lease), else_=ttl),
            "response": None,
        }
        self.claim: Final = (
            insert(table)
            .values(flow=bindparam("flow_"), status=Status.CLAIMED.value, **values)
            .on_conflict_do_update(
                index_elements=[row.flow], set_={"status": becomes, **values}, where=may_claim
            )
            .returning(row.status)
        )
        self.why: Final = select(
            row.round,
            row.fingerprint,
            row.status,
            row.response,
            (row.lease_ends - now).label("lease_left"),
            (row.expires <= now).label("is_expired"),
        ).where(is_this_flow)
        self.renew: Final = (
            update(table)
            .where(is_owned_and_running)
            .values(
                lease_ends=now + lease,
                expires=case((row.expires < now + lease, now + lease), else_=row.expires),
            )
        )
        self.answer: Final = (
            update(table)
            .where(is_owned_and_running)
            .values(
                status=Status.ANSWERED.value, response=bindparam("response_"), expires=now + ttl
            )
        )
        self.stored: Final = select(row.response).where(
            is_owned, row.status == Status.ANSWERED.value
        )
        self.release: Final = {
            ran: update(table)
            .where(is_owned_and_running)
            .values(
                status=case(
                    {status.value: becomes[use].value for status, becomes in OWNS.items()},
                    value=row.status,
                ),
                owner="",
            )
            for ran, use in ((False, Use.RELEASE), (True, Use.RELEASE_RAN))
        }
        expired = select(row.flow).where(row.expires <= now).limit(SWEPT_AT_ONCE)
        if not self.needs_now:
            # Chosen once and locked, before anything is deleted: a plain subquery with a limit may
            # be run again for each row, and a row that is being claimed is not ours to delete.
            chosen = expired.with_for_update(skip_locked=True).cte("chosen")
            expired = select(chosen.c.flow)
        self.sweep: Final = delete(table).where(row.flow.in_(expired))
