"""The clients of the two child processes that read what may hang: `slow_io_child` for disks, logs
and process groups, and the GPU reader for VRAM, because a call to NVML may hang forever."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.common.paths import module_argv
from console.common.text import one_line
from console.host.children import Child
from console.host.gpu.figures import parse
from console.recovery.guard.config import RING, GuardConfig
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.snapshot import Disk, GpuReading, Load, LogHit

SILENT_S = 5.0
"""After this many seconds without output a process is reported as silent. NVML takes a second or
two to wake a GPU."""
FIRST_READ_S = 3.0
"""How long the first reading of a new process may take before the delay is reported."""
NOT_YET = "its processes have not been read yet"
GPU_EVERY_S = 1.0
GPU_KEPT_S = 3.0
"""A GPU that has not answered for longer keeps its last reading, with the time of that reading."""


def silence(child: Child, seconds: float) -> str:
    """Say for how long a child has written nothing and how it ended; "" up to SILENT_S."""
    if seconds <= SILENT_S:
        return ""
    return f"{seconds:.0f} s" + (f" ({child.how}, deaths: {child.died})" if child.died else "")


class SlowIo:
    """`tell` sets what to watch; call `tend` every tick. Each reading has its own time."""

    def __init__(self, clock: Clock, argv: Sequence[str] = ()) -> None:
        self.child = Child(
            argv or module_argv("console.recovery.guard.observe.slow_io_child"), clock
        )
        self._clock = clock
        self._message = b""
        self._armed: dict[str, int] = {}
        self._processes: tuple[Target, ...] = ()
        self._first_told_at: dict[tuple[int, int], float] = {}
        self._groups: dict[int, dict[str, Any]] = {}
        self._heard_at = clock.monotonic()
        self.disks: tuple[Disk, ...] = ()
        self._hits: tuple[LogHit, ...] = ()
        self._patterns: list[tuple[int, str, str]] = []
        self.copied_at: float | None = None
        """When the ring buffer was last copied to disk, monotonic."""
        self._troubles: tuple[str, ...] = ()
        self.uncounted: tuple[str, ...] = ()
        """Lines of each service that matched a limit and were not counted for their level."""

    def tell(self, config: GuardConfig, ring: Path, targets: Sequence[Target]) -> None:
        """Set what is to be watched. The fatal lines of a service are counted from the moment it
        was first alive."""
        self._processes = tuple(target for target in targets if target.pid)
        now = self._clock.monotonic()
        self._first_told_at = {
            key: self._first_told_at.get(key, now) for key in map(_key, self._processes)
        }
        names = {target.name for target in targets}
        gone = [name for name in self._armed if name not in names]
        for name in names - self._armed.keys():
            self._armed[name] = int(now * 1000)
        patterns = [
            (i, limit.log, limit.matches) for i, limit in enumerate(config.limits) if limit.log
        ]
        if patterns != self._patterns:
            self._patterns, self._hits = patterns, ()  # the old counts belong to other limits
        message = {
            "ring": str(ring), "copy": str(config.directory / RING), "disks": list(config.disks),
            "logs": config.logs, "armed": {k: v for k, v in self._armed.items() if k not in gone},
            "patterns": patterns,
            "groups": [
                [target.pid, target.start, [group.path for group in target.cgroups if group.stands]]
                for target in self._processes
            ],
        }  # fmt: skip
        for name in gone:
            del self._armed[name]
        self._message = json.dumps(message).encode()
        self.child.send(self._message)

    @property
    def troubles(self) -> tuple[str, ...]:
        """What cannot be watched at present, in words."""
        silent = silence(self.child, self._clock.monotonic() - self._heard_at)
        words = [f"disks and logs have not been read for {silent}"] if silent else []
        return (*words, *self._troubles)

    @property
    def hits(self) -> tuple[LogHit, ...]:
        """The fatal lines for each limit whose service is alive. A limit without a report counts
        zero lines as of its arming, and this count ages like any other reading."""
        counted = {hit.limit: hit for hit in self._hits}
        return tuple(
            counted.get(limit) or LogHit(limit, 0, at=self._armed[service] / 1000)
            for limit, service, _ in self._patterns if service in self._armed
        )  # fmt: skip

    def tend(self) -> bool:
        """Take the child's output. Returns whether there was any."""
        lines = self.child.tend()
        if self.child.fresh and self._message and self.child.send(self._message):
            self.child.fresh = False
        for line in lines:
            self.take(line, self._clock.monotonic())
        return bool(lines)

    def take(self, line: bytes, now: float) -> None:
        """Take one report. An incomplete one changes nothing."""
        try:
            report = json.loads(line)
            disks = tuple(_disk(disk, now) for disk in report["disks"])
            hits = tuple(_hit(hit, now) for hit in report["hits"])
            groups = {int(group["pid"]): _group(group, now) for group in report["groups"]}
            copy = report["copy"] or {}
            uncounted = [f"log of {name}: {words}" for name, words in report["uncounted"].items()]
            troubles = [f"log of {name}: {why}" for name, why in report["logs"].items()]
            troubles += [f"log limit {index}: {why}" for index, why in report["bad"].items()]
            if copy.get("why"):
                troubles.append(f"the recorder is not copied to disk: {copy['why']}")
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self._heard_at, self.disks, self._hits, self._groups = now, disks, hits, groups
        self.uncounted = tuple(one_line(words) for words in uncounted)
        self._troubles = tuple(one_line(str(trouble)) for trouble in troubles)
        if copy.get("age") is not None:
            self.copied_at = now - float(copy["age"])

    def members(self) -> Iterator[tuple[int, list[int], int, int, int]]:
        """Yield for each process group its leader, its largest members, the bytes and the number of
        all members, and how many of the bytes are shared memory."""
        for pid, group in self._groups.items():
            shared = int(group.get("shared", 0))
            yield pid, group["largest"], int(group["ram"]), int(group["pids"]), shared

    def loads(self) -> tuple[Load, ...]:
        """Return the loads of the targets' process groups as last read. A target that is too new to
        have been read is left out."""
        told_before = self._clock.monotonic() - FIRST_READ_S
        return tuple(
            self._load(target) for target in self._processes
            if target.pid in self._groups or self._first_told_at[_key(target)] <= told_before
        )  # fmt: skip

    def _load(self, target: Target) -> Load:
        group = self._groups.get(target.pid)
        if group is None:
            return Load(target.name, target.kind, self._heard_at, why=NOT_YET)
        return Load(
            target.name, target.kind, group["at"], ram=int(group["ram"]), pids=int(group["pids"])
        )


def _key(target: Target) -> tuple[int, int]:
    return target.pid, target.start


def _group(fields: dict[str, Any], now: float) -> dict[str, Any]:
    largest = [int(pid) for pid in fields.get("largest", ())]
    return {**fields, "largest": largest, "at": now - float(fields["age"] or 0)}


def _hit(fields: dict[str, Any], now: float) -> LogHit:
    why = one_line(str(fields.get("why", "")), 120)
    return LogHit(
        int(fields["limit"]), int(fields["count"]), one_line(str(fields["line"])), why, now
    )


def _disk(fields: dict[str, Any], now: float) -> Disk:
    age, free = fields["age"], fields["free"]
    known = age is not None and free is not None
    return Disk(
        str(fields["path"]), now - float(age) if known else now,
        int(free) if known else None, one_line(str(fields["why"])),
    )  # fmt: skip


class GpuCollector:
    """Starts the GPU reader. Call `tend()` every tick; `cards` and `trouble` are what is known."""

    def __init__(self, clock: Clock, argv: Sequence[str] = ()) -> None:
        reader = (*module_argv("console.host.gpu.child"), "--every", f"{GPU_EVERY_S:g}")
        self.child = Child(argv or reader, clock)
        self._clock = clock
        self._known: dict[str, GpuReading] = {}
        self._heard_at = clock.monotonic()
        self._trouble = ""

    @property
    def cards(self) -> tuple[GpuReading, ...]:
        return tuple(self._known.values())

    @property
    def trouble(self) -> str:
        """Why no GPU is known, or why the readings grow old; "" if all is well."""
        silent = silence(self.child, self._clock.monotonic() - self._heard_at)
        return f"the GPU reader has been silent for {silent}" if silent else self._trouble

    def tend(self) -> None:
        """Take the output of the reader."""
        for line in self.child.tend():
            self.take(line, self._clock.monotonic())

    def take(self, line: bytes, now: float) -> None:
        """Take one line of the reader. An incomplete line changes nothing."""
        report = parse(line, now)
        if report is None:
            return
        self._heard_at, self._trouble = now, report.trouble
        self._known = {
            gpu.uuid: self._kept(GpuReading(gpu, now - report.ages.get(gpu.uuid, 0.0)), now)
            for gpu in report.gpus
        }

    def _kept(self, card: GpuReading, now: float) -> GpuReading:
        before = self._known.get(card.gpu.uuid)
        if before is None or not card.gpu.dark or now - card.at <= GPU_KEPT_S:
            return card
        return replace(before, gpu=replace(before.gpu, why=card.gpu.why))
