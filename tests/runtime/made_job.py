"""A command of a made-up engine: a host process, and what it wrote with the time of each line."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

PIECE = 16 * 1024
"""An engine splits longer lines into pieces of this many bytes."""


@dataclass
class Job:
    """A command that runs as a host process, with what it wrote."""

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    log: list[tuple[float, bytes]] = field(default_factory=list)
    child: subprocess.Popen[bytes] | None = None
    code: int | None = None
    begun = ended = 0.0
    over: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        self.begun, self.code = time.time(), None
        self.over.clear()
        cwd = self.cwd if self.cwd and os.path.isdir(self.cwd) else None
        try:
            self.child = subprocess.Popen(
                self.argv, env={"PATH": os.environ["PATH"], **self.env}, cwd=cwd,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.log.append((time.time(), f"{self.argv[0]}: {error.strerror}\n".encode()))
            self.code, self.ended = 127, time.time()
            self.over.set()
            return
        for work in (self._read, self._outlived):
            threading.Thread(target=work, args=(self.child,), daemon=True).start()

    def _outlived(self, child: subprocess.Popen[bytes]) -> None:
        """With its first process a container ends."""
        child.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        rest = b""
        while data := os.read(child.stdout.fileno(), 65536):
            *lines, rest = re.split(rb"(?<=\n)", rest + data)
            pieces = [line[at : at + PIECE] for line in lines for at in range(0, len(line), PIECE)]
            pieces += [rest[at : at + PIECE] for at in range(0, len(rest) - PIECE, PIECE)]
            rest = rest[-(len(rest) % PIECE or PIECE) :] if len(rest) > PIECE else rest
            self.log += [(time.time(), piece) for piece in pieces]
        if rest:
            self.log.append((time.time(), rest))
        child.stdout.close()
        code = child.wait()
        self.ended = time.time()
        self.code = code if code >= 0 else 128 - code
        self.over.set()

    @property
    def running(self) -> bool:
        return self.begun > 0 and not self.over.is_set()

    def send(self, number: int) -> None:
        """To its first process, as an engine does; what cannot be refused goes to all of them."""
        to_all = number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)
        if self.child is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if to_all else os.kill)(self.child.pid, number)

    def frames(self, follow: bool, since: float = 0.0) -> Iterator[tuple[float, bytes]]:
        """What it wrote, and what it writes until its end."""
        at, last = 0, False
        while True:
            last = not follow or not self.running
            while at < len(self.log):
                if self.log[at][0] >= since:
                    yield self.log[at]
                at += 1
            if last:
                return
            self.over.wait(0.01)
