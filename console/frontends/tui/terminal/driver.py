"""The terminal driver: the emergency key acts in the input thread; ASCII output if needed.

Textual passes keys to the UI loop, and a busy loop would delay the emergency key. So the key is
handled here, in the thread that reads the terminal, before it also goes the usual way. Nothing a
terminal does stops that thread or the loop: bad input, output that nobody reads, a hang-up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import threading
from types import FrameType
from typing import Any

from rich.cells import cell_len
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.message import Message

from console.frontends.tui.terminal.input import TerminalInput
from console.frontends.tui.terminal.output import LEAVING, Backstop, TerminalWriter, in_front
from console.render.keymap import EMERGENCY

_PLAIN = {
    "-": "─━▔▃▀–—", "|": "│┃║▏▕▎▌▐▊▋▍", "+": "┌┐└┘├┏┓┗┛╔╗╚╝┤┬┴┼╭╮╰╯✓", "=": "═▅▄", "_": "▁▂",
    "#": "█▉▇▆▓■", ".": "░·", ":": "▒", "~": "…±↻", "*": "•●", ">": "→≥▶▸╸", "<": "←≤", "^": "↑",
    "v": "↓", "x": "✗×", " ": "°\xa0", "o": "⭘", '"': "“”", "'": "‘’",
}  # fmt: skip
"""An ASCII sign, and the characters it replaces."""

RESTORE = (
    "\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u"
    "\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""Everything that Textual sends at its end, in case that end does not come."""


PUSH_TITLE, POP_TITLE = "\x1b[22;2t", "\x1b[23;2t"
"""Keep the window's title, and bring it back."""


class _Ascii(dict[int, str]):
    """A translation table for every character: as many `?` as it has cells."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = replacement = char if code < 128 else "?" * cell_len(char)
        return replacement


class ConsoleDriver(LinuxDriver):
    """Textual's Linux driver with an emergency key and an ASCII mode; no terminal can hang it."""

    ascii_only = False
    """Set before the app starts, if the locale or terminal has no UTF-8."""
    _table = _Ascii({ord(sign): plain for plain, signs in _PLAIN.items() for sign in signs})
    _out: TerminalWriter | None = None
    _backstop: Backstop | None = None
    _started = False
    _title = ""
    """The sequence that set the window's title last."""
    _titled = False
    _entering = _continued = False
    _given_back = False
    """The backstop has restored the terminal: nothing enters it again."""

    # -- life ------------------------------------------------------------------------------

    def start_application_mode(self) -> None:
        self._continued = True
        if self._entering:  # one SIGCONT came while another was being served
            return
        self._entering = True
        try:
            while self._continued:  # Textual gives up where it was stopped meanwhile
                self._continued = False
                self._enter()
        finally:
            self._entering = False

    def _enter(self) -> None:
        if self._given_back:  # back from a visit, after the time to end was over
            return
        if self._out is not None:  # a SIGCONT without a SIGTSTP before it
            self.suspend_application_mode()
        assert self._file is not None
        self._out = TerminalWriter(self._file.fileno(), self._file.encoding, self._ask_repaint)
        self._out.start()
        if self._backstop is None:
            # for as long as the process lives: after the app's end a last message may hang too
            self._backstop = Backstop(self._give_back)
            self._backstop.start()
        for number in LEAVING:  # until the app has handlers of its own
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._on_signal)
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is not None:  # ours writes
            self._writer_thread.stop()
            self._writer_thread = None
        if self._started:  # back from a suspension: the screen shows something else
            self._ask_repaint()
            if self._title:
                self.set_title(self._title)
        self._started = True

    def set_title(self, sequence: str) -> None:
        """Send a sequence that sets the window's title; the earlier title comes back at the end.
        While another program has the terminal it is only kept."""
        self._title = sequence
        if self._out is not None:
            self.write(sequence if self._titled else PUSH_TITLE + sequence)
            self._titled = True

    def stop_application_mode(self) -> None:
        if self._titled:
            self._titled = False
            self.write(POP_TITLE)
        super().stop_application_mode()

    def await_end(self, thread: threading.Thread) -> None:
        """Register work that a signal must not cut off."""
        if self._backstop is not None:
            self._backstop.awaited.append(thread)

    def close(self) -> None:
        super().close()
        out, self._out = self._out, None
        if out is not None:
            out.stop()
        for number in LEAVING:
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL)

    @classmethod
    def _patch_lflag(cls, attrs: int) -> int:
        # whatever the environment says: ctrl+backslash is a key, not SIGQUIT
        return super()._patch_lflag(attrs) & ~termios.ISIG

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._ask_to_leave(number)

    def _ask_to_leave(self, number: int) -> None:
        """End the app as a signal would; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._leave, number)

    def _leave(self, number: int) -> None:
        if not self._app._exit:
            self._app.exit(128 + number, return_code=128 + number)

    def _give_back(self) -> None:
        """Restore the terminal if the app did not end; called from the backstop."""
        self._given_back = True
        if self.attrs_before is not None and in_front(self.fileno):
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        out, self._out = self._out, None  # what the app writes from now on would come after it
        if out is not None:
            out.write((POP_TITLE if self._titled else "") + RESTORE)
            out.stop()

    # -- output ----------------------------------------------------------------------------

    def write(self, data: str) -> None:
        if self.ascii_only and not data.isascii():
            data = data.translate(self._table)
        if self._backstop is not None:
            self._backstop.arm()
        if self._out is not None:
            self._out.write(data)

    def _ask_repaint(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._app.call_later(self._app.refresh)

    # -- input -----------------------------------------------------------------------------

    def run_input_thread(self) -> None:
        keys = TerminalInput(self._deliver)
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        while not self.exit_event.is_set():
            if poll.poll(100):
                try:
                    data = os.read(self.fileno, 4096)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                if not data:
                    self._hung_up()
                    return
                keys.feed(data)
            keys.tick()

    def _hung_up(self) -> None:
        """Treat a hang-up like a SIGHUP, which not every process receives."""
        if self._backstop is not None:
            self._backstop.begin(signal.SIGHUP)
        self._ask_to_leave(signal.SIGHUP)

    def _deliver(self, message: Message) -> None:
        with contextlib.suppress(Exception):  # the keys that follow have to come through
            self.process_message(message)

    def process_message(self, message: Message) -> None:
        if isinstance(message, Key) and (turns := getattr(self._app, "turns", None)) is not None:
            turns.read(message)
        if isinstance(message, Key) and message.key in EMERGENCY.keys:
            press: Any = getattr(self._app, "press_emergency", None)
            if press is not None:
                with contextlib.suppress(Exception):  # the app hears of the key in any case
                    press()
        super().process_message(message)
