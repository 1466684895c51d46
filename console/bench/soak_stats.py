"""Adds up the lines of a soak: figures, normal waits, drift, growth, the live display. Pure.

A line is what `STEP.ATTEMPT.soak.jsonl` holds; `t` is in seconds since the soak began. Time without
observation (no runner lived, or it stood still) is a gap on that axis; every figure is over
observed time, which has no gaps:

- a request, written at its end: `ok`, `error` (its class), `words`, `tok_s`, `ttft_s`, `e2e_s`,
  `void` (why its rate is not used), `context` (tokens of prompt and answer), `late` and `missed`
  (arrivals at fixed moments), `retries` (an empty 400 came first, and it was sent once more);
- a look at the server: `rss`, `anon`, `vram` in bytes or null; `up`: its start could be told;
  `log`: its log could be read;
- an event: `began`, `server`, `restart`, `gone`, `hang`, `critical`, `gap`, `missed` (fixed moments
  while the last request was out), `end`.

The same lines read back give the same figures: that is how a soak goes on under a new runner.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from console.bench.answers import Garbage
from console.bench.metrics import DRIFT_SAMPLES, MAX_SAMPLES, SOAK_METRICS
from console.bench.sample import Sample
from console.bench.statistics import (
    GROWTH_LOOKS,
    drift,
    drift_interval,
    ends,
    finite,
    growth,
    mean,
    median,
    std,
)
from console.common.text import clean

NO_ANSWER = "nothing was answered"
RECENT = 200
NOTICED = 3.0
"""A silence is shown from this multiple of the normal one, long before it counts as a hang."""
NOTICED_S = 5.0
LONGEST = 2.0
"""Multiple of the longest answer so far that a request may take beyond the soak's end."""
KNOWN_TIMES = 10.0

Line = dict[str, Any]

GARBLED = "garbled"
"""Error class: an answer whose text is none."""
CRITICAL_KEPT = 20
LONGEST_GAP_S = 60.0
"""Longest gap between looks (every 5 s, at /metrics every 30 s) over which a value counts as known;
it may have changed unseen in a longer one."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a silence may be before it is a hang: `times` the median so far, at least `floor_s`
    seconds. Before `enough` answers nothing is known to be normal, and the bound is `cold_s`; in a
    restarted process it is `anew_s`, because its model is paged in while requests wait."""

    times: float = 20.0
    floor_s: float = 10.0
    cold_s: float = 60.0
    anew_s: float = 300.0
    enough: int = 3


def patience(slowest_ttft_s: float | None) -> Patience:
    """The patience with a service whose slowest first token an earlier benchmark saw: ten times
    that, at least 10 s, before anything is known to be normal. Without one: 60 s."""
    if slowest_ttft_s is None:
        return Patience()
    cold_s = max(Patience().floor_s, KNOWN_TIMES * slowest_ttft_s)
    return Patience(cold_s=cold_s, anew_s=max(Patience().anew_s, cold_s))


class Normal:
    """Normal waits so far, in seconds: to the first chunk, from one to the next, a whole answer.
    `heard` is the number of chunks that a request has brought."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._firsts: deque[float] = deque(maxlen=RECENT)
        self._betweens: deque[float] = deque(maxlen=RECENT)
        self._longest = 0.0
        self._cold_s = patience.cold_s

    def learn(self, sample: Sample) -> None:
        if sample.ttft_s is None or sample.e2e_s is None:
            return
        self._firsts.append(sample.ttft_s)
        between = (sample.e2e_s - sample.ttft_s) / max(1, sample.chunks - 1)
        self._betweens.append(max(0.0, between))
        self._longest = max(self._longest, sample.e2e_s)

    def forget(self) -> None:
        """Start again, because the process is a new one."""
        self._firsts.clear()
        self._betweens.clear()
        self._cold_s = max(self._patience.cold_s, self._patience.anew_s)

    def silence(self, heard: int) -> float | None:
        """The normal silence; None while too little is known."""
        known = self._betweens if heard else self._firsts
        return statistics.median(known) if len(known) >= self._patience.enough else None

    def limit(self, heard: int) -> float:
        """A longer silence is a hang."""
        normal, patience = self.silence(heard), self._patience
        return self._cold_s if normal is None else max(patience.floor_s, patience.times * normal)

    def noticed(self, heard: int) -> float:
        """A longer silence is shown while it lasts."""
        normal = self.silence(heard)
        least = NOTICED_S if normal is None else max(NOTICED_S, NOTICED * normal)
        return min(least, self.limit(heard))

    def rest(self, heard: int) -> float:
        """How long after the soak's end a request that still brings tokens is waited for."""
        return max(self.limit(heard), LONGEST * self._longest)


@dataclass(frozen=True, slots=True)
class SoakRequest:
    """One request: `t` its end in observed seconds, `error` its class or ""; unusable rates are
    None."""

    t: float
    error: str
    tok_s: float | None
    ttft_s: float | None
    context: int | None = None
    """Tokens of prompt and answer, by the server's count."""


@dataclass(slots=True)
class Seen:
    """When something was looked at, in observed seconds since the soak began."""

    count: int = 0
    last: float = 0.0
    longest: float = 0.0
    """The longest time between two looks, and from the beginning to the first."""

    def look(self, t: float) -> None:
        self.longest = max(self.longest, t - self.last)
        self.count, self.last = self.count + 1, t

    def unsure(self, now: float, *, always: bool = True) -> str:
        """Why a value is not known at `now`; "" if it is. `always`: it must have been seen all the
        time, else recently is enough."""
        gap = max(now - self.last, self.longest if always else 0.0)
        return f"not read for {gap:.0f} s in a row" if gap > LONGEST_GAP_S else ""


@dataclass(slots=True)
class Tally:
    """Everything that a soak's lines say so far. `t` and `gaps` in seconds since it began, which
    was at `began` (Unix time); requests and looks are in observed time."""

    t: float = 0.0
    began: float = 0.0
    ended: str = ""
    requests: list[SoakRequest] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    last_error: str = ""
    last_garbled: str = ""
    late: int = 0
    missed: int = 0
    transport_retries: int = 0
    """Requests sent twice: at first the server answered 400 without a body."""
    rss: list[tuple[float, float]] = field(default_factory=list)
    anon: list[tuple[float, float]] = field(default_factory=list)
    vram: list[tuple[float, float]] = field(default_factory=list)
    start: dict[str, str] = field(default_factory=dict)
    """When the server started, by each source: only to compare, in the source's own form."""
    seen: dict[str, Seen] = field(
        default_factory=lambda: {name: Seen() for name in ("rss", "vram", "up", "log")}
    )
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
    def garbage(self) -> Garbage | None:
        """None where no answer was garbled; failures that are no answers count nowhere."""
        count = self.errors.get(GARBLED, 0)
        return Garbage(count, self.answered, self.last_garbled) if count else None

    @property
    def answered(self) -> int:
        """Requests that brought a text; a refusal is none."""
        return self.good + self.errors.get(GARBLED, 0)

    @property
    def observed(self) -> float:
        """Seconds of observed time."""
        return self.t - self.gap_s

    @property
    def moments(self) -> int:
        """Requests due: those sent, and fixed moments at which none could be sent."""
        return len(self.requests) + self.missed

    @property
    def restarted(self) -> int:
        """Restarts, without a last crash from which it did not come back."""
        return len(self.restarts) - bool(self.gone)

    @property
    def hanging(self) -> bool:
        """Whether nothing was answered since the last hang."""
        return bool(self.hangs) and "until" not in self.hangs[-1]

    def take(self, line: Line) -> None:
        """Add one line. Lines of an unknown kind are skipped."""
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
        figures = (line.get(name) for name in ("tok_s", "ttft_s", "context"))
        request = SoakRequest(line["t"] - self.gap_s, error, *figures)
        self.requests.append(request)
        self.late += bool(line.get("late"))
        self.missed += int(line.get("missed", 0))
        self.transport_retries += bool(line.get("retries"))
        if error:
            self.errors[error] = self.errors.get(error, 0) + 1
            self.last_error = str(line.get("words", ""))
            self.last_garbled = self.last_error if error == GARBLED else self.last_garbled
        elif self.hanging:
            self.hangs[-1]["until"] = line["t"]

    def _look(self, line: Line) -> None:
        t = line["t"] - self.gap_s
        for name, into in (("rss", self.rss), ("anon", self.anon), ("vram", self.vram)):
            if line.get(name) is not None:
                into.append((t, float(line[name])))
        for name, seen in self.seen.items():
            value = line.get(name)
            if value is not None and value is not False:
                seen.look(t)

    def _on_began(self, line: Line) -> None:
        self.began = float(line["at"])

    def _on_server(self, line: Line) -> None:
        self.start = dict(line["start"])

    def _on_restart(self, line: Line) -> None:
        self.restarts.append({key: line.get(key) for key in ("t", "at", "what")})

    def _on_gone(self, line: Line) -> None:
        """Count the server's end: a crash counts as a restart even if nothing restarts it."""
        self._on_restart(line)
        self.gone = str(line["what"])

    def _on_hang(self, line: Line) -> None:
        """Count each request lost to a hang, which lasts until one is answered again."""
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

    @property
    def rates(self) -> list[tuple[float, float]]:
        """(observed seconds, tok/s) of every request whose rate counts, in order."""
        return [(r.t, r.tok_s) for r in self.requests if r.tok_s is not None and r.tok_s > 0]

    def figures(self) -> dict[str, dict[str, Any]]:
        """Every metric of SOAK_METRICS as a gate reads it; `n` is the number of samples behind it.

        An unobservable figure is None, and `why` says so: a server without a card has no
        `vram_peak`, and there is no growth across a restart, because it would compare two
        processes. `stability` is over moments: a fixed one that passed while nothing could be sent
        was not served. `low` and `high` are the ends of a 95 % interval.
        """
        request_count, bad, anew = len(self.requests), sum(self.errors.values()), len(self.restarts)
        up, log = self.seen["up"], self.seen["log"]
        # of these the newest look counts all there was since the one before
        no_start, no_log = (
            observation.unsure(self.observed, always=False) for observation in (up, log)
        )
        served = self.good / self.moments if request_count else None
        none = "no request was sent"
        metrics = {
            "requests": _metric("requests", request_count, request_count),
            "errors": _metric("errors", bad if request_count else None, request_count, why=none),
            "error_rate": _metric(
                "error_rate",
                bad / request_count if request_count else None,
                request_count,
                why=none,
            ),
            "garbled": _metric(
                "garbled",
                self.errors.get(GARBLED, 0) if self.answered else None,
                self.answered,
                why=f"{NO_ANSWER}: {self.last_error}" if request_count else none,
            ),
            "stability": _metric("stability", served, request_count, why=none),
            "tok_s": self._described("tok_s"),
            "ttft_s": self._described("ttft_s"),
            "tok_s_drift": self._drift(),
            "context_peak": self._context(),
            "observed_s": _metric(
                "observed_s", self.observed if request_count else None, request_count, why=none
            ),
            "restarts": _metric(
                "restarts",
                anew if anew or (up.count and not no_start) else None,
                up.count + anew,
                why=f"when the server started was {no_start}"
                if up.count
                else "when the server started is unknown",
            ),
            "hangs": _metric(
                "hangs", len(self.hangs) if request_count else None, request_count, why=none
            ),
            "critical_lines": _metric(
                "critical_lines",
                self.critical_count if log.count and (self.critical_count or not no_log) else None,
                log.count,
                why=f"its log was {no_log}" if log.count else "its log was not read",
            ),
        }
        return metrics | self._memory("rss", self.rss) | self._memory("vram", self.vram)

    def _context(self) -> dict[str, Any]:
        contexts = [request.context for request in self.requests if request.context is not None]
        why = "the server does not count the tokens of a prompt" if self.good else NO_ANSWER
        return _metric("context_peak", max(contexts, default=None), len(contexts), why=why)

    def _memory(self, name: str, seen: list[tuple[float, float]]) -> dict[str, dict[str, Any]]:
        unseen = {"rss": "its memory was not read", "vram": "no card was read, or not all of them"}
        unsure = self.seen[name].unsure(self.observed) if seen else unseen[name]
        most = None if unsure else max(size for _, size in seen)
        idle = bool(self.requests) and not self.answered
        grown = None if unsure or self.restarted or idle else growth(seen, self.observed)
        few = unsure or f"only {len(seen)} looks, {2 * GROWTH_LOOKS} are needed"
        if self.restarted and seen:
            few = "the server was restarted in between"
        elif seen and idle:
            few = f"{NO_ANSWER}, so it had nothing to do: {self.last_error}"
        return {
            f"{name}_growth": _metric(f"{name}_growth", grown, len(seen), why=few),
            f"{name}_peak": _metric(f"{name}_peak", most, len(seen), why=unsure),
        }

    def void_figures(self, why: str) -> dict[str, dict[str, Any]]:
        """The figures of a soak that did not run to its end: to be read, not judged.

        All their samples are void, so that a gate holds: errors not waited for, and growth without
        time, would look like a good server.
        """
        metrics = self.figures()
        for figure in metrics.values():
            for key in ("samples", "low", "high"):
                figure.pop(key, None)
            own = f"; {figure['why']}" if figure.get("why") else ""
            figure |= {"n": 0, "void": figure["n"] + figure["void"], "why": why + own}
        return metrics

    def _described(self, name: str) -> dict[str, Any]:
        """A figure of single requests: their median, and how they spread."""
        values = finite(getattr(request, name) for request in self.requests)
        metric = _metric(name, median(values), len(values), why="no request gave a figure")
        metric |= {
            "void": len(self.requests) - len(values), "headline": "median", "mean": mean(values),
            "std": std(values), "median": median(values), "min": min(values, default=None),
            "max": max(values, default=None),
        }  # fmt: skip
        return metric | ({"samples": values} if 0 < len(values) <= MAX_SAMPLES else {})

    @property
    def anon_growth(self) -> float | None:
        """Growth of memory that no file backs: RSS growth without paged-in model pages."""
        return None if self.restarted else growth(self.anon, self.observed)

    def _drift(self) -> dict[str, Any]:
        ratio, count = drift(self.rates, self.observed)
        first, last = (len(part) for part in ends(self.rates, self.observed))
        why = f"{first} rates in the first sixth and {last} in the last, {DRIFT_SAMPLES} are needed"
        metric = _metric("tok_s_drift", ratio, count, why=why)
        between = drift_interval(self.rates, self.observed)
        return metric | ({"low": between[0], "high": between[1]} if between is not None else {})


def _metric(name: str, value: float | None, n: int, *, why: str = "") -> dict[str, Any]:
    sure = value if value is not None and math.isfinite(value) else None
    metric = {
        "value": sure,
        "unit": SOAK_METRICS[name].unit,
        "n": n if sure is not None else 0,
        "void": 0,
    }
    return metric | ({"why": why} if why and sure is None else {})
