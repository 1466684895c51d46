"""A viewer's picture of a run, folded from its events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.journal.store import Event
from console.run.state import Decision, RunState, StepState
from console.run.view import RunView, StepView, fold

STEPS = [
    {"id": "a", "title": "A", "phase": "p", "kind": "run", "takes_s": 5.0},
    {"id": "b", "title": "B", "phase": "p", "kind": "gate"},
]


class Story:
    """Events in order, as a runner writes them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.add(
            "run.created", run_id="r1", title="T", playbook="x", site="ws", owner="op",
            inputs={"port": 1}, restore_s=74.0, steps=STEPS,
        )  # fmt: skip

    def add(self, kind: str, step: str = "", attempt: int = 0, **data: Any) -> Story:
        seq = len(self.events) + 1
        self.events.append(Event(seq, 1000.0 + seq, kind, step, attempt, data))
        return self

    def verdict(self, step: str, verdict: str, outcome: str = "", **data: Any) -> Story:
        return self.add("verdict", step, verdict=verdict, outcome=outcome, **data)

    def view(self) -> RunView:
        return fold(self.events)


def a_step(story: Story) -> StepView:
    step = story.view().step("a")
    assert step is not None
    return step


def test_a_created_run() -> None:
    view = Story().view()
    assert (view.run_id, view.owner, view.created, view.restore_s) == ("r1", "op", 1001.0, 74.0)
    assert [(s.id, s.state) for s in view.steps] == [
        ("a", StepState.PENDING), ("b", StepState.PENDING),
    ]  # fmt: skip
    assert (view.state, view.over, view.current, view.decision) == (
        RunState.PENDING, False, None, Decision.NONE,
    )  # fmt: skip


def test_a_step_and_its_second_attempt() -> None:
    story = Story().add("step.state", "a", 1, state="running", effects=["$ x"])
    story.add("step.say", "a", text="working")
    step = a_step(story)
    assert (step.state, step.attempt, step.said, step.effects) == (
        StepState.RUNNING, 1, "working", ["$ x"],
    )  # fmt: skip
    story.add(
        "step.state", "a", 1, state="failed", cause="exit_code", detail="no", duration_s=2.0,
        exit_code=3, lines=["boom"],
    )  # fmt: skip
    step = a_step(story)
    assert (step.cause, step.detail, step.duration_s, step.exit_code, step.lines) == (
        "exit_code", "no", 2.0, 3, ["boom"],
    )  # fmt: skip
    step = a_step(story.add("step.state", "a", 2, state="running"))
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
        story.verdict(step, verdict, name)
    view = story.view()
    assert (str(view.decision), view.outcome) == (decision, outcome)


def test_an_override_stays_visible() -> None:
    story = Story().verdict("g", "HOLD", criteria=[{"metric": "m"}])
    view = story.verdict("g", "GO", overridden="op: I have seen it").view()
    assert [(v.verdict, v.overridden) for v in view.verdicts] == [("GO", "op: I have seen it")]


def test_figures_of_the_step_and_of_the_baseline_stay_apart() -> None:
    story = Story().add("metrics", "a", metrics={"tok_s": {"value": 20}})
    story.add("metrics", "a", scope="a.baseline", metrics={"tok_s": {"value": 10}})
    story.add("metrics", "a", metrics={"n": {"value": 1}}, benchmark={"model": "m"})
    view = story.view()
    assert view.metrics == {
        "a": {"tok_s": {"value": 20}, "n": {"value": 1}},
        "a.baseline": {"tok_s": {"value": 10}},
    }
    assert view.benchmarks == {"a": {"model": "m"}}


def test_how_long_the_baseline_was_down_is_added_up() -> None:
    story = Story().add("outage", down=True).add("outage", down=True)
    assert (story.view().down_since, story.view().down_s) == (1002.0, 0.0)
    story.add("outage", down=False).add("outage", down=True).add("outage", down=False)
    assert (story.view().down_since, story.view().down_s) == (0.0, 3.0)
    assert Story().add("outage", down=False).view().down_s == 0.0


def test_a_retry_with_other_inputs_brings_other_thresholds() -> None:
    view = Story().add("targets", targets=[{"metric": "a.b", "go": ">= 2"}]).view()
    assert view.header["targets"] == [{"metric": "a.b", "go": ">= 2"}]
    assert (view.run_id, view.header["run_id"]) == ("r1", "r1")


def test_outage_services_serving_rungs_and_verbs() -> None:
    story = Story().add("outage", down=True).add("service", service="cand", alive=True)
    view = story.add("verb", "a", verb="skip", who="op", why="seen").view()
    assert (view.outage, list(view.services)) == (True, ["cand"])
    assert view.verbs == [{"verb": "skip", "who": "op", "why": "seen", "at": 1004.0, "step": "a"}]
    story.add("service", service="cand", alive=False).add("outage", down=False, restore_s=12.0)
    story.add("rung", rung="start").add("serving", tok_s=10.5).add("input", name="port", value="2")
    view = story.view()
    assert (view.outage, view.services, view.restore_s) == (False, {}, 12.0)
    assert (view.rungs, view.serving) == ([{"rung": "start"}], {"tok_s": 10.5, "at": 1008.0})
    assert view.inputs == {"port": "2"}


def test_a_service_that_was_never_alive_can_end() -> None:
    assert Story().add("service", service="ghost", alive=False).view().services == {}


def test_what_a_viewer_does_not_know_is_passed_over() -> None:
    story = Story().add("from.the.future", x=1).add("step.state", "ghost", 1, state="running")
    view = story.add("step.say", "ghost", text="boo").view()
    assert (view.seq, view.current) == (4, None)


def test_the_current_step_is_the_last_one_touched() -> None:
    story = Story().add("step.state", "a", 1, state="succeeded")
    first, second = story.view(), story.add("step.state", "b", 1, state="running").view()
    assert [one.current and one.current.id for one in (first, second)] == ["a", "b"]


@given(st.integers(0, 12))
def test_folding_in_two_parts_is_folding_at_once(cut: int) -> None:
    story = Story().add("run.state", state="running").add("step.state", "a", 1, state="running")
    story.add("metrics", "a", metrics={"n": {"value": 1}}).add("outage", down=True)
    story.add("step.state", "a", 1, state="succeeded", duration_s=1.0).verdict("b", "GO", "soak")
    story.add("service", service="c", alive=True).add("run.state", state="rolling_back")
    events = story.events
    assert fold(events[cut:], fold(events[:cut])) == fold(events)
