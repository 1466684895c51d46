"""Pick a playbook, read its plan with its inputs, start it: a run that waits at step 1."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Horizontal

from console.common.errors import ConsoleError
from console.common.text import clean, one_line
from console.config.locate import site
from screens.base import Page, Question, ReadingPage
from screens.dialogs import AskScreen, FormField, FormScreen
from widgets.bars import bindings
from widgets.rows import PickList, Row, TextView, fit
from widgets.steps import hanging, paragraph

if TYPE_CHECKING:
    from console.checks.lint.unit import Finding
    from console.frontends.tui.app import ConsoleApp
    from console.journal.run_dir import RunDir
    from console.runner.prepare.catalog import Entry, Field, Preview


class PlaybooksScreen(Page):
    """The catalogue; Enter goes on to the inputs."""

    SCOPE = "playbooks"
    HEAD = False
    DEFAULT_CSS = """
    PlaybooksScreen #list { width: 40%; min-width: 24; background: $surface; }
    PlaybooksScreen #detail { width: 1fr; }
    PlaybooksScreen.narrow Horizontal { layout: vertical; }
    PlaybooksScreen.narrow #list { width: 1fr; height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.loaded = False

    def body(self) -> ComposeResult:
        with Horizontal():
            yield PickList(id="list")
            yield TextView(id="detail")

    def stand(self) -> None:
        self.in_thread(self._load)

    def _load(self) -> None:
        from console.runner.prepare.catalog import entries

        self.on_loop(self._loaded, entries(site=self.console.watchers.site))

    def _loaded(self, entries: list[Entry]) -> None:
        self.entries, self.loaded = sorted(entries, key=lambda entry: bool(entry.problem)), True
        self.redraw()

    def redraw(self) -> None:
        picker = self.query_one(PickList)
        if picker.size.width:  # else it is drawn when its size is known
            width = max(10, picker.size.width - 1)
            picker.fill([self._row(entry, width) for entry in self.entries])
        self._show_detail()

    @staticmethod
    def _row(entry: Entry, width: int) -> Row:
        mark = ("x ", "bad") if entry.problem else ("  ", "")
        return fit((mark, (clean(entry.name), "bold"), (f"  {_where(entry)}", "dim")), width)

    def _show_detail(self) -> None:
        view = self.query_one("#detail", TextView)
        if not view.size.width:
            return
        view.show(self._detail(max(20, view.size.width - 3)))
        view.scroll_home(animate=False)

    def _detail(self, width: int) -> list[Row]:
        if not self.loaded:
            return [(("looking for playbooks …", "dim"),)]
        cursor = self.query_one(PickList).cursor
        if not self.entries or cursor is None:
            words = (
                "No playbook found. Put one into ~/.config/omni-console/playbooks/, or start "
                "the console in a directory that has one; "
                "docs/reference/playbooks.md has the format."
            )
            return paragraph(words, width)
        return entry_rows(self.entries[cursor], width)

    def lessons_here(self) -> tuple[str, ...]:
        """Ids of the lessons to read first, for the playbook under the cursor."""
        cursor = self.query_one(PickList).cursor
        if cursor is None or cursor >= len(self.entries):
            return ()
        return self.entries[cursor].lessons

    def on_pick_list_moved(self, event: PickList.Moved) -> None:
        self._show_detail()

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        entry = self.entries[event.index]
        if entry.problem:
            self.console.say("this playbook cannot be used: its errors are shown beside it")
        else:
            self.app.push_screen(PlanScreen(entry.path))


def _where(entry: Entry) -> str:
    """Its source, and the file's name if it differs."""
    file = "" if entry.path.stem == entry.name else f" {clean(entry.path.name, 60)}"
    return f"{entry.source}{file}"


def entry_rows(entry: Entry, width: int) -> list[Row]:
    """Objective, lessons, path, problems."""
    rows = [*paragraph(clean(entry.title or entry.name), width, "bold"), ()]
    if entry.objective:
        rows += paragraph(f"Objective: {clean(entry.objective)}", width)
    for title in entry.read_first:
        rows += paragraph(f"Read first: {title}", width, "warn", "  ")
    if entry.lessons:
        rows.append((("6 opens them", "dim"),))
    if entry.problem:
        rows += [(), (("It cannot be used:", "bad"),)]
        for line in entry.problem.splitlines():
            rows += paragraph(clean(line, 600), width)
    rows += [(), *paragraph(clean(str(entry.path)), width, "dim")]
    if not entry.problem:
        words = "Enter: inputs, then the plan; nothing starts before you say so"
        rows += paragraph(words, width, "dim")
    return rows


class PlanScreen(ReadingPage):
    """Inputs first if there are any, then the plan; `S` starts a run that waits at step 1."""

    SCOPE = "plan"
    BINDINGS = bindings("plan")

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

    def stand(self) -> None:
        self.in_thread(self._read_form)

    # -- inputs ------------------------------------------------------------------------------

    def _read_form(self) -> None:
        from console.runner.prepare import catalog

        try:
            fields = catalog.form(self.path, site(self.console.watchers.site))
        except ConsoleError as error:
            self.on_loop(self._failed, error, self.turn)
            return
        self.on_loop(self._form_read, fields)

    def _form_read(self, fields: list[Field]) -> None:
        self.fields = fields
        if all(field.secret_from for field in fields):
            self._ask_plan()
        elif self.app.screen is self:
            self.action_edit()

    def action_edit(self) -> None:
        """Show the form with the values given before."""
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
        """Read the plan again; the earlier one is dropped and cannot be started."""
        self.preview = None
        self.overrides = {}
        self.turn += 1
        self.in_thread(partial(self._plan, self.turn, dict(self.inputs)))
        self.redraw()

    def _plan(self, turn: int, inputs: dict[str, str]) -> None:
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
            self.redraw()

    def _failed(self, error: ConsoleError, turn: int) -> None:
        if turn == self.turn:
            self._problem("\n".join(error.lines()))

    def _problem(self, words: str) -> None:
        self.problem = words
        self.redraw()

    def lessons_here(self) -> tuple[str, ...]:
        """Ids of the lessons that the plan names."""
        return self.preview.lessons if self.preview else ()

    def in_trouble(self, words: str) -> None:
        self.starting = ""
        super().in_trouble(words)
        if self.is_attached:
            self._problem(words)

    def rows(self, width: int) -> list[Row]:
        if not self.problem and self.preview is None:
            return [(("reading …", "dim"),)]
        rows = [
            row for line in self.problem.splitlines()
            for row in paragraph(clean(line, 600), width, "bad", "  ")
        ]  # fmt: skip
        return rows + plan_rows(self.preview.lines if self.preview else [], width)

    def head(self, width: int) -> list[Row]:
        if self.starting:
            return [((self.starting, "accent"),)]
        if self.problem:
            words = "It did not start: nothing was done" if self.preview else "It cannot be used"
            return [((words, "bad"),)]
        if self.preview is None:
            return [(("reading …", "dim"),)]
        if self.console.watchers.readonly:
            return [(("read-only: nothing can be started", "warn"),)]
        words = "S starts, paused before step 1"
        return [((words, "bold"), ("   i inputs   Esc back", "dim"))]

    def action_start(self) -> None:
        """Start the run, but only once and after its plan was shown."""
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
            self.redraw()
            began = time.monotonic()
            work = partial(self._begin, dict(self.inputs), preview.digest, began)
            thread = self.console.watchers.starting = self.in_thread(work)
            self.console.await_end(thread)

    def _begin(self, inputs: dict[str, str], digest: str, began: float) -> None:
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
        watchers.started = f"run {run.id} is paused before its first step"
        self.on_app(self._begun, run, began)

    def _say(self, text: str) -> None:
        self.starting = clean(text, 200)
        self.redraw()

    def _not_started(self, error: ConsoleError) -> None:
        self.starting = ""
        if not self.is_attached:
            super().in_trouble(f"the run did not start: {clean(str(error), 300)}")
            return
        self._problem("\n".join(error.lines()))
        errors: list[Finding] = getattr(error, "errors", [])
        if errors and self.app.screen is self:
            self._ask_why(errors)

    def _ask_why(self, errors: list[Finding]) -> None:
        """Ask for a reason to override lint, which is kept with the run."""
        question = Question(
            "Lint stops this run", [f"{error.what} [{error.rule}]" for error in errors],
            "a reason to go on", required=True,
        )  # fmt: skip

        def answered(reason: str | None) -> None:
            if reason:
                self.overrides |= {error.rule: one_line(reason) for error in errors}
                self.action_start()

        self.app.push_screen(AskScreen(question), answered)

    def _begun(self, run: RunDir, began: float) -> None:
        """Show the run, which waits at step 1, unless the emergency key was pressed meanwhile."""
        app = cast("ConsoleApp", self._home)
        app.watchers.watch.show(run)
        self.starting = f"started: {run.id}; 1 shows it"
        if app.pressed_at > began:
            # pressed while nothing was there to roll back: meant for this run as well
            app.roll_back()
            app.show_rollback()
        elif self.is_attached and app.screen is self:
            app.action_operations()
        elif self.is_attached:
            self.redraw()


def form_field(field: Field, given: str | None) -> FormField:
    """An input of the playbook as the form has it, with the value given before."""
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
        rows += hanging(line, width, tone, " │!")
    return rows
