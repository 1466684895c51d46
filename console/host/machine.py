"""This machine as a verdict needs it: available memory, cards, processor, disk.

Nothing is written and no disk is measured. `given` says where every figure is from. A file system
on a dead network mount can hang for good, so a gauge queries each path in its own daemon thread.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.common.errors import ConsoleError, EngineTimeout
from console.common.files import read_bytes
from console.common.text import one_line
from console.host.children import within
from console.host.gpu import inventory as nvml
from console.host.gpu.inventory import Cards
from console.host.memory import MemoryReader, limits, swap_in_ram
from console.host.sample import DiskSample, Machine

SILENT_S = 3.0
"""Seconds without an answer after which a file system is shown as silent."""
EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of a file system: free for this user, and in all."""

    free: int
    total: int


def existing(path: Path) -> Path:
    """The path, or the nearest existing directory above it."""
    path = Path(os.path.abspath(path))
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    return path


def space(path: Path) -> Space:
    """The file system that a path is on, or would be made on. May block; raises OSError."""
    info = os.statvfs(existing(path))
    return Space(info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize)


def read_disk(path: str) -> DiskSample:
    """Total bytes and those an ordinary user may still write. May block; never raises."""
    shown = one_line(path)
    try:
        file_system = os.statvfs(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return DiskSample(shown, None, None, one_line(why).lower())
    if not file_system.f_blocks:
        return DiskSample(shown, None, None, "this file system has no size")
    return DiskSample(
        shown,
        file_system.f_blocks * file_system.f_frsize,
        file_system.f_bavail * file_system.f_frsize,
    )


class DiskWatch:
    """One path, queried repeatedly in a thread that may hang without harm."""

    def __init__(
        self, path: str, clock: Clock, read: Callable[[str], DiskSample] = read_disk
    ) -> None:
        self.path = path
        self._clock = clock
        self._read = read
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._last = DiskSample(one_line(path), None, None, "asking")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauge-disk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def latest(self) -> DiskSample:
        """The last answer, "asking" before there is one, or "no answer for N s"."""
        with self._lock:
            asked_at, last = self._asked_at, self._last
        silent = 0.0 if asked_at is None else self._clock.monotonic() - asked_at
        if silent > SILENT_S:
            return DiskSample(one_line(self.path), None, None, f"no answer for {silent:.0f} s")
        return last

    def close(self) -> None:
        """Stop asking; a thread that hangs is left behind. Does not wait for it."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end, but no longer than this."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                self._asked_at = self._clock.monotonic()
            sample = self._read(self.path)
            with self._lock:
                self._asked_at, self._last = None, sample
            self._clock.wait(self._stop, EVERY_S)


DISK_S = 2.0
"""A dead mount does not answer at all."""
NOW = "measured now"
_FIELD = re.compile(r"^(\S[^:\t]*?)\s*:\s?(.*)$", re.MULTILINE)


def look(
    disk: Path | None = None, *, root: Path = Path("/"), cards: Cards | None = None
) -> Machine:
    """The machine at this moment; an unavailable figure is None, and `given` says why.

    `disk` is where a download goes (it need not exist yet). `root` is where /proc and /sys are;
    `cards` are queried from NVML unless they are given.
    """
    given: dict[str, str] = {}
    inventory = nvml.ask() if cards is None else cards
    given["cards"] = inventory.words or f"{NOW}, NVML, driver {inventory.driver or 'unknown'}"
    nodes = numa_nodes(root)
    given["numa_nodes"] = "the kernel does not list them" if nodes is None else NOW
    return Machine(
        cards=inventory.cards, disk_free=_disk(disk, given) if disk is not None else None,
        disk_path=str(disk) if disk is not None else "", numa_nodes=nodes, given=given,
        **_memory(root, given), **_processor(root, given),
    )  # fmt: skip


def numa_nodes(root: Path = Path("/")) -> int | None:
    """NUMA nodes, None if the kernel does not list them."""
    try:
        names = os.listdir(root / "sys/devices/system/node")
    except OSError:
        return None
    return sum(re.fullmatch(r"node\d+", name) is not None for name in names) or None


def disk_free(path: Path) -> int:
    """Bytes this user can still write where `path` is, or would be made.

    Raises OSError, and EngineTimeout for a mount that does not answer.
    """
    hint = "a dead mount? `findmnt -T` names it"
    return within(DISK_S, f"The disk of {one_line(str(path))}", lambda: space(path).free, hint)


def _memory(root: Path, given: dict[str, str]) -> dict[str, Any]:
    reader = MemoryReader(root / "proc")
    try:
        seen = reader.read(0.0)
    except ConsoleError as error:
        given["ram_total"] = given["ram_available"] = str(error)
        return {}
    finally:
        reader.close()
    figures = {"ram_total": seen.total, "ram_available": seen.available}
    compressed, held = swap_in_ram(read_bytes(root / "proc" / "swaps"))
    whole, used = seen.swap_total - compressed, seen.swap_used - held
    figures |= {"swap_total": max(0, whole), "swap_free": max(0, whole - used)}
    given["ram_total"] = given["swap_total"] = f"{NOW}, /proc/meminfo"
    given["ram_available"] = f"{NOW}, MemAvailable"
    given["swap_free"] = f"{NOW}, SwapFree"
    if compressed:
        given["swap_total"] = given["swap_free"] = f"{NOW}, without zram, which is RAM itself"
    for limit in limits(root):
        group = f"cgroup {one_line(limit.group, 80)}"
        for name, most, words in (
            ("ram_total", limit.most, f"the limit of {group}"),
            ("ram_available", limit.left, f"what {group} leaves"),
            ("swap_free", limit.swap_left, f"what {group} leaves"),
        ):
            if most is not None and most < figures[name]:
                figures[name], given[name] = most, f"{NOW}, {words}"
    return figures


def _disk(path: Path, given: dict[str, str]) -> int | None:
    try:
        free = disk_free(path)
    except (OSError, EngineTimeout) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        given["disk_free"] = one_line(words or "cannot be read")
        return None
    given["disk_free"] = f"{NOW}, {existing(path)}"
    return free


def _processor(root: Path, given: dict[str, str]) -> dict[str, Any]:
    """Flags and name of the first processor, and the total number of cores (not threads)."""
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError as error:
        given["cpu_flags"] = f"/proc/cpuinfo: {error.strerror}"
        return {}
    given["cpu_flags"] = given["cores"] = f"{NOW}, /proc/cpuinfo"
    flags, name, pairs, threads = frozenset[str](), "", set(), 0
    for block in text.split("\n\n"):
        fields = dict(_FIELD.findall(block))
        threads += "processor" in fields
        flags = flags or frozenset((fields.get("flags") or fields.get("Features", "")).split())
        name = name or one_line(fields.get("model name", ""))
        if "core id" in fields:
            pairs.add((fields.get("physical id", "0"), fields["core id"]))
    return {"cpu_flags": flags, "cpu_name": name, "cores": len(pairs) or threads or None}
