"""How `--split-mode tensor` divides each tensor over the cards.

The rules are `llama_meta_device_get_split_state` of llama.cpp's src/llama-model.cpp (September
2026): each cut is rounded down to whole heads or blocks, and the card that is served last gets what
is left. Which one that is changes from layer to layer of a kind. With 4 heads of K and
`-ts 0.49,0.51` the second card has 3 of them in half of the layers and 2 in the others
(llama.cpp#28506). What no rule names is whole on every card.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import lcm

from console.models.sizing.kv_cache import of_head
from console.models.sizing.model_facts import EVERY_FOURTH_FULL, ModelFacts, Weight

Shares = tuple[float, ...]
"""The part of a tensor that each card has; 1 for each where all have the whole."""
LINES = 128
"""Elements that the fast kernels work on at once."""
COARSE = 256
"""Elements that share a scale in K-quants, for a type that is not known."""
_ATTENTION = re.compile(r"blk\.\d+\.(?:attn_(?:q|k|v|qkv|gate)\.(?:weight|bias)"
                        r"|attn_output\.weight|attn_sinks\.weight)")  # fmt: skip
_STATES = re.compile(r"blk\.\d+\.ssm_(?:dt\.bias|a|(?:alpha|beta|ba|conv1d|out)\.weight)")
_FORWARD = re.compile(r"blk\.\d+\.ffn_(?:up|gate|gate_up|down)(_exps)?\.(?:weight|bias)")
_OUTPUT = re.compile(r"output\.(?:weight|bias)")
_GROUPS = re.compile(r"other |blk\.\d+\.attn_and_ffn\.")
"""Names of the groups of weights of which only a config.json tells."""


def single(value: float) -> float:
    """A number in single precision, in which llama.cpp divides."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def cuts(length: int, step: int, wanted: Sequence[float], rotation: int) -> tuple[int, ...]:
    """What each card gets of so many elements, in whole steps but for the one served last. The
    first is served `rotation` places later in the order of the cards."""
    count = len(wanted)
    got, low, scan = [0] * count, 0, 0.0
    whole = sum(wanted)
    for place in range(count):
        card = (place + rotation) % count
        scan = single(scan + wanted[card])
        high = length
        if place < count - 1:
            exact = single(length * scan) / whole if whole else length * (place + 1) // count
            high = int(exact) - int(exact) % max(1, step)
        got[card], low = high - low, high
    return tuple(got)


@dataclass(frozen=True)
class TensorSplit:
    """The division of a model over cards that were given these parts of it."""

    facts: ModelFacts
    wanted: Shares

    def of_weight(self, weight: Weight) -> Shares:
        whole = tuple(1.0 for _ in self.wanted)
        if _OUTPUT.fullmatch(weight.name) or _GROUPS.match(weight.name):
            return self.wanted
        if weight.layer is None:
            return whole
        if match := _FORWARD.fullmatch(weight.name):
            return self._forward(weight.layer, match[1] or "")
        if _STATES.fullmatch(weight.name):
            return self.of_states(weight.layer)
        if _ATTENTION.fullmatch(weight.name):
            recurrent = self._recurrent(weight.layer)
            return (self.of_states if recurrent else self.of_attention)(weight.layer)
        return whole

    def of_cache(self, layer: int) -> Shares:
        """The parts of what a layer keeps: heads of K and V, or of a state. The short convolutions
        of other architectures lie whole on every card."""
        if not self._recurrent(layer):
            return self.of_attention(layer)
        if self.facts.architecture in EVERY_FOURTH_FULL:
            return self.of_states(layer)
        return tuple(1.0 for _ in self.wanted)

    def of_attention(self, layer: int) -> Shares:
        """By whole groups of queries with their head of K, and so many that their numbers are
        whole blocks of the matrix that joins them."""
        spec, count = self.facts.attention, len(self.wanted)
        at = min(layer, (self.facts.layers or 1) - 1)
        heads = spec.kv_heads[at] if spec.kv_heads else 0
        if not heads or not spec.heads or not spec.key:
            return self.wanted
        queries = max(1, spec.heads // heads) * of_head(spec, at)[0]
        block = self._block(layer, "attn_output.weight")
        while block < LINES and block * count < queries:
            block *= 2
        return self._shares(heads, lcm(queries, block) // queries, layer)

    def of_states(self, layer: int) -> Shares:
        """By whole heads of a linear attention's keys, and whole blocks."""
        states = self.facts.recurrent
        inner = self._elements(layer, "ssm_out.weight") // (self.facts.embedding or 1)
        if states is None or not inner or states.state % inner:
            return self.wanted
        head, keys = states.state // inner, (states.wide - inner) // 2
        step = lcm(self._block(layer, "ssm_out.weight"), LINES, max(1, head))
        return self._shares(keys, step, layer) if keys > 0 else self.wanted

    def _forward(self, layer: int, experts: str) -> Shares:
        name = f"ffn_down{experts}.weight"
        width = self.facts.experts.width
        if not experts:
            width = self._elements(layer, name) // (self.facts.embedding or 1)
        step = lcm(self._block(layer, name), LINES)
        return self._shares(width, step, layer) if width else self.wanted

    def _shares(self, length: int, step: int, layer: int) -> Shares:
        got = cuts(length, step, self.wanted, self._rotations[layer] % len(self.wanted))
        return tuple(part / length for part in got)

    def _recurrent(self, layer: int) -> bool:
        states = self.facts.recurrent
        return states is not None and layer < len(states.layers) and states.layers[layer]

    @cached_property
    def _rotations(self) -> tuple[int, ...]:
        """For each layer, how many of its kind are before it; those for guessing are at the end."""
        spec, seen = self.facts.attention, dict[tuple[bool, bool], int]()
        rotations = []
        for layer in range((self.facts.layers or 0) + self.facts.spare_layers):
            near = spec.has_window and layer < len(spec.windowed) and spec.windowed[layer]
            kind = self._recurrent(layer), near
            rotations.append(seen.get(kind, 0))
            seen[kind] = rotations[-1] + 1
        return tuple(rotations)

    @cached_property
    def _named(self) -> dict[str, Weight]:
        return {weight.name: weight for weight in self.facts.weights}

    def _elements(self, layer: int, name: str) -> int:
        weight = self._named.get(f"blk.{layer}.{name}")
        return 0 if weight is None else weight.elements

    def _block(self, layer: int, name: str) -> int:
        weight = self._named.get(f"blk.{layer}.{name}")
        return weight.block or COARSE if weight is not None else COARSE


@lru_cache(maxsize=64)
def tensor_split(facts: ModelFacts, wanted: Shares) -> TensorSplit:
    return TensorSplit(facts, wanted)
