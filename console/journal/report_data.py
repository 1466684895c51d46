"""What a report reads beside the journal: gauges over the run, soaks, samples of benchmarks.

A file that is missing or torn gives fewer rows or none; nothing is made up for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from console.common.files import json_lines
from console.common.text import clean
from console.common.units import number
from console.journal.run_dir import RunDir

MOST_LINES = 100_000


@dataclass(frozen=True, slots=True)
class Gauge:
    """The machine at one moment: `at` in Unix seconds, bytes in use; `gpu` by UUID."""

    at: float
    step: str
    gpu: dict[str, float]
    ram: float | None
    swap: float | None


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


def gauges(run: RunDir) -> list[Gauge]:
    """RUN/samples/gauges.jsonl in order of time."""
    found = []
    for row in _rows(run.gauges):
        at, gpu = number(row.get("at")), row.get("gpu")
        if at is None:
            continue
        cards = gpu if isinstance(gpu, dict) else {}
        used = {
            clean(str(k), 80): size for k, v in cards.items() if (size := number(v)) is not None
        }
        step = clean(str(row.get("step") or ""), 80)
        found.append(Gauge(at, step, used, number(row.get("ram")), number(row.get("swap"))))
    return sorted(found, key=lambda gauge: gauge.at)


def soak_series(run: RunDir, soak: dict[str, Any]) -> SoakSeries:
    """What the soak's own file holds; `soak` is its entry in the journal."""
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
    """A file by its name alone, in this run: the directory may have moved since, and a name in a
    journal opens nothing elsewhere."""
    name = Path(file).name if isinstance(file, str) else ""
    return run.path / "attempts" / name if name else None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(OSError):
        yield from islice(json_lines(path), MOST_LINES)
