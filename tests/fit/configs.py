"""config.json of published models, as far as sizes go."""

from __future__ import annotations

DEEPSEEK_R1: dict[str, object] = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "vocab_size": 129280, "num_attention_heads": 128, "num_key_value_heads": 128,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
}  # fmt: skip
DISTILL_32B: dict[str, object] = {
    "model_type": "qwen2", "num_hidden_layers": 64, "hidden_size": 5120, "vocab_size": 152064,
    "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 27648,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "sliding_window": 131072,
    "use_sliding_window": False,
}  # fmt: skip
MIXTRAL: dict[str, object] = {
    "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 32000,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}  # fmt: skip
GEMMA3_27B: dict[str, object] = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376,
        "vocab_size": 262208, "num_attention_heads": 32, "num_key_value_heads": 16,
        "head_dim": 128, "intermediate_size": 21504, "sliding_window": 1024,
        "sliding_window_pattern": 6, "max_position_embeddings": 131072,
    },
}  # fmt: skip
QWEN3_235B: dict[str, object] = {
    "model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096,
    "vocab_size": 151936, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128,
    "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "max_position_embeddings": 40960, "sliding_window": None, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_NEXT: dict[str, object] = {
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
    "vocab_size": 151936, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "intermediate_size": 5120, "linear_num_value_heads": 32, "full_attention_interval": 4,
    "max_position_embeddings": 262144,
}  # fmt: skip
