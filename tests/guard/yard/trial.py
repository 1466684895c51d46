"""Measures one hog against one guard: the sentinel or earlyoom, with the same hog and the same
crossing."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.recovery.rollback.live import Live
from tests.guard.yard import hogs, memory
from tests.guard.yard.hogs import Hog, Observer, Seen
from tests.guard.yard.post import floor, posted
from tests.testbed import debian
from tests.testbed.cache import Unavailable, folder, locked
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
        seen = _crossed(threshold, hog, burners)
        breach = post.breached()
        return Trial(threshold, seen, int((breach["mono"] + breach["written_s"]) * 1e9))


def against_earlyoom(size: int, margin: int, *, burners: int = 0) -> Trial:
    """Run Debian's earlyoom with the same threshold, in a pid namespace with the hog."""
    threshold = _ready(size, margin)
    with watching(threshold) as first, hogs.waiting(["alloc", str(size), "0"], inside=first) as hog:
        return Trial(threshold, _crossed(threshold, hog, burners))


def _ready(size: int, margin: int, warm: int = 0) -> int:
    assert margin >= MARGIN_LEAST, "less would be crossed by whoever else lives here"
    memory.warm(warm or size, 1 if warm else 4)
    memory.require(size)
    return memory.settled() - margin


def _crossed(threshold: int, hog: Hog, burners: int) -> Seen:
    """Let the hog grow until it is dead."""
    observer = Observer(threshold, hog, limit_s=CROSSED_S)
    beside = hogs.burning(burners) if burners else contextlib.nullcontext()
    with contextlib.closing(observer), beside:
        hog.go()
        seen = observer.seen()
    if not seen.crossed or hog.alive:
        raise NoCrossing
    return seen


def entry(hog: Hog) -> Live:
    """Return its line in live.jsonl: a container if it has a control group of its own."""
    if hog.cgroup.name:
        return Live("container", "cand", container=hog.cgroup.name)
    return Live("process", "cand", hog.pid, hog.start)


def earlyoom() -> Path:
    """Return the program from Debian's archive, which is not installed: that would start it for the
    whole machine. Raises Unavailable."""
    kept = folder("yard") / "earlyoom"
    with locked("yard-earlyoom"):
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=folder("work")) as work:
                place = Path(work)
                packages = debian.fetch(debian.codename(), ["earlyoom"], place, depends=False)
                debian.unpack(packages, place / "root")
                found = place / "root/usr/bin/earlyoom"
                fresh = kept.with_suffix(".new")
                fresh.write_bytes(found.read_bytes())
                fresh.chmod(0o755)
                fresh.replace(kept)
    return kept


@contextmanager
def watching(threshold: int) -> Iterator[int]:
    """Run earlyoom, which sends SIGKILL below `threshold` bytes available, whatever swap is left
    (`-s 100`).

    Yields the first pid of its namespace, in which a hog can be put.
    """
    size = threshold // 1024
    words = [str(earlyoom()), "-p", "-r", "0", "-M", f"{size},{size}", "-s", "100,100"]
    words += ["--prefer", "^hog$"]
    with hogs.namespace(*words) as first:
        _until_it_watches(first)
        yield first


def _until_it_watches(first: int) -> None:
    """Check that its namespace's /proc has nothing but the shell above it and itself."""
    argv = ["nsenter", "--target", str(first), "--pid", "--mount", "--", "sh", "-c"]
    argv.append("cat /proc/[0-9]*/comm")

    def found() -> set[str]:
        out = subprocess.run(argv, capture_output=True, text=True, timeout=10).stdout
        seen = set(out.split()) - {"cat", "sh"}
        return seen if "earlyoom" in seen else set()

    if strangers := until(found, "it watches") - {"earlyoom"}:
        raise Unavailable(f"earlyoom would see {sorted(strangers)}")
    time.sleep(0.1)  # it locks its memory and rehearses
