"""Will it run: a model, a loader's plan and a machine, and one verdict with its sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from console.common.text import one_line
from console.common.units import format_bytes
from console.host.capacity import Machine
from console.host.matching import TooSlow, quick
from console.models.sizing.advice import Case, advise
from console.models.sizing.assessment import Assessment, Ledger, Reference, serving
from console.models.sizing.facts_from_gguf import SOURCE as GGUF
from console.models.sizing.llama_cpp import weigh as weigh_llama
from console.models.sizing.loader_plan import LlamaPlan, LoaderPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import Placement


def assess(
    facts: ModelFacts,
    plan: LoaderPlan,
    machine: Machine,
    *,
    alternatives: Mapping[str, int] | None = None,
    reference: Reference | None = None,
    ram_read_bps: float | None = None,
) -> Assessment:
    """The verdict on loading `facts` as `plan` says on `machine`.

    `alternatives` are other sets of the same model, by name with their bytes. `reference` is what
    was measured of a configuration that runs; where it `serves`, it caps the verdict at TIGHT.
    `ram_read_bps` is how fast the CPU reads memory, where that was measured or declared.
    """
    if isinstance(plan, LlamaPlan):
        plan = _in_time(facts, plan)
    case = Case(facts, plan, machine, alternatives or {})
    placement: Placement | None = None
    if isinstance(plan, LlamaPlan):
        ledger, placement = weigh_llama(facts, plan, machine, ram_read_bps)
    else:
        ledger = case.weigh()
    _provenance(facts, machine, ledger)
    if reference is not None:
        _compare(ledger, placement, reference)
    found = replace(ledger.assessment(), would_make_it_go=advise(case, ledger))
    if reference is not None and reference.serves:
        return serving(found, reference)
    return found


def _in_time(facts: ModelFacts, plan: LlamaPlan) -> LlamaPlan:
    """The plan without an override whose pattern takes too long over the names of this model: that
    is a problem. The others are looked for without a limit from here on."""
    kept, problems = [], list(plan.problems)
    for override in plan.overrides:
        try:
            quick(override[0], [weight.name for weight in facts.weights])
            kept.append(override)
        except TooSlow as error:
            problems.append(f"--override-tensor: {error}")
    return replace(plan, overrides=tuple(kept), problems=tuple(problems))


def _provenance(facts: ModelFacts, machine: Machine, ledger: Ledger) -> None:
    """Where the figures are from, where they were not simply read or measured here."""
    if facts.weights_from and facts.source != GGUF:
        ledger.notes.append(f"weights by class: {facts.weights_from}")
    by_source: dict[str, list[str]] = {}
    for name, source in machine.given.items():
        by_source.setdefault(one_line(source, 60), []).append(one_line(name, 40))
    ledger.notes += [f"{source}: {', '.join(names)}" for source, names in by_source.items()]


def _compare(ledger: Ledger, placement: Placement | None, reference: Reference) -> None:
    """What was measured beside what comes out here."""
    if placement is None:
        return
    if reference.vram is not None:
        low, high = reference.vram
        ledger.notes.append(
            f"{reference.what}: {format_bytes(low)} to {format_bytes(high)} of VRAM measured; "
            f"the sum for this plan is {format_bytes(placement.on_cards)}"
        )
    if reference.tok_s is None:
        return
    slow, fast = reference.tok_s
    measured = f"{slow:g} to {fast:g} tok/s measured"
    active = placement.host.active
    if ledger.ceiling_tok_s is not None:
        words = f"the ceiling worked out here is {ledger.ceiling_tok_s:.3g} tok/s"
    else:
        words = "no ceiling comes out here: nothing is read from the disk for a token"
    if active and reference.serves:
        words += (
            f"; that pace reads {active * slow / 1e9:.0f} to {active * fast / 1e9:.0f} GB/s of "
            "weights on the CPU"
        )
    ledger.notes.append(f"{reference.what}: {measured}; {words}")
