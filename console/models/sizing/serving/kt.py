"""What kt-kernel keeps of experts: in RAM, and on the cards for long prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from console.models.sizing.facts_from_gguf import SOURCE as GGUF
from console.models.sizing.loader_plan import LLAMAFILE, SglangPlan
from console.models.sizing.model_facts import Kind, ModelFacts

BYTES_PER_WEIGHT = (
    ("MXFP4", 0.5625), ("MXFP8", 1.03125), ("INT4", 0.5625), ("INT8", 1.03125), ("FP8", 1.0),
    ("BF16", 2.0),
)  # fmt: skip
"""Of kt-kernel's formats, with their scales (one of 2 bytes for 32 or 64 weights)."""
GPTQ, GPTQ_GROUP = "GPTQ_INT4", 128
"""The method that reads GPTQ: half a byte a weight and a scale of 4 bytes a group."""


RAW, AVX_512 = "RAWINT4", frozenset(("avx512f", "avx512bw"))
"""The method whose kernels for AVX2 read each expert where it lies, and what a processor has that
gets others (avx2/rawint4-moe.hpp of kt-kernel 0.7.2)."""
QK_K = 256
"""Weights of a block of the GGUF's K-quants, of which LLAMAFILE wants a whole number in an expert's
width (`LlamafileMoEWrapper` in kt-kernel's python/utils/llamafile.py; intel/auto-round#1085)."""


PREFILLS = ("FP8", "FP8_PERCHANNEL", "BF16", "RAWINT4")
"""kt-kernel's methods whose experts go to the cards as they are stored, layer by layer."""


def by_kt(
    facts: ModelFacts, plan: SglangPlan, cpu_flags: frozenset[str] = frozenset()
) -> tuple[list[str], list[str]]:
    """What kt-kernel refuses and what is not known of it, in words. `cpu_flags`: of the processor,
    none where they are not known."""
    refused, unknown = list[str](), list[str]()
    if plan.kt_prefill and plan.kt_method not in PREFILLS:
        unknown.append(
            f"not counted: what --kt-gpu-prefill-token-threshold takes with {plan.kt_method or '?'}"
        )
    if plan.kt and facts.source == GGUF:
        refused.append("kt-kernel takes safetensors, not GGUF")
    if GPTQ in plan.kt_method and facts.gptq_besides:
        words = " and ".join(facts.gptq_besides)
        refused.append(f"kt-kernel reads symmetric GPTQ of 4 bits in order, and not {words}")
    width = facts.experts.width
    if plan.kt and plan.kt_method == LLAMAFILE and width % QK_K:
        refused.append(
            f"an expert's width of {width:,} is no multiple of {QK_K}, which --kt-method "
            f"{LLAMAFILE} wants"
        )
    if plan.kt and plan.kt_method == RAW and plan.kt_pools > 1 and not cpu_flags >= AVX_512:
        words = (
            f"--kt-threadpool-count {plan.kt_pools} with --kt-method {RAW} on a processor without "
            'AVX-512 ("RAWINT4 per-expert pointer mode requires kt_threadpool_count=1", kt#2076)'
        )
        if cpu_flags:
            refused.append(words)
        else:
            unknown.append(f"{words}, and which this one is is not known here")
    if plan.kt:
        unknown += _of_pools(width, plan)
    return refused, unknown


def _of_pools(width: int, plan: SglangPlan) -> Iterator[str]:
    """What is not known of the thread pools, among which an expert's width is divided: two where
    the option is not given (moe-tp.hpp of kt-kernel 0.7.2)."""
    pools = plan.kt_pools
    words = f"--kt-threadpool-count {pools}"
    parts = width // QK_K if plan.kt_method == LLAMAFILE else width
    if parts and (parts < pools if plan.kt_method == LLAMAFILE else parts % pools):
        yield (
            f"{words}: an expert's width of {width:,} is not divided evenly among {pools} pools "
            '("intermediate_size must be a multiple of NUMA node count" in kt-kernel 0.7.2)'
        )


def whole_layer(facts: ModelFacts, plan: SglangPlan, chunk: int) -> int:
    """A rank's share of one layer's experts, all of which a long prompt takes to the cards beside
    what lies there (SharedFullContext in kt_ep_wrapper.py of kvcache-ai's sglang)."""
    if not plan.kt_prefill or chunk < plan.kt_prefill:
        return 0
    layers = Counter[int | None]()
    for weight in facts.weights:
        if weight.kind is Kind.EXPERTS:
            layers[weight.layer] += weight.bytes
    return max(layers.values(), default=0) // plan.ranks


def kt_bytes(facts: ModelFacts, plan: SglangPlan, stored: int) -> tuple[int | None, str]:
    """Experts in kt-kernel's own format, on the CPU: all of them, also those that a card has
    (ktransformers#2084; moe_base.hpp of its AMX and AVX2 kernels), unless the build has an option
    that leaves those out. What is ready is copied as it lies there, whatever the checkpoint
    holds."""
    if plan.kt_method == LLAMAFILE:
        return plan.kt_experts, "all experts of the GGUF, as they are stored"
    if plan.kt_experts is not None and not plan.kt_skips:
        return plan.kt_experts, "all experts of --kt-weight-path, as they are stored"
    count = facts.experts.count or 1
    on_cards = min(plan.kt_gpu_experts, count) if plan.kt_skips else 0
    left = (count - on_cards) / count
    weights = sum(w.elements for w in facts.weights if w.kind is Kind.EXPERTS)
    for name, size in BYTES_PER_WEIGHT:
        if name in plan.kt_method and weights:
            if GPTQ in plan.kt_method:
                size = 0.5 + 4 / (facts.block or GPTQ_GROUP)
            number = int(weights * left)
            whole = "" if plan.kt_skips or not plan.kt_gpu_experts else ", those of the cards too"
            return int(number * size), f"{number / 1e9:.0f} G weights x {size:g} B ({name}){whole}"
    return (stored if plan.kt_skips else facts.bytes_of(Kind.EXPERTS)), "as they are stored"
