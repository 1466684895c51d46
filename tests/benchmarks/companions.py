"""Promises that a stopwatch cannot show: the tests that show them, by name."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPANIONS = {
    "ten minutes of 503 are loading, not a failure (fake clock)": (
        "tests/rollback/test_ladder.py::test_ten_minutes_of_loading_is_loading",
        "tests/rollback/test_ladder.py::test_a_baseline_that_hangs_is_ended_and_started_once",
    ),
    "an engine that hangs holds nobody up": (
        "tests/rollback/test_ladder.py"
        "::test_hung_engine_is_named_early_and_the_process_baseline_comes_back",
        "tests/services/test_engine_raw.py::test_hung_engine_ends_at_the_deadline",
        "tests/services/test_engine_raw.py::test_full_queue_of_a_stopped_engine_is_a_hang",
        "tests/services/test_engine_raw.py::test_drip_cannot_outlast_the_deadline",
    ),
    "a standby that is stuck is not waited for": (
        "tests/rollback/test_warm.py::test_command_goes_through_the_warm_ladder_or_helps_itself",
    ),
}


def lines() -> list[str]:
    """What is shown, and by which tests."""
    found = []
    for promise, tests in COMPANIONS.items():
        found += [promise, *(f"  {test}" for test in tests)]
    return found


def gone() -> list[str]:
    """Tests named here that are no longer there: a pointer to nothing shows nothing."""
    return [test for tests in COMPANIONS.values() for test in tests if not _there(test)]


def _there(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.exists() and f"\ndef {name}(" in path.read_text()
