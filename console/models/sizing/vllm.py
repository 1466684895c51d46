"""vLLM's arithmetic: what it measures when it starts has to leave room for one request of the whole
context.

Every rank takes its fraction of a card: weights, the peak of one full step, CUDA graphs, and the
rest for the cache. It refuses to start where that rest is too small for `--max-model-len` tokens
(`_check_enough_kv_cache_memory` in v1/core/kv_cache_utils.py), and where the fraction is more than
what is free (`request_memory` in v1/worker/utils.py). Defaults are those of 0.33.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from console.common.units import format_bytes
from console.host.sample import Card, Machine
from console.models.sizing.assessment import (
    GIB,
    HOST,
    MIB,
    ROUNDED,
    Assessment,
    held,
    resident,
)
from console.models.sizing.combinations.kernels import experts_of_vllm
from console.models.sizing.combinations.serving import by_vllm_pairs
from console.models.sizing.facts_from_gguf import SOURCE as GGUF
from console.models.sizing.flags.vllm import LONG
from console.models.sizing.kv_cache import head_bytes
from console.models.sizing.load_curve import Envelope, Point
from console.models.sizing.loader_plan import VllmPlan
from console.models.sizing.model_facts import Kind, ModelFacts
from console.models.sizing.newer.releases import judge_newcomers
from console.models.sizing.placement import capacity, labels
from console.models.sizing.serving.backends import (
    cache_form,
    cache_of_vllm,
    not_known_of_vllm_backend,
)
from console.models.sizing.serving.cache import rank_bytes
from console.models.sizing.serving.classes import not_known_of_class
from console.models.sizing.serving.encoders import by_vllm_encoder, left_on
from console.models.sizing.serving.loaded import FLOAT32, HALF, as_loaded, cache_type
from console.models.sizing.serving.parallel import Ranks, refusals, step_bytes, too_long
from console.models.sizing.serving.refused import (
    BF16_SINCE,
    NO_FLOAT16,
    by_vllm,
    fp8_cache,
    marlin_tiles,
    not_known_of_blocks,
    scaled_cache,
)
from console.models.sizing.serving.releases import not_known_of_vllm
from console.models.sizing.serving.shares import absorbed, dense_of_layers
from console.models.sizing.serving.states import Blocks, blocks_of, step_states

FRACTION, OLD_FRACTION, LARGER_SINCE = 0.92, 0.90, (0, 19)
"""--gpu-memory-utilization where it is not given, now and before 0.19 (CacheConfig in
config/cache.py). Where the release is not known, NO-GO is what both of them refuse."""
LARGE, LARGEST = 70 * GIB, 160 * GIB
"""Memory of a card from which the defaults of a step are larger (EngineArgs.get_batch_defaults)."""
CONTEXT, COMMUNICATION = 600 * MIB, 1100 * MIB
"""What CUDA and the libraries take of each card, and what more than one rank take to talk."""
SPREAD = 0.1
"""Part by which these estimates may be too large: two 5060 Ti serve where they make a sum 139 MiB
too large for 14.3 GiB (vllm#55509)."""
GRAPHS, LARGE_GRAPHS, GRAPH = 300 * MIB, 500 * MIB, MIB // 4
LARGE_GRAPH, LARGE_WITH_EXPERTS = 5 * MIB // 4, 2 * MIB
"""CUDA graphs: for all, and for each batch and layer, usually and at most. Public logs ("Graph
capturing finished in N secs, took X GiB"): 0.21 GiB for 35 batches of 16 layers (vllm#11349), 0.46
for 2 of 64 (vllm#57475), 2.41 for 35 of 60 (vllm#7553); with experts 1.40 for 67 of 48
(sglang#8538), and 5.97 for 67 of 46 (GLM-V#208)."""
GRAPH_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Batches of which a graph is made, as far as twice --max-num-seqs (`_set_cudagraph_sizes`)."""
PROCESS = 3 * GIB
"""Host memory of the server and of each rank, without pinned buffers."""
RAY = 3 * GIB
"""Ray's own processes on a host: its daemons, and its store of objects while little is in it."""
AUTO_CTX = 8192
"""Tokens counted for `--max-model-len auto`, which takes what there is room for."""
MXFP4_SHARE, MXFP4_COPIES = 0.06, 3.2
"""What kernels for MXFP4 add: a layout of their own, of all experts (64.4 and 66.0 GiB are loaded
of a checkpoint of 60.8, vllm#33155 and vllm#23278; 12.9 and 13.7 of one of 12.8, vllm#22331), and
while a layer gets it, copies of the experts of that layer (TensorRT-LLM#16125 names the temporaries
of the swizzle). Of gpt-oss-120b that is 5 GiB, as its logs have (vllm#33155, vllm#27508), of 20b a
fourth, as a layer has a fourth of the experts. Both differ by release."""
GATHERED = 4 * 2
"""Bytes for each number of a token of another replica, whose tokens the experts of each see, too:
what they get, give back, and hold meanwhile. recipes#12 has 2 to 3 GiB of it for 8 replicas."""
SAMPLER = 2 + 4 + 4 + 8
"""Bytes of a token's score while it is sampled: as computed, in F32 twice, and its place."""
OFF = (
    "its encoder is switched off, and its weights are counted all the same: vLLM leaves them out "
    "only for classes that mark them"
)
BEYOND = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0, or a release before 0.21"
"""What makes graphs after the share is full. Releases from 0.21 on measure them before ("CUDA graph
memory profiling is enabled"); 0.8.5 ran out of memory so, and served with --enforce-eager
(vllm#17469). Before 0.8 there were fewer graphs, beyond the share as well (vllm#10517)."""
COMPILATION = "--compilation-config"
ANYTHING = ("--config", "--hf-overrides", "--model-class-overrides")
LESS_WEIGHTS = (*ANYTHING, "--offload-backend", "--offload-group-size", "--offload-num-in-group")
LESS_CACHE = (*ANYTHING, "--decode-context-parallel-size", "--prefill-context-parallel-size")
LESS_GRAPHS = (*ANYTHING, COMPILATION, "--performance-mode")
FEWER_CARDS = (*ANYTHING, "--nnodes", "--data-parallel-size-local", "--data-parallel-external-lb",
               "--data-parallel-hybrid-lb", "--data-parallel-rank")  # fmt: skip
SMALLER = ("--quantization", "--quantization-config")
"""Options that no sum has, by what they may make smaller: only what is certain says NO-GO then."""
PACKED = 0.25
"""Part of 16 bits that quantized weights have at least."""
NEARLY, SURELY = 0.85, 1.15
"""Parts of the requests between which the sum does not tell whether there are blocks for all."""
FP8_WANTED = (
    "the checkpoint wants its cache in FP8, and it is counted so; a vLLM of before December 2025 "
    "takes 16 bits for ModelOpt's, unless --kv-cache-dtype fp8 is given (vllm#29980)"
)
NO_RAY = "whether Ray is installed: the wheels of vLLM 0.28 and 0.33 do not bring it"
MIN_CONTEXT = 250 * MIB
"""What a CUDA context takes of a card at least, before vLLM looks at what is free."""


def weigh(facts: ModelFacts, plan: VllmPlan, machine: Machine) -> Assessment:
    """The whole sum for one plan."""
    wanted = plan.type_kv == "auto" and "vllm" in facts.cache_fp8
    kind = cache_type(facts, "vllm", plan.type_kv)
    plan = replace(plan, type_kv=cache_form(facts, kind, machine.cards, plan.asked_type))
    ledger = Assessment(plan.strategy())
    ledger.unknown += [f"the plan: {problem}" for problem in plan.problems]
    ledger.unknown += [f"not counted: {what}" for what in plan.uncounted]
    ledger.unknown += [NO_RAY] if plan.ray else []
    ledger.stops += [f"vLLM refuses {what}" for what in plan.refused]
    ledger.unknown += facts.missing
    ledger.unknown += too_long(facts, plan.ctx, f"{LONG}=1", given=plan.longer)
    ledger.unknown += (needs := _encoders(facts, plan))
    refused, doubts = by_vllm_encoder(facts, plan)
    ledger.stops += refused
    ledger.unknown += doubts
    ledger.unknown += [*not_known_of_blocks(facts, plan), *not_known_of_class(facts, "vllm")]
    ledger.unknown += _padded(facts, plan)
    judge_newcomers(facts, "vllm", plan, ledger)
    ledger.unknown += not_known_of_vllm(facts, plan, _tokens(facts, plan))
    if plan.guesses and not (facts.recurrent is not None and facts.spare_layers):
        ledger.unknown.append("not counted: --speculative-config, the layers that guess ahead")
    ledger.notes += plan.notes
    ledger.notes += [FP8_WANTED] if wanted else []
    if facts.encoders and not needs:
        ledger.notes.append(OFF)
    refused, unknown = by_vllm_pairs(facts, plan)
    ledger.stops += refused
    ledger.unknown += unknown
    if facts.source == GGUF:
        ledger.unknown.append("what vLLM makes of a GGUF in memory")
    if facts.layers is None:
        return ledger
    ledger.stops += refusals(facts, Ranks(plan.ranks, plan.ranks, _expert_ranks(plan)))
    world = plan.ranks * plan.stages * plan.replicas
    cards = machine.cards[:world]
    if len(cards) < world:
        few = f"{world} ranks need {world} cards, and there are {len(cards)}"
        if plan.ray:
            few += ": the others, of Ray's other hosts, are not known here"
        elsewhere = plan.ray or _may_be_less(plan, FEWER_CARDS)
        (ledger.unknown if elsewhere else ledger.stops).append(few)
    if cards:
        step = step_of(facts, plan, cards[0])
        ledger.stops += by_vllm(facts, plan, step, _tokens(facts, plan))
    for refused, unknown in _of_cards(facts, plan, cards):
        ledger.stops += [f"vLLM refuses {what}" for what in refused]
        ledger.unknown += unknown
    unknown, notes = fp8_cache(facts, plan.type_kv, cards)
    ledger.unknown += unknown
    ledger.notes += notes
    ledger.unknown += as_loaded(facts, _dtype(facts, plan, cards), plan.quantization)[1]
    names = labels(machine.cards)
    for number, card in enumerate(cards):
        _card(facts, plan, card, names[number], ledger)
    _beyond(facts, plan, cards, names, ledger)
    ledger.unknown += not_known_of_vllm_backend(facts, plan, cards)
    _host(facts, plan, machine, world, ledger)
    ledger.envelope = _envelope(facts, machine, ledger)
    return ledger


def _of_cards(
    facts: ModelFacts, plan: VllmPlan, cards: Sequence[Card]
) -> Iterator[tuple[list[str], list[str]]]:
    """(refused, not known) by what kernels for these cards take."""
    yield scaled_cache(facts, plan)
    yield cache_of_vllm(facts, plan, cards)
    yield marlin_tiles(facts, plan, cards)
    yield experts_of_vllm(facts, plan, cards)


def _may_be_less(plan: VllmPlan, options: Sequence[str]) -> bool:
    """Whether one of these options is given, and not counted or not understood."""
    notices = (*plan.uncounted, *plan.problems)
    return any(notice.partition(" ")[0].rstrip(":") in options for notice in notices)


def _beyond(
    facts: ModelFacts, plan: VllmPlan, cards: Sequence[Card], names: Sequence[str],
    ledger: Assessment,
) -> None:  # fmt: skip
    """What is left of a card for graphs that are made when the share is full. It is not known
    where the release is known to do so, and said where it may be one that does."""
    if not plan.graphs or plan.cache_bytes is not None:
        return
    fraction = fractions(plan)[1]
    known = [
        (capacity(card) or 0) - int((card.total or 0) * fraction) for card in cards if card.total
    ]
    left, most = min(known, default=0), graphs_of(facts, plan, GRAPH_SIZES[-1])[1]
    if not known or left < 0 or most <= left:
        return
    words = f"takes up to {format_bytes(most)} beyond its share for CUDA graphs"
    room = f"{format_bytes(left)} of {names[known.index(left)]} are left there"
    if plan.graphs_beyond:
        ledger.unknown.append(f"whether CUDA graphs have room ({BEYOND}): it {words}, and {room}")
    else:
        ledger.notes.append(f"vLLM before 0.21 {words}, and {room}; --enforce-eager has none")


def _expert_ranks(plan: VllmPlan) -> int:
    """Among how many ranks an expert is divided: 1 where experts are shared out whole."""
    return 1 if plan.whole_experts else plan.ranks * plan.replicas


def _encoders(facts: ModelFacts, plan: VllmPlan) -> list[str]:
    """What is not known of a model that takes images or sound, unless that is switched off."""
    left = [] if plan.text_only else left_on(facts, plan.limited)
    if not left:
        return []
    none = ", ".join(f'"{kind}": 0' for kind in left)
    return [
        f"not counted: what its encoder takes while a step with the largest inputs is measured "
        f"({', '.join(left)}); --language-model-only or --limit-mm-per-prompt '{{{none}}}' does "
        "without"
    ]


def _dtype(facts: ModelFacts, plan: VllmPlan, cards: Sequence[Card]) -> str:
    """The dtype in the end: a card without bfloat16 gets float16, or float32 where the family is
    not served in float16 (`_resolve_auto_dtype`)."""
    old = any(card.compute is not None and card.compute < BF16_SINCE for card in cards)
    if plan.dtype == "auto" and old and NO_FLOAT16.intersection(facts.classes):
        return FLOAT32[0]
    return plan.dtype


def _card(facts: ModelFacts, plan: VllmPlan, card: Card, where: str, ledger: Assessment) -> None:
    total = card.total
    if total is None:
        ledger.unknown.append(f"the memory of {where}")
        return
    dense, experts = _weights(facts, plan, _dtype(facts, plan, [card]))
    ledger.add("weights", dense, where, _share_words(plan))
    ledger.add("experts", experts, where, f"1/{plan.ranks * plan.replicas} of them, by stage")
    drafts = facts.bytes_of(Kind.SKIPPED) // plan.ranks if plan.guesses else 0
    ledger.add("draft layers", drafts, where, "the checkpoint's own, to guess ahead")
    if plan.cpu_offload:
        moved = min(plan.cpu_offload, dense + experts)
        ledger.add("offloaded", -moved, where, "--cpu-offload-gb")
    batch, seqs = step_of(facts, plan, card)
    ledger.add("step", _step(facts, plan, batch, seqs), where, _step_words(batch, seqs))
    if facts.stored == "mxfp4":
        layer = experts // max(1, -(-(facts.layers or 1) // plan.stages))
        ledger.add("MXFP4 kernels", int(experts * MXFP4_SHARE), where, "their layout, as logs show")
        ledger.add("MXFP4 repacking", int(layer * MXFP4_COPIES), where, "of the experts of a layer")
    graphs, most = graphs_of(facts, plan, seqs)
    ledger.add(
        "CUDA graphs", graphs, where, "estimate; --enforce-eager has none",
        int(graphs * SPREAD),
    )  # fmt: skip
    more = COMMUNICATION if plan.ranks * plan.replicas > 1 else 0
    spread = int((CONTEXT + more) * SPREAD)
    ledger.add("CUDA context", CONTEXT + more, where, "estimate", spread)
    cache = cache_on(facts, plan, batch)
    tokens = _tokens(facts, plan)
    if cache is None or tokens is None:
        ledger.unknown += ["the cache"] if "the cache" not in ledger.unknown else []
    elif plan.cache_bytes is not None:
        ledger.add("cache", plan.cache_bytes, where, "--kv-cache-memory-bytes")
        if plan.cache_bytes < cache:
            ledger.stops.append(
                f"one request of {tokens:,} tokens takes {format_bytes(cache)} of cache, and "
                f"--kv-cache-memory-bytes gives {format_bytes(plan.cache_bytes)}"
            )
    else:
        ledger.add("cache", cache, where, f"one request of {tokens:,} tokens{_whose(plan)}")
    _limit(plan, card, total, where, ledger)
    left = next((limit.left for limit in ledger.limits if limit.where == where), 0)
    if left >= 0 and cache is not None:
        _states(facts, plan, seqs, plan.cache_bytes or left + cache, ledger)
    least, largest = fractions(plan)
    sure = left - (0 if plan.cache_bytes is not None else int(total * (largest - least)))
    if left >= 0 and sure < most - graphs:
        ledger.tight.append(
            f"{where} would have {format_bytes(max(0, sure))} left of its part, and CUDA graphs "
            f"have taken up to {format_bytes(most)} of such a model; --enforce-eager has none"
        )


def graphs_of(facts: ModelFacts, plan: VllmPlan, seqs: int) -> tuple[int, int]:
    """What CUDA graphs take of a card: as usual, and the most that was seen."""
    if not plan.graphs:
        return 0, 0
    largest = min(2 * seqs, GRAPH_SIZES[-1]) if plan.largest_graph is None else plan.largest_graph
    batches = plan.graph_batches or sum(size <= largest for size in GRAPH_SIZES)
    count = max(1, batches) * -(-(facts.layers or 0) // plan.stages)
    large = LARGE_WITH_EXPERTS if facts.experts.count else LARGE_GRAPH
    usual = 0 if _may_be_less(plan, LESS_GRAPHS) else GRAPHS + count * GRAPH
    return usual, LARGE_GRAPHS + count * large


def fractions(plan: VllmPlan) -> tuple[float, float]:
    """The smallest and the largest part of a card that this vLLM may ask for: equal where it is
    given, or the release is known."""
    if plan.fraction is not None:
        return plan.fraction, plan.fraction
    if plan.release is None:
        return OLD_FRACTION, FRACTION
    own = FRACTION if plan.release >= LARGER_SINCE else OLD_FRACTION
    return own, own


def _limit(plan: VllmPlan, card: Card, total: int, where: str, ledger: Assessment) -> None:
    """The fraction has to hold the sum, and has to be free."""
    have, (least, most) = capacity(card) or 0, fractions(plan)
    if plan.cache_bytes is not None:
        ledger.limit(where, have)
        return
    _free(have, total, least, where, ledger)
    ledger.limit(where, int(total * most))
    if least == most:
        return
    words = f"--gpu-memory-utilization, {most:g} since vLLM 0.19 and {least:g} before: "
    if have < int(total * most):
        ledger.unknown.append(
            f"{words}{format_bytes(have)} of {where} are free, and {most:g} asks for "
            f"{format_bytes(int(total * most))}; giving it settles it"
        )
    need = ledger.need(where)
    if int(total * least) < need <= int(total * most):
        ledger.unknown.append(
            f"{words}with {least:g} {where} would be {format_bytes(need - int(total * least))} "
            "short; giving it settles it"
        )


def _free(have: int, total: int, fraction: float, where: str, ledger: Assessment) -> None:
    """What vLLM asks for has to be free when it starts, beside its own CUDA context."""
    if have < int(total * fraction):
        ledger.stops.append(
            f"{format_bytes(have)} of {where} are free, and --gpu-memory-utilization {fraction:g} "
            f"asks for {format_bytes(int(total * fraction))}: vLLM refuses to start"
        )
    elif (left := have - int(total * fraction)) < CONTEXT:
        words = (
            f"--gpu-memory-utilization {fraction:g} leaves {format_bytes(left)} of {where}, and a "
            "CUDA context is there before it is asked for"
        )
        (ledger.stops if left < MIN_CONTEXT else ledger.tight).append(words)


def _whose(plan: VllmPlan) -> str:
    """What the context and the type of the cache leave open, in words."""
    counted = plan.type_kv in ("auto", "bf16") or plan.type_kv.startswith("fp8")
    least = "" if counted else f", at least ({plan.type_kv})"
    if plan.ctx is None:
        return f", the model's own length: --max-model-len is not given{least}"
    return (", which auto may shorten or lengthen" if plan.ctx < 0 else "") + least


def _share_words(plan: VllmPlan) -> str:
    parts = plan.ranks * plan.stages
    if parts == 1:
        return "all of them"
    return f"1/{parts} of them and of the token table, and what ranks hold whole"


def _weights(facts: ModelFacts, plan: VllmPlan, dtype: str) -> tuple[int, int]:
    """(dense, experts) of the fullest rank, in bytes: the first or last of the stages."""
    factor, open_ = as_loaded(facts, dtype, plan.quantization)
    if facts.stored in HALF and ((open_ and plan.quantization) or _may_be_less(plan, SMALLER)):
        factor *= PACKED
    factor *= not _may_be_less(plan, LESS_WEIGHTS)
    layers = -(-(facts.layers or 1) // plan.stages) / (facts.layers or 1)
    ends = [facts.bytes_of(Kind.TOKENS), facts.bytes_of(Kind.OUTPUT)]
    outside = sum(ends) if plan.stages == 1 else max(ends)
    ranks = Ranks(plan.ranks, plan.ranks, _expert_ranks(plan))
    dense = dense_of_layers(facts, ranks) * layers + outside / plan.ranks
    experts = facts.bytes_of(Kind.EXPERTS) * layers / (plan.ranks * plan.replicas)
    more = 0 if facts.stored in HALF or not factor else absorbed(facts, ranks) * layers
    return int(dense * factor + more), int(experts * factor)


def step_of(facts: ModelFacts, plan: VllmPlan, card: Card) -> tuple[int, int]:
    """(tokens, requests) of a step: as given, else what vLLM takes for a card of this size and for
    the context (`_set_default_max_num_seqs_and_batched_tokens_args`)."""
    total, name = card.total or 0, card.name.lower()
    if total >= LARGEST:
        usual = 16384, 1024
    elif total >= LARGE and "a100" not in name and "gb10" not in name:
        usual = 8192, 1024
    else:
        usual = 2048, 256
    seqs, length = plan.seqs or usual[1], _tokens(facts, plan)
    batch = plan.batch or usual[0]
    if plan.batch is None and length:
        batch = min(seqs * length, batch if plan.chunked else max(batch, length))
    return batch, plan.seqs or min(seqs, batch)


def _step(facts: ModelFacts, plan: VllmPlan, batch: int, seqs: int) -> int:
    """The peak of one full step: its widest layer, and the sampler's scores of every request."""
    values = step_bytes(facts, batch, plan.ranks, _expert_ranks(plan))
    values += step_states(facts, batch, plan.ranks)
    if plan.replicas > 1 and facts.experts.count:
        values += GATHERED * (plan.replicas - 1) * batch * (facts.embedding or 0)
    return values + seqs * (1 + plan.guesses) * (facts.vocabulary or 0) * SAMPLER


def _step_words(batch: int, seqs: int) -> str:
    return f"{batch:,} tokens, scores of {seqs:,} requests"


def _tokens(facts: ModelFacts, plan: VllmPlan) -> int | None:
    if plan.ctx is not None and plan.ctx < 0:
        return min(AUTO_CTX, facts.context_length or AUTO_CTX)
    return plan.ctx or facts.context_length


def cache_on(facts: ModelFacts, plan: VllmPlan, batch: int) -> int | None:
    """Bytes on a rank of one request of the whole context, at least: heads are divided, and a
    latent cache is whole on each."""
    tokens, kind = _tokens(facts, plan), plan.type_kv
    if not head_bytes(kind, 16, 16) or _may_be_less(plan, LESS_CACHE):
        return 0  # nothing of its size is certain
    if tokens and (blocks := blocks_of_cache(facts, plan)):
        return blocks.of_request(tokens, prefixes=plan.prefixes) * blocks.size
    if not tokens:
        return None
    cache = rank_bytes(facts, tokens, kind, plan.ranks, batch)
    return None if cache is None else cache // plan.stages


def blocks_of_cache(facts: ModelFacts, plan: VllmPlan) -> Blocks | None:
    """The blocks of a model with states; None where there are none, or a size is not known."""
    spec = facts.attention
    kept = -(-max(spec.kv_heads or (0,)) // plan.ranks)
    row = head_bytes(plan.type_kv, spec.key or 0, spec.value or 0)
    return blocks_of(facts, plan, kept * row)


def _padded(facts: ModelFacts, plan: VllmPlan) -> list[str]:
    """What is not known of layers whose pages differ, as vLLM makes pages of one size of them."""
    spec = facts.attention
    if spec.window_key in (None, spec.key):
        return []
    if plan.type_kv.endswith("_per_token_head"):
        return [
            f"how vLLM pads pages of --kv-cache-dtype {plan.type_kv} for heads of "
            f"{spec.window_key} and of {spec.key} numbers (vllm#40388)"
        ]
    if plan.graphs_beyond:
        return ["the cache: vLLM before 0.21 keeps layers with a window whole here (vllm#43308)"]
    return []


def _states(facts: ModelFacts, plan: VllmPlan, seqs: int, room: int, ledger: Assessment) -> None:
    """Each request of a CUDA graph needs a block for its state: vLLM refuses to make graphs of more
    (`resolve_cudagraph_mode_and_sizes` in config/compilation.py, since 0.19)."""
    blocks = blocks_of_cache(facts, plan)
    if blocks is None or not plan.graphs or room // blocks.size >= seqs * SURELY:
        return
    words = (
        f"vLLM since 0.19 makes CUDA graphs for --max-num-seqs {seqs:,} only with as many blocks "
        f"for states, and there is room for about {max(0, room) // blocks.size:,} (vllm#38270); "
        "fewer, or --enforce-eager"
    )
    perhaps = any(
        COMPILATION in notice for notice in plan.uncounted
    )  # it may leave full graphs out
    near = perhaps or room // blocks.size >= seqs * NEARLY
    (ledger.tight if near else ledger.stops).append(words)


def _host(
    facts: ModelFacts, plan: VllmPlan, machine: Machine, world: int, ledger: Assessment
) -> None:
    ledger.add("processes", PROCESS * (world + 1), HOST, "the server and one a rank")
    ledger.add("Ray", RAY if plan.ray else 0, HOST, "its own processes")
    if plan.cpu_offload:
        parts = min(plan.cpu_offload * world, facts.weight_bytes)
        ledger.add("offloaded", 2 * parts, HOST, f"--cpu-offload-gb of each rank, {ROUNDED}", parts)
    if machine.ram_available is None:
        ledger.unknown.append("the memory this machine has free")
    else:
        resident(ledger, machine, locked=plan.cpu_offload > 0)


def _envelope(facts: ModelFacts, machine: Machine, ledger: Assessment) -> Envelope:
    """Predict the load: weights first, then the rest of the fraction."""
    need = ledger.need(HOST)
    ram, swap = held(need, machine)
    speed = machine.disk_read_bps
    read_s = facts.weight_bytes / speed if speed else None
    full = tuple(_full(ledger))
    cards = tuple((name, min(most, _loaded(ledger, name))) for name, most in full)
    cached = min(facts.weight_bytes, max(0, (machine.ram_available or 0) - need))
    return Envelope(
        (
            Point("start", 0.0),
            Point("weights read", read_s, ram, cached, cards, swap),
            Point("serving", read_s, ram, cached, full, swap),
        )
    )


def _full(ledger: Assessment) -> Iterator[tuple[str, int]]:
    return ((limit.where, limit.have) for limit in ledger.limits if limit.where != HOST)


def _loaded(ledger: Assessment, where: str) -> int:
    names = ("weights", "experts", "draft layers", "offloaded", "CUDA context")
    parts = (t.bytes or 0 for t in ledger.terms if t.where == where and t.name in names)
    return max(0, sum(parts))
