"""What the main screen draws: machine, guard, run, steps, the current step, what is next."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from console.common import paths
from console.common.text import clean
from console.frontends.tui.watch.run import Snapshot
from console.host.sample import Sample
from console.journal.guard_status import ENDED, LOOKING, NONE, OK, WARN
from console.journal.run_view import RunView
from console.journal.state import STANDING, RunState
from console.render.cells import glyphs
from console.render.facts.step import facts_of
from console.render.feed import feed
from console.render.guard import filling, line
from console.render.upcoming import upcoming
from screens.emergency import Guarded
from screens.log_feed import LogFeed, sources
from widgets.bars import (
    TENS,
    KeyLine,
    option_rows,
    titles_now,
    verbs_now,
)
from widgets.detail import detail_rows, more_rows, result_row, summary_rows
from widgets.log_pane import LogPane
from widgets.machine import MachinePanels
from widgets.rows import Row, Rows, TextView, fit, once
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
    from console.runner.prepare.catalog import Entry

FIRST = (
    "No run yet.",
    "",
    "2         pick a playbook: read its plan, then start it",
    "4         what this machine has, and what is missing",
    "?         every key",
    "",
)
HOSTS = "7         the hosts of your fleet, and the way into each"
KNOWN = "The baseline above is that of {}. `omni-console demo` in a shell shows a whole run."
UNKNOWN = (
    "There is no site file ({}), so no baseline is known. In a shell `omni-console init` finds "
    "what serves on this machine, asks two questions and writes that file; `omni-console demo` "
    "shows a whole run in half a minute."
)


class RunPanels(Guarded):
    """Draws the latest snapshot into the parts that the screen has; keeps nothing of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.feed: LogFeed | None = None
        self.tens = -1
        self.earlier: list[RunRow] = []
        """The other runs of the playbook on show."""
        self._asked_of = ""
        self.playbooks: list[Entry] | None = None
        """What could be run here; None as long as nobody asked."""

    # -- what changed ------------------------------------------------------------------------

    def run_changed(self, snapshot: Snapshot) -> None:
        if snapshot.view.over:
            self.drop_questions()
        self.note_question(snapshot)
        self._ask_more()
        self.draw()

    def _ask_more(self) -> None:
        self._ask_earlier()
        self._ask_playbooks()

    def _ask_playbooks(self) -> None:
        """Read once what could be run here, for a panel with room that has no run to show."""
        if self.shot.word != "none" or self.playbooks is not None or not self.has_class("boxed"):
            return
        self.playbooks = []

        def read() -> None:
            self.on_loop(take, self.console.watchers.playbooks())

        def take(playbooks: list[Entry]) -> None:
            self.playbooks = playbooks
            self.draw_steps()

        once(self, EARLIER_S, lambda: self.in_thread(read))

    def _ask_earlier(self) -> None:
        """Read the earlier runs of a playbook once, if there is a panel with room for them."""
        view = self.shot.view
        if view.run_id in ("", self._asked_of) or not self.has_class("boxed"):
            return
        self._asked_of, self.earlier = view.run_id, []

        def read() -> None:
            earlier_runs = self.console.watchers.earlier(view)
            self.on_loop(take, earlier_runs)

        def take(earlier_runs: list[RunRow]) -> None:
            if view.run_id == self._asked_of:
                self.earlier = earlier_runs
                self.draw_steps()

        once(self, EARLIER_S, lambda: self.in_thread(read))

    def baseline_changed(self) -> None:
        self.draw_badge()
        self.draw_keys()
        if self.shot.word == "none":
            self.draw_steps()  # which says whose baseline it is
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
            guard_row = line(guard, time.monotonic(), width)
            return guard_row if quiet else guard_row[:1]

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
        self.query_one(MachinePanels).roomy = self.shot.word == "none"
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
            self.set_class(not self.feed.sources, "silent")

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
        row = upcoming(
            shot.view, shot.word, shot.at, mode, now, alarm, self.above,
            readonly=self.console.watchers.readonly, shown=self.shown_baseline,
        )  # fmt: skip
        following = self.query_one("#next", Rows)
        width = following.size.width or self.app.size.width
        following.show([fit(row, width, glyphs().ellipsis)])

    def draw_steps(self) -> None:
        shot, steps = self.shot, self.query_one(StepList)
        view = shot.view
        self.set_class(shot.alive and view.state in STANDING, "asked")
        steps.draw(view, shot.clock(time.time()), shot.at)
        detail = self.query_one("#detail", TextView)
        width = max(20, detail.size.width - 2)
        detail.show(self._detail(view, steps.step, width))
        events = self.query_one("#events", Rows)
        if self.has_class("feed") and events.size.height:
            events.show(feed(view, events.size.width, events.size.height, glyphs()))
        self.draw_keys()

    def draw_keys(self) -> None:
        keys, shot, readonly = self.query_one(KeyLine), self.shot, self.console.watchers.readonly
        draw = partial(keys.draw, readonly=readonly, restores=self.restores)
        if self.above:
            draw(self.scope_above)
        elif self.query_one(LogPane).has_focus_within:
            draw("log")
        else:
            offered = self.ready and not readonly
            verbs = verbs_now(shot.view, shot.word, shot.at) if offered else []
            verbs = ["report"] if shot.view.over else verbs
            draw("run", verbs, titles_now(shot.view), fleet=self.console.fleet)

    def _detail(self, view: RunView, step_id: str, width: int) -> list[Row]:
        snapshot = self.console.snapshot
        if snapshot is None:
            return [(("reading the journal …", "dim"),)]
        if snapshot.trouble:
            return paragraph(snapshot.trouble, width, "bad")
        step = view.step(step_id)
        if step is None:
            return self._first_rows(width)
        height = self.query_one("#detail", TextView).size.height
        if view.over and not self.query_one(StepList).chosen:
            rows = summary_rows(view, width, time.time(), self.shown_baseline)
            return rows + more_rows(view, step, self.earlier, width, height - len(rows))
        current = step.id == (self.shot.at or (view.current or step).id)
        can: list[Row] = []
        if current and self.ready and not self.console.watchers.readonly:
            confirm = str(snapshot.control.get("confirm") or "")
            can = option_rows(view, snapshot.word, confirm, width, self.shot.at)
        last = view.current
        before: list[Row] = []
        if current and last and last.id != step.id:
            before = [result_row(facts_of(view, last), width)]
        now = snapshot.clock(time.time())
        rows = [*before, *detail_rows(view, step, can, width, now, height)]
        return rows + more_rows(view, step, self.earlier, width, height - len(rows))

    def _first_rows(self, width: int) -> list[Row]:
        """What to do before the first run, and as many playbooks as there is room for."""
        rows = [row for line in self._first() for row in paragraph(line, width)]
        room = self.query_one("#detail", TextView).size.height - len(rows) - 2
        if not self.playbooks or room < 1:
            return rows
        rows += [(), (("playbooks", "bold"), ("  2 opens them", "dim"))]
        wide = max(len(entry.name) for entry in self.playbooks)
        for entry in self.playbooks[:room]:
            row: Row = ((f"{entry.name:<{wide}}  ", ""), (entry.title, "dim"))
            rows.append(fit(row, width, glyphs().ellipsis))
        return rows

    def _first(self) -> tuple[str, ...]:
        """What stands there before the first run: what to do, and what is known."""
        base, usual = self.console.baseline, clean(str(paths.default_site()), 200)
        keys = (*FIRST[:4], HOSTS, *FIRST[4:]) if self.console.fleet else FIRST
        if base is None:
            return keys
        if base.word == "none":
            return (*keys, UNKNOWN.format(usual))
        return (*keys, KNOWN.format(base.source))
