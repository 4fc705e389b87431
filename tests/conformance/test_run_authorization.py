"""The gate of the authorization run: what it refuses, on results made up for it."""

import json
from pathlib import Path

import pytest

from .run import Check, Results, read
from .run_authorization import SCENARIOS, judge


def results(**changes: list[str]) -> dict[str, list[Check]]:
    """A clean run, but for `changes`: scenario (with _ for -) -> the statuses of its checks."""
    statuses = {scenario: ["SUCCESS"] * count for scenario, count in SCENARIOS.items()}
    statuses |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {
        scenario: [Check(scenario, "some-check", status, "why") for status in checks]
        for scenario, checks in statuses.items()
    }


def test_a_clean_run_is_conformant() -> None:
    """decision"""
    assert judge(results()) == []


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED", "SOMETHING_NEW"])
def test_a_check_that_does_not_pass_is_a_problem(status: str) -> None:
    """The suite shows warnings and skipped checks with a tick; the gate does not. decision"""
    broken = results(authorization_code_grant=["SUCCESS", status])
    assert judge(broken) == [f"{status} authorization-code-grant: some-check: why"]


@pytest.mark.parametrize(
    "found",
    [
        {name: checks for name, checks in results().items() if name != "authorization-code-grant"},
        results(authorization_code_grant=[]),
        results(authorization_code_grant=["INFO"]),
    ],
    ids=["absent", "broken down", "nothing passed"],
)
def test_a_scenario_that_did_not_pass_is_a_problem(found: Results) -> None:
    """A run that stops half-way must not count. decision"""
    assert judge(found) == ["authorization-code-grant: 0 checks succeeded instead of 1"]


def test_results_are_read_from_the_folders(tmp_path: Path) -> None:
    """One folder per scenario, its name between "authorization-server-" and the time. decision"""
    name = "authorization-server-authorization-code-grant-2026-11-30T12-46-02-070Z"
    (tmp_path / name).mkdir()
    entries = [
        {"id": "a", "status": "SUCCESS", "description": "said"},
        {"id": "b", "status": "FAILURE", "description": "said", "errorMessage": "went wrong"},
    ]
    (tmp_path / name / "checks.json").write_text(json.dumps(entries))
    (tmp_path / "broken").mkdir()
    (tmp_path / "suite.log").write_text("no folder")
    assert read(tmp_path) == {
        "authorization-code-grant": [
            Check("authorization-code-grant", "a", "SUCCESS", "said"),
            Check("authorization-code-grant", "b", "FAILURE", "went wrong"),
        ],
        "broken": [],
    }
