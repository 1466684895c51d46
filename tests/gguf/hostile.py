"""Headers that broke other readers: endless lengths, wrapped sizes, names that are none."""

from __future__ import annotations

import struct

from console.models.gguf.byte_source import Kind
from console.models.gguf.header import ValueType as T
from tests.gguf.raw import (
    ARCH,
    LLAMA,
    array,
    big_endian,
    header,
    pair,
    string,
    tensor,
    text,
    u32,
    u64,
)

HUGE = 2**63
ESCAPES = b"deep\x1b]0;owned\x07seek2\x1b[31m[red]"
HTML = b"<!doctype html>\n<html><head><title>Sign in \x1b[31mnow</title></head></html>"
POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 41234567890\n" + b" " * 80
)
ALIGNMENT = b"general.alignment"

CASES: dict[str, tuple[bytes, Kind]] = {
    "string array of 2^63": (header(array(b"tokens", T.STRING, HUGE), LLAMA), Kind.MALFORMED),
    "byte array of 2^63": (header(array(b"tokens", T.UINT8, HUGE), LLAMA), Kind.MALFORMED),
    "array that wraps 64 bits":
        (header(array(b"tokens", T.FLOAT64, 2**61 + 1), LLAMA), Kind.MALFORMED),
    "array longer than the file":
        (header(array(b"tokens", T.FLOAT64, 10**6), LLAMA), Kind.TRUNCATED),
    "array of five million": (header(array(b"tokens", T.UINT8, 5 * 2**20), LLAMA), Kind.TOO_BIG),
    "string of 2^63": (header(pair(b"name", T.STRING, u64(HUGE)), LLAMA), Kind.MALFORMED),
    "string longer than the file":
        (header(pair(b"name", T.STRING, u64(2**29)), LLAMA), Kind.TRUNCATED),
    "key of 2^63": (header(u64(HUGE) + b"abc"), Kind.MALFORMED),
    "string of 2^63 in a list":
        (header(array(b"tokens", T.STRING, 2, u64(HUGE) + u64(0))), Kind.MALFORMED),
    "2^63 tensors": (b"GGUF" + u32(3) + u64(HUGE) + u64(1) + LLAMA, Kind.MALFORMED),
    "2^63 keys": (header(LLAMA, count=HUGE), Kind.MALFORMED),
    "5000 keys": (header(LLAMA, count=5000), Kind.TOO_BIG),
    "arrays nested 5000 deep":
        (header(pair(b"nest", T.ARRAY, (u32(T.ARRAY) + u64(1)) * 5000)), Kind.MALFORMED),
    "array of an unknown type": (header(array(b"odd", 77, 1, b"\0" * 8)), Kind.MALFORMED),
    "unknown metadata type": (header(pair(b"odd", 13, b"\0" * 8)), Kind.MALFORMED),
    "empty key": (header(text(b"", b"x"), LLAMA), Kind.MALFORMED),
    "duplicate key": (header(LLAMA, text(b"a", b"1"), text(b"a", b"2")), Kind.MALFORMED),
    "duplicate architecture": (header(LLAMA, text(ARCH, b"deepseek2")), Kind.MALFORMED),
    "architecture with a NUL in its key":
        (header(text(ARCH + b"\0", b"deepseek2"), LLAMA), Kind.MALFORMED),
    "architecture as a number": (header(pair(ARCH, T.UINT32, u32(7))), Kind.MALFORMED),
    "architecture as a list": (header(array(ARCH, T.STRING, 1, string(b"llama"))), Kind.MALFORMED),
    "empty architecture": (header(text(ARCH, b"")), Kind.MALFORMED),
    "architecture with escapes": (header(text(ARCH, ESCAPES)), Kind.MALFORMED),
    "architecture with markup": (header(text(ARCH, b"[red]llama[/]")), Kind.MALFORMED),
    "architecture in broken UTF-8": (header(text(ARCH, b"lla\xff\xfema")), Kind.MALFORMED),
    "architecture with a NUL": (header(text(ARCH, b"deepseek2\0")), Kind.MALFORMED),
    "architecture of 100 MB": (header(pair(ARCH, T.STRING, u64(10**8))), Kind.MALFORMED),
    "alignment 0": (header(LLAMA, pair(ALIGNMENT, T.UINT32, u32(0))), Kind.MALFORMED),
    "alignment 33": (header(LLAMA, pair(ALIGNMENT, T.UINT32, u32(33))), Kind.MALFORMED),
    "alignment 2^31": (header(LLAMA, pair(ALIGNMENT, T.UINT32, u32(2**31))), Kind.MALFORMED),
    "alignment as 64 bits": (header(LLAMA, pair(ALIGNMENT, T.UINT64, u64(32))), Kind.MALFORMED),
    "version 0": (header(LLAMA, version=0), Kind.UNSUPPORTED),
    "version 1": (header(LLAMA, version=1), Kind.UNSUPPORTED),
    "version 4": (header(LLAMA, version=4), Kind.UNSUPPORTED),
    "big-endian": (big_endian(), Kind.UNSUPPORTED),
    "big-endian version 1": (b"GGUF" + struct.pack(">III", 1, 0, 0), Kind.UNSUPPORTED),
    "web page": (HTML, Kind.NOT_GGUF),
    "JSON body": (b'{"error": "Invalid \\u001b[31mcredentials"}', Kind.NOT_GGUF),
    "JSON without words": (b'{"error": {"code": 7}}', Kind.NOT_GGUF),
    "JSON cut off": (b'[{"a": "\x1b[2J', Kind.NOT_GGUF),
    "GGML": (b"tjgg\3\0\0\0", Kind.NOT_GGUF),
    "git-lfs pointer": (POINTER, Kind.NOT_GGUF),
    "text": (b"Entry not found", Kind.NOT_GGUF),
    "gzip": (b"\x1f\x8b\x08\0\0\0\0\0", Kind.NOT_GGUF),
    "safetensors": (u64(4096) + b'{"__metadata__":{}}', Kind.NOT_GGUF),
    "zeros": (bytes(4096), Kind.NOT_GGUF),
    "noise": (b"\x80\x02\x8a\nl\xfc", Kind.NOT_GGUF),
    "empty": (b"", Kind.TRUNCATED),
    "three bytes": (b"GGU", Kind.TRUNCATED),
}  # fmt: skip
"""What a reader must say, whatever is asked for: bytes, kind, words."""

TENSORS: dict[str, tuple[bytes, Kind]] = {
    "four dimensions of 2^33": (header(LLAMA, tensors=[tensor(b"w", [2**33] * 4)]), Kind.MALFORMED),
    "negative dimension": (header(LLAMA, tensors=[tensor(b"w", [HUGE])]), Kind.MALFORMED),
    "negative dimension beside a zero":
        (header(LLAMA, tensors=[tensor(b"w", [0, HUGE])]), Kind.MALFORMED),
    "4 billion dimensions":
        (header(LLAMA, tensors=[string(b"w") + u32(2**32 - 1)]), Kind.MALFORMED),
    "row of half a block": (header(LLAMA, tensors=[tensor(b"w", [48], 8)]), Kind.MALFORMED),
    "offset out of line":
        (header(LLAMA, tensors=[tensor(b"w", [32]), tensor(b"v", [32], 0, 64)]), Kind.MALFORMED),
    "offset 2^64 - 1": (header(LLAMA, tensors=[tensor(b"w", [32], 0, 2**64 - 1)]), Kind.MALFORMED),
    "two tensors of one name":
        (header(LLAMA, tensors=[tensor(b"w", [32]), tensor(b"w", [32], 0, 128)]), Kind.MALFORMED),
    "tensor name of 64 bytes": (header(LLAMA, tensors=[tensor(b"w" * 64, [32])]), Kind.MALFORMED),
    "tensor name of 2^63 bytes": (header(LLAMA, tensors=[u64(HUGE)]), Kind.MALFORMED),
    "tensor name with an escape":
        (header(LLAMA, tensors=[tensor(b"\x1b]0;x\x07w", [32])]), Kind.MALFORMED),
    "sizes that add up to 2^63":
        (header(LLAMA, tensors=[tensor(b"a", [2**60], 28), tensor(b"b", [2**60], 28, 2**63)]),
         Kind.MALFORMED),
    "tensors that are not there": (b"GGUF" + u32(3) + u64(3) + u64(1) + LLAMA, Kind.TRUNCATED),
}  # fmt: skip
"""The same for the table of tensors, which only a whole header has."""
