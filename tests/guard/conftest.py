"""A scratch run with a real sentinel, and made-up trees of /proc and /sys."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from console.host import process
from console.recovery.guard import breach
from console.recovery.guard.config import Limit

Sleeper = Callable[..., tuple[int, int]]


def put(root: Path, path: str, text: str) -> Path:
    """Write one file of a made-up tree."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Start processes in sessions of their own, which sleep unless another command is given."""
    children: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **more: Any) -> tuple[int, int]:
        child = subprocess.Popen(argv or ("sleep", "600"), start_new_session=True, **more)
        children.append(child)
        return child.pid, process.start_time(child.pid) or 0

    yield start
    for child in children:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(60)


@pytest.fixture(autouse=True)
def _a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let breach.json be on disk before a test reads it, however long the disk takes."""
    monkeypatch.setattr(breach, "WRITE_S", 60.0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A guard loop on a made-up machine (`made_site.Site`) that has run for a second."""
    from tests.guard.made_site import Site

    made: list[Site] = []

    def one(*limits: Limit, **changes: Any) -> Site:
        made.append(Site(tmp_path, *limits, **changes))
        made[-1].pass_time(1)
        return made[-1]

    yield one
    for site in made:
        site.close()
