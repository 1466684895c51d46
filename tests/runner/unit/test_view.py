"""The states of a run, and a viewer's picture of it, folded from its events."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common import record
from console.common.errors import Exit
from console.journal.events import RunCreated, Rung
from console.journal.fold import fold
from console.journal.run_view import BaselineServes, RunView, StepMeasurement, StepView, VerbGiven
from console.journal.state import (
    ENDS,
    Decision,
    ForbiddenTransition,
    RunState,
    StepState,
    check_transition,
    exit_code,
)
from console.journal.store import Event, event_of

STEPS = [
    {"id": "a", "title": "A", "phase": "p", "kind": "run", "takes_s": 5.0},
    {"id": "b", "title": "B", "phase": "p", "kind": "gate"},
]
CREATED = {"run_id": "r1", "owner": "op", "inputs": {"port": 1}, "restore_s": 74.0, "steps": STEPS}
HEADER = record.of(RunCreated, CREATED)


class Story:
    """Events in order, as a runner writes them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.add("run.created", **CREATED)

    def add(self, kind: str, step: str = "", attempt: int = 0, **data: Any) -> Story:
        seq = len(self.events) + 1
        self.events.append(event_of(seq, 1000.0 + seq, kind, step, attempt, data))
        return self

    def view(self) -> RunView:
        return fold(self.events)


def test_a_created_run_and_what_is_not_known() -> None:
    story = Story().add("from.the.future", x=1).add("step.state", "ghost", 1, state="running")
    story.add("step.say", "ghost", text="boo").add("service", service="ghost", alive=False)
    steps = [StepView("a", "A", "p", "run", takes_s=5.0), StepView("b", "B", "p", "gate")]
    assert story.view() == RunView(
        "r1", owner="op", created=1001.0, restore_s=74.0, inputs={"port": 1}, header=HEADER,
        steps=steps, seq=5, at=1005.0, trouble=[story.events[1].odd],
    )  # fmt: skip


def test_a_second_attempt_begins_anew() -> None:
    story = Story().add("step.state", "a", 1, state="running", effects=["$ x"])
    failed: dict[str, Any] = {
        "cause": "exit_code", "detail": "no", "duration_s": 2.0, "exit_code": 3, "lines": ["boom"],
    }  # fmt: skip
    story.add("step.say", "a", text="working").add("step.state", "a", 1, state="failed", **failed)
    first = StepView("a", "A", "p", "run", takes_s=5.0, attempt=1, started=1002.0)
    first = replace(first, effects=["$ x"], message="working", state=StepState.FAILED, **failed)
    assert story.view().current == first
    again = replace(
        first, attempt=2, started=1005.0, state=StepState.RUNNING, effects=[], message=""
    )
    again = replace(again, cause="", detail="", duration_s=None, exit_code=None, lines=[])
    assert story.add("step.state", "a", 2, state="running").view().current == again


def test_the_state_and_its_reason() -> None:
    story = Story().add("run.state", state="paused", reason="hold", detail="gate b")
    view = story.view()
    assert (view.state, view.reason, view.detail, view.over) == ("paused", "hold", "gate b", False)
    view = story.add("run.state", state="succeeded").view()
    assert (view.over, view.reason, view.ended) == (True, "", 1003.0)


def test_the_worst_standing_verdict_decides() -> None:
    for verdicts, decision, outcome in (
        ("", "", ""),
        ("g GO soak", "go", "soak"),
        ("g GO soak, h HOLD evaluate", "hold", "evaluate"),
        ("g NO-GO retain, h GO soak", "no_go", "retain"),
        ("g NO-GO a, h NO-GO b, i NO-GO ", "no_go", "b"),
        ("g HOLD evaluate, g GO soak", "go", "soak"),
        ("g GO soak, g NO-GO retain", "no_go", "retain"),
    ):
        story = Story()
        for one in filter(None, verdicts.split(", ")):
            step, verdict, name = one.split(" ")
            story.add("verdict", step, verdict=verdict, outcome=name)
        assert (str(story.view().decision), story.view().outcome) == (decision, outcome), verdicts


def test_figures_of_the_step_and_of_the_baseline_stay_apart() -> None:
    story = Story().add("metrics", "a", metrics={"tok_s": {"value": 20}}, soak={"gaps": []})
    story.add("metrics", "a", scope="a.baseline", metrics={"tok_s": {"value": 10}})
    story.add("metrics", "a", metrics={"n": {"value": 1}}, soak={"gaps": [[1, 2]]})
    view = story.add("metrics", "a", metrics={}, benchmark={"model": "m"}).view()
    assert view.metrics == {
        "a": {"tok_s": {"value": 20}, "n": {"value": 1}},
        "a.baseline": {"tok_s": {"value": 10}},
    }
    assert view.measured == {"a": StepMeasurement({"model": "m"}, {"gaps": [[1, 2]]})}


def test_how_long_the_baseline_was_down_is_added_up() -> None:
    story = Story().add("outage", down=True).add("outage", down=True)
    view = story.view()
    assert (view.down_since, view.down_s, view.outage) == (1002.0, 0.0, True)
    story.add("outage", down=False).add("outage", down=True)
    view = story.add("outage", down=False, restore_s=12.0).view()
    assert (view.down_since, view.down_s, view.outage, view.restore_s) == (0.0, 3.0, False, 12.0)
    assert Story().add("outage", down=False).view().down_s == 0.0


def test_what_was_done_and_asked_is_kept() -> None:
    story = Story().add("service", service="cand", alive=True)
    story.add("verb", "a", verb="skip", who="op", why="seen").add("rung", rung="start")
    story.add("serving", tok_s=10.5).add("input", name="port", value="2")
    targets = [{"metric": "a.b", "go": ">= 2"}]
    view = story.add("targets", targets=targets).view()
    assert list(view.services) == ["cand"]
    assert view.verbs == [VerbGiven(verb="skip", who="op", why="seen", at=1003.0, step="a")]
    assert (view.stages, view.serving) == (
        [Rung(rung="start")],
        BaselineServes(tok_s=10.5, at=1005.0),
    )
    assert (view.inputs, view.header) == ({"port": "2"}, HEADER.changed(targets=targets))
    assert story.add("service", service="cand", alive=False).view().services == {}


@given(st.integers(0, 9))
def test_folding_in_two_parts_is_folding_at_once(cut: int) -> None:
    story = Story().add("run.state", state="running").add("step.state", "a", 1, state="running")
    story.add("metrics", "a", metrics={"n": {"value": 1}}).add("outage", down=True)
    story.add("step.state", "a", 1, state="succeeded").add("verdict", "b", verdict="GO")
    story.add("service", service="c", alive=True).add("run.state", state="rolling_back")
    events = story.events
    assert fold(events[cut:], fold(events[:cut])) == fold(events)


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
        with pytest.raises(ForbiddenTransition, match=f"{current} → {new}"):
            check_transition(current, new)


CODES = {
    R.ROLLBACK_FAILED: (7, 7, 7, 7), R.ROLLED_BACK: (6, 6, 6, 6), R.FAILED: (5, 5, 5, 5),
    R.CANCELLED: (5, 5, 5, 5), R.SUCCEEDED: (0, 0, 4, 3),
}  # fmt: skip


def test_exit_codes() -> None:
    """The first that applies of 7, 6, 5, 3, 4, 0; a run that goes on is unknown."""
    decisions = (Decision.NONE, Decision.GO, Decision.HOLD, Decision.NO_GO)
    found = {state: tuple(exit_code(state, one) for one in decisions) for state in RunState}
    assert found == {state: CODES.get(state, (Exit.HOLD,) * 4) for state in RunState}
    assert exit_code(R.ROLLED_BACK, Decision.NONE, left=True) == 7, "somebody has to act"
