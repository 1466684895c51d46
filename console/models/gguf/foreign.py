"""What a file without the magic `GGUF` is instead, in words an operator can act on."""

from __future__ import annotations

import json
import re

from console.common.text import decode, one_line

HEAD = 1024
"""Bytes that are enough to tell."""
_POINTER = b"version https://git-lfs.github.com/spec/"
_SIZE = re.compile(rb"^size (\d{1,20})$", re.MULTILINE)
_OLD = (b"lmgg", b"fmgg", b"tjgg", b"algg")
_MAGICS = (
    (b"\x1f\x8b", "a gzip archive", "unpack it: gunzip"),
    (b"PK\x03\x04", "a zip archive, or a PyTorch checkpoint", ""),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it: zstd -d"),
    (b"%PDF", "a PDF document", ""),
)


def told(head: bytes) -> tuple[str, str]:
    """What the first bytes are, and a hint; clean."""
    if head.startswith(_POINTER):
        size = _SIZE.search(head)
        words = f" of {size[1].decode()} bytes" if size else ""
        return f"a git-lfs pointer to a file{words}", "git lfs pull fetches the file itself"
    for magic, words, hint in _MAGICS:
        if head.startswith(magic):
            return words, hint
    if head[:4] in _OLD:
        return "a model in a format older than GGUF", "convert the model again"
    if not head.strip(b"\0"):
        return "nothing but zero bytes", "a download that never finished: fetch it again"
    if head[8:9] == b"{" and head[4:8] == bytes(4):
        return "a safetensors file", "it is for SGLang or vLLM; llama.cpp takes GGUF"
    return _as_text(head.lstrip(b"\xef\xbb\xbf \t\r\n"), head)


def _as_text(start: bytes, head: bytes) -> tuple[str, str]:
    if start[:1] == b"<":
        title = re.search(rb"<title[^>]*>(.{1,200}?)</title>", head, re.IGNORECASE | re.DOTALL)
        named = f": {one_line(decode(title[1]), 80)}" if title else ""
        return f"a web page{named}", "a login or a proxy stands before the file; see the address"
    if start[:1] in (b"{", b"["):
        return f"JSON: {_message(head)}", "the server answered with a message, not with the file"
    if head.isascii() and decode(head[:64]).isprintable():
        return f"text: {one_line(decode(head), 80)}", ""
    return f"begins with the bytes {head[:4].hex(' ')}", "is this the right file?"


def _message(head: bytes) -> str:
    """The error a JSON body carries, or its first words."""
    try:
        value = json.loads(head)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        for key in ("error", "message", "detail"):
            if isinstance(value.get(key), str):
                return one_line(value[key], 120)
    return one_line(decode(head), 80)
