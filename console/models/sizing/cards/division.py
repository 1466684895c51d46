"""What cards take beyond a sum by layers where each layer is divided among them."""

from __future__ import annotations

from collections.abc import Sequence

from console.common.units import format_bytes
from console.host.sample import Card
from console.models.sizing.assessment import Assessment
from console.models.sizing.combinations.llama import by_graph
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import Placement, capacity

EXCHANGED = 512 << 20
"""What a card may take beyond the sum where tensors are divided: 14,642 MiB were seen of 14,397
(llama.cpp#28506), and a driver keeps up to 464 MiB of such a card for itself."""


def divided_by_graph(
    facts: ModelFacts, placement: Placement, cards: Sequence[Card], ledger: Assessment
) -> None:
    """What a card may have more of a cache that --split-mode graph divides by heads: six cards have
    598 or 1,196 MiB of the 8 heads of GLM-4.7 (ikawrakow/ik_llama.cpp#1126)."""
    used, heads = [share for share in placement.cards if share.layers], facts.attention.kv_heads
    if not by_graph(facts, placement.plan) or len(used) < 2 or facts.attention.latent or not heads:
        return
    most = -(-max(heads) // len(used)) / max(heads)
    whole = sum(share.cache for share in used)
    for share in used:
        left = (capacity(cards[share.card]) or share.bytes) - share.bytes
        more = int(whole * most) - share.cache
        if 0 <= left < more:
            ledger.unknown.append(
                f"how --split-mode graph divides {max(heads)} heads: {share.name} may have "
                f"{format_bytes(more)} more of the cache, and {format_bytes(left)} would be left"
            )


def exchanged(placement: Placement, cards: Sequence[Card], ledger: Assessment) -> None:
    """What cards take to add up their parts of each layer, where tensors are divided."""
    used = [share for share in placement.cards if share.layers]
    if placement.plan.split_mode != "tensor" or len(used) < 2:
        return
    for share in used:
        left = (capacity(cards[share.card]) or share.bytes + EXCHANGED) - share.bytes
        if 0 <= left < EXCHANGED:
            ledger.unknown.append(
                f"what cards exchange with --split-mode tensor: {share.name} would have "
                f"{format_bytes(left)} left for it and for the driver"
            )
