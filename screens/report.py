"""The report of a run, to read; the file's path stands above it."""

from __future__ import annotations

import re

from textual.app import ComposeResult

from console.common.text import clean
from console.journal.run_dir import RunDir
from screens.page import Page
from widgets.badge import BaselineBadge
from widgets.options import KeyLine
from widgets.pick_list import TextView
from widgets.rows import Row, Rows
from widgets.step_text import wrapped

MARKS = re.compile(r"(?<!\\)(?:\*\*|`)")
"""Markdown for print, not for a terminal."""
ESCAPED = re.compile(r"\\([\\|`*<(])")
PICTURE = re.compile(r"!\[(.*)\]\(([^()]*)\)")


class ReportScreen(Page):
    """report.md as it was written, or why there is none."""

    SCOPE = "report"
    DEFAULT_CSS = """
    ReportScreen #head { background: $panel; }
    ReportScreen TextView { padding: 0 1; }
    """

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self.run_dir = run
        self.lines: list[str] = []

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield Rows(id="head")
        yield TextView(id="report")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(TextView))
        self.in_thread(self._read)

    def _read(self) -> None:
        try:
            text = self.run_dir.report.read_text("utf-8", "replace")
        except OSError:
            text = "There is no report yet: it is written when the run ends."
        self.on_loop(self._show, text.splitlines()[:5000])

    def _show(self, lines: list[str]) -> None:
        self.lines = lines
        self._draw()

    def redraw(self) -> None:
        self._draw()

    def _draw(self) -> None:
        view = self.query_one(TextView)
        if not view.size.width:
            return
        width = max(20, view.size.width - 3)
        path = [((line, "dim"),) for line in wrapped(clean(str(self.run_dir.report)), width)]
        self.query_one("#head", Rows).show(path)
        view.show(report_rows(self.lines, width))


def report_rows(lines: list[str], width: int) -> list[Row]:
    """Headings bold, tables as aligned columns where they fit, the rest wrapped."""
    rows: list[Row] = []
    block: list[list[str]] = []
    for raw in [*map(clean, lines), ""]:
        if raw.startswith("|"):
            block.append([read(cell).strip() for cell in raw.strip("|").split(" | ")])
            continue
        # an indented block is literal
        line = raw if raw.startswith("    ") else read(PICTURE.sub(r"chart \2: \1", raw))
        rows += _table(block, width)
        block = []
        if line.startswith("#"):
            rows.append(((line.lstrip("# "), "bold"),))
        else:
            rows += [((text, ""),) for text in wrapped(line, width, "  ")]
    return rows


def read(text: str) -> str:
    """Markdown as it is meant to be read."""
    return ESCAPED.sub(r"\1", MARKS.sub("", text))


def _table(block: list[list[str]], width: int) -> list[Row]:
    cells = [row for row in block if set("".join(row)) - set("-:| ")]
    if not cells:
        return []
    columns = max(len(row) for row in cells)
    padded = [row + [""] * (columns - len(row)) for row in cells]
    sizes = [max(len(row[i]) for row in padded) for i in range(columns)]
    lead = sum(sizes[:-1]) + 2 * (columns - 1)
    if lead + min(sizes[-1], 24) > width:
        return [
            ((text, ""),)
            for row in cells
            for text in wrapped("  ".join(filter(None, row)), width, "    ")
        ]
    rows: list[Row] = []
    for row in padded:
        begin = "".join(f"{cell:<{size}}  " for cell, size in zip(row, sizes[:-1], strict=False))
        first, *more = wrapped(row[-1], width - lead)
        rows.append(((begin + first, ""),))
        rows += [((" " * lead + text, ""),) for text in more]
    return rows
