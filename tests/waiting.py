"""Waiting for a condition in a test, and what is said when it does not come true; and values that
have to be there."""

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

from console.common.errors import HostBusy
from console.journal.lock import HostLock

T = TypeVar("T")
LIMIT_S = 60.0
"""Generous on purpose: a wait ends when its condition is true, and a busy machine is no failure."""
PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.05
PAUSES = 3
"""A condition is looked at again after so many times what the look took: whoever waits leaves the
processors to what is waited for."""
BUSIEST = 6


def until(
    condition: Callable[[], T | None],
    what: str = "",
    limit_s: float = LIMIT_S,
    where: Callable[[], str] | None = None,
) -> T:
    """Poll a condition and return its first true value.

    Raises AssertionError after `limit_s` seconds, with `what` was awaited, what `where` says about
    the thing under test (a run's state, its last events), and what else kept the machine busy.
    """
    deadline = time.monotonic() + limit_s
    while True:
        begun = time.monotonic()
        if value := condition():
            return value
        if (now := time.monotonic()) >= deadline:
            raise AssertionError(ran_out(what or repr(condition), limit_s, where))
        time.sleep(min(LONGEST_PAUSE_S, max(PAUSE_S, PAUSES * (now - begun))))


def some(value: T | None) -> T:
    """The value, which is there."""
    assert value is not None
    return value


def ran_out(what: str, limit_s: float, where: Callable[[], str] | None = None) -> str:
    """The message of a wait that ran out."""
    parts = [f"did not come true within {limit_s:g} s: {what}"]
    if where is not None:
        try:
            parts.append(where())
        except Exception as error:  # the report of a failure must not hide the failure
            parts.append(f"(where it stood cannot be told: {error!r})")
    return "\n".join([*parts, "busiest processes meanwhile:", *busiest()])


def busiest(seconds: float = 0.3) -> list[str]:
    """The processes that use the most CPU now, one line each: percent, pid, command."""
    watched = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            process.cpu_percent()
            watched.append(process)
    time.sleep(seconds)
    found = []
    for process in watched:
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline()) or process.name()
            found.append((process.cpu_percent(), process.pid, words[:120]))
    found.sort(reverse=True)
    return [f"  {share:5.0f} %  {pid:>7}  {words}" for share, pid, words in found[:BUSIEST]]


def host_is_free() -> bool:
    """Whether no run holds the host at this moment."""
    try:
        HostLock().release()
    except HostBusy:
        return False
    return True
