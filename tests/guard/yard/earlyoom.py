"""Debian's earlyoom in a pid namespace with one hog: it can see and kill nothing else.

The package is unpacked and not installed, because installing would start it for the whole machine.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.guard.yard import hogs
from tests.testbed import debian
from tests.testbed.cache import Unavailable, folder, locked
from tests.waiting import until

KIB = 1024


def program() -> Path:
    """Return earlyoom from Debian's archive, kept in the testbed's cache. Raises Unavailable."""
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
def armed(threshold: int, *, dry: bool = False) -> Iterator[int]:
    """Run earlyoom, which sends SIGKILL below `threshold` bytes available, whatever swap is left
    (`-s 100`).

    Yields the first pid of its namespace, in which a hog can be put.
    """
    size = threshold // KIB
    words = [str(program()), "-p", "-r", "0", "-M", f"{size},{size}", "-s", "100,100"]
    words += ["--prefer", "^hog$", *(["--dryrun"] if dry else [])]
    with hogs.namespace(*words) as first:
        _until_it_watches(first)
        yield first


def within(first: int) -> list[str]:
    """Return the names of all processes that it can see."""
    enter = ["nsenter", "--target", str(first), "--pid", "--mount", "--"]
    script = "cat /proc/[0-9]*/comm"
    out = subprocess.run([*enter, "sh", "-c", script], capture_output=True, text=True, timeout=10)
    return sorted(set(out.stdout.split()) - {"cat"})


def _until_it_watches(first: int) -> None:
    """Check that its namespace's /proc has nothing but the shell above it and itself."""
    found = until(lambda: seen if "earlyoom" in (seen := within(first)) else None, "it watches")
    if strangers := set(found) - {"sh", "earlyoom"}:
        raise Unavailable(f"earlyoom would see {sorted(strangers)}")
    time.sleep(0.1)  # it locks its memory and rehearses
