"""Takes over a server that runs already: from then on the console knows it as its baseline.

A process gets the record that a start would have left: pid, start time, boot and specification. By
this record a run stops it, and a rollback finds it. Nothing is started, stopped or signalled here.
"""

from __future__ import annotations

import contextlib
import os
import time

from console.common import paths
from console.common.errors import ServiceError, UsageError
from console.common.logs.output import of_process
from console.common.text import one_line
from console.config.site.draft import missing_values, variables, where_to_write, without_secrets
from console.config.site.site import Site
from console.host import licence, process
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.recovery.rollback import evidence, observe
from console.recovery.rollback import records as pointers
from console.recovery.rollback.baseline_state import Witness
from console.render.effects import service_words
from console.runner.prepare import baseline, namesakes, seal
from console.runtime import proxy
from console.runtime.answers.completion import Completion
from console.runtime.discovery import adoption, processes
from console.runtime.discovery.processes import Running
from console.runtime.discovery.servers import user_name
from console.runtime.discovery.supervisors import parent_of
from console.runtime.docker.client import connect


class CannotAdopt(UsageError):
    """What runs cannot be taken over as the baseline; nothing was changed."""

    def __init__(self, why: str, hint: str = adoption.AGAIN) -> None:
        super().__init__("nothing was taken over", why, hint)


def adopt(site: Site, running: Running) -> list[str]:
    """Record a process as the site's baseline; return in clean words what the operator has to know
    about it. Raises CannotAdopt, UsageError where another site has its name, and ServiceError if
    the record cannot be written."""
    runs = _process_of(site)
    namesakes.refuse(site)
    url = site.model.baseline.url
    why, hint = adoption.refusal(runs, running, url)
    if why.startswith(adoption.DIFFERS) and (lacking := _secrets_of(runs, running)):
        why, hint = lacking[0], where_to_write(lacking[1], site.path)
    if why:
        raise CannotAdopt(f"pid {running.pid}: {why}", hint)
    records = paths.records_dir(site.name)
    recorded = process.known(records, "baseline", runs, BASELINE_COOKIE)
    if recorded is not None and recorded != (running.pid, running.start):
        raise CannotAdopt(
            f"pid {recorded[0]} is the baseline already, and runs",
            f"omni-console init --pick {running.pid} --output FILE writes a site of its own for "
            f"pid {running.pid}",
        )
    if not process.alive(running.pid, running.start):
        raise CannotAdopt(f"pid {running.pid} has just ended", "omni-console init looks again")
    _of_no_run(running, site)
    before = process.read_record(records, "baseline")
    try:
        process.write_record(records, "baseline", runs, running.pid, running.start, site.owner)
        others = licence.hand_over(running.pid, running.start, site.name)
    except OSError as error:
        where = one_line(str(error.filename or records))
        raise ServiceError("its record cannot be written", f"{where}: {error.strerror}") from error
    set_log_aside(site.name, running.pid)
    remarks = [f"it was the baseline of site {one_line(name, 60)} until now" for name in others]
    if before is not None and before != (running.pid, running.start):
        remarks.append(_left_alone(f"pid {before[0]}"))
    return [*remarks, *notes(running, runs)]


def _of_no_run(running: Running, site: Site) -> None:
    """Raise CannotAdopt for another site's baseline while a run of this user may stop it."""
    owners = {holder.site for holder in licence.baselines() if holder.pid == running.pid} - {
        site.name
    }
    live = pointers.read(os.getuid())
    if owners and live is not None and process.alive(live.pid, live.start):
        raise CannotAdopt(
            f"pid {running.pid} is the baseline of site {', '.join(sorted(owners))}, and run "
            f"{live.run_id} is on", "adopt it when that run is over",
        )  # fmt: skip


def earlier(before: Site, now: Site) -> str:
    """What becomes of the baseline of a site file that was replaced, in clean words; "" if it is
    the same one, or does not run. Of two processes `adopt` says it."""
    old, new = before.baseline_spec().runs, now.baseline_spec().runs
    if old == new or (isinstance(old, ProcessSpec) and isinstance(new, ProcessSpec)):
        return ""
    if isinstance(old, ProcessSpec):
        recorded = process.read_record(paths.records_dir(before.name), "baseline")
        return _left_alone(f"pid {recorded[0]}") if recorded else ""
    return _left_alone(", ".join(service_words(before.baseline_spec())))


def _left_alone(what: str) -> str:
    return (
        f"{what}, the baseline until now, is left alone: it goes on serving, and neither a run nor "
        "a rollback ends it or brings it back"
    )


def cut_overs_beside(url: str, replaced: str = "") -> list[str]:
    """What becomes of each cutover whose clients are at another address than a new baseline's, in
    clean words. `replaced`: the site file that is about to be written over."""
    others = pointers.cut_overs(besides=url)
    return [
        cut.words(os.path.realpath(replaced) if replaced else "") for cut in others if cut.lives
    ]


def set_log_aside(site_name: str, pid: int) -> None:
    """Give the log of whatever the console started under this name before another one, unless this
    process writes to it: what an earlier server said is no word of this one."""
    log = paths.baseline_log(site_name)
    if of_process(pid).path != log:
        with contextlib.suppress(OSError):
            os.replace(log, f"{log}.before")


def is_adopted(site: Site, running: Running) -> bool:
    """Whether the console knows this very process as the site's baseline, and as no other's."""
    if any(
        holder.pid == running.pid and holder.site != site.name for holder in licence.baselines()
    ):
        return False
    runs, records = site.baseline_spec().runs, paths.records_dir(site.name)
    if not isinstance(runs, ProcessSpec):
        return False
    known = process.known(records, "baseline", runs, BASELINE_COOKIE)
    return known == (running.pid, running.start)


def at_its_address(site: Site) -> Running:
    """The process that answers at the baseline's address. Raises CannotAdopt if there is none, or
    several that have nothing to do with each other."""
    url = site.model.baseline.url
    other = proxy.at(url)
    if other is not None:
        raise CannotAdopt(
            f"{one_line(other.service)} answers at {url}, by a cutover",
            "omni-console rollback ends it and brings the baseline back",
        )
    first = adoption.first_at(url)
    if len(first) > 1:
        which = ", ".join(map(str, first))
        hint = adoption.advice(site.baseline_spec().runs, url)
        raise CannotAdopt(f"several processes answer at {url}: {which}", hint)
    server = processes.read(first[0]) if first else None
    if server is None:
        raise CannotAdopt(
            f"nothing that this user may look at listens at {url}",
            "omni-console rollback starts the baseline from the site file; "
            "omni-console init --list shows what serves here",
        )
    return server


def _secrets_of(runs: ProcessSpec, running: Running) -> tuple[str, list[str]] | None:
    """Why the site file starts something else if its secret values are all that is missing or
    different, and the flags of these. `init` has left them out, and would again."""
    words = adoption.words_told(runs, running) or running.argv[1:]
    (ours, _), (theirs, left) = without_secrets(runs.argv), without_secrets((runs.argv[0], *words))
    if not left or ours[1:] != theirs[1:]:
        return None
    missing = [flag for flag in left if not any(word.startswith(flag) for word in runs.argv)]
    if missing:
        return f"{missing_values(missing)} in the site file", missing
    return f"it was started with another value of {', '.join(left)} than the site file has", left


def notes(running: Running, runs: ProcessSpec) -> list[str]:
    """What may surprise about a process that somebody else started, in clean words."""
    remarks = []
    values, secret = variables(running)
    lacking = sorted({*values, *secret} - dict(runs.env).keys())
    if lacking:
        which = ", ".join(one_line(name, 60) for name in lacking[:8])
        remarks.append(
            f"a rollback starts it without {which}{' …' if len(lacking) > 8 else ''}, which it was "
            "started with and `env` in the site file lacks"
        )
    if running.terminal:
        remarks.append(
            "it ends when its terminal closes, because it was started without nohup; "
            "`omni-console rollback` then starts it again"
        )
    if running.uid != os.getuid():
        remarks.append(f"a rollback starts it as {one_line(user_name(os.getuid()), 40)}, and no "
                     f"longer as {one_line(user_name(running.uid), 40)}")  # fmt: skip
    parent = parent_of(running.pid)
    if parent is not None:
        remarks.append(
            f"its parent, pid {parent.pid} ({parent.words}), goes on when a run stops it: if that "
            "starts it again, two engines are loaded"
        )
    outside = processes.outside(running)
    if outside:
        more = ", ".join(map(str, outside[:5])) + (" …" if len(outside) > 5 else "")
        remarks.append(
            f"a stop reaches pid {running.pid} alone, and not what it started outside of its "
            f"process group (pid {more}): that has to end with it"
        )
    return remarks


def prove(site: Site) -> Completion:
    """One completion of the baseline, kept as its newest proof. Raises BaselineNotReady."""
    done = baseline.prove(site, Witness.ADOPT)
    baseline.remember(seal.site_plan(site), done, Witness.ADOPT)
    return done


def remember_garbage(site: Site, words: str) -> None:
    """Keep that a measurement of the baseline got garbage, as its newest evidence."""
    plan = seal.site_plan(site)
    seen = evidence.of_benchmark(None, words, time.time(), None, 0.0)
    with contextlib.suppress(OSError):
        if seen is not None and observe.answers(plan, known=False):
            evidence.record(plan, seen)


def named(site: Site) -> tuple[set[str], str]:
    """The names of a baseline that is a container or a unit, and what it is in clean words. Raises
    BaselineNotReady if it is not there, or could not be brought back."""
    facts = baseline.facts(site, lambda: connect(site.model.engine.host or None))
    if facts.unit is not None:
        return {facts.unit.name, facts.unit.name.removesuffix(".service")}, facts.unit.words
    identity, name = facts.container_id, facts.container_name
    return {identity, identity[:12], name}, f"container {one_line(name, 60)}"


def _process_of(site: Site) -> ProcessSpec:
    runs = site.baseline_spec().runs
    if not isinstance(runs, ProcessSpec):
        raise CannotAdopt(
            "the site file's baseline is no process: the console knows it by its name, and nothing "
            "has to be taken over"
        )
    return runs
