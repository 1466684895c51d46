"""Joining a rehearsal from another terminal: its lock, its site, its scripted cards.

Standard library only: `omni-console rollback --rehearse` reads this.
"""

from __future__ import annotations

import json
import os

from console.common import paths
from console.common.errors import UsageError


def join() -> str:
    """Take on the environment of the rehearsal that is here; its site file. Raises UsageError."""
    own = paths.rehearsal_dir()
    try:
        found = json.loads((own / "environment.json").read_text())
        os.environ.update({str(name): str(value) for name, value in found.items()})
    except (OSError, ValueError, AttributeError) as error:
        hint = "omni-console run PLAYBOOK --rehearse"
        raise UsageError("no rehearsal is here", str(own), hint) from error
    return str(own / "site.yaml")
