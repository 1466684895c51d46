"""Starting a runner that outlives its terminal, and waiting until it says it has begun."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import threading
from pathlib import Path

from console.common.errors import ConsoleError, Exit
from console.common.paths import module_argv
from console.common.text import clean_lines, one_line
from console.host import bounded
from console.host.linger import Detachment, detachment
from console.journal.run_dir import RunDir

HANDSHAKE_S = 300.0
"""A big baseline may take its time for the one completion; the wait is shown."""

UNIT_S = 30.0
"""How long systemd may take to start or end the unit."""

GONE_S = 5.0
"""How long a runner that refused may take to end."""


class NotStarted(ConsoleError):
    """The runner refused before any effect; carries its own exit code."""

    def __init__(self, title: str, detail: str, hint: str, code: int) -> None:
        super().__init__(title, detail, hint)
        self.exit_code = Exit(code)


def launch(run: RunDir, *options: str, timeout_s: float = HANDSHAKE_S) -> Detachment:
    """Start the runner and wait for its word. Raises NotStarted when it refused."""
    how = detachment()
    argv = [*module_argv("console.cli"), "runner", str(run.path), *options]
    if how.unit:
        _launch_unit(run, argv, timeout_s)
    else:
        _launch_child(run, argv, timeout_s)
    return how


def _launch_unit(run: RunDir, argv: list[str], timeout_s: float) -> None:
    # a unit inherits no descriptors: it says its word in a file that this side polls
    said = run.path / "runner.word"
    said.unlink(missing_ok=True)
    argv = [
        "systemd-run", "--user", "--collect", "--quiet", f"--unit={unit_of(run)}",
        # the ladder and the baseline are children of the runner and have to outlive it
        "--property=KillMode=process",
        # a candidate that the kernel's OOM killer ends must not take the runner along
        "--property=OOMPolicy=continue",
        # names only: values in an argv could be read by everybody, secrets among them
        *(f"--setenv={name}" for name in _environment_names()), *argv,
    ]  # fmt: skip
    try:
        _start_unit(argv)
        word = _poll_word(said, timeout_s)
    except BaseException:  # Ctrl-C, too: what nobody waits for must not begin
        _stop_unit(run)
        raise
    if not word:
        _stop_unit(run)
    _judge(word, run)


def _launch_child(run: RunDir, argv: list[str], timeout_s: float) -> None:
    read_end, write_end = os.pipe()
    log = os.open(run.runner_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            [*argv, f"--ready-fd={write_end}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, pass_fds=(write_end,),
        )  # fmt: skip
    finally:
        os.close(write_end)
        os.close(log)
    word = _read_word(read_end, timeout_s)
    try:
        _judge(word, run)
    except NotStarted:
        # what refused holds the host lock until it is gone; the next try must not meet it
        if child.poll() is None and not word:
            child.kill()  # it never said a word: nothing of it may go on behind our back
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GONE_S)
        raise
    # Waited for, so that it never stays a zombie of a long-lived caller.
    with contextlib.suppress(RuntimeError):  # no thread left: a zombie at worst
        threading.Thread(target=child.wait, name="runner-reaper", daemon=True).start()


def _start_unit(argv: list[str]) -> None:
    try:
        code, _, said = bounded.run(argv, UNIT_S, env=os.environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        code, said = 1, str(error).encode()
    if code != 0:
        detail = one_line(said.decode("utf-8", "replace"))
        raise NotStarted("systemd-run could not start the runner", detail, "", int(Exit.INTERNAL))


def _stop_unit(run: RunDir) -> None:
    """At best effort: a runner that begins all the same is shown by `runs`."""
    argv = ["systemctl", "--user", "kill", "--kill-who=main", "--signal=KILL", unit_of(run)]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        bounded.run(argv, UNIT_S, env=os.environ)


def unit_of(run: RunDir) -> str:
    return f"omni-console-{run.id}.service"


def _environment_names() -> list[str]:
    """Variables of this shell; a unit starts without them, and secrets may come from any."""
    return [name for name in os.environ if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]


def _read_word(read_end: int, timeout_s: float) -> bytes:
    data = b""
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], timeout_s)[0]:
            chunk = pipe.read(65536)
            if not chunk:
                break
            data += chunk
            if data.endswith(b"\n"):
                break
    return data


def _poll_word(path: Path, timeout_s: float) -> bytes:
    import time

    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if path.exists():
            return path.read_bytes()
        time.sleep(0.05)
    return b""


def _judge(word: bytes, run: RunDir) -> None:
    try:
        answer = json.loads(word)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        log = run.runner_log.read_text("utf-8", "replace") if run.runner_log.exists() else ""
        tail = "\n".join(clean_lines(log)[-8:])
        raise NotStarted("the runner died before it began", tail, str(run.runner_log), 1)
    if not answer.get("ok"):
        raise NotStarted(
            str(answer.get("title", "the runner refused")), str(answer.get("detail", "")),
            str(answer.get("hint", "")), int(answer.get("exit", 1)),
        )  # fmt: skip
