"""Memory in a report: peak use, beside what each load was predicted to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.common.text import clean
from console.common.units import format_bytes, number, plural
from console.host.sample import Card
from console.journal.run_view import RunView, StepView
from console.journal.samples import Gauge
from console.models.sizing.load_curve import Envelope
from console.models.sizing.placement import labels
from console.render.report.benchmarks import like_of, targets
from console.render.report.markdown import code, figure, prose, table

STARTS = ("creates and starts ", "starts a host process", "starts the existing ",
          "$ docker compose")  # fmt: skip


@dataclass(slots=True)
class Rise:
    """Memory that a load took above the use just before it, bytes; from `begin` to `end`, Unix
    seconds; by UUID, `ram` and `swap`. Figures that were not read are missing."""

    begin: float
    end: float
    taken: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)


def card_names(view: RunView) -> dict[str, str]:
    """UUID → the card's name in verdicts and charts."""
    cards = [
        Card(
            clean(str(machine_card.get("name") or ""), 60),
            clean(str(machine_card.get("uuid") or ""), 80),
        )
        for machine_card in view.header.machine.get("cards") or []
    ]
    return {card.uuid: name for card, name in zip(cards, labels(cards), strict=True)}


def envelope_of(data: dict[str, Any]) -> Envelope | None:
    """A prediction from the journal, None if it is invalid."""
    try:
        return Envelope.from_json(data)
    except ValueError:
        return None


def load_step(view: RunView, predicted_by: str) -> StepView | None:
    """The step that starts a service after the one that predicted, if it ran."""
    ids = [step.id for step in view.steps]
    after = view.steps[ids.index(predicted_by) + 1 :] if predicted_by in ids else []
    for step in after:
        begins = any(line.lstrip().startswith(STARTS) for line in step.effects)
        if step.kind == "service" and begins and step.started:
            return step
    return None


def rise_of(view: RunView, predicted_by: str, gauges: Sequence[Gauge]) -> Rise | None:
    """The memory that the load took; None if it did not happen, or was not sampled."""
    step = load_step(view, predicted_by)
    if step is None:
        return None
    ends = [
        other.started for other in view.steps
        if other.started > step.started and (
            other.kind == "restore"
            or (other.kind == "service" and any(w.startswith("stops ") for w in other.effects))
        )
    ]  # fmt: skip
    end = min(ends, default=view.ended or float("inf"))
    inside = [gauge for gauge in gauges if step.started <= gauge.at <= end]
    if not inside:
        return None
    before = next((g for g in reversed(gauges) if g.at < step.started), inside[0])
    rise = Rise(step.started, min(end, inside[-1].at))
    seen = [_in_use(gauge) for gauge in inside]
    for key, first in _in_use(before).items():
        used = [sizes[key] for sizes in seen if key in sizes]
        if used:
            rise.before[key] = first
            rise.taken[key] = max(0.0, max(used) - first)
    return rise


def _in_use(gauge: Gauge) -> dict[str, float]:
    host = {"ram": gauge.ram, "swap": gauge.swap}
    return {**gauge.gpu, **{name: size for name, size in host.items() if size is not None}}


def memory_lines(view: RunView, gauges: Sequence[Gauge]) -> Iterator[str]:
    """Peaks of the whole run, then each prediction with the actual result."""
    rows = list(_peak_rows(view))
    if rows or any(known.envelope for known in view.measured.values()):
        yield from ("## Memory", "")
    yield from table(("", "in use at most", "there is", "remark"), rows, (1, 2))
    if rows:
        looks = int(number(view.peaks.n) or 0)
        yield from (
            f"Over the whole run, baseline included; {plural(looks, 'sample')}, ~1/s.",
            "",
        )
    for step, known in view.measured.items():
        envelope = envelope_of(known.envelope)
        if envelope is not None and envelope.lines():
            yield from (f"### Memory predicted by {code(step, 60)}", "")
            yield from _predicted(view, step, envelope, gauges)


def _peak_rows(view: RunView) -> Iterator[list[str]]:
    names, machine = card_names(view), view.header.machine
    sizes = {
        machine_card.get("uuid"): machine_card.get("memory")
        for machine_card in machine.get("cards") or []
    }
    cards, like = view.peaks.gpu, like_of(targets(view, "gpu.peak_used"))
    for uuid, card in cards.items():
        heat = number(card.get("temperature"))
        note = [f"{heat:.0f} °C at most"] if heat is not None else []
        name = f"VRAM of {names.get(uuid, uuid)}"
        yield _peak(name, card, "used", sizes.get(uuid), note, like)
    used = [size for card in cards.values() if (size := number(card.get("used"))) is not None]
    if len(cards) > 1 and len(used) == len(cards):
        yield _peak("VRAM of all cards", {"used": sum(used)}, "used", None, [], like)
    host = view.peaks.host
    if host:
        stall, rate = number(host.get("pressure")), number(host.get("swap_in"))
        note = [f"pressure {stall:.3g} % at most"] if stall is not None else []
        like = like_of(targets(view, "host.peak_ram_used"))
        yield _peak("RAM", host, "ram_used", machine.get("ram"), note, like)
        note = [f"read back at {format_bytes(rate)}/s at most"] if rate else []
        like = like_of(targets(view, "host.peak_swap_used"))
        yield _peak("swap", host, "swap_used", machine.get("swap"), note, like)


def _peak(
    name: str, figures: dict[str, Any], key: str, there: object, note: list[str], like: str
) -> list[str]:
    """A peak; an uncertain one says so, with what was seen."""
    value, why = number(figures.get(key)), (figures.get("why") or {}).get(key)
    seen = number((figures.get("seen") or {}).get(key)) if value is None else None
    shown = _used(seen if value is None else value, like)
    shown = f"at least {shown}" if seen is not None else shown
    notes = [*note, *([f"not sure: {why}"] if why else [])]
    return [
        prose(name, 100), shown, figure(number(there), "B"), prose("; ".join(notes)) or "–",
    ]  # fmt: skip


def _used(value: float | None, like: str) -> str:
    """`3.4 GiB (3.674 GB)`: also in a gate's unit, if that differs."""
    binary, other = figure(value, "B"), figure(value, "B", like)
    return binary if binary == other or not value else f"{binary} ({other})"


def _predicted(
    view: RunView, step: str, envelope: Envelope, gauges: Sequence[Gauge]
) -> Iterator[str]:
    rise, peak, names = rise_of(view, step, gauges), envelope.peak, card_names(view)
    taken = rise.taken if rise else {}
    rows = [
        _pair(f"VRAM of {name}", size, taken.get(uuid_of(name, names))) for name, size in peak.vram
    ]
    rows.append(_pair("memory of processes", peak.ram, taken.get("ram")))
    if peak.swap or taken.get("swap"):
        rows.append(_pair("swap", peak.swap, taken.get("swap")))
    yield from table(("", "predicted at most", "measured", "difference"), rows, (1, 2, 3))
    yield from (f"{_verdict(view, step, envelope, rise, names)}", "")
    yield from (f"- {prose(line)}" for line in envelope.lines())
    yield ""


def uuid_of(name: str, names: dict[str, str]) -> str:
    """The card that a prediction calls `name`, by its name or its UUID."""
    return next((uuid for uuid, called in names.items() if name in (uuid, called)), name)


def _pair(name: str, predicted: int, measured: float | None) -> list[str]:
    gap = "–"
    if measured is not None:
        sign = "+" if measured >= predicted else "−"
        gap = f"{sign}{format_bytes(abs(measured - predicted))}"
    return [prose(name, 100), format_bytes(predicted), figure(measured, "B"), gap]


def _verdict(
    view: RunView, step: str, envelope: Envelope, rise: Rise | None, names: dict[str, str]
) -> str:
    if rise is None and load_step(view, step) is None:
        return "No service was started after it: there is nothing to compare it with."
    if rise is None:
        return "Nobody sampled the machine while the load ran: not compared."
    outside = above(envelope, rise, names)
    lead = "Measured: what was in use beyond what was in use just before the start."
    if outside:
        return f"{lead} **Above the prediction**: {prose(outside)}."
    if rise.taken.keys() <= {"ram", "swap"} and envelope.peak.vram:
        return f"{lead} The cards were not read: only the host's part of the prediction held."
    return f"{lead} The prediction held."


def above(envelope: Envelope, rise: Rise, names: dict[str, str]) -> str:
    """What rose above the prediction by more than its slack, or empty."""
    taken = {key: int(size) for key, size in rise.taken.items()}
    vram = tuple(
        (name, taken[uuid])
        for name, _ in envelope.peak.vram
        if (uuid := uuid_of(name, names)) in taken
    )
    return envelope.outside(ram=taken.get("ram"), vram=vram, swap=taken.get("swap")) or ""
