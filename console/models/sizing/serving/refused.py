"""What vLLM and SGLang refuse at the start, by their options and the model's configuration.

Sources: vLLM 0.33, SchedulerConfig.verify_max_model_len, `_check_valid_dtype` and
`_verify_with_expert_parallelism` in config/model.py, `get_supported_act_dtypes` of its
quantizations, `get_supported_kernel_block_sizes` of its attention backends (vllm#41363) and
validate_parsed_serve_args; SGLang 0.5.23, arg_groups/validation_hook.py and parallel_hook.py.

Not judged, as it depends on what the build chooses: models without pipeline parallelism, and
SGLang's rules for single backends of experts.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import Kind, ModelFacts
from console.models.sizing.serving.loaded import FLOAT32

NO_FLOAT16 = frozenset((
    "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "Glm4ForCausalLM",
))  # fmt: skip
"""Classes that vLLM does not serve in float16."""
FLOAT16 = ("half", "float16")
IN_16_BITS = ("awq", "gptq")
"""Kinds of weights with which vLLM computes in 16 bits alone, whatever wrote them."""
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
    if plan.dtype in FLOAT32 and facts.stored in IN_16_BITS:
        yield f"--dtype {plan.dtype}: weights that are stored as {facts.stored} compute in 16 bits"
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


def by_sglang(facts: ModelFacts, plan: SglangPlan, chunk: int) -> Iterator[str]:
    """Refusals in words. `chunk`: the tokens of --chunked-prefill-size, given or by default."""
    if plan.replicas > 1 and plan.attention_replicas > 1:
        yield "--dp-size and --attn-dp-size together: replicas of a replicated attention"
    if plan.attention_apart and plan.ranks % plan.replicas:
        yield f"{plan.ranks} ranks are not divisible by {plan.replicas} copies of the attention"
    if plan.expert_ranks > 1 and plan.ranks % plan.expert_ranks:
        yield f"{plan.ranks} ranks are not divisible by --ep-size {plan.expert_ranks}"
    if facts.experts.count % plan.expert_ranks and not plan.uncounted:
        yield f"{facts.experts.count} experts are not divisible by {plan.expert_ranks} ranks"
    if plan.stages > 1 and plan.speculates:
        yield "pipeline parallelism and guessing ahead at once are for prefill nodes alone"
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
