"""The run's course in a report: summary, lint, machine, what ran with which argv, who did what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.common.units import format_bytes, format_duration, number, plural
from console.journal.run_view import RunView, VerbGiven
from console.journal.state import StepState
from console.render.facts.gate import marks
from console.render.facts.run import notes, outage_words
from console.render.facts.step import StepFacts, facts_of
from console.render.facts.words import when
from console.render.report.benchmarks import drift_words, drifts
from console.render.report.decision import baseline_words, decision_words, settled
from console.render.report.markdown import block, code, figure, prose, table, took

OWN_SECTION = ("benchmark", "soak", "gate", "baseline:measure", "restore", "report")
"""Kinds not repeated here: their figures have a section of their own; and `report`, whose target is
this very text."""
MAX_WHY = 642
"""Characters of why a step failed."""


def findings(view: RunView) -> list[dict[str, Any]]:
    return view.header.lint


def lint_lines(view: RunView) -> list[str]:
    """Lint findings before the run, and overrides with their reasons: a table; nothing without
    findings."""
    rows = [
        (
            code(finding.get("place") or "", 200),
            f"{finding.get('severity', '')}: {prose(finding.get('what') or '', 300)}",
            prose(
                " ".join([str(finding.get("rule", "")), *map(str, finding.get("lessons") or [])]),
                120,
            ),
            prose(finding.get("override") or "", 200),
        )
        for finding in findings(view)
    ]
    if not rows:
        return []
    return ["## Lint", "", *table(("place", "what", "rule", "gone past because"), rows)]


def summary(view: RunView, *, interrupted: bool = False) -> list[str]:
    """What was tried, where, when, and the result, in one table."""
    over = "".join(f", **{mark.label}** {prose(mark.value)}" for mark in marks(view))
    open_gates = ", ".join(code(step, 60) for step in view.open_gates)
    left = f"; not judged: {open_gates}" if open_gates and not settled(view) else ""
    state = f"{view.state}" + (f" ({view.reason})" if view.reason else "")
    state = f"interrupted, last {state}" if interrupted else state
    rows = [
        ("Decision", f"**{prose(decision_words(view))}**{over}{left}"),
        ("State", prose(state)),
    ]
    objective = view.header.objective
    rows += [("Objective", prose(objective))] if objective else []
    digest = view.header.digest
    text = f" (sha256 {code(digest[:12])})" if digest else ""
    rows += [
        (
            "Run",
            f"{code(view.run_id)} of playbook {code(view.playbook)}{text}, site {code(view.site)}",
        ),
        ("Started", f"{prose(when(view.created))} by {prose(view.owner, 60)}"),
        ("Took", spent(view)),
        ("Baseline down", outage_words(view)),
        (
            "Baseline after" if view.over else "Baseline now",
            baseline_words(view, interrupted=interrupted),
        ),
    ]
    rows += [(fact.key.capitalize(), prose(fact.value)) for fact in notes(view)]
    rows += [("Baseline drift", prose(drift_words(drift))) for drift in drifts(view)]
    rows += [(f"Input {prose(name, 60)}", code(value)) for name, value in view.inputs.items()]
    lessons = view.header.lessons
    rows += [("Lessons read first", prose(", ".join(lessons)))] if lessons else []
    return table(("", ""), rows)


def planned_s(view: RunView) -> tuple[float, float, int]:
    """Seconds planned, seconds that the same steps took, and how many steps have a plan."""
    both = [s for s in view.steps if s.takes_s and s.duration_s is not None]
    return sum(s.takes_s or 0 for s in both), sum(s.duration_s or 0 for s in both), len(both)


def spent(view: RunView) -> str:
    """`42 min 10 s; 4 of 9 steps had estimates: 38 min 00 s planned, 40 min 03 s actual`."""
    whole = format_duration(view.ended - view.created) if view.ended else "–"
    planned, actual, count = planned_s(view)
    if not count:
        return whole
    return (
        f"{whole}; {count} of {len(view.steps)} steps had estimates: {format_duration(planned)} "
        f"planned, {format_duration(actual)} actual"
    )


def host_lines(view: RunView) -> list[str]:
    """The machine and the trial's baseline, as recorded when the run began."""
    machine, base = view.header.machine, view.header.baseline
    if not machine and not base:
        return ["## Host", "", "This run did not record its machine.", ""]
    rows = list(_machine_rows(machine))
    if base:
        known = number(base.get("reference"))
        reference = f", known to do {figure(known, 'tok/s')}" if known is not None else ""
        rows.append(("Baseline", f"{prose(base.get('url') or '', 200)}{reference}"))
        lines = [*map(str, base.get("runs") or []), " ".join(map(str, base.get("args") or []))]
        for at, line in enumerate(filter(None, lines)):
            rows.append(("" if at else "started as", code(line, 1000)))
    if view.header.version:
        rows.append(("omni-console", prose(view.header.version, 40)))
    return ["## Host", "", *table(("", ""), rows)]


def _machine_rows(machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    cards = [entry for entry in machine.get("cards") or [] if isinstance(entry, dict)]
    for card in cards:
        name = prose(card.get("name") or "a card without a name", 80)
        yield "Card", f"{name}{_size(card.get('memory'), ', ')} {code(card.get('uuid') or '', 80)}"
    if not cards and machine:
        yield "Cards", prose(f"none: {machine.get('cards_why') or 'NVML lists none'}", 200)
    if machine.get("driver"):
        yield "Driver", prose(machine["driver"], 40)
    if machine.get("ram"):
        yield "RAM", f"{_size(machine['ram'])}{_size(machine.get('swap'), ', swap ')}"
    counts = [("cores", "core"), ("threads", "thread"), ("numa_nodes", "NUMA node")]
    amounts = [(number(machine.get(key)), name) for key, name in counts]
    words = [plural(int(count), name) for count, name in amounts if count]
    if machine.get("cpu") or words:
        yield "CPU", ", ".join(filter(None, (prose(machine.get("cpu") or "", 100), *words)))
    if machine.get("kernel"):
        yield "Kernel", prose(machine["kernel"], 80)


def _size(raw_size: object, lead: str = "") -> str:
    size = number(raw_size)
    return f"{lead}{format_bytes(size)}" if size is not None else ""


def step_lines(view: RunView) -> list[str]:
    rows = []
    for step in view.steps:
        facts = facts_of(view, step)
        again = f" ({facts.again})" if facts.again else ""
        quiet = step.kind in OWN_SECTION and step.state is StepState.SUCCEEDED
        words = step.title if quiet else step.detail or step.title
        rows.append([
            facts.sign, code(step.id, 60), f"{step.state}{again}",
            took(step.takes_s or None), took(step.duration_s), prose(words, 300),
        ])  # fmt: skip
    return ["## Steps", "", *table(("", "step", "state", "planned", "took", "what"), rows, (3, 4))]


def ran_lines(view: RunView) -> list[str]:
    """The effects of each step, with argv, as the plan listed them before it ran."""
    lines: list[str] = []
    for step in view.steps:
        if step.state is not StepState.PENDING and step.effects:
            lines += [step.id, *(f"  {line}" for line in step.effects)]
    return ["## What ran", "", *block(lines), ""] if lines else []


def failures(view: RunView) -> list[str]:
    """Every failed step: cause, detail and its last log lines, as an indented block."""
    lines: list[str] = []
    for step in view.steps:
        if step.state in (StepState.FAILED, StepState.IN_DOUBT):
            log_lines = block(step.lines[-20:], 400)
            lines += [f"{code(step.id, 60)}: {prose(StepFacts(step).why, MAX_WHY)}", ""]
            lines += [*log_lines, ""] if log_lines else []
    return ["## What went wrong", "", *lines] if lines else []


def _changed(verb: VerbGiven) -> str:
    """Inputs changed by a retry: `ctx=8192, bar=>= 5 tok/s`."""
    inputs = verb.args.get("inputs") or {}
    return ", ".join(f"{name}={value}" for name, value in inputs.items())


def verb_lines(view: RunView) -> list[str]:
    names = ("who", "verb", "step", "why")
    rows = [
        [
            when(v.at),
            *(prose(getattr(v, name)) for name in names),
            prose(_changed(v)),
        ]
        for v in view.verbs
    ]
    table_lines = table(("when", *names, "changed"), rows)
    return ["## Who did what", "", *table_lines] if table_lines else []
