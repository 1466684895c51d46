"""What of the run is alive, by its records: read again when they grow, looked after once a second.

A recorded container may have no control group yet: it is looked for at every tick while it is new.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from console.host import cgroup, process
from console.host.cgroup import Hierarchy
from console.recovery.guard.kill.targets import Deny, Target, look_again, sort_out
from console.recovery.rollback import live

NEW_S = 30.0
"""A container that has not started by then is looked for once a second."""
SCAN_S = 2.0
"""While it is new and in none of the usual places, /proc is searched this often."""
GROUP_S = 5.0
"""A group whose leader is gone is looked for among all processes this often."""


class Alive:
    """`targets` may be killed; `refused` are those of the records that may not, in words."""

    def __init__(self, path: Path, trees: tuple[Hierarchy, ...]) -> None:
        self._path = path
        self._trees = trees
        self._stamp: tuple[int, int] = (0, 0)
        self._since: dict[str, float] = {}
        self._scan_at = self._group_at = 0.0
        self._alone: set[int] = set()
        self._pending: tuple[Target, ...] = ()
        self._any = False
        self.targets: tuple[Target, ...] = ()
        self.refused: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return self._any

    def armed(self, now: float) -> bool:
        """Whether something lives or is about to."""
        return self._any or any(self._is_new(one, now) for one in self._pending)

    def _is_new(self, target: Target, now: float) -> bool:
        return now - self._since.get(target.container, now) < NEW_S

    def _sort(self) -> None:
        """Who is pending costs a stat or two each: not asked at every tick."""
        self._pending = tuple(one for one in self.targets if one.pending)
        self._any = len(self._pending) < len(self.targets)

    def grew(self) -> bool:
        """Whether the records changed since they were read: one stat."""
        return self._look() != self._stamp

    def read(self, deny: Callable[[list[live.Live]], Deny], now: float) -> Deny:
        """All records anew; some 5 ms. The deny list that goes with them."""
        self._stamp = self._look()
        entries = live.read(self._path)
        denied = deny(entries)
        self.targets, self.refused = sort_out(entries, denied, self._trees)
        for one in self.targets:
            if one.container:
                self._since.setdefault(one.container, now)
        self._sort()
        return denied

    def tick(self, now: float) -> bool:
        """Look for containers that have just been recorded; whether one was found."""
        if not self._pending:
            return False
        new = [one for one in self._pending if self._is_new(one, now)]
        if not new:
            return False
        scan = now >= self._scan_at
        if scan:
            self._scan_at = now + SCAN_S
        return self._again(new, scan)

    def second(self, now: float) -> bool:
        """Whether what lives changed: processes that ended, containers that came or went."""
        before = self.targets
        gone = [one for one in self.targets if one.pid and not self._lives(one, now)]
        if now >= self._group_at:
            self._group_at = now + GROUP_S
        self.targets = tuple(one for one in self.targets if one not in gone)
        # a group that does not stand any more may stand again under the same id: a restart
        self._sort()
        self._again(list(self._pending), False)
        for one in self.targets:
            if one in self._pending:
                self._since.setdefault(one.container, now)
            elif one.container:
                self._since.pop(one.container, None)
        return self.targets != before

    def _again(self, some: list[Target], scan: bool) -> bool:
        inside = cgroup.processes() if scan and some else {}
        found = {one: look_again(one, self._trees, inside=inside) for one in some}
        changed = {old: new for old, new in found.items() if not new.pending}
        if changed:
            self.targets = tuple(changed.get(one, one) for one in self.targets)
            self._sort()
        return bool(changed)

    def _lives(self, target: Target, now: float) -> bool:
        if process.alive(target.pid, target.start):
            return True
        if target.pid in self._alone and now < self._group_at:
            return True
        # the leader is gone: what it left behind in its group still counts
        left = any(not cgroup.is_empty(one) for one in target.cgroups)
        left = left or bool(process.members(target.pid, target.start))
        self._alone = (self._alone | {target.pid}) if left else (self._alone - {target.pid})
        return left

    def _look(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path)
        except OSError:
            return (0, 0)
        return (found.st_ino, found.st_size)
