"""A scripted machine: engines, runners and warm ladders as threads that have a process's identity.

`console.host.process`, the door to processes, knows a second kind of them here. Commands of steps
are real children. SIGKILL ends a thread at the next place where it records, waits or pauses.
"""

import contextlib
import itertools
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import ServiceError
from console.host import process
from console.host.process import ProcessSpec
from console.recovery.rollback import live, observe
from console.recovery.rollback.stages import start, verify
from console.runner import services
from tests.runner.whole.server import Garbage, ScriptedServer

FIRST_PID = 10_000_000
"""Above the largest number that a Linux kernel gives."""
ENGINE = "scripted-engine"
"""Name of the program of an engine: `scripted-engine MODEL PORT`."""
MAX_LAYERS = 20
"""More layers (`-ngl N`) than this do not fit on the scripted card."""
KILL_WAIT_S = 60.0
DEADLY = {signal.SIGINT, signal.SIGTERM, signal.SIGKILL}


class Died(BaseException):
    """What SIGKILL is to a thread."""


@dataclass
class Scripted:
    pid: int
    start: int
    cookie: str = ""
    fault: str = ""
    """OMNI_FAULT of whoever started it."""
    server: ScriptedServer | None = None
    thread: threading.Thread | None = None
    alive: bool = True
    killed: bool = False
    owned: list[Callable[[], Any]] = field(default_factory=list)
    """What the kernel would take back at its end: locks, sockets, files."""


def module_of(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The module of the console that a command starts, from its sealed copy or not, and its own
    arguments; "" for any other command."""
    if "-m" not in argv or argv[0] not in (sys.executable, os.path.realpath(sys.executable)):
        return "", []
    at = argv.index("-m") + 1
    return argv[at], [*argv[at + 1 :]]


class Machine:
    """The scripted processes of one test, and the door's functions as they see them."""

    def __init__(self) -> None:
        self.table: dict[int, Scripted] = {}
        self.answers: dict[int, int] = {}
        """Port → how many completions the engines that are started there answer well."""
        self.garbage: Garbage = {}
        self.passed = 0.0
        """Seconds by which a test has put the clocks of all scripted processes forward."""
        self.furthest = 0.0
        """Most seconds that the clock of a scripted process has left out of its pauses."""
        self.programs: dict[str, Callable[[Scripted, Sequence[str]], None]] = {}
        """Module of the console → what a process of it does, in a thread."""
        self._numbers = itertools.count(FIRST_PID)
        self._local = threading.local()
        self._pid = os.getpid()
        self._real_stat, self.real_stats = process.stat, process.all_stats
        self._real_spawn, self._real_send = process.spawn, process.send
        self._real_cookie = process.by_cookie

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name, function in {
            "stat": self.stat, "all_stats": self.all_stats, "spawn": self.spawn,
            "send": self.send, "by_cookie": self.by_cookie,
        }.items():  # fmt: skip
            patch.setattr(process, name, function)
        patch.setattr(os, "getpid", self.getpid)
        # a scripted engine listens in this process
        patch.setattr(observe, "answering", lambda url, **_: [])
        for stage in (start, verify):
            patch.setattr(stage, "held", lambda baseline: "")
        patch.setattr(services, "listeners", lambda url, **_: iter(()))
        patch.setattr(live, "answering", lambda url, **_: [])

    # -- who runs here -------------------------------------------------------------------------

    @property
    def me(self) -> Scripted | None:
        """The scripted process whose main thread asks."""
        found: Scripted | None = getattr(self._local, "me", None)
        return found

    def getpid(self) -> int:
        return self.me.pid if self.me is not None else self._pid

    def check(self) -> None:
        """Where a killed process notices it. Raises Died."""
        if self.me is not None and self.me.killed:
            raise Died

    def die(self) -> None:
        """What a fault point does here. Raises Died."""
        if self.me is not None:
            self.me.killed = True
        raise Died

    # -- starting ------------------------------------------------------------------------------

    def new(self, cookie: str = "") -> Scripted:
        ticks = self._real_stat(self._pid)
        start = (ticks.start if ticks is not None else 0) + 1
        made = Scripted(next(self._numbers), start, cookie, os.environ.get("OMNI_FAULT", ""))
        self.table[made.pid] = made
        return made

    def run(
        self, module: str, arguments: Sequence[str], log: Path, cookie: str = "",
        passed: Sequence[int] = (),
    ) -> Scripted:  # fmt: skip
        """A process of the console's own module; `passed`: descriptors that are its own."""
        made = self.new(cookie)
        for descriptor in passed:
            made.owned.append(closing(descriptor))
        program = self.programs[module]

        def live() -> None:
            self._local.me = made
            try:
                program(made, arguments)
            except (Died, SystemExit):
                pass
            except BaseException:
                with log.open("a") as file:
                    traceback.print_exc(file=file)
            finally:
                for close in reversed(made.owned):
                    with contextlib.suppress(Exception):
                        close()
                made.alive = False

        made.thread = threading.Thread(target=live, name=f"{module} {made.pid}", daemon=True)
        made.thread.start()
        return made

    def spawn(
        self, spec: ProcessSpec, *, log: Path, cookie: str, **options: Any
    ) -> tuple[int, int]:
        argv = spec.argv
        if argv and Path(argv[0]).name == ENGINE:
            return self._engine(Path(argv[1]), int(argv[2]), log, cookie, argv[3:])
        module, arguments = module_of(argv)
        if module in self.programs:
            made = self.run(module, arguments, log, cookie)
            return made.pid, made.start
        return self._real_spawn(spec, log=log, cookie=cookie, **options)

    def _engine(
        self, model: Path, port: int, log: Path, cookie: str, flags: Sequence[str]
    ) -> tuple[int, int]:
        made = self.new(cookie)
        log.parent.mkdir(parents=True, exist_ok=True)
        said = f"serving {model.name} on port {port}"
        layers = int(flags[flags.index("-ngl") + 1]) if "-ngl" in flags else 0
        try:
            if layers > MAX_LAYERS:
                raise MemoryError
            made.server = ScriptedServer(port, self.answers.get(port, 1_000_000), self.garbage)
        except OSError as error:
            said = f"cannot listen on port {port}: {error.strerror}"
        except MemoryError:
            said = "CUDA error: out of memory"
        with log.open("a") as file:
            file.write(f"{said}\n")
        if made.server is None:
            self._ended(made, 1)
        return made.pid, made.start

    # -- the door's functions ------------------------------------------------------------------

    def stat(self, pid: int, *, sure: bool = False) -> process.Stat | None:
        found = self.table.get(pid)
        if found is None:
            return self._real_stat(pid, sure=sure)
        if not found.alive:
            return None
        return process.Stat(pid, "S", self._pid, pid, pid, found.start)

    def all_stats(self) -> list[process.Stat]:
        mine = (self.stat(pid) for pid in list(self.table))
        return [*self.real_stats(), *(one for one in mine if one is not None)]

    def by_cookie(self, cookie: str, step: str = "") -> list[tuple[int, int]]:
        mine = [(p.pid, p.start) for p in self.table.values() if p.alive and p.cookie == cookie]
        return self._real_cookie(cookie, step) + ([] if step else mine)

    def send(self, pid: int, start: int, number: int) -> bool:
        found = self.table.get(pid)
        if found is None:
            return self._real_send(pid, start, number)
        if not found.alive or found.start != start:
            return False
        if found.server is not None and number in (signal.SIGSTOP, signal.SIGCONT):
            (found.server.stopped.clear if number == signal.SIGSTOP else found.server.stopped.set)()
        elif number in DEADLY:
            self._end(found, number)
        return True

    def _end(self, found: Scripted, number: int) -> None:
        if found.server is not None:
            self._ended(found, 0 if number == signal.SIGTERM else -number)
            return
        found.killed = True
        if found.thread is not None and found.thread is not threading.current_thread():
            found.thread.join(KILL_WAIT_S)
            if found.thread.is_alive():
                raise ServiceError("a scripted process does not notice its end", str(found.pid))

    def _ended(self, found: Scripted, code: int) -> None:
        found.alive = False
        process._exits[found.pid, found.start] = code
        if found.server is not None:
            found.server.close()

    def close(self) -> None:
        for found in list(self.table.values()):
            if found.alive:
                self._end(found, signal.SIGKILL)


def closing(descriptor: int) -> Callable[[], None]:
    """Close a descriptor later, unless it was closed meanwhile and its number given away."""
    before = os.fstat(descriptor)

    def close() -> None:
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino):
            os.close(descriptor)

    return close


class KillableQueue(queue.Queue[Any]):
    """A runner's inbox whose waits notice that the runner was killed."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._machine.check()
        return super().get(block, None if timeout is None else min(timeout, 0.02))
