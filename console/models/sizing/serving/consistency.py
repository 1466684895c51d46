"""Whether the keys of a config.json can be true, by their types, by each other and by the tensors.

What vLLM and SGLang certainly refuse raises BadFacts; whatever else does not fit is named, so that
the verdict is UNKNOWN. Numbers that a sum reads are checked where it reads them
(`console.models.sizing.model_facts.Keys`).

Sources: transformers 5's checks of types (a str or float for an int is refused), `divide` and the
attention backends of vLLM 0.33 and SGLang 0.5.23 (query heads are a multiple of key heads),
VocabParallelEmbedding's weight_loader (rows equal `vocab_size`), the constructors of their
quantizations (fp8.py, awq.py, auto_gptq.py, compressed_tensors.py), `track_weights_loading` of
vLLM's default_loader.py, and `get_rope` and `get_act_fn` of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from console.common.text import one_line
from console.models.hub.model_config import INNER, QUANTIZED, parts, quantization, whole
from console.models.safetensors.names import Role, role
from console.models.safetensors.read import StoredBytes
from console.models.sizing.config_shapes import uneven
from console.models.sizing.model_facts import Attention, Keys

NUMBERS = (
    "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "rope_theta", "routed_scaling_factor",
    "attention_dropout", "partial_rotary_factor", "logits_scaling", "final_logit_softcapping",
)  # fmt: skip
EACH_LAYER = {"step3p5": ("rope_theta",)}
"""Families whose class takes a number for each layer."""
SWITCHES = (
    "tie_word_embeddings", "use_cache", "attention_bias", "mlp_bias", "norm_topk_prob",
    "use_qk_norm",
)  # fmt: skip
WORDS = ("torch_dtype", "dtype", "model_type", "hidden_act")
TABLES = ("rope_scaling", "rope_parameters")
OWN_HEADS = ("block_configs", "num_attention_heads_per_layer", "num_query_heads")
"""Keys of models whose layers differ in their heads."""
METHODS = ("quant_method", "quant_algo", "producer", "quantization", "load_in_4bit", "load_in_8bit")
"""Keys by which one of the engines knows a quantization."""
TABLE, KEYS = (
    "model.embed_tokens.weight",
    re.compile(r"model\.layers\.#\.self_attn\.k_proj\.weight"),
)
WIDE = 16
"""Bits of a weight that is stored as it is, and not packed."""
EVERY_LAYER = (
    "apertus", "arcee", "cohere2", "ernie4_5", "exaone4", "gemma", "gemma2", "gemma3_text", "glm4",
    "granite", "hunyuan_v1_dense", "llama", "mimo", "mistral", "mixtral", "olmo2", "phi3", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "smollm3",
)  # fmt: skip
"""Families whose every layer has tensors of its own, among them norms: vLLM ends where the weights
of one are not in the checkpoint."""
PACKED = re.compile(
    r"scale|qweight|qzeros|packed|absmax|quant_|\.SCB$|codes|codebook|W_q$|_blocks$|\.trellis$"
)
"""Names of tensors that a quantization leaves in a checkpoint."""
ROPES = frozenset((
    "default", "llama3", "linear", "dynamic", "ntk", "yarn", "deepseek_yarn", "longrope", "su",
    "mrope", "bailing_mrope", "mllama4", "proportional", "openpangu", "deepseek_llama_scaling",
))  # fmt: skip
"""Ways to stretch the places of tokens that vLLM or SGLang knows."""
ACTIVATIONS = frozenset((
    "gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "geglu", "quick_gelu", "relu", "relu2",
    "sigmoid", "silu", "swigluoai", "swish", "tanh", "xielu",
))  # fmt: skip
"""Activations that vLLM or SGLang knows (`activation.py` of both)."""
LENGTHS = ("max_position_embeddings", "model_max_length", "max_seq_length", "seq_len",
           "max_target_positions")  # fmt: skip
"""Keys by which vLLM finds the longest context, beside the synonyms of the first."""
FAMILIES = ("gemma3",)
"""Families whose published configurations leave their longest context, which is long, to the engine
(transformers' `Gemma3TextConfig`: 131,072 tokens)."""


def check(config: Mapping[str, object], keys: Keys, attention: Attention, layers: int) -> None:
    """Compare the keys of a configuration. `keys` are those of its language model, and take the
    doubts. Raises BadFacts."""
    keys.missing += _odd_types(config)
    keys.missing += _not_known(config)
    if not config.get("model_type"):
        keys.lacks("model_type", "it names no family, by which the engine reads the rest")
    of_family = str(config.get("model_type") or "").startswith(FAMILIES)
    if not of_family and all(keys.raw(name) is None for name in LENGTHS):
        keys.lacks("max_position_embeddings", "the longest context is the family's own")
    _quantization(config, keys)
    _heads(keys, attention)
    for name, value in uneven(whole(config), layers):
        keys.lacks(name, f"{one_line(repr(value), 40)}: the largest is counted for every layer")
    kinds = keys.raw("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or len(kinds) < layers):
        keys.lacks("layer_types", f"it is no list of {layers} layers")


def _odd_types(config: Mapping[str, object]) -> Iterator[str]:
    """Keys whose value has a type that the engines refuse, or read otherwise than it is meant."""
    expected = (
        (NUMBERS, (int, float), "a number"), (SWITCHES, (bool,), "true or false"),
        (WORDS, (str,), "a word"), (TABLES, (Mapping,), "a table"), (INNER, (Mapping,), "a table"),
    )  # fmt: skip
    for part in parts(config):
        for names, types, words in expected:
            for name in names:
                value = part.get(name)
                if name in EACH_LAYER.get(str(part.get("model_type")), ()) and _numbers(value):
                    continue
                if value is not None and (
                    not isinstance(value, types) or (bool not in types and isinstance(value, bool))
                ):
                    shown = one_line(repr(value), 40)
                    yield f"what the engine makes of {name} ({shown}; expected {words})"


def _numbers(value: object) -> bool:
    """Whether it is a list of numbers alone."""
    return isinstance(value, list) and all(type(element) in (int, float) for element in value)


def _not_known(config: Mapping[str, object]) -> Iterator[str]:
    """Words that neither engine has, in keys of which both take a closed set."""
    for part in parts(config):
        for name in ("hidden_act", "hidden_activation"):
            value = part.get(name)
            if isinstance(value, str) and value.lower() not in ACTIVATIONS:
                yield f"the engine's {name} {one_line(repr(value), 40)} (it is not known here)"
        for name in TABLES:
            for value in _rope_types(part.get(name)):
                yield f"the engine's {name} {one_line(repr(value), 40)} (it is not known here)"


def _rope_types(table: object) -> Iterator[object]:
    """The kinds of stretching in a table, or in the tables that it has for kinds of layers."""
    if not isinstance(table, Mapping):
        return
    kind = table.get("rope_type", table.get("type"))
    if kind is not None and (not isinstance(kind, str) or kind not in ROPES):
        yield kind
    for inner in table.values():
        if isinstance(inner, Mapping):
            yield from _rope_types({key: inner[key] for key in ("rope_type", "type")
                                    if key in inner})  # fmt: skip


def _quantization(config: Mapping[str, object], keys: Keys) -> None:
    for part in parts(config):
        for name in QUANTIZED:
            how = part.get(name)
            if how is None or how == {}:
                continue
            if not isinstance(how, Mapping):
                keys.bad(name, how, "a table with quant_method")
            _method(name, how, keys)


def _method(name: str, how: Mapping[str, object], keys: Keys) -> None:
    """One table that says how weights are quantized."""
    if not any(how.get(method_key) for method_key in METHODS):
        keys.missing.append(f"{name}.quant_method (it says no method)")
    elif how.get("quant_method") is not None and not isinstance(how["quant_method"], str):
        keys.bad(f"{name}.quant_method", how["quant_method"], "a word")
    for key in ("bits", "w_bit", "group_size"):
        value = how.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            keys.bad(f"{name}.{key}", value, "a number")
    bits, group = how.get("bits"), how.get("group_size")
    if isinstance(bits, int | float) and not 1 <= bits <= WIDE:
        keys.bad(f"{name}.bits", bits, f"1 to {WIDE}")
    if isinstance(group, int | float) and group < 1 and group != -1:
        keys.missing.append(f"{name}.group_size ({group}; expected -1, or 1 and more)")
    _blocks(name, how, keys)
    groups = how.get("config_groups")
    if groups is not None and not isinstance(groups, Mapping):
        keys.bad(f"{name}.config_groups", groups, "a table")
    for key in ("ignore", "ignored_layers", "modules_to_not_convert"):
        if not _is_names(how.get(key)):
            keys.missing.append(f"{name}.{key} (it is no list of names)")


def _blocks(name: str, how: Mapping[str, object], keys: Keys) -> None:
    block = how.get("weight_block_size")
    if block is None:
        return
    if not isinstance(block, list) or not all(type(side) is int and side > 0 for side in block):
        keys.bad(f"{name}.weight_block_size", block, "two whole numbers, like [128, 128]")
    if len(block) != 2:
        keys.missing.append(f"{name}.weight_block_size (it has {len(block)} sides, and not 2)")


def _is_names(value: object) -> bool:
    """Whether a value is a list of names, where `re:` begins a pattern, or not there."""
    if value is None:
        return True
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return False
    try:
        for name in value:
            if name.startswith("re:"):
                re.compile(name[3:])
    except (re.error, RecursionError):
        return False
    return True


def _heads(keys: Keys, attention: Attention) -> None:
    """Heads of attention have to be a multiple of those of the cache, and to divide the width."""
    heads, kept = attention.heads, keys.raw("num_key_value_heads")
    if attention.latent or not heads or any(keys.raw(name) for name in OWN_HEADS):
        return
    if isinstance(kept, int) and not isinstance(kept, bool) and (kept < 1 or heads % kept):
        keys.bad("num_key_value_heads", kept, f"a divisor of the {heads} attention heads")
    width = keys.raw("hidden_size")
    if not keys.raw("head_dim") and isinstance(width, int) and width % heads:
        keys.lacks("head_dim", f"hidden_size {width} is not divisible by {heads} heads")


def against(
    stored: StoredBytes, keys: Keys, attention: Attention, layers: int, *, plain: bool
) -> None:
    """Compare a configuration with the tensors of the checkpoint. `plain`: the model is one of text
    alone, of one part. Raises BadFacts."""
    packed = any(PACKED.search(pattern) for pattern, _ in stored.groups) or any(
        bits < WIDE for _, bits in stored.elements.values()
    )
    quantized = bool(quantization(keys.table))
    _layers(stored, keys, layers, certain=plain and not packed and not quantized)
    if quantized and not packed:
        keys.lacks("quantization_config", "it says quantized, and no tensor is")
    width, rows = keys.raw("hidden_size"), keys.raw("vocab_size")
    elements, bits = stored.elements.get(TABLE, (0, 0))
    if elements and bits >= WIDE and isinstance(width, int) and isinstance(rows, int):
        if elements != width * rows and plain:
            mismatch = f"{width} x {rows}, and the tensor has {elements} elements"
            keys.bad("hidden_size x vocab_size", mismatch, f"the size of {TABLE}")
        elif elements != width * rows:
            keys.lacks("vocab_size", f"{TABLE} has {elements} elements, not {width} x {rows}")
    _cached(stored, keys, attention)
    roles = {role(pattern) for pattern, _ in stored.groups}
    if (
        keys.raw("tie_word_embeddings") is False
        and Role.TOKENS in roles
        and Role.OUTPUT not in roles
    ):
        keys.lacks("tie_word_embeddings", "it is false, and no tensor is the output")


def _layers(stored: StoredBytes, keys: Keys, layers: int, *, certain: bool) -> None:
    """Layers that the configuration has and the tensors do not, where names tell of layers."""
    own = (Role.REST, Role.EXPERTS)
    stored_layers = {
        layer for pattern, layer in stored.groups if layer >= 0 and role(pattern) in own
    }
    absent = sorted(set(range(layers)) - stored_layers)
    if not stored_layers or not absent or any(keys.raw(name) for name in OWN_HEADS):
        return
    words = f"no tensor is of layer {absent[0]}"
    if certain and keys.raw("model_type") in EVERY_LAYER:
        keys.bad(
            "num_hidden_layers",
            f"{layers}, and {words}",
            f"the {len(stored_layers)} that are stored",
        )
    keys.lacks("num_hidden_layers", words)


def _cached(stored: StoredBytes, keys: Keys, attention: Attention) -> None:
    """The tensors that make the keys of the cache, where all layers have the same."""
    heads, width = set(attention.kv_heads or ()), keys.raw("hidden_size")
    key_sizes = [sizes for pattern, sizes in stored.elements.items() if KEYS.fullmatch(pattern)]
    if len(key_sizes) != 1 or len(heads) != 1 or attention.latent or not isinstance(width, int):
        return
    (elements, bits), (count,) = key_sizes[0], heads
    if bits >= WIDE and count and attention.key and elements != width * count * attention.key:
        words = f"the tensors have {elements} elements, not {width} x {count} x {attention.key}"
        keys.lacks("num_key_value_heads", words)
