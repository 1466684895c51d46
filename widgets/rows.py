"""Lines of parts, drawn as they stand: the base of every widget that shows plain data.

A part is a text and a tone; the tone is a word, its colour the theme's. Only cells that changed are
sent to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor
from textual.color import Color
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

TONES = ("dim", "good", "warn", "bad", "bold", "accent", "alarm", "cursor")
_COLOURS = {
    "dim": "text-muted", "good": "text-success", "warn": "text-warning", "bad": "text-error",
    "accent": "text-accent",
}  # fmt: skip
_BACKGROUNDS = {"alarm": "error", "cursor": "primary-muted"}
_BOLD = ("warn", "bad", "bold", "alarm", "cursor")

Part = tuple[str, str]
"""Clean text, and one of widgets.rows.TONES ("" is the widget's own)."""
Row = tuple[Part, ...]


def tones(widget: Widget) -> dict[str, Style]:
    """Styles by tone, to be laid over the widget's own, mixed once for each background; without
    colour a background is reverse.

    Not component classes: eight of them for every widget are a hundred style sheets' work before
    the first frame, and a component's muted colour is half transparent besides.
    """
    app = widget.app
    variables = app.theme_variables
    names = (*_COLOURS.values(), *_BACKGROUNDS.values())
    wanted = tuple(variables.get(name, "") for name in names)
    return _mixed(wanted, widget.background_colors[1].hex, app.no_color)


@lru_cache(maxsize=64)
def _mixed(wanted: tuple[str, ...], background: str, no_color: bool) -> dict[str, Style]:
    own = Color.parse(background)
    texts = dict(zip(_COLOURS, wanted[: len(_COLOURS)], strict=True))
    grounds = dict(zip(_BACKGROUNDS, wanted[len(_COLOURS) :], strict=True))
    found = {"": Style.null()}
    for tone in TONES:
        bold = True if tone in _BOLD else None
        if tone in grounds:
            ground = Color.parse(grounds[tone] or "#444444")
            found[tone] = Style(
                color=_over(ground, "auto 87%").rich_color, bgcolor=(own + ground).rich_color,
                bold=bold, reverse=True if no_color else None,
            )  # fmt: skip
        else:
            value = texts.get(tone)
            color = _over(own, value).rich_color if value else None
            found[tone] = Style(color=color, bold=bold)
    return found


def _over(background: Color, value: str) -> Color:
    """A colour as the theme writes it (`#d75f5f`, `auto 60%`), mixed with what is behind it."""
    if value.startswith("auto"):
        share = float(value.removeprefix("auto").strip().rstrip("%") or 100) / 100
        return background + background.get_contrast_text(share)
    return background + Color.parse(value)


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
    """A screen's compositor, set after the screen's own `__init__`, that sends changed cells only.

    Textual 8.2.8 repaints a row from a widget's left edge to its last changed cell: `ChopsUpdate`
    crops a span at its right end and not at its left. A clock at the right edge of a line would
    cost the whole line each second. The names used here are Textual's own private ones; its version
    is pinned.
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
        """Of a partial update only the widgets in it: Textual renders all that its clip touches."""
        if self._dirty is None:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if seen and any(seen.overlaps(dirty) for dirty in self._dirty):
                part = seen.translate((-region.x, -region.y))
                yield region, clip, widget.render_lines(part)


def width_of(row: Iterable[Part]) -> int:
    """Cells a row takes."""
    return sum(cell_len(text) for text, _ in row)


def fit(row: Row, width: int, ellipsis: str = "…") -> Row:
    """The row cut to `width` cells, with a sign at the cut."""
    if width_of(row) <= width:
        return row
    out: list[Part] = []
    left = max(0, width - 1)
    for text, tone in row:
        size = cell_len(text)
        if size > left:
            out.append((set_cell_size(text, left), tone))
            break
        out.append((text, tone))
        left -= size
    return (*out, (ellipsis, "dim")) if width > 0 else ()


def spread(left: Row, right: Row, width: int, ellipsis: str = "…") -> Row:
    """`left` at the left edge, `right` at the right one; the left is cut where both do not fit."""
    room = width - width_of(right) - 1
    cut = fit(left, max(0, room), ellipsis)
    gap = max(1, width - width_of(cut) - width_of(right))
    return (*cut, (" " * gap, ""), *right)


def strip_of(row: Row, width: int, base: Style, styles: dict[str, Style]) -> Strip:
    """A row as a strip of exactly `width` cells."""
    segments = [Segment(text, base + styles.get(tone, Style.null())) for text, tone in row if text]
    return Strip(segments).adjust_cell_length(width, base)


def changed_cells(old: Row, new: Row) -> tuple[int, int] | None:
    """First and one past the last cell that differ, or None; cell widths are minded."""
    if old == new:
        return None
    flat_old, flat_new = _cells(old), _cells(new)
    size = max(len(flat_old), len(flat_new))
    flat_old += [(" ", "")] * (size - len(flat_old))
    flat_new += [(" ", "")] * (size - len(flat_new))
    differ = [i for i in range(size) if flat_old[i] != flat_new[i]]
    return (differ[0], differ[-1] + 1) if differ else None


def _cells(row: Row) -> list[Part]:
    out: list[Part] = []
    for text, tone in row:
        for char in text:
            out += [(char, tone)] * cell_len(char)
    return out


def refresh_changed(widget: Widget, old: Sequence[Row], new: Sequence[Row]) -> None:
    """Repaint the cells of a widget that differ between as many old and new rows."""
    for y, (before, after) in enumerate(zip(old, new, strict=True)):
        found = changed_cells(before, after)
        if found is not None:
            widget.refresh(Region(found[0], y, found[1] - found[0], 1))


class Rows(Widget):
    """A fixed number of rows."""

    DEFAULT_CSS = "Rows { height: auto; width: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: tuple[Row, ...] = ()

    def show(self, rows: Sequence[Row]) -> None:
        """Draw these rows from now on; only what differs is repainted."""
        old, self._rows = self._rows, tuple(rows)
        if not self.is_mounted:
            return
        if len(old) != len(self._rows):
            self._layout_required = False  # or Textual takes the height it remembers
            self.refresh(layout=True)
            return
        refresh_changed(self, old, self._rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self._rows))

    def render_line(self, y: int) -> Strip:
        row = self._rows[y] if y < len(self._rows) else ()
        return strip_of(row, self.size.width, self.rich_style, tones(self))

    @property
    def text(self) -> str:
        """What is drawn, as text; for tests and exports."""
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self._rows)


class RowsView(ScrollView, can_focus=True):
    """Any number of rows, scrolled; with a cursor where `cursor` is not None."""

    DEFAULT_CSS = (
        "RowsView { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; "
        "scrollbar-size-horizontal: 0; }"
    )

    class Resized(Message):
        """It has another width: rows that were fitted to the old one are to be made anew."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: tuple[Row, ...] = ()
        self._width = 0
        self.cursor: int | None = None

    def show(self, rows: Sequence[Row], cursor: int | None = None) -> None:
        """Draw these rows; the cursor's row is kept in view when it moved."""
        old, self._rows = self._rows, tuple(rows)
        moved, before = cursor != self.cursor, self.cursor
        self.cursor = cursor
        if len(old) != len(self._rows):
            self.virtual_size = Size(self.size.width, len(self._rows))
            self.refresh()
        else:
            for y, (was, now) in enumerate(zip(old, self._rows, strict=True)):
                found = changed_cells(was, now)
                if found is not None:
                    self._refresh_row(y, found[0], found[1])
            if moved:
                for row in (before, cursor):
                    if row is not None:
                        self._refresh_row(row, 0, self.size.width)
        if moved and cursor is not None:
            self.keep_in_view(cursor)

    def _refresh_row(self, y: int, begin: int, end: int) -> None:
        visible = y - self.scroll_offset.y
        if 0 <= visible < self.size.height:
            self.refresh(Region(begin, visible, end - begin, 1))

    def keep_in_view(self, row: int) -> None:
        """Scroll no further than needed to show this row."""
        height = self.scrollable_content_region.height
        top = self.scroll_offset.y
        if height <= 0:
            return
        if row < top:
            self.scroll_to(y=row, animate=False)
        elif row >= top + height:
            self.scroll_to(y=row - height + 1, animate=False)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._rows))
        if self.cursor is not None:
            self.keep_in_view(self.cursor)
        if self.size.width != self._width:
            self._width = self.size.width
            self.post_message(self.Resized())

    def render_line(self, y: int) -> Strip:
        at = y + self.scroll_offset.y
        row = self._rows[at] if at < len(self._rows) else ()
        base, styles = self.rich_style, tones(self)
        if at == self.cursor and row:
            base += styles["cursor"]
        return strip_of(row, self.size.width, base, styles)

    @property
    def text(self) -> str:
        """All rows as text; for tests and exports."""
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self._rows)
