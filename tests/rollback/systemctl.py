"""A stand-in for systemctl, at the outermost boundary: no systemd, and no control groups.

    python systemctl.py DIRECTORY [OPTIONS] VERB NAME

DIRECTORY/NAME is the unit: its argv as JSON. It is started in a session of its own, as systemd does
it, with its pid in DIRECTORY/NAME.pid; every command line is a line of DIRECTORY/said. A stop is
SIGTERM and no more, as it is before TimeoutStopSec has passed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path


def start_of(pid: int) -> str:
    """Field 22 of its stat; "" for a process that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def main(place: Path, words: list[str]) -> int:
    with (place / "said").open("a") as said:
        print(*words, file=said)
    options, (verb, name) = words[:-2], (next(w for w in words if w[0] != "-"), words[-1])
    unit, record = place / name, place / f"{name}.pid"
    pid = int(record.read_text() or 0) if record.exists() else 0
    up = bool(pid and start_of(pid))
    if verb == "show":
        rows = {
            "LoadState": "loaded" if unit.exists() else "not-found",
            "ActiveState": "active" if up else "inactive",
            "SubState": "running" if up else "dead",
            "MainPID": str(pid if up else 0), "ControlGroup": "", "NRestarts": "0",
            "InvocationID": f"{pid:032x}" if pid else "",  # it stays until the next start
        }  # fmt: skip
        wanted = next(w for w in words if w.startswith("--property="))[11:].split(",")
        print("\n".join(f"{key}={rows[key]}" for key in wanted))
    elif not unit.exists():
        print(f"Failed to {verb} {name}: Unit {name} not found.", file=sys.stderr)
        return 5
    elif verb == "start" and not up:
        out = (place / "log").open("ab")
        child = subprocess.Popen(
            json.loads(unit.read_text()), stdin=-3, stdout=out, stderr=out, start_new_session=True
        )
        record.write_text(str(child.pid))
    elif verb in ("stop", "kill") and up:
        hard = "--signal=SIGKILL" in [*options, *words]
        os.killpg(pid, signal.SIGKILL if hard else signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
