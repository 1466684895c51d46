"""Which of several models that fit is the best one for whoever serves it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from console.models.sizing.assessment import Verdict

MIN_BITS = 4.0
"""Bits per weight below which the answers of a model suffer: by the list that `llama-quantize
--help` prints, the perplexity of Llama 3 8B grows by 0.18 with Q4_K_M, by 0.66 with Q3_K_M, and by
3.52 with Q2_K."""
WORDS = (
    "What costs less time for a token stands first, and in each class what has more bits per "
    f"weight, but what fits only tightly last; what has fewer than {MIN_BITS:g} bits stands behind "
    "all that has more, and last what is read from the disk."
)
"""The order of `order`, for whoever reads the table."""


class Cost(IntEnum):
    """What a token costs, by where the weights are that work on it; the fastest first."""

    CARDS = 0
    EXPERTS = 1
    PARTLY = 2
    DISK = 3

    @property
    def label(self) -> str:
        return _LABELS[self][0]

    @property
    def words(self) -> str:
        return f"{_LABELS[self][0]}: {_LABELS[self][1]}"


_LABELS = {
    Cost.CARDS: ("all on the cards", "the fastest"),
    Cost.EXPERTS: ("experts in RAM", "slower, as the few experts of a token are computed there"),
    Cost.PARTLY: ("partly in RAM", "whole layers are computed there, and a token takes several "
                  "times as long"),
    Cost.DISK: ("partly on the disk", "read for each token, which may take seconds"),
}  # fmt: skip
_OF_KIND = {"experts": Cost.EXPERTS, "layers": Cost.PARTLY, "host": Cost.PARTLY}


@dataclass(frozen=True, slots=True)
class Merits:
    """What counts of one fit. `streams`: a part of the weights is read from the disk for each
    token; `kind`: that of its way; `bits`: per weight, 0 if they are not known."""

    verdict: Verdict
    streams: bool
    kind: str
    bits: float
    ctx: int = 0

    @property
    def cost(self) -> Cost:
        if self.streams:
            return Cost.DISK
        return _OF_KIND.get(self.kind, Cost.CARDS)

    @property
    def is_coarse(self) -> bool:
        """Whether it has so few bits that its answers suffer; not known ones count as few."""
        return self.bits < MIN_BITS

    @property
    def heading(self) -> str:
        """The class in which it stands, in words."""
        few = f"fewer than {MIN_BITS:g} bits per weight, " if self.is_coarse and self.bits else ""
        text = f"{few}{self.cost.words}"
        return text[0].upper() + text[1:]


def order(merits: Merits) -> tuple[bool, bool, Cost, bool, float, int]:
    """A key by which the best fit stands first.

    The best one is what you would choose if you knew all rows: of what costs a token the least time
    the model that deviates least from its original, which is to have the most bits per weight. What
    fits so tightly that a plan asks you first stands at the end of its class. Worse than every
    slower one is what has fewer than MIN_BITS bits per weight, and worst what is partly read from
    the disk for each token. Of equal ones that with the longer context stands first.
    """
    return (
        merits.cost is Cost.DISK,
        merits.is_coarse,
        merits.cost,
        merits.verdict is Verdict.TIGHT,
        -merits.bits,
        -merits.ctx,
    )
