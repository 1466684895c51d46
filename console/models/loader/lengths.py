"""The lengths that a header's keys give, by which a loader knows how long its tensors are."""

from __future__ import annotations

from console.models.gguf.header import Array, Header


def lengths(header: Header) -> dict[str, int]:
    """Lengths in elements by name, as far as the keys give them once for all layers; the defaults
    are the loader's own."""
    arch = header.architecture

    def read(key: str) -> int | None:
        return header.integer(f"{arch}.{key}")

    width, heads = read("embedding_length"), read("attention.head_count")
    default = width // heads if width and heads else None
    key, value = read("attention.key_length"), read("attention.value_length")
    key, value = default if key is None else key, default if value is None else value
    kv_heads = heads if f"{arch}.attention.head_count_kv" not in header.kv else None
    kv_heads = read("attention.head_count_kv") if kv_heads is None else kv_heads
    forward, experts = read("feed_forward_length"), read("expert_count")
    if f"{arch}.feed_forward_length" not in header.kv:
        forward = 0
    own = read("expert_feed_forward_length")
    known: dict[str, int | None] = {
        "width": width, "vocabulary": vocabulary(header), "context": read("context_length"),
        "key": key, "value": value,
        "heads": heads, "kv heads": kv_heads, "queries": _times(heads, key),
        "keys": _times(kv_heads, key), "values": _times(kv_heads, value),
        "read": _times(heads, value), "forward": forward, "experts": experts,
        "expert forward": own, "one": 1, "twice forward": _times(2, forward),
        "twice queries": _times(2, _times(heads, key)), "thrice width": _times(3, width),
        "queries, keys and values": _sum(
            _times(heads, key), _times(kv_heads, key), _times(kv_heads, value)
        ),
    }  # fmt: skip
    known |= _latent(header, heads)
    return {name: size for name, size in known.items() if size is not None}


def _latent(header: Header, heads: int | None) -> dict[str, int | None]:
    """The lengths of latent attention: K and V are unpacked from `rank` numbers."""

    def read(key: str) -> int | None:
        return header.integer(f"{header.architecture}.{key}")

    rank, rope = read("attention.kv_lora_rank"), read("rope.dimension_count")
    key, value = read("attention.key_length_mla"), read("attention.value_length_mla")
    return {
        "rank": rank, "query rank": read("attention.q_lora_rank"),
        "rank and rope": _sum(rank, rope), "whole queries": _times(heads, key),
        "unpacked values": _times(heads, value), "unpacked value": value,
        "plain key": key - rope if key and rope else None,
        "indexer key": read("attention.indexer.key_length"),
    }  # fmt: skip


def vocabulary(header: Header) -> int | None:
    """How many tokens the loader counts: its list, or the key where the file has none."""
    tokens = header.kv.get("tokenizer.ggml.tokens")
    if isinstance(tokens, Array):
        return tokens.count
    return header.integer(f"{header.architecture}.vocab_size")


def _times(factor: int | None, other: int | None) -> int | None:
    return None if factor is None or other is None else factor * other


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
