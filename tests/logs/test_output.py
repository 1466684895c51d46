"""Where a process writes what it says: its own file, or why there is none to read."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from console.common import paths
from console.common.logs.output import Output, of_process
from console.common.logs.tail import read_last
from console.host import process
from console.host.process import ProcessSpec
from console.journal.run_files import baseline_log
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.runner.prepare.adopt import set_log_aside

Start = Callable[..., int]
SAYS = [sys.executable, "-c", "import sys; print('said', flush=True); sys.stdin.read()"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process of its own session that says one word and waits; return its pid."""
    with ExitStack() as stack:

        def begin(stdout: Any, stderr: Any = subprocess.DEVNULL) -> int:
            child = stack.enter_context(
                subprocess.Popen(
                    SAYS, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr,
                    start_new_session=True,
                )
            )  # fmt: skip
            assert child.stdin is not None
            stack.callback(child.stdin.close)
            return child.pid

        yield begin


def test_its_own_file(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "server log"
    with log.open("ab") as out:
        pid = start(out, out)
        assert of_process(pid) == Output(log)


def test_a_file_that_only_its_errors_go_to(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as out:
        assert of_process(start(subprocess.DEVNULL, out)).path == log


def test_a_file_that_is_gone_or_is_another_one_is_still_read(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\n")
    with log.open("ab") as out:
        pid = start(out)
        log.rename(tmp_path / "log.1")
        output = of_process(pid)
        assert output == Output(tmp_path / "log.1"), "a rotated file has another name"
        (tmp_path / "log.1").unlink()
        output = of_process(pid)
    assert output.words == "its file was deleted"
    assert output.path is not None
    assert read_last(output.path, 5)[:1] == ["old"]


def test_others_that_write_to_the_same_file_are_named(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as out:
        one, other = start(out), start(out)
        assert of_process(one) == Output(tmp_path / "log", f"pid {other} writes to the same file")


def test_what_cannot_be_read_says_why(start: Start) -> None:
    null = of_process(start(subprocess.DEVNULL))
    assert (null.path, "nothing is kept" in null.words) == (None, True)
    read, write = os.pipe()
    try:
        pipe = of_process(start(write))
    finally:
        os.close(read)
        os.close(write)
    assert (pipe.path, "writes into a pipe" in pipe.words) == (None, True)
    primary, secondary = os.openpty()
    try:
        terminal = of_process(start(secondary))
    finally:
        os.close(primary)
        os.close(secondary)
    assert (terminal.path, "the terminal /dev/pts/" in terminal.words) == (None, True)
    assert of_process(2**22 + 1).words.endswith("has no output, or has ended")


def test_a_pipe_names_who_reads_it(start: Start) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
        assert reader.stdin is not None
        output = of_process(start(reader.stdin))
        assert f"which pid {reader.pid} (cat) reads" in output.words
        reader.stdin.close()
        reader.terminate()


def test_the_journal_is_named(tmp_path: Path) -> None:
    import socket

    one, other = socket.socketpair()
    with one, other:
        number = os.fstat(one.fileno()).st_ino
        (tmp_path / "7" / "fd").mkdir(parents=True)
        (tmp_path / "7" / "fd" / "1").symlink_to(f"/proc/{os.getpid()}/fd/{one.fileno()}")
        (tmp_path / "7" / "environ").write_bytes(b"A=1\0JOURNAL_STREAM=9:%d\0" % number)
        assert "`journalctl _PID=7` shows it" in of_process(7, tmp_path).words


@pytest.fixture
def plan(tmp_path: Path) -> SealedPlan:
    own = tmp_path / "state" / "baseline.log"
    own.parent.mkdir()
    own.write_text("an earlier server said this\n")
    base = Baseline(
        "baseline", "process", "http://127.0.0.1:1", process=ProcessSpec(tuple(SAYS)),
        records_dir=str(tmp_path / "records"), log=str(own),
    )  # fmt: skip
    return SealedPlan("r", "", base)


def take_over(plan: SealedPlan, pid: int) -> None:
    spec = plan.baseline.process
    assert spec is not None
    start = process.start_time(pid)
    assert start is not None
    process.write_record(plan.records_dir, "baseline", spec, pid, start)


def test_the_log_of_a_server_that_was_taken_over_is_its_own(
    start: Start, plan: SealedPlan, tmp_path: Path
) -> None:
    assert baseline_log(plan).path == Path(plan.baseline.log), "none is known to run"
    log = tmp_path / "nohup.out"
    with log.open("ab") as out:
        take_over(plan, start(out))
    file = baseline_log(plan)
    assert (file.name, file.path, file.note) == ("baseline", log, "")


def test_a_server_whose_output_cannot_be_read_says_why(start: Start, plan: SealedPlan) -> None:
    take_over(plan, start(subprocess.DEVNULL))
    file = baseline_log(plan)
    assert "nothing is kept" in file.note
    assert read_last(file.path, 5) == [], "and nothing of the earlier server"


def test_what_an_earlier_server_said_goes_under_another_name(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    log = paths.baseline_log("ws")
    log.parent.mkdir(parents=True)
    with log.open("ab") as out:
        pid = start(out)
        set_log_aside("ws", pid)
        assert log.exists(), "it is this very process's"
    set_log_aside("ws", start(subprocess.DEVNULL))
    assert (log.exists(), Path(f"{log}.before").exists()) == (False, True)
