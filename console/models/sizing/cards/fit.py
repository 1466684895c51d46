"""What llama.cpp's --fit makes of a plan that the cards have no room for: its own order of context,
experts and layers, and where it gives up. Computed by the same sum as the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from console.host.sample import Card
from console.models.sizing.assessment import CARD_MARGIN, MIB
from console.models.sizing.kv_cache import CELLS
from console.models.sizing.loader_plan import ALL, EXPERTS_OF_LAYER, LlamaPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import capacity, cards_of, place

BESIDE_GUESSES = (
    "whether --fit leaves room for --spec-type draft-mtp: builds up to b10741 end at the load or "
    "the first request where it has to shorten the context or to move layers or experts to RAM "
    "(llama.cpp#23472, llama.cpp#28172, open); b11669 counts the second context, and no log with "
    "it is known here; -c and -ngl or --n-cpu-moe with -fit off settle it"
)
MIN_CTX = 4096
"""The smallest context that llama.cpp's --fit goes down to."""


def chosen(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> LlamaPlan:
    """What --fit makes of a plan, in its own order: nothing if all layers, or those that were asked
    for, fit; else a smaller context if none was given; else experts on the host, else fewer layers,
    unless it gives up. Its own choice may differ a little. Source: common_params_fit_impl in
    common/fit.cpp of llama.cpp, the same since --fit came in December 2025 (b7450 to b11669)."""
    whole = replace(plan, gpu_layers=ALL) if plan.gpu_layers is None or plan.fits_all else plan
    if not cards_of(plan, cards):
        return replace(plan, gpu_layers=plan.gpu_layers or 0)
    if not plan.fit or plan.split_mode == "tensor" or spare(facts, whole, cards) >= 0:
        return whole
    fitted = whole if plan.ik else _shorter(facts, whole, cards)
    if spare(facts, fitted, cards) < 0 and not gives_up(plan, cards):
        fitted = _fewer_on_cards(facts, fitted, cards)
    return fitted


def gives_up(plan: LlamaPlan, cards: Sequence[Card]) -> str:
    """Why --fit moves no layer and no expert, in its own words; "" where it does. The load goes on
    with all layers on the cards, or as many as were asked for (llama.cpp#27872)."""
    several = len(cards_of(plan, cards)) > 1
    if plan.ik:
        return ""
    if plan.gpu_layers is not None:
        return "n_gpu_layers already set by user"
    if several and any(plan.tensor_split):
        return "tensor_split already set by user"
    if several and plan.split_mode == "row":
        return "changing weight allocation for LLAMA_SPLIT_MODE_ROW not implemented"
    if plan.overrides or plan.cpu_experts or plan.cpu_dense or plan.moe_cache_mib:
        return "tensor_buft_overrides already set by user"
    return ""


def _shorter(facts: ModelFacts, whole: LlamaPlan, cards: Sequence[Card]) -> LlamaPlan:
    """The context that --fit takes where none was given and the cards together are too small for
    the whole one: what a straight line between the shortest and the longest leaves room for."""
    streams = 1 if whole.unified else whole.slots
    longest, shortest = whole.tokens(facts.context_length) or 0, MIN_CTX * streams
    given = whole.ctx is not None or whole.whole_ctx or whole.per_slot > 0
    if given or longest <= shortest:
        return whole
    sizes = [capacity(cards[number]) for number in cards_of(whole, cards)]
    if None in sizes:
        return whole
    room = sum((size or 0) - kept_free(whole, at) for at, size in enumerate(sizes))
    shortest_plan = replace(whole, ctx=shortest)
    most, few = place(facts, whole, cards), place(facts, shortest_plan, cards)
    if room >= most.on_cards:
        return whole
    if len(sizes) > 1:  # what is lost to whole layers, or to whole tensors of experts
        layer = sum(share.weights for share in most.cards) // max(1, facts.layers or 0)
        room -= (len(sizes) + 1) * layer // (6 if facts.experts.count else 2)
    if room <= few.on_cards:
        return shortest_plan
    step = CELLS * streams
    longer = (longest - shortest) * (room - few.on_cards) // (most.on_cards - few.on_cards)
    return replace(whole, ctx=max(shortest, (shortest + longer) // step * step))


def _fewer_on_cards(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> LlamaPlan:
    """Keep as few layers' experts on the host as each card needs, else fewer layers on cards."""
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
        if plan.ik:  # "Unable to auto-fit model"
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
    """Bytes left on the fullest card, less the margin; negative: does not fit. `only`: of this
    card."""
    placement = place(facts, plan, cards)
    left = [
        have - share.bytes - kept_free(plan, at)
        for at, share in enumerate(placement.cards)
        if (have := capacity(cards[share.card])) is not None and only in (None, share.card)
    ]
    return min(left, default=0)


def kept_free(plan: LlamaPlan, at: int) -> int:
    """What --fit leaves free on the card at this place of those that are used."""
    if not plan.fit_target:
        return CARD_MARGIN
    return int(plan.fit_target[min(at, len(plan.fit_target) - 1)] * MIB)


def least(most: int, works: Callable[[int], bool]) -> int | None:
    """The smallest number up to `most` for which `works`, if it works for all above it too."""
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
