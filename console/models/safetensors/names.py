"""What the name of a tensor in a checkpoint tells: its layer, its pattern, and what it is for.

Names are those of transformers' classes. Tensors of one pattern differ in nothing but the numbers
of layer and expert, and are usually stored alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

OUTSIDE = -1
"""The layer of a tensor that belongs to none."""
_NUMBER = re.compile(r"\.(\d{1,6})(?=\.|$)")
_EXPERT_NUMBER = re.compile(r"experts\.\d{1,6}\.")
MORE_DIGITS = 3
"""Digits that the number of an expert may have beyond one."""
_BESIDE = re.compile(
    r"(?:^|[._])(?:visual|vision|image|video|audio|speech|talker|code2wav|token2wav|mm|vit"
    r"|multi_modal|multimodal|projector|embed_vision|embed_audio)(?:[._]|$)|(?:vision|audio)_?tower"
)
_AHEAD = re.compile(r"(?:^|\.)(?:mtp|nextn)(?:[._]|$)")
_EXPERTS = re.compile(
    r"(?:^|\.)(?:(?:local_|routed_|moe_)?experts|switch_mlp)(?:\.|$)"
    r"|\.block_sparse_moe\.(?:input_linear|output_linear)\."
    r"|\.moe\.(?:gate_proj|up_proj|down_proj)\."
)
_TOKENS = re.compile(
    r"(?:^|\.)(?:embed_tokens(?:_per_layer)?|wte|word_embeddings|tok_embeddings|embed_in"
    r"|embeddings?)(?:\.|$)"
)
_OUTPUT = re.compile(r"^(?:[a-z_]+\.)*(?:lm_head|embed_out|output|output_layer)\.")


_WHOLE = re.compile(
    r"\.(?:q_a_proj|kv_a_proj_with_mqa|fused_qkv_a_proj\w*|wq_a|wkv|indexer)\."
    r"|\.(?:router|gate|shared_expert_gate)\.|norm\."
)
_KEY_VALUES = re.compile(r"\.(?:k_proj|v_proj)\.")
_ATTENTION = re.compile(r"\.(?:self_attn|self_attention|linear_attn|attention|attn)\.")


class Role(StrEnum):
    """What a tensor is for. `BESIDE` are towers for images and sound and what leads from them,
    `AHEAD` layers that only guess tokens ahead, `REST` everything of the layers that is dense."""

    TOKENS = "token table"
    OUTPUT = "output"
    EXPERTS = "experts"
    BESIDE = "beside"
    AHEAD = "ahead"
    REST = "rest"


class Held(StrEnum):
    """How ranks that divide a layer hold a dense tensor of it: each of them whole, keys and values
    by the head, other parts of the attention, or the rest."""

    WHOLE = "whole"
    KEY_VALUES = "keys and values"
    ATTENTION = "attention"
    REST = "rest"


Group = tuple[str, int]
"""Tensors that are stored alike: a name with `#` for its numbers, and the layer (or OUTSIDE)."""


@dataclass(slots=True)
class Shard:
    """What an index says of one file: how many tensors of each group, and the most bytes that their
    names have in all."""

    groups: Counter[Group] = field(default_factory=Counter)
    names: int = 0

    @property
    def count(self) -> int:
        return self.groups.total()


def group(name: str) -> Group:
    """The pattern of a tensor's name and its layer: the first number between dots."""
    match = _NUMBER.search(name)
    if match is None:
        return name, OUTSIDE
    return _NUMBER.sub(".#", name), int(match[1])


def by_shard(places: Mapping[str, str]) -> Mapping[str, Shard]:
    """The shards of an index from its tensors and their files.

    Names that differ in the expert alone are made one before they are looked at: an index has a
    hundred thousand of them, and a few thousand are left.
    """
    text = "\n".join(places)
    alike = _EXPERT_NUMBER.sub("experts.#.", text).split("\n")
    if len(alike) != len(places):  # a line break in a name
        alike = list(places)
    shards: dict[str, Shard] = {}
    for (name, file), count in Counter(zip(alike, places.values(), strict=True)).items():
        shard = shards.setdefault(file, Shard())
        shard.groups[group(name)] += count
        shard.names += (len(name) + name.count("#") * MORE_DIGITS) * count
    return shards


def role(pattern: str) -> Role:
    """What tensors of this pattern are for."""
    if _BESIDE.search(pattern):
        return Role.BESIDE
    if _AHEAD.search(pattern):
        return Role.AHEAD
    if _EXPERTS.search(pattern):
        return Role.EXPERTS
    if _OUTPUT.search(pattern):
        return Role.OUTPUT
    return Role.TOKENS if _TOKENS.search(pattern) else Role.REST


def held(pattern: str) -> Held:
    """How ranks hold tensors of this pattern, as vLLM and SGLang build their layers."""
    if _WHOLE.search(pattern):
        return Held.WHOLE
    if _KEY_VALUES.search(pattern):
        return Held.KEY_VALUES
    return Held.ATTENTION if _ATTENTION.search(pattern) else Held.REST
