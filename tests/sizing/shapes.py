"""Headers and config.json of large models in their true shape and tensor types, as far as sizes go.

The sums match published files: DeepSeek-R1 Q4_K_M (old conversion) 376.65 GiB, Q3_K_M 297.3 GiB.
"""

from dataclasses import dataclass, field

from console.models.gguf.header import Array
from tests.sizing.tiny import FakeHeader, FakeTensor

# bytes for so many elements, as in ggml
SIZES = {
    "F32": (4, 1), "F16": (2, 1), "Q8_0": (34, 32), "Q3_K": (110, 256), "Q4_K": (144, 256),
    "Q5_K": (176, 256), "Q6_K": (210, 256),
}  # fmt: skip


@dataclass
class Shape:
    """A header while it is put together."""

    arch: str
    keys: dict[str, int | list[int]]
    tensors: list[FakeTensor] = field(default_factory=list)

    def add(self, name: str, kind: str, *dims: int) -> None:
        size, block = SIZES[kind]
        count = 1
        for dim in dims:
            count *= dim
        self.tensors.append(FakeTensor(name, dims, kind, count // block * size))

    def header(self) -> FakeHeader:
        kv: dict[str, object] = {"general.architecture": self.arch}
        for key, value in self.keys.items():
            if isinstance(value, list):
                kv[f"{self.arch}.{key}"] = Array("INT32", len(value), tuple(value))
            else:
                kv[f"{self.arch}.{key}"] = value
        return FakeHeader(kv, self.tensors)


def more_bits(layer: int, layers: int) -> bool:
    """The layers whose down projection the *_M mixes quantize with more bits."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


R1_LAYERS, R1_WIDTH, R1_HEADS, R1_VOCABULARY = 61, 7168, 128, 129280


def deepseek_r1(quantization: str, latent: bool = True, arch: str = "deepseek2") -> FakeHeader:
    """DeepSeek-R1 (671 B) as Q4_K_M or Q3_K_M; `latent` False: converted before April 2025."""
    base = {"Q4_K_M": "Q4_K", "Q3_K_M": "Q3_K"}[quantization]
    rank, nope, rope, value = 512, 128, 64, 128
    keys: dict[str, int | list[int]] = {
        "block_count": R1_LAYERS, "context_length": 163840, "embedding_length": R1_WIDTH,
        "feed_forward_length": 18432, "attention.head_count": R1_HEADS,
        "leading_dense_block_count": 3, "attention.q_lora_rank": 1536,
        "attention.kv_lora_rank": rank, "expert_count": 256, "expert_used_count": 8,
        "expert_shared_count": 1, "expert_feed_forward_length": 2048, "rope.dimension_count": rope,
        "attention.head_count_kv": 1 if latent else R1_HEADS,
        "attention.key_length": rank + rope if latent else nope + rope,
        "attention.value_length": rank if latent else value,
    }  # fmt: skip
    if latent:
        keys |= {"attention.key_length_mla": nope + rope, "attention.value_length_mla": value}
    shape = Shape(arch, keys)
    shape.add("token_embd.weight", base, R1_WIDTH, R1_VOCABULARY)
    shape.add("output_norm.weight", "F32", R1_WIDTH)
    shape.add("output.weight", "Q6_K", R1_WIDTH, R1_VOCABULARY)
    for layer in range(R1_LAYERS):
        down = "Q6_K" if more_bits(layer, R1_LAYERS) else "Q4_K"
        if base == "Q3_K":
            down = "Q5_K" if layer < R1_LAYERS // 16 else "Q4_K"
        _r1_layer(shape, layer, base, down, latent)
    return shape.header()


def _r1_layer(shape: Shape, layer: int, base: str, down: str, latent: bool) -> None:
    block, width, heads = f"blk.{layer}", R1_WIDTH, R1_HEADS
    shape.add(f"{block}.attn_norm.weight", "F32", width)
    shape.add(f"{block}.attn_q_a.weight", base, width, 1536)
    shape.add(f"{block}.attn_q_a_norm.weight", "F32", 1536)
    shape.add(f"{block}.attn_q_b.weight", base, 1536, heads * 192)
    shape.add(f"{block}.attn_kv_a_mqa.weight", base, width, 576)
    shape.add(f"{block}.attn_kv_a_norm.weight", "F32", 512)
    if latent:
        shape.add(f"{block}.attn_k_b.weight", "Q8_0", 128, 512, heads)
        shape.add(f"{block}.attn_v_b.weight", "Q8_0", 512, 128, heads)
    else:
        shape.add(f"{block}.attn_kv_b.weight", base, 512, heads * 256)
    shape.add(f"{block}.attn_output.weight", "Q4_K", heads * 128, width)
    shape.add(f"{block}.ffn_norm.weight", "F32", width)
    if layer < 3:
        shape.add(f"{block}.ffn_gate.weight", base, width, 18432)
        shape.add(f"{block}.ffn_up.weight", base, width, 18432)
        shape.add(f"{block}.ffn_down.weight", down, 18432, width)
        return
    shape.add(f"{block}.ffn_gate_inp.weight", "F32", width, 256)
    shape.add(f"{block}.exp_probs_b.bias", "F32", 256)
    for name, dims in (("exps", (256,)), ("shexp", ())):
        shape.add(f"{block}.ffn_gate_{name}.weight", base, width, 2048, *dims)
        shape.add(f"{block}.ffn_up_{name}.weight", base, width, 2048, *dims)
        shape.add(f"{block}.ffn_down_{name}.weight", down, 2048, width, *dims)


def deepseek_v32() -> FakeHeader:
    """DeepSeek-V3.2 as Q3_K_M: R1's shape and an indexer in every layer."""
    like = deepseek_r1("Q3_K_M", arch="deepseek32")
    sizes = {"head_count": 64, "key_length": 128, "top_k": 2048}
    for key, value in sizes.items():
        like.kv[f"deepseek32.attention.indexer.{key}"] = value
    shape = Shape("deepseek32", {}, like.tensors or [])
    for layer in range(R1_LAYERS):
        block = f"blk.{layer}.indexer"
        shape.add(f"{block}.k_norm.weight", "F32", 128)
        shape.add(f"{block}.k_norm.bias", "F32", 128)
        shape.add(f"{block}.proj.weight", "F32", R1_WIDTH, 64)
        shape.add(f"{block}.attn_k.weight", "Q8_0", R1_WIDTH, 128)
        shape.add(f"{block}.attn_q_b.weight", "Q8_0", 1536, 64 * 128)
    return like


def dense(
    arch: str, width: int, layers: int, heads: int, kv_heads: int, forward: int, vocabulary: int,
    tied: bool = False, experts: int = 0, **more: int,
) -> FakeHeader:  # fmt: skip
    """A model as Q4_K_M, heads of 128; dense, or with `experts` in every layer."""
    keys: dict[str, int | list[int]] = {
        "block_count": layers, "context_length": 131072, "embedding_length": width,
        "feed_forward_length": forward, "attention.head_count": heads,
        "attention.head_count_kv": kv_heads, "attention.key_length": 128,
        "attention.value_length": 128,
        **{key.replace("__", "."): value for key, value in more.items()},
    }  # fmt: skip
    shape = Shape(arch, keys)
    kind, size = ("_exps", more["expert_feed_forward_length"]) if experts else ("", forward)
    dims = (experts,) if experts else ()
    shape.add("token_embd.weight", "Q6_K" if tied else "Q4_K", width, vocabulary)
    shape.add("output_norm.weight", "F32", width)
    if not tied:
        shape.add("output.weight", "Q6_K", width, vocabulary)
    for layer in range(layers):
        block = f"blk.{layer}"
        down = "Q6_K" if more_bits(layer, layers) else "Q4_K"
        shape.add(f"{block}.attn_norm.weight", "F32", width)
        shape.add(f"{block}.attn_q.weight", "Q4_K", width, heads * 128)
        shape.add(f"{block}.attn_k.weight", "Q4_K", width, kv_heads * 128)
        shape.add(f"{block}.attn_v.weight", "Q4_K", width, kv_heads * 128)
        shape.add(f"{block}.attn_output.weight", "Q4_K", heads * 128, width)
        shape.add(f"{block}.ffn_norm.weight", "F32", width)
        if experts:
            shape.add(f"{block}.ffn_gate_inp.weight", "F32", width, experts)
            for which in "qk":
                shape.add(f"{block}.attn_{which}_norm.weight", "F32", 128)
        shape.add(f"{block}.ffn_gate{kind}.weight", "Q4_K", width, size, *dims)
        shape.add(f"{block}.ffn_up{kind}.weight", "Q4_K", width, size, *dims)
        shape.add(f"{block}.ffn_down{kind}.weight", down, size, width, *dims)
    return shape.header()


def qwen3_235b() -> FakeHeader:
    """Qwen3-235B-A22B as Q4_K_M."""
    return dense(
        "qwen3moe", 4096, 94, 64, 4, 12288, 151936, experts=128, expert_count=128,
        expert_used_count=8, expert_feed_forward_length=1536,
    )  # fmt: skip


def distill_32b() -> FakeHeader:
    """DeepSeek-R1-Distill-Qwen-32B as Q4_K_M."""
    return dense("qwen2", 5120, 64, 40, 8, 27648, 152064)


def llama_70b() -> FakeHeader:
    return dense("llama", 8192, 80, 64, 8, 28672, 128256)


def gemma3_27b() -> FakeHeader:
    return dense(
        "gemma3", 5376, 62, 32, 16, 21504, 262208, tied=True, attention__sliding_window=1024
    )


DEEPSEEK_R1: dict[str, object] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "vocab_size": 129280, "num_attention_heads": 128, "num_key_value_heads": 128,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
}  # fmt: skip
DISTILL_32B: dict[str, object] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2", "num_hidden_layers": 64, "hidden_size": 5120, "vocab_size": 152064,
    "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 27648,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "sliding_window": 131072,
    "use_sliding_window": False,
}  # fmt: skip
MIXTRAL: dict[str, object] = {
    "architectures": ["MixtralForCausalLM"],
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
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096,
    "vocab_size": 151936, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128,
    "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "max_position_embeddings": 40960, "sliding_window": None, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_NEXT: dict[str, object] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
    "vocab_size": 151936, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "intermediate_size": 5120, "linear_num_value_heads": 32, "full_attention_interval": 4,
    "max_position_embeddings": 262144,
}  # fmt: skip
