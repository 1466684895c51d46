"""Which events of a journal people are told of, and which not."""

import json
from dataclasses import replace

from console.journal.state import LOST_AFTER_LAST
from console.notify.event import KINDS, TOLD_WITHIN_S, missed
from tests.common.harmful import harmful
from tests.notify.stories import BEGUN, Journal, verdict
from tests.runner.unit.journals import BAD


def test_most_events_are_no_news() -> None:
    quiet = Journal().state("running").step("load", "running").state("paused", reason="operator")
    quiet.add("guard", kind="warn", words="RAM is nearly full").add("step.say", "load", text="x")
    quiet.state("rolling_back", reason="x").add("run.note", text="x").add("run.finished")
    assert quiet.news == []


def test_each_key_is_the_run_and_the_event_and_stays() -> None:
    journal = verdict(Journal(), "HOLD").state("paused", reason="hold").state("running")
    journal.state("paused", reason="hold").state("succeeded")
    keys = [one.key for one in journal.news]
    assert keys == [f"20260101-trial-abcd:{seq}" for seq in (5, 7, 9)]
    assert [one.key for one in journal.news] == keys
    assert {one.kind for one in journal.news} <= set(KINDS)


def test_what_is_a_day_old_is_no_news() -> None:
    journal = Journal().state("cancelled", reason="abort")
    ended = BEGUN + 180.0
    assert len(list(missed(journal.events, ended + TOLD_WITHIN_S - 1))) == 1
    assert list(missed(journal.events, ended + TOLD_WITHIN_S)) == []


def test_the_end_says_whether_the_baseline_serves() -> None:
    down = Journal().add("outage", down=True, url="u", proof=0.0)
    for journal, serves in (
        (Journal().state("succeeded"), True),
        (down.state("rolling_back").state("rollback_failed"), False),
        (Journal().add("outage", down=True, url="u", proof=0.0).state("failed"), False),
    ):
        assert journal.news[-1].data["baseline_serves"] is serves


def test_the_end_says_what_a_contract_found() -> None:
    """Whoever reads it in the morning learns what changed, though the run went to its end."""
    journal = Journal().add(
        "metrics",
        "load",
        scope="load",
        metrics={},
        contract={"of": "new", "words": "tools dropped"},
    )
    (end,) = verdict(journal, "GO").state("succeeded").news
    assert end.text.endswith("Answers of new: tools dropped.")
    assert end.data["contracts"] == {"new": "tools dropped"}


def test_a_run_whose_last_steps_lost_the_baseline_is_told_once_and_by_its_end() -> None:
    """It was told as `has ended: GO` with a baseline that serves, and then again."""
    journal = verdict(Journal(), "GO", "soak")
    journal.add("serving", tok_s=99.69, degraded=False).add("run.state", state="succeeded")
    assert journal.news == [], "the steps of finally are to come"
    journal.state("rolling_back", reason=LOST_AFTER_LAST)
    journal.state("rolled_back", reason=LOST_AFTER_LAST)
    (end,) = journal.news
    assert end.title == "trial has ended: ROLLED BACK after GO (soak)"
    assert f"was rolled back after 7 min 00 s: {LOST_AFTER_LAST}" in end.text
    journal.state("rolling_back", reason="emergency").add("run.state", state="rolled_back")
    assert len(journal.news) == 2, "a rollback after the end is news of its own"


def test_the_end_says_by_how_much_the_baseline_moved() -> None:
    moved = "-54.9 % (99.6 tok/s before, 44.9 tok/s after; bench)"
    journal = verdict(Journal(), "GO")
    words = "against the baseline as restored, tok_s is below 60"
    journal.add("doubt", "go", verdict="NO-GO", words=words, moved=moved)
    (end,) = journal.state("succeeded").news
    assert end.title == "DOUBTFUL: trial has ended: HOLD"
    doubt = f"the baseline moved by {moved}; gate go said GO, but it would be NO-GO: {words}."
    assert f"DOUBTFUL: {doubt}" in end.text


def test_text_of_others_does_no_harm() -> None:
    journal = Journal(book=BAD)
    journal.step("load", "failed", cause="exit_code", detail=BAD)
    journal.state("paused", reason="step_failed", detail=BAD).state("failed", reason=BAD)
    journal.add("guard", kind="breach", words=BAD, killed=[{"name": BAD}])
    journal.add("guard", kind="lease", words=BAD)
    assert len(journal.news) == 4
    for one in journal.news:
        words = [one.title, one.text, one.site, *map(str, one.data.values())]
        assert not [text for text in words if harmful(text)]
        json.dumps(one.as_json())


def test_an_odd_event_is_no_news() -> None:
    journal = Journal().state("cancelled")
    odd = replace(journal.events[-1], seq=9, odd="its state is no state")
    (one,) = missed([*journal.events, odd], BEGUN)
    assert one.key.endswith(":3")
