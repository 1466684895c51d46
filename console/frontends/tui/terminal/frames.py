"""What a screen sends to the terminal, and when: only changed cells, and one first frame.

The names used here are Textual's own private ones; its version is pinned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual.events import Idle
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

T = TypeVar("T")
EAGER_S = 0.5
"""Age of a screen up to which it paints at once, and its first frames as one."""
TURNS = 8
"""Turns of the event loop without new layout before a first frame is painted."""


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
    """A compositor that sends only changed cells; set after the screen's own `__init__`.

    Textual 8.2.8 repaints a row from a widget's left edge to its last changed cell: `ChopsUpdate`
    crops a span at its right end and not at its left. A clock at the right edge of a line would
    cost the whole line each second.
    """

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
        """For a partial update only its own widgets; Textual renders all in the clip."""
        if self._dirty is None:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if seen and any(seen.overlaps(dirty) for dirty in self._dirty):
                part = seen.translate((-region.x, -region.y))
                yield region, clip, widget.render_lines(part)


class FramedScreen(Screen[T]):
    """A screen that sends only changed cells, and as its first frame one that is complete."""

    _turns = 0

    def __init__(self) -> None:
        super().__init__()
        self._compositor = FineCompositor()
        self._made = time.monotonic()

    async def _on_idle(self, event: Idle) -> None:
        """At the start do each round of layout, scrolling and painting at once: Textual waits for a
        tick of its frame clock between them, and ours is slow on purpose."""
        if time.monotonic() - self._made < EAGER_S and self._unpainted:
            event.prevent_default()
            self._on_timer_update()

    def _compositor_refresh(self) -> None:
        """At the start paint one frame instead of five: the first layout gives each part its size,
        which triggers more layouts, and earlier frames would be replaced a moment later."""
        if time.monotonic() - self._made >= EAGER_S:
            super()._compositor_refresh()
            return
        waiting, self._turns = self._turns > 0, TURNS
        if not waiting:
            asyncio.get_running_loop().call_soon(self._one_turn)

    def _one_turn(self) -> None:
        self._turns -= 1
        if self._turns > 0:
            asyncio.get_running_loop().call_soon(self._one_turn)
        elif self.is_attached and self.app._batch_count:
            self._turns = 1  # Textual would render the frame now, and not send it
            asyncio.get_running_loop().call_soon(self._one_turn)
        elif self.is_attached:
            with self._context():
                # Textual forgets next what is dirty: some became so after the last look
                self._compositor.update_widgets(self._dirty_widgets)
                super()._compositor_refresh()

    @property
    def _unpainted(self) -> bool:
        return bool(
            self._layout_required or self._scroll_required or self._repaint_required
            or self._recompose_required or self._dirty_widgets
        )  # fmt: skip
