"""What a backend for attention that is named has: in SGLang, as its own matrix says it, guessing
ahead, windows and a cache in FP8; in both engines kernels for the cards.

Source: docs/docs/advanced_features/attention_backend.mdx of SGLang (August 2026). Certain refusals:
flex_attention with any guessing (`handle_attention_backend_compatibility` of 0.5.23), torch_native
with any guessing, which ends in the warm-up (sglang#36352, sglang#36361).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from console.host.sample import Card
from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.kernels import SINKS


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
Span = tuple[tuple[int, int], tuple[int, int]]
_ANY, _AMPERE_ON, _HOPPER = ((7, 0), (12, 9)), ((8, 0), (12, 9)), ((9, 0), (9, 0))
_BLACKWELL_OF_SERVERS = ((10, 0), (10, 9))
SGLANG_CARDS: Mapping[str, Span] = {
    "fa3": ((8, 0), (9, 0)), "fa4": ((10, 0), (11, 0)), "flashmla": _HOPPER,
    "trtllm_mha": _BLACKWELL_OF_SERVERS, "trtllm_mla": _BLACKWELL_OF_SERVERS,
    "cutlass_mla": _BLACKWELL_OF_SERVERS, "flashinfer": _AMPERE_ON,
}  # fmt: skip
"""The compute capabilities, from and to, for which a backend of SGLang is known to have kernels
(sglang#31959, #9140, #24633, #17880, #23985, #28297)."""
HYBRID_CARDS: Mapping[str, Span] = {"flashinfer": ((8, 0), (9, 9))}
"""The same for models some of whose layers keep a state: on Blackwell only trtllm_mha, triton and
fa4 serve them (sglang#35080)."""
VLLM_CARDS: Mapping[str, Span] = {
    "FLASH_ATTN": _AMPERE_ON, "FLASHINFER": _AMPERE_ON, "TRITON_ATTN": _ANY,
    "FLEX_ATTENTION": _AMPERE_ON, "TRITON_MLA": _AMPERE_ON, "FLASH_ATTN_MLA": _HOPPER,
    "FLASHMLA": _HOPPER, "FLASHMLA_SPARSE": ((9, 0), (10, 9)),
    "CUTLASS_MLA": _BLACKWELL_OF_SERVERS, "FLASHINFER_MLA": _BLACKWELL_OF_SERVERS,
}  # fmt: skip
"""The same for vLLM (`supports_compute_capability` in v1/attention/backends of 0.33)."""
FP8_SPANS: Mapping[str, Span] = {"FLASH_ATTN": _HOPPER}
"""Where a backend of vLLM takes a cache in FP8, if not wherever it runs: FlashAttention 3 does."""
SINK_SPANS: Mapping[str, Span] = {
    "FLASH_ATTN": _HOPPER, "FLASHINFER": _BLACKWELL_OF_SERVERS, "TRITON_ATTN": _ANY,
}  # fmt: skip
"""Where one takes heads with a sink, as gpt-oss has them (vllm#40153, flashinfer#4070)."""
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


def not_known_of_backends(
    facts: ModelFacts, plan: SglangPlan, cards: Sequence[Card]
) -> Iterator[str]:
    """What a named backend does not have by the matrix, or has no row for, and cards for which it
    is not known to have kernels."""
    for name in used(plan):
        span = HYBRID_CARDS.get(name) if facts.recurrent is not None else None
        yield from _without_kernels(name, span or SGLANG_CARDS.get(name), cards)
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


def not_known_of_vllm_backend(
    facts: ModelFacts, plan: VllmPlan, cards: Sequence[Card]
) -> Iterator[str]:
    """The same for the backend that vLLM is told to take; with the others it chooses by itself."""
    name = plan.attention.upper()
    if name in ("", "AUTO"):
        return
    if name not in VLLM_CARDS or ("MLA" in name) != facts.attention.latent:
        yield f"whether --attention-backend {plan.attention} serves this model"
        return
    spans = [VLLM_CARDS[name]]
    if plan.type_kv.startswith("fp8"):
        spans += [FP8_SPANS[name]] if name in FP8_SPANS else []
    if facts.attends == SINKS:
        spans.append(SINK_SPANS.get(name, ((99, 0), (99, 0))))
    span = max(low for low, _ in spans), min(high for _, high in spans)
    yield from _without_kernels(plan.attention, span, cards)


def _without_kernels(name: str, span: Span | None, cards: Sequence[Card]) -> Iterator[str]:
    computes = sorted({card.compute for card in cards if card.compute})
    missing = [c for c in computes if span is not None and not span[0] <= c <= span[1]]
    if missing:
        words = ", ".join(f"{major}.{minor}" for major, minor in missing)
        yield (
            f"whether --attention-backend {name} has kernels for this model at compute capability "
            f"{words}; without the option the engine chooses one that has"
        )
