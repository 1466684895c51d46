"""Dialogs over any screen: typed answers, the help page, the command palette.

Esc answers nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.command import CommandList, CommandPalette
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Static

from console.common.text import clean, harmless
from console.render.keymap import EMERGENCY, SCOPES, Action, of_scope
from screens.base import Dialog, Question, ReadingPage, RunDialog
from widgets.log_bars import Plain, Typed
from widgets.rows import Row
from widgets.steps import behind, paragraph, wrapped

if TYPE_CHECKING:
    from console.frontends.tui.watch.run import Snapshot

MAX_VALUE = 2000
"""Most characters of a value that can be edited here."""


class AskScreen(RunDialog[str | None]):
    """A question with one typed answer: answers the text, or None. Enter alone never confirms."""

    DEFAULT_CSS = """
    AskScreen > Vertical { width: 74; max-width: 96%; max-height: 90%; border: heavy $warning; }
    AskScreen .title { color: $text-warning; }
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
            self._problem(f"that is not the word: {clean(self.question.confirm, 300)}")
        elif self.question.required and not text:
            self._problem("a reason is needed")
        else:
            self.dismiss(text)

    def _problem(self, text: str) -> None:
        self.query_one("#problem", Static).update(Content(text))


@dataclass(frozen=True, slots=True)
class FormField:
    """One input. `choices`: the values for up and down; `note`: what is expected, or where a secret
    comes from (then it is only shown); `typed`: the refused text. A value that cannot be shown
    whole is not edited."""

    name: str
    value: str = ""
    title: str = ""
    note: str = ""
    choices: tuple[str, ...] = ()
    secret: bool = False
    typed: str | None = None

    @property
    def shown(self) -> str:
        """The value as it is drawn."""
        return harmless(self.value, MAX_VALUE)

    @property
    def fixed(self) -> bool:
        """Whether typing would lose a part of the value."""
        return self.secret or self.shown != self.value


class Turning(Plain):
    """An input whose choices are selected by up and down."""

    BINDINGS = [
        Binding("up", "turn(-1)", "Previous", show=False),
        Binding("down", "turn(1)", "Next", show=False),
    ]

    def __init__(self, field: FormField, *, id: str) -> None:
        value = field.shown if field.typed is None else field.typed
        super().__init__(value, id=id, compact=True)
        self.field = field

    def action_turn(self, by: int) -> None:
        choices = self.field.choices
        if choices:
            at = choices.index(self.value) if self.value in choices else -by
            self.value = choices[(at + by) % len(choices)]
        elif by > 0:
            self.screen.focus_next()
        else:
            self.screen.focus_previous()


WHY, AGAIN = "reason", "measure again"
REASON = FormField(WHY, note="needed where a gate's threshold changes")
"""Key of the reason in a refused retry's inputs; an input of that name keeps its own place."""
MEASURE = FormField(
    AGAIN, "yes", note="no: the gate judges the same samples again", choices=("yes", "no")
)
"""Offered where a gate lacks samples; no input has a name with a space."""
KEYS = "Tab and Enter: next field   up/down: choices   Esc: leave"
LOSES = "Esc again leaves, and what was typed is lost"


class FormScreen(Dialog[dict[str, str] | None]):
    """Inputs to fill in, checked as they are typed; leads to a plan or a retry, and starts nothing.

    Answers what was changed, by name, or None. `check(name, text)`: "" or what is wrong.
    """

    BINDINGS = [
        Binding("up", "app.focus_previous", "Previous", show=False),
        Binding("down", "app.focus_next", "Next", show=False),
    ]

    DEFAULT_CSS = """
    FormScreen > Vertical { width: 76; max-width: 98%; }
    FormScreen VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    FormScreen .note { color: $text-muted; }
    FormScreen .problem { display: none; }
    FormScreen .problem.shown { display: block; }
    FormScreen Input:focus { background: $primary-muted; }
    FormScreen Button { min-width: 10; width: auto; margin: 1 0; }
    FormScreen Button:focus { text-style: bold reverse; }
    """

    def __init__(
        self,
        title: str,
        fields: list[FormField],
        submit: str,
        check: Callable[[str, str], str] = lambda name, text: "",
        intro: str = "",
    ) -> None:
        super().__init__()
        self.form_title = title
        self.fields = fields
        self.submit = submit
        self.check = check
        self.intro = intro
        self._leaving = False

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(self.form_title), classes="title")
            if self.intro:
                yield Static(Content(self.intro), classes="note")
            with VerticalScroll(can_focus=False):
                for number, field in enumerate(self.fields):
                    yield Static(self._label(field))
                    if not field.fixed:
                        yield Turning(field, id=f"field-{number}")
                    elif not field.secret:
                        yield Static(Content(f"{field.shown[:200]} (not edited here)"))
                    yield Static("", classes="problem", id=f"problem-{number}")
                yield Button(Content(f"[ {self.submit} ]"), id="submit", compact=True)
            yield Static(Content(KEYS), classes="note", id="note")

    @staticmethod
    def _label(field: FormField) -> Content:
        title = f"  {field.title}" if field.title else ""
        note = f"  ({field.note})" if field.note else ""
        return Content.assemble((field.name, "bold"), title, (note, "$text-muted"))

    def on_mount(self) -> None:
        first = self.query(Turning).first() if self.query(Turning) else self.query_one(Button)
        self.set_focus(first)

    def on_resize(self) -> None:
        """Keep title and keys in view; the inputs scroll between them."""
        width = max(10, min(76, self.size.width * 98 // 100) - 4)
        texts = [text for text in (self.form_title, self.intro, KEYS) if text]
        edges = 2 + sum(len(wrapped(text, width)) for text in texts)
        room = self.size.height * 96 // 100 - edges
        self.query_one(VerticalScroll).styles.max_height = max(3, room)

    def values(self) -> dict[str, str]:
        """What was changed, by name: an untouched value is never sent."""
        entries = self.query(Turning)
        return {e.field.name: e.value for e in entries if e.value != e.field.shown}

    def on_input_changed(self, event: Input.Changed) -> None:
        if isinstance(event.input, Turning):
            self._judge(event.input)
            if self._leaving:
                self._leaving = False
                self.query_one("#note", Static).update(Content(KEYS))

    def _judge(self, entry: Turning) -> bool:
        problem = self.check(entry.field.name, entry.value)
        line = self.query_one(f"#problem-{str(entry.id).split('-')[1]}", Static)
        line.update(Content(clean(problem, 300)))
        line.set_class(bool(problem), "shown")
        return not problem

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_next()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        wrong = [entry for entry in self.query(Turning) if not self._judge(entry)]
        if wrong:
            self.set_focus(wrong[0])
        else:
            self.dismiss(self.values())

    def action_back(self) -> None:
        """Leave; one key alone does not discard what was typed."""
        if self._leaving or not self.values():
            self.dismiss(None)
            return
        self._leaving = True
        self.query_one("#note", Static).update(Content(LOSES))


def retry_form(snapshot: Snapshot, typed: dict[str, str] | None, no: str) -> RetryForm:
    """The step's current inputs; only changed ones are sent. `typed` and `no`: what was sent
    before, and why it was refused."""
    view = snapshot.view
    step = view.current
    before = typed or {}
    fields = [
        FormField(clean(str(name), 60), str(value), typed=before.get(str(name)))
        for name, value in view.inputs.items()
    ]
    if no and WHY not in view.inputs:
        fields.append(replace(REASON, typed=before.get(WHY)))
    of = "gate " if step is not None and step.kind == "gate" else ""
    title, submit = f"Retry {of}{clean(step.id, 60)}" if step else "Retry", "Retry"
    intro = "Change an input, or leave all as they are. A change is checked and recorded."
    if view.offer:
        submit = clean(view.offer[:1].upper() + view.offer[1:])
        intro = f"{clean(view.detail)}. {submit}, and judge again? {intro}"
        fields = [replace(MEASURE, typed=before.get(AGAIN)), *fields]
    if no:
        intro = f"Not taken: {no}"
    return RetryForm(title, fields, submit, intro=intro)


class RetryForm(FormScreen, RunDialog[dict[str, str] | None]):
    """A form for a retry; closed when the run ends."""


MOVING = (
    "j k, arrows, PgUp PgDn, ^U ^D, g G move in every list; Tab goes to the next part; Enter "
    "opens, and never approves or skips."
)
SHELL = (
    "From a shell: omni-console rollback brings the baseline back with this console, the run or "
    "the engine broken; omni-console attach follows a run without screens; doctor says what is "
    "wrong here. Quitting never stops anything."
)


class HelpScreen(ReadingPage):
    """The keys, and the command line's way to do the same."""

    SCOPE = "help"
    HEAD = False

    def rows(self, width: int) -> list[Row]:
        return help_rows(max(30, width))


def help_rows(width: int) -> list[Row]:
    """The emergency first, then scope by scope."""
    rows = [*_action_rows(EMERGENCY, width, "bad"), (), *paragraph(MOVING, width)]
    for scope, title in SCOPES.items():
        rows += [(), ((title, "bold"),)]
        for action in of_scope(scope):
            if action is not EMERGENCY:
                rows += _action_rows(action, width)
    return [*rows, (), *paragraph(SHELL, width)]


def _action_rows(action: Action, width: int, tone: str = "accent") -> list[Row]:
    lead: Row = ((f"{action.shown:>10}", tone), (f"  {action.title:<13}", "bold"))
    return behind(lead, action.help, width)


class Palette(CommandPalette):
    """Left only once, whatever keys come in one burst; page keys wait until there is something to
    page through."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Ignore a second Enter of the same burst, which would pop the screen below."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        """Ignore paging before the list has a height: it raises KeyError."""
        if self.query_one(CommandList).scrollable_content_region.height:
            super()._action_command_list(action)
