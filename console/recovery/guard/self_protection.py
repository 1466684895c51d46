"""The protections that the sentinel takes for itself, and in words which of them it got.

Each protection is read back after it was set. A refused protection does not keep the sentinel from
watching; it is shown on the status page.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
from dataclasses import dataclass, field

from console.host.privileges import lock_memory, oom_score, set_nice, set_oom_score

NICE, OOM = -20, -1000


@dataclass(frozen=True, slots=True)
class Protections:
    """`got` maps the name of each protection to words about it. `missing` has one sentence for each
    that was refused in part or whole. `nice_before` and `oom_before` are the values that child
    processes for other work get back."""

    got: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    nice_before: int = 0
    oom_before: int = 0


def protect(rehearsed: tuple[str, ...]) -> Protections:
    """Take every protection that this user is permitted. `rehearsed` is what the rehearsal of the
    kill path found missing. Call this last, when everything is loaded, because it locks the
    memory."""
    nice_before, before = os.getpriority(os.PRIO_PROCESS, 0), oom_score()
    got: dict[str, str] = {"kill path": "; ".join(rehearsed) or "rehearsed"}
    missing = [f"kill path: {words}" for words in rehearsed]
    nice, score = _priority(), _score(before)
    got["priority"] = f"nice {nice}"
    if nice != NICE:
        missing.append(f"priority: nice {nice} and not {NICE}, more is not permitted")
    got["oom_score_adj"] = "unknown" if score is None else str(score)
    if score != OOM:
        missing.append(f"oom_score_adj: {got['oom_score_adj']} and not {OOM}, not permitted")
    gc.collect()
    _trim_heap()
    gc.freeze()
    gc.disable()
    got["collector"] = "frozen"
    got["memory"] = lock_memory()
    if not got["memory"].startswith("all"):
        missing.append(f"memory: {got['memory']}")
    return Protections(got, tuple(missing), nice_before, before or 0)


def _trim_heap() -> None:
    """Return to the kernel up to some MB that importing modules left over; otherwise they would be
    locked for good."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def lower_priority(pid: int, got: Protections) -> None:
    """Give a child the ordinary priority and OOM score back, which it inherited raised."""
    set_nice(got.nice_before, pid)
    set_oom_score(got.oom_before, pid)


def _priority() -> int:
    got = set_nice(NICE)
    if got != NICE:
        # an RLIMIT_NICE of 1…40 permits nice values down to 19…-20
        allowed = 20 - resource.getrlimit(resource.RLIMIT_NICE)[0]
        if allowed < got:
            got = set_nice(max(NICE, allowed))
    return got


def _score(before: int | None) -> int | None:
    """Set the lowest OOM score that is permitted: a kernel that refuses one value may accept a
    higher one. Returns the score that is in force."""
    for wanted in (OOM, -900, -500, 0):
        if before is not None and wanted >= before:
            break
        if set_oom_score(wanted) == wanted:
            return wanted
    return oom_score()
