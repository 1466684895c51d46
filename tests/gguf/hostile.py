"""Headers that broke other readers: endless lengths, wrapped sizes, names that are none."""

import struct

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

CASES: dict[str, bytes] = {
    "string array of 2^63": header(array(b"tokens", T.STRING, HUGE), LLAMA),
    "byte array of 2^63": header(array(b"tokens", T.UINT8, HUGE), LLAMA),
    "array that wraps 64 bits": header(array(b"tokens", T.FLOAT64, 2**61 + 1), LLAMA),
    "array longer than the file": header(array(b"tokens", T.FLOAT64, 10**6), LLAMA),
    "array of five million": header(array(b"tokens", T.UINT8, 5 * 2**20), LLAMA),
    "string of 2^63": header(pair(b"name", T.STRING, u64(HUGE)), LLAMA),
    "string longer than the file": header(pair(b"name", T.STRING, u64(2**29)), LLAMA),
    "key of 2^63": header(u64(HUGE) + b"abc"),
    "string of 2^63 in a list": header(array(b"tokens", T.STRING, 2, u64(HUGE) + u64(0))),
    "2^63 tensors": b"GGUF" + u32(3) + u64(HUGE) + u64(1) + LLAMA,
    "2^63 keys": header(LLAMA, count=HUGE),
    "70000 keys": header(LLAMA, count=70_000),
    "arrays nested 5000 deep": header(pair(b"nest", T.ARRAY, (u32(T.ARRAY) + u64(1)) * 5000)),
    "array of an unknown type": header(array(b"odd", 77, 1, b"\0" * 8)),
    "unknown metadata type": header(pair(b"odd", 13, b"\0" * 8)),
    "empty key": header(text(b"", b"x"), LLAMA),
    "duplicate key": header(LLAMA, text(b"a", b"1"), text(b"a", b"2")),
    "duplicate architecture": header(LLAMA, text(ARCH, b"deepseek2")),
    "architecture with a NUL in its key": header(text(ARCH + b"\0", b"deepseek2"), LLAMA),
    "architecture as a number": header(pair(ARCH, T.UINT32, u32(7))),
    "architecture as a list": header(array(ARCH, T.STRING, 1, string(b"llama"))),
    "empty architecture": header(text(ARCH, b"")),
    "architecture with escapes": header(text(ARCH, ESCAPES)),
    "architecture with markup": header(text(ARCH, b"[red]llama[/]")),
    "architecture in broken UTF-8": header(text(ARCH, b"lla\xff\xfema")),
    "architecture with a NUL": header(text(ARCH, b"deepseek2\0")),
    "architecture of 100 MB": header(pair(ARCH, T.STRING, u64(10**8))),
    "alignment 0": header(LLAMA, pair(ALIGNMENT, T.UINT32, u32(0))),
    "alignment 33": header(LLAMA, pair(ALIGNMENT, T.UINT32, u32(33))),
    "alignment 2^31": header(LLAMA, pair(ALIGNMENT, T.UINT32, u32(2**31))),
    "alignment as 64 bits": header(LLAMA, pair(ALIGNMENT, T.UINT64, u64(32))),
    "blocks in 64 bits": header(LLAMA, pair(b"llama.block_count", T.UINT64, u64(4))),
    "heads in a list of 64 bits":
        header(LLAMA, array(b"llama.attention.head_count", T.UINT64, 1, u64(4))),
    "a frequency as a whole number": header(LLAMA, pair(b"llama.rope.freq_base", T.UINT32, u32(9))),
    "a pre-tokenizer as a number":
        header(LLAMA, pair(b"tokenizer.ggml.pre", T.UINT32, u32(3))),
    "a pre-tokenizer as a list":
        header(LLAMA, array(b"tokenizer.ggml.pre", T.STRING, 1, string(b"gpt-2"))),
    "a kind of file as text": header(LLAMA, text(b"general.file_type", b"15")),
    "a token as text": header(LLAMA, text(b"tokenizer.ggml.bos_token_id", b"1")),
    "a switch as a number": header(LLAMA, pair(b"tokenizer.ggml.add_bos_token", T.UINT32, u32(1))),
    "a switch of an architecture as a number":
        header(LLAMA, pair(b"llama.attention.causal", T.UINT32, u32(1))),
    "version 0": header(LLAMA, version=0),
    "version 1": header(LLAMA, version=1),
    "version 4": header(LLAMA, version=4),
    "big-endian": big_endian(),
    "big-endian version 1": b"GGUF" + struct.pack(">III", 1, 0, 0),
    "web page": HTML,
    "JSON body": b'{"error": "Invalid \\u001b[31mcredentials"}',
    "JSON without words": b'{"error": {"code": 7}}',
    "JSON cut off": b'[{"a": "\x1b[2J',
    "GGML": b"tjgg\3\0\0\0",
    "git-lfs pointer": POINTER,
    "text": b"Entry not found",
    "gzip": b"\x1f\x8b\x08\0\0\0\0\0",
    "safetensors": u64(4096) + b'{"__metadata__":{}}',
    "zeros": bytes(4096),
    "noise": b"\x80\x02\x8a\nl\xfc",
    "empty": b"",
    "three bytes": b"GGU",
}  # fmt: skip
"""What is refused whatever is asked for; of which kind, is held by the test of words."""

TENSORS: dict[str, bytes] = {
    "four dimensions of 2^33": header(LLAMA, tensors=[tensor(b"w", [2**33] * 4)]),
    "negative dimension": header(LLAMA, tensors=[tensor(b"w", [HUGE])]),
    "negative dimension beside a zero": header(LLAMA, tensors=[tensor(b"w", [0, HUGE])]),
    "dimension of zero": header(LLAMA, tensors=[tensor(b"w", [32, 0])]),
    "4 billion dimensions": header(LLAMA, tensors=[string(b"w") + u32(2**32 - 1)]),
    "row of half a block": header(LLAMA, tensors=[tensor(b"w", [48], 8)]),
    "offset out of line": header(LLAMA, tensors=[tensor(b"w", [32]), tensor(b"v", [32], 0, 64)]),
    "offset 2^64 - 1": header(LLAMA, tensors=[tensor(b"w", [32], 0, 2**64 - 1)]),
    "two tensors of one name":
        header(LLAMA, tensors=[tensor(b"w", [32]), tensor(b"w", [32], 0, 128)]),
    "tensor name of 64 bytes": header(LLAMA, tensors=[tensor(b"w" * 64, [32])]),
    "tensor name of 2^63 bytes": header(LLAMA, tensors=[u64(HUGE)]),
    "tensor name with an escape": header(LLAMA, tensors=[tensor(b"\x1b]0;x\x07w", [32])]),
    "sizes that add up to 2^63":
        header(LLAMA, tensors=[tensor(b"a", [2**60], 28), tensor(b"b", [2**60], 28, 2**63)]),
    "tensors that are not there": b"GGUF" + u32(3) + u64(3) + u64(1) + LLAMA,
}  # fmt: skip
"""The same for the table of tensors, which only a whole header has."""
