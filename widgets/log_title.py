"""The line above a log: which one, where the reader is, what is filtered and searched."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from console.common.logs.buffer import LogBuffer
from console.common.logs.sieve import Sieve
from console.common.logs.viewport import Place
from console.render.glyph import glyphs


def title(name: str, place: Place, notice: str, width: int) -> Text:
    """One row of `width` cells; a notice stands in for what comes after the position."""
    buffer = place.buffer
    parts = [(name, "bold"), (position(place), "" if place.follow else "reverse")]
    if notice:
        parts.append((notice, "bold"))
    else:
        parts += [(words, "") for words in _marks(buffer)]
    text = Text(no_wrap=True, overflow="crop", end="")
    for words, style in parts:
        if words:
            text.append(f" {glyphs().pending} " if text.plain else " ")
            text.append(f" {words} " if style == "reverse" else words, style)
    text.truncate(width, overflow="crop", pad=True)
    return text


def position(place: Place) -> str:
    """`FOLLOWING`, or `PAUSED` and how many lines came since."""
    if place.follow:
        return "FOLLOWING"
    new = f" +{place.new:,} new" if place.new else ""
    return f"PAUSED{new}" + (", these lines are no longer kept" if place.gone else "")


def _marks(buffer: LogBuffer) -> list[str]:
    found = []
    if (chosen := buffer.filter) is not None:
        found.append(f"& {_words(chosen)}: {buffer.visible:,} of {len(buffer):,} lines")
    if (sought := buffer.searched) is not None:
        count = len(sought.all)
        found.append(f"/ {_words(sought)}: {count:,} {'match' if count == 1 else 'matches'}")
    if buffer.dropped:
        found.append(f"{buffer.dropped:,} older dropped")
    return found


def _words(sieve: Sieve) -> str:
    if sieve.too_slow:
        return f"{sieve.pattern.words} (too slow as a pattern: taken as text)"
    return sieve.pattern.words + (" (as text)" if sieve.pattern.plain else "")


class LogTitle(Static):
    """Holds the title; it is drawn again only when its words changed."""

    DEFAULT_CSS = """
    LogTitle { height: 1; width: 1fr; background: $panel; color: $text; }
    LogPane:focus-within LogTitle, LogPane:focus LogTitle { background: $primary-muted; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._shown = Text()

    def put(self, words: Text) -> None:
        """Show a title."""
        if words != self._shown:
            self._shown = words
            self.update(words, layout=False)
