"""Where figures were taken, how busy it was, and where results and work files go."""

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench-results"
MEMORY_ONLY = ("tmpfs", "ramfs")


class CannotRun(Exception):
    """A benchmark's real part is not to be had here; the reason in plain words."""


def machine() -> dict[str, Any]:
    """The class of machine, without anything that names it."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.freedesktop_os_release()["PRETTY_NAME"],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": filesystem(),
    }


def load() -> dict[str, float]:
    """Load of the last minute, and how long tasks stood waiting for a core (10 s, percent)."""
    words = Path("/proc/pressure/cpu").read_text().split()
    return {
        "one_minute": round(os.getloadavg()[0], 2),
        "pressure_percent": float(words[1].partition("=")[2]),
    }


def filesystem() -> str:
    """Type of the file system that the results are on."""
    RESULTS.mkdir(exist_ok=True)
    mounts = [p for p in psutil.disk_partitions(all=True) if RESULTS.is_relative_to(p.mountpoint)]
    return str(max(mounts, key=lambda mount: len(mount.mountpoint)).fstype)


@contextmanager
def workplace() -> Iterator[Path]:
    """An empty folder on the disk that holds the results, gone afterwards."""
    if (kind := filesystem()) in MEMORY_ONLY:
        raise CannotRun(f"{RESULTS.name}/ is on {kind}: a commit there costs nothing")
    with TemporaryDirectory(dir=RESULTS, prefix="work-") as place:
        yield Path(place)


def command() -> list[str]:
    """argv of `omni-console` under this very interpreter."""
    return [str(Path(sys.executable).with_name("omni-console"))]


def environment(place: Path, **extra: str) -> dict[str, str]:
    """The environment of both sides: bytecode is kept, as in any installation, in `place`."""
    drop = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "OMNI_SITE", "SUDO_UID")
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(place / "pyc"), **extra}


def timed(argv: list[str], env: dict[str, str]) -> Callable[[], float]:
    """A way to measure: how long a command takes, in seconds."""

    def way() -> float:
        begun = time.perf_counter()
        subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        return time.perf_counter() - begun

    return way


@contextmanager
def meanwhile(act: Callable[[threading.Event], None]) -> Iterator[None]:
    """`act` in a thread until the end of the block, which its event tells."""
    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def helper(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A module of the tests in a process of its own, to talk to by its stdin and stdout."""
    argv, pipe = [sys.executable, "-m", module, *arguments], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.terminate()


def keep(record: dict[str, Any]) -> None:
    """Add one run to the day's file in bench-results/."""
    path = RESULTS / f"{time.strftime('%Y-%m-%d')}.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(f"\nkept in {path.parent.name}/{path.name}")
