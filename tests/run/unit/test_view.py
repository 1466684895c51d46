"""A viewer's picture of a run, folded from its events; what is shown of it is in test_words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.journal.run_view import RunView, fold
from console.journal.state import Decision, RunState, StepState
from console.journal.store import Event

STEPS = [
    {"id": "a", "title": "A", "phase": "p", "kind": "run", "takes_s": 5.0},
    {"id": "b", "title": "B", "phase": "p", "kind": "gate"},
]
CREATED = {"run_id": "r1", "owner": "op", "inputs": {"port": 1}, "restore_s": 74.0, "steps": STEPS}


class Story:
    """Events in order, as a runner writes them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.add("run.created", **CREATED)

    def add(self, kind: str, step: str = "", attempt: int = 0, **data: Any) -> Story:
        seq = len(self.events) + 1
        self.events.append(Event(seq, 1000.0 + seq, kind, step, attempt, data))
        return self

    def view(self) -> RunView:
        return fold(self.events)


def test_a_created_run_and_what_is_not_known() -> None:
    story = Story().add("from.the.future", x=1).add("step.state", "ghost", 1, state="running")
    story.add("step.say", "ghost", text="boo").add("service", service="ghost", alive=False)
    view = story.view()
    assert (view.run_id, view.owner, view.created, view.restore_s) == ("r1", "op", 1001.0, 74.0)
    assert [(s.id, s.state) for s in view.steps] == [
        ("a", StepState.PENDING),
        ("b", StepState.PENDING),
    ]
    assert (view.state, view.over, view.current, view.services) == (
        RunState.PENDING, False, None, {},
    )  # fmt: skip
    assert (view.seq, view.decision) == (5, Decision.NONE)


def test_a_second_attempt_begins_anew() -> None:
    story = Story().add("step.state", "a", 1, state="running", effects=["$ x"])
    failed = {"cause": "exit_code", "detail": "no", "duration_s": 2.0, "exit_code": 3}
    story.add("step.say", "a", text="working")
    story.add("step.state", "a", 1, state="failed", lines=["boom"], **failed)
    step = story.view().current
    assert step is not None
    assert {name: getattr(step, name) for name in failed} == failed
    assert (step.lines, step.said, step.effects) == (["boom"], "working", ["$ x"])
    step = story.add("step.state", "a", 2, state="running").view().current
    assert step is not None
    assert (step.attempt, step.cause, step.duration_s, step.exit_code, step.lines, step.said) == (
        2, "", None, None, [], "",
    )  # fmt: skip


def test_the_state_and_its_reason() -> None:
    story = Story().add("run.state", state="paused", reason="hold", detail="gate b")
    view = story.view()
    assert (view.state, view.reason, view.detail, view.over) == (
        RunState.PAUSED, "hold", "gate b", False,
    )  # fmt: skip
    view = story.add("run.state", state="succeeded").view()
    assert (view.over, view.reason, view.ended) == (True, "", 1003.0)


@pytest.mark.parametrize(
    ("verdicts", "decision", "outcome"),
    [
        ([], "", ""),
        ([("g", "GO", "soak")], "go", "soak"),
        ([("g", "GO", "soak"), ("h", "HOLD", "evaluate")], "hold", "evaluate"),
        ([("g", "NO-GO", "retain"), ("h", "GO", "soak")], "no_go", "retain"),
        ([("g", "NO-GO", "a"), ("h", "NO-GO", "b"), ("i", "NO-GO", "")], "no_go", "b"),
        ([("g", "HOLD", "evaluate"), ("g", "GO", "soak")], "go", "soak"),
        ([("g", "GO", "soak"), ("g", "NO-GO", "retain")], "no_go", "retain"),
    ],
)
def test_the_worst_standing_verdict_decides(
    verdicts: list[tuple[str, str, str]], decision: str, outcome: str
) -> None:
    story = Story()
    for step, verdict, name in verdicts:
        story.add("verdict", step, verdict=verdict, outcome=name)
    view = story.view()
    assert (str(view.decision), view.outcome) == (decision, outcome)


def test_figures_of_the_step_and_of_the_baseline_stay_apart() -> None:
    story = Story().add("metrics", "a", metrics={"tok_s": {"value": 20}}, soak={"gaps": []})
    story.add("metrics", "a", scope="a.baseline", metrics={"tok_s": {"value": 10}})
    story.add("metrics", "a", metrics={"n": {"value": 1}}, soak={"gaps": [[1, 2]]})
    view = story.add("metrics", "a", metrics={}, benchmark={"model": "m"}).view()
    assert view.metrics == {
        "a": {"tok_s": {"value": 20}, "n": {"value": 1}},
        "a.baseline": {"tok_s": {"value": 10}},
    }
    assert (view.benchmarks, view.soaks) == ({"a": {"model": "m"}}, {"a": {"gaps": [[1, 2]]}})


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
    view = story.add("targets", targets=[{"metric": "a.b", "go": ">= 2"}]).view()
    assert list(view.services) == ["cand"]
    assert view.verbs == [{"verb": "skip", "who": "op", "why": "seen", "at": 1003.0, "step": "a"}]
    assert (view.stages, view.serving) == ([{"rung": "start"}], {"tok_s": 10.5, "at": 1005.0})
    assert (view.inputs, view.run_id) == ({"port": "2"}, "r1")
    assert view.header["targets"] == [{"metric": "a.b", "go": ">= 2"}]
    assert story.add("service", service="cand", alive=False).view().services == {}


@given(st.integers(0, 9))
def test_folding_in_two_parts_is_folding_at_once(cut: int) -> None:
    story = Story().add("run.state", state="running").add("step.state", "a", 1, state="running")
    story.add("metrics", "a", metrics={"n": {"value": 1}}).add("outage", down=True)
    story.add("step.state", "a", 1, state="succeeded").add("verdict", "b", verdict="GO")
    story.add("service", service="c", alive=True).add("run.state", state="rolling_back")
    events = story.events
    assert fold(events[cut:], fold(events[:cut])) == fold(events)
