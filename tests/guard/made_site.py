"""A guard loop on a made-up machine, its time set by the test, with real processes to kill."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.host import process
from console.recovery.guard.config import BREACH, DIRECTORY, INBOX, GuardConfig, Inbox, Limit
from console.recovery.guard.kill.killer import Killer
from console.recovery.guard.kill.targets import LiveTargets, deny_of
from console.recovery.guard.loop import Dependencies, GuardLoop
from console.recovery.guard.observe.collect import Collector
from console.recovery.guard.record.read import Recording, open_ring
from console.recovery.guard.record.recorder import Recorder
from console.recovery.rollback import live, trigger
from tests.clock import FakeClock
from tests.guard.conftest import put
from tests.waiting import some

GIB = 1 << 30
TOTAL = 64
LOW = Limit("host.ram_available", below=8 * GIB)
QUIET = [sys.executable, "-c", "import sys; sys.stdin.read()"]


class Site:
    def __init__(self, root: Path, *limits: Limit, **changes: Any) -> None:
        self.root, self.clock = root, FakeClock()
        self.machine = root / "machine"
        self.run = root / "run"
        for name in (DIRECTORY, "rollback"):
            (self.run / name).mkdir(parents=True)
        self.available(40)
        put(self.machine, "proc/vmstat", "pswpin 0\npswpout 0\n")
        self.config = GuardConfig(f"site-{root.name}", str(self.run), "ring", limits, **changes)
        self.spawned: list[str] = []
        self.room = True  # for a process that `spawn` starts
        self.loads: list[subprocess.Popen[bytes]] = []
        killer = Killer("", deny_of(self.config), clock=self.clock.monotonic, release=False)
        self.deps = Dependencies(
            Inbox(self.run / DIRECTORY / INBOX),
            Collector(self.clock, root=self.machine, gpu_argv=QUIET, slow_io_argv=QUIET),
            Recorder(root / "ring", self.config.run_id, self.clock), killer,
            LiveTargets(self.run / "rollback" / live.LIVE, killer.trees), self.clock,
            self._spawn,
        )  # fmt: skip
        self.fifo = -1
        self.loop = GuardLoop(self.config, self.deps, lambda descriptors, seconds: True)

    def _spawn(self, config: GuardConfig) -> bool:
        self.spawned.append(config.run_id)
        return self.room

    def available(self, gib: float) -> None:
        text = f"MemTotal: {TOTAL * 1024 * 1024} kB\nMemAvailable: {int(gib * 1024 * 1024)} kB\n"
        put(self.machine, "proc/meminfo", text)

    def pass_time(self, seconds: float) -> None:
        """Tick at 20 Hz."""
        for _ in range(round(seconds / 0.05)):
            self.clock.sleep(0.05)
            self.loop._listen()
            self.loop.tick()

    def take_over(self) -> None:
        """Replace the sentinel by a new one, as after a kill."""
        self.deps.ring.close()
        ring = Recorder(self.root / "ring", self.config.run_id, self.clock)
        self.deps = replace(self.deps, ring=ring)
        self.loop = GuardLoop(self.config, self.deps, lambda descriptors, seconds: True)
        self.loop.rehearse()

    def tell(self, **message: Any) -> None:
        descriptor = os.open(self.run / DIRECTORY / INBOX, os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, json.dumps(message).encode() + b"\n")
        os.close(descriptor)

    def load(self, name: str = "big") -> subprocess.Popen[bytes]:
        """Start a process of the run, record it and arm the guard."""
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.loads.append(child)
        start = process.start_time(child.pid) or 0
        live.append(self.run / "rollback" / live.LIVE, live.Live("process", name, child.pid, start))
        self.tell(do="arm")
        self.pass_time(0.1)
        return child

    def standby(self, pid: int = 0) -> None:
        """A standby, as far as a caller can see it: this process, or that pid."""
        path = self.run / "rollback" / trigger.FIFO
        os.mkfifo(path)
        self.fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        own = pid or os.getpid()
        entry = live.Live("ladder", "warm", own, process.start_time(own) or 0)
        live.append(self.run / "rollback" / live.LIVE, entry)

    def fall(self, gib: float = 7.0, seconds: float = 1.0) -> None:
        """Let so much be available, and pass the time that it takes to act."""
        self.available(gib)
        self.pass_time(seconds)

    def triggered(self) -> bytes:
        try:
            return os.read(self.fifo, 64)
        except BlockingIOError:
            return b""

    def breach(self) -> dict[str, Any]:
        path = self.run / DIRECTORY / BREACH
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def ring(self) -> Recording:
        return some(open_ring(self.root / "ring"))

    def events(self, what: str) -> list[str]:
        return [one["text"] for one in self.ring().events() if one["what"] == what]

    def page(self) -> dict[str, Any]:
        return self.ring().status() or {}

    def close(self) -> None:
        for child in self.loads:
            child.kill()
            child.wait(60)
        if self.fifo >= 0:
            os.close(self.fifo)
        self.deps.collector.close()
        self.deps.killer.close()
        self.deps.ring.close()
        self.deps.inbox.close()


Make = Callable[..., Site]
