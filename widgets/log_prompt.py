"""The line where a search or a filter is typed."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from console.common.text import clean
from widgets.plain import Still

MOST = 200
"""Characters of a pattern."""


class Words(Still):
    """An input that takes nothing a terminal could act on; Up brings the last words back."""

    BINDINGS = [
        Binding("escape", "cancel", "Cancel", show=False),
        Binding("up", "recall", "Last words", show=False),
    ]

    class Cancelled(Message):
        """The operator wants nothing changed."""

    def __init__(self) -> None:
        super().__init__(compact=True, max_length=MOST)
        self.last = ""

    def validate_value(self, value: str) -> str:
        return clean(value, MOST)

    def action_cancel(self) -> None:
        self.post_message(self.Cancelled())

    def action_recall(self) -> None:
        self.value = self.last
        self.cursor_position = len(self.value)


class LogPrompt(Horizontal):
    """Hidden until `ask`; says `Answered` once, with None where it was left without Enter."""

    DEFAULT_CSS = """
    LogPrompt { height: 1; width: 1fr; display: none; background: $boost; }
    LogPrompt Static { width: auto; height: 1; padding: 0 1; }
    LogPrompt Words { width: 1fr; height: 1; border: none; padding: 0; }
    """

    class Answered(Message):
        """`what` was asked for; `words` as typed, empty for none, None to leave it as it is."""

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
        """Open it with the words of the last time, or `empty`, where Enter is to end something."""
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
        if self.app.app_focus:
            self._close(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()

    def _close(self, words: str | None) -> None:
        if self._what:
            what, self._what = self._what, ""
            self.display = False
            self.post_message(self.Answered(what, words))
