"""Measures whether an operator over ssh is still served: a line is typed ten times a second."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from tests.testbed.ssh import Ssh

EVERY_S = 0.1
LOST_S = 30.0
"""A line that is not back after this many seconds counts as that long; the operator has left."""


class Echo:
    """A login with a terminal that runs `cat`. `delays` are the seconds from key to echo."""

    def __init__(self, ssh: Ssh) -> None:
        self.delays: list[float] = []
        self._over = threading.Event()
        self._master, slave = pty.openpty()
        tty.setraw(slave)
        self._child = subprocess.Popen(
            ssh.argv("stty raw -echo; exec cat"), stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        if self._once(0) > LOST_S / 2:
            raise AssertionError("the login does not answer")
        self._typist = threading.Thread(target=self._type, name="echo")
        self._typist.start()

    def _type(self) -> None:
        number = 0
        while not self._over.wait(EVERY_S):
            number += 1
            self.delays.append(self._once(number))

    def _once(self, number: int) -> float:
        word = b"<%d>" % number
        begun, got = time.monotonic(), b""
        os.write(self._master, word)
        while word not in got:
            left = begun + LOST_S - time.monotonic()
            if left <= 0 or not select.select([self._master], [], [], left)[0]:
                return LOST_S
            got += os.read(self._master, 4096)
        return time.monotonic() - begun

    def p99(self) -> float:
        """Return the nearest-rank percentile; of less than a hundred lines that is the slowest."""
        ordered = sorted(self.delays)
        return ordered[max(0, -(-99 * len(ordered) // 100) - 1)]

    def close(self) -> None:
        self._over.set()
        self._typist.join(LOST_S + 5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        os.close(self._master)


@contextmanager
def echoing(ssh: Ssh) -> Iterator[Echo]:
    made = Echo(ssh)
    try:
        yield made
    finally:
        made.close()
