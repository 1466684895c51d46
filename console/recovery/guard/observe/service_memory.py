"""Swap traffic, and the memory of each armed container's control group, read once a second.

Descriptors stay open. The values of a group that is gone are None and never zero.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from console.host.memory import UNLIMITED, V1, V2, Files, number_in
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.memory import field, opened, pread
from console.recovery.guard.observe.snapshot import Load, Swap

_STAT, _VMSTAT, _SPARE = 16384, 32768, 256
_IN, _OUT = b"\npswpin ", b"\npswpout "
GONE = "its control group is gone"
NOT_YET = "it has no control group yet"
NO_MEMORY = "its control group does not account memory"


class Group:
    """The memory of one container, read from open files of its control group."""

    def __init__(self, target: Target) -> None:
        self.target = target
        names, memory = _memory_group(target)
        self._cache_rows = tuple(f"\n{row} ".encode() for row in (names.active, names.inactive))
        self._swap_row = b"\ntotal_swap " if names is V1 else b""
        pids = [cgroup.path for cgroup in target.cgroups if cgroup.kind in ("", "pids")]
        self.limit = number_in(memory / names.most) if memory else None
        self._usage, self._stat, self._events, self._swap = (
            opened(memory / name) if memory else -1
            for name in (names.used, "memory.stat", names.events, "memory.swap.current")
        )
        self._pids = next(
            (d for path in pids if (d := opened(Path(path, "pids.current"))) >= 0), -1
        )
        self._oom_before = self._oom() or 0
        self._cache: int | None = None
        self._restarts = 0

    def guess(self) -> int | None:
        """Return its RAM without page cache in about 2 µs, assuming the page cache of the last full
        reading; None if not known."""
        usage = _number(pread(self._usage, 64))
        return None if usage is None or self._cache is None else max(0, usage - self._cache)

    def exact(self, at: float) -> Load:
        """Read it in full, with the number of restarts of the last reading."""
        return self.read(at, self._restarts)

    def read(self, at: float, restarts: int) -> Load:
        target, limit = self.target, self.limit
        usage, stat = _number(pread(self._usage, 64)), pread(self._stat, _STAT)
        cache = [field(stat, name) for name in self._cache_rows]
        oom = self._oom()
        known = usage is not None and None not in cache
        self._restarts = restarts
        self._cache = sum(size or 0 for size in cache) if known else None
        return Load(
            target.name, target.kind, at,
            ram=None if self._cache is None else max(0, (usage or 0) - self._cache),
            swap=field(stat, self._swap_row) if self._swap_row
            else _number(pread(self._swap, 64)),
            limit=limit if limit is not None and limit < UNLIMITED else None,
            oom=None if oom is None else max(0, oom - self._oom_before),
            restarts=restarts,
            pids=_number(pread(self._pids, 64)),
            why="" if known else (NO_MEMORY if self._usage < 0 else GONE),
            expendable=target.expendable,
        )  # fmt: skip

    def close(self) -> None:
        for descriptor in (self._usage, self._stat, self._events, self._swap, self._pids):
            if descriptor >= 0:
                os.close(descriptor)
        self._usage = self._stat = self._events = self._swap = self._pids = -1

    def _oom(self) -> int | None:
        return field(b"\n" + pread(self._events, 1024), b"\noom_kill ")


class ServiceMemoryCollector:
    """Reads swap rates and the containers that were given to `watch`. Use it from one thread."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._vmstat = opened(root / "proc/vmstat")
        self._read_size = _VMSTAT
        self._page_size = os.sysconf("SC_PAGE_SIZE")
        self._before: tuple[float, int, int] | None = None
        self.groups: dict[str, Group] = {}
        """The containers that can be read, by container id."""
        self._restarts: dict[str, int] = {}
        self._waiting: tuple[Target, ...] = ()

    def watch(self, targets: Iterable[Target]) -> None:
        """Set the containers to read. A container whose control group is another one than before
        has been restarted."""
        containers = {target.container: target for target in targets if target.container}
        for identity in [container for container in self.groups if container not in containers]:
            self.groups.pop(identity).close()
            self._restarts.pop(identity, None)
        for identity, target in containers.items():
            before = self.groups.get(identity)
            if not target.cgroups or (before and before.target.cgroups == target.cgroups):
                continue
            if before is not None:
                before.close()
                moved = {cgroup.inode for cgroup in before.target.cgroups} & {
                    cgroup.inode for cgroup in target.cgroups
                }
                self._restarts[identity] = self._restarts.get(identity, 0) + (not moved)
            self.groups[identity] = Group(target)
        self._waiting = tuple(
            target for identity, target in containers.items() if identity not in self.groups
        )

    def loads(self, at: float) -> tuple[Load, ...]:
        """Read every container. Those without a control group say so in `why`."""
        readings = [
            group.read(at, self._restarts.get(identity, 0))
            for identity, group in self.groups.items()
        ]
        readings += [Load(target.name, target.kind, at, why=NOT_YET) for target in self._waiting]
        return tuple(readings)

    def swap(self, at: float) -> Swap:
        """Return swap traffic since the last call. The rates are None at the first call and if the
        kernel does not count them."""
        swapped_in, swapped_out = self._swap_totals()
        if swapped_in is None or swapped_out is None:
            self._before = None
            return Swap(at)
        before, self._before = self._before, (at, swapped_in, swapped_out)
        if before is None or at <= before[0]:
            return Swap(at)
        scale = self._page_size / (at - before[0])
        return Swap(
            at, max(0, swapped_in - before[1]) * scale, max(0, swapped_out - before[2]) * scale
        )

    def _swap_totals(self) -> tuple[int | None, int | None]:
        """Return the pages swapped in and out since boot. Only the table up to these two lines is
        read, because the kernel then does not produce the other half, which saves 10 µs."""
        text = pread(self._vmstat, self._read_size)
        at = text.find(_OUT)
        if at < 0 and self._read_size < _VMSTAT:
            text = pread(self._vmstat, _VMSTAT)
            at = text.find(_OUT)
        self._read_size = at + _SPARE if at >= 0 else _VMSTAT
        return field(text, _IN), field(text, _OUT)

    def close(self) -> None:
        for group in self.groups.values():
            group.close()
        self.groups.clear()
        if self._vmstat >= 0:
            os.close(self._vmstat)
            self._vmstat = -1


def _memory_group(target: Target) -> tuple[Files, Path | None]:
    """Return the directory that accounts the target's memory, of version 2 if it can."""
    for cgroup in target.cgroups:
        names = V2 if not cgroup.kind else V1 if "memory" in cgroup.kind.split(",") else None
        if names is not None and os.path.exists(f"{cgroup.path}/{names.used}"):
            return names, Path(cgroup.path)
    return V2, None


def _number(text: bytes) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
