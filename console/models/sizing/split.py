"""The split over unequal cards that fits: each card takes the layers it has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from console.common.units import format_bytes
from console.host.capacity import Card
from console.models.sizing.auto import spare
from console.models.sizing.loader_plan import ALL, LlamaPlan
from console.models.sizing.memory import CARD_MARGIN
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import Placement, capacity, cards_of, place

PERCENT = 100


def best_split(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> LlamaPlan | None:
    """The plan with a split by layers that fits, the cards filled most evenly; None: none does.

    Two cards are tried in every proportion of whole per cents. More are tried by what is free on
    them.
    """
    used = cards_of(replace(plan, split_mode="layer"), cards)
    sizes = [capacity(cards[number]) for number in used]
    if len(used) < 2 or None in sizes:
        return None
    known = [size or 0 for size in sizes]
    whole = sum(known) or 1
    tries = [tuple(float(round(size * PERCENT / whole)) for size in known)]
    if len(used) == 2:
        tries = [(float(first), float(PERCENT - first)) for first in range(1, PERCENT)]
    plans = [replace(plan, split_mode="layer", tensor_split=one) for one in tries]
    fitting = [one for one in plans if spare(facts, one, cards) >= 0]
    return min(fitting, key=lambda one: _fullest(place(facts, one, cards), cards), default=None)


def _fullest(placement: Placement, cards: Sequence[Card]) -> float:
    """How full the fullest card is, 0 to 1."""
    return max(
        (share.bytes + CARD_MARGIN) / (capacity(cards[share.card]) or 1)
        for share in placement.cards
    )


def words(plan: LlamaPlan) -> str:
    return ",".join(f"{part:g}" for part in plan.tensor_split)


def by_layers(facts: ModelFacts, ctx: int | None, cards: Sequence[Card]) -> str | None:
    """What a split by layers would put on each card, for a plan that shares out evenly."""
    found = best_split(facts, LlamaPlan(gpu_layers=ALL, ctx=ctx, parallel=1), cards)
    if found is None:
        return None
    placed = place(facts, found, cards)
    loads = " and ".join(f"{format_bytes(share.bytes)} on {share.name}" for share in placed.cards)
    how = f"llama.cpp --tensor-split {words(found)} --ctx-size {ctx}, as GGUF of this size"
    return f"a split by layers instead ({how}): {loads}"
