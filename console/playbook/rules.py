"""Rules between the parts of a playbook that no single model can see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from console.document.reader import Document, Loc
from console.errors import Problem, Problems
from console.guard.limits import Limit
from console.playbook.decidable import Bounds, check_criterion
from console.playbook.measuring import (
    BENCHMARK_METRICS,
    BOUNDS,
    FIGURES,
    FROM_ZERO,
    GAUGE_METRICS,
    SOAK_METRICS,
)
from console.playbook.model import PlaybookModel
from console.playbook.preflight import LOOKS
from console.playbook.steps import UNBUILT, CriterionModel, Step
from console.playbook.verdict import Criterion
from console.site.guard import limits

RESERVED = frozenset({"restore"})
"""Ids of rows that the plan adds."""


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
    problems: Problems,
    broken: frozenset[str] = frozenset(),
) -> None:
    """Ids once, services declared, metrics that an earlier step measures, gates that decide.

    `broken`: ids of steps that are reported already; their metrics are not missed.
    """
    seen: dict[str, Loc] = {}
    known = _Known()
    fits: list[str] = []
    services = set(model.services) | site_services
    for problem in guard_limits(document, model, site_services)[1]:
        problems.add(problem)
    for name in set(model.services) & site_services:
        problems.add(
            document.problem(("services", name), f"service '{name}' is the site's", key=True)
        )
    for loc, step in step_locs(model):
        if step.id in seen:
            line, _ = document.place((*seen[step.id], "id"))
            problems.add(
                document.problem((*loc, "id"), f"step id '{step.id}' twice", hint=f"line {line}")
            )
        seen.setdefault(step.id, loc)
        if step.id in RESERVED:
            problems.add(document.problem((*loc, "id"), f"step id '{step.id}' is the plan's own"))
        _check_services(document, loc, step, services, problems)
        if step.download is not None and step.download.of:
            _check_of(document, loc, step.download.of, fits, problems)
        if step.checkpoint is not None:
            fits.append(step.id)
        if step.gate is not None:
            _check_gate(document, loc, step.gate, known, problems)
        if loc[0] == "finally":
            _check_final(document, loc, step, problems)
        known.add(step, broken=step.id in broken)


def guard_limits(
    document: Document, model: PlaybookModel, site_services: frozenset[str]
) -> tuple[tuple[Limit, ...], list[Problem]]:
    """The playbook's guards as limits, and services in them that nobody declares."""
    return limits(document, model.guards, "playbook", frozenset(model.services) | site_services)


@dataclass
class _Known:
    """What the steps so far measure: metric → unit, and which have the baseline's figure too."""

    metrics: dict[str, str] = field(default_factory=dict)
    compared: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    """Steps whose metrics are not missed: broken (reported already) or not built."""
    bounds: dict[str, Bounds] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    """How many samples a metric can have, where that is known."""

    def __post_init__(self) -> None:
        self._measured("", GAUGE_METRICS)

    def add(self, step: Step, *, broken: bool) -> None:
        if broken or step.kind in UNBUILT:
            self.unclear.add(step.id)
        if step.benchmark is not None:
            most = step.benchmark.most_runs
            self._measured(f"{step.id}.", BENCHMARK_METRICS, most)
            if step.benchmark.against:
                self._measured(f"{step.id}.baseline.", BENCHMARK_METRICS, most)
                self.compared |= {f"{step.id}.{name}" for name in BENCHMARK_METRICS}
        for name, output in step.outputs.items():
            self.metrics[f"{step.id}.{name}"] = output.unit
            self.most[f"{step.id}.{name}"] = 1
        if step.soak is not None:
            self._measured(f"{step.id}.", SOAK_METRICS)
        if step.figures is not None:
            most_rows = 1 if step.figures == "sweep-bench" else None
            self._measured(f"{step.id}.", FIGURES[step.figures], most_rows)

    def _measured(self, prefix: str, named: dict[str, str], most: int | None = None) -> None:
        for name, unit in named.items():
            self.metrics[prefix + name] = unit
            self.bounds[prefix + name] = BOUNDS.get(name, FROM_ZERO)
            if most is not None:
                self.most[prefix + name] = most


def _check_final(document: Document, loc: Loc, step: Step, problems: Problems) -> None:
    if step.kind not in ("run", "script", "note", "report", "check"):
        problems.add(document.problem(loc, f"{step.kind} in finally", "run, script or report"))
    if step.on_failure != "stop":
        what = f"on_failure: {step.on_failure} in finally, which cannot change the outcome"
        problems.add(document.problem((*loc, "on_failure"), what))


def _check_of(document: Document, loc: Loc, of: str, fits: list[str], problems: Problems) -> None:
    """A download is of a checkpoint that an earlier step judges."""
    if of not in fits:
        expected = f"one of {', '.join(fits)}" if fits else "a checkpoint step before it"
        what = f"'{of}' is no checkpoint step before this one"
        problems.add(document.problem((*loc, "download", "of"), what, expected))


def _check_services(
    document: Document, loc: Loc, step: Step, services: set[str], problems: Problems
) -> None:
    wanted: list[tuple[Loc, str]] = []
    if step.service is not None:
        wanted.append(((*loc, "service", step.service.verb), step.service.target))
    if step.benchmark is not None:
        wanted.append(((*loc, "benchmark", "service"), step.benchmark.service))
    if step.soak is not None:
        wanted.append(((*loc, "soak", "service"), step.soak.service))
    if step.where is not None and step.where.service is not None:
        wanted.append(((*loc, "where", "service"), step.where.service))
    for look_kind in LOOKS:
        lent = str(getattr(getattr(step, look_kind), "service", None) or "")
        if lent:
            wanted.append(((*loc, look_kind, "service"), lent))
    for where, name in wanted:
        known = services | ({"baseline"} if step.service is None else set())
        if name not in known:
            expected = (
                f"one of {', '.join(sorted(known))}" if known else "a service under services:"
            )
            problems.add(document.problem(where, f"unknown service '{name}'", expected))


def _check_gate(
    document: Document,
    loc: Loc,
    gate: list[CriterionModel],
    known: _Known,
    problems: Problems,
) -> None:
    for index, criterion in enumerate(gate):
        where = (*loc, "gate", index)
        owner = criterion.metric.split(".")[0]
        if owner in known.unclear:
            continue  # reported already, as broken or as not built
        _check_of_cards(document, where, criterion, problems)
        if criterion.metric not in known.metrics:
            names = ", ".join(m for m in known.metrics if m.startswith(f"{owner}."))
            problems.add(
                document.problem(
                    (*where, "metric"), f"nothing before this gate measures '{criterion.metric}'",
                    f"one of {names}" if names else "a benchmark or an output of an earlier step",
                )
            )  # fmt: skip
            continue
        if uses_baseline(criterion) and criterion.metric not in known.compared:
            problems.add(
                document.problem(
                    where, f"nothing measures the baseline's {criterion.metric}",
                    "against: baseline in the benchmark", "x baseline could only ever be HOLD",
                )
            )  # fmt: skip
        metric = criterion.metric
        try:
            check_criterion(
                as_criterion(criterion), known.metrics[metric], known.bounds.get(metric),
                known.most.get(metric),
            )  # fmt: skip
        except ValueError as error:
            problems.add(document.problem(where, str(error)))


def _check_of_cards(
    document: Document, where: Loc, criterion: CriterionModel, problems: Problems
) -> None:
    """Cards are added up or compared, never silently one of the two."""
    cards = criterion.metric.startswith("gpu.")
    if criterion.of == "sum" and criterion.metric == "gpu.peak_temperature":
        what = "temperatures are not added up"
        problems.add(document.problem((*where, "of"), what, "of: max"))
    elif cards and criterion.of is None:
        what = f"'{criterion.metric}' is of every card"
        problems.add(document.problem(where, what, "of: sum or of: max"))
    elif criterion.of is not None and not cards:
        problems.add(document.problem((*where, "of"), "'of' belongs to metrics of the cards"))


def uses_baseline(model: CriterionModel) -> bool:
    return any(t is not None and t.relative for t in (model.go, model.no_go))


def as_criterion(model: CriterionModel) -> Criterion:
    return Criterion(model.metric, model.go, model.no_go, model.min_samples, model.of)


def unbuilt(document: Document, model: PlaybookModel) -> list[Problem]:
    """What the format has and this version cannot run: said, never ignored."""
    found: list[Problem] = []

    def add(loc: Loc, what: str, *, key: bool = False) -> None:
        found.append(document.problem(loc, f"{what} is not built yet", key=key))

    later: set[str] = set()
    for loc, step in step_locs(model):
        if step.kind in UNBUILT:
            add((*loc, step.kind), f"step kind '{step.kind}'", key=True)
            later.add(step.id)
        for index, criterion in enumerate(step.gate or []):
            owner = criterion.metric.split(".")[0]
            if owner in later:
                add((*loc, "gate", index, "metric"), f"metric '{criterion.metric}'")
    return found
