"""Every fault of a playbook, one rehearsal after another: ``python -m tests.rehearsal PLAYBOOK``.

Needs Docker, the extra `demo` and some minutes a fault. Exit 1 where one ends as it should not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from console.rehearsal.fault import FAULTS

COMMAND = str(Path(sys.executable).with_name("omni-console"))
LIMIT_S = 1800.0
UNDONE = {"no-sm120", "cuda-error", "vram", "ram", "crash", "never-ready"}
"""Faults that end in a rollback wherever a playbook names the criterion."""


def one(playbook: str, fault: str, more: list[str]) -> bool:
    """Rehearse it; whether it ended as the fault asks for."""
    argv = [COMMAND, "run", playbook, "--rehearse", "--yes", "--json", *more]
    begun = time.monotonic()
    done = subprocess.run(
        [*argv, *(["--fault", fault] if fault else [])], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    try:
        found = json.loads(done.stdout)
    except ValueError:
        print(f"{fault or 'none':<12} exit {done.returncode}: {done.stderr.strip()[-300:]}")
        return False
    ended = (found.get("state"), found.get("decision"))
    took = time.monotonic() - begun
    print(f"{fault or 'none':<12} {ended[0]}, {ended[1]}: {found.get('because')} ({took:.0f} s)")
    return bool(ended[0] == "rolled_back" if fault in UNDONE else ended[0] != "rollback_failed")


def main(arguments: list[str]) -> int:
    """`PLAYBOOK [--input NAME=VALUE …]`."""
    playbook, *more = arguments or ["operation-lazarus"]
    ended = [one(playbook, fault, more) for fault in ("", *FAULTS)]
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
