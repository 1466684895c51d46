"""A soak as its lines, added up: figures, drift, growth, what is shown live. Pure.

A line is what `STEP.ATTEMPT.soak.jsonl` holds; `t` is in seconds since the soak began. Time in
which nobody looked (no runner lived, or it stood still) is a gap on that axis; every figure is over
observed time, which has no gaps:

- a request, written at its end: `ok`, `error` (its class), `words`, `tok_s`, `ttft_s`, `e2e_s`,
  `void` (why its rate is not used), `late` and `missed` (arrivals at fixed moments), `retries`
  (an empty 400 came first, and it was sent once more);
- a look at the server: `rss`, `anon`, `vram` in bytes or null; `up`: its start could be told;
  `log`: its log could be read;
- an event: `began`, `server`, `restart`, `gone`, `hang`, `critical`, `gap`, `missed` (fixed moments while the
  last request was out), `end`.

The same lines read back give the same figures: that is how a soak goes on under a new runner.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.benchmark.statistics import finite, mean, median, std
from console.text import clean

Line = dict[str, Any]

UNITS = {
    "requests": "count", "errors": "count", "error_rate": "ratio", "stability": "ratio",
    "tok_s": "tok/s", "tok_s_drift": "ratio", "ttft_s": "s", "observed_s": "s",
    "restarts": "count", "hangs": "count", "critical_lines": "count", "rss_growth": "B",
    "rss_peak": "B", "vram_growth": "B", "vram_peak": "B",
}  # fmt: skip
DRIFT_PART = 6
"""Drift compares the last sixth with the first: of one hour the last ten minutes."""
DRIFT_SAMPLES = 5
"""Rates in each of the two parts, at least."""
GROWTH_PART = 10
GROWTH_LOOKS = 3
ROLLING_S = 60.0
CRITICAL_KEPT = 20
MOST_SAMPLES = 400
"""Of single requests' figures in the journal, where a gate may resample them."""
SPARK = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: `t` its end in observed seconds, `error` its class or ""; rates are None where
    they are not usable."""

    t: float
    error: str
    tok_s: float | None
    ttft_s: float | None


@dataclass(slots=True)
class Tally:
    """Everything a soak's lines say so far. `t` and `gaps` in seconds since it began, which was at
    `began` (Unix time); requests and looks are in observed time."""

    t: float = 0.0
    began: float = 0.0
    ended: str = ""
    requests: list[Asked] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    last_error: str = ""
    late: int = 0
    missed: int = 0
    transport_retries: int = 0
    """Requests that were sent twice, because the first time the server answered 400 with nothing."""
    rss: list[tuple[float, float]] = field(default_factory=list)
    anon: list[tuple[float, float]] = field(default_factory=list)
    vram: list[tuple[float, float]] = field(default_factory=list)
    start: dict[str, str] = field(default_factory=dict)
    """When the server started, by each source that can tell; to be compared, not to be read."""
    told: int = 0
    log_reads: int = 0
    gaps: list[list[float]] = field(default_factory=list)
    gap_s: float = 0.0
    restarts: list[dict[str, Any]] = field(default_factory=list)
    hangs: list[dict[str, Any]] = field(default_factory=list)
    critical: list[str] = field(default_factory=list)
    critical_count: int = 0
    gone: str = ""

    @property
    def good(self) -> int:
        return len(self.requests) - sum(self.errors.values())

    @property
    def observed(self) -> float:
        """Seconds in which somebody looked."""
        return self.t - self.gap_s

    @property
    def moments(self) -> int:
        """What there was to serve: requests, and fixed moments at which none could be sent."""
        return len(self.requests) + self.missed

    @property
    def restarted(self) -> int:
        """Restarts without the crash after which it did not come back."""
        return len(self.restarts) - bool(self.gone)

    @property
    def hanging(self) -> bool:
        """Whether nothing was answered since the last silence."""
        return bool(self.hangs) and "until" not in self.hangs[-1]

    def take(self, line: Line) -> None:
        """Add one line. Lines of an unknown kind are passed over."""
        self.t = max(self.t, float(line.get("t", 0.0)))
        if "ok" in line:
            self._request(line)
        elif "rss" in line:
            self._look(line)
        else:
            handler = getattr(self, f"_on_{line.get('event', '')}", None)
            if handler is not None:
                handler(line)

    def _request(self, line: Line) -> None:
        error = str(line.get("error", ""))
        asked = Asked(line["t"] - self.gap_s, error, line.get("tok_s"), line.get("ttft_s"))
        self.requests.append(asked)
        self.late += bool(line.get("late"))
        self.missed += int(line.get("missed", 0))
        self.transport_retries += bool(line.get("retries"))
        if error:
            self.errors[error] = self.errors.get(error, 0) + 1
            self.last_error = str(line.get("words", ""))
        elif self.hanging:
            self.hangs[-1]["until"] = line["t"]

    def _look(self, line: Line) -> None:
        for name, into in (("rss", self.rss), ("anon", self.anon), ("vram", self.vram)):
            if line.get(name) is not None:
                into.append((line["t"] - self.gap_s, float(line[name])))
        self.told += bool(line.get("up"))
        self.log_reads += bool(line.get("log"))

    def _on_began(self, line: Line) -> None:
        self.began = float(line["at"])

    def _on_server(self, line: Line) -> None:
        self.start = dict(line["start"])

    def _on_restart(self, line: Line) -> None:
        self.restarts.append({key: line.get(key) for key in ("t", "at", "what")})

    def _on_gone(self, line: Line) -> None:
        """The server ended: a crash counts as a restart, whether or not anybody starts it again."""
        self._on_restart(line)
        self.gone = str(line["what"])

    def _on_hang(self, line: Line) -> None:
        """A silence goes on until a request is answered again; each request it costs is counted."""
        if self.hanging:
            self.hangs[-1]["requests"] += 1
        else:
            self.hangs.append({key: line.get(key) for key in ("t", "at", "what")} | {"requests": 1})

    def _on_critical(self, line: Line) -> None:
        self.critical_count += int(line["n"])
        room = CRITICAL_KEPT - len(self.critical)
        self.critical += [clean(str(text), 400) for text in line.get("lines", [])[:room]]

    def _on_missed(self, line: Line) -> None:
        self.missed += int(line["n"])

    def _on_gap(self, line: Line) -> None:
        self.gaps.append([float(line["from"]), float(line["to"])])
        self.gap_s += self.gaps[-1][1] - self.gaps[-1][0]

    def _on_end(self, line: Line) -> None:
        self.ended = str(line.get("why", "")) or "ended"

    # -- figures -------------------------------------------------------------------------------

    @property
    def rates(self) -> list[tuple[float, float]]:
        """(observed seconds, tok/s) of every request whose rate counts, in order."""
        return [(r.t, r.tok_s) for r in self.requests if r.tok_s is not None and r.tok_s > 0]

    def figures(self) -> dict[str, dict[str, Any]]:
        """Every metric of UNITS as a gate reads it; `n` is the number of samples behind it.

        What could not be seen is None: a server without a card has no `vram_peak`, and a growth
        across a restart is none, because it compares two processes.
        """
        asked, bad = len(self.requests), sum(self.errors.values())
        anew = bool(self.restarts)
        why = "the server was started anew in between" if anew else ""
        found = {
            "requests": _metric("requests", asked, asked),
            "errors": _metric("errors", bad if asked else None, asked),
            "error_rate": _metric("error_rate", bad / asked if asked else None, asked),
            "stability": _metric("stability", self.good / asked if asked else None, asked),
            "tok_s": self._described("tok_s"),
            "ttft_s": self._described("ttft_s"),
            "tok_s_drift": self._drift(),
            "observed_s": _metric("observed_s", self.observed if asked else None, asked),
            "restarts": _metric(
                "restarts", len(self.restarts) if self.told or anew else None,
                self.told + len(self.restarts),
            ),
            "hangs": _metric("hangs", len(self.hangs) if asked else None, asked),
            "critical_lines": _metric(
                "critical_lines", self.critical_count if self.log_reads else None, self.log_reads
            ),
        }  # fmt: skip
        for name, seen in (("rss", self.rss), ("vram", self.vram)):
            sizes = [size for _, size in seen]
            grown = None if anew else growth(seen, self.observed)
            found[f"{name}_growth"] = _metric(f"{name}_growth", grown, len(seen), why=why)
            found[f"{name}_peak"] = _metric(f"{name}_peak", max(sizes, default=None), len(seen))
        return found

    def void_figures(self, why: str) -> dict[str, dict[str, Any]]:
        """The same of a soak that did not run to its end: to be read, not to be judged by.

        Whatever is behind a figure is void, so a gate finds no valid sample and holds: an error
        that was not waited for, and growth that had no time, would look like a good server.
        """
        found = self.figures()
        for figure in found.values():
            figure.pop("samples", None)
            figure |= {"n": 0, "void": figure["n"] + figure["void"], "why": why}
        return found

    def _described(self, name: str) -> dict[str, Any]:
        """A figure of single requests: their median, and how they spread."""
        values = finite(getattr(request, name) for request in self.requests)
        found = _metric(name, median(values), len(values))
        found |= {
            "void": len(self.requests) - len(values), "headline": "median", "mean": mean(values),
            "std": std(values), "median": median(values), "min": min(values, default=None),
            "max": max(values, default=None),
        }  # fmt: skip
        return found | ({"samples": values} if 0 < len(values) <= MOST_SAMPLES else {})

    @property
    def anon_growth(self) -> float | None:
        """Growth of the memory that no file backs: of RSS growth, what is no paged-in model."""
        return None if self.restarts else growth(self.anon, self.observed)

    def _drift(self) -> dict[str, Any]:
        ratio, count = drift(self.rates, self.observed)
        return _metric("tok_s_drift", ratio, count)


def _metric(name: str, value: float | None, n: int, *, why: str = "") -> dict[str, Any]:
    sure = value if value is not None and math.isfinite(value) else None
    told = {"value": sure, "unit": UNITS[name], "n": n if sure is not None else 0, "void": 0}
    return told | ({"why": why} if why and sure is None else {})


def drift(rates: Sequence[tuple[float, float]], observed_s: float) -> tuple[float | None, int]:
    """How much slower the last sixth is than the first, by medians, and the samples behind it.

    0.05 is 5 % slower, a negative ratio faster. None with fewer than 5 rates in either part.
    """
    part = observed_s / DRIFT_PART
    first = [rate for t, rate in rates if t <= part]
    last = [rate for t, rate in rates if t > observed_s - part]
    before, after = median(first), median(last)
    if min(len(first), len(last)) < DRIFT_SAMPLES or not before or after is None:
        return None, 0
    return 1 - after / before, len(first) + len(last)


def growth(seen: Sequence[tuple[float, float]], observed_s: float) -> float | None:
    """Bytes grown over the soak: the last tenth's median less the first tenth's, for all of it.

    Medians of parts and not a slope through all points: a slope hides what came late and at once
    (a buffer taken in the last quarter), and one odd look moves no median. The two parts lie a
    little less than the whole soak apart, and their difference is scaled up by that, so that a
    steady leak is told in full. None below three looks in each part.
    """
    count = max(GROWTH_LOOKS, len(seen) // GROWTH_PART)
    if len(seen) < 2 * count:
        return None
    first, last = seen[:count], seen[-count:]
    apart = _middle(t for t, _ in last) - _middle(t for t, _ in first)
    if apart <= 0:
        return None
    grown = _middle(size for _, size in last) - _middle(size for _, size in first)
    return grown * max(1.0, observed_s / apart)


def _middle(values: Iterable[float]) -> float:
    return median(list(values)) or 0.0


def rolling(rates: Sequence[tuple[float, float]], t: float) -> float | None:
    """Median tok/s of the minute that ends at `t`; None where no request ended in it."""
    low = bisect_right(rates, (t - ROLLING_S, math.inf))
    high = bisect_right(rates, (t, math.inf))
    return median([rate for _, rate in rates[low:high]])


def spark(rates: Sequence[tuple[float, float]], t: float, width: int = 24) -> str:
    """The soak so far in `width` characters of 8 levels from 0 to the fastest part: medians, and
    a blank where nothing was answered. At most one character for each five seconds."""
    width = max(1, min(width, int(t / 5)))
    edges = [t * number / width for number in range(width + 1)]
    places = [bisect_right(rates, (edge, math.inf)) for edge in edges]
    parts = [
        median([rate for _, rate in rates[0 if not n else places[n] : places[n + 1]]])
        for n in range(width)
    ]
    most = max(finite(parts), default=0.0)
    if most <= 0:
        return " " * width
    top = len(SPARK) - 1
    return "".join(" " if p is None else SPARK[min(top, int(p / most * top + 0.5))] for p in parts)
