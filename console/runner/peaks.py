"""What the machine used at most since a run began.

A thread looks once a second; NVML may hang or be missing, the disk may be full: the run goes on.
Event "peaks" carries, after each step in which something rose by more than 1 %:

    {"gpu": {UUID: {"used": bytes, "temperature": °C}},
     "host": {"ram_used": bytes, "swap_used": bytes, "swap_in": bytes a second,
              "pressure": % of ten seconds in which something waited for memory ("some")},
     "n": looks, "trouble": why no card answers, "" where one does}

A figure is None where it is not sure: it was never read, or not read for more than GAP_S in a row
since the run began, so that something higher may have passed unseen. Such a card or host has two
keys more: `why` {figure: words} and `seen` {figure: the most that was seen}. A run that was resumed
has a gap in all figures. Without a driver `gpu` is empty, which is no sum of zero bytes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from console.bench.metrics import GAUGE_METRICS
from console.common.clock import Clock
from console.common.text import one_line
from console.host.gpu.figures import FIGURES, KEPT
from console.journal import events
from console.journal.samples import GaugeFile

if TYPE_CHECKING:
    from console.host.gpu.figures import GpuReport
    from console.host.sample import MemorySample, Sample
    from console.host.sampler import Sampler
    from console.journal.run_dir import RunDir
    from console.runner.context import Context
    from console.runner.prepare.plan import PlannedStep

GAP_S = 10.0
"""A figure that was not read for this many seconds is uncertain from then on."""
STALE_S = 3.0
"""A card's figure older than this is left out of the file."""
SMALL = 0.01
"""A smaller rise gets no event of its own; a gate still gets the exact figure."""
POLL_S = 0.05
PEAKS = {figure.name: figure.field for figure in FIGURES if figure.peak}
HOST = ("ram_used", "swap_used", "swap_in", "pressure")


class Peak:
    """The highest value of one figure, and whether samples had gaps; times are monotonic."""

    def __init__(self, since: float, most: float | None = None, gap: str = "") -> None:
        self.most = most
        self.read_at = since
        self._gap = gap
        self._miss = ""

    def look(self, at: float, value: float | None, why: str = "") -> None:
        """Take in a sample at `at`; None means that it could not be read, because of `why`."""
        if value is None:
            self._miss = why
            return
        self._gap = self._gap or self._late(at)
        self.most = value if self.most is None else max(value, self.most)
        self.read_at, self._miss = at, ""

    def unsure(self, now: float) -> str:
        """Why the highest value seen may not be the true peak; "" if it is."""
        if self._gap or (late := self._late(now)):
            return self._gap or late
        if self.most is None:
            return "not read yet" + (f": {self._miss}" if self._miss else "")
        return ""

    def _late(self, now: float) -> str:
        if now - self.read_at <= GAP_S:
            return ""
        cause = f": {self._miss}" if self._miss else ""
        if self.most is None:
            return f"not read in {now - self.read_at:.0f} s{cause}"
        return f"not read for {now - self.read_at:.0f} s in a row{cause}"


class Peaks:
    """Samples from `start` to `close`; `before` is what an earlier runner of this run saw.

    No method raises, and only `settle` blocks.
    """

    def __init__(
        self,
        run: RunDir,
        step: Callable[[], str],
        clock: Clock,
        before: dict[str, Any] | None = None,
    ) -> None:
        self._file = GaugeFile(run.gauges)
        self._step = step
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock.monotonic()
        self._gap = "" if before is None else "the runner was gone, and nobody looked"
        before = before or {}
        self._n = int(before.get("n", 0))
        self._trouble = ""
        self._looked_at = self._asked_at = float("-inf")
        self._host = self._figures(HOST, before.get("host", {}))
        self._cards = {
            uuid: self._figures(PEAKS, card) for uuid, card in before.get("gpu", {}).items()
        }
        self.gpu: GpuReport | None = None
        """What the cards said last; a soak of this run reads it here and starts no reader."""
        self._sampler: Sampler | None = None
        self._closed = False

    def _figures(self, names: Iterable[str], before: dict[str, Any]) -> dict[str, Peak]:
        seen = {**before.get("seen", {}), **{k: v for k, v in before.items() if v is not None}}
        return {name: Peak(self._since, seen.get(name), self._gap) for name in names}

    # -- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start sampling and return at once: imports happen in the sampling thread."""
        thread = threading.Thread(target=self._begin, name="peaks", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread left: nobody looks, gates hold
            thread.start()

    def _begin(self) -> None:
        from console.host.sampler import Sampler

        sampler = Sampler([], self.take, clock=self._clock)
        with self._lock:
            self._sampler = sampler
            closed = self._closed
        if not closed:
            with contextlib.suppress(RuntimeError):
                sampler.start()

    def close(self) -> None:
        """Stop sampling; takes two seconds at most, even when NVML hangs."""
        with self._lock:
            self._closed, sampler = True, self._sampler
        if sampler is not None:
            sampler.close()

    def take(self, sample: Sample) -> None:
        """Sample the machine once."""
        with self._lock:
            self._n += 1
            self._looked_at, self.gpu = sample.at, sample.gpu
            self._take_host(sample.at, sample.memory, sample.memory_why)
            if sample.gpu is not None and sample.gpu.at > self._asked_at:
                self._take_cards(sample.gpu)
        self._file.add(_line(sample, self._clock.now(), self._step()))

    def _take_host(self, at: float, memory: MemorySample | None, why: str) -> None:
        values: dict[str, float | None] = dict.fromkeys(HOST)
        if memory is not None:
            values = {
                "ram_used": memory.total - memory.available, "swap_used": memory.swap_used,
                "swap_in": memory.swap_in_rate, "pressure": memory.pressure_some,
            }  # fmt: skip
        for name, peak in self._host.items():
            peak.look(at, values[name], why)

    def _take_cards(self, report: GpuReport) -> None:
        self._asked_at, self._trouble = report.at, report.trouble
        answered = {gpu.uuid: gpu for gpu in report.gpus}
        for uuid in answered:
            self._cards.setdefault(uuid, self._figures(PEAKS, {}))
        for uuid, card in self._cards.items():
            gpu = answered.get(uuid)
            why = gpu.why if gpu is not None else report.trouble
            for name, field in PEAKS.items():
                card[name].look(report.at, getattr(gpu, field, None), why)

    # -- the runner ------------------------------------------------------------------------------

    def figures(self) -> dict[str, Any]:
        """The data of a "peaks" event, as described at the top of this module."""
        now = self._clock.monotonic()
        with self._lock:
            return {
                "gpu": {uuid: _figures(card, now) for uuid, card in self._cards.items()},
                "host": _figures(self._host, now),
                "n": self._n,
                "trouble": one_line(self._trouble),
            }

    def settle(self, cancelled: threading.Event) -> None:
        """Wait for a sample of everything taken after this call, GAP_S at most."""
        moment = self._clock.monotonic()
        while self._behind(moment) and self._clock.monotonic() - moment <= GAP_S:
            if self._clock.wait(cancelled, POLL_S):
                return

    def _behind(self, moment: float) -> bool:
        with self._lock:
            cards = [card["used"] for card in self._cards.values()]
            late = any(c.read_at < moment and not c.unsure(moment) for c in cards)
            return late or min(self._looked_at, self._asked_at) < moment


def record(context: Context, step: str, attempt: int, *, exact: bool = False) -> None:
    """Record in the journal what rose since last time, or all if `exact`. Raises JournalError."""
    if context.peaks is None:
        return
    figures = context.peaks.figures()
    if exact or (figures["n"] and differs(context.view.peaks.data(), figures)):
        context.record(events.Peaks(**figures), step, attempt)


def before_gate(context: Context, planned: PlannedStep, attempt: int) -> None:
    """Record exact figures that are no older than the gate which judges them."""
    criteria = (planned.step.gate if planned.step is not None else None) or []
    if context.peaks is not None and any(
        criterion.metric in GAUGE_METRICS for criterion in criteria
    ):
        context.peaks.settle(context.control.cancelled)
        record(context, planned.id, attempt, exact=True)


def differs(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a figure appeared, vanished, or moved by more than SMALL."""
    old, new = dict(_flat(before)), dict(_flat(now))
    return old.keys() != new.keys() or any(_moved(old[key], new[key]) for key in new)


def _flat(data: dict[str, Any]) -> Iterator[tuple[tuple[str, str], float | None]]:
    groups = {**data.get("gpu", {}), "host": data.get("host", {})}
    for owner, figures in groups.items():
        for name, value in figures.items():
            if name not in ("why", "seen"):
                yield (owner, name), value


def _moved(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > SMALL * abs(old)


def _figures(peaks: dict[str, Peak], now: float) -> dict[str, Any]:
    why = {name: words for name, peak in peaks.items() if (words := peak.unsure(now))}
    figures: dict[str, Any] = {name: None if name in why else p.most for name, p in peaks.items()}
    if why:
        figures["why"] = {name: one_line(words) for name, words in why.items()}
        figures["seen"] = {name: most for name in why if (most := peaks[name].most) is not None}
    return figures


def _line(sample: Sample, at: float, step: str) -> dict[str, Any]:
    memory, report = sample.memory, sample.gpu
    line: dict[str, Any] = {"at": round(at, 3), "step": step, "gpu": {}}
    if report is not None and sample.at - report.at <= STALE_S:
        for figure in KEPT:
            values = {gpu.uuid: getattr(gpu, figure.field) for gpu in report.gpus}
            line[figure.kept] = {uuid: value for uuid, value in values.items() if value is not None}
    if memory is not None:
        line |= {"ram": memory.total - memory.available, "swap": memory.swap_used}
        line |= {} if memory.pressure_some is None else {"psi": memory.pressure_some}
    return line
