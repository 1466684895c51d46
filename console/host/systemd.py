"""systemd's part: whether a run outlives a logout, and which unit acts after a reboot."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from console.common.errors import ConsoleError
from console.common.paths import config_dir
from console.common.text import one_line
from console.host import children

LOGIND = ("busctl", "--system", "get-property", "org.freedesktop.login1",
          "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
          "KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")  # fmt: skip
LOGIND_S = 5.0
SYSTEM_UNITS = Path("/etc/systemd/system")
LINGER = Path("/var/lib/systemd/linger")
SYSTEMCTL_S = 60.0
SYSTEMD = Path("/run/systemd/system")


@dataclass(frozen=True, slots=True)
class Detachment:
    """How the runner is detached, and what the operator has to know about it."""

    unit: bool
    warning: str = ""


def detachment() -> Detachment:
    """A user unit when linger is on, a session of its own otherwise; with a warning if logind would
    end it at logout."""
    if not SYSTEMD.exists():
        return Detachment(False)
    user = _user()
    linger = (LINGER / user).exists()
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
    """The user's name by the uid: USER is another one's after a plain `su`, and may be missing."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _ends_processes_of(user: str) -> bool:
    """Whether logind ends the user's processes at logout, asked of logind itself: its files lie in
    five places and its defaults are compiled in. One that does not answer ends none."""
    try:
        code, out, _ = children.run(LOGIND, LOGIND_S, env=os.environ)
        kills, only, spared = (shlex.split(line) for line in out.decode().splitlines())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    if code != 0 or kills[1:] != ["true"] or user in spared[2:]:
        return False
    return not only[2:] or user in only[2:]


@dataclass(frozen=True, slots=True)
class Unit:
    """The systemd unit that brings the baseline back after a reboot: its path; `system`: started at
    boot as `user` by the machine's own systemd."""

    system: bool
    user: str

    @property
    def name(self) -> str:
        return f"omni-console-boot{f'-{self.user}' if self.system else ''}.service"

    @property
    def path(self) -> Path:
        if self.system:
            return SYSTEM_UNITS / self.name
        return config_dir().parent / "systemd/user" / self.name

    def systemctl(self, *words: str) -> str:
        """Run systemctl and return its output. Raises ConsoleError."""
        argv = ["systemctl", *(() if self.system else ("--user",)), *words]
        try:
            code, out, said = children.run(argv, SYSTEMCTL_S, env=os.environ)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConsoleError(f"{argv[0]} did not run", one_line(str(error))) from error
        if code != 0:
            raise ConsoleError(" ".join(argv), one_line(said.decode("utf-8", "replace")))
        return out.decode("utf-8", "replace")

    def enabled(self) -> bool:
        """Whether it starts at boot, judged by systemd's links, so no manager has to answer."""
        target = "multi-user.target" if self.system else "default.target"
        return (self.path.parent / f"{target}.wants" / self.name).is_symlink()

    @property
    def lingers(self) -> bool:
        return self.system or (LINGER / self.user).exists()


def unit(system: bool) -> Unit:
    """This user's unit; for a system unit that of the user behind sudo."""
    name = pwd.getpwuid(os.getuid()).pw_name
    behind = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return Unit(system, (behind or name) if system else name)


def installed() -> Unit | None:
    """The unit that would bring this user's baseline back, if there is one."""
    return next((one for one in (unit(True), unit(False)) if one.enabled()), None)
