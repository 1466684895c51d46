"""A GGUF header's content as frozen values: metadata without token lists, tensors, their types.

Numbers and sizes of the types are as in ggml.h and ggml-common.h; a test compares them with the
gguf package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from console.common.text import one_line

ARCHITECTURE = "general.architecture"


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One tensor type: `bytes` for every `block` elements of a row, and `row` for each row."""

    name: str
    block: int
    bytes: int
    row: int = 0


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
"""llama.cpp's types of a tensor, by their number in the file."""
_IK = (
    (133, "Q6_0", 32, 26, 0), (134, "IQ1_BN", 64, 13, 2), (135, "IQ2_BN", 64, 16, 4),
    (137, "IQ2_K", 256, 76, 0), (138, "IQ3_K", 256, 110, 0), (139, "IQ4_K", 256, 144, 0),
    (140, "IQ5_K", 256, 176, 0), (141, "IQ6_K", 256, 212, 0), (144, "IQ4_KS", 256, 136, 4),
    (145, "IQ2_KS", 256, 70, 2), (146, "IQ4_KSS", 256, 128, 4), (151, "Q8_KV", 32, 32, 8),
    (152, "IQ5_KS", 256, 168, 4), (153, "IQ2_KT", 256, 68, 4), (154, "IQ3_KT", 256, 100, 4),
    (155, "IQ4_KT", 256, 128, 4), (156, "IQ3_KS", 256, 102, 2), (157, "IQ2_KL", 256, 86, 2),
    (158, "IQ1_KT", 256, 56, 4), (202, "Q4_0_R8", 32, 18, 0), (206, "Q5_0_R4", 32, 22, 0),
    (208, "Q8_0_R8", 32, 34, 0), (210, "Q2_K_R4", 256, 84, 0), (211, "Q3_K_R4", 256, 110, 0),
    (212, "Q4_K_R4", 256, 144, 0), (213, "Q5_K_R4", 256, 176, 0), (214, "Q6_K_R4", 256, 210, 0),
    (216, "IQ2_XXS_R4", 256, 66, 0), (217, "IQ2_XS_R4", 256, 74, 0),
    (218, "IQ3_XXS_R4", 256, 98, 0), (219, "IQ1_S_R4", 32, 6, 2), (220, "IQ4_NL_R4", 32, 18, 0),
    (221, "IQ3_S_R4", 256, 110, 0), (222, "IQ2_S_R4", 256, 82, 0),
    (223, "IQ4_XS_R8", 256, 136, 0), (229, "IQ1_M_R4", 32, 7, 2), (230, "BF16_R16", 1, 2, 0),
    (233, "Q6_0_R4", 32, 26, 0), (335, "IQ2_BN_R4", 64, 16, 4), (337, "IQ2_K_R4", 256, 76, 0),
    (338, "IQ3_K_R4", 256, 110, 0), (339, "IQ4_K_R4", 256, 144, 0),
    (340, "IQ5_K_R4", 256, 176, 0), (344, "IQ4_KS_R4", 256, 136, 4),
    (352, "IQ5_KS_R4", 256, 168, 4), (353, "MXFP4_R8", 32, 17, 0), (398, "Q8_KV_R8", 32, 32, 4),
    (399, "Q8_K_R8", 256, 258, 0),
)  # fmt: skip
IK_LLAMA = {number: GgmlType(name, block, size, row) for number, name, block, size, row in _IK}
"""Types that only ik_llama.cpp has (ggml/src/ggml.c of 8337e4cd): llama.cpp ends with "invalid ggml
type". Those of repacked and of activated tensors are in no file."""


@lru_cache(8192)
def shown_name(name: str) -> str:
    """A tensor's name as a harmless line, no longer than any that a loader takes. The files of a
    model have the same names, and cleaning thousands for each takes longer than the rest."""
    return one_line(name, 64)


def type_of(number: int) -> GgmlType | None:
    return BY_NUMBER.get(number) or IK_LLAMA.get(number)


def type_name(number: int) -> str:
    """`Q8_0`, or a readable text for a type that is newer than this reader."""
    known = type_of(number)
    return known.name if known else f"type {number} (unknown to this reader)"


def row_bytes(kind: GgmlType, elements: int) -> int:
    """Bytes of one row. Raises ValueError if the row is no whole number of blocks."""
    blocks, rest = divmod(elements, kind.block)
    if rest:
        raise ValueError(f"{elements} elements are no multiple of {kind.name}'s {kind.block}")
    return kind.row + blocks * kind.bytes


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
    `template_fault` says why its chat template cannot be read; empty if nothing speaks against it.
    """

    version: int
    byte_order: str
    alignment: int
    tensor_count: int
    kv: Mapping[str, Value]
    tensors: tuple[Tensor, ...] | None
    header_bytes: int
    template_fault: str = ""

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
