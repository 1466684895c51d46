"""`tune`: search for the flags with which an engine is fastest, and keep every point."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any

from console.bench.tune.outcome import Outcome, Speed, undominated
from console.bench.tune.points import Points
from console.bench.tune.search import Found, Search
from console.bench.tune.space import Point, Space, space
from console.common import paths
from console.common.text import one_line
from console.common.units import format_number
from console.config.playbook.tuning_step import TUNE_METRICS, TuneStep
from console.journal.state import Cause
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.tune_points import BenchRig, Rig, ServerRig, goal_of
from console.runner.fault import point as fault_point
from console.runner.prepare.plan import PlannedStep

MOST_LOOKED_UP = 50_000
"""Combinations that are looked up among those that are known."""
MOST_SHOWN = 400
"""Points in the journal, the fastest first; the file has them all."""


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Search, record, and say the flags that won. Raises StepFailed if no point can be measured."""
    asked = planned.asked(TuneStep)
    try:
        rig: Rig = (
            ServerRig(context, asked, attempt) if asked.service
            else BenchRig(context, planned.written, asked, attempt)
        )  # fmt: skip
        made = space(asked.flags, rig.base)
    except ValueError as error:
        raise StepFailed(Cause.PRECONDITION, str(error)) from error
    trial = _Trial(context, asked, attempt, rig, made)
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
        self, context: Context, asked: TuneStep, attempt: Attempt, rig: Rig, made: Space
    ) -> None:
        self._context, self._asked, self._attempt, self._rig = context, asked, attempt, rig
        self._space, self._goal = made, goal_of(asked)
        setting = {**rig.setting(), "cores": os.cpu_count(),
                   "cards": [gpu.uuid for gpu in context.plan.site.model.gpus]}  # fmt: skip
        self._points = Points(paths.tune_dir(), setting)
        self._search = Search(made, self._goal, self.ask, asked.points, asked.gain)
        self._measured = 0

    @property
    def found(self) -> Found:
        return self._search.found

    def run(self) -> None:
        """Search to its end. Raises StepFailed if nothing could be measured."""
        if self._asked.fresh:
            self._points.forget()
        if self._points.read():
            self._search.known = self._known()
            count = len(self._search.known)
            self._attempt.say(f"{count} points are known from before", always=True)
        self._search.run()
        self._search.confirm(self.again)
        if self.found.best is None:
            whys = [one.why for one in self.found.outcomes.values() if one.why]
            raise StepFailed(
                Cause.OUTPUT_INVALID, "no combination of flags could be measured",
                lines=[one_line(why, 300) for why in dict.fromkeys(whys)][:5],
            )  # fmt: skip

    def _known(self) -> dict[Point, Outcome]:
        """The points of this space that an earlier search measured."""
        points = itertools.islice(self._space.points(), MOST_LOOKED_UP)
        found = ((point, self._points.get(self._argv(point))) for point in points)
        return {point: outcome for point, outcome in found if outcome is not None}

    def ask(self, point: Point) -> Outcome:
        """A point as it is measured now, kept as soon as it is."""
        return self._kept(point, self._measure(point))

    def again(self, point: Point) -> Outcome:
        """Another measurement of a known point; the caller puts both together."""
        return self._measure(point)

    def _measure(self, point: Point) -> Outcome:
        changes = one_line(self._space.changes(point), 200)
        number = len(self.found.outcomes) + 1
        self._attempt.remaining()
        self._attempt.say(f"point {number} of at most {self._asked.points}: {changes}", always=True)
        found = self._rig.measure(self._argv(point), changes)
        fault_point("tune_measured", self._attempt.step)
        self._measured += 1
        score = self._goal.score(found)
        told = format_number(score, "tok/s") if score is not None else f"{found.fate}: {found.why}"
        self._attempt.say(f"point {number}: {changes}: {one_line(told, 150)}", always=True)
        return found

    def _kept(self, point: Point, found: Outcome) -> Outcome:
        if found.fate != "unfit":  # what is judged anew each time costs nothing
            self._points.keep(self._argv(point), found, self._context.clock.now())
        return found

    def _argv(self, point: Point) -> tuple[str, ...]:
        return self._space.argv(self._rig.base, point)

    # -- the result ------------------------------------------------------------------------------

    def record(self, early: str) -> None:
        """Record what was found; an early end keeps the points and gives no figure to a gate."""
        best = self.found.best
        for point, found in self.found.outcomes.items():
            known = self._points.get(self._argv(point))
            if found.fate == "measured" and (known is None or known.rounds < found.rounds):
                self._kept(point, found)
        self._context.record(
            "metrics", self._attempt.step, self._attempt.number, scope=self._attempt.step,
            metrics=self._metrics(early),
            tune={
                "of": self._asked.service or "llama-bench", "prefer": self._asked.prefer,
                "prompt": self._asked.prompt, "depth": self._asked.depth,
                "tokens": self._asked.max_tokens, "size": self._space.size,
                "measured": self._measured, "before": len(self._search.known), "early": early,
                "why": self.found.why, "file": str(self._points.path),
                "flags": self._space.words(best) if best is not None else "",
                "argv": list(self._space.argv(self._rig.written, best)) if best is not None else [],
                "points": list(self._rows()),
            },
        )  # fmt: skip

    def _rows(self) -> Iterable[dict[str, Any]]:
        """Every point as the report shows it, the fastest first."""
        outcomes = self.found.outcomes
        front = {point for point, _ in undominated(outcomes.items())}
        order = sorted(outcomes, key=lambda p: self._goal.score(outcomes[p]) or 0.0, reverse=True)
        for point in order[:MOST_SHOWN]:
            found = outcomes[point]
            between = self._goal.between(found)
            yield {
                "changes": one_line(self._space.changes(point), 300), "fate": found.fate,
                "score": self._goal.score(found), "between": list(between) if between else None,
                "decode": _mean(found.decode), "prompt": _mean(found.prompt), "ram": found.ram,
                "vram": found.vram, "context": found.context, "why": one_line(found.why, 300),
                "rounds": found.rounds, "best": point == self.found.best,
                "today": point == self._space.start, "front": point in front,
                "fits": self._goal.fits(found),
            }  # fmt: skip

    def _metrics(self, early: str) -> dict[str, dict[str, Any]]:
        found = self.found
        best = found.outcomes.get(found.best) if found.best is not None and not early else None
        gain = self._gain() if best is not None else None
        count = sum(one.fate == "measured" for one in found.outcomes.values())
        figures: dict[str, dict[str, Any]] = {
            "best.tok_s": _figure(best.decode if best else None),
            "best.prompt_tok_s": _figure(best.prompt if best else None),
            "best.gain": {"value": gain, "n": int(gain is not None)},
            "points": {"value": float(count), "n": 1},
        }
        why = f"it ended early: {early}" if early else "the flags as they are gave no figure"
        for name, figure in figures.items():
            figure["unit"] = TUNE_METRICS[name]
            if figure["value"] is None:
                figure["why"] = why if early or name == "best.gain" else "it was not measured"
        return figures

    def _gain(self) -> float | None:
        """By which share the best point is faster than the flags as they are."""
        outcomes, best = self.found.outcomes, self.found.best
        today = outcomes.get(self._space.start)
        before = self._goal.score(today) if today is not None else None
        after = self._goal.score(outcomes[best]) if best is not None else None
        return max(0.0, after / before - 1) if before and after else None

    def done(self) -> Done:
        best = self.found.best
        assert best is not None
        score = self._goal.score(self.found.outcomes[best])
        gain = self._gain()
        more = f", {gain:.0%} faster than today" if gain else ""
        changes = self._space.changes(best)
        return Done(
            f"{one_line(changes, 200)}: {format_number(score or 0.0, 'tok/s')}{more}; "
            f"{self._measured} of {self._space.size} points measured now"
        )


def _figure(speed: Speed | None) -> dict[str, Any]:
    if speed is None:
        return {"value": None, "n": 0}
    low, high = speed.between
    return {"value": speed.mean, "n": len(speed.samples), "headline": "mean",
            "samples": list(speed.samples), "low": low, "high": high}  # fmt: skip


def _mean(speed: Speed | None) -> float | None:
    return speed.mean if speed is not None else None
