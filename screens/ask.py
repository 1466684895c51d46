"""A question with one typed answer: a reason, or the word that confirms. Esc answers nothing."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from console.common.text import clean
from screens.base import RunDialog
from screens.question import Question
from widgets.plain import Plain, Typed


class AskScreen(RunDialog[str | None]):
    """Answers the typed text, or None. Enter alone never confirms."""

    BINDINGS = [Binding("escape", "back", "Back", show=False)]

    DEFAULT_CSS = """
    AskScreen { align: center middle; }
    AskScreen > Vertical {
        width: 74; max-width: 96%; height: auto; max-height: 90%;
        border: heavy $warning; background: $surface; padding: 0 1;
    }
    AskScreen Static { height: auto; }
    AskScreen .title { text-style: bold; color: $text-warning; }
    AskScreen .problem { color: $text-error; }
    AskScreen Input { height: 1; background: $boost; padding: 0 1; }
    """

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        question = self.question
        with Vertical():
            yield Static(Content(question.title), classes="title")
            for line in question.lines:
                yield Static(Content(line))
            yield Static(Content(f"{question.prompt}, then Enter; Esc leaves it"), classes="prompt")
            made = Typed if question.confirm else Plain
            yield made(id="answer", compact=True)
            yield Static("", classes="problem", id="problem")

    def on_mount(self) -> None:
        self.set_focus(self.query_one("#answer", Input))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        if self.question.confirm and text != self.question.confirm:
            self._problem(f"that is not the word: {clean(self.question.confirm, 60)}")
        elif self.question.required and not text:
            self._problem("a reason is needed")
        else:
            self.dismiss(text)

    def _problem(self, text: str) -> None:
        self.query_one("#problem", Static).update(Content(text))

    def action_back(self) -> None:
        self.dismiss(None)
