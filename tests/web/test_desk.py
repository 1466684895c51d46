"""What the status page shows, and the verbs that it may send: bound to what it showed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.common.clock import Clock
from console.frontends.tui.watch.baseline import BY_KEY, CUT_OVER
from console.frontends.tui.watch.emergency import Press
from console.frontends.tui.watch.progress import RollbackProgress
from console.frontends.tui.watch.run import Snapshot
from console.frontends.web import desk as desks
from console.frontends.web.desk import NEWER, READONLY, Desk
from console.frontends.web.facts import LOG_LINES, bound_to
from console.journal.guard_status import NOBODY
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.journal.state import VERBS, RunState
from console.recovery.rollback.progress import Result
from tests.clock import FakeClock
from tests.ui import scene


class Watched:
    """The watchers as a desk uses them: what they saw is given, and presses are counted."""

    def __init__(self, shot: Snapshot | None, clock: Clock) -> None:
        self.shot, self.pressed, self.closed, self.made = shot, 0, 0, 0
        self.looked = 0
        self.options: dict[str, Any] = {}
        self.guard = SimpleNamespace(latest=NOBODY)
        self.watch = SimpleNamespace(look=self._look)
        self.emergency = SimpleNamespace(press=self._press)
        self._clock = clock
        self.progress = RollbackProgress(None, None, 0, False, clock)

    def __call__(self, **options: Any) -> Any:
        self.made, self.options = self.made + 1, options
        return self

    def _look(self) -> None:
        self.looked += 1

    def _press(self) -> Press:
        self.pressed += 1
        return Press(self._clock.now(), "warm", self.progress)

    def first(self) -> Snapshot | None:
        return self.shot

    def start(self, run_seen: Any, baseline: Any, sample: Any, recorded: Any) -> None:
        self.see = run_seen
        baseline(scene.baseline())
        sample(scene.sample(self._clock.monotonic()))

    def follow(self, snapshot: Snapshot) -> None:
        self.shot = snapshot

    def close(self) -> None:
        self.closed += 1


Sent = list[tuple[Snapshot, str, dict[str, str]]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What was sent to a runner; nobody else's run is live here."""
    found: Sent = []

    def ask(snapshot: Snapshot, verb: str, **words: str) -> str:
        found.append((snapshot, verb, words))
        return "" if verb == "approve" else "the runner refused"

    monkeypatch.setattr(desks, "ask", ask)
    monkeypatch.setattr(desks, "_live", lambda: None)
    return found


def made(shot: Snapshot | None, *, write: bool = True) -> tuple[Desk, Watched, FakeClock]:
    clock = FakeClock(scene.NOW)
    watched = Watched(shot, clock)
    desk = Desk(site="/s.yaml", write=write, clock=clock, watch=watched)
    desk.look()
    return desk, watched, clock


@pytest.fixture
def shot(run: RunDir) -> Snapshot:
    return scene.snapshot(run, scene.approval())


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return scene.run_dir(tmp_path)


# -- verbs -----------------------------------------------------------------------------------------


def test_an_approval_goes_to_the_runner_with_its_words(shot: Snapshot, sent: Sent) -> None:
    desk, watched, _ = made(shot)
    message = {"verb": "approve", **bound_to(shot), "why": "looks \x1b[31mgood", "confirm": "yes"}
    assert desk.tell(message) == ""
    assert sent == [(shot, "approve", {"why": "looks good", "confirm": "yes"})]
    assert watched.looked == 1, "what comes of it is seen at once"
    assert desk.tell({"verb": "reject", **bound_to(shot)}) == "the runner refused"


@pytest.mark.parametrize(
    ("name", "value"), [("run", "other"), ("run", None), ("step", "bench"), ("attempt", 2),
                        ("attempt", "1"), ("attempt", [1]), ("evidence", "f"), ("evidence", None)],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_an_answer_to_something_older_is_refused(
    shot: Snapshot, sent: Sent, verb: str, name: str, value: object
) -> None:
    desk, _, _ = made(shot)
    assert desk.tell({"verb": verb, **bound_to(shot), name: value}) == NEWER
    whole = {"verb": verb, **bound_to(shot)}
    del whole[name]
    assert desk.tell(whole) == NEWER, "an answer that does not say what it is for"
    assert sent == []


def test_an_answer_after_the_run_has_moved_on_is_refused(shot: Snapshot, sent: Sent) -> None:
    desk, watched, _ = made(shot)
    message = {"verb": "approve", **bound_to(shot)}
    watched.see(scene.snapshot(shot.run, scene.running()))
    assert desk.tell(message) == NEWER
    assert sent == []


def test_what_is_not_possible_now_says_why(run: RunDir, sent: Sent) -> None:
    running = scene.snapshot(run, scene.running())
    desk, _, _ = made(running)
    assert "nothing waits for an answer" in desk.tell({"verb": "approve", **bound_to(running)})
    assert sent == []


def test_only_three_verbs_can_be_asked_for(shot: Snapshot, sent: Sent) -> None:
    desk, watched, _ = made(shot)
    for verb in (*(set(VERBS) - set(desks.VERBS)), "resume", "", None, 7, ["approve"], {}):
        assert "only approve" in desk.tell({"verb": verb, **bound_to(shot)})
    assert sent == []
    assert watched.pressed == 0


def test_read_only_sends_nothing_whatever_is_asked(shot: Snapshot, sent: Sent) -> None:
    desk, watched, _ = made(shot, write=False)
    for verb in (*VERBS, "resume"):
        assert desk.tell({"verb": verb, **bound_to(shot), "why": "x"}) == READONLY
    assert (sent, watched.pressed) == ([], 0)
    assert watched.options["readonly"] is True


def test_a_rollback_is_the_emergency_key_for_the_run_that_was_shown(
    shot: Snapshot, sent: Sent
) -> None:
    desk, watched, _ = made(shot)
    for run in ("other", None, 7, [], ""):
        assert desk.tell({"verb": "rollback", "run": run}) == NEWER
    assert watched.pressed == 0
    assert desk.tell({"verb": "rollback", "run": bound_to(shot)["run"]}) == ""
    assert watched.pressed == 1
    assert desk.tell({"verb": "rollback"}) == NEWER
    assert sent == [], "it needs no runner"


def test_a_rollback_never_ends_a_run_that_began_meanwhile(
    shot: Snapshot, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, watched, _ = made(shot)
    monkeypatch.setattr(desks, "_live", lambda: "a-newer-run")
    assert desk.tell({"verb": "rollback", "run": bound_to(shot)["run"]}) == NEWER
    assert watched.pressed == 0


def test_a_run_that_cannot_be_read_does_not_keep_the_baseline_down(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desks, "_live", lambda: "the-unreadable-run")
    desk, watched, _ = made(Snapshot(word="unreadable", trouble="disk I/O error"))
    assert "cannot be read" in desk.look()["next"]
    assert desk.tell({"verb": "rollback", "run": None}) == ""
    assert watched.pressed == 1


def test_a_disk_that_does_not_answer_keeps_nobody_from_a_rollback(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was read yet: that is not the same as no run."""
    monkeypatch.setattr(desks, "_live", lambda: "the-run-that-was-not-read")
    desk, watched, _ = made(None)
    assert desk.look()["next"] == "the run cannot be read: Roll back brings the baseline back"
    assert desk.tell({"verb": "rollback", "run": None}) == ""
    assert watched.pressed == 1


def test_a_page_that_has_slept_ends_no_run_that_it_was_never_shown(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, watched, clock = made(scene.nothing())
    clock.sleep(desks.REST_S)
    desk.rest()
    watched.shot = None
    monkeypatch.setattr(desks, "_live", lambda: "a-newer-run")
    assert desk.tell({"verb": "rollback", "run": None}) == NEWER
    assert watched.pressed == 0
    assert "cannot be read" in desk.look()["next"]
    assert desk.tell({"verb": "rollback", "run": None}) == ""


def test_without_a_run_the_baseline_can_be_brought_back(sent: Sent) -> None:
    desk, watched, _ = made(scene.nothing())
    assert desk.tell({"verb": "rollback", "run": None}) == ""
    assert watched.pressed == 1


# -- watching --------------------------------------------------------------------------------------


def test_the_watchers_rest_when_nobody_looks_and_come_back(shot: Snapshot) -> None:
    desk, watched, clock = made(shot)
    clock.sleep(desks.REST_S - 1)
    desk.rest()
    assert watched.closed == 0
    clock.sleep(1)
    desk.rest()
    desk.rest()
    assert watched.closed == 1
    assert desk.look()["run"]["id"] == some_id(shot)
    assert watched.made == 2


def test_they_do_not_rest_while_a_rollback_is_answered(shot: Snapshot, sent: Sent) -> None:
    desk, watched, clock = made(shot)
    desk.tell({"verb": "rollback", "run": some_id(shot)})
    clock.sleep(10 * desks.REST_S)
    desk.rest()
    assert watched.closed == 0
    watched.progress.end("no baseline")
    desk.rest()
    assert watched.closed == 1


def test_they_do_not_rest_while_a_rollback_is_being_asked_for(
    shot: Snapshot, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was pressed at watchers that have ended would start nothing."""
    desk, watched, clock = made(shot)
    closed: list[int] = []

    def live() -> None:
        desk.rest()
        closed.append(watched.closed)

    monkeypatch.setattr(desks, "_live", live)
    clock.sleep(desks.REST_S)
    assert desk.tell({"verb": "rollback", "run": some_id(shot)}) == ""
    assert (closed, watched.pressed) == ([0], 1)


def test_somebody_is_there_only_while_a_page_looks(shot: Snapshot) -> None:
    desk, watched, clock = made(shot)
    there = watched.options["there"]
    assert there()
    clock.sleep(desks.THERE_S)
    assert not there()
    desk.look()
    assert there()


def some_id(shot: Snapshot) -> str:
    assert shot.run is not None
    return shot.run.id


# -- what is shown ---------------------------------------------------------------------------------


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
        view.cutover = {"service": "ik", "what": "stays"}
        desk, _, _ = made(scene.snapshot(run, view), write=write)
        desk._baseline_seen(replace(scene.baseline(), word=CUT_OVER, detail=detail + BY_KEY))
        shown = desk.look()
        assert shown["baseline"]["words"].startswith(f"deepseek-r1, {detail}, ")
        assert shown["run"]["baseline"] == (
            f"CUT OVER to ik, not promoted: {back} brings the baseline back"
        )


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
    assert (told["words"], told["trouble"]) == ("THE BASELINE IS NOT PROVEN", "no container")
    watched.progress.result = Result(True, detail="baseline serves")
    assert desk.look()["rollback"]["words"] == "the baseline serves"


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
    assert desk.look()["rollback"]["words"] == "the baseline serves"
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
