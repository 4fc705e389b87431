"""What a call costs is held in CI by counting instructions, which other load cannot blur."""

import os

import pytest

from .instructions import BOUND, RECORD, can_count, count, recorded

NOT_OURS = "FastAPI route"


def test_no_kind_of_call_takes_many_more_instructions_than_recorded() -> None:
    """decision: a regression of 15% fails, a noisy machine does not."""
    if not can_count():
        assert os.environ.get("CI") != "true", "CI installs valgrind"
        pytest.skip("needs an x86-64 with valgrind")
    before = recorded()
    if before is None:
        pytest.skip(f"{RECORD.name} has no counts for this Python")
    found = count()
    assert found.keys() == before.keys()
    # Whatever the environment does to everything, it does to the bare route too.
    environment = max(1.0, found[NOT_OURS] / before[NOT_OURS])
    grown = {
        name: f"{found[name]:,} after {before[name]:,}"
        for name in before
        if name != NOT_OURS and found[name] > before[name] * BOUND * environment
    }
    assert not grown, "make instructions shows it; python -m tests.bench.instructions --record"
