"""The GPU reader as the console sees it: a process that may hang or die and hurt nobody."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Sequence
from typing import Any

from console.common.clock import Clock, SystemClock
from console.common.paths import module_argv
from console.host.children import Child
from console.host.sample import GpuReport, GpuSample

SILENT_S = 5.0
"""NVML takes a second or two to wake a card; after this it is said not to answer."""
DEATHS_SAID = 3
CLOSE_S = 1.0
LOOK_S, REAP_S = 1.0, 0.05


class GpuWatch:
    """Starts the reader, keeps its newest report, starts it anew when it dies.

    A reader that hangs is left alone: NVML hangs inside the driver, where a second one would
    hang too. Its last report keeps its time, so viewers show how old it is.
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
            if child.pid:  # its pipe is closed, its end takes a moment
                self._closing.wait(REAP_S)
                continue
            now = self._clock.monotonic()
            if child.deaths >= DEATHS_SAID:
                words = f"the GPU reader keeps ending: {child.how}, {child.deaths} times in a row"
                self._report = GpuReport(now, (), words)
            self._clock.wait(self._closing, child.due - now)
        child.close()


def parse(line: bytes, at: float) -> GpuReport | None:
    """One line of the reader; None for one that is not whole."""
    try:
        found: dict[str, Any] = json.loads(line)
        gpus = tuple(GpuSample(**fields) for fields in found["gpus"])
        return GpuReport(at, gpus, str(found["trouble"]))
    except (ValueError, KeyError, TypeError):
        return None
