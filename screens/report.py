"""The report of a run to read, with its charts drawn in text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote

from console.common.errors import ConsoleError
from console.common.text import clean, one_line
from console.journal.run_dir import RunDir
from console.journal.run_files import view_of
from console.journal.run_view import RunView
from console.journal.samples import Gauge, gauges, soak_series
from console.render.cells import glyphs
from console.render.measuring import run_bars
from console.render.text_chart import Curve, chart
from screens.base import MIN_COLUMNS, ReadingPage
from widgets.rows import Row, TextView, spread
from widgets.steps import paragraph, wrapped

MARKS = re.compile(r"(?<!\\)(?:\*\*|`)")
"""Markdown for print, not for a terminal."""
ESCAPED = re.compile(r"\\([\\|`*<(])")
PICTURE = re.compile(r"!\[(.*)\]\(([^()]*)\)")
HIGH, BARS, WIDEST = 5, 14, 100
"""Rows of a curve, of a benchmark's bars, and cells of the widest chart."""
NARROWEST = 12
"""Cells of a column below which a row of a table becomes a block."""

NOT_YET = "."
"""The folder of a provisional report's pictures, which are not written yet."""

Drawing = Callable[[int], list[Row]]
"""Draws a chart in so many cells."""
NONE: Mapping[str, Drawing] = {}


class ReportScreen(ReadingPage):
    """report.md as it was written, with its path; until the run has ended, the report as it would
    be now."""

    SCOPE = "report"

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self.run_dir = run
        self.where = ""
        self.lines: list[str] = []
        self.drawings: Mapping[str, Drawing] = NONE

    def stand(self) -> None:
        self.in_thread(self._read)

    def _read(self) -> None:
        run, drawn = self.run_dir, NONE
        try:
            view, _ = view_of(run)
            if view.finished:
                where, text = str(run.report), run.report.read_text("utf-8", "replace")
            else:
                from console.render.report.document import evidence, markdown

                where = f"provisional: {run.report} is written when the run ends"
                text = markdown(view, evidence(run, view), NOT_YET)
            drawn = drawings(run, view)
        except (ConsoleError, OSError) as error:
            where, text = str(run.report), f"There is no report: {one_line(str(error), 300)}"
        self.on_loop(self._show, where, text.splitlines()[:5000], drawn)

    def _show(self, where: str, lines: list[str], drawn: Mapping[str, Drawing]) -> None:
        self.where, self.lines, self.drawings = where, lines, drawn
        self.redraw()

    def head(self, width: int) -> list[Row]:
        room = max(MIN_COLUMNS, self.query_one(TextView).size.width - 3)
        return paragraph(clean(self.where), room, "dim")

    def rows(self, width: int) -> list[Row]:
        return report_rows(self.lines, width, self.drawings)


def report_rows(lines: list[str], width: int, drawn: Mapping[str, Drawing] = NONE) -> list[Row]:
    """Headings bold, tables as aligned columns, pictures drawn as far as they can be, the rest
    wrapped."""
    rows: list[Row] = []
    block: list[list[str]] = []
    for raw in [*map(clean, lines), ""]:
        if raw.startswith("|"):
            block.append([read(cell).strip() for cell in raw.strip("|").split(" | ")])
            continue
        rows += _table(block, width)
        block = []
        if (picture := PICTURE.fullmatch(raw.strip())) is not None:
            rows += _picture(picture[1], picture[2], width, drawn)
        elif raw.startswith("#"):
            rows.append(((read(raw).lstrip("# "), "bold"),))
        else:
            # an indented block is literal
            rows += paragraph(raw if raw.startswith("    ") else read(raw), width, indent="  ")
    return rows


def read(text: str) -> str:
    """Markdown as plain readable text."""
    return ESCAPED.sub(r"\1", MARKS.sub("", text))


def _picture(about: str, path: str, width: int, drawn: Mapping[str, Drawing]) -> list[Row]:
    """What a picture shows, drawn under its words; the file that has it in full."""
    draw = drawn.get(PurePosixPath(unquote(path)).stem)
    rows = draw(min(width, WIDEST)) if draw is not None else []
    there: list[Row] = [((f"in full: {unquote(path)}", "dim"),)]
    return [*paragraph(read(about), width), *rows, *([] if path.startswith(NOT_YET) else there)]


def _table(block: list[list[str]], width: int) -> list[Row]:
    """A table in columns, whose cells are wrapped where it is too wide; where columns would be too
    narrow to read, each row as a block of `head: cell`."""
    cells = [row for row in block if set("".join(row)) - set("-:| ")]
    if not cells:
        return []
    columns = max(len(row) for row in cells)
    padded = [row + [""] * (columns - len(row)) for row in cells]
    sizes = [max(1, *(len(row[i]) for row in padded)) for i in range(columns)]
    room = width - 2 * (columns - 1)
    while sum(sizes) > room and (most := max(sizes)) > NARROWEST:
        sizes[sizes.index(most)] = max(NARROWEST, most - max(1, (sum(sizes) - room) // columns))
    if sum(sizes) > room:
        return _blocks(padded, width)
    rows: list[Row] = []
    for number, row in enumerate(padded):
        parts = [wrapped(cell, size) for cell, size in zip(row, sizes, strict=True)]
        for at in range(max(map(len, parts))):
            line = (part[at] if at < len(part) else "" for part in parts)
            text = "  ".join(f"{cell:<{size}}" for cell, size in zip(line, sizes, strict=True))
            rows.append(((text.rstrip(), "dim" if number == 0 else ""),))
    return rows


def _blocks(table: list[list[str]], width: int) -> list[Row]:
    heads, *others = table
    rows: list[Row] = []
    for row in others:
        rows.append(((row[0], "bold"),))
        for head, cell in zip(heads[1:], row[1:], strict=True):
            if cell:
                rows += paragraph(f"  {head}: {cell}", width, indent="    ")
    return rows


# -- charts ----------------------------------------------------------------------------------------


def drawings(run: RunDir, view: RunView) -> dict[str, Drawing]:
    """How the charts of a report are drawn in a terminal, by the stem of the picture's file. Reads
    files, so not on the UI loop."""
    from console.render.report.charts import file_name
    from console.render.report.soak import soak_of, soak_steps

    charts: dict[str, Drawing] = {}
    for step in view.steps:
        if step.runs:
            charts[file_name("samples", step.id)] = lambda width, step=step: run_bars(  # type: ignore[misc]
                view, step, width, BARS, glyphs()
            )
    for name in soak_steps(view):
        series = soak_series(run, soak_of(view, name))
        rates = tuple((request.t, request.tok_s) for request in series.requests)
        if any(rate is not None for _, rate in rates):
            top = 1.1 * max(rate for _, rate in rates if rate is not None)
            curve = Curve("tok/s", rates, top, unit="")
            charts[file_name("soak", name)] = _drawn([curve], 0.0, series.end)
    moments = gauges(run)
    if len(moments) > 1:
        curves = _memory(moments)
        charts["memory"] = _drawn(curves, moments[0].at, moments[-1].at)
    return charts


def _memory(moments: list[Gauge]) -> list[Curve]:
    """RAM, and each card's memory, in use over the run."""
    series = {"RAM": [(moment.at, moment.ram) for moment in moments]}
    for at, uuid in enumerate(dict.fromkeys(card for moment in moments for card in moment.gpu)):
        series[f"card {at}"] = [(moment.at, moment.gpu.get(uuid)) for moment in moments]
    return [
        Curve(name, tuple(points), 1.1 * max(known), below=False)
        for name, points in series.items()
        if (known := [value for _, value in points if value])
    ]


def _drawn(curves: Iterable[Curve], begin: float, end: float) -> Drawing:
    def draw(width: int) -> list[Row]:
        rows: list[Row] = []
        for curve in curves:
            rows.append(spread(((curve.name, "bold"),), ((f"{end - begin:.0f} s", "dim"),), width))
            rows += chart(curve, begin, end, width, HIGH, glyphs())
        return rows

    return draw
