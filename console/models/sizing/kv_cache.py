"""How many bytes a context takes in llama.cpp's layout, layer by layer.

The cache formulas were compared with what llama.cpp b11549 and b11669 log for llama, gemma2,
gemma3, qwen3moe, glm4moe, deepseek2 (latent and old), deepseek32, glm-dsa, lfm2 and mamba; the
tests repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from console.models.gguf.header import BY_NUMBER, IK_LLAMA, pad
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import Attention, ModelFacts, Recurrent

CELLS = 256
"""The number of cells of a cache is a multiple of this."""
LLAMA_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
IK_TYPES = (*LLAMA_TYPES, "q6_0")
"""Those that ik_llama.cpp has besides: 32,768 tokens of one head in the 92 layers of GLM-4.7 take
598 MiB (ikawrakow/ik_llama.cpp#1126). Q8_KV has a scale a row, which is not counted."""
_TENSORS = {kind.name.lower(): (kind.block, kind.bytes)
            for kind in (*BY_NUMBER.values(), *IK_LLAMA.values())}  # fmt: skip
NOT_COUNTED = "of a type that is not counted"
"""Another type: nothing of its size is certain, so that only the rest of a sum says NO-GO."""
CACHE_TYPES = {name: _TENSORS[name] for name in IK_TYPES} | {"fp8": (1, 1), NOT_COUNTED: (1, 0)}
"""Elements of a block and its bytes, for each type a cache may have."""

GOES_BACK = (
    "kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next", "nemotron_h",
    "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3",
)  # fmt: skip
"""Architectures whose states can be rolled back (llm_arch_supports_rs_rollback of b11549)."""
DRAFTS = 3
"""--spec-draft-n-max where it is not given."""
TURBO = {
    "turboquant_k8v4": (8, 4), "turboquant_4bit_nc": (4, 4), "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}  # fmt: skip
"""Bits of a key's and of a value's numbers; the first and last two layers of a model without states
stay in 16 (get_boundary_skip_layers), which is not counted."""
SCALES = 8
"""Bytes of the two scales of a head and token, in F32."""
INDEXER = "indexer cache"
FLOAT = 4
"""Bytes of an F32, used for computing and for states, whatever the cache's type."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of cache, in bytes, with the formula in words."""

    name: str
    bytes: int
    how: str


@dataclass(slots=True)
class Cache:
    """Bytes for each layer that has one; `tokens` is the context after padding, all sequences."""

    layers: list[int]
    tokens: int
    parts: list[Part] = field(default_factory=list)

    def add(self, name: str, how: str, bytes_of: Callable[[int], int]) -> None:
        """Add `bytes_of(layer)` for every layer; a kind of zero bytes is left out."""
        self.add_each(name, how, [bytes_of(layer) for layer in range(len(self.layers))])

    def add_each(self, name: str, how: str, each: Sequence[int]) -> None:
        """The same with the bytes of every layer."""
        if whole := sum(each):
            self.layers = [had + more for had, more in zip(self.layers, each, strict=True)]
            count = len(each) - each.count(0)
            self.parts.append(Part(name, whole, f"{count} layers x {how}"))

    @property
    def bytes(self) -> int:
        return sum(self.layers)

    @property
    def how(self) -> str:
        return "; ".join(f"{part.name}: {part.how}" for part in self.parts)


def row_bytes(kind: str, elements: int) -> int:
    """Bytes of one row of a cache; a broken block counts as a whole one."""
    block, size = CACHE_TYPES[kind]
    return -(-elements // block) * size


def cache_of(facts: ModelFacts, plan: LlamaPlan) -> Cache | None:
    """The cache, or None if a fact or the context is missing."""
    ctx = plan.tokens(facts.context_length)
    if ctx is None or facts.layers is None:
        return None
    streams = 1 if plan.unified else plan.slots
    cells = pad(pad(ctx, CELLS) // streams, CELLS)
    cache = Cache([0] * facts.layers, cells * streams)
    if not _attention(facts, plan, cells, streams, cache):
        return None
    _indexer(facts, plan, cache)
    _states(facts, plan, cache)
    if plan.mtp and facts.spare_layers:
        _guessing(facts, cells * streams, cache)
    return cache


def served_bytes(facts: ModelFacts, cache: Cache) -> int:
    """The cache as vLLM and SGLang keep it: keys of an indexer in FP8 whatever the type of the
    rest, with a scale of 4 bytes for 128 of them (`index_k_with_scale_buffer` of SGLang's
    memory_pool.py)."""
    spec = facts.attention
    had = sum(part.bytes for part in cache.parts if part.name == INDEXER)
    row = spec.indexer + 4 * -(-spec.indexer // 128)
    return cache.bytes - had + (cache.tokens * row * sum(spec.indexed) if had else 0)


def head_bytes(kind: str, key: int, value: int) -> int:
    """Bytes of a token in one head of vLLM's cache, at least; 0 for a type whose size is not known.
    Sources: turboquant/config.py, `TritonAttentionBackend.customize_spec`, and
    `nvfp4_kv_cache_full_dim`."""
    if bits := TURBO.get(kind):
        size = -(-key * bits[0] // 8) + (2 if bits[0] < 8 else 0) + -(-value * bits[1] // 8) + 4
        return size + size % 2
    if kind == "int4_per_token_head":
        return key // 2 + value // 2 + SCALES
    if kind.endswith("8_per_token_head"):
        return key + value + SCALES
    if kind == "nvfp4":
        return sum(length // 2 + length // 16 for length in (key, value))
    wide = 1 if kind.startswith("fp8") else 2 if kind in ("auto", "bf16") else 0
    return wide * (key + value)


def of_rank(facts: ModelFacts, cache: Cache, kind: str, ranks: int) -> int:
    """A cache that was counted in 16 bits, in another type, on one of several ranks: heads are
    divided, or doubled where a layer has fewer than ranks."""
    spec, size = facts.attention, 0.0
    for layer, whole in enumerate(cache.layers):
        heads, lengths_ = spec.kv_heads[layer] if spec.kv_heads else 0, of_head(spec, layer)
        if heads and whole:
            part = -(-heads // ranks) / heads
            size += whole * part * head_bytes(kind, *lengths_) / head_bytes("bf16", *lengths_)
    return int(size)


def _guessing(facts: ModelFacts, cells: int, cache: Cache) -> None:
    """The cache of the layers that guess ahead (MTP): as wide as the widest other, always F16."""
    widest = max(lengths(facts.attention, layer) for layer in range(facts.layers or 0))
    size = cells * sum(row_bytes("f16", length) for length in widest)
    cache.layers += [size] * facts.spare_layers
    how = f"{facts.spare_layers} layers x {cells} cells x {sum(widest)} f16"
    cache.parts.append(Part("cache for guessing ahead", size * facts.spare_layers, how))


def lengths(spec: Attention, layer: int) -> tuple[int, int]:
    """Elements of K and V of a token in one layer."""
    heads, (key, value) = spec.kv_heads[layer] if spec.kv_heads else 0, of_head(spec, layer)
    return heads * key, heads * value


def of_head(spec: Attention, layer: int) -> tuple[int, int]:
    """Elements of K and V of a token in one head of a layer."""
    key, value = spec.key or 0, 0 if spec.latent else spec.value or 0
    if spec.has_window and spec.windowed[layer]:
        key = key if spec.window_key is None else spec.window_key
        value = value if spec.window_value is None or spec.latent else spec.window_value
    return key, value


@dataclass(frozen=True, slots=True)
class _Layers:
    """What the layers of a model keep of a token, which no plan changes. `cached`: the lengths of K
    and V of those with a cache, each once; `kinds`: for each layer the number of its lengths there,
    and whether it has a window; None where it keeps nothing. `widest`: the longest V."""

    cached: tuple[tuple[int, int], ...]
    kinds: tuple[tuple[int, bool] | None, ...]
    widest: int


@lru_cache(maxsize=64)
def _layers(layers: int, spec: Attention, states: Recurrent | None) -> _Layers:
    has = _layers_with_cache(layers, spec, states)
    every = [lengths(spec, layer) for layer in range(layers)]
    cached = tuple(
        dict.fromkeys(
            layer_lengths for layer_lengths, keeps in zip(every, has, strict=True) if keeps
        )
    )
    kinds = tuple(
        (cached.index(every[layer]), spec.has_window and spec.windowed[layer])
        if has[layer] else None
        for layer in range(layers)
    )  # fmt: skip
    return _Layers(cached, kinds, max((value for _, value in every), default=0))


def cached_lengths(facts: ModelFacts) -> tuple[tuple[int, int], ...]:
    """Elements of K and V of a token in the layers that keep a cache, each once."""
    return _layers(facts.layers or 0, facts.attention, facts.recurrent).cached


def _attention(facts: ModelFacts, plan: LlamaPlan, cells: int, streams: int, cache: Cache) -> bool:
    """K and V of the layers that have them; False if their size is unknown."""
    if not any(layers_with_cache(facts)):
        return True
    spec = facts.attention
    if spec.kv_heads is None or spec.key is None or (spec.value is None and not spec.latent):
        return False
    near = pad(window_cells(spec.window, plan, cells), CELLS)
    about = _layers(facts.layers or 0, spec, facts.recurrent)

    def rows(key: int, value: int) -> int:
        if plan.ik and spec.latent and not plan.flash:  # V turned beside it, or in its place
            turned = row_bytes(plan.type_v, spec.latent_rank) if plan.mla == 1 else 0
            return row_bytes(plan.type_k if plan.mla == 1 else plan.type_v, key) + turned
        if not plan.flash and value:
            value = about.widest
        return row_bytes(plan.type_k, key) + (row_bytes(plan.type_v, value) if value else 0)

    words, each = _words(facts, plan), [rows(*lengths) for lengths in about.cached]
    for name, length, windowed in (("cache", cells, False), ("window cache", near, True)):
        sizes: dict[tuple[int, bool] | None, int] = {
            (number, windowed): row * length * streams for number, row in enumerate(each)
        }
        layers = [sizes.get(kind, 0) for kind in about.kinds]
        cache.add_each(name, f"{length * streams} cells x {words}", layers)
    return True


def layers_with_cache(facts: ModelFacts) -> tuple[bool, ...]:
    """Which layers keep a cache of their own."""
    return _layers_with_cache(facts.layers or 0, facts.attention, facts.recurrent)


@lru_cache(maxsize=64)
def _layers_with_cache(
    layers: int, attention: Attention, states: Recurrent | None
) -> tuple[bool, ...]:
    own, heads = attention.own_layers, attention.kv_heads

    def keeps(layer: int) -> bool:
        if own is not None and layer >= own:
            return False
        if states is not None and states.layers[layer] and not states.beside:
            return False
        return heads is None or heads[layer] > 0

    return tuple(keeps(layer) for layer in range(layers))


def window_cells(window: int, plan: LlamaPlan, cells: int) -> int:
    """Cells of a layer with a window: the window (of every sequence, if shared) and a batch, at
    most the whole context."""
    if plan.swa_full:
        return cells
    return min(cells, window * (plan.slots if plan.unified else 1) + plan.ubatch)


def _words(facts: ModelFacts, plan: LlamaPlan) -> str:
    spec = facts.attention
    if spec.latent:
        return f"K only, {spec.key} {plan.type_k} (latent attention)"
    heads = sorted({count for count in spec.kv_heads or () if count})
    many = f"{heads[0]}" if len(heads) == 1 else f"{heads[0]} to {heads[-1]}"
    old = ", every head (old conversion)" if spec.unpacked else ""
    return f"{many} heads x (K {spec.key} {plan.type_k} + V {spec.value} {plan.type_v}){old}"


def _indexer(facts: ModelFacts, plan: LlamaPlan, cache: Cache) -> None:
    """Keys of a lightning indexer: one head, beside the latent cache."""
    spec = facts.attention
    if not spec.indexer:
        return
    row = row_bytes(plan.type_k, spec.indexer)
    cache.add(
        INDEXER,
        f"{cache.tokens} cells x {spec.indexer} {plan.type_k}",
        lambda layer: row * cache.tokens if spec.indexed[layer] else 0,
    )


def _copies(facts: ModelFacts, plan: LlamaPlan) -> int:
    """How many copies of a state are kept: with the file's own layers guessing ahead, one more for
    each token of a guess, where the architecture can go back to it."""
    if not plan.mtp or facts.architecture not in GOES_BACK:
        return 1
    return 1 + (DRAFTS if plan.drafts is None else plan.drafts)


def _states(facts: ModelFacts, plan: LlamaPlan, cache: Cache) -> None:
    """States of recurrent layers: a fixed number per sequence, whatever the context."""
    states = facts.recurrent
    if states is None:
        return
    sequences, copies = plan.slots, _copies(facts, plan)
    size = (states.conv + states.state) * FLOAT * sequences * copies
    more = f" x {copies} to go back in a guess" if copies > 1 else ""
    cache.add(
        "states",
        f"{sequences} sequences{more} x F32 ({states.how})",
        lambda layer: size if states.layers[layer] else 0,
    )
