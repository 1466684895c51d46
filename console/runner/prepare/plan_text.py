"""The plan in words: what would run, effect by effect, and where the baseline goes down. Pure
except for `warnings` and `always`, which inspect this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import redact
from console.common.text import clean
from console.common.units import format_bytes, format_duration
from console.config.lessons.registry import titles
from console.host.gpu.inventory import Cards
from console.host.machine import look
from console.host.sample import Machine
from console.recovery.guard.config import Defaults, defaults
from console.render.guard import lease_terms, limit_words
from console.runner import cutover
from console.runner.guard import limits
from console.runner.guard.limits import lease_of, limits_of, misfits
from console.runner.prepare.admission import blockers
from console.runner.prepare.plan import Plan, PlannedStep
from console.runtime.spec import ComposeSpec, ContainerSpec, memory_limit

if TYPE_CHECKING:
    from console.checks.lint.unit import Finding
    from console.runner.prepare.startable import Look

BAR = "─" * 72
SCALED = "always: the console's own limits, scaled to the machine"
NVML_S = 3.0
"""Seconds that a plan waits for the driver."""


def as_json(made: Plan) -> dict[str, object]:
    """The plan as `omni-console plan --json` prints it."""
    document: dict[str, object] = made.known.data({
        "playbook": made.playbook.name,
        "title": made.playbook.model.title,
        "rehearsal": made.rehearsal is not None,
        "fault": (made.rehearsal or {}).get("fault") or None,
        "stand_ins": (made.rehearsal or {}).get("notes") or [],
        "digest": made.playbook.digest,
        "site": made.site.name,
        "inputs": made.playbook.inputs,
        "notes": list(made.playbook.notes),
        "takes_baseline_down": made.takes_down,
        "guards": [{**limit.to_json(), "words": limit_words(limit)} for limit in limits_of(made)],
        "guards_always": always(made),
        "lease_s": lease_of(made, None),
        "steps": [
            {"id": s.id, "phase": s.phase, "kind": s.kind, "title": s.title,
             "effects": list(s.effects), "timeout_s": s.limit_s, "planned_s": s.takes_s,
             "planned_from": s.takes_from,
             "implicit": s.implicit, "baseline_down": s.baseline_down, "lessons": list(s.lessons)}
            for s in made.steps
        ],
        "blockers": [blocker.words for blocker in blockers(made)],
    })  # fmt: skip
    return document


def lines(
    made: Plan, findings: Iterable[Finding] = (), looked: Look | None = None,
    lease_s: float | None = None,
) -> list[str]:  # fmt: skip
    """The plan as an operator reads it before starting. `findings`: lint findings. `looked`: what
    would keep a service from starting. `lease_s`: in place of the playbook's and the site's."""
    model = made.playbook.model
    out = [clean(model.title)]
    if model.objective:
        out.append(f"  objective  {clean(model.objective)}")
    out.append(f"  site       {made.site.name}: baseline {clean(_baseline(made))}")
    out += [f"  input      {_input(made, k, v)}" for k, v in made.playbook.inputs.items()]
    out += [f"  note       {clean(words)}" for words in made.playbook.notes]
    out += [f"  secret     {clean(str(s))}" for s in made.playbook.secrets.values()]
    out += [f"  stand-in   {clean(note)}" for note in (made.rehearsal or {}).get("notes") or ()]
    if model.lessons:
        out += [f"  lessons    read first: {clean(title)}" for title in titles(model.lessons)]
    out += [
        f"  BLOCKER    {clean(blocker.words)}; a run asks for a reason"
        for blocker in blockers(made)
    ]
    out += [f"  lint       {_lint_words(finding)}" for finding in findings]
    out += [
        f"  REFUSED    {clean(str(problem), 1000)}"
        for problem in (looked.problems if looked else ())
    ]
    out += [f"  note       {clean(note)}" for note in (looked.awaited if looked else ())]
    out += [f"  guard      {limit_words(limit)}" for limit in limits_of(made)]
    out.append(f"  guard      {always_words(made)}")
    if made.takes_down or lease_of(made, lease_s):
        out.append(f"  lease      {lease_terms(lease_of(made, lease_s))}")
    out += [f"  WARNING    {clean(w)}" for w in warnings(made, lease_s)]
    planned = [s.takes_s for s in made.steps if s.takes_s and not s.implicit]
    if planned:
        known = sum(bool(s.takes_s and s.takes_from) for s in made.steps if not s.implicit)
        past = f", {known} of them as in earlier runs" if known else ""
        out.append(f"  planned    {format_duration(sum(planned))} for steps with a duration{past}")
    out.append(f"  baseline   {outage_words(made)}")
    phase = ""
    for number, step in enumerate(made.steps, 1):
        if step.phase != phase:
            phase = step.phase
            out += ["", f"{clean(phase)} {BAR}"[:72]]
        out += step_lines(number, step)
    return [made.known.text(line) for line in out]


def _lint_words(finding: Finding) -> str:
    stops = f"; a run stops here without --override {finding.rule}=WHY"
    return finding.text + (stops if finding.severity == "error" else "")


def warnings(made: Plan, lease_s: float | None = None) -> list[str]:
    """What an operator should know first: missing limits, secrets and paths."""
    cautions = []
    for name, spec in made.services.items():
        runs = spec.runs
        unlimited = (
            isinstance(runs, ContainerSpec | ComposeSpec)
            and memory_limit(runs.memory_bytes) is None
        )
        if unlimited and any(s.service == name for s in made.steps):
            cautions.append(
                f"{name} has no memory limit: a load that is too big takes the host down"
            )
        for file in spec.runs.files if isinstance(spec.runs, ComposeSpec) else ():
            if not file.exists():
                cautions.append(f"{name}: {file} does not exist")
    for secret in made.playbook.secrets.values():
        try:
            secret.read()
        except ValueError as error:
            cautions.append(f"secret {secret.name}: {error}")
    for name, declared in made.playbook.model.inputs.items():
        value = made.playbook.inputs.get(name)
        if declared.must_exist and not Path(str(value)).exists():
            cautions.append(f"input {name}: {value} does not exist")
    return [
        *cautions, *cutover.misfits(made), *cutover.narrow(made), *short_lease(made, lease_s),
        *guard_warnings(made),
    ]  # fmt: skip


def short_lease(made: Plan, given_s: float | None = None) -> list[str]:
    """Warn of a lease that would end the run in its planned outage with nobody attached. `given_s`:
    that of the command line."""
    lease_s = lease_of(made, given_s)
    down_s = sum(step.takes_s or 0.0 for step in made.steps if step.baseline_down)
    if not lease_s or down_s <= lease_s:
        return []
    return [
        f"the baseline is planned to be down for {format_duration(down_s)}, longer than the lease "
        f"of {format_duration(lease_s)}: stay attached, or run with a longer --lease"
    ]


def guard_warnings(made: Plan) -> list[str]:
    """Guards that do not fit the site's machine; if that is this machine, also those that are
    breached now or cannot be checked."""
    machine = _machine(made)
    here = look(cards=Cards())
    unlike = misfits(made, machine)
    if machine.ram_total != here.ram_total or unlike:
        return unlike
    findings = limits.findings(made, nvml_s=NVML_S)
    return [
        f"{finding.words}{': NO RUN WOULD START' if finding.stops else ''}" for finding in findings
    ]


def always(made: Plan) -> list[str]:
    """The console's default limits, as they are on the site's machine."""
    own = _own(made)
    return [limit_words(limit) for limit in own.limits] if own is not None else [SCALED]


def _own(made: Plan) -> Defaults | None:
    """The default limits, or None if the machine's memory is unknown."""
    machine = _machine(made)
    return defaults(machine.ram_total, machine.swap_total or 0) if machine.ram_total else None


def always_words(made: Plan) -> str:
    """The same in one line: a dozen lines would push the plan itself off the screen."""
    own = _own(made)
    if own is None:
        return SCALED
    return (
        f"always: the console's own {len(own.limits)} limits on RAM (below "
        f"{format_bytes(own.floor)} at the latest), how soon it is full, stalls, swap growth, "
        "OOM kills; `plan --json` lists them"
    )


def _machine(made: Plan) -> Machine:
    """The site's machine, described without asking the driver."""
    return made.site.model.machine.over(look(cards=Cards()), made.site.model.gpus)


def step_lines(number: int, step: PlannedStep) -> list[str]:
    """A row: number, id, times; then each effect. `!` marks an outage."""
    source = f", {step.takes_from}" if step.takes_from else ""
    takes = f"about {format_duration(step.takes_s)}{source}; " if step.takes_s else ""
    mark = "!" if step.kind == "baseline:stop" else "│" if step.baseline_down else " "
    head = f"{mark}{number:>3}. {step.id}: {clean(step.title)}"
    head += f"  ({takes}limit {format_duration(step.limit_s)})"
    effects = [f"{mark}       {clean(effect)}" for effect in step.effects]
    return [head, *effects, *(f"{mark}       lesson {clean(lesson)}" for lesson in step.lessons)]


def _baseline(made: Plan) -> str:
    model = made.site.model.baseline
    if model.container:
        what = f"container {model.container}"
    elif model.compose:
        what = f"compose service {model.compose.service}"
    elif model.unit:
        what = model.unit.spec(made.site.base).words
    else:
        what = "host process"
    return f"{what} at {model.url}"


def _input(made: Plan, name: str, value: object) -> str:
    if name in made.playbook.missing:
        return f"{clean(name)} IS REQUIRED: --input {clean(name)}=… (a stand-in is shown below)"
    return f"{clean(name)} = {clean(redact.named(name, str(value)))}"


def outage_words(made: Plan) -> str:
    """Where the baseline is down, one stretch per outage; `serves throughout` if never."""
    stretches: list[list[str]] = []
    for step in made.steps:
        if step.kind == "baseline:stop":
            stretches.append([])
        if step.baseline_down and stretches:
            stretches[-1].append(step.id)
    if not stretches:
        return "serves throughout"
    words = [f"from {s[0]} to the end of {s[-1]}" for s in stretches if s]
    return f"DOWN {', and '.join(words)}; rows marked │"
