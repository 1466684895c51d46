"""RAM of services with a limit on it, read between two seconds, because a fast load would otherwise
pass its limit by a gibibyte.

For a process group, the resident anonymous pages of its members are read from their open statm
files (1.3 µs each), and its shared memory is taken from the last second. For a container,
memory.current is read, less the page cache of the last second. Only if that is over the limit is
memory.stat read to confirm it, because the kernel has to compute that file first. A member
process that started in the last two seconds is not known yet. Of more than MAX_PROCESSES members
only the largest are read, and the rest are taken from the last second.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from console.host import cgroup, process
from console.recovery.guard.config import Limit
from console.recovery.guard.decide.policy import NEAR_POLL_S, Breach
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.memory import opened, pread
from console.recovery.guard.observe.snapshot import FASTEST, Load

METRIC = "service.ram_used"
MAX_PROCESSES = 16
SOON_S = 0.5
"""A limit is near if the current growth reaches it within this many seconds."""
REST_S = 0.1
"""Seconds between two readings, unless the limit is too far away to be reached sooner."""
KEPT = 256
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Source(Protocol):
    """Where the RAM of one target is read, in bytes; None means not known."""

    def guess(self) -> int | None: ...
    def exact(self, at: float) -> Load | None: ...


class Members:
    """The processes of a target that leads a session, each with its statm file open."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._open: dict[int, int] = {}
        self._rest = 0
        """Bytes of the members that are not read here, or all shared memory if that is more."""
        self.update((target.pid,), None, 1)

    def update(self, pids: Sequence[int], ram: int | None, count: int, shared: int = 0) -> None:
        """Set the largest members to read. `ram` is what all members held together in the last
        second, `count` is their number, and `shared` is the shared memory in `ram`, in bytes."""
        for pid in [open_pid for open_pid in self._open if open_pid not in pids]:
            os.close(self._open.pop(pid))
        unknown = [pid for pid in pids if pid not in self._open]
        groups = [group.path for group in self.target.cgroups if group.stands] if unknown else []
        inside = {pid for path in groups for pid in cgroup.pids(path)}
        for pid in unknown:
            if self._is_mine(pid, inside):
                # The descriptor belongs to this very process: it reads nothing once the pid
                # belongs to another.
                descriptor = opened(Path(f"/proc/{pid}/statm"))
                if descriptor >= 0:
                    self._open[pid] = descriptor
        self._rest = 0
        read_here = self.guess() or 0
        rest = ram - read_here if ram is not None and count > len(self._open) else 0
        self._rest = max(shared, rest)

    def _is_mine(self, pid: int, inside: set[int]) -> bool:
        process_stat, leader = process.stat(pid), self.target.pid
        if process_stat is None:
            return False
        if leader not in (pid, process_stat.session, process_stat.group):
            return pid in inside
        return pid != leader or process_stat.start == self.target.start

    def guess(self) -> int | None:
        sizes = [
            own for descriptor in self._open.values() if (own := own_pages(descriptor)) is not None
        ]
        return sum(sizes) * _PAGE_SIZE + self._rest if sizes else None

    def exact(self, at: float) -> Load | None:
        ram, target = self.guess(), self.target
        return None if ram is None else Load(target.name, target.kind, at, ram)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


class _Limited:
    """One target, and the lowest limit on its RAM in bytes."""

    __slots__ = ("at", "level", "over", "points", "source", "target", "value")

    def __init__(self, target: Target, level: float, source: Source) -> None:
        self.target, self.level, self.source = target, level, source
        self.over = False
        self.at = self.value = 0.0
        self.points: deque[tuple[float, int]] = deque(maxlen=KEPT)

    def read(self, at: float) -> tuple[Load | None, bool]:
        """Read the target. Returns its load if that is over the limit (else None), and whether the
        limit is near."""
        guess = self.source.guess()
        if guess is None:
            return None, False
        load = self.source.exact(at) if guess > self.level else None
        value = load.ram if load is not None and load.ram is not None else guess
        self.points.append((at, value))
        step, grown = at - self.at, value - self.value
        left = self.level - value
        near = self.at > 0 and 0 <= left * step < grown * SOON_S
        self.at, self.value = at, value
        return (load if value > self.level else None), near


class Quick:
    """Reads the targets with a limit on their RAM; call `tick` at every tick. `loads` are those
    over their limit now, and `near` says whether another one is close to its limit."""

    def __init__(self) -> None:
        self._limited: list[_Limited] = []
        self._members: dict[int, Members] = {}
        self.loads: dict[tuple[str, str], Load] = {}
        self.near = False

    def watch(
        self, limits: Sequence[Limit], targets: Sequence[Target], groups: Mapping[str, Source]
    ) -> None:
        """Set what is alive. `groups` maps a container id to where its memory is read."""
        levels = {
            target: level for target in targets if (level := level_of(target, limits)) is not None
        }
        wanted = {target.pid for target in levels if target.pid}
        for pid in [member_pid for member_pid in self._members if member_pid not in wanted]:
            self._members.pop(pid).close()
        before = {gauge.target: gauge for gauge in self._limited}
        self._limited, self.loads = [], {}
        for target, level in levels.items():
            source = groups.get(target.container) if target.container else self._members_of(target)
            if source is not None:
                made = _Limited(target, level, source)
                if target in before:
                    made.points = before[target].points
                self._limited.append(made)

    def _members_of(self, target: Target) -> Members:
        members = self._members.get(target.pid)
        if members is None or members.target.start != target.start:
            if members is not None:
                members.close()
            members = self._members[target.pid] = Members(target)
        return members

    def update(
        self, pid: int, members: Sequence[int], ram: int, count: int, shared: int = 0
    ) -> None:
        """Take what the reading of each second found about the group that `pid` leads."""
        if pid in self._members:
            self._members[pid].update(members[:MAX_PROCESSES], ram, count, shared)

    def wait_s(self, otherwise: float) -> float:
        """Return the seconds to the next reading, at most `otherwise`."""
        if not self._limited:
            return otherwise
        left = min(gauge.level - gauge.value if gauge.at else 0.0 for gauge in self._limited)
        rest = max(REST_S, left / FASTEST)
        return min(NEAR_POLL_S if self.near else rest, otherwise)

    def tick(self, at: float) -> None:
        """Read every target; `loads` has those that are over their limit."""
        if not self._limited:
            return
        loads: dict[tuple[str, str], Load] = {}
        self.near = False
        for gauge in self._limited:
            load, near = gauge.read(at)
            self.near = self.near or near
            if load is not None:
                loads[load.kind, load.name] = load
        self.loads = loads

    def held(self, target: Target) -> tuple[float, int] | None:
        """Return when the target was last read, and the bytes it held then; None if never."""
        target_gauge = next((gauge for gauge in self._limited if gauge.target == target), None)
        return target_gauge.points[-1] if target_gauge is not None and target_gauge.points else None

    def points(self, limit: Limit, of: str) -> list[tuple[float, int]]:
        """Return (monotonic second, bytes) of the last ticks if the limit is on the RAM of `of`."""
        name = limit.of or of
        mine = [gauge for gauge in self._limited if gauge.target.name == name]
        return [point for gauge in mine for point in gauge.points] if limit.metric == METRIC else []

    def close(self) -> None:
        for members in self._members.values():
            members.close()
        self._members.clear()
        self._limited.clear()


def gap_s(points: Sequence[tuple[float, int]], breach: Breach) -> float:
    """Return for how many seconds nothing was read before the sample that passed the limit. It is
    the policy's own gap, or a smaller one if these points were read more often."""
    passed = breach.crossed_at - breach.limit.for_s
    before = [at for at, _ in points if at < passed]
    if not before:
        return breach.gap_s
    gap = passed - before[-1]
    return min(breach.gap_s, gap) if breach.gap_s else gap  # 0: the policy had no earlier reading


def level_of(target: Target, limits: Sequence[Limit]) -> float | None:
    """Return the lowest limit on a target's RAM in bytes; None if there is none."""
    levels = [
        limit.above for limit in limits
        if limit.metric == METRIC and limit.above is not None and limit.of in ("", target.name)
    ]  # fmt: skip
    return min(levels, default=None)


def own_pages(descriptor: int) -> int | None:
    """Return the resident pages that are neither file nor shared; None if the process is gone."""
    words = pread(descriptor, 128).split(None, 3)
    return int(words[1]) - int(words[2]) if len(words) > 2 else None
