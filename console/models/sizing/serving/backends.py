"""What SGLang's backends for attention have, as its own matrix says it: guessing ahead, windows
and a cache in FP8.

Source: docs/docs/advanced_features/attention_backend.mdx of SGLang (August 2026). Certain refusals:
flex_attention with any guessing (`handle_attention_backend_compatibility` of 0.5.23), torch_native
with any guessing, which ends in the warm-up (sglang#36352, sglang#36361).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from console.models.sizing.loader_plan import SglangPlan
from console.models.sizing.model_facts import ModelFacts


class Backend(NamedTuple):
    """`chains`: one guess at a time (top-k 1), `trees`: several branches of guesses."""

    chains: bool
    trees: bool
    windows: bool
    fp8: bool


_ALL, _NONE = Backend(True, True, True, True), Backend(False, False, False, False)
PLAIN: Mapping[str, Backend] = {
    "flashinfer": _ALL, "fa3": _ALL, "triton": _ALL, "aiter": _ALL,
    "fa4": _ALL._replace(fp8=False), "trtllm_mha": _ALL._replace(trees=False),
    "torch_native": _NONE._replace(fp8=True), "hpc_ops": _NONE._replace(fp8=True),
    "flex_attention": _NONE, "dual_chunk_flash_attn": _NONE, "wave": _NONE, "intel_amx": _NONE,
    "ascend": Backend(True, False, True, False), "intel_xpu": _NONE._replace(windows=True),
}  # fmt: skip
_LATENT_ALONE = dict.fromkeys(
    ("flashmla", "cutlass_mla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla"),
    Backend(True, False, True, True),
)
LATENT: Mapping[str, Backend] = {
    **_LATENT_ALONE, "flashinfer": Backend(True, False, True, False),
    "fa3": Backend(True, True, True, False), "triton": Backend(True, True, True, False),
    "fa4": _NONE._replace(windows=True), "ascend": _NONE,
}  # fmt: skip
"""Rows for latent attention, of which the matrix says nothing about windows."""
WITHOUT_GUESSES = ("flex_attention", "torch_native")
"""Backends that end the server wherever something guesses ahead."""


def used(plan: SglangPlan) -> tuple[str, ...]:
    """The backends that are named for prompts and for answers; a phase without one of its own has
    that of --attention-backend."""
    named = {*plan.phases, *((plan.attention,) if len(plan.phases) < 2 else ())}
    return tuple(sorted(named - {""}))


def refused_backends(plan: SglangPlan) -> Iterator[str]:
    """What the server does not survive, in words."""
    if plan.speculates and not plan.phases and plan.attention in WITHOUT_GUESSES:
        yield f"to guess ahead with --attention-backend {plan.attention}"


def not_known_of_backends(facts: ModelFacts, plan: SglangPlan) -> Iterator[str]:
    """What a named backend does not have by the matrix, or has no row for."""
    rows = LATENT if facts.attention.latent else PLAIN
    for name in used(plan):
        row = rows.get(name)
        if row is None:
            if plan.speculates or name in (*PLAIN, *LATENT):
                yield f"whether --attention-backend {name} serves this model"
            continue
        lacks = {
            "guessing ahead": plan.speculates and not row.chains,
            "several guesses at once": plan.speculates and plan.trees and not row.trees,
            "layers with a window": facts.attention.has_window and not row.windows,
            "a cache in FP8": plan.type_kv.startswith("fp8") and not row.fp8,
        }
        if missing := [what for what, lack in lacks.items() if lack]:
            words = " and ".join(missing)
            yield f"whether --attention-backend {name} has {words}: SGLang's documentation says no"
