"""Which release of vLLM or SGLang an image is, and what is not known of old ones.

The sums are those of vLLM 0.33 and SGLang 0.5.23. Older releases keep other things beside weights
and cache; where a public report shows a difference, the older rule counts or the verdict says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.tables import CHUNKED

Release = tuple[int, ...]
OWN = {"vllm": "vllm-openai", "sglang": "lmsysorg/sglang"}
"""What the publishers call their images. Another's tag may count releases of its own."""
_TAG = r":v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3})|$)"
_NIGHTLY = re.compile(r":nightly-dev(?:-cu\d{2,3})?-(20\d{6})(?:-|@|$)")
NIGHTLIES = (
    (20251208, (0, 5, 6)), (20260107, (0, 5, 7)), (20260516, (0, 5, 12)), (20260701, (0, 5, 13)),
    (20260820, (0, 5, 17)),
)  # fmt: skip
"""Days by which a release of SGLang was surely out, so that a nightly image of that day or later
has all that it has: THUDM/slime's docker/README.md names two nightlies with their releases, the
others are modal-projects/training-gym#58 and #210, and sglang#35723."""
CHUNKS_SINCE = 8
"""vLLM 0.8 (V1) takes a prompt in steps of a fixed size. A release before took it whole as long as
the context has at most LONG tokens, and measured such a step: 2.99 GiB for 29,000 tokens of
Llama 3.1 8B, 0.06 for 35,000 (vllm#10517)."""
SHORT, LONG = 2048, 32768
"""Tokens of a step at least, and the longest context that is one (EngineArgs of vLLM 0.6)."""
OUTGROWN = 5
"""SGLang 0.5 has other formulas for its static part and its graphs than 0.4."""
MXFP4_DOUBT = (12, 14)
"""vLLM 0.14.1 ran out of memory with a checkpoint in MXFP4 that 0.11.2 serves (vllm#33155)."""


def release_of(engine: str, image: str, *, own: bool = True) -> Release | None:
    """The release that an image's tag names; None for none, and with `own` for one that is not the
    publisher's. SGLang has three numbers, as its releases differ in the third; of a nightly image
    it is one that came before."""
    match = re.search((re.escape(OWN[engine]) if own else "") + _TAG, image)
    if match:
        numbers = (int(match[1]), int(match[2]), int(match[3] or 0))
        return numbers if engine == "sglang" else numbers[:2]
    nightly = _NIGHTLY.search(image) if engine == "sglang" and OWN[engine] in image else None
    day = int(nightly[1]) if nightly else 0
    return max((release for since, release in NIGHTLIES if since <= day), default=None)


def not_known_of_vllm(facts: ModelFacts, plan: VllmPlan, tokens: int | None) -> Iterator[str]:
    """What a release of vLLM was seen to do otherwise, where that is not counted. `tokens`: of the
    context."""
    if plan.release is None:
        return
    if plan.release < (0, CHUNKS_SINCE) and not plan.batch and SHORT < (tokens or 0) <= LONG:
        yield (
            f"what vLLM {_shown(plan.release)} measures: a step of the whole context of "
            f"{tokens:,} tokens (vllm#10517); --max-num-batched-tokens makes it smaller"
        )
    first, last = MXFP4_DOUBT
    if facts.stored == "mxfp4" and (0, first) <= plan.release <= (0, last):
        yield (
            f"what vLLM {_shown(plan.release)} takes for kernels of MXFP4: 0.14.1 ran out of "
            "memory where 0.11.2 serves (vllm#33155)"
        )


def not_known_of_sglang(facts: ModelFacts, plan: SglangPlan) -> Iterator[str]:
    """What an old release of SGLang keeps beside weights and cache, where that is not counted."""
    if plan.release is None or plan.release >= (0, OUTGROWN):
        return
    name = f"SGLang {_shown(plan.release)}"
    if plan.mem_fraction is None:
        yield f"the static part of {name}: its formula is not that of 0.5; --mem-fraction-static"
    if plan.graphs and set(CHUNKED) & set(facts.classes):
        yield (
            f"the tables of {name}'s graphs: it had one for each chunk of the context "
            "(sglang#6817); --disable-cuda-graph has none"
        )


def _shown(release: Release) -> str:
    return ".".join(map(str, release))
