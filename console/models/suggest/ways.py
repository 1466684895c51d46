"""The ways in which an engine can place a model on the cards of a machine, as its own arguments.

A way has steps: each keeps more of the model off the cards than the one before, or there is only
one. Ways stand in order of their speed, the fastest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from console.host.sample import Card
from console.models.sizing.loader_plan import LlamaPlan, LoaderPlan, SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import capacity, labels, place

RANKS = (1, 2, 4, 8, 16)
"""Tensor parallel degrees that are tried."""
ALL_LAYERS = ("-ngl", "999")
PERCENT = 100

Args = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """`args` and `words` of each of the steps 0…`steps`; `args` also takes the context that is to
    be served, in tokens."""

    kind: str
    args: Callable[[int, int], Args]
    words: Callable[[int], str]
    steps: int = 0


def ways(facts: ModelFacts, plan: LoaderPlan, cards: Sequence[Card]) -> list[Way]:
    """Those of the plan's engine; only the plan's own if it says how the model is placed."""
    if isinstance(plan, LlamaPlan):
        if _is_placed(plan):
            return [_as_given(_given_kind(facts, plan, cards))]
        return list(_llama(facts, plan, cards))
    if isinstance(plan, SglangPlan | VllmPlan):
        given = plan.ranks * plan.stages * plan.replicas > 1
        flag = "--tp" if isinstance(plan, SglangPlan) else "-tp"
        return [_as_given("cards")] if given else list(_ranks(flag, cards))
    return []


def _is_placed(plan: LlamaPlan) -> bool:
    usual = LlamaPlan()
    parts = ("gpu_layers", "tensor_split", "split_mode", "main_gpu", "devices", "cpu_experts",
             "cpu_dense", "overrides")  # fmt: skip
    return any(getattr(plan, part) != getattr(usual, part) for part in parts)


def _as_given(kind: str) -> Way:
    return Way(kind, lambda step, ctx: (), lambda step: "as given")


def _given_kind(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> str:
    """The kind of way that a placement is which was given."""
    if not cards:
        return "host"
    if plan.gpu_layers is not None and plan.gpu_layers < (facts.layers or 0):
        return "layers"
    return "experts" if plan.cpu_experts or plan.overrides else "cards"


def _fixed(kind: str, words: str, args: Args) -> Way:
    return Way(kind, lambda step, ctx: args, lambda step: words)


def _ranks(flag: str, cards: Sequence[Card]) -> Iterator[Way]:
    for ranks in RANKS:
        if ranks <= len(cards):
            words = "one card" if ranks == 1 else f"{ranks} cards, tensor parallel"
            yield _fixed("cards", words, () if ranks == 1 else (flag, str(ranks)))


def _llama(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> Iterator[Way]:
    units = (facts.layers or 0) + facts.spare_layers + 1
    names = labels(cards)
    if not cards:
        yield _fixed("host", "in RAM", ("-ngl", "0"))
        return
    several = len(cards) > 1
    alone = list(_unlike(cards)) if several else []
    for number in alone:
        yield _fixed("cards", f"all on {names[number]}", (*ALL_LAYERS, *_only(number)))
    yield _fixed("cards", "all on the cards" if several else "all on the card", ALL_LAYERS)
    if len(cards) == 2:
        even = cache(partial(_even, facts, plan, cards, 0))
        yield Way("cards", lambda step, ctx: (*ALL_LAYERS, *even(ctx)), lambda step: "all, split")
    if facts.experts.count and facts.layers:
        if len(cards) == 2:
            yield _experts_split(facts, plan, cards)
        yield _experts(facts, [], names)
        if several:
            yield _experts(facts, alone[:1], names)
    yield _layers(units)


def _unlike(cards: Sequence[Card]) -> Iterator[int]:
    """The numbers of the cards, the largest first, one of each size and generation."""
    seen: set[tuple[int | None, object]] = set()
    for number in sorted(range(len(cards)), key=lambda n: -(capacity(cards[n]) or 0)):
        kind = (capacity(cards[number]), cards[number].compute)
        if kind not in seen:
            seen.add(kind)
            yield number


def _only(number: int) -> Args:
    return ("-sm", "none", "-mg", str(number))


def _moved(facts: ModelFacts, step: int) -> Args:
    """Experts of the first `step` + 1 layers on the host."""
    count = step + 1
    return ("-cmoe",) if count >= (facts.layers or 0) else ("-ncmoe", str(count))


def _moved_words(facts: ModelFacts, step: int) -> str:
    count, layers = step + 1, facts.layers or 0
    return "all experts in RAM" if count >= layers else f"experts of {count} layers in RAM"


def _experts(facts: ModelFacts, only: Sequence[int], names: Sequence[str]) -> Way:
    card = _only(only[0]) if only else ()
    where = f", the rest on {names[only[0]]}" if only else ""
    return Way(
        "experts", lambda step, ctx: (*ALL_LAYERS, *card, *_moved(facts, step)),
        lambda step: _moved_words(facts, step) + where, (facts.layers or 1) - 1,
    )  # fmt: skip


def _experts_split(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> Way:
    @cache
    def args(step: int, ctx: int) -> Args:
        split = _even(facts, plan, cards, step + 1, ctx)
        return (*ALL_LAYERS, *_moved(facts, step), *split)

    return Way(
        "experts", args, lambda step: f"{_moved_words(facts, step)}, split",
        (facts.layers or 1) - 1,
    )  # fmt: skip


def _layers(units: int) -> Way:
    """Fewer and fewer layers on the cards, down to none."""
    return Way(
        "layers", lambda step, ctx: ("-ngl", str(units - 1 - step)),
        lambda step: f"{units - 1 - step} of {units} layers on the cards", units - 1,
    )  # fmt: skip


def _even(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card], moved: int, ctx: int) -> Args:
    """The split of two cards in whole per cents that fills both alike."""

    def first_is_fuller(percent: int) -> bool:
        split = (float(percent), float(PERCENT - percent))
        tried = replace(plan, gpu_layers=1 << 20, ctx=ctx, cpu_experts=moved, tensor_split=split)
        first, two = place(facts, tried, cards).cards
        return first.bytes * (capacity(cards[1]) or 1) >= two.bytes * (capacity(cards[0]) or 1)

    low, high = 1, PERCENT - 1
    while low < high:
        middle = (low + high) // 2
        if first_is_fuller(middle):
            high = middle
        else:
            low = middle + 1
    return ("-ts", f"{low},{PERCENT - low}")
