"""RAM: what the machine has, what control groups leave of it, and what processes hold.

A reading of the machine (RAM, swap, swap rates and memory pressure, by pread on descriptors that
stay open) takes a tenth of a millisecond and opens nothing.

Every control group up to the root counts: version 2, version 1, and both at once. A group's usage
includes the page cache, which the kernel reclaims. `limits` counts as used what is neither inactive
nor active file memory; `Bound`, which keeps its files open between looks, excludes only inactive
file memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from console.common.errors import ConsoleError
from console.common.files import read_bytes, read_text
from console.common.text import one_line
from console.host.sample import MemorySample

_MEMINFO = re.compile(rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree):\s+(\d+) kB", re.MULTILINE)
_SWAPS = re.compile(rb"^(pswpin|pswpout) (\d+)$", re.MULTILINE)
_PRESSURE = re.compile(rb"^(some|full) avg10=([0-9.]+)", re.MULTILINE)
_ARC = re.compile(rb"^(size|c_min)\s+\d+\s+(\d+)$", re.MULTILINE)
_ZRAM = re.compile(rb"^/dev/zram\d+\s+\S+\s+(\d+)\s+(\d+)", re.MULTILINE)
ARC = "spl/kstat/zfs/arcstats"
"""Below /proc: what the cache of ZFS has."""
_CHUNK = 32 * 1024


def meminfo(path: Path | str = "/proc/meminfo") -> dict[str, int]:
    """Bytes of RAM and swap, by the kernel's own names; an unreadable row is absent. What the ZFS
    cache gives back counts as available, as in `MemoryReader`."""
    figures = _figures_of(read_bytes(path))
    if "MemAvailable" in figures:
        figures["MemAvailable"] += returned_by_zfs(read_bytes(Path(path).parent / ARC))
    return figures


def _figures_of(text: bytes) -> dict[str, int]:
    return {name.decode(): int(kib) * 1024 for name, kib in _MEMINFO.findall(text)}


def returned_by_zfs(arcstats: bytes) -> int:
    """Bytes that the cache of ZFS gives back when memory is short: its size less its least size.

    The kernel does not count them as available, though they are a cache like that of any other file
    system (openzfs/zfs#10255): a machine with 180 GiB of it looks full. 0 without ZFS.
    """
    figures = {name: int(value) for name, value in _ARC.findall(arcstats)}
    return max(0, figures.get(b"size", 0) - figures.get(b"c_min", 0))


def swap_in_ram(swaps: bytes) -> tuple[int, int]:
    """Bytes of swap that is compressed RAM (zram), whole and used, by the text of /proc/swaps. What
    lies there still needs RAM, so it is no room for a model."""
    rows = [(int(size) << 10, int(used) << 10) for size, used in _ZRAM.findall(swaps)]
    return sum(size for size, _ in rows), sum(used for _, used in rows)


class MemoryReader:
    """The kernel's own figures, under `root`. Use from one thread; `close()` when done."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._open: dict[str, int] = {}
        self._has_zfs = True
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._before: tuple[float, int, int] | None = None

    def read(self, at: float) -> MemorySample:
        """One look; `at` in monotonic seconds is the time base of rates.

        Rates are None at the first look and if the kernel has no counters, pressure if it has no
        PSI. Raises ConsoleError when RAM itself is unreadable.
        """
        try:
            table = _figures_of(self._text("meminfo"))
            total, available = table["MemTotal"], table["MemAvailable"]
        except OSError as error:
            cause = one_line(error.strerror or str(error))
            raise ConsoleError("memory cannot be read", f"{self._root}/meminfo: {cause}") from None
        except KeyError as error:
            detail = f"{self._root}/meminfo has no {error.args[0]}"
            raise ConsoleError("memory cannot be read", detail) from None
        available += self._returned_by_zfs()
        swap_total = table.get("SwapTotal", 0)
        swap_in, swap_out = self._rates(at)
        pressure = self._figures(_PRESSURE, "pressure/memory")
        return MemorySample(
            total=total,
            available=min(available, total),
            swap_total=swap_total,
            swap_used=max(0, swap_total - table.get("SwapFree", 0)),
            swap_in_rate=swap_in,
            swap_out_rate=swap_out,
            pressure_some=pressure.get(b"some"),
            pressure_full=pressure.get(b"full"),
        )

    def _returned_by_zfs(self) -> int:
        """See `returned_by_zfs`; a machine without ZFS is not asked again."""
        if not self._has_zfs:
            return 0
        try:
            return returned_by_zfs(self._text(ARC))
        except OSError:
            self._has_zfs = False
            return 0

    def close(self) -> None:
        """Close the descriptors; a later `read` opens them again."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _rates(self, at: float) -> tuple[float | None, float | None]:
        pages = self._figures(_SWAPS, "vmstat")
        if b"pswpin" not in pages or b"pswpout" not in pages:
            self._before = None
            return None, None
        now = (at, int(pages[b"pswpin"]), int(pages[b"pswpout"]))
        before, self._before = self._before, now
        if before is None or at <= before[0]:
            return None, None
        scale = self._page / (at - before[0])
        return max(0, now[1] - before[1]) * scale, max(0, now[2] - before[2]) * scale

    def _figures(self, pattern: re.Pattern[bytes], name: str) -> dict[bytes, float]:
        """Figures of a file that this kernel may lack, or refuse to read (psi=0)."""
        try:
            return {key: float(value) for key, value in pattern.findall(self._text(name))}
        except (OSError, ValueError):
            return {}

    def _text(self, name: str) -> bytes:
        descriptor = self._open.get(name)
        if descriptor is None:
            descriptor = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
            self._open[name] = descriptor
        text = os.pread(descriptor, _CHUNK, 0)
        while len(text) % _CHUNK == 0 and (more := os.pread(descriptor, _CHUNK, len(text))):
            text += more
        return text


KILL_WAIT_S = 10.0
"""Seconds that a process which holds next to nothing may take to be gone after SIGKILL."""
TEARDOWN_S = 0.5
"""Seconds a GiB: 0.08 were measured on a quiet machine, 0.42 on one that swaps."""
GIB = 1 << 30
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""Docker and Podman name a container's control group by its full id, with cgroupfs and systemd."""


class Resident(NamedTuple):
    """Bytes of RAM: all pages, and those freed only when their owner ends (anonymous and shared
    memory; pages of files count as available already)."""

    total: int
    own: int


def resident(pids: Iterable[int]) -> Resident:
    """The sum over some processes; shared pages count once for each of them."""
    total = own = 0
    for pid in pids:
        rows = _rows(pid)
        total += rows.get("VmRSS", 0)
        own += rows.get("RssAnon", 0) + rows.get("RssShmem", 0)
    return Resident(total, own)


def pids_of_container(identity: str) -> list[int]:
    """The pids of a container of this machine, by its full id in their control group."""
    names = filter(str.isdigit, os.listdir("/proc") if identity else ())
    return [int(name) for name in names if identity in read_text(f"/proc/{name}/cgroup")]


def container_of(pid: int) -> str:
    """The full id of the container that a process of this machine runs in; empty for none."""
    match = _CONTAINER.search(read_text(f"/proc/{pid}/cgroup"))
    return match[0] if match else ""


def oom_kills() -> int | None:
    """How many processes of this machine the kernel has killed since boot because memory ran out;
    None where it does not count them (before Linux 4.13)."""
    match = re.search(r"^oom_kill (\d+)$", read_text("/proc/vmstat"), re.MULTILINE)
    return int(match[1]) if match else None


def oom_kills_since(before: int | None) -> int | None:
    """How many of them came after `before`, what `oom_kills` was then; None if unknown."""
    now = oom_kills() if before is not None else None
    return None if now is None or before is None else now - before


def kill_wait_s(held: Resident) -> float:
    """Seconds that a killed process which held this many bytes may take to be gone."""
    return KILL_WAIT_S + held.total / GIB * TEARDOWN_S


def _rows(pid: int) -> dict[str, int]:
    """The rows of /proc/PID/status in kB, as bytes; empty if it is gone."""
    rows = {}
    for line in read_text(f"/proc/{pid}/status").splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB" and words[1].isdigit():
            rows[words[0].rstrip(":")] = int(words[1]) * 1024
    return rows


UNLIMITED = 1 << 60
"""Version 1 writes a number of this size for "no limit", bytes."""
_STAT = 16384


@dataclass(frozen=True, slots=True)
class Limit:
    """One group with a limit: `left` of `most` bytes, and of its swap (None: not limited)."""

    group: str
    most: int
    left: int
    swap_left: int | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a cgroup version; `controller` as /proc/PID/cgroup names its groups."""

    controller: str
    most: str
    used: str
    inactive: str
    active: str
    events: str


V2 = Files("", "memory.max", "memory.current", "inactive_file", "active_file", "memory.events")
V1 = Files(
    "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
    "total_inactive_file", "total_active_file", "memory.oom_control",
)  # fmt: skip


def limits(root: Path) -> list[Limit]:
    """Every memory limit on this process, its own group's first; empty if there is none."""
    group_limits = (_limit(folder, name, files) for folder, name, files in _groups(root))
    return [limit for limit in group_limits if limit is not None]


def _groups(root: Path) -> Iterator[tuple[Path, str, Files]]:
    """Each group of this process that may account memory, its own first and version 2 before
    version 1: its directory, its name, its files."""
    rows = [row.split(":", 2) for row in read_text(root / "proc/self/cgroup").splitlines()]
    inside = {
        name: path
        for number, names, path in (row for row in rows if len(row) == 3)
        if names or number == "0"
        for name in names.split(",")
    }
    for top, shown, files in sorted(_mounts(root), key=lambda mount: mount[2].controller):
        if files.controller not in inside:
            continue
        # Without a control group namespace the mount shows only a part of the tree.
        path = inside[files.controller]
        inner = path.removeprefix(shown).strip("/") if path.startswith(shown) else ""
        folder = top if ".." in inner.split("/") else top / inner
        for directory in (folder, *folder.parents):
            if directory.is_relative_to(top):
                yield directory, str(directory.relative_to(top.parent)), files


def _mounts(root: Path) -> Iterator[tuple[Path, str, Files]]:
    """Hierarchies that may account memory: mount point, which part of the tree, files."""
    for row in read_text(root / "proc/self/mountinfo").splitlines():
        left, _, right = row.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        shown, point = (_unescaped(field) for field in fields[3:5])
        if kind[0] == "cgroup2":
            yield root / point.lstrip("/"), shown, V2
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            yield root / point.lstrip("/"), shown, V1


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _limit(folder: Path, name: str, files: Files) -> Limit | None:
    most, used = number_in(folder / files.most), number_in(folder / files.used)
    if most is None or not 0 <= most < UNLIMITED or used is None:
        return None
    table = dict(re.findall(r"^(\w+) (\d+)$", read_text(folder / "memory.stat"), re.MULTILINE))
    cache = int(table.get(files.inactive, 0)) + int(table.get(files.active, 0))
    left = max(0, most - max(0, used - cache))
    swap, swapped = number_in(folder / "memory.swap.max"), number_in(folder / "memory.swap.current")
    swap_left = None if swap is None or swapped is None else max(0, swap - swapped)
    return Limit(name, most, left, swap_left)


def number_in(path: Path) -> int | None:
    """The number in a kernel file; None for "max", no number, and no file."""
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Level:
    """One group with a limit in bytes: its open files, and the row of its page cache."""

    limit: int
    usage: int
    stat: int
    key: bytes


class Bound:
    """The levels that bound this process, found once: limits of its own level and of those above,
    except limits above the machine's own memory."""

    def __init__(self, root: Path, total: int) -> None:
        self.inside = False
        """Whether a part of the run is bounded with this process; else no level is judged."""
        levels = (_level(folder, files, total) for folder, _, files in _groups(root))
        self.levels = [level for level in levels if level is not None]

    @property
    def least(self) -> int:
        """The lowest limit in bytes, 0 without one."""
        return min((level.limit for level in self.levels), default=0)

    def look(self) -> int | None:
        """Bytes left at the level nearest its limit; None if none can be read."""
        known = [left for level in self.levels if (left := _left(level)) is not None]
        return min(known, default=None)

    def close(self) -> None:
        for level in self.levels:
            os.close(level.usage)
            os.close(level.stat)
        self.levels.clear()


def _level(folder: Path, files: Files, total: int) -> Level | None:
    limit = number_in(folder / files.most)
    if limit is None or not 0 < limit < total:
        return None
    opened: list[int] = []
    try:
        for name in (files.used, "memory.stat"):
            opened.append(os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        return None
    usage, stat = opened
    return Level(limit, usage, stat, f"\n{files.inactive} ".encode())


def _left(level: Level) -> int | None:
    try:
        used = int(os.pread(level.usage, 64, 0))
        text = os.pread(level.stat, _STAT, 0)
    except (OSError, ValueError):
        return None
    at = text.find(level.key)
    cache = 0
    if at >= 0:
        at += len(level.key)
        cache = int(text[at : text.find(b"\n", at)])
    return max(0, level.limit - used + min(cache, used))
