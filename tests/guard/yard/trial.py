"""Measures one hog against one guard: the sentinel or earlyoom, with the same hog and the same
crossing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.recovery.rollback.live import Live
from tests.guard.yard import earlyoom, hogs, memory
from tests.guard.yard.hogs import Hog, Observer, Seen
from tests.guard.yard.post import floor, posted
from tests.testbed.cache import Unavailable
from tests.waiting import until

MARGIN_LEAST = 512 * memory.MIB
CROSSED_S = 6.0


class NoCrossing(Exception):
    """The hog took all that it wanted, and the limit still holds, because memory that was on its
    way back (to a hypervisor, or from somebody else's process) counts as available again. Nothing
    was measured."""


def again(way: Callable[[], Trial], tries: int = 5) -> Trial:
    """Run trials until one comes to a crossing. Raises Unavailable if none does."""
    for _ in range(tries):
        with contextlib.suppress(NoCrossing):
            return way()
    raise Unavailable("what is available on this machine does not stand still")


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial. `written_ns` is the sentinel's own time of the kill; 0 for earlyoom."""

    threshold: int
    seen: Seen
    written_ns: int = 0
    breach: Any = None

    @property
    def kill_s(self) -> float:
        """The seconds from the crossing to the kill. Both clocks are the kernel's monotonic one; a
        sentinel may see the crossing up to a millisecond before the observer does."""
        return max(0.0, self.seen.after(self.written_ns))

    @property
    def dying_s(self) -> float:
        return self.seen.after(self.seen.dying)

    @property
    def empty_s(self) -> float:
        return self.seen.after(self.seen.empty)

    @property
    def below(self) -> int:
        """Bytes by which MemAvailable fell below the threshold."""
        return self.threshold - self.seen.lowest


def against_sentinel(
    place: Path, size: int, margin: int, *, container: bool = True, burners: int = 0, warm: int = 0
) -> Trial:
    """Run the real sentinel with one limit, `margin` bytes below what is available now. `warm` is
    how much memory is touched before, if that is not the hog's size."""
    threshold = _ready(size, margin, warm)
    with (
        posted(place, floor(threshold)) as post,
        hogs.waiting(["alloc", str(size), "0"], cgroup=container) as hog,
    ):
        post.arm(entry(hog))
        until(lambda: post.armed, f"armed: {post.status}")
        with _watched(threshold, hog, burners) as observer:
            hog.go()
            seen = observer.seen()
        if not seen.crossed or hog.alive:
            raise NoCrossing
        breach = post.breached()
        return Trial(threshold, seen, written_ns(breach), breach)


def against_earlyoom(size: int, margin: int, *, burners: int = 0) -> Trial:
    """Run Debian's earlyoom with the same threshold, in a pid namespace with the hog."""
    threshold = _ready(size, margin)
    with (
        earlyoom.armed(threshold) as first,
        hogs.waiting(["alloc", str(size), "0"], inside=first) as hog,
        _watched(threshold, hog, burners) as observer,
    ):
        hog.go()
        seen = observer.seen()
        if not seen.crossed or hog.alive:
            raise NoCrossing
        return Trial(threshold, seen)


def _ready(size: int, margin: int, warm: int = 0) -> int:
    assert margin >= MARGIN_LEAST, "less would be crossed by whoever else lives here"
    memory.warm(warm or size, 1 if warm else 4)
    memory.require(size)
    return memory.settled() - margin


@contextmanager
def _watched(threshold: int, hog: Hog, burners: int) -> Iterator[Observer]:
    observer = Observer(threshold, hog, limit_s=CROSSED_S)
    try:
        if burners:
            with hogs.burning(burners):
                yield observer
        else:
            yield observer
    finally:
        observer.close()


def entry(hog: Hog) -> Live:
    """Return its line in live.jsonl: a container if it has a control group of its own."""
    if hog.cgroup.name:
        return Live("container", "cand", container=hog.identity)
    return Live("process", "cand", hog.pid, hog.start)


def written_ns(breach: dict[str, Any]) -> int:
    """Return when the first kill was written, in monotonic nanoseconds."""
    return int((breach["mono"] + breach["written_s"]) * 1e9)
