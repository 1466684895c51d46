"""What kernels a model wants of an engine beyond the type of its weights: the kind of its
attention, and of how many weights its experts share a scale.

The compatibility table has a row for each kind, engine and compute capability of which there is
evidence; these are the names in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from console.models.sizing.model_facts import Attention, Recurrent

PLAIN, WINDOW, WIDE, STATES, SINKS = "plain", "window", "wide heads", "states", "sinks"
LATENT, SPARSE_LATENT, LATENT_SINKS = "MLA", "sparse MLA", "MLA with sinks"
SPARSE, COMPRESSED, CHUNKS, SWITCHED_OFF = "sparse", "compressed", "dual chunk", "MLA switched off"
USUAL_HEAD = 128
"""Elements of a head up to which every kernel of attention has a form that fits every card."""
_SPARSE = re.compile(r"index_topk\w*|index_kpool|sparse_attention\w*|sparse_config|nsa_\w+|moba\w*")
"""Keys of attention to a choice of tokens (DeepSeek-V3.2, GLM-5, MiniMax-M3, MiniCPM)."""
_SINKS = re.compile(r"\w*(?:attention|attn)_sink\w*|use_sinks?")
_OF_SINKS = frozenset(("GptOssForCausalLM",))
"""Classes whose heads always have a sink, which no key of their configuration tells."""

BLOCK, CHANNEL, TENSOR, GROUP, WHOLE = "block", "channel", "tensor", "group", "none"
OTHER = "other"
"""A quantization that does not say of how many weights a scale is."""
IN_WORDS = {
    PLAIN: "over the whole context", WINDOW: "in a window", WIDE: "with wide heads",
    STATES: "beside layers with states", SINKS: "with sinks", CHUNKS: "in dual chunks",
    BLOCK: "with a scale for each block", CHANNEL: "with a scale for each channel",
    TENSOR: "with one scale for each tensor", GROUP: "with a scale for each group",
    WHOLE: "without scales", OTHER: "with scales of an unknown kind",
}  # fmt: skip
"""How a finding calls a kind, where its name alone says nothing."""
_STRATEGIES = {
    "block": BLOCK, "channel": CHANNEL, "tensor": TENSOR, "group": GROUP, "tensor_group": GROUP,
}  # fmt: skip
"""Of compressed-tensors: the strategy of its weights."""
_METHODS = {
    "fp8": TENSOR, "fbgemm_fp8": CHANNEL, "awq": GROUP, "gptq": GROUP, "mxfp4": GROUP,
    "auto-round": GROUP, "w8a8_int8": CHANNEL, "w8a8_fp8": CHANNEL,
}  # fmt: skip
"""What a method has that names no blocks."""
_ALGORITHMS = {
    "FP8": TENSOR, "NVFP4": GROUP, "FP8_PB_WO": BLOCK, "FP8_PER_CHANNEL_PER_TOKEN": CHANNEL,
}  # fmt: skip
"""Of ModelOpt: its algorithm."""


def attention_kind(
    table: Mapping[str, object], attention: Attention, recurrent: Recurrent | None,
    classes: Iterable[str],
) -> str:  # fmt: skip
    """The kind of attention by a configuration: of several the one that fewest kernels have."""
    sparse = any(value and _SPARSE.fullmatch(name) for name, value in table.items())
    sinks = bool(_OF_SINKS.intersection(classes)) or any(
        value and _SINKS.fullmatch(name) for name, value in table.items()
    )
    if table.get("compress_ratios"):
        return COMPRESSED
    if attention.latent:
        return LATENT_SINKS if sinks else SPARSE_LATENT if sparse else LATENT
    if sparse:
        return SPARSE
    if table.get("dual_chunk_attention_config"):
        return CHUNKS
    if sinks:
        return SINKS
    if recurrent is not None or 0 in (attention.kv_heads or ()):
        return STATES
    if max(attention.key or 0, attention.window_key or 0) > USUAL_HEAD:
        return WIDE
    return WINDOW if attention.has_window else PLAIN


def scale_kind(how: Mapping[str, object]) -> str:
    """Of which weights a scale is, by a quantization; `none` where there is no quantization."""
    if not how:
        return WHOLE
    if isinstance(how.get("weight_block_size"), list):
        return BLOCK
    groups = how.get("config_groups")
    algorithm = _ALGORITHMS.get(str(how.get("quant_algo")).upper())
    if isinstance(groups, Mapping) and not (algorithm and _without_strategy(groups)):
        kinds = {_of_group(group) for group in groups.values()}
        return kinds.pop() if len(kinds) == 1 else OTHER
    inner = how.get("quantization")
    scale_source = inner if isinstance(inner, Mapping) else how
    algorithm = algorithm or _ALGORITHMS.get(str(scale_source.get("quant_algo")).upper())
    return algorithm or _METHODS.get(str(how.get("quant_method")).lower(), OTHER)


def _without_strategy(groups: Mapping[str, object]) -> bool:
    """ModelOpt writes groups without a strategy beside its algorithm, which stands for all."""
    weights = [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
    return not any(isinstance(each, Mapping) and each.get("strategy") for each in weights)


def _of_group(group: object) -> str:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    strategy = weights.get("strategy") if isinstance(weights, Mapping) else None
    return _STRATEGIES.get(str(strategy), OTHER)
