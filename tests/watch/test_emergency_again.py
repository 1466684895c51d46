"""The emergency key pressed again, and a console that is closed while a press is answered."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.common import paths
from console.frontends.tui.watch import emergency as module
from console.frontends.tui.watch import progress
from console.frontends.tui.watch.emergency import Emergency
from console.host import process
from console.recovery.rollback import trigger
from console.recovery.rollback.progress import PROGRESS_FILE, read_lines, record_request, who_asked
from console.recovery.rollback.sealed_plan import ROLLBACK, SITES
from console.recovery.rollback.trigger import LOCK, Lock
from tests.children import end
from tests.rollback.conftest import Stage
from tests.waiting import some, until
from tests.watch.conftest import Child, Key, Slow, Warm, ended, gone, point, serves


class Waits:
    """A command that says its pid and then hangs."""

    def __init__(self, place: Path) -> None:
        self.file = place / "pid"
        self.argv = ("sh", "-c", f"echo $$ > {self.file}.new; mv {self.file}.new {self.file};"
                     " exec sleep 600")  # fmt: skip

    def pid(self) -> int:
        return int(until(lambda: self.file.exists() and self.file.read_text().strip()))

    def end(self) -> None:
        if self.file.exists():
            pid = self.pid()
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


@pytest.fixture
def hangs(tmp_path: Path) -> Iterator[Waits]:
    made = Waits(tmp_path)
    yield made
    made.end()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hangs in a test waits for this, and is let go at its end."""
    made = threading.Event()
    yield made
    made.set()


def triggers(stage: Stage) -> set[str]:
    return {str(line["trigger"]) for line in read_lines(stage.plan.rollback_dir / PROGRESS_FILE)[0]}


@pytest.mark.parametrize("how", ["warm", "spawned"])
def test_leaving_before_a_ladder_spoke_leaves_the_command_at_work(
    stage: Stage, start_standby: Warm, hangs: Waits, tmp_path: Path, how: str
) -> None:
    if how == "warm":
        os.kill(start_standby().pid, signal.SIGSTOP)
    point(stage)
    emergency = Emergency(hangs.argv, tmp_path / "emergency.log")
    assert emergency.press().how == how
    emergency.close()
    pid = hangs.pid()
    assert process.alive(pid, process.start_time(pid) or 0)
    assert os.getsid(pid) == pid, "in a session of its own"
    gone(emergency._threads)


def test_leaving_after_the_ladder_spoke_starts_nothing(
    slow: Slow, warmed: Child, hangs: Waits, tmp_path: Path
) -> None:
    emergency = Emergency(hangs.argv, tmp_path / "emergency.log")
    watch = emergency.press().progress
    until(lambda: watch.lines, "the ladder speaks")
    assert not watch.over
    emergency.close()
    gone(emergency._threads)
    assert not watch.spawned
    assert not hangs.file.exists()


@pytest.mark.parametrize("known", [False, True])
def test_a_ladder_that_came_after_the_press_gets_the_next_one_though_the_command_hangs(
    stage: Stage, start_standby: Warm, hangs: Waits, key: Key, known: bool
) -> None:
    if known:
        point(stage)
    emergency = key(hangs.argv)
    first = emergency.press()
    assert first.how == "spawned"
    assert known or first.progress.directory is None
    hangs.pid()
    assert emergency.press().how == "already", "there is still nothing to wake"
    start_standby()
    if not known:
        point(stage)
    again = emergency.press()
    assert (again.how, again.progress.directory) == ("warm", stage.plan.rollback_dir)
    serves(again.progress)


def test_a_ladder_that_was_started_anew_gets_the_byte(
    warmed: Child, start_standby: Warm, hangs: Waits, key: Key
) -> None:
    os.kill(warmed.pid, signal.SIGSTOP)
    emergency = key(hangs.argv)
    assert emergency.press().how == "warm"
    end(warmed)
    start_standby()
    press = emergency.press()
    serves(press.progress)


@pytest.mark.parametrize("stopped", [True, False])
def test_presses_of_one_ladder_are_one_climb(
    stage: Stage, slow: Slow, warmed: Child, key: Key, hangs: Waits, stopped: bool
) -> None:
    if stopped:
        os.kill(warmed.pid, signal.SIGSTOP)
    emergency = key(hangs.argv)
    emergency.press()
    hows = {emergency.press().how for _ in range(5)}
    if stopped:
        os.kill(warmed.pid, signal.SIGCONT)
    watch = emergency.press().progress
    until(lambda: watch.lines)
    hows |= {emergency.press().how for _ in range(5)}
    assert hows == {"already"}
    slow.end()
    ended(watch)
    warmed.wait(60)
    assert len(triggers(stage)) == 1


def test_presses_behind_another_ladder_are_no_second_climb(
    stage: Stage, warmed: Child, key: Key, hangs: Waits
) -> None:
    """The warm ladder follows one from a shell: a byte that waits meanwhile would climb anew."""
    directory, ladder = stage.plan.rollback_dir, stage.plan.rollback_dir / PROGRESS_FILE
    line = {"trigger": "command-1", "rung": "start", "state": "begin"}
    lock = Lock(directory)
    try:
        assert lock.taken()
        ladder.write_text(json.dumps(line) + "\n")
        emergency = key(hangs.argv)
        watch = emergency.press().progress
        until(lambda: follows(warmed.pid, directory / LOCK), "the warm ladder follows")
        assert [emergency.press().how for _ in range(3)] == ["already"] * 3
        with ladder.open("a") as file:
            file.write(json.dumps({**line, "rung": "done", "state": "ok"}) + "\n")
        ended(watch)
    finally:
        lock.close()
    assert trigger.trigger(directory, trigger.QUIT)
    warmed.wait(60)
    assert triggers(stage) == {"command-1"}


def follows(pid: int, lock: Path) -> bool:
    """Whether a ladder has the lock's file open and pauses: it looked, and somebody else has it."""
    ladder = psutil.Process(pid)
    opened = str(lock) in {file.path for file in ladder.open_files()}
    return opened and ladder.status() == psutil.STATUS_SLEEPING


def test_a_note_that_cannot_be_written_delays_nothing(
    stage: Stage, warmed: Child, key: Key, gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    real = record_request

    def slow_disk(*args: Any) -> None:
        gate.wait()
        real(*args)

    monkeypatch.setattr(module, "record_request", slow_disk)
    emergency = key()
    serves(emergency.press().progress)
    gate.set()
    until(lambda: who_asked(stage.plan.rollback_dir))


def test_an_answer_that_hangs_leaves_the_key_alive(
    stage: Stage, key: Key, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    point(stage)
    emergency, real = key(), progress.RollbackProgress.poll
    stuck: list[progress.RollbackProgress] = []

    def poll(self: progress.RollbackProgress) -> bool:
        if not stuck:
            stuck.append(self)
        if self is stuck[0]:
            gate.wait()
        return real(self)

    monkeypatch.setattr(progress.RollbackProgress, "poll", poll)
    monkeypatch.setattr(module, "STUCK_S", 0.3)
    emergency.press()
    until(lambda: stuck)
    press = until(lambda: (now := emergency.press()).how != "already" and now)
    assert press.how == "spawned"
    watch = press.progress
    monkeypatch.setattr(module, "STUCK_S", 600.0)
    serves(watch)
    gate.set()


def test_the_command_waits_for_no_look_at_the_runs(
    key: Key, hangs: Waits, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> list[Path]:
        gate.wait()
        return []

    monkeypatch.setattr(module, "_progress_files", never)
    monkeypatch.setattr(module, "SCAN_S", 0.05)
    emergency = key(hangs.argv)
    watch = emergency.press().progress
    os.kill(hangs.pid(), signal.SIGKILL)
    hangs.file.unlink()
    assert "exit -9" in ended(watch).trouble
    gate.set()


def test_what_the_command_wrote_before_the_look_is_not_missed(
    key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder = paths.runs_dir() / "r9" / "rollback" / PROGRESS_FILE
    ladder.parent.mkdir(parents=True)
    old = {"trigger": "warm-1", "rung": "done", "state": "ok", "serving": True, "at": 5.0}
    ladder.write_text(json.dumps(old) + "\n")
    done = '{"trigger": "command-2", "rung": "done", "state": "ok", "serving": true, "at": %s}'
    real = module._progress_files

    def late() -> list[Path]:
        until(lambda: len(read_lines(ladder)[0]) == 2, "the command has written its line")
        return real()

    monkeypatch.setattr(module, "_progress_files", late)
    emergency = key(("sh", "-c", f"printf '{done}\\n' $(date +%s.%N) >> {ladder}"))
    watch = ended(emergency.press().progress)
    assert [line["trigger"] for line in watch.lines] == ["command-2"]
    serves(watch)


@pytest.mark.parametrize("hold", [True, False])
def test_the_first_rollback_of_a_site_is_followed_though_it_makes_its_own_directory(
    key: Key, tmp_path: Path, hold: bool
) -> None:
    ladder = paths.state_dir() / ROLLBACK / SITES / "vm" / PROGRESS_FILE
    begun = '{"trigger": "command-2", "rung": "plan", "state": "note", "at": %s}'
    done = '{"trigger": "command-2", "rung": "done", "state": "ok", "serving": true, "at": %s}'
    wait = f"for n in $(seq 3000); do [ ! -e {tmp_path}/go ] || break; sleep 0.02; done"
    emergency = key(
        (
            "sh",
            "-c",
            f"sleep 0.3; mkdir -p {ladder.parent}; printf '{begun}\\n' $(date +%s.%N) >> {ladder}; "
            f"{wait if hold else ':'}; printf '{done}\\n' $(date +%s.%N) >> {ladder}",
        )
    )
    watch = emergency.press().progress
    if hold:
        until(lambda: [line["rung"] for line in watch.lines] == ["plan"], "its first line is shown")
        (tmp_path / "go").touch()
    assert [line["rung"] for line in ended(watch).lines] == ["plan", "done"]
    assert watch.trouble == ""
    serves(watch)


@pytest.mark.parametrize(("code", "serving"), [(0, True), (7, False)])
def test_the_exit_code_counts_where_no_line_could_be_written(
    key: Key, code: int, serving: bool
) -> None:
    emergency = key(("sh", "-c", f"echo 'the baseline serves, or not'; exit {code}"))
    watch = ended(emergency.press().progress)
    assert (watch.result is not None and watch.result.serving) is serving
    if serving:
        assert some(watch.result).detail == "“the baseline serves, or not”"
    else:
        assert watch.trouble == "“the baseline serves, or not” (exit 7)"


def test_where_the_new_lines_begin(tmp_path: Path) -> None:
    path = tmp_path / "l"
    lines = [("a", 10.0), ("b", 11.0), ("c", 13.0)]
    path.write_text("{torn\n" + "".join(json.dumps({"t": t, "at": x}) + "\n" for t, x in lines))
    for at, kept in ((0.0, "abc"), (11.0, "bc"), (12.5, "c"), (99.0, "")):
        found, _ = read_lines(path, progress.offset_at(path, at))
        assert "".join(line["t"] for line in found) == kept, at
    os.utime(path, (5.0, 5.0))
    assert progress.offset_at(path, 10.0) == path.stat().st_size, "untouched since"
    assert progress.offset_at(tmp_path / "none", 10.0) == 0


def test_a_forged_ladder_is_shown_clean(key: Key) -> None:
    ladder = paths.runs_dir() / "r9" / "rollback" / PROGRESS_FILE
    ladder.parent.mkdir(parents=True)
    evil = "\\u001b]52;c;x\\u0007\\u001b[2Jboo"
    line = f'{{"trigger": "{evil}", "rung": "done", "state": "ok", "detail": "{evil}", "at": 9e9}}'
    (ladder.parent / "line").write_text(line + "\n")
    emergency = key(("sh", "-c", f"cat {ladder.parent}/line >> {ladder}; sleep 0.2"))
    watch = ended(emergency.press().progress)
    [shown] = watch.lines
    assert (shown["trigger"], shown["detail"]) == ("boo", "boo")
    result = some(watch.result)
    assert result.detail == "boo"
