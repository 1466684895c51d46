"""From which build of llama.cpp or ik_llama.cpp a verdict holds: they get new options, and mends of
old ones, on most days."""

from __future__ import annotations

from collections.abc import Iterator

from console.common.options.since import Arrival
from console.models.sizing.assessment import Assessment
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import ModelFacts

WHOLE = ("f32", "f16", "bf16")
"""Types of a cache that is not rotated, whatever is asked."""


def judge_arrivals(facts: ModelFacts, plan: LlamaPlan, ledger: Assessment) -> None:
    """Refuse what the build lacks, or name it where that is not sure. Where the build is not known,
    the verdict says from which on it holds: what `--version` of ik_llama.cpp counts is the commits
    of a whole clone."""
    newest: list[Arrival] = []
    name = "ik_llama.cpp" if plan.ik else "llama.cpp"
    number = plan.commits if plan.ik else plan.build.number
    lacks = ledger.stops if plan.ik else ledger.unknown
    for arrivals, doubts in (
        (plan.newer, lacks), (_rotated(facts, plan), lacks),
        (_states(facts, plan), ledger.unknown),
    ):  # fmt: skip
        for arrival in arrivals if not plan.build.serves else ():
            if number is None:
                newest.append(arrival)
            elif number < arrival.build:
                doubts.append(
                    f"{arrival.words}: build {number} of {name} is older than {arrival.build} of "
                    f"{arrival.day}, which has it ({arrival.source})"
                )
    if newest:
        last = max(newest, key=lambda arrival: arrival.day)
        ledger.holds = (
            f"holds for {name} of {last.day} or later ({last.words}: {last.source}), and its build "
            "is not known here"
        )


def _rotated(facts: ModelFacts, plan: LlamaPlan) -> Iterator[Arrival]:
    """-khad with heads that are no power of two ended older builds while they load (MiMo-V2,
    ik_llama.cpp#1878). Latent attention is rotated in blocks of 64."""
    spec = facts.attention
    if not plan.ik or not plan.rotates_k or plan.type_k in WHOLE or spec.latent:
        return
    for size in sorted({spec.key or 0, spec.window_key or 0}):
        if size & (size - 1):
            words = f"-khad for heads of {size} numbers"
            yield Arrival(words, "2026-05-27", 4547, "ik_llama.cpp#1883")


def _states(facts: ModelFacts, plan: LlamaPlan) -> Iterator[Arrival]:
    """Layers with a state gave every slot the first one's, so that answers were wrong."""
    if plan.ik and facts.recurrent is not None and (plan.parallel or 1) > 1:
        words = f"right answers of {plan.parallel} slots at once, of layers with a state"
        yield Arrival(words, "2026-08-06", 4793, "ik_llama.cpp#2260, #1932")
