"""Whether what outlives its terminal also outlives the logout of its user, as logind is set."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from console.host import bounded

LOGIND = ("busctl", "--system", "get-property", "org.freedesktop.login1",
          "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
          "KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")  # fmt: skip
LOGIND_S = 5.0


@dataclass(frozen=True, slots=True)
class Detachment:
    """How the runner is detached, and what the operator has to know about it."""

    unit: bool
    warning: str = ""


def detachment() -> Detachment:
    """A user unit when linger is on, a session of its own otherwise; a warning where logind
    would end it at logout."""
    if not Path("/run/systemd/system").exists():
        return Detachment(False)
    user = _user()
    linger = Path("/var/lib/systemd/linger", user).exists()
    if linger and os.environ.get("XDG_RUNTIME_DIR") and shutil.which("systemd-run"):
        return Detachment(True)
    if os.getuid() != 0 and _ends_processes_of(user):
        return Detachment(
            False,
            "logind ends this run, and what it started, when you log out (KillUserProcesses=yes); "
            f"`loginctl enable-linger {user}` lets it live",
        )
    return Detachment(False)


def _user() -> str:
    """By the uid: USER is another one's after a plain `su`, and may be missing."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _ends_processes_of(user: str) -> bool:
    """As logind itself has it: its files lie in five places, and what they leave out was decided
    when it was compiled. One that does not answer closes no session."""
    try:
        code, out, _ = bounded.run(LOGIND, LOGIND_S, env=os.environ)
        kills, only, spared = (shlex.split(line) for line in out.decode().splitlines())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    if code != 0 or kills[1:] != ["true"] or user in spared[2:]:
        return False
    return not only[2:] or user in only[2:]
