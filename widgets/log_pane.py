"""A log to read: it follows the end, stays put while you read, searches, filters and wraps."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partialmethod

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.timer import Timer

from console.common.logs.buffer import LogBuffer, pattern
from console.common.logs.line import LogLine
from console.common.text import one_line
from widgets.bars import bindings
from widgets.log_bars import LogPrompt, LogTitle, title
from widgets.log_view import LogView
from widgets.rows import once

PAINT_S = 0.25
"""Seconds between two paintings of lines that come by themselves."""
SLICE_S = 0.008
_BETWEEN_SLICES_S = 0.005
_NOTICE_S = 4.0
_NO_ERROR = "no line looks like an error"
_NOTHING_MATCHES = "no line matches; Esc or & Enter shows all"


class LogPane(Vertical, can_focus=True):
    """One log at a time. `attach` names it, `take` adds lines; both on the UI loop."""

    BINDINGS = [
        *bindings("log"),
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("pagedown", "page(1.0)", "Page down", show=False),
        Binding("pageup", "page(-1.0)", "Page up", show=False),
        Binding("ctrl+d", "page(0.5)", "Half a page down", show=False),
        Binding("ctrl+u", "page(-0.5)", "Half a page up", show=False),
        Binding("right", "sideways(1)", "Right", show=False),
        Binding("left", "sideways(-1)", "Left", show=False),
        Binding("escape", "show_all", "Show all", show=False),
    ]
    DEFAULT_CSS = "LogPane { height: 1fr; width: 1fr; overflow: hidden; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.buffer = LogBuffer()
        self.view = LogView(self.buffer)
        self.prompt = LogPrompt()
        self._head = LogTitle()
        self._source = ""
        self._others: tuple[str, ...] = ()
        self._empty = ""
        self._notice = ""
        self._notice_until = 0.0
        self._painted = 0.0
        self._timer: Timer | None = None
        self._planned = False
        self._sought = 0
        """Direction (1, -1) of a pending search for a match; 2 for the nearest."""

    def compose(self) -> ComposeResult:
        yield self._head
        yield self.view
        yield self.prompt

    def on_mount(self) -> None:
        self._paint()

    def on_resize(self) -> None:
        self._paint_title()

    # lines

    def attach(self, name: str, empty: str) -> None:
        """Show another log from its start; `empty` says why it has no lines."""
        self._source, self._empty = one_line(name), one_line(empty)
        self._others = ()
        self.buffer.clear()
        self.view.place.reset()
        self.view.here = None
        self._notice, self._sought = "", 0
        self._paint()

    def name_others(self, names: Iterable[str]) -> None:
        """Name the other logs that can be read here, the next one first."""
        self._others = tuple(one_line(name, 40) for name in names)
        self._paint_title()

    @property
    def is_searching(self) -> bool:
        """Whether matches are marked."""
        return self.buffer.searched is not None

    def take(self, lines: list[LogLine]) -> None:
        """Add lines; they are painted within PAINT_S."""
        self.buffer.append(lines)
        if self._timer is None and not self._planned and self.is_running:
            # A timer must be set in the pane's own context, and lines may come from any.
            self._planned = True
            self.call_later(self._plan)

    def _plan(self) -> None:
        self._planned = False
        if self._timer is None:
            wait = self._painted + PAINT_S - time.monotonic()
            self._timer = once(self, max(_BETWEEN_SLICES_S, wait), self._tick)

    def _tick(self) -> None:
        """Filter and search for a moment; paint when that is done, and now and then before."""
        self._timer = None
        more = self._work()
        if not more or time.monotonic() - self._painted >= PAINT_S:
            self._paint()
        if more and self._timer is None:
            self._timer = once(self, _BETWEEN_SLICES_S, self._tick)

    def _work(self) -> bool:
        more = self.buffer.work(SLICE_S)
        if self._sought and not more:
            self._go_to_match()
        return more

    def _work_now(self) -> None:
        """After a key: the first slice at once, the rest in ticks."""
        if self._timer is not None:
            self._timer.stop()
        self._tick()

    # painting

    def _paint(self) -> None:
        self._painted = time.monotonic()
        hidden = self.buffer.filter is not None and len(self.buffer)
        self.view.words = _NOTHING_MATCHES if hidden else self._empty
        self.view.repaint()
        self._paint_title()

    def _paint_title(self) -> None:
        if time.monotonic() >= self._notice_until:
            self._notice = ""
        place, width = self.view.place, self.size.width
        self._head.show([title(self._source, self._others, place, self._notice, width)])

    def _say(self, words: str) -> None:
        """Show words in the title for a few seconds."""
        self._notice, self._notice_until = words, time.monotonic() + _NOTICE_S
        once(self, _NOTICE_S + 0.05, self._paint_title)
        self._paint_title()

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self.prompt.asking:
            return False
        if action == "show_all":
            return self.buffer.filter is not None or self.buffer.searched is not None
        return True

    def action_move(self, rows: int) -> None:
        self.view.move(rows)
        self._paint_title()

    def action_page(self, pages: float) -> None:
        rows = max(1, int(abs(pages) * self.view.size.height) - (abs(pages) == 1))
        self.action_move(rows if pages > 0 else -rows)

    def action_sideways(self, step: int) -> None:
        self.view.sideways(step)

    def action_follow(self) -> None:
        place = self.view.place
        (place.stop if place.follow else place.to_end)()
        self._paint()

    def action_bottom(self) -> None:
        self.view.place.to_end()
        self._paint()

    def action_top(self) -> None:
        self.view.place.to_top()
        self._paint()

    def action_timestamps(self) -> None:
        self.view.stamped = not self.view.stamped
        self.view.relook()

    def action_wrap(self) -> None:
        self.view.wrapped = not self.view.wrapped
        self.view.relook()

    def _error(self, step: int) -> None:
        self._go(self.buffer.error(self._from(step), step), step, _NO_ERROR)

    def _seek(self, step: int) -> None:
        if self.buffer.searched is None:
            self._say("no search: / first")
            return
        self._sought = step
        self._work_now()

    action_error_next = partialmethod(_error, 1)
    action_error_previous = partialmethod(_error, -1)
    action_match_next = partialmethod(_seek, 1)
    action_match_previous = partialmethod(_seek, -1)

    def action_search(self) -> None:
        self.prompt.ask("search", "/", empty=False)

    def action_filter(self) -> None:
        self.prompt.ask("filter", "&", empty=self.buffer.filter is not None)

    def action_show_all(self) -> None:
        """End the filter at the first Esc, the search at the next."""
        if self.buffer.filter is not None:
            self._set_filter("")
        else:
            self.buffer.search(None)
            self.view.here = None
            self._paint()

    def on_log_prompt_answered(self, event: LogPrompt.Answered) -> None:
        event.stop()
        here = self.screen.focused
        if not self.prompt.asking and (here is None or self.prompt in here.ancestors):
            self.screen.set_focus(self)
        if event.words is not None and event.what == "filter":
            self._set_filter(event.words)
        elif event.words is not None:
            self.buffer.search(pattern(event.words))
            self._sought = 2 if event.words else 0
            self._work_now()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-3)

    # filter, matches, errors

    def _set_filter(self, words: str) -> None:
        self.buffer.show(pattern(words, may_invert=True))
        self.view.place.anew()
        self._work_now()

    def _go_to_match(self) -> None:
        step, self._sought = self._sought, 0
        if self.buffer.searched is None:
            return
        if step == 2:
            self._go(self.view.place.nearest_match(self.view.here), 0, "no match")
        else:
            self._go(self.buffer.match(self._from(step), step), step, "no match")

    def _from(self, step: int) -> int:
        return self.view.place.seek_from(self.view.here, step)

    def _go(self, number: int | None, step: int, otherwise: str) -> None:
        """Show a line; with `step` 0 wrapping around is not announced."""
        if number is None:
            self._say(otherwise)
            return
        start = self._from(step)
        self.view.reveal(number)
        if step > 0 and number <= start:
            self._say("continued at the top")
        elif step < 0 and number >= start:
            self._say("continued at the end")
        self._paint_title()
