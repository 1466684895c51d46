"""The table of tensors: names, shapes, sizes, each where the one before ends."""

from __future__ import annotations

import struct
from math import prod

from console.models.gguf.byte_source import Window
from console.models.gguf.errors import Kind
from console.models.gguf.header import Tensor, pad
from console.models.gguf.types import BY_NUMBER, row_bytes, type_name

MAX_NAME = 63
"""Bytes; GGML_MAX_NAME less its NUL."""
MAX_DIMS = 4
_INT64 = 2**63 - 1


def read_tensors(window: Window, count: int, alignment: int) -> tuple[Tensor, ...]:
    """The table that begins here. A type that is unknown to this reader costs its tensor's size,
    and the check of the offsets behind it; anything llama.cpp refuses raises GgufError."""
    found: list[Tensor] = []
    seen: set[bytes] = set()
    expected: int | None = 0
    for _ in range(count):
        size = window.u64()
        if size > MAX_NAME:
            raise window.error(Kind.MALFORMED, f"a tensor's name of {size} bytes")
        raw, name = window.name(size, "a tensor's name")
        if raw in seen:
            raise window.error(Kind.MALFORMED, f"two tensors {name}")
        seen.add(raw)
        tensor, offset = _tensor(window, name)
        if expected is not None and offset != expected:
            words = f"{name} at {offset} of the data, where {expected} is due"
            raise window.error(Kind.MALFORMED, words)
        if expected is not None and tensor.bytes is not None:
            expected += pad(tensor.bytes, alignment)
            if expected > _INT64:
                raise window.error(Kind.MALFORMED, "more tensor data than a file can hold")
        else:
            expected = None
        found.append(tensor)
    return tuple(found)


def _tensor(window: Window, name: str) -> tuple[Tensor, int]:
    """A tensor behind its name, and the offset it says it has."""
    count = window.u32()
    if count > MAX_DIMS:
        raise window.error(Kind.MALFORMED, f"{name} has {count} dimensions, more than {MAX_DIMS}")
    *dims, number, offset = struct.unpack(
        f"{window.sign}{count}QIQ", window.take(8 * count + 4 + 8)
    )
    if any(one > _INT64 for one in dims) or prod(dims) >= _INT64:
        raise window.error(Kind.MALFORMED, f"{name} has more elements than 63 bits count")
    kind = BY_NUMBER.get(number)
    size = None
    if kind is not None:
        try:
            size = row_bytes(kind, dims[0] if dims else 1) * prod(dims[1:])
        except ValueError as error:
            raise window.error(Kind.MALFORMED, f"{name}: {error}") from error
    return Tensor(name, tuple(dims), number, type_name(number), size), offset
