"""Runs code as a user who is in one group only, in a child that first gives up root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.testbed.plugin import lacking

UID = 54321
ROOT = Path(__file__).parents[2]
DROP = """
import json, os, sys
import console.recovery.guard.kill.killer, console.recovery.guard.kill.targets
import console.recovery.guard.kill.signals, console.recovery.rollback.live
groups, arguments = json.loads(sys.argv[1])
os.setgroups(groups)
os.setgid({uid})
os.setuid({uid})
"""


def as_user(code: str, groups: list[int], *arguments: Any) -> Any:
    """Return what `code` prints, as JSON. The code has `arguments`, and its modules are loaded as
    root before."""
    if os.geteuid() != 0:
        lacking("only root can become another user")
    program = DROP.format(uid=UID) + code
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps([groups, arguments])],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
