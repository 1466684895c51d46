"""What a run keeps beside its journal: the machine over the run, and the lines of a soak.

A line of RUN/samples/gauges.jsonl, one a second, is `{"at": Unix seconds, "step": id, "gpu": {UUID:
used bytes}, "busy": {UUID: share of time}, "watt": {UUID: watts}, "ram": used bytes, "swap": used
bytes, "psi": per cent}`, of the cards whatever is `kept` of them (`console.host.gpu.figures`);
unknown values are left out. A full file is thinned to half: of two lines the later stays, with the
maxima of both, so that no peak is lost. From then on each line covers twice as many samples. A file
that cannot be written loses lines, but never stops the run; a missing or torn one gives fewer rows
or none.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from console.bench.soak_stats import Line, Tally
from console.common.files import json_lines, write_all, write_atomically
from console.common.text import clean
from console.common.units import number
from console.host.gpu.figures import KEPT
from console.journal.run_dir import RunDir

MAX_LINES = 20_000
PATIENCE = 200
"""Lines that are dropped after a failed thinning, before it is tried again."""
HOST, CARDS = ("ram", "swap", "psi"), tuple(figure.kept for figure in KEPT)
"""Figures of a line: of the host, and tables of one for each card."""
MAX_READ = 100_000
"""Lines of a file that a report takes, at most."""


class GaugeFile:
    """Appends lines; use from one thread. No method raises OSError."""

    def __init__(self, path: Path, most: int = MAX_LINES) -> None:
        self._path = path
        self._most = max(2, most)
        self._fd = -1
        self._count = 0
        self._torn = False
        self._stride = 1
        self._held: Line = {}
        self._looks = 0
        self._dropping = 0

    def add(self, line: Line) -> None:
        self._held = _maxima(self._held, line)
        self._looks += 1
        if self._looks < self._stride:
            return
        line, self._held, self._looks = self._held, {}, 0
        try:
            if self._ready():
                self._write(line)
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the descriptor; a later `add` opens the file again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # a full disk may say so only now
                os.close(fd)

    def _ready(self) -> bool:
        """Make sure the file is open with room for one more line. Raises OSError."""
        if self._dropping:
            self._dropping -= 1
            return False
        if self._fd < 0:
            self._open()
        if self._count >= self._most:
            self._dropping = PATIENCE
            self._thin()
            self._dropping = 0
        return True

    def _open(self) -> None:
        """Open the file, or continue the one that an earlier runner left."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        content = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        self._count, self._torn = content.count(b"\n"), content[-1:] not in (b"", b"\n")

    def _write(self, line: Line) -> None:
        data = _bytes(line)
        if self._torn:  # what a full disk or a dead runner cut off is a line of its own
            data = b"\n" + data
        self._count += 2 if self._torn else 1
        self._torn = os.write(self._fd, data) < len(data)

    def _thin(self) -> None:
        """Halve the number of lines. If it raises OSError, the file is unchanged."""
        lines = gauge_lines(self._path)
        kept = [_maxima(*lines[at : at + 2]) for at in range(0, len(lines), 2)]
        write_atomically(self._path, b"".join(map(_bytes, kept)).decode(), 0o600)
        self.close()
        self._open()
        self._stride *= 2


def gauge_lines(path: Path) -> list[Line]:
    """The complete lines of such a file, oldest first. Raises OSError."""
    return [line for line in json_lines(path) if isinstance(line.get("at"), int | float)]


def _maxima(*lines: Line) -> Line:
    """The last line, with the maximum of every figure over all of them."""
    most: Line = {}
    for line in lines:
        for name in HOST:
            most[name] = max((v for v in (most.get(name), line.get(name)) if v is not None),
                             default=None)  # fmt: skip
        for name in CARDS:
            cards = most.setdefault(name, {})
            for uuid, value in (line.get(name) or {}).items():
                cards[uuid] = max(value, cards.get(uuid, value))
        most |= {name: line[name] for name in ("at", "step") if name in line}
    return {k: v for k, v in most.items() if v or (v is not None and k not in CARDS) or k == "gpu"}


def _bytes(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class SoakFile:
    """`STEP.ATTEMPT.soak.jsonl`, appended to.

    An attempt whose runner died left a file without an `end` line: this one begins as a copy of it,
    and the time in between is a gap. A soak that ended by itself is not continued.
    """

    def __init__(self, run: RunDir, step: str, attempt: int, now: float) -> None:
        """`now`: Unix seconds. Raises OSError."""
        self.path = _path(run, step, attempt)
        self.tally = Tally()
        self._torn = False
        self._fd = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        before = _unfinished(run, step, attempt)
        for line in before:
            self.tally.take(line)
        if before:
            died = self.tally.t
            again = max(died, round(now - self.tally.began, 3))
            gap = {"t": again, "event": "gap", "from": died, "to": again}
            self.tally.take(gap)
            # at once: a runner that dies here, too, leaves all or nothing
            write_all(self._fd, b"".join(_bytes(line) for line in (*before, gap)))

    @property
    def resumed(self) -> bool:
        return bool(self.tally.gaps)

    def keep(self, line: Line) -> None:
        """Write a line; `Soak` counts it. Raises OSError."""
        self._write(line)

    def close(self, why: str) -> None:
        """Write the end line, so that no later attempt continues this one. Raises OSError."""
        fd = self._fd
        if fd >= 0:
            try:
                self._write({"t": self.tally.t, "event": "end", "why": why})
            finally:
                self._fd = -1
                os.close(fd)

    def _write(self, line: Line) -> None:
        data = b"\n" + _bytes(line) if self._torn else _bytes(line)
        self._torn = True  # what a full disk cut off is a line of its own
        write_all(self._fd, data)
        self._torn = False


def soak_lines(path: Path) -> list[Line]:
    """The complete lines of such a file. Raises OSError."""
    return [line for line in json_lines(path) if isinstance(line.get("t"), int | float)]


def _path(run: RunDir, step: str, attempt: int) -> Path:
    return run.attempt_log(step, attempt).with_suffix(".soak.jsonl")


def _unfinished(run: RunDir, step: str, attempt: int) -> list[Line]:
    """The lines of the newest attempt before this one, if nothing ended it."""
    for earlier in range(attempt - 1, 0, -1):
        try:
            lines = soak_lines(_path(run, step, earlier))
        except FileNotFoundError:
            continue  # its runner died before it began
        began = any(line.get("event") == "began" for line in lines)
        ended = any(line.get("event") == "end" for line in lines)
        return lines if began and not ended else []
    return []


@dataclass(frozen=True, slots=True)
class Gauge:
    """The machine at one moment: `at` in Unix seconds, bytes in use, `psi` in per cent; of `cards`
    the tables of the file."""

    at: float
    step: str
    cards: dict[str, dict[str, float]]
    ram: float | None
    swap: float | None
    psi: float | None = None

    @property
    def gpu(self) -> dict[str, float]:
        """The bytes in use of each card."""
        return self.cards.get("gpu", {})


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a soak, `t` seconds after its beginning; `error` is a class, or empty."""

    t: float
    error: str
    tok_s: float | None


@dataclass(slots=True)
class SoakSeries:
    """A soak over time: requests, and (t, bytes) of the server's memory."""

    requests: list[Request] = field(default_factory=list)
    rss: list[tuple[float, float]] = field(default_factory=list)
    vram: list[tuple[float, float]] = field(default_factory=list)

    @property
    def end(self) -> float:
        """Seconds that the samples cover."""
        moments = [r.t for r in self.requests] + [t for t, _ in (*self.rss, *self.vram)]
        return max(moments, default=0.0)


RECENT = 1 << 19
"""Bytes at the end of the file that hold the last half hour, of up to eight cards."""


def gauges(run: RunDir, last: int = 0) -> list[Gauge]:
    """RUN/samples/gauges.jsonl in order of time; only its `last` bytes if that is not 0."""
    readings = []
    for row in _rows(run.gauges, last):
        if (at := number(row.get("at"))) is None:
            continue
        cards = {name: _by_card(row.get(name)) for name in CARDS}
        ram, swap, psi = (number(row.get(name)) for name in HOST)
        step = clean(str(row.get("step") or ""), 80)
        readings.append(Gauge(at, step, cards, ram, swap, psi))
    return sorted(readings, key=lambda gauge: gauge.at)


def _by_card(cards: object) -> dict[str, float]:
    """A table by UUID without what is no figure."""
    table = cards if isinstance(cards, dict) else {}
    return {clean(str(k), 80): size for k, v in table.items() if (size := number(v)) is not None}


def soak_series(run: RunDir, soak: dict[str, Any]) -> SoakSeries:
    """The content of a soak's own file; `soak` is its entry in the journal."""
    series = SoakSeries()
    path = _beside_attempts(run, soak.get("file"))
    for row in _rows(path) if path is not None else ():
        t = number(row.get("t"))
        if t is None:
            continue
        if "ok" in row:
            error = "" if row["ok"] is True else clean(str(row.get("error") or "error"), 60)
            series.requests.append(Request(t, error, number(row.get("tok_s"))))
            continue
        for name, into in (("rss", series.rss), ("vram", series.vram)):
            if (size := number(row.get(name))) is not None:
                into.append((t, size))
    series.requests.sort(key=lambda request: request.t)
    series.rss.sort()
    series.vram.sort()
    return series


def _beside_attempts(run: RunDir, file: object) -> Path | None:
    """A file of this run by its name alone: the directory may have moved, and a name from a journal
    must open nothing elsewhere."""
    name = Path(file).name if isinstance(file, str) else ""
    return run.path / "attempts" / name if name else None


def _rows(path: Path, last: int = 0) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(OSError):
        yield from islice(json_lines(path, last), MAX_READ)
