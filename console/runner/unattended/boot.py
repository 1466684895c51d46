"""The unit that runs at boot, and whether a run before the reboot left the baseline down.

The unit calls `rollback --if-interrupted`. Its type is `exec`, so that a slow model load delays no
target; its KillMode is `process`, so that a baseline of host processes outlives the unit.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from console.common.errors import ConsoleError
from console.common.paths import module_argv
from console.host import systemd
from console.host.systemd import Unit
from console.journal.lock import runner_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import left_down as outage_of
from console.recovery.rollback import records
from console.recovery.rollback.shell.program_gone import IF_INTERRUPTED, or_newest_script
from console.rehearsal.workspace import MAPPING

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
ACTING = frozenset({"activating", "active", "reloading"})


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
        left = (run_dir for run_dir in pointed if str(run_dir.path) not in done)
        down = (run_dir for run_dir in left if outage_of(run_dir, unknown=True))
        # The process that writes the end of a run that was rolled back just now is no active run.
        is_active = str(run.path) not in done and runner_alive(run)
        return None if is_active else next(down, None)
    newest = next((run for run in all_runs() if not (run.path / MAPPING).exists()), None)
    if newest is None or str(newest.path) in done or runner_alive(newest):
        return None
    return newest if outage_of(newest, unknown=False) else None


def is_acting() -> bool:
    """Whether this user's unit acts now, or is still to act in this boot. One that does not say
    does neither."""
    unit = systemd.installed()
    if unit is None:
        return False
    try:
        output = unit.systemctl("show", unit.name, "--property=ActiveState", "--property=Job")
    except ConsoleError:
        return False
    stands = dict(line.partition("=")[::2] for line in output.splitlines())
    # a job: it waits in systemd's queue for what has to be up before it
    return stands.get("ActiveState") in ACTING or stands.get("Job", "0") != "0"


def install(unit: Unit, site: str | None) -> None:
    """Write and enable the unit without starting it. Raises ConsoleError."""
    systemd.install(
        unit, lambda: text_of(unit, site, dict(os.environ)), "omni-console boot install"
    )


def text_of(unit: Unit, site: str | None, environment: dict[str, str]) -> str:
    """Return the unit file's text. Raises UsageError for values a unit file cannot express."""
    argv = [*module_argv("console.cli"), "rollback", IF_INTERRUPTED]
    argv += ["--site", os.path.abspath(site)] if site else []
    return systemd.filled(UNIT, unit, or_newest_script(argv, IF_INTERRUPTED), environment)
