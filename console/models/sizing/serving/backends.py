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
from console.models.sizing.serving.kernels import (
    CHUNKS,
    COMPRESSED,
    SINKS,
    SPARSE,
    SPARSE_LATENT,
    STATES,
    WIDE,
    WINDOW,
)
from console.models.sizing.serving.kernels import (
    LATENT as LATENT_KIND,
)
from console.models.sizing.serving.kernels import PLAIN as PLAIN_KIND
from console.models.sizing.serving.refused import E5M2


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
HYBRID_SEEN: Mapping[str, tuple[tuple[int, int], ...]] = {"flashinfer": ((12, 0),)}
"""Cards beside these on which a backend was seen to serve such models: Qwen3.8-27B on a 5090
(sglang#35596, the log of club-3090#1261)."""
VLLM_CARDS: Mapping[str, Span] = {
    "FLASH_ATTN": _AMPERE_ON, "FLASHINFER": _AMPERE_ON, "TRITON_ATTN": _ANY,
    "FLEX_ATTENTION": _AMPERE_ON, "TRITON_MLA": _AMPERE_ON, "FLASH_ATTN_MLA": _HOPPER,
    "FLASHMLA": _HOPPER, "FLASHMLA_SPARSE": ((9, 0), (10, 9)),
    "CUTLASS_MLA": _BLACKWELL_OF_SERVERS, "FLASHINFER_MLA": _BLACKWELL_OF_SERVERS,
}  # fmt: skip
"""The same for vLLM (`supports_compute_capability` in v1/attention/backends of 0.33)."""
_16, _8 = frozenset(("bfloat16", "float16")), frozenset(("fp8", "fp8_e4m3"))
_TURBO = ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc")
VLLM_TYPES: Mapping[str, frozenset[str]] = {
    "FLASH_ATTN": _16 | _8, "FLASHINFER": _16 | _8 | {"fp8_e5m2", "nvfp4", "nvfp4_4over6"},
    "TRITON_ATTN": _16 | _8 | {
        "fp8_e5m2", "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head",
    },
    "FLEX_ATTENTION": _16, "TURBOQUANT": frozenset(_TURBO), "TRITON_MLA": _16 | _8,
    "FLASH_ATTN_MLA": _16, "FLASHMLA": _16 | _8, "CUTLASS_MLA": _16 | _8,
    "FLASHINFER_MLA": _16 | _8,
    "FLASHMLA_SPARSE": frozenset(("bfloat16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla")),
    "FLASH_ATTN_MLA_SPARSE": _16, "FLASHINFER_MLA_SPARSE": _16 | _8,
    "FLASHINFER_MLA_SPARSE_SM90": _8 | {"bfloat16"},
    "FLASHINFER_MLA_SPARSE_SM120": _8 | {"fp8_ds_mla"},
}  # fmt: skip
"""What --kv-cache-dtype may be besides `auto` for each backend for NVIDIA's cards
(`supported_kv_cache_dtypes` in v1/attention/backends of 0.33)."""
_OF_HEADS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")
VLLM_CHOOSES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((PLAIN_KIND, WINDOW, WIDE, STATES, SINKS), _OF_HEADS),
    LATENT_KIND: ("TRITON_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "CUTLASS_MLA", "FLASHINFER_MLA"),
    SPARSE_LATENT: (
        "FLASHMLA_SPARSE", "FLASH_ATTN_MLA_SPARSE", "FLASHINFER_MLA_SPARSE",
        "FLASHINFER_MLA_SPARSE_SM90", "FLASHINFER_MLA_SPARSE_SM120",
    ),
}  # fmt: skip
"""Among which backends vLLM chooses for a kind of attention (`_get_backend_priorities` in
platforms/cuda.py of 0.33)."""
VLLM_HERE = (0, 33)
"""The release whose lists these are."""
LONG_TAKEN: Mapping[str, frozenset[str]] = {SPARSE_LATENT: frozenset(("fp8",))}
"""Types besides `auto` that releases before took for a kind of attention, too; for the others _8.
0.14.1 has no backend for bfloat16 and fp8_e5m2 (vllm#42587), a build of June 2026 none for fp8_e4m3
and sparse latent attention (recipes#565)."""
DS_MLA = "fp8_ds_mla"
"""The form of a latent cache in FP8 that kernels for sparse attention read: with scales, and a part
in 16 bits."""
SGLANG_E5M2, NEVER_E5M2 = ("flashinfer", "triton"), ("cutedsl_mla", "trtllm_mla")
"""Backends of SGLang that take a cache in fp8_e5m2, and those that end with it (arg_groups of
0.5.23). `--attention-backend fa3` becomes triton then, and what it chooses itself below Blackwell
is one of these."""
BLACKWELL = (10, 0)
FP8_SPANS: Mapping[str, Span] = {"FLASH_ATTN": _HOPPER}
"""Where a backend of vLLM takes a cache in FP8, if not wherever it runs: FlashAttention 3 does."""
SINK_SPANS: Mapping[str, Span] = {
    "FLASH_ATTN": _HOPPER, "FLASHINFER": _BLACKWELL_OF_SERVERS, "TRITON_ATTN": _ANY,
}  # fmt: skip
"""Where one takes heads with a sink, as gpt-oss has them (vllm#40153, flashinfer#4070)."""
ELSEWHERE = ("aiter", "ascend", "intel_amx", "intel_xpu", "wave")
"""Backends of SGLang for processors of other makers than NVIDIA."""
OWN_CHOICE = (SPARSE, SPARSE_LATENT, COMPRESSED, CHUNKS)
"""Kinds of attention of which the matrix has no rows, and each of which has backends of its own."""
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
        span, left = SGLANG_CARDS.get(name), cards
        if facts.recurrent is not None and name in HYBRID_CARDS:
            span, seen = HYBRID_CARDS[name], HYBRID_SEEN.get(name, ())
            left = [card for card in cards if card.compute not in seen]
        yield from _without_kernels(name, span, left)
    rows = LATENT if facts.attention.latent else PLAIN
    for name in used(plan):
        if name in ELSEWHERE and any(card.compute for card in cards):
            yield f"whether --attention-backend {name} serves on these cards: it is for others"
            continue
        row = rows.get(name)
        if row is None:
            own = facts.attends in OWN_CHOICE
            if plan.speculates or name in (*PLAIN, *LATENT) or not own:
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


def cache_of_vllm(
    facts: ModelFacts, plan: VllmPlan, cards: Sequence[Card]
) -> tuple[list[str], list[str]]:
    """(refused, not known) of the value of --kv-cache-dtype, by the backends among which vLLM
    chooses, or the one that is named."""
    value, named, kind = plan.asked_type, plan.attention.upper(), facts.attends
    if value in ("", "auto") or not cards or (named not in ("", "AUTO", *VLLM_TYPES)):
        return [], []
    option = f"--kv-cache-dtype {value}"
    known = VLLM_CHOOSES.get(kind, ()) if _equal_heads(facts) else ()
    backends = (named,) if named in known else known
    taking = [name for name in backends if value in VLLM_TYPES[name]]
    if value in _16 | _8 and not all(card.compute for card in cards):
        return [], []
    if not backends or not all(card.compute for card in cards):
        return [], [f"whether an attention backend for this model and these cards takes {option}"]
    if not taking and (plan.release or VLLM_HERE) <= VLLM_HERE:
        whose = f"--attention-backend {plan.attention}" if named in backends else "no backend"
        verb = "does not take" if named in backends else "takes"
        return [f"{option}: {whose} {verb} it for this kind of attention (vllm#42587)"], []
    if not taking:
        return [], [f"whether a release after 0.33 takes {option} for this kind of attention"]
    computes = [card.compute for card in cards if card.compute]
    if not any(all(low <= c <= high for c in computes) for low, high in map(_runs, taking)):
        words = ", ".join(f"{major}.{minor}" for major, minor in sorted(set(computes)))
        return [], [f"whether a backend that takes {option} has kernels at {words}"]
    if value in LONG_TAKEN.get(kind, _8) or (plan.release or (0,)) >= VLLM_HERE:
        return [], []
    return [], [
        f"{option}: 0.33 takes it, and not every release before (vllm#42587, recipes#565); which "
        f"release it is is not {'calculated' if plan.release else 'known'} here"
    ]


def _equal_heads(facts: ModelFacts) -> bool:
    """Heads whose keys and values differ in length have backends of their own."""
    spec = facts.attention
    return spec.latent or spec.key == spec.value


def _runs(name: str) -> Span:
    """From which compute capability to which a backend runs."""
    blackwell = _BLACKWELL_OF_SERVERS if name == "FLASHINFER_MLA_SPARSE" else _ANY
    small = {
        "FLASHINFER_MLA_SPARSE_SM90": _HOPPER, "FLASH_ATTN_MLA_SPARSE": _HOPPER,
        "FLASHINFER_MLA_SPARSE_SM120": ((12, 0), (12, 9)),
    }  # fmt: skip
    return VLLM_CARDS.get(name) or small.get(name, blackwell)


def cache_of_sglang(
    facts: ModelFacts, plan: SglangPlan, cards: Sequence[Card]
) -> tuple[list[str], list[str]]:
    """The same of SGLang, where fp8_e5m2 alone depends on more than `PLAIN` and `LATENT` say."""
    if plan.type_kv != E5M2:
        return [], []
    names, words = used(plan), f"--kv-cache-dtype {E5M2}"
    if ended := [name for name in names if name in NEVER_E5M2]:
        return [f"{words} with --attention-backend {ended[0]}, which takes fp8_e4m3"], []
    early = bool(cards) and all((card.compute or BLACKWELL) < BLACKWELL for card in cards)
    chosen = names == ("fa3",) and not plan.phases
    sure = (chosen or all(name in SGLANG_E5M2 for name in names)) if names else early
    if sure and facts.attends in (*VLLM_CHOOSES,) and facts.attends != SPARSE_LATENT:
        return [], []
    return [], [f"whether the backend for attention takes {words}; fp8_e4m3 has more of them"]


def cache_form(facts: ModelFacts, kind: str, cards: Sequence[Card], asked_type: str = "") -> str:
    """The type of the cache as it lies in memory: kernels for sparse latent attention keep FP8 as
    DeepSeek does it. On Blackwell of servers another one is chosen unless it is asked for."""
    early = any((card.compute or BLACKWELL) < BLACKWELL for card in cards)
    wanted = asked_type == DS_MLA or (kind == "fp8" and early)
    return DS_MLA if wanted and facts.attends == SPARSE_LATENT else kind


def _without_kernels(name: str, span: Span | None, cards: Sequence[Card]) -> Iterator[str]:
    computes = sorted({card.compute for card in cards if card.compute})
    missing = [c for c in computes if span is not None and not span[0] <= c <= span[1]]
    if missing:
        words = ", ".join(f"{major}.{minor}" for major, minor in missing)
        yield (
            f"whether --attention-backend {name} has kernels for this model at compute capability "
            f"{words}; without the option the engine chooses one that has"
        )
