"""RAM, swap, swap rates and memory pressure, by pread on descriptors that stay open.

A reading takes a tenth of a millisecond and opens nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from console.common.errors import ConsoleError
from console.common.files import read_bytes
from console.common.text import one_line
from console.host.sample import MemorySample

_MEMINFO = re.compile(rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree):\s+(\d+) kB", re.MULTILINE)
_SWAPS = re.compile(rb"^(pswpin|pswpout) (\d+)$", re.MULTILINE)
_PRESSURE = re.compile(rb"^(some|full) avg10=([0-9.]+)", re.MULTILINE)
_CHUNK = 32 * 1024


def meminfo(path: Path | str = "/proc/meminfo") -> dict[str, int]:
    """Bytes of RAM and swap, by the kernel's own names; a row that cannot be read is absent."""
    return _rows(read_bytes(path))


def _rows(text: bytes) -> dict[str, int]:
    return {name.decode(): int(kib) * 1024 for name, kib in _MEMINFO.findall(text)}


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
            table = _rows(self._text("meminfo"))
            total, available = table["MemTotal"], table["MemAvailable"]
        except OSError as error:
            cause = one_line(error.strerror or str(error))
            raise ConsoleError("memory cannot be read", f"{self._root}/meminfo: {cause}") from None
        except KeyError as error:
            detail = f"{self._root}/meminfo has no {error.args[0]}"
            raise ConsoleError("memory cannot be read", detail) from None
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
