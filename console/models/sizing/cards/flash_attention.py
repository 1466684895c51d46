"""Whether flash attention has a kernel for a cache on a card, and what becomes of a plan without.

The rules are those of ggml's CUDA backend, which ROCm's shares; Vulkan's takes other heads and
types, and the CPU takes all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from console.models.sizing.kv_cache import CACHE_TYPES, NOT_COUNTED, layers_with_cache
from console.models.sizing.loader_plan import ONE_TYPE, LlamaPlan
from console.models.sizing.model_facts import EVERY_FOURTH_FULL, ModelFacts

PLAIN = ("f32", "f16", "bf16")
SQUARE = (40, 64, 72, 80, 96, 112, 128, 256)
"""Lengths of a head for which CUDA's flash attention has a kernel if K and V are equally long."""
GROUPED = {192: (128, 8), 320: (256, 32), 512: (512, 2), 576: (512, 2)}
"""The others: how long V must be, and of what the number of queries for each K is a multiple."""
STAYS_ON = (*EVERY_FOURTH_FULL, "granitehybrid")
"""Models with states that keep flash attention when layers are on the host, too; Jamba does not."""
FEW_TENSORS = 7
"""With so few tensors in a layer the scheduler, which makes room by their number, has too little
for such a graph: phi3 (joined matrices) and olmo (no norms)."""
NO_FLASH = ("grok",)
"""Architectures for which llama.cpp turns flash attention off, whatever is asked."""
WHOLE_LAYERS = frozenset({
    "grok", "mpt", "plamo2", "minicpm3", "gemma3n", "mamba", "mamba2", "jamba", "falcon-h1",
    "olmo2", "olmoe", "deepseek2", "deepseek32", "hy_v4", "dots3note", "glm-dsa", "bitnet", "t5",
    "nemotron_h", "nemotron_h_moe", "granitehybrid", "minimax-01", "minimax-m2", "minimax-m3",
    "mistral4", "kimi-linear", "bailingmoe3", "kimi-k3", "glm5-next", "qwen3tts",
})  # fmt: skip
"""Architectures that --split-mode tensor refuses (llm_arch_supports_sm_tensor of b11549)."""
PAIRED = ONE_TYPE | {"q5_1", "q5_0", "q4_1"}
"""Types that are paired by a build with kernels for all of them; IQ4_NL has none on a card."""
VECTORS = {
    64: (("f16", "f16"),),
    128: (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("iq4_nl", "iq4_nl"),
          ("q8_0", "iq4_nl")),
    256: (("f16", "f16"), ("q8_0", "q8_0")),
}  # fmt: skip
"""Types of K and V that ik_llama.cpp takes on cards before Volta, by the length of a head."""
NO_HEADS = (
    "CUDA has no flash attention for these heads, and it was asked for or is needed for the type "
    "of V: it is computed on the CPU, with copies of the cache"
)
NEEDS_IT = (
    'a quantized V needs it: without, llama-server ends with "quantized V cache was requested, but '
    'this requires Flash Attention" (llama.cpp#28524)'
)
ON_CPU = "with -fa on it is computed on the CPU, with copies of the cache (llama.cpp#27109)"
OLD_CARDS = (
    "ik_llama.cpp has no flash attention for this cache on cards before Volta, unless it is built "
    "with GGML_CUDA_FA_ALL_QUANTS: it is computed on the CPU, with copies of the cache"
)
PAIRS = (
    "Builds before llama.cpp#28079 (September 2026) take only f16, bf16, q8_0 or q4_0, for K and V "
    "alike, unless they are built with GGML_CUDA_FA_ALL_QUANTS; one of these four for both settles "
    "it"
)
NOT_ON_CPU = frozenset({"q5_0", "q5_1"})
"""Types of a cache that ik_llama.cpp's own flash attention for the processor lacks."""


def has_kernel(facts: ModelFacts, plan: LlamaPlan) -> bool:
    """Whether CUDA's flash attention takes the heads and cache types of every layer, for all that
    is known of the build."""
    if not any(layers_with_cache(facts)):
        return True
    return takes_heads(facts) and takes_types(facts, plan) is not False


def takes_types(facts: ModelFacts, plan: LlamaPlan) -> bool | None:
    """Whether CUDA's flash attention takes K and V of these types, whatever the heads; None: the
    build decides, and it is not known.

    Every build has kernels for K and V of one type of ONE_TYPE. For the other pairs of PAIRED
    builds before ggml-org/llama.cpp#28079 need GGML_CUDA_FA_ALL_QUANTS, which is off by default
    (`ggml_cuda_get_best_fattn_kernel` of fattn.cu), and later ones turn both into F16. ik_llama.cpp
    does that on cards from Volta on, for every type. A latent V is a part of K.
    """
    if plan.ik:
        return True
    types = {plan.type_k, plan.type_k if facts.attention.latent else plan.type_v}
    if len(types) == 1 and types <= ONE_TYPE:
        return True
    return plan.build.takes_pairs if types <= PAIRED else False


def by_vectors(facts: ModelFacts, plan: LlamaPlan) -> bool:
    """Whether ik_llama.cpp's kernels for cards before Volta take the cache, which work on single
    tokens there (`ggml_cuda_fattn_vec_f16_is_supported` of 8337e4cd, as it is built by default)."""
    key, types = facts.attention.key, (plan.type_k, plan.type_v)
    if NOT_COUNTED in types or facts.attention.latent or not any(layers_with_cache(facts)):
        return True
    return types in VECTORS.get(key or 0, ())


def takes_heads(facts: ModelFacts) -> bool:
    """Whether CUDA's flash attention takes the heads of every layer, whatever the cache's types."""
    spec = facts.attention
    which = [layer for layer, has in enumerate(layers_with_cache(facts)) if has]
    if not which or not spec.kv_heads or spec.key is None:
        return True
    value = spec.latent_rank if spec.latent else spec.value
    shapes = {(spec.key, value)}
    if spec.has_window:
        shapes.add((spec.window_key or spec.key, spec.window_value or value))
    queries = {(spec.heads or 0) // (spec.kv_heads[layer] or 1) for layer in which}

    def takes(key: int, value: int | None) -> bool:
        if key in SQUARE:
            return value == key
        length, multiple = GROUPED.get(key, (None, 1))
        return length == value and all(many and many % multiple == 0 for many in queries)

    return all(takes(key, value) for key, value in shapes)


def settled(
    facts: ModelFacts, plan: LlamaPlan, *, on_card: bool, on_host: bool
) -> tuple[LlamaPlan, tuple[str, ...], tuple[str, ...]]:
    """The plan with flash attention decided as llama.cpp does, why it would refuse it, and what of
    it no sum here covers. `on_card`, `on_host`: some of the layers are there."""
    refused, doubts = list(_not_split(facts, plan)), list[str]()
    if facts.architecture in NO_FLASH and plan.flash:
        plan = replace(plan, flash=False, flash_auto=False)
    mixed = on_card and on_host and facts.recurrent is not None
    if mixed and plan.flash_auto and plan.type_v in PLAIN and facts.architecture not in STAYS_ON:
        plan = replace(plan, flash=False)
    if on_card and plan.flash and any(layers_with_cache(facts)):
        plan, why = _by_kernels(facts, plan, doubts)
        refused += why
    if plan.split_mode == "tensor" and plan.swa_full and facts.attention.has_window:
        doubts.append(
            "with --split-mode tensor and --swa-full llama.cpp aborts where it lays out the window "
            "cache (llama.cpp#26122, b10126)"
        )
    if on_card and facts.recurrent is not None and not plan.kv_offload:
        doubts.append("with --no-kv-offload states are worked on here and there")
    if not plan.flash and plan.type_v not in PLAIN:
        refused.append(f"--cache-type-v {plan.type_v} needs flash attention, which is off")
    refused += _broken_blocks(facts, plan)
    if facts.attention.latent and plan.type_k != plan.type_v:
        doubts.append("builds from 2026 on refuse different types for K and V of a latent cache")
    if plan.ik and on_host and plan.flash and (types := NOT_ON_CPU & {plan.type_k, plan.type_v}):
        doubts.append(
            f"flash attention on the processor with a cache in {' and '.join(sorted(types))}: "
            "ik_llama.cpp aborts there since March 2026, and answered badly before "
            "(ik_llama.cpp#1562)"
        )
    several = not plan.unified and plan.slots > 1
    quantized = {plan.type_k, plan.type_v}.isdisjoint(PLAIN)
    if several and quantized and sum(w.layer == 0 for w in facts.weights) <= FEW_TENSORS:
        doubts.append(
            f"llama.cpp b11434 aborts with so few tensors in a layer as {facts.architecture} has, "
            f"a quantized cache and {plan.slots} slots"
        )
    return plan, tuple(refused), tuple(doubts)


def _by_kernels(
    facts: ModelFacts, plan: LlamaPlan, doubts: list[str]
) -> tuple[LlamaPlan, tuple[str, ...]]:
    """The plan by what CUDA has kernels for, and why llama.cpp refuses it. `auto` turns flash
    attention off where there is none; `on` leaves it to the CPU."""
    heads, types = takes_heads(facts), takes_types(facts, plan)
    if heads and types:
        return plan, ()
    if plan.flash_auto and plan.type_v in PLAIN:
        return (replace(plan, flash=False) if types is False or not heads else plan), ()
    if not heads:
        doubts.append(NO_HEADS)
        return plan, ()
    pair = f"flash attention for K in {plan.type_k} and V in {plan.type_v} on cards"
    known = plan.build.takes_pairs is False
    end = NEEDS_IT if plan.flash_auto else ON_CPU
    if types is None:
        doubts.append(f"whether the build has {pair}: {end}. {PAIRS}")
    elif known and plan.flash_auto:
        return plan, (f"this build has no {pair}: {end}",)
    else:
        doubts.append(f"{'this build' if known else 'CUDA'} has no {pair}: {end}")
    return plan, ()


def _not_split(facts: ModelFacts, plan: LlamaPlan) -> Iterator[str]:
    """Why --split-mode tensor is refused."""
    if plan.split_mode != "tensor":
        return
    if facts.architecture in WHOLE_LAYERS:
        yield f"--split-mode tensor is not there for {facts.architecture}"
    if not plan.flash and not plan.flash_auto:
        yield "--split-mode tensor needs flash attention, which is off"


def _broken_blocks(facts: ModelFacts, plan: LlamaPlan) -> Iterator[str]:
    """Heads that are no whole blocks of a quantized cache: flash attention refuses them."""
    spec = facts.attention
    if not plan.flash or spec.latent:
        return
    for flag, kind, length in (("k", plan.type_k, spec.key), ("v", plan.type_v, spec.value)):
        block = CACHE_TYPES[kind][0]
        if length and length % block:
            yield (
                f"--cache-type-{flag} {kind}: a head of {length} is no multiple of its block of "
                f"{block}"
            )
