"""A rollback whose terminal is lost, or whose operator presses Ctrl-C half way."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from console.host import process
from console.recovery.rollback.script import write
from console.runtime.probe import Health, health
from tests.rollback.conftest import Stage
from tests.waiting import until

pytestmark = pytest.mark.alone
COMMAND = [sys.executable, "-m", "console.cli", "rollback"]


@dataclass
class Terminal:
    """A command as the leader of a session on a pseudo-terminal, as behind sshd."""

    pid: int
    master: int
    text: bytes = b""

    def read_until(self, word: bytes) -> None:
        def shown() -> bool:
            if word not in self.text and select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 4096)
            return word in self.text

        until(shown, f"the terminal shows {word!r}", where=lambda: repr(self.text))

    def ended(self) -> int:
        """Wait for the command to end; its exit code."""
        status: list[int] = []

        def gone() -> bool:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            status.extend([code] if pid else [])
            return bool(pid)

        until(gone, "the command has ended", where=lambda: repr(self.text))
        return os.waitstatus_to_exitcode(status[0])


def on_a_terminal(argv: list[str]) -> Terminal:
    pid, master = pty.fork()
    if pid == 0:
        os.execvp(argv[0], argv)
    return Terminal(pid, master)


@pytest.fixture
def stubborn(stage: Stage) -> tuple[int, int]:
    """A candidate that ignores SIGTERM, so that a test has a second to interfere."""
    stage.seal(grace_s=1.0)
    body = "trap 'echo told' TERM; echo up; while :; do sleep 600 & wait; done"
    candidate = stage.up(body, stage.plan.run_id)
    stage.record("process", "candidate", candidate)
    stage.point()
    return candidate


def is_rolling_back(stage: Stage, terminal: Terminal) -> None:
    terminal.read_until(b"plan: this user's run")
    file, begun = stage.plan.rollback_dir / "ladder.jsonl", '"rung": "stop", "state": "begin"'
    until(lambda: file.exists() and begun in file.read_text())


def interrupted(stage: Stage) -> Terminal:
    """A command at which Ctrl-C was pressed while its candidate takes its time to end."""
    stage.seal(grace_s=600.0)  # the candidate must not end before the test has read the warning
    terminal = on_a_terminal(COMMAND)
    is_rolling_back(stage, terminal)
    stage.until_said("told")
    asleep(terminal)
    os.write(terminal.master, b"\x03")
    terminal.read_until(b"Ctrl-C again leaves it unfinished")
    return terminal


def asleep(terminal: Terminal) -> None:
    """Wait until the command sleeps: a signal right before a wait is handled only after that."""
    until(lambda: (seen := process.stat(terminal.pid)) is not None and seen.state == "S")


def ends_well(terminal: Terminal) -> None:
    terminal.read_until(b"the baseline serves")
    assert terminal.ended() == 0
    os.close(terminal.master)


def serves(stage: Stage) -> bool:
    return health(stage.plan.baseline.url)[0] is Health.SERVING


def test_hang_up_half_way_changes_nothing(stage: Stage, stubborn: tuple[int, int]) -> None:
    terminal = on_a_terminal(COMMAND)
    is_rolling_back(stage, terminal)
    os.close(terminal.master)  # the kernel sends SIGHUP, and every later write is an error
    os.kill(terminal.pid, signal.SIGHUP)
    assert terminal.ended() == 0
    assert serves(stage)
    assert process.members(*stubborn, cookie="no") == []


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTERM, signal.SIGQUIT])
def test_ctrl_z_or_one_sigterm_or_sigquit_does_not_stop_it(
    stage: Stage, stubborn: tuple[int, int], number: int
) -> None:
    terminal = on_a_terminal(COMMAND)
    is_rolling_back(stage, terminal)
    os.kill(terminal.pid, number)
    ends_well(terminal)


def test_first_ctrl_c_goes_on(stage: Stage, stubborn: tuple[int, int]) -> None:
    terminal = interrupted(stage)
    os.killpg(stubborn[0], signal.SIGKILL)
    ends_well(terminal)
    assert serves(stage)


def test_second_ctrl_c_leaves(stage: Stage, stubborn: tuple[int, int]) -> None:
    terminal = interrupted(stage)
    asleep(terminal)
    os.write(terminal.master, b"\x03")
    assert terminal.ended() == 130
    os.close(terminal.master)


def test_terminal_that_takes_nothing_holds_up_the_words_only(
    stage: Stage, stubborn: tuple[int, int]
) -> None:
    terminal = on_a_terminal(COMMAND)
    is_rolling_back(stage, terminal)
    os.write(terminal.master, b"\x13")  # Ctrl-S
    until(lambda: serves(stage), "it serves")
    os.write(terminal.master, b"\x11")
    ends_well(terminal)


def test_reader_that_goes_away_does_not_change_the_exit_code(stage: Stage) -> None:
    stage.point()
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(COMMAND, stdout=writer, timeout=60, check=False)
    os.close(writer)
    assert done.returncode == 0
    assert serves(stage)


@pytest.mark.skipif(shutil.which("dash") is None, reason="needs dash")
def test_script_goes_on_after_a_hang_up(stage: Stage, stubborn: tuple[int, int]) -> None:
    made = write.write(stage.plan, stage.plan.rollback_dir)
    terminal = on_a_terminal(["dash", str(made)])
    terminal.read_until(b"ending pid")
    os.close(terminal.master)
    os.kill(terminal.pid, signal.SIGHUP)
    assert terminal.ended() == 0
    assert serves(stage)
    running = stage.running()
    with open(f"/proc/{running[0]}/status") as file:
        ignored = next(int(x.split()[1], 16) for x in file if x.startswith("SigIgn:"))
    assert not ignored & 1 << (signal.SIGTSTP - 1), "the baseline gets the usual signals back"
