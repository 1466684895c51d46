"""Connections of the relay: two sockets each, bytes passed on with back-pressure, ends kept apart.

A half-closed side stays half-closed; if one side is lost, the other is cut. If a candidate refuses,
the client's connection is reset: no other answer is possible without knowing the protocol.
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


def reset_on_close(listening: Iterable[Any]) -> None:
    """Let accepted sockets reset when they end, until `Side` has set them up: a relay killed in
    between would else leave a connection that holds the port."""
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
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, SOFT)  # see `reset_on_close`

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
    """An incoming connection; it is read once the candidate has accepted its other side."""

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
                _, candidate_side = await door.loop.create_connection(lambda: Side(door), *door.to)
        except OSError as error:  # TimeoutError is one
            door.refused(error)
            self.reset()
            return
        if self.wire is None:
            candidate_side.reset()
            return
        self.other, candidate_side.other = candidate_side, self
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
        self._logged_at = float("-inf")

    def client(self) -> Client:
        self.taken += 1
        return Client(self)

    def refused(self, error: OSError) -> None:
        """Count a refusal; log at most once a second."""
        self.failed += 1
        if self.loop.time() - self._logged_at >= 1.0:
            self._logged_at = self.loop.time()
            words = os.strerror(error.errno) if error.errno else "no connection in time"
            self.say(f"{self.to[0]}:{self.to[1]}: {words} ({self.failed} so far)")

    def cut(self) -> None:
        """Reset every connection that is open."""
        for client in list(self.open):
            client.reset()
