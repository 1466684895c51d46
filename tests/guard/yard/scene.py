"""A whole system under pressure: a real run, its console in a terminal, an operator over ssh."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import threading
import time
import tty
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.journal.run_view import RunView
from tests.guard.yard import memory
from tests.runner.e2e.sites import book, service
from tests.runner.e2e.world import COMMAND, World
from tests.testbed.image import BUSY
from tests.testbed.ssh import Ssh
from tests.ui.terminal import Terminal
from tests.waiting import until

SIZE = 4 * memory.GIB
"""More than a hog ever takes: each hog is killed after it took MARGIN, plus the free pages that the
processors keep on lists of their own, which MemAvailable does not count."""
WARM = memory.GIB
MARGIN = 768 * memory.MIB
RATE = int(1.5 * memory.GIB)
SLACK = memory.GIB
"""How far below the limit MemAvailable may fall until the hog is dead, in bytes."""
ECHO_S = 1.0
EVERY_S = 0.1
LOST_S = 30.0
"""A line that is not back after this many seconds counts as that long; the operator has left."""
START = "id: up, service: {start: hog}"


LIMIT = "6GiB"
"""More than any hog takes: the guard has to end it, not this limit."""


class Level:
    """The lowest MemAvailable since this object was made, read a hundred times a second."""

    def __init__(self) -> None:
        self.lowest = memory.available()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="level")
        self._thread.start()

    def _sample(self) -> None:
        while not self._over.wait(0.01):
            self.lowest = min(self.lowest, memory.available())

    def rest(self) -> None:
        """Stop counting: what comes from here on is somebody else's."""
        self._over.set()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


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


@dataclass
class Scene:
    """One run under pressure. `limit`: the RAM that the run's guard keeps free, in bytes."""

    world: World
    echo: Echo
    level: Level
    terminal: Terminal
    limit: int = 512 * memory.MIB
    before: tuple[int, int] = (0, 0)

    def guarded(
        self, *, size: int = SIZE, margin: int = MARGIN, rate: int = RATE, **site: Any
    ) -> None:
        """Write a site with the host process `hog`, and a limit below what is available."""
        memory.warm(WARM, 1)
        memory.require(size)
        self.limit = memory.settled(within=MARGIN // 6) - margin
        words = (str(memory.hog()), "lone", "alloc", str(size), str(rate))
        hog = service(list(words), self.world.cand_url, exclusive=True)
        self.write(hog, **site)

    def write(self, hog: dict[str, Any], guards: Sequence[Any] = (), **site: Any) -> None:
        """Write the site with any candidate."""
        world = self.world
        ram = {"metric": "host.ram_available", "below": f"{self.limit // memory.MIB}MiB"}
        text = {
            "schema": "omni.site/v1", "name": "local",
            "baseline": service(world.engine(world.model, world.base_port), world.base_url),
            "services": {"hog": hog},
            "guards": [ram, *guards], **site,
        }  # fmt: skip
        world.site.write_text(json.dumps(text, indent=1))

    def run(self) -> None:
        """Start the run, which stops the baseline and starts the hog."""
        world, self.level.lowest = self.world, memory.available()
        world.detach(world.write("hog.yaml", book(START, name="hog")))

    def breached(self) -> dict[str, Any]:
        """Return breach.json, written when the load is dead, or half a second after the kill."""
        path = self.world.run.guard / "breach.json"
        until(path.exists, f"a breach: {self.world.words}", 60.0)
        self.level.rest()
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def over(self) -> RunView:
        """Check the end of the run: it was rolled back because of the guard."""
        view = self.world.over()
        assert str(view.state) == "rolled_back", self.world.words
        assert any(event.kind == "breach" for event in view.guards), view.guards
        return view

    def proved(self, *, terminal: bool = True, slack: int = SLACK, echo_s: float = ECHO_S) -> None:
        """Check that the kill came in time: baseline, operator and console all work."""
        assert self.world.serves(), "the baseline answers a completion"
        assert self.level.lowest > self.limit - slack, f"killed too late: {self.figures()}"
        assert len(self.echo.delays) > 10
        assert self.echo.p99() <= echo_s, sorted(self.echo.delays)[-5:]
        if terminal:
            self.alive()

    def alive(self) -> None:
        """Check that the console draws, and takes a key."""
        assert self.terminal.child.poll() is None, self.terminal.text
        self.terminal.until("SERVING")
        self.terminal.press("?")
        self.terminal.until("Everywhere")
        self.terminal.press("\x1b[27u")

    def ended(self, **proved: Any) -> dict[str, Any]:
        """Wait for the breach, and check what has to be true after it."""
        found = self.breached()
        self.over()
        self.proved(**proved)
        print(self.figures())
        return found

    def figures(self) -> str:
        return (
            f"lowest {(self.level.lowest - self.limit) / memory.MIB:+.0f} MiB to the limit, echo "
            f"p99 {self.echo.p99() * 1e3:.0f} ms of {len(self.echo.delays)}"
        )


@contextmanager
def scene(root: Path, model: Path, ssh: Ssh) -> Iterator[Scene]:
    """Run a baseline that serves (a real llama.cpp), an echo over ssh, and the console."""
    world = World(root, model)
    world.env |= {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
    with ExitStack() as stack:
        stack.callback(_forget_rings, world)
        stack.callback(world.close)
        made = Scene(world, None, None, None)  # type: ignore[arg-type]
        made.write(service(["sleep", "600"], world.cand_url))
        made.before = world.bring_up()
        made.echo = Echo(ssh)
        stack.callback(made.echo.close)
        made.level = Level()
        stack.callback(made.level.close)
        made.terminal = Terminal([COMMAND], world.env, cwd=str(root))
        stack.callback(made.terminal.close)
        made.terminal.until("SERVING")
        yield made


def _forget_rings(world: World) -> None:
    """Remove the ring buffer that a killed sentinel leaves in shared memory."""
    for run in world.runs:
        for path in Path("/dev/shm").glob(f"omni-console.*.{run.path.name}.ring"):
            path.unlink(missing_ok=True)


def box(
    url: str, command: list[str], place: Path, *, limit: str = LIMIT, pids: int = 4096
) -> dict[str, Any]:
    """Return a service with `command` in the tiny image; /yard has the hog, /place is shared."""
    container = {
        "image": BUSY, "name": f"yard-{uuid.uuid4().hex[:10]}", "command": command,
        "mounts": [f"{memory.hog().parent}:/yard:ro", f"{place}:/place"], "memory": limit,
        "pids": pids,
    }  # fmt: skip
    return {"container": container, "url": url, "exclusive": True, "ready": {"timeout": "60s"}}


def on_word(command: str) -> list[str]:
    """Return a command for the container's shell that waits until /place/go exists."""
    return ["sh", "-c", f"until [ -e /place/go ]; do sleep 0.05; done; exec {command}"]


def alloc(size: int = SIZE, rate: int = RATE) -> str:
    return f"/yard/hog alloc {size} {rate}"
