"""What llama.cpp does where it is not told: which layers and experts it puts on the cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from console.host.capacity import Card
from console.models.sizing.loader_plan import ALL, EXPERTS_OF_LAYER, LlamaPlan
from console.models.sizing.memory import CARD_MARGIN
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import capacity, cards_of, place

LEAST_CTX = 4096
"""The least context llama.cpp's --fit goes down to."""


def chosen(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> LlamaPlan:
    """What llama.cpp's `auto` comes to: all layers if they fit, else a smaller context where none
    was given, else experts on the host, else fewer layers. Its own choice may differ a little."""
    whole = replace(plan, gpu_layers=ALL)
    if not cards_of(plan, cards):
        return replace(plan, gpu_layers=0)
    if not plan.fit or spare(facts, whole, cards) >= 0:
        return whole
    found = whole
    if plan.ctx is None and (facts.context_length or 0) > LEAST_CTX:
        found = replace(whole, ctx=LEAST_CTX)
    if spare(facts, found, cards) < 0:
        found = _less(facts, found, cards)
    return found


def _less(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> LlamaPlan:
    """Experts of as few layers on the host as each card needs, else fewer layers on the cards."""
    if facts.experts.count:
        bare = {share.card: share.layers for share in place(facts, plan, cards).cards}
        moved = {card: len(layers) for card, layers in bare.items()}
        if spare(facts, _moving(plan, bare, moved), cards) >= 0:
            for card in bare:

                def fits(count: int, card: int = card) -> bool:
                    tried = _moving(plan, bare, {**moved, card: count})
                    return spare(facts, tried, cards, card) >= 0

                moved[card] = least(moved[card], fits) or 0
            return _moving(plan, bare, moved)
    units = (facts.layers or 0) + facts.spare_layers + 1
    fewer = least(
        units, lambda gone: spare(facts, replace(plan, gpu_layers=units - gone), cards) >= 0
    )
    return replace(plan, gpu_layers=0 if fewer is None else units - fewer)


def _moving(
    plan: LlamaPlan, layers: Mapping[int, Sequence[int]], moved: Mapping[int, int]
) -> LlamaPlan:
    """The plan with the experts of the first so many layers of each card kept on the host."""
    names = [str(layer) for card, count in moved.items() for layer in layers[card][:count]]
    if not names:
        return plan
    pattern = rf"^blk\.({'|'.join(names)}){EXPERTS_OF_LAYER}"
    return replace(plan, overrides=(*plan.overrides, (pattern, "CPU")))


def spare(
    facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card], only: int | None = None
) -> int:
    """Bytes left on the card that has least left, the margin taken off; negative: does not fit.

    `only`: of this card alone.
    """
    placement = place(facts, plan, cards)
    left = [
        have - share.bytes - CARD_MARGIN
        for share in placement.cards
        if (have := capacity(cards[share.card])) is not None and only in (None, share.card)
    ]
    return min(left, default=0)


def least(most: int, works: Callable[[int], bool]) -> int | None:
    """The least number up to `most` for which it works, if it does for all above it too."""
    if not works(most):
        return None
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if works(middle):
            high = middle
        else:
            low = middle + 1
    return high
