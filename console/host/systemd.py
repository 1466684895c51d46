"""systemd's part: whether a run outlives a logout, and the units that act without a person: one
after a reboot, one that watches the baseline."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.common.errors import ConsoleError, UsageError
from console.common.files import write_atomically
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
BOOT, WATCH = "boot", "watch"
PASSED = ("PATH", "LD_LIBRARY_PATH", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT",
          "XDG_STATE_HOME", "XDG_CONFIG_HOME", "OMNI_SITE", "OMNI_HOST_DIR")  # fmt: skip
"""Environment variables that a unit keeps from its installation: paths, never secrets."""
ORDER = """\
Wants=network-online.target
After=network-online.target local-fs.target docker.service podman.socket
"""


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
    """A systemd unit of the console's, by its purpose: `boot` brings the baseline back after a
    reboot, `watch` watches it. `system`: started at boot as `user` by the machine's own systemd."""

    system: bool
    user: str
    purpose: str = BOOT

    @property
    def name(self) -> str:
        return f"omni-console-{self.purpose}{f'-{self.user}' if self.system else ''}.service"

    @property
    def path(self) -> Path:
        if self.system:
            return SYSTEM_UNITS / self.name
        return config_dir().parent / "systemd/user" / self.name

    def systemctl(self, *words: str) -> str:
        """Run systemctl and return its output. Raises ConsoleError."""
        argv = ["systemctl", *(() if self.system else ("--user",)), *words]
        try:
            code, out, stderr = children.run(argv, SYSTEMCTL_S, env=os.environ)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConsoleError(f"{argv[0]} did not run", one_line(str(error))) from error
        if code != 0:
            raise ConsoleError(" ".join(argv), one_line(stderr.decode("utf-8", "replace")))
        return out.decode("utf-8", "replace")

    def enabled(self) -> bool:
        """Whether it starts at boot, judged by systemd's links, so no manager has to answer."""
        target = "multi-user.target" if self.system else "default.target"
        return (self.path.parent / f"{target}.wants" / self.name).is_symlink()

    @property
    def lingers(self) -> bool:
        return self.system or (LINGER / self.user).exists()


def unit(system: bool, purpose: str = BOOT) -> Unit:
    """This user's unit; for a system unit that of the user behind sudo."""
    name = pwd.getpwuid(os.getuid()).pw_name
    behind = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return Unit(system, (behind or name) if system else name, purpose)


def installed(purpose: str = BOOT) -> Unit | None:
    """This user's unit of a purpose, if there is one that starts at boot."""
    units = (unit(system, purpose) for system in (True, False))
    return next((systemd_unit for systemd_unit in units if systemd_unit.enabled()), None)


def install(
    systemd_unit: Unit, text: Callable[[], str], command: str, *, now: bool = False
) -> None:
    """Write and enable the unit, and with `now` start it anew. `command` installs it, for the
    hint. Raises ConsoleError."""
    if not SYSTEMD.exists() or not shutil.which("systemctl"):
        raise UsageError("this machine is not run by systemd", str(SYSTEMD), "")
    if systemd_unit.system and os.getuid() != 0:
        raise UsageError("a system unit is installed by root", "", f"sudo {command} --system")
    if not systemd_unit.lingers:
        raise UsageError(
            f"{systemd_unit.user} does not linger: a user unit would wait for a login",
            str(LINGER / systemd_unit.user), f"sudo loginctl enable-linger {systemd_unit.user}",
        )  # fmt: skip
    systemd_unit.path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(systemd_unit.path, text())
    systemd_unit.systemctl("daemon-reload")
    systemd_unit.systemctl("enable", systemd_unit.name)
    if now:
        systemd_unit.systemctl("restart", systemd_unit.name)


def remove(systemd_unit: Unit, *, now: bool = False) -> bool:
    """Disable and delete the unit, and with `now` stop it; return False if it was not there. Raises
    ConsoleError."""
    if not systemd_unit.path.exists() and not systemd_unit.enabled():
        return False
    systemd_unit.systemctl("disable", *(("--now",) if now else ()), systemd_unit.name)
    systemd_unit.path.unlink(missing_ok=True)
    systemd_unit.systemctl("daemon-reload")
    return True


def filled(
    template: str, systemd_unit: Unit, argv: Sequence[str], environment: Mapping[str, str]
) -> str:
    """The text of a unit file: order, user, environment, command and target filled in. Raises
    UsageError for values that a unit file cannot express."""
    foreign = systemd_unit.user != pwd.getpwuid(os.getuid()).pw_name
    names = PASSED[:1] if foreign else PASSED
    given = [f"{name}={value}" for name in names if (value := environment.get(name))]
    return template.format(
        order=ORDER if systemd_unit.system else "",
        user=f"User={systemd_unit.user}\n" if systemd_unit.system else "",
        environment="".join(f"Environment={_quoted(text)}\n" for text in given),
        command=" ".join(_quoted(word.replace("$", "$$")) for word in argv),
        target="multi-user.target" if systemd_unit.system else "default.target",
    )


def _quoted(text: str) -> str:
    if not text.isprintable():
        raise UsageError("a unit file cannot hold a control character", one_line(text, 80), "")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
