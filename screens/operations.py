"""The run on show: baseline, gauges, steps, the current step, the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partialmethod
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size

from console.common import paths
from console.common.text import clean
from console.frontends.tui.watch.run import Snapshot
from console.host.sample import Sample
from console.journal.guard_status import ENDED, LOOKING, NONE, OK, WARN
from console.journal.run_view import RunView
from console.journal.state import STANDING, RunState
from console.render.cells import glyphs
from console.render.feed import feed
from console.render.guard import filling, line
from console.render.upcoming import upcoming
from screens.base import WIDE, Dialog
from screens.emergency import Guarded
from screens.log_feed import LogFeed, sources
from widgets.bars import (
    TENS,
    BaselineBadge,
    KeyLine,
    StatusLine,
    bindings,
    option_rows,
    titles_now,
    verbs_now,
)
from widgets.detail import detail_rows, lessons_of, more_rows, result_row, summary_rows
from widgets.log_pane import LogPane
from widgets.machine import MachinePanels
from widgets.rows import Row, Rows, RowsView, TextView, fit
from widgets.steps import StepList, paragraph

BOXED = (100, 30)
"""Columns and rows from which on steps, details and log have a frame."""
FEED = 160
"""Columns from which on there is room for the events beside the log."""
TICK_S = 2.5
STALE_S = 2.5
EARLIER_S = 1.0
"""Seconds until earlier runs are read: the first frame does not wait for them."""

if TYPE_CHECKING:
    from console.frontends.tui.watch.history import RunRow

FIRST = (
    "No run yet.",
    "",
    "2         pick a playbook: read its plan, then start it",
    "4         what this machine has, and what is missing",
    "?         every key",
    "",
)
KNOWN = "The baseline above is that of {}. `omni-console demo` in a shell shows a whole run."
UNKNOWN = (
    "There is no site file ({}), so no baseline is known. In a shell `omni-console init` finds "
    "what serves on this machine, asks two questions and writes that file; `omni-console demo` "
    "shows a whole run in half a minute."
)


class OperationsScreen(Guarded):
    """Where the console opens. Draws the latest snapshot; keeps nothing of its own."""

    BINDINGS = bindings("run")

    def __init__(self) -> None:
        super().__init__()
        self.feed: LogFeed | None = None
        self.tens = -1
        self.earlier: list[RunRow] = []
        """The other runs of the playbook on show."""
        self._asked_of = ""

    def compose(self) -> ComposeResult:
        yield BaselineBadge(id="badge")
        yield StatusLine(id="status")
        yield MachinePanels(id="gauges")
        yield Rows(id="guard")
        with Container(id="body"):
            steps, detail = StepList(id="steps"), TextView(id="detail")
            steps.border_title, detail.border_title = "Steps", "Now"
            steps.border_subtitle = "took / planned"
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
        self._ask_earlier()
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
        self.call_after_refresh(self.draw)

    @property
    def above(self) -> str:
        """What the dialog over it says; "" if there is none."""
        top = self.app.screen
        return top.NEXT if isinstance(top, Dialog) else ""

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

    # -- what changed ------------------------------------------------------------------------

    def run_changed(self, snapshot: Snapshot) -> None:
        if snapshot.view.over:
            self.drop_questions()
        self.note_question(snapshot)
        self._ask_earlier()
        self.draw()

    def _ask_earlier(self) -> None:
        """Read the earlier runs of a playbook once, if there is a panel with room for them."""
        view = self.shot.view
        if view.run_id in ("", self._asked_of) or not self.has_class("boxed"):
            return
        self._asked_of, self.earlier = view.run_id, []

        def read() -> None:
            found = self.console.watchers.earlier(view)
            self.on_loop(take, found)

        def take(found: list[RunRow]) -> None:
            if view.run_id == self._asked_of:
                self.earlier = found
                self.draw_steps()

        self.set_timer(EARLIER_S, lambda: self.in_thread(read))

    def baseline_changed(self) -> None:
        self.draw_badge()
        self.offer_logs()

    def sampled(self, sample: Sample) -> None:
        """Take a sample, once a second; clocks advance in the same frame."""
        self.draw_machine(sample, sample.at)
        self.count_on()

    def draw_machine(self, sample: Sample, now: float) -> None:
        """Draw the panels, and the guard in a row of its own where no panel has room for it or
        where it has to be seen."""
        guard, panels = self.guard, self.query_one(MachinePanels)
        word = guard.word_at(time.monotonic())
        quiet = word in (OK, NONE, LOOKING) or (word == ENDED and not guard.after)

        def brief(width: int) -> Row:
            """The whole line if the panel is its only place, else only its state."""
            said = line(guard, time.monotonic(), width)
            return said if quiet else said[:1]

        panels.draw(sample, now, self.console.history, guard.marks, brief)
        self.set_class(panels.says_guard and quiet, "told")
        self.draw_guard()

    def tick(self) -> None:
        """Advance clocks, and the age of the last sample, even without a new one."""
        sample = self.console.sample
        if sample is None or time.monotonic() - sample.at > STALE_S:
            if sample is not None:
                self.draw_machine(sample, time.monotonic())
            else:
                self.draw_guard()
            self.count_on()

    def count_on(self) -> None:
        """Draw what depends on the time; every ten seconds if the run waits."""
        snapshot, now = self.shot, time.time()
        if not (snapshot.alive or snapshot.is_rolling_back):
            return
        if snapshot.view.state is RunState.RUNNING:
            self.draw_steps()
        tens = int(now - snapshot.view.created) // TENS
        if snapshot.view.state not in STANDING or tens != self.tens or self.guard.lease:
            self.tens = tens
            self.draw_status()

    # -- drawing -----------------------------------------------------------------------------

    def draw(self) -> None:
        """Draw everything from the latest snapshot; only differences are sent."""
        self.set_class(self.shot.word == "none", "empty")
        self.draw_badge()
        self.draw_guard()
        if self.console.sample is not None:
            self.draw_machine(self.console.sample, time.monotonic())
        self.draw_status()
        self.draw_steps()
        self.offer_logs()

    def offer_logs(self) -> None:
        """Offer the current logs; the baseline's even without a run."""
        if self.feed is not None:
            watchers = self.console.watchers
            self.feed.container = watchers.baseline_log
            self.feed.offer(sources(watchers.logs, watchers.baseline_log))

    @property
    def ready(self) -> bool:
        """Whether the runner has said what it waits for; earlier keys are refused."""
        shot = self.shot
        waits = shot.word in ("paused", "waiting_approval")
        return not waits or shot.control.get("state") == str(shot.view.state)

    def draw_status(self) -> None:
        super().draw_status()
        shot, now = self.shot, time.time()
        mode = str(shot.control.get("mode", ""))
        warns = self.guard.word_at(time.monotonic()) == WARN
        alarm = filling(self.guard) if warns and not self.guard.advisory else ""
        row = upcoming(shot.view, shot.word, shot.at, mode, now, alarm, self.above)
        following = self.query_one("#next", Rows)
        width = following.size.width or self.app.size.width
        following.show([fit(row, width, glyphs().ellipsis)])

    def draw_steps(self) -> None:
        shot, steps = self.shot, self.query_one(StepList)
        view = shot.view
        steps.draw(view, shot.clock(time.time()), shot.at)
        detail = self.query_one("#detail", TextView)
        width = max(20, detail.size.width - 2)
        detail.show(self._detail(view, steps.step, width))
        events = self.query_one("#events", Rows)
        if self.has_class("feed") and events.size.height:
            events.show(feed(view, events.size.width, events.size.height, glyphs()))
        keys, readonly = self.query_one(KeyLine), self.console.watchers.readonly
        if self.above:
            keys.draw("dialog", readonly=readonly)
        elif self.query_one(LogPane).has_focus_within:
            keys.draw("log", readonly=readonly)
        else:
            offered = self.ready and not readonly
            verbs = verbs_now(view, shot.word, self.shot.at) if offered else []
            verbs = ["report"] if view.over else verbs
            keys.draw("run", verbs, titles_now(view), readonly=readonly)

    def _detail(self, view: RunView, step_id: str, width: int) -> list[Row]:
        snapshot = self.console.snapshot
        if snapshot is None:
            return [(("reading the journal …", "dim"),)]
        if snapshot.trouble:
            return paragraph(snapshot.trouble, width, "bad")
        step = view.step(step_id)
        if step is None:
            return [row for line in self._first() for row in paragraph(line, width)]
        height = self.query_one("#detail", TextView).size.height
        if view.over and not self.query_one(StepList).chosen:
            rows = summary_rows(view, width)
            return rows + more_rows(view, step, self.earlier, width, height - len(rows))
        current = step.id == (self.shot.at or (view.current or step).id)
        can: list[Row] = []
        if current and self.ready and not self.console.watchers.readonly:
            confirm = str(snapshot.control.get("confirm") or "")
            can = option_rows(view, snapshot.word, confirm, width, self.shot.at)
        last = view.current
        said = {one.step: one.verdict for one in view.verdicts}
        before: list[Row] = []
        if current and last and last.id != step.id:
            before = [result_row(last, width, said.get(last.id, ""))]
        now = snapshot.clock(time.time())
        rows = [*before, *detail_rows(view, step, can, width, now, height)]
        return rows + more_rows(view, step, self.earlier, width, height - len(rows))

    def _first(self) -> tuple[str, ...]:
        """What stands there before the first run: what to do, and what is known."""
        base, usual = self.console.baseline, clean(str(paths.default_site()), 200)
        if base is None:
            return FIRST
        if base.word == "none":
            return (*FIRST, UNKNOWN.format(usual))
        return (*FIRST, KNOWN.format(base.source))

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

    def action_focus_log(self) -> None:
        # at once: the next key is for the log, not for the run
        self.set_focus(self.query_one(LogPane))

    def action_zoom(self) -> None:
        self.toggle_class("zoomed")
        if self.has_class("zoomed"):
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
