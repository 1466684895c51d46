"""What a loader refuses of an architecture of which no table is complete: states and latent
attention by the names of their tensors, and blocks beside their like.

Nothing here is sure, as an architecture may have its own way; a build that is asked knows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from console.models.gguf.header import Array, Header
from console.models.loader.complaints import Complaint

Dims = tuple[int, ...]
MAX_LACKING = 3
"""Tensors that a damaged block lacks at most; one that lacks more is of another kind."""
MIN_LIKE = 2
"""Blocks that are alike and not damaged."""
UNEVEN = ("deci", "modern-bert", "openelm", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
"""Architectures whose single blocks differ, in tensors or in widths."""
_BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)")
_PLAIN = re.compile(r"(?:norm\w*\.weight|\.bias|ssm_a|ssm_d|attn_sinks\.weight|rope_\w+\.weight)$")
_STATES = re.compile(r"(?:ssm_conv1d\w*|shortconv\.conv)\.weight$|ssm_a$")
"""Tensors of states that are used as they are, though they have two dimensions."""


def complaints(header: Header) -> list[Complaint]:
    """What a loader that is asked would tell: the first of each kind."""
    kinds = (_shapes(header), _odd(header))
    return [first for kind in kinds if (first := next(kind, None)) is not None]


def of_types(header: Header) -> list[Complaint]:
    """What ends a server only after its loader, where it computes: the first."""
    return [complaint for complaint, _ in zip(_types(header), range(1), strict=False)]


def _types(header: Header) -> Iterator[Complaint]:
    """Norms, biases and scales are added to and multiplied with numbers of 32 bits."""
    for tensor in header.tensors or ():
        flat = len([size for size in tensor.dims if size > 1]) <= 1
        plain = (flat and _PLAIN.search(tensor.name)) or _STATES.search(tensor.name)
        if plain and tensor.type_name in ("F16", "BF16"):
            words = (
                f"{tensor.name} is {tensor.type_name}: a build for the CPU ends with "
                '"binary_op: unsupported types", or a failed GGML_ASSERT'
            )
            hint = "convert the model again; current converters keep such tensors in F32"
            yield Complaint(words, sure=False, hint=hint)


def _shapes(header: Header) -> Iterator[Complaint]:
    wanted = _wanted(header)
    for tensor in header.tensors or ():
        block = _BLOCK.fullmatch(tensor.name)
        due = wanted.get(block[2]) if block else None
        for at, sizes in (due or {}).items():
            size = tensor.dims[at] if at < len(tensor.dims) else 1
            if sizes and size not in sizes:
                expected_sizes = " or ".join(str(length) for length in sorted(sizes))
                words = f"tensor '{tensor.name}' has {size} in dimension {at}, and the keys say"
                yield Complaint(f"{words} {expected_sizes}", sure=False)


def _wanted(header: Header) -> Mapping[str, Mapping[int, set[int]]]:
    """By a tensor's name the lengths of its dimensions, as far as the keys tell them."""

    def read(key: str) -> int | None:
        return header.integer(f"{header.architecture}.{key}")

    width, rank, rope = (
        read(key) for key in ("embedding_length", "attention.kv_lora_rank", "rope.dimension_count")
    )
    inner, state, steps = (read(f"ssm.{key}") for key in ("inner_size", "state_size",
                                                          "time_step_rank"))  # fmt: skip
    groups = read("ssm.group_count") or 0
    mixed = None if inner is None or state is None else inner + 2 * groups * state
    both = None if rank is None or rope is None else rank + rope
    return {
        "ssm_conv1d.weight": {0: _set(read("ssm.conv_kernel")), 1: _set(inner, mixed)},
        "ssm_out.weight": {0: _set(inner), 1: _set(width)},
        "ssm_dt.bias": {0: _set(inner, steps)},
        "ssm_dt.weight": {0: _set(steps)} if not groups else {},
        "shortconv.conv.weight": {0: _set(read("shortconv.l_cache")), 1: _set(width)},
        "shortconv.in_proj.weight": {0: _set(width)}, "shortconv.out_proj.weight": {1: _set(width)},
        "attn_kv_a_mqa.weight": {0: _set(width), 1: _set(both)},
        "attn_kv_a_norm.weight": {0: _set(rank)},
        "attn_q_a_norm.weight": {0: _set(read("attention.q_lora_rank"))},
        "attn_q_a.weight": {0: _set(width), 1: _set(read("attention.q_lora_rank"))},
    }  # fmt: skip


def _set(*sizes: int | None) -> set[int]:
    """What is known of a length; empty where some of it is not known, which tells nothing."""
    return set() if None in sizes else {size for size in sizes if size is not None}


def _odd(header: Header) -> Iterator[Complaint]:
    """A single block that lacks a few tensors of others, or has one of another shape."""
    arch = header.architecture
    if arch in UNEVEN:
        return
    blocks: defaultdict[int, dict[str, Dims]] = defaultdict(dict)
    for tensor in header.tensors or ():
        if block := _BLOCK.fullmatch(tensor.name):
            blocks[int(block[1])][block[2]] = tensor.dims
    last = (header.integer(f"{arch}.block_count") or 0) - (
        header.integer(f"{arch}.nextn_predict_layers") or 0
    )
    running = {number: names for number, names in blocks.items() if number < last}
    kinds = Counter(frozenset(names) for names in running.values())
    for number, names in sorted(running.items()):
        own = frozenset(names)
        fuller = [kind - own for kind, count in kinds.items() if own < kind and count >= MIN_LIKE]
        lacking = min(fuller, key=len, default=frozenset())
        if kinds[own] == 1 and 0 < len(lacking) <= MAX_LACKING:
            words = f"missing tensor 'blk.{number}.{min(lacking)}', which its like have"
            yield Complaint(words, sure=False)
    if not _has_lists(header):
        yield from _odd_shapes(running)


def _odd_shapes(blocks: Mapping[int, Mapping[str, Dims]]) -> Iterator[Complaint]:
    shapes: defaultdict[str, list[tuple[int, Dims]]] = defaultdict(list)
    for number, names in blocks.items():
        for name, dims in names.items():
            shapes[name].append((number, dims))
    for name, block_shapes in shapes.items():
        counts = Counter(dims for _, dims in block_shapes)
        if len(counts) == 2 and min(counts.values()) == 1 and len(block_shapes) > MIN_LIKE:
            number, dims = next(pair for pair in block_shapes if counts[pair[1]] == 1)
            usual = ", ".join(map(str, counts.most_common(1)[0][0]))
            words = f"tensor 'blk.{number}.{name}' has {', '.join(map(str, dims))}, others {usual}"
            yield Complaint(words, sure=False)


def _has_lists(header: Header) -> bool:
    """Whether a key of the architecture has a value for each layer, so that widths may differ."""
    begin = f"{header.architecture}."
    return any(
        isinstance(value, Array) and value.count > 1 and "rope" not in key
        for key, value in header.kv.items() if key.startswith(begin)
    )  # fmt: skip
