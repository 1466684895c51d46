"""A scratch run with a real sentinel, and made-up trees of /proc and /sys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.guard import breach
from console.guard import sheet as sheets
from console.guard.limits import Limit
from console.guard.recorder_read import Recording, open_newest
from console.guard.sheet import Sheet
from console.paths import module_argv
from console.rollback import live
from console.services import process
from tests.waiting import until

MIB = 1 << 20
HOG = """
import sys, time
step, steps, pause = (float(word) for word in sys.argv[1:])
kept = []
for _ in range(int(steps)):
    kept.append(bytearray(b"x" * int(step)))
    time.sleep(pause)
time.sleep(600)
"""


def put(root: Path, path: str, text: str) -> Path:
    """A file of a made-up tree."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


class Post:
    """A run directory with a sheet, and the real sentinel of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.run = home / "run"
        self.guard = self.run / "guard"
        for directory in (self.guard, self.run / "rollback"):
            directory.mkdir(parents=True)
        own = os.getpid()
        self.sheet = Sheet(
            f"run-{own}-{home.name}", str(self.run), f"omni-test-{own}-{home.name}.ring",
            runner=(own, process.start_time(own) or 0),
        )  # fmt: skip
        self.children: list[subprocess.Popen[bytes]] = []

    def write(self, **changes: Any) -> None:
        """The sheet, with other values."""
        self.sheet = replace(self.sheet, **changes)
        path = self.guard / sheets.SHEET
        path.with_suffix(".new").write_text(json.dumps(self.sheet.to_json()))
        path.with_suffix(".new").replace(path)

    def start(self, *limits: Limit, **changes: Any) -> subprocess.Popen[bytes]:
        """A sentinel that says it watches."""
        self.write(limits=limits, **changes)
        child = self.spawn()
        until(
            lambda: self.ready().get("pid") == child.pid or child.poll() is not None,
            "the sentinel watches", where=lambda: str(self.ready()),
        )  # fmt: skip
        assert child.poll() is None
        return child

    def spawn(self) -> subprocess.Popen[bytes]:
        places = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "OMNI_HOST_DIR")
        environment = {k: v for k, v in os.environ.items() if k not in ("OMNI_SITE", "OMNI_RUN")}
        child = subprocess.Popen(
            [*module_argv("console.guard.sentinel"), str(self.guard)],
            env=environment | dict.fromkeys(places, str(self.home)),
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    def hog(self, step: int = 16 * MIB, steps: int = 32, pause: float = 0.02) -> tuple[int, int]:
        """A process in a session of its own that takes `step` bytes at a time."""
        words = [str(step), str(steps), str(pause)]
        child = subprocess.Popen(
            [sys.executable, "-c", HOG, *words], stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.children.append(child)
        return child.pid, process.start_time(child.pid) or 0

    def record(self, name: str, who: tuple[int, int], kind: str = "process") -> None:
        live.append(self.run / "rollback" / live.LIVE, live.Live(kind, name, *who))

    def arm(self, name: str, who: tuple[int, int]) -> None:
        self.record(name, who)
        self.tell(do="arm")

    def tell(self, **message: Any) -> None:
        descriptor = os.open(self.guard / sheets.INBOX, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, json.dumps(message).encode() + b"\n")
        finally:
            os.close(descriptor)

    def ready(self) -> dict[str, Any]:
        return self._read(sheets.READY)

    def breach(self) -> dict[str, Any]:
        return self._read(sheets.BREACH)

    def recording(self) -> Recording:
        found = open_newest(self.run)
        assert found is not None
        return found

    def events(self, what: str) -> list[str]:
        found = open_newest(self.run)
        return [e["text"] for e in found.events() if e["what"] == what] if found else []

    def status(self) -> dict[str, Any]:
        return self.recording().status() or {}

    def ended(self, who: tuple[int, int]) -> int:
        """How a child of this one ended."""
        child = next(one for one in self.children if one.pid == who[0])
        return child.wait(60)

    def close(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait(60)
            if child.stderr is not None:
                child.stderr.close()
        (Path("/dev/shm") / self.sheet.ring).unlink(missing_ok=True)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads((self.guard / name).read_text())
        except (OSError, ValueError):
            return {}
        assert isinstance(value, dict)
        return value


@pytest.fixture(autouse=True)
def _a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written of a breach is there when it is looked for, however long a disk takes."""
    monkeypatch.setattr(breach, "WRITE_S", 60.0)


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    one = Post(tmp_path)
    yield one
    one.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A sentinel's work on a made-up machine (`made_site.Site`) that has gone on for a second."""
    from tests.guard.made_site import Site

    made: list[Site] = []

    def one(*limits: Limit, **changes: Any) -> Site:
        made.append(Site(tmp_path, *limits, **changes))
        made[-1].pass_time(1)
        return made[-1]

    yield one
    for site in made:
        site.close()
