"""The plan: every step in order with its effects, including the baseline's outages."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from console.bench.metrics import OUTPUT_METRICS
from console.common.errors import InvalidFile
from console.common.redact import Known
from console.common.text import one_line
from console.common.units import format_duration
from console.config.lessons.use import bearing
from console.config.playbook.load import TITLE, load_playbook
from console.config.playbook.measuring_steps import FIGURES
from console.config.playbook.playbook import Playbook
from console.config.playbook.rules import made_of
from console.config.playbook.steps import CriterionModel, Step
from console.config.playbook.tuning_step import TuneStep
from console.config.site.site import Site, taken
from console.config.yaml import Document, parse
from console.journal.history import Usual
from console.render.effects import build_argv, effects
from console.runner import cutover
from console.runner.prepare import quality, tuning
from console.runtime.docker.client import pull_hint
from console.runtime.spec import ServiceSpec

T = TypeVar("T")
Rewrite = Callable[[dict[str, Any], Path], dict[str, Any]] | None
BASELINE_STOP = "baseline:stop"
BASELINE_MEASURE = "baseline:measure"
BASELINE_CONTRACT = "baseline:contract"
BASELINE_AGAIN = "baseline:measure-again"
RESTORE = "restore"
NO_HISTORY: Mapping[str, Usual] = {}


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One row of the plan. `effects`: what it does, in words and argv, one line each.

    `implicit`: not written in the playbook but an effect of its own (the baseline's outage).
    """

    id: str
    phase: str
    kind: str
    title: str
    effects: tuple[str, ...]
    limit_s: float
    takes_s: float | None = None
    takes_from: str = ""
    """Where `takes_s` is from, in words; "" for the playbook."""
    step: Step | None = None
    implicit: bool = False
    final: bool = False
    baseline_down: bool = False
    service: str = ""
    lessons: tuple[str, ...] = ()
    """Lessons that bear on it, `F-013 its title – why`, one line each."""

    @property
    def written(self) -> Step:
        """The step as the playbook has it; only for rows that come from the playbook."""
        assert self.step is not None
        return self.step

    def section(self, model: type[T]) -> T:
        """The playbook's value under the key of the step's kind."""
        section = getattr(self.written, self.kind)
        assert isinstance(section, model)
        return section


@dataclass(frozen=True)
class Plan:
    """What a run will do, in order."""

    playbook: Playbook
    site: Site
    steps: tuple[PlannedStep, ...]
    services: dict[str, ServiceSpec] = field(default_factory=dict)
    rehearsal: dict[str, Any] | None = None
    """The stand-ins of a rehearsal, by what they replace; None for a real run."""

    @property
    def known(self) -> Known:
        """Secrets of playbook and site, which are never shown."""
        return self.playbook.known | self.site.known

    @property
    def takes_down(self) -> bool:
        """Whether the baseline goes down at some point."""
        return any(s.id.startswith(BASELINE_STOP) for s in self.steps)

    def at(self, step_id: str) -> PlannedStep:
        return next(s for s in self.steps if s.id == step_id)

    def fitting(self, hint: str) -> str:
        """What to do about a missing image: `hint`, or the build step in place of `docker pull`,
        since no registry has an image that is built here."""
        for step in (planned.step for planned in self.steps):
            if step is not None and step.build is not None and hint == pull_hint(step.build.tag):
                there = shlex.quote(str(self.playbook.base))
                by_hand = f"cd {there} && {shlex.join(build_argv(step))}"
                return one_line(
                    f"step {step.id} of this playbook builds it; or by hand: {by_hand}", 600
                )
        return hint


def make_plan(
    playbook: Playbook, site: Site, restore_s: float | None = None,
    rehearsal: dict[str, Any] | None = None, history: Mapping[str, Usual] = NO_HISTORY,
) -> Plan:  # fmt: skip
    """Make the plan from playbook and site; pure. `restore_s`: the measured restore time, if any.
    `history`: how long steps took in earlier runs, for those of which the playbook does not say it.

    Raises InvalidFile for a service that could be mistaken for the baseline or a protected one.
    """

    def document() -> Document:
        return parse(playbook.text, str(playbook.path), TITLE)

    specs = {**site.service_specs(), **playbook.services(), **tuning.services(playbook, site)}
    services = {name: site.equipped(spec) for name, spec in specs.items()}
    problems = list(taken(document, playbook.model.services, site.model))
    if any(step.tune is not None for _, step in playbook.steps()):
        problems += tuning.problems(document(), playbook, services)
    if any(step.quality is not None for _, step in playbook.steps()):
        problems += quality.problems(document(), playbook, services, site)
    if problems:
        raise InvalidFile(TITLE, problems)
    planner = _Planner(playbook, site, services, restore_s)
    hide = (playbook.known | site.known).text
    steps = tuple(_shown(_known(step, history), hide) for step in planner.steps())
    services |= cutover.relays(playbook, site, services)
    return Plan(playbook, site, steps, services, rehearsal)


def _known(step: PlannedStep, history: Mapping[str, Usual]) -> PlannedStep:
    """The step with its usual duration, unless the playbook or a measured restore says better."""
    duration = history.get(step.id)
    is_known = step.takes_s is not None and step.takes_from != tuning.AT_MOST
    if duration is None or is_known or duration.seconds > step.limit_s:
        return step
    return replace(step, takes_s=duration.seconds, takes_from=duration.words)


def _shown(step: PlannedStep, hide: Callable[[str], str]) -> PlannedStep:
    does = tuple(map(hide, step.effects))
    return replace(step, phase=hide(step.phase), title=hide(step.title), effects=does)


@dataclass
class _Planner:
    """Walks the playbook once and tracks whether the baseline is down."""

    playbook: Playbook
    site: Site
    services: dict[str, ServiceSpec]
    restore_s: float | None
    down_for: list[str] = field(default_factory=list)
    outages: int = 0
    measured: bool = False
    questioned: bool = False
    started: list[str] = field(default_factory=list)
    ever_started: bool = False
    staying: str = ""

    def steps(self) -> Iterator[PlannedStep]:
        for phase, step in self.playbook.steps():
            if step.when:
                yield from self._before(phase, step)
            yield self._row(phase, step)
            if step.when:
                yield from self._after(phase, step)
        if self.ever_started or self.outages:
            # also when the playbook stops everything itself: a run may end before it gets there
            yield self._restore("Restore", RESTORE)
            self.down_for = []
        if self.measured:
            yield self._baseline(
                "Restore", BASELINE_AGAIN, "Measure the baseline again",
                "same benchmark against the restored baseline; drift is reported",
            )  # fmt: skip
        for step in self.playbook.model.finally_:
            yield self._row("Finally", step, final=True)

    def _before(self, phase: str, step: Step) -> Iterator[PlannedStep]:
        exclusive = self._takes_the_card(step)
        steps = (
            [playbook_step for _, playbook_step in self.playbook.steps()] if exclusive else [step]
        )
        asks = any(
            playbook_step.when and playbook_step.content.of_baseline for playbook_step in steps
        )
        if asks and not self.questioned and not self.down_for:
            self.questioned = True
            yield self._baseline(
                phase, BASELINE_CONTRACT, "Ask the baseline the contract's cases",
                "its answers are sealed for the comparison; sealed cases are not asked again",
            )  # fmt: skip
        wanted = any(playbook_step.content.compares for playbook_step in steps)
        if wanted and not self.measured and not self.down_for:
            self.measured = True
            yield self._baseline(
                phase, BASELINE_MEASURE, "Measure the baseline",
                "same prompts, tokens and runs as the candidate's benchmark, before any outage",
            )  # fmt: skip
        if step.cutover is not None:
            yield from self._down(phase, step.cutover.to, "takes over its port")
        elif exclusive:
            yield from self._down(phase, step.content.loaded or "", step.content.MEMORY)

    def _down(self, phase: str, name: str, why: str) -> Iterator[PlannedStep]:
        """Add the baseline's outage for service `name`, unless it is down already."""
        if not self.down_for:
            self.outages += 1
            suffix = "" if self.outages == 1 else f"-{self.outages}"
            what = f"THE BASELINE STOPS HERE: {name or 'llama-bench'} {why}; {self._back()}"
            row = self._baseline(phase, BASELINE_STOP + suffix, "Stop the baseline", what)
            self.down_for.append(name)
            named = name if name in self.services else ""
            yield replace(row, service=named, baseline_down=True)
        elif name not in self.down_for:
            self.down_for.append(name)

    def _after(self, phase: str, step: Step) -> Iterator[PlannedStep]:
        content = step.content
        if step.cutover is not None and step.cutover.stays:
            self.staying = step.cutover.to
        elif step.cutover is not None:
            yield self._restore(phase, f"baseline:restore-{self.outages}")
            self.started, self.down_for = [], []
        elif content.loaded is not None and not content.starts:  # ends with the step
            self.ever_started = True
            yield from self._up(phase, content.loaded)
        if content.starts and content.starts not in self.started:
            self.started.append(content.starts)
            self.ever_started = True
        if content.stops:
            if content.stops in self.started:
                self.started.remove(content.stops)
            yield from self._up(phase, content.stops)

    def _up(self, phase: str, name: str) -> Iterator[PlannedStep]:
        """Bring the baseline back once service `name` needs its memory no longer."""
        if name in self.down_for:
            self.down_for.remove(name)
            if not self.down_for:  # else another one still needs the memory
                yield self._restore(phase, f"baseline:restore-{self.outages}")

    def _takes_the_card(self, step: Step) -> bool:
        content = step.content
        if content.loaded is None:
            return False
        if step.quality is not None:
            return quality.takes_the_card(step.quality, self.services, self.site)
        spec = self.services.get(content.loaded)
        return spec.exclusive if spec is not None else content.exclusive

    def _back(self) -> str:
        if self.restore_s is None:
            return "its restore time has not been measured yet"
        return f"back in {format_duration(self.restore_s)} (measured)"

    def _row(self, phase: str, step: Step, *, final: bool = False) -> PlannedStep:
        content = step.content
        spec = self.services.get(content.subject)
        does = tuple(self._effects(step))
        why = (f"why: {one_line(step.why, 600)}",) if step.why and step.when else ()
        takes_s, takes_from = _takes_s(step), ""
        if step.tune is not None and takes_s is None:
            takes_s, _ = self._search(step.tune)
            takes_from = tuning.AT_MOST if takes_s is not None else ""
        lessons = bearing(step.kind, does, acts=content.KIND.acts) if step.when else []
        return PlannedStep(
            id=step.id,
            phase=phase,
            kind=step.kind,
            title=step.title or content.default_title(),
            effects=(*does, *why),
            limit_s=_limit_s(step, spec if step.service else None),
            takes_s=takes_s,
            takes_from=takes_from,
            step=step,
            final=final,
            baseline_down=bool(self.down_for),
            service=spec.name if spec else "",
            lessons=tuple(lesson.words for lesson in lessons),
        )

    def _search(self, tune: TuneStep) -> tuple[float | None, str]:
        return tuning.longest(tune, self.services, self.site, self.restore_s)

    def _effects(self, step: Step) -> Iterator[str]:
        yield from effects(step, self.services)
        if step.cutover is not None and step.when:
            yield from cutover.words(step, self.site, self.services)
        if step.tune is not None and step.when:
            yield from tuning.words(step.tune, self.services)
            _, cost = self._search(step.tune)
            yield from (cost,) if cost else ()
        if step.quality is not None and step.when:
            yield from quality.words(step.quality, self.services, self.site, self.playbook.base)

    def _baseline(self, phase: str, step_id: str, title: str, effect: str) -> PlannedStep:
        return PlannedStep(
            step_id, phase, step_id.split("-")[0], title, (effect,), 3600.0,
            implicit=True, baseline_down=bool(self.down_for),
        )  # fmt: skip

    def _restore(self, phase: str, step_id: str) -> PlannedStep:
        stops = ", ".join(s for s in self.started if not self.services[s].keep)
        text = f"stop {stops}, then " if stops else ""
        text = text if self.started or self.down_for else "only if something is still up: stop it, "
        text += "make sure the baseline serves: start, ready, one completion"
        if self.staying and step_id == RESTORE:
            text = f"nothing while clients stay at {self.staying}; any other end: {text}"
        return PlannedStep(
            step_id, phase, RESTORE, "Restore the baseline", (text,), 3600.0, self.restore_s,
            "" if self.restore_s is None else "as in earlier restores", implicit=True,
        )  # fmt: skip


def _limit_s(step: Step, spec: ServiceSpec | None) -> float:
    """The step's own timeout, else the time its service may take to be ready, or to answer."""
    if spec is not None:
        return max(step.timeout or 0.0, spec.ready.timeout_s + 60, spec.grace_s + 60)
    return step.limit_s


def _takes_s(step: Step) -> float | None:
    """What the playbook says of its duration; a step that its `when` leaves out takes no time."""
    if not step.when:
        return 0.0
    return step.content.lasts_s if step.takes is None else step.takes


def targets(plan: Plan) -> list[dict[str, Any]]:
    """Every criterion of every gate, with its thresholds as they were written."""
    return [
        {
            "gate": planned.id,
            "metric": criterion.metric,
            "of": criterion.of,
            "go": str(criterion.go) if criterion.go else "",
            "no_go": str(criterion.no_go) if criterion.no_go else "",
            "min_samples": _least(plan, criterion),
        }
        for planned in plan.steps
        if planned.step is not None and planned.step.when
        for criterion in planned.step.gate or []
    ]


def _least(plan: Plan, criterion: CriterionModel) -> int:
    """The samples that a criterion needs: its own number, else its metric's minimum."""
    owner, _, name = criterion.metric.partition(".")
    steps = [step for _, step in plan.playbook.steps() if step.id == owner]
    source = made_of(steps[0]) if steps else ""
    if source in FIGURES and name not in OUTPUT_METRICS:
        source = ""  # a captured output of the same step is a single figure
    wanted = criterion.criterion(source)
    return max(wanted.min_samples, wanted.min_requests)


def own_playbook(
    path: Path, site: Site, inputs: dict[str, str], base: Path, rewrite: Rewrite = None, *,
    planning: bool = False,
) -> Playbook:  # fmt: skip
    """A run's own copy of its playbook; `base`: the directory where the playbook was."""
    return load_playbook(
        path, inputs, base=base, pinned=True, rewrite=rewrite, planning=planning,
        site_services=frozenset(site.model.services), aliases=site.model.names, offers=site.offers,
    )  # fmt: skip


def input_text(value: object) -> str:
    """An input as it would be written in a playbook."""
    return str(value).lower() if isinstance(value, bool) else str(value)
