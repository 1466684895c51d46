"""What this login can do: interpreter, terminal, text, and whether a run outlives it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from console.checks.doctor.facts import Facts
from console.checks.doctor.model import Check, Finding, Level

OLDEST_PYTHON = (3, 11)
LEAST_COLUMNS, LEAST_LINES = 60, 20
_TERMINFO = ("/etc/terminfo", "/lib/terminfo", "/usr/lib/terminfo", "/usr/share/terminfo")
_MOUSE = "the mouse is the terminal's until M"
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""What Python itself puts into LC_CTYPE where the locale is C."""


def python(facts: Facts, check: Check) -> Iterator[Finding]:
    """The interpreter, and the console that it runs."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = f"omni-console {version('omni-console')}"
    except PackageNotFoundError:
        own = "omni-console out of a source tree"
    words = f"{'.'.join(map(str, sys.version_info[:3]))}, {own}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield check.failed(words, "Python 3.11 or newer is needed")
    else:
        yield check.ok(words)


def terminal(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether there is one, and whether it can place text."""
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
            "infocmp -x | ssh THIS-MACHINE tic -x -   (run where you sit)",
        )
    else:
        yield check.ok(f"TERM={term}, {colours(os.environ)}")


def size(facts: Facts, check: Check) -> Iterator[Finding]:
    """The window against the smallest one the screens are made for."""
    if not on_terminal():
        return
    columns, lines = os.get_terminal_size(1)
    if not columns or not lines:
        yield check.note(
            "the terminal does not say its size; 80x24 is assumed", "stty rows 24 cols 80"
        )
    elif columns < LEAST_COLUMNS or lines < LEAST_LINES:
        yield check.warning(
            f"{columns}x{lines}: parts of the screens do not fit",
            f"make the window {LEAST_COLUMNS}x{LEAST_LINES} or larger; 80x24 is comfortable",
        )
    else:
        yield check.ok(f"{columns}x{lines}")


def text(facts: Facts, check: Check) -> Iterator[Finding]:
    """UTF-8, or the signs that ASCII has."""
    name = locale_of(os.environ, _first_environment())
    if "utf8" in name.lower().replace("-", ""):
        yield check.ok(f"UTF-8 ({name})")
    else:
        yield check.note(
            f"the locale is {name or 'C'}, not UTF-8: ASCII signs are used",
            "export LANG=C.UTF-8 shows the others",
        )


def line(facts: Facts, check: Check) -> Iterator[Finding]:
    """tmux, ssh or a local terminal, and what that means for a run."""
    from console.host.linger import detachment

    env = os.environ
    inside = "tmux" if env.get("TMUX") else "screen" if env.get("STY") else ""
    remote = bool(env.get("SSH_CONNECTION") or env.get("SSH_TTY"))
    if not inside and not remote:
        yield check.ok(f"local; {_MOUSE}")
    elif detachment().warning:
        where = f"inside {inside}" if inside else "ssh without tmux"
        yield check.note(f"{where}; what logind does at logout stands below")
    elif inside:
        yield check.ok(f"inside {inside}: screens and runs survive a lost line; {_MOUSE}")
    else:
        yield check.note(
            "ssh without tmux: a run survives a lost line anyway, the screen does not",
            "omni-console attach joins the run again; tmux keeps the screen too",
        )


def logout(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether logind lets a run live when its user logs out."""
    from console.host.linger import detachment

    how = detachment()
    if how.warning:
        words, _, hint = how.warning.partition("; ")
        yield check.warning(words, hint)
    elif how.unit:
        yield check.ok("a run is a unit of this user (linger is on) and lives on")
    else:
        yield check.ok("a run is a session of its own and lives on")


def boot(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether a reboot in an outage is followed by a rollback."""
    from console.host import boot_unit as units

    if not units.SYSTEMD.exists():
        return
    found = units.installed()
    if found is None:
        yield check.note("a reboot in an outage leaves it down", "omni-console boot install")
    elif not found.lingers:
        yield check.warning("its unit waits for a login", f"loginctl enable-linger {found.user}")
    else:
        yield check.ok(f"{found.name} rolls back after a reboot in an outage")


def on_terminal() -> bool:
    """Whether input and output are a terminal; asked of the descriptors, which a screen that
    catches prints does not change."""
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
    places = [given, *more, str(Path.home() / ".terminfo"), *_TERMINFO]
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
    """The locale the operator chose. `first`: the environment this process was begun with, since
    Python writes LC_CTYPE itself where the locale is C."""
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


CHECKS = (
    Check("login.python", "Python", python),
    Check("login.terminal", "terminal", terminal, Level.WARNING),
    Check("login.size", "window", size, Level.WARNING),
    Check("login.text", "text", text, Level.WARNING),
    Check("login.line", "line", line, Level.WARNING),
    Check("login.logout", "logout", logout, Level.WARNING),
    Check("login.boot", "boot", boot, Level.WARNING),
)
