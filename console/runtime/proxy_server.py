"""Connections of the relay: two sockets each, bytes handed on with back-pressure, ends kept apart.

A half-closed side stays half-closed; a side that is lost takes the other with it. A candidate that
refuses is told to the client as a reset: nothing else can be said without knowing its protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

CONNECT_S = 5.0
HARD = struct.pack("ii", 1, 0)
SOFT = struct.pack("ii", 0, 0)


def hard(listening: Iterable[Any]) -> None:
    """Whatever is accepted starts as one that is reset at its end, until `Side` has set it up.

    A relay that is killed in between would leave a connection that holds the port.
    """
    for sock in listening:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HARD)


class Side(asyncio.Protocol):
    """One socket of a pair. `other` is set when both are there."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.other: Side | None = None
        self.wire: asyncio.Transport | None = None
        self.over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.wire = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # a baseline that binds with SO_REUSEPORT alone would have to wait for what lingers here
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, SOFT)  # see `hard`

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.wire is not None:
            self.other.wire.write(data)

    def eof_received(self) -> bool:
        other = self.other
        if other is None or other.wire is None:
            return False
        with contextlib.suppress(OSError, RuntimeError):
            other.wire.write_eof()
        self.over = True
        return not other.over

    def pause_writing(self) -> None:
        if self.other is not None and self.other.wire is not None:
            self.other.wire.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.wire is not None:
            self.other.wire.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.wire = None
        other, self.other = self.other, None
        if other is not None and other.wire is not None:
            if exc is None:
                other.wire.close()
            else:
                other.reset()

    def reset(self) -> None:
        """Cut it so that the other end knows it was cut, and nothing of it lingers on the port."""
        if self.wire is not None:
            with contextlib.suppress(OSError):
                sock = self.wire.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HARD)
            self.wire.abort()


class Client(Side):
    """A connection that came in; it is read once the candidate has taken its other side."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.wire is not None
        self.wire.pause_reading()
        self.door.open.add(self)
        task = self.door.loop.create_task(self._reach())
        self.door.tasks.add(task)
        task.add_done_callback(self.door.tasks.discard)

    async def _reach(self) -> None:
        door = self.door
        try:
            async with asyncio.timeout(CONNECT_S):
                _, far = await door.loop.create_connection(lambda: Side(door), *door.to)
        except OSError as error:  # TimeoutError is one
            door.refused(error)
            self.reset()
            return
        if self.wire is None:
            far.reset()
            return
        self.other, far.other = far, self
        self.wire.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.open.discard(self)
        super().connection_lost(exc)


class Door:
    """What a relay's connections share; `say` takes a line for its log."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, to: tuple[str, int], say: Callable[[str], None]
    ) -> None:
        self.loop = loop
        self.to = to
        self.say = say
        self.open: set[Client] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.taken = 0
        self.failed = 0
        self._said = float("-inf")

    def client(self) -> Client:
        self.taken += 1
        return Client(self)

    def refused(self, error: OSError) -> None:
        """Count it; a line at most once a second."""
        self.failed += 1
        if self.loop.time() - self._said >= 1.0:
            self._said = self.loop.time()
            words = os.strerror(error.errno) if error.errno else "no connection in time"
            self.say(f"{self.to[0]}:{self.to[1]}: {words} ({self.failed} so far)")

    def cut(self) -> None:
        """Reset every connection that is open."""
        for client in list(self.open):
            client.reset()
