"""Passes on keys and pastes from a terminal one after the other; no input ends the reading.

Pastes are collected here, because Textual's parser takes keys out of pasted text.
"""

from __future__ import annotations

import asyncio
import time
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Awaitable, Callable

from textual._xterm_parser import BRACKETED_PASTE_END as END
from textual._xterm_parser import BRACKETED_PASTE_START as START
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.events import Event, Key, Paste
from textual.message import Message
from textual.screen import Screen

from console.common.text import clean_lines
from console.render.keymap import EMERGENCY

LOST_S = 0.25
"""Seconds to wait for a key whose widget is gone."""
MOUNTED_S = 2.0
"""Seconds for a screen opened by a key to mount before the next key goes to it."""
MOST_TURNS = 4096
"""Most waiting keys; further ones are dropped."""

SILENT_S = 1.0
"""Seconds of silence after which a paste without an end is broken."""
GAP_S = 0.1
"""Seconds that separate a person's keys from those sent in one go."""
MOST = 1 << 20
"""Characters of one paste; the rest is dropped."""
F12 = "\x1b[24~"
_CARRIED = ("last_x", "last_y", "mouse_pixels", "terminal_size", "terminal_pixel_size")


class Passed(Message):
    """Follows a key on its way up to the app."""

    def __init__(self, turn: int, screen: Screen[object]) -> None:
        super().__init__()
        self.turn = turn
        self.screen = screen


class KeyTurns:
    """Holds typed keys back while an earlier key is being handled. `deliver` is Textual's own
    handling.

    Textual passes a key to the focused widget, and from there up to the app, which then looks for a
    binding. Keys of one packet would all be dispatched before the first has moved the focus: `/axs`
    would open the search and then drive the run with what was meant for it.
    """

    def __init__(self, app: App[int], deliver: Callable[[Event], Awaitable[None]]) -> None:
        self._app = app
        self._deliver = deliver
        self._held: deque[Event] = deque()
        self._turn = 0
        self._busy = False
        self._late: asyncio.TimerHandle | None = None

    async def take(self, event: Event) -> None:
        """Accept a key or a paste."""
        if not self._busy:
            await self._start(event)
        elif len(self._held) < MOST_TURNS:
            self._held.append(event)

    async def _start(self, event: Event) -> None:
        app = self._app
        self._busy = True
        screen = app.screen
        target = app.focused or screen
        await self._deliver(event)
        self._follow(target.post_message, screen)

    def _follow(
        self, post: Callable[[Message], bool], screen: Screen[object], wait_s: float = LOST_S
    ) -> None:
        self._turn += 1
        self._forget()
        message = Passed(self._turn, screen)
        posted = post(message)
        delay = wait_s if posted else 0
        loop = asyncio.get_running_loop()
        self._late = loop.call_later(delay, self._app.post_message, message)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    async def passed(self, message: Passed) -> None:
        """Note that the key was handled; wait for a screen that it opened."""
        if message.turn != self._turn or not self._busy:
            return
        now = self._app.screen
        if now is not message.screen:
            self._follow(now.post_message, now, MOUNTED_S)
            return
        self._forget()
        self._busy = False
        while self._held and not self._busy:
            await self._start(self._held.popleft())


def _clean(text: str) -> Paste:
    """Clean pasted text: every widget, even Textual's palette, draws it as it comes."""
    return Paste("\n".join(clean_lines(text)))


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
        if self.size < MOST:
            self.parts.append(text[:kept])
            self.size += kept
        self.tail = "" if at >= 0 else text[kept:]
        return text[at + len(END) :] if at >= 0 else None

    @property
    def text(self) -> str:
        return ("".join(self.parts) + self.tail)[:MOST].replace("\x00", "")


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
        found = list(XTermParser().feed(text))
    except Exception:
        return False
    return bool(found) and all(isinstance(e, Key) and e.key in EMERGENCY.keys for e in found)
