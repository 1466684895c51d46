"""What one rank of vLLM or SGLang keeps of a request's tokens, layer by layer.

A layer's heads are divided among the ranks, and doubled where it has fewer than ranks
(`get_num_kv_heads` of vLLM's config/model.py and SGLang's configs/model_config.py); a latent cache
is whole on each rank.
"""

from __future__ import annotations

from dataclasses import replace

from console.models.sizing.kv_cache import cache_of, layers_with_cache, of_rank, served_bytes
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.backends import DS_MLA

COUNTED = ("auto", "bf16")
"""Types of a cache of 16 bits; those that begin with fp8 have 8."""


def rank_bytes(
    facts: ModelFacts, tokens: int, kind: str, ranks: int, batch: int | None = None
) -> int | None:
    """Bytes on a rank of so many tokens in a cache of a type, at least; None where a size is not
    known. Layers with a window keep it and a step of `batch` tokens, or all where that is None.
    States are counted apart."""
    latent, fp8 = facts.attention.latent, kind.startswith("fp8")
    wide = "fp8" if latent and fp8 else "bf16"
    whole = LlamaPlan(ctx=tokens, parallel=1, type_k=wide, type_v=wide, swa_full=True)
    rank_plan = whole if batch is None else replace(whole, swa_full=False, ubatch=batch)
    cache = cache_of(replace(facts, recurrent=None), rank_plan)
    if cache is None:
        return None
    if latent:
        more = _ds_mla(facts) * cache.tokens if kind == DS_MLA else 0
        return served_bytes(facts, cache) + more if fp8 or kind in COUNTED else 0
    return of_rank(facts, cache, kind, ranks)


def _ds_mla(facts: ModelFacts) -> int:
    """Bytes of a token beyond a number of 8 bits each: a scale of 4 bytes for 128 of the latent
    ones, and a rope part in 16 bits (656 and not 576 for DeepSeek-V3.2, flashmla_sparse.py)."""
    spec = facts.attention
    each = 4 * -(-spec.latent_rank // 128) + spec.rope
    return each * sum(layers_with_cache(facts))
