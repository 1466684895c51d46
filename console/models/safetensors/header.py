"""Reads the header of one safetensors file: 8 bytes of length, then JSON with the type, the shape
and the place of every tensor.

It refuses what the safetensors library refuses (a header over 100 MB, places that overlap or leave
a hole, sizes that the shape does not give) and more values than this process should hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

from console.common.text import one_line
from console.common.units import format_bytes
from console.models.gguf.byte_source import GgufError, Kind, Source, identify

LENGTH = 8
MAX_HEADER = 100_000_000
"""The limit of the safetensors library, bytes."""
MAX_TENSORS = 262_144
"""In one file; the largest checkpoints have 140,000 in all their files."""
MAX_DIMS = 32
MAX_NAME = 512
BITS: Mapping[str, int] = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of one element by dtype, as in the library's table."""
_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as it is stored; `begin` counts from the end of the header, in bytes."""

    dtype: str
    elements: int
    begin: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """The tensors of one file by name. `header_bytes` counts the length in front, too; `unknown`
    are dtypes that this reader does not know."""

    tensors: Mapping[str, Stored]
    header_bytes: int
    unknown: tuple[str, ...] = ()

    @property
    def data_bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors.values())


def read_header(source: Source) -> ShardHeader:
    """The header of a file. Raises GgufError, with the sources' own kinds."""
    data = bytearray(source.read(0))
    length = _length(source, data)
    while len(data) < LENGTH + length and (more := source.read(len(data))):
        data += more
    if len(data) < LENGTH + length:
        _refuse(source, Kind.TRUNCATED, "the file ends before its header does", _UNFINISHED)
    header = _parsed(source, bytes(data[LENGTH : LENGTH + length]), LENGTH + length)
    end = header.header_bytes + header.data_bytes
    if source.total is not None and source.total < end:
        words = f"its tensors end at byte {end}, the file at byte {source.total}"
        _refuse(source, Kind.TRUNCATED, words, _UNFINISHED)
    if source.total is not None and source.total > end:
        words = f"{source.total - end} bytes follow the last tensor"
        _refuse(source, Kind.MALFORMED, words)
    return header


_UNFINISHED = "an unfinished download? compare its size with the repository's, and fetch it again"


def _refuse(source: Source, kind: Kind, words: str, hint: str = "") -> NoReturn:
    title = f"the safetensors header of {source.name} cannot be used"
    raise GgufError(kind, title, f"{kind}: {words}", hint)


def _length(source: Source, data: bytearray) -> int:
    """The length of the JSON, of a plausible header."""
    if len(data) <= LENGTH:
        words = "the file is empty" if not data else f"the file has {len(data)} bytes"
        _refuse(source, Kind.TRUNCATED, words, _UNFINISHED)
    length = int.from_bytes(data[:LENGTH], "little")
    if data[LENGTH : LENGTH + 1] != b"{":
        words, hint = identify(bytes(data[:1024]))
        title = f"{source.name} is no safetensors file"
        raise GgufError(Kind.MALFORMED, title, words, hint)
    if length > MAX_HEADER:
        words = f"a header of {format_bytes(length)}; at most {format_bytes(MAX_HEADER)} are read"
        _refuse(source, Kind.MALFORMED, words)
    if source.total is not None and LENGTH + length > source.total:
        words = f"a header of {length} bytes in a file of {source.total}"
        _refuse(source, Kind.TRUNCATED, words, _UNFINISHED)
    return length


class _Bad(ValueError):
    """What is wrong, in words."""


def _parsed(source: Source, text: bytes, header_bytes: int) -> ShardHeader:
    # counted before they are made: Python needs some hundred bytes for each
    if text.count(b"{") > MAX_TENSORS + 2 or text.count(b",") > MAX_TENSORS * (MAX_DIMS // 2):
        _refuse(source, Kind.TOO_BIG, f"more than {MAX_TENSORS} tensors in one file")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_object)
        return _header(header, header_bytes)
    except UnicodeDecodeError:
        _refuse(source, Kind.MALFORMED, "its header is not UTF-8")
    except _Bad as error:
        _refuse(source, Kind.MALFORMED, one_line(str(error), 200))
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else one_line(str(error))
        _refuse(source, Kind.MALFORMED, f"its header is not JSON: {why}")


def _object(pairs: list[tuple[str, Any]]) -> object:
    """An object of the JSON: a tensor is made small at once, others stay dictionaries."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _Bad("a name is there twice")
    if len(fields) == 3 and "data_offsets" in fields:
        return _tensor(fields)
    return fields


def _tensor(fields: Mapping[str, Any]) -> Stored:
    dtype, shape, place = fields.get("dtype"), fields.get("shape"), fields["data_offsets"]
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(place, list):
        raise _Bad("a tensor without dtype, shape and data_offsets")
    if len(place) != 2 or not all(map(_whole, place)) or place[0] > place[1]:
        raise _Bad(f"data_offsets {place!r:.60}")
    if len(shape) > MAX_DIMS or not all(map(_whole, shape)):
        raise _Bad(f"a shape {shape!r:.60}")
    elements, size = prod(shape), place[1] - place[0]
    bits = BITS.get(dtype)
    if bits is not None and elements * bits != size * 8:
        raise _Bad(f"{size} bytes for {elements} elements of {dtype}")
    return Stored(dtype, elements, place[0], size)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _header(header: object, header_bytes: int) -> ShardHeader:
    if not isinstance(header, dict):
        raise _Bad("its header is no JSON object")
    about = header.pop(_METADATA, {})
    if not isinstance(about, dict):
        raise _Bad(f"{_METADATA} is no object")
    for name, tensor in header.items():
        if not isinstance(tensor, Stored):
            raise _Bad(f"{name[:80]} has no dtype, shape and data_offsets")
        if len(name) > MAX_NAME:
            raise _Bad(f"a tensor's name of {len(name)} characters")
    at = 0
    for tensor in sorted(header.values(), key=lambda tensor: (tensor.begin, tensor.bytes)):
        if tensor.begin != at:
            what = "overlap" if tensor.begin < at else "leave a hole"
            raise _Bad(f"tensors {what} at byte {min(at, tensor.begin)} of the data")
        at += tensor.bytes
    unknown = sorted({tensor.dtype for tensor in header.values()} - BITS.keys())
    return ShardHeader(header, header_bytes, tuple(one_line(dtype, 20) for dtype in unknown))
