"""Sends to a terminal that may block: the caller never waits, no sequence is cut.

Frames that wait too long are dropped whole; when the terminal accepts output again, a full repaint
is requested. Modes (alternate screen, cursor, keyboard, mouse) are kept: they restore the terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

LIMIT = 256 * 1024
"""Bytes that may wait for the terminal before frames are dropped."""
STALE_S = 1.0
"""A frame that waited this long is dropped, and all that wait with it."""
CLOSE_S = 1.0
CHUNK = 4096
SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
MODES = re.compile(r"(?:\x1b\[[?<>=][0-9;]*\$?[a-z])+")
CANCEL = b"\x18"
"""Ends whatever sequence a terminal is in the middle of."""

LEAVING = (signal.SIGTERM, signal.SIGHUP)
LEAVE_S = 3.0
"""Seconds for the app to end by itself."""

AWAITED_S = 150.0
"""Most seconds to wait for a run that is being started."""


@dataclass(slots=True)
class _Item:
    data: bytes
    at: float
    mode: bool


class _GivenUpError(Exception):
    """The time to end is over."""


class TerminalWriter:
    """Writes to the terminal `fileno` in a thread of its own.

    `repaint` is called, in that thread, when frames were dropped and output works again.
    """

    def __init__(self, fileno: int, encoding: str, repaint: Callable[[], object]) -> None:
        self._fd, self._own = _own(fileno)
        self._encoding = encoding
        self._repaint = repaint
        self._ready = threading.Condition()  # reentrant: a signal handler may write too
        self._queue: deque[_Item] = deque()
        self._sending: _Item | None = None
        self._waiting = 0
        self._dropped = False
        self._failed = False
        self._sync = False
        self._give_up_at: float | None = None
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        self._thread = threading.Thread(target=self._run, name="terminal-output", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def write(self, text: str) -> None:
        """Send whole sequences; returns at once, whatever the terminal does."""
        sync = text in (SYNC_START, SYNC_END)
        item = _Item(
            text.encode(self._encoding, "replace"),
            time.monotonic(),
            not sync and MODES.fullmatch(text) is not None,
        )
        with self._ready:
            self._sync |= sync
            if item.mode:
                self._keep(item)
            elif self._give_up_at is None:
                self._draw(item)
            self._ready.notify()

    def _keep(self, item: _Item) -> None:
        """Keep the last value of each mode; earlier ones are dropped while it blocks."""
        if self._dropped:
            for same in [held for held in self._queue if held.data == item.data]:
                self._take(same)
        self._put(item)

    def _draw(self, item: _Item) -> None:
        late = bool(self._queue) and item.at - self._queue[0].at > STALE_S
        if self._dropped or late or (self._waiting and self._waiting + len(item.data) > LIMIT):
            self._drop()
            self._dropped = True
        else:
            self._put(item)

    def _drop(self) -> None:
        for frame in [held for held in self._queue if not held.mode]:
            self._take(frame)

    def _put(self, item: _Item) -> None:
        self._queue.append(item)
        self._waiting += len(item.data)

    def _take(self, item: _Item) -> None:
        self._queue.remove(item)
        self._waiting -= len(item.data)

    def stop(self, limit_s: float = CLOSE_S) -> None:
        """Send the waiting modes, then end; a blocked terminal gets `limit_s`."""
        with self._ready:
            if any(not held.mode for held in self._queue):
                self._drop()
                self._dropped = True
            if self._dropped and self._sync:  # before the modes that give the terminal back
                self._queue.appendleft(_Item(SYNC_END.encode(), time.monotonic(), True))
                self._waiting += len(SYNC_END)
            self._give_up_at = time.monotonic() + limit_s
            self._ready.notify()
        if self._thread.is_alive():
            self._thread.join(limit_s + 0.5)

    # -- in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._next():
                pass
        except _GivenUpError:
            self._last_words()
        finally:
            if self._own:
                os.close(self._fd)

    def _next(self) -> bool:
        """Send what is next; False at the end."""
        with self._ready:
            while not (self._queue or self._dropped or self._give_up_at is not None):
                self._ready.wait()
            item = self._sending = self._queue.popleft() if self._queue else None
            caught_up = self._dropped and item is None
            closing = self._give_up_at is not None
            if caught_up:
                self._dropped = False
            elif item is None:
                return False
        try:
            if item is not None:
                self._send(item.data)
            elif self._sync and not closing:
                self._send(SYNC_END.encode())
        except OSError:
            # a terminal that is gone: nothing may pile up, and whoever writes must not notice
            self._clear()
            return True
        with self._ready:
            self._waiting -= len(item.data) if item else 0
            self._sending = None
            if self._failed and (item or self._sync):  # it takes again
                self._dropped, self._failed = True, False
        if caught_up and not closing:
            self._repaint()
        return True

    def _clear(self) -> None:
        with self._ready:
            self._queue.clear()
            self._waiting = 0
            self._sending = None
            self._dropped = False
            self._failed = True

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if self._give_up_at is not None and time.monotonic() > self._give_up_at:
                raise _GivenUpError
            try:
                rest = rest[os.write(self._fd, rest[:CHUNK]) :]
            except BlockingIOError:
                if self._poll.poll(100):
                    time.sleep(0.002)  # another writer may hold the terminal

    def _last_words(self) -> None:
        """Drop unread frames in favour of the modes, for whoever reads later."""
        if not self._own:
            return
        with self._ready:
            held = [item for item in (self._sending, *self._queue) if item and item.mode]
        with contextlib.suppress(OSError, termios.error):
            if in_front(self._fd):
                termios.tcflush(self._fd, termios.TCOFLUSH)
            end = SYNC_END.encode() if self._sync else b""
            os.write(self._fd, CANCEL + end + b"".join(item.data for item in held))


def _own(fileno: int) -> tuple[int, bool]:
    """The same terminal, reopened so that only our writes do not block; else `fileno` itself."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{fileno}", flags), True
    except OSError:
        return fileno, False


def in_front(fileno: int) -> bool:
    """Whether this process may change the terminal's modes: not while a shell shows its prompt."""
    try:
        return os.tcgetpgrp(fileno) == os.getpgrp()
    except OSError:
        return True


class Backstop:
    """The last way out: obeys a signal to leave even when the UI loop hangs. `last` restores the
    terminal; then the process ends at once, with 128 + the signal's number."""

    def __init__(self, last: Callable[[], object]) -> None:
        self._last = last
        self._begun = threading.Lock()
        self.awaited: list[threading.Thread] = []
        """Work that must not be cut off: a run that is being started."""
        self._others = -1
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._read, True)
        self._thread = threading.Thread(target=self._watch, name="terminal-signals", daemon=True)

    def start(self) -> None:
        """Start watching; from the main thread."""
        self._thread.start()
        self.arm()

    def arm(self) -> None:
        """Receive signals before anyone else; cheap, does nothing outside the main thread.

        An event loop takes over when a handler is added to it, so its signals are passed on to it.
        """
        if threading.current_thread() is threading.main_thread():
            others = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            if others != self._write:
                self._others = others

    def begin(self, number: int) -> None:
        """End within LEAVE_S because of signal `number`, unless the process ends first."""
        if self._begun.acquire(blocking=False):
            threading.Thread(
                target=self._leave, args=(number,), name="terminal-leave", daemon=True
            ).start()

    def _watch(self) -> None:
        while True:
            numbers = os.read(self._read, 64)
            for number in numbers:
                if number in LEAVING:
                    self.begin(number)
            with contextlib.suppress(OSError):
                os.write(self._others, numbers)

    def _leave(self, number: int) -> None:
        time.sleep(LEAVE_S)
        for thread in self.awaited:
            thread.join(AWAITED_S)
        try:
            self._last()
        finally:
            os._exit(128 + number)
