"""The guard's marks on this machine's gauges, and what doctor says, finding by finding."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from console.common.text import clean
from console.render.cells import glyphs
from console.render.gauges import marked_rows
from console.render.guard_text import line
from screens.base import ReadingPage
from widgets.rows import Row, width_of
from widgets.steps import behind, wrapped

if TYPE_CHECKING:
    from console.checks.doctor.facts import Finding

WHAT = 13
"""Cells of the name of what was looked at."""
SIGN = {
    "ok": ("  ok ", "good"),
    "note": ("note ", "dim"),
    "warning": ("WARN ", "warn"),
    "failed": ("FAIL ", "bad"),
}


class HostScreen(ReadingPage):
    """Runs doctor in a thread and shows its findings."""

    SCOPE = "host"
    HEAD = False

    def __init__(self) -> None:
        super().__init__()
        self.findings: list[Finding] | None = None

    def stand(self) -> None:
        self.console.sampled.subscribe(self, lambda sample: self.redraw())
        self.in_thread(self._look)

    def _look(self) -> None:
        from console.checks.doctor.run import run

        self.on_loop(self._seen, run(self.console.watchers.site))

    def _seen(self, found: list[Finding]) -> None:
        self.findings = found
        self.redraw()

    def rows(self, width: int) -> list[Row]:
        """What is used of everything, and where the guard acts, its state above; the findings."""
        width = max(30, width)
        guard, sample = self.console.watchers.guard.latest, self.console.sample
        rows: list[Row] = [line(guard, time.monotonic(), width)]
        if sample is not None:
            rows += marked_rows(sample, guard.marks, width, glyphs())
        rows.append(())
        if self.findings is None:
            return [*rows, (("looking at this machine, four seconds at most …", "dim"),)]
        return rows + page_rows(self.findings, width)


def page_rows(findings: list[Finding], width: int) -> list[Row]:
    """What failed, what warns, then every finding under its group's heading."""
    from console.checks.doctor.run import counts

    failed, warnings = counts(findings)
    tone = "bad" if failed else "warn" if warnings else "good"
    rows: list[Row] = [((f"{failed} failed, {warnings} warnings", tone),)]
    for level in ("failed", "warning"):
        for found in findings:
            if str(found.level) == level:
                rows += finding_rows(found, width)
    group = ""
    for found in findings:
        if found.group != group:
            group = found.group
            rows += [(), ((group, "bold"),)]
        rows += finding_rows(found, width)
    return rows


def finding_rows(found: Finding, width: int) -> list[Row]:
    """Sign, what, detail; the hint under it."""
    sign = SIGN.get(str(found.level), ("     ", ""))
    lead: Row = (sign, (f"{clean(found.what):<{WHAT}} ", "bold"))
    rows = behind(lead, clean(found.detail, 600), width)
    indent = width_of(lead)
    for hint in found.hint.splitlines():
        for text in wrapped(clean(hint, 600), width - indent):
            rows.append(((" " * indent + text, "accent"),))
    return rows
