"""Stage stop ends every candidate, first gracefully and then by force.

Candidates are looked for in live.jsonl, in the plan, and by the labels of running containers, since
each of the three may miss some. The baseline and protected names are never touched, and nothing is
removed.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable

from console.common.errors import EngineError, EngineTimeout, ServiceError
from console.common.patterns import lazy
from console.common.units import format_duration
from console.host import licence, process
from console.host.licence import Licence, Reason, Refused
from console.host.memory import kill_wait_s, pids_of_container, resident
from console.recovery.rollback.context import (
    MISSING,
    RollbackContext,
    in_thread,
    join_all,
    run_all,
)
from console.recovery.rollback.live import Live
from console.recovery.rollback.observe import is_up
from console.recovery.rollback.sealed_plan import SealedPlan
from console.recovery.rollback.stages import drain, fence, left
from console.recovery.rollback.stages.labels import (
    is_of_image,
    is_of_live_run,
    labels_by_command,
    labels_of_image,
)
from console.recovery.rollback.stages.left import Survivor
from console.runtime import proxy as relay
from console.runtime.engine_api import EngineRefused, NoSuchContainer, RawEngine
from console.runtime.root_helper import helper_is_there, kill_by_helper
from console.runtime.spec import OWNER_LABEL, RUN_LABEL, SERVICE_LABEL, is_of_another, role_label

ROLES = ("candidate", "oneoff")
ENGINE_RETRY_S = 2.0
ENGINE_WAIT_S = 60.0
"""Seconds of the wait for an engine that does not answer that this stage takes at most."""
AWAY_CALL_S = 0.3
LEEWAY_S = 5.0
"""Seconds beyond the grace and the wait after a kill, for what those leave behind."""
GONE_S = 20.0
COMMAND_EXTRA_S = 10.0
"""Seconds beyond the grace for the docker command to stop containers."""
TERM_AFTER_S = 2.0
"""Seconds that an engine has to send SIGTERM to a container before it gets one from here."""
GRACE_EXTRA_S = 1.0
"""Seconds beyond the grace for the engine to stop a container itself, and to notice its end."""
STEP_S = 0.05
FULL_ID = lazy(r"[0-9a-f]{64}")
"""A name, or a part of an id, may stand in the paths of anybody's control groups."""
SUDO = "this user may not signal it: `sudo omni-console rollback` may"
HUNG_KILL_S = 2.0
"""Seconds to kill a container that hangs inside the engine, besides those that its memory takes."""


def stop(context: RollbackContext) -> None:
    """End candidate processes and containers in parallel; without an engine, those that it can."""
    context.report.begin("stop")
    context.no_grace = drain.is_scarce()
    if context.no_grace:
        context.report.note("stop", "RAM is nearly full: candidates are killed at once")
    for cut in context.elsewhere:
        context.report.note("stop", cut.words())
    before, failures = context.stopped, len(context.failures)
    context.available = drain.available()
    groups = _process_groups(context)
    context.groups += groups
    for group, why in groups.items():
        context.report.note("stop", f"ending pid {group[0]}{_called(context, group)}: {why.reason}")
    holding = resident(member.pid for group in groups for member in context.members(*group))
    context.count_held(holding)
    limit_s = context.grace_s + kill_wait_s(holding) + LEEWAY_S
    worker = in_thread(lambda: _stop_processes(context, groups, limit_s))
    _end_containers(context)
    if worker is not None and not join_all([worker], limit_s):
        context.fail(
            "stop", f"processes of the run have not ended after {format_duration(limit_s)}"
        )
    if len(context.failures) > failures:
        return
    ended = context.stopped - before
    if ended:
        context.report.ok("stop", f"{ended} candidate{'s' if ended > 1 else ''} stopped")
    else:
        context.report.skipped("stop", "no candidate runs")


def sweep(context: RollbackContext, when: str) -> None:
    """Look for candidates by label again: a start may have been under way when the runner died."""
    engine = context.engine
    if engine is None:
        return
    if context.engine_away:
        engine = RawEngine(engine.path, AWAY_CALL_S)
    try:
        targets = {
            c: why for c, why in _by_label(context, engine).items() if c not in context.containers
        }
    except EngineError:
        return  # the stages before and after this ask the engine too, and report its error
    if targets:
        context.report.note("stop", f"{len(targets)} late candidate(s) found {when}")
        _stop_containers(context, engine, targets)


def _candidate_processes(context: RollbackContext, spared: set[int]) -> list[Live]:
    return [
        e for e in context.live
        if e.kind == "process" and e.pid and not context.may_stay(e.name) and e.pid not in spared
    ]  # fmt: skip


def _process_groups(context: RollbackContext) -> dict[tuple[int, int], Licence]:
    """(pid, start time) of the live host processes to stop, each with the licence to do so. One
    that is on record, but has no licence, is named and left alone."""
    spared = context.spared()
    relays = relay.all_at(context.plan.baseline.url)
    groups = {
        (relay_process.pid, relay_process.start): context.licence(Reason.RELAY)
        for relay_process in relays
    }
    for e in _candidate_processes(context, spared):
        groups.setdefault((e.pid, e.start), context.licence(Reason.CANDIDATE))
    for candidate in context.plan.candidates:
        if candidate.kind == "process" and not context.may_stay(candidate.service):
            # A process that an earlier run left behind is not in this run's live.jsonl.
            # Nor is one that another site of this name has started.
            records = context.plan.records_dir
            recorded = process.read_record(records, candidate.service)
            theirs = process.owner_of(records, candidate.service).is_other(context.plan.owner)
            if recorded and not theirs:
                groups.setdefault(recorded, context.licence(Reason.EARLIER))
    covered = {}
    for group, why in groups.items():
        if group[0] in spared or not context.members(*group):
            continue
        if refused := licence.refusal(why, *group):
            context.report.note("stop", f"pid {group[0]} is left alone: {refused}")
        else:
            covered[group] = why
    return covered


def _called(context: RollbackContext, group: tuple[int, int]) -> str:
    """The name of a recorded process, with a comma before it."""
    name = next((e.name for e in context.live if (e.pid, e.start) == group), "")
    return f", {name}" if name else ""


def _stop_processes(
    context: RollbackContext, groups: dict[tuple[int, int], Licence], limit_s: float
) -> None:
    run_all([_process_task(context, *entry) for entry in groups.items()], limit_s)
    spared = context.spared()
    # A process that left its session, parents and environment is still in its control group.
    for e in _candidate_processes(context, spared):
        why = context.licence(Reason.CANDIDATE)
        left = licence.end_cgroup(why, e.group, e.pid, e.start, spared)
        if left:
            context.count_ended([(e.pid, e.start)])
            context.report.note("stop", f"ended {left} process(es) that pid {e.pid} left behind")


def _process_task(
    context: RollbackContext, group: tuple[int, int], why: Licence
) -> Callable[[], None]:
    def task() -> None:
        try:
            if context.stop_group(why, *group, context.grace_s):
                context.count_ended([group])
        except ServiceError as error:
            context.fail("stop", str(error))

    return task


def _end_containers(context: RollbackContext) -> None:
    """Stop containers through the engine. While it does not answer, report that and retry."""
    engine = context.engine
    if engine is None:
        if context.uses_engine:
            _stop_by_command(context)
        return
    deadline = context.clock.monotonic() + ENGINE_WAIT_S
    while True:
        try:
            _stop_containers(context, engine, _targets(context, engine))
            context.engine_answers()
            return
        except EngineRefused as error:
            context.fail("stop", str(error))
            return
        except EngineError as error:
            if context.engine_is_missing(engine):
                _end_without_engine(context)
                context.fail("stop", f"{error}; {MISSING}")
                return
            if _knows_no_container(context) and not isinstance(error, EngineTimeout):
                context.report.note("stop", f"{error}; no candidate container is on record")
                return
            left_s = min(context.engine_left_s(), deadline - context.clock.monotonic())
            asks_again = context.report_engine_away("stop", error, left_s)
            context.engine_away = True
            if context.plan.baseline.kind != "container":
                _end_without_engine(context)
                if not _containers_run(context):
                    break
            if left_s <= ENGINE_RETRY_S or not asks_again:
                break
            context.clock.sleep(ENGINE_RETRY_S)
    _end_without_engine(context)
    if context.plan.baseline.kind == "container":
        _stop_by_command(context)
    else:
        context.fail("stop", "candidate containers could not be looked for: no engine answers")


def _end_without_engine(context: RollbackContext) -> None:
    ended, containers = fence.end_contained(context)
    if ended:
        context.count_ended(containers)
        context.report.note("stop", f"ended {ended} process(es) of containers, without the engine")
    recorded = dict.fromkeys(_recorded(context))
    left = [word for word in recorded if FULL_ID.fullmatch(word) and _lives(word)]
    tasks = [
        _direct_task(context, identity)
        for identity in left
        if not _untouchable(context, identity, "")
    ]
    holding = resident(pid for identity in left for pid in pids_of_container(identity))
    run_all(tasks, context.grace_s + HUNG_KILL_S + kill_wait_s(holding) + LEEWAY_S)


def _direct_task(context: RollbackContext, identity: str) -> Callable[[], None]:
    """End a recorded candidate by the processes in its control group, which need not have the
    run's cookie."""
    why, short = context.licence(Reason.CANDIDATE), identity[:12]

    def task() -> None:
        context.report.note("stop", f"ending container {short} without the engine: {why.reason}")
        context.count_held(resident(pids_of_container(identity)))
        _signal_inside(identity, why, signal.SIGTERM)
        deadline = context.clock.monotonic() + context.grace_s
        while _lives(identity) and context.clock.monotonic() < deadline:
            context.clock.sleep(STEP_S)
        if not _kill_directly(context, None, identity, why):
            context.count_ended([identity])
        elif _all_denied(identity, why):
            context.report.note("stop", f"container {short} still runs; {SUDO}")
        else:
            context.report.note("stop", f"container {short} still runs")

    return task


def _recorded(context: RollbackContext) -> list[str]:
    """The containers of candidates that are on record and are to stop."""
    return [e.container for e in context.live if e.container and not context.may_stay(e.name)]


def _containers_run(context: RollbackContext) -> bool:
    """Whether a candidate's container has processes, which hold memory that the baseline needs.

    The kernel knows this without the engine.
    """
    return any(map(pids_of_container, _recorded(context)))


def lives_on(context: RollbackContext) -> str:
    """The first candidate that was to stop and still runs, in words; "" if there is none."""
    survivor = survivor_of(context)
    return survivor.words if survivor is not None else ""


def survivor_of(context: RollbackContext) -> Survivor | None:
    """The first candidate that was to stop and still runs. The kernel knows this without the
    engine."""
    for group in context.groups:
        if members := context.members(*group):
            first = members[0]
            return Survivor(f"candidate pid {first.pid}", first.pid, first.start)
    for container in dict.fromkeys([*context.containers, *_recorded(context)]):
        if _lives(container) and not _untouchable(context, container, ""):
            return Survivor(f"candidate container {container[:12]}", container=container)
    return next(iter(left.at_candidates(context)), None)


def end_left_over(context: RollbackContext, engine: RawEngine) -> None:
    """End the candidates that an absent engine could not, before the baseline starts.

    Raises EngineError if it is still away.
    """
    targets = _targets(context, engine)
    context.engine_answers()
    if targets:
        context.report.note("start", f"the engine is back; {len(targets)} candidate(s) end first")
        _stop_containers(context, engine, targets)
        drain.memory(context, lives_on(context))


def _knows_no_container(context: RollbackContext) -> bool:
    recorded = [e for e in context.live if e.container and not context.may_stay(e.name)]
    return not has_containers(context.plan) and not recorded


def has_containers(plan: SealedPlan) -> bool:
    """Whether the baseline of this plan, or a candidate, is a container."""
    return plan.baseline.kind == "container" or any(c.kind != "process" for c in plan.candidates)


def _targets(context: RollbackContext, engine: RawEngine) -> dict[str, Licence]:
    """Full ids of the running containers to stop, by label and by the ids that this run recorded,
    each with the licence to do so.

    A name alone is not enough: a container with a candidate's name may be somebody else's. Raises
    EngineError when the engine is away, but not for a single container that it cannot inspect: one
    that hangs inside the engine is killed here without it.
    """
    targets, why = _by_label(context, engine), context.licence(Reason.CANDIDATE)
    for word in dict.fromkeys(_recorded(context)):
        if word in targets:
            continue
        try:
            container = engine.inspect(word)
        except NoSuchContainer:
            continue
        except EngineRefused as error:
            # The engine answers, so only this container is broken; /proc shows whether it runs.
            runs = bool(pids_of_container(word)) and not _untouchable(context, word, "")
            outcome = "ending it" if runs else "nothing of it runs"
            context.report.note("stop", f"container {word[:12]}: {error}; {outcome}")
            targets |= {word: why} if runs else {}
            continue
        except EngineTimeout as error:
            engine.ping()  # raises if the whole engine does not answer
            if not _untouchable(context, word, ""):
                _end_hung(context, engine, word, error)
            continue
        identity, name = str(container.get("Id", "")), str(container.get("Name", "")).lstrip("/")
        if is_up(container) and not _untouchable(context, identity, name):
            targets[identity] = why
    return targets


def _end_hung(
    context: RollbackContext, engine: RawEngine, identity: str, error: EngineTimeout
) -> None:
    """Kill the processes of a container that hangs inside an engine that otherwise answers.

    This is tried only briefly, because the baseline waits. If the container's start is what hangs,
    it may still succeed later.
    """
    short, why = identity[:12], context.licence(Reason.CANDIDATE)
    context.count_held(resident(pids_of_container(identity)))
    ran = _lives(identity)
    left = _kill_directly(context, engine, identity, why)
    if ran and not left:
        context.count_ended([identity])
    words = "it still runs" if left else "it does not run now, but may still start"
    context.fail("stop", f"container {short}: {error}; {words}")


def _kill_directly(
    context: RollbackContext, engine: RawEngine | None, identity: str, why: Licence
) -> bool:
    """Kill the processes of a container without its engine; the engine is asked for what this user
    may not signal. Return whether any of them is left."""
    holding = resident(pids_of_container(identity))
    deadline = context.clock.monotonic() + HUNG_KILL_S + kill_wait_s(holding)
    left = _kill_inside(identity, why)
    if left and _all_denied(identity, why):
        refused = kill_by_helper(why, identity) if helper_is_there() else "no helper is installed"
        if refused and engine is not None:
            context.report.note("stop", f"{identity[:12]}: {refused}; asking the engine to kill it")
            with contextlib.suppress(EngineError):
                engine.kill(why, identity)
    while left and context.clock.monotonic() < deadline:
        context.clock.sleep(0.05)
        left = _kill_inside(identity, why)
    return left


def _lives(identity: str) -> bool:
    """Whether a container has a live process, as the kernel tells."""
    stats = (process.stat(pid) for pid in pids_of_container(identity))
    return any(stat is not None and stat.state not in "ZX" for stat in stats)


def _kill_inside(identity: str, why: Licence) -> bool:
    """Send SIGKILL to the processes of a container, if permitted. Return whether any is alive."""
    _signal_inside(identity, why, signal.SIGKILL)
    return _lives(identity)


def _signal_inside(identity: str, why: Licence, number: int) -> None:
    stats = [stat for pid in pids_of_container(identity) if (stat := process.stat(pid)) is not None]
    for stat in stats:
        with contextlib.suppress(OSError, Refused):
            licence.send(why, stat.pid, stat.start, number)


def _all_denied(identity: str, why: Licence) -> bool:
    """Whether this user may not signal the processes of a container."""
    for pid in pids_of_container(identity):
        with contextlib.suppress(OSError, Refused):
            if licence.send(why, pid, process.start_time(pid) or 0, 0):
                return False
    return True


def _by_label(context: RollbackContext, engine: RawEngine) -> dict[str, Licence]:
    rows = engine.list_containers({role_label(): ""})
    recorded = {e.container for e in context.live}
    return {
        row.id: context.licence(Reason.LABEL)
        for row in rows
        if row.labels.get(role_label()) in ROLES
        and not is_of_another(row.labels.get(OWNER_LABEL, ""), context.plan.labelled_for)
        and not context.may_stay(row.labels.get(SERVICE_LABEL, ""))
        and not _untouchable(context, row.id, row.name)
        and (
            row.id in recorded
            or not is_of_image(context, row.id, labels_of_image(engine, row.image))
        )
        and not is_of_live_run(context, row.id, row.labels.get(RUN_LABEL, ""))
    }


def _untouchable(context: RollbackContext, identity: str, name: str) -> bool:
    base = context.plan.baseline.container_id
    kept = context.is_kept(name) or context.is_kept(identity)
    if site := context.others().get(identity, ""):
        context.report.note(
            "stop", f"container {identity[:12]} is left alone: it is the baseline of site {site}"
        )
        return True
    kept = kept or identity in context.serving_elsewhere()
    return not identity or (bool(base) and identity.startswith(base)) or kept


def _stop_containers(
    context: RollbackContext, engine: RawEngine, targets: dict[str, Licence]
) -> None:
    context.containers += targets
    for identity, why in targets.items():
        name = next((e.name for e in context.live if e.container == identity), "")
        called = f", {name}" if name else ""
        context.report.note("stop", f"stopping container {identity[:12]}{called}: {why.reason}")
    holding = {container: resident(pids_of_container(container)) for container in targets}
    for size in holding.values():
        context.count_held(size)
    longest_wait_s = max(
        (GONE_S + kill_wait_s(resident_bytes) for resident_bytes in holding.values()), default=0.0
    )
    limit_s = context.grace_s + longest_wait_s + 15
    tasks = [_container_task(context, engine, *entry, longest_wait_s) for entry in targets.items()]
    if not run_all(tasks, limit_s):
        context.fail("stop", f"a container is still stopping after {format_duration(limit_s)}")


def _container_task(
    context: RollbackContext, engine: RawEngine, identity: str, why: Licence, gone_s: float
) -> Callable[[], None]:
    short = identity[:12]

    def task() -> None:
        seen = _lives(identity)
        if words := _ask_to_stop(context, engine, identity, why, seen):
            # An engine that hangs on a stop may hang on a kill as well, and answer all else.
            context.report.note("stop", f"{short}: {words}; killing its processes directly")
            if _kill_directly(context, engine, identity, why) or not seen:
                try:
                    engine.kill(why, identity)
                except EngineError as worse:
                    context.report.note("stop", f"{short}: {worse}")
        if _await_gone(context, engine, identity, gone_s, seen):
            context.count_ended([identity])
            return
        denied = seen and _all_denied(identity, why)
        hint = f"; {SUDO}" if denied else ""
        context.fail("stop", f"container {short} still runs{hint}")

    return task


def _ask_to_stop(
    context: RollbackContext, engine: RawEngine, identity: str, why: Licence, seen: bool
) -> str:
    """Have the engine stop a container; return what went wrong, "" if nothing did.

    One whose processes are `seen` need not wait for an engine that hangs: they get a SIGTERM from
    here when the engine has had time to send its own, and their grace ends when it would have.
    """
    errors: list[str] = []

    def ask() -> None:
        try:
            engine.stop(why, identity, context.grace_s)
        except EngineError as error:
            errors.append(str(error))

    asking, waited = in_thread(ask), 0.0
    if asking is None or not seen:
        join_all([asking] if asking else [], context.grace_s + ENGINE_WAIT_S)
        return "".join(errors[:1])
    grace_s, has_signalled = context.grace_s + GRACE_EXTRA_S, False
    while not join_all([asking], STEP_S):
        waited += STEP_S
        if not _lives(identity):
            join_all([asking], GRACE_EXTRA_S)  # the engine notices now, unless it hangs
            return ""
        if waited >= min(TERM_AFTER_S, grace_s) and not has_signalled:
            has_signalled = True
            _signal_inside(identity, why, signal.SIGTERM)
        if waited >= grace_s:
            return "the engine has not stopped it within its grace"
    return "".join(errors[:1])


def _await_gone(
    context: RollbackContext, engine: RawEngine, identity: str, limit_s: float, seen: bool
) -> bool:
    """Wait until a container is down, as its engine says; or, if its processes were `seen` on this
    machine, until none is left: an engine that hangs may not notice."""
    deadline = context.clock.monotonic() + limit_s
    pause = 0.01
    while True:
        try:
            if not is_up(engine.inspect(identity)):
                return True
        except NoSuchContainer:
            return True
        except EngineError:
            pass
        if seen and not _lives(identity):
            return True
        if context.clock.monotonic() >= deadline:
            return False
        context.clock.sleep(pause)
        pause = min(0.5, pause * 1.5)


def _stop_by_command(context: RollbackContext) -> None:
    """Stop containers with the docker command, which may reach an engine that our client cannot."""
    ours = {e.container for e in context.live if e.container and not context.may_stay(e.name)}
    labels = (role_label(), SERVICE_LABEL, OWNER_LABEL, RUN_LABEL)
    marks = "\t".join(f'{{{{.Label "{label}"}}}}' for label in labels)
    argv = ["docker", "ps", "--no-trunc", "--format", "{{.ID}}\t" + marks + "\t{{.Names}}"]
    try:
        targets: dict[str, Licence] = {}
        for line in context.command(argv).splitlines():
            identity, role, service, owner, run, name = [*line.split("\t"), *5 * [""]][:6]
            marked = role in ROLES and not context.may_stay(service)
            marked = marked and not is_of_another(owner, context.plan.labelled_for)
            if marked and identity not in ours:
                own = labels_by_command(context, identity)
                marked = not is_of_image(context, identity, own)
                marked = marked and not is_of_live_run(context, identity, run)
            if (marked or identity in ours) and not _untouchable(context, identity, name):
                reason = Reason.LABEL if marked else Reason.CANDIDATE
                targets[identity] = context.licence(reason)
                why = targets[identity].reason
                context.report.note("stop", f"stopping container {identity[:12]}: {why}")
        if targets:
            stop_by_command(context, targets, context.grace_s)
            context.count_ended(targets)
    except EngineError as error:
        context.fail("stop", f"candidate containers: {error}")


def stop_by_command(context: RollbackContext, targets: dict[str, Licence], grace: float) -> None:
    """Stop containers with the docker command, and kill what it does not end. Raises EngineError
    if one lives on."""
    try:
        argv = ["docker", "stop", "-t", f"{grace:.0f}", *targets]
        context.command(argv, grace + COMMAND_EXTRA_S)
    except EngineError:
        seen = [container for container in targets if _lives(container)]
        left = [
            container
            for container in seen
            if _kill_directly(context, None, container, targets[container])
        ]
        if left or not seen:
            raise
