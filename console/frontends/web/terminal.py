"""The real console on a pseudo terminal, and the way between it and a WebSocket.

The browser says how much of the output it has drawn. Beyond WINDOW bytes that it has not, nothing
more is read from the pseudo terminal, so no memory grows, and the console itself drops whole frames
and draws everything anew later, as for any slow terminal. What is typed is taken message by
message, each after the one before it has been written.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence

from starlette.websockets import WebSocket, WebSocketDisconnect

from console.frontends.tui.terminal.guest import BROWSER
from console.frontends.tui.terminal.output import AWAITED_S, LEAVE_S
from console.frontends.tui.watch.watchers import UNSEEN
from console.frontends.web.access import Rate

WINDOW = 256 * 1024
CHUNK = 32 * 1024
MAX_MESSAGE = 64 * 1024
MESSAGES, MESSAGE_EVERY_S = 2000, 0.002
"""Messages at once, and seconds until there may be one more."""
COLUMNS, ROWS = (20, 500), (5, 200)
LOOK_S = 1.0
"""Seconds between looks whether the session still holds."""
TAKES_S = 30.0
"""Seconds for a console to take what was typed: meanwhile nobody sees that the browser has gone."""
GRACE_S, POLL_S = LEAVE_S + AWAITED_S + 5.0, 0.05
"""Seconds that a console has to end after its terminal is gone, and between looks. It waits itself
for a run that is being started, which nobody may cut off."""
ENDED, TOO_MUCH, OVER = 4000, 1008, 4001
"""Codes with which a socket is closed: the console has ended, the browser sends too much or
nonsense, the session is over."""
HEEDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTTIN)
"""Signals that a console heeds although the server may ignore them."""
DROPPED = (
    "TMUX", "TMUX_PANE", "STY", "COLUMNS", "LINES", "LC_ALL", "PYTHONIOENCODING", "PYTHONUTF8",
)  # fmt: skip


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What the console is told of its terminal: the browser's, not the one that the server has."""
    kept = {name: value for name, value in given.items() if name not in DROPPED}
    of_page = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_CTYPE": "C.UTF-8"}
    return kept | of_page | {BROWSER: "1"}


class PtyConsole:
    """A command on a pseudo terminal of its own; for one event loop."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], size: tuple[int, int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seen = True
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.resize(*size)
        try:
            name = os.ttyname(slave)
            # as the leader of a new session it gets the terminal that it opens as its own
            self.pid = os.posix_spawn(
                argv[0], list(argv), dict(env), setsid=True, setsigmask=(),
                setsigdef=HEEDED,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2),
                ],
            )  # fmt: skip
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)

    def resize(self, columns: int, rows: int) -> None:
        """Tell the console how large its terminal is; what no screen has is cut."""
        columns = min(max(columns, COLUMNS[0]), COLUMNS[1])
        rows = min(max(rows, ROWS[0]), ROWS[1])
        self._size = columns, rows
        pixels = (0, 0) if self._seen else UNSEEN
        size = struct.pack("HHHH", rows, columns, *pixels)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def show(self, seen: bool) -> None:
        """Tell the console whether its page is in sight."""
        self._seen = seen
        self.resize(*self._size)

    async def read(self) -> bytes:
        """What it has written since, waiting for it; b"" at its end."""
        while True:
            try:
                return os.read(self._master, CHUNK)
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                return b""

    async def write(self, data: bytes) -> None:
        """Type something; waits until the console has room for it."""
        while data:
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer)
            except OSError:
                return

    async def _ready(self, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        add(self._master, tell)
        try:
            await ready
        finally:
            remove(self._master)

    async def end(self, grace_s: float = GRACE_S) -> None:
        """Hang up, and wait until it is gone; what does not end by itself is killed."""
        os.close(self._master)  # the kernel sends SIGHUP to the session
        polls = int(grace_s / POLL_S)
        for left in range(polls, -1, -1):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                    if left == 0:
                        os.killpg(self.pid, signal.SIGKILL)
                        await asyncio.to_thread(os.waitpid, self.pid, 0)
                    else:
                        await asyncio.sleep(POLL_S)
                    continue
            return


class Bridge:
    """One browser's terminal: output one way, keys and sizes the other."""

    def __init__(
        self, socket: WebSocket, console: PtyConsole, holds: Callable[[], bool], rate: Rate
    ) -> None:
        """`holds`: whether the browser's session still does."""
        self._socket, self._console, self._holds, self._rate = socket, console, holds, rate
        self._unread = 0
        self._room = asyncio.Event()
        self._room.set()

    async def run(self) -> tuple[int, str]:
        """Go on until one side ends; returns the code and words to close the socket with."""
        parts = [asyncio.create_task(part()) for part in (self._out, self._in, self._watch)]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _out(self) -> tuple[int, str]:
        while True:
            await self._room.wait()
            data = await self._console.read()
            if not data:
                return ENDED, "the console has ended"
            self._unread += len(data)
            if self._unread >= WINDOW:
                self._room.clear()
            try:
                await self._socket.send_bytes(data)
            except (WebSocketDisconnect, RuntimeError):
                return ENDED, ""

    async def _in(self) -> tuple[int, str]:
        while True:
            try:
                message = await self._socket.receive()
            except RuntimeError:
                return ENDED, ""
            if message["type"] != "websocket.receive":
                return ENDED, ""
            if not self._rate.take():
                return TOO_MUCH, "too many messages"
            if (typed := message.get("bytes")) is not None:
                try:
                    async with asyncio.timeout(TAKES_S):
                        await self._console.write(typed)
                except TimeoutError:
                    return ENDED, f"the console has taken no key for {TAKES_S:.0f} s"
            elif not self._take_message(message.get("text") or ""):
                return TOO_MUCH, "not a message"

    def _take_message(self, text: str) -> bool:
        """Take what the browser says of itself: {"drawn": bytes}, {"size": [columns, rows]} or
        {"seen": whether the page is in sight}."""
        message = parsed(text)
        drawn = message.get("drawn")
        if isinstance(drawn, int) and drawn >= 0:
            self._unread = max(0, self._unread - drawn)
            if self._unread < WINDOW:
                self._room.set()
            return True
        seen = message.get("seen")
        if isinstance(seen, bool):
            self._console.show(seen)
            return True
        size = size_of(message)
        if size is not None:
            self._console.resize(*size)
        return size is not None

    async def _watch(self) -> tuple[int, str]:
        while self._holds():
            await asyncio.sleep(LOOK_S)
        return OVER, "this session is over: a new link starts the next"


def parsed(text: str) -> dict[str, object]:
    """A message as an object; {} for anything else."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def size_of(message: Mapping[str, object]) -> tuple[int, int] | None:
    """The columns and rows of a message; None where they are not whole numbers."""
    size = message.get("size")
    if not isinstance(size, list) or len(size) != 2:
        return None
    columns, rows = size
    if type(columns) is not int or type(rows) is not int:
        return None
    return columns, rows
