"""The F16 copies of a cache that builds keep beside the buffers that they reserve.

CUDA's flash attention for whole batches works on F16: `launch_fattn` in ggml-cuda/fattn-common.cuh
turns K and V of a layer into it, all the cells that a prompt has filled. llama.cpp reserves room
for that since ggml-org/llama.cpp#23907 (3 June 2026), in its compute buffer, where scores find room
in turn; the sum has that. Before, and in ik_llama.cpp, the copies come from the pool of a card,
beside all buffers, and grow with the first long prompt: Qwen3.6-27B with 262,144 cells in Q4_0
started with 353 MB free and died with a prompt of 125,000 to 155,000 tokens (club-3090#201, b9246).
"""

from __future__ import annotations

from dataclasses import replace

from console.common.units import format_bytes
from console.models.sizing.compute import Work, compute_bytes
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import ModelFacts


def beside(facts: ModelFacts, plan: LlamaPlan, work: Work, *, output: bool) -> int:
    """Bytes of a card with layers that attend, beyond a sum whose compute buffer has the copies.

    The context of a file's own layers that guess ahead has a pool of its own. In b9246 its cache
    has the type of the other (1,172 bytes a token, club-3090#197), so that it has copies, too."""
    if not work.halves or not plan.flash or work.own or plan.build.reserves_copies(plan.ik):
        return 0
    apart = compute_bytes(facts, replace(work, halves=0), output=output) + work.halves
    ahead = work.halves if plan.mtp and facts.spare_layers and not plan.ik else 0
    return apart - compute_bytes(facts, work, output=output) + ahead


def doubt(plan: LlamaPlan, where: str, left: int, more: int) -> str:
    """What is to be said of a card that has no room for the copies."""
    who = "ik_llama.cpp" if plan.ik else "llama.cpp before b9489 (June 2026)"
    return (
        f"whether {where} has room for long prompts: {who} keeps F16 copies of a layer's cache "
        f"beside what it reserves, up to {format_bytes(more)} more with the first one that fills "
        f"the context, and {format_bytes(left)} would be left (club-3090#201); a cache in f16 has "
        "none"
    )
