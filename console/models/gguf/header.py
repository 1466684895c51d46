"""What a GGUF header says, as frozen values: metadata without token lists, tensors, their types.

Numbers and sizes of the types are as in ggml.h and ggml-common.h; a test holds them against the
gguf package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

ARCHITECTURE = "general.architecture"
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One tensor type: `bytes` for every `block` elements of a row."""

    number: int
    name: str
    block: int
    bytes: int


_TABLE = (
    GgmlType(0, "F32", 1, 4),
    GgmlType(1, "F16", 1, 2),
    GgmlType(2, "Q4_0", 32, 18),
    GgmlType(3, "Q4_1", 32, 20),
    GgmlType(6, "Q5_0", 32, 22),
    GgmlType(7, "Q5_1", 32, 24),
    GgmlType(8, "Q8_0", 32, 34),
    GgmlType(9, "Q8_1", 32, 40),
    GgmlType(10, "Q2_K", 256, 84),
    GgmlType(11, "Q3_K", 256, 110),
    GgmlType(12, "Q4_K", 256, 144),
    GgmlType(13, "Q5_K", 256, 176),
    GgmlType(14, "Q6_K", 256, 210),
    GgmlType(15, "Q8_K", 256, 292),
    GgmlType(16, "IQ2_XXS", 256, 66),
    GgmlType(17, "IQ2_XS", 256, 74),
    GgmlType(18, "IQ3_XXS", 256, 98),
    GgmlType(19, "IQ1_S", 256, 50),
    GgmlType(20, "IQ4_NL", 32, 18),
    GgmlType(21, "IQ3_S", 256, 110),
    GgmlType(22, "IQ2_S", 256, 82),
    GgmlType(23, "IQ4_XS", 256, 136),
    GgmlType(24, "I8", 1, 1),
    GgmlType(25, "I16", 1, 2),
    GgmlType(26, "I32", 1, 4),
    GgmlType(27, "I64", 1, 8),
    GgmlType(28, "F64", 1, 8),
    GgmlType(29, "IQ1_M", 256, 56),
    GgmlType(30, "BF16", 1, 2),
    GgmlType(34, "TQ1_0", 256, 54),
    GgmlType(35, "TQ2_0", 256, 66),
    GgmlType(39, "MXFP4", 32, 17),
    GgmlType(40, "NVFP4", 64, 36),
    GgmlType(41, "Q1_0", 128, 18),
)
BY_NUMBER: dict[int, GgmlType] = {one.number: one for one in _TABLE}
_BY_NAME = {one.name: one for one in _TABLE}


def from_name(name: str) -> GgmlType:
    """`q8_0`, as --cache-type-k takes it, in either case. Raises KeyError."""
    return _BY_NAME[name.upper()]


def type_name(number: int) -> str:
    """`Q8_0`, or what an operator reads about a type that came after this reader."""
    known = BY_NUMBER.get(number)
    return known.name if known else f"type {number} (unknown to this reader)"


def row_bytes(kind: GgmlType, elements: int) -> int:
    """Bytes of one row. Raises ValueError where the row is no whole number of blocks."""
    blocks, rest = divmod(elements, kind.block)
    if rest:
        raise ValueError(f"{elements} elements are no multiple of {kind.name}'s {kind.block}")
    return blocks * kind.bytes


class ValueType(IntEnum):
    """What a metadata value is."""

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
    """An array: its element type and count always, its numbers where they are few.

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

    `bytes` is None where the type is unknown to this reader; `type_name` then says so.
    """

    name: str
    dims: tuple[int, ...]
    type: int
    type_name: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Header:
    """One file's header. `tensors` is None where only the architecture was read.

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
        """The name as it stands in the file, to compare exactly; a reader refuses any that
        holds more than letters, digits and `._+-`. Later shards of a set have none."""
        return self.text(ARCHITECTURE)

    @property
    def file_bytes(self) -> int | None:
        """What the file has to hold at least: header, padding and tensors; None if not known."""
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
        """The string of a key, clean; None where it is missing or something else."""
        value = self.kv.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        value = self.kv.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """An integer or a float."""
        value = self.kv.get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def flag(self, key: str) -> bool | None:
        value = self.kv.get(key)
        return value if isinstance(value, bool) else None

    def integers(self, key: str) -> tuple[int, ...] | None:
        """The numbers of an array, or a scalar as the only one; BOOL counts as 0 and 1 here."""
        value = self.kv.get(key)
        if isinstance(value, int):
            return (int(value),)
        if not isinstance(value, Array) or value.values is None:
            return None
        if any(isinstance(one, float) for one in value.values):
            return None
        return tuple(int(one) for one in value.values)

    def count(self, key: str) -> int | None:
        """How many elements an array has: `tokenizer.ggml.tokens` is the vocabulary."""
        value = self.kv.get(key)
        return value.count if isinstance(value, Array) else None


def pad(size: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // alignment) * alignment
