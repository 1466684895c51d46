"""Checkpoints of mixed precision, tensor by tensor, as their publishers store them."""

import json
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

from tests.testbed.hub import File, Repo, files

BITS = {"BF16": 16, "F32": 32, "I32": 32, "U8": 8, "F8_E4M3": 8, "F16": 16, "I64": 64}
Tensor = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape."""


def size(tensor: Tensor) -> int:
    return prod(tensor[2]) * BITS[tensor[1]] // 8


def header(tensors: Iterable[Tensor]) -> bytes:
    at, entries = 0, dict[str, Any]()
    for tensor in tensors:
        name, dtype, shape = tensor
        places = [at, at := at + size(tensor)]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": places}
    return framed(json.dumps(entries, separators=(",", ":")).encode())


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def file(tensors: list[Tensor]) -> File:
    head = header(tensors)
    return File(len(head) + sum(map(size, tensors)), head)


def repo(
    name: str, config: dict[str, Any], tensors: list[Tensor], shards: int, total: int | None = None
) -> Repo:
    """The repository in `shards` files of consecutive tensors; `total` is what its index claims."""
    made: dict[str, Any] = {"config.json": config}
    if shards == 1:
        return Repo(name, files(made | {"model.safetensors": file(tensors)}))
    each = -(-len(tensors) // shards)
    where = {}
    for number in range(shards):
        part = tensors[number * each : (number + 1) * each]
        path = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        made[path] = file(part)
        where |= {tensor[0]: path for tensor in part}
    about = {"total_size": sum(map(size, tensors)) if total is None else total}
    made["model.safetensors.index.json"] = {"metadata": about, "weight_map": where}
    return Repo(name, files(made))


def dense(tensors: Iterable[Tensor]) -> int:
    """Bytes of all that is no routed expert, by the names alone."""
    return sum(size(one) for one in tensors if ".experts." not in one[0])


def packed(name: str, rows: int, columns: int, group: int = 32) -> Iterator[Tensor]:
    """A matrix in four bits, as compressed-tensors packs it."""
    yield f"{name}.weight_packed", "I32", (rows, columns // 8)
    yield f"{name}.weight_scale", "BF16", (rows, columns // group)
    yield f"{name}.weight_shape", "I32", (2,)


KIMI: dict[str, Any] = {
    "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
    "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "vocab_size": 163840, "max_position_embeddings": 262144,
    "quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
    },
}  # fmt: skip


def kimi_k2_thinking(experts: int = 384) -> list[Tensor]:
    """Experts in INT4, everything else in BF16."""
    found: list[Tensor] = [("model.embed_tokens.weight", "BF16", (163840, 7168))]
    for layer in range(61):
        at = f"model.layers.{layer}"
        for name, rows, columns in (
            ("q_a_proj", 1536, 7168), ("q_b_proj", 12288, 1536), ("kv_a_proj_with_mqa", 576, 7168),
            ("kv_b_proj", 16384, 512), ("o_proj", 7168, 8192),
        ):  # fmt: skip
            found.append((f"{at}.self_attn.{name}.weight", "BF16", (rows, columns)))
        found.append((f"{at}.input_layernorm.weight", "BF16", (7168,)))
        if layer:
            found.append((f"{at}.mlp.gate.weight", "BF16", (384, 7168)))
        parts = ("mlp.shared_experts", 2048) if layer else ("mlp", 18432)
        for name, rows, columns in three(parts[1], 7168):
            found.append((f"{at}.{parts[0]}.{name}.weight", "BF16", (rows, columns)))
        for expert in range(experts if layer else 0):
            for name, rows, columns in three(2048, 7168):
                found += packed(f"{at}.mlp.experts.{expert}.{name}", rows, columns)
    return [*found, ("model.norm.weight", "BF16", (7168,)),
            ("lm_head.weight", "BF16", (163840, 7168))]  # fmt: skip


def three(width: int, into: int) -> tuple[tuple[str, int, int], ...]:
    return ("gate_proj", width, into), ("up_proj", width, into), ("down_proj", into, width)


GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64,
    "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 201088, "max_position_embeddings": 131072, "num_local_experts": 128,
    "num_experts_per_tok": 4, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                   "model.embed_tokens", "lm_head"],
    },
}  # fmt: skip


def gpt_oss_120b() -> list[Tensor]:
    """Experts of a layer in one tensor of blocks of MXFP4 and one of scales."""
    found: list[Tensor] = [("model.embed_tokens.weight", "BF16", (201088, 2880))]
    for layer in range(36):
        at = f"model.layers.{layer}"
        found += [
            (f"{at}.self_attn.q_proj.weight", "BF16", (4096, 2880)),
            (f"{at}.self_attn.k_proj.weight", "BF16", (512, 2880)),
            (f"{at}.self_attn.v_proj.weight", "BF16", (512, 2880)),
            (f"{at}.self_attn.o_proj.weight", "BF16", (2880, 4096)),
            (f"{at}.self_attn.sinks", "BF16", (64,)),
            (f"{at}.mlp.router.weight", "BF16", (128, 2880)),
            (f"{at}.mlp.experts.gate_up_proj_blocks", "U8", (128, 5760, 90, 16)),
            (f"{at}.mlp.experts.gate_up_proj_scales", "U8", (128, 5760, 90)),
            (f"{at}.mlp.experts.gate_up_proj_bias", "BF16", (128, 5760)),
            (f"{at}.mlp.experts.down_proj_blocks", "U8", (128, 2880, 90, 16)),
            (f"{at}.mlp.experts.down_proj_scales", "U8", (128, 2880, 90)),
            (f"{at}.mlp.experts.down_proj_bias", "BF16", (128, 2880)),
        ]
    return [*found, ("model.norm.weight", "BF16", (2880,)),
            ("lm_head.weight", "BF16", (201088, 2880))]  # fmt: skip


MAVERICK: dict[str, Any] = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 128,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "vocab_size": 202048,
        "max_position_embeddings": 1048576,
    },
    "quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized"},
}  # fmt: skip


def maverick_fp8() -> list[Tensor]:
    """Routed experts in FP8, in every other layer; a tower for images beside it."""
    at = "language_model.model"
    found: list[Tensor] = [(f"{at}.embed_tokens.weight", "BF16", (202048, 5120))]
    for layer in range(48):
        block = f"{at}.layers.{layer}"
        for name, rows, columns in (
            ("q_proj", 5120, 5120), ("k_proj", 1024, 5120), ("v_proj", 1024, 5120),
            ("o_proj", 5120, 5120),
        ):  # fmt: skip
            found.append((f"{block}.self_attn.{name}.weight", "BF16", (rows, columns)))
        if layer % 2 == 0:
            for name, rows, columns in three(16384, 5120):
                found.append((f"{block}.feed_forward.{name}.weight", "BF16", (rows, columns)))
            continue
        found.append((f"{block}.feed_forward.router.weight", "BF16", (128, 5120)))
        for name, rows, columns in three(8192, 5120):
            inner = f"{block}.feed_forward"
            found.append((f"{inner}.shared_expert.{name}.weight", "BF16", (rows, columns)))
            for expert in range(128):
                one = f"{inner}.experts.{expert}.{name}"
                found += [(f"{one}.weight", "F8_E4M3", (rows, columns)),
                          (f"{one}.weight_scale", "F32", (rows, 1))]  # fmt: skip
    for layer in range(34):
        found.append((f"vision_model.model.layers.{layer}.mlp.fc1.weight", "BF16", (5632, 1408)))
    return [*found, ("language_model.lm_head.weight", "BF16", (202048, 5120))]


MIXED_BITS: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
    "num_experts_per_tok": 8, "max_position_embeddings": 40960,
    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
}  # fmt: skip


def gptq_mixed() -> list[Tensor]:
    """GPTQ with eight bits in the first four and the last four layers: one pattern, two sizes."""
    found: list[Tensor] = [("model.embed_tokens.weight", "F16", (151936, 2048))]
    for layer in range(48):
        at, bits = f"model.layers.{layer}", 8 if layer < 4 or layer >= 44 else 4
        for name, columns, rows in (
            ("q_proj", 2048, 4096), ("k_proj", 2048, 512), ("o_proj", 4096, 2048),
        ):  # fmt: skip
            found.append((f"{at}.self_attn.{name}.weight", "F16", (rows, columns)))
        for expert in range(128):
            for name, rows, columns in three(768, 2048):
                one = f"{at}.mlp.experts.{expert}.{name}"
                found += [(f"{one}.qweight", "I32", (columns * bits // 32, rows)),
                          (f"{one}.scales", "F16", (columns // 128, rows)),
                          (f"{one}.g_idx", "I32", (columns,))]  # fmt: skip
    return [*found, ("lm_head.weight", "F16", (151936, 2048))]
