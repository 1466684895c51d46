"""The doctor's checks of this login, and of the console's own directories, lock, runs, standby."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from console.checks.doctor.facts import RUNS, Check, Facts, Finding, Level
from console.checks.doctor.machine import refusal
from console.common import paths

OLDEST_PYTHON = (3, 11)
MIN_COLUMNS, MIN_LINES = 60, 20
_TERMINFO = ("/etc/terminfo", "/lib/terminfo", "/usr/lib/terminfo", "/usr/share/terminfo")
_MOUSE = "the terminal keeps the mouse until you press M"
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""What Python itself sets LC_CTYPE to if the locale is C."""


def python(facts: Facts, check: Check) -> Iterator[Finding]:
    """The Python interpreter, and the console that it runs."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = f"omni-console {version('omni-console')}"
    except PackageNotFoundError:
        own = "omni-console from a source tree"
    words = f"{'.'.join(map(str, sys.version_info[:3]))}, {own}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield check.failed(words, "Python 3.11 or newer is needed")
    else:
        yield check.ok(words)


def terminal(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether there is a terminal, and whether it can position text."""
    if not on_terminal():
        yield check.note("none here: the screens need one; every command works without")
        return
    term = os.environ.get("TERM", "")
    if term in ("", "dumb"):
        yield check.warning(
            f"TERM={term or '(empty)'}: it does not say that it can place text on a screen",
            "export TERM=xterm-256color, or the name your terminal has",
        )
    elif not known(term):
        yield check.note(
            f"TERM={term} is not in this machine's terminfo; the console works without, less and "
            "editors may not",
            "infocmp -x | ssh THIS-MACHINE tic -x -   (run it on the machine you sit at)",
        )
    else:
        yield check.ok(f"TERM={term}, {colours(os.environ)}")


def size(facts: Facts, check: Check) -> Iterator[Finding]:
    """The window's size against the smallest that the screens support."""
    if not on_terminal():
        return
    columns, lines = os.get_terminal_size(1)
    if not columns or not lines:
        yield check.note(
            "the terminal does not say its size; 80x24 is assumed", "stty rows 24 cols 80"
        )
    elif columns < MIN_COLUMNS or lines < MIN_LINES:
        yield check.warning(
            f"{columns}x{lines}: parts of the screens do not fit",
            f"make the window {MIN_COLUMNS}x{MIN_LINES} or larger; 80x24 is comfortable",
        )
    else:
        yield check.ok(f"{columns}x{lines}")


def text(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the terminal takes UTF-8, or gets the ASCII signs."""
    name = locale_of(os.environ, _first_environment())
    if "utf8" in name.lower().replace("-", ""):
        yield check.ok(f"UTF-8 ({name})")
    else:
        yield check.note(
            f"the locale is {name or 'C'}, not UTF-8: ASCII signs are used",
            "export LANG=C.UTF-8 shows the others",
        )


def line(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether this is tmux, ssh or a local terminal, and what that means for a run."""
    from console.host.systemd import detachment

    env = os.environ
    inside = "tmux" if env.get("TMUX") else "screen" if env.get("STY") else ""
    remote = bool(env.get("SSH_CONNECTION") or env.get("SSH_TTY"))
    if not inside and not remote:
        yield check.ok(f"local; {_MOUSE}")
    elif detachment().warning:
        where = f"inside {inside}" if inside else "ssh without tmux"
        yield check.note(f"{where}; what logind does at logout is said below")
    elif inside:
        yield check.ok(f"inside {inside}: screens and runs survive a lost line; {_MOUSE}")
    else:
        yield check.note(
            "ssh without tmux: a run survives a lost line anyway, the screen does not",
            "omni-console attach joins the run again; tmux keeps the screen too",
        )


def logout(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether logind lets a run live when its user logs out."""
    from console.host.systemd import detachment

    how = detachment()
    if how.warning:
        words, _, hint = how.warning.partition("; ")
        yield check.warning(words, hint)
    elif how.unit:
        yield check.ok("a run is a unit of this user (linger is on) and lives on")
    else:
        yield check.ok("a run is a session of its own and lives on")


def boot(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether a rollback follows a reboot during an outage."""
    from console.host import systemd as units

    if not units.SYSTEMD.exists():
        return
    unit = units.installed()
    if unit is None:
        yield check.note("a reboot in an outage leaves it down", "omni-console boot install")
    elif not unit.lingers:
        yield check.warning("its unit waits for a login", f"loginctl enable-linger {unit.user}")
    else:
        yield check.ok(f"{unit.name} rolls back after a reboot in an outage")


def on_terminal() -> bool:
    """Whether input and output are a terminal; asks the descriptors, because a screen may have
    replaced the streams."""
    try:
        return os.isatty(0) and os.isatty(1)
    except OSError:
        return False


def known(term: str) -> bool:
    """Whether this machine's terminfo has an entry of that name."""
    if not term or "/" in term or term.startswith("."):
        return False
    given = os.environ.get("TERMINFO", "")
    more = os.environ.get("TERMINFO_DIRS", "").split(":")
    places = [given, *more, str(paths.home() / ".terminfo"), *_TERMINFO]
    # On file systems that fold case the first letter stands as its code.
    names = (f"{term[0]}/{term}", f"{ord(term[0]):x}/{term}")
    return any(os.path.exists(f"{place}/{name}") for place in places if place for name in names)


def colours(env: Mapping[str, str]) -> str:
    """How many colours the environment promises, in words."""
    term = env.get("TERM", "")
    if env.get("NO_COLOR"):
        return "no colours (NO_COLOR is set): signs and words carry the state"
    if env.get("COLORTERM", "").lower() in ("truecolor", "24bit") or "direct" in term:
        return "16 million colours"
    return "256 colours" if "256" in term else "16 colours"


def locale_of(env: Mapping[str, str], first: Mapping[str, str]) -> str:
    """The locale the operator chose. `first`: the environment at process start, since Python itself
    changes LC_CTYPE if the locale is C."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = env.get(name, "")
        own = name == "LC_CTYPE" and value in _COERCED and not first.get(name)
        if value and not own:
            return value
    return ""


def _first_environment() -> dict[str, str]:
    try:
        pairs = Path("/proc/self/environ").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return dict(os.environ)
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def who(facts: Facts, check: Check) -> Iterator[Finding]:
    from console.host.privileges import name_of

    uid = os.getuid()
    yield check.ok(f"{name_of(uid)} (uid {uid}) on {socket.gethostname()}")


def state(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the state directory is writable, this user's, and closed to others."""
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
    """Who holds the host: this user's run by its lock, read from the kernel's table and never
    touched, or another user's run."""
    from console.journal.lock import holder, runs_of_others

    path = paths.host_lock(os.getuid())
    if is_locked(path, facts.root):
        yield check.note(
            f"another run can start when this is over: {holder()}",
            "omni-console attach joins it; omni-console abort stops it",
        )
        return
    if others := runs_of_others():
        for words in others:
            yield check.note(
                f"another run can start when this is over: {words}",
                "that user stops it, or root by omni-console rollback",
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

    for pointer in records.find_all():
        if process.alive(pointer.pid, pointer.start):
            continue
        words = f"{pointer.run_id} of {pointer.owner} has a pointer, and no runner"
        if pointer.uid != os.getuid():
            yield check.note(words, f"{pointer.owner} may resume it, or roll back")
        elif pointer.over:
            words = f"{pointer.run_id} of {pointer.owner} is over and left the baseline down"
            yield check.note(words, "omni-console rollback brings it back")
        elif os.path.isdir(pointer.run_dir):
            yield check.warning(
                words, f"omni-console resume {pointer.run_id} or omni-console rollback"
            )
        else:
            yield check.warning(
                f"{words}; its directory is gone", f"rm {paths.pointer(pointer.uid)}"
            )


def runs(facts: Facts, check: Check) -> Iterator[Finding]:
    from console.journal.run_files import INTERRUPTED, word_of

    seen = facts.runs()
    broken = False
    for entry in seen:
        tail = entry.run.id[-4:]
        if entry.trouble:
            broken = True
            yield check.warning(f"{entry.run.id}: {entry.trouble}")
        if entry.view is not None and word_of(entry.run, entry.view, entry.alive) == INTERRUPTED:
            broken = True
            hint = f"omni-console resume {tail} goes on; omni-console rollback ends it"
            if entry.view.outage:
                yield check.failed(
                    f"{entry.run.id} was interrupted with the baseline down", f"now: {hint}"
                )
            else:
                yield check.warning(f"{entry.run.id} was interrupted", hint)
    if not broken:
        words = f"none of the newest {len(seen)} was interrupted" if seen else "none yet"
        yield check.ok(words)
    elif len(seen) == RUNS:
        yield check.note("older ones were not checked", "omni-console runs lists all")


def standby(facts: Facts, check: Check) -> Iterator[Finding]:
    """During a run, whether its standby waits, so that a rollback begins at once."""
    from console.recovery.rollback.trigger import is_standing_by

    live = facts.live()
    if live is None:
        return
    if live.uid != os.getuid() and os.getuid() != 0:
        yield check.note(f"the run of {live.owner} has its own")
    elif is_standing_by(Path(live.run_dir) / "rollback", running=True):
        yield check.ok(f"waits for {live.run_id}; a rollback begins at once")
    else:
        yield check.warning(
            f"no standby waits for {live.run_id}",
            "omni-console rollback then rolls back by itself, a second later",
        )


def is_locked(path: Path, root: Path = Path("/")) -> bool:
    """Whether somebody holds a flock on the file; trying to take it could refuse a run."""
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
    """Whether run directories are closed to others, since site files and argv may hold keys."""
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
    Check("login.python", "Python", python),
    Check("login.terminal", "terminal", terminal, Level.WARNING),
    Check("login.size", "window", size, Level.WARNING),
    Check("login.text", "text", text, Level.WARNING),
    Check("login.line", "line", line, Level.WARNING),
    Check("login.logout", "logout", logout, Level.WARNING),
    Check("login.boot", "boot", boot, Level.WARNING),
)

OWN_CHECKS = (
    Check("console.who", "user", who, Level.WARNING),
    Check("console.state", "state", state),
    Check("console.config", "config", config, Level.WARNING),
    Check("console.lock", "host lock", lock),
    Check("console.pointer", "pointers", pointers, Level.WARNING),
    Check("console.runs", "runs", runs, Level.WARNING),
    Check("console.ladder", "ladder", standby, Level.WARNING),
)
