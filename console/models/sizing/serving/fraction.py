"""The static part of a card that SGLang takes by itself, and what it keeps free beside it."""

from __future__ import annotations

from console.host.sample import Card
from console.models.sizing.assessment import GIB, MIB
from console.models.sizing.loader_plan import SglangPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.encoders import has_encoder, kept_of_static

CARDS = (  # below so many GiB: tokens of a chunk, requests of a graph with fewer ranks than 4, else
    (20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (90, 8192, 256, 512),
    (160, 8192, 256, 512), (1 << 20, 16384, 512, 512),
)  # fmt: skip
"""SGLang's defaults by a card's memory (arg_groups/memory_hook.py of 0.5.23)."""
FALLBACK = 0.88
"""The static part of a card whose memory is not known."""
PREFILL_STEPS = (
    (4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256),
    (4608, 1 << 20, 512),
)  # fmt: skip
"""Sizes of the graphs for prompts, up to a chunk (`generate_prefill_cuda_graph_batch_sizes`)."""
MANY = 300
"""Requests of a graph from which a copied attention takes half as much again."""


def row_of(card: Card) -> tuple[int, int, int, int]:
    """The row of CARDS for a card's memory."""
    total = card.total or card.free or 0
    return next(row for row in CARDS if total < row[0] * GIB)


def fraction_of(plan: SglangPlan, facts: ModelFacts, card: Card) -> float:
    """The static part of a card: as given, else by SGLang's own formula, which keeps free what a
    step and its graphs take (`handle_gpu_memory_settings`), and what an encoder takes."""
    total = card.total or card.free or 0
    if plan.mem_fraction is not None:
        return plan.mem_fraction
    if not total:
        return FALLBACK
    chunk, _ = step_of(plan, card)
    kept = 512 + max(chunk, 2048) * 1.5 + plan.ranks * plan.stages / 8 * 1024
    kept += graphs_mib(plan, facts, card)
    kept = max(kept, 10240) if total > 60 * GIB else kept
    if plan.all_to_all == "deepep" and plan.graphs:
        kept += 2048
    fraction = max(0.0, round((total - kept * MIB) / total, 3))
    return fraction * (kept_of_static(facts) if has_encoder(facts, plan) else 1.0)


def step_of(plan: SglangPlan, card: Card) -> tuple[int, int]:
    """(tokens of a chunk, requests of the largest graph)."""
    row = row_of(card)
    chunk = row[1] if plan.chunk is None else plan.chunk
    if chunk <= 0:
        chunk = plan.prefill or 16384
    graph = plan.graph_batch or min(row[2] if plan.ranks < 4 else row[3], plan.running or 1 << 20)
    return chunk, graph


def graphs_mib(plan: SglangPlan, facts: ModelFacts, card: Card) -> float:
    """MiB that SGLang keeps for its graphs (`reserve_for_graph_mb`)."""
    chunk, graph = step_of(plan, card)
    kept = 0.0
    if plan.attention_apart:
        kept += graph * plan.replicas * (4.5 if graph > MANY else 3)
    if plan.graphs:
        sizes = sum(len(range(first, min(end, chunk + 1), by)) for first, end, by in PREFILL_STEPS)
        kept += graph * 2 + (1536 if facts.attention.latent else 8 * sizes)
        kept += 1024 if plan.all_to_all == "deepep" else 0
    return kept
