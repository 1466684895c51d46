"""What the status page shows, and the verbs that it may send: bound to what it showed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.frontends.tui.watch.run import Snapshot
from console.frontends.web import desk as desks
from console.frontends.web.desk import NEWER, READONLY
from console.frontends.web.facts import bound_to
from console.journal.run_dir import RunDir
from console.journal.state import VERBS
from tests.ui import scene
from tests.web.watched import Sent, made, some_id

# -- the program's files ---------------------------------------------------------------------------

COLD = """
import os, sys, time
from pathlib import Path
from console.frontends.web.desk import Desk

class Gone:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "console":
            raise ModuleNotFoundError(f"No module named {name!r}")

desk = Desk(site=None, write=True)
sys.meta_path.insert(0, Gone)
sys.executable = "/nowhere/python"
print([desk.tell({"verb": "rollback", "run": None})], flush=True)
while not (rollback := desk.look()["rollback"])["over"]:
    time.sleep(0.02)
print(rollback["words"])
desk.close()
"""


def test_a_page_that_nobody_has_opened_yet_rolls_back_after_the_program_is_gone(
    tmp_path: Path,
) -> None:
    """The first press loaded what an upgrade had taken away, and was lost with `Internal Server
    Error`."""
    places = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CONFIG", "CACHE")}
    places |= {"OMNI_HOST_DIR": str(tmp_path), "HOME": str(tmp_path)}
    script = tmp_path / "STATE/omni-console/rollback/here.sh"
    script.parent.mkdir(parents=True)
    script.write_text("exit 0\n")
    ran = subprocess.run(
        [sys.executable, "-P", "-c", COLD], capture_output=True, text=True, timeout=120,
        check=False, env={**os.environ, **places},
    )  # fmt: skip
    assert ran.stdout.splitlines() == ["['']", "THE BASELINE SERVES"], ran.stderr


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
