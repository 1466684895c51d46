"""Total deadlines for calls that only know how to wait.

A timeout of the engine's library counts from one received byte to the next, so a reply that drips
outlasts it, and building a client hangs on a frozen engine. Here the whole call has one deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from console.common.errors import EngineTimeout
from console.common.units import format_duration

T = TypeVar("T")

HINT = "is the engine frozen, or the machine out of memory? `docker ps` shows whether it answers"


class Cancelled(Exception):
    """The caller's `cancelled` event was set; `what` was stopped before it was done."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class _Outcome(Generic[T]):
    """What one call came to; written by its thread, read after `done`."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call
        self.done = threading.Event()
        self.value: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value.append(self.call())
        except BaseException as error:  # handed over whole to the thread that asked
            self.error = error
        finally:
            self.done.set()


def within(seconds: float, what: str, call: Callable[[], T], hint: str = HINT) -> T:
    """What `call` returns or raises, or EngineTimeout when it takes longer than `seconds` in all.

    Each call has a daemon thread of its own: a stuck one blocks neither the others nor the exit.
    The stuck call is abandoned, not undone; its effect may still happen.
    """
    outcome = _Outcome(call)
    threading.Thread(target=outcome.run, name=f"within: {what}"[:60], daemon=True).start()
    if not outcome.done.wait(seconds):
        raise EngineTimeout(f"{what} did not answer within {format_duration(seconds)}", "", hint)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value[0]
