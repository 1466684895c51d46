"""One look at the machine a second, from a thread that neither NVML nor a dead mount can stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.host.disk import DiskWatch
from console.host.gpu.client import GpuWatch
from console.host.memory import MemoryReader
from console.host.sample import MemorySample, Sample

CLOSE_S = 1.0


class Sampler:
    """Delivers a Sample each `every_s` seconds, in its own thread, until closed.

    `deliver` has to be quick and safe to call from a thread (Textual's `post_message` is both).
    """

    def __init__(
        self,
        paths: Sequence[str],
        deliver: Callable[[Sample], None],
        every_s: float = 1.0,
        gpu: bool = True,
        clock: Clock | None = None,
        root: Path = Path("/proc"),
    ) -> None:
        self._clock = clock or SystemClock()
        self._deliver = deliver
        self._every = every_s
        self._memory = MemoryReader(root)
        self._disks = [DiskWatch(path, self._clock) for path in dict.fromkeys(paths)]
        self._gpu = GpuWatch(every_s, self._clock) if gpu else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauges", daemon=True)

    def start(self) -> None:
        """Returns at once; the first sample comes at once, too, and the GPUs' a little later."""
        if self._gpu is not None:
            self._gpu.start()
        for disk in self._disks:
            disk.start()
        self._thread.start()

    def close(self) -> None:
        """Stop; waits two seconds at most, and nothing is delivered by a closed one's thread."""
        self._stop.set()
        for disk in self._disks:
            disk.close()
        if self._gpu is not None:
            self._gpu.close()
        started = self._thread.ident is not None
        if started and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)
        for disk in self._disks:
            disk.join(0.05)

    def _run(self) -> None:
        due = self._clock.monotonic()
        try:
            while not self._stop.is_set():
                self._deliver(self._look())
                now = self._clock.monotonic()
                # after a long stop (a suspended machine) the missed ticks are not made up for
                due = max(due + self._every, now)
                self._clock.wait(self._stop, due - now)
        finally:
            self._memory.close()

    def _look(self) -> Sample:
        now = self._clock.monotonic()
        memory: MemorySample | None = None
        why = ""
        try:
            memory = self._memory.read(now)
        except ConsoleError as error:
            self._memory.close()
            why = one_line(str(error))
        disks = tuple(disk.latest() for disk in self._disks)
        report = self._gpu.latest() if self._gpu is not None else None
        return Sample(now, memory, disks, report, why)
