"""Will it run? A model, a loader's plan and a machine give one verdict with its sum, and advice.

Advice is changes of the plan that would make it a GO, computed by the same sum, never guessed.
Other sets of weights are offered by who has read them: console.checks.preflight.checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import assert_never

from console.common.text import one_line
from console.common.units import format_bytes
from console.host.matching import TooSlow, quick
from console.host.sample import Machine
from console.models.sizing import llama_cpp, sglang, vllm
from console.models.sizing.assessment import (
    GIB,
    HOST,
    HOST_MARGIN,
    ORDER,
    Assessment,
    Reference,
    Verdict,
)
from console.models.sizing.cards.fit import least
from console.models.sizing.facts_from_gguf import SOURCE as GGUF
from console.models.sizing.llama_cpp import best_split, by_layers, words
from console.models.sizing.loader_plan import (
    ALL,
    ConversionPlan,
    LlamaPlan,
    LoaderPlan,
    SglangPlan,
    Strategy,
    VllmPlan,
)
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import Placement, capacity, cards_of, labels
from console.models.sizing.serving.loaded import ONLINE_SHARE, is_online

MIN_CTX = 2048
RANKS = (1, 2, 4, 8)
"""Tensor-parallel ranks that are tried: powers of two divide the heads of most models."""
FILE, AHEAD = 5 * GIB, 40 * 10**9
"""The usual size of a file of weights, and what runai_streamer reads ahead where nothing is set."""
POOL = "RAM that a card shares"
COMPILER = 8 * GIB
"""What torch.compile and Triton take of RAM while vLLM starts, beside the usual margin; 30 GiB and
more were seen (spark-vllm-docker#286, #52)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question, whose parts can be changed to ask again."""

    facts: ModelFacts
    plan: LoaderPlan
    machine: Machine

    def weigh(self, plan: LoaderPlan | None = None) -> Assessment:
        return self.placed(plan)[0]

    def placed(
        self, plan: LoaderPlan | None = None, ram_read_bps: float | None = None
    ) -> tuple[Assessment, Placement | None]:
        """The sum, and where llama.cpp would put everything."""
        plan, placement = plan or self.plan, None
        if isinstance(plan, LlamaPlan):
            ledger, placement = llama_cpp.weigh(self.facts, plan, self.machine, ram_read_bps)
        elif isinstance(plan, SglangPlan):
            ledger = sglang.weigh(self.facts, plan, self.machine)
        elif isinstance(plan, VllmPlan):
            ledger = vllm.weigh(self.facts, plan, self.machine)
        elif isinstance(plan, ConversionPlan):
            ledger = sglang.weigh_conversion(self.facts, plan, self.machine)
        else:
            assert_never(plan)
        if isinstance(plan, SglangPlan | VllmPlan):
            self._online(ledger, plan)
            self._streamed(ledger, plan)
        _one_pool(ledger, plan, self.machine)
        return ledger, placement

    def _online(self, ledger: Assessment, plan: SglangPlan | VllmPlan) -> None:
        """Where weights are quantized while they are loaded, they are counted as they are stored.
        If a card is too small for that alone, it depends on the release."""
        cards = set(labels(self.machine.cards))
        if not is_online(self.facts, plan.quantization):
            return
        ledger.notes.append(
            f"--quantization {plan.quantization}: weights are counted as they are stored, which "
            "some releases need while they load"
        )
        for at, limit in enumerate(ledger.limits):
            names = ("weights", "experts")
            most = sum(t.bytes or 0 for t in ledger.terms
                       if t.where == limit.where and t.name in names)  # fmt: skip
            spared = int(most * (1 - ONLINE_SHARE))
            if limit.where in cards and 0 < limit.short_by <= spared:
                ledger.limits[at] = replace(limit, need=limit.need - spared)
                ledger.unknown.append(
                    f"whether the release quantizes layer by layer: {limit.where} holds the "
                    f"weights in 8 bits, and not as they are stored"
                )

    def _streamed(self, ledger: Assessment, plan: SglangPlan | VllmPlan) -> None:
        """What other loaders of the same files take meanwhile, before there is a cache."""
        names = labels(self.machine.cards)
        for name, card in zip(names, self.machine.cards, strict=True):
            most = sum(t.bytes or 0 for t in ledger.terms
                       if t.where == name and t.name in ("weights", "experts"))  # fmt: skip
            if plan.load_format == "fastsafetensors" and most + FILE > (capacity(card) or FILE):
                ledger.tight.append(f"{name} has no room for a whole file beside the weights")
        ahead, ram = min(self.facts.weight_bytes, AHEAD), self.machine.ram_available
        room = None if ram is None else ram - ledger.need(HOST)
        if plan.load_format == "runai_streamer" and room is not None and room < ahead:
            ledger.tight.append(
                f"runai_streamer reads {format_bytes(ahead)} ahead into RAM, and "
                f"{format_bytes(max(0, room))} would be left (RUNAI_STREAMER_MEMORY_LIMIT)"
            )

    def better(self, than: Verdict, plan: LoaderPlan) -> str | None:
        """The verdict of a changed case if it is better, as a word; else None."""
        verdict = self.weigh(plan).verdict
        if verdict is Verdict.UNKNOWN or ORDER.index(verdict) >= ORDER.index(than):
            return None
        return str(verdict)


def advise(case: Case, ledger: Assessment) -> tuple[str, ...]:
    """Changes that give a better verdict, each with that verdict. Nothing for a GO."""
    verdict = ledger.verdict
    if verdict in (Verdict.GO, Verdict.UNKNOWN) or case.facts.layers is None:
        return ()
    changes: list[str] = []
    if isinstance(case.plan, LlamaPlan) and case.plan.unsettled:
        settled = advise(replace(case, plan=replace(case.plan, unsettled=())), ledger)
        return tuple(f"{words}, if the build takes the options" for words in settled)
    if isinstance(case.plan, LlamaPlan):
        # what gives a GO; only where there is none, what is TIGHT
        for goal in dict.fromkeys((min(Verdict.TIGHT, verdict, key=ORDER.index), verdict)):
            changes = changes or list(_llama(case, case.plan, ledger, goal))
    elif isinstance(case.plan, SglangPlan):
        changes += _sglang(case, case.plan, ledger)
    elif isinstance(case.plan, VllmPlan):
        changes += _vllm(case, case.plan, ledger)
    elif isinstance(case.plan, ConversionPlan):
        changes += _conversion(ledger)
    else:
        assert_never(case.plan)
    return tuple(dict.fromkeys(changes))


def _advice(words: str, verdict: str | None) -> list[str]:
    return [f"{words}: {verdict}"] if verdict else []


def _llama(case: Case, plan: LlamaPlan, ledger: Assessment, goal: Verdict) -> Iterator[str]:
    """Changes whose verdict is better than `goal`."""
    cards = set(labels(case.machine.cards))
    short = {limit.where for limit in ledger.short}
    tight_card = ledger.verdict is Verdict.TIGHT and any(
        reason.startswith(tuple(cards)) for reason in ledger.tight
    )
    if short & cards or tight_card:
        yield from _cards(case, plan, goal)
    if ledger.strategy is Strategy.RESIDENT:
        mapped = replace(plan, load_mode="mmap", mmap=True, mlock=False, no_host=False)
        how = "map the file: --load-mode mmap"
        if mapped.strategy(bool(cards_of(plan, case.machine.cards))) is Strategy.RESIDENT:
            mapped, how = replace(mapped, repack=False), f"{how} --no-repack"
        yield from _advice(how, case.better(goal, mapped))
    if plan.checkpoints:
        without = replace(plan, checkpoints=0)
        yield from _advice("no checkpoints: --ctx-checkpoints 0", case.better(goal, without))
    if plan.cache_ram_mib and (HOST in short or ledger.tight):
        without = replace(plan, cache_ram_mib=0)
        yield from _advice("no prompt cache: --cache-ram 0", case.better(goal, without))


def _cards(case: Case, plan: LlamaPlan, verdict: Verdict) -> Iterator[str]:
    """Other splits, fewer layers, experts on the host, a smaller cache."""
    facts, cards = case.facts, case.machine.cards
    whole = (facts.layers or 0) + facts.spare_layers + 1
    gpu_layers = min(ALL if plan.gpu_layers is None else plan.gpu_layers, whole)
    given = replace(plan, gpu_layers=gpu_layers)
    split = best_split(facts, given, cards)
    if split is not None:
        yield from _advice(f"--tensor-split {words(split)}", case.better(verdict, split))
    for name, changed in _fewer(case, given, split or given, gpu_layers, verdict):
        yield from _advice(name, case.better(verdict, changed))
    ctx = plan.tokens(facts.context_length)
    while ctx and ctx // 2 >= MIN_CTX:
        ctx //= 2
        if better := case.better(verdict, replace(given, ctx=ctx)):
            yield f"--ctx-size {ctx}: {better}"
            break
    if plan.type_k == plan.type_v == "f16":
        small = replace(given, type_k="q8_0", type_v="q8_0")
        yield from _advice("--cache-type-k q8_0 --cache-type-v q8_0", case.better(verdict, small))


def _fewer(
    case: Case, given: LlamaPlan, split: LlamaPlan, gpu_layers: int, verdict: Verdict
) -> Iterator[tuple[str, LlamaPlan]]:
    """The most layers, and the fewest moved experts, with the split as it is or a better one."""

    def fits(plan: LlamaPlan) -> bool:
        return case.better(verdict, plan) is not None

    def fits_without(start: LlamaPlan, gone: int) -> bool:
        return fits(replace(start, gpu_layers=gpu_layers - gone))

    for start in dict.fromkeys((given, split)):
        gone = least(gpu_layers, partial(fits_without, start))
        if gone:
            yield (
                f"--n-gpu-layers {gpu_layers - gone}",
                replace(start, gpu_layers=gpu_layers - gone),
            )
            break
    if case.facts.experts.count:
        layers = case.facts.layers or 0
        moved = least(layers, lambda n: fits(replace(given, cpu_experts=max(n, given.cpu_experts))))
        if moved and moved > given.cpu_experts:
            yield f"--n-cpu-moe {moved}", replace(given, cpu_experts=moved)


def _sglang(case: Case, plan: SglangPlan, ledger: Assessment) -> Iterator[str]:
    cards = set(labels(case.machine.cards))
    short = {limit.where for limit in ledger.short}
    if short & cards:
        if plan.ranks > 1:
            alone = replace(plan, ranks=1)
            yield from _advice("one card alone: --tp 1", case.better(ledger.verdict, alone))
            if alternative := by_layers(case.facts, plan.ctx or sglang.CTX, case.machine.cards):
                yield alternative
        fewer = _fewer_experts(case, plan, cards)
        if fewer is not None:
            also = "" if plan.kt_skips or HOST not in short else "; RAM holds all experts anyway"
            yield f"--kt-num-gpu-experts {fewer} for the cards{also}"
    elif ledger.stops:
        yield from _other_ranks(case, plan, ledger, "--tp")
    if HOST in short:
        if plan.kt and not plan.kt_mmap:
            mapped = replace(plan, kt_mmap=True)
            better = case.better(ledger.verdict, mapped)
            yield from _advice("a kt-kernel build with --kt-mmap-experts-dir", better)
        yield f"{format_bytes(ledger.need(HOST))} of free RAM"


def _vllm(case: Case, plan: VllmPlan, ledger: Assessment) -> Iterator[str]:
    """A shorter context, a smaller step, a cache of half the bytes, a smaller part of RAM."""
    shared = any(card.shares_ram for card in case.machine.cards)
    for fraction in (0.85, 0.8, 0.7, 0.6, 0.5) if shared else ():
        if better := case.better(ledger.verdict, replace(plan, fraction=fraction)):
            yield f"--gpu-memory-utilization {fraction:g}: {better}"
            break
    short = {limit.where for limit in ledger.short} & set(labels(case.machine.cards))
    ctx = plan.ctx or case.facts.context_length or 0
    while short and ctx // 2 >= MIN_CTX:
        ctx //= 2
        if better := case.better(ledger.verdict, replace(plan, ctx=ctx)):
            yield f"--max-model-len {ctx}: {better}"
            break
    changes = (
        ("--max-num-seqs 64", replace(plan, seqs=min(64, plan.seqs or 64))),
        ("--kv-cache-dtype fp8", replace(plan, type_kv="fp8")),
        ("--enforce-eager", replace(plan, graphs=False)),
    )
    for option, changed in changes if short or case.facts.recurrent is not None else ():
        yield from _advice(option, case.better(ledger.verdict, changed))
    yield from _other_ranks(case, plan, ledger, "--tensor-parallel-size")


def _other_ranks(
    case: Case, plan: VllmPlan | SglangPlan, ledger: Assessment, option: str
) -> Iterator[str]:
    """More ranks where a card is too small, and fewer where its start refuses so many, or where
    the machine has not as many cards."""
    short = {limit.where for limit in ledger.short} & set(labels(case.machine.cards))
    more = [ranks for ranks in RANKS if plan.ranks < ranks] if short else []
    fewer = [ranks for ranks in reversed(RANKS) if ranks < plan.ranks] if ledger.stops else []
    for ranks in (*more, *fewer):
        if ranks > len(case.machine.cards):
            continue
        if better := case.better(ledger.verdict, replace(plan, ranks=ranks)):
            yield f"{option} {ranks}: {better}"
            if ranks < plan.ranks:
                return


def _fewer_experts(case: Case, plan: SglangPlan, cards: set[str]) -> int | None:
    """The most layers of experts that the cards have room for; None if that does not help."""
    if not plan.kt or not plan.kt_gpu_experts:
        return None

    def fits(gone: int) -> bool:
        assessment = case.weigh(replace(plan, kt_gpu_experts=plan.kt_gpu_experts - gone))
        return not any(limit.where in cards and limit.short_by for limit in assessment.limits)

    fewer = least(plan.kt_gpu_experts, fits)
    return None if not fewer else plan.kt_gpu_experts - fewer


def _conversion(ledger: Assessment) -> Iterator[str]:
    for limit in ledger.short:
        yield f"{format_bytes(limit.need)} of {limit.where} (now {format_bytes(limit.have)})"
    if ledger.verdict in (Verdict.NO_GO, Verdict.TIGHT):
        yield "weights that somebody else has converted, instead of converting here"


def assess(
    facts: ModelFacts,
    plan: LoaderPlan,
    machine: Machine,
    *,
    reference: Reference | None = None,
    ram_read_bps: float | None = None,
    advised: bool = True,
) -> Assessment:
    """The verdict on loading `facts` as `plan` says on `machine`.

    `reference` is what was measured of a working configuration; if it `serves`, it caps the verdict
    at TIGHT. `ram_read_bps` is how fast the CPU reads memory, if measured or declared. `advised`:
    changes that would give a better verdict are looked for.
    """
    if isinstance(plan, LlamaPlan):
        plan = _in_time(facts, plan)
        if reference is not None and reference.serves:
            # its build takes what it serves with
            plan = replace(plan, unsettled=(), build=replace(plan.build, serves=True))
    case = Case(facts, plan, _with_shared_ram(machine))
    ledger, placement = case.placed(ram_read_bps=ram_read_bps)
    _provenance(facts, machine, ledger)
    if reference is not None:
        _compare(ledger, placement, reference)
    ledger.notes = list(dict.fromkeys(ledger.notes))
    if advised:
        ledger.would_make_it_go = advise(case, ledger)
    if reference is not None and reference.serves:
        ledger.served_by, ledger.holds = reference.what, ""
    return ledger


def _with_shared_ram(machine: Machine) -> Machine:
    """The machine with no more memory on a card that shares the host's RAM than there is of it."""
    if not any(card.shares_ram for card in machine.cards):
        return machine

    def least(*sizes: int | None) -> int | None:
        return min((size for size in sizes if size is not None), default=None)

    return replace(machine, cards=tuple(
        replace(
            card, total=least(card.total, machine.ram_total),
            free=least(card.free, card.total, machine.ram_total, machine.ram_available),
        ) if card.shares_ram else card
        for card in machine.cards
    ))  # fmt: skip


def _one_pool(ledger: Assessment, plan: LoaderPlan, machine: Machine) -> None:
    """Where a card shares the host's RAM, one pool has to hold what both take: what vLLM and SGLang
    reserve is taken whole (spark-vllm-docker#388, vllm#46307)."""
    names = labels(machine.cards)
    shared = [name for name, card in zip(names, machine.cards, strict=True) if card.shares_ram]
    used = [limit for limit in ledger.limits if limit.where in shared]
    if not used or machine.ram_available is None:
        return
    if len(used) > 1:
        ledger.unknown.append(
            f"how {len(used)} cards share RAM: {', '.join(shared[:4])} have their host's memory, "
            "so that each is a machine of its own"
        )
    taken = sum(limit.need if isinstance(plan, LlamaPlan) else max(limit.need, limit.have)
                for limit in used)  # fmt: skip
    pool = ledger.pool(POOL, taken + ledger.need(HOST), machine.ram_available)
    compiles = isinstance(plan, VllmPlan) and plan.graphs
    margin = HOST_MARGIN + (COMPILER if compiles else 0)
    if not pool.short_by and pool.left < margin:
        ledger.tight.append(
            f"{format_bytes(pool.left)} of {POOL} would be left, less than {format_bytes(margin)}"
            + (": compiling for graphs takes RAM meanwhile" if compiles else "")
        )


def _in_time(facts: ModelFacts, plan: LlamaPlan) -> LlamaPlan:
    """The plan without overrides whose pattern takes too long over the names of this model, which
    is a problem. The others are matched without a limit from here on."""
    kept, problems = [], list(plan.problems)
    for override in plan.overrides:
        try:
            quick(override[0], [weight.name for weight in facts.weights])
            kept.append(override)
        except TooSlow as error:
            problems.append(f"--override-tensor: {error}")
    return replace(plan, overrides=tuple(kept), problems=tuple(problems))


def _provenance(facts: ModelFacts, machine: Machine, ledger: Assessment) -> None:
    """Sources of the figures that were not simply read or measured here."""
    if facts.weights_from and facts.source != GGUF:
        ledger.notes.append(f"the sizes of experts and other weights: {facts.weights_from}")
    ledger.notes += _sources(tuple(machine.given.items()))


@lru_cache(maxsize=16)
def _sources(given: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """`declared by the site: cards, ram_total`; a search asks for them with every placement."""
    by_source: dict[str, list[str]] = {}
    for name, source in given:
        by_source.setdefault(one_line(source, 60), []).append(one_line(name, 40))
    return tuple(f"{source}: {', '.join(names)}" for source, names in by_source.items())


def _compare(ledger: Assessment, placement: Placement | None, reference: Reference) -> None:
    """The measured figures beside the computed ones."""
    if placement is None:
        return
    if reference.vram is not None:
        low, high = reference.vram
        ledger.notes.append(
            f"{reference.what}: {format_bytes(low)} to {format_bytes(high)} of VRAM measured; "
            f"the sum for this plan is {format_bytes(placement.on_cards)}"
        )
    if reference.tok_s is None:
        return
    slow, fast = reference.tok_s
    measured = f"{slow:g} to {fast:g} tok/s measured"
    active = placement.host.active
    if ledger.ceiling_tok_s is not None:
        words = f"the calculated ceiling is {ledger.ceiling_tok_s:.3g} tok/s"
    else:
        words = "no ceiling calculated: no token needs the disk"
    if active and reference.serves:
        words += (
            f"; that pace reads {active * slow / 1e9:.0f} to {active * fast / 1e9:.0f} GB/s of "
            "weights on the CPU"
        )
    ledger.notes.append(f"{reference.what}: {measured}; {words}")
