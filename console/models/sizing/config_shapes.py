"""One name for what families of models call differently in a config.json, and what a family's class
takes where a key is not there. The names and defaults are those of transformers' own classes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from console.common.text import one_line
from console.models.hub.model_config import parts, quantization
from console.models.sizing.model_facts import MAX_LAYERS, MAX_LENGTH, Encoder

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "hidden_size": ("n_embd", "d_model", "model_dim"),
    "intermediate_size": ("ffn_hidden_size", "n_inner", "ffn_dim"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "max_sequence_length", "max_seq_len", "seq_length"),
    "head_dim": ("kv_channels", "attention_head_dim"),
    "num_key_value_heads": (
        "num_kv_heads",
        "n_head_kv",
        "multi_query_group_num",
        "kv_n_heads",
        "num_attention_groups",
    ),
    "num_nextn_predict_layers": ("num_mtp_modules", "mtp_num_hidden_layers"),
    "num_experts_per_tok": (
        "num_experts_per_token",
        "moe_topk",
        "moe_k",
        "moe_top_k",
        "top_k_experts",
    ),
    "n_routed_experts": ("num_experts", "num_local_experts", "moe_num_experts"),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts"),
}
"""By the commonest name: others for the same."""
EACH = (
    "intermediate_size", "moe_intermediate_size", "num_experts_per_tok", "n_routed_experts",
    "n_shared_experts", "num_attention_heads",
)  # fmt: skip
"""Sizes that some families (Gemma 3n, Hunyuan, ERNIE 4.5) list for each layer."""
PARTS = ("attn_config", "ffn_config")
"""Keys under which some families keep sizes of attention and of the feed-forward part."""
GEMMA_4 = {
    "vocab_size": 262144, "head_dim": 256, "max_position_embeddings": 131072,
    "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 512,
    "global_head_dim": 512,
}  # fmt: skip
DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gemma2": {"vocab_size": 256000, "head_dim": 256, "max_position_embeddings": 8192},
    "gemma3_text": {
        "vocab_size": 262208, "head_dim": 256, "max_position_embeddings": 131072,
        "num_attention_heads": 8, "num_key_value_heads": 4,
    },
    "gemma4_text": GEMMA_4, "gemma4_unified_text": GEMMA_4,
    "gemma3n_text": {"vocab_size": 262400, "head_dim": 256, "max_position_embeddings": 32768},
    "falcon": {"vocab_size": 65024, "max_position_embeddings": 2048},
    "llama4_text": {"vocab_size": 202048, "head_dim": 128, "n_shared_experts": 1},
    "mistral": {"vocab_size": 32000},
}  # fmt: skip
"""What a class takes for a key that is absent, by model type."""
ONE_KEY_HEAD = ("falcon", "gpt_bigcode", "refinedwebmodel", "refinedweb")
"""Families whose heads share one key and value where `multi_query` is not false."""
GLOBAL_APART = ("gemma4_text", "gemma4_unified_text")
"""Families whose layers without a window have heads of another number and length, and of which the
last layer never has one (Gemma4TextConfig)."""
SHARING = ("gemma3n_text", *GLOBAL_APART)
"""Families whose last layers use the cache of earlier ones (`num_kv_shared_layers`)."""
_CACHED = re.compile(
    r"\w*(?:kv|key_value)\w*head\w*|\w*head\w*_kv|kv_n\w*|\w*multi_query\w*|\w*query_group\w*"
    r"|(?:global|swa|sliding|local|full|v|k|kv|key|value)_(?:attn_|attention_)?head_dim"
    r"|\w*kv_shar\w*|use_cla|cla_share_factor|cross_layer_\w*|per_layer_config|hybrid_layer_pattern"
)
"""Names of keys that make a cache another: its heads, their lengths, the layers that have one."""
_KNOWN = re.compile(
    r"num_key_value_heads|num_kv_heads|n_head_kv|kv_n_heads|multi_query(?:_attention|_group_num)?"
    r"|first_num_key_value_heads"
)
_OF_GLOBAL = ("num_global_key_value_heads", "global_head_dim")


ENDS, DENSE = "token table and output", "dense"
"""Classes of weights that a quantization may leave out: the ends, and all but experts."""
_LEFT_OUT = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude")
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)


def kept_wide(config: Mapping[str, object]) -> frozenset[str]:
    """Classes of weights that stay in 16 bits by the list of what a quantization leaves out; empty
    without such a list. The ends are nearly always in it, so a list that names attention is taken
    to mean all but the experts."""
    how = quantization(config)
    listed = [
        name_list for key in _LEFT_OUT if isinstance(name_list := how.get(key), list) and name_list
    ]
    names = [name for name_list in listed for name in name_list if isinstance(name, str)]
    if not names:
        return frozenset()
    return frozenset({ENDS, DENSE}) if any(map(_ATTENTION.search, names)) else frozenset({ENDS})


def normal(config: Mapping[str, object]) -> dict[str, object]:
    """A configuration with the commonest names, and with its family's defaults."""
    table = {name: value for name, value in config.items() if value is not None}
    for part in PARTS:
        inner = config.get(part)
        if isinstance(inner, Mapping):
            table = {**{name: value for name, value in inner.items() if value is not None}, **table}
    for name, others in SYNONYMS.items():
        known = next((table[key] for key in (name, *others) if key in table), None)
        if known is not None:
            table[name] = known
    for name in EACH:
        if sizes := _sizes(table.get(name)):
            table[name] = max(sizes)
    family = table.get("model_type")
    defaults = DEFAULTS.get(family, {}) if isinstance(family, str) else {}
    return {**defaults, **table, **_shared_keys(table)}


def _sizes(value: object) -> list[int]:
    """The whole numbers of a list of nothing else; none where it is no such list."""
    numbers = [number for number in value if type(number) is int] if isinstance(value, list) else []
    return numbers if isinstance(value, list) and len(numbers) == len(value) else []


def uneven(config: Mapping[str, object], layers: int) -> Iterator[tuple[str, object]]:
    """Sizes of which a configuration lists others for other layers, or for something else."""
    for name in (
        other for size_name in EACH for other in (size_name, *SYNONYMS.get(size_name, ()))
    ):
        sizes = _sizes(config.get(name))
        if sizes and (len(set(sizes)) > 1 or len(sizes) < layers):
            yield name, config[name]


def _shared_keys(table: Mapping[str, object]) -> dict[str, object]:
    """The number of key and value heads where a switch tells it."""
    family = str(table.get("model_type") or "").lower()
    if "multi_query_group_num" in table:
        on = table.get("multi_query_attention") is not False
        return {} if on else {"num_key_value_heads": table.get("num_attention_heads")}
    if family not in ONE_KEY_HEAD or table.get("new_decoder_architecture") is True:
        return {}
    shared = table.get("multi_query") is not False
    return {"num_key_value_heads": 1 if shared else table.get("num_attention_heads")}


def not_understood(table: Mapping[str, object], head: int | None) -> list[str]:
    """Keys that change the cache and that nobody here reads; one that says what the usual key of
    its kind says changes nothing."""
    family, usual = table.get("model_type"), table.get("num_key_value_heads")
    read = (_OF_GLOBAL if family in GLOBAL_APART else ()) + (
        ("num_kv_shared_layers",) if family in SHARING else ()
    )
    return [
        name for name, value in table.items()
        if value and _CACHED.fullmatch(name) and not _KNOWN.fullmatch(name) and name not in read
        and value != (head if name.endswith("head_dim") else usual)
    ]  # fmt: skip


def global_layers(
    table: Mapping[str, object], heads: tuple[int, ...] | None, windowed: Sequence[bool]
) -> tuple[tuple[int, ...] | None, int | None]:
    """Key and value heads of each layer of a family that gives those of its layers without a window
    apart, and how long these are; None where they are as long as the others. Their number counts
    where keys and values are one projection (`attention_k_eq_v`), as in vLLM's gemma4.py."""
    own = table.get("num_global_key_value_heads") if table.get("attention_k_eq_v") else None
    length = table.get("global_head_dim")
    if table.get("model_type") not in GLOBAL_APART or len(windowed) != len(heads or ()):
        return heads, None
    if heads is not None and _is_count(own) and own <= MAX_LENGTH:
        heads = tuple(kept if near else own for kept, near in zip(heads, windowed, strict=True))
    return heads, length if _is_count(length) and length <= MAX_LENGTH else None


_KEEPS = re.compile(
    r"^(?:(?:full|sliding|sliding_window|chunked|global|local|self)?_?(?:attention|attn)?|\*)$",
    re.IGNORECASE,
)
_STATE = re.compile(r"linear|mamba|ssm|recurrent|rwkv|conv|delta|kda|lightning|^m$", re.IGNORECASE)
_ALONE = re.compile(r"^(?:mlp|moe|ffn|feed_forward|noop|-|e)$", re.IGNORECASE)
_LISTS = ("layer_types", "layers_block_type", "attn_type_list", "hybrid_override_pattern")


def layers_with_heads(
    table: Mapping[str, object], layers: int
) -> tuple[tuple[bool, ...], list[str]] | None:
    """Which layers have attention with a cache, where a model has others, and the kinds of layers
    that nobody here knows (they are taken to have one). None where nothing tells of others."""
    kinds = next((list(each) for name in _LISTS if isinstance(each := table.get(name), list | str)
                  and len(each) >= layers), None)  # fmt: skip
    if kinds is not None:
        words = ["linear" if kind == 0 else "full" if kind == 1 else str(kind) for kind in kinds]
        without = {word for word in words if _STATE.search(word) or _ALONE.search(word)}
        odd = {word for word in words[:layers] if not _KEEPS.search(word)} - without
        return tuple(word not in without for word in words[:layers]), sorted(odd)
    every, offset = table.get("full_attention_interval"), table.get("attn_layer_offset")
    period = table.get("attn_layer_period")
    if _is_count(every):
        return tuple((layer + 1) % every == 0 for layer in range(layers)), []
    if _is_count(period) and isinstance(offset, int):
        return tuple(layer % period == offset for layer in range(layers)), []
    return None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def heads_of_blocks(table: Mapping[str, object], layers: int) -> tuple[int, ...] | None:
    """Key and value heads of each layer of a model that a search has thinned out (`block_configs`
    of Nemotron-NAS); 0 for a layer without attention. None where there is no such list."""
    blocks, heads = table.get("block_configs"), table.get("num_attention_heads")
    if not isinstance(blocks, list) or not isinstance(heads, int) or len(blocks) < layers:
        return None
    return tuple(_key_heads(block, heads) for block in blocks[:layers])


def _key_heads(block: object, heads: int) -> int:
    attention = block.get("attention") if isinstance(block, Mapping) else None
    if not isinstance(attention, Mapping):
        return heads
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return 0
    group = attention.get("n_heads_in_group")
    return heads // group if isinstance(group, int) and group > 0 else heads


def heads_of_other(
    table: Mapping[str, object], heads: tuple[int, ...] | None, head: int | None
) -> tuple[tuple[int, ...] | None, bool]:
    """Key and value heads of a model that gives those of one kind of its layers apart (Step-3.5:
    attention_other_setting), and whether these layers have heads of another length."""
    other, kinds = table.get("attention_other_setting"), table.get("layer_types")
    if heads is None or not isinstance(other, Mapping) or not isinstance(kinds, list):
        return heads, False
    kept, kind = other.get("num_attention_groups"), other.get("attention_type")
    if _is_count(kept) and kept <= MAX_LENGTH and len(kinds) >= len(heads):
        heads = tuple(kept if kinds[at] == kind else own for at, own in enumerate(heads))
    return heads, other.get("head_dim", head) != head


def forward_of_block(table: Mapping[str, object], layer: int, width: int) -> int | None:
    """The width of a layer's feed-forward part by `block_configs`; None where there is none."""
    blocks = table.get("block_configs")
    block = blocks[layer] if isinstance(blocks, list) and layer < len(blocks) else None
    forward = block.get("ffn") if isinstance(block, Mapping) else None
    if not isinstance(forward, Mapping):
        return None
    factor = forward.get("ffn_mult")
    if forward.get("no_op") or not isinstance(factor, int | float):
        return 0
    return -(-int(2 * factor * width / 3) // 256) * 256


_IMAGES = re.compile(
    r"(?:mm_)?(?:vision|visual|image|img|video|vit|vq|siglip)(?:_\w+)?|embd_layer|vision_n_layers"
)
_SOUND = re.compile(r"(?:mm_)?(?:audio|speech|sound|whisper)(?:_\w+)?|encoder_config")
_MARKS = re.compile(r"_(?:token|tokens|id|ids|index|start|end|pad|seq_length|size|feature_layer)\b")
"""Ends of keys that tell of places in the text, and of no encoder."""
_CLASSES = re.compile(
    r"ForConditionalGeneration$|V[Ll]|Vision|Omni|Audio|Llava|Whisper|OCR|MiniCPM[VO]|Molmo|Ovis"
    r"|Pixtral|ASR|Voxtral|Ultravox|ForCausalLMV"
)
_TEXT_CLASSES = ("ChatGLMForConditionalGeneration",)


def classes(config: Mapping[str, object]) -> tuple[str, ...]:
    """The names of transformers' classes that a configuration gives."""
    listed = config.get("architectures")
    names = listed if isinstance(listed, list) else []
    return tuple(one_line(name, 64) for name in names[:4] if isinstance(name, str))


def encoders(config: Mapping[str, object]) -> tuple[Encoder, ...]:
    """The parts for images and for sound that a configuration has: by its keys, else by the name of
    its class."""
    encoder_by_input: dict[str, Encoder] = {}
    for part in parts(config):
        # a tower's own configuration tells more than a key about it
        for key, value in sorted(part.items(), key=lambda pair: not isinstance(pair[1], Mapping)):
            reads = _reads(key)
            tells = isinstance(value, Mapping) or (isinstance(value, str | int) and bool(value))
            if reads and tells and reads not in encoder_by_input:
                encoder_by_input[reads] = _encoder(reads, value)
    if encoder_by_input:
        return tuple(encoder_by_input.values())
    others = [name for name in classes(config) if name not in _TEXT_CLASSES]
    return (Encoder(""),) if any(map(_CLASSES.search, others)) else ()


def _reads(key: object) -> str:
    if not isinstance(key, str) or _MARKS.search(key):
        return ""
    if _IMAGES.fullmatch(key):
        return "images"
    return "sound" if _SOUND.fullmatch(key) else ""


_HEADS = ("num_heads", "num_attention_heads", "attention_heads")
"""What the configuration of an encoder calls its heads."""


def _encoder(reads: str, value: object) -> Encoder:
    """Its sizes as SGLang reads them: a class that counts its layers as `depth` has none of the
    usual name, and the usual number is taken."""
    table = value if isinstance(value, Mapping) else {}
    layers, width = table.get("num_hidden_layers"), table.get("hidden_size")
    heads = next((table[name] for name in _HEADS if name in table), None)
    if layers is None and _is_count(table.get("depth")):
        layers = 24
    return Encoder(
        reads,
        layers if _is_count(layers) and layers <= MAX_LAYERS else None,
        width if _is_count(width) and width <= MAX_LENGTH else None,
        heads if _is_count(heads) and heads <= MAX_LENGTH else None,
    )
