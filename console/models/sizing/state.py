"""Layers that keep a state of fixed size instead of a cache: Mamba, delta nets, short convolutions,
RWKV. Which layers those are, and how many numbers they keep, as llama.cpp's loader decides it."""

from __future__ import annotations

from console.models.sizing.keys import Keys
from console.models.sizing.model_facts import MOST_LAYERS, Attention, Recurrent

ALL = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
BESIDE = ("falcon-h1",)
EVERY_FOURTH_FULL = ("qwen3next", "qwen35", "qwen35moe")


def recurrent_of(
    keys: Keys, arch: str, layers: int, attention: Attention, forward: tuple[int, ...] | None
) -> Recurrent | None:
    """The states, or None for a model without any. Raises BadFacts."""
    sizes = _sizes(keys)
    if sizes is None:
        if arch in (*ALL, *BESIDE, *EVERY_FOURTH_FULL):
            keys.lacks("ssm.state_size", "the state of its recurrent layers")
        return None
    conv, state, how = sizes
    which = _layers(keys, arch, layers, attention, forward)
    if not any(which):
        return None
    return Recurrent(which, conv, state, how, beside=arch in BESIDE)


def _sizes(keys: Keys) -> tuple[int, int, str] | None:
    """Elements of the two parts of a state, a layer and sequence, and the words for it."""
    head, shift = keys.count("wkv.head_size"), keys.count("token_shift_count")
    width = keys.count("embedding_length")
    if head and width is not None:
        shift = 2 if shift is None else shift
        return shift * width, width * head, f"{shift} x {width} and {width} x {head}"
    cached = keys.count("shortconv.l_cache")
    if cached and width is not None:
        return width * (cached - 1), 0, f"{width} x ({cached} - 1)"
    kernel, inner = keys.count("ssm.conv_kernel"), keys.count("ssm.inner_size")
    state, groups = keys.count("ssm.state_size"), keys.count("ssm.group_count") or 0
    if not kernel or inner is None or state is None:
        return None
    how = f"{kernel - 1} x ({inner} + 2 x {groups} x {state}) and {state} x {inner}"
    return (kernel - 1) * (inner + 2 * groups * state), state * inner, how


def _layers(
    keys: Keys, arch: str, layers: int, attention: Attention, forward: tuple[int, ...] | None
) -> tuple[bool, ...]:
    """Which layers have a state: listed, by a rule of the architecture, or those without heads."""
    listed = "attention.recurrent_layers"
    if keys.is_array(listed):
        return tuple(bool(one) for one in keys.counts(listed, layers, 1) or ())
    if arch in (*ALL, *BESIDE):
        return (True,) * layers
    if arch in EVERY_FOURTH_FULL:
        every = keys.count("full_attention_interval", MOST_LAYERS, 1) or 4
        return tuple((index + 1) % every != 0 for index in range(layers))
    heads = attention.kv_heads or (0,) * layers
    # In nemotron_h a layer is one of three: attention, a state, or a feed-forward part alone.
    alone = forward if forward and keys.is_array("feed_forward_length") and 0 in forward else None
    return tuple(not heads[index] and not (alone and alone[index]) for index in range(layers))
