"""A compositor that sends changed cells only.

Textual 8.2.8 repaints a row from a widget's left edge to its last changed cell: `ChopsUpdate` crops
a span at its right end and not at its left. A clock at the right edge of a line would cost the
whole line each second. The names used here are Textual's own private ones; its version is pinned.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip


class FineUpdate(ChopsUpdate):
    """Spans cropped at both ends."""

    def render_segments(self, console: Console) -> str:
        out: list[str] = []
        for y, begin, end in self.spans:
            ends = self.chop_ends[y]
            for right, (left, strip) in zip(ends, self.chops[y].items(), strict=False):
                if strip is None or left >= end or right <= begin:
                    continue
                first, last = max(left, begin), min(right, end)
                out.append(Control.move_to(first, y).segment.text)
                out.append(strip.crop(first - left, last - left).render(console))
        return "".join(out)


class FineCompositor(Compositor):
    """A screen's compositor, set after the screen's own `__init__`."""

    _dirty: list[Region] | None = None
    """The regions of a partial update while it is rendered."""

    def render_partial_update(self) -> ChopsUpdate | None:
        self._dirty = list(self._dirty_regions)
        try:
            update = super().render_partial_update()
        finally:
            self._dirty = None
        return update and FineUpdate(update.chops, update.spans, update.chop_ends)

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Of a partial update only the widgets in it: Textual renders all that its clip touches."""
        if self._dirty is None:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if seen and any(seen.overlaps(dirty) for dirty in self._dirty):
                part = seen.translate((-region.x, -region.y))
                yield region, clip, widget.render_lines(part)
