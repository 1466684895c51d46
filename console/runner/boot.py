"""The unit that runs at boot, and whether a run before the reboot left the baseline down.

The unit calls `rollback --if-interrupted`. Its type is `exec`, so that a slow model load delays no
target; its KillMode is `process`, so that a baseline of host processes outlives the unit.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Collection
from pathlib import Path

from console.common.errors import UsageError
from console.common.files import write_atomically
from console.common.paths import module_argv
from console.common.text import one_line
from console.host.systemd import LINGER, SYSTEMD, Unit
from console.journal.lock import runner_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import left_down as outage_of
from console.recovery.rollback import records
from console.rehearsal.workspace import MAPPING

PASSED = ("PATH", "LD_LIBRARY_PATH", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT",
          "XDG_STATE_HOME", "XDG_CONFIG_HOME", "OMNI_SITE", "OMNI_HOST_DIR")  # fmt: skip
"""Environment variables that the unit keeps from its installation: paths, never secrets."""

UNIT = """\
[Unit]
Description=Brings the LLM baseline back where a reboot met a run in an outage
StartLimitIntervalSec=1d
StartLimitBurst=20
{order}
[Service]
Type=exec
{user}{environment}ExecStart={command}
# The engine may not answer yet, above all where a user manager starts before it.
Restart=on-failure
RestartSec=15
RestartPreventExitStatus=2
KillMode=process
OOMPolicy=continue

[Install]
WantedBy={target}
"""
ORDER = """\
Wants=network-online.target
After=network-online.target local-fs.target docker.service podman.socket
"""


def left_down(done: Collection[str] = ()) -> RunDir | None:
    """Return a run of this user that stopped the baseline and did not bring it back, or None;
    none whose directory is in `done`.

    Looks at the run that the pointer names and those set aside for it; without a pointer, at the
    newest. A named run with an unreadable journal counts, because a needless rollback is
    harmless.
    """
    mine = records.read(os.getuid())
    if mine is not None:
        run = RunDir(Path(mine.run_dir))
        pointed = [run, *(RunDir(Path(p.run_dir)) for p in records.earlier(mine.uid, run.rollback))]
        left = (one for one in pointed if str(one.path) not in done)
        down = (one for one in left if outage_of(one, unknown=True))
        # The process that writes the end of a run that was rolled back just now is no active run.
        is_active = str(run.path) not in done and runner_alive(run)
        return None if is_active else next(down, None)
    newest = next((run for run in all_runs() if not (run.path / MAPPING).exists()), None)
    if newest is None or str(newest.path) in done or runner_alive(newest):
        return None
    return newest if outage_of(newest, unknown=False) else None


def install(one: Unit, site: str | None) -> None:
    """Write and enable the unit without starting it. Raises ConsoleError."""
    if not SYSTEMD.exists() or not shutil.which("systemctl"):
        raise UsageError("this machine is not run by systemd", str(SYSTEMD), "")
    if one.system and os.getuid() != 0:
        raise UsageError(
            "a system unit is installed by root", "", "sudo omni-console boot install --system"
        )
    if not one.lingers:
        raise UsageError(
            f"{one.user} does not linger: a user unit would wait for a login",
            str(LINGER / one.user), f"sudo loginctl enable-linger {one.user}",
        )  # fmt: skip
    text = text_of(one, site, dict(os.environ))
    one.path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(one.path, text)
    one.systemctl("daemon-reload")
    one.systemctl("enable", one.name)


def remove(one: Unit) -> bool:
    """Disable and delete the unit; return False if it was not there. Raises ConsoleError."""
    if not one.path.exists() and not one.enabled():
        return False
    one.systemctl("disable", one.name)
    one.path.unlink(missing_ok=True)
    one.systemctl("daemon-reload")
    return True


def text_of(one: Unit, site: str | None, environment: dict[str, str]) -> str:
    """Return the unit file's text. Raises UsageError for values a unit file cannot express."""
    foreign = one.user != pwd.getpwuid(os.getuid()).pw_name
    names = PASSED[:1] if foreign else PASSED
    given = [f"{name}={value}" for name in names if (value := environment.get(name))]
    argv = [*module_argv("console.cli"), "rollback", "--if-interrupted"]
    argv += ["--site", os.path.abspath(site)] if site else []
    return UNIT.format(
        order=ORDER if one.system else "",
        user=f"User={one.user}\n" if one.system else "",
        environment="".join(f"Environment={_quoted(text)}\n" for text in given),
        command=" ".join(_quoted(word.replace("$", "$$")) for word in argv),
        target="multi-user.target" if one.system else "default.target",
    )


def _quoted(text: str) -> str:
    if not text.isprintable():
        raise UsageError("a unit file cannot hold a control character", one_line(text, 80), "")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
