"""The base of screens, pages and dialogs: only changed cells are sent to the terminal."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.events import Idle
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip

from console.common.text import clean
from console.frontends.tui.watch.baseline import NONE
from console.frontends.tui.watch.run import Snapshot
from console.journal.guard_status import LOOKING, NOBODY, GuardView
from console.render.guard import lease_words
from widgets.bars import BaselineBadge, KeyLine, StatusLine, badge, emergency, status
from widgets.machine import logged_in_to
from widgets.rows import Row, Rows, RowsView, TextView, width_of

if TYPE_CHECKING:
    from console.frontends.tui.app import ConsoleApp
    from console.journal.run_dir import RunDir


T = TypeVar("T")
EAGER_S = 0.5
TURNS = 8
"""Turns of the event loop without new layout before a first frame is painted."""

WIDE = 120
LEAST = 20
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


class FineUpdate(ChopsUpdate):
    """Spans cropped at both ends."""

    def render_segments(self, console: Console) -> str:
        out: list[str] = []
        for y, begin, end in self.spans:
            ends = self.chop_ends[y]
            for right, (left, strip) in zip(ends, self.chops[y].items(), strict=False):
                if strip is None or left >= end or right <= begin:
                    continue
                first, last = max(left, begin), min(right, end)
                out.append(Control.move_to(first, y).segment.text)
                out.append(strip.crop(first - left, last - left).render(console))
        return "".join(out)


class FineCompositor(Compositor):
    """A compositor that sends only changed cells; set after the screen's own `__init__`.

    Textual 8.2.8 repaints a row from a widget's left edge to its last changed cell: `ChopsUpdate`
    crops a span at its right end and not at its left. A clock at the right edge of a line would
    cost the whole line each second. The names used here are Textual's own private ones; its version
    is pinned.
    """

    _dirty: list[Region] | None = None
    """The regions of a partial update while it is rendered."""

    def render_partial_update(self) -> ChopsUpdate | None:
        self._dirty = list(self._dirty_regions)
        try:
            update = super().render_partial_update()
        finally:
            self._dirty = None
        return update and FineUpdate(update.chops, update.spans, update.chop_ends)

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """For a partial update only its own widgets; Textual renders all in the clip."""
        if self._dirty is None:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if seen and any(seen.overlaps(dirty) for dirty in self._dirty):
                part = seen.translate((-region.x, -region.y))
                yield region, clip, widget.render_lines(part)


class Base(Screen[T]):
    """A screen of the console."""

    _home: App[object] | None = None
    _turns = 0

    def __init__(self) -> None:
        super().__init__()
        self._compositor = FineCompositor()
        self._made = time.monotonic()

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

    async def _on_idle(self, event: Idle) -> None:
        """At the start do each round of layout, scrolling and painting at once: Textual waits for a
        tick of its frame clock between them, and ours is slow on purpose."""
        if time.monotonic() - self._made < EAGER_S and self._unpainted:
            event.prevent_default()
            self._on_timer_update()

    def _compositor_refresh(self) -> None:
        """At the start paint one frame instead of five: the first layout gives each part its size,
        which triggers more layouts, and earlier frames would be replaced a moment later."""
        if time.monotonic() - self._made >= EAGER_S:
            super()._compositor_refresh()
            return
        waiting, self._turns = self._turns > 0, TURNS
        if not waiting:
            asyncio.get_running_loop().call_soon(self._one_turn)

    def _one_turn(self) -> None:
        self._turns -= 1
        if self._turns > 0:
            asyncio.get_running_loop().call_soon(self._one_turn)
        elif self.is_attached:
            with self._context():
                super()._compositor_refresh()

    @property
    def _unpainted(self) -> bool:
        return bool(
            self._layout_required or self._scroll_required or self._repaint_required
            or self._recompose_required or self._dirty_widgets
        )  # fmt: skip

    def draw_badge(self) -> None:
        """Draw the baseline's state and what the emergency key does now."""
        app, line, shot = self.console, self.query_one(BaselineBadge), self.shot
        restore_s = shot.restore_s if shot.live else None
        readonly = app.watchers.readonly
        since = shot.view.down_since if shot.live and shot.view.outage else 0.0
        here = logged_in_to()
        line.draw(
            lambda room: (*here, *badge(app.baseline, time.time(), room - width_of(here), since)),
            lambda room: emergency(
                shot.live, shot.rollback, restore_s, readonly, room, possible=self.baseline_known
            ),
            line.size.width or app.size.width,
        )

    @property
    def baseline_known(self) -> bool:
        """Whether there is a baseline to restore; True as long as nobody has looked."""
        found = self.console.baseline
        return found is None or found.word != NONE

    def draw_status(self) -> None:
        """Draw the run on show in its row."""
        line, shot = self.query_one(StatusLine), self.shot
        width = line.size.width or self.app.size.width
        if shot.word == "none":
            line.show([(("no run", "dim"),)])
            return
        mode = str(shot.control.get("mode", ""))
        lease = lease_words(self.guard.lease, brief=width < WIDE)
        line.show([status(shot.view, shot.word, mode, time.time(), width, shot.at, lease)])

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
        self.query_one(KeyLine).draw(scope, readonly=self.console.watchers.readonly)

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
            view.show(self.rows(max(LEAST, view.size.width - 3)))

    def draw_head(self) -> None:
        if self.HEAD and self.stands:
            head = self.query_one("#head", Rows)
            head.show(self.head(head.size.width or self.app.size.width))
