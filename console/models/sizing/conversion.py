"""A converter's arithmetic: what it holds at its peak, what it writes, and how long it takes."""

from __future__ import annotations

from console.common.units import format_bytes, format_duration
from console.host.capacity import Machine
from console.models.sizing.assessment import Ledger
from console.models.sizing.facts_from_gguf import SOURCE as GGUF
from console.models.sizing.load_curve import Envelope, Point
from console.models.sizing.loader_plan import ConversionPlan
from console.models.sizing.memory import FOOTPRINT, HOST, held, resident
from console.models.sizing.model_facts import Kind, ModelFacts
from console.models.sizing.sglang import BYTES_PER_WEIGHT

DISK = "disk"
WIDE = 2
"""Bytes of a weight while a layer is worked on: bf16."""
RECORDED_S = 49 * 3600 / 59
"""Seconds a layer where the source did not fit into RAM: 49 h for 59 layers of DeepSeek-R1 with
265 GiB in swap (F-019)."""
DISK_MARGIN, DISK_SHARE = 20 * 10**9, 0.05
"""Left free on the disk: 20 GB or 5 % of what is written, whichever is more."""


def weigh(facts: ModelFacts, plan: ConversionPlan, machine: Machine) -> Ledger:
    """The whole sum: RAM for the source and one layer, disk for source and result."""
    ledger = Ledger(plan.strategy())
    ledger.unknown += [f"the plan: {problem}" for problem in plan.problems]
    ledger.unknown += [one for one in facts.missing if "cache" not in one]
    ledger.notes += plan.notes
    if facts.source == GGUF:
        ledger.stops.append("a GGUF file is no input for this converter: it takes safetensors")
    if facts.layers is None:
        return ledger
    result = _result(facts, plan)
    _memory(facts, plan, ledger, result // max(1, facts.layers))
    if machine.ram_available is None:
        ledger.unknown.append("the memory this machine has free")
    else:
        resident(ledger, machine)
    _disk(facts, plan, machine, ledger, result)
    ledger.envelope = _envelope(facts, machine, ledger)
    _hours(facts, machine, ledger, result)
    return ledger


def _result(facts: ModelFacts, plan: ConversionPlan) -> int:
    """Bytes written: the experts in the new format."""
    if plan.result_bytes is not None:
        return plan.result_bytes
    weights = sum(w.elements for w in facts.weights if w.kind is Kind.EXPERTS)
    size = next((size for name, size in BYTES_PER_WEIGHT if name in plan.method.upper()), 2.0)
    return int(weights * size)


def _memory(facts: ModelFacts, plan: ConversionPlan, ledger: Ledger, written: int) -> None:
    experts = [weight for weight in facts.weights if weight.kind is Kind.EXPERTS]
    first = experts[0].layer if experts else None
    per_layer = sum(weight.elements for weight in experts if weight.layer == first)
    kind = plan.input_type or "as it is stored"
    ledger.add("source", facts.weight_bytes, HOST, f"kept while it is worked on ({kind})")
    ledger.add("one layer", per_layer * WIDE, HOST, f"{per_layer / 1e9:.1f} G weights x {WIDE} B")
    ledger.add("its result", written, HOST, plan.method)
    ledger.add("process", FOOTPRINT, HOST)


def _disk(
    facts: ModelFacts, plan: ConversionPlan, machine: Machine, ledger: Ledger, result: int
) -> None:
    source = 0 if plan.source_here else facts.weight_bytes
    ledger.add("source", source, DISK, "to be downloaded")
    ledger.add("result", result, DISK, f"experts as {plan.method}")
    ledger.add("margin", max(DISK_MARGIN, int((source + result) * DISK_SHARE)), DISK)
    if machine.disk_free is None:
        ledger.unknown.append("what is free on the disk")
        return
    ledger.limit(DISK, machine.disk_free)


def _hours(facts: ModelFacts, machine: Machine, ledger: Ledger, result: int) -> None:
    moved = facts.weight_bytes + result
    if machine.disk_read_bps:
        at_least = moved / machine.disk_read_bps
        ledger.notes.append(
            f"at least {format_duration(at_least)}: {format_bytes(moved)} are read and written"
        )
    over = ledger.need(HOST) - (machine.ram_available or 0)
    if machine.ram_available is not None and over > 0 and facts.layers:
        ledger.notes.append(
            f"{format_bytes(over)} of it would be swapped: about "
            f"{format_duration(facts.layers * RECORDED_S)} at the pace of F-019 "
            f"({format_duration(RECORDED_S)} a layer)"
        )


def _envelope(facts: ModelFacts, machine: Machine, ledger: Ledger) -> Envelope:
    need, speed = ledger.need(HOST), machine.disk_read_bps
    at_s = facts.weight_bytes / speed if speed else None
    cached = max(0, (machine.ram_available or 0) - need)
    read, peak = held(facts.weight_bytes, machine), held(need, machine)
    return Envelope(
        (
            Point("start", 0.0),
            Point("source read", at_s, read[0], cached, (), read[1]),
            Point("converting", None, peak[0], cached, (), peak[1]),
        )
    )
