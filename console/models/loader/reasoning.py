"""Parsers of reasoning for which vLLM looks for tokens in the tokenizer while it is configured.

Source: vLLM 0.33, `initialize_token_ids` of config/reasoning.py and the parsers of vllm/reasoning;
the others take any tokenizer. Reports: Kimi-Dev#6, Skywork-R1V#42, recipes#515.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_THINK = ("<think>", "</think>")
_TOKENS: Mapping[str, tuple[str, ...]] = {
    "deepseek_r1": _THINK, "step5": _THINK, "ernie45": _THINK, "holo2": _THINK, "hy_v3": _THINK,
    "hy_v4": _THINK, "step3": ("</think>",), "minimax_m3": ("<mm:think>", "</mm:think>"),
    "k2_horizon": ("<ifm|think>", "</ifm|think>"), "poolside_v1": ("<assistant>",),
}  # fmt: skip
_SUFFIXED = ("hy_v3", "hy_v4")
"""Parsers whose tokens end as the tokenizer says: `<think:6124c78e>`."""
_FAMILIES: Mapping[str, str] = {
    "ernie45": "Ernie4_5", "step3": "Step3", "step5": "Step5", "hy_v3": "HYV3", "hy_v4": "HYV4",
    "minimax_m3": "MiniMaxM3", "k2_horizon": "K2Horizon",
}  # fmt: skip
"""How the classes of a parser's own family begin."""


def needed(parser: str, classes: Iterable[str] = ()) -> tuple[str, ...]:
    """The tokens without which a parser ends vLLM; none for a model of the parser's own family."""
    family = _FAMILIES.get(parser)
    own = family is not None and any(name.startswith(family) for name in classes)
    return () if own else _TOKENS.get(parser, ())


def lacking(parser: str, documents: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The tokens that a parser needs and none of a tokenizer's files has."""
    tokens = {token for document in documents for token in _tokens(document)}
    suffixed = parser in _SUFFIXED
    return tuple(
        token for token in needed(parser)
        if token not in tokens
        and not (suffixed and any(other.startswith(f"{token[:-1]}:") for other in tokens))
    )  # fmt: skip


def _tokens(document: Mapping[str, Any]) -> Iterator[str]:
    """The tokens of tokenizer.json (its vocabulary and those that were added), or those that
    tokenizer_config.json adds."""
    added = document.get("added_tokens_decoder")
    entries = list(added.values()) if isinstance(added, Mapping) else []
    for key in ("added_tokens", "additional_special_tokens", "extra_special_tokens"):
        listed = document.get(key)
        entries += listed if isinstance(listed, list) else []
    for entry in entries:
        content = entry.get("content") if isinstance(entry, Mapping) else entry
        if isinstance(content, str):
            yield content
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, Mapping):
        yield from vocabulary
    for entry in vocabulary if isinstance(vocabulary, list) else ():
        if isinstance(entry, list) and entry and isinstance(entry[0], str):
            yield entry[0]
