"""What a model is made of, as far as memory goes; missing facts are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import NoReturn

from console.common.errors import ConsoleError, Exit
from console.common.text import one_line

MAX_LAYERS = 1024
MAX_LENGTH = 1 << 24
"""Bound on elements of a head, a state, a vocabulary, heads, experts: far above any real one."""
MAX_TOKENS = 1 << 31
MAX_BYTES = 1 << 50

ALL = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
BESIDE = ("falcon-h1",)
EVERY_FOURTH_FULL = ("qwen3next", "qwen35", "qwen35moe")
LIGHTNING = ("minimax-01",)
"""Linear attention with a matrix a head; every eighth layer is full where the file lists none."""


class BadFacts(ConsoleError):
    """A header or a config.json has impossible values; nothing is computed from it."""

    exit_code = Exit.FAILED


class Kind(StrEnum):
    """What a weight is for, which decides where it is placed."""

    TOKENS = "token table"
    OUTPUT = "output"
    DENSE = "dense"
    EXPERTS = "experts"
    SKIPPED = "not loaded"


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor, or a group of equal ones if only a config.json is known.

    `layer` is None outside the blocks; `name` is clean and in llama.cpp's form. `block`: how many
    elements its type packs together; 0: not known.
    """

    name: str
    kind: Kind
    bytes: int
    elements: int = 0
    layer: int | None = None
    block: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """What is cached of a token. Lengths in elements of one head; per-layer tuples name all layers.

    `latent` is MLA: only K is kept, `key` long (the latent and its rope part), and a head works
    with keys of `head` elements and values of `head_value`; queries may come from `query_rank`
    numbers. `unpacked` is the same attention in an
    older file, with every head kept.
    `window_key` and `window_value` hold in layers with a window, if they differ. `own_layers`:
    later ones reuse their caches.
    """

    heads: int | None = None
    kv_heads: tuple[int, ...] | None = None
    key: int | None = None
    value: int | None = None
    window_key: int | None = None
    window_value: int | None = None
    latent: bool = False
    head: int = 0
    head_value: int = 0
    unpacked: bool = False
    latent_rank: int = 0
    query_rank: int = 0
    rope: int = 0
    window: int = 0
    windowed: tuple[bool, ...] = ()
    own_layers: int | None = None
    indexer: int = 0
    indexed: tuple[bool, ...] = ()

    @property
    def has_window(self) -> bool:
        return self.window > 0 and any(self.windowed)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """Layers with a state of fixed size instead of a cache (`beside`: in addition to one).

    `conv` and `state` are elements a layer and sequence; `how` says how they were computed. `wide`
    are the numbers of a token that go through them, `bounced` those that llama.cpp norms on the
    host (Mamba 2). `width`: bytes of a number of `state` by a config.json; 0 where it does not say.
    """

    layers: tuple[bool, ...]
    conv: int
    state: int
    how: str
    beside: bool = False
    wide: int = 0
    bounced: int = 0
    width: int = 0


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: `used` of `count` work on a token, each `width` wide."""

    count: int = 0
    used: int = 0
    shared: int = 0
    width: int = 0
    leading_dense: int = 0


@dataclass(frozen=True, slots=True)
class Divided:
    """Bytes of the layers' dense weights that ranks do not simply divide: what each of them holds
    `whole`, `key_values`, of which each has a head at least, and the rest of the `attention`."""

    whole: int = 0
    key_values: int = 0
    attention: int = 0

    def scaled(self, factor: float) -> Divided:
        sizes = (self.whole, self.key_values, self.attention)
        return Divided(*(int(size * factor) for size in sizes))


@dataclass(frozen=True, slots=True)
class Encoder:
    """A part that turns something else than text into tokens. `reads`: images, sound, or "" where
    only the model's class tells of it. None: a size that the configuration does not give."""

    reads: str
    layers: int | None = None
    width: int | None = None
    heads: int | None = None


@dataclass(frozen=True)
class ModelFacts:
    """A model. Bytes and elements; None is "unknown", and `missing` then says which key.

    `layers` run; `spare_layers` are in the file for speculation (MTP) and not loaded. `source` is
    where it comes from, `weights_from` the source of the bytes by class. `block`: how many weights
    share a scale, where a rank has to hold whole ones; 0: none. `stored`: the kind of the
    weights by their config.json (bf16, fp8, awq …), `dtype` what they compute in (bfloat16 …),
    "" where nothing says it. `gptq_besides`: what its GPTQ has that is not symmetric, in order or
    of 4 bits. `cache_fp8`: the engines that keep its cache in FP8 by themselves.
    `of_ik`: types of its tensors that only ik_llama.cpp has, with their numbers. `classes` are the
    names of transformers' classes for it, `encoders` its parts for images and sound. `attends`: the
    kind of its attention, `scaled_by`: of how many weights a scale is, as serving/kernels.py names
    them; "" where no config.json tells it.
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
    block: int = 0
    stored: str = ""
    dtype: str = ""
    gptq_besides: tuple[str, ...] = ()
    cache_fp8: tuple[str, ...] = ()
    weights: tuple[Weight, ...] = ()
    divided: Divided = Divided()
    weights_from: str = ""
    of_ik: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    encoders: tuple[Encoder, ...] = ()
    attends: str = ""
    scaled_by: str = ""
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Of few fields: a model has thousands of weights, and is asked about again and again."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        few = self.weights[:: max(1, len(self.weights) // 8)]
        return hash((self.architecture, self.layers, self.context_length, len(self.weights), few))

    @cached_property
    def weight_bytes(self) -> int:
        """Everything in the file, loaded or not."""
        return sum(weight.bytes for weight in self.weights)

    def bytes_of(self, *kinds: Kind) -> int:
        return sum(weight.bytes for weight in self.weights if weight.kind in kinds)

    @cached_property
    def tied(self) -> bool:
        """Whether the token table is also the output: a card that scores tokens holds a copy."""
        return not any(
            w.kind is Kind.OUTPUT and w.name.startswith("output.weight") for w in self.weights
        )

    def scaled(self, weight_bytes: int) -> ModelFacts:
        """The same model with another total of bytes: another quantization of it."""
        whole = self.weight_bytes
        if whole <= 0 or not 0 <= weight_bytes <= MAX_BYTES:
            return self
        return replace(
            self,
            weights=tuple(replace(w, bytes=w.bytes * weight_bytes // whole) for w in self.weights),
            divided=self.divided.scaled(weight_bytes / whole),
            weights_from=f"{self.weights_from}, scaled to another size",
        )


class Keys:
    """Numbers from a foreign table whose keys share a prefix: checked, bounded, and named if
    nonsense; remembers missing keys. `unpack` turns an array value of the table's own kind into a
    tuple (None: not an array)."""

    def __init__(
        self,
        table: Mapping[str, object],
        prefix: str,
        source: str,
        unpack: Callable[[object], tuple[object, ...] | None],
    ) -> None:
        self.table = table
        self.prefix = prefix
        self.source = source
        self._unpack = unpack
        self.missing: list[str] = []
        self.read: set[str] = set()
        """Keys that somebody has asked for."""

    def name(self, key: str) -> str:
        return one_line(f"{self.prefix}{key}", 120)

    def raw(self, key: str) -> object:
        self.read.add(key)
        return self.table.get(f"{self.prefix}{key}")

    def lacks(self, key: str, what: str) -> None:
        """Note that an essential key is missing, for the verdict."""
        self.missing.append(f"{self.name(key)} ({what})")

    def bad(self, key: str, value: object, expected: str) -> NoReturn:
        huge = isinstance(value, int) and value.bit_length() > 128
        shown = "an absurdly large number" if huge else one_line(repr(value), 60)
        raise BadFacts(
            f"the {self.source} cannot be true",
            f"{self.name(key)} is {shown}; expected {expected}",
            "the file is damaged or was made to mislead: get it again from its publisher",
        )

    def count(self, key: str, most: int = MAX_LENGTH, least: int = 0) -> int | None:
        """A whole number; None if the key is missing. Raises BadFacts."""
        value = self.raw(key)
        return None if value is None else self._whole(key, value, most, least)

    def counts(self, key: str, size: int, most: int = MAX_LENGTH) -> tuple[int, ...] | None:
        """A number for each of `size` layers, given as an array or once for all."""
        value = self.raw(key)
        if value is None:
            return None
        items = self._unpack(value)
        if items is None:
            return (self._whole(key, value, most),) * size
        if len(items) < size or len(items) > MAX_LAYERS:
            self.bad(key, f"an array of {len(items)}", f"one number for each of {size} layers")
        return tuple(self._whole(key, item, most) for item in items[:size])

    def is_array(self, key: str) -> bool:
        return self._unpack(self.raw(key)) is not None

    def tokens(self, key: str) -> int | None:
        return self.count(key, MAX_TOKENS)

    def _whole(self, key: str, value: object, most: int, least: int = 0) -> int:
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, int):
            self.bad(key, value, "a whole number")
        if not least <= value <= most:
            self.bad(key, value, f"{least} to {most}")
        return value


def recurrent_of(
    keys: Keys, arch: str, layers: int, attention: Attention, forward: tuple[int, ...] | None
) -> Recurrent | None:
    """The states of fixed size that layers keep instead of a cache (Mamba, delta nets, short
    convolutions, RWKV), or None for a model without any. Layers and sizes follow llama.cpp's
    loader. Raises BadFacts."""
    sizes = _sizes(keys)
    if arch in LIGHTNING and attention.heads and attention.key:
        heads, key = attention.heads, attention.key
        sizes = 0, heads * key * key, f"{heads} heads x {key} x {key}"
        keys.missing.append("what its linear attention takes while it computes")
    if sizes is None:
        if arch in (*ALL, *BESIDE, *EVERY_FOURTH_FULL):
            keys.lacks("ssm.state_size", "the state of its recurrent layers")
        return None
    conv, state, how = sizes
    which = _layers(keys, arch, layers, attention, forward)
    if not any(which):
        return None
    inner, groups = keys.count("ssm.inner_size") or 0, keys.count("ssm.group_count") or 0
    return Recurrent(
        which, conv, state, how, beside=arch in BESIDE,
        wide=inner + 2 * groups * (keys.count("ssm.state_size") or 0),
        bounced=inner if groups and arch not in EVERY_FOURTH_FULL else 0,
    )  # fmt: skip


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
        return tuple(bool(flag) for flag in keys.counts(listed, layers, 1) or ())
    if arch in (*ALL, *BESIDE):
        return (True,) * layers
    if arch in (*EVERY_FOURTH_FULL, *LIGHTNING):
        every = keys.count("full_attention_interval", MAX_LAYERS, 1) or (4, 8)[arch in LIGHTNING]
        return tuple((index + 1) % every != 0 for index in range(layers))
    heads = attention.kv_heads or (0,) * layers
    # In nemotron_h a layer is one of three: attention, a state, or a feed-forward part alone.
    alone = forward if forward and keys.is_array("feed_forward_length") and 0 in forward else None
    return tuple(not heads[index] and not (alone and alone[index]) for index in range(layers))
