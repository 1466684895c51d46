"""The base of screens, pages and dialogs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.screen import ModalScreen

from console.common.text import clean
from console.frontends.tui.terminal.frames import FineCompositor, FramedScreen
from console.frontends.tui.watch.baseline import NONE
from console.frontends.tui.watch.run import Snapshot
from console.journal.guard_status import LOOKING, NOBODY, GuardView
from console.render.guard import lease_words
from console.render.upcoming import NOTHING, ShownBaseline
from widgets.bars import BaselineBadge, KeyLine, StatusLine, badge, emergency, status
from widgets.machine import logged_in_to
from widgets.rows import Row, Rows, RowsView, TextView, width_of

if TYPE_CHECKING:
    from console.frontends.tui.app import ConsoleApp
    from console.journal.run_dir import RunDir


T = TypeVar("T")
WIDE = 120
MIN_COLUMNS = 20
"""Columns for which the layout is made at least."""


def guard_of(console: ConsoleApp, run: RunDir | None) -> GuardView:
    """A run's guard as last read; an empty view if that was another run's."""
    if run is None:
        return NOBODY
    view: GuardView = console.watchers.guard.latest
    same = view.run is not None and view.run.path == run.path
    return view if same else GuardView(run, LOOKING)


@dataclass(frozen=True, slots=True)
class Question:
    """What a dialog asks, as plain data, so that a screen can ask without importing the dialog.
    `confirm`: the exact word to type; `required`: an empty answer does not count."""

    title: str
    lines: list[str] = field(default_factory=list)
    prompt: str = ""
    confirm: str = ""
    required: bool = False


class Base(FramedScreen[T]):
    """A screen of the console."""

    _home: App[object] | None = None

    @property
    def console(self) -> ConsoleApp:
        return cast("ConsoleApp", self.app)

    @property
    def shot(self) -> Snapshot:
        """The run on show as it was last seen; one without a run before the first look."""
        return self.console.snapshot or Snapshot()

    @property
    def guard(self) -> GuardView:
        """The guard of the run on show as last read."""
        return guard_of(self.console, self.shot.run)

    @property
    def above(self) -> str:
        """What the dialog over this screen says of its keys; "" if there is none."""
        top = self.app.screen
        return top.NEXT if isinstance(top, Dialog) else ""

    @property
    def scope_above(self) -> str:
        """The scope of the keys of that dialog."""
        top = self.app.screen
        return top.KEYS if isinstance(top, Dialog) else ""

    def draw_badge(self) -> None:
        """Draw the baseline's state and what the emergency key does now."""
        app, line, shot = self.console, self.query_one(BaselineBadge), self.shot
        restore_s = shot.restore_s if shot.live else None
        readonly, view = app.watchers.readonly, app.baseline
        since = shot.view.down_since if shot.live and shot.view.outage else 0.0
        here = logged_in_to()
        line.draw(
            lambda room: (
                *here,
                *badge(view, time.time(), room - width_of(here), since, readonly=readonly),
            ),
            lambda room: emergency(
                shot.live, shot.rollback, restore_s, readonly, room, possible=self.baseline_known
            ),
            line.size.width or app.size.width,
        )

    @property
    def baseline_known(self) -> bool:
        """Whether there is a baseline to restore; True as long as nobody has looked."""
        baseline = self.console.baseline
        return baseline is None or baseline.word != NONE

    @property
    def shown_baseline(self) -> ShownBaseline:
        """Whose baseline is on show."""
        base = self.console.baseline
        return ShownBaseline(base.site, base.url) if base is not None else NOTHING

    @property
    def restores(self) -> bool:
        """Whether the emergency key has anything to restore, or a rollback to show."""
        return self.shot.live or bool(self.shot.rollback) or self.baseline_known

    def draw_status(self) -> None:
        """Draw the run on show in its row."""
        line, shot = self.query_one(StatusLine), self.shot
        width = line.size.width or self.app.size.width
        if shot.word == "none":
            line.show([(("no run", "dim"),)])
            return
        mode = str(shot.control.get("mode", ""))
        lease = lease_words(self.guard.lease, brief=width < WIDE)
        args = (shot.view, shot.word, mode, time.time(), width, shot.at, lease, self.shown_baseline)
        line.show([status(*args)])

    def in_thread(self, work: Callable[[], None]) -> threading.Thread:
        """Run slow work in a daemon thread, for which a closing console does not wait, as it would
        for Textual's own thread workers."""
        self._home = self.app  # a screen that was left does not know its app any more

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # the thread's entry: a screen must not wait for ever
                words = f"{type(error).__name__}: {error}"
                self.on_app(self.in_trouble, clean(words, 400))

        thread = threading.Thread(target=guarded, name="screen", daemon=True)
        thread.start()
        return thread

    def in_trouble(self, words: str) -> None:
        """Handle an unforeseen failure of work in a thread, even after this screen was left."""
        if self._home is not None:
            cast("ConsoleApp", self._home).say(words, "error")

    def on_app(self, function: Callable[..., None], *args: object) -> None:
        """From such a thread: call a function on the UI loop, even after this screen was left."""
        if self._home is not None and self._home.is_running:
            self._home.call_later(function, *args)

    def on_loop(self, function: Callable[..., None], *args: object) -> None:
        """From such a thread: call a function on the UI loop, if this screen is still there."""
        self.on_app(self._if_here, function, *args)

    def _if_here(self, function: Callable[..., None], *args: object) -> None:
        if self.is_attached and self.children:
            function(*args)


class Dialog(ModalScreen[T]):
    """A dialog over a screen; it is left only once, however many keys came for it."""

    BINDINGS = [Binding("escape", "back", "Back", show=False)]
    NEXT = "the question above has the keys: Enter answers it, Esc leaves it"
    """What the screen below says in its NEXT line."""
    KEYS = "dialog"
    """What its footer offers."""
    _left = False

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical {
        height: auto; max-height: 96%; background: $surface; padding: 0 1; border: heavy $primary;
    }
    Dialog Static { height: auto; }
    Dialog .title { text-style: bold; }
    Dialog .problem { color: $text-error; }
    Dialog Input { height: 1; background: $boost; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._compositor = FineCompositor()

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        if self._left or self.app.screen is not self:
            return AwaitComplete()
        self._left = True
        return super().dismiss(result)

    def action_back(self) -> None:
        self.dismiss(None)


class RunDialog(Dialog[T]):
    """A dialog for a verb of the run; closed when the run ends."""

    _dropped = False

    def drop(self) -> None:
        """Leave now, or as soon as the screens above are left."""
        self._dropped = True
        self._leave_if_seen()

    def on_screen_resume(self) -> None:
        self._leave_if_seen()

    def _leave_if_seen(self) -> None:
        if self._dropped:
            self.dismiss(None)


class Page(Base[None]):
    """The frame of every screen but the run's: the baseline and the run above, a `HEAD` line if it
    has one, the `body`, the keys below, Esc back."""

    SCOPE = "page"
    HEAD = True
    DEFAULT_CSS = """
    Page #head { background: $panel; }
    Page StatusLine { background: $surface; }
    Page TextView { padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield StatusLine()
        if self.HEAD:
            yield Rows(id="head")
        yield from self.body()
        yield KeyLine()

    def body(self) -> ComposeResult:
        yield TextView(id="text")

    def on_mount(self) -> None:
        if not self.stands:
            return
        app = self.console
        app.run_changed.subscribe(self, lambda snapshot: self.redraw_frame())
        app.baseline_changed.subscribe(self, lambda view: self.redraw_frame())
        self.redraw_frame()
        self.set_focus(self.query_one(RowsView))
        self.redraw()
        self.stand()

    def on_resize(self) -> None:
        self.set_class(self.size.width < 80, "narrow")
        self.redraw_frame()
        self.call_after_refresh(self._redraw)

    def _redraw(self) -> None:
        if self.stands:
            self.redraw()

    @property
    def stands(self) -> bool:
        """Whether its parts are mounted: fast keys may leave a page before that."""
        return bool(self.query(BaselineBadge))

    def stand(self) -> None:
        """Start the page once it is mounted."""

    def redraw(self) -> None:
        """Draw the content for the current size."""

    def redraw_frame(self) -> None:
        """Badge, run and keys; cheap, only what changed is sent."""
        if not self.stands:
            return
        self.draw_badge()
        self.draw_status()
        scope = self.scope_above or self.SCOPE
        readonly = self.console.watchers.readonly
        self.query_one(KeyLine).draw(scope, readonly=readonly, restores=self.restores)

    def on_screen_suspend(self) -> None:
        self.call_after_refresh(self.redraw_frame)

    def on_screen_resume(self) -> None:
        self.redraw_frame()


class ReadingPage(Page):
    """One text to read, laid out by `rows` for the current width, and `head` above it."""

    def head(self, width: int) -> list[Row]:
        """The line above the text, if the page has a `HEAD`."""
        return []

    def rows(self, width: int) -> list[Row]:
        """The text in lines of at most `width` columns."""
        raise NotImplementedError

    def redraw(self) -> None:
        view = self.query_one(TextView)
        if view.size.width:  # else it is drawn when its size is known
            self.draw_head()
            view.show(self.rows(max(MIN_COLUMNS, view.size.width - 3)))

    def draw_head(self) -> None:
        if self.HEAD and self.stands:
            head = self.query_one("#head", Rows)
            head.show(self.head(head.size.width or self.app.size.width))
