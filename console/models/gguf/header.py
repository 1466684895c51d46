"""What a GGUF header says, as frozen values: metadata without its token lists, and the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ARCHITECTURE = "general.architecture"
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32


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
