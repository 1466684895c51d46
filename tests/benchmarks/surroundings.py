"""Where figures were taken, how busy it was, and where results and work files go."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
MEMORY_ONLY = ("tmpfs", "ramfs")


class CannotRun(Exception):
    """A benchmark's real part is not to be had here; the reason in plain words."""


def machine() -> dict[str, Any]:
    """The class of machine, without anything that names it."""
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return {
        "cores": len(os.sched_getaffinity(0)),
        "system": system,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": filesystem(RESULTS),
    }


def load() -> dict[str, float]:
    """Load of the last minute, and how long tasks stood waiting for a core (10 s, percent)."""
    found = {"one_minute": round(os.getloadavg()[0], 2)}
    try:
        words = Path("/proc/pressure/cpu").read_text().split()
        found["pressure_percent"] = float(words[1].partition("=")[2])
    except (OSError, ValueError, IndexError):
        pass
    return found


def filesystem(path: Path) -> str:
    """Type of the file system that a path is on, by the longest mount point above it."""
    path.mkdir(parents=True, exist_ok=True)
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        words = line.split()
        point = words[1].rstrip("/")
        if len(point) >= len(best) and f"{path}/".startswith(f"{point}/"):
            best, kind = point, words[2]
    return kind


@contextmanager
def workplace() -> Iterator[Path]:
    """An empty folder on the disk that holds the results, gone afterwards."""
    if (kind := filesystem(RESULTS)) in MEMORY_ONLY:
        raise CannotRun(f"{RESULTS.name}/ is on {kind}: a commit there costs nothing")
    with TemporaryDirectory(dir=RESULTS, prefix="work-") as place:
        yield Path(place)


def command() -> list[str]:
    """argv of `omni-console` under this very interpreter."""
    script = Path(sys.executable).with_name("omni-console")
    return [str(script)] if script.exists() else [sys.executable, "-m", "console.cli"]


def environment(place: Path, **extra: str) -> dict[str, str]:
    """The environment of both sides: bytecode is kept, as in any installation, in `place`."""
    drop = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "OMNI_SITE", "SUDO_UID")
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    root = Path(__file__).resolve().parents[2]
    return {**kept, "PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": str(place / "pyc"), **extra}


def timed(argv: list[str], env: dict[str, str]) -> Callable[[], float]:
    """A way to measure: how long a command takes, in seconds."""

    def way() -> float:
        begun = time.perf_counter()
        subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        return time.perf_counter() - begun

    return way


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """A variable of this process's environment for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def keep(record: dict[str, Any]) -> Path:
    """Add one run to the day's file in bench-results/; its path."""
    path = RESULTS / f"{time.strftime('%Y-%m-%d')}.json"
    path.parent.mkdir(exist_ok=True)
    runs: list[dict[str, Any]] = []
    if path.exists():
        runs = json.loads(path.read_text())["runs"]
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"runs": [*runs, record]}, indent=1) + "\n")
    beside.replace(path)
    return path
