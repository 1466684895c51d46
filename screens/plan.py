"""The plan of a playbook with its inputs: what would run, and the key that starts it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult

from console.common.errors import ConsoleError
from console.common.text import clean, one_line
from screens.base import Page, Question
from screens.dialogs import FormField, FormScreen
from widgets.bars import BaselineBadge, KeyLine, bindings
from widgets.lists import TextView
from widgets.rows import Row, Rows
from widgets.step_text import wrapped

if TYPE_CHECKING:
    from console.checks.lint.unit import Finding
    from console.frontends.tui.app import ConsoleApp
    from console.journal.run_dir import RunDir
    from console.runner.prepare.catalog import Field, Preview


class PlanScreen(Page):
    """Inputs first where there are any, then the plan; `S` starts a run that stands at step 1."""

    SCOPE = "plan"
    BINDINGS = bindings("plan")
    DEFAULT_CSS = """
    PlanScreen #head { background: $panel; }
    PlanScreen #plan { padding: 0 1; }
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.inputs: dict[str, str] = {}
        self.fields: list[Field] = []
        self.preview: Preview | None = None
        self.problem = ""
        self.starting = ""
        self.turn = 0
        self.overrides: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield Rows(id="head")
        yield TextView(id="plan")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(TextView))
        self._draw()
        self.in_thread(self._read_form)

    def redraw(self) -> None:
        self._draw()

    # -- inputs ------------------------------------------------------------------------------

    def _read_form(self) -> None:
        from console.config.locate import site
        from console.runner.prepare import catalog

        try:
            fields = catalog.form(self.path, site(self.console.watchers.site))
        except ConsoleError as error:
            self.on_loop(self._failed, error, self.turn)
            return
        self.on_loop(self._form_read, fields)

    def _form_read(self, fields: list[Field]) -> None:
        self.fields = fields
        if not any(not field.secret_from for field in fields):
            self._ask_plan()
        elif self.app.screen is self:
            self.action_edit()

    def action_edit(self) -> None:
        """The form, with what was given before."""
        from console.runner.prepare import catalog

        if not self.fields:
            self.console.say("this playbook has no inputs")
            return
        by_name = {field.name: field for field in self.fields}
        fields = [form_field(field, self.inputs.get(field.name)) for field in self.fields]
        form = FormScreen(
            f"Inputs of {clean(self.path.stem, 60)}", fields, "Read the plan",
            lambda name, text: catalog.check_value(by_name[name], text),
        )  # fmt: skip
        self.app.push_screen(form, self._filled)

    def _filled(self, changed: dict[str, str] | None) -> None:
        if changed is None:
            if self.preview is None and self.app.screen is self:
                self.app.pop_screen()
            return
        defaults = {field.name: field.default for field in self.fields}
        given = {**self.inputs, **changed}
        # an empty field stands for the default, and so does the default itself
        self.inputs = {n: v for n, v in given.items() if v and v != defaults.get(n)}
        self._ask_plan()

    # -- the plan ----------------------------------------------------------------------------

    def _ask_plan(self) -> None:
        """Read the plan anew; an older one is gone from here on, and cannot be started."""
        self.preview = None
        self.overrides = {}
        self.turn += 1
        self.in_thread(partial(self._plan, self.turn, dict(self.inputs)))
        self._draw()

    def _plan(self, turn: int, inputs: dict[str, str]) -> None:
        from console.config.locate import site
        from console.runner.prepare import catalog

        try:
            preview = catalog.preview(self.path, inputs, site(self.console.watchers.site))
        except ConsoleError as error:
            self.on_loop(self._failed, error, turn)
            return
        self.on_loop(self._planned, preview, turn)

    def _planned(self, preview: Preview, turn: int) -> None:
        if turn == self.turn:
            self.preview, self.problem = preview, ""
            self._draw()

    def _failed(self, error: ConsoleError, turn: int) -> None:
        if turn == self.turn:
            self.problem = "\n".join(error.lines())
            self._draw()

    def lessons_here(self) -> tuple[str, ...]:
        """Ids of the lessons that the plan names."""
        return self.preview.lessons if self.preview else ()

    def in_trouble(self, words: str) -> None:
        self.starting = ""
        super().in_trouble(words)
        if self.is_attached:
            self.problem = words
            self._draw()

    def _draw(self) -> None:
        view = self.query_one(TextView)
        if not view.size.width:
            return  # it is drawn when its size is known
        width = max(20, view.size.width - 3)
        self.query_one("#head", Rows).show([self._head()])
        if self.problem:
            rows: list[Row] = [
                ((text, "bad"),)
                for line in self.problem.splitlines()
                for text in wrapped(clean(line, 600), width, "  ")
            ]
            view.show([*rows, *plan_rows(self.preview.lines if self.preview else [], width)])
        elif self.preview is None:
            view.show([(("reading …", "dim"),)])
        else:
            view.show(plan_rows(self.preview.lines, width))

    def _head(self) -> Row:
        if self.starting:
            return ((self.starting, "accent"),)
        if self.problem:
            return (
                (("It did not start: nothing was done", "bad"),)
                if self.preview
                else (("It cannot be used", "bad"),)
            )
        if self.preview is None:
            return (("reading …", "dim"),)
        if self.console.watchers.readonly:
            return (("read-only: nothing can be started", "warn"),)
        return (
            ("S starts it; it stands still before step 1", "bold"),
            ("   i inputs   Esc back", "dim"),
        )

    def action_start(self) -> None:
        """Start the run: not before its plan was shown, and only once."""
        preview = self.preview
        if self.console.watchers.readonly:
            self.console.say("read-only: nothing can be started")
        elif self.starting:
            self.console.say(self.starting)
        elif preview is None:
            self.console.say("the plan is not there yet")
        elif preview.missing:
            self.console.say(f"fill in first: {', '.join(preview.missing)} (i)")
        else:
            self.problem = ""
            self.starting = "starting: checking that the baseline serves …"
            self._draw()
            began = time.monotonic()
            work = partial(self._begin, dict(self.inputs), preview.digest, began)
            thread = self.console.watchers.starting = self.in_thread(work)
            self.console.await_end(thread)

    def _begin(self, inputs: dict[str, str], digest: str, began: float) -> None:
        from console.config.locate import site
        from console.runner import launch
        from console.runner.prepare import catalog

        watchers = self.console.watchers
        try:
            place = site(watchers.site)
            playbook = catalog.load(self.path, inputs, place)
            run = launch.begin(
                place, playbook, inputs, step=True, expect=digest, overrides=dict(self.overrides),
                say=lambda text: self.on_loop(self._say, text),
            )  # fmt: skip
        except ConsoleError as error:
            watchers.started = "the run did not start: " + "\n".join(error.lines())
            self.on_app(self._not_started, error)
            return
        watchers.started = f"run {run.id} stands before its first step"
        self.on_app(self._begun, run, began)

    def _say(self, text: str) -> None:
        self.starting = clean(text, 200)
        self._draw()

    def _not_started(self, error: ConsoleError) -> None:
        self.starting = ""
        if not self.is_attached:
            super().in_trouble(f"the run did not start: {clean(str(error), 300)}")
            return
        self.problem = "\n".join(error.lines())
        self._draw()
        errors: list[Finding] = getattr(error, "errors", [])
        if errors and self.app.screen is self:
            self._ask_why(errors)

    def _ask_why(self, errors: list[Finding]) -> None:
        """Lint stops the run: it goes on with a reason, which is kept with it."""
        from screens.dialogs import AskScreen

        question = Question(
            "Lint stops this run", [f"{one.what} [{one.rule}]" for one in errors],
            "a reason to go on", required=True,
        )  # fmt: skip

        def answered(reason: str | None) -> None:
            if reason:
                self.overrides |= {one.rule: one_line(reason) for one in errors}
                self.action_start()

        self.app.push_screen(AskScreen(question), answered)

    def _begun(self, run: RunDir, began: float) -> None:
        """The run stands before its first step; unless the emergency key was pressed meanwhile."""
        app = cast("ConsoleApp", self._home)
        app.watchers.watch.show(run)
        self.starting = f"started: {run.id}; 1 shows it"
        if app.pressed_at > began:
            # pressed while nothing was there to roll back: meant for this run as well
            app.press_emergency()
            app.show_climb()
        elif self.is_attached and app.screen is self:
            app.action_operations()
        elif self.is_attached:
            self._draw()


def form_field(field: Field, given: str | None) -> FormField:
    """An input of the playbook as the form has it, with what was given before."""
    note = clean(field.secret_from or field.expected, 100)
    if field.required:
        note += ", required"
    value = field.default if given is None else given
    return FormField(
        field.name, value, clean(field.title, 100), note,
        ("true", "false") if field.type == "bool" else tuple(field.choices),
        bool(field.secret_from),
    )  # fmt: skip


def plan_rows(lines: list[str], width: int) -> list[Row]:
    """The plan's own lines, wrapped; an outage stands out by its sign and tone."""
    rows: list[Row] = []
    for line in lines:
        tone = ""
        if line.startswith("!") or "WOULD NOT RUN" in line:
            tone = "bad"
        elif line.startswith(("  WARNING", "  BLOCKER", "  lessons")):
            tone = "warn"
        elif line and not line.startswith(" "):
            tone = "bold"
        if len(line) <= width:
            rows.append(((line, tone),))
            continue
        body = line.lstrip(" │!")
        lead = line[: len(line) - len(body)]
        first, *more = wrapped(body, width - len(lead) - 2)
        rows.append(((lead + first, tone),))
        rows += [((f"{lead}  {text}", tone),) for text in more]
    return rows
