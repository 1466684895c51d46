"""`tune`: search for the flags with which an engine is fastest, and keep every point."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable
from dataclasses import asdict
from statistics import fmean
from typing import Any

from console.bench.metrics import TUNE_METRICS
from console.bench.tune.decision import Decision, SearchResult
from console.bench.tune.outcome import Outcome, Speed, together, undominated
from console.bench.tune.points import Points
from console.bench.tune.search import Search
from console.bench.tune.space import Point, Space, space
from console.common import paths, redact
from console.common.files import read_text
from console.common.progress import Figures
from console.common.text import one_line
from console.common.units import format_number
from console.config.playbook.tuning_step import TuneStep
from console.journal import events
from console.journal.state import Cause
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.tune_points import BenchRig, Rig, ServerRig, goal_of
from console.runner.fault import point as fault_point
from console.runner.prepare.plan import PlannedStep

MAX_LOOKED_UP = 50_000
"""Combinations that are looked up among those that are known."""
MAX_SHOWN = 400
"""Points in the journal, the fastest first; the file has them all."""


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Search, record, and say the flags that won. Raises StepFailed if no point can be measured."""
    tune = planned.section(TuneStep)
    try:
        rig: Rig = (
            ServerRig(context, tune, attempt) if tune.service
            else BenchRig(context, planned.written, tune, attempt)
        )  # fmt: skip
        made = space(tune.flags, rig.base)
    except ValueError as error:
        raise StepFailed(Cause.PRECONDITION, str(error)) from error
    trial = _Trial(context, tune, attempt, rig, made)
    early = "it ended early"
    try:
        trial.run()
        early = ""
    finally:
        try:
            rig.close()
        finally:
            trial.record(early)
    return trial.done()


class _Trial:
    """One search over a step's space, whose points are kept as they are measured."""

    def __init__(
        self, context: Context, tune: TuneStep, attempt: Attempt, rig: Rig, made: Space
    ) -> None:
        self._context, self._tune, self._attempt, self._rig = context, tune, attempt, rig
        self._space, self._goal = made, goal_of(tune)
        cards = [gpu.uuid for gpu in context.plan.site.model.gpus]
        machine = [read_text("/etc/machine-id"), os.cpu_count(), cards]
        setting = {**rig.setting(), "machine": machine}
        self._points = Points(paths.tune_dir(), setting, context.plan.known)
        self._search = Search(made, self._goal, self.ask, tune.points, tune.gain)
        self._starts = 0
        self._unkept = False

    @property
    def result(self) -> SearchResult:
        return self._search.result

    def run(self) -> None:
        """Search to its end. Raises StepFailed if nothing could be measured."""
        if self._tune.fresh:  # but not what this run has measured before it was stopped
            with contextlib.suppress(OSError):  # of a folder of which nothing can be read, either
                self._points.forget(self._context.meta.created)
        if self._points.read():
            self._search.known = self._known()
            count = len(self._search.known)
            self._attempt.say(f"{count} points are known from before", always=True)
        self._search.run()
        Decision(
            self.result, self._space.start, self._goal, self.again, self._tune.gain,
            self._context.run.id,
        ).run()  # fmt: skip
        if self.result.best is None:
            outcomes = self.result.outcomes.values()
            whys = [
                *self.result.dropped.values(),
                *(outcome.why for outcome in outcomes if outcome.why),
            ]
            much = any(self._goal.score(outcome) is not None for outcome in outcomes)
            raise StepFailed(
                Cause.OUTPUT_INVALID,
                "every combination takes more memory than may win, or failed" if much
                else "no combination of flags could be measured",
                lines=[one_line(why, 300) for why in dict.fromkeys(whys)][:5],
            )  # fmt: skip

    def _known(self) -> dict[Point, Outcome]:
        """The points of this space that an earlier search measured."""
        points = itertools.islice(self._space.points(), MAX_LOOKED_UP)
        pairs = ((point, self._points.get(self._written(point))) for point in points)
        return {point: outcome for point, outcome in pairs if outcome is not None}

    def ask(self, point: Point) -> Outcome:
        """A point as it is measured now, kept as soon as it is. Raises StepFailed where memory is
        limited and cannot be read: nothing could win."""
        outcome = self._measure(point)
        limits = ((self._goal.vram, outcome.vram), (self._goal.ram, outcome.ram))
        if outcome.fate == "measured" and any(most and used is None for most, used in limits):
            what = "most_vram" if self._goal.vram and outcome.vram is None else "most_ram"
            raise StepFailed(
                Cause.PRECONDITION, f"{what} is given, but that memory cannot be read here"
            )
        return self._kept(point, outcome)

    def again(self, point: Point, turn: str) -> Outcome:
        """Another start of a point, to decide by; what both say together is kept at once."""
        outcome = self._measure(point, again=True)
        if self._goal.score(outcome) is not None:
            self._kept(point, together(self.result.outcomes[point], outcome, turn))
        return outcome

    def _measure(self, point: Point, *, again: bool = False) -> Outcome:
        changes = one_line(self._space.changes(point), 200)
        what = f"point {self._search.point_count} of at most {self._tune.points}"
        what = "once more, to decide" if again else what
        self._attempt.remaining()
        # the first points are many, then a few starts decide: how many is not known
        most = None if again else min(self._tune.points, self._space.size)
        self._attempt.count(Figures(max(0, self._search.point_count - 1), most, "point"))
        self._attempt.say(f"{what}: {changes}", always=True)
        outcome = self._rig.measure(self._argv(point), changes)
        fault_point("tune_measured", self._attempt.step)
        self._starts += 1
        score = self._goal.score(outcome)
        summary = (
            format_number(score, "tok/s") if score is not None else f"{outcome.fate}: {outcome.why}"
        )
        self._attempt.say(f"{what}: {changes}: {one_line(summary, 150)}", always=True)
        return outcome

    def _kept(self, point: Point, outcome: Outcome) -> Outcome:
        """Keep a point whose figures, or lack of memory, will be the same the next time; a failure
        may have been chance, and is tried again then."""
        if outcome.fate not in ("measured", "host", "card"):
            return outcome
        try:
            self._points.keep(self._written(point), outcome, self._context.clock.now())
        except OSError as error:
            if not self._unkept:
                why = f"{self._points.path}: {error.strerror}"
                self._attempt.say(f"points cannot be kept for the next time: {why}", always=True)
            self._unkept = True
        return outcome

    def _written(self, point: Point) -> tuple[str, ...]:
        """The command line of a point at its own port, which names it for later searches."""
        return self._space.argv(self._rig.written, point)

    def _argv(self, point: Point) -> tuple[str, ...]:
        return self._space.argv(self._rig.base, point)

    # -- the result ------------------------------------------------------------------------------

    def record(self, early: str) -> None:
        """Record what was found; an early end keeps the points and gives no figure to a gate."""
        best = None if early else self.result.best
        tune = {
            "of": self._tune.service or "llama-bench", "prefer": self._tune.prefer,
            "prompt": self._tune.prompt, "depth": self._tune.depth,
            "tokens": self._tune.max_tokens, "size": self._space.size,
            "measured": self._search.point_count, "starts": self._starts, "early": early,
            "before": len(self._search.known),
            "why": self.result.why, "file": str(self._points.path),
            "flags": self._space.words(best) if best is not None else "",
            "argv": redact.argv(self._written(best)) if best is not None else [],
            "points": list(self._rows(early)),
        }  # fmt: skip
        self._context.record(
            events.Metrics(scope=self._attempt.step, metrics=self._metrics(early), tune=tune),
            self._attempt.step, self._attempt.number,
        )  # fmt: skip

    def _rows(self, early: str) -> Iterable[dict[str, Any]]:
        """Every point as the report shows it, the fastest first."""
        outcomes = self.result.outcomes
        front = {point for point, _ in undominated(outcomes.items())}
        order = sorted(outcomes, key=self._rate, reverse=True)
        for point in order[:MAX_SHOWN]:
            outcome, gain = outcomes[point], self.result.gains.get(point)
            why = self.result.dropped.get(point, "") or outcome.why
            yield {
                "changes": one_line(self._space.changes(point), 300),
                "fate": outcome.fate,
                "score": self._rate(point) or None,
                "starts": outcome.starts,
                "gain": asdict(gain) if gain is not None else None,
                "decode": _mean(outcome.decode),
                "prompt": _mean(outcome.prompt),
                "ram": outcome.ram,
                "vram": outcome.vram,
                "context": outcome.context,
                "why": one_line(why, 300),
                "best": point == self.result.best and not early,
                "today": point == self._space.start,
                "front": point in front,
                "fits": self._goal.fits(outcome),
            }

    def _rate(self, point: Point) -> float:
        """The mean rate of all starts of a point; 0 without one."""
        rates = self._goal.rates(self.result.outcomes[point])
        return fmean(rates) if rates else 0.0

    def _metrics(self, early: str) -> dict[str, dict[str, Any]]:
        search_state = self.result
        best = (
            search_state.outcomes.get(search_state.best)
            if search_state.best is not None and not early
            else None
        )
        count = sum(outcome.fate == "measured" for outcome in search_state.outcomes.values())
        figures: dict[str, dict[str, Any]] = {
            "best.tok_s": _figure(best.decode if best else None),
            "best.prompt_tok_s": _figure(best.prompt if best else None),
            "best.gain": self._gain(early),
            "points": {"value": float(count), "n": 1},
        }
        for name, figure in figures.items():
            figure["unit"] = TUNE_METRICS[name].unit
            if figure["value"] is None:
                why = self.result.why if name == "best.gain" else "it was not measured"
                figure["why"] = early or why
        return figures

    def _gain(self, early: str) -> dict[str, Any]:
        """How much faster the winner is than today's flags, with its interval; 0 if these win."""
        best, start = self.result.best, self._space.start
        if best == start and not early and start not in self.result.dropped:
            return {"value": 0.0, "n": 1}
        gain = self.result.gains.get(best) if best is not None and not early else None
        if gain is None:
            return {"value": None, "n": 0}
        return {"value": gain.mean, "n": gain.rounds, "low": gain.low, "high": gain.high}

    def done(self) -> Done:
        best = self.result.best
        assert best is not None
        gain = self.result.gains.get(best)
        more = f", {gain.mean:+.0%} against today" if gain is not None else ""
        count, size = self._search.point_count, self._space.size
        return Done(
            f"{one_line(self._space.changes(best), 200)}: "
            f"{format_number(self._rate(best), 'tok/s')}{more}; {count} of {size} combinations "
            f"measured now, by {self._starts} starts"
        )


def _figure(rate: Speed | None) -> dict[str, Any]:
    """A rate as the journal keeps it; its interval is that of the means of its starts."""
    if rate is None:
        return {"value": None, "n": 0}
    low, high = min(rate.means), max(rate.means)
    return {"value": rate.mean, "n": len(rate.means), "headline": "mean",
            "samples": list(rate.means), "low": low, "high": high}  # fmt: skip


def _mean(rate: Speed | None) -> float | None:
    return rate.mean if rate is not None else None
