"""One key after the other: the next is looked at when the one before has done what it does.

Textual hands a key to the focused widget, from where it climbs to the app, which then looks for a
binding. Keys that arrive in one packet would all set out before the first has moved the focus:
`/axs` would open the search and then drive the run with what was meant for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from textual.app import App
from textual.events import Event
from textual.message import Message
from textual.screen import Screen

LOST_S = 0.25
"""A key whose way ended with its widget is not waited for longer than this."""
MOUNTED_S = 2.0
"""A screen that a key has opened gets this long to stand before the next key is for it."""
MOST = 4096
"""Keys that may wait; what comes beyond them is dropped."""


class Passed(Message):
    """Follows a key on its way up to the app."""

    def __init__(self, turn: int, screen: Screen[object]) -> None:
        super().__init__()
        self.turn = turn
        self.screen = screen


class KeyTurns:
    """Holds back what is typed while a key is on its way; `deliver` is Textual's own handling."""

    def __init__(self, app: App[int], deliver: Callable[[Event], Awaitable[None]]) -> None:
        self._app = app
        self._deliver = deliver
        self._held: deque[Event] = deque()
        self._turn = 0
        self._busy = False
        self._late: asyncio.TimerHandle | None = None

    async def take(self, event: Event) -> None:
        """A key or a paste has come."""
        if not self._busy:
            await self._start(event)
        elif len(self._held) < MOST:
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
        """The key has done what it does; a screen that it opened is waited for."""
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
