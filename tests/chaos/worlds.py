"""Hostile worlds: what is prepared before a trial, how the world turns, and how it is lifted.

Mounts are in a mount namespace of the trial's own process. The clock of the machine is not touched:
in the namespace every new program loads a shim that adds an offset, read from a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos.draw import BY_SCRIPT

CLONE_NEWNS = 0x00020000
ROOT = Path(__file__).parents[2]
MOVED = 'raise ImportError("another version has moved this")\n'
FILES = 32
STATE_SIZE, SHM_SIZE = "48m", "64k"
HOUR = 3600
LOSABLE = (
    "plan.json", "rollback.sh", "warm.json", "live.jsonl", "ladder.jsonl", "asked.jsonl",
)  # fmt: skip
LOST_SHARE, CHANGED_SHARE = 0.3, 0.5
"""How often a file of a run's rollback directory is lost, and the site file has a new line."""
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long *shift;
static int (*ask)(clockid_t, struct timespec *);
__attribute__((constructor)) static void begin(void) {
    int file = open(OFFSET, O_RDONLY | O_CLOEXEC);
    void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
    if (file >= 0) close(file);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!ask) ask = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = ask(clock, now);
    if (!code && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *shift;
    return code;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    int code = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return code;
}
time_t time(time_t *out) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (out) *out = found.tv_sec;
    return found.tv_sec;
}
"""


class Hostile:
    """One trial's world. `turn` at the moment of the trial, `lift` before its last rollback."""

    def __init__(self, name: str, root: Path, shim: Path | None = None) -> None:
        self.name, self.root, self.shim = name, root, shim
        self.state = root / "state"
        self.turned = False
        self.broken: list[Path] = []
        """What is hidden behind a mount."""

    @property
    def files(self) -> bool:
        return self.turned and self.name == "few-files"

    def enter(self) -> None:
        """Before anything of the trial runs."""
        if self.name in ("full-disk", "read-only", "clock", "shm", *BY_SCRIPT):
            private_mounts()
        if self.name == "full-disk":
            mount("-t", "tmpfs", "-o", f"size={STATE_SIZE}", "state", str(self.state))
        elif self.name == "shm":
            mount("-t", "tmpfs", "-o", f"size={SHM_SIZE}", "shm", "/dev/shm")
            fill(Path("/dev/shm"))
        elif self.name == "clock":
            self._clock(0)
            copy = self.root / "etc"
            subprocess.run(["cp", "-a", "/etc", str(copy)], check=True)
            (copy / "ld.so.preload").write_text(f"{self.shim}\n")
            mount("--bind", str(copy), "/etc")

    def turn(self, dice: Callable[[], float], pids: list[int]) -> None:
        self.turned = True
        if self.name == "full-disk":
            fill(self.state)
        elif self.name == "read-only":
            # Made elsewhere and moved: what opened a file of it meanwhile would keep it writable.
            aside = self.root / "read-only"
            aside.mkdir()
            mount("--bind", str(self.state), str(aside))
            mount("-o", "remount,bind,ro", str(aside))
            mount("--move", str(aside), str(self.state))
        elif self.name == "clock":
            self._clock(HOUR if dice() < 0.5 else -HOUR)
        elif self.name in BY_SCRIPT:
            self._break_python()
        elif self.name == "few-files":
            for pid in pids:
                limit_files(pid)
        elif self.name == "lost-files":
            for path in sorted(self.state.glob("omni-console/runs/*/rollback/*")):
                if path.name in LOSABLE and dice() < LOST_SHARE:
                    path.unlink()
            if dice() < CHANGED_SHARE:
                with (self.root / "site.yaml").open("a") as file:
                    file.write("# changed while the run went on\n")

    def lift(self) -> None:
        self.turned = False
        if self.name == "full-disk":
            (self.state / "full").unlink()
        elif self.name == "read-only":
            subprocess.run(["umount", "--lazy", str(self.state)], check=True)
        elif self.name in BY_SCRIPT:
            for place in self.broken:
                subprocess.run(["umount", "--lazy", str(place)], check=True)

    def _break_python(self) -> None:
        """The console's files, its environment, or every Python are gone from now on."""
        instead = self.root / "instead"
        if self.name == "upgrade":
            shutil.copytree(ROOT / "console", instead, ignore=shutil.ignore_patterns("*.pyc"))
            for path in (instead / "recovery").rglob("*.py"):
                path.write_text(MOVED)
            places = [ROOT / "console"]
        else:
            instead.mkdir()
            places = [ROOT / "console", Path(sys.prefix)]
        for place in places:
            mount("--bind", str(instead), str(place))
        pythons = sorted(_pythons()) if self.name == "no-python" else []
        for python in pythons:
            mount("--bind", "/dev/null", str(python))
        self.broken = [*pythons, *places]

    def _clock(self, seconds: int) -> None:
        with open(offset_file(self.root), "r+b" if self.turned else "wb") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))


def _pythons() -> Iterator[Path]:
    """Every interpreter that somebody might name, but for copies in other places."""
    places = [Path(folder) for folder in os.environ["PATH"].split(":")]
    places += [Path(sys.executable).resolve().parent, Path("/usr/bin"), Path("/usr/local/bin")]
    found = {path.resolve() for place in places for path in place.glob("python3*")}
    yield from (path for path in found if path.is_file() and not path.is_relative_to(sys.prefix))


def offset_file(root: Path) -> Path:
    return root / "clock"


def build_clock(root: Path) -> Path:
    """The shim, compiled for the trial's own file of the offset."""
    made = root / "clock.so"
    define = f'-DOFFSET="{offset_file(root)}"'
    argv = ["gcc", "-shared", "-fPIC", "-O1", define, "-x", "c", "-", "-o", str(made), "-ldl"]
    subprocess.run(argv, input=CLOCK, text=True, check=True)
    return made


def private_mounts() -> None:
    """This process and its children see mounts that nobody else does. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace of its own")
    mount("--make-rprivate", "/")


def mount(*argv: str) -> None:
    subprocess.run(["mount", *argv], check=True)


def fill(directory: Path) -> None:
    """Until not one byte more can be written."""
    descriptor = os.open(directory / "full", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, b"\0" * size)
    finally:
        os.close(descriptor)


def limit_files(pid: int) -> None:
    with contextlib.suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
