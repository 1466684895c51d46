"""SGLang's arithmetic, with kt-kernel if experts run on the CPU, and that of its converter.

Ranks are equal, and everything is resident.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from console.common.units import format_bytes, format_duration
from console.host.sample import Card, Machine
from console.models.sizing.assessment import (
    FOOTPRINT,
    GIB,
    HEADROOM,
    HOST,
    HOST_MARGIN,
    MIB,
    PAGES,
    ROUNDED,
    Assessment,
    Limit,
    disk_margin,
    held,
    mapped,
    resident,
)
from console.models.sizing.cards.fit import least
from console.models.sizing.combinations.kernels import kernels_of_sglang
from console.models.sizing.combinations.serving import by_sglang_pairs
from console.models.sizing.facts_from_gguf import SOURCE as GGUF
from console.models.sizing.load_curve import Envelope, Point
from console.models.sizing.loader_plan import AS_STORED, ConversionPlan, SglangPlan
from console.models.sizing.model_facts import Kind, ModelFacts
from console.models.sizing.newer.releases import judge_newcomers
from console.models.sizing.placement import capacity, labels
from console.models.sizing.serving.backends import (
    cache_form,
    cache_of_sglang,
    not_known_of_backends,
    refused_backends,
)
from console.models.sizing.serving.cache import rank_bytes
from console.models.sizing.serving.classes import not_known_of_class
from console.models.sizing.serving.encoders import (
    has_encoder,
    not_known_of_encoder,
    reads_images,
)
from console.models.sizing.serving.fraction import fraction_of, graphs_mib, row_of, step_of
from console.models.sizing.serving.kt import BYTES_PER_WEIGHT, by_kt, kt_bytes, whole_layer
from console.models.sizing.serving.loaded import as_loaded, cache_type, kept_of_experts
from console.models.sizing.serving.parallel import Ranks, refusals, step_bytes, too_long
from console.models.sizing.serving.refused import (
    BF16_SINCE,
    by_sglang,
    fp8_cache,
    not_known_of_pages,
)
from console.models.sizing.serving.releases import not_known_of_sglang
from console.models.sizing.serving.shares import absorbed, dense_bytes, dense_of_rank
from console.models.sizing.serving.states import pools, step_states
from console.models.sizing.serving.tables import Tables, tables_of

DISK = "disk"
WIDE = 2
"""Bytes of a weight while its layer is processed: bf16."""
RECORDED_S = 49 * 3600 / 59
"""Seconds a layer when the source did not fit into RAM: 49 h for 59 layers of DeepSeek-R1 with 265
GiB in swap (F-019)."""
SHORT_STEP = 2048
"""Tokens of a step that every server meets, however seldom its chunks are full."""
LARGE = 0.01
"""Part of a card from which tables are named, and judged beside SGLang's own formula."""
AMD, AITER = ("AMD ", "Radeon ", "Instinct "), "aiter"
OF_AITER = (
    "what the attention of AMD cards (AITER) takes beside a cache that has all the rest "
    "(sglang#18262); --attention-backend triton does without"
)
CTX = 8192
"""Tokens counted if no context is given: SGLang gives its cache whatever is left."""
STEP = 1024
"""Tokens by which a cache that does not fit is made smaller."""
LOAD_PEAK = 0.10
"""Added to kt-kernel's CPU weights while they are loaded."""
STAGING = 8 * GIB
"""Host memory through which a rank passes its shards if nothing stays in RAM."""


def weigh_conversion(facts: ModelFacts, plan: ConversionPlan, machine: Machine) -> Assessment:
    """The whole sum for a converter, and its duration: RAM for the source and one layer at its
    peak, disk for source and result."""
    ledger = Assessment(plan.strategy())
    ledger.unknown += [f"the plan: {problem}" for problem in plan.problems]
    ledger.unknown += [
        missing_fact for missing_fact in facts.missing if "cache" not in missing_fact
    ]
    ledger.notes += plan.notes
    if facts.source == GGUF:
        ledger.stops.append("this converter takes safetensors, not GGUF")
    if plan.method in AS_STORED:
        ledger.notes.append(f"{plan.method} converts nothing: it reads weights as they are")
        return ledger
    if facts.layers is None:
        return ledger
    result = _result(facts, plan)
    _memory(facts, plan, ledger, result // max(1, facts.layers))
    if machine.ram_available is None:
        ledger.unknown.append("the memory this machine has free")
    else:
        resident(ledger, machine)
    _disk(facts, plan, machine, ledger, result)
    ledger.envelope = _conversion_curve(facts, machine, ledger)
    _hours(facts, machine, ledger, result)
    return ledger


def _result(facts: ModelFacts, plan: ConversionPlan) -> int:
    weights = sum(w.elements for w in facts.weights if w.kind is Kind.EXPERTS)
    size = next((size for name, size in BYTES_PER_WEIGHT if name in plan.method.upper()), 2.0)
    return int(weights * size)


def _memory(facts: ModelFacts, plan: ConversionPlan, ledger: Assessment, written: int) -> None:
    experts = [weight for weight in facts.weights if weight.kind is Kind.EXPERTS]
    first = experts[0].layer if experts else None
    per_layer = sum(weight.elements for weight in experts if weight.layer == first)
    kind = plan.input_type or "as it is stored"
    ledger.add("source", facts.weight_bytes, HOST, f"kept while it is worked on ({kind})")
    ledger.add("one layer", per_layer * WIDE, HOST, f"{per_layer / 1e9:.1f} G weights x {WIDE} B")
    ledger.add("its result", written, HOST, plan.method)
    ledger.add("process", FOOTPRINT, HOST)


def _disk(
    facts: ModelFacts, plan: ConversionPlan, machine: Machine, ledger: Assessment, result: int
) -> None:
    source = facts.weight_bytes
    ledger.add("source", source, DISK, "to be downloaded")
    ledger.add("result", result, DISK, f"experts as {plan.method}")
    ledger.add("margin", disk_margin(source + result), DISK)
    if machine.disk_free is None:
        ledger.unknown.append("what is free on the disk")
        return
    ledger.limit(DISK, machine.disk_free)


def _hours(facts: ModelFacts, machine: Machine, ledger: Assessment, result: int) -> None:
    moved = facts.weight_bytes + result
    if machine.disk_read_bps:
        at_least = moved / machine.disk_read_bps
        ledger.notes.append(
            f"at least {format_duration(at_least)}: {format_bytes(moved)} are read and written"
        )
    over = ledger.need(HOST) - (machine.ram_available or 0)
    if machine.ram_available is not None and over > 0 and facts.layers:
        ledger.notes.append(
            f"{format_bytes(over)} of it would be swapped: about "
            f"{format_duration(facts.layers * RECORDED_S)} at the pace of F-019 "
            f"({format_duration(RECORDED_S)} a layer)"
        )


def _conversion_curve(facts: ModelFacts, machine: Machine, ledger: Assessment) -> Envelope:
    need, speed = ledger.need(HOST), machine.disk_read_bps
    at_s = facts.weight_bytes / speed if speed else None
    cached = max(0, (machine.ram_available or 0) - need)
    read, peak = held(facts.weight_bytes, machine), held(need, machine)
    return Envelope(
        (
            Point("start", 0.0),
            Point("source read", at_s, read[0], cached, (), read[1]),
            Point("converting", None, peak[0], cached, (), peak[1]),
        )
    )


def weigh(facts: ModelFacts, plan: SglangPlan, machine: Machine) -> Assessment:
    kind = cache_type(facts, "sglang", plan.type_kv)
    plan = replace(plan, type_kv=cache_form(facts, kind, machine.cards))
    ledger = Assessment(plan.strategy())
    ledger.unknown += [f"the plan: {problem}" for problem in plan.problems]
    ledger.unknown += [*facts.missing, *not_known_of_class(facts, "sglang")]
    ledger.unknown += not_known_of_sglang(facts, plan)
    if not plan.kt:  # whose fork has releases of its own
        judge_newcomers(facts, "sglang", plan, ledger)
    ledger.unknown += too_long(facts, plan.ctx, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1")
    ledger.notes += plan.notes
    ledger.unknown += [f"not counted: {what}" for what in plan.uncounted]
    refused, unknown = kernels_of_sglang(facts, plan, machine.cards)
    refused = [*plan.refused, *refused_backends(plan), *refused]
    ledger.stops += [f"SGLang refuses {what}" for what in refused]
    ledger.unknown += unknown
    ledger.unknown += not_known_of_backends(facts, plan, machine.cards)
    ledger.unknown += not_known_of_encoder(facts, plan, _ranks(plan).attention)
    factor, unknown = as_loaded(facts, plan.dtype, plan.quantization)
    ledger.unknown += unknown
    for refused, unknown in (
        by_kt(facts, plan, machine.cpu_flags),
        by_sglang_pairs(facts, plan, machine.cards),
        cache_of_sglang(facts, plan, machine.cards),
    ):  # fmt: skip
        ledger.stops += refused
        ledger.unknown += unknown
    if facts.layers is None:
        return ledger
    if plan.drafts and not facts.bytes_of(Kind.SKIPPED):
        ledger.unknown.append("the model that guesses ahead: the checkpoint has no spare layers")
    ledger.stops += refusals(facts, _ranks(plan))
    _chunks(facts, plan, machine, ledger)
    dense = int(dense_of_rank(facts, _ranks(plan)) * factor) + absorbed(facts, _ranks(plan))
    experts = int(facts.bytes_of(Kind.EXPERTS) * factor)
    on_cards = experts
    if plan.kt:
        count = facts.experts.count or 1
        on_cards = experts * min(plan.kt_gpu_experts, count) // count
    _cards(facts, plan, machine, dense, on_cards, ledger)
    _host(facts, plan, machine, experts - on_cards, ledger)
    ledger.envelope = _envelope(facts, plan, machine, ledger)
    return ledger


def _cards(
    facts: ModelFacts,
    plan: SglangPlan,
    machine: Machine,
    dense: int,
    experts: int,
    ledger: Assessment,
) -> None:
    """Judge the smallest card, since every rank takes the same. `dense` are a rank's bytes if there
    is one stage, `experts` all of them."""
    ranks = plan.ranks * plan.stages
    dense, whole = dense // plan.stages, dense_bytes(facts)
    world = ranks * (1 if plan.attention_apart else plan.replicas)
    cards = machine.cards[:world]
    if len(cards) < world:
        ledger.stops.append(f"{world} ranks need {world} cards, and there are {len(cards)}")
    moved = min(plan.cpu_offload, dense)
    drafts = (facts.bytes_of(Kind.SKIPPED) if plan.drafts else 0) // ranks
    cache, states = _cache_and_states(facts, plan, ledger)
    static = [int((capacity(card) or 0) * fraction_of(plan, facts, card)) for card in cards]
    fixed = dense + experts // ranks + drafts - moved
    served = _shortened(facts, plan, min(filter(None, static), default=0) - fixed, ledger)
    if served is not plan:
        cache, states = _cache_and_states(facts, served, Assessment(plan.strategy()))
    unknown, notes = fp8_cache(facts, plan.type_kv, cards, plan.attention)
    ledger.unknown += unknown
    ledger.notes += notes
    if plan.attention in ("", AITER) and any(card.name.startswith(AMD) for card in cards):
        ledger.unknown.append(f"not counted: {OF_AITER}")
    names = labels(machine.cards)
    words = "--cpu-offload-gb" + ("; experts stay (F-020)" if experts else "")
    doubts = list[str]()
    for number, card in enumerate(cards):
        where = names[number]
        part = f"1/{ranks} of" if ranks > 1 else "all of"
        ledger.add("weights", dense, where, _dense_words(facts, part, dense - whole // ranks))
        ledger.add("experts", experts // ranks, where, f"{part} {format_bytes(experts)}")
        ledger.add("draft layers", drafts, where, "the checkpoint's own, to guess ahead")
        ledger.add("offloaded", -moved, where, words)
        ledger.add("cache", cache, where, _cache_words(facts, served))
        ledger.add("states", states, where, "of layers without a cache, for every request")
        have = capacity(card)
        if have is None:
            ledger.unknown.append(f"the memory of {where}")
            continue
        limit = ledger.limit(where, static[number])
        if not any(_alike(card, other) for other in cards[:number]):
            tokens = _tokens(facts, served)
            tables = _tables(facts, plan, card, limit, (cache, states, tokens))
            _rest(facts, plan, card, limit, tables, ledger)
        if not limit.short_by:
            margin = int(HEADROOM * (card.total or have)) if served is plan else 0
            doubts += _little(facts, plan, limit, experts // ranks, margin, ledger)
    ledger.unknown += doubts[:1]


def _little(
    facts: ModelFacts, plan: SglangPlan, limit: Limit, experts: int, margin: int, ledger: Assessment
) -> Iterator[str]:
    """What is to be said of a card that holds its static part, with little beside it."""
    if limit.left < margin:
        ledger.tight.append(
            f"{limit.where} would have {format_bytes(limit.left)} of its static part left, less "
            f"than {HEADROOM:.0%} of it (F-005)"
        )
    twice, releases = kept_of_experts(facts, plan.quantization, experts, plan.release)
    if limit.left < twice:
        yield (
            f"which release it is: {releases} keep the experts as they were read beside those "
            f"that are repacked for the kernels, and {limit.where} then needs "
            f"{format_bytes(limit.need + twice)} of {format_bytes(limit.have)}"
        )


def _cache_and_states(
    facts: ModelFacts, plan: SglangPlan, ledger: Assessment
) -> tuple[int | None, int]:
    """A rank's bytes of the cache, None if that is not known, and of the states of layers that have
    no cache."""
    cache = _cache(facts, plan, ledger)
    if facts.recurrent is None or cache is None:
        return cache, 0
    if plan.speculates:
        ledger.unknown.append("not counted: the states that a guess of tokens copies")
    cache, states = pools(facts.recurrent, plan, _ranks(plan).attention, cache)
    return cache, states // plan.stages


def _shortened(facts: ModelFacts, plan: SglangPlan, room: int, ledger: Assessment) -> SglangPlan:
    """The plan with as many tokens of cache as there is room for: SGLang starts with fewer than the
    context that is asked for, says so, and refuses what is longer (`get_worker_info` in
    managers/tp_worker.py of 0.5.23; sglang#4048). The same plan where all fit, or hardly any do."""
    scratch, needed_tokens = Assessment(plan.strategy()), _tokens(facts, plan)

    def fits(tokens: int) -> bool:
        cache, states = _cache_and_states(facts, of(tokens), scratch)
        return cache is None or cache + states <= room

    def of(tokens: int) -> SglangPlan:
        return replace(plan, ctx=tokens, cache_tokens=None)

    if needed_tokens <= CTX or fits(needed_tokens) or not fits(CTX):
        return plan
    steps = -(-(needed_tokens - CTX) // STEP)
    tokens = needed_tokens - STEP * (
        least(steps, lambda gone: fits(needed_tokens - STEP * gone)) or steps
    )
    tokens = max(CTX, tokens)
    ledger.shortened = True
    ledger.tight.append(
        f"the cache holds about {tokens:,} of {needed_tokens:,} tokens: SGLang starts, and refuses "
        "requests that are longer"
    )
    return of(tokens)


def _dense_words(facts: ModelFacts, part: str, more: int) -> str:
    words = f"{part} {format_bytes(dense_bytes(facts))}"
    return f"{words}, and what ranks hold whole or twice" if more >= MIB else words


def _ranks(plan: SglangPlan) -> Ranks:
    attention = plan.ranks // plan.replicas if plan.attention_apart else plan.ranks
    return Ranks(plan.ranks, max(1, attention), max(1, plan.ranks // plan.expert_ranks))


def _chunks(facts: ModelFacts, plan: SglangPlan, machine: Machine, ledger: Assessment) -> None:
    """What is refused at the start, by the chunk of the first card."""
    card = machine.cards[0] if machine.cards else Card("")
    chunk = row_of(card)[1] if plan.chunk is None else plan.chunk
    ledger.stops += by_sglang(facts, plan, chunk, (card.compute or (0, 0)) >= BF16_SINCE)
    ledger.unknown += not_known_of_pages(facts, plan, chunk)


def _alike(card: Card, other: Card) -> bool:
    return replace(card, name="", uuid="") == replace(other, name="", uuid="")


def _rest(
    facts: ModelFacts,
    plan: SglangPlan,
    card: Card,
    limit: Limit,
    tables: Tables,
    ledger: Assessment,
) -> None:
    """What a fraction leaves for a step, its graphs and the tables of its requests: SGLang takes a
    given one as it is, and its own formula knows nothing of kt-kernel and of long contexts. A cache
    that --max-total-tokens limits leaves more."""
    have, fraction, where = capacity(card) or 0, fraction_of(plan, facts, card), limit.where
    rest = int(have * (1 - fraction))
    if plan.cache_tokens:
        rest = max(rest, have - limit.need)
    chunk, _ = step_of(plan, card)
    chunk = min(chunk, plan.cache_tokens or chunk)
    parts, graphs = (
        max(1, plan.ranks // plan.expert_ranks),
        int(graphs_mib(plan, facts, card) * MIB),
    )
    whole, own = whole_layer(facts, plan, chunk), plan.mem_fraction is None
    usual = step_bytes(facts, chunk, plan.ranks, parts) + step_states(facts, chunk, plan.ranks)
    usual += 512 * MIB + tables.requests + max(graphs, graphs // 4 + tables.graphs) + whole
    least = step_bytes(facts, min(chunk, SHORT_STEP), plan.ranks, parts) + graphs // 4
    if own:
        ledger.notes.append(f"--mem-fraction-static is not given: {fraction:g} by its formula")
    large = tables.bytes > LARGE * have
    if large:
        ledger.notes.append(f"beside the static part {where} has {tables.words}")
    words = f"--mem-fraction-static {fraction:g} leaves {format_bytes(rest)} of {where}, and "
    if rest < least + whole and whole:
        ledger.stops.append(
            f"{words}a step with the {format_bytes(whole)} of a whole layer's experts "
            f"(--kt-gpu-prefill-token-threshold) takes more"
        )
    elif rest < tables.bytes + graphs // 4 and large:
        ledger.stops.append(
            f"{words}{tables.words} takes more: a smaller --context-length or "
            "--max-running-requests makes it smaller"
        )
    elif rest < least and not own:
        ledger.stops.append(f"{words}graphs and a short step take more")
    elif rest < usual and (whole or large or not own):
        ledger.tight.append(
            f"{words}a step of {chunk:,} tokens with its graphs takes about {format_bytes(usual)}"
        )
    formula = fraction_of(replace(plan, mem_fraction=None), facts, card)
    if has_encoder(facts, plan) and reads_images(facts) and (plan.mem_fraction or 0) > formula:
        without = "" if plan.kt else ", and --language-model-only does without"
        share = int(formula * 1000) / 1000  # rounded down: with what is named the doubt is gone
        ledger.unknown.append(
            f"not counted: what its encoder takes beside --mem-fraction-static "
            f"{plan.mem_fraction:g}; SGLang itself takes {share:g}, which leaves room for it"
            f"{without}"
        )


def _tables(
    facts: ModelFacts,
    plan: SglangPlan,
    card: Card,
    limit: Limit,
    pools: tuple[int | None, int, int],
) -> Tables:
    """What a card holds by the length of a context. `pools`: the cache and the states in bytes, and
    the cache in tokens. The cache takes what is left of its limit; how many requests there are is
    not known where its size is not."""
    cache, states, tokens = pools
    if not cache:
        return Tables()
    left = max(0, limit.left)
    if not plan.states:
        states = int((states + cache + left) * plan.state_share / (1 + plan.state_share))
    tokens = int(tokens * (1 + left / cache))
    tokens = min(tokens, plan.cache_tokens or tokens)
    ranks = _ranks(plan).attention * plan.stages
    return tables_of(facts, plan, (tokens, states, ranks), card, step_of(plan, card)[1])


def _tokens(facts: ModelFacts, plan: SglangPlan) -> int:
    tokens = plan.cache_tokens or plan.ctx
    return tokens or min(CTX, facts.context_length or CTX)


def _cache(facts: ModelFacts, plan: SglangPlan, ledger: Assessment) -> int | None:
    """Bytes a rank: heads are divided among ranks, a latent cache is kept whole by each."""
    cache = rank_bytes(facts, _tokens(facts, plan), plan.type_kv, _ranks(plan).attention)
    if cache is None:
        ledger.unknown.append("the cache")
        return None
    if not (plan.ctx or plan.cache_tokens):
        ledger.notes.append(
            f"no context is given: {_tokens(facts, plan):,} tokens are counted, and SGLang gives "
            "its cache whatever is left"
        )
    return cache // plan.stages


def _cache_words(facts: ModelFacts, plan: SglangPlan) -> str:
    kept = "whole on every rank" if facts.attention.latent else "its part of the heads"
    return f"{_tokens(facts, plan):,} tokens {plan.type_kv}, {kept}"


def _host(
    facts: ModelFacts, plan: SglangPlan, machine: Machine, cpu_experts: int, ledger: Assessment
) -> None:
    ledger.add("process", FOOTPRINT * plan.ranks * plan.stages, HOST, "one a rank")
    if plan.kt:
        size, how = kt_bytes(facts, plan, cpu_experts)
        where = PAGES if plan.kt_mmap else HOST
        ledger.add("CPU experts", size, where, how)
        if size is None:
            what = "the experts of the GGUF that LLAMAFILE reads"
            ledger.unknown.append(f"{what}: --kt-weight-path names its directory")
        if not plan.kt_mmap:
            ledger.add(
                "load peak", int((size or 0) * LOAD_PEAK), HOST, f"{LOAD_PEAK:.0%} while loading"
            )
            ledger.add("margin", HOST_MARGIN, HOST, "pinned buffers and the rest of the machine")
    elif plan.cpu_offload:
        ledger.add(
            "checkpoint", facts.weight_bytes, HOST, "read whole before it is shared out (F-022)"
        )
        pinned = min(plan.cpu_offload * plan.ranks * plan.stages, dense_bytes(facts))
        ledger.add("rounding", pinned, HOST, f"--cpu-offload-gb of each rank, {ROUNDED}", pinned)
    else:
        ledger.add("staging", min(STAGING, facts.weight_bytes), HOST, "shards on their way")
    if machine.ram_available is None:
        ledger.unknown.append("the memory this machine has free")
        return
    if plan.kt_mmap:
        _mapped(ledger, machine)
    elif plan.kt:
        # every token touches experts at random: what is swapped is read back for each of them
        limit = ledger.limit(HOST, machine.ram_available)
        if limit.short_by and machine.swap_free:
            ledger.notes.append(
                f"{format_bytes(machine.swap_free)} of swap do not count: every token touches "
                "experts at random"
            )
    else:
        resident(ledger, machine, locked=plan.cpu_offload > 0)


def _mapped(ledger: Assessment, machine: Machine) -> None:
    pages = mapped(ledger, machine.ram_available or 0)
    if pages.short_by:
        ledger.streaming = (
            f"{pages.short_by / pages.need:.0%} of the CPU experts are read from the disk for "
            "each token"
        )
        if machine.disk_read_bps is None:
            ledger.notes.append("how fast the disk reads is not known: no ceiling calculated")


def _envelope(
    facts: ModelFacts, plan: SglangPlan, machine: Machine, ledger: Assessment
) -> Envelope:
    """Predict the load: everything is read into memory, then cards fill up, then their cache."""
    margin = HOST_MARGIN if plan.kt and not plan.kt_mmap else 0
    need = ledger.need(HOST) - margin
    ram, swap = held(need, machine)
    speed = machine.disk_read_bps
    read_s = facts.weight_bytes / speed if speed else None
    # the cache takes all of the static part, and graphs and buffers the rest
    names = labels(machine.cards)
    by_name = dict(zip(names, machine.cards, strict=True))
    full = tuple(
        (limit.where, capacity(by_name[limit.where]) or limit.have)
        for limit in ledger.limits
        if limit.where in by_name
    )
    cards = tuple(
        (name, min(most, _of(ledger, name, ("weights", "experts", "offloaded"))))
        for name, most in full
    )
    cached = min(facts.weight_bytes, max(0, (machine.ram_available or 0) - need))
    return Envelope(
        (
            Point("start", 0.0),
            Point("weights read", read_s, ram, cached, cards, swap),
            Point("serving", read_s, ram, cached, full, swap),
        )
    )


def _of(ledger: Assessment, where: str, names: Sequence[str]) -> int:
    sizes = [t.bytes or 0 for t in ledger.terms if t.where == where and t.name in names]
    return max(0, sum(sizes))
