"""A run's guard on its screen (one line, and the page of a breach), and a rollback's progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical

from console.common.text import clean
from console.common.units import format_duration, number
from console.journal.guard_status import ACTED, LOOKING, NOBODY, GuardView
from console.render.guard import lines
from screens.actions import Verbs
from screens.base import Dialog
from widgets.bars import rate
from widgets.lists import TextView
from widgets.rows import Row, Rows
from widgets.step_text import wrapped

if TYPE_CHECKING:
    from console.frontends.tui.app import ConsoleApp
    from console.frontends.tui.watch.emergency import RollbackFollower
    from console.recovery.rollback.progress import Result


NEWS_S = 30.0
"""Seconds after which a breach, when it is first seen, no longer opens its page by itself."""

POLL_S = 0.1
TONE = {"ok": "good", "failed": "bad", "skipped": "dim", "note": "warn", "begin": "accent"}


class Guarded(Verbs):
    """A screen that shows its run's guard in `Rows(id="guard")` and opens the page of a breach."""

    breach_shown: tuple[object, ...] = ()

    @property
    def guard(self) -> GuardView:
        """The guard as it was last read; a view without data if that was another run's guard."""
        view: GuardView = self.console.watchers.guard.latest
        snapshot = self.console.snapshot
        run = snapshot.run if snapshot is not None else None
        if run is None:
            return NOBODY
        same = view.run is not None and view.run.path == run.path
        return view if same else GuardView(run, LOOKING)

    def draw_guard(self) -> None:
        """Draw the guard's line, at each tick; only cells that changed are sent."""
        rows = self.query_one("#guard", Rows)
        width = rows.size.width or self.app.size.width
        rows.show(lines(self.guard, time.monotonic(), width))
        self._open_news()

    def _open_news(self) -> None:
        """Open the page of a recent breach, once, unless a dialog is open."""
        view = self.guard
        if view.word != ACTED or view.run is None or self.app.screen is not self:
            return
        at = number(view.breach.get("at"))
        key = (view.run.path, at)
        if key != self.breach_shown and at is not None and time.time() - at < NEWS_S:
            self.breach_shown = key
            self.action_breach()

    def action_breach(self) -> None:
        from screens.breach import BreachScreen

        snapshot = self.console.snapshot
        self.app.push_screen(BreachScreen(snapshot.run if snapshot is not None else None))


class RollbackScreen(Dialog[None]):
    """Shows one rollback to its end, stage by stage. Esc leaves this view, never the rollback."""

    BINDINGS = [Binding("escape,q,enter,1", "back", "Back", show=False)]

    DEFAULT_CSS = """
    RollbackScreen { align: center middle; }
    RollbackScreen > Vertical {
        width: 90; max-width: 98%; height: 20; max-height: 96%;
        border: heavy $error; background: $surface; padding: 0 1;
    }
    """

    def __init__(self, follower: RollbackFollower) -> None:
        super().__init__()
        self.follower = follower
        self.lines: list[dict[str, Any]] = []
        self.result: Result | None = None
        self.shown: object = None

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Rows(id="head")
            yield TextView(id="rungs")
            yield Rows(id="foot")

    def follow(self, follower: RollbackFollower) -> None:
        """Show another rollback: the key was pressed again after one had ended."""
        self.follower, self.lines, self.result, self.shown = follower, [], None, None

    def on_mount(self) -> None:
        self.set_interval(POLL_S, self.look)
        self.call_after_refresh(self.look)

    def look(self) -> None:
        """Show the lines that came since the last call. Keys that come in one burst can close this
        screen before it is mounted."""
        if not self.query("#foot"):
            return
        new = self.follower.lines()
        self.lines += new
        if self.result is None and (result := self.follower.result()) is not None:
            self.result = result
            self.told(result)
        trouble = "" if self.result else self.follower.trouble()
        said = (len(self.lines), self.result, trouble, self.size)
        if said == self.shown:
            return
        self.shown = said
        view = self.query_one("#rungs", TextView)
        width = max(20, view.size.width - 1)
        view.show([*stage_rows(self.lines, width), *by_hand(self.result, width)])
        view.scroll_end(animate=False)
        self.query_one("#head", Rows).show([_head(self.result, trouble)])
        self.query_one("#foot", Rows).show(_foot(self.result, trouble, width))

    def told(self, result: Result) -> None:
        """Update the baseline's badge at once."""
        cast("ConsoleApp", self.app).watchers.baseline.look()

    def action_back(self) -> None:
        self.dismiss(None)


def stage_rows(lines: list[dict[str, Any]], width: int) -> list[Row]:
    """Rows such as `  0.31 s  start     ok      container deepseek-r1 started`; the current stage
    comes last."""
    rows: list[Row] = []
    for place, said in enumerate(lines):
        state = str(said.get("state", ""))
        if state == "begin" and place + 1 < len(lines):
            continue
        stage, detail = (
            clean(str(said.get("rung", "")), 20),
            clean(str(said.get("detail", "")), 800),
        )
        at = said.get("t")
        when = f"{at:7.2f} s" if isinstance(at, int | float) else " " * 9
        first, *more = wrapped(detail, width - 29)
        shown = "…" if state == "begin" else state
        rows.append(
            (
                (f"{when}  ", "dim"),
                (f"{stage:<10} ", "bold"),
                (f"{shown:<7} ", TONE.get(state, "")),
                (first, ""),
            )
        )
        rows += [((" " * 30 + text, ""),) for text in more]
    return rows


def _head(result: Result | None, trouble: str) -> Row:
    if result is None:
        return ((" ROLLBACK FAILED ", "alarm"),) if trouble else ((" ROLLING BACK ", "alarm"),)
    if result.nothing_to_do:
        words = "Nothing to roll back" + (": the baseline serves" if result.serving else "")
        return ((words, "good"),)
    if not result.serving:
        return ((" ROLLBACK FAILED ", "alarm"),)
    return (("THE BASELINE SERVES", "good"),) if not result.degraded else (("DEGRADED", "warn"),)


def _foot(result: Result | None, trouble: str, width: int) -> list[Row]:
    away: Row = (("Esc leaves this view; the rollback goes on", "dim"),)
    if result is None:
        return [*[((text, "bad"),) for text in wrapped(clean(trouble), width) if trouble], away]
    words = []
    if result.restore_s is not None:
        words.append(f"back in {format_duration(result.restore_s)}")
    if result.tok_s is not None:
        of = f" of {result.reference:g}" if result.reference else ""
        words.append(f"{rate(result.tok_s)}{of} tok/s")
    text = ", ".join(words) or clean(result.detail)
    return [*[((line, "bold"),) for line in wrapped(text, width)], (("Esc closes", "dim"),)]


def by_hand(result: Result | None, width: int) -> list[Row]:
    """The commands that a person can type, in full; the keys of the log scroll them."""
    if result is None or not result.manual:
        return []
    rows: list[Row] = [(), (("by hand:", "bad"),)]
    for command in result.manual:
        rows += [((f"  {line}", ""),) for line in wrapped(clean(command, 4000), width - 2, "    ")]
    return rows
