"""The gauges in a few rows: drawn from samples, and only the cells that changed."""

from __future__ import annotations

from collections.abc import Mapping

from textual.events import Resize
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from console.host.sample import NO_MARKS, GpuReport, Marks, Sample, Trend
from console.render.cells import glyphs
from console.render.gauges import all_rows
from console.render.gpu import trend_value
from widgets.rows import Row, refresh_changed, strip_of, tones


def gauge_rows(
    sample: Sample | None, now: float, width: int, trends: Mapping[str, Trend], max_rows: int = 0,
    marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """Every gauge in `width` cells and at most `max_rows` rows (0: any number); `now` in
    monotonic seconds. Before the first sample: one row that says so."""
    if sample is None:
        return [(("sampling ", "dim"), (glyphs().ellipsis, "dim"))]
    return all_rows(sample, width, now, glyphs(), trends, max_rows, marks)


class GaugeStrip(Widget):
    """GPU, memory and disk gauges. Its height follows from its width, the number of cards and
    `max_rows` (0: as many as it takes), not from any figure."""

    DEFAULT_CSS = "GaugeStrip { height: auto; width: 1fr; }"

    def __init__(
        self, max_rows: int = 0, *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._max_rows = max_rows
        self._sample: Sample | None = None
        self._now = 0.0
        self._marks = NO_MARKS
        self._rows: list[Row] = []
        self._trends: dict[str, Trend] = {}
        self._trend_at = -1.0

    @property
    def max_rows(self) -> int:
        """The most rows it may take; 0: any number."""
        return self._max_rows

    @max_rows.setter
    def max_rows(self, most: int) -> None:
        if most != self._max_rows:
            self._max_rows = most
            self._draw()

    def show(self, sample: Sample, now: float, marks: Marks = NO_MARKS) -> None:
        """Draw this sample; `now` (monotonic seconds) is what ages are counted to. To be called
        at each tick, with an old sample as well: its age is part of what is shown. `marks`: where
        a guard acts."""
        self._sample, self._now, self._marks = sample, now, marks
        if sample.gpu is not None and sample.gpu.at != self._trend_at:
            self._remember(sample.gpu)
        self._draw()

    def rows(self, width: int) -> int:
        """Rows it takes at this width, for what was shown last."""
        return len(self._compose_rows(width))

    @property
    def text(self) -> str:
        """What is drawn, as text; for tests and exports."""
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self._rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.rows(width)

    def render_line(self, y: int) -> Strip:
        row = self._rows[y] if y < len(self._rows) else ()
        # neighbours of one style are sent as one
        return strip_of(row, self.size.width, self.rich_style, tones(self)).simplify()

    def on_resize(self, event: Resize) -> None:
        self._rows = self._compose_rows(event.size.width)
        self.refresh()

    def _remember(self, report: GpuReport) -> None:
        """One value a report, also where a card is lost: its trend goes on with a gap."""
        self._trend_at = report.at
        current = {gpu.uuid: trend_value(gpu) for gpu in report.gpus}
        for uuid in current:
            self._trends.setdefault(uuid, Trend())
        for uuid, trend in self._trends.items():
            trend.add(current.get(uuid))

    def _compose_rows(self, width: int) -> list[Row]:
        return gauge_rows(self._sample, self._now, width, self._trends, self._max_rows, self._marks)

    def _draw(self) -> None:
        if not self.is_mounted or not self.size.width:
            return
        old, self._rows = self._rows, self._compose_rows(self.size.width)
        if len(old) != len(self._rows):
            self.refresh(layout=True)
            return
        refresh_changed(self, old, self._rows)
