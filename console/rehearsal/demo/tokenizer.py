"""The tokenizer of the demonstration's models: GPT-2's bytes, two merges, a chat template."""

from __future__ import annotations

from typing import Any

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
MERGES = ["t h", "Ġ a"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5


def byte_symbols() -> list[str]:
    """The 256 one-character symbols that GPT-2's byte-level tokenizer gives the bytes."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]


def vocabulary(spare: int = 0) -> list[str]:
    """Token texts in order of their ids: bytes, merged pairs, BOS and EOS, then spare ones."""
    said = [*byte_symbols(), *(pair.replace(" ", "") for pair in MERGES), BOS, EOS]
    return said + [f"<|spare {number}|>" for number in range(spare)]


def tokenizer_metadata(spare: int = 0) -> dict[str, Any]:
    """The ``tokenizer.*`` keys of a byte-level GPT-2 tokenizer with a chat template."""
    tokens = vocabulary(spare)
    kinds = [_CONTROL if token in (BOS, EOS) else _NORMAL for token in vocabulary()]
    kinds += [_UNUSED] * spare
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": tokens.index(BOS),
        "tokenizer.ggml.eos_token_id": tokens.index(EOS),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
