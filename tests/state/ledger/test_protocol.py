"""The table of states: written down three times, and the same each time."""

import subprocess
import sys
from pathlib import Path

import pytest

from fastapi_mcp_mrtr.state import ledger
from fastapi_mcp_mrtr.state.ledger import Claimed, MemoryLedger, protocol
from fastapi_mcp_mrtr.state.ledger.protocol import (
    CLAIMS,
    OWNS,
    RUNNING,
    Move,
    Presented,
    Status,
    Use,
    milliseconds,
)
from fastapi_mcp_mrtr.state.ledger.redis import RedisLedger
from fastapi_mcp_mrtr.state.ledger.sql import SQLLedger, flows_table

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "ledger-states.md"


def row(*cells: str) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def claims_table() -> str:
    def cell(move: Move | None) -> str:
        if move is None:
            return ""
        arrow = f" → {move.becomes.value}" if move.outcome is Claimed else ""
        return f"{move.outcome.__name__}{arrow}"

    return "\n".join(
        [
            row("record", *(relation.value for relation in Presented)),
            "|" + "---|" * 5,
            *(
                row(status.value, *(cell(moves.get(relation)) for relation in Presented))
                for status, moves in CLAIMS.items()
            ),
        ]
    )


def owns_table() -> str:
    def cells(uses: dict[Use, Status]) -> list[str]:
        answered = f"True → {uses[Use.ANSWER].value}"
        return ["True", answered, uses[Use.RELEASE].value, uses[Use.RELEASE_RAN].value]

    return "\n".join(
        [
            row("record", *(use.value for use in Use)),
            "|" + "---|" * 5,
            *(row(status.value, *cells(dict(uses))) for status, uses in OWNS.items()),
            row("answered", "False", "True if it is the same response", "", ""),
        ]
    )


@pytest.mark.parametrize("table", [claims_table(), owns_table()], ids=["claims", "owns"])
def test_the_tables_are_written_down(table: str) -> None:
    """decision: the page and the docstring say what the code does."""
    assert f"\n\n{table}\n\n" in PAGE.read_text()
    assert protocol.__doc__ is not None
    assert f"\n{table}\n" in protocol.__doc__


def test_the_page_names_every_status() -> None:
    """decision: no word of the table is left to guess."""
    page = PAGE.read_text()
    assert [status for status in Status if f"\n| {status.value} | " not in page] == []


def test_nothing_moves_but_by_a_claim() -> None:
    """decision: a request that does not run leaves no trace."""
    for status, moves in CLAIMS.items():
        assert {m.becomes for m in moves.values() if m.outcome is not Claimed} <= {status}


def test_a_claim_is_somebodys() -> None:
    """decision: the statuses that claims and renewals lead to are those that have an owner."""
    claimed = {m.becomes for ms in CLAIMS.values() for m in ms.values() if m.outcome is Claimed}
    renewed = {uses[Use.RENEW] for uses in OWNS.values()}
    assert claimed == renewed == set(RUNNING)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1, 1000), (0.0001, 1), (0.0011, 2), (0, 1), (-3, 1)]
)
def test_spans_are_whole_milliseconds(seconds: float, expected: int) -> None:
    """decision: rounded up, and never nothing."""
    assert milliseconds(seconds) == expected


# ------------------------------------------------------------------------------------ imports


def test_what_needs_an_extra_is_imported_late() -> None:
    """decision: who uses no store pays for none."""
    code = (
        "import sys, fastapi_mcp_mrtr.state.ledger as ledger\n"
        "print(sorted({'redis', 'sqlalchemy'} & set(sys.modules)))\n"
        "ledger.RedisLedger, ledger.SQLLedger\n"
        "print(sorted({'redis', 'sqlalchemy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "['redis', 'sqlalchemy']"]


def test_the_names_are_there() -> None:
    """decision: `__all__` promises them, and a type checker takes each for a `Ledger`."""
    assert [name for name in ledger.__all__ if not hasattr(ledger, name)] == []
    assert ledger.RedisLedger is RedisLedger
    assert ledger.SQLLedger is SQLLedger
    assert ledger.flows_table is flows_table
    ledgers: list[type[ledger.Ledger]] = [MemoryLedger, RedisLedger, SQLLedger]
    assert len(ledgers) == 3


@pytest.mark.parametrize(
    ("name", "extra", "package"),
    [("RedisLedger", "redis", "redis"), ("SQLLedger", "sql", "sqlalchemy")],
)
def test_a_missing_extra_is_named(
    name: str, extra: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: the error says what to install."""
    monkeypatch.delitem(sys.modules, f"fastapi_mcp_mrtr.state.ledger.{extra}")
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"fastapi-mcp-mrtr\[{extra}\]") as missing:
        getattr(ledger, name)
    assert isinstance(missing.value.__cause__, ModuleNotFoundError)


def test_no_other_names() -> None:
    """decision: a typing mistake is told as everywhere."""
    with pytest.raises(AttributeError, match="'RedisLeger'"):
        ledger.RedisLeger  # noqa: B018 - looking is what fails
