"""A run's guard on its screen, the page of what it stopped, and a rollback's progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from console.common import paths
from console.common.text import clean
from console.common.units import format_duration
from console.journal.guard_status import ACTED, GuardView
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.progress import AGAIN, BY_HAND
from console.recovery.rollback.sealed_plan import site_script
from console.render.cells import glyphs
from console.render.guard import acted, line, lines
from console.render.keymap import EMERGENCY
from console.render.progress import rollback_progress
from console.render.text_chart import LABEL, Curve, chart
from screens.actions import Verbs
from screens.base import Dialog, ReadingPage, guard_of
from widgets.bars import rate
from widgets.rows import Row, Rows, TextView, fit, spread
from widgets.steps import behind, paragraph, wrapped

if TYPE_CHECKING:
    from console.frontends.tui.app import ConsoleApp
    from console.frontends.tui.watch.progress import RollbackProgress
    from console.journal.run_dir import RunDir
    from console.recovery.rollback.progress import Result
    from console.render.breach import BreachFacts, BreachPage


NEWS_S = 30.0
"""Age in seconds from which a breach first seen does not open its page by itself."""

AGAIN_S = 2.0
LOW, HIGH = 5, 10
"""Rows of a curve, on a low screen and on a high one."""

POLL_S = 0.1
TONE = {"ok": "good", "failed": "bad", "skipped": "dim", "note": "warn", "begin": "accent"}


class Guarded(Verbs):
    """A screen that shows its run's guard in `Rows(id="guard")` and opens the page of a breach."""

    breach_shown: tuple[object, ...] = ()

    def draw_guard(self) -> None:
        """Draw the guard's line, at each tick; only changed cells are sent."""
        rows = self.query_one("#guard", Rows)
        width = rows.size.width or self.app.size.width
        rows.show(lines(self.guard, time.monotonic(), width))
        self._open_news()

    def _open_news(self) -> None:
        """Open the page of a recent breach, once, unless a dialog is open or somebody types: the
        next letter would be a key of that page."""
        view, typing = self.guard, isinstance(self.focused, Input)
        if view.word != ACTED or view.run is None or typing or self.app.screen is not self:
            return
        at = view.breach.at
        key = (view.run.path, at)
        if key != self.breach_shown and at is not None and time.time() - at < NEWS_S:
            self.breach_shown = key
            self.action_breach()

    def action_breach(self) -> None:
        self.app.push_screen(BreachScreen(self.shot.run))


class BreachScreen(ReadingPage):
    """The breach of the run it was opened for, read again while open, because memory and baseline
    come back meanwhile. If another run is on show, the head shows that run's guard; once that one
    acts, the page switches to it."""

    SCOPE = "breach"

    def __init__(self, run: RunDir | None) -> None:
        super().__init__()
        self.run_dir = run
        self.facts: BreachFacts | None = None
        self.loaded = self.reading = False

    def stand(self) -> None:
        self.console.sampled.subscribe(self, lambda sample: self.draw_head())
        self._look()
        self.set_interval(AGAIN_S, self._look)

    def _look(self) -> None:
        self._follow()
        if not self.reading and self.run_dir is not None:
            self.reading = True
            self.in_thread(self._read)
        elif self.run_dir is None:
            self._loaded(None)

    def _follow(self) -> None:
        """Switch to the run on show if this page has no breach, or that run has one."""
        other, shown = self._other(), self.facts
        if other is not None and (other.word == ACTED or (shown is not None and not shown.breach)):
            self.run_dir, self.facts, self.loaded = other.run, None, False

    def _other(self) -> GuardView | None:
        """The guard of the run on show, if that is another than this page's."""
        run = self.shot.run
        if run is None or (self.run_dir is not None and run.path == self.run_dir.path):
            return None
        return guard_of(self.console, run)

    def _read(self) -> None:
        from console.render.breach import read

        run = self.run_dir
        try:
            breach_record = read(run) if run is not None else None
        finally:
            self.reading = False
        self.on_loop(self._loaded, breach_record)

    def _loaded(self, breach_record: BreachFacts | None) -> None:
        if breach_record is not None and breach_record.run is not self.run_dir:
            return  # it was read before another run took the page
        self.facts, self.loaded = breach_record, True
        self.redraw()

    def head(self, width: int) -> list[Row]:
        return [*self._now(width), self._head(width)]

    def _now(self, width: int) -> list[Row]:
        """Says that another run is on show, what its guard says and how to see it."""
        other = self._other()
        if other is None or other.run is None:
            return []
        lead: Row = ((f"on show now is {other.run.id[-4:]}: ", "bold"),)
        left = (*lead, *line(other, time.monotonic(), key=""))
        return [spread(left, (("Esc, then b", "dim"),), width)]

    def _head(self, width: int) -> Row:
        if self.facts is None or not self.facts.breach:
            return line(guard_of(self.console, self.run_dir), time.monotonic(), width)
        from console.render.breach import title

        return fit(tuple(acted(self.facts.breach, title(self.facts))), width)

    def rows(self, width: int) -> list[Row]:
        if not self.loaded:
            return [(("reading the recording …", "dim"),)]
        from console.render.breach import page

        made = page(self.facts, guard_of(self.console, self.run_dir))
        return page_rows(made, max(30, width), self.app.size.height)


def page_rows(page: BreachPage, width: int, height: int) -> list[Row]:
    """The page in `width` cells; `height` is the screen's, which limits a curve's height."""
    rows = _paragraphs(page.above, width)
    high = HIGH if height >= 36 else LOW
    below = [*([()] if page.below else []), *_paragraphs(page.below, width)]
    curves = [row for curve in page.curves for row in _curve_rows(page, curve, width, high)]
    # in a low window what to do comes before what it looked like
    return [*rows, *curves, *below] if high == HIGH else [*rows, *below, *curves]


def _paragraphs(words: tuple[tuple[str, str], ...], width: int) -> list[Row]:
    return [row for text, tone in words for row in paragraph(text, width, tone, "  ")]


def _curve_rows(page: BreachPage, curve: Curve | None, width: int, high: int) -> list[Row]:
    if curve is None:
        return []
    head: Row = ((curve.name, "bold"), (f"  {page.end - page.begin:.0f} s", "dim"))
    rows = [(), head, *chart(curve, page.begin, page.end, width, high, glyphs(), page.moment)]
    begin, end = page.spans
    if begin:
        rows.append(spread(((" " * LABEL + begin, "dim"),), ((end, "dim"),), width))
    return rows


class RollbackScreen(Dialog[None]):
    """Shows one rollback to its end, stage by stage. Esc leaves this view, never the rollback."""

    BINDINGS = [Binding("q,enter,1", "back", "Back", show=False)]

    DEFAULT_CSS = """
    RollbackScreen > Vertical { width: 96; max-width: 100%; height: 20; border: heavy $error; }
    RollbackScreen.serves > Vertical { border: heavy $success; }
    """
    NEXT = "the rollback goes on with this view or without it: Esc closes it"
    KEYS = "view"

    def __init__(self, progress: RollbackProgress) -> None:
        super().__init__()
        self.progress = progress
        self.lines: list[dict[str, Any]] = []
        self.result: Result | None = None
        self.shown: object = None

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Rows(id="head")
            yield TextView(id="stages")
            yield Rows(id="foot")

    def follow(self, progress: RollbackProgress) -> None:
        """Show another rollback: the key was pressed again after one had ended."""
        self.progress, self.lines, self.result, self.shown = progress, [], None, None
        self.NEXT = RollbackScreen.NEXT
        self.remove_class("serves")

    def on_mount(self) -> None:
        self.set_interval(POLL_S, self.look)
        self.call_after_refresh(self.look)

    def look(self) -> None:
        """Show the lines that came since the last call. Keys that come in one burst can close this
        screen before it is mounted."""
        if not self.query("#foot"):
            return
        self.lines += self.progress.lines[len(self.lines) :]
        if self.result is None and (result := self.progress.result) is not None:
            self.result = result
            self.set_class(result.is_sound, "serves")
            shot = cast("ConsoleApp", self.app).snapshot
            reports = shot is not None and shot.word != "none"
            self.NEXT = ended_words(result, reports=reports, site=self.progress.site)
            for below in self.app.screen_stack[:1]:
                if isinstance(below, Guarded) and below.is_attached:
                    below.draw_status()  # its NEXT line says what this one says
            self.update_badge(result)
        trouble = "" if self.result else self.progress.trouble
        view = self.query_one("#stages", TextView)
        width = max(20, view.size.width - 1)
        # its clock goes on without a new line
        self.query_one("#head", Rows).show(
            [_head(self.result, trouble, _whose(self.progress)), *self._progress_rows(width)]
        )
        other = self._other_down()
        content = (len(self.lines), self.result, trouble, self.size, other)
        if content == self.shown:
            return
        self.shown = content
        view.show([*stage_rows(self.lines, width), *by_hand(self.result, width)])
        view.scroll_end(animate=False)
        self.query_one("#foot", Rows).show(
            [
                *(paragraph(other, width, "warn") if other else []),
                *_waits(self.lines if self.result is None else [], width),
                *_foot(self.result, trouble, width),
            ]
        )

    def _other_down(self) -> str:
        """That the site which this console was opened for is another one and down, in words."""
        app = cast("ConsoleApp", self.app)
        seen, brought = app.baseline, self.progress.site_path
        ended = self.result is not None and self.result.serving
        if not (ended and app.watchers.site and brought and seen is not None):
            return ""
        if seen.source == brought or seen.word != Word.DOWN:
            return ""
        return (
            f"this console is of another site, {seen.source}, whose baseline is down: "
            f"{EMERGENCY.first} again brings that one back"
        )

    def _progress_rows(self, width: int) -> list[Row]:
        """How far the rollback is, beside what a restore takes."""
        shot = cast("ConsoleApp", self.app).snapshot
        usual_s = shot.restore_s if shot is not None else None
        row = rollback_progress(self.lines, usual_s, time.time(), width)
        return [row] if row and self.result is None else []

    def update_badge(self, result: Result) -> None:
        """Update the baseline's badge at once."""
        cast("ConsoleApp", self.app).watchers.baseline.look()


def stage_rows(lines: list[dict[str, Any]], width: int) -> list[Row]:
    """Rows such as `  0.31 s  start     ok      container deepseek-r1 started`; the current stage
    comes last."""
    rows: list[Row] = []
    for place, progress_line in enumerate(lines):
        state = clean(str(progress_line.get("state", "")), 20)
        if "done" in progress_line:
            continue  # how far a load is, which has a row of its own
        if state == "begin" and place + 1 < len(lines):
            continue
        at, stage = progress_line.get("t"), clean(str(progress_line.get("rung", "")), 20)
        when = f"{at:7.2f} s" if isinstance(at, int | float) else " " * 9
        shown = "…" if state == "begin" else state
        lead: Row = (
            (f"{when}  ", "dim"), (f"{stage:<10} ", "bold"), (f"{shown:<7} ", TONE.get(state, "")),
        )  # fmt: skip
        rows += behind(lead, clean(str(progress_line.get("detail", "")), 800), width)
    return rows


def _waits(lines: list[dict[str, Any]], width: int) -> list[Row]:
    """For what the rollback waits, where the commands that a person may type meanwhile stand below
    the line that says so, and have scrolled it away."""
    details = [str(line.get("detail", "")) for line in lines]
    if not details or not details[-1].startswith(BY_HAND):
        return []
    reason = next((words for words in reversed(details) if not words.startswith(BY_HAND)), "")
    return paragraph(clean(reason, 400), width, "warn") if AGAIN in reason else []


def _whose(progress: RollbackProgress) -> str:
    """Of which site and run a rollback is, as far as known."""
    run = f"run {progress.run_id}" if progress.run_id else ""
    return ", ".join(filter(None, (f"site {progress.site}" if progress.site else "", run)))


def _head(result: Result | None, trouble: str, whose: str = "") -> Row:
    return (*_verdict(result, trouble), *(((f"  {whose}", "dim"),) if whose else ()))


def _verdict(result: Result | None, trouble: str) -> Row:
    if result is None:
        return ((" ROLLBACK FAILED ", "alarm"),) if trouble else ((" ROLLING BACK ", "alarm"),)
    if not result.serving and not result.nothing_to_do:
        return ((f" {result.headline} ", "alarm"),)
    return ((result.headline, "good" if result.is_sound else "warn"),)


def ended_words(result: Result, *, reports: bool, site: str = "") -> str:
    """What is next when a rollback has ended; `reports`: whether there is a run to read about;
    `site`: whose baseline it is, if that is known."""
    whose = f"the baseline of site {site}" if site else "the baseline"
    if not result.serving:
        if result.nothing_to_do:
            return "nothing says which baseline to restore: Esc closes this"
        return f"{whose} is not back: {EMERGENCY.first} tries again, Esc closes this"
    words = f"{whose} serves" if result.nothing_to_do else f"{whose} is back"
    return f"{words}: Esc closes this" + (", then o reads the report" if reports else "")


def _foot(result: Result | None, trouble: str, width: int) -> list[Row]:
    if result is None and trouble:
        script = str(site_script("SITE")).replace(str(paths.home()), "~")
        again = f"{EMERGENCY.first} tries again; in a shell: omni-console rollback, or without it "
        again += f"sh {script}, with the site's name for SITE. Esc closes"
        return [*paragraph(clean(trouble), width, "bad"), *paragraph(again, width, "")]
    if result is None:
        return [(("Esc leaves this view; the rollback goes on", "dim"),)]
    words = []
    if result.restore_s is not None:
        words.append(f"back in {format_duration(result.restore_s)}")
    if result.tok_s is not None:
        of = f" of {result.reference:g}" if result.reference else ""
        words.append(f"{rate(result.tok_s)}{of} tok/s")
    text = ", ".join(words) or clean(result.detail)
    notes = [row for note in result.notes for row in paragraph(clean(note), width, "warn")]
    return [*paragraph(text, width, "bold"), *notes, (("Esc closes", "dim"),)]


def by_hand(result: Result | None, width: int) -> list[Row]:
    """The commands that a person can type, in full; the keys of the log scroll them."""
    if result is None or not result.manual:
        return []
    rows: list[Row] = [(), (("by hand:", "bad"),)]
    for command in result.manual:
        rows += [((f"  {line}", ""),) for line in wrapped(clean(command, 4000), width - 2, "    ")]
    return rows
