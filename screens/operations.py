"""The run on show: baseline, gauges, steps, the current step, the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size

from console.render.cells import glyphs
from screens.base import WIDE
from screens.log_feed import LogFeed
from screens.run_panels import BOXED, FEED, TICK_S, RunPanels
from widgets.bars import (
    BaselineBadge,
    KeyLine,
    StatusLine,
    bindings,
)
from widgets.detail import lessons_of
from widgets.log_pane import LogPane
from widgets.machine import MachinePanels
from widgets.rows import Rows, RowsView, TextView
from widgets.steps import StepList


class OperationsScreen(RunPanels):
    """Where the console opens. Draws the latest snapshot; keeps nothing of its own."""

    BINDINGS = bindings("run")

    def compose(self) -> ComposeResult:
        yield BaselineBadge(id="badge")
        yield StatusLine(id="status")
        yield MachinePanels(id="gauges")
        yield Rows(id="guard")
        with Container(id="body"):
            steps, detail = StepList(id="steps"), TextView(id="detail")
            steps.border_title, detail.border_title = "Steps", "Now"
            steps.border_subtitle = f"{glyphs().down} baseline down · took / planned"
            yield steps
            yield detail
        with Container(id="below"):
            yield LogPane(id="log")
            events = Rows(id="events")
            events.border_title = "Events"
            yield events
        yield Rows(id="next")
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        app = self.console
        self.feed = LogFeed(self.query_one(LogPane), self._call)
        app.run_changed.subscribe(self, self.run_changed)
        app.baseline_changed.subscribe(self, lambda view: self.baseline_changed())
        app.sampled.subscribe(self, self.sampled)
        self.set_focus(self.query_one(StepList))
        self.set_interval(TICK_S, self.tick)
        self._shape(self.app.size)  # before the first layout: it is the only one then
        if app.sample is not None:
            self.sampled(app.sample)
        self._ask_more()
        self.draw()

    def _call(self, function: Callable[..., object], *args: object) -> None:
        """Call from a reader's thread; does nothing once the screen is closing."""
        if self.is_attached:
            self.app.call_later(function, *args)

    def on_unmount(self) -> None:
        if self.feed is not None:
            self.feed.close()

    def on_resize(self) -> None:
        self._shape(self.size)
        self._ask_more()
        self.call_after_refresh(self.draw)

    def on_screen_suspend(self) -> None:
        self.call_after_refresh(self._keys_moved)

    def on_screen_resume(self) -> None:
        self._keys_moved()

    def _keys_moved(self) -> None:
        if self.is_attached and self.children:
            self.draw_status()
            self.draw_steps()

    def on_rows_view_resized(self, event: RowsView.Resized) -> None:
        event.stop()
        self.draw_steps()

    def _shape(self, size: Size) -> None:
        self.set_class(size.width < 80, "narrow")
        self.set_class(size.width >= WIDE, "wide")
        self.set_class(size.width >= FEED, "feed")
        self.set_class(size.width >= BOXED[0] and size.height >= BOXED[1], "boxed")
        self.query_one(MachinePanels).window = size.height

    # -- looking around ----------------------------------------------------------------------

    def lessons_here(self) -> tuple[str, ...]:
        return lessons_of(self.shot.view, self.query_one(StepList).step)

    def on_step_list_selected(self, event: StepList.Selected) -> None:
        self.draw_steps()
        self.query_one("#detail", TextView).scroll_home(animate=False)

    def on_step_list_output_asked(self, event: StepList.OutputAsked) -> None:
        if self.feed is None or self.feed.output_of(event.step):
            return
        if self.shot.word == "waiting_approval":  # the keys that answer stay in view
            return
        self.console.say(f"{event.step} has no output", "information")

    def _turn_log(self, step: int) -> None:
        if self.feed is not None:
            self.feed.turn(step)

    action_source_next = partialmethod(_turn_log, 1)
    action_source_previous = partialmethod(_turn_log, -1)

    def action_next(self) -> None:
        """Run the next step; while matches are marked in the log, the key is theirs, wherever the
        focus is."""
        if (pane := self.query_one(LogPane)).is_searching:
            pane.action_match_next()
        else:
            super().action_next()

    def action_reject(self) -> None:
        if (pane := self.query_one(LogPane)).is_searching:
            pane.action_match_previous()
        else:
            super().action_reject()

    def on_descendant_focus(self) -> None:
        self.draw_steps()

    def _has_log(self) -> bool:
        """Whether there is a pane for the log; says so if not."""
        if self.has_class("empty", "silent"):
            self.console.say("there is no log yet", "information")
            return False
        return True

    def action_focus_log(self) -> None:
        if self._has_log():  # at once: the next key is for the log, not for the run
            self.set_focus(self.query_one(LogPane))

    def action_zoom(self) -> None:
        if self.has_class("zoomed"):
            self.remove_class("zoomed")
        elif self._has_log():
            self.add_class("zoomed")
            self.action_focus_log()

    def action_back(self) -> None:
        """Leave the zoom, then the search, then the log, then go back to the running step."""
        pane = self.query_one(LogPane)
        if self.has_class("zoomed"):
            self.remove_class("zoomed")
        elif pane.is_searching:
            pane.action_show_all()
            return
        elif self.query_one(StepList).follow():
            self.draw_steps()
        self.set_focus(self.query_one(StepList))

    def action_report(self) -> None:
        if self.shot.run is None:
            self.console.say("no run yet, so no report: 2 picks a playbook")
            return
        from screens.report import ReportScreen

        self.app.push_screen(ReportScreen(self.shot.run))
