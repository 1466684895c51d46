"""The line above a log, the line where a search or filter is typed, and inputs for clean text."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.events import Paste
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Input, Static

from console.common.logs.buffer import LogBuffer, Matches
from console.common.logs.viewport import Place
from console.common.text import harmless
from console.render.cells import cells, glyphs
from widgets.rows import Part, Row, Rows, fit, width_of

MAX_TYPED = 4000

MAX_PATTERN = 200
"""Characters of a pattern."""


class Still(Input):
    """An input whose cursor does not blink, to send nothing over a slow line."""

    cursor_blink = reactive(False, init=False)


class Plain(Still):
    """An input that cleans what is typed or pasted before it is drawn or sent."""

    def validate_value(self, value: str) -> str:
        return harmless(value, MAX_TYPED)

    def _on_paste(self, event: Paste) -> None:
        # Textual's own handler comes next and keeps the first line only
        event.text = " ".join(event.text.splitlines()).strip()


class Typed(Plain):
    """An input that takes no pasted text: a confirmation is typed by a person."""

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()

    def action_paste(self) -> None:
        """Nothing, for the same reason."""


def title(name: str, others: Sequence[str], place: Place, notice: str, width: int) -> Row:
    """One row of at most `width` cells: `candidate  ] baseline, bench · FOLLOWING · 2 errors (e)`;
    a notice replaces what comes after the position, and the other logs are named as far as there is
    room."""
    marks = [(notice, "bold")] if notice else _marks(place.buffer)
    parts: list[Part] = [(position(place), "" if place.follow else "warn"), *marks]
    row: list[Part] = [(f" {name}", "bold")]
    room = width - width_of(row) - sum(cells(words) + 3 for words, _ in parts)
    row.append((_listed(others, room), "dim"))
    for part in parts:
        row += [(f" {glyphs().pending} ", "dim"), part]
    return fit(tuple(row), width, glyphs().ellipsis)


def _listed(others: Sequence[str], room: int) -> str:
    """`  ] baseline, bench +2` in at most `room` cells; "" if not even one has room."""
    for count in range(len(others), 0, -1):
        more = f" +{len(others) - count}" if count < len(others) else ""
        words = f"  ] {', '.join(others[:count])}{more}"
        if cells(words) <= room:
            return words
    return ""


def position(place: Place) -> str:
    """`FOLLOWING`, or `PAUSED` and how many lines came since."""
    if place.follow:
        return "FOLLOWING"
    new = f" +{place.new:,} new" if place.new else ""
    return f"PAUSED{new}" + (", these lines are no longer kept" if place.gone else "")


def _marks(buffer: LogBuffer) -> list[Part]:
    parts: list[Part] = []
    if buffer.errors:
        parts.append((f"{buffer.errors:,} error{'s' if buffer.errors != 1 else ''} (e)", "bad"))
    if (chosen := buffer.filter) is not None:
        parts.append((f"& {_words(chosen)}: {buffer.visible:,} of {len(buffer):,} lines", ""))
    if (sought := buffer.searched) is not None:
        count = len(sought.all)
        search_words = f"/ {_words(sought)}: {count:,} {'match' if count == 1 else 'matches'}"
        parts.append((search_words, ""))
    if buffer.dropped:
        parts.append((f"{buffer.dropped:,} older dropped", "dim"))
    return parts


def _words(matches: Matches) -> str:
    if matches.too_slow:
        return f"{matches.pattern.words} (too slow as a pattern: taken as text)"
    return matches.pattern.words + (" (as text)" if matches.pattern.plain else "")


class LogTitle(Rows):
    """Which log it is, where the reader is, what is filtered and searched."""

    DEFAULT_CSS = """
    LogTitle { height: 1; width: 1fr; background: $panel; color: $text; }
    LogPane:focus-within LogTitle, LogPane:focus LogTitle { background: $primary-muted; }
    """


class Words(Still):
    """An input that accepts only clean text; Up brings the last words back."""

    BINDINGS = [
        Binding("escape", "cancel", "Cancel", show=False),
        Binding("up", "recall", "Last words", show=False),
    ]

    class Cancelled(Message):
        """The operator wants no change."""

    def __init__(self) -> None:
        super().__init__(compact=True, max_length=MAX_PATTERN)
        self.last = ""

    def validate_value(self, value: str) -> str:
        return harmless(value, MAX_PATTERN)

    def action_cancel(self) -> None:
        self.post_message(self.Cancelled())

    def action_recall(self) -> None:
        self.value = self.last
        self.cursor_position = len(self.value)


class LogPrompt(Horizontal):
    """The line where a search or a filter is typed. Hidden until `ask`; posts `Answered` once, with
    None if it was left without Enter."""

    DEFAULT_CSS = """
    LogPrompt { height: 1; width: 1fr; display: none; background: $boost; }
    LogPrompt Static { width: auto; height: 1; padding: 0 1; }
    LogPrompt Words { width: 1fr; height: 1; border: none; padding: 0; }
    """

    class Answered(Message):
        """`what` was asked for; `words` as typed, empty for none, None for no change."""

        def __init__(self, what: str, words: str | None) -> None:
            super().__init__()
            self.what = what
            self.words = words

    def __init__(self) -> None:
        super().__init__()
        self._what = ""
        self._kept: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)
        yield Words()

    @property
    def asking(self) -> bool:
        """Whether it is open."""
        return bool(self._what)

    def ask(self, what: str, sign: str, *, empty: bool) -> None:
        """Open it with the last words, or `empty` if Enter is meant to end something."""
        self._what = what
        words = self.query_one(Words)
        words.last = self._kept.get(what, "")
        words.value = "" if empty else words.last
        words.placeholder = "Enter alone shows all; Up brings the last words back" if empty else ""
        self.query_one(Static).update(sign)
        self.display = True
        # at once: the next key of a fast typist is for the prompt, not for the run
        self.screen.set_focus(words)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value:
            self._kept[self._what] = event.value
        self._close(event.value)

    def on_words_cancelled(self, event: Words.Cancelled) -> None:
        event.stop()
        words = self.query_one(Words)
        if words.value:
            self._kept[self._what] = words.value
        self._close(None)

    def on_input_blurred(self, event: Input.Blurred) -> None:
        event.stop()
        # it may have been opened again before this came
        if self.app.app_focus and self.screen.focused is not event.input:
            self._close(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()

    def _close(self, words: str | None) -> None:
        if self._what:
            what, self._what = self._what, ""
            self.display = False
            self.post_message(self.Answered(what, words))
