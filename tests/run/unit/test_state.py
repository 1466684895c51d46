"""The state machine: only the moves of its table, and nothing forward from rolling back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from console.errors import ConsoleError, Exit
from console.run.state import (
    ENDS,
    TRANSITIONS,
    VERBS,
    Decision,
    ForbiddenTransition,
    Pause,
    RunState,
    StepState,
    check_transition,
    exit_code,
    possible_verbs,
    refusal,
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


def reachable(start: RunState) -> set[RunState]:
    seen: set[RunState] = set()
    todo = [start]
    while todo:
        for state in TRANSITIONS[todo.pop()] - seen:
            seen.add(state)
            todo.append(state)
    return seen


def test_nothing_goes_forward_from_rolling_back() -> None:
    assert reachable(R.ROLLING_BACK) == {R.ROLLING_BACK, R.ROLLED_BACK, R.ROLLBACK_FAILED}


def test_stopping_never_runs_again() -> None:
    assert reachable(R.STOPPING) & (LIVE | {R.PENDING}) == set()


def test_every_state_can_be_rolled_back_and_every_run_can_end() -> None:
    for state in set(RunState) - ENDS:
        assert R.ROLLING_BACK in reachable(state) | {state}
        assert reachable(state) & ENDS


class Machine(RuleBasedStateMachine):
    """Asks for any state at any time; what is refused changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.state = R.PENDING
        self.path = [R.PENDING]

    @rule(new=st.sampled_from(list(RunState)))
    def ask(self, new: RunState) -> None:
        try:
            check_transition(self.state, new)
        except ForbiddenTransition:
            return
        self.state = new
        self.path.append(new)

    @rule(verb=st.sampled_from([*VERBS, "status", ""]))
    def verb(self, verb: str) -> None:
        possible = verb in VERBS and self.state in VERBS[verb]
        assert (refusal(verb, self.state) == "") is possible

    @invariant()
    def only_back_after_rolling_back(self) -> None:
        if R.ROLLING_BACK in self.path:
            after = self.path[self.path.index(R.ROLLING_BACK) :]
            assert set(after) <= {R.ROLLING_BACK, R.ROLLED_BACK, R.ROLLBACK_FAILED}

    @invariant()
    def every_move_is_in_the_table(self) -> None:
        pairs = itertools.pairwise(self.path)
        assert [(a, b) for a, b in pairs if b not in ALLOWED[a]] == []

    @invariant()
    def an_end_is_left_only_for_a_rollback(self) -> None:
        for before, after in itertools.pairwise(self.path):
            assert before not in ENDS or after is R.ROLLING_BACK


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=50, stateful_step_count=20)

CODES = {
    R.ROLLBACK_FAILED: (7, 7, 7, 7), R.ROLLED_BACK: (6, 6, 6, 6), R.FAILED: (5, 5, 5, 5),
    R.CANCELLED: (5, 5, 5, 5), R.SUCCEEDED: (0, 0, 4, 3),
}  # fmt: skip


def test_exit_codes() -> None:
    """The first that applies of 7, 6, 5, 3, 4, 0; a run that goes on is unknown."""
    decisions = (Decision.NONE, Decision.GO, Decision.HOLD, Decision.NO_GO)
    found = {state: tuple(exit_code(state, one) for one in decisions) for state in RunState}
    assert found == {state: CODES.get(state, (Exit.HOLD,) * 4) for state in RunState}


def test_what_is_possible_in_which_state() -> None:
    found = {state: {verb for verb in VERBS if not refusal(verb, state)} for state in RunState}
    assert found == {
        **{state: set() for state in ENDS | {R.STOPPING, R.ROLLING_BACK}},
        R.PENDING: {"abort", "rollback"},
        R.RUNNING: {"auto", "continue", "pause", "abort", "rollback"},
        R.PAUSED: set(VERBS) - {"pause", "reject"},
        R.WAITING_APPROVAL: {"pause", "approve", "reject", "abort", "rollback"},
    }
    assert refusal("explode", R.RUNNING)


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
    taken = {why: {v for v in VERBS if refusal(v, R.PAUSED, why) == ""} for why in Pause}
    assert taken == HOLDS
    assert {why: set(possible_verbs(R.PAUSED, why)) for why in Pause} == HOLDS


def test_a_reason_means_nothing_while_a_run_runs() -> None:
    assert possible_verbs(R.RUNNING, "hold") == possible_verbs(R.RUNNING)
