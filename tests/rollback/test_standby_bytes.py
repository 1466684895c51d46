"""What a standby makes of old bytes, and how its caller learns what becomes of a new one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host import process
from console.recovery.rollback import live, records, standby
from console.recovery.rollback.live import LIVE, Live
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.trigger import (
    ALIVE_S,
    EMERGENCY,
    LEAVE,
    QUIT,
    REQUEST,
    SENTINEL,
    Answer,
    Lock,
    StandbyFollower,
)
from tests.rollback.conftest import Stage


def line(who: str, stage: str = "done") -> str:
    return f'{{"trigger": "{who}-1-2-ab", "rung": "{stage}", "state": "ok"}}\n'


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [
        ("", EMERGENCY + SENTINEL + REQUEST + QUIT),
        (line("command", "stop"), EMERGENCY + SENTINEL + REQUEST + QUIT),
        (line("runner"), EMERGENCY + SENTINEL + QUIT),
        (line("command"), QUIT),
        (line("script"), QUIT),
        (line("command") + line("runner"), QUIT),
    ],
    ids=["nothing", "one that goes on", "the runner's own", "a command's", "a script's", "both"],
)
def test_what_a_starved_standby_still_has_to_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, meanwhile: str, left: bytes
) -> None:
    """It is not stopped, but the machine gives it no time for a minute."""
    progress_file = stage.plan.rollback_dir / PROGRESS_FILE
    progress_file.write_text(line("command"))  # of before: it answers nothing
    waiting = standby.Standby(stage.plan.rollback_dir)
    did: list[str] = []

    def wakes_late() -> bytes:
        if did:
            return QUIT
        did.append("woke")
        with progress_file.open("a") as file:
            file.write(meanwhile)
        return EMERGENCY + SENTINEL + REQUEST + QUIT

    monkeypatch.setattr(waiting, "_wait_for_bytes", wakes_late)
    monkeypatch.setattr(waiting, "_drain", lambda: b"")
    monkeypatch.setattr(waiting, "_run", did.append)
    waiting.run()
    wanted = {EMERGENCY: "warm", SENTINEL: "sentinel", REQUEST: "runner"}
    first = [who for byte, who in wanted.items() if byte in left][:1]
    assert did == ["woke", *first]


@pytest.mark.parametrize("over", [True, False])
def test_a_standby_ends_with_the_directory_of_its_run(stage: Stage, over: bool) -> None:
    """Nobody reaches it any more. While its run is the active one, it stays for the lease, though
    the runner has ended and the baseline is down; a directory made again is another one."""
    waiting = standby.Standby(stage.plan.rollback_dir)
    assert not waiting._may_leave(b""), "the baseline is down"
    if not over:
        records.write(Pointer(stage.plan.run_id, stage.plan.run_dir, "me", os.getuid(), 0, 0))
    shutil.rmtree(stage.plan.rollback_dir)
    stage.plan.rollback_dir.mkdir()
    assert waiting._may_leave(b"") is over


def test_leave_is_no_request(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = standby.Standby(stage.plan.rollback_dir)
    monkeypatch.setattr(waiting, "_is_unneeded", lambda *kinds: True)
    monkeypatch.setattr(waiting, "_drain", lambda: b"")
    monkeypatch.setattr(waiting, "_wait_for_bytes", lambda: LEAVE)
    waiting.run()


def test_a_byte_that_came_after_the_end_of_another_rollback_is_new(stage: Stage) -> None:
    """That rollback failed, and somebody presses the key half a minute later."""
    waiting = standby.Standby(stage.plan.rollback_dir)
    waiting.written_at = 5.0
    ended = '{"trigger": "command-1", "rung": "done", "state": "failed", "at": %s}\n'
    for at, left in (("1.0", EMERGENCY), ("6.0", b"")):
        (stage.plan.rollback_dir / PROGRESS_FILE).write_text(ended % at)
        assert waiting._unanswered(EMERGENCY, 0) == left, at


FIRST_S, QUIET_S = 2.0, 60.0
ALIVE = Live("ladder", "warm", os.getpid(), process.start_time(os.getpid()) or 0)
DEAD = Live("ladder", "warm", os.getpid(), 1)


class Lines:
    """Stands for the reader of ladder.jsonl: `seen` lines so far, and whether the last is there."""

    def __init__(self) -> None:
        self.seen, self.ended = 0, False

    def poll(self) -> bool:
        return self.ended


class Bench:
    def __init__(self, directory: Path) -> None:
        self.directory, self.lines = directory, Lines()
        self.lock = Lock(directory)
        self.limits_asked = 0

    def follower(self, standby: Live = ALIVE, *, lock_counts: bool = False) -> StandbyFollower:
        live.append(self.directory / LIVE, standby)
        return StandbyFollower(
            self.directory, self.lines, 0.0,
            first_line_s=FIRST_S, quiet_s=self._quiet_s, lock_counts=lock_counts,
        )  # fmt: skip

    def _quiet_s(self) -> float:
        self.limits_asked += 1
        return QUIET_S


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.lock.close()


def test_the_last_line_ends_it(bench: Bench) -> None:
    follower = bench.follower()
    assert follower.step(0.1) is Answer.WAITING
    bench.lines.ended = True
    assert follower.step(0.2) is Answer.ENDED


def test_without_a_first_line_it_is_silent_until_one_comes(bench: Bench) -> None:
    follower = bench.follower()
    assert follower.step(FIRST_S - 0.01) is Answer.WAITING
    assert [follower.step(FIRST_S), follower.step(FIRST_S + 5)] == [Answer.SILENT] * 2
    assert bench.lock.taken()
    bench.lines.seen = 1
    assert follower.step(FIRST_S + 6) is Answer.WAITING, "the caller may not have been able to act"


def test_a_rollback_that_speaks_has_the_long_limit(bench: Bench) -> None:
    follower = bench.follower()
    assert bench.lock.taken()
    bench.lines.seen = 3
    assert [follower.step(at) for at in (1.0, QUIET_S)] == [Answer.WAITING] * 2
    bench.lines.seen = 4
    assert [follower.step(at) for at in (90.0, 90.0 + QUIET_S - 1)] == [Answer.WAITING] * 2
    assert follower.step(90.0 + QUIET_S) is Answer.SILENT
    assert bench.limits_asked == 1, "its plan is read once"


@pytest.mark.parametrize(("seen", "answer"), [(1, Answer.GONE), (0, Answer.WAITING)])
def test_a_standby_that_is_no_more_is_gone(bench: Bench, seen: int, answer: Answer) -> None:
    """Before its first line it has the time for that, and no file is read."""
    follower = bench.follower(DEAD)
    assert bench.lock.taken()
    bench.lines.seen = seen
    assert follower.step(ALIVE_S / 2) is Answer.WAITING, "it is not looked for at each step"
    assert follower.step(ALIVE_S) is answer


def test_one_that_let_go_of_the_lock_has_ended_without_its_last_line(bench: Bench) -> None:
    follower = bench.follower()
    assert bench.lock.taken()
    bench.lines.seen = 1
    assert follower.step(ALIVE_S) is Answer.WAITING
    bench.lock.release()
    assert follower.step(2 * ALIVE_S) is Answer.GONE


def test_the_line_that_comes_as_the_lock_is_let_go_counts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = bench.follower()
    bench.lines.seen = 1

    def ends(directory: Path) -> bool:
        bench.lines.ended = True
        return False

    monkeypatch.setattr("console.recovery.rollback.trigger.is_held", ends)
    assert follower.step(ALIVE_S) is Answer.ENDED


def test_where_the_lock_counts_a_silent_one_is_waited_for_while_it_is_held(bench: Bench) -> None:
    follower = bench.follower(lock_counts=True)
    assert bench.lock.taken()
    assert [follower.step(at) for at in (FIRST_S, QUIET_S - 1)] == [Answer.WAITING] * 2
    bench.lock.release()
    assert follower.step(QUIET_S - 0.5) is Answer.GONE


def test_where_the_lock_counts_it_is_not_waited_for_beyond_the_limit(bench: Bench) -> None:
    follower = bench.follower(lock_counts=True)
    assert bench.lock.taken()
    assert follower.step(FIRST_S) is Answer.WAITING
    assert follower.step(QUIET_S) is Answer.SILENT
