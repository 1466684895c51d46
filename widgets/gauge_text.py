"""A sample as the strip's rows, with the signs this terminal can show. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from console.host.marks import NO_MARKS, Marks
from console.host.sample import Sample
from console.host.trend import Trend
from console.render.cells import Signs
from console.render.glyph import ASCII, Glyphs, glyphs
from console.render.layout import all_rows
from widgets.rows import Row


def signs(chosen: Glyphs | None = None) -> Signs:
    """What bars and trends are drawn with; the set in use unless one is given."""
    one = chosen or glyphs()
    celsius = "C" if one is ASCII else "°C"
    return Signs(one.full, one.empty, one.levels, one.ellipsis, celsius, one.mark, one.up, one.line)


def gauge_rows(
    sample: Sample | None, now: float, width: int, trends: Mapping[str, Trend], max_rows: int = 0,
    marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """Every gauge in `width` cells and at most `max_rows` rows (0: any number); `now` in
    monotonic seconds. Before the first sample: one row that says so."""
    if sample is None:
        return [(("sampling ", "dim"), (glyphs().ellipsis, "dim"))]
    return all_rows(sample, width, now, signs(), trends, max_rows, marks)
