"""The features that a plan for vLLM or SGLang and a model have in use, and the pipeline stages that
a class of models may not have.

Sources: `SupportsPP` of the classes in vLLM 0.33 (`is_pp_supported_model`: "Pipeline parallelism is
not supported for this model", vllm#52761) and `pp_proxy_tensors` in those of SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.host.sample import Card
from console.models.sizing.combinations.table import Feature, judged
from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.backends import used
from console.models.sizing.serving.classes import divided
from console.models.sizing.serving.encoders import has_encoder
from console.models.sizing.serving.kernels import SINKS, SPARSE, SPARSE_LATENT
from console.models.sizing.serving.refused import BF16_SINCE

TENSOR, STAGES = Feature("tensor parallel ranks"), Feature("pipeline stages")
COPIES, ATTENTION_COPIES = Feature("data-parallel copies"), Feature("copies of the attention")
WHOLE_COPIES = Feature("copies of the whole")
EXPERTS = Feature("whole experts on ranks")
OWN = Feature("own layers that guess ahead")
OWN_OF_ONE = Feature("own layers that guess ahead (one stage alone)")
LOOKUP, GUESS = Feature("guesses from the text before"), Feature("a guess")
FP8, BACKEND = Feature("a cache in FP8"), Feature("a named attention backend")
RARE = Feature("a rare attention backend")
AHEAD = Feature("steps scheduled ahead")
OFFLOAD, RAY = Feature("weights in RAM"), Feature("Ray")
KT = Feature("experts on the processor")
WINDOW, STATES = Feature("layers with a window", True), Feature("layers with a state", True)
LATENT, SPARSE_ATTENTION = Feature("latent attention", True), Feature("sparse attention", True)
SINK, ENCODER = Feature("heads with a sink", True), Feature("an encoder", True)
GPTQ_EXPERTS = Feature("experts in GPTQ", True)
BRAIN = Feature("bfloat16")
FUSED_EXPERTS = Feature("experts stored as one tensor", True)
FUSED_CLASSES = frozenset(("GptOssForCausalLM", "InklingForCausalLM"))
"""Classes of SGLang 0.5.23 whose loader takes all experts of a layer from one tensor
(weight_loader_fused), for MXFP4 by another one."""
V2_RUNNER = Feature("a class of the V2 runner", True)
V2_CLASSES = frozenset((
    "DeepseekV2ForCausalLM", "GraniteMoeForCausalLM", "InklingForCausalLM",
    "InklingForConditionalGeneration", "KimiK3ForConditionalGeneration",
    "LongcatFlashNgramForCausalLM", "Qwen2MoeForCausalLM",
))  # fmt: skip
"""DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES of vLLM in August 2026, of models with experts; since 0.30
it serves all."""
V2_SINCE = (0, 20)
"""The release from which some dense models may run on it by default (vllm#39337 of April 2026); all
of them do since vllm#44443 of July."""
STAGED = ("Qwen3_5",)
"""How the classes begin whose layers that guess ahead have stages in vLLM 0.33 (Qwen3_5MTP)."""
RARELY = ("FLEX_ATTENTION", "TREE_ATTN", "XFORMERS", "DUAL_CHUNK_FLASH_ATTN")
"""Backends for attention of vLLM that few people name."""


def by_vllm_pairs(facts: ModelFacts, plan: VllmPlan) -> tuple[list[str], list[str]]:
    """What vLLM refuses and what is not known of it, in words."""
    encoder = bool(facts.encoders) and not plan.text_only
    features = [*_of_vllm(facts, plan), *_of_model(facts, encoder=encoder)]
    if _on_v2(facts, plan):
        features.append(V2_RUNNER)
    refused, unknown = judged("vllm", features, plan.release)
    return refused, [*_stages(facts, "vllm", plan.stages), *unknown]


def _on_v2(facts: ModelFacts, plan: VllmPlan) -> bool:
    """Whether the V2 runner may serve this, as far as the release is known."""
    new = plan.release is None or plan.release >= V2_SINCE
    dense = not facts.experts.count and facts.recurrent is None
    return new and (dense or bool(V2_CLASSES.intersection(facts.classes)))


def by_sglang_pairs(
    facts: ModelFacts, plan: SglangPlan, cards: Sequence[Card] = ()
) -> tuple[list[str], list[str]]:
    """The same of SGLang, with kt-kernel. On cards that do not compute in bfloat16 it takes
    float16, whatever is asked."""
    brain = all((card.compute or BF16_SINCE) >= BF16_SINCE for card in cards)
    features = [*_of_sglang(plan), *_of_model(facts, encoder=has_encoder(facts, plan))]
    features += _of_experts(facts, plan, brain=brain)
    refused, unknown = judged("sglang", features, plan.release)
    return refused, [*_stages(facts, "sglang", plan.stages), *unknown]


def _of_experts(facts: ModelFacts, plan: SglangPlan, *, brain: bool) -> Iterator[Feature]:
    """How experts are stored, where SGLang's loader or kernels make a difference of it."""
    if facts.experts.count and facts.stored == "gptq" and plan.quantization != "moe_wna16":
        yield GPTQ_EXPERTS
        dtype = facts.dtype if plan.dtype in ("", "auto") else plan.dtype
        if brain and dtype in ("bfloat16", "bf16"):
            yield BRAIN
    if FUSED_CLASSES.intersection(facts.classes) and facts.stored != "mxfp4":
        yield FUSED_EXPERTS


def _stages(facts: ModelFacts, engine: str, stages: int) -> list[str]:
    """Where the release that is calculated does not divide a class among stages."""
    if stages < 2 or divided(facts, engine):
        return []
    named = ", ".join(facts.classes) or "this model"
    option = "--pipeline-parallel-size" if engine == "vllm" else "--pp-size"
    words = f"{option} {stages}: {named} is not known to be divided among pipeline stages"
    return [words]


def _of_vllm(facts: ModelFacts, plan: VllmPlan) -> Iterator[Feature]:
    named = plan.attention.upper()
    staged = any(name.startswith(STAGED) for name in facts.classes)
    in_use = {
        TENSOR: plan.ranks > 1, STAGES: plan.stages > 1, COPIES: plan.replicas > 1,
        EXPERTS: plan.whole_experts, LOOKUP: plan.looks_up, OWN: plan.guesses > 0 and staged,
        OWN_OF_ONE: plan.guesses > 0 and not staged, FP8: plan.type_kv.startswith("fp8"),
        BACKEND: named not in ("", "AUTO", *RARELY), RARE: named in RARELY,
        OFFLOAD: plan.cpu_offload > 0, RAY: plan.ray, AHEAD: plan.ahead,
    }  # fmt: skip
    return (feature for feature, used_now in in_use.items() if used_now)


def _of_sglang(plan: SglangPlan) -> Iterator[Feature]:
    apart = plan.attention_apart and plan.replicas > 1
    in_use = {
        TENSOR: plan.ranks > 1, STAGES: plan.stages > 1, ATTENTION_COPIES: apart,
        WHOLE_COPIES: plan.replicas > 1 and not apart, EXPERTS: plan.expert_ranks > 1,
        OWN: plan.drafts, LOOKUP: plan.speculates and not plan.drafts and plan.looks_up,
        GUESS: plan.speculates and not plan.drafts and not plan.looks_up,
        FP8: plan.type_kv.startswith("fp8"), BACKEND: bool(used(plan)),
        OFFLOAD: plan.cpu_offload > 0, KT: plan.kt,
    }  # fmt: skip
    return (feature for feature, used_now in in_use.items() if used_now)


def _of_model(facts: ModelFacts, *, encoder: bool) -> Iterator[Feature]:
    has = {
        WINDOW: facts.attention.has_window, STATES: facts.recurrent is not None,
        LATENT: facts.attention.latent, SINK: facts.attends == SINKS,
        SPARSE_ATTENTION: facts.attends in (SPARSE, SPARSE_LATENT), ENCODER: encoder,
    }  # fmt: skip
    return (feature for feature, is_there in has.items() if is_there)
