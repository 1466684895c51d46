"""Another user's live run, as root meets it: it is ended as that user, and never believed.

Whatever another user wrote may be made up, so it decides nothing about root's own baseline. But a
run that is really on holds memory, so it is ended first, by that user's own rollback.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Iterable

from console.common import paths
from console.common.paths import module_argv
from console.common.text import decode, one_line
from console.host import process
from console.recovery.rollback import records as pointers
from console.recovery.rollback.lock import holders
from console.recovery.rollback.records import Pointer

LIMIT_S = 60.0
"""How long another user's rollback is waited for; then root's own begins."""


def live_others(mine: Iterable[int]) -> list[Pointer]:
    """Runs of users that are not `mine`, whose runner is that user's process and holds that user's
    lock of this host."""
    return [
        found
        for found in pointers.find_all()
        if found.uid not in mine
        and found.pid in holders(paths.host_lock(found.uid))
        and process.alive(found.pid, found.start)
        and _owner(found.pid) == found.uid
    ]


def roll_back_first(other: Pointer, note: Callable[[str], None]) -> None:
    """Run that user's own `omni-console rollback`, with that user's rights, for LIMIT_S at most."""
    try:
        entry = pwd.getpwuid(other.uid)
        child = subprocess.Popen(
            [*module_argv("console.cli"), "rollback"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, cwd="/",
            user=other.uid, group=entry.pw_gid,
            extra_groups=os.getgrouplist(entry.pw_name, entry.pw_gid), env=_environment(entry),
        )  # fmt: skip
    except (OSError, KeyError, subprocess.SubprocessError) as error:
        note(f"run {other.run_id} of uid {other.uid} cannot be rolled back: {one_line(str(error))}")
        return
    who = one_line(entry.pw_name, 40)
    note(f"run {one_line(other.run_id, 60)} of {who} is on: it is rolled back first, as {who}")
    try:
        said = decode(child.communicate(timeout=LIMIT_S)[0]).strip().splitlines()
        note(f"{who}: exit {child.returncode}, {one_line(said[-1], 200) if said else 'no word'}")
    except subprocess.TimeoutExpired:
        note(f"{who}: not done after {LIMIT_S:.0f} s; it is not waited for any longer")


def _environment(entry: pwd.struct_passwd) -> dict[str, str]:
    host_dir = os.environ.get("OMNI_HOST_DIR")
    return {
        "PATH": os.defpath, "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name,
        **({"OMNI_HOST_DIR": host_dir} if host_dir else {}),
    }  # fmt: skip


def _owner(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1
