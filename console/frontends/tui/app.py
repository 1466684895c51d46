"""The App: connects watchers, screens, keys and signals. No logic."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial, partialmethod
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.text import Text
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.events import Event, Key, Paste, Resize
from textual.geometry import Size
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.signal import Signal

from console.common import crash
from console.common.text import clean
from console.frontends.tui import themes
from console.frontends.tui.attention import Attention
from console.frontends.tui.terminal.driver import ConsoleDriver
from console.frontends.tui.terminal.input import KeyTurns, Passed
from console.frontends.tui.watch.baseline import BaselineView
from console.frontends.tui.watch.emergency import Press
from console.frontends.tui.watch.run import Snapshot
from console.host.sample import History, Sample
from console.render.keymap import EMERGENCY, of_scope
from screens import operations
from screens.actions import Outbox
from screens.emergency import RollbackScreen
from screens.operations import OperationsScreen
from widgets.bars import KeyLine, binding
from widgets.rows import once

if TYPE_CHECKING:
    from console.frontends.tui.watch.watchers import Watchers
    from console.journal.samples import Gauge

SETTLED_S = 2.0


def _settle(app: ConsoleApp) -> None:
    """Do what can wait until the first frames stand: exempt what the start has loaded from later
    garbage collections, and see whether there is a fleet file."""
    if not gc.isenabled():
        gc.collect()
        gc.freeze()
        gc.enable()

    def look() -> None:
        from console.fleet.inventory import fleet_path

        if fleet_path(None).exists():
            app._post(seen, True)

    def seen(there: bool) -> None:
        app.fleet = there
        if app.snapshot is not None:
            app.run_changed.publish(app.snapshot)

    threading.Thread(target=look, name="fleet", daemon=True).start()


UNCLEAR = (
    f"{EMERGENCY.first} arrived together with an Enter that opens a host, so it rolled back "
    "neither machine: press it again where you mean it"
)


def opens_hosts(app: ConsoleApp) -> bool:
    """Whether Enter opens another machine's console on the page in front."""
    try:
        return bool(getattr(app.screen_stack[-1], "SCOPE", "") == "hosts")
    except Exception:  # the emergency key never fails here
        return False


def palette(app: ConsoleApp, screen: Screen[Any]) -> Iterable[SystemCommand]:
    """The commands that work on a screen. Those that change something are only named: Enter, which
    picks here, never approves, skips or stops."""
    scopes = ["app", "run"] if isinstance(screen, OperationsScreen) else ["app"]
    for scope in scopes:
        owner = "app" if scope == "app" else "screen"
        for action in of_scope(scope):
            if action.id in ("command_palette", "back"):
                continue
            do: Callable[[], object]
            if action.changes:
                do = partial(app.say, f"press {action.shown}: {action.help}", "information")
            else:
                do = partial(app.call_later, app.run_action, f"{owner}.{action.id}")
            # the palette sorts by name: a sign in front keeps the emergency first
            mark = "! " if action is EMERGENCY else ""
            yield SystemCommand(f"{mark}{action.title} ({action.shown})", action.help, do)


class News(Message):
    """What a watcher saw, for the method that takes it; only the newest waits."""

    def __init__(self, take: Callable[[Any], None], seen: object) -> None:
        super().__init__()
        self.take, self.seen = take, seen

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, News) and message.take == self.take


class ConsoleApp(App[int]):
    """The operator console. `watchers` read everything; the app only passes it on."""

    TITLE = "omni-console"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        binding(action, priority=action is EMERGENCY) for action in of_scope("app")
    ]
    # the first screen's own CSS_PATH is not read by Textual
    CSS_PATH = [Path(operations.__file__).with_name("operations.tcss")]
    CSS = """
    Screen { background: $background; }
    ModalScreen { background: transparent; }
    SearchIcon { display: none; }
    """

    def __init__(self, watchers: Watchers) -> None:
        super().__init__(driver_class=ConsoleDriver)
        self.watchers = watchers
        self.snapshot = watchers.first()
        self.baseline: BaselineView | None = None
        self.sample: Sample | None = None
        self.history = History()
        self.run_changed: Signal[Snapshot] = Signal(self, "run changed")
        self.baseline_changed: Signal[BaselineView] = Signal(self, "baseline changed")
        self.sampled: Signal[Sample] = Signal(self, "sampled")
        self.pressed_at = float("-inf")
        self.press: Press | None = None
        self.proving = self.unclear = False
        self.fleet = False  # whether there is a fleet file: the footer then offers its page
        self.attention = Attention(os.environ)
        self.outbox = Outbox(self._trouble)
        self.turns = KeyTurns(self, super().on_event)
        themes.use(self)

    async def on_event(self, event: Event) -> None:
        """Pass on typed keys one by one; only the emergency key waits for nothing."""
        typed = isinstance(event, Key | Paste) and not event.is_forwarded
        if typed and not (isinstance(event, Key) and event.key in EMERGENCY.keys):
            await self.turns.take(event)
        else:
            await super().on_event(event)

    async def on_passed(self, message: Passed) -> None:
        await self.turns.passed(message)

    # -- life ------------------------------------------------------------------------------

    def get_default_screen(self) -> OperationsScreen:
        return OperationsScreen()

    def on_mount(self) -> None:
        crash.clean_logging()
        self.animation_level = "none"
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave_by_signal, number)
        once(self, SETTLED_S, partial(_settle, self))
        self.watchers.start(
            partial(self._post, self._run_seen), partial(self._post, self._baseline_seen),
            partial(self._post, self._sample_seen), partial(self._post, self._recorded),
        )  # fmt: skip

    def await_end(self, thread: threading.Thread) -> None:
        """Register work that a console waits for, even after its terminal is lost."""
        if isinstance(self._driver, ConsoleDriver):
            self._driver.await_end(thread)

    def _trouble(self, words: str) -> None:
        self.call_later(self.say, words, "error")

    def _post(self, take: Callable[[Any], None], seen: object) -> None:
        """Post from a watcher's thread; does nothing once the app is ending."""
        if self._running and not self._closing:
            self.post_message(News(take, seen))

    def _leave_by_signal(self, number: int) -> None:
        """Restore the terminal; the run goes on without it."""
        self.exit(128 + number, return_code=128 + number)

    def on_news(self, message: News) -> None:
        message.take(message.seen)

    def _run_seen(self, snapshot: Snapshot) -> None:
        if isinstance(self._driver, ConsoleDriver):
            self.attention.tell(self._driver, self.snapshot, snapshot)
        self.snapshot = snapshot
        self.watchers.follow(snapshot)
        self.run_changed.publish(snapshot)

    def _baseline_seen(self, view: BaselineView) -> None:
        self.baseline = view
        if self.snapshot is not None:
            self.watchers.follow(self.snapshot)
        self.baseline_changed.publish(view)

    def _sample_seen(self, sample: Sample) -> None:
        self.sample = sample
        self.history.take(sample, time.time())
        self.sampled.publish(sample)

    def _recorded(self, moments: list[Gauge]) -> None:
        """Take in what the run on show has recorded of this machine before this console looked."""
        self.history.load(moments)
        if self.sample is not None:
            self.sampled.publish(self.sample)

    # -- the emergency key -------------------------------------------------------------------

    def press_emergency(self) -> None:
        """Start the rollback. The input thread calls this: it acts at once, touches no widget."""
        if self.watchers.readonly:
            return
        # once: the next press acts, whatever hangs
        self.unclear = not self.unclear and self.turns.may_open and opens_hosts(self)
        if not self.unclear:
            self.roll_back()

    def roll_back(self) -> None:
        """Start the rollback, whatever page is in front."""
        self.turns.void()
        self.pressed_at = time.monotonic()
        self.press = self.watchers.emergency.press()

    def action_emergency(self) -> None:
        """Show the stages; press, if the key did not come by the input thread."""
        if self.watchers.readonly:
            self.say("read-only: `omni-console rollback` from a shell restores the baseline")
            return
        if self.unclear:
            self.unclear = False
            self.say(UNCLEAR, "error")
            return
        if not isinstance(self._driver, ConsoleDriver):
            self.press_emergency()  # else the driver has: however late this comes, once is enough
        self.show_rollback()

    def show_rollback(self) -> None:
        """Show the stages of the latest press, in the open view if there is one."""
        if self.press is None:
            return
        for screen in self.screen_stack:
            if isinstance(screen, RollbackScreen):
                screen.follow(self.press.progress)
                return
        self.push_screen(RollbackScreen(self.press.progress))

    def _fatal_error(self) -> None:
        """End after an error that nobody has caught. Textual would print every variable of it,
        with the foreign text in them as it is."""
        self.bell()
        if self._exception is not None:
            self._exit_renderables.append(Text(crash.words_of(self._exception)))
        self._close_messages_no_wait()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return palette(self, screen)

    # -- what every screen can do -------------------------------------------------------------

    def say(self, text: str, tone: SeverityLevel = "warning") -> None:
        """One clean sentence to the operator; it goes away by itself."""
        tone_of = {"error": "bad", "warning": "warn", "information": "accent"}
        for line in self.screen.query(KeyLine):
            line.tell(clean(text, 600), tone_of[tone])
            return
        self.notify(clean(text, 600), markup=False, severity=tone, timeout=4)

    def action_operations(self) -> None:
        while not isinstance(self.screen, OperationsScreen) and len(self.screen_stack) > 1:
            self.pop_screen()

    def _page(self, name: str, *, over: bool = False) -> None:
        """A screen by its module, which is imported when needed."""
        module, _, screen_name = name.partition(".")
        screen = getattr(import_module(f"screens.{module}"), screen_name)
        if isinstance(self.screen, screen):
            return
        if self.screen.is_modal:
            self.say("answer this first, or leave it with Esc")
            return
        if not over:
            self.action_operations()
        self.push_screen(screen())

    action_playbooks = partialmethod(_page, "playbooks.PlaybooksScreen")
    action_runs = partialmethod(_page, "runs.RunsScreen")
    action_host = partialmethod(_page, "machine.HostScreen")
    action_preflight = partialmethod(_page, "machine.PreflightScreen")
    action_lessons = partialmethod(_page, "lessons.LessonsScreen", over=True)
    action_hosts = partialmethod(_page, "hosts.HostsScreen")
    action_show_help = partialmethod(_page, "dialogs.HelpScreen", over=True)

    def action_command_palette(self) -> None:
        from screens.dialogs import Palette

        if not Palette.is_open(cast("App[object]", self)):
            self.push_screen(Palette(id="--command-palette"))

    async def _on_resize(self, event: Resize) -> None:
        event.prevent_default()  # of two signals in one the newer may come first: asked anew
        driver, size = self._driver, event.size
        if isinstance(driver, ConsoleDriver):
            size = Size(*driver._get_terminal_size())
        await super()._on_resize(Resize(size, size))

    def pop_screen(self) -> AwaitComplete:
        """Keep the last screen: two keys in one burst close Textual's palette twice."""
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    async def action_back(self) -> None:
        own = getattr(self.screen, "action_back", None)
        if own is not None:
            own()
        elif len(self.screen_stack) > 1:
            self.pop_screen()  # a page; dialogs have a way of their own

    def action_leave(self) -> None:
        """Close the console; active runs go on."""
        self.exit(0)

    def action_help_quit(self) -> None:
        """Handle Ctrl-C, pressed by habit: it stops nothing here."""
        self.say("q closes the console; runs go on", "information")

    def action_toggle_mouse(self) -> None:
        driver = self._driver
        if driver is None:
            return
        self.mouse_on = not getattr(self, "mouse_on", False)
        driver._mouse = True  # the driver was told at its start that there is none
        turn = "_enable_mouse_support" if self.mouse_on else "_disable_mouse_support"
        getattr(driver, turn, lambda: None)()
        driver._mouse = self.mouse_on  # who takes the terminal back turns on what is on
        self.say("mouse on" if self.mouse_on else "mouse off", "information")

    def action_next_theme(self) -> None:
        self.say(f"colours: {themes.use_next(self)}", "information")

    def action_prove(self) -> None:
        if self.watchers.readonly:
            self.say("read-only: the baseline is not asked")
            return
        if self.proving:
            return  # one at a time: a key that repeats is one question
        self.proving = True
        self.say("asking the baseline for a completion …", "information")
        threading.Thread(target=self._prove, name="prove", daemon=True).start()

    def _prove(self) -> None:
        try:
            words = self.watchers.baseline.verify()
        finally:
            self.proving = False
        self.call_later(self.say, words, "information")
