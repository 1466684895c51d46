"""What tensor parallelism has to divide: what vLLM and SGLang refuse before they load a weight.

Sources: vLLM's ModelConfig.verify_with_parallel_config, `divide` in its distributed/utils.py, and
the checks of block and group sizes in its and SGLang's fp8.py and gptq.py (vllm#11147, vllm#17569,
sglang#26107).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from console.models.sizing.model_facts import Kind, ModelFacts

VOCABULARY_PAD = 64
"""Rows to which both engines pad the token table before they divide it."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Among how many ranks each part is divided; `experts` is 1 where whole experts are."""

    dense: int = 1
    attention: int = 1
    experts: int = 1


def refusals(facts: ModelFacts, ranks: Ranks) -> Iterator[str]:
    """Why an engine does not take a model with so many ranks, in words."""
    yield from _heads(facts, ranks.attention)
    vocabulary = -(-(facts.vocabulary or 0) // VOCABULARY_PAD) * VOCABULARY_PAD
    if vocabulary % ranks.dense:
        yield f"a token table of {vocabulary:,} rows is not divisible by {ranks.dense} ranks"
    dense, experts = widths(facts)
    for what, width, count in (
        ("the feed-forward width", dense, ranks.dense),
        ("an expert's width", experts, ranks.experts),
    ):
        if width and width % count:
            yield f"{what} of {width:,} is not divisible by {count} ranks"
        elif width and count > 1:
            yield from _aligned(facts, f"{what} of {width:,}", width, count)


def widths(facts: ModelFacts) -> tuple[int, int]:
    """The widths of what is there: (of dense layers, of experts); 0 where there are none."""
    sparse = {weight.layer for weight in facts.weights if weight.kind is Kind.EXPERTS}
    dense = facts.feed_forward if len(sparse) < (facts.layers or 0) else 0
    return dense or 0, facts.experts.width if sparse else 0


def _heads(facts: ModelFacts, ranks: int) -> Iterator[str]:
    heads = facts.attention.heads
    if heads and heads % ranks:
        yield f"{heads} attention heads are not divisible by {ranks} ranks"
        return
    if facts.attention.latent:
        return
    for kept in sorted({count for count in facts.attention.kv_heads or () if count}):
        if kept % ranks and ranks % kept:
            yield f"{kept} heads of the cache can be neither divided nor doubled for {ranks} ranks"


def _aligned(facts: ModelFacts, what: str, width: int, ranks: int) -> Iterator[str]:
    """A rank's part has to be whole blocks, or whole groups, of the quantization."""
    part, block = width // ranks, facts.block
    if block and part % block:
        yield (
            f"{what} gives each of {ranks} ranks {part:,}, which is no multiple of the "
            f"quantization's block of {block}"
        )


def step_bytes(facts: ModelFacts, tokens: int, ranks: int, expert_ranks: int) -> int:
    """Bytes of the values of so many tokens in the widest layer, on a rank, in 16 bits."""
    width, attention, experts = facts.embedding or 0, facts.attention, facts.experts
    heads = (attention.heads or 0) * (attention.head or attention.key or 0)
    dense = 3 * (facts.feed_forward or 0) // ranks
    routed = experts.used * (3 * experts.width // expert_ranks + width)
    return tokens * (max(dense, routed) + 4 * width + 2 * heads // ranks) * 2


def too_long(
    facts: ModelFacts, context: int | None, leave: str, *, given: bool = False
) -> list[str]:
    """What is not known where a context is asked for that is longer than the model's own: the
    engine refuses it, unless a variable gives leave (`given`: it does), or the configuration
    stretches its positions."""
    own = facts.context_length
    if context is None or own is None or context <= own:
        return []
    if given:
        return [
            f"what the model answers beyond its own {own:,} tokens: {leave} lets it start with "
            f"{context:,}, and positions beyond may give nan or end the server"
        ]
    return [
        f"whether a context of {context:,} tokens is taken: the model's own has {own:,}, and more "
        f"needs {leave} or a rope scaling"
    ]
