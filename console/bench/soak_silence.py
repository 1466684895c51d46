"""How long a server under a soak may be silent: what is normal for it, and what is a hang."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from console.bench.metrics import Sample

RECENT = 200
NOTICED = 3.0
"""A silence of so many times the normal one is told, long before it is called a hang."""
NOTICED_S = 5.0
LONGEST = 2.0
"""Of the longest answer so far: so long may one that goes on after the soak's end still take."""
KNOWN_TIMES = 10.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a silence may be: `times` the median so far, at least `floor_s` seconds.

    Before `enough` answers nothing is known to be normal, and the bound is `cold_s`; in a process
    that is a new one it is `anew_s`: its model has to be paged in while requests wait.
    """

    times: float = 20.0
    floor_s: float = 10.0
    cold_s: float = 60.0
    anew_s: float = 300.0
    enough: int = 3


def patience(slowest_ttft_s: float | None) -> Patience:
    """For a service whose slowest first token an earlier benchmark saw: ten times that, at least
    10 s, before anything is known to be normal. Without one: 60 s."""
    if slowest_ttft_s is None:
        return Patience()
    cold_s = max(Patience().floor_s, KNOWN_TIMES * slowest_ttft_s)
    return Patience(cold_s=cold_s, anew_s=max(Patience().anew_s, cold_s))


class Normal:
    """What was normal so far, in seconds: to the first chunk, from one to the next, a whole
    answer. `heard` is the number of chunks that a request has brought."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._firsts: deque[float] = deque(maxlen=RECENT)
        self._betweens: deque[float] = deque(maxlen=RECENT)
        self._longest = 0.0
        self._cold_s = patience.cold_s

    def learn(self, sample: Sample) -> None:
        """Take in a request that was answered."""
        if sample.ttft_s is None or sample.e2e_s is None:
            return
        self._firsts.append(sample.ttft_s)
        between = (sample.e2e_s - sample.ttft_s) / max(1, sample.chunks - 1)
        self._betweens.append(max(0.0, between))
        self._longest = max(self._longest, sample.e2e_s)

    def forget(self) -> None:
        """Its process is a new one."""
        self._firsts.clear()
        self._betweens.clear()
        self._cold_s = max(self._patience.cold_s, self._patience.anew_s)

    def silence(self, heard: int) -> float | None:
        """None while too little is known."""
        known = self._betweens if heard else self._firsts
        return median(known) if len(known) >= self._patience.enough else None

    def limit(self, heard: int) -> float:
        """A longer silence is a hang."""
        normal, patience = self.silence(heard), self._patience
        return self._cold_s if normal is None else max(patience.floor_s, patience.times * normal)

    def noticed(self, heard: int) -> float:
        """A longer silence is told while it lasts."""
        normal = self.silence(heard)
        least = NOTICED_S if normal is None else max(NOTICED_S, NOTICED * normal)
        return min(least, self.limit(heard))

    def rest(self, heard: int) -> float:
        """How long after the soak's end a request that still brings tokens is waited for."""
        return max(self.limit(heard), LONGEST * self._longest)
