"""The runner dies by a real SIGKILL at each of its fault points, among real processes: the tests of
`tests/run/whole/test_faults.py`, with engines, runners, ladders and sentinels as they are."""

from __future__ import annotations

from tests.run.whole.test_faults import (
    test_a_command_that_outlives_its_runner_is_ended_by_the_rollback,
    test_a_resume_goes_on_and_repeats_nothing,
    test_a_rollback_from_a_second_shell_restores,
    test_a_runner_that_dies_after_the_end_still_gets_its_finally,
    test_a_runner_that_dies_before_it_began_leaves_no_run,
)

__all__ = [
    "test_a_command_that_outlives_its_runner_is_ended_by_the_rollback",
    "test_a_resume_goes_on_and_repeats_nothing",
    "test_a_rollback_from_a_second_shell_restores",
    "test_a_runner_that_dies_after_the_end_still_gets_its_finally",
    "test_a_runner_that_dies_before_it_began_leaves_no_run",
]
