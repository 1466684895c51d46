"""The run on show: baseline, gauges, steps, the current step, the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size

from console.common.logs.line import LogLine
from console.common.logs.tail import Tail
from console.frontends.tui.watch.run import Snapshot
from console.host.sample import Sample
from console.journal.run_files import SERVICE, STEP, LogFile
from console.journal.run_view import RunView
from console.journal.state import STANDING, RunState
from console.render.guard import lease_words
from screens.emergency import Guarded
from widgets.bars import (
    TENS,
    BaselineBadge,
    GaugeStrip,
    KeyLine,
    StatusLine,
    bindings,
    option_rows,
    status,
    verbs_now,
)
from widgets.log_pane import LogPane
from widgets.rows import Row, Rows, RowsView, TextView
from widgets.steps import StepList, detail_rows, lessons_of, paragraph, result_row, summary_rows

if TYPE_CHECKING:
    from console.frontends.tui.watch.baseline_container import BaselineLog

BEHIND = 4
"""Most batches on their way to the screen; with more, the reader waits."""
CONTAINER = "container"
"""The kind of a log that is followed only while somebody reads it."""

TICK_S = 2.5
STALE_S = 2.5
WIDE = 120

FIRST = (
    "No run yet.",
    "",
    "2         pick a playbook: read its plan, then start it",
    "4         what this machine has, and what is missing",
    "?         every key",
    "",
    "The baseline is what the site file says (~/.config/omni-console/site.yaml); without one the "
    "embedded demo serves. In a shell `omni-console init` finds what serves on this machine and "
    "writes that file; `omni-console demo` shows a whole run in half a minute.",
)


def sources(logs: tuple[LogFile, ...], container: BaselineLog | None = None) -> list[LogFile]:
    """A run's logs in their order, the baseline container's after the services."""
    found = list(logs)
    if container is not None:
        at = max((n for n, log in enumerate(found) if log.kind == SERVICE), default=-1) + 1
        at = at or min(1, len(found))
        found.insert(at, LogFile("baseline", container.path, CONTAINER))
    return found


class LogFeed:
    """One tail at a time, its lines passed to the pane on the UI loop."""

    def __init__(self, pane: LogPane, call: Callable[..., object]) -> None:
        """`call` runs a function on the UI loop from any thread."""
        self.pane = pane
        self._call = call
        self._tail: Tail | None = None
        self._waiting = 0
        self._turn = 0
        self.container: BaselineLog | None = None
        self.sources: list[LogFile] = []
        self.source: LogFile | None = None
        self.chosen = False

    def offer(self, found: list[LogFile]) -> None:
        """Take the current list of sources; follow the run unless the operator chose one."""
        self.sources = found
        paths = [log.path for log in found]
        if self.source is not None and self.chosen and self.source.path in paths:
            return
        filled = (log for log in found if log.filled)  # the first that has something in it
        wanted = next(filled, found[0] if found else None)
        if wanted is None or self.source is None or wanted.path != self.source.path:
            self.chosen = False
            self.show(wanted)

    def turn(self, by: int) -> None:
        """Show the next or previous source, and stay there."""
        if self.sources:
            self.choose(self.sources[(self._at(self.source) + by) % len(self.sources)])

    def _at(self, source: LogFile | None) -> int:
        """The index of a source, else 0."""
        paths = [log.path for log in self.sources]
        return paths.index(source.path) if source is not None and source.path in paths else 0

    def choose(self, source: LogFile) -> None:
        self.chosen = True
        self.show(source)

    def output_of(self, step: str) -> bool:
        """Show a step's output; False if it has none."""
        for source in self.sources:
            if source.kind == STEP and source.step == step:
                self.choose(source)
                return True
        return False

    def show(self, source: LogFile | None) -> None:
        """End the current tail and begin the next."""
        self.close()
        self.source = source
        self._turn += 1
        if source is None:
            self.pane.attach("log", "there is no log yet")
            return
        if source.kind == CONTAINER and self.container is not None:
            self.container.start()
        at = self._at(source) + 1
        many = f" {at}/{len(self.sources)}" if len(self.sources) > 1 else ""
        self.pane.attach(f"{source.name}{many}", "nothing in it yet")
        turn = self._turn
        self._tail = Tail(source.path, lambda batch: self._deliver(turn, batch))
        self._tail.start()

    def _deliver(self, turn: int, batch: list[LogLine]) -> bool:
        """In the tail's thread: pass a batch on unless the screen is behind."""
        if self._waiting >= BEHIND:
            return False
        self._waiting += 1
        self._call(self._take, turn, batch)
        return True

    def _take(self, turn: int, batch: list[LogLine]) -> None:
        self._waiting -= 1
        if turn == self._turn:
            self.pane.take(batch)

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None


class OperationsScreen(Guarded):
    """Where the console opens. Draws the latest snapshot; keeps nothing of its own."""

    BINDINGS = bindings("run")

    def __init__(self) -> None:
        super().__init__()
        self.feed: LogFeed | None = None
        self.tens = -1

    def compose(self) -> ComposeResult:
        yield BaselineBadge(id="badge")
        yield GaugeStrip(id="gauges")
        yield Rows(id="guard")
        with Container(id="body"):
            yield StepList(id="steps")
            yield TextView(id="detail")
        yield LogPane(id="log")
        yield StatusLine(id="status")
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

    def on_rows_view_resized(self, event: RowsView.Resized) -> None:
        event.stop()
        self.draw_steps()

    def _shape(self, size: Size) -> None:
        self.set_class(size.width < 80, "narrow")
        self.set_class(size.width >= WIDE, "wide")
        self.query_one(GaugeStrip).max_rows = 2 if size.height < 24 else 5

    # -- what changed ------------------------------------------------------------------------

    def run_changed(self, snapshot: Snapshot) -> None:
        if snapshot.view.over:
            self.drop_questions()
        self.note_question(snapshot)
        self.draw()

    def baseline_changed(self) -> None:
        self.draw_badge()
        self.offer_logs()

    def sampled(self, sample: Sample) -> None:
        """Take a sample, once a second; clocks advance in the same frame."""
        self.query_one(GaugeStrip).draw(sample, sample.at, self.guard.marks)
        self.draw_guard()
        self.count_on()

    def tick(self) -> None:
        """Advance clocks, and the age of the last sample, even without a new one."""
        sample = self.console.sample
        if sample is None or time.monotonic() - sample.at > STALE_S:
            if sample is not None:
                self.query_one(GaugeStrip).draw(sample, time.monotonic(), self.guard.marks)
            self.draw_guard()
            self.count_on()

    def count_on(self) -> None:
        """Draw what depends on the time; every ten seconds if the run waits."""
        snapshot, now = self.shot, time.time()
        if not (snapshot.alive or snapshot.is_rolling_back):
            return
        if snapshot.view.state is RunState.RUNNING:
            self.query_one(StepList).draw(snapshot.view, snapshot.clock(now), self.at)
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
    def at(self) -> str:
        """The step before which a paused run stands; "" while one runs."""
        return str(self.shot.control.get("step") or "") if self.shot.word == "paused" else ""

    @property
    def ready(self) -> bool:
        """Whether the runner has said what it waits for; earlier keys are refused."""
        shot = self.shot
        waits = shot.word in ("paused", "waiting_approval")
        return not waits or shot.control.get("state") == str(shot.view.state)

    def draw_status(self) -> None:
        line, shot = self.query_one(StatusLine), self.shot
        width = line.size.width or self.app.size.width
        if shot.word == "none":
            line.show([(("no run", "dim"),)])
            return
        mode = str(shot.control.get("mode", ""))
        lease = lease_words(self.guard.lease, brief=width < WIDE)
        line.show([status(shot.view, shot.word, mode, time.time(), width, self.at, lease)])

    def draw_steps(self) -> None:
        shot, steps = self.shot, self.query_one(StepList)
        view = shot.view
        steps.draw(view, shot.clock(time.time()), self.at)
        detail = self.query_one("#detail", TextView)
        width = max(20, detail.size.width - 2)
        detail.show(self._detail(view, steps.step, width))
        keys, readonly = self.query_one(KeyLine), self.console.watchers.readonly
        if self.query_one(LogPane).has_focus_within:
            keys.draw("log", readonly=readonly)
        else:
            offered = self.ready and not readonly
            verbs = verbs_now(view, shot.word, self.at) if offered else []
            keys.draw("run", ["report"] if view.over else verbs, readonly=readonly)

    def _detail(self, view: RunView, step_id: str, width: int) -> list[Row]:
        snapshot = self.console.snapshot
        if snapshot is None:
            return [(("reading the journal …", "dim"),)]
        if snapshot.trouble:
            return paragraph(snapshot.trouble, width, "bad")
        step = view.step(step_id)
        if step is None:
            return [row for line in FIRST for row in paragraph(line, width)]
        if view.over and not self.query_one(StepList).chosen:
            return summary_rows(view, width)
        current = step.id == (self.at or (view.current or step).id)
        can: list[Row] = []
        if current and self.ready and not self.console.watchers.readonly:
            confirm = str(snapshot.control.get("confirm") or "")
            can = option_rows(view, snapshot.word, confirm, width, self.at)
        last = view.current
        said = {one.step: one.verdict for one in view.verdicts}
        before: list[Row] = []
        if current and last and last.id != step.id:
            before = [result_row(last, width, said.get(last.id, ""))]
        return [*before, *detail_rows(view, step, can, width)]

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

    def on_log_pane_source_asked(self, event: LogPane.SourceAsked) -> None:
        if self.feed is not None:
            self.feed.turn(event.step)

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
        """Leave the zoom, then the log, then go back to the running step."""
        if self.has_class("zoomed"):
            self.remove_class("zoomed")
        elif self.query_one(StepList).follow():
            self.draw_steps()
        self.set_focus(self.query_one(StepList))

    def action_report(self) -> None:
        if self.shot.run is None:
            self.console.say("no run yet, so no report: 2 picks a playbook")
            return
        from screens.runs import ReportScreen

        self.app.push_screen(ReportScreen(self.shot.run))
