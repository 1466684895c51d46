"""The guard config of a run, and a check of its limits against the machine before the run starts.

A limit that is passed already would kill as soon as something of the run is alive, an outage for
nothing. The check reads and decides with the sentinel's own code. Limits on a load (its log, its
memory) cannot be checked before there is a load.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import paths
from console.common.clock import Clock, SystemClock
from console.common.errors import EngineTimeout, ServiceError
from console.common.files import write_atomically
from console.common.text import one_line
from console.config.site.guard import trouble
from console.host import process, units
from console.host.gpu.figures import GpuReport
from console.host.gpu.inventory import ASK_S
from console.host.machine import disk_free
from console.host.process import ProcessSpec
from console.host.sample import Machine
from console.models.sizing.assessment import Verdict
from console.models.sizing.load_curve import Envelope
from console.recovery.guard import config as guard_config
from console.recovery.guard.config import NOTHING_PREDICTED, GuardConfig, Limit, defaults
from console.recovery.guard.metrics import METRICS, OF_CARD
from console.recovery.guard.observe import snapshot as readings
from console.recovery.guard.record.recorder import PREFIX
from console.runner.prepare.plan import Plan
from console.runner.slurm.ticket import allocation_of

if TYPE_CHECKING:
    from console.journal.run_view import RunView
    from console.recovery.guard.decide.limit_state import LimitState, Metrics
    from console.recovery.rollback.sealed_plan import SealedPlan
    from console.runner.context import Context


HOLDS = frozenset({Verdict.GO, Verdict.STREAMING, Verdict.TIGHT})
"""Verdicts with a prediction that a load may be held to."""

SAMPLE_S, PAUSE_S = 1.2, 0.05
"""Some metrics are read for SAMPLE_S, and count only if passed for SAMPLED_FOR_S."""
SAMPLED_FOR_S = 0.5
BESIDE = "while the baseline serves"


def limits_of(plan: Plan) -> tuple[Limit, ...]:
    """Return the limits of the site and those that the playbook adds. Their paths are relative to
    the file that names them. The console's default limits come with the sentinel."""
    return tuple(
        _with_path(guard, partial(_below, file.base))
        for file in (plan.site, plan.playbook) for guard in file.guards
    )  # fmt: skip


def _below(base: Path, path: Path) -> Path:
    return Path(os.path.abspath(base / path.expanduser()))


def _with_path(limit: Limit, place: Callable[[Path], Path]) -> Limit:
    """Return a limit on the disk of a path with that path placed; any other as it is."""
    if limit.metric != "disk.free" or not limit.of:
        return limit
    return replace(limit, of=str(place(Path(limit.of))))


def lease_of(plan: Plan, given: float | None) -> float:
    """Return the lease in seconds, 0.0 for none: that of the command line, else the playbook's,
    else the site's."""
    wanted = (given, plan.playbook.model.lease, plan.site.model.lease)
    return next((lease for lease in wanted if lease is not None), 0.0)


def misfits(plan: Plan, machine: Machine, *, always: bool = False) -> list[str]:
    """Return in words the limits that nothing can breach on this machine, or that are always
    breached (`always`: only these)."""
    limits = [limit for limit in limits_of(plan) if limit.below is not None or not always]
    faults = [(limit, trouble(limit, machine) or _uncounted(limit, plan)) for limit in limits]
    return [f"{words} ({limit.source})" for limit, words in faults if words]


def _uncounted(limit: Limit, plan: Plan) -> str:
    """Return in words that a limit counts what is only counted for containers."""
    spec = plan.services.get(limit.of)
    counted = limit.metric and METRICS[limit.metric].of_containers
    if not counted or spec is None or not isinstance(spec.runs, ProcessSpec):
        return ""
    return f"{limit.metric} of {limit.of}: counted for containers only, it is a host process"


def make(context: Context, plan: SealedPlan) -> GuardConfig:
    """Return the guard config for the current state; `plan` is the run's sealed plan."""
    run, made = context.run, context.plan
    base = plan.baseline
    running, held = _of_baseline(plan), allocation_of(run)
    return GuardConfig(
        run_id=run.id,
        run_dir=str(run.path),
        ring=f"{PREFIX}{os.getuid()}.{run.id}.ring",
        # a directory that a download makes is on the disk of the one above it
        limits=tuple(_with_path(limit, existing) for limit in limits_of(made)),
        envelope=by_uuid(predicted(context.view), context.view),
        spare=tuple(dict.fromkeys(name for name in (base.container_id, *plan.protected) if name)),
        spare_pids=(running,) if running is not None else (),
        engine=plan.engine.socket,
        gpus=plan.gpus,
        disks=tuple(dict.fromkeys(str(path) for path in disks(made))),
        logs={name: str(run.log(name)) for name in made.services},
        runner=(os.getpid(), process.start_time(os.getpid()) or 0),
        lease_s=lease_of(made, context.meta.lease_s),
        holder=(held.pid, held.start) if held is not None else (0, 0),
    )


def _of_baseline(plan: SealedPlan) -> tuple[int, int] | None:
    """Pid and start time of the baseline's own first process, if it is known and no container's."""
    base = plan.baseline
    if base.kind == "process":
        return process.read_record(plan.records_dir, base.name)
    if base.unit is not None:
        with contextlib.suppress(ServiceError):
            main = units.look(base.unit).main
            start = process.start_time(main) if main else None
            return (main, start) if start is not None else None
    return None


def write(config: GuardConfig) -> None:
    """Write the guard config where the sentinel reads it. Raises OSError."""
    config.directory.mkdir(mode=0o700, exist_ok=True)
    text = json.dumps(config.to_json(), indent=1) + "\n"
    write_atomically(config.directory / guard_config.CONFIG_FILE, text, 0o600)


def disks(plan: Plan) -> Iterator[Path]:
    """Yield the paths where a full disk would do harm: the console's state, inputs that are paths,
    downloads, disk limits. For a missing path the nearest existing directory above it is given."""
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
    """Return whether a step of the plan downloads to this directory, or above it."""
    return any(path == target or target in path.parents for target in _downloads(plan))


def _downloads(plan: Plan) -> Iterator[Path]:
    for planned in plan.steps:
        if planned.step is not None and (directory := planned.step.content.makes):
            yield _below(plan.playbook.base, Path(directory))


def existing(path: Path) -> Path:
    """Return the path itself, or the nearest existing directory above it."""
    return next(
        (candidate for candidate in (path, *path.parents) if os.path.lexists(candidate)), Path("/")
    )


def predicted(view: RunView) -> Envelope:
    """Return the prediction of the newest checkpoint step whose verdict lets a load begin."""
    for step, known in reversed(view.measured.items()):
        verdict = next((v for v in reversed(view.verdicts) if v.step == step), None)
        words = {row.get("metric") for row in verdict.criteria} if verdict is not None else set()
        if known.envelope and words & HOLDS:
            try:
                return Envelope.from_json(known.envelope)
            except ValueError:
                continue
    return Envelope()


def by_uuid(envelope: Envelope, view: RunView) -> Envelope:
    """Return a prediction with GPUs named by UUID, as the sentinel knows them, where known."""
    from console.render.report.memory import card_names

    uuids = {name: uuid for uuid, name in card_names(view).items() if uuid}
    points = tuple(
        replace(point, vram=tuple((uuids.get(name, name), size) for name, size in point.vram))
        for point in envelope.points
    )
    return Envelope(points)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a limit now, with the value and the place where the limit is written.
    `stops` means that no run starts: the limit would kill at once, or watch nothing."""

    words: str
    stops: bool


def findings(
    plan: Plan, *, given_back: int | None = None, clock: Clock | None = None,
    root: Path = Path("/"), nvml_s: float = ASK_S,
) -> list[Finding]:  # fmt: skip
    """Return what is wrong now with a plan's limits; this takes a moment. `given_back` is how many
    bytes of RAM the baseline returns when it stops, None if not known; it counts only if the plan
    stops the baseline."""
    limits = [
        limit for limit in limits_of(plan) if limit.metric and METRICS[limit.metric].before_run
    ]
    if not limits:
        return []
    on_cards = any(limit.metric.startswith("gpu.") for limit in limits)
    cards = read_cards(nvml_s) if on_cards else GpuReport(0.0)
    back = given_back or 0 if plan.takes_down else 0
    snapshots = list(_snapshots(plan, limits, cards, back, clock or SystemClock(), root))
    uuids = tuple(gpu.uuid for gpu in plan.site.model.gpus)
    sure = not plan.takes_down or given_back is not None
    checked = [
        _no_such_subject(limit, plan, cards)
        or _finding(limit, *_state_after(limit, snapshots, uuids), plan, sure)
        for limit in limits
    ]
    return [finding for finding in checked if finding is not None]


def _no_such_subject(limit: Limit, plan: Plan, cards: GpuReport) -> Finding | None:
    """Return a finding for a missing GPU or directory, on which the guard would watch nothing."""
    kind, of, where = limit.metric.partition(".")[0], limit.of, _where(limit)
    if kind == "disk" and of and not os.path.lexists(of) and not made_later(plan, Path(of)):
        words = f"{limit.metric} of {one_line(of, 200)}: there is no such directory{where}"
        return Finding(words, limit.act == "kill")
    known = [gpu.uuid for gpu in cards.gpus]
    lost = known and not any(uuid.startswith(of) for uuid in known)
    if kind == "gpu" and of not in OF_CARD and lost:
        words = f"{limit.metric} of {one_line(of, 80)}: no such card; there is {', '.join(known)}"
        return Finding(words + where, limit.act == "kill")
    return None


def _finding(
    limit: Limit, state: LimitState, metrics: Metrics, plan: Plan, sure: bool
) -> Finding | None:
    kills = limit.act == "kill"
    if state.value is None:
        unknown = state.unknown or _lacking(limit, state, metrics)
        if not unknown:
            return None
        counts = limit.missing == "breach"
        what = ", which counts as breached (`missing: breach`)" if counts else ": it guards nothing"
        return Finding(f"{unknown}{what}{_where(limit)}", kills and counts)
    if not state.fired:
        return None
    held = plan.takes_down and limit.metric.startswith("gpu.")
    beside = held or (not sure and limit.metric.startswith("host."))
    words = f"{state.words(metrics)}: {'breached now' if kills else 'it warns now'}"
    return Finding(f"{words}, {BESIDE}" if beside else words, kills and not beside)


def _lacking(limit: Limit, state: LimitState, metrics: Metrics) -> str:
    """Return in words what this machine does not have at all (swap), which no grace period changes;
    "" for what only takes time."""
    reading = state.read(metrics)
    waits = reading is None or reading.value is not None or _sampled(limit)
    return "" if waits or reading is None else f"{state.name}: {reading.why}"


def _sampled(limit: Limit) -> bool:
    return METRICS[limit.metric].before_run == "sampled"


def _where(limit: Limit) -> str:
    return f" ({limit.source})" if limit.source else ""


def _state_after(
    limit: Limit, snapshots: list[readings.Snapshot], uuids: tuple[str, ...]
) -> tuple[LimitState, Metrics]:
    """Return the state of the limit after these snapshots."""
    from console.recovery.guard.decide.forecast import Forecast
    from console.recovery.guard.decide.limit_state import LimitState, Metrics

    memory = next((snapshot.memory for snapshot in snapshots if snapshot.memory is not None), None)
    default_limits = defaults(memory.total if memory else 0, memory.swap_total if memory else 0)
    metrics = Metrics(Forecast(default_limits, NOTHING_PREDICTED), uuids)
    held = min(limit.for_s, SAMPLED_FOR_S) if _sampled(limit) else 0.0
    state = LimitState(replace(limit, for_s=held, scarce=0), 0)
    for snapshot in snapshots:
        metrics.take(snapshot)
        state.update(metrics)
    return state, metrics


def _snapshots(
    plan: Plan, limits: list[Limit], cards: GpuReport, back: int, clock: Clock, root: Path
) -> Iterator[readings.Snapshot]:
    """Yield one snapshot, or many over SAMPLE_S if a metric needs time."""
    from console.recovery.guard.observe.memory import MemoryCollector
    from console.recovery.guard.observe.service_memory import ServiceMemoryCollector

    fast, slow = MemoryCollector(root), ServiceMemoryCollector(root)
    begun = clock.monotonic()
    until = begun + SAMPLE_S if any(map(_sampled, limits)) else begun
    needs_disks = any(limit.metric == "disk.free" for limit in limits)
    free = _disks(plan, begun) if needs_disks else ()
    swap = slow.swap(begun)
    try:
        while True:
            now = clock.monotonic()
            memory = fast.read(now)
            if memory is not None:
                memory = memory._replace(available=min(memory.total, memory.available + back))
            if now >= until and until > begun:
                swap = slow.swap(now)
            yield readings.Snapshot(
                now, memory, swap,
                tuple(readings.GpuReading(gpu, now) for gpu in cards.gpus), cards.trouble,
                tuple(replace(disk, at=now) for disk in free), why=fast.why,
            )  # fmt: skip
            if now >= until:
                return
            clock.sleep(PAUSE_S)
    finally:
        fast.close()
        slow.close()


def read_cards(seconds: float) -> GpuReport:
    """What the sentinel's reader reports of the cards, within so many seconds."""
    from console.host.sampler import look_once

    silent = GpuReport(0.0, (), f"NVML has not answered for {seconds:g} s")
    return look_once((), seconds).gpu or silent


def held_by(pid: int) -> int | None:
    """Return the bytes of RAM that are freed when a server and its children end; None if they
    cannot be read. Pages of files count only if they are locked, because the others are available
    anyway."""
    from console.recovery.guard.observe.memory import field

    total = 0
    group = [member.pid for member in process.members(pid, process.start_time(pid) or 0)]
    for member_pid in group or [pid]:
        try:
            text = Path(f"/proc/{member_pid}/status").read_bytes()
        except OSError:
            return None
        total += sum(field(text, name) or 0 for name in (b"RssAnon:", b"RssShmem:", b"VmLck:"))
    return total * 1024 or None


def _disks(plan: Plan, at: float) -> tuple[readings.Disk, ...]:
    disk_readings = []
    for path in dict.fromkeys(disks(plan)):
        try:
            disk_readings.append(readings.Disk(str(path), at, disk_free(path)))
        except (OSError, EngineTimeout) as error:
            words = error.strerror if isinstance(error, OSError) else str(error)
            disk_readings.append(readings.Disk(str(path), at, None, one_line(words or "no figure")))
    return tuple(disk_readings)
