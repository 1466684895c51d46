"""RAM: what the machine has, what processes hold, and how long a kill takes to give it back.

A reading of the machine (RAM, swap, swap rates and memory pressure, by pread on descriptors that
stay open) takes a tenth of a millisecond and opens nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from console.common.errors import ConsoleError
from console.common.files import read_text
from console.common.text import one_line
from console.host.sample import MemorySample

_MEMINFO = re.compile(rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree):\s+(\d+) kB", re.MULTILINE)
_SWAPS = re.compile(rb"^(pswpin|pswpout) (\d+)$", re.MULTILINE)
_PRESSURE = re.compile(rb"^(some|full) avg10=([0-9.]+)", re.MULTILINE)
_CHUNK = 32 * 1024


class MemoryReader:
    """The kernel's own figures, under `root`. Use from one thread; `close()` when done."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._open: dict[str, int] = {}
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._before: tuple[float, int, int] | None = None

    def read(self, at: float) -> MemorySample:
        """One look; `at` in monotonic seconds is what rates are counted by.

        Rates are None at the first look and where the kernel has no counters, pressure where it
        has no PSI. Raises ConsoleError when RAM itself is not to be read.
        """
        try:
            kib = {name: int(value) for name, value in _MEMINFO.findall(self._text("meminfo"))}
            total, available = kib[b"MemTotal"] * 1024, kib[b"MemAvailable"] * 1024
        except OSError as error:
            cause = one_line(error.strerror or str(error))
            raise ConsoleError("memory cannot be read", f"{self._root}/meminfo: {cause}") from None
        except KeyError as error:
            detail = f"{self._root}/meminfo has no {error.args[0].decode()}"
            raise ConsoleError("memory cannot be read", detail) from None
        swap_total = kib.get(b"SwapTotal", 0) * 1024
        swap_in, swap_out = self._rates(at)
        pressure = self._figures(_PRESSURE, "pressure/memory")
        return MemorySample(
            total=total,
            available=min(available, total),
            swap_total=swap_total,
            swap_used=max(0, swap_total - kib.get(b"SwapFree", 0) * 1024),
            swap_in_rate=swap_in,
            swap_out_rate=swap_out,
            pressure_some=pressure.get(b"some"),
            pressure_full=pressure.get(b"full"),
        )

    def close(self) -> None:
        """Give the descriptors back; a later `read` opens them anew."""
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
"""How long whoever holds next to nothing may take to be gone after SIGKILL."""
TEARDOWN_S = 0.5
"""Seconds a GiB: 0.08 were measured on a quiet machine, 0.42 on one that swaps."""
GIB = 1 << 30
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""Docker and Podman name a container's control group by its full id, with cgroupfs and systemd."""


class Resident(NamedTuple):
    """Bytes of RAM: all pages, and those that come back only when their owner is gone (anonymous
    and shared memory; pages of files count as available already)."""

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
    found = _CONTAINER.search(read_text(f"/proc/{pid}/cgroup"))
    return found[0] if found else ""


def kill_wait_s(held: Resident) -> float:
    """Seconds that a killed process which held this may take to be gone."""
    return KILL_WAIT_S + held.total / GIB * TEARDOWN_S


def _rows(pid: int) -> dict[str, int]:
    """The rows of /proc/PID/status that count kB, in bytes; empty where it is gone."""
    rows = {}
    for line in read_text(f"/proc/{pid}/status").splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB" and words[1].isdigit():
            rows[words[0].rstrip(":")] = int(words[1]) * 1024
    return rows
