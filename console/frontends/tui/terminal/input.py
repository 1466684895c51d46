"""Passes on keys and pastes from a terminal one after the other; no input ends the reading.

Pastes are collected here, because Textual's parser takes keys out of pasted text.
"""

from __future__ import annotations

import asyncio
import time
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Awaitable, Callable

from textual._time import get_time
from textual._xterm_parser import BRACKETED_PASTE_END as END
from textual._xterm_parser import BRACKETED_PASTE_START as START
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.events import Event, Key, Paste
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from console.common.text import harmless, split_lines
from console.render.keymap import EMERGENCY

LOOK_S = 0.05
"""Seconds between looks whether the widget that has a key is still there."""
MAX_LOOKS = 100
"""Looks after which a key counts as stuck. They are counted, so that a machine that stood still for
a while is not taken for a widget that does not answer."""
ROUNDS = 3
"""Times that a message follows a key. The first one overtakes what the key's widget posts in turn,
as when a search that is answered gives the focus back; the second comes behind all of that, and
the third behind what went to other widgets."""
MAX_TURNS = 4096
"""Most waiting keys; further ones are dropped."""

SILENT_S = 1.0
"""Seconds of silence after which a paste without an end is broken."""
GAP_S = 0.1
"""Seconds that separate a person's keys from those sent in one go."""
MAX_PASTE = 1 << 20
"""Characters of one paste; the rest is dropped."""
F12 = "\x1b[24~"
_CARRIED = ("last_x", "last_y", "mouse_pixels", "terminal_size", "terminal_pixel_size")


class Passed(Message):
    """Follows a key on its way up to the app, and once more for each of `rounds`."""

    def __init__(self, turn: int, screen: Screen[object], target: Widget, rounds: int) -> None:
        super().__init__()
        self.turn = turn
        self.screen = screen
        self.target = target
        self.rounds = rounds


class KeyTurns:
    """Holds typed keys back while an earlier key is being handled. `deliver` is Textual's own
    handling.

    Textual passes a key to the focused widget, and from there up to the app, which then looks for a
    binding. Keys of one packet would all be dispatched before the first has moved the focus: `/axs`
    would open the search and then drive the run with what was meant for it.

    The next key waits for as long as the widget is there, however slow the machine is; behind a key
    that is stuck the waiting ones are dropped, because what they were meant for never came.
    `away`: another program has the terminal, or is about to; what still comes is dropped.
    """

    def __init__(self, app: App[int], deliver: Callable[[Event], Awaitable[None]]) -> None:
        self._app = app
        self._deliver = deliver
        self._held: deque[Event] = deque()
        self._turn = 0
        self._busy = False
        self._late: asyncio.TimerHandle | None = None
        self.away = False
        self._at = self._read_at = self._done_at = self._void_at = 0.0
        """When the key at hand came, the newest Enter, the newest key that is done with, and the
        newest that voids those before it."""

    def read(self, key: Key) -> None:
        """Note a key that the input thread has read."""
        if key.key == "enter":
            self._read_at = key.time

    def void(self) -> None:
        """Drop what was typed until now and still waits: the emergency key overtakes it, and what
        it was meant for is no more there."""
        self._void_at = get_time()

    @property
    def may_open(self) -> bool:
        """Whether an Enter that was read is not done with, or has just opened something."""
        return self.away or self._read_at > self._done_at

    async def take(self, event: Event) -> None:
        """Accept a key or a paste."""
        if self.away or event.time <= self._void_at:
            self._done_at = event.time
        elif not self._busy:
            await self._start(event)
        elif len(self._held) < MAX_TURNS:
            self._held.append(event)

    async def _start(self, event: Event) -> None:
        app = self._app
        self._busy, self._at = True, event.time
        screen = app.screen
        target = app.focused or screen
        await self._deliver(event)
        self._follow(target, screen)

    def _follow(self, target: Widget, screen: Screen[object], rounds: int = ROUNDS) -> None:
        """Send a message after the key, along the same way."""
        self._turn += 1
        message = Passed(self._turn, screen, target, rounds - 1)
        if target.post_message(message):
            self._look_later(message, MAX_LOOKS)
        else:
            self._app.post_message(message)

    def _look_later(self, message: Passed, looks: int) -> None:
        self._forget()
        loop = asyncio.get_running_loop()
        self._late = loop.call_later(LOOK_S, self._look, message, looks - 1)

    def _look(self, message: Passed, looks: int) -> None:
        """Go on without an answer if the widget is gone, and with it what was on its way."""
        target = message.target
        if looks and not (target._closing or target._closed):
            self._look_later(message, looks)
            return
        if not looks:
            self._drop()
            message.rounds = 0
        self._app.post_message(message)

    def _drop(self) -> None:
        self._done_at = max([self._done_at, *(event.time for event in self._held)])
        self._held.clear()

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    async def passed(self, message: Passed) -> None:
        """Note that the key was handled; wait for what it led to, a new screen too."""
        if message.turn != self._turn or not self._busy or not self._app.screen_stack:
            return
        now = self._app.screen
        if now is not message.screen:
            self._follow(now, now)
            return
        if message.rounds:
            self._follow(message.target, now, message.rounds)
            return
        self._forget()
        self._busy, self._done_at = False, max(self._done_at, self._at)
        if self.away:
            self._drop()
        while self._held and not self._busy:
            await self.take(self._held.popleft())


def _clean(text: str) -> Paste:
    """Pasted text made harmless: every widget, even Textual's palette, draws it as it comes."""
    return Paste("\n".join(map(harmless, split_lines(text))))


class _Paste:
    """A paste whose end has not come yet."""

    def __init__(self, now: float) -> None:
        self.opened = now
        self.parts: list[str] = []
        self.tail = ""
        self.size = 0
        self.pressed: list[str] = []
        self.pressed_last = False

    def add(self, text: str) -> str | None:
        """Add text; return what comes after the end, or None if the end is not in it."""
        text = self.tail + text
        at = text.find(END)
        kept = at if at >= 0 else max(0, len(text) - len(END) + 1)
        if self.size < MAX_PASTE:
            self.parts.append(text[:kept])
            self.size += kept
        self.tail = "" if at >= 0 else text[kept:]
        return text[at + len(END) :] if at >= 0 else None

    @property
    def text(self) -> str:
        return ("".join(self.parts) + self.tail)[:MAX_PASTE].replace("\x00", "")


class TerminalInput:
    """Bytes in, messages out through `deliver`, which may not raise. `now` is in seconds."""

    def __init__(
        self, deliver: Callable[[Message], object], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._deliver = deliver
        self._now = now
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()
        self._tail = ""
        self._heard = now()
        self._paste: _Paste | None = None
        self._broken = False

    def feed(self, data: bytes) -> None:
        """Take bytes that were read in one go."""
        text = self._decode(data)
        now = self._now()
        quiet, self._heard = now - self._heard, now
        if (paste := self._paste) is not None:
            # no part of a paste comes by itself after a pause and is exactly that key
            lone = (quiet >= GAP_S or paste.pressed_last) and _is_emergency(text)
            paste.pressed_last = lone
            if lone:
                paste.pressed.append(text)
        elif self._broken and END in text.partition(START)[0]:
            rest, _, text = text.partition(END)
            self._broken = False
            self._deliver(_clean(rest))
        while text:
            text = self._typed(text) if self._paste is None else self._pasted(self._paste, text)

    def tick(self) -> None:
        """Check the time: a lone escape is a key, a paste without an end is over."""
        paste = self._paste
        if paste is None:
            self._parse(None)
            return
        silent, opened = self._now() - self._heard, self._now() - paste.opened
        if silent >= SILENT_S or (paste.pressed_last and silent >= GAP_S and opened >= SILENT_S):
            self._paste, self._broken = None, True
            text = paste.text
            for key in paste.pressed:
                text = text.replace(key, "", 1)
                self._typed(key)
            self._deliver(_clean(text))

    def _typed(self, text: str) -> str:
        """Handle keys up to the start of a paste; return the rest."""
        for at, char in enumerate(text):
            self._tail = (self._tail + char)[-len(START) :]
            if self._tail == START:
                self._restart()
                self._paste, self._broken = _Paste(self._heard), False
                return text[at + 1 :]
            pressed = self._parse(char)
            if self._tail.endswith(F12) and not pressed:
                # a slow link had pulled it apart
                self._deliver(Key("f12", None))
        return ""

    def _pasted(self, paste: _Paste, text: str) -> str:
        rest = paste.add(text)
        if rest is None:
            return ""
        self._paste = None
        self._deliver(_clean(paste.text))
        return rest

    def _parse(self, char: str | None) -> bool:
        """Parse one character, or the time; return whether it was the emergency key."""
        pressed = False
        try:
            for event in self._parser.tick() if char is None else self._parser.feed(char):
                pressed |= isinstance(event, Key) and event.key in EMERGENCY.keys
                self._deliver(event)
        except Exception:
            # Textual's parser cannot go on after an error: the bad key is dropped with it
            self._restart()
        return pressed

    def _restart(self) -> None:
        old, self._parser = self._parser, XTermParser()
        for name in _CARRIED:
            setattr(self._parser, name, getattr(old, name))
        self._tail = ""


def _is_emergency(text: str) -> bool:
    """Whether this is the emergency key, once or more, and nothing else."""
    if not 0 < len(text) <= 64:
        return False
    try:
        events = list(XTermParser().feed(text))
    except Exception:
        return False
    return bool(events) and all(isinstance(e, Key) and e.key in EMERGENCY.keys for e in events)
