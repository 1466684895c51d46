"""A GGUF header's content as frozen values: metadata without token lists, tensors, their types.

Numbers and sizes of the types are as in ggml.h and ggml-common.h; a test compares them with the
gguf package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

ARCHITECTURE = "general.architecture"


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One tensor type: `bytes` for every `block` elements of a row."""

    name: str
    block: int
    bytes: int


_TABLE = (
    (0, "F32", 1, 4), (1, "F16", 1, 2), (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22), (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110), (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292), (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18), (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136), (24, "I8", 1, 1), (25, "I16", 1, 2), (26, "I32", 1, 4),
    (27, "I64", 1, 8), (28, "F64", 1, 8), (29, "IQ1_M", 256, 56), (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66), (39, "MXFP4", 32, 17), (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
)  # fmt: skip
BY_NUMBER = {number: GgmlType(name, block, size) for number, name, block, size in _TABLE}
"""Every type of a tensor, by its number in the file."""


def type_name(number: int) -> str:
    """`Q8_0`, or a readable text for a type that is newer than this reader."""
    known = BY_NUMBER.get(number)
    return known.name if known else f"type {number} (unknown to this reader)"


def row_bytes(kind: GgmlType, elements: int) -> int:
    """Bytes of one row. Raises ValueError if the row is no whole number of blocks."""
    blocks, rest = divmod(elements, kind.block)
    if rest:
        raise ValueError(f"{elements} elements are no multiple of {kind.name}'s {kind.block}")
    return blocks * kind.bytes


class ValueType(IntEnum):
    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


CODES: dict[int, str] = {
    ValueType.UINT8: "B", ValueType.INT8: "b", ValueType.UINT16: "H", ValueType.INT16: "h",
    ValueType.UINT32: "I", ValueType.INT32: "i", ValueType.FLOAT32: "f", ValueType.BOOL: "?",
    ValueType.UINT64: "Q", ValueType.INT64: "q", ValueType.FLOAT64: "d",
}  # fmt: skip
"""The `struct` code of every type of fixed size."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array: its element type and count always, its numbers if they are few.

    `element` is a metadata type's name (`INT32`); `values` is None for strings and long arrays.
    """

    element: str
    count: int
    values: tuple[int | float, ...] | None = None


Value = bool | int | float | str | Array
"""A string is clean and may be cut short: it is for reading, not for comparing."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: `dims` with the fastest first, `bytes` without padding.

    `bytes` is None if the type is unknown to this reader; `type_name` then says so.
    """

    name: str
    dims: tuple[int, ...]
    type: int
    type_name: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Header:
    """One file's header. `tensors` is None if only the architecture was read.

    `header_bytes` is the length of what was read, without the padding before the tensor data.
    """

    version: int
    byte_order: str
    alignment: int
    tensor_count: int
    kv: Mapping[str, Value]
    tensors: tuple[Tensor, ...] | None
    header_bytes: int

    @property
    def architecture(self) -> str | None:
        """The name exactly as in the file, for comparison; a reader refuses any that holds more
        than letters, digits and `._+-`. Later shards of a set have none."""
        return self.text(ARCHITECTURE)

    @property
    def file_bytes(self) -> int | None:
        """The minimum size of the file: header, padding and tensors; None if unknown."""
        if self.tensors is None:
            return None
        end = padded = self.header_bytes
        if self.tensors:
            padded = pad(end, self.alignment)
        for tensor in self.tensors:
            if tensor.bytes is None:
                return None
            end = padded + tensor.bytes
            padded += pad(tensor.bytes, self.alignment)
        return end

    def text(self, key: str) -> str | None:
        """The string of a key, clean; None if it is missing or no string."""
        value = self.kv.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        value = self.kv.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def pad(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
