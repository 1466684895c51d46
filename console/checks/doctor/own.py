"""The console's own things: its directories, the host lock, pointers, runs, the waiting ladder."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from console.checks.doctor.facts import RUNS, Facts
from console.checks.doctor.machine import refusal
from console.checks.doctor.model import Check, Finding, Level
from console.common import paths


def who(facts: Facts, check: Check) -> Iterator[Finding]:
    """The machine's name, and the user."""
    from console.recovery.rollback.finder import name_of

    uid = os.getuid()
    yield check.ok(f"{name_of(uid)} (uid {uid}) on {socket.gethostname()}")


def state(facts: Facts, check: Check) -> Iterator[Finding]:
    """Runs and measured times go there: writable, this user's, closed to others' hands."""
    path = paths.state_dir()
    why = refusal(path)
    if why:
        yield check.failed(
            f"{path} cannot be written: {why}", "no run starts; XDG_STATE_HOME names another place"
        )
        return
    if not os.path.exists(path):
        yield check.ok(f"{path} is made at the first run")
        return
    info = os.stat(path)
    if info.st_uid != os.getuid():
        yield check.failed(
            f"{path} belongs to uid {info.st_uid}: plans there are not acted on",
            f"sudo chown -R $USER {path}",
        )
    elif info.st_mode & stat.S_IWOTH or (info.st_mode & stat.S_IWGRP and not _alone(info.st_gid)):
        yield check.warning(f"{path} can be written by others", f"chmod go-w {path}")
    else:
        yield from _runs_closed(check, path)


def config(facts: Facts, check: Check) -> Iterator[Finding]:
    """Where this user's site file is."""
    path = paths.config_dir()
    try:
        os.listdir(path)
    except FileNotFoundError:
        yield check.ok(f"{path} is not there; only a site file of your own goes there")
    except OSError as error:
        yield check.warning(f"{path} cannot be read: {error.strerror}", f"ls -ld {path}")
    else:
        yield check.ok(str(path))


def lock(facts: Facts, check: Check) -> Iterator[Finding]:
    """One run a host: who holds it. Reads the kernel's table, and never touches the lock."""
    from console.journal.lock import holder

    path = paths.host_lock(os.getuid())
    if is_locked(path, facts.root):
        yield check.note(
            f"another run can start when this is over: {holder()}",
            "omni-console attach joins it; omni-console abort stops it",
        )
        return
    missing = not os.path.lexists(path)
    why = refusal(path.parent) if missing else ""
    if missing and not os.path.isdir(path.parent):
        yield check.note(f"{path.parent} is made at the first run", "OMNI_HOST_DIR names it")
    elif why or (not missing and not os.access(path, os.R_OK)):
        yield check.failed(
            f"the host lock {path} cannot be opened{f': {why}' if why else ''}",
            "OMNI_HOST_DIR names another directory for it",
        )
    else:
        yield check.ok("no run holds this host")


def pointers(facts: Facts, check: Check) -> Iterator[Finding]:
    """Pointers whose runner is gone: a rollback follows them, a new run replaces them."""
    from console.host import process
    from console.recovery.rollback import records

    for found in records.find_all():
        if process.alive(found.pid, found.start):
            continue
        words = f"{found.run_id} of {found.owner} has a pointer, and no runner"
        if found.uid != os.getuid():
            yield check.note(words, f"{found.owner} may resume it, or roll back")
        elif found.over:
            words = f"{found.run_id} of {found.owner} is over and left the baseline down"
            yield check.note(words, "omni-console rollback brings it back")
        elif os.path.isdir(found.run_dir):
            yield check.warning(
                words, f"omni-console resume {found.run_id} or omni-console rollback"
            )
        else:
            yield check.warning(f"{words}; its directory is gone", f"rm {paths.pointer(found.uid)}")


def runs(facts: Facts, check: Check) -> Iterator[Finding]:
    """Runs that were interrupted, among the newest."""
    from console.journal.run_read import INTERRUPTED, word_of

    seen = facts.runs()
    broken = False
    for one in seen:
        tail = one.run.id[-4:]
        if one.trouble:
            broken = True
            yield check.warning(f"{one.run.id}: {one.trouble}")
        if one.view is not None and word_of(one.run, one.view, one.alive) == INTERRUPTED:
            broken = True
            hint = f"omni-console resume {tail} goes on; omni-console rollback ends it"
            if one.view.outage:
                yield check.failed(
                    f"{one.run.id} was interrupted with the baseline down", f"now: {hint}"
                )
            else:
                yield check.warning(f"{one.run.id} was interrupted", hint)
    if not broken:
        words = f"none of the newest {len(seen)} was interrupted" if seen else "none yet"
        yield check.ok(words)
    elif len(seen) == RUNS:
        yield check.note("older ones were not looked at", "omni-console runs lists all")


def ladder(facts: Facts, check: Check) -> Iterator[Finding]:
    """While a run is on: whether its ladder waits, so that a rollback begins at once."""
    from console.recovery.rollback.trigger import is_warm

    live = facts.live()
    if live is None:
        return
    if live.uid != os.getuid() and os.getuid() != 0:
        yield check.note(f"the run of {live.owner} has its own")
    elif is_warm(Path(live.run_dir) / "rollback", running=True):
        yield check.ok(f"waits for {live.run_id}; a rollback begins at once")
    else:
        yield check.warning(
            f"none waits for {live.run_id}", "omni-console rollback climbs itself, a second later"
        )


def is_locked(path: Path, root: Path = Path("/")) -> bool:
    """Whether somebody holds a flock on the file; taking it to find out could refuse a run."""
    try:
        inode = os.stat(path, follow_symlinks=False).st_ino
        table = (root / "proc/locks").read_text()
    except OSError:
        return False
    return re.search(rf"FLOCK +\w+ +WRITE +\S+ +\S+:{inode} ", table) is not None


def _alone(gid: int) -> bool:
    """Whether a group is this user's own, as many systems make one for each user."""
    try:
        return grp.getgrgid(gid).gr_name == pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False


def _runs_closed(check: Check, path: Path) -> Iterator[Finding]:
    """Site files and argv in a run may hold keys: its directory is its owner's alone."""
    try:
        names = sorted(os.listdir(path / "runs"))
    except FileNotFoundError:
        names = []
    loose = [name for name in names if os.stat(path / "runs" / name).st_mode & 0o077]
    if loose:
        hint = f"chmod -R go= {path / 'runs'}"
        yield check.warning(f"{len(loose)} run directories are open to others: {loose[0]}", hint)
    else:
        yield check.ok(f"{path}, writable, its runs private")


CHECKS = (
    Check("console.who", "user", who, Level.WARNING),
    Check("console.state", "state", state),
    Check("console.config", "config", config, Level.WARNING),
    Check("console.lock", "host lock", lock),
    Check("console.pointer", "pointers", pointers, Level.WARNING),
    Check("console.runs", "runs", runs, Level.WARNING),
    Check("console.ladder", "ladder", ladder, Level.WARNING),
)
