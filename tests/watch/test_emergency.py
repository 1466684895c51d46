"""The emergency key: a real warm ladder, one that was stopped, none at all, and nothing to do."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from console.common import paths
from console.frontends.tui.watch import emergency as module
from console.frontends.tui.watch.emergency import Emergency
from console.host import process
from console.recovery.rollback import records as pointers
from console.recovery.rollback import sealed_plan, trigger
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.progress import PROGRESS_FILE, read_lines, who_asked
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.shell import launcher, sealed_copy
from console.recovery.rollback.trigger import Lock
from tests.rollback.conftest import Stage
from tests.waiting import some, until
from tests.watch.conftest import COMMAND, Child, Key, Slow, ended, point, serves


def test_one_byte_wakes_the_warm_ladder(stage: Stage, warmed: Child, key: Key) -> None:
    emergency, ladder = key(), stage.plan.rollback_dir / PROGRESS_FILE
    press = emergency.press()
    assert (press.how, press.progress.progress_file, press.progress.began_at) == ("warm", ladder, 0)
    watch = press.progress
    assert emergency.press().how == "already"
    until(lambda: watch.run_id == stage.plan.run_id, "it is known whose rollback it is")
    stages = ended(watch).lines
    assert next(r["rung"] for r in stages if r["state"] == "ok") == "fence"
    assert stages[-1]["rung"] == "done"
    serves(watch)
    assert (watch.trouble, watch.spawned) == ("", False)
    until(lambda: warmed.poll() == 0, "nobody needs the ladder any more")
    starts = [r for r in stages if (r["rung"], r["state"]) == ("start", "ok")]
    assert len(starts) == 1
    until(lambda: who_asked(stage.plan.rollback_dir).endswith(", with the emergency key"))


def test_after_the_end_a_press_works_again(
    stage: Stage, warmed: Child, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ladder is leaving, or gone: the command answers then."""
    monkeypatch.setattr(module, "STANDBY_WORD_S", 0.7)
    emergency = key()
    ended(emergency.press().progress)
    size = (stage.plan.rollback_dir / PROGRESS_FILE).stat().st_size
    again = emergency.press()
    assert again.progress.began_at == size
    watch = ended(again.progress)
    result = some(watch.result)
    assert result.nothing_to_do


def test_a_warm_ladder_that_was_stopped_is_not_waited_for(
    warmed: Child, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STANDBY_WORD_S", 0.1)
    os.kill(warmed.pid, signal.SIGSTOP)
    emergency = key()
    press = emergency.press()
    assert press.how == "warm", "its FIFO takes the byte"
    watch = ended(press.progress)
    assert watch.spawned
    serves(watch)
    triggers = {str(line["trigger"]).partition("-")[0] for line in watch.lines}
    assert triggers == {"command"}


def test_a_warm_ladder_that_dies_half_way_is_replaced(
    stage: Stage, slow: Slow, warmed: Child, key: Key
) -> None:
    emergency = key()
    watch = emergency.press().progress
    path = stage.plan.rollback_dir / PROGRESS_FILE
    until(lambda: any(x["rung"] == "stop" for x in read_lines(path)[0]))
    warmed.kill()
    until(lambda: watch.spawned, "the command is started")
    slow.end()
    serves(watch)
    assert not process.alive(*slow.candidate)


def test_a_ladder_that_only_the_command_knows_is_found(stage: Stage, key: Key) -> None:
    """No run is on: the command takes the newest sealed plan, and its ladder is followed."""
    run_dir = paths.runs_dir() / "r9"
    (run_dir / "rollback").mkdir(parents=True)
    stage.seal(run_dir=str(run_dir))
    emergency = key()
    press = emergency.press()
    assert (press.how, press.progress.directory) == ("spawned", None)
    serves(press.progress)
    assert press.progress.run_id == stage.plan.run_id


def test_with_nothing_to_do_the_command_says_so(key: Key) -> None:
    code = (
        "from console.recovery.rollback.command import rollback;"
        "done = rollback(None, False, None); print(done.detail); raise SystemExit(done.exit_code)"
    )
    emergency = key((sys.executable, "-c", code))
    watch = ended(emergency.press().progress)
    result = some(watch.result)
    assert (result.serving, result.nothing_to_do, watch.trouble) == (False, True, "")
    assert "nothing was rolled back" in result.detail
    assert emergency.press().how == "spawned", "a press works again"


def test_an_error_of_the_command_is_told_clean_and_only_the_new_one(key: Key) -> None:
    emergency = key(("sh", "-c", "printf 'old trouble\\n'; exit 1"))
    assert "old trouble" in ended(emergency.press().progress).trouble
    emergency._argv = ("sh", "-c", "printf '\\033[2Jnew \\033]52;c;x\\007trouble\\n'; exit 3")
    watch = ended(emergency.press().progress)
    assert watch.trouble == "“new trouble” (exit 3)"
    emergency._argv = ("/nowhere/omni-console",)
    watch = ended(emergency.press().progress)
    assert "cannot be started" in watch.trouble


def test_a_log_that_cannot_be_written_stops_nothing(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    point(stage)
    emergency = Emergency(COMMAND, tmp_path / "file" / "emergency.log")
    serves(emergency.press().progress)
    emergency.close()


def test_whatever_breaks_a_press_never_raises(
    stage: Stage, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Path | None:
        raise RuntimeError("broken")

    point(stage)
    monkeypatch.setattr(module, "_target", broken)
    emergency = key()
    press = emergency.press()
    assert (press.how, press.progress.directory) == ("spawned", None)
    serves(press.progress)


def test_a_press_during_the_runners_own_ladder_waits_for_its_own(
    stage: Stage, slow: Slow, warmed: Child, key: Key
) -> None:
    path = stage.plan.rollback_dir / PROGRESS_FILE
    assert trigger.trigger(stage.plan.rollback_dir, trigger.REQUEST)
    until(lambda: any(x["rung"] == "stop" for x in read_lines(path)[0]))
    emergency = key()
    watch = emergency.press().progress
    slow.end()
    ended(watch)
    triggers = [str(line["trigger"]).partition("-")[0] for line in watch.lines]
    assert triggers[0] == "runner"
    assert triggers[-1] == "warm"
    assert not watch.spawned


def test_many_presses_at_once_are_one(warmed: Child, key: Key) -> None:
    emergency = key()
    hows: list[str] = []
    os.kill(warmed.pid, signal.SIGSTOP)  # the first press is not answered before the last one
    threads = [
        threading.Thread(target=lambda: hows.append(emergency.press().how)) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.kill(warmed.pid, signal.SIGCONT)
    assert sorted(hows) == ["already"] * 19 + ["warm"]
    ended(emergency.press().progress)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to meet other users' pointers")
def test_root_leaves_another_users_live_run_to_the_command(
    stage: Stage, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Pointer("r", stage.plan.run_dir, "root", 0, 2**22, 1)
    pointers.write(mine)
    other = stage.sleeper()
    theirs = Pointer("o", "/nowhere", "nobody", 65534, *other, started_at=9.0)
    assert module._target() == stage.plan.rollback_dir
    os.chown(pointers.write(theirs), 65534, 65534)
    assert module._target() is None
    pointers.write(Pointer("r", stage.plan.run_dir, "root", 0, *stage.sleeper()))
    assert module._target() == stage.plan.rollback_dir, "its own live run comes first"


def test_the_lock_of_a_ladder_elsewhere_is_followed(stage: Stage, key: Key) -> None:
    """A climb from a shell is on and nobody is warm: the command joins it and ends with it."""
    point(stage)
    assert sealed.read(stage.plan.rollback_dir / "plan.json").run_id == stage.plan.run_id
    lock = Lock(stage.plan.rollback_dir)
    try:
        assert lock.taken()
        ladder = stage.plan.rollback_dir / PROGRESS_FILE
        ladder.write_text(
            json.dumps({"trigger": "command-1", "rung": "fence", "state": "ok"}) + "\n"
        )
        emergency = key()
        watch = emergency.press().progress
        until(lambda: watch.spawned)
        until(lambda: "plan:" in (stage.root / "logs" / "emergency.log").read_text())
        done = {"trigger": "command-1", "rung": "done", "state": "ok", "serving": True}
        with ladder.open("a") as file:
            file.write(json.dumps(done) + "\n")
        lock.close()
        serves(watch)
    finally:
        lock.close()


@pytest.mark.parametrize("argv", [("/nowhere/omni-console",), ("sh", "-c", "exit 1")])
def test_where_the_command_cannot_be_run_the_sealed_script_brings_the_baseline_back(
    stage: Stage, key: Key, argv: tuple[str, ...]
) -> None:
    """In the middle of an upgrade the console's files are gone."""
    point(stage)
    stage.seal(copy=str(sealed_copy.make()))
    launcher.write(stage.plan, stage.plan.rollback_dir / sealed_plan.SCRIPT)
    serves(key(argv).press().progress)


def test_the_script_of_the_site_that_is_named_counts_before_a_newer_one(
    stage: Stage, tmp_path: Path
) -> None:
    stage.seal(site_path=str(tmp_path / "named.yaml"))
    for name, at in (("named", 1000), ("newer", 2000)):
        path = sealed_plan.site_script(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"exit {0 if name == 'named' else 7}\n")
        os.utime(path, (at, at))
    sealed.write(stage.plan, sealed_plan.site_script("named").with_suffix(".json"))
    nowhere, log = ("/nowhere/omni-console",), tmp_path / "emergency.log"
    emergency = Emergency(nowhere, log, site=str(tmp_path / "named.yaml"))
    try:
        serves(emergency.press().progress)
    finally:
        emergency.close()


def test_the_newest_script_of_a_site_counts_where_no_run_is_known(
    stage: Stage, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.seal(copy=str(sealed_copy.make()))
    for name, at in (("older", 1000), (stage.plan.site_name or "local", 2000)):
        path = sealed_plan.site_script(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        launcher.write(stage.plan, path)
        for script in (path, launcher.without_python_path(path)):
            os.utime(script, (at, at))
        if name == "older":
            path.write_text("exit 7\n")
            os.utime(path, (at, at))
    serves(key(("/nowhere/omni-console",)).press().progress)
