"""GGUF bytes put together by hand, for files that no writer would write; and sources over them."""

import struct
from itertools import cycle

from console.models.gguf.byte_source import FIRST_READ
from console.models.gguf.header import ValueType as T

ARCH = b"general.architecture"


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def string(raw: bytes) -> bytes:
    return u64(len(raw)) + raw


def pair(key: bytes, kind: int, payload: bytes) -> bytes:
    return string(key) + u32(kind) + payload


def text(key: bytes, value: bytes) -> bytes:
    return pair(key, T.STRING, string(value))


def array(key: bytes, element: int, count: int, payload: bytes = b"") -> bytes:
    return pair(key, T.ARRAY, u32(element) + u64(count) + payload)


def tensor(name: bytes, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    shape = u32(len(dims)) + b"".join(u64(one) for one in dims)
    return string(name) + shape + u32(kind) + u64(offset)


LLAMA = text(ARCH, b"llama")


def header(
    *pairs: bytes, tensors: list[bytes] | None = None, version: int = 3, count: int | None = None
) -> bytes:
    """A header of these parts; `count` lies about the number of pairs."""
    tensors = tensors or []
    start = b"GGUF" + u32(version) + u64(len(tensors)) + u64(len(pairs) if count is None else count)
    return start + b"".join(pairs) + b"".join(tensors)


def big_endian(architecture: bytes = b"llama") -> bytes:
    """A valid file in the other byte order."""
    start = b"GGUF" + struct.pack(">IQQ", 3, 0, 1)
    value = struct.pack(">IQ", T.STRING, len(architecture)) + architecture
    return start + struct.pack(">Q", len(ARCH)) + ARCH + value


class Pieces:
    """A source that gives its data in pieces of given lengths, and watches how it is read."""

    name = "test.gguf"

    def __init__(
        self, data: bytes, lengths: tuple[int, ...] = (FIRST_READ,), *, sized: bool = True
    ) -> None:
        self.total = len(data) if sized else None
        self.pulled = 0
        self.reads = 0
        self._data, self._lengths, self._end = data, cycle(lengths), 0

    def read(self, offset: int) -> bytes:
        assert offset >= self._end, "bytes before this were given already"
        piece = self._data[offset : offset + next(self._lengths)]
        self._end = offset + len(piece)
        self.pulled += len(piece)
        self.reads += 1
        return piece
