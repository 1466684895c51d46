"""What doctor says about this machine, finding by finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult

from console.text import clean
from screens.page import Page
from widgets.badge import BaselineBadge
from widgets.options import KeyLine
from widgets.pick_list import TextView
from widgets.rows import Row
from widgets.step_text import wrapped

if TYPE_CHECKING:
    from console.doctor.model import Finding

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
        self._draw()
        self.in_thread(self._look)

    def _look(self) -> None:
        from console.doctor.run import run

        found = run(self.console.desk.site)
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
        if self.findings is None:
            view.show([(("looking at this machine, four seconds at most …", "dim"),)])
        else:
            view.show([row for found in self.findings for row in finding_rows(found, width)])


def finding_rows(found: Finding, width: int) -> list[Row]:
    """Sign, what, detail; the hint under it."""
    sign = SIGN.get(str(found.level), ("     ", ""))
    text = f"{clean(found.what)}: {clean(found.detail, 600)}" if found.detail else clean(found.what)
    first, *more = wrapped(text, width - 6)
    rows: list[Row] = [(sign, (first, ""))]
    rows += [((" " * 5 + line, ""),) for line in more]
    if found.hint:
        rows += [
            ((" " * 5 + line, "accent"),) for line in wrapped(clean(found.hint, 600), width - 6)
        ]
    return rows
