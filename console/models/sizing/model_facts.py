"""What a model is made of, as far as its memory goes; where a fact is missing, that is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from console.common.errors import ConsoleError, Exit

MOST_LAYERS = 1024
MOST_LENGTH = 1 << 24
"""Elements of a head, a state, a vocabulary, heads, experts: far above what there is."""
MOST_TOKENS = 1 << 31
MOST_BYTES = 1 << 50


class BadFacts(ConsoleError):
    """A header or a config.json says what cannot be; nothing is worked out from it."""

    exit_code = Exit.FAILED


class Kind(StrEnum):
    """What a weight is for, since that decides where it goes."""

    TOKENS = "token table"
    OUTPUT = "output"
    DENSE = "dense"
    EXPERTS = "experts"
    SKIPPED = "not loaded"


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor, or a group of like ones where only a config.json is known.

    `layer` is None outside the blocks; `name` is clean and in llama.cpp's form.
    """

    name: str
    kind: Kind
    bytes: int
    elements: int = 0
    layer: int | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """What is kept of a token. Lengths in elements of one head; per-layer tuples name all layers.

    `latent` is MLA: only K is kept, `key` long (the latent and its rope part), and a head works
    with `head` elements. `unpacked` is the
    same attention in a file of before, where every head is kept. `window_key` and `window_value`
    hold in layers with a window, where they differ. `own_layers`: later ones reuse their caches.
    """

    heads: int | None = None
    kv_heads: tuple[int, ...] | None = None
    key: int | None = None
    value: int | None = None
    window_key: int | None = None
    window_value: int | None = None
    latent: bool = False
    head: int = 0
    unpacked: bool = False
    latent_rank: int = 0
    rope: int = 0
    window: int = 0
    windowed: tuple[bool, ...] = ()
    own_layers: int | None = None
    indexer: int = 0
    indexer_heads: int = 0
    indexed: tuple[bool, ...] = ()

    @property
    def has_window(self) -> bool:
        return self.window > 0 and any(self.windowed)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """Layers with a state of fixed size instead of a cache (`beside`: as well as one).

    `conv` and `state` are elements a layer and sequence; `how` says what they were worked out of.
    """

    layers: tuple[bool, ...]
    conv: int
    state: int
    how: str
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: `used` of `count` work on a token, each `width` wide."""

    count: int = 0
    used: int = 0
    shared: int = 0
    width: int = 0
    leading_dense: int = 0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model. Bytes and elements; None is "not known", and `missing` then says which key.

    `layers` run; `spare_layers` are in the file for guessing ahead (MTP) and not loaded.
    `source` says where it is from, `weights_from` where the bytes by class are from.
    """

    architecture: str
    source: str
    layers: int | None = None
    spare_layers: int = 0
    embedding: int | None = None
    feed_forward: int | None = None
    vocabulary: int | None = None
    context_length: int | None = None
    attention: Attention = Attention()
    recurrent: Recurrent | None = None
    experts: Experts = Experts()
    weights: tuple[Weight, ...] = ()
    weights_from: str = ""
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def weight_bytes(self) -> int:
        """Everything in the file, loaded or not."""
        return sum(weight.bytes for weight in self.weights)

    def bytes_of(self, *kinds: Kind, layer: int | None = None) -> int:
        """Bytes of these kinds, in one layer or in all."""
        return total(self.weights, lambda w: w.kind in kinds and layer in (None, w.layer))

    @property
    def tied(self) -> bool:
        """The token table is the output too: a card that scores tokens holds a copy."""
        return not any(
            w.kind is Kind.OUTPUT and w.name.startswith("output.weight") for w in self.weights
        )

    def scaled(self, weight_bytes: int) -> ModelFacts:
        """The same model with weights of another size: another quantization of it."""
        whole = self.weight_bytes
        if whole <= 0 or not 0 <= weight_bytes <= MOST_BYTES:
            return self
        return replace(
            self,
            weights=tuple(replace(w, bytes=w.bytes * weight_bytes // whole) for w in self.weights),
            weights_from=f"{self.weights_from}, scaled to another size",
        )


def total(weights: Iterable[Weight], which: Callable[[Weight], bool]) -> int:
    return sum(weight.bytes for weight in weights if which(weight))
