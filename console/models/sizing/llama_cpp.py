"""llama.cpp's arithmetic: every card on its own, then the host, mapped or resident.

Its own choices for unset options (`chosen`), and the split over unequal cards (`best_split`), are
computed by the same sum.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from console.common.text import clean
from console.common.units import format_bytes
from console.host.sample import Card, Machine
from console.models.sizing.assessment import (
    CARD_MARGIN,
    FOOTPRINT,
    GIB,
    HEADROOM,
    HOST,
    MIB,
    PAGES,
    Assessment,
    held,
    mapped,
    resident,
)
from console.models.sizing.cards.division import divided_by_graph, exchanged
from console.models.sizing.cards.fit import BESIDE_GUESSES, chosen, gives_up, spare
from console.models.sizing.cards.flash_attention import PAIRS, PLAIN, takes_types
from console.models.sizing.cards.half_copies import doubt
from console.models.sizing.compute import CONTEXT
from console.models.sizing.latent import LIMIT_MIB
from console.models.sizing.load_curve import Envelope, Point
from console.models.sizing.loader_plan import ALL, LlamaPlan, Strategy
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.newer.builds import judge_arrivals
from console.models.sizing.placement import Placement, Share, capacity, cards_of, labels, place

PERCENT = 100
NO_LAYERS = (
    "ik_llama.cpp before 30 July 2026 takes no layer to the cards where --n-gpu-layers is not "
    "given (ik_llama.cpp#2209)"
)
ALONE = 1 << 50
"""Bytes of a card on which any model fits."""


def best_split(facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card]) -> LlamaPlan | None:
    """The plan split by layers so that each card gets what it has room for and the cards are filled
    most evenly; None if none fits.

    Two cards are tried in every proportion of whole per cents, more cards by their free memory.
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
    plans = [replace(plan, split_mode="layer", tensor_split=split) for split in tries]
    fitting = [candidate for candidate in plans if spare(facts, candidate, cards) >= 0]
    return min(
        fitting, key=lambda candidate: _fullest(place(facts, candidate, cards), cards), default=None
    )


def _fullest(placement: Placement, cards: Sequence[Card]) -> float:
    return max(
        (share.bytes + CARD_MARGIN) / (capacity(cards[share.card]) or 1)
        for share in placement.cards
    )


def words(plan: LlamaPlan) -> str:
    return ",".join(f"{part:g}" for part in plan.tensor_split)


def by_layers(facts: ModelFacts, ctx: int | None, cards: Sequence[Card]) -> str | None:
    """What a split by layers would put on each card, for a plan that splits evenly."""
    plan = best_split(facts, LlamaPlan(gpu_layers=ALL, ctx=ctx, parallel=1), cards)
    if plan is None:
        return None
    placed = place(facts, plan, cards)
    loads = " and ".join(f"{format_bytes(share.bytes)} on {share.name}" for share in placed.cards)
    how = f"llama.cpp --tensor-split {words(plan)} --ctx-size {ctx}, as GGUF of this size"
    return f"a split by layers instead ({how}): {loads}"


OVERFLOWS = "GGML_CUDA_ENABLE_UNIFIED_MEMORY"
"""Lets what a card has no room for lie in RAM (the guide to building llama.cpp)."""


def weigh(
    facts: ModelFacts, plan: LlamaPlan, machine: Machine, ram_read_bps: float | None = None
) -> tuple[Assessment, Placement | None]:
    """The whole sum for one plan. The placement is None if not even the layers are known."""
    if plan.merges and not plan.graph and not facts.attention.latent:
        plan = replace(plan, mmap=False)  # merged tensors are in no file that could be mapped
    has_cards = bool(cards_of(plan, machine.cards))
    ledger = Assessment(plan.strategy(has_cards))
    ledger.unknown += [f"the plan: {problem}" for problem in plan.problems]
    ledger.unknown += facts.missing
    ledger.notes += [*plan.notes, *facts.notes]
    ledger.unknown += [f"not counted: {what}" for what in plan.uncounted]
    ledger.unknown += plan.unsettled
    judge_arrivals(facts, plan, ledger)
    ledger.stops += [f"llama-server refuses {what}" for what in plan.refused]
    absent(plan, machine.cards, ledger)
    if plan.goes_back and facts.recurrent is not None and not plan.uncounted:
        ledger.unknown.append(
            "not counted: the copies of states that ik_llama.cpp keeps on the card, so that it can "
            "go back where a guess was wrong"
        )
    if plan.mtp and not facts.spare_layers and not plan.uncounted:
        ledger.unknown.append("the file has no layers for --spec-type draft-mtp")
    if facts.layers is None:
        return ledger, None
    if plan.gpu_layers is None or plan.fit:
        plan = _auto(facts, plan, machine.cards, ledger)
    _context(facts, plan, ledger)
    placement = place(facts, plan, machine.cards)
    _draft(placement, machine, ledger)
    ledger.notes += placement.notes
    ledger.stops += placement.refused
    ledger.unknown += placement.doubts
    if placement.cache is None:
        ledger.unknown.append("the cache: its context is not known")
    else:
        for part in placement.cache.parts:
            ledger.notes.append(f"{part.name}: {part.how} = {format_bytes(part.bytes)}")
    _cards(placement, machine.cards, ledger)
    _older(facts, placement, machine.cards, ledger)
    _without_flash(facts, placement, machine, ledger)
    exchanged(placement, machine.cards, ledger)
    divided_by_graph(facts, placement, machine.cards, ledger)
    _unused(placement, machine.cards, ledger)
    _host(plan, placement, machine, ledger)
    if any(words.startswith(OVERFLOWS) for words in plan.uncounted):
        ledger.limits = [
            replace(limit, hard=limit.hard and limit.where == HOST) for limit in ledger.limits
        ]
    _ceiling(placement.host, machine, ledger, ram_read_bps)
    ledger.envelope = _envelope(facts, placement, machine, ledger)
    return ledger, placement


def _draft(placement: Placement, machine: Machine, ledger: Assessment) -> None:
    """Add a model that guesses ahead, whose context has as many tokens and slots as the other's, in
    F16 (llama-server b11669 prints 90 MiB of cache for each of two copies of SmolLM2-135M with
    4,096 tokens). Which part each card gets is not known: every card has to have room for all."""
    facts, plan = placement.plan.draft, placement.plan
    if facts is None:
        return
    ledger.unknown += [f"the draft model: {what}" for what in facts.missing]
    card = Card("draft", total=ALONE)
    alone = LlamaPlan(
        gpu_layers=ALL if placement.cards else 0, split_mode="none", fit=False, ubatch=plan.ubatch,
        ctx=placement.cache.tokens if placement.cache else None, parallel=plan.slots,
        kv_unified=plan.unified, flash=plan.flash, swa_full=plan.swa_full,
    )  # fmt: skip
    placed = place(facts, alone, [card] if placement.cards else [])
    size = sum(card_share.bytes - card_share.context for card_share in placed.cards)
    for share in placement.cards:
        left = (capacity(machine.cards[share.card]) or 0) - share.bytes
        if left < size:
            ledger.unknown.append(
                f"the draft model: all of it takes {format_bytes(size)}, and {share.name} has "
                f"{format_bytes(max(0, left))} left"
            )
            return
        share.draft = size
    placement.host.draft = placed.host.bytes


def absent(plan: LlamaPlan, cards: Sequence[Card], ledger: Assessment) -> None:
    """Devices and buffers that the plan names and this machine does not have."""
    has = f"this machine has {len(cards)} card{'' if len(cards) == 1 else 's'}"
    gone = [number for number in plan.devices or () if number >= len(cards)]
    used = cards_of(replace(plan, split_mode="layer"), cards)
    if gone and plan.ik:
        ledger.notes.append(f"--device: {has}, and ik_llama.cpp leaves out what is not there")
    elif gone:
        ledger.stops.append(f"--device names a card {gone[0]}, and {has} (the first one is 0)")
    if plan.split_mode == "none" and used and plan.main_gpu >= len(used):
        ledger.stops.append(f"--main-gpu {plan.main_gpu}: {len(used)} of the devices are used")
    if len(used) < plan.min_devices:
        left = has if plan.devices is None else f"--device leaves it {len(used)} of {len(cards)}"
        ledger.stops.append(f"the split mode takes {plan.min_devices} devices or more, and {left}")
    if len(plan.tensor_split) > len(used) and used:
        ledger.notes.append(
            f"--tensor-split has {len(plan.tensor_split)} entries for {len(used)} devices: the "
            "others are passed over"
        )
    if plan.moe_cache_mib and not used:
        ledger.stops.append(f"--moe-cache-mib needs a card, and {has}")
    for pattern, buffer in plan.overrides:
        number = int(digits[0]) if (digits := re.search(r"\d+$", buffer)) else None
        if number is not None and number >= len(cards):
            ledger.stops.append(f"--override-tensor {pattern}={buffer}: {has} (the first one is 0)")
        elif number is not None and number not in used:
            ledger.stops.append(f"--override-tensor {pattern}={buffer}: --device leaves it out")


def _auto(
    facts: ModelFacts, plan: LlamaPlan, cards: Sequence[Card], ledger: Assessment
) -> LlamaPlan:
    """The plan llama.cpp would choose, and a note that says so."""
    auto_plan = chosen(facts, plan, cards)
    layers = min(auto_plan.gpu_layers or 0, (facts.layers or 0) + facts.spare_layers + 1)
    auto = plan.gpu_layers is None or plan.fits_all
    words = [f"--n-gpu-layers is auto: about {layers}"] if auto else []
    moves = auto_plan.overrides != plan.overrides
    if moves:
        words.append("with part of the experts on the host")
    if auto_plan.ctx != plan.ctx:
        whose = "" if words else "--fit chooses "
        words.append(f"{'and ' if words else ''}{whose}a context of {auto_plan.ctx:,} tokens")
    reason = gives_up(plan, cards) if plan.fit and cards_of(plan, cards) else ""
    if reason and auto and spare(facts, auto_plan, cards) < 0:
        words.append(f'--fit gives up ("{reason}, abort"), so that all layers go to the cards')
    if words:
        ledger.notes.append(", ".join(words))
    if plan.ik and plan.gpu_layers is None and not plan.fit and cards_of(plan, cards):
        ledger.notes.append(NO_LAYERS)
    made_room = moves or auto_plan.ctx != plan.ctx or layers <= (facts.layers or 0)
    own = plan.gpu_layers is None or auto_plan.ctx != plan.ctx
    if plan.mtp and plan.fit and own and made_room and not (plan.ik or plan.build.serves):
        ledger.unknown.append(BESIDE_GUESSES)
    return auto_plan


def _context(facts: ModelFacts, plan: LlamaPlan, ledger: Assessment) -> None:
    most = facts.context_length
    if plan.ctx is None or most is None or plan.rope_scaled:
        return
    each = plan.ctx if plan.unified else plan.ctx // plan.slots
    if each > most:  # a loader takes it, and a pool that slots share may well be larger
        ledger.notes.append(
            f"a context of {each:,} tokens was asked for, and the model was made for {most:,}: "
            "what it answers beyond is not to be relied on"
        )


def _cards(placement: Placement, cards: Sequence[Card], ledger: Assessment) -> None:
    names = labels(cards)
    for share in placement.cards:
        card, where = cards[share.card], names[share.card]
        _card_terms(share, placement, where, ledger)
        have = capacity(card)
        if have is None:
            ledger.unknown.append(f"the memory of {where}")
            continue
        if card.free is None:
            ledger.notes.append(f"what is free on {where} is not known: all of it is counted")
        limit = ledger.limit(where, have)
        left = limit.left - share.beside
        if not limit.short_by and left < 0:
            ledger.unknown.append(doubt(placement.plan, where, limit.left, share.beside))
        copies = " beside F16 copies of the cache" if share.beside else ""
        if not limit.short_by and left < HEADROOM * (card.total or have):
            ledger.tight.append(
                f"{where} would have {format_bytes(max(0, left))} left{copies}, less than "
                f"{HEADROOM:.0%} of it (F-005)"
            )
        elif not limit.short_by and left < CARD_MARGIN:
            ledger.tight.append(
                f"{where} would have {format_bytes(max(0, left))} left{copies}, less than the "
                f"{format_bytes(CARD_MARGIN)} for what no calculation covers"
            )


def _unused(placement: Placement, cards: Sequence[Card], ledger: Assessment) -> None:
    """A build for CUDA makes a context on a card that it is told to leave alone."""
    full = [card for card in cards if card.free is not None and card.free < CONTEXT]
    if full and not placement.cards:
        ledger.unknown.append(
            f"whether the build is one for the CPU: one for CUDA takes a part of a card, too, and "
            f"{format_bytes(full[0].free or 0)} of {clean(full[0].name, 40)} are free "
            "(llama.cpp#25145); CUDA_VISIBLE_DEVICES= hides it"
        )


def _older(
    facts: ModelFacts, placement: Placement, cards: Sequence[Card], ledger: Assessment
) -> None:
    """What builds of ik_llama.cpp from before take more, where it decides."""
    plan, used = placement.plan, [share for share in placement.cards if share.layers]
    if not plan.ik:
        return
    if plan.overrides and len(used) > 1 and plan.split_mode == "layer":
        (ledger.unknown if plan.older else ledger.notes).append(
            "builds of ik_llama.cpp before November 2025 with GGML_SCHED_MAX_COPIES above 1, the "
            "default until September 2025, reserve hundreds of GiB for such a plan: --split-mode "
            "none, or another build"
        )
    if plan.amb is not None or ledger.short:
        return
    whole = place(facts, replace(plan, amb=0), cards)
    short = [
        share for share in whole.cards if share.bytes > (capacity(cards[share.card]) or share.bytes)
    ]
    if short:
        most = max(short, key=lambda share: share.compute)
        ledger.unknown.append(
            f"whether the build limits attention by itself: before 13 August 2026 it takes "
            f"{format_bytes(most.compute)} to compute on {most.name}; --attention-max-batch "
            f"{LIMIT_MIB} settles it"
        )


def _without_flash(
    facts: ModelFacts, placement: Placement, machine: Machine, ledger: Assessment
) -> None:
    """What a build takes more whose `auto` turns flash attention off for these types of a cache,
    since it has no kernel for them: the scores of a whole batch. It decides, and is not known."""
    plan, cards = placement.plan, machine.cards
    if not plan.flash or not plan.flash_auto or plan.type_v not in PLAIN or ledger.short:
        return
    if takes_types(facts, plan) is not None or not placement.cards:
        return
    other = place(facts, replace(plan, flash=False), cards)
    words = (
        f"with K in {plan.type_k} and V in {plan.type_v} the build decides over flash attention, "
        "and without"
    )
    tight = [
        share for share in other.cards
        if (capacity(cards[share.card]) or share.bytes) - share.bytes < CARD_MARGIN
    ]  # fmt: skip
    if tight:
        most = max(tight, key=lambda share: share.bytes)
        ledger.unknown.append(
            f"{words} {most.name} takes {format_bytes(most.bytes)}, of which "
            f"{format_bytes(most.compute)} to compute. {PAIRS}"
        )
    else:
        ledger.notes.append(f"{words} a batch takes much longer. {PAIRS}")


def _card_terms(share: Share, placement: Placement, where: str, ledger: Assessment) -> None:
    layers = _span(share.layers)
    ledger.add("weights", share.dense, where, layers)
    ledger.add("experts", share.experts, where, layers)
    ledger.add("cache", share.cache, where, f"of {layers}")
    ledger.add("compute", share.compute, where, f"batch of {placement.plan.ubatch} tokens, reserve")
    ledger.add("expert cache", share.extra, where, "--moe-cache-mib")
    ledger.add("draft model", share.draft, where, "with its cache and compute, at most")
    ledger.add("CUDA context", share.context, where, "estimate")


def _span(layers: Sequence[int]) -> str:
    if not layers:
        return "no whole layer"
    if len(layers) == layers[-1] - layers[0] + 1 and len(layers) > 1:
        return f"layers {layers[0]} to {layers[-1]}"
    return f"{len(layers)} layers" if len(layers) > 1 else f"layer {layers[0]}"


def _host(plan: LlamaPlan, placement: Placement, machine: Machine, ledger: Assessment) -> None:
    """Anonymous memory first; then the weights of the host, as pages or as memory of their own."""
    host = placement.host
    ledger.add("cache", host.cache, HOST, "of the layers that work on the CPU")
    ledger.add("compute", host.compute, HOST, "batches, inputs and masks, reserve")
    ledger.add("process", FOOTPRINT, HOST, "vocabulary, graph, pinned buffers")
    ledger.add("draft model", host.draft, HOST, "what of it stays on the host")
    in_pages = ledger.strategy is Strategy.MMAP
    where, layers = (PAGES if in_pages else HOST), _span(host.layers)
    ledger.add("weights", host.dense, where, layers if host.layers else "token table")
    ledger.add("experts", host.experts, where, layers if host.layers else "kept off the cards")
    _prompts(plan, machine, ledger)
    if machine.ram_available is None:
        ledger.unknown.append("the memory this machine has free")
        return
    if in_pages:
        _mapped(ledger, machine.ram_available)
    else:
        resident(ledger, machine, locked=plan.mlock or "mlock" in plan.load_mode)
    _checkpoints(placement, ledger)


def _prompts(plan: LlamaPlan, machine: Machine, ledger: Assessment) -> None:
    """The cache of prompts grows up to its limit and is not allocated: what it may have beyond the
    RAM that is left is tight, no NO-GO."""
    most = plan.cache_ram_mib * MIB
    if plan.cache_ram_mib < 0:
        most = 8 * GIB
        ledger.notes.append("--cache-ram has no limit: 8 GiB are counted, and it may grow on")
    room = most
    if machine.ram_available is not None:
        room = max(0, machine.ram_available - ledger.need(HOST))
    ledger.add("prompt cache", min(most, room), HOST, "--cache-ram, filled in time")
    if most > room:
        ledger.tight.append(
            f"--cache-ram lets prompts take up to {format_bytes(most)} of RAM in time, and "
            f"{format_bytes(room)} would be left"
        )


def kept_states(placement: Placement) -> int:
    """The most that a server keeps of its slots' states and windows, to go back in a prompt."""
    names = ("states",) if placement.plan.swa_full else ("states", "window cache")
    parts = placement.cache.parts if placement.cache is not None else ()
    return placement.plan.checkpoints * sum(part.bytes for part in parts if part.name in names)


def _checkpoints(placement: Placement, ledger: Assessment) -> None:
    """They grow with the prompts and are rarely all there: more than is left is tight, no NO-GO."""
    most, plan = kept_states(placement), placement.plan
    left = max(0, next((limit.left for limit in ledger.limits if limit.where == HOST), 0))
    words = (
        f"up to {format_bytes(most)} of RAM for {plan.checkpoints} checkpoints of each slot "
        "(--ctx-checkpoints), filled in time"
    )
    if most > left:
        ledger.tight.append(f"{words}; {format_bytes(left)} would be left")
    elif most:
        ledger.notes.append(words)
    whole = saved_prompt(placement)
    if (more := whole - plan.cache_ram_mib * MIB) > left:
        who = "" if plan.ik else "builds before mid-2026: "
        (ledger.tight if plan.ik else ledger.notes).append(
            f"{who}a prompt as long as the context is saved in RAM with {format_bytes(whole)}, "
            f"whatever --cache-ram says: {format_bytes(more)} more, and {format_bytes(left)} would "
            "be left; --cache-ram 0 saves none"
        )


def saved_prompt(placement: Placement) -> int:
    """What a server copies to RAM of a slot whose context is full; 0 if it saves no prompts.
    ik_llama.cpp keeps the last one, however large it is (#2320); llama.cpp did (#20509)."""
    plan, cache = placement.plan, placement.cache
    if cache is None or plan.cache_ram_mib <= 0:
        return 0
    return cache.bytes // (1 if plan.unified else plan.slots)


def _mapped(ledger: Assessment, available: int) -> None:
    pages = mapped(ledger, available)
    if pages.short_by:
        miss = pages.short_by / pages.need
        ledger.streaming = (
            f"{format_bytes(pages.need)} of weights stay on the host and "
            f"{format_bytes(pages.have)} of page cache can hold them: {miss:.0%} is read from the "
            "disk for each token"
        )


def _ceiling(host: Share, machine: Machine, ledger: Assessment, ram_read_bps: float | None) -> None:
    """Tokens a second allowed by reading the host's weights: from the disk what the page cache
    lacks, from memory the rest if its speed is known."""
    if not host.active:
        return
    pages = next((limit for limit in ledger.limits if limit.where == PAGES), None)
    miss = pages.short_by / pages.need if pages is not None and pages.need else 0.0
    seconds = 0.0
    if miss:
        if not machine.disk_read_bps:
            ledger.notes.append("how fast the disk reads is not known: no ceiling calculated")
            return
        seconds += host.active * miss / machine.disk_read_bps
    if ram_read_bps:
        seconds += host.active * (1 - miss) / ram_read_bps
    if seconds:
        ledger.ceiling_tok_s = 1 / seconds
    words = f"the CPU reads {format_bytes(host.active)} of weights for each token"
    if ledger.strategy is Strategy.MMAP and machine.disk_read_bps:
        cold = machine.disk_read_bps / host.active
        words += f"; while none of them is in memory yet, the disk allows {cold:.2g} tok/s"
    ledger.notes.append(words)


def _envelope(
    facts: ModelFacts, placement: Placement, machine: Machine, ledger: Assessment
) -> Envelope:
    """Predict the load: weights are read first (through the page cache), then buffers made."""
    kept = placement.host.weights if ledger.strategy is Strategy.RESIDENT else 0
    prompt = sum(term.bytes or 0 for term in ledger.terms if term.name == "prompt cache")
    own = ledger.need(HOST)
    speed = machine.disk_read_bps
    read_s = facts.weight_bytes / speed if speed else None
    cached = min(facts.weight_bytes, max(0, (machine.ram_available or 0) - own))
    # more than there is on a card cannot be taken
    full = tuple(
        (share.name, min(share.bytes, machine.cards[share.card].total or share.bytes))
        for share in placement.cards
    )
    cards = tuple(
        (name, min(share.weights, most))
        for share, (name, most) in zip(placement.cards, full, strict=True)
    )

    points = [Point("start", 0.0)]
    for phase, need, vram in (
        ("weights read", kept + FOOTPRINT, cards),
        ("ready", own - prompt, full),
        ("serving", own + kept_states(placement), full),
    ):
        ram, swap = held(need, machine)
        points.append(Point(phase, read_s, ram, cached, vram, swap))
    return Envelope(tuple(points))
