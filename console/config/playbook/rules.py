"""Rules between the parts of a playbook that no single model can see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from console.bench.metrics import GATED, GAUGE_METRICS, OUTPUT_METRICS
from console.common.text import one_line, one_of
from console.config.lessons import registry
from console.config.playbook.captured import base_unit
from console.config.playbook.decidable import check_criterion, never_both
from console.config.playbook.kinds import Figure, measured
from console.config.playbook.measuring_steps import MIN_SAMPLES
from console.config.playbook.playbook import PlaybookModel, cutover_problems
from console.config.playbook.steps import KINDS, CriterionModel, Step
from console.config.site.guard import limits
from console.config.site.service import one_of_services
from console.config.yaml import Document, Loc
from console.recovery.guard.config import Limit

RESERVED = frozenset({"restore"})
"""Ids of rows that the plan adds."""


def check_lessons(document: Document) -> None:
    """Refuse ids that are not in the registry, since a typing error would hide the lesson."""
    named, known = document.data.get("lessons"), registry.known()
    for at, lesson in enumerate(named if isinstance(named, list) else []):
        if isinstance(lesson, str) and lesson not in known:
            what = f"unknown lesson '{one_line(lesson, 60)}'"
            document.refuse(("lessons", at), what, "an id of the registry", registry.meant(lesson))


def step_locs(model: PlaybookModel) -> Iterator[tuple[Loc, Step]]:
    for p, phase in enumerate(model.phases):
        for s, step in enumerate(phase.steps):
            yield ("phases", p, "steps", s), step
    for s, step in enumerate(model.finally_):
        yield ("finally", s), step


def check_rules(
    document: Document,
    model: PlaybookModel,
    site_services: frozenset[str],
    broken: frozenset[str] = frozenset(),
    *,
    guessed: bool = False,
) -> None:
    """Ids once, services declared, metrics that an earlier step measures, gates that decide.

    `broken`: ids of steps that are reported already, whose metrics are not missed. `guessed`: an
    input has no value yet, so durations and counts of a step are not judged.
    """
    seen: dict[str, Loc] = {}
    known = _Known(guessed)
    fits: list[str] = []
    services = set(model.services) | site_services
    builds = [step.id for _, step in step_locs(model) if step.build is not None]
    guard_limits(document, model, site_services)
    for name in set(model.services) & site_services:
        document.refuse(("services", name), f"service '{name}' is the site's", key=True)
    if not broken:
        document.add(*cutover_problems(document, model, frozenset(services)))
    for loc, step in step_locs(model):
        if step.id in seen:
            line, _ = document.place((*seen[step.id], "id"))
            document.refuse((*loc, "id"), f"step id '{step.id}' is used twice", hint=f"line {line}")
        seen.setdefault(step.id, loc)
        if step.id in RESERVED:
            document.refuse((*loc, "id"), f"step id '{step.id}' is the plan's own")
        _check_services(document, loc, step, services)
        if step.download is not None and step.download.of:
            _check_of(document, loc, step.download.of, fits)
        for at, name in enumerate(step.host.builds if step.host is not None else ()):
            if name not in builds:
                expected = one_of(builds) if builds else "a build step; there is none"
                what = f"'{one_line(name, 60)}' is no build step"
                document.refuse((*loc, "host", "builds", at), what, expected)
        if step.checkpoint is not None:
            fits.append(step.id)
        if step.gate is not None:
            _check_gate(document, loc, step.gate, known)
        if loc[0] == "finally":
            _check_final(document, loc, step)
        known.add(step, broken=step.id in broken)


def guard_limits(
    document: Document, model: PlaybookModel, site_services: frozenset[str]
) -> tuple[Limit, ...]:
    """The playbook's guards as limits; one on an undeclared service is refused."""
    return limits(document, model.guards, "playbook", frozenset(model.services) | site_services)


@dataclass
class _Known:
    """Metrics of the steps so far, and which of them have the baseline's figure too."""

    guessed: bool = False
    figures: dict[str, Figure] = field(default_factory=dict)
    compared: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    """Steps whose metrics are not missed: broken (reported already) or not built."""

    def __post_init__(self) -> None:
        self.figures |= measured(GAUGE_METRICS)

    def add(self, step: Step, *, broken: bool) -> None:
        if broken:
            self.unclear.add(step.id)
        content = step.content
        own: dict[str, Figure] = {
            name: Figure(base_unit(output.unit), most=1) for name, output in step.outputs.items()
        }
        own |= content.figures(guessed=self.guessed)
        if step.figures is not None:
            row_limit = 1 if step.figures == "sweep-bench" and not self.guessed else None
            own |= measured(OUTPUT_METRICS, made_of(step), row_limit)
        self.figures |= {f"{step.id}.{name}": figure for name, figure in own.items()}
        if content.compares:
            self.compared |= {f"{step.id}.{name}" for name in GATED}


def _check_final(document: Document, loc: Loc, step: Step) -> None:
    if not KINDS[step.kind].at_end:
        *most, last = (kind for kind, step_kind in KINDS.items() if step_kind.at_end)
        document.refuse(loc, f"{step.kind} in finally", f"{', '.join(most)} or {last}")
    if step.on_failure != "stop":
        what = f"on_failure: {step.on_failure} in finally, which cannot change the outcome"
        document.refuse((*loc, "on_failure"), what)


def _check_of(document: Document, loc: Loc, of: str, fits: list[str]) -> None:
    """A download's `of` must name an earlier checkpoint step."""
    if of not in fits:
        expected = f"one of {', '.join(fits)}" if fits else "a checkpoint step before it"
        what = f"'{of}' is no checkpoint step before this one"
        document.refuse((*loc, "download", "of"), what, expected)


def _check_services(document: Document, loc: Loc, step: Step, services: set[str]) -> None:
    content = step.content
    wanted = [((*loc, step.kind, key), name) for key, name in content.named_services()]
    if step.where is not None and step.where.service is not None:
        wanted.append(((*loc, "where", "service"), step.where.service))
    known = services | ({"baseline"} if content.BASELINE_TOO else set())
    for where, name in wanted:
        if name not in known:
            document.refuse(where, f"unknown service '{name}'", one_of_services(known))


def _check_gate(document: Document, loc: Loc, gate: list[CriterionModel], known: _Known) -> None:
    for index, criterion in enumerate(gate):
        where = (*loc, "gate", index)
        owner = criterion.metric.split(".")[0]
        if owner in known.unclear:
            continue  # reported already, as broken or as not built
        _check_of_cards(document, where, criterion)
        if criterion.metric not in known.figures:
            names = ", ".join(m for m in known.figures if m.startswith(f"{owner}."))
            what = f"nothing before this gate measures '{criterion.metric}'"
            expected = f"one of {names}" if names else "a benchmark or an output of an earlier step"
            document.refuse((*where, "metric"), what, expected)
            continue
        relative = any(t is not None and t.relative for t in (criterion.go, criterion.no_go))
        if relative and criterion.metric not in known.compared:
            what = f"nothing measures the baseline's {criterion.metric}"
            hint = "x baseline could only ever be HOLD"
            document.refuse(where, what, "against: baseline in the benchmark", hint)
        problem = _undecidable(criterion, gate[:index], known)
        if problem is not None:
            document.refuse(where, *problem)


def _undecidable(
    model: CriterionModel, before: list[CriterionModel], known: _Known
) -> tuple[str, str, str] | None:
    """Why a criterion could never decide, also together with earlier ones; what is expected
    instead; a hint."""
    metric, figure = model.metric, known.figures[model.metric]
    criterion = model.criterion(figure.source)
    needed = max(criterion.min_samples, criterion.min_requests)
    has, why, more = figure.usual or (needed, "", "")
    if model.min_samples is None and has < needed:
        noun = "requests" if figure.source == "soak" else "runs"
        return f"{metric} needs {needed} {noun} unless min_samples is given, and {why}", more, ""
    try:
        check_criterion(criterion, figure.unit, figure.bounds, figure.most)
    except ValueError as error:
        return str(error), "", figure.why
    for other in before:
        wrong = never_both(other.criterion(), criterion, figure.unit, figure.bounds)
        if wrong:
            return wrong, "", ""
    return None


def _check_of_cards(document: Document, where: Loc, criterion: CriterionModel) -> None:
    """Figures of cards must be added up or compared, never silently taken from one."""
    cards = criterion.metric.startswith("gpu.")
    if criterion.of == "sum" and criterion.metric == "gpu.peak_temperature":
        what = "temperatures are not added up"
        document.refuse((*where, "of"), what, "of: max")
    elif cards and criterion.of is None:
        what = f"'{criterion.metric}' is of every card"
        document.refuse(where, what, "of: sum or of: max")
    elif criterion.of is not None and not cards:
        document.refuse((*where, "of"), "'of' belongs to metrics of the cards")


def made_of(step: Step) -> str:
    """The kind of samples behind a step's own metrics, as in MIN_SAMPLES; "" for single figures."""
    source = step.figures or step.kind
    return source if source in MIN_SAMPLES else ""
