"""The operator's side of a bridge: one ssh connection for each host, and questions over it.

OpenSSH does everything: the operator's own configuration applies, and every command to a host in
the next minute shares its connection. A host that does not answer is not known, never down.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from console.common.errors import ConsoleError, Exit, UsageError
from console.common.files import end_of, in_memory, write_all
from console.common.text import clean, decode, one_line
from console.fleet.inventory import Host
from console.fleet.protocol import (
    HELLO,
    MAX_NOISE,
    VERSION,
    BridgeError,
    LineLost,
    Lines,
    line,
    parsed,
    refusal,
)
from console.recovery.rollback.shell.program_gone import script_of_login

T = TypeVar("T")
CONNECT_S = 10
PERSIST_S = 60
ALIVE_S, ALIVE_TIMES = 5, 3
"""A connection without a word for that long, that many times, is lost."""
HELLO_S, ANSWER_S, PLAN_S, START_S = 25.0, 30.0, 120.0, 400.0
"""A plan looks at images and models; a start waits for the baseline's completion and the runner's
word."""
ROLLBACK_S = 3600.0
"""A rollback waits for the load of a model."""
END_S = 2.0
MAX_WORDS = 8192
SSH_FAILED, NOT_FOUND = 255, (126, 127)
NO_MODULE = "No module named"
"""What Python says where the console's files are gone."""
NO_CONSOLE = "no_console"
"""The code where there is nothing on the host that could be asked."""
ASKS = ("Permission denied", "Host key verification failed")
"""What ssh says where it would have asked a person."""


def options(control: Path | None) -> list[str]:
    """What every ssh of the console is told; `control`: where its connections are shared."""
    given = {
        "BatchMode": "yes", "ConnectTimeout": CONNECT_S, "ServerAliveInterval": ALIVE_S,
        "ServerAliveCountMax": ALIVE_TIMES, "ClearAllForwardings": "yes", "ForwardAgent": "no",
        "ForwardX11": "no", "PermitLocalCommand": "no", "RequestTTY": "no",
        "RemoteCommand": "none",
    }  # fmt: skip
    if control is not None:
        given |= {
            "ControlMaster": "auto", "ControlPath": control / "%C", "ControlPersist": PERSIST_S,
        }  # fmt: skip
    else:
        given |= {"ControlMaster": "no", "ControlPath": "none"}
    return [word for name, value in given.items() for word in ("-o", f"{name}={value}")]


def console_argv(host: Host, control: Path | None, *arguments: str) -> list[str]:
    """The host's own console in this terminal, where ssh may ask a person for a password."""
    asks = ("-t", "-o", "BatchMode=no")  # ssh takes what it is told first
    return ["ssh", *asks, *options(control), host.ssh, host.words(*arguments)]


def control_dir() -> Path | None:
    """A private directory for the sockets of shared connections, with a short path: below the
    user's runtime directory, else in /tmp. None if there is none that is this user's alone."""
    uid = os.getuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [Path(runtime) / "omni-console"] if runtime.startswith("/") else []
    for place in (*places, Path(f"/tmp/omni-console.{uid}")):
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700, exist_ok=True)
            info = os.lstat(place)
            mine = stat.S_ISDIR(info.st_mode) and info.st_uid == uid and not info.st_mode & 0o077
            if mine and len(str(place)) < 48:  # a socket's address has 107 bytes
                return place
    return None


class Line:
    """A bridge to one host. One thread asks; a line that was lost is opened anew by `open`."""

    def __init__(self, host: Host, control: Path | None) -> None:
        self.host, self.name = host, host.name
        self._control = control
        self.abandoned = False
        self._child: subprocess.Popen[bytes] | None = None
        self._lines: Lines | None = None
        self._errors: Any = None
        self._question_id = 0

    def open(self) -> Line:
        """Reach the host's bridge. Raises LineLost, and BridgeError if there is none."""
        self.close()
        if self.abandoned:
            raise LineLost(f"{self.host.name} was given up")
        argv = ["ssh", *options(self._control), self.host.ssh, self.host.words("bridge")]
        try:
            self._errors = in_memory()
            self._child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            if self._errors is not None:
                self._errors.close()
            hint = "install OpenSSH" if isinstance(error, FileNotFoundError) else ""
            raise UsageError("ssh cannot be started", str(error), hint) from error
        if self.abandoned:  # meanwhile: who gave it up had no ssh to end
            self._kill()
        assert self._child.stdout is not None
        self._lines = Lines(self._child.stdout.fileno())
        self._hello()
        return self

    def _hello(self) -> None:
        """Wait for the host's first word; what a login shell prints before it is skipped."""
        skipped, until = 0, time.monotonic() + HELLO_S
        while skipped < MAX_NOISE:
            try:
                data = self._next(until - time.monotonic(), HELLO_S)
            except BridgeError as error:
                if error.code != "too_large":
                    raise
                break
            skipped += len(data) + 1
            with contextlib.suppress(BridgeError):
                if HELLO in parsed(data):
                    return
        self.close()
        raise BridgeError(
            "failed", f"{self.host.name}: no bridge answers", "its login shell prints without end"
        )

    def ask(
        self, question: str, limit_s: float = ANSWER_S,
        said: Callable[[str], None] = lambda text: None, **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """The answer to one question, within `limit_s` after it or after the last words that came
        with it; whatever else the host prints gives it no more time. Raises LineLost when none
        comes: whether the host has heard it is then not known. Raises BridgeError for a refusal."""
        if self._child is None:
            self.open()
        child = self._child
        assert child is not None
        assert child.stdin is not None
        self._question_id += 1
        frame = line({"id": self._question_id, "v": VERSION, "ask": question, **more})
        try:
            write_all(child.stdin.fileno(), frame)
        except OSError:
            raise self._lost() from None
        skipped, until = 0, time.monotonic() + limit_s
        while True:
            data = self._next(until - time.monotonic(), limit_s)
            try:
                answer = self._of_question(data)
            except BridgeError:  # what a login has left running prints there, too
                skipped += len(data) + 1
                if skipped > MAX_NOISE:
                    raise
                continue
            if "said" in answer:
                until = time.monotonic() + limit_s
                said(clean(str(answer["said"]), 1000))
            elif answer.get("ok") is True:
                return answer
            else:
                raise self._refused(answer.get("error"))

    def _of_question(self, data: bytes) -> dict[str, Any]:
        """A line as a frame of the answer to the last question. Raises BridgeError for any other
        line."""
        frame = parsed(data)
        if frame.get("id") != self._question_id:
            raise BridgeError("bad_frame", f"{self.name}: a line answers nothing that was asked")
        return frame

    def _refused(self, raw_error: object) -> BridgeError:
        """What the host has said, behind its name; its hint is for a shell there."""
        error = refusal(raw_error)
        error.title = f"{self.name}: {error.title}"
        error.hint = error.hint and f"on {self.name}: {error.hint}"
        return error

    def act(self, question: str, limit_s: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        """Ask what acts: with a token of a moment ago, so that it does nothing if it arrives
        late."""
        return self.ask(question, limit_s, token=self.token(), **more)

    def token(self) -> str:
        """What one question that acts spends, a moment after it. Raises LineLost, BridgeError."""
        ready_token = self.ask("ready").get("token")
        if not isinstance(ready_token, str):
            words = f"{self.name}: its console takes no question that acts"
            raise BridgeError("version", words, "", "the same omni-console on both sides")
        return ready_token

    def run_script(self, tell: Callable[[str], None]) -> int:
        """Bring the baseline back by what the host's newest run has sealed, where there is no
        console that could be asked; `tell` gets its lines. How it ended: NO_SCRIPT without one,
        SSH_FAILED where the line was lost."""
        argv = ["ssh", *options(self._control), self.host.ssh, script_of_login()]
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as self._child:  # fmt: skip
            assert self._child.stdout is not None
            for raw in iter(partial(self._child.stdout.readline, MAX_WORDS), b""):
                tell(clean(decode(raw), 1000))
            code = self._child.wait()
        self._child = None
        return code

    def abandon(self) -> None:
        """End the ssh from another thread, for good: whoever waits for an answer has lost the
        line."""
        self.abandoned = True
        self._kill()

    def close(self) -> None:
        """End this bridge; the shared connection stays for a while, for the next command."""
        child, self._child, self._lines = self._child, None, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        self._errors.close()

    def _next(self, limit_s: float, of_s: float = 0.0) -> bytes:
        """The next line. Raises LineLost when none comes within `limit_s`, what is left of `of_s`;
        BridgeError for one that is too long."""
        assert self._lines is not None
        try:
            data = self._lines.next(limit_s)
        except TimeoutError:
            self._kill()
            self.close()
            words = f"no answer within {of_s or limit_s:.0f} s"
            raise LineLost(f"{self.host.name} cannot be reached", words) from None
        if data is None:
            raise self._lost()
        return data

    def _kill(self) -> None:
        """An ssh that waits for a dead connection does not end by itself."""
        if self._child is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _lost(self) -> ConsoleError:
        """Why the line has ended, from what ssh says."""
        child, errors = self._child, self._errors
        code = None
        if child is not None:
            try:
                code = child.wait(END_S)
            except subprocess.TimeoutExpired:
                self._kill()
        error_lines = [
            one_line(error_line) for error_line in end_of(errors, MAX_WORDS).splitlines()
        ]  # they say why
        words = next(
            (error_line for error_line in reversed(error_lines) if error_line),
            "the connection ended",
        )
        self.close()
        name = self.host.name
        if code in NOT_FOUND or (code == int(Exit.INTERNAL) and NO_MODULE in words):
            hint = f"install it there, or name it: hosts: {{{name}: {{command: /path/to/it}}}}"
            title = f"{name} has no omni-console"
            return BridgeError(NO_CONSOLE, title, words, hint, Exit.USAGE)
        if code == int(Exit.USAGE):
            hint = "the same omni-console on both sides"
            return BridgeError("version", f"{name}: its console has no bridge", words, hint)
        asks = any(phrase in words for phrase in ASKS)
        hint = f"`ssh {self.host.ssh} true` has to work without a question" if asks else ""
        return LineLost(f"{name} cannot be reached", words, hint)


def at_once(lines: Sequence[Line], ask: Callable[..., T], *more: Sequence[Any]) -> list[T]:
    """What `ask` returns of each line, all at the same time, each with its own of `more`. Ctrl-C
    gives all lines up, so that it waits for no host."""
    with ThreadPoolExecutor(max(1, len(lines))) as pool:
        try:
            return list(pool.map(ask, lines, *more))
        except KeyboardInterrupt:
            for connection in lines:
                connection.abandon()
            raise
