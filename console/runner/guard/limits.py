"""What a run's sentinel is told: limits, what to spare, what to look at, all by identity."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import paths
from console.config.site.guard import trouble
from console.host import process
from console.host.capacity import Machine
from console.host.process_spec import ProcessSpec
from console.models.sizing.assessment import Verdict
from console.models.sizing.load_curve import Envelope
from console.recovery.guard import config as sheets
from console.recovery.guard.config import Sheet
from console.recovery.guard.limits import Limit
from console.recovery.guard.record.recorder import PREFIX
from console.recovery.rollback import sealed_plan as sealed
from console.runner.prepare.plan import Plan

if TYPE_CHECKING:
    from console.journal.run_view import RunView
    from console.recovery.rollback.sealed_plan import SealedPlan
    from console.runner.context import Context

HOLDS = frozenset({Verdict.GO, Verdict.STREAMING, Verdict.TIGHT})
"""Verdicts whose prediction a load may be held to."""


def limits_of(plan: Plan) -> tuple[Limit, ...]:
    """The site's guards and those that the playbook adds, paths from the file that names them; the
    console's own come with the sentinel."""
    site, playbook = plan.site, plan.playbook
    placed = [_placed(one, site.base) for one in site.guards]
    return (*placed, *(_placed(one, playbook.base) for one in playbook.guards))


def _placed(limit: Limit, base: Path) -> Limit:
    if limit.metric != "disk.free" or not limit.of:
        return limit
    return replace(limit, of=os.path.abspath(base / Path(limit.of).expanduser()))


def lease_of(plan: Plan, given: float | None) -> float:
    """Seconds, 0.0 for no lease: the command line's, else the playbook's, else the site's."""
    for one in (given, plan.playbook.model.lease, plan.site.model.lease):
        if one is not None:
            return one
    return 0.0


def misfits(plan: Plan, machine: Machine, *, always: bool = False) -> list[str]:
    """Limits that nothing could breach on a machine, or (`always`: these alone) any day would;
    in words."""
    limits = [one for one in limits_of(plan) if one.below is not None or not always]
    found = [(limit, trouble(limit, machine) or _uncounted(limit, plan)) for limit in limits]
    return [f"{words} ({limit.source})" for limit, words in found if words]


def _uncounted(limit: Limit, plan: Plan) -> str:
    """A host process has no control group of its own to count in."""
    spec = plan.services.get(limit.of)
    counted = limit.metric in ("service.oom_kills", "service.restarts")
    if not counted or spec is None or not isinstance(spec.runs, ProcessSpec):
        return ""
    return f"{limit.metric} of {limit.of}: counted for containers only, it is a host process"


def make(context: Context, plan: SealedPlan) -> Sheet:
    """The sheet as things are now; `plan` is the run's sealed one."""
    run, made = context.run, context.plan
    base = plan.baseline
    return Sheet(
        run_id=run.id,
        run_dir=str(run.path),
        ring=f"{PREFIX}{os.getuid()}.{run.id}.ring",
        limits=tuple(_looked_at(one) for one in limits_of(made)),
        envelope=by_uuid(predicted(context.view), context.view),
        spare=tuple(dict.fromkeys(one for one in (base.container_id, *plan.protected) if one)),
        spare_pids=tuple(spared(plan)),
        engine=plan.engine.socket,
        gpus=plan.gpus,
        disks=tuple(dict.fromkeys(str(path) for path in disks(made))),
        logs={name: str(run.log(name)) for name in made.services},
        runner=(os.getpid(), process.start_time(os.getpid()) or 0),
        lease_s=lease_of(made, context.meta.lease_s),
    )


def write(sheet: Sheet) -> None:
    """Write it where the sentinel reads it. Raises OSError."""
    sheet.directory.mkdir(mode=0o700, exist_ok=True)
    text = json.dumps(sheet.to_json(), indent=1) + "\n"
    sealed.write_atomically(sheet.directory / sheets.SHEET, text, 0o600)


def spared(plan: SealedPlan) -> Iterator[tuple[int, int]]:
    """(pid, start) of a baseline that is a host process, as it is recorded now."""
    if plan.baseline.kind == "process":
        found = process.read_record(plan.records_dir, plan.baseline.name)
        if found is not None:
            yield found


def _looked_at(limit: Limit) -> Limit:
    """A directory that a download makes is on the disk of the one above it."""
    if limit.metric != "disk.free" or not limit.of:
        return limit
    return replace(limit, of=str(existing(Path(limit.of))))


def disks(plan: Plan) -> Iterator[Path]:
    """Where a full disk would hurt: the console's state, inputs that are paths, downloads. Each is
    there, or the directory above it is told."""
    yield existing(paths.state_dir())
    declared = plan.playbook.model.inputs
    for name, value in plan.playbook.inputs.items():
        if declared[name].type == "path":
            yield existing(Path(str(value)))
    yield from (existing(path) for path in _downloads(plan))
    for limit in limits_of(plan):
        if limit.metric == "disk.free" and limit.of:
            yield existing(Path(limit.of))


def made_later(plan: Plan, path: Path) -> bool:
    """Whether a step of the plan downloads to this directory, or above it."""
    return any(path == one or one in path.parents for one in _downloads(plan))


def _downloads(plan: Plan) -> Iterator[Path]:
    for planned in plan.steps:
        if planned.step is not None and planned.step.download is not None:
            to = plan.playbook.base / Path(planned.step.download.to).expanduser()
            yield Path(os.path.abspath(to))


def existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that is there."""
    for one in (path, *path.parents):
        if os.path.lexists(one):
            return one
    return Path("/")


def predicted(view: RunView) -> Envelope:
    """What the newest checkpoint step foresaw, where its verdict lets a load begin."""
    for step in reversed(list(view.envelopes)):
        verdict = next((v for v in reversed(view.verdicts) if v.step == step), None)
        words = {row.get("metric") for row in verdict.criteria} if verdict is not None else set()
        if words & HOLDS:
            try:
                return Envelope.from_json(view.envelopes[step])
            except ValueError:
                continue
    return Envelope()


def by_uuid(envelope: Envelope, view: RunView) -> Envelope:
    """Cards by UUID, which is how the sentinel sees them; unknown names stay as they are."""
    from console.render.report.memory import card_names

    uuids = {name: uuid for uuid, name in card_names(view).items() if uuid}
    points = tuple(
        replace(one, vram=tuple((uuids.get(name, name), size) for name, size in one.vram))
        for one in envelope.points
    )
    return Envelope(points)
