"""What a card needs to compute with, beside weights and cache: worked out, since no one tells.

Measured with llama.cpp b11669's own allocator, on devices that only count what they are asked
for, with headers of the true shape of nine models (7 B to 671 B, dense, experts, latent attention,
windows; 512 and 2048 tokens a batch, 8 k and 32 k of context): the sum below was never less than
what it reserved, and at most a third or 0.6 GiB more. What the driver takes is not in it. Builds
of before late 2025 reserve scores for every token of a batch (`logits`), newer ones do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.models.sizing.kv_cache import Cache, CacheAsk
from console.models.sizing.model_facts import ModelFacts

CONTEXT = 512 << 20
"""A CUDA context with its kernels; 0.4 to 0.7 GiB by card and driver."""
FLOAT = 4
COPIES = 4
"""Batches that are under way at once where the layers of several cards work as a pipeline."""
SMALL = 32 << 20
"""For the small weights of a layer that are copied beside its largest."""
SCORES = 4
"""Matrices of batch x context that choosing with an indexer takes."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the batches look like: tokens in one, cells a token may look at, pipelined or not."""

    ubatch: int
    cells: int
    masks: int
    flash: bool
    pipelined: bool


def work_of(ask: CacheAsk, cache: Cache, facts: ModelFacts, pipelined: bool) -> Work:
    """Cells are those of one sequence's part, or of the shared cache."""
    streams = 1 if ask.unified else max(1, ask.parallel)
    cells = cache.tokens // streams
    near = 0
    if facts.attention.has_window:
        needed = facts.attention.window * (ask.parallel if ask.unified else 1) + ask.ubatch
        near = cells if ask.swa_full else min(cells, needed)
    return Work(min(ask.ubatch, cache.tokens), cells, cells + near, ask.flash, pipelined)


def floats(facts: ModelFacts) -> int:
    """Numbers that are alive at once for one token: the widest of the three parts of a layer.

    Dense: 4 embeddings and 3 x feed-forward. Experts: 3 embeddings and, for each one used, 2
    embeddings and its width (or 1 and 3). Latent attention: queries, absorbed queries and values
    of every head, 4 embeddings.
    """
    width = facts.embedding or 0
    spec, experts = facts.attention, facts.experts
    heads, key, value = spec.heads or 0, spec.key or 0, spec.value or 0
    if spec.latent:
        # a query before and after it is taken into the latent space, and what comes out of it
        attention = heads * (spec.head + key + spec.latent_rank) + 2 * spec.latent_rank
    else:
        attention = 2 * heads * (key + value)
    parts = [4 * width + attention]
    if facts.feed_forward:
        parts.append(4 * width + 3 * facts.feed_forward)
    if experts.used:
        each = max(2 * width + experts.width, width + 3 * experts.width)
        parts.append(3 * width + experts.used * each)
    return max(parts)


def compute_bytes(
    facts: ModelFacts, work: Work, *, output: bool, lent: tuple[int, ...] = ()
) -> int:
    """Bytes to reserve on one card. `output`: it scores the tokens. `lent`: weights of the host
    that are copied over while a batch is worked on, in bytes."""
    width = facts.embedding or 0
    act = work.ubatch * floats(facts) * FLOAT
    scores = 0 if work.flash else (facts.attention.heads or 0) * work.cells * work.ubatch * FLOAT
    chosen = SCORES * work.cells * work.ubatch * FLOAT if facts.attention.indexer else 0
    logits = work.ubatch * ((facts.vocabulary or 0) + 2 * width) * FLOAT if output else 0
    copies = COPIES if work.pipelined else 1
    masks = work.ubatch * work.masks * (2 if work.flash else FLOAT) * copies
    inputs = (COPIES - 1) * work.ubatch * width * FLOAT if work.pipelined else 0
    small = SMALL if lent else 0
    return max(act + max(scores, sum(lent)), logits) + masks + inputs + chosen + small


def host_compute_bytes(facts: ModelFacts, work: Work, *, computes: bool) -> int:
    """The same for the host: inputs and masks always, all of it where it `computes` batches."""
    if computes:
        return compute_bytes(facts, work, output=True)
    width = facts.embedding or 0
    copies = COPIES if work.pipelined else 1
    row = 2 * width * FLOAT + work.masks * (2 if work.flash else FLOAT)
    return work.ubatch * row * copies
