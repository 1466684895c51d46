"""The fastest placement of a model that fits, and the largest context of it.

Every trial is judged by whoever answers the ordinary question: nothing here knows a sum.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.cards.fit import least
from console.models.suggest.ways import Args, Way

USEFUL, SHORT, MIN_CONTEXT = 16384, 8192, 4096
"""Tokens of context that a placement is chosen for; that are enough where the weights are all on
the cards, which is by far the fastest; and that are asked for where those are too many."""
GRID = ((1024, 32768), (4096, 131072), (8192, 1 << 20), (65536, 1 << 24))
"""The steps to which a context is rounded down, and up to where."""
LONGER = 2
"""By this factor longer, a slower placement is worth a row of its own."""
NEVER = 3


class Judgement(Protocol):
    """What was said of one placement: the verdict, why, and its sum (None: not even a sum)."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def because(self) -> str: ...
    @property
    def assessment(self) -> Assessment | None: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """One placement as it was judged."""

    judgement: Judgement

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def sum(self) -> Assessment | None:
        return self.judgement.assessment

    @property
    def streams(self) -> bool:
        """Whether a part of the weights is read from the disk for each token."""
        return self.sum is not None and bool(self.sum.streaming)

    @property
    def rank(self) -> int:
        """0 fits, 1 fits tightly, 2 is partly read from the disk for each token, NEVER: not (known
        to be) fitting, or not with the context that is asked for."""
        whole = self.sum is None or not self.sum.shortened
        if not whole or self.verdict not in (Verdict.GO, Verdict.TIGHT, Verdict.STREAMING):
            return NEVER
        return 2 if self.streams else int(self.verdict is Verdict.TIGHT)

    @property
    def short_by(self) -> int:
        """Bytes that are missing, over all places."""
        return sum(limit.short_by for limit in self.sum.short) if self.sum else 0


Try = Callable[[Args, int], Judgement]
"""Judges arguments and a context of so many tokens."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A placement with its largest context, or one that does not fit with the smallest."""

    way: Way
    step: int
    args: Args
    ctx: int
    trial: Trial

    @property
    def words(self) -> str:
        return self.way.words(self.step)


@dataclass(frozen=True, slots=True)
class FitResult:
    """The fastest fit, with the context that was looked for. Without one, `nearest` is what lacks
    least; `unknown` says why none is known to fit."""

    fit: Fit | None = None
    nearest: Fit | None = None
    unknown: str = ""


def contexts(longest: int) -> list[int]:
    """The contexts that are tried, rising, the model's own at the end."""
    lengths, at = [], 0
    for step, end in GRID:
        while at + step <= min(end, longest):
            at += step
            lengths.append(at)
    lengths = [length for length in lengths if length >= min(MIN_CONTEXT, longest)]
    return lengths if lengths and lengths[-1] == longest else [*lengths, longest]


@dataclass(frozen=True, slots=True)
class Search:
    """What fits of one model, by `judge`. `contexts`: those that are tried, rising. `on_cards`:
    whether no card of a sum is too full; a full host is not relieved by moving more there."""

    ways: Sequence[Way]
    contexts: Sequence[int]
    judge: Try
    on_cards: Callable[[Assessment], bool]

    def fastest(self) -> FitResult:
        """The first way that fits well with a useful context, else what fits at all."""
        tried: list[Fit] = []
        on_cards = [way for way in self.ways if way.kind == "cards"]
        others = [way for way in self.ways if way.kind != "cards"]
        plans = ((on_cards, (USEFUL, SHORT)), (others, (USEFUL,)), (self.ways, (MIN_CONTEXT,)))
        for few, goals in plans:
            for way in few:
                for goal in dict.fromkeys(map(self._goal, goals)):
                    tried.append(self._at(way, goal))
                    if tried[-1].trial.rank == 0:
                        return FitResult(tried[-1])
            if few is others and any(fit.trial.rank < NEVER for fit in tried):
                return FitResult(min(tried, key=lambda fit: fit.trial.rank))
        best = min(tried, key=lambda fit: fit.trial.rank, default=None)
        if best is not None and best.trial.rank < NEVER:
            return FitResult(best)
        return _none(tried)

    def _goal(self, ctx: int) -> int:
        """The largest of the contexts that is no longer than this; the shortest if none is."""
        return self.contexts[max(0, bisect_right(self.contexts, ctx) - 1)]

    def _fit(self, way: Way, step: int, ctx: int) -> Fit:
        args = way.args(step, ctx)
        return Fit(way, step, args, ctx, Trial(self.judge(args, ctx)))

    def _at(self, way: Way, ctx: int) -> Fit:
        """The fastest step of a way whose cards are not too full with this context."""

        def roomy(step: int) -> bool:
            trial = self._fit(way, step, ctx).trial
            return trial.sum is not None and self.on_cards(trial.sum)

        def holds(step: int) -> bool:
            trial = self._fit(way, step, ctx).trial
            return trial.rank < NEVER

        step = least(way.steps, roomy)
        fit = self._fit(way, way.steps if step is None else step, ctx)
        if fit.trial.rank == NEVER and way.steps:
            step = least(way.steps, holds)
            fit = fit if step is None else self._fit(way, step, ctx)
        return fit

    def longest(self, fit: Fit) -> Fit:
        """The same placement with the longest context that is no worse."""
        start, end = self.contexts.index(fit.ctx), len(self.contexts) - 1
        best = fit
        while start < end:
            middle = (start + end + 1) // 2
            ctx = self.contexts[middle]
            trial = Trial(self.judge(fit.args, ctx))
            if trial.rank <= fit.trial.rank:
                start, best = middle, Fit(fit.way, fit.step, fit.args, ctx, trial)
            else:
                end = middle - 1
        return best

    def longer(self, fast: Fit) -> Fit | None:
        """The fastest placement with the longest context that is no worse; None if that is not far
        longer."""
        most, rank = self.contexts[-1], fast.trial.rank
        best = fast
        for way in self.ways if fast.ctx * LONGER <= most else ():
            fit = self._at(way, most)
            if fit.trial.rank > rank:
                start = self._fit(way, way.steps, fast.ctx)
                if start.trial.rank > rank:
                    continue
                fit = self._at(way, self.longest(start).ctx)
            if fit.trial.rank <= rank and fit.ctx > best.ctx:
                best = fit
            if best.ctx == most:
                break
        return best if best.ctx >= fast.ctx * LONGER else None


def _none(tried: Sequence[Fit]) -> FitResult:
    unknown = [fit for fit in tried if fit.trial.verdict is Verdict.UNKNOWN]
    if unknown:
        return FitResult(nearest=unknown[-1], unknown=unknown[-1].trial.judgement.because)
    short = [fit for fit in tried if fit.trial.short_by] or list(tried)
    return FitResult(nearest=min(short, key=lambda fit: fit.trial.short_by, default=None))
