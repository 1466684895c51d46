"""Model facts from a Hugging Face config.json and the bytes of its safetensors.

Their headers tell the bytes of every class of weights, whatever its precision is. Where no header
can be had, the total is shared out by the number of parameters and by what the configuration says
of modules that are not quantized: an estimate, which is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from console.common.text import one_line
from console.models.hub.model_config import (
    describe,
    dtype_of,
    keeps_fp8,
    kind,
    parts,
    quantization,
    whole,
)
from console.models.safetensors.names import OUTSIDE, Held, Role, held, role
from console.models.safetensors.read import StoredBytes
from console.models.sizing.config_shapes import (
    ENDS,
    GLOBAL_APART,
    SHARING,
    classes,
    encoders,
    forward_of_block,
    global_layers,
    heads_of_blocks,
    heads_of_other,
    kept_wide,
    layers_with_heads,
    normal,
    not_understood,
)
from console.models.sizing.kv_cache import lengths
from console.models.sizing.model_facts import (
    MAX_BYTES,
    MAX_LAYERS,
    Attention,
    BadFacts,
    Divided,
    Experts,
    Keys,
    Kind,
    ModelFacts,
    Recurrent,
    Weight,
)
from console.models.sizing.serving.consistency import against, check
from console.models.sizing.serving.kernels import attention_kind, scale_kind
from console.models.sizing.serving.states import gated

SOURCE = "config.json"
STATES = "the states of its recurrent layers (not known from a config.json)"
COMPRESSED = "compress_ratios"
"""Of DeepSeek-V4: some layers keep a window, others one entry for 4 or 128 tokens and an indexer's.
Its cache took from 4 to 93 KiB a token by public logs of vLLM (vllm#51041): no figure is known."""
MAX_ODD = 3
"""Kinds of layers that are named."""
MAX_BLOCK = 1 << 16
WINDOW_PERIODS = {
    "gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gpt_oss": 2, "cohere2": 4,
    **dict.fromkeys(GLOBAL_APART, 6),
}  # fmt: skip
"""All layers but one in this many use a window, if no list says so."""
COUNTED_WHOLE = (
    "mistral", "mixtral", "ministral", "phi3", "phimoe", "starcoder2", "qwen2", "qwen2_moe",
    "qwen2_5_vl", "qwen2_vl", "qwen3", "qwen3_moe", "qwen3_vl",
)  # fmt: skip
"""Families of which an engine may or may not use the window: their cache is counted whole."""
TIED = ("gemma", "cohere")
"""Families whose output is the token table unless the file says otherwise."""
RECURRENT = ("mamba", "ssm", "linear_attention", "rwkv", "conv_L_cache", "linear_num_value_heads")
"""Words in a config.json for states whose size is not known here."""


def from_config(
    config: Mapping[str, object],
    weight_bytes: int,
    stored: StoredBytes | None = None,
    unread: str = "",
) -> ModelFacts:
    """Facts of a checkpoint of `weight_bytes`, with the bytes that its headers tell; `unread` says
    why they were not to be had. Raises BadFacts for impossible values."""
    if not 0 <= weight_bytes <= MAX_BYTES:
        raise BadFacts(f"{weight_bytes} bytes of weights cannot be", "", "count the files again")
    keys = Keys(normal(whole(config)), "", SOURCE, _unpack)
    arch = _architecture(keys)
    layers = keys.count("num_hidden_layers", MAX_LAYERS, 1)
    if layers is None:
        keys.lacks("num_hidden_layers", "how many layers")
        return ModelFacts(arch, SOURCE, classes=classes(config), missing=tuple(keys.missing))
    spare = keys.count("num_nextn_predict_layers", MAX_LAYERS) or 0
    attention = _attention(keys, arch, layers)
    experts = _experts(keys)
    check(config, keys, attention, layers)
    sizes = _Sizes(keys, arch, attention, experts, layers, spare)
    if stored is None:
        weights, origin = sizes.shared_out(weight_bytes, config, unread)
        divided = sizes.divided(weights)
    else:
        plain = len(parts(config)) == 1 and not encoders(config)
        against(stored, keys, attention, layers, plain=plain)
        weights, origin = sizes.as_stored(stored), stored.words
        divided = sizes.divided_as_stored(stored)
    recurrent = _states(keys, arch, attention)
    return ModelFacts(
        architecture=arch,
        source=SOURCE,
        layers=layers,
        spare_layers=spare,
        embedding=keys.count("hidden_size"),
        feed_forward=keys.count("intermediate_size"),
        vocabulary=keys.count("vocab_size"),
        context_length=keys.tokens("max_position_embeddings"),
        attention=attention,
        recurrent=recurrent,
        experts=experts,
        block=_block(config),
        stored=kind(describe(config)),
        dtype=dtype_of(config),
        gptq_besides=_gptq_besides(quantization(config)),
        cache_fp8=keeps_fp8(config),
        weights=weights,
        divided=divided,
        weights_from=origin,
        classes=classes(config),
        encoders=encoders(config),
        attends=attention_kind(keys.table, attention, recurrent, classes(config)),
        scaled_by=scale_kind(quantization(config)),
        missing=tuple(dict.fromkeys(keys.missing)),
    )


def _block(config: Mapping[str, object]) -> int:
    """The block or group of the quantization; 0 where there is none or it is not a number."""
    how = quantization(config)
    block, groups = how.get("weight_block_size"), how.get("config_groups")
    value = block[0] if isinstance(block, list) and block else how.get("group_size")
    if isinstance(groups, Mapping):
        first = next(iter(groups.values()), None)
        weights = first.get("weights") if isinstance(first, Mapping) else None
        value = weights.get("group_size") if isinstance(weights, Mapping) else value
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_BLOCK:
        return value
    return 0


def _gptq_besides(how: Mapping[str, object]) -> tuple[str, ...]:
    """What kt-kernel's loader of GPTQ refuses or reads wrong (_verify_gptq_config of its loader.py,
    gptq_int4-moe.hpp, which takes 8 numbers of 4 bits from each word)."""
    if how.get("quant_method") != "gptq":
        return ()
    bits = how.get("bits")
    problems = {
        "desc_act=true": bool(how.get("desc_act", False)),
        "sym=false": not how.get("sym", True),
        f"{one_line(str(bits), 20)} bits": bits not in (None, 4),
    }
    return tuple(name for name, there in problems.items() if there)


def _unpack(value: object) -> tuple[object, ...] | None:
    return tuple(value) if isinstance(value, list | tuple) else None


def _words(table: Mapping[str, object]) -> list[str]:
    """Names of keys, and the kinds of layers in a list."""
    listed = table.get("layer_types")
    kinds = (
        {layer_type for layer_type in listed if isinstance(layer_type, str)}
        if isinstance(listed, list)
        else set()
    )
    return [*(str(key) for key in table), *kinds]


def _architecture(keys: Keys) -> str:
    name = keys.raw("model_type")
    if isinstance(name, str) and name:
        return one_line(name, 64)
    listed = keys.raw("architectures")
    first = listed[0] if isinstance(listed, list) and listed else None
    return one_line(first, 64) if isinstance(first, str) else ""


def _attention(keys: Keys, arch: str, layers: int) -> Attention:
    heads = keys.count("num_attention_heads")
    width = keys.count("hidden_size")
    rank, rope = keys.count("kv_lora_rank") or 0, keys.count("qk_rope_head_dim") or 0
    window, windowed = _window(keys, arch, layers)
    if rank:
        indexer = keys.count("index_head_dim") or 0
        return Attention(
            heads=heads, kv_heads=(1,) * layers, key=rank + rope, value=rank, latent=True,
            head=(keys.count("qk_nope_head_dim") or 0) + rope,
            head_value=keys.count("v_head_dim") or 0, latent_rank=rank, rope=rope,
            query_rank=keys.count("q_lora_rank") or 0,
            indexer=indexer, indexed=(True,) * layers if indexer else (),
        )  # fmt: skip
    head = keys.count("head_dim") or None  # 0 is "not given" to the engines
    if head is None and heads and width:
        head = width // heads
    kv_heads = heads_of_blocks(keys.table, layers) or keys.counts("num_key_value_heads", layers)
    if kv_heads is None and heads is not None:
        kv_heads = (heads,) * layers
    for name in not_understood(keys.table, head)[:MAX_ODD]:
        keys.lacks(one_line(name, 60), "it changes the cache, and is not known here")
    kv_heads, length = global_layers(keys.table, kv_heads, windowed)
    kv_heads, differ = heads_of_other(keys.table, _without_linear(keys, kv_heads), head)
    if differ:
        keys.lacks("attention_other_setting", "heads of another length in some of its layers")
    if keys.raw(COMPRESSED):
        keys.lacks(COMPRESSED, "what its compressed attention keeps, which differs by engine")
        kv_heads = None
    if heads is None:
        keys.lacks("num_attention_heads", "heads of attention")
    elif head is None:
        keys.lacks("hidden_size", "length of a head")
    shared = keys.count("num_kv_shared_layers", layers) if arch in SHARING else 0
    return Attention(
        heads=heads, kv_heads=kv_heads, key=length or head, value=length or head,
        window_key=head if length else None, window_value=head if length else None,
        window=window, windowed=windowed, own_layers=layers - shared if shared else None,
    )  # fmt: skip


def _without_linear(keys: Keys, heads: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The heads without those of layers that keep a state instead of a cache (MiniMax-01, Jamba,
    Qwen3-Next), or nothing."""
    head_layers = None if heads is None else layers_with_heads(keys.table, len(heads))
    if heads is None or head_layers is None:
        return heads
    has, odd = head_layers
    for kind_ in odd[:MAX_ODD]:
        keys.missing.append(f"the cache of layers of the kind {one_line(kind_, 40)}")
    return tuple(count if keeps else 0 for count, keeps in zip(heads, has, strict=True))


def _states(keys: Keys, arch: str, attention: Attention) -> Recurrent | None:
    """The states of layers without heads; where they are not known, that is named."""
    heads = attention.kv_heads or ()
    known = gated(keys, arch, [count > 0 for count in heads]) if 0 in heads else None
    named = any(word in name for word in RECURRENT for name in _words(keys.table))
    head_layers = layers_with_heads(keys.table, len(heads))
    if known is None and (named or (head_layers is not None and not all(head_layers[0]))):
        keys.missing.append(STATES)
    return known


def _window(keys: Keys, arch: str, layers: int) -> tuple[int, tuple[bool, ...]]:
    """The window, and which layers use it, by `layer_types` or a pattern."""
    if keys.raw("use_sliding_window") is False or keys.raw(COMPRESSED):
        return 0, ()
    window = keys.tokens("sliding_window")
    if not window:
        return 0, ()
    kinds = keys.raw("layer_types")
    if isinstance(kinds, list) and len(kinds) >= layers:
        near = [layer_type == "sliding_attention" for layer_type in kinds[:layers]]
        near[-1] &= arch not in GLOBAL_APART
        return window, tuple(near)
    period = keys.count("sliding_window_pattern", MAX_LAYERS) or WINDOW_PERIODS.get(arch, 0)
    shorter = window < (keys.tokens("max_position_embeddings") or window + 1)
    if not period and arch not in COUNTED_WHOLE and shorter:
        words = f"which layers keep a window of {window:,} tokens in their cache"
        keys.lacks("layer_types", words)
    if period < 2:
        return 0, ()
    last = layers - 1 if arch in GLOBAL_APART else layers
    return window, tuple(layer % period != period - 1 and layer != last for layer in range(layers))


def _experts(keys: Keys) -> Experts:
    count = keys.count("n_routed_experts") or 0
    if not count:
        return Experts()
    used = keys.count("num_experts_per_tok") or 0
    if not used:
        keys.lacks("num_experts_per_tok", "how many experts work on a token")
    if used > count:
        keys.bad("num_experts_per_tok", used, f"at most the {count} experts there are")
    return Experts(
        count=count,
        used=used,
        shared=keys.count("n_shared_experts") or 0,
        width=keys.count("moe_intermediate_size") or keys.count("intermediate_size") or 0,
        leading_dense=keys.count("first_k_dense_replace", MAX_LAYERS) or 0,
    )


def _shares(groups: list[Weight], weight_bytes: int, wide: Set[str]) -> tuple[Weight, ...]:
    """The groups with their share of the bytes: first what is kept in 16 bits, then the rest."""
    whole = [ENDS if g.kind in (Kind.TOKENS, Kind.OUTPUT) else str(g.kind) for g in groups]
    kept = sum(2 * g.elements for g, name in zip(groups, whole, strict=True) if name in wide)
    left = sum(g.elements for g, name in zip(groups, whole, strict=True) if name not in wide)
    if not 0 < kept < weight_bytes or not left:
        kept, left, wide = 0, sum(g.elements for g in groups), frozenset()
    return tuple(
        replace(g, bytes=2 * g.elements if name in wide
                else (weight_bytes - kept) * g.elements // left)
        for g, name in zip(groups, whole, strict=True)
    )  # fmt: skip


def _parted(
    groups: list[Weight], by_place: Mapping[tuple[int | None, Kind], int]
) -> Iterator[tuple[Weight, int]]:
    """Each group with its part of the bytes of its layer and kind; in all they are those bytes."""
    same: dict[tuple[int | None, Kind], list[Weight]] = {}
    for group in groups:
        same.setdefault((group.layer, group.kind), []).append(group)
    for place, members in same.items():
        size, whole = by_place.get(place, 0), sum(group.elements for group in members)
        given = 0
        for group in members[:-1]:
            part = size * group.elements // whole if whole else 0
            given += part
            yield group, part
        yield members[-1], size - given


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Parameters by class, computed from the sizes in a config.json."""

    keys: Keys
    arch: str
    attention: Attention
    experts: Experts
    layers: int
    spare: int

    def shared_out(
        self, weight_bytes: int, config: Mapping[str, object], unread: str
    ) -> tuple[tuple[Weight, ...], str]:
        """Groups of weights with their share of the bytes, and the words for where they come from;
        nothing if a size is missing."""
        groups = self._groups()
        words = "the checkpoint's bytes, shared out by the sizes in config.json"
        if unread:
            words = f"an estimate: {words}; its headers were not read: {unread}"
        if not sum(group.elements for group in groups):
            return (), words
        wide = kept_wide(config)
        if wide:
            words += ", with 2 bytes for a parameter of what is not quantized"
        if unread and self.experts.count and quantization(config) and not wide:
            self.keys.missing.append(
                "how many of the bytes are experts (they are quantized, the headers were not read, "
                "and config.json does not say what is left out)"
            )
        return _shares(groups, weight_bytes, wide), words

    def as_stored(self, stored: StoredBytes) -> tuple[Weight, ...]:
        """Groups of weights with the bytes that the headers tell."""
        by_place: Counter[tuple[int | None, Kind]] = Counter()
        for (pattern, layer), size in stored.groups.items():
            by_place[self._place(role(pattern), layer)] += size
        sparse = {layer for layer, kind in by_place if kind is Kind.EXPERTS}
        if self.experts.count and not sparse:
            self.keys.missing.append("which tensors are the experts (no name says it)")
        groups = self._groups(sparse)
        for dtype in stored.unknown:
            self.keys.missing.append(f"what loads the dtype {dtype} (it is not known here)")
        beyond = [n for n, what in by_place if what is Kind.DENSE and n and n >= self.layers]
        if beyond:
            words = f"what layer {max(beyond)} is (config.json has {self.layers} layers)"
            self.keys.missing.append(words)
        weights = [replace(group, bytes=part) for group, part in _parted(groups, by_place)]
        placed = {(group.layer, group.kind) for group in groups}
        return (*weights, *(
            Weight(f"other {kind}.weight", kind, size, 0, layer)
            for (layer, kind), size in by_place.items() if size and (layer, kind) not in placed
        ))  # fmt: skip

    def divided_as_stored(self, stored: StoredBytes) -> Divided:
        """What ranks hold of the layers, by the names of the tensors."""
        sizes: Counter[Held] = Counter()
        for (pattern, layer), size in stored.groups.items():
            where, what = self._place(role(pattern), layer)
            if where is not None and what is Kind.DENSE:
                sizes[held(pattern)] += size
        return Divided(sizes[Held.WHOLE], sizes[Held.KEY_VALUES], sizes[Held.ATTENTION])

    def divided(self, weights: tuple[Weight, ...]) -> Divided:
        """The same by the sizes in config.json, with the bytes that a dense parameter has."""
        dense = [weight for weight in weights if weight.kind is Kind.DENSE]
        elements = sum(weight.elements for weight in dense)
        width, spec = self.keys.count("hidden_size") or 0, self.attention
        if not elements or not width:
            return Divided()
        sparse = sum(self._is_sparse(layer) for layer in range(self.layers))
        whole, key_values = sparse * width * self.experts.count, 0
        if spec.latent:
            kept = spec.latent_rank + spec.rope + (self.keys.count("q_lora_rank") or 0)
            whole += self.layers * width * kept
        else:
            key_values = width * sum(sum(lengths(spec, layer)) for layer in range(self.layers))
        rest = sum(self._heads(width, layer) for layer in range(self.layers)) - key_values
        rest -= self.layers * width * kept if spec.latent else 0
        each = sum(weight.bytes for weight in dense) / elements
        return Divided(whole, key_values, max(0, rest)).scaled(each)

    def _place(self, what: Role, layer: int) -> tuple[int | None, Kind]:
        """The layer and the kind of tensors with that role."""
        if what is Role.BESIDE:
            return None, Kind.DENSE
        if what is Role.AHEAD:
            return self.layers + max(layer, 0), Kind.SKIPPED
        if layer >= self.layers:
            return layer, Kind.SKIPPED if self.spare else Kind.DENSE
        if what is Role.EXPERTS:
            return layer, Kind.EXPERTS
        if layer != OUTSIDE:
            return layer, Kind.DENSE
        return None, {Role.TOKENS: Kind.TOKENS, Role.OUTPUT: Kind.OUTPUT}.get(what, Kind.DENSE)

    def _groups(self, sparse: set[int | None] | None = None) -> list[Weight]:
        """Every group of weights with its parameters; nothing if a size is missing. `sparse` are
        the layers with experts, where the tensors themselves tell."""
        width, vocabulary = self.keys.count("hidden_size"), self.keys.count("vocab_size")
        if width is None:
            self.keys.lacks("hidden_size", "the width of the model")
        if vocabulary is None:
            self.keys.lacks("vocab_size", "the size of the token table")
        if width is None or vocabulary is None:
            return []
        groups = [Weight("token_embd.weight", Kind.TOKENS, 0, vocabulary * width)]
        tied = self.keys.raw("tie_word_embeddings")
        if tied is not True and not (tied is None and self.arch.startswith(TIED)):
            groups.append(Weight("output.weight", Kind.OUTPUT, 0, vocabulary * width))
        for layer in range(self.layers + self.spare):
            known = sparse is None or layer >= self.layers
            groups += self._layer(
                layer, width, self._is_sparse(layer) if known else layer in (sparse or ())
            )
        return groups

    def _layer(self, layer: int, width: int, sparse: bool) -> list[Weight]:
        skipped = layer >= self.layers
        dense, experts = self._heads(width, layer), 0
        if sparse:
            each = 3 * width * self.experts.width
            experts = each * self.experts.count
            dense += each * self.experts.shared + width * self.experts.count
        else:
            dense += 3 * width * self._forward(layer, width)
        kinds = (Kind.SKIPPED,) * 2 if skipped else (Kind.DENSE, Kind.EXPERTS)
        weights = [Weight(f"blk.{layer}.attn_and_ffn.weight", kinds[0], 0, dense, layer)]
        # one group for each of the three tensors, which are moved one by one
        names = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps") if experts else ()
        return weights + [
            Weight(f"blk.{layer}.{name}.weight", kinds[1], 0, experts // 3, layer) for name in names
        ]

    def _forward(self, layer: int, width: int) -> int:
        """The width of the feed-forward part of a layer without experts."""
        own = forward_of_block(self.keys.table, layer, width)
        if own is not None:
            return own
        dense = self.keys.count("intermediate_size_mlp")  # Llama 4, between layers with experts
        return dense or self.keys.count("intermediate_size") or 0

    def _is_sparse(self, layer: int) -> bool:
        if not self.experts.count or layer < self.experts.leading_dense:
            return False
        raw = self.keys.raw
        dense, sparse, each = raw("mlp_only_layers"), raw("moe_layers"), raw("moe_layer_freq")
        named = raw("moe_layers_enum")  # "3,4,5" (Step-3.5)
        if isinstance(named, str) and named:
            return str(layer) in named.replace(" ", "").split(",")
        if isinstance(dense, list) and layer in dense:
            return False
        if isinstance(sparse, list):
            return layer in sparse
        if isinstance(each, list):
            return layer < len(each) and bool(each[layer])
        names = ("decoder_sparse_step", "interleave_moe_layer_step")
        step = next((n for name in names if (n := self.keys.count(name, MAX_LAYERS))), 1)
        return (layer + 1) % step == 0

    def _heads(self, width: int, layer: int) -> int:
        heads = self.attention.heads or 0
        if self.attention.latent:
            query = self.keys.count("q_lora_rank") or 0
            nope = self.keys.count("qk_nope_head_dim") or 0
            value = self.keys.count("v_head_dim") or 0
            rank, rope = self.attention.latent_rank, self.attention.rope
            ask = heads * (nope + rope)
            queries = query * (width + ask) if query else width * ask
            kept = width * (rank + rope) + rank * heads * (nope + value)
            return queries + kept + heads * value * width
        spec = self.attention
        near = spec.has_window and layer < self.layers and spec.windowed[layer]
        head = (spec.window_key if near and spec.window_key else spec.key) or 0
        own = spec.kv_heads[layer] if spec.kv_heads and layer < self.layers else 0
        return width * head * (2 * heads + 2 * (own or max(spec.kv_heads or (0,))))
