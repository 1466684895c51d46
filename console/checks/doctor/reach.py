"""The doctor's check whether an emergency finds the command: `ssh HOST omni-console rollback`,
whose shell is neither a login shell nor interactive, and `sudo omni-console rollback`."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from console.checks.doctor.facts import ASK_S, Check, Facts, Finding, Level
from console.common import paths
from console.common.files import read_text
from console.common.text import decode, one_line
from console.host import children

COMMAND = "omni-console"
SSHD_PATH = "/usr/local/bin:/usr/bin:/bin"
"""What sshd gives where PAM sets no PATH; every distribution's has these."""
SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The usual secure_path, assumed where sudoers cannot be read."""
LINKS = ("/usr/local/bin", "/usr/bin")
"""Where a link may be made, the better place first."""
SSHD = ("usr/sbin/sshd", "usr/local/sbin/sshd", "run/current-system/sw/bin/sshd")
_MARK = "omni-path:"
_PATH_LINE = re.compile(r"^\s*(?:export\s+)?PATH\s*=\s*(.*?)\s*$", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n[ \t]*")
_DEFAULTS = re.compile(
    r"^[ \t]*Defaults(?:([:@>!])[ \t]*([^\s,]+(?:[ \t]*,[ \t]*[^\s,]+)*))?[ \t]+([^#\n]*)",
    re.MULTILINE,
)
"""A line of settings: for whom (users, hosts, other users, commands), and the settings."""
_SECURE = re.compile(r'(!)?\bsecure_path\b(?:\s*=\s*(?:"([^"\n]*)"|([^\s,]+)))?')
_SECURE_SAID = re.compile(r"^Value to override user's \$PATH with: (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the command: `words` is what is typed, `path` where its shell looks, None if that
    is not known; `how` says what is assumed."""

    words: str
    path: str | None
    how: str = ""

    @property
    def executable(self) -> str:
        """The file that would run, "" for none."""
        return shutil.which(COMMAND, path=self.path) or "" if self.path else ""


def reach(facts: Facts, check: Check) -> Iterator[Finding]:
    """Each way that finds no command, or another installation's; one line mends both."""
    own = own_command()
    ways = [way for way in (_ssh(facts.root), _sudo(facts.root)) if way is not None]
    silent = [way for way in ways if way.path is None]
    lost = [way for way in ways if way.path is not None and not way.executable]
    for way in silent:
        yield check.warning(f"{way.words}: {way.how}", "which file of the shell's start-up waits?")
    if lost:
        where = "; ".join(f"{way.words} looks in {way.path}{way.how}" for way in lost)
        yield check.warning(f"the command is not found: {where}", _link(own, lost))
    for way in ways:
        if way.executable and own and not _same(way.executable, own):
            words = f"{way.words} runs {way.executable}, another installation than {own}"
            yield check.note(words, "one of them may be older: compare what --version says")
    good = [
        f"{way.words}{way.how}" for way in ways
        if way.executable and (not own or _same(way.executable, own))
    ]  # fmt: skip
    if good:
        yield check.ok(f"found by {' and '.join(good)}")


def own_command() -> str:
    """This installation's command: the one on PATH if it is this one, else the one beside this
    interpreter; "" if it runs from a source tree."""
    beside = os.path.join(os.path.dirname(sys.executable), COMMAND)
    on_path = shutil.which(COMMAND) or ""
    if not os.access(beside, os.X_OK):
        return on_path
    return on_path if on_path and _same(on_path, beside) else beside


def _same(path: str, other: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


def _link(own: str, lost: list[Way]) -> str:
    """The line that makes every way find it."""
    if not own:
        return "install it for everybody, then look again: pipx install --global omni-console"
    sought = [str(way.path).split(":") for way in lost]
    place = next((folder for folder in LINKS if all(folder in parts for parts in sought)), LINKS[0])
    force = "f" if os.path.lexists(f"{place}/{COMMAND}") else ""
    return f"sudo ln -s{force} {shlex.quote(own)} {place}/"


def _ssh(root: Path) -> Way | None:
    """A one-shot ssh; None on a machine without sshd. The user's shell itself says its PATH, as
    only it knows which of its files it reads."""
    if not os.environ.get("SSH_CONNECTION") and not any((root / path).exists() for path in SSHD):
        return None
    words = f"ssh HOST {COMMAND} rollback"
    given = _environment(root) or SSHD_PATH
    shell = shell_of()
    env = {
        "PATH": given, "HOME": str(paths.home()), "USER": _name(), "LOGNAME": _name(),
        "SHELL": shell, "SSH_CLIENT": "127.0.0.1 1 22",
        "SSH_CONNECTION": "127.0.0.1 1 127.0.0.1 22",
    }  # fmt: skip
    try:
        out, late = children.capture([shell, "-c", f'echo; echo "{_MARK}$PATH"'], ASK_S, env=env)
    except OSError as error:
        return Way(words, None, f"{shell}: {error.strerror or error}")
    lines = [line for line in decode(out).splitlines() if line.startswith(_MARK)]
    if late and not lines:
        return Way(words, None, f"{shell} has not begun the command within {ASK_S:g} s")
    return Way(words, one_line(lines[-1].removeprefix(_MARK), 4000) if lines else given)


def _environment(root: Path) -> str:
    """PATH of /etc/environment, which PAM gives every session; "" for none."""
    matches = _PATH_LINE.findall(read_text(root / "etc/environment"))
    return matches[-1].strip("\"'") if matches else ""


def shell_of() -> str:
    """This user's shell, as sshd takes it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def _name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _sudo(root: Path) -> Way | None:
    """sudo; None where there is none. It is never asked for a list of rights: sudo reports a user
    who has none to the administrator."""
    sudo = shutil.which("sudo")
    if sudo is None:
        return None
    words = f"sudo {COMMAND} rollback"
    secure_path = _sudoers(root)
    if secure_path is None:
        secure_path = _secure_path(sudo)
    if secure_path is None:
        return Way(words, SUDO_PATH, " (its usual secure_path: sudoers cannot be read)")
    return Way(words, secure_path or os.environ.get("PATH", ""))


def _sudoers(root: Path) -> str | None:
    """The secure_path of sudoers, "" if it sets none, None if it cannot be read."""
    files = [root / "etc/sudoers"]
    try:
        files[0].read_bytes()
        folder = root / "etc/sudoers.d"
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
    except OSError:
        return None
    files += [folder / name for name in names if "." not in name and not name.endswith("~")]
    text = "\n".join(read_text(file) for file in files)
    value = ""
    for scope, names, settings in _DEFAULTS.findall(_CONTINUED.sub(" ", text)):
        if not _is_for(scope, names.split(",")):
            continue
        for negated, quoted, bare in _SECURE.findall(settings):
            value = "" if negated else (quoted or bare).replace("\\", "")
    return value


def _is_for(scope: str, names: list[str]) -> bool:
    """Whether settings of sudoers with this scope hold for this user's `sudo`, as root, here; those
    of one command only are not known to be for this one."""
    if not scope:
        return True
    here = socket.gethostname()
    mine = {
        ":": (_name(), *(f"%{name}" for name in _groups())), ">": ("root",),
        "@": (here, here.partition(".")[0]), "!": (),
    }[scope]  # fmt: skip
    return scope != "!" and bool({name.strip() for name in names} & {"ALL", *mine})


def _groups() -> list[str]:
    names = []
    for gid in {os.getgid(), *os.getgroups()}:
        with contextlib.suppress(KeyError):
            names.append(grp.getgrgid(gid).gr_name)
    return names


def _secure_path(sudo: str) -> str | None:
    """The secure_path that sudo tells root; None if it tells nothing."""
    try:
        _, out, _ = children.run([sudo, "-n", "-V"], ASK_S, env=os.environ)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _SECURE_SAID.search(decode(out))
    return one_line(match[1], 4000) if match else None


CHECKS = (Check("login.reach", "rollback", reach, Level.WARNING),)
