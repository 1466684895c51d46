"""Which keys of a GGUF header change nothing of the memory, so that every other one is named.

The names are those that llama.cpp b11549 reads (src/llama-arch.cpp), without its `%s.`. A key that
is neither here nor read by `facts_from_gguf` may change the number of caches, as the loops of
nanbeige do: the sum is then unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from console.models.gguf.header import ValueType

PER_LAYER = ("feed_forward_length", "attention.head_count", "attention.head_count_kv")
WHOLE_NUMBERS = ("UINT32", "INT32")
LOADER_TYPES = {
    **dict.fromkeys((
        "block_count", "context_length", "embedding_length", "expert_count", "expert_used_count",
        "attention.key_length", "attention.value_length", "rope.dimension_count", *PER_LAYER,
        "attention.key_length_swa", "embedding_length_out", "expert_group_count",
        "expert_group_used_count", "nextn_predict_layers", "pooling_type",
        "rope.dimension_count_swa", "rope.scaling.original_context_length", "vocab_size",
    ), ValueType.UINT32),
    **dict.fromkeys((
        "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "rope.freq_base",
        "rope.scale_linear", "rope.scaling.attn_factor", "rope.scaling.factor",
    ), ValueType.FLOAT32),
    **dict.fromkeys(("attention.causal", "rope.scaling.finetuned"), ValueType.BOOL),
    "rope.scaling.type": ValueType.STRING,
}  # fmt: skip
"""Types of the keys that llama.cpp reads of every architecture (`load_hparams`): of another type it
ends with "key … has wrong type". PER_LAYER may be arrays of WHOLE_NUMBERS instead."""
_TOKENS = (
    "bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "prefix", "suffix",
    "middle", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep",
)  # fmt: skip
NAMES = {
    "general.name": ValueType.STRING, "general.file_type": ValueType.UINT32,
    "tokenizer.ggml.model": ValueType.STRING, "tokenizer.ggml.pre": ValueType.STRING,
    "tokenizer.ggml.token_type_count": ValueType.UINT32,
}  # fmt: skip
"""Types of the keys that llama.cpp reads of every file, whatever its architecture."""
OF_TOKENS = {
    **{f"tokenizer.ggml.{name}_token_id": ValueType.UINT32 for name in _TOKENS},
    **{
        f"tokenizer.ggml.{name}": ValueType.BOOL for name in (
            "add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix",
            "remove_extra_whitespaces", "normalizer.lowercase",
        )
    },
}  # fmt: skip
"""Types of the keys that it reads of a vocabulary; a model without one is asked for none. Learned
from build 11669, which was given each of them with another type."""
WITHOUT_TOKENS = ("none", "no_vocab")
"""Tokenizers of a model without a vocabulary: nothing else of it is read."""
LOADER_NAMES = {
    ValueType.UINT8: "u8", ValueType.INT8: "i8", ValueType.UINT16: "u16", ValueType.INT16: "i16",
    ValueType.UINT32: "u32", ValueType.INT32: "i32", ValueType.FLOAT32: "f32",
    ValueType.BOOL: "bool", ValueType.STRING: "str", ValueType.ARRAY: "arr",
    ValueType.UINT64: "u64", ValueType.INT64: "i64", ValueType.FLOAT64: "f64",
}  # fmt: skip
"""The types as llama.cpp calls them (ggml/src/gguf.cpp)."""
MAX_NAMED = 3
HARMLESS = frozenset({
    "activation_sparsity_scale", "altup.active_idx", "altup.num_inputs", "attention.causal",
    "attention.clamp_kqv", "attention.compress_rope_freq_base", "attention.decay_lora_rank",
    "attention.gate_lora_rank", "attention.group_norm_epsilon", "attention.group_norm_groups",
    "attention.iclr_lora_rank", "attention.indexer.head_count", "attention.indexer.top_k",
    "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.max_alibi_bias",
    "attention.output_scale", "attention.q_lora_rank", "attention.relative_buckets_count",
    "attention.scale", "attention.temperature_length", "attention.temperature_scale",
    "attention.value_residual_mix_lora_rank", "attention.value_scale", "attn_logit_softcapping",
    "classifier.activation", "classifier.output_labels", "classifier.pooling_type",
    "decoder_start_token_id", "deepstack_mapping", "embedding_length_out",
    "embedding_length_per_layer_input", "embedding_scale", "expert_chunk_feed_forward_length",
    "expert_gating_func", "expert_group_count", "expert_group_scale", "expert_group_used_count",
    "expert_shared_feed_forward_length", "expert_weights_norm", "expert_weights_scale",
    "experts_per_group", "final_logit_softcapping", "hidden_activation",
    "interleave_moe_layer_step", "logit_scale", "moe_every_n_layers", "moe_latent_size",
    "n_deepstack_layers", "norm_before_fc", "norm_before_residual", "pooling_type",
    "rescale_every_n_layers", "residual_scale", "rope.dimension_count_swa",
    "rope.dimension_sections", "rope.freq_base", "rope.freq_base_swa", "rope.scale_linear",
    "rope.scaling.alpha", "rope.scaling.attn_factor", "rope.scaling.factor",
    "rope.scaling.finetuned", "rope.scaling.original_context_length", "rope.scaling.type",
    "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_log_multiplier", "router_logit_softcapping",
    "ssm.dt_b_c_rms", "ssm.time_step_rank", "swiglu_clamp_exp", "swiglu_clamp_shexp", "swin_norm",
    "tensor_data_layout", "time_decay_extra_dim", "time_mix_extra_dim", "use_parallel_residual",
})  # fmt: skip

SOMETIMES = frozenset({
    "attention.indexer.types", "attention.recurrent_layers", "attention.sliding_window",
    "attention.sliding_window_pattern", "attention.value_length_mla", "expert_feed_forward_length",
    "expert_used_count", "full_attention_interval", "ssm.conv_kernel", "ssm.group_count",
    "ssm.inner_size", "ssm.state_size", "token_shift_count", "vocab_size", "wkv.head_size",
})  # fmt: skip
"""Keys that `facts_from_gguf` asks for only beside others."""


def not_understood(names: Iterable[str], prefix: str, read: Iterable[str]) -> list[str]:
    """Words for the keys of an architecture that nobody here understands, a few of them."""
    known = HARMLESS | SOMETIMES | set(read)
    unknown_keys = [
        name for name in names if name.startswith(prefix) and name[len(prefix) :] not in known
    ]
    more = (
        [f"and {len(unknown_keys) - MAX_NAMED} more keys"] if len(unknown_keys) > MAX_NAMED else []
    )
    return [f"{name} (nobody here knows what it does)" for name in unknown_keys[:MAX_NAMED]] + more
