"""One hog in a pid namespace and a control group of its own, and what was seen of its end."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.host import cgroup, process
from tests.guard.yard.memory import hog as hog_program
from tests.guard.yard.memory import program
from tests.testbed.cache import Unavailable
from tests.waiting import some, until

LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What benchmarks/hog_observer.c saw, in monotonic ns; 0 for what did not happen."""

    crossed: int
    dying: int
    dead: int
    empty: int
    back: int
    grew: int
    size: int
    lowest: int
    late: int
    real_time: bool

    def after(self, at: int) -> float:
        """Return the seconds from the crossing to a moment. Raises Unavailable if none was."""
        if not self.crossed or not at:
            raise Unavailable(f"no crossing, or no end: {self}")
        return (at - self.crossed) / 1e9

    @property
    def rate(self) -> float:
        """Bytes a second from the hog's start to the crossing."""
        return self.size * 1e9 / max(1, self.crossed - self.grew)


@dataclass
class Hog:
    """A hog that waits for a signal to start, and its directory in the unified hierarchy."""

    pid: int
    start: int
    cgroup: Path
    child: subprocess.Popen[bytes]

    def go(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(b"!")
        self.child.stdin.flush()

    @property
    def alive(self) -> bool:
        return process.alive(self.pid, self.start)


@contextmanager
def namespace(*argv: str) -> Iterator[int]:
    """Run `argv` in a pid namespace with a /proc of its own; yields its first pid."""
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--"]
    first = ["sh", "-c", '"$@"; exit $?', "first", *(argv or ("sleep", "600"))]
    with subprocess.Popen(
        [*words, *first], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            yield _child_of(child.pid)
        finally:
            child.kill()


@contextmanager
def waiting(
    argv: list[str], *, inside: int = 0, cgroup: bool = True, ram: int = 0
) -> Iterator[Hog]:
    """Start a hog that waits (`go` is appended). `inside`: in the pid namespace of that process.
    `ram`: the most that its control group may hold; the rest goes to swap."""
    enter = ["nsenter", "--target", str(inside), "--pid", "--"] if inside else []
    places = _own_cgroups() if cgroup else []
    for place in places if ram else []:
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (place / name).exists():
                (place / name).write_text(str(ram))
    child = subprocess.Popen(
        [*enter, str(hog_program()), *argv, "go"], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        pid = _child_of(child.pid) if inside else child.pid
        start = process.start_time(pid) or 0
        for place in places:
            (place / "cgroup.procs").write_text(str(pid))
        _until_it_waits(pid)
        yield Hog(pid, start, places[0] if places else Path(), child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)  # the hog dies with it
        with contextlib.suppress(OSError):
            some(child.stdin).close()
        child.wait()
        for place in places:
            _removed(place)


class Observer:
    """Watches one hog from now on; `seen()` waits for its end."""

    def __init__(self, threshold: int, hog: Hog, *, limit_s: float = LIMIT_S) -> None:
        events = str(hog.cgroup / "cgroup.events") if hog.cgroup.name else "-"
        words = [str(program("hog_observer")), str(threshold), str(hog.pid), events, str(limit_s)]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        if some(self._child.stdout).readline() != "ready\n":
            raise Unavailable(f"the observer did not start: exit {self._child.wait()}")

    def seen(self) -> Seen:
        out, _ = self._child.communicate(timeout=3 * LIMIT_S)
        return Seen(**json.loads(out))

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


@contextmanager
def burning(count: int) -> Iterator[None]:
    child = subprocess.Popen([str(hog_program()), "burn", str(count)], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _own_cgroups() -> list[Path]:
    """Make the directories that an engine would make for a container: one in the v2 hierarchy, and
    one in version 1's for memory if there is that."""
    trees = [t for t in cgroup.hierarchies() if not t.kind or "memory" in t.kind.split(",")]
    if not trees or trees[0].kind:
        raise Unavailable("no cgroup2 is mounted here")
    identity = secrets.token_hex(32)
    places = [Path(tree.mount, "docker", identity) for tree in trees]
    for place in places:
        try:
            place.mkdir(parents=True)
        except OSError as error:
            raise Unavailable(f"no cgroup can be made: {error.strerror}") from error
    return places


def _removed(place: Path) -> None:
    def gone() -> bool:
        with contextlib.suppress(OSError):
            place.rmdir()
        return not place.exists()

    until(gone, f"{place} is empty")


def _child_of(pid: int) -> int:
    path = Path(f"/proc/{pid}/task/{pid}/children")

    def child() -> int:
        with contextlib.suppress(OSError):
            return int((path.read_text().split() or ["0"])[0])
        return 0

    return until(child, "the namespace has a process")


def _until_it_waits(pid: int) -> None:
    """Wait until the process has become the hog and sleeps in its read."""

    def waits() -> bool:
        with contextlib.suppress(OSError):
            found = process.stat(pid)
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            return name == "hog" and found is not None and found.state == "S"
        return False

    until(waits, "the hog waits")
