"""Lends the console's terminal to another program, and takes it back when that has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO

from console.common.files import end_of, in_memory
from console.common.text import one_line

BROWSER = "OMNI_BROWSER"
"""Set for a console whose terminal is a page in a browser."""
UNABLE = 255
"""The code of a guest that cannot be started: that with which ssh fails."""
MAX_WORDS = 8192
BOTH_S = 0.1
"""Seconds in which a key that stops both has stopped the console, too."""
KEPT = (signal.SIGINT, signal.SIGQUIT)
"""Signals of the keyboard that are meant for the guest."""


@dataclass(frozen=True, slots=True)
class Left:
    """How a guest ended: its exit code, and the last line that it wrote to stderr, clean."""

    code: int
    words: str = ""


async def lend(
    suspended: AbstractContextManager[None], argv: Sequence[str], greeting: str, restore: str
) -> Left:
    """Run a program in this terminal. `suspended`: while the app leaves it alone; `restore`: ends
    the modes that a program may leave behind which did not end by itself. Never raises OSError."""
    with _left_well(suspended), _keyboard_is_the_guests():
        try:
            with in_memory() as errors:
                return await _run(argv, greeting, restore, errors)
        except OSError as error:
            return Left(UNABLE, one_line(str(error)))


async def _run(argv: Sequence[str], greeting: str, restore: str, errors: IO[bytes]) -> Left:
    sys.stderr.write(f"{greeting}\n")
    sys.stderr.flush()
    child, ended = subprocess.Popen(argv, stderr=errors), False
    try:
        code = await _end_of(child)
        ended = code == 0
    finally:
        if child.returncode is None:
            child.terminate()
        if not ended:
            sys.stderr.write(restore)
            sys.stderr.flush()
    return Left(code, _last_line(errors))


@contextlib.contextmanager
def _left_well(context: AbstractContextManager[None]) -> Iterator[None]:
    """Leave a context as if its block had ended well, also where that was cancelled: Textual takes
    the terminal back only then."""
    context.__enter__()
    try:
        yield
    finally:
        context.__exit__(None, None, None)


async def _end_of(child: subprocess.Popen[bytes]) -> int:
    """Its exit code, minus the number of a signal; the event loop goes on."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[int] = loop.create_future()

    def tell(code: int) -> None:
        if not over.done():
            over.set_result(code)

    def wait() -> None:
        code = _wait(child)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the console has ended
            loop.call_soon_threadsafe(tell, code)

    threading.Thread(target=wait, name="guest", daemon=True).start()
    return await over


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for its end. One that stops itself, as ssh does at `Enter ~ ^Z`, stops the console too:
    they are one job of the shell, which has the terminal then."""
    with contextlib.suppress(ChildProcessError):  # another thread has seen its end
        kinds = os.WEXITED | os.WSTOPPED | os.WNOWAIT
        while (child_state := os.waitid(os.P_PID, child.pid, kinds)) is not None:
            if child_state.si_code != os.CLD_STOPPED:
                break
            time.sleep(BOTH_S)
            child_state = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG)
            if child_state is not None and child_state.si_status == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
    return child.wait()


@contextlib.contextmanager
def _keyboard_is_the_guests() -> Iterator[None]:
    """Ctrl-C ends the guest alone; afterwards the terminal is as it was before, and keys that were
    meant for the guest are gone."""
    terminal = sys.__stdin__.fileno() if sys.__stdin__ is not None else 0
    before = termios.tcgetattr(terminal)
    # no SIG_IGN: the guest would inherit it
    handlers = [(number, signal.signal(number, lambda *_: None)) for number in KEPT]
    try:
        yield
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)
            termios.tcflush(terminal, termios.TCIFLUSH)


def _last_line(errors: IO[bytes]) -> str:
    lines = [one_line(line) for line in end_of(errors, MAX_WORDS).splitlines()]
    return next((line for line in reversed(lines) if line), "")
