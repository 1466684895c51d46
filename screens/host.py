"""The guard's marks on this machine's gauges, and what doctor says, finding by finding."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from console.common.text import clean
from console.render.cells import glyphs
from console.render.gauges import marked_rows
from console.render.guard import line
from screens.base import Page
from widgets.bars import BaselineBadge, KeyLine
from widgets.lists import TextView
from widgets.rows import Row
from widgets.step_text import wrapped

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


class HostScreen(Page):
    """Runs doctor in a thread and shows its findings."""

    SCOPE = "host"
    DEFAULT_CSS = "HostScreen TextView { padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.findings: list[Finding] | None = None

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield TextView(id="findings")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(TextView))
        self.console.sampled.subscribe(self, lambda sample: self._draw())
        self._draw()
        self.in_thread(self._look)

    def _look(self) -> None:
        from console.checks.doctor.run import run

        found = run(self.console.watchers.site)
        self.on_loop(self._seen, found)

    def _seen(self, found: list[Finding]) -> None:
        self.findings = found
        self._draw()

    def redraw(self) -> None:
        self._draw()

    def _draw(self) -> None:
        view = self.query_one(TextView)
        if not view.size.width:
            return  # it is drawn when its size is known
        width = max(30, view.size.width - 3)
        rows = self._guard_rows(width)
        if self.findings is None:
            rows.append((("looking at this machine, four seconds at most …", "dim"),))
        else:
            rows += page_rows(self.findings, width)
        view.show(rows)

    def _guard_rows(self, width: int) -> list[Row]:
        """What is used of everything, and where the guard acts; its state above."""
        guard, sample = self.console.watchers.guard.latest, self.console.sample
        rows: list[Row] = [line(guard, time.monotonic(), width)]
        if sample is not None:
            rows += marked_rows(sample, guard.marks, width, glyphs())
        return [*rows, ()]


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
    what = f"{clean(found.what):<{WHAT}} "
    lead = " " * (len(sign[0]) + len(what))
    first, *more = wrapped(clean(found.detail, 600), width - len(lead))
    rows: list[Row] = [(sign, (what, "bold"), (first, ""))]
    rows += [((lead + line, ""),) for line in more]
    for hint in found.hint.splitlines():
        rows += [
            ((lead + line, "accent"),) for line in wrapped(clean(hint, 600), width - len(lead))
        ]
    return rows
