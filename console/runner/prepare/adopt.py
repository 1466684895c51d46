"""Takes over a server that runs already: from then on the console knows it as its baseline.

A process gets the record that a start would have left: pid, start time, boot and specification. By
this record a run stops it, and a rollback finds it. Nothing is started, stopped or signalled here.
"""

from __future__ import annotations

import os

from console.common import paths, redact
from console.common.errors import ServiceError, UsageError
from console.common.text import one_line
from console.config.site.draft import variables
from console.config.site.site import Site
from console.host import process
from console.host.ports import listeners
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.runner.prepare import baseline, seal
from console.runtime import proxy
from console.runtime.discovery import processes
from console.runtime.discovery.processes import Running
from console.runtime.discovery.servers import unfit_process, user_name
from console.runtime.docker.client import connect
from console.runtime.probe import Completion

AGAIN = "correct the site file, or let `omni-console init --force` write it from what runs"


class CannotAdopt(UsageError):
    """What runs cannot be taken over as the baseline; nothing was changed."""

    def __init__(self, why: str, hint: str = AGAIN) -> None:
        super().__init__("nothing was taken over", why, hint)


def adopt(site: Site, running: Running) -> list[str]:
    """Record a process as the site's baseline; return in clean words what the operator has to know
    about it. Raises CannotAdopt, and ServiceError if the record cannot be written."""
    runs = _process_of(site)
    url = site.model.baseline.url
    why, hint = unfit_process(running)
    why, hint = (why, hint) if why else _of_a_unit(running)
    if not why and (found := difference(runs, running)):
        why, hint = f"it is not what the site file starts: {found}", AGAIN
    if why:
        raise CannotAdopt(f"pid {running.pid}: {why}", hint)
    _answers_there(running, url)
    records = paths.records_dir(site.name)
    recorded = process.known(records, "baseline", runs, BASELINE_COOKIE)
    if recorded is not None and recorded != (running.pid, running.start):
        raise CannotAdopt(
            f"pid {recorded[0]} is the baseline already, and runs",
            f"end one of the two: `kill {recorded[0]}` or `kill {running.pid}`",
        )
    if not process.alive(running.pid, running.start):
        raise CannotAdopt(f"pid {running.pid} has just ended", "omni-console init looks again")
    try:
        process.write_record(records, "baseline", runs, running.pid, running.start)
    except OSError as error:
        where = one_line(str(error.filename or records))
        raise ServiceError("its record cannot be written", f"{where}: {error.strerror}") from error
    return notes(running, runs)


def is_adopted(site: Site, running: Running) -> bool:
    """Whether the console knows this very process as the site's baseline."""
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
    pids = {one.pid for one in listeners(url, here=True)}
    first = sorted(pid for pid in pids if not (process.ancestry(pid) - {pid}) & pids)
    if len(first) > 1:
        which = ", ".join(map(str, first))
        raise CannotAdopt(
            f"several processes answer at {url}: {which}", "omni-console adopt PID names one"
        )
    found = processes.read(first[0]) if first else None
    if found is None:
        raise CannotAdopt(
            f"nothing that this user may look at listens at {url}",
            "omni-console rollback starts the baseline from the site file; "
            "omni-console init --list shows what serves here",
        )
    return found


def difference(runs: ProcessSpec, running: Running) -> str:
    """Where a process is not what the site file would start, in clean words; "" if it is."""
    program = baseline.program_of(runs)
    if os.path.realpath(program) != os.path.realpath(running.program):
        return f"its program is {one_line(running.program or running.argv[0], 120)}"
    told = redact.argv(running.argv)
    for at, (ours, theirs) in enumerate(zip(runs.argv[1:], running.argv[1:], strict=False), 1):
        if ours != theirs:
            return f"word {at + 1} of its command line is {one_line(told[at], 80)}"
    count = len(running.argv)
    if len(runs.argv) != count:
        return f"its command line has {count} words, and the site file's {len(runs.argv)}"
    for name, value in runs.env if running.environ is not None else ():
        if running.environ is not None and running.environ.get(name) != value:
            return f"the variable {one_line(name, 60)} has another value"
    if os.path.realpath(runs.cwd) != os.path.realpath(running.cwd) and _has_relative(running):
        return f"its directory is {one_line(running.cwd, 120)}, and its command line depends on it"
    return ""


def _has_relative(running: Running) -> bool:
    """Whether a word of its command line is a path in its directory."""
    words = (word.rpartition("=")[2] for word in running.argv[1:])
    return any(
        os.path.exists(os.path.join(running.cwd, word))
        for word in words if word and not word.startswith("/")
    )  # fmt: skip


def notes(running: Running, runs: ProcessSpec) -> list[str]:
    """What may surprise about a process that somebody else started, in clean words."""
    found = []
    values, secret = variables(running)
    lacking = sorted({*values, *secret} - dict(runs.env).keys())
    if lacking:
        which = ", ".join(one_line(name, 60) for name in lacking[:8])
        found.append(
            f"a rollback starts it without {which}{' …' if len(lacking) > 8 else ''}, which it was "
            "started with and `env` in the site file lacks"
        )
    if running.terminal:
        found.append(
            "it ends when its terminal closes, because it was started without nohup; "
            "`omni-console rollback` then starts it again"
        )
    if running.uid != os.getuid():
        found.append(f"a rollback starts it as {one_line(user_name(os.getuid()), 40)}, and no "
                     f"longer as {one_line(user_name(running.uid), 40)}")  # fmt: skip
    outside = processes.outside(running)
    if outside:
        more = ", ".join(map(str, outside[:5])) + (" …" if len(outside) > 5 else "")
        found.append(
            f"a stop reaches pid {running.pid} alone, and not what it started outside of its "
            f"process group (pid {more}): that has to end with it"
        )
    return found


def prove(site: Site) -> Completion:
    """One completion of the baseline, kept as its newest proof. Raises BaselineNotReady."""
    done = baseline.prove(site)
    baseline.remember(seal.site_plan(site), site, done)
    return done


def named(site: Site) -> tuple[set[str], str]:
    """The names of a baseline that is a container or a unit, and what it is in clean words. Raises
    BaselineNotReady if it is not there, or could not be brought back."""
    found = baseline.facts(site, lambda: connect(site.model.engine.host or None))
    if found.unit is not None:
        return {found.unit.name, found.unit.name.removesuffix(".service")}, found.unit.words
    identity, name = found.container_id, found.container_name
    return {identity, identity[:12], name}, f"container {one_line(name, 60)}"


def _process_of(site: Site) -> ProcessSpec:
    runs = site.baseline_spec().runs
    if not isinstance(runs, ProcessSpec):
        raise CannotAdopt(
            "the site file's baseline is no process: the console knows it by its name, and nothing "
            "has to be taken over"
        )
    return runs


def _of_a_unit(running: Running) -> tuple[str, str]:
    if running.unit is None:
        return "", ""
    what = f"{running.unit.words} runs it, and its systemd may start it again when a run stops it"
    return what, "write `unit:` into the site file instead of `process:`: omni-console init --force"


def _answers_there(running: Running, url: str) -> None:
    """Raise CannotAdopt unless the process or one of its own listens at the baseline's address."""
    holders = {one.pid for one in listeners(url, here=True)}
    own = {one.pid for one in process.members(running.pid, running.start)}
    if not holders & {*own, *processes.outside(running)}:
        raise CannotAdopt(
            f"pid {running.pid} does not listen at {url}",
            "wait until it does, or correct `url` in the site file",
        )
