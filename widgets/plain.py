"""A line to type into that holds nothing a terminal could act on."""

from __future__ import annotations

from textual.events import Paste
from textual.widgets import Input

from console.text import clean

MOST = 4000


class Plain(Input):
    """What is typed or pasted is cleaned before it is drawn or sent."""

    def validate_value(self, value: str) -> str:
        return clean(value, MOST)


class Typed(Plain):
    """Takes no pasted text: a confirmation is typed by a person."""

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()

    def action_paste(self) -> None:
        """Nothing, for the same reason."""
