"""GGUF headers written out as a writer of models would, for the tests that read them."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from console.models.gguf.header import BY_NUMBER, CODES, ValueType, pad, row_bytes
from console.models.gguf.parser import ALIGNMENT, DEFAULT_ALIGNMENT

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Typed:
    """A value of a chosen type; a list or tuple becomes an array of that type."""

    kind: ValueType
    value: Scalar | list[Scalar] | tuple[Scalar, ...]


Item = Scalar | Typed
"""A bare value is written as BOOL, UINT32 (INT32 below zero), FLOAT32 or STRING."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor to declare; `dims` with the fastest first, `type` as ggml numbers it."""

    name: str
    dims: tuple[int, ...]
    type: int = 0


def encode(kv: Mapping[str, Item], tensors: Sequence[Planned] = ()) -> bytes:
    """A header, version 3, little-endian, padded where tensors follow; offsets as they are due."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(kv))]
    for key, value in kv.items():
        parts += [_string(key), _value(value)]
    item = kv.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    alignment = item.value if isinstance(item, Typed) else item
    if not isinstance(alignment, int):
        raise TypeError(f"{ALIGNMENT} is no integer")
    offset = 0
    for tensor in tensors:
        dims = struct.pack(f"<I{len(tensor.dims)}Q", len(tensor.dims), *tensor.dims)
        parts += [_string(tensor.name), dims, struct.pack("<IQ", tensor.type, offset)]
        offset += pad(data_bytes(tensor), alignment)
    header = b"".join(parts)
    return header.ljust(pad(len(header), alignment), b"\0") if tensors else header


def data_bytes(tensor: Planned) -> int:
    first, *rest = tensor.dims or (1,)
    size = row_bytes(BY_NUMBER[tensor.type], first)
    for one in rest:
        size *= one
    return size


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(item: Item) -> bytes:
    if not isinstance(item, Typed):
        item = Typed(_natural(item), item)
    if not isinstance(item.value, list | tuple):
        return struct.pack("<I", item.kind) + _scalar(item.kind, item.value)
    head = struct.pack("<IIQ", ValueType.ARRAY, item.kind, len(item.value))
    return head + b"".join(_scalar(item.kind, one) for one in item.value)


def _natural(value: Scalar) -> ValueType:
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, str):
        return ValueType.STRING
    if isinstance(value, float):
        return ValueType.FLOAT32
    return ValueType.UINT32 if value >= 0 else ValueType.INT32


def _scalar(kind: ValueType, value: object) -> bytes:
    if kind is ValueType.STRING:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is no string")
        return _string(value)
    return struct.pack(f"<{CODES[kind]}", value)
