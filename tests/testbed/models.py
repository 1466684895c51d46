"""Model files for tests, small enough to write on the spot, that a real llama.cpp serves."""

import math
from pathlib import Path

from console.rehearsal.demo.model import (
    ATTENTION_SHARE,
    ModelSpec,
    Tensor,
    Value,
    feed_forward_tensors,
    token_tensors,
    tokenizer_metadata,
    vocabulary,
    write_gguf,
    write_llama,
)

BLOCKS, WIDTH, HEADS, FEED_FORWARD = 2, 64, 4, 128
Q_RANK, KV_RANK = 48, 32
NOPE, ROPE, VALUE = 16, 16, 16
EXPERTS, EXPERTS_USED, EXPERT_WIDTH = 4, 2, 32


def tiny_llama(path: Path) -> int:
    spec = ModelSpec(
        "tiny-llama", blocks=BLOCKS, seed=1, width=WIDTH, heads=HEADS, feed_forward=FEED_FORWARD
    )
    return write_llama(path, spec)


def ending_llama(path: Path) -> int:
    """Write a :func:`tiny_llama` that ends each answer after a sentence, as real models do."""
    spec = ModelSpec(
        "ending-llama", blocks=BLOCKS, seed=4, width=WIDTH, heads=HEADS, feed_forward=FEED_FORWARD,
        ends=True,
    )  # fmt: skip
    return write_llama(path, spec)


def visible_llama(path: Path) -> int:
    """Write a ``llama`` of 36 million parameters (72 MB) for throughput one can see."""
    spec = ModelSpec("visible-llama", blocks=10, seed=2, width=512, heads=8, feed_forward=2048)
    return write_llama(path, spec)


def tiny_deepseek2(path: Path) -> int:
    metadata = _deepseek_metadata("deepseek2", "tiny-deepseek2")
    return write_gguf(path, metadata, _deepseek_tensors(), seed=3)


def unknown_architecture(path: Path) -> int:
    """Write the file of :func:`tiny_deepseek2` for an architecture llama.cpp does not know."""
    metadata = _deepseek_metadata("deepseek3_2", "unknown-architecture")
    return write_gguf(path, metadata, _deepseek_tensors(), seed=3)


def _deepseek_metadata(architecture: str, name: str) -> dict[str, Value]:
    """Metadata with the keys of ``architecture``; its first block is dense."""
    sizes: dict[str, Value] = {
        "vocab_size": len(vocabulary()),
        "block_count": BLOCKS,
        "context_length": 4096,
        "embedding_length": WIDTH,
        "feed_forward_length": FEED_FORWARD,
        "leading_dense_block_count": 1,
        "rope.dimension_count": ROPE,
        "rope.freq_base": 10_000.0,
        "attention.head_count": HEADS,
        "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.q_lora_rank": Q_RANK,
        "attention.kv_lora_rank": KV_RANK,
        "attention.key_length": KV_RANK + ROPE,
        "attention.value_length": KV_RANK,
        "attention.key_length_mla": NOPE + ROPE,
        "attention.value_length_mla": VALUE,
        "expert_count": EXPERTS,
        "expert_used_count": EXPERTS_USED,
        "expert_shared_count": 1,
        "expert_feed_forward_length": EXPERT_WIDTH,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    }
    return {
        "general.architecture": architecture,
        "general.name": name,
        "general.file_type": 1,
        **{f"{architecture}.{key}": value for key, value in sizes.items()},
        **tokenizer_metadata(),
    }


def _deepseek_tensors() -> list[Tensor]:
    tensors = token_tensors(WIDTH)
    for index in range(BLOCKS):
        block = f"blk.{index}"
        tensors += _latent_attention(block)
        dense = feed_forward_tensors(block, WIDTH, FEED_FORWARD, BLOCKS)
        tensors += dense if index == 0 else _experts(block)
    return tensors


def _latent_attention(block: str) -> list[Tensor]:
    """Attention with a latent of ``KV_RANK`` and ``ROPE`` positional dimensions per token."""
    share = ATTENTION_SHARE / math.sqrt(BLOCKS)
    return [
        Tensor(f"{block}.attn_norm.weight", (WIDTH,), "norm"),
        Tensor(f"{block}.attn_q_a.weight", (Q_RANK, WIDTH)),
        Tensor(f"{block}.attn_q_a_norm.weight", (Q_RANK,), "norm"),
        Tensor(f"{block}.attn_q_b.weight", (HEADS * (NOPE + ROPE), Q_RANK)),
        Tensor(f"{block}.attn_kv_a_mqa.weight", (KV_RANK + ROPE, WIDTH)),
        Tensor(f"{block}.attn_kv_a_norm.weight", (KV_RANK,), "norm"),
        Tensor(f"{block}.attn_k_b.weight", (HEADS, KV_RANK, NOPE)),
        Tensor(f"{block}.attn_v_b.weight", (HEADS, VALUE, KV_RANK)),
        Tensor(f"{block}.attn_output.weight", (WIDTH, HEADS * VALUE), "residual", share),
    ]


def _experts(block: str) -> list[Tensor]:
    up, down = (EXPERT_WIDTH, WIDTH), (WIDTH, EXPERT_WIDTH)
    return [
        Tensor(f"{block}.ffn_norm.weight", (WIDTH,), "norm"),
        Tensor(f"{block}.ffn_gate_inp.weight", (EXPERTS, WIDTH)),
        Tensor(f"{block}.exp_probs_b.bias", (EXPERTS,), "norm"),
        Tensor(f"{block}.ffn_gate_exps.weight", (EXPERTS, *up)),
        Tensor(f"{block}.ffn_up_exps.weight", (EXPERTS, *up)),
        Tensor(f"{block}.ffn_down_exps.weight", (EXPERTS, *down), "residual"),
        Tensor(f"{block}.ffn_gate_shexp.weight", up),
        Tensor(f"{block}.ffn_up_shexp.weight", up),
        Tensor(f"{block}.ffn_down_shexp.weight", down, "residual"),
    ]
