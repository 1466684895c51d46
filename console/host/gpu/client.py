"""The GPU reader as the console sees it: a process that may hang or die and hurt nobody."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from console.common.clock import Clock, SystemClock
from console.common.paths import module_argv
from console.host.children import LIVED_S, MOST_BACKOFF_S
from console.host.sample import GpuReport, GpuSample

SILENT_S = 5.0
"""NVML takes a second or two to wake a card; after this it is said not to answer."""
DEATHS_SAID = 3
CLOSE_S = 1.0


class GpuWatch:
    """Starts the reader, keeps its newest report, starts it anew when it dies.

    A reader that hangs is left alone: NVML hangs inside the driver, where a second one would
    hang too. Its last report keeps its time, so viewers show how old it is.
    """

    def __init__(
        self, every_s: float = 1.0, clock: Clock | None = None, argv: Sequence[str] = ()
    ) -> None:
        reader = (*module_argv("console.host.gpu.child"), "--every", f"{every_s:g}")
        self._argv = list(argv or reader)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._report: GpuReport | None = None
        self._process: subprocess.Popen[bytes] | None = None
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
        with self._lock:
            process = self._process
        if process is not None:
            process.kill()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        deaths = 0
        while not self._closing.is_set():
            begun = self._clock.monotonic()
            how = self._one_life()
            lived = self._clock.monotonic() - begun
            deaths = deaths + 1 if lived < LIVED_S else 1
            if self._closing.is_set():
                return
            if deaths >= DEATHS_SAID:
                words = f"the GPU reader keeps ending: {how}, {deaths} times in a row"
                self._report = GpuReport(self._clock.monotonic(), (), words)
            self._clock.wait(self._closing, min(MOST_BACKOFF_S, 2.0 ** (deaths - 1)))

    def _one_life(self) -> str:
        """Run the reader until it ends; how it ended, in words."""
        try:
            process = self._spawn()
        except OSError as error:
            return f"it cannot be started ({error.strerror or error})"
        if process is None:
            return "closing"
        assert process.stdout is not None
        assert process.stdin is not None
        for line in process.stdout:
            self._report = parse(line, self._clock.monotonic()) or self._report
        process.stdout.close()
        process.stdin.close()
        status = process.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._closing.is_set():
                return None
            # its own session: the terminal's Ctrl-C and hang-up are not meant for it
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            return self._process


def parse(line: bytes, at: float) -> GpuReport | None:
    """One line of the reader; None for one that is not whole."""
    try:
        found: dict[str, Any] = json.loads(line)
        gpus = tuple(GpuSample(**fields) for fields in found["gpus"])
        return GpuReport(at, gpus, str(found["trouble"]))
    except (ValueError, KeyError, TypeError):
        return None
