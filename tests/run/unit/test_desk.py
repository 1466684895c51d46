"""The desk: a verb is taken only for what the operator has seen, and only once."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from console.run.control import Desk, Verb
from console.run.state import RunState

R = RunState


def desk(**where: Any) -> Desk:
    desk = Desk()
    desk.set(**{"state": R.RUNNING, "step": "bench", "attempt": 1, **where})
    return desk


def waiting(confirm: str = "") -> Desk:
    return desk(state=R.WAITING_APPROVAL, step="ok", evidence="e1", confirm=confirm)


def held() -> Desk:
    return desk(state=R.PAUSED, reason="hold", step="go", is_gate=True, evidence="e2")


def ask(desk: Desk, verb: str, why: str = "", seen: Any = (), **args: Any) -> str:
    return desk.ask(Verb(verb, "op", why, args), dict(seen))


def taken(desk: Desk) -> list[str]:
    found = []
    while True:
        try:
            found.append(desk.inbox.get_nowait().verb)
        except queue.Empty:
            return found


SEEN = {"step": "ok", "attempt": 1, "evidence": "e1"}
HELD = {"step": "go", "attempt": 1, "evidence": "e2"}


def test_an_approval_of_what_was_shown() -> None:
    one = waiting()
    assert ask(one, "approve", seen=SEEN) == ""
    assert taken(one) == ["approve"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": "other"}, "the run has moved on: step is now ok, not other"),
        ({"attempt": 2}, "the run has moved on: attempt is now 1, not 2"),
        ({"evidence": "e0"}, "the run has moved on: evidence is now e1, not e0"),
        ({"evidence": ""}, "the run has moved on: evidence is now e1"),
        ({"evidence": None}, "the run has moved on: evidence is now e1, not None"),
        ({"step": ["ok"]}, "the run has moved on"),
        ({"attempt": "1"}, "the run has moved on"),
    ],
)
@pytest.mark.parametrize("verb", ["approve", "reject", "abort"])
def test_a_verb_for_something_else_is_refused(verb: str, change: dict[str, Any], said: str) -> None:
    one = waiting()
    assert said in ask(one, verb, "because", {**SEEN, **change})
    assert (taken(one), one.cancelled.is_set()) == ([], False)


def test_an_approval_without_evidence_is_refused() -> None:
    one = waiting()
    assert "names the evidence" in ask(one, "approve", seen={"step": "ok"})
    assert "names the evidence" in ask(one, "approve", seen={}, evidence="e1")
    assert taken(one) == []


def test_a_late_approval_does_not_reach_the_next_one() -> None:
    one = waiting()
    one.set(state=R.RUNNING, evidence="")
    assert "not possible while the run is running" in ask(one, "approve", seen=SEEN)
    one.set(state=R.WAITING_APPROVAL, step="ok2", evidence="e2")
    assert "moved on" in ask(one, "approve", seen=SEEN)
    assert taken(one) == []


def test_a_second_press_does_not_answer_the_next_question() -> None:
    one = waiting()
    assert ask(one, "approve", seen=SEEN) == ""
    assert ask(one, "approve", seen=SEEN) == ""
    assert one.inbox.get_nowait().verb == "approve"
    one.set(state=R.RUNNING, evidence="", confirm="")
    one.set(state=R.WAITING_APPROVAL, step="ok2", evidence="e2")
    assert taken(one) == []


def test_a_retry_pressed_twice_retries_once() -> None:
    one = desk(state=R.PAUSED, reason="step_failed")
    assert [ask(one, "retry"), ask(one, "retry")] == ["", ""]
    assert one.inbox.get_nowait().verb == "retry"
    one.set(state=R.RUNNING)
    one.set(state=R.PAUSED, reason="step_failed", attempt=2)
    assert taken(one) == []


@pytest.mark.parametrize("verb", ["abort", "rollback"])
def test_what_stops_the_run_is_never_forgotten(verb: str) -> None:
    one = desk()
    assert ask(one, verb) == ""
    one.set(state=R.PAUSED, step="next")
    assert taken(one) == [verb]
    assert one.cancelled.is_set()
    assert one.stop_verb is not None
    assert one.stop_verb.verb == verb
    for later in ("rollback", "abort", "pause", "retry"):
        assert ask(one, later) == f"the run is stopping ({verb})"


@pytest.mark.parametrize(
    ("given", "said"),
    [({}, "type the word cutover"), ({"confirm": "yes"}, "type the word"), ({"confirm": ""}, "ty"),
     ({"confirm": "Cutover"}, "type"), ({"confirm": True}, "type"), ({"confirm": "cutover"}, "")],
)  # fmt: skip
def test_the_word_has_to_be_typed(given: dict[str, Any], said: str) -> None:
    found = ask(waiting("cutover"), "approve", seen=SEEN, **given)
    assert found.startswith(said)
    assert (found == "") is (said == "")


def test_the_word_is_clean_when_it_is_asked_for() -> None:
    assert "\x1b" not in ask(waiting("\x1b[31mred"), "approve", seen=SEEN)


@pytest.mark.parametrize("why", ["", "  ", "\n\t"])
def test_a_skip_and_an_override_need_a_reason(why: str) -> None:
    failed = desk(state=R.PAUSED, reason="step_failed")
    assert ask(failed, "skip", why) == "'skip' needs a reason"
    assert ask(held(), "approve", why, seen=HELD) == "overriding a gate needs a reason"
    assert (taken(failed), ask(failed, "skip", "known flake")) == ([], "")


@pytest.mark.parametrize("reason", ["hold", "operator", "step_failed", "in_doubt"])
def test_a_gate_cannot_be_skipped(reason: str) -> None:
    one = desk(state=R.PAUSED, reason=reason, step="go", is_gate=True)
    said = ask(one, "skip", "I want to")
    assert "not possible" in said if reason == "hold" else "a gate cannot be skipped" in said
    assert taken(one) == []


def test_a_hold_is_overridden_with_a_reason() -> None:
    one = held()
    assert ask(one, "approve", "seen by hand") == "an approval names the evidence it was shown"
    assert ask(one, "approve", "seen by hand", seen=HELD) == ""
    assert one.inbox.get_nowait().why == "seen by hand"


@pytest.mark.parametrize("reason", ["step_failed", "operator", "in_doubt", "approval_expired"])
def test_nothing_else_that_stands_still_can_be_approved(reason: str) -> None:
    one = desk(state=R.PAUSED, reason=reason)
    assert f"not possible while the run is paused ({reason})" in ask(one, "approve", "please")
    assert taken(one) == []


@pytest.mark.parametrize("state", [R.SUCCEEDED, R.FAILED, R.ROLLED_BACK, R.ROLLING_BACK])
@pytest.mark.parametrize("verb", ["approve", "retry", "abort", "rollback", "next"])
def test_nothing_is_possible_at_the_end(state: RunState, verb: str) -> None:
    one = desk(state=state)
    assert ask(one, verb, "please")
    assert taken(one) == []


def test_modes() -> None:
    one = desk()
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


def test_a_verb_that_cannot_be_recorded_is_not_taken() -> None:
    one = waiting()

    def full(verb: Verb, step: str, attempt: int) -> None:
        raise OSError("disk full")

    one.on_verb = full
    with pytest.raises(OSError, match="disk full"):
        ask(one, "approve", seen=SEEN)
    assert taken(one) == []


def test_a_halt_stops_the_run_once_and_is_no_key_press() -> None:
    one = waiting("word")
    seen: list[str] = []
    one.on_verb = lambda verb, step, attempt: seen.append(f"{verb.who}:{verb.cause}")
    one.halt(Verb("rollback", "the sentinel", "too much", cause="guard"))
    one.halt(Verb("rollback", "the sentinel", "again", cause="guard"))
    assert (seen, taken(one)) == (["the sentinel:guard"], ["rollback"])
    assert one.cancelled.is_set()
    assert "the run is stopping (rollback)" in ask(one, "approve", seen=SEEN)


def test_a_halt_needs_no_journal() -> None:
    one = desk()

    def full(verb: Verb, step: str, attempt: int) -> None:
        raise OSError("disk full")

    one.on_verb = full
    with pytest.raises(OSError, match="disk full"):
        one.halt(Verb("rollback", "the sentinel"))
    assert one.cancelled.is_set()
    assert taken(one) == ["rollback"]


def test_a_halt_after_an_abort_changes_nothing() -> None:
    one = desk()
    assert ask(one, "abort") == ""
    one.halt(Verb("rollback", "the sentinel"))
    assert taken(one) == ["abort"]


def test_status_is_what_a_client_has_to_name() -> None:
    assert waiting("word").status() == {
        "state": "waiting_approval", "reason": "", "step": "ok", "attempt": 1, "evidence": "e1",
        "mode": "all", "confirm": "word", "lease": None,
    }  # fmt: skip


def test_an_approval_cannot_be_skipped() -> None:
    """A skip would go round the word to type and the evidence."""
    assert "not possible" in ask(waiting("yes"), "skip", "in a hurry", seen=SEEN)
