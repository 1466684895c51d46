"""What became of a point: its figures, or why it has none; and which points none beats."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Any, Literal

from console.common import record

Fate = Literal["measured", "host", "card", "failed", "unfit"]
"""`host`, `card`: that memory was not enough. `failed`: the engine refused or broke. `unfit`: it
was judged not to fit and was never started."""
Size = Annotated[int, record.within(0, record.MAX_INT, "a whole number, not negative")]
Starts = tuple[tuple[float, ...], ...]


def _plausible(starts: Starts) -> Starts:
    if not starts or not all(samples and min(samples) > 0 for samples in starts):
        raise ValueError("rates above 0 of each start")
    return starts


@dataclass(frozen=True, slots=True)
class Speed:
    """A rate in tok/s: the samples of each start of the engine. Starts differ from each other by
    more than the samples of one, so a start counts as one figure: the mean of its samples."""

    starts: Annotated[Starts, _plausible]

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(fmean(samples) for samples in self.starts)

    @property
    def mean(self) -> float:
        return fmean(self.means)


def speed(*samples: float) -> Speed:
    """The rate that one start of an engine showed."""
    return Speed((samples,))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a point showed. `decode` and `prompt` in tok/s, `ram` and `vram` in bytes at most while
    it was measured, `context` in tokens; None where it is not known. `why`: what went wrong.
    `turns`: the round that each start was made in to decide, in order; "" for any other start."""

    fate: Fate
    decode: Speed | None = None
    prompt: Speed | None = None
    ram: Size | None = None
    vram: Size | None = None
    context: Size | None = None
    why: str = ""
    turns: tuple[str, ...] = ()

    @property
    def starts(self) -> int:
        """How often the engine was started for it, with a figure at the end."""
        return max(
            len(measurement.starts) if measurement is not None else 0
            for measurement in (self.decode, self.prompt)
        )


def together(first: Outcome, again: Outcome, turn: str = "") -> Outcome:
    """Two measurements of one point, which both gave figures, as one; the second is a single start
    of that round."""
    return replace(
        first, decode=_joined(first.decode, again.decode),
        prompt=_joined(first.prompt, again.prompt),
        ram=_more(first.ram, again.ram), vram=_more(first.vram, again.vram),
        turns=(*first.turns, *[""] * (first.starts - len(first.turns)), turn),
    )  # fmt: skip


def _joined(left: Speed | None, right: Speed | None) -> Speed | None:
    return (
        Speed(left.starts + right.starts)
        if left is not None and right is not None
        else left or right
    )


def _more(left: int | None, right: int | None) -> int | None:
    return max((size for size in (left, right) if size is not None), default=None)


@dataclass(frozen=True, slots=True)
class Goal:
    """What is best: the rate of generating (`decode`), of reading a prompt (`prompt`), or of a
    whole request (`request`) of so many tokens. More than `ram` or `vram` bytes wins nothing."""

    prefer: Literal["decode", "prompt", "request"] = "decode"
    prompt_tokens: int = 512
    answer_tokens: int = 128
    ram: int | None = None
    vram: int | None = None

    def score(self, outcome: Outcome) -> float | None:
        """The rate that counts, in tok/s, of the first start; None for a point that has none. The
        search goes by it, so that it goes the same way when it is repeated."""
        return next(iter(self.rates(outcome)), None)

    def rates(self, outcome: Outcome) -> list[float]:
        """That rate of each start in order; none for a point that has none."""
        return [rate for rate in self._placed(outcome) if rate is not None]

    def by_turn(self, outcome: Outcome) -> dict[str, float]:
        """That rate by the rounds that were made to decide."""
        pairs = zip(outcome.turns, self._placed(outcome), strict=False)
        return {turn: rate for turn, rate in pairs if turn and rate is not None}

    def _placed(self, outcome: Outcome) -> list[float | None]:
        if outcome.fate != "measured":
            return []
        decode, prompt = (
            measurement.means if measurement is not None else ()
            for measurement in (outcome.decode, outcome.prompt)
        )
        places = range(outcome.starts)
        return [self._rate(_at(decode, place), _at(prompt, place)) for place in places]

    def _rate(self, decode: float | None, prompt: float | None) -> float | None:
        """Of a request: all its tokens over the sum of both parts' times, without what does not
        depend on the flags, like the network."""
        if self.prefer != "request":
            return decode if self.prefer == "decode" else prompt
        if decode is None or prompt is None:
            return None
        seconds = self.prompt_tokens / prompt + self.answer_tokens / decode
        return (self.prompt_tokens + self.answer_tokens) / seconds

    def fits(self, outcome: Outcome) -> bool:
        """Whether it is known to stay in the envelope."""
        pairs = ((outcome.ram, self.ram), (outcome.vram, self.vram))
        return all(most is None or (used is not None and used <= most) for used, most in pairs)


def _at(means: tuple[float, ...], place: int) -> float | None:
    return means[place] if place < len(means) else None


def undominated(candidates: Iterable[tuple[Any, Outcome]]) -> list[tuple[Any, Outcome]]:
    """The measured points than which no other is at least as good in every respect and better in
    one: both rates, memory of cards and host, context. What neither knows is not compared."""
    measured = [candidate for candidate in candidates if candidate[1].fate == "measured"]
    return [
        (key, outcome) for key, outcome in measured
        if not any(_beats(other, outcome) for _, other in measured if other is not outcome)
    ]  # fmt: skip


ALIKE = 0.02
"""Memory that differs by less is the same: it varies from start to start."""


def _beats(this: Outcome, other: Outcome) -> bool:
    better = False
    for mine, its in zip(_respects(this), _respects(other), strict=True):
        if mine is None or its is None:
            continue
        if mine < its:
            return False
        better = better or mine > its
    return better


def _respects(outcome: Outcome) -> tuple[float | None, ...]:
    """Figures of which more is better, memory in steps of ALIKE of itself."""
    speeds = (rate.mean if rate is not None else None for rate in (outcome.decode, outcome.prompt))
    sizes = (
        None if size is None else -float(round(math.log1p(size) / ALIKE))
        for size in (outcome.vram, outcome.ram)
    )
    return (*speeds, *sizes, None if outcome.context is None else float(outcome.context))
