"""A line to type into that holds nothing a terminal could act on."""

from __future__ import annotations

from textual.events import Paste
from textual.reactive import reactive
from textual.widgets import Input

from console.common.text import clean

MOST = 4000


class Still(Input):
    """Its cursor does not blink: over a slow line that would be the only thing that never rests."""

    cursor_blink = reactive(False, init=False)


class Plain(Still):
    """What is typed or pasted is cleaned before it is drawn or sent."""

    def validate_value(self, value: str) -> str:
        return clean(value, MOST)

    def _on_paste(self, event: Paste) -> None:
        # Textual's own handler comes next and keeps the first line only
        event.text = " ".join(event.text.splitlines()).strip()


class Typed(Plain):
    """Takes no pasted text: a confirmation is typed by a person."""

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()

    def action_paste(self) -> None:
        """Nothing, for the same reason."""
