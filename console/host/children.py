"""Calls, commands and children that may hang: waited for with a limit, then left behind.

Standard library only; the emergency side uses this.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from console.common.clock import Clock
from console.common.errors import EngineTimeout, ServiceError
from console.common.text import one_line
from console.common.units import format_duration

T = TypeVar("T")

HINT = "is the engine frozen, or the machine out of memory? `docker ps` shows whether it answers"

_unwatched: list[subprocess.Popen[bytes]] = []

MAX_BACKOFF_S = 30.0
LIVED_S = 10.0
"""A child that lived for less never got to work: the next start is delayed more."""
MAX_SAID = 1 << 20
_CHUNK = 1 << 16
_MAX_LINE = 1 << 20


class Cancelled(Exception):
    """The caller's `cancelled` event was set; `what` was stopped before it was done."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def within(
    seconds: float,
    what: str,
    call: Callable[[], T],
    hint: str = HINT,
    patience: Callable[[], float] | None = None,
) -> T:
    """What `call` returns or raises, or EngineTimeout when it takes longer than `seconds` in all,
    or when the seconds that `patience` gives it, asked again and again, are none.

    For calls that cannot be interrupted: a timeout of the engine's library counts from byte to
    byte, so a dripping reply outlasts it, and building a client hangs on a frozen engine. Each call
    has its own daemon thread: a stuck one blocks neither the others nor the exit. It is abandoned,
    not undone; its effect may still happen.
    """
    value: list[T] = []
    failure: list[BaseException] = []
    done = threading.Event()

    def attempt() -> None:
        try:
            value.append(call())
        except BaseException as error:  # handed over whole to the thread that asked
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=attempt, name=f"within: {what}"[:60], daemon=True).start()
    end = time.monotonic() + seconds
    while not done.wait(min(left := end - time.monotonic(), patience() if patience else left)):
        if time.monotonic() >= end or (patience is not None and patience() <= 0):
            words = f"{what} did not answer within {format_duration(seconds)}"
            raise EngineTimeout(words, "", hint)
    if failure:
        raise failure[0]
    return value[0]


def run(
    argv: Sequence[str], seconds: float, *, env: Mapping[str, str], merge: bool = False,
    given: bytes | None = None,
) -> tuple[int, bytes, bytes]:  # fmt: skip
    """Exit code, stdout and stderr (`merge`: all in stdout) of a command in a session of its own.

    What does not end in time is killed and left behind: `subprocess.run` waits without bound for a
    child that SIGKILL does not end (state D: a driver, a dead file system). `given`: its stdin.
    Raises OSError if it cannot be run, subprocess.TimeoutExpired at the deadline, at once.
    """
    child = subprocess.Popen(
        list(argv),
        env=dict(env),
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merge else subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, error = child.communicate(given, timeout=seconds)
    except BaseException:
        abandon(child)
        raise
    return child.returncode, out, error or b""


def capture(argv: Sequence[str], seconds: float, *, env: Mapping[str, str]) -> tuple[bytes, bool]:
    """What a command wrote to stdout until it ended, or until the deadline (then True), at most
    MAX_SAID bytes; whatever it started and left behind is killed, and may have stdout open. Raises
    OSError if it cannot be run."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            list(argv), env=dict(env), stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            child.wait(seconds)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        finally:
            abandon(child)
        out.seek(0)
        return out.read(MAX_SAID), late


def abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill a session's leader and all of it without waiting: in a driver (state D) it may stay."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        threading.Thread(target=child.wait, name=f"reaper-{child.pid}", daemon=True).start()
    except RuntimeError:  # no thread left: a zombie at worst
        _unwatched.append(child)


class Child:
    """A child process that may hang or die without harm: its lines are read without waiting.

    It ends with its stdin; one that dies is restarted, each time later, up to MAX_BACKOFF_S. Call
    `tend()` at every tick; only a start waits (2 to 5 ms). `died`: how often it ended by itself;
    `how`: how it ended last, "" while all is well.
    """

    def __init__(self, argv: Sequence[str], clock: Clock) -> None:
        self._argv = list(argv)
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._out = self._into = -1
        self._begun = self.due = clock.monotonic()
        self.deaths = 0
        """How often in a row it ended before it had lived for LIVED_S."""
        self._rest = b""
        self.prepare: Callable[[int], None] = lambda pid: None
        """Called with each started pid, which inherits the caller's priority."""
        self.fresh = False
        """Whether a start has happened that its owner has not seen yet."""
        self.died = 0
        self.how = ""

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def descriptor(self) -> int:
        """What to poll for lines; -1 while there is no child."""
        return self._out

    def tend(self) -> list[bytes]:
        """Start it if it is due; return the complete lines written since the last call."""
        if self._process is None and self._clock.monotonic() >= self.due:
            self._start()
        lines = self._lines() if self._out >= 0 else []
        if self._out < 0 and self._process is not None:
            self._reap()
        return lines

    def send(self, line: bytes) -> bool:
        """Give it a line; False if it cannot take one now."""
        if self._into < 0:
            return False
        try:
            return os.write(self._into, line + b"\n") == len(line) + 1
        except OSError:
            return False

    def kill(self) -> None:
        """End it now; `tend` starts it again."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)

    def close(self, wait_s: float = 0.0) -> None:
        """Let it end with its stdin; kill it after `wait_s`. One that cannot die is left behind."""
        self.due = float("inf")
        self._shut(into=True)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
            self.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
                self._process = None
        self._shut()

    def _start(self) -> None:
        self._begun = self._clock.monotonic()
        try:
            # Popen starts it with vfork: no page of a locked process is copied.
            child = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            self._ended(f"it cannot be started ({error.strerror})")
            return
        assert child.stdin is not None
        assert child.stdout is not None
        self._into, self._out = os.dup(child.stdin.fileno()), os.dup(child.stdout.fileno())
        child.stdin.close()
        child.stdout.close()
        for descriptor in (self._into, self._out):
            os.set_blocking(descriptor, False)
        self._process, self._rest, self.fresh = child, b"", True
        self.prepare(child.pid)

    def _lines(self) -> list[bytes]:
        try:
            data = os.read(self._out, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._shut()
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE:
            self._rest = b""
        return lines

    def _reap(self) -> None:
        assert self._process is not None
        status = self._process.poll()
        if status is None:
            self.kill()  # it closed its output: it has nothing more to say
            return
        self._process = None
        self._ended(f"signal {-status}" if status < 0 else f"exit status {status}")

    def _ended(self, how: str) -> None:
        now = self._clock.monotonic()
        self.deaths = self.deaths + 1 if now - self._begun < LIVED_S else 1
        self.died, self.how = self.died + 1, how
        self.due = now + min(MAX_BACKOFF_S, 2.0 ** (self.deaths - 1))

    def _shut(self, into: bool = False) -> None:
        if self._into >= 0:
            os.close(self._into)
            self._into = -1
        if self._out >= 0 and not into:
            os.close(self._out)
            self._out = -1


KEPT_ENVIRONMENT = (
    "PATH", "HOME", "LANG", "USER", "LOGNAME", "TZ", "TMPDIR",
    "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SSL_CERT_FILE",
)  # fmt: skip
KEPT_PREFIXES = ("LC_", "XDG_")


def kept(source: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The allow-listed part of an environment."""
    allowed = (*KEPT_PREFIXES, *(f"{key}=" for key in KEPT_ENVIRONMENT))
    return {key: value for key, value in source.items() if f"{key}=".startswith(allowed)}


def start_error(program: str, cwd: str, error: OSError | ValueError) -> ServiceError:
    """The error for a `program` that could not be started in the directory `cwd`."""
    program_name = one_line(program)
    code = error.errno if isinstance(error, OSError) else None
    where = os.fsdecode(error.filename) if isinstance(error, OSError) and error.filename else ""
    if cwd and where == cwd and where != program:
        what = f"bad working directory {one_line(cwd)}: {_reason(error)}"
    elif code == errno.ENOENT:
        what = f"{program_name}: not found"
    elif code == errno.EACCES:
        what = f"{program_name}: not executable"
    else:
        what = f"{program_name}: {_reason(error)}"
    return ServiceError("the process did not start", what)


def _reason(error: OSError | ValueError) -> str:
    return one_line((error.strerror if isinstance(error, OSError) else "") or str(error))
