"""Samples the machine every second, from a thread that neither NVML nor a dead mount can stop."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError
from console.common.paths import module_argv
from console.common.text import one_line
from console.host.children import Child
from console.host.gpu.figures import GpuReport, parse
from console.host.machine import DiskWatch
from console.host.memory import MemoryReader
from console.host.sample import MemorySample, Sample

SILENT_S = 5.0
"""NVML takes a second or two to wake a card; after this it is reported as silent."""
DEATHS_SAID = 3
LOOK_S, REAP_S = 1.0, 0.05


class GpuWatch:
    """Starts the reader, keeps its newest report, restarts it when it dies.

    A reader that hangs is left alone: NVML hangs inside the driver, where a second one would hang
    too. Its last report keeps its time, so viewers show how old it is.
    """

    def __init__(
        self, every_s: float = 1.0, clock: Clock | None = None, argv: Sequence[str] = ()
    ) -> None:
        reader = (*module_argv("console.host.gpu.child"), "--every", f"{every_s:g}")
        self._clock = clock or SystemClock()
        self._child = Child(argv or reader, self._clock)
        self._report: GpuReport | None = None
        self._began: float | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauge-gpu", daemon=True)

    def start(self) -> None:
        """Returns at once; the process is started in a thread."""
        self._began = self._clock.monotonic()
        self._thread.start()

    def latest(self) -> GpuReport | None:
        """The newest report, however old; None while the first one may still come."""
        report = self._report
        if report is None and self._began is not None:
            if self._clock.monotonic() - self._began < SILENT_S:
                return None
            return GpuReport(self._began, (), "NVML does not answer: `nvidia-smi` may hang as well")
        return report

    def close(self) -> None:
        """Kill the reader and reap it; a process that cannot die is left after a second."""
        self._closing.set()
        self._child.kill()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        child = self._child
        while not self._closing.is_set():
            for line in child.tend():
                self._report = parse(line, self._clock.monotonic()) or self._report
            if child.descriptor >= 0:
                select.select([child.descriptor], [], [], LOOK_S)
                continue
            if child.pid:  # it has said its last, and is about to end
                self._closing.wait(REAP_S)
                continue
            now = self._clock.monotonic()
            if child.deaths >= DEATHS_SAID:
                words = f"the GPU reader keeps ending: {child.how}, {child.deaths} times in a row"
                self._report = GpuReport(now, (), words)
            self._clock.wait(self._closing, max(0.0, child.due - now))
        child.close()


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
        """Stop, waiting two seconds at most; the thread delivers nothing after that."""
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


LOOK_EVERY_S = 0.25


def look_once(paths: Sequence[str], limit_s: float, clock: Clock | None = None) -> Sample:
    """The first complete sample, or the last one before `limit_s` seconds are over: NVML takes a
    while, and rates need two readings."""
    clock, arrived = clock or SystemClock(), SimpleQueue[Sample]()
    sampler = Sampler(paths, arrived.put, LOOK_EVERY_S)
    sampler.start()
    try:
        deadline = clock.monotonic() + limit_s
        sample = arrived.get()
        while not _is_complete(sample) and (left := deadline - clock.monotonic()) > 0:
            try:
                sample = arrived.get(timeout=left)
            except Empty:
                break
        return sample
    finally:
        sampler.close()


def _is_complete(sample: Sample) -> bool:
    memory = sample.memory
    return (
        sample.gpu is not None
        and (memory is None or memory.swap_in_rate is not None)
        and all(disk.why != "asking" for disk in sample.disks)
    )
