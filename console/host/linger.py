"""Whether what outlives its terminal also outlives the logout of its user, as logind is set."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path


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
    user = os.environ.get("USER") or str(os.getuid())
    linger = Path("/var/lib/systemd/linger", user).exists()
    if linger and os.environ.get("XDG_RUNTIME_DIR") and shutil.which("systemd-run"):
        return Detachment(True)
    if os.getuid() != 0 and _kills_user_processes():
        return Detachment(
            False,
            "logind ends this run when you log out (KillUserProcesses=yes); "
            f"`loginctl enable-linger {user}` lets it live",
        )
    return Detachment(False)


def _kills_user_processes() -> bool:
    files = [Path("/etc/systemd/logind.conf")]
    for directory in ("/usr/lib/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"):
        files += sorted(Path(directory).glob("*.conf"))
    answer = False
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.strip().startswith("KillUserProcesses="):
                answer = line.split("=", 1)[1].strip().lower() in ("yes", "true", "1", "on")
    return answer
