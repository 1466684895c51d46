"""How the bytes of a checkpoint change when an engine loads it otherwise than it is stored."""

from __future__ import annotations

from console.models.sizing.model_facts import ModelFacts

FLOAT32 = ("float", "float32")
HALF = ("bf16", "fp16", "")
"""Weights of 16 bits, or of a kind that nothing tells."""
ALIKE = {
    "awq": ("awq_marlin", "auto_awq", "marlin", "moe_wna16"),
    "gptq": ("gptq_marlin", "auto_gptq", "marlin", "moe_wna16"),
    "fp8": ("compressed-tensors", "modelopt", "modelopt_fp8"),
    "int8": ("compressed-tensors", "w8a8_int8"),
    "w4a16": ("compressed-tensors",),
    "nvfp4": ("compressed-tensors", "modelopt", "modelopt_fp4"),
    "mxfp4": ("gpt_oss_mxfp4",),
    "auto-round": ("auto_round", "inc"),
}
"""Values of --quantization by which the engines load such a checkpoint as it is stored."""


KEEPING = {
    "Qwen3MoeForCausalLM": "0.5.9", "LLaDA2MoeModelLM": "0.5.17", "BailingMoEForCausalLM": "",
    "BailingMoeForCausalLM": "", "BailingMoeV2ForCausalLM": "", "SarvamMoEForCausalLM": "",
    "SarvamMLAForCausalLM": "",
}  # fmt: skip
"""Classes whose `load_weights` in SGLang keeps hold of every expert as it was read, so that the
memory of before a repacking is never given back (sglang#9872, sglang#8362; a comment in its
llada2.py says so), with the first release that does so no more; "": 0.5.23 still does."""
AS_READ = (*HALF, "fp8", "int8", "float32", "fp32")
"""Kinds of experts that stay where they were read; those of others are repacked for a kernel."""
NOT_REPACKED = ("moe_wna16",)
"""Values of --quantization whose kernels take packed experts as they are stored."""

ONLINE = ("fp8",)
"""Values of --quantization by which both engines make weights of 16 bits smaller as they load."""
ONLINE_SHARE = 0.5


def is_online(facts: ModelFacts, quantization: str) -> bool:
    """Whether weights of 16 bits are quantized while they are loaded. Releases of today do it layer
    by layer; those before needed room for the whole of them first."""
    return quantization in ONLINE and facts.stored in HALF[:2]


def kept_of_experts(
    facts: ModelFacts, quantization: str, experts: int, release: tuple[int, ...] | None
) -> tuple[int, str]:
    """Bytes of experts that SGLang has twice once they are repacked, and which releases do so. A
    `release` of its own is known to be no older than this one."""
    named = KEEPING.keys() & set(facts.classes)
    if not named or quantization in NOT_REPACKED:
        return 0, ""
    since = KEEPING[min(named)]
    if since and release is not None and release >= tuple(map(int, since.split("."))):
        return 0, ""
    words = f"releases before {since}" if since else "releases up to 0.5.23"
    if is_online(facts, quantization):
        return int(experts * ONLINE_SHARE), words
    return (0 if facts.stored in AS_READ else experts), words


def as_loaded(facts: ModelFacts, dtype: str, quantization: str) -> tuple[float, list[str]]:
    """The factor for the bytes of the weights, and what is not known of it, in words."""
    half, unknown = facts.stored in HALF, list[str]()
    if is_online(facts, quantization):
        return (2.0 if dtype in FLOAT32 else 1.0), unknown
    if quantization and half and quantization != facts.stored:
        unknown.append(
            f"how small --quantization {quantization} makes weights that are stored in 16 bits, "
            "and what it takes meanwhile"
        )
    elif quantization and quantization not in (facts.stored, *ALIKE.get(facts.stored, ())):
        unknown.append(
            f"whether weights that are stored as {facts.stored} are taken with --quantization "
            f"{quantization}"
        )
    if facts.stored in ("float32", "fp32"):
        return (1.0 if dtype in FLOAT32 else 0.5), unknown
    if dtype in FLOAT32 and half:
        unknown.append("the steps and the cache of weights of 16 bits that are loaded in 32")
        return 2.0, unknown
    if dtype in FLOAT32:
        unknown.append(f"whether weights that are stored as {facts.stored} compute in 32 bits")
    return 1.0, unknown


def cache_type(facts: ModelFacts, engine: str, type_name: str) -> str:
    """The type of the cache where `auto` is asked for, too: what the quantization wants, else 16
    bits (`resolve_kv_cache_dtype_string` of vLLM, configure_kv_cache_dtype of SGLang)."""
    if type_name == "auto":
        return "fp8" if engine in facts.cache_fp8 else "bf16"
    return type_name
