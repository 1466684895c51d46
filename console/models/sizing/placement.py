"""Which bytes llama.cpp puts on which card, and which stay on the host.

The rules are its loader's, observed in b11669 on devices that only count: the last layers go to the
cards, in the order of the cards, by the proportions of --tensor-split (or of free memory); the
output counts as one more layer, the token table stays on the host, and layers for speculation (MTP)
take a place although nothing of them is loaded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from console.common.text import clean
from console.host.sample import Card
from console.models.sizing.cards.flash_attention import OLD_CARDS, by_vectors, has_kernel, settled
from console.models.sizing.cards.half_copies import beside
from console.models.sizing.cards.tensor_split import TensorSplit, single, tensor_split
from console.models.sizing.combinations.llama import by_pairs
from console.models.sizing.compute import (
    CONTEXT,
    SMALL,
    compute_bytes,
    draft_bytes,
    host_compute_bytes,
    work_of,
)
from console.models.sizing.kv_cache import Cache, cache_of
from console.models.sizing.latent import as_kept
from console.models.sizing.loader_plan import DENSE_OF_LAYER, EXPERTS_OF_LAYER, LlamaPlan
from console.models.sizing.model_facts import Kind, ModelFacts, Weight

MIB = 1 << 20
HOST = -1
VOLTA = (7, 0)
"""The compute capability of the first cards with tensor cores."""
LENT = 2
"""Tensors that are copied from the host to a card at once, at most."""
NO_ROWS = (
    "builds from b9890 on refuse -sm row on CUDA cards, which have no split buffers any more: "
    "-sm layer or -sm tensor"
)
"""ggml-org/llama.cpp#24216; the list of options still names it."""
NO_SPLIT_EXPERTS = (
    "ik_llama.cpp multiplies no experts whose tensors are split by rows: -sm layer or -sm graph"
)
"""ikawrakow/ik_llama.cpp#254: asserts in its CUDA code; there are no other kernels for them."""
TABLE_TWICE = frozenset({"gemma3n"})
"""Architectures whose loader holds a token table that is the output, too, twice in host RAM as well
(llama-fit-params b11669); elsewhere only a card that scores tokens has a copy."""


@dataclass(slots=True)
class Share:
    """What one place gets, in bytes. `card` is its number among all cards, HOST for the host.

    `draft` is what a model takes that guesses ahead for this one. `beside` is no part of the sum:
    what builds keep of copies beside their buffers (cards/half_copies.py).
    `layers` are those that run there, `active` the bytes read for one token, `sizes` the largest
    tensors of its layers and `moved` those that an override took from another place's layer.
    """

    card: int
    name: str
    dense: int = 0
    experts: int = 0
    cache: int = 0
    compute: int = 0
    context: int = 0
    extra: int = 0
    draft: int = 0
    beside: int = 0
    active: int = 0
    layers: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)

    @property
    def weights(self) -> int:
        return self.dense + self.experts

    @property
    def bytes(self) -> int:
        return self.weights + self.cache + self.compute + self.context + self.extra + self.draft

    def add(self, weight: Weight, size: int, active: int, moved: bool = False) -> None:
        if weight.kind is Kind.EXPERTS:
            self.experts += size
        else:
            self.dense += size
        self.active += active
        if weight.layer is not None:
            (self.moved if moved else self.sizes).append(size)

    def take(self, bundle: Bundle, moved: bool = False) -> None:
        """The same for several weights at once."""
        self.dense += bundle.dense
        self.experts += bundle.experts
        self.active += bundle.active
        if bundle.layer is not None:
            (self.moved if moved else self.sizes).extend(bundle.largest)


class Mark(NamedTuple):
    """What a plan can tell weights apart by. `before` and `after`: the buffer to which the first
    override that matches sends it, of those that come before and after --n-cpu-moe."""

    table: bool
    layer: int | None
    routed: bool
    feeds: bool
    before: str | None
    after: str | None


@dataclass(slots=True)
class Bundle:
    """Weights that go together: the token table, or some of one layer (None: of none).
    `weights`: each with its bytes that are read for one token; `largest`: bytes of the largest
    ones, at least as many as are ever copied at once."""

    table: bool
    layer: int | None
    dense: int = 0
    experts: int = 0
    active: int = 0
    weights: list[tuple[Weight, int]] = field(default_factory=list)
    largest: list[int] = field(default_factory=list)

    def add(self, weight: Weight, active: int) -> None:
        if weight.kind is Kind.EXPERTS:
            self.experts += weight.bytes
        else:
            self.dense += weight.bytes
        self.active += active
        self.weights.append((weight, active))
        self.largest = sorted((*self.largest, weight.bytes), reverse=True)[:LENT]

    def join(self, other: Bundle) -> None:
        """Add the weights of another one."""
        self.dense += other.dense
        self.experts += other.experts
        self.active += other.active
        self.weights += other.weights
        self.largest += other.largest


@dataclass(frozen=True, slots=True)
class Moves:
    """What of a plan moves weights, beside the places of its layers."""

    split_mode: str
    mtp: bool
    overrides: tuple[tuple[str, str], ...]
    cpu_experts: int
    cpu_dense: int
    moved_after: int | None

    def holds_back(self, mark: Mark) -> bool:
        """Whether --n-cpu-moe or --n-cpu-ffn keeps it on the host."""
        if mark.layer is None:
            return False
        if mark.layer < self.cpu_experts and mark.routed:
            return True
        return mark.layer < self.cpu_dense and mark.feeds


@dataclass(frozen=True, slots=True)
class Placement:
    """Every card that is used, and the host; `plan` is the one that was placed (auto resolved).

    `refused` says why a loader does not take the plan, `doubts` what the sum does not cover.
    """

    plan: LlamaPlan
    cards: tuple[Share, ...]
    host: Share
    cache: Cache | None
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def on_cards(self) -> int:
        return sum(share.bytes for share in self.cards)


def labels(cards: Sequence[Card]) -> list[str]:
    """A unique name for each card, also used in an envelope."""
    return list(_labels(tuple(card.name for card in cards)))


@lru_cache(maxsize=16)
def _labels(given: tuple[str, ...]) -> tuple[str, ...]:
    names = [clean(name, 40) or "card" for name in given]
    return tuple(
        name if names.count(name) == 1 else f"{name} #{number}" for number, name in enumerate(names)
    )


def capacity(card: Card) -> int | None:
    """The free memory of a card, or all of it if only that is known."""
    return card.total if card.free is None else card.free


def cards_of(plan: LlamaPlan, cards: Sequence[Card]) -> list[int]:
    """The numbers of the cards the plan may use, in its order."""
    chosen = range(len(cards)) if plan.devices is None else plan.devices
    usable = [number for number in chosen if number < len(cards)]
    if plan.split_mode == "none" and plan.main_gpu < 0:
        return []
    if plan.split_mode == "none":
        return usable[plan.main_gpu : plan.main_gpu + 1] or usable[:1]
    return usable


def proportions(plan: LlamaPlan, cards: Sequence[Card], used: Sequence[int]) -> list[float]:
    """Shares of the used cards, summing to 1: --tensor-split, else what is free on them, else
    (tensors that are divided) the same for each."""
    given = list(plan.tensor_split[: len(used)])
    wanted = given + [0.0] * (len(used) - len(given))
    if plan.split_mode == "tensor" and sum(wanted) <= 0:
        wanted = [1.0] * len(used)  # whatever is free: one device stands for all of them
    if plan.split_mode == "none" or sum(wanted) <= 0:
        wanted = [float(capacity(cards[number]) or 0) for number in used]
    whole = sum(wanted)
    return [amount / whole if whole > 0 else 1 / len(used) for amount in wanted]


def places(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> list[int]:
    """For each layer, and last for the output: the number of its card, or HOST."""
    units = (facts.layers or 0) + facts.spare_layers + 1
    used = cards_of(plan, cards)
    wanted = units if plan.gpu_layers is None else min(plan.gpu_layers, units)
    if not used or wanted <= 0:
        return [HOST] * units
    # llama.cpp divides and compares in single precision, and a tie goes to the next card
    bounds = [single(bound) for bound in accumulate(proportions(plan, cards, used))]
    numbers = (bisect_right(bounds, at) for at in _positions(wanted))
    return [HOST] * (units - wanted) + [used[min(number, len(used) - 1)] for number in numbers]


@lru_cache(maxsize=256)
def _positions(wanted: int) -> tuple[float, ...]:
    """Where each of so many layers stands among them, from 0 up to 1."""
    return tuple(single(unit / wanted) for unit in range(wanted))


def place(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> Placement:
    """The bytes of every card and of the host. Needs `facts.layers` and `plan.gpu_layers`."""
    facts = as_kept(facts, plan)
    where = places(facts, plan, cards)
    used = cards_of(plan, cards)
    on_card = any(number != HOST for number in where[: facts.layers])
    on_host = HOST in where[: facts.layers]
    plan, refused, doubts = settled(facts, plan, on_card=on_card, on_host=on_host)
    if plan.ik and plan.flash and on_card and not by_vectors(facts, plan):
        before_volta = [(cards[number].compute or VOLTA) < VOLTA for number in used]
        doubts += (OLD_CARDS,) if any(before_volta) else ()
    if plan.split_mode == "row" and not plan.ik and any(number != HOST for number in where):
        refused += (NO_ROWS,) if plan.build.splits_rows is False else ()
        doubts += (NO_ROWS,) if plan.build.splits_rows is None else ()
    not_together, not_known = by_pairs(facts, plan, where, HOST)
    refused, doubts = (*refused, *not_together), (*doubts, *not_known)
    names = labels(cards)
    by_place = {number: Share(number, names[number]) for number in used}
    by_place[HOST] = Share(HOST, "host")
    parts = dict(zip(used, proportions(plan, cards, used), strict=True))
    notes = _weights(facts, plan, where, by_place, parts)
    if (
        plan.split_mode == "row"
        and plan.ik
        and any(by_place[number].experts for number in used[1:])
    ):
        doubts += (NO_SPLIT_EXPERTS,)
    cache = cache_of(facts, plan)
    if cache is not None:
        _cache(facts, plan, where, cache, by_place, parts)
    if plan.moe_cache_mib:
        for number, part in parts.items():
            by_place[number].extra += int(plan.moe_cache_mib * MIB * part)
    _compute(facts, plan, where, by_place, used, cache)
    on_cards = tuple(by_place[number] for number in used)
    unique_notes = tuple(dict.fromkeys(notes))
    return Placement(plan, on_cards, by_place[HOST], cache, unique_notes, refused, doubts)


def _weights(
    facts: ModelFacts,
    plan: LlamaPlan,
    where: list[int],
    by_place: dict[int, Share],
    parts: dict[int, float],
) -> tuple[str, ...]:
    """Fill in the weights of every place, and return notes."""
    moves = Moves(
        plan.split_mode, plan.mtp, plan.overrides, plan.cpu_experts, plan.cpu_dense,
        plan.moved_after,
    )  # fmt: skip
    spreads = plan.split_mode in ("row", "tensor")
    shares_of = tuple(parts.items()) if spreads else tuple((number, 0.0) for number in parts)
    shares, notes = _shared_out(facts, moves, tuple(where), shares_of)
    for share in shares:
        kept = by_place[share.card]
        kept.dense, kept.experts, kept.active = share.dense, share.experts, share.active
        kept.layers, kept.sizes, kept.moved = share.layers, share.sizes, share.moved
    return notes


@lru_cache(maxsize=128)
def _shared_out(
    facts: ModelFacts,
    moves: Moves,
    where: tuple[int, ...],
    shares_of: tuple[tuple[int, float], ...],
) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    """The weights of every place, which no context changes: kept for the next one. Whoever takes
    them changes no list in them. How much of a tensor is whose counts only where tensors are
    spread."""
    parts = dict(shares_of)
    by_place = {number: Share(number, "") for number in (*parts, HOST)}
    spreads = moves.split_mode in ("row", "tensor")
    twice = (where[-1] != HOST or facts.architecture in TABLE_TWICE) and facts.tied
    divided = tensor_split(facts, tuple(parts.values())) if moves.split_mode == "tensor" else None
    bundles, notes = _bundles(facts, moves)
    for other, bundle in bundles:
        target = HOST if bundle.table else where[-1 if bundle.layer is None else bundle.layer]
        if other is not None and other in by_place:
            by_place[other].take(bundle, moved=target != HOST)
        elif target != HOST and spreads:
            for weight, active in bundle.weights:
                # no kernel takes experts by rows (ggml-org/llama.cpp#22729): they stay whole
                if weight.kind is Kind.EXPERTS and moves.split_mode == "row":
                    by_place[target].add(weight, weight.bytes, active)
                elif divided is not None:
                    _divide(weight, active, by_place, divided)
                else:
                    _spread(weight, active, by_place, parts)
        else:
            by_place[target].take(bundle)
        for weight, _ in bundle.weights if bundle.table and twice else ():
            if weight.name == "token_embd.weight":
                for place_number in (
                    parts if divided is not None and where[-1] != HOST else where[-1:]
                ):
                    by_place[place_number].add(weight, weight.bytes, weight.bytes)
    for unit, number in enumerate(where[: facts.layers]):
        for place_number in parts if number != HOST and spreads else (number,):
            by_place[place_number].layers.append(unit)
    return tuple(by_place.values()), notes


@lru_cache(maxsize=128)
def _bundles(
    facts: ModelFacts, moves: Moves
) -> tuple[tuple[tuple[int | None, Bundle], ...], tuple[str, ...]]:
    """The weights, by what goes together wherever its layer goes, each with the place to which an
    override sends it (None: none does), and notes."""
    joined, notes = dict[tuple[bool, int | None, int | None], Bundle](), list[str]()
    for mark, bundle in _marked(facts, moves.overrides, moves.moved_after, moves.mtp):
        key = mark.table, mark.layer, _override(mark, moves, notes)
        joined.setdefault(key, Bundle(mark.table, mark.layer)).join(bundle)
    return tuple((key[-1], bundle) for key, bundle in joined.items()), tuple(notes)


@lru_cache(maxsize=64)
def _marked(
    facts: ModelFacts, overrides: tuple[tuple[str, str], ...], moved_after: int | None, mtp: bool
) -> tuple[tuple[Mark, Bundle], ...]:
    """The weights that no number of layers whose experts stay on the host tells apart: a few
    hundred bundles, where the weights are thousands."""
    bundles = dict[Mark, Bundle]()
    experts = facts.experts
    for weight in facts.weights:
        if weight.kind is Kind.SKIPPED and not mtp:
            continue
        active = weight.bytes if weight.kind not in (Kind.TOKENS, Kind.SKIPPED) else 0
        if weight.kind is Kind.EXPERTS and experts.count:
            active = weight.bytes * experts.used // experts.count
        mark = _mark(weight, overrides, moved_after)
        bundles.setdefault(mark, Bundle(mark.table, mark.layer)).add(weight, active)
    return tuple(bundles.items())


def _mark(weight: Weight, overrides: tuple[tuple[str, str], ...], moved_after: int | None) -> Mark:
    return Mark(
        weight.kind is Kind.TOKENS, weight.layer, _names(EXPERTS_OF_LAYER, weight.name),
        _names(DENSE_OF_LAYER, weight.name), _sent(weight, overrides[:moved_after]),
        None if moved_after is None else _sent(weight, overrides[moved_after:]),
    )  # fmt: skip


def _spread(
    weight: Weight, active: int, by_place: dict[int, Share], parts: dict[int, float]
) -> None:
    """Rows of one tensor over all cards; the last one gets what rounding leaves."""
    left, busy = weight.bytes, active
    numbers = list(parts)
    for number in numbers[:-1]:
        part = int(weight.bytes * parts[number])
        by_place[number].add(weight, part, int(active * parts[number]))
        left, busy = left - part, busy - int(active * parts[number])
    by_place[numbers[-1]].add(weight, left, busy)


def _divide(weight: Weight, active: int, by_place: dict[int, Share], divided: TensorSplit) -> None:
    """One tensor as --split-mode tensor divides it; some are whole on every card."""
    cards = [number for number in by_place if number != HOST]
    for number, part in zip(cards, divided.of_weight(weight), strict=True):
        by_place[number].add(weight, ceil(weight.bytes * part), ceil(active * part))


def _override(mark: Mark, moves: Moves, notes: list[str]) -> int | None:
    """The place an override sends such tensors to, or None. The first that matches counts, in the
    order of the command line."""
    if mark.before is not None:
        return _place_of(mark.before, notes)
    if moves.holds_back(mark):
        return HOST
    return None if mark.after is None else _place_of(mark.after, notes)


def _place_of(buffer: str, notes: list[str]) -> int:
    if buffer.upper().startswith("CPU"):
        return HOST
    if digits := re.search(r"(\d+)$", buffer):
        return int(digits[1])
    notes.append(f"--override-tensor: {buffer} is counted as host memory")
    return HOST


def _sent(weight: Weight, overrides: Sequence[tuple[str, str]]) -> str | None:
    """The buffer of the first override that matches its name."""
    return next((buffer for pattern, buffer in overrides if _names(pattern, weight.name)), None)


@lru_cache(maxsize=1 << 16)
def _names(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


def _cache(
    facts: ModelFacts,
    plan: LlamaPlan,
    where: list[int],
    cache: Cache,
    by_place: dict[int, Share],
    parts: dict[int, float],
) -> None:
    """The cache of a layer lies with the layer; where weights are split by rows, builds before 2025
    and ik_llama.cpp keep all of it on the main card (ollama/ollama#5527)."""
    used = list(parts)
    divided = tensor_split(facts, tuple(parts.values())) if plan.split_mode == "tensor" else None
    on_main = plan.split_mode == "row" and (plan.ik or plan.build.keeps_cache_on_main)
    for layer, size in enumerate(cache.layers):
        number = where[layer] if plan.kv_offload else HOST
        if number != HOST and on_main:
            number = used[min(plan.main_gpu, len(used) - 1)]
        if number != HOST and divided is not None:
            for card, part in zip(used, divided.of_cache(layer), strict=True):
                by_place[card].cache += ceil(size * part)
        else:
            by_place[number].cache += size


def _compute(
    facts: ModelFacts,
    plan: LlamaPlan,
    where: list[int],
    by_place: dict[int, Share],
    used: Sequence[int],
    cache: Cache | None,
) -> None:
    """Compute buffers of the used cards and the host."""
    for number in used:
        by_place[number].context = CONTEXT
    if cache is None:
        return
    host = by_place[HOST]
    overridden = bool(plan.overrides or plan.cpu_experts or plan.cpu_dense)
    pipelined = (
        len(used) > 1 and plan.split_mode == "layer" and HOST not in where
        and plan.kv_offload and not overridden and not plan.ik  # it keeps one copy
    )  # fmt: skip
    work = work_of(plan, cache, facts, pipelined)
    lends = bool(used) and plan.op_offload and bool(host.sizes or host.moved)
    table = _output_bytes(facts) if lends and where[-1] == HOST else 0
    most = max(cache.layers, default=0) * (2 if facts.attention.latent else 1)  # V is part of K
    attends = bool(host.layers) and plan.kv_offload and (not plan.flash or has_kernel(facts, plan))
    for number in used:
        scored = plan.split_mode == "tensor" and where[-1] != HOST
        share, last = by_place[number], scored or number == where[-1]
        helps = lends and number == used[0]
        lent, scores = _lent(host) if helps else (), last or (helps and bool(table))
        if share.layers or lent or last:
            share.compute = compute_bytes(
                facts, work, output=scores, lent=lent, table=table if helps else 0,
                borrowed=0 if plan.kv_offload else most * 3 // 2,
                helped=most if helps and attends else 0, states=_states(facts, share),
                attends=helps or any(cache.layers[layer] for layer in share.layers),
            )  # fmt: skip
        if plan.kv_offload and any(cache.layers[layer] for layer in share.layers):
            share.beside = beside(facts, plan, work, output=scores)
    computes, states = bool(host.layers) and not lends, _states(facts, host)
    host.compute = host_compute_bytes(facts, work, computes=computes, states=states)
    if plan.mtp and facts.spare_layers:
        _draft(facts, plan, cache, by_place, where[-1], used[0] if lends else HOST)


def _draft(
    facts: ModelFacts, plan: LlamaPlan, cache: Cache, by_place: dict[int, Share], where: int,
    helper: int,
) -> None:  # fmt: skip
    """The context of the layers that guess ahead, where the last layer is, and at the card that
    helps the host. It copies over what of its layers lies on the host, as the other one does."""
    own = draft_bytes(facts, plan, cache) + (0 if plan.kv_offload else cache.layers[-1] * 3 // 2)
    every = plan.split_mode == "tensor" and where != HOST
    for number in (
        [place_number for place_number in by_place if place_number != HOST] if every else [where]
    ):
        by_place[number].compute += own
    moves = Moves(
        plan.split_mode, True, plan.overrides, plan.cpu_experts, plan.cpu_dense, plan.moved_after
    )
    ahead = [weight for weight in facts.weights if weight.kind is Kind.SKIPPED]
    there = [
        weight.bytes for weight in ahead
        if where == HOST or _override(_mark(weight, moves.overrides, moves.moved_after), moves, [])
        == HOST
    ]  # fmt: skip
    if helper != HOST and there:
        by_place[helper].compute += sum(sorted(there, reverse=True)[:LENT]) + SMALL
        by_place[helper].compute += own if where == HOST else 0


def _states(facts: ModelFacts, share: Share) -> int:
    """How many of its layers keep a state."""
    states = facts.recurrent
    return 0 if states is None else sum(states.layers[layer] for layer in share.layers)


def _output_bytes(facts: ModelFacts) -> int:
    """The matrix that turns the last layer's values into scores: maybe the token table."""
    name = "token_embd.weight" if facts.tied else "output.weight"
    return sum(weight.bytes for weight in facts.weights if weight.name == name)


def _lent(host: Share) -> tuple[int, ...]:
    """The largest tensors that are copied to a card at once: one of a host layer, two of those that
    an override took from a card's layer, whose expert parts run in one go."""
    most = sorted(host.moved, reverse=True)[:LENT]
    return tuple(max([most, sorted(host.sizes, reverse=True)[:1]], key=sum))
