"""Model facts from a GGUF header, with the keys and defaults of llama.cpp's own loader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

from console.common.errors import ConsoleError
from console.common.text import clean, one_line
from console.models.gguf.header import IK_LLAMA, Array, Header, Tensor, shown_name, type_of
from console.models.gguf.header_keys import not_understood
from console.models.gguf.read import check_shards, merged, read_shards
from console.models.hub.reference import shard
from console.models.sizing.model_facts import (
    MAX_BYTES,
    MAX_LAYERS,
    Attention,
    BadFacts,
    Experts,
    Keys,
    Kind,
    ModelFacts,
    Weight,
    recurrent_of,
)

SOURCE = "GGUF header"
_BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)")
_EXPERT = re.compile(r"ffn_(up|down|gate|gate_up)_(ch)?exps\b")
_FORWARD = re.compile(r"\bffn_(?:up|down|gate)\.weight")
_TOKENS = ("token_embd.", "per_layer_token_embd.", "position_embd.", "token_types.")

PERIODS: dict[str, tuple[int, bool]] = {
    "afmoe": (4, False), "cohere2": (4, False), "cohere2moe": (4, True),
    "exaone-moe": (4, False), "gemma2": (2, False), "gemma3": (6, False),
    "gemma3n": (5, False), "gemma-embedding": (6, False), "gpt-oss": (2, False),
    "laguna": (4, True), "llama4": (4, False), "mellum": (4, False), "modern-bert": (3, True),
    "muse-glimmer": (4, False), "olmo2": (4, False), "plamo3": (8, False),
    "smallthinker": (4, True),
}  # fmt: skip
"""Which layers use a window if the file does not list them: all but one in this many, the full one
last or (True) first. Seen in llama.cpp b11549, which prints it for every layer."""
_UNUSED = (
    "llama",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "phi3",
    "phimoe",
    "deepseek2",
    "exaone4",
)
"""Architectures whose loader leaves a window in the file alone (exaone4: but for 64 layers)."""
NO_CACHE = frozenset({
    "bert", "dream", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llada", "llada-moe",
    "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "rnd1", "wavtokenizer-dec",
})  # fmt: skip
"""Diffusion and embedding models, for which llama.cpp makes no memory (`create_memory`)."""
_WINDOWS = {"gemma2": 4096, "llama4": 8192, "smallthinker": 4096}
"""Windows set by the loader and not by the file; llama4's file cannot change its own."""
SHARING = "glm-dsa"
INDEXED = ("deepseek32", SHARING)
_SHARING_FROM = 1 << 20
"""In a glm-dsa of this context without a list, only some layers have their own indexer."""
UNKNOWN_CACHES = {
    "attention.compress_ratios": "compressed caches",
    "attention.indexer.kpool": "pooled indexer keys",
    "attention.indexer.block_size": "indexer blocks",
    "attention.key_length_mla_swa": "latent attention in windows",
    "kda.head_dim": "delta attention",
}
"""Caches whose size is unknown here, which the verdict says instead of guessing."""


READ_S = 20.0


def experts_at(directory: Path) -> int | None:
    """Bytes of the experts of the one set of GGUF files in a directory; None if there is none, or
    if they are more than one set, or not whole."""
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix == ".gguf")
        readings = read_shards([str(path) for path in files], token="", deadline_s=READ_S)
        headers = [reading.header for reading in readings]
        sizes = [(path.name, path.stat().st_size) for path in files]
        sets = {(shard(path.name) or (path.name,))[0] for path in files}
        if len(sets) != 1 or check_shards(sizes, headers):
            return None
        return from_gguf(merged(headers)).bytes_of(Kind.EXPERTS) or None
    except (ConsoleError, OSError):
        return None


def from_gguf(header: Header) -> ModelFacts:
    """The facts of a file, or of a split set's merged header. Raises BadFacts for impossible
    values; absent keys are in `missing`."""
    arch = clean(header.architecture or "", 64)
    keys = Keys(header.kv, f"{arch}.", SOURCE, _unpack)
    if not arch:
        keys.missing.append("general.architecture (which model this is)")
    blocks = keys.count("block_count", MAX_LAYERS, 1)
    if blocks is None:
        keys.lacks("block_count", "how many layers")
        return ModelFacts(arch, SOURCE, missing=tuple(keys.missing))
    spare = keys.count("nextn_predict_layers", MAX_LAYERS) or 0
    if spare >= blocks:
        keys.bad("nextn_predict_layers", spare, f"fewer than the {blocks} blocks")
    layers = blocks - spare
    forward = keys.counts("feed_forward_length", blocks)
    experts = _experts(keys, max(forward) if forward else 0)
    weights, unknown = _weights(header.tensors, layers, blocks)
    _refuse_unlike(keys, blocks, spare, forward, weights)
    attention = _attention(keys, arch, layers, blocks)
    recurrent = recurrent_of(keys, arch, layers, attention, forward)
    for key, what in UNKNOWN_CACHES.items():
        if keys.raw(key) is not None:
            keys.lacks(key, f"{what}: their cache is not known here")
    vocabulary = _vocabulary(header.kv, keys, weights)
    context = keys.tokens("context_length")
    missing = [
        *keys.missing,
        *not_understood(header.kv, keys.prefix, keys.read),
        *unknown,
        *_contradicted(header.tensors, attention, arch),
    ]
    missing += _attention_missing(keys, attention, recurrent is not None and not recurrent.beside)
    return ModelFacts(
        architecture=arch,
        source=SOURCE,
        layers=layers,
        spare_layers=spare,
        embedding=keys.count("embedding_length"),
        feed_forward=max(forward) if forward else None,
        vocabulary=vocabulary,
        context_length=context,
        attention=attention,
        recurrent=recurrent,
        experts=experts,
        weights=weights,
        weights_from="the file's tensor table",
        of_ik=_of_ik(header.tensors),
        missing=tuple(dict.fromkeys(missing)),
        notes=_notes(attention),
    )


def _of_ik(tensors: Iterable[Tensor] | None) -> tuple[str, ...]:
    numbers = sorted({tensor.type for tensor in tensors or () if tensor.type in IK_LLAMA})
    return tuple(f"{IK_LLAMA[number].name} (type {number})" for number in numbers)


def _unpack(value: object) -> tuple[object, ...] | None:
    if isinstance(value, Array):
        return value.values
    return tuple(value) if isinstance(value, tuple | list) else None


def _attention_missing(keys: Keys, attention: Attention, states: bool) -> list[str]:
    """Keys needed to compute a cache; a model with only `states` needs none."""
    if attention.kv_heads is not None and not any(attention.kv_heads):
        return []
    if attention.kv_heads is None and attention.heads in (None, 0) and states:
        return []
    missing_keys = []
    if attention.kv_heads is None:
        missing_keys.append(f"{keys.name('attention.head_count')} (heads of attention)")
    if attention.key is None or attention.value is None:
        missing_keys.append(f"{keys.name('attention.key_length')} (length of a head)")
    return missing_keys


def _attention(keys: Keys, arch: str, layers: int, blocks: int) -> Attention:
    """Heads and lengths, with the loader's defaults: head_count_kv is head_count, and a head is
    embedding_length / head_count long."""
    heads = keys.counts("attention.head_count", blocks)
    kv_heads = keys.counts("attention.head_count_kv", blocks) or heads
    embedding = keys.count("embedding_length")
    default = embedding // heads[0] if heads and heads[0] and embedding else None
    key, value = keys.count("attention.key_length"), keys.count("attention.value_length")
    head = keys.count("attention.key_length_mla") or 0
    head_value = keys.count("attention.value_length_mla") or 0
    latent = head > 0 and head_value > 0
    rank = keys.count("attention.kv_lora_rank") or 0
    window, windowed = _window(keys, arch, layers)
    indexer, indexed = _indexer(keys, arch, layers)
    shared = keys.count("attention.shared_kv_layers", blocks)
    return Attention(
        heads=max(heads) if heads else None,
        kv_heads=kv_heads[:layers] if kv_heads else None,
        key=default if key is None else key,
        value=default if value is None else value,
        window_key=keys.count("attention.key_length_swa"),
        window_value=keys.count("attention.value_length_swa"),
        latent=latent,
        head=head if latent else 0,
        head_value=head_value if latent else 0,
        unpacked=rank > 0 and not latent,
        latent_rank=rank,
        rope=keys.count("rope.dimension_count") or 0,
        window=window,
        windowed=windowed,
        own_layers=0 if arch in NO_CACHE else None if shared is None else max(0, blocks - shared),
        indexer=indexer,
        indexed=indexed,
    )


def _window(keys: Keys, arch: str, layers: int) -> tuple[int, tuple[bool, ...]]:
    """The window in tokens, and for each layer whether it has one."""
    window = keys.tokens("attention.sliding_window")
    if window == 0:
        return 0, ()
    if arch == "llama4" or window is None:
        window = _WINDOWS.get(arch, window)
    if not window:
        return 0, ()
    listed = "attention.sliding_window_pattern"
    if keys.is_array(listed):
        return window, tuple(bool(flag) for flag in keys.counts(listed, layers, 1) or ())
    period, dense_first = PERIODS.get(arch, (1, False))
    if arch == "exaone4" and layers == 64:
        period = 4
    elif arch in PERIODS:
        period = keys.count(listed, MAX_LAYERS) or period
    elif arch not in _UNUSED:
        keys.lacks(listed, "which layers keep a window in their cache, a rule that is not known")
    full = 0 if dense_first else period - 1
    flags = tuple(index % period != full for index in range(layers))
    return (window, flags) if any(flags) else (0, ())


def _indexer(keys: Keys, arch: str, layers: int) -> tuple[int, tuple[bool, ...]]:
    """The length of an indexer's key, and which layers keep keys of their own."""
    length = keys.count("attention.indexer.key_length")
    if not length:
        return 0, ()
    if arch not in INDEXED:
        keys.lacks("attention.indexer.key_length", "an indexer cache that is not known here")
        return 0, ()
    types = None  # deepseek32's loader reads no list: every layer has its own
    if arch == SHARING:
        types = keys.counts("attention.indexer.types", layers, 1)
    long = (keys.tokens("context_length") or 0) >= _SHARING_FROM
    if types is None and arch == SHARING and long:
        types = tuple(int(index < 2 or (index - 2) % 4 == 0) for index in range(layers))
    return length, tuple(bool(indexer_type) for indexer_type in types) if types else (
        True,
    ) * layers


def _experts(keys: Keys, forward: int) -> Experts:
    """The routed experts; older architectures give their width as that of the feed-forward part."""
    count, used = keys.count("expert_count") or 0, keys.count("expert_used_count") or 0
    if used > count:
        keys.bad("expert_used_count", used, f"at most the {count} experts there are")
    return Experts(
        count=count,
        used=used,
        shared=keys.count("expert_shared_count") or 0,
        width=_widest(keys, "expert_feed_forward_length") or forward if count else 0,
        leading_dense=keys.count("leading_dense_block_count", MAX_LAYERS) or 0,
    )


def _widest(keys: Keys, key: str) -> int:
    """A length that may be given for each layer: the largest."""
    value = keys.raw(key)
    items = _unpack(value)
    return max(keys.counts(key, len(items)) or (0,)) if items else keys.count(key) or 0


def _contradicted(tensors: Iterable[Tensor] | None, attention: Attention, arch: str) -> list[str]:
    """K's matrix beside the keys that say how wide K is: a loader refuses a file in which they
    differ, and the sum would be another's."""
    if attention.kv_heads is None or attention.key is None:
        return []
    for tensor in tensors or ():
        match = _BLOCK.fullmatch(tensor.name)
        if match is None or match[2] != "attn_k.weight" or len(tensor.dims) != 2:
            continue
        layer, rows = int(match[1]), tensor.dims[1]
        if layer >= len(attention.kv_heads):
            continue
        near = attention.window_key or attention.key
        widths = {attention.kv_heads[layer] * head_length for head_length in (attention.key, near)}
        if rows not in widths:
            expected_widths = " or ".join(str(width) for width in sorted(widths))
            name = shown_name(tensor.name)
            return [f"{name}: it is {rows} wide, and {arch}'s keys make K {expected_widths} wide"]
    return []


def _weights(
    tensors: Iterable[Tensor] | None, layers: int, blocks: int
) -> tuple[tuple[Weight, ...], list[str]]:
    """Every tensor with its use, and what could not be determined."""
    if tensors is None:
        return (), ["the tensor table (only the start of the header was read)"]
    weights, unknown = [], []
    for tensor in tensors:
        name = shown_name(tensor.name)
        if tensor.bytes is None:
            kind = one_line(tensor.type_name, 40)
            unknown.append(f"the bytes of {name} (its type {kind} is not known here)")
            continue
        packed = type_of(tensor.type)
        if packed is None:
            unknown.append(f"what loads {name}: its type {tensor.type} is newer than this reader")
        if not 0 <= tensor.bytes <= MAX_BYTES:
            raise BadFacts(f"the {SOURCE} cannot be true", f"{name} has {tensor.bytes} bytes")
        block = _BLOCK.fullmatch(name)
        layer = int(block[1]) if block else None
        if layer is not None and layer >= blocks:
            raise BadFacts(
                f"the {SOURCE} cannot be true", f"{name} is in none of the {blocks} blocks"
            )
        kind_of = _kind(name, layer, layers)
        size = packed.block if packed is not None else 0
        weights.append(Weight(name, kind_of, tensor.bytes, prod(tensor.dims), layer, size))
    if not weights:
        unknown.append("the tensors (there are none)")
    return tuple(weights), unknown[:3]


def _refuse_unlike(
    keys: Keys, blocks: int, spare: int, forward: tuple[int, ...] | None,
    weights: tuple[Weight, ...],
) -> None:  # fmt: skip
    """Refuse keys that the tensors belie, as a loader does with "missing tensor" or "wrong shape":
    a block without tensors, a feed-forward part of no width. Raises BadFacts."""
    wide = {weight.layer: weight.name for weight in weights if _FORWARD.search(weight.name)}
    experts = {weight.layer: weight.name for weight in weights if _EXPERT.search(weight.name)}
    if keys.raw("expert_feed_forward_length") is None:
        wide |= experts
    for layer, width in enumerate(forward or ()):
        if width == 0 and layer in wide:
            keys.bad("feed_forward_length", 0, f"the width of {wide[layer]}")
    held = {weight.layer for weight in weights if weight.layer is not None}
    for layer in range(blocks) if held else ():
        if layer in held or (forward and forward[layer] == 0):
            continue
        if layer >= blocks - spare:
            keys.bad("nextn_predict_layers", spare, f"tensors of block {layer}, and there are none")
        keys.bad("block_count", blocks, f"tensors of block {layer}, and there are none")


def _kind(name: str, layer: int | None, layers: int) -> Kind:
    if layer is None:
        return Kind.TOKENS if name.startswith(_TOKENS) else Kind.OUTPUT
    if layer >= layers:
        return Kind.SKIPPED
    return Kind.EXPERTS if _EXPERT.search(name) else Kind.DENSE


def _vocabulary(kv: Mapping[str, object], keys: Keys, weights: tuple[Weight, ...]) -> int | None:
    """The vocabulary's size: from the token table, the key, or the count of the tokens."""
    embedding = keys.count("embedding_length")
    for weight in weights:
        if weight.name == "token_embd.weight" and embedding:
            return weight.elements // embedding
    tokens = kv.get("tokenizer.ggml.tokens")
    if isinstance(tokens, Array):
        return tokens.count
    return keys.count("vocab_size")


def _notes(attention: Attention) -> tuple[str, ...]:
    if attention.unpacked and attention.kv_heads:
        return (
            "converted before latent caches: no *_mla keys, so K and V of every head are kept; a "
            "newer conversion of the same model keeps a small part of that",
        )
    return ()
