"""Which of several models that fit is the best one for whoever serves it."""

from __future__ import annotations

from dataclasses import dataclass

from console.models.sizing.assessment import Verdict

MIN_BITS = 4.0
"""Bits per weight below which the answers of a model suffer: by the list that `llama-quantize
--help` prints, the perplexity of Llama 3 8B grows by 0.18 with Q4_K_M, by 0.66 with Q3_K_M, and by
3.52 with Q2_K."""
SLOW = ("layers", "host")
"""Kinds of ways that compute whole layers in RAM."""
WORDS = (
    "What has more bits per weight stands first; behind all of that stands what computes whole "
    "layers in RAM, then what fits only tightly, then what has fewer than "
    f"{MIN_BITS:g} bits, and last what is read from the disk for each token."
)
"""The order of `order`, for whoever reads the table."""


@dataclass(frozen=True, slots=True)
class Merits:
    """What counts of one fit. `streams`: a part of the weights is read from the disk for each
    token; `kind`: that of its way; `bits`: per weight, 0 if they are not known."""

    verdict: Verdict
    streams: bool
    kind: str
    bits: float
    ctx: int = 0


def order(merits: Merits) -> tuple[bool, bool, bool, bool, float, int]:
    """A key by which the best fit stands first.

    The best one is what you would choose if you knew all rows: the model that deviates least from
    its original among those that serve well, which is to have the most bits per weight. Does not
    serve well, each worse than the one before: what computes whole layers in RAM (a token then
    takes several times as long; experts in RAM cost far less, as few of them work on a token), what
    fits so tightly that a plan asks you first, what has fewer than MIN_BITS bits per weight, and
    what is partly read from the disk for each token, which may take seconds. Bits that are not
    known count as few. Of equal ones that with the longer context stands first.
    """
    return (
        merits.streams,
        merits.bits < MIN_BITS,
        merits.verdict is Verdict.TIGHT,
        merits.kind in SLOW,
        -merits.bits,
        -merits.ctx,
    )
