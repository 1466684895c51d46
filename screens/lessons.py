"""Past lessons: a list to search, and one lesson to read."""

from __future__ import annotations

import time
from datetime import date
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from console.common.text import clean
from console.render.cells import glyphs
from screens.base import Page, ReadingPage
from widgets.bars import bindings
from widgets.log_bars import LogPrompt
from widgets.rows import PickList, Row, Rows, fit
from widgets.steps import paragraph, wrapped

if TYPE_CHECKING:
    from console.config.lessons.registry import Lesson, Registry

FILTER = "lessons"


class LessonsScreen(Page):
    """The registry. Lessons that apply to the step or playbook it was opened from come first."""

    SCOPE = "lessons"
    BINDINGS = bindings("lessons")

    def __init__(self) -> None:
        super().__init__()
        self.about: tuple[str, ...] = ()
        self.registry: Registry | None = None
        self.query_text = ""
        self.due_only = False
        self.lessons: list[Lesson] = []

    def body(self) -> ComposeResult:
        yield PickList(id="list")
        yield LogPrompt()

    def stand(self) -> None:
        below = self.app.screen_stack[-2]
        self.about = getattr(below, "lessons_here", tuple)()
        self.in_thread(self._load)

    def _load(self) -> None:
        from console.config.lessons.registry import load_registry

        self.on_loop(self._loaded, load_registry())

    def _loaded(self, registry: Registry) -> None:
        self.registry = registry
        self._look()

    # -- what is listed ------------------------------------------------------------------------

    def _look(self) -> None:
        """Search again; the cursor goes to the first."""
        from console.config.lessons.registry import due_by
        from console.config.lessons.use import search

        if self.registry is None:
            return
        lessons = search(self.registry.lessons, self.query_text)
        if self.due_only:
            lessons = [lesson for lesson in lessons if due_by(lesson, today())]
        if not self.query_text:
            lessons.sort(key=lambda lesson: lesson.id not in self.about)
        self.lessons = lessons
        self.query_one(PickList).cursor = 0
        self.redraw()

    def action_filter_lessons(self) -> None:
        """Filter by typed words, all of which a lesson must have."""
        self.query_one(LogPrompt).ask(FILTER, "/", empty=True)

    def on_log_prompt_answered(self, event: LogPrompt.Answered) -> None:
        event.stop()
        self.set_focus(self.query_one(PickList))
        if event.words is not None:
            self.query_text = event.words.strip()
            self._look()

    def action_due(self) -> None:
        """Show only what is due for review, or all again."""
        self.due_only = not self.due_only
        self._look()

    def action_back(self) -> None:
        """Leave a search first."""
        if self.query_text or self.due_only:
            self.query_text, self.due_only = "", False
            self._look()
        else:
            self.app.pop_screen()

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        if self.registry is not None and event.index < len(self.lessons):
            self.app.push_screen(LessonScreen(self.registry, self.lessons[event.index]))

    # -- drawing -------------------------------------------------------------------------------

    def redraw(self) -> None:
        picker = self.query_one(PickList)
        width = max(20, picker.size.width - 1)
        self.query_one("#head", Rows).show(self._head(width))
        picker.fill(
            [lesson_row(lesson, width, here=lesson.id in self.about) for lesson in self.lessons]
        )

    def _head(self, width: int) -> list[Row]:
        if self.registry is None:
            return [(("reading the lessons …", "dim"),)]
        words = f"{len(self.lessons)} of {len(self.registry.lessons)} lessons"
        rest = "   Enter reads one, / searches"
        if self.query_text or self.due_only:
            due = "due for review" if self.due_only else ""
            query_words = f"with {clean(self.query_text, 100)}" if self.query_text else ""
            words += f" {' '.join(condition for condition in (query_words, due) if condition)}"
            rest = "   Esc shows all"
        elif self.about:
            rest = f"   {glyphs().dot} applies to what was shown{rest}"
        rows: list[Row] = [fit(((words, "bold"), (rest, "dim")), width)]
        for problem in self.registry.problems[:3]:
            rows += paragraph(clean(str(problem), 600), width, "bad")
        return rows


class LessonScreen(ReadingPage):
    """One whole lesson."""

    SCOPE = "lesson"
    HEAD = False

    def __init__(self, registry: Registry, lesson: Lesson) -> None:
        super().__init__()
        self.registry, self.lesson = registry, lesson

    def rows(self, width: int) -> list[Row]:
        from console.render.lessons import entry

        return [
            ((text, tone),)
            for line, tone in entry(self.registry, self.lesson, width, today())
            for text in (wrapped(line, width, "      ") if len(line) > width else [line])
        ]


def lesson_row(lesson: Lesson, width: int, *, here: bool) -> Row:
    """`• F-022   blocked       Loading Meituan's INT8 weights took the machine down`."""
    from console.render.lessons import tone_of

    model = lesson.model
    own = "  yours" if lesson.own else ""
    return fit(
        (
            (f"{glyphs().dot} " if here else "  ", "warn"), (f"{model.id:<7} ", "bold"),
            (f"{model.status:<12} ", tone_of(lesson)), (clean(model.title), ""), (own, "accent"),
        ),
        width,
    )  # fmt: skip


def today() -> date:
    return date.fromtimestamp(time.time())
