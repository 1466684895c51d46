"""Control of a run: a verb is taken only for what the operator has seen, and only once."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from console.journal.state import RunState
from console.journal.store import JournalError
from console.runner.control import Control, Verb
from tests.run.unit.cases import WAITING, control

R = RunState


def waiting(confirm: str = "") -> Control:
    return control(**WAITING, confirm=confirm)


def ask(control: Control, verb: str, why: str = "", seen: Any = (), **args: Any) -> str:
    return control.ask(Verb(verb, "op", why, args), dict(seen))


def taken(control: Control) -> list[str]:
    found = []
    while True:
        try:
            found.append(control.inbox.get_nowait().verb)
        except queue.Empty:
            return found


MOVED = "the run has moved on"
SEEN = {"step": "ok", "attempt": 1, "evidence": "e1"}


@pytest.mark.parametrize("verb", ["approve", "reject", "abort"])
def test_a_verb_for_something_else_is_refused(verb: str) -> None:
    for change in (
        {"step": "other"}, {"attempt": 2}, {"evidence": "e0"}, {"evidence": ""},
        {"evidence": None}, {"step": ["ok"]}, {"attempt": "1"},
    ):  # fmt: skip
        one = waiting()
        assert MOVED in ask(one, verb, "because", {**SEEN, **change})
        assert (taken(one), one.cancelled.is_set()) == ([], False)


def test_a_late_approval_does_not_reach_the_next_one() -> None:
    one = waiting()
    one.set(state=R.RUNNING, evidence="")
    assert ask(one, "approve", seen=SEEN)
    one.set(state=R.WAITING_APPROVAL, step="ok2", evidence="e2")
    assert MOVED in ask(one, "approve", seen=SEEN)
    assert taken(one) == []


@pytest.mark.parametrize("verb", ["abort", "rollback", "halt", "pause", "approve"])
def test_what_stops_the_run_needs_no_journal_and_everything_else_does(verb: str) -> None:
    one = waiting() if verb == "approve" else control(state=R.RUNNING)

    def full(*_: Any) -> None:
        raise JournalError("the journal cannot be written", "disk full")

    one.on_verb = full
    if verb == "halt":
        one.halt(Verb("rollback", "the sentinel"))
        no = ""
    else:
        no = ask(one, verb, "because", SEEN if verb == "approve" else ())
    stops = verb not in ("pause", "approve")
    assert (no == "", one.cancelled.is_set(), taken(one)) == (
        stops, stops, [verb.replace("halt", "rollback")] if stops else [],
    )  # fmt: skip
    assert stops or "disk full" in no
    assert not one.pause_asked
    one.halt(Verb("abort", "the sentinel"))
    assert len(taken(one)) == (not stops), "the first one stays"


def test_a_second_press_does_not_answer_the_next_question() -> None:
    one = waiting()
    assert ask(one, "approve", seen=SEEN) == ""
    assert ask(one, "approve", seen=SEEN) == ""
    assert one.inbox.get_nowait().verb == "approve"
    one.set(state=R.RUNNING, evidence="", confirm="")
    one.set(state=R.WAITING_APPROVAL, step="ok2", evidence="e2")
    assert taken(one) == []


def test_a_retry_pressed_twice_retries_once() -> None:
    one = control(state=R.PAUSED, reason="step_failed")
    assert [ask(one, "retry"), ask(one, "retry")] == ["", ""]
    assert one.inbox.get_nowait().verb == "retry"
    one.set(state=R.RUNNING)
    one.set(state=R.PAUSED, reason="step_failed", attempt=2)
    assert taken(one) == []


@pytest.mark.parametrize("verb", ["abort", "rollback"])
def test_what_stops_the_run_is_never_forgotten(verb: str) -> None:
    one = control()
    assert ask(one, verb) == ""
    one.set(state=R.PAUSED, step="next")
    assert taken(one) == [verb]
    assert one.cancelled.is_set()
    assert one.stop_verb is not None
    assert one.stop_verb.verb == verb
    for later in ("rollback", "abort", "pause", "retry"):
        assert f"({verb})" in ask(one, later)


def test_modes() -> None:
    one = control()
    assert ask(one, "pause") == ""
    assert (one.pause_asked, taken(one)) == (True, [])
    assert ask(one, "auto") == ""
    assert (one.mode, one.pause_asked, taken(one)) == ("gate", False, [])
    one.set(state=R.PAUSED, reason="operator")
    assert ask(one, "next") == ""
    assert (one.mode, taken(one)) == ("step", ["next"])
    assert ask(one, "continue") == ""
    assert (one.mode, taken(one)) == ("all", ["continue"])


def test_every_verb_that_is_taken_is_recorded_and_no_other() -> None:
    one = waiting()
    seen: list[tuple[str, str, int]] = []
    one.on_verb = lambda verb, step, attempt: seen.append((verb.verb, step, attempt))
    ask(one, "approve", seen={**SEEN, "evidence": "late"})
    ask(one, "approve", seen=SEEN)
    ask(one, "explode")
    assert seen == [("approve", "ok", 1)]


def test_a_halt_stops_the_run_once_and_is_no_key_press() -> None:
    one = waiting("word")
    seen: list[str] = []
    one.on_verb = lambda verb, step, attempt: seen.append(f"{verb.who}:{verb.cause}")
    one.halt(Verb("rollback", "the sentinel", "too much", cause="guard"))
    one.halt(Verb("rollback", "the sentinel", "again", cause="guard"))
    assert (seen, taken(one)) == (["the sentinel:guard"], ["rollback"])
    assert one.cancelled.is_set()
    assert "(rollback)" in ask(one, "approve", seen=SEEN)


def test_the_word_is_asked_for_as_it_is_and_is_clean_on_a_terminal() -> None:
    for wrong in ("yes", "", "Cutover", True):
        assert "cutover" in ask(waiting("cutover"), "approve", seen=SEEN, confirm=wrong)
    assert ask(waiting("cutover"), "approve", seen=SEEN, confirm="cutover") == ""
    assert "\x1b" not in ask(waiting("\x1b[31mred"), "approve", seen=SEEN)
    assert "reason" in ask(control(state=R.PAUSED, reason="step_failed"), "skip", " \n\t")
