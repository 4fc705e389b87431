"""The gate of the conformance run: what it refuses, on results made up for it."""

import json
from pathlib import Path

import pytest

from .run import REVISIONS, Check, Results, Revision, judge, read, summary

LATEST, OLDER = REVISIONS


def results(revision: Revision = LATEST, /, **changes: list[str]) -> dict[str, list[Check]]:
    """A clean run, but for `changes`: scenario (with _ for -) -> the statuses of its checks."""
    statuses = {f"scored-{n}": ["SUCCESS"] * 4 for n in range(revision.scored)}
    statuses |= {name: ["SUCCESS"] for name in revision.pending}
    statuses |= {f"tasks-{n}": ["FAILURE"] for n in range(revision.extension)}
    statuses |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {
        scenario: [Check(scenario, "some-check", status, "why") for status in checks]
        for scenario, checks in statuses.items()
    }


def without(found: Results, scenario: str) -> Results:
    return {name: checks for name, checks in found.items() if name != scenario}


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.name)
def test_a_clean_run_is_conformant_though_the_extension_fails(revision: Revision) -> None:
    """Only tasks-* may fail. decision"""
    assert judge(results(revision), revision) == []


def test_a_run_of_another_revision_is_none() -> None:
    """Each has scenarios of its own. decision"""
    assert judge(results(OLDER), LATEST) != []
    assert judge(results(LATEST), OLDER) != []


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED", "SOMETHING_NEW"])
@pytest.mark.parametrize("scenario", ["scored_7", "json_schema_2020_12"])
def test_a_check_that_does_not_pass_is_a_problem(scenario: str, status: str) -> None:
    """The suite exits 0 on warnings and skipped checks, and on failures that are not scored; the
    gate does not. decision"""
    broken = results(**{scenario: ["SUCCESS"] * 4 + [status]})
    name = scenario.replace("_", "-")
    assert judge(broken, LATEST) == [f"{status} {name}: some-check: why"]


def test_information_is_no_problem() -> None:
    """INFO only tells. decision"""
    assert judge(results(scored_7=["SUCCESS"] * 4 + ["INFO"]), LATEST) == []


@pytest.mark.parametrize(
    ("scenario", "problem"),
    [
        ("scored-7", "36 scored scenarios ran instead of 37"),
        ("json-schema-2020-12", "2 pending scenarios ran instead of 3"),
        ("tasks-1", "9 extension scenarios ran instead of 10"),
    ],
)
def test_a_scenario_that_did_not_run_is_a_problem(scenario: str, problem: str) -> None:
    """A run that stops half-way must not count. decision"""
    assert judge(without(results(), scenario), LATEST) == [problem]


def test_a_scenario_that_broke_down_is_a_problem() -> None:
    """A folder without checks passes nothing. decision"""
    assert judge(results(scored_7=[]), LATEST) == ["scored-7: ran no check"]


def test_too_few_successes_are_a_problem() -> None:
    """With no server at all the suite still prints passes: 120 is what a whole run has. decision"""
    few = {f"scored_{n}": ["SUCCESS"] for n in range(LATEST.scored)}
    assert judge(results(**few), LATEST) == [
        "37 checks succeeded in scored scenarios instead of 120 or more"
    ]


def test_results_are_read_from_the_folders(tmp_path: Path) -> None:
    """One folder per scenario, its name between "server-" and the time. decision"""
    folder = tmp_path / "server-tools-call-error-2026-11-30T11-08-05-704Z"
    folder.mkdir()
    entries = [
        {"id": "a", "status": "SUCCESS", "description": "said"},
        {"id": "b", "status": "FAILURE", "description": "said", "errorMessage": "went wrong"},
    ]
    (folder / "checks.json").write_text(json.dumps(entries))
    (tmp_path / "tasks-broken").mkdir()
    (tmp_path / "suite.log").write_text("no folder")
    assert read(tmp_path) == {
        "tools-call-error": [
            Check("tools-call-error", "a", "SUCCESS", "said"),
            Check("tools-call-error", "b", "FAILURE", "went wrong"),
        ],
        "tasks-broken": [],
    }


def test_the_summary_counts_each_group() -> None:
    """One readable line each. decision"""
    text = summary(results(scored_7=["SUCCESS", "WARNING"], tasks_1=[]), LATEST)
    assert text.splitlines() == [
        "    scored: 36/37 scenarios clean; checks: 145 SUCCESS, 1 WARNING",
        "   pending: 3/3 scenarios clean; checks: 3 SUCCESS",
        " extension: 0/10 scenarios clean; checks: 9 FAILURE",
    ]
