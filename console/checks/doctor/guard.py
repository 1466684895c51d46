"""Checks what a sentinel gets from this machine and login: locked memory, priority, ways to kill.

Nothing is changed: limits and capabilities are read, system calls get arguments that must fail, and
what has to be tried is tried in a process of its own.
"""

from __future__ import annotations

import ctypes
import errno
import grp
import os
import re
import resource
from collections.abc import Iterator

from console.checks.doctor.facts import Check, Facts, Finding, Level
from console.checks.doctor.machine import may_take
from console.common.files import read_text
from console.common.units import format_bytes
from console.recovery.guard.record.read import crash_words
from console.runtime.root_helper import helper_is_there

LOCKED = 64 << 20
"""Bytes that a sentinel wants to lock: 14 MB when measured, plus a margin."""
HIGHEST = -20
SCORE = -1000
KILL, LOCK, NICE = 5, 14, 23
"""Numbers of capabilities, as in linux/capability.h."""
PIDFD_OPEN, MRELEASE = 434, 448
"""System call numbers, the same on every architecture that runs models on Linux."""
UNIT = "in a unit of your own: "


def lock(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the sentinel's memory can be locked, so that it is not swapped out."""
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if has(facts, LOCK) or most in (-1, resource.RLIM_INFINITY) or most >= LOCKED:
        yield check.ok("the sentinel can lock its memory: swapping does not slow it down")
    else:
        yield check.warning(
            f"{format_bytes(most)} may be locked, {format_bytes(LOCKED)} are wanted: a machine "
            "that swaps may swap the sentinel out",
            f"{UNIT}LimitMEMLOCK=infinity; or `{os.environ.get('USER') or 'USER'} - memlock "
            "unlimited` in /etc/security/limits.conf, then log in anew",
        )


def priority(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the sentinel may run before a load that takes every core."""
    ceiling = 20 - resource.getrlimit(resource.RLIMIT_NICE)[0]
    if has(facts, NICE) or ceiling <= HIGHEST:
        yield check.ok(f"the sentinel can run at nice {HIGHEST}, before any load")
    else:
        words = f"at nice {ceiling} at best" if ceiling < 0 else "at the priority of any program"
        yield check.warning(
            f"the sentinel runs {words}: with every core busy it may react late",
            f"{UNIT}LimitNICE={HIGHEST}; or CAP_SYS_NICE",
        )


def score(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the kernel's OOM killer can be told to spare the sentinel."""
    if not may_take(SCORE):
        yield check.warning(
            f"oom_score_adj {SCORE} is refused: the kernel's killer may take the sentinel first",
            f"with CAP_SYS_RESOURCE it is spared; {UNIT}OOMScoreAdjust={SCORE}",
        )
    else:
        yield check.ok(f"the kernel's killer can be told to spare the sentinel ({SCORE})")


def signals(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether this login may signal the processes of a container."""
    if has(facts, KILL):
        yield check.ok("processes in containers can be signalled")
        return
    if helper_is_there():
        yield check.ok("signals to containers go through the root helper, which is there")
        return
    words = "signals to containers are not permitted"
    words += ": docker group only" if in_docker_group() else ""
    yield check.warning(
        f"{words}; kernel limits set at creation and the engine's API are used",
        "a small root helper makes it direct: docs/how-to/root-helper.md",
    )


def cgroup(facts: Facts, check: Check) -> Iterator[Finding]:
    """Which cgroups there are, and whether one write can end everything in one."""
    base = facts.root / "sys/fs/cgroup"
    unified = base / "unified"
    if (base / "cgroup.controllers").exists():
        kind, tree = "cgroup v2", base
    elif (unified / "cgroup.procs").exists():
        kind, tree = "cgroup v1, with an empty v2 tree beside it", unified
    elif base.is_dir() and any(base.iterdir()):
        kind, tree = "cgroup v1", None
    else:
        yield check.warning(
            "no cgroup file system: what is in a container is found by its pids only",
            "mount -t cgroup2 none /sys/fs/cgroup",
        )
        return
    files = sorted(tree.glob("*/cgroup.kill")) if tree is not None else []
    if not files:
        yield check.warning(
            f"{kind}; no cgroup.kill: containers are killed pid by pid until they are empty",
            "Linux 5.14 or newer with cgroup v2 kills a whole container in one write",
        )
    elif not any(os.access(file, os.W_OK) for file in files):
        yield check.warning(
            f"{kind}; cgroup.kill is not writable for this login",
            "kernel limits and the engine's API are used; "
            "the root helper: docs/how-to/root-helper.md",
        )
    else:
        yield check.ok(f"{kind}; cgroup.kill ends a container in one write")


def release(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether a killer may release the memory of the process that it killed."""
    if call(MRELEASE) == errno.EBADF:
        yield check.ok("process_mrelease: the memory of a killed process comes back early")
    else:
        yield check.note(
            "no process_mrelease: the memory of a killed process comes back only as it exits",
            "Linux 5.15 or newer has it; a container's seccomp profile may hide it",
        )
    if call(PIDFD_OPEN) not in (errno.EINVAL, errno.ESRCH):
        yield check.warning(
            "no pidfd_open: a process that is to be killed is known by pid and start time only",
            "Linux 5.3 or newer has it",
        )


def pressure(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the kernel reports the time lost to waiting for memory."""
    text = read_text(facts.root / "proc/pressure/memory")
    if "full" in text and "total=" in text:
        yield check.ok("PSI: the kernel counts the time lost to waiting for memory")
    else:
        yield check.warning(
            "no PSI: thrashing is seen by swap and free memory alone",
            "boot the kernel with psi=1",
        )


def recording(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the newest run broke off in memory trouble, and what its recorder has of it."""
    seen = facts.runs()
    newest = seen[0] if seen else None
    if newest is None or newest.alive or (newest.view is not None and newest.view.over):
        return
    words = crash_words(newest.run.path)
    if words:
        tail = newest.run.id[-4:]
        yield check.warning(f"{newest.run.id}: {words}", f"omni-console recorder {tail} shows it")


def has(facts: Facts, number: int) -> bool:
    """Whether this process has a capability in effect."""
    mask = re.search(r"CapEff:\s*([0-9a-fA-F]+)\b", read_text(facts.root / "proc/self/status"))
    return mask is not None and bool(int(mask[1], 16) >> number & 1)


def in_docker_group() -> bool:
    try:
        return grp.getgrnam("docker").gr_gid in os.getgroups()
    except KeyError:
        return False


def call(number: int) -> int:
    """The errno of a system call with an impossible descriptor or pid; 0 if it worked."""
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), ctypes.c_long(-1), ctypes.c_long(0))
    return ctypes.get_errno() if done == -1 else 0


CHECKS = (
    Check("guard.lock", "memory lock", lock, Level.WARNING),
    Check("guard.priority", "priority", priority, Level.WARNING),
    Check("guard.score", "OOM score", score, Level.WARNING),
    Check("guard.signals", "signals", signals, Level.WARNING),
    Check("guard.cgroup", "cgroups", cgroup, Level.WARNING),
    Check("guard.release", "memory back", release, Level.NOTE),
    Check("guard.pressure", "thrashing", pressure, Level.WARNING),
    Check("guard.recording", "recorder", recording, Level.NOTE),
)
