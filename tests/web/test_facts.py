"""What the status page shows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from console.frontends.tui.watch.run import Snapshot
from console.frontends.web.facts import LOG_LINES
from console.journal.run_dir import RunDir
from console.journal.run_view import ClientsElsewhere, RunView
from console.journal.state import RunState
from console.recovery.rollback.baseline_state import BY_KEY
from console.recovery.rollback.progress import Result
from tests.ui import scene
from tests.web.watched import Sent, made, some_id


def test_a_question_says_what_an_answer_needs(shot: Snapshot, run: RunDir) -> None:
    asked = made(shot)[0].look()["question"]
    assert (asked["title"], asked["reason"], asked["reject"]) == ("Approve?", False, True)
    assert "Do the three answers" in asked["lines"][0]
    word = scene.snapshot(run, scene.approval())
    for words in ("switch", "I have seen that nobody uses the Executor model on the CPU right now"):
        word.control["confirm"] = words
        assert made(word)[0].look()["question"]["confirm"] == words
    held = made(scene.snapshot(run, scene.held()))[0].look()["question"]
    assert (held["title"], held["reason"], held["reject"]) == ("Override the gate?", True, False)
    assert "HOLD: bench.tok_s 21.3 tok/s: 2 of 9 runs valid; 5 needed" in held["lines"]
    assert made(scene.snapshot(run, scene.running()))[0].look()["question"] is None


def left_down() -> RunView:
    return scene.view(9, state=RunState.FAILED, outage=True)


NEXT: list[tuple[Callable[[], RunView], str, str, str]] = [
    (scene.approval, "", "'look' waits for an answer", ": Approve or Reject"),
    (scene.held, "", "gate 'go' undecided",
     ": Approve overrides the gate, the terminal can do more"),
    (scene.failed, "", "'up' failed", ": the terminal takes the decision"),
    (scene.running, "", "nothing to do: gate 'go' in ~6 min stops the run", ""),
    (scene.ended, "", "the run has ended", ""),
    (left_down, "", "the run has ended, and the baseline is not back",
     ": Roll back brings the baseline back"),
    (scene.running, "interrupted", "the runner is gone",
     ": Roll back brings the baseline back, the terminal can resume the run"),
    (scene.running, "rolling_back", "nothing to do: the baseline comes back", ""),
    (RunView, "unreadable", "the run cannot be read", ": Roll back brings the baseline back"),
    (RunView, "none", "nothing runs", ": a playbook is picked in the terminal"),
]  # fmt: skip


@pytest.mark.parametrize(("view", "word", "fact", "buttons"), NEXT)
def test_what_is_next_names_buttons_where_there_are_some_and_never_keys(
    run: RunDir, view: Callable[[], RunView], word: str, fact: str, buttons: str
) -> None:
    shot = scene.snapshot(run, view())
    if word:
        shot = replace(shot, word=word)
    assert made(shot)[0].look()["next"] == fact + buttons
    shown = made(shot, write=False)[0].look()
    assert shown["next"] == fact
    assert (shown["question"] or {"title": ""})["title"] in ("", "Waits for an answer")


def test_a_cutover_names_no_key(run: RunDir) -> None:
    detail = "to ik, not promoted"
    for write, back in ((True, "Roll back"), (False, "omni-console rollback")):
        view = scene.running()
        view.cutover = ClientsElsewhere(service="ik", what="stays")
        desk, _, _ = made(scene.snapshot(run, view), write=write)
        desk._baseline_seen(scene.baseline("cut over", detail=detail + BY_KEY))
        shown = desk.look()
        assert shown["baseline"]["words"] == f"deepseek-r1, {detail}"
        assert shown["run"]["baseline"] == (
            f"CUT OVER to ik, not promoted: {back} brings the baseline back"
        )


def test_a_run_of_another_site_than_the_baseline_is_said_to_be(run: RunDir) -> None:
    desk, _, _ = made(scene.snapshot(run, left_down()))
    for site, words in (("workstation", ""), ("", ""), ("seven", "on site workstation: ")):
        desk._baseline_seen(replace(scene.baseline(), site=site))
        shown = desk.look()
        assert shown["run"]["site"] == words.removesuffix(": ")
        assert shown["run"]["baseline"].startswith(f"{words}the baseline has been down for ")
        assert shown["next"].startswith(f"{words}the run has ended, and the baseline is not back")
        assert shown["run"]["words"].startswith(words.removesuffix(": "))


def test_what_others_wrote_is_clean(run: RunDir) -> None:
    view = scene.approval()
    view.title = view.detail = view.steps[8].title = "a\x1b]0;x\x07\u202eb<script>"
    said = str(made(scene.snapshot(run, view))[0].look())
    assert "\\x1b" not in said
    assert "\\u202e" not in said
    assert "<script>" in said, "shown as text by the page"


def test_a_rollback_is_told_to_its_end(shot: Snapshot, sent: Sent) -> None:
    desk, watched, clock = made(shot)
    assert desk.look()["rollback"] is None
    desk.tell({"verb": "rollback", "run": some_id(shot)})
    watched.progress.lines = [
        {"rung": "fence", "state": "ok", "detail": "runner killed", "at": clock.now()},
        {"rung": "start", "state": "begin", "detail": "", "at": clock.now()},
    ]
    told = desk.look()["rollback"]
    assert (told["over"], told["stages"]) == (False, ["fence ok runner killed"])
    assert told["progress"].startswith("start ")
    watched.progress.result, watched.progress.over = Result(False, detail="no container"), True
    told = desk.look()["rollback"]
    assert (told["over"], told["progress"]) == (True, "")
    assert (told["words"], told["trouble"]) == ("ROLLBACK FAILED", "no container")
    watched.progress.result = Result(True, detail="baseline serves")
    assert desk.look()["rollback"]["words"] == "THE BASELINE SERVES"


def test_a_rollback_that_is_over_hides_no_newer_one(
    shot: Snapshot, sent: Sent, tmp_path: Path
) -> None:
    desk, watched, clock = made(shot)
    desk.tell({"verb": "rollback", "run": some_id(shot)})
    watched.progress.result, watched.progress.over = Result(True, detail="baseline serves"), True
    stage = {"rung": "fence", "state": "ok", "detail": "runner killed", "at": clock.now()}
    watched.see(replace(shot, is_rolling_back=True, word="rolling_back", stages=(stage,)))
    told = desk.look()["rollback"]
    assert (told["words"], told["over"]) == ("rolling back", False)
    assert told["stages"] == ["fence ok runner killed"]
    watched.see(shot)
    assert desk.look()["rollback"]["words"] == "THE BASELINE SERVES"
    later = RunDir(tmp_path / "later")
    watched.see(scene.snapshot(later, scene.running()))
    assert desk.look()["rollback"] is None, "a newer run has none"


def test_figures_that_are_old_say_so(shot: Snapshot) -> None:
    """NVML hangs, or the sampler: what is shown is not what is."""
    desk, _, clock = made(shot)
    assert "stale" not in str(desk.look()["gauges"])
    seen = scene.sample(clock.monotonic())
    assert seen.gpu is not None
    clock.sleep(300)
    desk._sample_seen(replace(scene.sample(clock.monotonic()), gpu=seen.gpu))
    told = {one["name"]: one["words"] for one in desk.look()["gauges"]}
    assert told["GPU0 RTX PRO 6000"].endswith(", stale 5 min")
    assert "stale" not in told["RAM"]
    desk._sample_seen(seen)
    assert all(one["words"].endswith("stale 5 min") for one in desk.look()["gauges"])


@pytest.mark.parametrize("name", ["running", "loading", "held", "approval", "failed", "ended"])
def test_every_scene_has_a_page(run: RunDir, name: str) -> None:
    shown = made(scene.snapshot(run, getattr(scene, name)()))[0].look()
    assert shown["baseline"]["word"] == "serving"
    assert shown["run"]["id"] == run.id
    assert shown["run"]["step"]["name"]
    names = [one["name"] for one in shown["gauges"]]
    assert names[:3] == ["GPU0 RTX PRO 6000", "GPU1 RTX 5090", "RAM"]
    assert shown["next"]
    assert (shown["log"]["name"], len(shown["log"]["lines"])) == ("candidate", LOG_LINES)
    assert made(scene.nothing())[0].look()["run"] is None
