"""The sheet a sentinel works from: RUN/guard/guard.json, written by the runner before the first
effect and again when something changes (the inbox says so).

It names everything by identity, so that nothing has to be looked up in a playbook or site.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.models.sizing.load_curve import Envelope
from console.recovery.guard.limits import Limit

DIRECTORY = "guard"
"""Inside the run's directory."""
SHEET = "guard.json"
INBOX = "inbox"
"""FIFO, one JSON line a message (at most PIPE_BUF bytes), see `Message` below."""
READY = "sentinel.json"
"""pid, start time and the protections it got or not, in words; written when it watches."""
BREACH = "breach.json"
"""What was breached, what was killed, and the samples before: written after the kill."""
RING = "recorder.ring"
"""The flight recorder's copy on disk; the live one is in /dev/shm, named in the sheet."""
SCHEMA = "omni.guard/v1"
NOTHING_PREDICTED = Envelope()

# Messages: {"do": "beat"} every second; {"do": "arm"} after a line was appended to live.jsonl
# (the sentinel reads what is alive from there); {"do": "sheet"} the sheet was written anew;
# {"do": "advisory", "on": bool} a rollback climbs: warn, never kill; {"do": "outage", "on": bool}
# the baseline is down or back; {"do": "attended"} an operator is attached (renews the lease);
# {"do": "quit"} the run is over.


@dataclass(frozen=True, slots=True)
class Sheet:
    """See the module. `spare`: ids of containers that are never touched; `spare_pids`:
    (pid, start) of the baseline's process; `logs`: service → file; `lease_s`: how
    long nobody may be attached while the baseline is down, 0 for as long as it takes."""

    run_id: str
    run_dir: str
    ring: str
    limits: tuple[Limit, ...] = ()
    envelope: Envelope = NOTHING_PREDICTED
    spare: tuple[str, ...] = ()
    spare_pids: tuple[tuple[int, int], ...] = ()
    engine: str = ""
    gpus: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    logs: dict[str, str] = field(default_factory=dict)
    runner: tuple[int, int] = (0, 0)
    lease_s: float = 0.0

    @property
    def directory(self) -> Path:
        return Path(self.run_dir) / DIRECTORY

    @property
    def rollback_dir(self) -> Path:
        return Path(self.run_dir) / "rollback"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "run_id": self.run_id, "run_dir": self.run_dir, "ring": self.ring,
            "limits": [limit.to_json() for limit in self.limits],
            "envelope": self.envelope.to_json(), "spare": list(self.spare),
            "spare_pids": [list(pair) for pair in self.spare_pids], "engine": self.engine,
            "gpus": list(self.gpus), "disks": list(self.disks), "logs": self.logs,
            "runner": list(self.runner), "lease_s": self.lease_s,
        }  # fmt: skip


def read(path: Path) -> Sheet:
    """The sheet in a file. Raises OSError, and ValueError with what is wrong."""
    data = json.loads(path.read_bytes())
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise ValueError("not a guard sheet of this version")
    try:
        data["limits"] = tuple(Limit.from_json(one) for one in data["limits"])
        data["envelope"] = Envelope.from_json(data["envelope"])
        for key in ("spare", "gpus", "disks"):
            data[key] = tuple(str(one) for one in data[key])
        data["spare_pids"] = tuple((int(pid), int(start)) for pid, start in data["spare_pids"])
        pid, start = data["runner"]
        return Sheet(**{**data, "runner": (int(pid), int(start))})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a guard sheet: {error}") from None
