"""Which version is tried next, and what is known by then. Pure: versions are positions in a list
whose first one is good and whose last one is bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Word(StrEnum):
    """What a run said of a version. `skip`: nothing that counts."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest good position, the oldest bad one, and what was skipped between them."""

    good: int
    bad: int
    skipped: frozenset[int] = frozenset()

    @property
    def untried(self) -> list[int]:
        """Positions between good and bad of which nothing is known."""
        return [at for at in range(self.good + 1, self.bad) if at not in self.skipped]

    @property
    def suspects(self) -> range:
        """Every position that may be the first bad one; a single one if it is found."""
        return range(self.good + 1, self.bad + 1)

    @property
    def following(self) -> int | None:
        """The untried position nearest the middle, the lower of two; None at the end."""
        middle = (self.good + self.bad) // 2
        return min(self.untried, key=lambda at: (abs(at - middle), at), default=None)

    @property
    def max_runs(self) -> int:
        """How many runs are needed at most, if none of them has to be skipped."""
        return (len(self.untried)).bit_length()


def standing(count: int, words: Mapping[int, Word]) -> Standing:
    """What the words so far say of `count` versions; the two ends are taken as given."""
    good = max((at for at, word in words.items() if word is Word.GOOD), default=0)
    bad = min((at for at, word in words.items() if word is Word.BAD), default=count - 1)
    good, bad = min(good, count - 2), max(bad, 1)
    skipped = frozenset(at for at, word in words.items() if word is Word.SKIP and good < at < bad)
    return Standing(good, bad, skipped)


def unproven(count: int, words: Mapping[int, Word]) -> list[int]:
    """The ends that were not tried yet: what `--verify` tries first."""
    return [at for at in (0, count - 1) if at not in words]


def contradiction(count: int, words: Mapping[int, Word]) -> int | None:
    """The position of an end that was tried and is not what it was said to be."""
    wanted = {0: Word.GOOD, count - 1: Word.BAD}
    return next((at for at, word in wanted.items() if words.get(at, word) is not word), None)
