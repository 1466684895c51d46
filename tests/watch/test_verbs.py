"""Verbs: a calm word for each that is not possible, and an answer only to what was seen."""

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import pytest

from console import cli
from console.common.errors import Exit, UsageError
from console.frontends.cli.follow import Follow
from console.frontends.tui.watch.actions import ask, why_not
from console.frontends.tui.watch.run import RunWatch, Snapshot
from console.journal.run_view import RunView, StepView
from console.journal.state import VERBS, RunState, possible_verbs
from console.runner import launch
from console.runner.control import Control, Verb
from tests.waiting import some, until
from tests.watch.conftest import Hand

Make = Callable[..., Hand]


@pytest.fixture
def waiting(hand: Make) -> Iterator[tuple[Hand, Control, Snapshot]]:
    """A run that waits for an approval of step two, as a watch sees it."""
    made = hand()
    made.runner()
    control = made.serve()
    made.state("running")
    made.step("two", "running")
    made.state("waiting_approval", detail="go on?")
    control.set(state=RunState.WAITING_APPROVAL, step="two", attempt=1, evidence="e1", confirm="")
    watch = RunWatch(lambda snapshot: None, poll_s=0.02)
    watch.start()
    until(lambda: watch.latest and watch.latest.control.get("evidence") == "e1")
    yield made, control, some(watch.latest)
    watch.close()


def taken(control: Control) -> list[Verb]:
    return [control.inbox.get_nowait() for _ in range(control.inbox.qsize())]


Waiting = tuple[Hand, Control, Snapshot]


def test_an_approval_of_what_was_seen(waiting: Waiting) -> None:
    _, control, seen = waiting
    assert why_not(seen, "approve") == ""
    assert ask(seen, "approve", why="looks good") == ""
    verb = taken(control)[0]
    assert (verb.verb, verb.why, verb.args["evidence"]) == ("approve", "looks good", "e1")
    control.set(confirm="delete")
    assert ask(seen, "approve") == "type the word delete to approve"
    assert ask(seen, "approve", confirm="delete") == ""


@pytest.mark.parametrize("moved", [{"evidence": "e2"}, {"attempt": 2}, {"step": "three"}])
def test_what_has_moved_on_is_not_approved(waiting: Waiting, moved: dict[str, object]) -> None:
    _, control, seen = waiting
    control.set(**moved)
    for verb in ("approve", "reject"):
        assert "the run has moved on" in ask(seen, verb)
    assert taken(control) == []
    assert ask(seen, "abort", why="enough") == "", "the whole run: it means the same now"
    assert control.cancelled.is_set()


def test_without_the_runners_word_nothing_is_answered(waiting: Waiting) -> None:
    _, control, seen = waiting
    blind = replace(seen, control={})
    assert ask(blind, "approve")
    assert why_not(blind, "approve")
    assert taken(control) == []
    assert why_not(blind, "abort") == ""


def test_changed_inputs_go_with_a_retry(waiting: Waiting) -> None:
    _, control, seen = waiting
    control.check_inputs = lambda changes, why: "" if changes == {"n": "5"} else f"not {changes}"
    control.set(state=RunState.PAUSED, reason="step_failed")
    now = replace(seen, control={**control.status()})
    assert ask(now, "retry", inputs={"n": "6"}) == "not {'n': '6'}"
    assert ask(now, "retry", inputs={"n": "5"}) == ""
    assert taken(control)[0].args["inputs"] == {"n": "5"}
    assert ask(now, "skip")


def snapshot(hand: Hand, state: RunState, reason: str = "", **more: object) -> Snapshot:
    view = RunView(
        state=state, reason=reason,
        steps=[StepView("bench", "Bench", "p", "run", state="running", attempt=1)],  # type: ignore[arg-type]
    )  # fmt: skip
    values: dict[str, object] = {
        "run": hand.run, "view": view, "word": str(state), "alive": True,
        "control": {"state": str(state), "step": "bench", "attempt": 1, "evidence": ""}, **more,
    }  # fmt: skip
    return Snapshot(**values)  # type: ignore[arg-type]


def test_every_verb_is_possible_or_says_why_in_one_sentence(hand: Make) -> None:
    made = hand()
    for state, reason in product(
        RunState, ("", "operator", "hold", "few_samples", "few_baseline", "step_failed")
    ):
        seen = snapshot(made, state, reason)
        possible = possible_verbs(state, reason)
        for verb in VERBS:
            no = why_not(seen, verb)
            assert (no == "") == (verb in possible), (state, reason, verb, no)
            assert "\n" not in no
            assert not no.endswith(".")


def test_only_a_run_that_stands_and_is_not_over_is_resumed(hand: Make) -> None:
    over, begun = hand(), hand()
    begun.state("running")
    over.state("failed")
    over.add("run.finished")
    for run, step, words in (
        (hand().live().run, "", "is alive"),
        (over.run, "", "has ended"),
        (hand().run, "", "never began"),
        (begun.run, "nowhere", "'nowhere'"),
    ):
        with pytest.raises(UsageError, match=words):
            launch.resume(run, step)


def test_a_socket_that_is_gone_is_said_in_words(waiting: Waiting) -> None:
    made, _, seen = waiting
    some(made.server).close()
    assert ask(seen, "approve").startswith("the runner does not answer")
    assert ask(Snapshot(), "abort")


def test_a_verb_that_is_typed_is_for_the_lines_above_it(waiting: Waiting) -> None:
    made, control, _ = waiting
    out = io.StringIO()
    follow = Follow(made.run, out, interactive=False)
    follow.interactive = True
    follow._read()
    control.set(evidence="e2")
    follow._verb("approve")
    assert (taken(control), "the run has moved on" in out.getvalue()) == ([], True)
    made.state("waiting_approval", detail="and now?")
    follow._read()
    follow._verb("approve")
    follow.reader.close()
    assert [verb.args["evidence"] for verb in taken(control)] == ["e2"]


def test_tell_is_for_what_its_operator_saw(waiting: Waiting) -> None:
    made, control, _ = waiting
    seen = ["tell", made.run.id, "approve", "--step", "two", "--attempt", "1", "--evidence"]
    control.set(evidence="e2")
    assert cli.main([*seen, "e1"]) == Exit.FAILED
    assert taken(control) == []
    assert cli.main([*seen, "e2"]) == Exit.OK
    assert [verb.args["evidence"] for verb in taken(control)] == ["e2"]
