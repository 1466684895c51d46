"""A run that is a rehearsal: what was put in the place of what, from the file in its directory."""

from __future__ import annotations

from typing import Any

from console.config.site.site import Site
from console.journal.run_dir import RunDir
from console.rehearsal import mapping
from console.rehearsal.rewrite import Rewriter
from console.rehearsal.workspace import MAPPING


def rewriter(run: RunDir, site: Site) -> Rewriter | None:
    """What turns the run's playbook into its rehearsal; None for a real run. Raises UsageError."""
    path = run.path / MAPPING
    if not path.exists():
        return None
    return Rewriter(mapping.read(path), site.model.engine.host)


def record(made: Rewriter | None) -> dict[str, Any]:
    """What the journal says of it, from the first event on; empty for a real run."""
    if made is None:
        return {}
    return {"fault": made.mapping.fault, "speed": made.mapping.speed,
            "notes": list(dict.fromkeys(made.notes))}  # fmt: skip
