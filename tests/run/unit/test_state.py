"""The state machine: only the moves of its table, and nothing forward from rolling back."""

from __future__ import annotations

import itertools

import pytest

from console.common.errors import ConsoleError, Exit
from console.journal.state import (
    ENDS,
    TRANSITIONS,
    Decision,
    ForbiddenTransition,
    Pause,
    RunState,
    StepState,
    check_transition,
    exit_code,
    possible_verbs,
)

R = RunState
LIVE = {R.RUNNING, R.PAUSED, R.WAITING_APPROVAL}
ALLOWED = {
    R.PENDING: {R.RUNNING, R.FAILED, R.CANCELLED, R.ROLLING_BACK},
    R.RUNNING: LIVE | {R.STOPPING, R.ROLLING_BACK} | ENDS,
    R.PAUSED: LIVE | {R.STOPPING, R.ROLLING_BACK} | ENDS,
    R.WAITING_APPROVAL: LIVE | {R.STOPPING, R.ROLLING_BACK} | ENDS,
    R.STOPPING: {R.ROLLING_BACK} | ENDS,
    R.ROLLING_BACK: {R.ROLLED_BACK, R.ROLLBACK_FAILED},
    **{end: {R.ROLLING_BACK} for end in ENDS},
}


def test_every_pair_of_states() -> None:
    for current, new in itertools.product(RunState, RunState):
        if new in ALLOWED[current]:
            check_transition(current, new)
            continue
        with pytest.raises(ForbiddenTransition) as caught:
            check_transition(current, new)
        assert f"{current} → {new}" in str(caught.value)
        assert isinstance(caught.value, ConsoleError)


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(RunState)
    assert {str(end) for end in ENDS} == {
        "succeeded", "failed", "cancelled", "rolled_back", "rollback_failed",
    }  # fmt: skip


CODES = {
    R.ROLLBACK_FAILED: (7, 7, 7, 7), R.ROLLED_BACK: (6, 6, 6, 6), R.FAILED: (5, 5, 5, 5),
    R.CANCELLED: (5, 5, 5, 5), R.SUCCEEDED: (0, 0, 4, 3),
}  # fmt: skip


def test_exit_codes() -> None:
    """The first that applies of 7, 6, 5, 3, 4, 0; a run that goes on is unknown."""
    decisions = (Decision.NONE, Decision.GO, Decision.HOLD, Decision.NO_GO)
    found = {state: tuple(exit_code(state, one) for one in decisions) for state in RunState}
    assert found == {state: CODES.get(state, (Exit.HOLD,) * 4) for state in RunState}


def test_the_words_are_the_documented_ones() -> None:
    assert {str(s) for s in StepState} == {
        "pending", "running", "retry_wait", "succeeded", "failed", "skipped", "cancelled",
        "in_doubt",
    }  # fmt: skip


HOLDS = {
    "operator": {"next", "auto", "continue", "skip", "abort", "rollback"},
    "step_failed": {"retry", "skip", "abort", "rollback"},
    "in_doubt": {"retry", "skip", "abort", "rollback"},
    "approval_expired": {"retry", "skip", "abort", "rollback"},
    "hold": {"approve", "retry", "abort", "rollback"},
}


def test_what_moves_a_paused_run_on_depends_on_why_it_stands() -> None:
    """What each verb is told in each state is in test_words."""
    assert {why: set(possible_verbs(R.PAUSED, why)) for why in Pause} == HOLDS
    assert possible_verbs(R.RUNNING, "hold") == possible_verbs(R.RUNNING)
