"""A GGUF without its weights: the metadata and the tensor table of a header, and a hole as long as
the tensors would be.

llama.cpp's tools work out from this how much memory a load takes, before anything is downloaded.
The vocabulary is left out, since token lists are not read from a remote file; its size is said.
"""

from __future__ import annotations

import struct
from pathlib import Path

from console.models.gguf.header import CODES, Array, Header, Value, ValueType, pad

MAGIC, VERSION = b"GGUF", 3
LEFT_OUT = ("tokenizer.", "split.")
KEPT = ("tokenizer.ggml.token_type_count",)
"""What a loader wants of a tokenizer although it has no vocabulary: BERT and its like."""
VOCABULARY = ("tokenizer.ggml.model", "none")
"""llama.cpp's own name for a model without a vocabulary."""


def write_skeleton(header: Header, path: Path) -> int:
    """Write the file, sparse, and return its length in bytes. Raises as `skeleton`, and OSError."""
    head, size = skeleton(header)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return size


def skeleton(header: Header) -> tuple[bytes, int]:
    """The start of the file and its whole length in bytes, that of the real file or a little less.
    Raises ValueError for a header without tensors or with a type that this reader does not know."""
    if not header.tensors:
        raise ValueError("the header has no tensors")
    kept = [
        (key, value) for key, value in header.kv.items()
        if (key in KEPT or not key.startswith(LEFT_OUT))
        and not (isinstance(value, Array) and value.values is None)
    ]  # fmt: skip
    size = _vocabulary_size(header)
    kept = [pair for pair in kept if pair[0] not in dict(size)] + [VOCABULARY, *size]
    head = bytearray(MAGIC + struct.pack("<IQQ", VERSION, len(header.tensors), len(kept)))
    for key, value in kept:
        head += _string(key) + _value(value)
    offset = 0
    for tensor in header.tensors:
        if tensor.bytes is None:
            raise ValueError(f"tensor type {tensor.type_name}")
        dims = struct.pack(f"<I{len(tensor.dims)}Q", len(tensor.dims), *tensor.dims)
        head += _string(tensor.name) + dims + struct.pack("<IQ", tensor.type, offset)
        offset += pad(tensor.bytes, header.alignment)
    return bytes(head), pad(len(head), header.alignment) + offset


def _vocabulary_size(header: Header) -> list[tuple[str, Value]]:
    """The number of tokens, which a loader takes from their list where the file has one, whatever
    the key says; without a key it is told by the token table."""
    key = f"{header.architecture or ''}.vocab_size"
    tokens = header.kv.get("tokenizer.ggml.tokens")
    if isinstance(tokens, Array):
        return [(key, tokens.count)]
    rows = [
        tensor.dims[-1] for tensor in header.tensors or () if tensor.name == "token_embd.weight"
    ]
    return [(key, rows[0])] if rows and key not in header.kv else []


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    """A value with its type. A number's width is not known any more: llama.cpp writes whole numbers
    as uint32 where they fit, and fractions as float32."""
    if isinstance(value, bool):
        return struct.pack("<I?", ValueType.BOOL, value)
    if isinstance(value, int):
        if 0 <= value < 2**32:
            return struct.pack("<II", ValueType.UINT32, value)
        if value < 0:
            return struct.pack("<Ii", ValueType.INT32, max(value, -(2**31)))
        return struct.pack("<IQ", ValueType.UINT64, value)
    if isinstance(value, float):
        return struct.pack("<If", ValueType.FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", ValueType.STRING) + _string(value)
    kind = ValueType[value.element]
    head = struct.pack("<IIQ", ValueType.ARRAY, kind, value.count)
    return head + struct.pack(f"<{value.count}{CODES[kind]}", *(value.values or ()))
