"""Asks the kernel for what lets a process run when everything else stalls.

Each function returns what was granted, read back: a refusal shows nowhere else. Standard library
only.
"""

from __future__ import annotations

import contextlib
import os

from console.common.files import write_at_once

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_OOM = "/proc/{}/oom_score_adj"


def lock_memory() -> str:
    """Best-effort mlockall; return in words what was locked.

    Future pages are locked only without a limit: under one, the next thread would not start.
    """
    import ctypes
    import resource

    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY
    libc = ctypes.CDLL(None, use_errno=True)
    wishes = [(_MCL_CURRENT, "current pages locked")]
    if unlimited or os.geteuid() == 0:
        wishes.insert(0, (_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT, "all pages locked on fault"))
    for flags, words in wishes:
        if libc.mlockall(flags) == 0:
            return words
    return f"not locked: {os.strerror(ctypes.get_errno())}"


def oom_score(pid: int | str = "self") -> int | None:
    """A process's oom_score_adj as it is now; None when it cannot be read."""
    try:
        with open(_OOM.format(pid), "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def set_oom_score(value: int, pid: int | str = "self") -> int | None:
    """Ask for a score, and read back which one it is."""
    with contextlib.suppress(OSError):
        write_at_once(_OOM.format(pid), str(value))
    return oom_score(pid)


def set_nice(value: int, pid: int = 0) -> int:
    """Ask for a priority (0: this process), and read back which one it is."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, value)
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        return value
