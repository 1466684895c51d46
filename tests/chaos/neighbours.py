"""Two everyday servers that are nobody's candidates: the adopted baseline of another site, and the
server of an earlier `init` of this one, whose record was put aside."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from console.host import process
from console.recovery.rollback import live
from console.recovery.rollback.live import LIVE, Live
from tests.chaos import facts
from tests.ports import free_port
from tests.rollback import standin


@dataclass(frozen=True)
class Neighbour:
    """A server, where it answers, and whose it is in words."""

    child: subprocess.Popen[bytes]
    start: int
    port: int
    words: str

    @property
    def serves(self) -> bool:
        return process.alive(self.child.pid, self.start) and facts.healthy(self.port)


class Neighbours:
    """Both servers, started by nobody of this console, with the records that take them over."""

    def __init__(self, records: Path) -> None:
        self.each = [
            _started(records.parent / "other" / "baseline.json", "the baseline of another site"),
            _started(records / "baseline.0123abcd.json", "the server of an earlier init"),
        ]

    def slander(self, runs: Path) -> None:
        """A line in the newest run's own records that takes both for its processes."""
        for path in sorted(runs.glob(f"*/rollback/{LIVE}"))[-1:]:
            for one in self.each:
                with contextlib.suppress(OSError):
                    live.append(path, Live("process", "neighbour", one.child.pid, one.start))

    def ended(self) -> list[str]:
        return [f"{one.words}, pid {one.child.pid}," for one in self.each if not one.serves]

    def close(self) -> None:
        for one in self.each:
            one.child.kill()
            one.child.wait()


def _started(record: Path, words: str) -> Neighbour:
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", standin.__file__, str(port)], cwd="/",
        env={"PATH": os.defpath}, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    start = process.start_time(child.pid) or 0
    record.parent.mkdir(parents=True, exist_ok=True)
    value = {"pid": child.pid, "start": start, "boot_id": process.boot_id(), "sha": "0123abcd"}
    record.write_text(json.dumps(value) + "\n")
    return Neighbour(child, start, port, words)
