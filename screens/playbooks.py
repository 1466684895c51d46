"""Pick a playbook: what there is, what each is for, and whether it can run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal

from console.common.text import clean
from screens.base import Page
from widgets.bars import BaselineBadge, KeyLine
from widgets.lists import PickList, TextView
from widgets.rows import Row, fit
from widgets.step_text import wrapped

if TYPE_CHECKING:
    from console.runner.prepare.catalog import Entry


class PlaybooksScreen(Page):
    """The catalogue; Enter goes on to the inputs."""

    SCOPE = "playbooks"
    DEFAULT_CSS = """
    PlaybooksScreen #list { width: 40%; min-width: 24; background: $surface; }
    PlaybooksScreen #detail { width: 1fr; padding: 0 1; }
    PlaybooksScreen.narrow Horizontal { layout: vertical; }
    PlaybooksScreen.narrow #list { width: 1fr; height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.loaded = False

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        with Horizontal():
            yield PickList(id="list")
            yield TextView(id="detail")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(PickList))
        self._show_detail()
        self.in_thread(self._load)

    def _load(self) -> None:
        from console.runner.prepare.catalog import entries

        found = entries(site=self.console.watchers.site)
        self.on_loop(self._loaded, found)

    def _loaded(self, found: list[Entry]) -> None:
        self.entries, self.loaded = sorted(found, key=lambda entry: bool(entry.problem)), True
        self._show_list()
        self._show_detail()

    def redraw(self) -> None:
        self._show_list()
        self._show_detail()

    def _show_list(self) -> None:
        picker = self.query_one(PickList)
        if not picker.size.width:
            return  # it is drawn when its size is known
        width = max(10, picker.size.width - 1)
        picker.fill([self._row(entry, width) for entry in self.entries])

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
            return [((line, ""),) for line in wrapped(words, width)]
        return entry_rows(self.entries[cursor], width)

    def lessons_here(self) -> tuple[str, ...]:
        """Ids of the lessons that the playbook under the cursor wants read first."""
        cursor = self.query_one(PickList).cursor
        known = cursor is not None and cursor < len(self.entries)
        return self.entries[cursor].lessons if known and cursor is not None else ()

    def on_pick_list_moved(self, event: PickList.Moved) -> None:
        self._show_detail()

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        entry = self.entries[event.index]
        if entry.problem:
            self.console.say("this playbook cannot be used: what is wrong stands beside it")
            return
        self.pick(entry.path)

    def pick(self, path: Path) -> None:
        """Go on to this playbook's inputs, then its plan."""
        from screens.plan import PlanScreen

        self.app.push_screen(PlanScreen(path))


def _where(entry: Entry) -> str:
    """Where it comes from, and the file's name where that is another one."""
    file = "" if entry.path.stem == entry.name else f" {clean(entry.path.name, 60)}"
    return f"{entry.source}{file}"


def entry_rows(entry: Entry, width: int) -> list[Row]:
    """Objective, lessons, where it lies, what is wrong."""
    rows: list[Row] = [
        ((line, "bold"),) for line in wrapped(clean(entry.title or entry.name), width)
    ]
    rows.append(())
    if entry.objective:
        rows += [((line, ""),) for line in wrapped(f"Objective: {clean(entry.objective)}", width)]
    for title in entry.read_first:
        rows += [((line, "warn"),) for line in wrapped(f"Read first: {title}", width, "  ")]
    if entry.lessons:
        rows.append((("6 opens them", "dim"),))
    if entry.problem:
        rows += [(), (("It cannot be used:", "bad"),)]
        for line in entry.problem.splitlines():
            rows += [((text, ""),) for text in wrapped(clean(line, 600), width)]
    rows += [(), *[((line, "dim"),) for line in wrapped(clean(str(entry.path)), width)]]
    if not entry.problem:
        words = "Enter: inputs, then the plan; nothing starts before you say so"
        rows += [((line, "dim"),) for line in wrapped(words, width)]
    return rows
