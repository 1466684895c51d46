"""RAM of services between two seconds, where a limit is on it: a fast one passes it by a gibibyte
a second otherwise.

A process group: resident pages of its members that are no file's, out of their open statm (1.3 µs
each), and its shared memory as it was in the last second. A container: memory.current less the page
cache of the last second; what that says is looked up in memory.stat, which the kernel has to add up
first, before it counts. A member that began in the last two seconds is not known yet, and more than
MOST of them are taken as they were in the last second.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from console.host import process
from console.host.cgroups import cgroup
from console.recovery.guard.config import Limit
from console.recovery.guard.decide.policy import NEAR_POLL_S, Breach
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.memory import pread
from console.recovery.guard.observe.snapshot import FASTEST, Load

METRIC = "service.ram_used"
MOST = 16
SOON_S = 0.5
"""With less time left at the pace of now a limit is near."""
REST_S = 0.1
"""How soon it is looked at again, unless a limit is so far off that nothing comes there sooner."""
KEPT = 256
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Source(Protocol):
    """Where the RAM of one target is read, bytes; None: not known."""

    def guess(self) -> int | None: ...
    def exact(self, at: float) -> Load | None: ...


class Members:
    """The processes of a target that leads a session, each with an open statm."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._open: dict[int, int] = {}
        self._rest = 0
        """What those hold that are not read here, and what is shared."""
        self.tell((target.pid,), None, 1)

    def tell(self, pids: Sequence[int], ram: int | None, count: int, shared: int = 0) -> None:
        """Its largest members, what all held together in the last second, how many they are, and
        what of it was shared memory."""
        for pid in [one for one in self._open if one not in pids]:
            os.close(self._open.pop(pid))
        unknown = [pid for pid in pids if pid not in self._open]
        groups = [one.path for one in self.target.cgroups if one.stands] if unknown else []
        inside = {pid for path in groups for pid in cgroup.pids(path)}
        for pid in unknown:
            if self._is_mine(pid, inside):
                descriptor = opened_statm(pid)
                if descriptor >= 0:
                    self._open[pid] = descriptor
        self._rest = 0
        seen = self.guess() or 0
        rest = ram - seen if ram is not None and count > len(self._open) else 0
        self._rest = max(shared, rest)

    def _is_mine(self, pid: int, inside: set[int]) -> bool:
        found, leader = process.stat(pid), self.target.pid
        if found is None:
            return False
        if leader not in (pid, found.session, found.group):
            return pid in inside
        return pid != leader or found.start == self.target.start

    def guess(self) -> int | None:
        sizes = [own for one in self._open.values() if (own := own_pages(one)) is not None]
        return sum(sizes) * _PAGE_SIZE + self._rest if sizes else None

    def exact(self, at: float) -> Load | None:
        ram, target = self.guess(), self.target
        return None if ram is None else Load(target.name, target.kind, at, ram)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


class _Watched:
    """One target with the lowest limit on it."""

    __slots__ = ("at", "level", "over", "points", "source", "target", "value")

    def __init__(self, target: Target, level: float, source: Source) -> None:
        self.target, self.level, self.source = target, level, source
        self.over = False
        self.at = self.value = 0.0
        self.points: deque[tuple[float, int]] = deque(maxlen=KEPT)

    def look(self, at: float) -> tuple[Load | None, bool]:
        """What it holds where that is over the limit, and whether it is near it."""
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
    """`tick` at every tick; `loads` are those over a limit, as of now; `near`: one soon is."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []
        self._members: dict[int, Members] = {}
        self.loads: dict[tuple[str, str], Load] = {}
        self.near = False

    def watch(
        self, limits: Sequence[Limit], targets: Sequence[Target], groups: Mapping[str, Source]
    ) -> None:
        """These are alive from now on; `groups`: container → where its figures are read."""
        levels = {one: level for one in targets if (level := level_of(one, limits)) is not None}
        wanted = {one.pid for one in levels if one.pid}
        for pid in [one for one in self._members if one not in wanted]:
            self._members.pop(pid).close()
        before = {one.target: one for one in self._watched}
        self._watched, self.loads = [], {}
        for target, level in levels.items():
            source = groups.get(target.container) if target.container else self._of(target)
            if source is not None:
                made = _Watched(target, level, source)
                if target in before:
                    made.points = before[target].points
                self._watched.append(made)

    def _of(self, target: Target) -> Members:
        found = self._members.get(target.pid)
        if found is None or found.target.start != target.start:
            if found is not None:
                found.close()
            found = self._members[target.pid] = Members(target)
        return found

    def tell(self, pid: int, members: Sequence[int], ram: int, count: int, shared: int = 0) -> None:
        """What was found once a second of the group that `pid` leads."""
        if pid in self._members:
            self._members[pid].tell(members[:MOST], ram, count, shared)

    def wait_s(self, otherwise: float) -> float:
        """When to look again."""
        if not self._watched:
            return otherwise
        left = min(one.level - one.value if one.at else 0.0 for one in self._watched)
        rest = max(REST_S, left / FASTEST)
        return min(NEAR_POLL_S if self.near else rest, otherwise)

    def tick(self, at: float) -> bool:
        """Whether one is over its limit, or one that was is not any more."""
        if not self._watched:
            return False
        before, loads, self.near = self.loads, {}, False
        for one in self._watched:
            load, near = one.look(at)
            self.near = self.near or near
            if load is not None:
                loads[load.kind, load.name] = load
        self.loads = loads
        return bool(loads) or bool(before)

    def held(self, target: Target) -> tuple[float, int] | None:
        """When it was read last, and what it held then in bytes."""
        found = next((one for one in self._watched if one.target == target), None)
        return found.points[-1] if found is not None and found.points else None

    def points(self, limit: Limit, of: str) -> list[tuple[float, int]]:
        """(monotonic second, bytes) of the last ticks, where a limit is on the RAM of `of`."""
        name = limit.of or of
        mine = [one for one in self._watched if one.target.name == name]
        return [point for one in mine for point in one.points] if limit.metric == METRIC else []

    def close(self) -> None:
        for one in self._members.values():
            one.close()
        self._members.clear()
        self._watched.clear()


def gap_s(points: Sequence[tuple[float, int]], breach: Breach) -> float:
    """How long before the sample that passed the limit nobody had looked, seconds: as the judge
    says, or where this was looked at more often than judged, as these points do."""
    passed = breach.crossed_at - breach.limit.for_s
    before = [at for at, _ in points if at < passed]
    if not before:
        return breach.gap_s
    gap = passed - before[-1]
    return min(breach.gap_s, gap) if breach.gap_s else gap  # 0: it was not judged before


def level_of(target: Target, limits: Sequence[Limit]) -> float | None:
    """The lowest limit on a target's RAM, bytes; None for none."""
    levels = [
        one.above for one in limits
        if one.metric == METRIC and one.above is not None and one.of in ("", target.name)
    ]  # fmt: skip
    return min(levels, default=None)


def opened_statm(pid: int) -> int:
    """A descriptor of that very process: it answers nothing when the number is another's."""
    with contextlib.suppress(OSError):
        return os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    return -1


def own_pages(descriptor: int) -> int | None:
    """Resident pages that are no file's and no shared memory's; None when it is gone."""
    words = pread(descriptor, 128).split(None, 3)
    return int(words[1]) - int(words[2]) if len(words) > 2 else None
