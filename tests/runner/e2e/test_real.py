"""Tests of `tests/runner/whole` with real engines, runners, ladders and sentinels: one of each kind
in every `make test`, and in `make test-all` a real SIGKILL at each fault point of the runner."""

import re
from pathlib import Path

from tests.runner.e2e.conftest import ONE_OF_EACH_KIND
from tests.runner.whole.test_emergency import (
    test_rollback_during_a_benchmark,
    test_with_the_warm_ladder_gone,
)
from tests.runner.whole.test_exit_codes import (
    test_go_measures_the_exclusive_candidate_and_restores_the_baseline,
)
from tests.runner.whole.test_faults import (
    test_a_command_that_outlives_its_runner_is_ended_by_the_rollback,
    test_a_resume_goes_on_and_repeats_nothing,
    test_a_rollback_from_a_second_shell_restores,
    test_a_runner_that_dies_after_the_end_still_gets_its_finally,
    test_a_runner_that_dies_before_it_began_leaves_no_run,
)

HERE = Path(__file__).parent


def test_make_test_has_one_of_each_kind() -> None:
    """A test that is renamed would leave `make test` without a word."""
    defined = re.findall(
        r"^(?:def |    )(test_\w+)[(,]", "".join(p.read_text() for p in HERE.glob("*.py")), re.M
    )
    names = [name.partition("[")[0] for name in ONE_OF_EACH_KIND]
    assert [name for name in names if name not in defined] == []


__all__ = [
    "test_a_command_that_outlives_its_runner_is_ended_by_the_rollback",
    "test_a_resume_goes_on_and_repeats_nothing",
    "test_a_rollback_from_a_second_shell_restores",
    "test_a_runner_that_dies_after_the_end_still_gets_its_finally",
    "test_a_runner_that_dies_before_it_began_leaves_no_run",
    "test_go_measures_the_exclusive_candidate_and_restores_the_baseline",
    "test_rollback_during_a_benchmark",
    "test_with_the_warm_ladder_gone",
]
