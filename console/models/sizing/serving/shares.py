"""What one of several ranks holds of the dense weights, in vLLM and SGLang.

Most matrices are divided. Routers, norms, the indexer and the first half of latent attention
(`q_a_proj`, `kv_a_proj_with_mqa`) are whole on each rank, and each has at least one head's keys and
values. Latent attention works with `kv_b_proj` in two parts of its own, in 16 bits, beside it
(`w_kc` and `w_vc` in SGLang's deepseek_weight_loader.py, `W_UK_T` and `W_UV` in vLLM's mla).
"""

from __future__ import annotations

from console.models.sizing.model_facts import Kind, ModelFacts
from console.models.sizing.serving.parallel import Ranks

WIDE = 2
"""Bytes of an element of the two parts."""


def dense_bytes(facts: ModelFacts) -> int:
    """All dense weights, once."""
    return facts.bytes_of(Kind.TOKENS, Kind.OUTPUT, Kind.DENSE)


def dense_of_layers(facts: ModelFacts, ranks: Ranks) -> float:
    """A rank's bytes of the layers' dense weights."""
    special, heads = facts.divided, max(facts.attention.kv_heads or (0,))
    rest = facts.bytes_of(Kind.DENSE) - special.whole - special.key_values - special.attention
    part = 1 / ranks.attention
    kept = max(part, 1 / heads) if heads and not facts.attention.latent else part
    return (
        special.whole + special.key_values * kept + special.attention * part
        + max(0, rest) / ranks.dense
    )  # fmt: skip


def dense_of_rank(facts: ModelFacts, ranks: Ranks) -> int:
    """The same with the token table, which goes with the attention, and the output."""
    tokens = facts.bytes_of(Kind.TOKENS) / ranks.attention
    return int(tokens + facts.bytes_of(Kind.OUTPUT) / ranks.dense + dense_of_layers(facts, ranks))


def absorbed(facts: ModelFacts, ranks: Ranks) -> int:
    """A rank's bytes of the two parts of `kv_b_proj`."""
    spec = facts.attention
    if not spec.latent:
        return 0
    layer_elements = (
        spec.latent_rank * (spec.heads or 0) * (spec.head - spec.rope + spec.head_value)
    )
    return (facts.layers or 0) * layer_elements * WIDE // ranks.attention
