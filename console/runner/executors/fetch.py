"""A whole download for a thread of its own: started again after a cut, ended when asked to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from console.common.clock import Clock, SystemClock
from console.models.hub.download import Download, Phase, Progress, Result

TRIES = 5
EVERY_S = 1.0
LONGEST_PAUSE_S = 60.0


def fetch(
    download: Download,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    cancelled: threading.Event | None = None,
    clock: Clock | None = None,
    every_s: float = EVERY_S,
    tries: int = TRIES,
) -> Result:
    """Bring every file of the plan, or say why not; `on_progress` hears about it every `every_s`.

    A cut is tried again after a pause that doubles; `tries` cuts in a row that brought nothing
    new end it. What another try cannot mend ends it at once, and so does `cancelled`.
    Raises what `Download.start` raises.
    """
    clock, cancelled = clock or SystemClock(), cancelled or threading.Event()
    in_vain, fetched = 0, 0
    while True:
        download.start()
        while download.running:
            on_progress(download.look())
            if clock.wait(cancelled, every_s):
                download.stop()
        result = download.finish(cancelled)
        on_progress(download.look())
        if result.phase is not Phase.CUT:
            return result
        in_vain = 1 if result.fetched > fetched else in_vain + 1
        fetched = max(fetched, result.fetched)
        if in_vain >= tries:
            return replace(result, phase=Phase.FAILED)
        if clock.wait(cancelled, min(LONGEST_PAUSE_S, 2.0**in_vain)):
            return replace(result, phase=Phase.CANCELLED)
