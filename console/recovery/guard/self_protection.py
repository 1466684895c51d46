"""What the sentinel asks of the machine for itself, and what it got, in words.

Everything is read back. A protection that was refused is no reason not to watch; it is shown.
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
    """`got`: name → words; `missing`: a sentence for each that was refused, in part or whole.
    `nice_before`, `oom_before`: what children of other kinds get back."""

    got: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    nice_before: int = 0
    oom_before: int = 0


def protect(rehearsed: tuple[str, ...]) -> Protections:
    """Take every protection that this user may have; `rehearsed` is what the rehearsal of the kill
    path found missing. Call it last, when everything is loaded: memory is locked here."""
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
    _give_back()
    gc.freeze()
    gc.disable()
    got["collector"] = "frozen"
    got["memory"] = lock_memory()
    if not got["memory"].startswith("all"):
        missing.append(f"memory: {got['memory']}")
    return Protections(got, tuple(missing), nice_before, before or 0)


def _give_back() -> None:
    """What compiling and reading modules left over, up to some MB: it would be locked for good."""
    with contextlib.suppress(OSError, AttributeError):  # no other C library has it
        ctypes.CDLL(None).malloc_trim(0)


def lower_priority(pid: int, got: Protections) -> None:
    """A child inherits priority and score; one that does other work gives them back."""
    set_nice(got.nice_before, pid)
    set_oom_score(got.oom_before, pid)


def _priority() -> int:
    got = set_nice(NICE)
    if got != NICE:
        # RLIMIT_NICE 1…40 allows down to 19…-20
        allowed = 20 - resource.getrlimit(resource.RLIMIT_NICE)[0]
        if allowed < got:
            got = set_nice(max(NICE, allowed))
    return got


def _score(before: int | None) -> int | None:
    """The lowest that is allowed: a kernel that refuses one may allow another."""
    for wish in (OOM, -900, -500, 0):
        if before is not None and wish >= before:
            break
        if set_oom_score(wish) == wish:
            return wish
    return oom_score()
