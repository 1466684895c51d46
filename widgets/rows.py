"""Lines of parts: the base of every widget that shows plain data.

A part is a text and a tone; the tone is a word, its colour the theme's. Only cells that changed are
sent to the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.geometry import Region, Size
from textual.message import Message
from textual.message_pump import MessagePump
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

TONES = ("dim", "good", "warn", "bad", "bold", "accent", "second", "alarm", "cursor")
_COLOURS = {
    "dim": "text-muted", "good": "text-success", "warn": "text-warning", "bad": "text-error",
    "accent": "text-accent", "second": "text-secondary",
}  # fmt: skip
_BACKGROUNDS = {"alarm": "error", "cursor": "primary-muted"}
_BOLD = ("warn", "bad", "bold", "alarm", "cursor")

MAX_ROWS = 99_999
"""More rows than any list has."""

Part = tuple[str, str]
"""Clean text, and one of widgets.rows.TONES ("" is the widget's own)."""
Row = tuple[Part, ...]


def once(node: MessagePump, delay_s: float, callback: Callable[[], object]) -> Timer:
    """Call a function after a delay. Textual's own timer leaves out a tick that is late; one that
    has a single tick never comes where the machine stood still just as it began."""
    timer = node.set_timer(delay_s, callback)
    timer._skip = False
    return timer


def tones(widget: Widget) -> dict[str, Style]:
    """Styles by tone, to be laid over the widget's own, mixed once for each background; without
    colour a background is reverse.

    Not component classes: eight for every widget would be the work of a hundred style sheets before
    the first frame, and a component's muted colour is half transparent.
    """
    app = widget.app
    if app.current_theme.ansi:
        return NATIVE
    variables = app.theme_variables
    names = (*_COLOURS.values(), *_BACKGROUNDS.values())
    wanted = tuple(variables.get(name, "") for name in names)
    return _mixed(wanted, widget.background_colors[1].hex, app.no_color)


NATIVE = {
    "": Style.null(), "dim": Style(dim=True), "bold": Style(bold=True),
    "good": Style(color="green"), "accent": Style(color="cyan"), "second": Style(color="magenta"),
    "warn": Style(color="yellow", bold=True), "bad": Style(color="red", bold=True),
    "alarm": Style(color="red", bold=True, reverse=True), "cursor": Style(bold=True, reverse=True),
}  # fmt: skip
"""Styles by tone in the terminal's own sixteen colours, which cannot be mixed."""


@lru_cache(maxsize=64)
def _mixed(wanted: tuple[str, ...], background: str, no_color: bool) -> dict[str, Style]:
    own = Color.parse(background)
    texts = dict(zip(_COLOURS, wanted[: len(_COLOURS)], strict=True))
    grounds = dict(zip(_BACKGROUNDS, wanted[len(_COLOURS) :], strict=True))
    styles = {"": Style.null()}
    for tone in TONES:
        bold = True if tone in _BOLD else None
        if tone in grounds:
            ground = Color.parse(grounds[tone] or "#444444")
            styles[tone] = Style(
                color=_over(ground, "auto 87%").rich_color, bgcolor=(own + ground).rich_color,
                bold=bold, reverse=True if no_color else None,
            )  # fmt: skip
        else:
            value = texts.get(tone)
            color = _over(own, value).rich_color if value else None
            styles[tone] = Style(color=color, bold=bold)
    return styles


def _over(background: Color, value: str) -> Color:
    """A colour as the theme writes it (`#d75f5f`, `auto 60%`), mixed with what is behind it."""
    if value.startswith("auto"):
        share = float(value.removeprefix("auto").strip().rstrip("%") or 100) / 100
        return background + background.get_contrast_text(share)
    return background + Color.parse(value)


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
    """First and one past the last cell that differ, or None; respects cell widths."""
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


def refresh_cells(widget: Widget, y: int, begin: int, end: int) -> None:
    """Repaint cells of a row, if it is in view."""
    visible = y - widget.scroll_offset.y
    if 0 <= visible < widget.size.height:
        widget.refresh(Region(begin, visible, end - begin, 1))


def refresh_changed(widget: Widget, old: Sequence[Row], new: Sequence[Row]) -> None:
    """Repaint a widget's cells that differ between the old rows and as many new ones."""
    for y, (before, after) in enumerate(zip(old, new, strict=True)):
        cell_span = changed_cells(before, after)
        if cell_span is not None:
            refresh_cells(widget, y, *cell_span)


def text_of(rows: Sequence[Row]) -> str:
    return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)


class Rows(Widget):
    """A fixed number of rows."""

    DEFAULT_CSS = "Rows { height: auto; width: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: tuple[Row, ...] = ()

    def show(self, rows: Sequence[Row]) -> None:
        """Draw these rows from now on; only differences are repainted."""
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
        return text_of(self._rows)


class RowsView(ScrollView, can_focus=True):
    """Any number of rows, scrolled; with a cursor if `cursor` is not None."""

    DEFAULT_CSS = (
        "RowsView { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; "
        "scrollbar-size-horizontal: 0; }"
    )

    class Resized(Message):
        """The width has changed: rows fitted to the old one must be made again."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
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
            refresh_changed(self, old, self._rows)
            for row in (before, cursor) if moved else ():
                if row is not None:
                    refresh_cells(self, row, 0, self.size.width)
        if moved and cursor is not None:
            self.keep_in_view(cursor)

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
        return text_of(self._rows)


def moving(page: int) -> list[BindingType]:
    """The keys that move a cursor: every list has them, and the help names them once."""
    keys = (
        ("j,down", 1, "Down"), ("pagedown,ctrl+d", page, "Page down"), ("G,end", MAX_ROWS, "Last"),
        ("k,up", -1, "Up"), ("pageup,ctrl+u", -page, "Page up"), ("g,home", -MAX_ROWS, "First"),
    )  # fmt: skip
    return [Binding(names, f"move({by})", title, show=False) for names, by, title in keys]


class PickList(RowsView):
    """Rows with a cursor; the screen decides what a row means."""

    BINDINGS = [*moving(10), Binding("enter", "pick", "Pick", show=False)]

    class Moved(Message):
        """The cursor stands on another row."""

    class Picked(Message):
        """Enter was pressed on a row."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def fill(self, rows: Sequence[Row], at: int | None = None) -> None:
        """Set other rows; the cursor stays where it is, as far as there are rows, or goes to `at`,
        because what it stood on has moved there."""
        at = (self.cursor or 0) if at is None else at
        self.show(rows, min(at, len(rows) - 1) if rows else None)

    def action_move(self, by: int) -> None:
        if self._rows:
            at = max(0, min(len(self._rows) - 1, (self.cursor or 0) + by))
            if at != self.cursor:
                self.show(self._rows, at)
                self.post_message(self.Moved())

    def action_pick(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Picked(self.cursor))


class TextView(RowsView):
    """Text to read: scrolled by the usual keys."""

    BINDINGS = [
        Binding("j,down", "scroll_down", "Down", show=False),
        Binding("k,up", "scroll_up", "Up", show=False),
        Binding("pagedown,space,ctrl+d", "page_down", "Page down", show=False),
        Binding("pageup,ctrl+u", "page_up", "Page up", show=False),
        Binding("g,home", "scroll_home", "Top", show=False),
        Binding("G,end", "scroll_end", "End", show=False),
    ]
