"""A real pseudo terminal with a terminal emulator behind it: what an operator sees and presses."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping

import pyte

from tests.waiting import LIMIT_S, until

F12, CTRL_BACKSLASH = "\x1b[24~", "\x1c"
OPEN, CLOSE = "\x1b[200~", "\x1b[201~"
"""A paste in brackets."""
KEYS = {
    "f12": "\x1b[24~", "ctrl+backslash": "\x1c", "escape": "\x1b", "enter": "\r", "tab": "\t",
    "up": "\x1b[A", "down": "\x1b[B", "pageup": "\x1b[5~", "pagedown": "\x1b[6~", "f1": "\x1bOP",
    "ctrl+p": "\x10", "backspace": "\x7f", "space": " ", "home": "\x1b[H", "end": "\x1b[F",
    "ctrl+c": "\x03", "ctrl+q": "\x11", "ctrl+d": "\x04", "ctrl+u": "\x15", "shift+tab": "\x1b[Z",
}  # fmt: skip


class Terminal:
    """A command in a pty of its own. `raw` keeps every byte it sent; `lines` is the screen.

    Nobody reads what it sends while `reads` is clear.
    """

    def __init__(
        self,
        argv: list[str],
        env: Mapping[str, str],
        *,
        columns: int = 80,
        rows: int = 24,
        cwd: str | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.screen)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.raw = bytearray()
        self._lock = threading.Lock()
        self._over, self.reads = threading.Event(), threading.Event()
        self.reads.set()
        self.master, slave = pty.openpty()
        _size(slave, columns, rows)
        self.child = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, cwd=cwd,
            # what runs the tests may say how wide ITS terminal is
            env={name: env[name] for name in env if name not in ("COLUMNS", "LINES")},
            start_new_session=True, preexec_fn=_own_terminal,
        )  # fmt: skip
        os.close(slave)
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._over.is_set():
            if not self.reads.wait(0.02):
                continue
            try:
                if not select.select([self.master], [], [], 0.05)[0]:
                    continue
                data = os.read(self.master, 65536)
            except (OSError, ValueError):
                return
            if not data:
                return
            with self._lock:
                self.raw += data
                with contextlib.suppress(Exception):  # the emulator's own gaps are not ours
                    self._stream.feed(self._decode(data))

    @property
    def lines(self) -> list[str]:
        with self._lock:
            # not Screen.display: that stumbles over the overwritten half of a wide character
            screen = self.screen
            cells = [
                [screen.buffer[y][x].data for x in range(screen.columns)]
                for y in range(screen.lines)
            ]
            return ["".join(row).rstrip() for row in cells]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, what: str | Callable[[], object], timeout_s: float = LIMIT_S) -> None:
        true = (lambda: what in self.text) if isinstance(what, str) else what
        until(true, repr(what), timeout_s, where=lambda: self.text)

    def comes(self, what: str | Callable[[], object], timeout_s: float) -> bool:
        """Whether the screen shows a text, or a condition holds, within so many seconds."""
        true = (lambda: what in self.text) if isinstance(what, str) else what
        deadline = time.monotonic() + timeout_s
        while not (found := true()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return bool(found)

    def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self.master, KEYS.get(key, key).encode())
            time.sleep(0.02)

    def settle(self, quiet_s: float = 0.25, max_s: float = 3.0) -> None:
        """Wait until nothing comes for a moment: what a key has changed is drawn."""
        begun = time.monotonic()
        held, since = len(self.raw), begun
        while (now := time.monotonic()) - since < quiet_s and now - begun < max_s:
            if len(self.raw) != held:
                held, since = len(self.raw), now
            time.sleep(0.03)

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self.screen.resize(rows, columns)
        _size(self.master, columns, rows)
        os.killpg(self.child.pid, signal.SIGWINCH)

    def close(self) -> None:
        """Hang up: the pty goes away, as when an ssh client dies."""
        # the reader first: what another thread opens next may get the number of this descriptor
        self._over.set()
        self._reader.join()
        master, self.master = self.master, -1
        with contextlib.suppress(OSError):
            os.close(master)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(30)
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait(30)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _size(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
