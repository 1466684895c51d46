"""A rollback in the foreground goes on when its terminal goes away."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

AGAIN = b"\nthe rollback goes on; Ctrl-C again leaves it unfinished\n"


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hang-up and Ctrl-Z do nothing, the first Ctrl-C says so, the second one raises.

    Handlers and not SIG_IGN: what the ladder starts gets the usual behaviour back. Only the main
    thread may set them; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def interrupt(number: int, _: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        # Not print: this may have come in the middle of one.
        with contextlib.suppress(OSError):
            os.write(2, AGAIN)

    before = {
        signal.SIGHUP: signal.signal(signal.SIGHUP, _nothing),
        signal.SIGTSTP: signal.signal(signal.SIGTSTP, _nothing),
        signal.SIGINT: signal.signal(signal.SIGINT, interrupt),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _nothing(number: int, _: object) -> None:
    pass
