"""Latent attention (MLA) and limited batches of attention, as ik_llama.cpp keeps and computes them.

From its source (8337e4cd: build_deepseek2.cpp, llama-build-context.cpp and llm_prepare_mla in
llama.cpp) and its logs (ik_llama.cpp#2295, #1211): whatever the file holds, the cache is that of
--mla-use, and what the file lacks is computed at the start. A batch with flash attention works on
every head's own keys and values, F32 and a copy in F16; --attention-max-batch says in MiB how much
of the F32 there may be at once, or of the scores without flash attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import Kind, ModelFacts, Weight

MIB = 1 << 20
FLOAT, HALF = 4, 2
LIMIT_MIB = 256
"""--attention-max-batch where it is not given, since 13 August 2026 (ik_llama.cpp#2312); builds
before have no limit, which is 0."""
Q8_0 = 34 / 32
"""Bytes an element of what is computed at the start."""
_KEYS, _VALUES, _BOTH = "attn_k_b.weight", "attn_v_b.weight", "attn_kv_b.weight"


def as_kept(facts: ModelFacts, plan: LlamaPlan) -> ModelFacts:
    """The model as ik_llama.cpp has it in memory; any other model and engine as it is."""
    spec = facts.attention
    if not plan.ik or not (spec.latent or spec.unpacked) or not spec.latent_rank:
        return facts
    return _kept(facts, plan.mla)


@lru_cache(maxsize=16)
def _kept(facts: ModelFacts, way: int) -> ModelFacts:
    spec, layers = facts.attention, facts.layers or 0
    head, value = (spec.head, spec.head_value) if spec.latent else (spec.key or 0, spec.value or 0)
    if way == 0:
        attention = replace(
            spec, latent=False, unpacked=True, kv_heads=(spec.heads or 0,) * layers, key=head,
            value=value,
        )  # fmt: skip
        return replace(facts, attention=attention)
    attention = replace(
        spec, latent=True, unpacked=False, kv_heads=(1,) * layers, key=spec.latent_rank + spec.rope,
        value=spec.latent_rank, head=head, head_value=value,
    )  # fmt: skip
    return replace(
        facts, attention=attention, weights=(*facts.weights, *_computed(facts, head, value, way))
    )


def _computed(facts: ModelFacts, head: int, value: int, way: int) -> Iterator[Weight]:
    """The matrices of each layer that the file lacks: keys and values apart, or both in one."""
    spec = facts.attention
    size = int(spec.latent_rank * (spec.heads or 0) * (head - spec.rope + value) * Q8_0)
    by_layer: dict[int, set[str]] = {}
    for weight in facts.weights:
        if weight.layer is not None:
            by_layer.setdefault(weight.layer, set()).add(weight.name.split(".", 2)[-1])
    for layer, names in by_layer.items():
        apart = {_KEYS, _VALUES} <= names
        if (apart and _BOTH not in names and way > 1) or (_BOTH in names and not apart):
            name = f"blk.{layer}.{_BOTH if apart else _KEYS}"
            yield Weight(name, Kind.DENSE, size, layer=layer)


def heads_at_once(facts: ModelFacts, plan: LlamaPlan, cells: int, ubatch: int) -> int:
    """How many heads a batch is worked on with at once; all of them for any other engine."""
    spec, limit = facts.attention, LIMIT_MIB if plan.amb is None else plan.amb
    heads = spec.heads or 0
    if not plan.ik or limit <= 0 or not heads:
        return heads
    if plan.flash and spec.latent and plan.mla > 1:
        return _whole_parts(heads, heads * _own(facts) * cells * FLOAT // MIB, limit)
    size = heads * cells * ubatch * FLOAT // MIB
    if plan.flash or size <= limit:
        return heads
    if spec.latent:
        return -(-heads // min(heads, -(-size // limit)))
    return 1 if set(spec.kv_heads or ()) == {heads} else heads


def _whole_parts(heads: int, size: int, limit: int) -> int:
    """The most heads that divide all of them and stay within the limit, else one."""
    if size <= limit:
        return heads
    fits = (n for n in range(2, heads) if heads % n == 0 and size // n <= limit)
    return heads // next(fits, heads)


def spread_bytes(facts: ModelFacts, plan: LlamaPlan, cells: int, heads: int) -> int | None:
    """Bytes of the heads' own keys and values in F32 and F16; None where attention works on the
    cache as it is."""
    if not (plan.ik and plan.flash and facts.attention.latent and plan.mla > 1):
        return None
    return heads * _own(facts) * cells * (FLOAT + HALF)


def _own(facts: ModelFacts) -> int:
    """Elements of a head's own key and value of a token, without the part that all share."""
    spec = facts.attention
    return spec.head - spec.rope + spec.head_value
