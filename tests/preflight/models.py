"""Tiny whole models of many architectures, to see whether a build loads them or not.

A file is whole for its architecture: sizes, tokenizer, every tensor. What makes one build refuse it
can then only be the architecture. The families differ in which norms, biases and gates they have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from console.rehearsal.demo.model import (
    Tensor,
    Value,
    tokenizer_metadata,
    vocabulary,
    write_gguf,
)
from tests.fit.tiny import deepseek32
from tests.testbed import models as testbed

BLOCKS, WIDTH, HEADS, NARROW, HIDDEN, EXPERTS = 2, 64, 4, 32, 96, 4
HEAD = WIDTH // HEADS


@dataclass(frozen=True)
class Family:
    """How an architecture differs from `llama`; names are those of tensors, `{}` the block."""

    norms: tuple[str, ...] = ("attn_norm", "ffn_norm")
    biases: tuple[str, ...] = ()
    more: tuple[tuple[str, int], ...] = ()
    gate: bool = True
    norm_bias: bool = False
    layer_norm: bool = False
    qkv: bool = False
    experts: bool = False
    output: bool = True
    heads_kv: int = 2
    positions: bool = False
    keys: tuple[tuple[str, Value], ...] = ()


_QK_NORM = (("attn_q_norm", HEAD), ("attn_k_norm", HEAD))
_GEMMA = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
_MOE: tuple[tuple[str, Value], ...] = (
    ("expert_count", EXPERTS), ("expert_used_count", 2), ("expert_feed_forward_length", HIDDEN),
)  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "qwen2": Family(biases=("attn_q", "attn_k", "attn_v")),
    "qwen3": Family(more=_QK_NORM),
    "qwen3moe": Family(more=_QK_NORM, experts=True, keys=_MOE),
    "gemma": Family(output=False),
    "gemma3": Family(norms=_GEMMA, more=_QK_NORM, output=False,
                     keys=(("attention.sliding_window", 512), ("attention.key_length", HEAD),
                           ("attention.value_length", HEAD))),
    "olmo2": Family(norms=("post_attention_norm", "post_ffw_norm"),
                    more=(("attn_q_norm", WIDTH), ("attn_k_norm", NARROW))),
    "internlm2": Family(),
    "granite": Family(keys=(("attention.scale", 0.125), ("residual_scale", 1.0),
                            ("embedding_scale", 1.0), ("logit_scale", 1.0))),
    "baichuan": Family(heads_kv=HEADS),
    "xverse": Family(),
    "exaone": Family(),
    "starcoder2": Family(biases=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up",
                                 "ffn_down"), gate=False, norm_bias=True, layer_norm=True),
    "phi3": Family(qkv=True, gate=False, keys=(("attention.sliding_window", 0),)),
    "gpt2": Family(qkv=True, gate=False, norm_bias=True, layer_norm=True, heads_kv=HEADS,
                   positions=True, biases=("attn_qkv", "attn_output", "ffn_up", "ffn_down")),
    "gptneox": Family(qkv=True, gate=False, norm_bias=True, layer_norm=True, heads_kv=HEADS,
                      biases=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
                      keys=(("use_parallel_residual", True),)),
    "smollm3": Family(),
    "arcee": Family(gate=False),
    "command-r": Family(norms=("attn_norm",), layer_norm=True, output=False,
                        keys=(("logit_scale", 1.0),)),
}  # fmt: skip


def write(path: Path, architecture: str, like: str = "") -> Path:
    """A model of an architecture, with the tensors of the family `like` (default: its own)."""
    family = FAMILIES[like or architecture]
    write_gguf(path, _metadata(architecture, family), _tensors(family), seed=7)
    return path


def write_deepseek(path: Path, architecture: str = "deepseek2") -> Path:
    """A model with latent attention and experts, under any name."""
    metadata = testbed._deepseek_metadata(architecture, "tiny")
    write_gguf(path, metadata, testbed._deepseek_tensors(), seed=3)
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    **{name: lambda path, name=name: write(path, name) for name in FAMILIES},  # type: ignore[misc]
    "deepseek2": write_deepseek,
    "deepseek32": lambda path: deepseek32().write(path),
    # Whole files again, under names that builds do not load.
    "deepseek3_2": lambda path: write_deepseek(path, "deepseek3_2"),
    "deepseek3": lambda path: write_deepseek(path, "deepseek3"),
    "llama5": lambda path: write(path, "llama5", like="llama"),
    "gptj": lambda path: write(path, "gptj", like="gptneox"),
    "minimax_m3": lambda path: write(path, "minimax_m3", like="qwen3moe"),
}
"""Architectures of which a whole model is written."""


def _metadata(name: str, family: Family) -> dict[str, Value]:
    norm = "layer_norm_epsilon" if family.layer_norm else "layer_norm_rms_epsilon"
    sizes: dict[str, Value] = {
        "vocab_size": len(vocabulary()), "block_count": BLOCKS, "context_length": 512,
        "embedding_length": WIDTH, "feed_forward_length": HIDDEN, "rope.dimension_count": HEAD,
        "rope.freq_base": 10_000.0, "attention.head_count": HEADS,
        "attention.head_count_kv": family.heads_kv, f"attention.{norm}": 1e-5,
        **dict(family.keys),
    }  # fmt: skip
    return {
        "general.architecture": name,
        "general.file_type": 1,
        **{f"{name}.{key}": value for key, value in sizes.items()},
        **tokenizer_metadata(),
    }


def _tensors(family: Family) -> list[Tensor]:
    tokens = len(vocabulary())
    tensors = [Tensor("token_embd.weight", (tokens, WIDTH), "embedding")]
    tensors += [Tensor("output_norm.weight", (WIDTH,), "norm")]
    tensors += [Tensor("output_norm.bias", (WIDTH,), "norm")] if family.norm_bias else []
    tensors += [Tensor("output.weight", (tokens, WIDTH), "output")] if family.output else []
    tensors += [Tensor("position_embd.weight", (512, WIDTH))] if family.positions else []
    for index in range(BLOCKS):
        tensors += _block(f"blk.{index}", family)
    return tensors


def _block(block: str, family: Family) -> list[Tensor]:
    narrow = HEAD * family.heads_kv
    sizes = {"attn_q": (WIDTH, WIDTH), "attn_k": (narrow, WIDTH), "attn_v": (narrow, WIDTH)}
    if family.qkv:
        sizes = {"attn_qkv": (WIDTH + 2 * narrow, WIDTH)}
    sizes |= {"attn_output": (WIDTH, WIDTH)}
    if family.experts:
        sizes |= {"ffn_gate_inp": (EXPERTS, WIDTH)}
    else:
        # phi3 keeps gate and up in one matrix.
        wide = 2 * HIDDEN if family.qkv and not family.biases else HIDDEN
        sizes |= {"ffn_up": (wide, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
        sizes |= {"ffn_gate": (HIDDEN, WIDTH)} if family.gate else {}
    tensors = [Tensor(f"{block}.{name}.weight", size) for name, size in sizes.items()]
    tensors += [Tensor(f"{block}.{name}.bias", sizes[name][:1], "norm") for name in family.biases]
    for name in family.norms:
        tensors.append(Tensor(f"{block}.{name}.weight", (WIDTH,), "norm"))
        tensors += [Tensor(f"{block}.{name}.bias", (WIDTH,), "norm")] if family.norm_bias else []
    tensors += [Tensor(f"{block}.{name}.weight", (size,), "norm") for name, size in family.more]
    if family.experts:
        shapes = {"ffn_gate_exps": (HIDDEN, WIDTH), "ffn_up_exps": (HIDDEN, WIDTH),
                  "ffn_down_exps": (WIDTH, HIDDEN)}  # fmt: skip
        tensors += [Tensor(f"{block}.{n}.weight", (EXPERTS, *s)) for n, s in shapes.items()]
    return tensors
