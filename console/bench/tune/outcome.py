"""What became of a point: its figures, or why it has none; and which points none beats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, Literal, get_args

from console.bench.statistics import ENOUGH, interval

Fate = Literal["measured", "host", "card", "failed", "unfit"]
"""`host`, `card`: that memory was not enough. `failed`: the engine refused or broke. `unfit`: it
was judged not to fit and was never started."""
FATES = get_args(Fate)


@dataclass(frozen=True, slots=True)
class Speed:
    """A rate in tok/s, by its samples."""

    samples: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.samples)

    @property
    def between(self) -> tuple[float, float]:
        """The 95 % interval of the mean; of too few samples for one, all that they cover."""
        if len(self.samples) < ENOUGH:
            return min(self.samples), max(self.samples)
        return interval(self.samples, "mean") or (self.mean, self.mean)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a point showed. `decode` and `prompt` in tok/s, `ram` and `vram` in bytes at most while
    it was measured, `context` in tokens; None where it is not known. `rounds`: how often the engine
    was started for it. `why`: what went wrong."""

    fate: Fate
    decode: Speed | None = None
    prompt: Speed | None = None
    ram: int | None = None
    vram: int | None = None
    context: int | None = None
    rounds: int = 1
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def outcome_of(data: Mapping[str, Any]) -> Outcome:
    """An outcome from its record. Raises ValueError, KeyError or TypeError for anything else."""
    if data["fate"] not in FATES:
        raise ValueError("unknown fate")
    decode, prompt = (_speed(data.get(name)) for name in ("decode", "prompt"))
    ram, vram, context = (_size(data.get(name)) for name in ("ram", "vram", "context"))
    rounds = _size(data.get("rounds")) or 1
    return Outcome(
        data["fate"], decode, prompt, ram, vram, context, rounds, str(data.get("why", ""))
    )


def _speed(data: Mapping[str, Any] | None) -> Speed | None:
    if data is None:
        return None
    samples = tuple(float(one) for one in data["samples"])
    if not samples or not all(0 < one < math.inf for one in samples):
        raise ValueError("an implausible rate")
    return Speed(samples)


def together(first: Outcome, again: Outcome) -> Outcome:
    """Two measurements of one point as one. One that ran out of memory is what became of it; one
    that gave no figure leaves the other's."""
    if again.fate in ("host", "card"):
        return again
    if again.fate != "measured":
        return replace(first, rounds=first.rounds + 1)
    return replace(
        first, decode=_joined(first.decode, again.decode),
        prompt=_joined(first.prompt, again.prompt),
        ram=_more(first.ram, again.ram), vram=_more(first.vram, again.vram),
        rounds=first.rounds + again.rounds,
    )  # fmt: skip


def _joined(one: Speed | None, two: Speed | None) -> Speed | None:
    return Speed(one.samples + two.samples) if one is not None and two is not None else one or two


def _more(one: int | None, two: int | None) -> int | None:
    return max((size for size in (one, two) if size is not None), default=None)


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@dataclass(frozen=True, slots=True)
class Goal:
    """What is best: the rate of generating (`decode`), of reading a prompt (`prompt`), or of a
    whole request (`request`) of so many tokens. More than `ram` or `vram` bytes wins nothing."""

    prefer: Literal["decode", "prompt", "request"] = "decode"
    prompt_tokens: int = 512
    answer_tokens: int = 128
    ram: int | None = None
    vram: int | None = None

    def score(self, found: Outcome) -> float | None:
        """The rate that counts, in tok/s; None for a point that has none."""
        means = (
            speed.mean if speed is not None else None for speed in (found.decode, found.prompt)
        )
        return self._rate(*means)

    def between(self, found: Outcome) -> tuple[float, float] | None:
        """The 95 % interval of that rate. Of a request both parts are taken at the same end, which
        makes it somewhat too wide."""
        if found.decode is None and found.prompt is None:
            return None
        ends = [
            self._rate(*(speed.between[end] if speed is not None else None
                         for speed in (found.decode, found.prompt)))
            for end in (0, 1)
        ]  # fmt: skip
        low, high = ends
        return None if low is None or high is None else (low, high)

    def _rate(self, decode: float | None, prompt: float | None) -> float | None:
        """Of a request: all its tokens over the sum of both parts' times, without what does not
        depend on the flags, like the network."""
        if self.prefer != "request":
            return decode if self.prefer == "decode" else prompt
        if decode is None or prompt is None:
            return None
        seconds = self.prompt_tokens / prompt + self.answer_tokens / decode
        return (self.prompt_tokens + self.answer_tokens) / seconds

    def fits(self, found: Outcome) -> bool:
        """Whether it stays in the envelope; what is not known is not held against it."""
        pairs = ((found.ram, self.ram), (found.vram, self.vram))
        return all(used is None or most is None or used <= most for used, most in pairs)


def undominated(found: Iterable[tuple[Any, Outcome]]) -> list[tuple[Any, Outcome]]:
    """The measured points than which no other is at least as good in every respect and better in
    one: both rates, memory of cards and host, context. What neither knows is not compared."""
    measured = [one for one in found if one[1].fate == "measured"]
    return [
        (key, one) for key, one in measured
        if not any(_beats(other, one) for _, other in measured if other is not one)
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


def _respects(one: Outcome) -> tuple[float | None, ...]:
    """Figures of which more is better, memory in steps of ALIKE of itself."""
    speeds = (speed.mean if speed is not None else None for speed in (one.decode, one.prompt))
    sizes = (
        None if size is None else -float(round(math.log1p(size) / ALIKE))
        for size in (one.vram, one.ram)
    )
    return (*speeds, *sizes, None if one.context is None else float(one.context))
