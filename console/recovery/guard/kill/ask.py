"""One short question to a unix socket that is never waited for: engine and root helper.

A stopped daemon's socket still takes a connection and a request; the answer may never come. Every
call here returns at once, and `look` gives up at a total deadline.
"""

from __future__ import annotations

import errno
import os
import socket

ANSWER = 4096
"""Bytes of an answer that are kept."""


class Ask:
    """A question under way; `sent` when it is in the socket, `answer` what came back so far,
    `why` what went wrong, in words."""

    def __init__(self, path: str, question: bytes, now: float, limit_s: float) -> None:
        self.path = path
        self.sent = False
        self.over = False
        self.why = ""
        self.answer = b""
        self._until = now + limit_s
        self._left = question
        self._socket: socket.socket | None = None
        self._connected = False
        self.look(now)

    def look(self, now: float) -> bool:
        """Go on as far as it goes without waiting; True when it is over."""
        if self.over:
            return True
        try:
            self._go_on()
        except BlockingIOError:
            pass  # a full backlog or nothing to read yet
        except OSError as error:
            self._end(os.strerror(error.errno) if error.errno else str(error))
        if not self.over and now >= self._until:
            self._end("no answer" if self.sent else "it takes no question")
        return self.over

    def _go_on(self) -> None:
        if self._socket is None:
            self._socket = socket.socket(
                socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )
        if not self._connected:
            code = self._socket.connect_ex(self.path)
            if code in (errno.EAGAIN, errno.EINPROGRESS):
                return
            if code not in (0, errno.EISCONN):
                raise OSError(code, os.strerror(code))
            self._connected = True
        while self._left:
            self._left = self._left[self._socket.send(self._left) :]
        self.sent = True
        while len(self.answer) < ANSWER:
            part = self._socket.recv(ANSWER)
            if not part:
                break
            self.answer += part
        self._end("")

    def _end(self, why: str) -> None:
        self.over, self.why = True, why
        self.close()

    def close(self) -> None:
        """Let go of it; what was sent stays sent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def kill_request(container: str) -> bytes:
    """The engine's kill of a container (a full id), as it goes over its socket.

    The engine also takes note that it must not restart it.
    """
    return (
        f"POST /containers/{container}/kill?signal=KILL HTTP/1.1\r\nHost: docker\r\n"
        "Content-Length: 0\r\nConnection: close\r\n\r\n"
    ).encode()


def status(answer: bytes) -> int:
    """The status of an HTTP answer, 0 when there is none yet."""
    words = answer[:64].split(None, 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def socket_of(engine: str) -> str:
    """The path of an engine's socket, with or without unix:// in front; empty for another kind."""
    if engine.startswith("unix://"):
        return engine.removeprefix("unix://")
    return engine if engine.startswith("/") else ""
