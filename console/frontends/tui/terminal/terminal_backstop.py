"""The last way out: a signal that asks to leave is obeyed even when the UI loop does nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

LEAVING = (signal.SIGTERM, signal.SIGHUP)
GRACE_S = 3.0
"""What the app has to end by itself."""


AWAITED_S = 150.0
"""The longest that a run which is being started is waited for."""


class Backstop:
    """Watches for the signals in LEAVING in a thread of its own.

    `last` gives the terminal back; then the process ends at once, with 128 + the signal's number.
    """

    def __init__(self, last: Callable[[], object], grace_s: float = GRACE_S) -> None:
        self._last = last
        self._grace_s = grace_s
        self._begun = threading.Lock()
        self.awaited: list[threading.Thread] = []
        """What must not be cut off half way: a run that is being started."""
        self._others = -1
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._read, True)
        self._thread = threading.Thread(target=self._watch, name="terminal-signals", daemon=True)

    def start(self) -> None:
        """Begin to watch; from the main thread."""
        self._thread.start()
        self.arm()

    def arm(self) -> None:
        """Hear the signals before anyone else; cheap, and nothing outside the main thread.

        An event loop takes the place over when a handler is added to it: what it has to hear is
        passed on to it.
        """
        if threading.current_thread() is threading.main_thread():
            others = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            if others != self._write:
                self._others = others

    def begin(self, number: int) -> None:
        """Leave in `grace_s` for the reason of signal `number`, unless the process has ended."""
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
        time.sleep(self._grace_s)
        for thread in self.awaited:
            thread.join(AWAITED_S)
        try:
            self._last()
        finally:
            os._exit(128 + number)
