"""Repositories with the true shapes of real ones: names, sizes, config.json and GGUF headers.

A GGUF file's size is its header and the data of the tensors it declares, in the types that
llama.cpp's Q3_K_M and Q4_K_M use. Where operators' notes say 642 GB, their tool counted GiB.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from console.models.gguf.header import BY_NUMBER, ValueType, row_bytes
from tests.testbed.gguf_write import Item, Planned, Typed, data_bytes, encode
from tests.testbed.hub import File, Repo, files

F32, Q5_0, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL = 0, 6, 11, 12, 13, 14, 20
BLOCK_INT8_TOTAL = 642 << 30

DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
    "rope_theta": 10000, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
}  # fmt: skip
QWEN_32B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 5120,
    "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
    "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 131072,
    "rope_theta": 1000000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
_BLOCKS = {"activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def more_bits(layer: int, layers: int) -> bool:
    """The layers that llama.cpp's _M mixtures give more bits to."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2


def deepseek_tensors(mixture: str, layers: int = 61) -> Iterator[Planned]:
    """A DeepSeek-R1 as llama.cpp converts it today (latent attention): 1086 tensors."""
    base, low = (Q3_K, IQ4_NL) if mixture == "Q3_K_M" else (Q4_K, Q5_0)
    yield Planned("token_embd.weight", (7168, 129280), base)
    for n in range(layers):
        if mixture == "Q3_K_M":
            down = Q5_K if n < layers // 16 else Q4_K
        else:
            down = Q6_K if more_bits(n, layers) else Q4_K
        rows: list[tuple[str, tuple[int, ...], int]] = [
            ("attn_norm", (7168,), F32), ("attn_q_a", (7168, 1536), base),
            ("attn_q_a_norm", (1536,), F32), ("attn_q_b", (1536, 24576), base),
            ("attn_kv_a_mqa", (7168, 576), base), ("attn_kv_a_norm", (512,), F32),
            ("attn_k_b", (128, 512, 128), low), ("attn_v_b", (512, 128, 128), base),
            ("attn_output", (16384, 7168), base), ("ffn_norm", (7168,), F32),
        ]  # fmt: skip
        if n < 3:
            rows += [("ffn_gate", (7168, 18432), base), ("ffn_up", (7168, 18432), base),
                     ("ffn_down", (18432, 7168), down)]  # fmt: skip
        else:
            rows += [
                ("ffn_gate_inp", (7168, 256), F32), ("exp_probs_b", (256,), F32),
                ("ffn_gate_exps", (7168, 2048, 256), base),
                ("ffn_up_exps", (7168, 2048, 256), base),
                ("ffn_down_exps", (2048, 7168, 256), down),
                ("ffn_gate_shexp", (7168, 2048), base), ("ffn_up_shexp", (7168, 2048), base),
                ("ffn_down_shexp", (2048, 7168), down),
            ]  # fmt: skip
        for name, dims, kind in rows:
            suffix = "bias" if name == "exp_probs_b" else "weight"
            yield Planned(f"blk.{n}.{name}.{suffix}", dims, kind)
    yield Planned("output_norm.weight", (7168,), F32)
    yield Planned("output.weight", (7168, 129280), Q6_K)


def qwen_tensors(layers: int = 64) -> Iterator[Planned]:
    """A Qwen2 32B in Q4_K_M: 771 tensors."""
    yield Planned("token_embd.weight", (5120, 152064), Q4_K)
    for n in range(layers):
        more = Q6_K if more_bits(n, layers) else Q4_K
        for name, dims, kind in (
            ("attn_norm.weight", (5120,), F32), ("attn_q.weight", (5120, 5120), Q4_K),
            ("attn_q.bias", (5120,), F32), ("attn_k.weight", (5120, 1024), Q4_K),
            ("attn_k.bias", (1024,), F32), ("attn_v.weight", (5120, 1024), more),
            ("attn_v.bias", (1024,), F32), ("attn_output.weight", (5120, 5120), Q4_K),
            ("ffn_norm.weight", (5120,), F32), ("ffn_gate.weight", (5120, 27648), Q4_K),
            ("ffn_up.weight", (5120, 27648), Q4_K), ("ffn_down.weight", (27648, 5120), more),
        ):  # fmt: skip
            yield Planned(f"blk.{n}.{name}", dims, kind)
    yield Planned("output_norm.weight", (5120,), F32)
    yield Planned("output.weight", (5120, 152064), Q6_K)


def deepseek_metadata(file_type: int) -> dict[str, Item]:
    a = "deepseek2"
    return {
        "general.architecture": a, "general.name": "DeepSeek R1",
        "general.file_type": file_type, "general.quantization_version": 2,
        f"{a}.block_count": 61, f"{a}.context_length": 163840, f"{a}.embedding_length": 7168,
        f"{a}.feed_forward_length": 18432, f"{a}.attention.head_count": 128,
        f"{a}.attention.head_count_kv": 1, f"{a}.attention.q_lora_rank": 1536,
        f"{a}.attention.kv_lora_rank": 512, f"{a}.attention.key_length": 576,
        f"{a}.attention.value_length": 512, f"{a}.attention.key_length_mla": 192,
        f"{a}.attention.value_length_mla": 128, f"{a}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{a}.rope.dimension_count": 64, f"{a}.rope.freq_base": 10000.0,
        f"{a}.rope.scaling.type": "yarn", f"{a}.rope.scaling.factor": 40.0,
        f"{a}.rope.scaling.original_context_length": 4096,
        f"{a}.leading_dense_block_count": 3, f"{a}.expert_count": 256,
        f"{a}.expert_used_count": 8, f"{a}.expert_shared_count": 1,
        f"{a}.expert_feed_forward_length": 2048, f"{a}.expert_weights_scale": 2.5,
        f"{a}.expert_weights_norm": True, f"{a}.expert_gating_func": 2, f"{a}.vocab_size": 129280,
        **vocabulary(129280, 127741, "deepseek-v3"),
    }  # fmt: skip


def qwen_metadata() -> dict[str, Item]:
    a = "qwen2"
    return {
        "general.architecture": a, "general.name": "DeepSeek R1 Distill Qwen 32B",
        "general.file_type": 15, "general.quantization_version": 2,
        f"{a}.block_count": 64, f"{a}.context_length": 131072, f"{a}.embedding_length": 5120,
        f"{a}.feed_forward_length": 27648, f"{a}.attention.head_count": 40,
        f"{a}.attention.head_count_kv": 8, f"{a}.rope.freq_base": 1000000.0,
        f"{a}.attention.layer_norm_rms_epsilon": 1e-5,
        **vocabulary(152064, 151387, "deepseek-r1-qwen"),
    }  # fmt: skip


def vocabulary(tokens: int, merges: int, pre: str) -> dict[str, Item]:
    """A tokenizer of the true size; its words are made up."""
    words: tuple[str, ...] = tuple(f"w{n}" for n in range(tokens))
    pairs: tuple[str, ...] = tuple(f"w{n} x{n}" for n in range(merges))
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": Typed(ValueType.STRING, words),
        "tokenizer.ggml.token_type": Typed(ValueType.INT32, (1,) * tokens),
        "tokenizer.ggml.merges": Typed(ValueType.STRING, pairs),
    }  # fmt: skip


def gguf(metadata: dict[str, Item], tensors: list[Planned], shards: int = 1) -> list[File]:
    """A GGUF file, or the files of a split set: only the first has all the metadata."""
    weights = [_padded(tensor) for tensor in tensors]
    made = []
    for number, part in enumerate(_split(weights, shards)):
        kv = dict(metadata) if number == 0 else {}
        if shards > 1:
            kv |= {"split.no": Typed(ValueType.UINT16, number),
                   "split.count": Typed(ValueType.UINT16, shards),
                   "split.tensors.count": Typed(ValueType.INT32, len(tensors))}  # fmt: skip
        head = encode(kv, [tensors[at] for at in part])
        made.append(File(len(head) + sum(weights[at] for at in part), head))
    return made


def _padded(tensor: Planned) -> int:
    assert row_bytes(BY_NUMBER[tensor.type], tensor.dims[0]) > 0
    return -(-data_bytes(tensor) // 32) * 32


def _split(weights: list[int], parts: int) -> list[range]:
    """Runs of consecutive tensors, of about the same weight each."""
    total, done, bounds = sum(weights), 0, [0]
    for at, weight in enumerate(weights):
        done += weight
        if done >= total * len(bounds) / parts and len(bounds) < parts:
            bounds.append(at + 1)
    return [range(low, high) for low, high in zip(bounds, [*bounds[1:], len(weights)], strict=True)]


def deepseek_checkpoint(scales: bool = True) -> Iterator[tuple[str, int]]:
    """(tensor, bytes) of the checkpoint as it was trained: one byte a weight, a scale a block."""

    def linear(name: str, out: int, into: int) -> Iterator[tuple[str, int]]:
        yield f"{name}.weight", out * into
        if scales:
            yield f"{name}.weight_scale_inv", -(-out // 128) * -(-into // 128) * 4

    def block(at: str, width: int) -> Iterator[tuple[str, int]]:
        for name, out, into in (
            ("gate_proj", width, 7168), ("up_proj", width, 7168), ("down_proj", 7168, width),
        ):  # fmt: skip
            yield from linear(f"{at}.{name}", out, into)

    yield "model.embed_tokens.weight", 129280 * 7168 * 2
    for n in range(62):
        at = f"model.layers.{n}"
        for name, out, into in (
            ("q_a_proj", 1536, 7168), ("q_b_proj", 24576, 1536), ("kv_a_proj_with_mqa", 576, 7168),
            ("kv_b_proj", 32768, 512), ("o_proj", 7168, 16384),
        ):  # fmt: skip
            yield from linear(f"{at}.self_attn.{name}", out, into)
        for name, width in (
            ("self_attn.q_a_layernorm", 1536), ("self_attn.kv_a_layernorm", 512),
            ("input_layernorm", 7168), ("post_attention_layernorm", 7168),
        ):  # fmt: skip
            yield f"{at}.{name}.weight", width * 2
        if n < 3:
            yield from block(f"{at}.mlp", 18432)
            continue
        yield f"{at}.mlp.gate.weight", 256 * 7168 * 2
        yield f"{at}.mlp.gate.e_score_correction_bias", 256 * 4
        yield from block(f"{at}.mlp.shared_experts", 2048)
        for expert in range(256):
            yield from block(f"{at}.mlp.experts.{expert}", 2048)
    yield "model.layers.61.embed_tokens.weight", 129280 * 7168 * 2
    yield "model.layers.61.eh_proj.weight", 7168 * 14336 * 2
    yield "model.layers.61.shared_head.head.weight", 129280 * 7168 * 2
    yield "model.norm.weight", 7168 * 2
    yield "lm_head.weight", 129280 * 7168 * 2


def qwen_checkpoint() -> Iterator[tuple[str, int]]:
    yield "model.embed_tokens.weight", 152064 * 5120 * 2
    for tensor in qwen_tensors():
        if tensor.name.startswith("blk."):
            size = 2
            for one in tensor.dims:
                size *= one
            yield f"model.layers.{tensor.name.removeprefix('blk.')}", size
    yield "model.norm.weight", 5120 * 2
    yield "lm_head.weight", 152064 * 5120 * 2


def header(tensors: Iterable[tuple[str, int]]) -> bytes:
    """The header of a safetensors file with these tensors, one byte an element."""
    at, entries = 0, {}
    for name, size in tensors:
        entries[name] = {"dtype": "I8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text


def sharded(
    tensors: list[tuple[str, int]], shards: int, total: int | None = None, digits: int = 5
) -> dict[str, Any]:
    """A safetensors set and its index; `total` is reached by one more tensor in the last file."""
    names = [f"model-{n:05}-of-{shards:0{digits}}.safetensors" for n in range(1, shards + 1)]
    parts = [[tensors[at] for at in part] for part in _split([s for _, s in tensors], shards)]
    if total is not None:
        more = total - sum(size for _, size in tensors)
        parts[-1].append(("model.filler.weight", more))  # a name of any size: the same header
        more -= sum(len(header(part)) for part in parts)
        parts[-1][-1] = ("model.filler.weight", more)
    made: dict[str, Any] = {}
    for name, part in zip(names, parts, strict=True):
        head = header(part)
        made[name] = File(len(head) + sum(size for _, size in part), head)
    where = {tensor: name for name, part in zip(names, parts, strict=True) for tensor, _ in part}
    size = sum(size for part in parts for _, size in part)
    index = {"metadata": {"total_size": size}, "weight_map": where}
    return {"model.safetensors.index.json": index, **made}


@cache
def block_int8() -> dict[str, File]:
    """meituan/DeepSeek-R1-Block-INT8: 163 files, 642 GiB."""
    config = DEEPSEEK | {"quantization_config": {"quant_method": "blockwise_int8"} | _BLOCKS}
    parts = sharded(list(deepseek_checkpoint()), 163, BLOCK_INT8_TOTAL, digits=6)
    return files({"config.json": config, "README.md": "block INT8", **parts})


@cache
def fp8() -> dict[str, File]:
    """deepseek-ai/DeepSeek-R1: FP8, 163 files, 688.6 GB."""
    scheme = {"quant_method": "fp8", "fmt": "e4m3"} | _BLOCKS
    parts = sharded(list(deepseek_checkpoint()), 163, digits=6)
    return files({"config.json": DEEPSEEK | {"quantization_config": scheme}, **parts})


@cache
def r1_gguf() -> dict[str, File]:
    """unsloth/DeepSeek-R1-GGUF: Q3_K_M in 7 files, Q4_K_M in 9, each in its directory."""
    made: dict[str, File] = {}
    for name, number, shards in (("Q3_K_M", 12, 7), ("Q4_K_M", 15, 9)):
        parts = gguf(deepseek_metadata(number), list(deepseek_tensors(name)), shards)
        for n, file in enumerate(parts, 1):
            stem = f"DeepSeek-R1-{name}/DeepSeek-R1-{name}"
            made[f"{stem}-{n:05}-of-{shards:05}.gguf"] = file
    return made | files({"config.json": DEEPSEEK, "README.md": "GGUF"})


@cache
def distill() -> dict[str, File]:
    """deepseek-ai/DeepSeek-R1-Distill-Qwen-32B: BF16, 8 files, 65.5 GB."""
    parts = sharded(list(qwen_checkpoint()), 8, digits=6)
    return files({"config.json": QWEN_32B, **parts})


@cache
def distill_gguf() -> dict[str, File]:
    (one,) = gguf(qwen_metadata(), list(qwen_tensors()))
    return {"DeepSeek-R1-Distill-Qwen-32B-Q4_K_M.gguf": one} | files({"README.md": "GGUF"})


def missing_shard() -> dict[str, File]:
    gone = "-00004-of-00007.gguf"
    return {path: file for path, file in r1_gguf().items()
            if "Q3_K_M" in path and not path.endswith(gone)}  # fmt: skip


SHAPES: dict[str, Callable[[], dict[str, File]]] = {
    "meituan/DeepSeek-R1-Block-INT8": block_int8,
    "deepseek-ai/DeepSeek-R1": fp8,
    "unsloth/DeepSeek-R1-GGUF": r1_gguf,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": distill,
    "unsloth/DeepSeek-R1-Distill-Qwen-32B-GGUF": distill_gguf,
    "example/missing-shard": missing_shard,
    "example/empty": lambda: files({".gitattributes": "*.gguf filter=lfs\n"}),
    "example/gated": distill,
}


def repo(name: str) -> Repo:
    """The repository of that name; `example/gated` is gated but for the token `member`."""
    gated = "manual" if name == "example/gated" else ""
    return Repo(name, dict(SHAPES[name]()), gated=gated, members=frozenset({"member"}))
