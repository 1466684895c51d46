"""What is said of a gate: its verdict, what it says of each figure, who overrode it, and what makes
it doubtful. `show`, `report`, a run that is followed, the screens and notifications take it from
here; what is added to `_marks` appears in all of them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from console.common.text import clean
from console.journal.run_view import GateDoubt, GateVerdict, RunView
from console.journal.state import Mark
from console.render.facts.words import VERDICT_TONE, Fact

MAX_DOUBT = 400


@dataclass(frozen=True, slots=True)
class GateFacts:
    """A gate that has judged. `criteria`: of each figure its metric, as the playbook has it, the
    verdict and why; `marks`: what a reader of the whole must not miss."""

    step: str
    verdict: str
    tone: str
    outcome: str
    criteria: tuple[Fact, ...]
    marks: tuple[Fact, ...]


def gates(view: RunView, step_id: str = "") -> list[GateFacts]:
    """The gates that have judged, in their order; with an id that one alone."""
    return [
        GateFacts(
            clean(verdict.step), verdict.verdict, VERDICT_TONE.get(verdict.verdict, ""),
            clean(verdict.outcome), tuple(_criteria(verdict)), tuple(_marks(verdict)),
        )
        for verdict in view.verdicts if step_id in ("", verdict.step)
    ]  # fmt: skip


def _criteria(verdict: GateVerdict) -> Iterator[Fact]:
    for row in verdict.criteria:
        word = row.get("verdict", "")
        word = word if word in VERDICT_TONE else clean(word, 10)
        tone, why = VERDICT_TONE.get(word, ""), clean(row.get("why", ""))
        yield Fact(row.get("metric", ""), word, why, tone)


def _marks(verdict: GateVerdict) -> Iterator[Fact]:
    if verdict.overridden:
        yield _overridden(verdict.overridden, verdict.verdict)


def _overridden(who: str, verdict: str) -> Fact:
    return Fact("overridden", Mark.OVERRIDDEN, f"by {clean(who)}", "warn", brief=verdict, joint=" ")


def marks(view: RunView) -> list[Fact]:
    """What marks the whole run: who overrode its gates, and why."""
    return [_overridden(view.overridden, view.worst)] if view.overridden else []


def doubts(view: RunView, gate: str = "", *, moved: bool = False) -> list[Fact]:
    """Verdicts that the baseline's later figures do not confirm; with an id those of one gate.
    `moved`: with how far the baseline moved, for a face that does not show it elsewhere."""
    return [_doubt(view, doubt, moved) for doubt in view.doubts if gate in ("", doubt.gate)]


def _doubt(view: RunView, doubt: GateDoubt, moved: bool) -> Fact:
    """`gate go said GO, but it would be NO-GO: …`, without a full stop."""
    verdict = next((v.verdict for v in view.verdicts if v.step == doubt.gate), "GO")
    lead = f"{gate_name(view, doubt.gate)} said {verdict}, but it would be {doubt.verdict}"
    words = clean(doubt.words, MAX_DOUBT)
    if moved and doubt.moved and doubt.moved not in doubt.words:
        lead = f"the baseline moved by {clean(doubt.moved, 120)}; {lead}"
    return Fact("doubtful", Mark.DOUBTFUL, f"{lead}: {words}", "warn", words, doubt.verdict)


def gate_name(view: RunView, step_id: str) -> str:
    """`gate go`, or a preflight step with its kind."""
    step = view.step(step_id)
    kind = "gate" if step is None or step.kind == "gate" else step.kind
    return f"{kind} {clean(step_id, 60)}"
