"""What vLLM and SGLang refuse at the start, by their options and the model's configuration.

Sources: vLLM 0.33, SchedulerConfig.verify_max_model_len, `_check_valid_dtype` and
`_verify_with_expert_parallelism` in config/model.py, `get_supported_act_dtypes` of its
quantizations, `get_supported_kernel_block_sizes` of its attention backends (vllm#41363) and
validate_parsed_serve_args; SGLang 0.5.23, arg_groups/validation_hook.py and parallel_hook.py,
and of its quantizations `get_supported_act_dtypes` and GPTQConfig.get_quant_method; sglang_kt
0.7.2, kt_ep_wrapper.py, whose masks are for all experts (ktransformers#2036, ktransformers#2002).

What options do beside each other is judged in console.models.sizing.combinations. Not judged, as
it depends on what the build chooses: SGLang's rules for single backends of experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from console.host.sample import Card
from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import Kind, ModelFacts
from console.models.sizing.serving.loaded import FLOAT32, HALF, is_online
from console.models.sizing.serving.parallel import widths

NO_FLOAT16 = frozenset((
    "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "Glm4ForCausalLM",
))  # fmt: skip
"""Classes that vLLM does not serve in float16."""
FLOAT16 = ("half", "float16")
BF16_SINCE = (8, 0)
"""The compute capability from which both engines load bfloat16 as it is."""
FP8_SINCE = (8, 9)
"""The one from which every attention backend takes a cache in FP8: Triton ends with "type fp8e4nv
not supported in this architecture" below it (vllm#26431, vllm#50882; triton_attn.py of 0.33)."""
_BOTH, _HALF, _BRAIN = ("float16", "bfloat16"), ("float16",), ("bfloat16",)
IN_16_BITS = ("awq", "gptq")
VLLM_TAKES: Mapping[str, tuple[str, ...]] = {
    "awq": _BOTH, "gptq": _BOTH, "mxfp4": _BRAIN, "fp_quant": _BRAIN, "modelopt_mxfp8": _BRAIN,
}  # fmt: skip
"""What a quantization computes in; vLLM takes each by its weights, whatever name it is given."""
SGLANG_TAKES: Mapping[str, tuple[str, ...]] = {
    "awq": _HALF, "awq_marlin": _BOTH, "gptq": _HALF, "gptq_marlin": _BOTH, "moe_wna16": _BOTH,
}  # fmt: skip
"""SGLang serves AWQ and GPTQ with Marlin's kernels unless their own are asked for by name."""
_NAMES = {"half": "float16", "bf16": "bfloat16", "float": "float32"}
_MIXTURES = ("moe", "mixtral", "dbrx", "jamba", "grok", "maverick", "llama4")
"""Words in the names of families with experts, should their number stand under another key."""
PAGES_AS_GIVEN = ("triton", "flashinfer", "fa3", "torch_native")
"""Attention backends of SGLang that leave --page-size as it is."""
BLOCK, LATENT_BLOCK = 16, 64
"""Of what vLLM's --block-size is a multiple: for every attention backend, and for every one of
latent attention."""
SPANNING = (
    "megamoe", "deepep", "deepep_v2", "mooncake", "nixl", "ascend_fuseep", "flashinfer",
    "flashinfer_megamoe", "mori", "pplx",
)  # fmt: skip
"""Ways to exchange tokens with which SGLang shares whole experts out among all ranks."""
MARLIN_FROM, TILE, TILE_IN = (7, 5), 64, 16
"""Cards from Turing up to FP8_SINCE take weights in FP8 by Marlin's kernels, with tiles of so many
columns and rows of a matrix (marlin_utils.py)."""
PADS_SINCE, PADS_NOT = (0, 25), (0, 23)
"""The first release that surely pads what is no whole tile, and the last that surely does not:
vllm#45295 and vllm#45703 are of June 2026. "size_n = 2736 is not divisible by tile_n_size = 64"
(GLM-4.5#94, GLM-4.5#23)."""
E5M2 = "fp8_e5m2"
NO_SCALES = (*HALF, "float32", "fp32", "awq", "gptq", "mxfp4", "auto-round", "gguf")
"""Kinds of weights whose quantization has no scales for a cache, as FP8, ModelOpt, Quark and
compressed-tensors have."""


def by_vllm(
    facts: ModelFacts, plan: VllmPlan, step: tuple[int, int], length: int | None
) -> Iterator[str]:
    """Refusals in words. `step`: the tokens and the requests of one, `length`: the context."""
    batch, seqs = step
    if batch < seqs:
        yield f"a step of {batch:,} tokens is smaller than its {seqs:,} requests (--max-num-seqs)"
    if not plan.chunked and length and batch < length:
        yield (
            f"without chunked prefill a step has to take the whole context of {length:,} tokens, "
            f"and --max-num-batched-tokens is {batch:,}"
        )
    if plan.active is not None and plan.active > seqs:
        yield f"--max-num-active-seqs {plan.active:,} is more than --max-num-seqs, {seqs:,}"
    if plan.long_prefill and length and plan.long_prefill > length:
        yield f"--long-prefill-token-threshold {plan.long_prefill:,} is more than the context"
    if plan.dtype in FLOAT16 and NO_FLOAT16.intersection(facts.classes):
        yield f"--dtype {plan.dtype}: this family is not served in float16"
    method = plan.quantization if plan.quantization in VLLM_TAKES else facts.stored
    yield from _computing(facts, plan.dtype, method, VLLM_TAKES)
    if plan.whole_experts and not _may_have_experts(facts):
        yield "--enable-expert-parallel, and the model has no experts"
    if plan.fraction == 0:
        yield "--gpu-memory-utilization has to be more than 0"
    if plan.page % BLOCK and not _own_blocks(facts):
        yield f"--block-size {plan.page}: no attention backend takes it, only multiples of {BLOCK}"
    # a parser that is not known here is named as it is, and may be a plugin's or a newer one
    odd = any(problem.startswith("--tool-call-parser") for problem in plan.problems)
    if plan.calls_tools and not plan.tool_parser and not odd:
        yield "--enable-auto-tool-choice requires --tool-call-parser"
    if plan.logs_answers and not plan.logs_requests:
        yield "--enable-log-outputs requires --enable-log-requests"


def _computing(
    facts: ModelFacts, dtype_option: str, method: str, takes: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """A dtype, asked for or the model's own, that a quantization does not compute in."""
    dtype = facts.dtype if dtype_option in ("", "auto") else dtype_option
    if dtype_option in ("", "auto") and dtype in FLOAT32:
        return  # both engines take 16 bits then, and which of them depends on the family
    dtype, taken = _NAMES.get(dtype, dtype), takes.get(method, ())
    if dtype and taken and dtype not in taken:
        whose = (
            "the model's own dtype" if dtype_option in ("", "auto") else f"--dtype {dtype_option}"
        )
        yield f"{dtype} ({whose}) for {method}, which computes in {' or '.join(taken)} alone"


def fp8_cache(
    facts: ModelFacts, kind: str, cards: Sequence[Card], backend: str = ""
) -> tuple[list[str], list[str]]:
    """What is not known of a cache in FP8 on the oldest of these cards, and what is to be noted."""
    known = [card.compute for card in cards if card.compute]
    oldest = min(known, default=FP8_SINCE)
    if not kind.startswith("fp8") or oldest >= FP8_SINCE:
        return [], []
    words = (
        f"--kv-cache-dtype {kind} at compute capability {oldest[0]}.{oldest[1]}: Triton's kernels "
        "for attention take FP8 from 8.9 on, FlashInfer's from 8.0 on"
    )
    sure = kind == E5M2 or backend == "flashinfer"
    if oldest < BF16_SINCE or facts.attention.latent or not sure:
        return [f"whether an attention backend takes {words}"], []
    return [], [words]


def marlin_tiles(
    facts: ModelFacts, plan: VllmPlan, cards: Sequence[Card]
) -> tuple[list[str], list[str]]:
    """(refused, not known) of ranks whose part of a layer in FP8 is no whole tile of the kernels
    that old cards take. Blocks of weights are whole tiles wherever they can be divided."""
    old = any(card.compute and MARLIN_FROM <= card.compute < FP8_SINCE for card in cards)
    if facts.stored != "fp8" or facts.block or not old or (plan.release or (0,)) >= PADS_SINCE:
        return [], []
    dense, experts = widths(facts)
    ranks = 1 if plan.whole_experts else plan.ranks * plan.replicas
    for what, width, count in (
        ("the feed-forward width", dense, plan.ranks), ("an expert's width", experts, ranks),
    ):  # fmt: skip
        part = width // count
        if not width or width % count or (not 2 * part % TILE and not part % TILE_IN):
            continue
        words = (
            f"{what} of {width:,} gives each of {count} ranks {part:,}, which is no whole tile of "
            f"Marlin's kernels for FP8 on these cards"
        )
        if plan.release is not None and plan.release <= PADS_NOT:
            return [f"{words} (GLM-4.5#94)"], []
        return [], [
            f'{words}: vLLM before 0.24 ends with "size_n is not divisible by tile_n_size", later '
            "ones pad it (GLM-4.5#94, vllm#45703), and which release it is is not known here"
        ]
    return [], []


def scaled_cache(facts: ModelFacts, plan: VllmPlan) -> tuple[list[str], list[str]]:
    """(refused, not known) of a cache in fp8_e5m2, which vLLM does not take where the quantization
    of the checkpoint may have scales for a cache (`_init_kv_cache_quant` in
    layers/attention/attention.py: vllm#8409, vllm#39137)."""
    words = f"--kv-cache-dtype {E5M2} for weights in "
    if plan.type_kv != E5M2:
        return [], []
    if is_online(facts, plan.quantization):
        return [f"{words}{plan.quantization}, which it quantizes as it loads (vllm#8409)"], []
    if facts.stored in NO_SCALES:
        return [], []
    return [], [
        f"whether vLLM takes {words}{facts.stored}: it refuses it for a checkpoint in FP8, of "
        "ModelOpt or of Quark, and before June 2026 for all of compressed-tensors (vllm#39137, "
        "vllm#45040); fp8 or auto instead"
    ]


def not_known_of_blocks(facts: ModelFacts, plan: VllmPlan) -> list[str]:
    """Where the blocks of the cache are the backend's own, or rounded up to a layer's state."""
    multiple = LATENT_BLOCK if facts.attention.latent else BLOCK
    if not plan.page % multiple or not _own_blocks(facts):
        return []
    return [f"whether an attention backend for this model takes --block-size {plan.page}"]


def _own_blocks(facts: ModelFacts) -> bool:
    states = facts.recurrent is not None or 0 in (facts.attention.kv_heads or ())
    return facts.attention.latent or states


def _may_have_experts(facts: ModelFacts) -> bool:
    names = " ".join((facts.architecture, *facts.classes)).lower()
    stored = any(weight.kind is Kind.EXPERTS for weight in facts.weights)
    return bool(facts.experts.count) or stored or any(word in names for word in _MIXTURES)


def by_sglang(facts: ModelFacts, plan: SglangPlan, chunk: int, brain: bool) -> Iterator[str]:
    """Refusals in words. `chunk`: the tokens of --chunked-prefill-size, given or by default.
    `brain`: the card computes in bfloat16; on others SGLang takes float16 whatever is asked."""
    method = plan.quantization or f"{facts.stored}_marlin"
    known = brain and facts.stored in IN_16_BITS
    for words in _computing(facts, plan.dtype, method, SGLANG_TAKES) if known else ():
        advice = f": {method}_marlin, or --dtype half" if method in ("awq", "gptq") else ""
        yield words + advice
    if method == "gptq" and facts.experts.count:
        yield (
            "experts with --quantization gptq, which has no kernels for them: gptq_marlin or "
            "moe_wna16"
        )
    if plan.replicas > 1 and plan.attention_replicas > 1:
        yield "--dp-size and --attn-dp-size together: replicas of a replicated attention"
    if plan.attention_apart and plan.ranks % plan.replicas:
        yield f"{plan.ranks} ranks are not divisible by {plan.replicas} copies of the attention"
    if plan.expert_ranks > 1 and plan.ranks % plan.expert_ranks:
        yield f"{plan.ranks} ranks are not divisible by --ep-size {plan.expert_ranks}"
    if plan.kt and plan.expert_ranks > 1 and facts.experts.count:
        yield (
            f"whole experts shared out among {plan.expert_ranks} ranks (--ep-size, or an "
            "--moe-a2a-backend that does so) with kt-kernel, which marks the experts of the cards "
            "for all ranks at once"
        )
    elif facts.experts.count % plan.expert_ranks and not plan.uncounted:
        yield f"{facts.experts.count} experts are not divisible by {plan.expert_ranks} ranks"
    if _odd_pages(plan, chunk) and plan.attention in PAGES_AS_GIVEN and not facts.attention.latent:
        yield f"--chunked-prefill-size {chunk:,} is not divisible by --page-size {plan.page}"


def not_known_of_pages(facts: ModelFacts, plan: SglangPlan, chunk: int) -> list[str]:
    """Where the pages do not divide a chunk, and the backend may choose others."""
    if not _odd_pages(plan, chunk):
        return []
    if plan.attention in PAGES_AS_GIVEN and not facts.attention.latent:
        return []
    words = f"whether --page-size {plan.page} stands, which does not divide a chunk of {chunk:,}"
    return [words]


def _odd_pages(plan: SglangPlan, chunk: int) -> bool:
    if plan.attention_apart:
        chunk //= max(1, plan.replicas)
    return bool(plan.page and chunk > 0 and chunk % plan.page)
