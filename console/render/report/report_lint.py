"""What lint said before the run, and what was gone past with a reason."""

from __future__ import annotations

from typing import Any

from console.common import redact
from console.journal.run_view import RunView
from console.render.report.markdown import code, prose, table


def findings(view: RunView) -> list[dict[str, Any]]:
    return [one for one in view.header.get("lint") or [] if isinstance(one, dict)]


def lint_lines(view: RunView) -> list[str]:
    """A table; nothing where nothing was found."""
    rows = [
        (
            code(one.get("place") or "", 200),
            f"{one.get('severity', '')}: {prose(redact.text(str(one.get('what') or '')), 300)}",
            prose(" ".join([str(one.get("rule", "")), *map(str, one.get("lessons") or [])]), 120),
            prose(one.get("override") or "", 200),
        )
        for one in findings(view)
    ]
    if not rows:
        return []
    return ["## Lint", "", *table(("place", "what", "rule", "gone past because"), rows)]
